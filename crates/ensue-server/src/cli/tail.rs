//! The `tail` command: prints the log and follows it.
//!
//! Over HTTP a broken stream is opened again at the last position that the server sent. No event is missed, and none is
//! printed twice.

use super::Outcome;
use super::args::seq;
use super::condition::WantedArgs;
use super::output::{self, OutputArgs};
use super::remote::Remote;
use super::sse::{Message, Parser, Said};
use super::target::{Access, Target, TargetArgs};
use super::wire;
use crate::http::shapes::EventShape;
use crate::http::{CONDITION_FAILED, condition_failed};
use anyhow::Context;
use clap::Args;
use ensue::{ConditionError, Delivered, Ensue, GapReason, Seq, Streamed, Subscription, Wanted};
use futures_util::StreamExt;
use serde_json::json;
use std::time::Duration;

/// How long to wait before the first attempt to open a broken stream again; doubled up to [`RETRY_MAX`].
const RETRY_FIRST: Duration = Duration::from_millis(100);
/// The longest wait between two attempts.
const RETRY_MAX: Duration = Duration::from_secs(5);

/// `ensue tail`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue tail                                                 # what happens from now on
  ensue tail --no-follow                                     # what is in the log, then stop
  ensue tail --from-beginning --limit 10                     # the first ten events, then stop
  ensue tail --topic order                                   # order, order.paid, … but never orders
  ensue tail --object order:1 --from-beginning
  ensue tail --where \"(e.payload->>'total')::numeric > 100\"
  ensue tail --where 'e.payload @> s.params' --params '{\"customer\": 7}'
  ensue tail --after 500 --json | jq -c '[.seq, .topic, .prev]'

A line is: seq, recorded_at, topic, object, payload. With --json: one event a line, as in the data
of GET /v1/events/stream; with a filter or a condition, prev is the previous event of the object
that is wanted, too. docs/conditions.md has the language of --where; an event on which it fails (a
cast of a text that is no number) is left out, and the first of them is told on stderr.
What cannot be shown is told as a gap: on stderr, with --json as {\"gap\": {from, to, reason}}.
If the server goes away, tail says so on stderr, waits for it and goes on without a gap or a double.
Exit code 0: --limit or --no-follow ended it, or its output was closed.")]
pub struct TailArgs {
    #[command(flatten)]
    wanted: WantedArgs,
    /// Begin after this seq [default: from now on; with --no-follow: from the beginning]
    #[arg(long, value_name = "SEQ", value_parser = seq, conflicts_with = "from_beginning")]
    after: Option<Seq>,
    /// Begin with the oldest event in the log
    #[arg(long)]
    from_beginning: bool,
    /// Stop when everything that is in the log has been shown
    #[arg(long)]
    no_follow: bool,
    /// Stop after this many events
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Prints what a stream tells, until it is enough.
struct Printer {
    left: Option<u64>,
    follow: bool,
    json: bool,
}

/// Go on, or stop?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    More,
    Enough,
}

impl Printer {
    fn show(&mut self, streamed: &Streamed) -> anyhow::Result<Next> {
        match streamed {
            Streamed::Event(delivered) => self.event(delivered),
            Streamed::Gap { from, to, reason } if self.json => {
                output::json(&json!({ "gap": { "from": from, "to": to, "reason": reason.as_str() } }))?;
                Ok(Next::More)
            }
            Streamed::Gap { from, to, reason } => {
                output::note(gap(*from, *to, *reason));
                Ok(Next::More)
            }
            Streamed::ConditionFailed(error) => {
                output::note(condition_failed(error));
                Ok(Next::More)
            }
            Streamed::Caught(_) => Ok(if self.follow { Next::More } else { Next::Enough }),
        }
    }

    fn event(&mut self, delivered: &Delivered) -> anyhow::Result<Next> {
        if self.json {
            output::json(&EventShape::from(delivered))?;
        } else {
            output::line(output::event_line(&delivered.event))?;
        }
        self.left = self.left.map(|left| left - 1);
        Ok(if self.left == Some(0) { Next::Enough } else { Next::More })
    }
}

/// What happened to these places, and how it goes on.
fn gap(from: Seq, to: Seq, reason: GapReason) -> String {
    let places = if from == to { format!("seq {from}") } else { format!("seq {from} to {to}") };
    let before = from - 1;
    match reason {
        GapReason::Forgotten => format!("gap: retention has deleted {places}; continuing after it"),
        GapReason::BeyondEnd => format!(
            "gap: the log ends at seq {before}, and seq {to} is not in it: check --after, and whether this is the log that \
             you mean; going on with what comes now"
        ),
        GapReason::WentBack => format!(
            "gap: the log went back to seq {before}, as after a failover that lost {places}; going on with what comes in \
             their place"
        ),
    }
}

/// Follows the log.
pub async fn run(args: TailArgs) -> anyhow::Result<Outcome> {
    let wanted = args.wanted.check()?;
    let from_beginning = args.from_beginning || args.no_follow && args.after.is_none();
    let after = if from_beginning { Some(0) } else { args.after };
    let mut printer = Printer { left: args.limit, follow: !args.no_follow, json: args.output.json };
    let target = args.target.open(Access::Read).await?;
    let follow = async {
        match &target {
            Target::Server(remote) => follow_server(remote, &wanted, after, &mut printer).await,
            Target::Store(bus) => follow_store(bus, wanted, after, &mut printer).await,
        }
    };
    // A pipe that is closed while nothing happens would else be noticed only with the next event.
    tokio::select! {
        followed = follow => followed?,
        () = output::nobody_reads() => {}
    }
    if let Target::Store(bus) = target {
        bus.close().await;
    }
    Ok(Outcome::Done)
}

async fn follow_store(bus: &Ensue, wanted: Wanted, after: Option<Seq>, printer: &mut Printer) -> anyhow::Result<()> {
    let subscription = Subscription::wanted(wanted);
    let subscription = match after {
        Some(after) => subscription.after(after),
        None => subscription,
    };
    let mut stream = bus.stream(subscription).await?;
    while let Some(streamed) = stream.next().await {
        if printer.show(&streamed?)? == Next::Enough {
            break;
        }
    }
    Ok(())
}

/// A server that is not there at the start is an error; one that goes away is waited for.
async fn follow_server(
    remote: &Remote,
    wanted: &Wanted,
    mut after: Option<Seq>,
    printer: &mut Printer,
) -> anyhow::Result<()> {
    let mut response = open(remote, wanted, after).await?;
    loop {
        let mut parser = Parser::default();
        let mut bytes = response.bytes_stream();
        while let Some(Ok(piece)) = bytes.next().await {
            for said in parser.feed(&piece) {
                if show(&said, &mut after, printer)? == Next::Enough {
                    return Ok(());
                }
            }
        }
        drop(bytes);
        output::note(format_args!("the stream from {} ended; opening it again", remote.url()));
        response = reopen(remote, wanted, after).await?;
        output::note(format_args!("connected again to {}", remote.url()));
    }
}

/// Opens the stream again, however long it takes, unless asking again would be answered the same.
async fn reopen(remote: &Remote, wanted: &Wanted, after: Option<Seq>) -> anyhow::Result<reqwest::Response> {
    let mut wait = RETRY_FIRST;
    loop {
        tokio::time::sleep(wait).await;
        match open(remote, wanted, after).await {
            Ok(response) => return Ok(response),
            Err(Refused { error, lasting: true }) => return Err(error),
            Err(Refused { error, lasting: false }) => tracing::info!("{error:#}"),
        }
        wait = (wait * 2).min(RETRY_MAX);
    }
}

/// Why the stream could not be opened.
struct Refused {
    error: anyhow::Error,
    /// Asking again would be answered the same.
    lasting: bool,
}

impl From<Refused> for anyhow::Error {
    fn from(refused: Refused) -> Self {
        refused.error
    }
}

async fn open(remote: &Remote, wanted: &Wanted, after: Option<Seq>) -> Result<reqwest::Response, Refused> {
    let response = remote.stream(wanted, after).await.map_err(|error| Refused { error, lasting: false })?;
    if response.status().is_success() {
        return Ok(response);
    }
    let lasting = !response.status().is_server_error();
    Err(Refused { error: remote.refusal(response).await, lasting })
}

/// Prints what the server said, and remembers where to come back.
fn show(said: &Said, after: &mut Option<Seq>, printer: &mut Printer) -> anyhow::Result<Next> {
    match said {
        Said::Comment(comment) => match comment.strip_prefix("caught up at ") {
            Some(at) => {
                let at = at.parse().context("the server sent no position with `caught up`")?;
                printer.show(&Streamed::Caught(at))
            }
            None => match comment.strip_prefix(CONDITION_FAILED).and_then(|rest| rest.split_once(": ")) {
                Some((seq, detail)) => {
                    let seq = seq.parse().context("the server did not say which event")?;
                    printer.show(&Streamed::ConditionFailed(ConditionError { seq, detail: detail.into() }))
                }
                None => Ok(Next::More),
            },
        },
        Said::Position(id) => {
            resume_after(id, after);
            Ok(Next::More)
        }
        Said::Message(message) => {
            let next = printer.show(&streamed(message)?)?;
            if let Some(id) = &message.id {
                resume_after(id, after);
            }
            Ok(next)
        }
    }
}

fn resume_after(id: &str, after: &mut Option<Seq>) {
    *after = id.parse().ok().or(*after);
}

fn streamed(message: &Message) -> anyhow::Result<Streamed> {
    match message.event.as_str() {
        "ensue.gap" => wire::gap(&message.data),
        _ => wire::event(&message.data)?.delivered().map(Streamed::Event),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn position_without_an_event_is_where_tail_resumes() {
        let (mut after, mut printer) = (None, Printer { left: None, follow: true, json: false });
        let mut feed = |text: &str, after: &mut Option<Seq>| {
            for said in Parser::default().feed(text.as_bytes()) {
                assert_eq!(show(&said, after, &mut printer).unwrap(), Next::More);
            }
        };
        feed(": still here\n\n", &mut after);
        assert_eq!(after, None);
        feed(": caught up at 7\nid: 7\n\n", &mut after);
        assert_eq!(after, Some(7));
        feed(": still here\nid: 9\n\n", &mut after);
        assert_eq!(after, Some(9));
    }

    #[test]
    fn a_gap_says_what_happened() {
        assert!(gap(3, 3, GapReason::Forgotten).contains("retention has deleted seq 3;"));
        let beyond = gap(3, 9, GapReason::BeyondEnd);
        assert!(beyond.contains("ends at seq 2") && beyond.contains("seq 9 is not in it"), "{beyond}");
        assert!(gap(3, 9, GapReason::WentBack).contains("lost seq 3 to 9"));
    }
}
