//! How does an event get from the command line into the log?

use super::Outcome;
use super::args::{When, json_text, time, when};
use super::output::{self, Block, OutputArgs};
use super::server::WHERE;
use super::target::{Access, Target, TargetArgs};
use crate::config::units::Span;
use anyhow::{Context, bail};
use clap::Args;
use ensue::{Appended, NewEvent, Seq, Timestamp};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// `ensue publish`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue publish order.paid
  ensue publish order.paid --object order:1 --payload '{\"total\": 120}'
  ensue publish report.ready --payload @report.json          # the payload from a file
  jq -c .body mail.json | ensue publish mail.in --payload -  # from stdin
  ensue publish order.remind --object order:1 --not-before 10m
  ensue publish order.paid --key payment-77                  # sent twice, stored once (24 hours)
  ensue publish order.paid --wait 10s                        # and wait for handlers that are sync
  ensue publish order.paid --store sqlite:ensue.db           # a store that no server has open
  ensue publish order.paid --store sqlite:new.db --create    # and make it if it is not there

With --json: {\"id\", \"seq\", \"prev\", \"repeated\"}; seq is null while the event is delayed.
With --wait also {\"sync\", \"handlers\": [{\"handler\", \"state\", \"seq\", \"error\"}]}: done, failed
(given up), blocked (waits until a person acts) or pending (continues durably); exit code 1 unless
all are done.
Exit code 0: the event is on disk; 4: it was refused; 5: nothing answered, and it may be on disk
(with --key it can be sent again without being stored twice).")]
pub struct PublishArgs {
    /// What happened, dotted: order.paid
    pub topic: String,
    /// What it is about, such as order:1: events of one object are chained
    #[arg(long, value_name = "OBJECT")]
    pub object: Option<String>,
    /// The content: JSON, @FILE, or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub payload: Option<String>,
    /// What is said about the event: a JSON object, @FILE, or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-")]
    pub metadata: Option<String>,
    /// Your own name for this publish: sent again within 24 hours it is stored once
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Enters the log no earlier than this: 2026-11-15T12:00:00Z, or 10m from now (with --key: only a time)
    #[arg(long, value_name = "TIME|SPAN", value_parser = when)]
    pub not_before: Option<When>,
    /// When it happened, if not now: 2026-11-15T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub occurred_at: Option<Timestamp>,
    /// Wait at most this long for the handlers with `mode: sync` of the server: 1ms to 55s
    #[arg(long, value_name = "SPAN", conflicts_with = "store", value_parser = wait)]
    pub wait: Option<Duration>,
    /// Make the store if it is not there
    #[arg(long, help_heading = WHERE, requires = "store")]
    create: bool,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
struct Answer {
    #[serde(flatten)]
    appended: Appended,
    repeated: bool,
    #[serde(flatten)]
    sync: Option<SyncAnswer>,
}

/// The answer of the sync handlers.
#[derive(Debug, Serialize, Deserialize)]
pub struct SyncAnswer {
    /// Of all handlers.
    sync: String,
    /// Of each.
    handlers: Vec<SyncHandlerAnswer>,
}

#[derive(Debug, Serialize, Deserialize)]
struct SyncHandlerAnswer {
    handler: String,
    state: String,
    seq: Option<Seq>,
    error: Option<String>,
}

impl SyncAnswer {
    fn outcome(&self) -> Outcome {
        if self.sync == "done" { Outcome::Done } else { Outcome::ProblemsFound }
    }

    fn lines(&self) -> impl Iterator<Item = String> {
        let at = |seq: Option<Seq>| seq.map(|seq| format!(" (event {seq})")).unwrap_or_default();
        self.handlers.iter().map(move |one| match &one.error {
            Some(error) => format!("{}: {}{}: {error}", one.handler, one.state, at(one.seq)),
            None => format!("{}: {}{}", one.handler, one.state, at(one.seq)),
        })
    }
}

/// The longest wait; a client reads no longer than a minute from a silent server.
const WAIT_MAX: Duration = Duration::from_secs(55);

fn wait(text: &str) -> Result<Duration, String> {
    let span: Span = text.parse()?;
    let wait = Duration::try_from(span.0).ok();
    wait.filter(|wait| (1..=WAIT_MAX.as_millis()).contains(&wait.as_millis()))
        .ok_or_else(|| "write a span from 1ms to 55s".into())
}

/// Publishes and tells where the event is.
pub async fn run(args: PublishArgs) -> anyhow::Result<Outcome> {
    let mut event = NewEvent::new(args.topic);
    if let Some(object) = args.object {
        event = event.object(object);
    }
    if let Some(payload) = &args.payload {
        event = event.payload_json(&json_text("payload", payload)?);
    }
    if let Some(metadata) = &args.metadata {
        event = event.metadata_json(&json_text("metadata", metadata)?);
    }
    if let Some(at) = args.not_before {
        event = event.not_before(due(at, args.key.is_some(), Timestamp::now())?);
    }
    if let Some(key) = args.key {
        event = event.key(key);
    }
    if let Some(at) = args.occurred_at {
        event = event.occurred_at(at);
    }
    // What is wrong with the event is said before a store is opened or made.
    event.clone().check()?;
    let way = Way { flags: args.target.flags(), opens_store: args.target.opens_store() };
    let target = args.target.open(if args.create { Access::Create } else { Access::Write }).await?;
    let (appended, sync) = match (args.wait, &target) {
        (Some(wait), Target::Server(remote)) => remote.publish_and_wait(&event.check()?, wait).await?,
        (Some(_), Target::Store(_)) | (None, _) => (target.publish(event).await?, None),
    };
    target.close().await;
    let outcome = sync.as_ref().map_or(Outcome::Done, SyncAnswer::outcome);
    if args.output.json {
        output::json(&Answer { appended, repeated: appended.repeated, sync })?;
    } else {
        let lines = sync.iter().flat_map(SyncAnswer::lines);
        output::block(Block::lines(std::iter::once(sentence(&appended, &way)).chain(lines)))?;
    }
    Ok(outcome)
}

/// When the event is due. Sent again under its key, it must be the same event, and `10m` is another time then.
fn due(not_before: When, has_key: bool, now: Timestamp) -> anyhow::Result<Timestamp> {
    let span = match not_before {
        When::At(time) => return Ok(time),
        When::In(span) => span,
    };
    let time = now.checked_add(span.0).context("--not-before is too far away")?;
    if has_key {
        bail!(
            "--not-before {span} is another time whenever this is sent again, and --key stores an event once that is sent \
             again unchanged: write the time itself, such as --not-before {time:.0}"
        );
    }
    Ok(time)
}

/// How the event was published: what is advised afterwards must work in the same way.
struct Way {
    flags: String,
    opens_store: bool,
}

fn sentence(appended: &Appended, way: &Way) -> String {
    let what = if appended.repeated { "already published" } else { "published" };
    match (appended.seq, appended.prev) {
        (Some(seq), Some(prev)) => format!("{what}: seq {seq}, id {}, follows {prev}", appended.id),
        (Some(seq), None) => format!("{what}: seq {seq}, id {}", appended.id),
        (None, _) => {
            // Who opens a store for one command does not stay to let the event in.
            let until = if way.opens_store { "it is due and a server serves this store" } else { "it is due" };
            let (id, flags) = (appended.id, &way.flags);
            format!("{what}: id {id}, pending until {until} (`ensue event cancel {id}{flags}` stops it)")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_length_of_time_does_not_go_with_a_key() {
        let now: Timestamp = "2026-11-15T12:00:00Z".parse().unwrap();
        let in_10m = When::In("10m".parse().unwrap());
        assert_eq!(due(in_10m, false, now).unwrap().to_string(), "2026-11-15T12:10:00Z");
        assert_eq!(due(When::At(now), true, now).unwrap(), now);
        let refused = due(in_10m, true, now).unwrap_err().to_string();
        assert!(refused.contains("--not-before 2026-11-15T12:10:00Z"), "{refused}");
    }
}
