//! What happened, and what happens now?
//!
//! Over HTTP the stream is opened again when it breaks, after the last event that was printed: none is missed and none
//! is printed twice.

use super::Outcome;
use super::output::{self, OutputArgs};
use super::remote::Remote;
use super::sse::{Message, Parser};
use super::target::{Access, Target, TargetArgs};
use super::wire;
use anyhow::Context;
use clap::Args;
use ensue::{Delivered, Ensue, Event, Filter, ObjectKey, Seq, Streamed, Subscription, Topic};
use futures_util::StreamExt;
use serde::{Deserialize, Serialize};
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
  ensue tail --from-beginning --limit 10                     # the first ten events, then stop
  ensue tail --topic order                                   # order, order.paid, … but never orders
  ensue tail --object order:1 --from-beginning
  ensue tail --after 500 --json | jq -c '[.seq, .topic, .prev]'

A line is: seq, recorded_at, topic, object, payload. With a filter, `prev` in the JSON is the
previous event of the object that the filter matches.")]
pub struct TailArgs {
    /// Only this topic and those below it
    #[arg(long, value_name = "TOPIC")]
    topic: Option<String>,
    /// Only events of this object
    #[arg(long, value_name = "OBJECT")]
    object: Option<String>,
    /// Begin after this seq
    #[arg(long, value_name = "SEQ", conflicts_with = "from_beginning")]
    after: Option<Seq>,
    /// Begin with the oldest event in the log
    #[arg(long)]
    from_beginning: bool,
    /// Stop after this many events
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: Option<u64>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Prints events until the limit is reached.
struct Printer {
    left: Option<u64>,
    json: bool,
}

/// Go on, or stop?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    More,
    Enough,
}

/// The event as a filtered stream shows it.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    event: &'a Event,
    #[serde(skip_serializing_if = "Option::is_none")]
    prev_since: Option<Seq>,
}

#[derive(Deserialize)]
struct Gap {
    from: Seq,
    to: Seq,
}

impl Printer {
    fn event(&mut self, event: &Event, prev_since: Option<Seq>) -> anyhow::Result<Next> {
        if self.json {
            output::json(&Shown { event, prev_since })?;
        } else {
            output::line(output::event_line(event))?;
        }
        if let Some(left) = &mut self.left {
            *left -= 1;
        }
        Ok(if self.left == Some(0) { Next::Enough } else { Next::More })
    }

    fn gap(&self, from: Seq, to: Seq) -> anyhow::Result<()> {
        if self.json {
            return output::json(&json!({ "gap": { "from": from, "to": to } }));
        }
        eprintln!("gap: seq {from} to {to} are not in the log (any more); going on with what there is");
        Ok(())
    }
}

/// Follows the log.
pub async fn run(args: TailArgs) -> anyhow::Result<Outcome> {
    let filter = Filter {
        topic: args.topic.as_deref().map(Topic::parse_filter).transpose()?,
        object: args.object.as_deref().map(ObjectKey::parse).transpose()?,
    };
    let after = if args.from_beginning { Some(0) } else { args.after };
    let mut printer = Printer { left: args.limit, json: args.output.json };
    match args.target.open(Access::Read).await? {
        Target::Server(remote) => follow_server(&remote, &filter, after, &mut printer).await?,
        Target::Store(bus) => {
            follow_store(&bus, filter, after, &mut printer).await?;
            bus.close().await;
        }
    }
    Ok(Outcome::Done)
}

async fn follow_store(bus: &Ensue, filter: Filter, after: Option<Seq>, printer: &mut Printer) -> anyhow::Result<()> {
    let subscription = Subscription::filter(filter);
    let subscription = match after {
        Some(after) => subscription.after(after),
        None => subscription,
    };
    let mut stream = bus.stream(subscription).await?;
    while let Some(item) = stream.next().await {
        match item? {
            Streamed::Event(Delivered { event, prev, prev_since }) => {
                let event = Event { prev, ..Event::clone(&event) };
                if printer.event(&event, prev_since)? == Next::Enough {
                    break;
                }
            }
            Streamed::Gap { from, to } => printer.gap(from, to)?,
            Streamed::Caught(_) => {}
        }
    }
    Ok(())
}

/// A server that is not there at the start is an error; one that goes away is waited for.
async fn follow_server(
    remote: &Remote,
    filter: &Filter,
    mut after: Option<Seq>,
    printer: &mut Printer,
) -> anyhow::Result<()> {
    let mut response = open(remote, filter, after).await?.context("the server is not ready yet: try again")?;
    loop {
        let mut parser = Parser::default();
        let mut bytes = response.bytes_stream();
        while let Some(Ok(piece)) = bytes.next().await {
            for message in parser.feed(&piece) {
                if show(&message, &mut after, printer)? == Next::Enough {
                    return Ok(());
                }
            }
        }
        drop(bytes);
        tracing::info!(after, "the stream ended; opening it again");
        let mut wait = RETRY_FIRST;
        response = loop {
            tokio::time::sleep(wait).await;
            match open(remote, filter, after).await {
                Ok(Some(response)) => break response,
                Ok(None) => {}
                Err(Refused { error, lasting: true }) => return Err(error),
                Err(Refused { error, lasting: false }) => tracing::info!("{error:#}"),
            }
            wait = (wait * 2).min(RETRY_MAX);
        };
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

/// Opens the stream; none if the server says that it cannot serve right now.
async fn open(remote: &Remote, filter: &Filter, after: Option<Seq>) -> Result<Option<reqwest::Response>, Refused> {
    let response = remote.stream(filter, after).await.map_err(|error| Refused { error, lasting: false })?;
    if response.status().is_success() {
        return Ok(Some(response));
    }
    if response.status().is_server_error() {
        return Ok(None);
    }
    Err(Refused { error: remote.refusal(response).await, lasting: true })
}

fn show(message: &Message, after: &mut Option<Seq>, printer: &mut Printer) -> anyhow::Result<Next> {
    let next = match message.event.as_str() {
        "ensue.gap" => {
            let gap: Gap = serde_json::from_str(&message.data).context("the server sent a gap without its ends")?;
            printer.gap(gap.from, gap.to)?;
            Next::More
        }
        _ => {
            #[derive(Deserialize)]
            struct Since {
                prev_since: Option<Seq>,
            }
            let event = wire::event(&message.data)?.logged()?;
            let since: Since = serde_json::from_str(&message.data)?;
            printer.event(&event, since.prev_since)?
        }
    };
    if let Some(seq) = message.id.as_deref().and_then(|id| id.parse().ok()) {
        *after = Some(seq);
    }
    Ok(next)
}
