//! How is a job sent from the command line?

use super::Outcome;
use super::args::{When, json_text, when};
use super::collections;
use super::output::{self, OutputArgs, as_json, shown};
use super::target::{Access, Target, TargetArgs};
use crate::config::units::Span;
use crate::http::jobs_shapes::SentShape;
use anyhow::Context;
use clap::Args;
use ensue::jobs::Enqueued;
use ensue::{Emit, GroupName, Json, Timestamp};
use serde::Serialize;

/// `ensue emit`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue emit mail.send --payload '{\"to\": \"ann@example.com\"}'
  ensue emit mail.send --object user:1 --priority 10         # one at a time of each object
  ensue emit report.build --delay 10m --unique-key nightly   # while one is live, no other
  ensue emit report.build --store sqlite:ensue.db            # a store that no server has open

A job is run once by the handler with that key: one that is registered in an application, one of
the config file, or whoever claims it over HTTP. `ensue job show ID` tells what became of it.
Of the tasks of a collection (task.SOURCE.COLLECTION) at most one is live. With --store its priority
and attempts are as the config file (--config, or ./ensue.yaml) says, if that has the collection.
With --json: {\"id\", \"state\", \"existing\"}. Exit code 0: the job is on disk.")]
pub struct EmitArgs {
    /// The key of the handler, dotted: mail.send
    #[arg(value_name = "KEY")]
    handler: String,
    /// The content: JSON, @FILE, or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-")]
    payload: Option<String>,
    /// What is said about it: a JSON object, @FILE, or - for stdin
    #[arg(long, value_name = "JSON|@FILE|-")]
    metadata: Option<String>,
    /// What it is about: jobs of one handler and object run one after another
    #[arg(long, value_name = "OBJECT")]
    object: Option<String>,
    /// Jobs of its object need not run one after another
    #[arg(long)]
    unordered: bool,
    /// Higher first; first come first served among equals
    #[arg(long, value_name = "N", default_value_t = 0)]
    priority: u64,
    /// Runs no earlier than so long from now, such as 10m
    #[arg(long, value_name = "SPAN", conflicts_with = "not_before")]
    delay: Option<Span>,
    /// Runs no earlier than this: 2026-11-15T12:00:00Z, or 10m from now
    #[arg(long, value_name = "TIME|SPAN", value_parser = when)]
    not_before: Option<When>,
    /// While a job of the handler with this key has not ended, another is not made
    #[arg(long, value_name = "KEY")]
    unique_key: Option<String>,
    /// How often it is attempted [default: as its handler says, or 5]
    #[arg(long, value_name = "N")]
    attempts_max: Option<u32>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// A job as POST /v1/jobs takes it.
#[derive(Serialize)]
struct Body<'a> {
    handler: &'a str,
    payload: &'a Json,
    metadata: &'a Json,
    object: Option<&'a str>,
    ordered: bool,
    priority: u64,
    not_before: Option<Timestamp>,
    unique_key: Option<&'a str>,
    attempts_max: Option<u32>,
}

/// Sends a job and tells its id.
pub async fn run(args: EmitArgs) -> anyhow::Result<Outcome> {
    let payload = match &args.payload {
        Some(argument) => Json::parse("payload", json_text("payload", argument)?)?,
        None => Json::null(),
    };
    let metadata = match &args.metadata {
        Some(argument) => Json::parse("metadata", json_text("metadata", argument)?)?,
        None => Json::empty_object(),
    };
    let later = |span: Span| Timestamp::now().checked_add(span.0).context("the delay is too long");
    let not_before = match (args.delay, args.not_before) {
        (Some(span), _) | (None, Some(When::In(span))) => Some(later(span)?),
        (None, Some(When::At(at))) => Some(at),
        (None, None) => None,
    };
    let body = Body {
        handler: &args.handler,
        payload: &payload,
        metadata: &metadata,
        object: args.object.as_deref(),
        ordered: !args.unordered,
        priority: args.priority,
        not_before,
        unique_key: args.unique_key.as_deref(),
        attempts_max: args.attempts_max,
    };
    let job = job_of(&body);
    // What is wrong with the job is said before a store is opened.
    job.checked()?;
    let config = args.target.config();
    let target = args.target.open(Access::Write).await?;
    let answer = match &target {
        Target::Server(remote) => remote.send_json(&["v1", "jobs"], &body).await?,
        Target::Store(bus) => {
            collections::know(bus, config.as_deref(), &GroupName::parse("handler", &args.handler)?).await?;
            let sent = bus.emit(job).await?;
            let state = bus.seen_states(&[sent]).await?[0];
            as_json(&SentShape::from(&Enqueued { state, ..sent }))?
        }
    };
    target.close().await;
    if args.output.json {
        output::json(&answer)?;
    } else {
        let what = if answer["existing"] == true { "already there" } else { "sent" };
        output::line(format_args!("{what}: job {}, {}", shown(&answer["id"]), shown(&answer["state"])))?;
    }
    Ok(Outcome::Done)
}

fn job_of(body: &Body<'_>) -> Emit {
    let mut job = Emit::to(body.handler).payload(body.payload).metadata(body.metadata).priority(body.priority);
    if let Some(object) = body.object {
        job = job.object(object);
    }
    if !body.ordered {
        job = job.unordered();
    }
    if let Some(at) = body.not_before {
        job = job.not_before(at);
    }
    if let Some(key) = body.unique_key {
        job = job.unique_key(key);
    }
    if let Some(attempts_max) = body.attempts_max {
        job = job.attempts_max(attempts_max);
    }
    job
}
