//! How is a schedule made, looked at and fired from the command line?

use super::Outcome;
use super::args::json_text;
use super::collections;
use super::failure::Failure;
use super::output::{self, OutputArgs, as_json, list, shown};
use super::target::{Access, Target, TargetArgs};
use crate::http::schedules::schedule_of_text;
use crate::http::schedules_shapes::{DeletedScheduleShape, RunShape, RunsShape, ScheduleShape, SchedulesShape};
use clap::{Args, Subcommand};
use ensue::tasks::TASK_PREFIX;
use ensue::{Ensue, Error, GroupName};
use reqwest::Method;
use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::path::Path;

/// How many are asked for at once.
const PAGE: usize = 500;

/// `ensue schedule …`
#[derive(Debug, Subcommand)]
pub enum ScheduleCommand {
    /// List the schedules
    List(ListArgs),
    /// Show a schedule: what it means, when it fires next, what became of it
    Show(NameArgs),
    /// Make a schedule, or change it
    Set(Box<SetArgs>),
    /// Fire a schedule now
    Run(RunArgs),
    /// Delete a schedule
    Delete(DeleteArgs),
}

/// `ensue schedule list`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue schedule list
  ensue schedule list --json | jq -r '.schedules[] | select(.held) | .name'

With --json: all pages of GET /v1/schedules as one.")]
pub struct ListArgs {
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// `ensue schedule show`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue schedule show nightly
  ensue schedule show nightly --json | jq -r .next[0]
  ensue explain schedule:nightly                             # why it does not fire

With --json: the answer of GET /v1/schedules/nightly, and its last runs as `runs`.")]
pub struct NameArgs {
    /// Its name
    name: String,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// `ensue schedule run`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue schedule run nightly

Whatever its times say; they stay as they are. While the job of an earlier occurrence is not over,
the overlap policy decides, and the answer says so.
With --json: the answer of POST /v1/schedules/nightly/run.")]
pub struct RunArgs {
    /// Its name
    name: String,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// `ensue schedule delete`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue schedule delete nightly

Jobs that were sent stay. What the config file of a server declares is taken out there.")]
pub struct DeleteArgs {
    /// Its name
    name: String,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// `ensue schedule set`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue schedule set nightly --cron '30 2 * * *' --timezone Europe/Berlin --topic report.nightly
  ensue schedule set sweep --every 5m --handler sweep.run --payload '{\"deep\": true}'
  ensue schedule set late --cron '0 0 12 ? * 6L' --handler report --overlap queue --misfire all

Five fields are minute, hour, day, month and weekday; six have seconds in front, seven a year
behind. With a ? or seven fields Sunday is 1, else 0. Set again, all its settings are replaced;
while its times stay, it goes on where it was.
With --json: the answer of PUT /v1/schedules/nightly.")]
pub struct SetArgs {
    /// Its name, in dotted segments
    name: String,
    /// A cron expression, or @daily and the like
    #[arg(long, value_name = "CRON", conflicts_with = "every")]
    cron: Option<String>,
    /// Every so often, such as 5m
    #[arg(long, value_name = "SPAN")]
    every: Option<String>,
    /// The zone whose clock is meant, such as Europe/Berlin [default: UTC]
    #[arg(long, value_name = "ZONE")]
    timezone: Option<String>,
    /// What becomes of what was missed: skip, once or all [default: once]
    #[arg(long, value_name = "WORD")]
    misfire: Option<String>,
    /// What becomes of an occurrence while the job of an earlier one runs: skip, queue or allow [default: skip]
    #[arg(long, value_name = "WORD")]
    overlap: Option<String>,
    /// Fires up to so much later, such as 30s
    #[arg(long, value_name = "SPAN")]
    jitter: Option<String>,
    /// An event on this topic follows
    #[arg(long, value_name = "TOPIC", conflicts_with = "handler")]
    topic: Option<String>,
    /// A job for this handler follows
    #[arg(long, value_name = "KEY")]
    handler: Option<String>,
    /// JSON; also @FILE, or - for stdin
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// Of its jobs: higher first [default: 0]
    #[arg(long, value_name = "N")]
    priority: Option<u64>,
    /// How often a job of it is attempted [default: as its handler says]
    #[arg(long, value_name = "N")]
    attempts_max: Option<u32>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// A schedule as PUT /v1/schedules/{name} takes it.
#[derive(Serialize)]
struct Body<'a> {
    cron: Option<&'a str>,
    every: Option<&'a str>,
    timezone: Option<&'a str>,
    misfire: Option<&'a str>,
    overlap: Option<&'a str>,
    jitter: Option<&'a str>,
    topic: Option<&'a str>,
    handler: Option<&'a str>,
    payload: Option<Box<RawValue>>,
    priority: Option<u64>,
    attempts_max: Option<u32>,
}

/// Carries out `ensue schedule …`.
pub async fn run(command: ScheduleCommand) -> anyhow::Result<Outcome> {
    match command {
        ScheduleCommand::List(args) => list_all(args).await,
        ScheduleCommand::Show(args) => show(args).await,
        ScheduleCommand::Set(args) => set(*args).await,
        ScheduleCommand::Run(args) => run_now(args).await,
        ScheduleCommand::Delete(args) => delete(args).await,
    }
}

async fn list_all(args: ListArgs) -> anyhow::Result<Outcome> {
    let all = async |target: &Target| {
        let (mut all, mut after): (Vec<Value>, Option<String>) = (Vec::new(), None);
        loop {
            let mut page = match target {
                Target::Server(remote) => {
                    remote.get_json(&["v1", "schedules"], &super::pages::query(after.as_deref(), PAGE)).await?
                }
                Target::Store(bus) => {
                    let name = after.as_deref().map(GroupName::stored);
                    as_json(&SchedulesShape::page(&bus.schedules(name.as_ref(), PAGE + 1).await?, PAGE))?
                }
            };
            if let Value::Array(items) = page["schedules"].take() {
                all.extend(items);
            }
            after = page["next"].as_str().map(str::to_owned);
            if after.is_none() {
                return Ok(serde_json::json!({ "schedules": all, "next": Value::Null }));
            }
        }
    };
    let mut answer = args.target.ask(Access::Read, all).await?;
    if !args.output.json
        && let Some(schedules) = answer["schedules"].as_array_mut()
    {
        for one in schedules {
            one["follows"] = if one["topic"].is_null() { one["handler"].take() } else { one["topic"].take() };
            one["fires next"] = one["next"][0].take();
        }
    }
    let fields = ["name", "description", "follows", "fires next", "held", "managed_by"];
    output::listed(&answer, "schedules", fields, "there are no schedules", args.output)
}

async fn show(args: NameArgs) -> anyhow::Result<Outcome> {
    let target = args.target.open(Access::Read).await?;
    let mut answer = match &target {
        Target::Server(remote) => remote.get_json(&["v1", "schedules", &args.name], &[]).await?,
        Target::Store(bus) => {
            let missing = || {
                Error::NotFound(format!(
                    "there is no schedule `{}`: `ensue schedule list` shows those there are",
                    args.name
                ))
            };
            let name = GroupName::parse("name", &args.name)?;
            as_json(&ScheduleShape::from(&bus.find_schedule(&name).await?.ok_or_else(missing)?))?
        }
    };
    let mut runs = match &target {
        Target::Server(remote) => {
            remote.get_json(&["v1", "schedules", &args.name, "runs"], &[("limit", "10".into())]).await?
        }
        Target::Store(bus) => {
            let runs = bus.schedule_runs(&GroupName::parse("name", &args.name)?, None, 10).await?;
            as_json(&RunsShape::page(&runs, 10))?
        }
    };
    target.close().await;
    answer["runs"] = runs["runs"].take();
    tell(&answer, args.output)
}

fn tell(schedule: &Value, how: OutputArgs) -> anyhow::Result<Outcome> {
    if how.json {
        output::json(schedule)?;
        return Ok(Outcome::Done);
    }
    let fields = [
        "name",
        "description",
        "cron",
        "every",
        "timezone",
        "misfire",
        "overlap",
        "jitter",
        "topic",
        "handler",
        "payload",
        "priority",
        "attempts_max",
        "managed_by",
        "held",
    ];
    output::block(output::fields(&fields.map(|field| (field, shown(&schedule[field])))))?;
    for time in list(schedule, "next") {
        output::line(format_args!("fires next  {}", shown(time)))?;
    }
    for word in ["warning", "error"] {
        if let Some(text) = schedule[word].as_str() {
            output::line(format_args!("{word}: {text}"))?;
        }
    }
    for run in list(schedule, "runs") {
        output::line(told(run))?;
    }
    Ok(Outcome::Done)
}

/// What became of an occurrence, in a line.
fn told(run: &Value) -> String {
    let (occurrence, outcome) = (shown(&run["occurrence"]), shown(&run["outcome"]));
    let rest = match run["outcome"].as_str() {
        Some("event") => shown(&run["event"]),
        Some("job") => shown(&run["job"]),
        Some("overlapped") => format!("job {} was not over", shown(&run["job"])),
        _ => shown(&run["reason"]),
    };
    format!("{occurrence}  {outcome} {rest}")
}

async fn set(args: SetArgs) -> anyhow::Result<Outcome> {
    let payload = match &args.payload {
        Some(argument) => {
            let text = json_text("payload", argument)?;
            Some(
                serde_json::from_str(&text)
                    .map_err(|error| Failure::invalid(format_args!("--payload is not JSON: {error}")))?,
            )
        }
        None => None,
    };
    let body = Body {
        cron: args.cron.as_deref(),
        every: args.every.as_deref(),
        timezone: args.timezone.as_deref(),
        misfire: args.misfire.as_deref(),
        overlap: args.overlap.as_deref(),
        jitter: args.jitter.as_deref(),
        topic: args.topic.as_deref(),
        handler: args.handler.as_deref(),
        payload,
        priority: args.priority,
        attempts_max: args.attempts_max,
    };
    let target = args.target.open(Access::Write).await?;
    let answer = match &target {
        Target::Server(remote) => remote.put_json(&["v1", "schedules", &args.name], &body).await?,
        Target::Store(bus) => {
            let name = GroupName::parse("name", &args.name)?;
            let schedule = schedule_of_text(name, &serde_json::to_string(&body)?).map_err(Failure::invalid)?;
            as_json(&ScheduleShape::from(&bus.schedule(schedule).await?.0))?
        }
    };
    target.close().await;
    tell(&answer, args.output)
}

/// A schedule that sends its jobs to a collection, and is not the collection's own, is fired as a server would.
async fn know_collection(bus: &Ensue, config: Option<&Path>, name: &GroupName) -> anyhow::Result<()> {
    let seen = bus.find_schedule(name).await?.and_then(|seen| seen.schedule.ok());
    match seen.map(|schedule| schedule.target) {
        Some(ensue::schedules::Target::Handler(handler)) if handler.as_str() != format!("{TASK_PREFIX}{name}") => {
            collections::know(bus, config, &handler).await
        }
        Some(ensue::schedules::Target::Handler(_) | ensue::schedules::Target::Topic(_)) | None => Ok(()),
    }
}

async fn run_now(args: RunArgs) -> anyhow::Result<Outcome> {
    let config = args.target.config();
    let target = args.target.open(Access::Write).await?;
    let answer = match &target {
        Target::Server(remote) => {
            remote.ask_json(Method::POST, &["v1", "schedules", &args.name, "run"], &Value::Null).await?
        }
        Target::Store(bus) => {
            let name = GroupName::parse("name", &args.name)?;
            know_collection(bus, config.as_deref(), &name).await?;
            as_json(&RunShape::from(&bus.run_schedule(&name).await?))?
        }
    };
    target.close().await;
    match args.output.json {
        true => output::json(&answer)?,
        false => output::line(told(&answer))?,
    }
    Ok(Outcome::Done)
}

async fn delete(args: DeleteArgs) -> anyhow::Result<Outcome> {
    let target = args.target.open(Access::Write).await?;
    let answer = match &target {
        Target::Server(remote) => {
            remote.ask_json(Method::DELETE, &["v1", "schedules", &args.name], &Value::Null).await?
        }
        Target::Store(bus) => {
            bus.delete_schedule(&GroupName::parse("name", &args.name)?).await?;
            as_json(&DeletedScheduleShape { name: &args.name, state: "deleted" })?
        }
    };
    target.close().await;
    match args.output.json {
        true => output::json(&answer)?,
        false => output::line(format_args!("deleted: {}", args.name))?,
    }
    Ok(Outcome::Done)
}
