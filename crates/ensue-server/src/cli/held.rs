//! What stands still, and how is it brought back?

use super::Outcome;
use super::args::{EventRef, event_ref};
use super::output::{self, OutputArgs, as_json, list, shown};
use super::pages::{self, LimitArgs};
use super::target::{Access, Target, TargetArgs};
use crate::http::held::{HeldShape, LaneShape};
use anyhow::{anyhow, bail};
use clap::Args;
use ensue::positions::{Ask, StuckPlace};
use ensue::{Found, GroupName, ObjectKey, Stuck};
use serde_json::{Value, json};

/// `ensue object list`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue object list --held                                   # the oldest first
  ensue object list --held --json | jq -r '.objects[].object'

An object is held when an event or a job of it has exhausted its attempts: its later ones wait until
somebody retries or skips that one. An event alone (without an object, or of an unordered handler)
has no object here. With --json: the answer of GET /v1/objects?held=true, all of its pages in one.")]
pub struct ListArgs {
    /// Those that wait for somebody; there is no list of all objects
    #[arg(long, required = true)]
    held: bool,
    #[command(flatten)]
    limit: LimitArgs,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// `ensue object retry` and `ensue object skip`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue object retry order:1                                 # what it stands at runs again
  ensue object skip order:1 --handler order.paid.invoice     # give that one up and go on

A job is there to be claimed at once. Of events, whoever runs the handler does it as soon as it
hears of it; with --store and nobody running it, the next one who does.
Exit code 3: nothing of it is held; 4: several handlers hold it.")]
pub struct ObjectAskArgs {
    /// The object, such as order:1
    object: String,
    #[command(flatten)]
    ask: AskArgs,
}

/// `ensue event retry` and `ensue event skip`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue event retry 12                                       # an event that a handler stands at
  ensue event skip 12 --handler order.paid.invoice

For an event without an object, or of an unordered handler; also for the one that its object stands
at. Exit code 3: no handler is held at it; 4: several are.")]
pub struct EventAskArgs {
    /// Its seq or its id
    #[arg(value_name = "SEQ|ID", value_parser = event_ref)]
    event: EventRef,
    #[command(flatten)]
    ask: AskArgs,
}

#[derive(Debug, Args)]
struct AskArgs {
    /// The handler that is meant [default: the only one that is held]
    #[arg(long, value_name = "KEY")]
    handler: Option<String>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Carries out `ensue object list --held`.
pub async fn list_held(args: ListArgs) -> anyhow::Result<Outcome> {
    let target = args.target.open(Access::Read).await?;
    let page = async |after: Option<&str>, limit: usize| match &target {
        Target::Server(remote) => {
            let mut query = pages::query(after, limit);
            query.push(("held", "true".into()));
            remote.get_json(&["v1", "objects"], &query).await
        }
        Target::Store(bus) => {
            let lanes = bus.held(after.and_then(StuckPlace::parse), limit + 1).await?;
            as_json(&HeldShape::page(&lanes, limit))
        }
    };
    let answer = args.limit.list("objects", page).await?;
    target.close().await;
    if args.output.json {
        output::json(&answer)?;
        return Ok(Outcome::Done);
    }
    let fields = ["object", "handler", "seq", "job", "state", "attempts", "since", "error"];
    let rows: Vec<[String; 8]> =
        list(&answer, "objects").iter().map(|lane| fields.map(|field| shown(&lane[field]))).collect();
    match rows.is_empty() {
        true => output::line("nothing is held")?,
        false => output::block(output::table(fields, rows))?,
    }
    Ok(Outcome::Done)
}

/// Carries out `ensue object retry` and `ensue object skip`.
pub async fn ask_object(args: ObjectAskArgs, ask: Ask) -> anyhow::Result<Outcome> {
    let object = ObjectKey::parse_filter(&args.object)?;
    let path = ["v1", "objects", object.as_str(), ask.as_str()].map(str::to_owned);
    let target = args.ask.target.clone().open(Access::Write).await?;
    send(args.ask, target, path, Stuck::Object(object), ask).await
}

/// Carries out `ensue event retry` and `ensue event skip`.
pub async fn ask_event(args: EventAskArgs, ask: Ask) -> anyhow::Result<Outcome> {
    let path = ["v1".into(), "events".into(), args.event.to_text(), ask.as_str().to_owned()];
    let target = args.ask.target.clone().open(Access::Write).await?;
    let seq = match (&target, args.event) {
        (Target::Store(_), event) => match target.event(event).await? {
            Found::Logged(event) => event.seq,
            Found::Pending(_) => {
                let reason = "the event is delayed: no handler can be blocked at it yet";
                bail!(ensue::StoreError::Conflict(reason.into()))
            }
        },
        (Target::Server(_), EventRef::Seq(seq)) => seq,
        // The server finds it by the path.
        (Target::Server(_), EventRef::Id(_)) => 0,
    };
    send(args.ask, target, path, Stuck::Event(seq), ask).await
}

async fn send(args: AskArgs, target: Target, path: [String; 4], stuck: Stuck, ask: Ask) -> anyhow::Result<Outcome> {
    let answer = match &target {
        Target::Server(remote) => {
            let body = args.handler.as_ref().map_or_else(|| json!({}), |handler| json!({ "handler": handler }));
            remote.post_json(&path.each_ref().map(String::as_str), &body).await?
        }
        Target::Store(bus) => {
            let handler = args.handler.as_deref().map(|handler| GroupName::parse("handler", handler)).transpose()?;
            let asked = bus.ask_stuck(&stuck, handler.as_ref(), ask).await.map_err(|error| match error {
                ensue::Error::NotFound(what) => {
                    anyhow!(ensue::Error::NotFound(format!("{what} (`ensue object list --held`)")))
                }
                other @ (ensue::Error::Invalid(_) | ensue::Error::Store(_) | ensue::Error::Address(_)) => other.into(),
            })?;
            as_json(&LaneShape::from(&asked))?
        }
    };
    target.close().await;
    if args.output.json {
        output::json(&answer)?;
    } else {
        output::line(sentence(&answer, ask))?;
    }
    Ok(Outcome::Done)
}

fn sentence(lane: &Value, ask: Ask) -> String {
    let [handler, seq, job] = ["handler", "seq", "job"].map(|field| shown(&lane[field]));
    let what = if lane["job"].is_null() { format!("event {seq}") } else { format!("job {job}") };
    match ask {
        Ask::Retry => format!("asked: {handler} runs {what} again"),
        Ask::Skip => format!("asked: {handler} skips {what} and goes on"),
    }
}
