//! What happened to one object?

use super::Outcome;
use super::args::seq;
use super::held::{self, ListArgs, ObjectAskArgs};
use super::output::{self, OutputArgs};
use super::target::{Access, TargetArgs};
use crate::http::shapes::PageShape;
use clap::{Args, Subcommand};
use ensue::positions::Ask;
use ensue::{ObjectKey, Seq};

/// `ensue object …`
#[derive(Debug, Subcommand)]
pub enum ObjectCommand {
    /// Show the events of an object, newest first
    Show(ShowArgs),
    /// List the objects that are held
    List(ListArgs),
    /// Run the event that an object is held at again
    Retry(ObjectAskArgs),
    /// Give up the event that an object is held at, and go on
    Skip(ObjectAskArgs),
}

/// `ensue object show`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue object show order:1
  ensue object show order:1 --limit 10 --before 500          # ten events before seq 500
  ensue object show order:1 --json | jq '.events[].topic'

With --json: the page of GET /v1/objects/OBJECT/events; its next is the --before of the next page.
Exit code 0 also if the object has no event in the log.")]
pub struct ShowArgs {
    /// The object, such as order:1
    object: String,
    /// Only events before this seq
    #[arg(long, value_name = "SEQ", value_parser = seq)]
    before: Option<Seq>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u16).range(1..=1_000))]
    limit: u16,
    /// Also direct messages, events that are sent to one subscription
    #[arg(long)]
    include_direct: bool,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Carries out `ensue object …`.
pub async fn run(command: ObjectCommand) -> anyhow::Result<Outcome> {
    match command {
        ObjectCommand::Show(args) => show(args).await,
        ObjectCommand::List(args) => held::list_held(args).await,
        ObjectCommand::Retry(args) => held::ask_object(args, Ask::Retry).await,
        ObjectCommand::Skip(args) => held::ask_object(args, Ask::Skip).await,
    }
}

async fn show(args: ShowArgs) -> anyhow::Result<Outcome> {
    let object = ObjectKey::parse_filter(&args.object)?;
    let target = args.target.open(Access::Read).await?;
    let page = target.chain(&object, args.before, usize::from(args.limit), args.include_direct).await?;
    target.close().await;
    if args.output.json {
        output::json(&PageShape::of_chain(&page))?;
    } else if page.events.is_empty() && page.next.is_none() {
        output::line(format_args!("no event of {object} is in the log"))?;
    } else {
        let rows = page.events.iter().map(|event| {
            let payload = event.payload.as_str().to_string();
            [
                event.seq.to_string(),
                output::place(event.prev),
                event.recorded_at.to_string(),
                event.topic.to_string(),
                payload,
            ]
        });
        output::block(output::table(["seq", "prev", "recorded_at", "topic", "payload"], rows))?;
    }
    Ok(Outcome::Done)
}
