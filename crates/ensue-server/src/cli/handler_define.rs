//! How is a handler shown, defined and deleted?

use super::Outcome;
use super::args::json_text;
use super::failure::Failure;
use super::handler::rules_in_words;
use super::output::{self, OutputArgs, as_json, shown};
use super::target::{Access, Target, TargetArgs};
use crate::http::handlers::HandlerShape;
use crate::http::handlers_defined::{DeletedHandlerShape, handler_of_text};
use clap::Args;
use ensue::{Ensue, Error, GroupName};
use reqwest::Method;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// `ensue handler show`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue handler show order.paid.remote
  ensue handler show order.paid.remote --json | jq .lag

With --json: the answer of GET /v1/handlers/order.paid.remote.
Exit code 3: the handler does not exist.")]
pub struct ShowArgs {
    /// Its key
    key: String,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// `ensue handler set`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue handler set order.paid.remote --on order.paid
  ensue handler set big.orders --on order --where \"(e.payload->>'total')::numeric > 100\"
  ensue handler set order.paid.remote --on order.paid --retry '{\"attempts_max\": 9, \"max\": \"1h\"}'

Each event that it wants becomes a job, which workers in any language claim (docs/jobs.md). The
store keeps it, and every server on it serves it. Set again, all its settings are replaced (what
is left out has its default), and it goes on where it was; --start counts when it is new.
With --json: the answer of PUT /v1/handlers/order.paid.remote.")]
pub struct SetArgs {
    /// Its key, in dotted segments
    key: String,
    /// The topic that it is bound to, with those below it; may be left out beside --where
    #[arg(long, value_name = "TOPIC")]
    on: Option<String>,
    /// Only events for which this SQL expression over e, the event, and s.params holds
    #[arg(long = "where", value_name = "SQL")]
    condition: Option<String>,
    /// JSON that the condition reads as s.params; also @FILE, or - for stdin
    #[arg(long, value_name = "JSON")]
    params: Option<String>,
    /// Jobs of one object need not run one after another
    #[arg(long)]
    unordered: bool,
    /// How many events become jobs at once in one server [default: 8]
    #[arg(long, value_name = "N")]
    concurrency: Option<u64>,
    /// How often, and after how long: {"attempts_max","first","max"} or {"delays"}
    #[arg(long, value_name = "JSON")]
    retry: Option<String>,
    /// How long a claim may be held in all, such as 10m [default: as long as it is renewed]
    #[arg(long, value_name = "SPAN")]
    timeout: Option<String>,
    /// What then: hold, skip or dead_letter_object [default: hold]
    #[arg(long, value_name = "WORD")]
    on_exhausted: Option<String>,
    /// Where it begins if it is new: now, beginning, or the seq of the last event that it is not to get [default: now]
    #[arg(long, value_name = "PLACE")]
    start: Option<String>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// `ensue handler delete`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue handler delete order.paid.remote

Its place in the log is forgotten. Jobs that were made stay, and can be claimed. What a config file
or an application binds is taken out there.")]
pub struct DeleteArgs {
    /// Its key
    key: String,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// A handler as PUT /v1/handlers/{key} takes it.
#[derive(Serialize)]
struct Body<'a> {
    on: Option<&'a str>,
    r#where: Option<&'a str>,
    params: Option<Box<RawValue>>,
    ordered: bool,
    concurrency: Option<u64>,
    retry: Option<Box<RawValue>>,
    timeout: Option<&'a str>,
    on_exhausted: Option<&'a str>,
    start: Option<Box<RawValue>>,
}

/// JSON as it stands: a number in it may have more digits than this program counts with.
fn raw(name: &str, argument: Option<&str>) -> anyhow::Result<Option<Box<RawValue>>> {
    let Some(argument) = argument else { return Ok(None) };
    let text = json_text(name, argument)?;
    serde_json::from_str(&text)
        .map(Some)
        .map_err(|error| Failure::invalid(format_args!("--{name} is not JSON: {error}")).into())
}

/// A number stands for itself, whatever else is a word.
fn start(argument: Option<&str>) -> anyhow::Result<Option<Box<RawValue>>> {
    let text = argument.map(|place| match place.parse::<u64>() {
        Ok(seq) => seq.to_string(),
        Err(_) => Value::from(place).to_string(),
    });
    Ok(text.map(RawValue::from_string).transpose()?)
}

async fn report(bus: &Ensue, key: &GroupName) -> anyhow::Result<Value> {
    let missing =
        || Error::NotFound(format!("there is no handler `{key}`: `ensue handler list` shows those there are"));
    as_json(&HandlerShape::from(&bus.handler_report(key).await?.ok_or_else(missing)?))
}

fn tell(handler: &Value, how: OutputArgs) -> anyhow::Result<Outcome> {
    if how.json {
        output::json(handler)?;
        return Ok(Outcome::Done);
    }
    let fields = [
        "key",
        "on",
        "where",
        "params",
        "pull",
        "defined",
        "ordered",
        "concurrency",
        "retry",
        "timeout",
        "on_exhausted",
        "start",
        "cursor",
        "lag",
        "held",
        "here",
        "orphaned",
    ];
    let mut rows: Vec<(&str, String)> = fields.iter().map(|field| (*field, shown(&handler[*field]))).collect();
    rows.push(("rules", rules_in_words(handler)));
    output::block(output::fields(&rows))?;
    Ok(Outcome::Done)
}

/// Carries out `ensue handler show`.
pub async fn show(args: ShowArgs) -> anyhow::Result<Outcome> {
    let target = args.target.open(Access::Read).await?;
    let answer = match &target {
        Target::Server(remote) => remote.get_json(&["v1", "handlers", &args.key], &[]).await?,
        Target::Store(bus) => report(bus, &GroupName::parse("key", &args.key)?).await?,
    };
    target.close().await;
    tell(&answer, args.output)
}

/// Carries out `ensue handler set`.
pub async fn set(args: SetArgs) -> anyhow::Result<Outcome> {
    let body = Body {
        on: args.on.as_deref(),
        r#where: args.condition.as_deref(),
        params: raw("params", args.params.as_deref())?,
        ordered: !args.unordered,
        concurrency: args.concurrency,
        retry: raw("retry", args.retry.as_deref())?,
        timeout: args.timeout.as_deref(),
        on_exhausted: args.on_exhausted.as_deref(),
        start: start(args.start.as_deref())?,
    };
    let target = args.target.open(Access::Write).await?;
    let answer = match &target {
        Target::Server(remote) => remote.put_json(&["v1", "handlers", &args.key], &body).await?,
        Target::Store(bus) => {
            let key = GroupName::parse("key", &args.key)?;
            let handler = handler_of_text(&serde_json::to_string(&body)?).map_err(Failure::invalid)?;
            bus.define_pull(&key, &handler).await?;
            report(bus, &key).await?
        }
    };
    target.close().await;
    tell(&answer, args.output)
}

/// Carries out `ensue handler delete`.
pub async fn delete(args: DeleteArgs) -> anyhow::Result<Outcome> {
    let target = args.target.open(Access::Write).await?;
    let answer = match &target {
        Target::Server(remote) => remote.ask_json(Method::DELETE, &["v1", "handlers", &args.key], &Value::Null).await?,
        Target::Store(bus) => {
            bus.undefine_pull(&GroupName::parse("key", &args.key)?).await?;
            as_json(&DeletedHandlerShape { key: &args.key, state: "deleted" })?
        }
    };
    target.close().await;
    match args.output.json {
        true => output::json(&answer)?,
        false => output::line(format_args!("deleted: {}", args.key))?,
    }
    Ok(Outcome::Done)
}
