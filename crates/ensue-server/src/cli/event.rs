//! What is known about one event?

use super::Outcome;
use super::args::{EventRef, event_id, event_ref};
use super::handler::{self, DeliveriesArgs};
use super::held::{self, EventAskArgs};
use super::list::{self, ListArgs};
use super::output::{self, OutputArgs};
use super::publish::{self, PublishArgs};
use super::target::{Access, TargetArgs};
use crate::http::shapes::{CancelledShape, EventShape, EventState};
use clap::{Args, Subcommand};
use ensue::positions::Ask;
use ensue::{EventId, Found};

/// `ensue event …`
#[derive(Debug, Subcommand)]
pub enum EventCommand {
    /// List the events of the log, or those that wait to enter it
    List(ListArgs),
    /// Show an event, in the log or pending
    Show(ShowArgs),
    /// Publish an event (as `ensue publish`)
    Publish(PublishArgs),
    /// Cancel a delayed event that has not entered the log
    Cancel(CancelArgs),
    /// Show what became of an event, for every handler
    Deliveries(DeliveriesArgs),
    /// Run an event that is held again
    Retry(EventAskArgs),
    /// Give up an event that is held
    Skip(EventAskArgs),
}

/// `ensue event show`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue event show 12
  ensue event show 01890a5d-ac96-774b-bcce-b302099a8057
  ensue event show 12 --json | jq .payload                   # the JSON of GET /v1/events/12

Exit code 3: the event does not exist (any more).")]
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
  ensue event cancel $id

Exit code 3: the event does not exist; 4: it is in the log already.")]
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
        EventCommand::List(args) => list::run(args).await,
        EventCommand::Show(args) => show(args).await,
        EventCommand::Publish(args) => publish::run(args).await,
        EventCommand::Cancel(args) => cancel(args).await,
        EventCommand::Deliveries(args) => handler::deliveries(args).await,
        EventCommand::Retry(args) => held::ask_event(args, Ask::Retry).await,
        EventCommand::Skip(args) => held::ask_event(args, Ask::Skip).await,
    }
}

async fn show(args: ShowArgs) -> anyhow::Result<Outcome> {
    let target = args.target.open(Access::Read).await?;
    let found = target.event(args.event).await?;
    target.close().await;
    match (&found, args.output.json) {
        (Found::Logged(event), true) => output::json(&EventShape::from(event))?,
        (Found::Pending(pending), true) => output::json(&EventShape::from(pending))?,
        (Found::Logged(event), false) => output::block(output::fields(&[
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
        (Found::Pending(pending), false) => output::block(output::fields(&[
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
    target.cancel(id).await?;
    target.close().await;
    if args.output.json {
        output::json(&CancelledShape { id, state: EventState::Cancelled })?;
    } else {
        output::line(format_args!("cancelled: {id} will not enter the log"))?;
    }
    Ok(Outcome::Done)
}
