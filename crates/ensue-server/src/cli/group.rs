//! Which groups read the log, and how far are they?

use super::Outcome;
use super::args::json_text;
use super::group_ask as ask;
use super::group_read::{self, ReadArgs, ReplayArgs};
use super::output::{self, Block, OutputArgs, shown};
use super::pages::LimitArgs;
use super::target::{Access, Target, TargetArgs};
use crate::config::units::Span;
use clap::{Args, Subcommand};
use ensue::Json;
use ensue::groups::Wants;
use ensue::positions::Start;
use serde_json::Value;

/// `ensue group …`
#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// List the groups, and how far each has come
    List(ListArgs),
    /// Show a group
    Show(ShowArgs),
    /// Make a group
    Create(CreateArgs),
    /// Say what a group wants; makes the group if it is not there
    Subscribe(SubscribeArgs),
    /// Read what is next for a group, print it, and note that it is done
    Read(ReadArgs),
    /// Print a range of the log again, as a group sees it
    Replay(ReplayArgs),
    /// Move a group to another place, forward or back
    Seek(SeekArgs),
    /// Delete a group, with its subscriptions
    Delete(DeleteArgs),
}

/// `ensue group list`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue group list
  ensue group list --json | jq '.groups[] | select(.lag > 1000) | .name'
  ensue group list --store sqlite:ensue.db                   # also while a server has it open

A group is a durable reader of the log: of kind pull it is read from outside, of kind handler by
the handler of that name. lag: how many events of the log are after its cursor, wanted or not.
With --json: the answer of GET /v1/groups, all of its pages in one.")]
pub struct ListArgs {
    #[command(flatten)]
    limit: LimitArgs,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// `ensue group show`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue group show billing
  ensue group show billing --json | jq .lag

With --json: the answer of GET /v1/groups/billing. Exit code 3: the group does not exist.")]
pub struct ShowArgs {
    /// Its name
    group: String,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// `ensue group create`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue group create billing                                 # what comes from now on
  ensue group create billing --start beginning               # all that is in the log
  ensue group create billing --start 500                     # what is after seq 500

One that is there stays where it is. Say what it is to get with `ensue group subscribe`.")]
pub struct CreateArgs {
    /// Its name, in dotted segments
    group: String,
    /// Where it begins: now, beginning, or the seq of the last event that it is not to get
    #[arg(long, value_name = "PLACE", default_value = "now", value_parser = place)]
    start: Start,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// `ensue group subscribe`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue group subscribe billing --topic order                # order, order.paid, … but never orders
  ensue group subscribe billing --where \"(e.payload->>'total')::numeric > 100\"
  ensue group subscribe alerts --where 'e.payload @> s.params' --params '{\"customer\": 7}'
  ensue group subscribe alerts --topic stock --expires-in 10m

Asking for the same again is the same subscription. docs/conditions.md has the language of --where.
With --json: the answer of POST /v1/groups/billing/subscriptions.")]
pub struct SubscribeArgs {
    /// The group, which is made if it is not there, and begins now
    group: String,
    /// This topic and those below it
    #[arg(long, value_name = "TOPIC", required_unless_present = "condition")]
    topic: Option<String>,
    /// Events for which this SQL expression over e, the event, and s, the subscription, holds; true for all
    #[arg(long = "where", value_name = "SQL")]
    condition: Option<String>,
    /// JSON that the condition reads as s.params; also @FILE, or - for stdin
    #[arg(long, value_name = "JSON")]
    params: Option<String>,
    /// Goes when nobody reads the group or asks for it again for so long, such as 10m [default: stays]
    #[arg(long, value_name = "SPAN")]
    expires_in: Option<Span>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// `ensue group seek`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue group seek billing --to now                          # passes over what it has not read
  ensue group seek billing --to beginning                    # reads all that is in the log again
  ensue group seek billing --to 500                          # goes on with seq 501
  ensue group seek order.paid.index --to 500                 # its handler runs again from 501

Whoever reads the group loses its lease. Objects of a handler that wait for a retry, or are held,
are forgotten: they are run again if they are after the new place.")]
pub struct SeekArgs {
    /// Its name
    group: String,
    /// Where it goes: now, beginning, or the seq of the last event that it is done with
    #[arg(long, value_name = "PLACE", value_parser = place)]
    to: Start,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// `ensue group delete`
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  ensue group delete billing

The log does not wait for it any more. The group of a handler that runs is not deleted: take the
handler out of its config file or application first, or stop its process.
Exit code 3: the group does not exist; 4: its handler runs.")]
pub struct DeleteArgs {
    /// Its name
    group: String,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// For `clap`: a place of the log.
fn place(text: &str) -> Result<Start, String> {
    match text {
        "now" => Ok(Start::Now),
        "beginning" => Ok(Start::Beginning),
        seq => seq.parse().map(Start::After).map_err(|_| "write now, beginning or a seq such as 12".into()),
    }
}

/// Carries out `ensue group …`.
pub async fn run(command: GroupCommand) -> anyhow::Result<Outcome> {
    match command {
        GroupCommand::List(args) => list(args).await,
        GroupCommand::Show(ShowArgs { group, target, output }) => {
            tell(&target.ask(Access::Read, async |target| ask::show(target, &group).await).await?, output)
        }
        GroupCommand::Create(CreateArgs { group, start, target, output }) => {
            tell(&target.ask(Access::Write, async |target| ask::create(target, &group, start).await).await?, output)
        }
        GroupCommand::Seek(SeekArgs { group, to, target, output }) => {
            tell(&target.ask(Access::Write, async |target| ask::seek(target, &group, to).await).await?, output)
        }
        GroupCommand::Subscribe(args) => subscribe(args).await,
        GroupCommand::Delete(args) => delete(args).await,
        GroupCommand::Read(args) => group_read::read(args).await,
        GroupCommand::Replay(args) => group_read::replay(args).await,
    }
}

async fn list(args: ListArgs) -> anyhow::Result<Outcome> {
    let answer = args.target.ask(Access::Read, async |target| ask::list(target, args.limit).await).await?;
    let fields = ["name", "kind", "cursor", "lag", "subscriptions", "lanes", "served_at"];
    let nothing = "there is no group: make one with `ensue group subscribe` or `ensue group create`";
    output::listed(&answer, "groups", fields, nothing, args.output)
}

fn tell(group: &Value, how: OutputArgs) -> anyhow::Result<Outcome> {
    output::answer(group, how, || in_words(group))
}

fn in_words(group: &Value) -> Block {
    let mut pairs: Vec<(&str, String)> =
        ["name", "kind", "cursor", "lag", "subscriptions", "lanes", "created_at", "served_at"]
            .map(|field| (field, shown(&group[field])))
            .into();
    if let (Some(from), Some(to)) = (group["lost"]["from"].as_u64(), group["lost"]["to"].as_u64()) {
        pairs.push(("lost", format!("seq {from} to {to}, to retention")));
    }
    for slot in group["slots"].as_array().into_iter().flatten().filter(|slot| !slot["owner"].is_null()) {
        let until = slot["lease_until"].as_str().map_or_else(String::new, |until| format!(" until {until}"));
        pairs.push(("read by", format!("{}{until}", shown(&slot["owner"]))));
    }
    output::fields(&pairs)
}

async fn subscribe(args: SubscribeArgs) -> anyhow::Result<Outcome> {
    let params = match &args.params {
        Some(argument) => Json::parse("params", json_text("params", argument)?)?,
        None => Json::empty_object(),
    };
    let expires_in = args.expires_in.map(|span| span.0);
    let wants = Wants { topic: args.topic, condition: args.condition, params, expires_in };
    let subscribe = async |target: &Target| ask::subscribe(target, &args.group, wants).await;
    let answer = args.target.ask(Access::Write, subscribe).await?;
    output::answer(&answer, args.output, || format!("subscribed: {}", shown(&answer["id"])))
}

async fn delete(args: DeleteArgs) -> anyhow::Result<Outcome> {
    let answer = args.target.ask(Access::Write, async |target| ask::delete(target, &args.group).await).await?;
    output::answer(&answer, args.output, || format!("deleted: {}", args.group))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_word_or_a_number() {
        assert_eq!(
            [place("now"), place("beginning"), place("12")],
            [Ok(Start::Now), Ok(Start::Beginning), Ok(Start::After(12))]
        );
        assert!(place("-1").unwrap_err().contains("beginning"));
    }
}
