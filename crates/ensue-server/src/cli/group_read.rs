//! What is next for a group, and what did it see before?

use super::Outcome;
use super::args::seq;
use super::group_ask as ask;
use super::output::{self, OutputArgs, shown};
use super::target::{Access, Target, TargetArgs};
use crate::config::units::Span;
use anyhow::{Context, bail};
use clap::Args;
use ensue::Seq;
use ensue::groups::{LIMIT_MAX, Pull};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::time::Duration;

/// `ensue group read`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue group read billing                                   # what is next, up to a hundred
  ensue group read billing --limit 10 --wait 20s --json | jq -c '[.seq, .subscriptions]'
  ensue group read billing --peek                            # only look: it comes again

Prints one event a line as `ensue tail` does; with --json each has the ids of the subscriptions
that want it. When all is printed, the group is moved on: if printing fails, everything comes
again. While somebody else reads the group this is refused, but for --peek. What retention took
before it could be read, and conditions that failed on an event, are told on stderr.
Exit code 0 also if there was nothing, which is told on stderr; 3: the group does not exist;
4: another reader has its lease.")]
pub struct ReadArgs {
    /// Its name
    group: String,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    limit: u16,
    /// If there is nothing: wait so long for something, at most 30s
    #[arg(long, value_name = "SPAN")]
    wait: Option<Span>,
    /// Only look: the group stays where it is
    #[arg(long)]
    peek: bool,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// `ensue group replay`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue group replay billing --from 100 --to 200             # what billing gets of seq 100 to 200
  ensue group replay billing --from 1 --json | jq .payload   # up to the end of the log

Prints what the subscriptions of the group, as they are now, want of a range: one event a line, as
`ensue group read` does. The group stays where it is, and whoever reads it is not disturbed.
The group of a handler prints nothing: its handler runs the range again, in order for each object,
and goes on where it was. That has to wait while objects of it wait or are held.")]
pub struct ReplayArgs {
    /// Its name
    group: String,
    /// The first seq
    #[arg(long, value_name = "SEQ", value_parser = seq)]
    from: Seq,
    /// The last seq [default: the newest]
    #[arg(long, value_name = "SEQ", value_parser = seq)]
    to: Option<Seq>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Carries out `ensue group read`.
pub async fn read(args: ReadArgs) -> anyhow::Result<Outcome> {
    let access = if args.peek { Access::Read } else { Access::Write };
    let flags = args.target.flags();
    let target = args.target.open(access).await?;
    let wait = args.wait.map_or(Ok(Duration::ZERO), |span| Duration::try_from(span.0)).context("--wait")?;
    let pull = Pull {
        limit: usize::from(args.limit),
        wait,
        peek: args.peek,
        reader: "ensue group read".into(),
        ..Pull::default()
    };
    let text = ask::read(&target, &args.group, pull).await?;
    let answer = Answer::of(&text)?;
    answer.tell_what_is_missing();
    answer.print(Seq::MAX, args.output)?;
    if answer.events.is_empty() && answer.lost.is_none() {
        output::note(nothing(&ask::show(&target, &args.group).await?, &args.group, &flags));
    }
    if let Some(lease) = answer.lease {
        ask::commit(&target, &args.group, lease, answer.cursor).await?;
    }
    target.close().await;
    Ok(Outcome::Done)
}

/// Why a read found nothing, and what to do.
fn nothing(group: &Value, name: &str, flags: &str) -> String {
    if group["subscriptions"] == 0 {
        return format!(
            "nothing: `{name}` has no subscription; say what it gets with `ensue group subscribe {name} --topic \
             TOPIC{flags}`"
        );
    }
    format!(
        "nothing that `{name}` wants after seq {}, where it is; a new group begins at the end of the log and gets what is \
         published after that. Wait for it with --wait 30s, or read the log from its beginning after `ensue group seek \
         {name} --to beginning{flags}`",
        shown(&group["cursor"])
    )
}

/// Carries out `ensue group replay`.
pub async fn replay(args: ReplayArgs) -> anyhow::Result<Outcome> {
    let to = args.to.unwrap_or(Seq::MAX);
    if args.from == 0 || to < args.from {
        bail!("--from {} is not the first seq of a range: write one from 1 on, and --to at least as large", args.from);
    }
    let target = args.target.clone().open(Access::Read).await?;
    let group = ask::show(&target, &args.group).await?;
    if group["kind"] == "handler" {
        target.close().await;
        return replay_handler(args, &group).await;
    }
    replay_range(&target, &args.group, args.from - 1, to, args.output).await?;
    target.close().await;
    Ok(Outcome::Done)
}

/// Has a handler run the range again. Its newest event is where the log ended when the group was looked at.
async fn replay_handler(args: ReplayArgs, group: &Value) -> anyhow::Result<Outcome> {
    let newest = group["cursor"].as_u64().zip(group["lag"].as_u64()).map(|(cursor, lag)| cursor + lag);
    let to = args.to.or(newest).context("this is not a group of an Ensue server; check --url")?;
    let replay = async |target: &Target| ask::replay(target, &args.group, args.from, to).await;
    let answer = args.target.ask(Access::Write, replay).await?;
    output::answer(&answer, args.output, || format!("asked: {} runs seq {} to {to} again", args.group, args.from))
}

async fn replay_range(target: &Target, group: &str, mut after: Seq, to: Seq, how: OutputArgs) -> anyhow::Result<()> {
    while after < to {
        let limit = usize::try_from(to - after).unwrap_or(LIMIT_MAX).min(LIMIT_MAX);
        let pull = Pull { limit, peek: true, cursor: Some(after), ..Pull::default() };
        let text = ask::read(target, group, pull).await?;
        let answer = Answer::of(&text)?;
        answer.tell_what_is_missing();
        answer.print(to, how)?;
        if answer.cursor <= after {
            break;
        }
        after = answer.cursor;
    }
    Ok(())
}

/// What was read, with the events as they were written.
#[derive(Deserialize)]
struct Answer<'t> {
    #[serde(borrow)]
    events: Vec<&'t RawValue>,
    cursor: Seq,
    lease: Option<&'t str>,
    #[serde(default)]
    lost: Option<Value>,
    #[serde(default)]
    errors: Vec<Value>,
}

/// What a line for people has of an event.
#[derive(Deserialize)]
struct Line<'t> {
    seq: Seq,
    recorded_at: String,
    topic: String,
    object: Option<String>,
    #[serde(borrow)]
    payload: &'t RawValue,
}

impl<'t> Answer<'t> {
    fn of(text: &'t str) -> anyhow::Result<Self> {
        serde_json::from_str(text).context("this is not what a group of an Ensue server reads; check --url")
    }

    /// Prints the events, up to a place.
    fn print(&self, to: Seq, how: OutputArgs) -> anyhow::Result<()> {
        for event in &self.events {
            let Line { seq, recorded_at, topic, object, payload } = serde_json::from_str(event.get())?;
            if seq > to {
                break;
            }
            if how.json {
                output::json_text(event.get())?;
            } else {
                let object = object.as_deref().unwrap_or("-");
                output::line(format_args!("{seq}  {recorded_at}  {topic}  {object}  {}", payload.get()))?;
            }
        }
        Ok(())
    }

    fn tell_what_is_missing(&self) {
        if let Some((from, to)) = self.lost.as_ref().and_then(|lost| lost["from"].as_u64().zip(lost["to"].as_u64())) {
            output::note(format_args!("retention has deleted seq {from} to {to}; continuing after {to}"));
        }
        for error in &self.errors {
            let [subscription, seq, detail] = ["subscription", "seq", "detail"].map(|field| shown(&error[field]));
            output::note(format_args!("the condition of {subscription} failed on event {seq}: {detail}"));
        }
    }
}
