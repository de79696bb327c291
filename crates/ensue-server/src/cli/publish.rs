//! How does an event get from the command line into the log?

use super::Outcome;
use super::args::{json_text, time};
use super::output::{self, OutputArgs};
use super::target::{Access, TargetArgs};
use clap::Args;
use ensue::{Appended, NewEvent, Timestamp};
use serde::Serialize;

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
  ensue publish order.paid --store sqlite:ensue.db           # into a store, without a server

Exit code 0 means that the event is on disk.")]
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
    /// Enters the log no earlier than this: 2026-11-15T12:00:00Z, or 10m from now
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub not_before: Option<Timestamp>,
    /// When it happened, if not now: 2026-11-15T12:00:00Z
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub occurred_at: Option<Timestamp>,
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
    if let Some(key) = args.key {
        event = event.key(key);
    }
    if let Some(at) = args.not_before {
        event = event.not_before(at);
    }
    if let Some(at) = args.occurred_at {
        event = event.occurred_at(at);
    }
    // What is wrong with the event is said before a store is opened or made.
    event.clone().check()?;
    let target = args.target.open(Access::Write).await?;
    let appended = target.publish(event).await?;
    target.close().await;
    if args.output.json {
        output::json(&Answer { appended, repeated: appended.repeated })?;
    } else {
        output::line(sentence(&appended))?;
    }
    Ok(Outcome::Done)
}

fn sentence(appended: &Appended) -> String {
    let what = if appended.repeated { "already published" } else { "published" };
    match (appended.seq, appended.prev) {
        (Some(seq), Some(prev)) => format!("{what}: seq {seq}, id {}, follows {prev}", appended.id),
        (Some(seq), None) => format!("{what}: seq {seq}, id {}", appended.id),
        (None, _) => format!(
            "{what}: id {}, pending until it is due (`ensue event cancel {}` stops it)",
            appended.id, appended.id
        ),
    }
}
