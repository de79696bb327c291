//! What is known about one event?

use super::Outcome;
use super::args::{EventRef, event_id, event_ref};
use super::output::{self, OutputArgs};
use super::publish::{self, PublishArgs};
use super::target::{Access, TargetArgs};
use anyhow::bail;
use clap::{Args, Subcommand};
use ensue::{Cancelled, EventId, Found};
use serde_json::json;

/// `ensue event …`
#[derive(Debug, Subcommand)]
pub enum EventCommand {
    /// Show an event, in the log or pending
    Show(ShowArgs),
    /// Publish an event (as `ensue publish`)
    Publish(PublishArgs),
    /// Cancel a delayed event that has not entered the log
    Cancel(CancelArgs),
}

/// `ensue event show`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue event show 12
  ensue event show 01890a5d-ac96-774b-bcce-b302099a8057
  ensue event show 12 --json | jq .payload")]
pub struct ShowArgs {
    /// Its seq or its id
    #[arg(value_name = "SEQ|ID", value_parser = event_ref)]
    event: EventRef,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// `ensue event cancel`
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  id=$(ensue publish order.remind --not-before 1h --json | jq -r .id)
  ensue event cancel $id")]
pub struct CancelArgs {
    /// The id that publish answered
    #[arg(value_name = "ID", value_parser = event_id)]
    id: EventId,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Carries out `ensue event …`.
pub async fn run(command: EventCommand) -> anyhow::Result<Outcome> {
    match command {
        EventCommand::Show(args) => show(args).await,
        EventCommand::Publish(args) => publish::run(args).await,
        EventCommand::Cancel(args) => cancel(args).await,
    }
}

async fn show(args: ShowArgs) -> anyhow::Result<Outcome> {
    let target = args.target.open(Access::Read).await?;
    let found = target.event(args.event).await?;
    target.close().await;
    match (&found, args.output.json) {
        (Found::Logged(event), true) => output::json(&output::logged_json(event))?,
        (Found::Pending(pending), true) => output::json(&output::pending_json(pending))?,
        (Found::Logged(event), false) => output::line(output::fields(&[
            ("seq", event.seq.to_string()),
            ("prev", output::place(event.prev)),
            ("id", event.id.to_string()),
            ("topic", event.topic.to_string()),
            ("object", event.object.as_ref().map_or("-".into(), ToString::to_string)),
            ("payload", event.payload.as_str().into()),
            ("metadata", event.metadata.as_str().into()),
            ("occurred_at", event.occurred_at.to_string()),
            ("recorded_at", event.recorded_at.to_string()),
            ("state", "logged".into()),
        ]))?,
        (Found::Pending(pending), false) => output::line(output::fields(&[
            ("id", pending.id.to_string()),
            ("topic", pending.topic.to_string()),
            ("object", pending.object.as_ref().map_or("-".into(), ToString::to_string)),
            ("payload", pending.payload.as_str().into()),
            ("metadata", pending.metadata.as_str().into()),
            ("occurred_at", pending.occurred_at.to_string()),
            ("not_before", pending.not_before.to_string()),
            ("state", "pending".into()),
        ]))?,
    }
    Ok(Outcome::Done)
}

async fn cancel(args: CancelArgs) -> anyhow::Result<Outcome> {
    let id = args.id;
    let target = args.target.open(Access::Write).await?;
    let cancelled = target.cancel(id).await?;
    target.close().await;
    match cancelled {
        Cancelled::Gone if args.output.json => output::json(&json!({ "id": id, "cancelled": true }))?,
        Cancelled::Gone => output::line(format_args!("cancelled: {id} will not enter the log"))?,
        Cancelled::AlreadyLogged(seq) => bail!("{id} is in the log already, at seq {seq}, and stays there"),
        Cancelled::Unknown => bail!("there is no event with id {id}: it was never published, or was cancelled before"),
    }
    Ok(Outcome::Done)
}
