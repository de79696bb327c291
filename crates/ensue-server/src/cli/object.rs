//! What happened to one object?

use super::Outcome;
use super::output::{self, OutputArgs};
use super::target::{Access, TargetArgs};
use clap::{Args, Subcommand};
use ensue::{Event, ObjectKey, Seq};
use serde::Serialize;

/// `ensue object …`
#[derive(Debug, Subcommand)]
pub enum ObjectCommand {
    /// Show the events of an object, newest first
    Show(ShowArgs),
}

/// `ensue object show`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue object show order:1
  ensue object show order:1 --limit 10 --before 500          # ten events before seq 500
  ensue object show order:1 --json | jq '.events[].topic'")]
pub struct ShowArgs {
    /// The object, such as order:1
    object: String,
    /// Only events before this seq
    #[arg(long, value_name = "SEQ")]
    before: Option<Seq>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    limit: u16,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

#[derive(Serialize)]
struct Events {
    events: Vec<Event>,
}

/// Carries out `ensue object …`.
pub async fn run(command: ObjectCommand) -> anyhow::Result<Outcome> {
    let ObjectCommand::Show(args) = command;
    let object = ObjectKey::parse(&args.object)?;
    let target = args.target.open(Access::Read).await?;
    let events = target.chain(&object, args.before, usize::from(args.limit)).await?;
    target.close().await;
    if args.output.json {
        output::json(&Events { events })?;
    } else if events.is_empty() {
        output::line(format_args!("no event of {object} is in the log"))?;
    } else {
        let rows = events.iter().map(|event| {
            let payload = event.payload.as_str().to_string();
            [
                event.seq.to_string(),
                output::place(event.prev),
                event.recorded_at.to_string(),
                event.topic.to_string(),
                payload,
            ]
        });
        output::line(output::table(["seq", "prev", "recorded_at", "topic", "payload"], rows))?;
    }
    Ok(Outcome::Done)
}
