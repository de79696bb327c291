//! Which events are in the log, and which wait to enter it?

use super::Outcome;
use super::args::seq;
use super::condition::WantedArgs;
use super::output::{self, OutputArgs};
use super::target::{Access, Target, TargetArgs};
use crate::http::condition_failed;
use crate::http::shapes::PageShape;
use clap::Args;
use ensue::store::PAGE_BYTES_MAX;
use ensue::{ConditionErrors, Event, NewestPage, ObjectKey, Pending, Selection, Seq, Wanted};

/// `ensue event list`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue event list                                           # from the beginning of the log
  ensue event list --newest --limit 10                       # the last ten, newest first
  ensue event list --topic order --after 500 --limit 10      # ten events about orders after seq 500
  ensue event list --where 'e.payload @> s.params' --params '{\"customer\": 7}'
  ensue event list --pending                                 # delayed ones, the next to enter first
  ensue event list --pending --json | jq -r '.events[].id'
  ensue event list --store sqlite:ensue.db                   # also while a server has it open

With --json: the page of GET /v1/events; its next is the --after of the next page (with --newest
the --before, null after the last page), its first the oldest seq that retention has left.
docs/conditions.md has the language of --where; an event on which it fails (a cast of a text that
is no number) is left out: told on stderr, with --json in condition_errors. `ensue tail` follows
what comes. Exit code 0 also if there is nothing to list; 4 if --after is beyond the end of the log.")]
pub struct ListArgs {
    /// Delayed events, in the order in which they will enter the log
    #[arg(long, conflicts_with_all = ["after", "newest", "topic", "object", "condition"])]
    pending: bool,
    /// Newest events first
    #[arg(long)]
    newest: bool,
    /// With --newest: only events before this seq
    #[arg(long, value_name = "SEQ", value_parser = seq, requires = "newest")]
    before: Option<Seq>,
    /// Only events after this seq; 0 for the beginning
    #[arg(long, value_name = "SEQ", default_value_t = 0, value_parser = seq)]
    after: Seq,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    limit: u16,
    #[command(flatten)]
    wanted: WantedArgs,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Carries out `ensue event list`.
pub async fn run(args: ListArgs) -> anyhow::Result<Outcome> {
    let limit = usize::from(args.limit);
    let wanted = args.wanted.check()?;
    let target = args.target.open(Access::Read).await?;
    if args.pending {
        let pending = target.pending(limit).await?;
        target.close().await;
        show_pending(&pending, limit, args.output)?;
    } else if args.newest {
        let newest = read_newest(&target, args.before, args.after, limit, &wanted).await?;
        target.close().await;
        show_newest(&newest, args.output)?;
    } else {
        let listed = read(&target, args.after, limit, &wanted).await?;
        target.close().await;
        show_logged(&listed, args.after, args.output)?;
    }
    Ok(Outcome::Done)
}

/// What was read, and why it ends where it does.
struct Listed {
    selection: Selection,
    ended: bool,
}

/// Reads until there is enough or the log ends. A page of the store ends earlier where it had to look far, which is of no
/// interest here; what is held is bounded as a page is.
async fn read(target: &Target, mut after: Seq, limit: usize, wanted: &Wanted) -> anyhow::Result<Listed> {
    let Selection { mut page, condition_errors: mut errors } = target.read(after, limit, wanted).await?;
    let mut held = bytes(&page.events);
    while page.next > after && page.events.len() < limit && held < PAGE_BYTES_MAX {
        after = page.next;
        let more = target.read(after, limit - page.events.len(), wanted).await?;
        held += bytes(&more.page.events);
        page.events.extend(more.page.events);
        page.next = more.page.next;
        errors = ConditionErrors::and(errors, more.condition_errors);
    }
    Ok(Listed { ended: page.next == after, selection: Selection { page, condition_errors: errors } })
}

/// The same, newest first.
async fn read_newest(
    target: &Target,
    before: Option<Seq>,
    after: Seq,
    limit: usize,
    wanted: &Wanted,
) -> anyhow::Result<NewestPage> {
    let mut newest = target.read_newest(before, after, limit, wanted).await?;
    while newest.next.is_some() && newest.events.len() < limit && bytes(&newest.events) < PAGE_BYTES_MAX {
        let more = target.read_newest(newest.next, after, limit - newest.events.len(), wanted).await?;
        newest.events.extend(more.events);
        newest.next = more.next;
        newest.condition_errors = ConditionErrors::and(newest.condition_errors, more.condition_errors);
    }
    Ok(newest)
}

fn bytes(events: &[Event]) -> usize {
    events.iter().map(|event| event.payload.as_str().len()).sum()
}

fn show_newest(newest: &NewestPage, how: OutputArgs) -> anyhow::Result<()> {
    if how.json {
        return output::json(&PageShape::from(newest));
    }
    show_errors(newest.condition_errors.as_ref());
    show_events(&newest.events)?;
    if let Some(next) = newest.next {
        output::note(format_args!("older events: --newest --before {next}"));
    }
    Ok(())
}

fn show_errors(errors: Option<&ConditionErrors>) {
    if let Some(ConditionErrors { count, first }) = errors {
        output::note(condition_failed(first));
        if *count > 1 {
            output::note(format_args!("and on {} more", count - 1));
        }
    }
}

fn show_events(events: &[Event]) -> anyhow::Result<()> {
    if events.is_empty() {
        return output::line("no such event is in the log");
    }
    let rows = events.iter().map(|event| {
        [
            event.seq.to_string(),
            event.recorded_at.to_string(),
            event.topic.to_string(),
            object(event.object.as_ref()),
            event.payload.as_str().to_string(),
        ]
    });
    output::block(output::table(["seq", "recorded_at", "topic", "object", "payload"], rows))
}

fn show_logged(Listed { selection, ended }: &Listed, after: Seq, how: OutputArgs) -> anyhow::Result<()> {
    if how.json {
        return output::json(&PageShape::from(selection));
    }
    let page = &selection.page;
    show_errors(selection.condition_errors.as_ref());
    if page.first > after.saturating_add(1) {
        output::note(format_args!("retention has forgotten seq {} to {}", after + 1, page.first - 1));
    }
    show_events(&page.events)?;
    if !ended && !page.events.is_empty() {
        output::note(format_args!("what follows: --after {}", page.next));
    }
    Ok(())
}

fn show_pending(pending: &[Pending], limit: usize, how: OutputArgs) -> anyhow::Result<()> {
    if how.json {
        return output::json(&PageShape::of_pending(pending));
    }
    if pending.is_empty() {
        return output::line("no event is pending");
    }
    let rows = pending.iter().map(|pending| {
        let (id, due) = (pending.id.to_string(), pending.not_before.to_string());
        [id, due, pending.topic.to_string(), object(pending.object.as_ref())]
    });
    output::block(output::table(["id", "not_before", "topic", "object"], rows))?;
    if pending.len() == limit {
        output::note("there may be more: --limit N shows up to 1000");
    }
    Ok(())
}

fn object(object: Option<&ObjectKey>) -> String {
    object.map_or("-".into(), ToString::to_string)
}
