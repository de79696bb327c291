//! Which handlers are there, and what became of an event for each?

use super::Outcome;
use super::args::{EventRef, event_ref};
use super::handler_define::{self, DeleteArgs, SetArgs, ShowArgs};
use super::output::{self, OutputArgs, as_json, list, shown};
use super::pages::{self, LimitArgs};
use super::target::{Access, Target, TargetArgs};
use crate::http::deliveries::{DeliveriesShape, LogsShape};
use crate::http::handlers::HandlersShape;
use anyhow::bail;
use clap::{Args, Subcommand};
use ensue::{Error, Found, GroupName};
use serde_json::Value;

/// How many lines of a delivery are shown at once.
const LOGS_LIMIT: usize = 1_000;

/// `ensue handler …`
#[derive(Debug, Subcommand)]
pub enum HandlerCommand {
    /// List the handlers, and how far each has come
    List(ListArgs),
    /// Show a handler: how it is run, and how far it has come
    Show(ShowArgs),
    /// Define a handler whose events workers elsewhere claim as jobs, or change one
    Set(SetArgs),
    /// Delete a handler that was defined, with its place in the log
    Delete(DeleteArgs),
}

/// `ensue handler list`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue handler list
  ensue handler list --json | jq '.handlers[] | select(.held > 0)'
  ensue handler list --store sqlite:ensue.db                 # also while the server is stopped

lag: how many events of the log it has not come to. held: how many objects wait for somebody, see
`ensue object list --held`. orphaned: nobody runs it. rules: who paused or blocked it, and why.
With --json: the answer of GET /v1/handlers,
all of its pages in one.")]
pub struct ListArgs {
    #[command(flatten)]
    limit: LimitArgs,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// `ensue event deliveries`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue event deliveries 12
  ensue event deliveries 12 --logs record.published.index    # what that handler said about it
  ensue event deliveries 12 --json | jq '.deliveries[] | select(.state != \"done\")'

With --json: the answer of GET /v1/events/12/deliveries, or of its logs.
Exit code 3: the event or handler does not exist (any more).")]
pub struct DeliveriesArgs {
    /// Its seq or its id
    #[arg(value_name = "SEQ|ID", value_parser = event_ref)]
    event: EventRef,
    /// Show what this handler said about it instead
    #[arg(long, value_name = "KEY")]
    logs: Option<String>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Carries out `ensue handler …`.
pub async fn run(command: HandlerCommand) -> anyhow::Result<Outcome> {
    match command {
        HandlerCommand::List(args) => list_all(args).await,
        HandlerCommand::Show(args) => handler_define::show(args).await,
        HandlerCommand::Set(args) => handler_define::set(args).await,
        HandlerCommand::Delete(args) => handler_define::delete(args).await,
    }
}

async fn list_all(args: ListArgs) -> anyhow::Result<Outcome> {
    let target = args.target.open(Access::Read).await?;
    let page = async |after: Option<&str>, limit: usize| match &target {
        Target::Server(remote) => remote.get_json(&["v1", "handlers"], &pages::query(after, limit)).await,
        Target::Store(bus) => {
            let after = after.map(|after| GroupName::parse("after", after)).transpose()?;
            as_json(&HandlersShape::page(&bus.handler_reports_after(after.as_ref(), limit + 1).await?, limit))
        }
    };
    let answer = args.limit.list("handlers", page).await?;
    target.close().await;
    if args.output.json {
        output::json(&answer)?;
        return Ok(Outcome::Done);
    }
    let rows = list(&answer, "handlers").iter().map(|handler| {
        let status = match (handler["orphaned"].as_bool(), handler["here"].as_bool()) {
            (Some(true), _) => "orphaned",
            (_, Some(true)) => "here",
            _ => "elsewhere",
        };
        ["key", "on", "where", "mode", "cursor", "lag", "held"]
            .map(|field| shown(&handler[field]))
            .into_iter()
            .chain([status.to_string(), rules_in_words(handler)])
            .collect::<Vec<_>>()
            .try_into()
            .unwrap_or_default()
    });
    let rows: Vec<[String; 9]> = rows.collect();
    match rows.is_empty() {
        true => output::line("no handler: write one into the config file (`ensue config check --help` shows how)")?,
        false => {
            let header = ["key", "on", "where", "mode", "cursor", "lag", "held", "runs", "rules"];
            output::block(output::table(header, rows))?;
        }
    }
    Ok(Outcome::Done)
}

/// The rules that hold a handler, in words: `paused: the relay is down`. A rule on a parent is named.
pub(super) fn rules_in_words(handler: &Value) -> String {
    let own = format!("handler:{}", handler["key"].as_str().unwrap_or_default());
    let words = list(handler, "rules").iter().map(|rule| {
        let verb = if rule["kind"] == "pause" { "paused" } else { "blocked" };
        let scope = rule["scope"].as_str().filter(|scope| *scope != own);
        let on = scope.map(|scope| format!(" by the rule on {scope}")).unwrap_or_default();
        let because = rule["reason"].as_str().map(|reason| format!(": {reason}")).unwrap_or_default();
        format!("{verb}{on}{because}")
    });
    let words: Vec<String> = words.collect();
    shown(&if words.is_empty() { Value::Null } else { words.join("; ").into() })
}

/// Carries out `ensue event deliveries`.
pub async fn deliveries(args: DeliveriesArgs) -> anyhow::Result<Outcome> {
    let target = args.target.open(Access::Read).await?;
    let answer = match &args.logs {
        Some(handler) => logs_of(&target, args.event, handler).await?,
        None => deliveries_of(&target, args.event).await?,
    };
    target.close().await;
    if args.output.json {
        output::json(&answer)?;
        return Ok(Outcome::Done);
    }
    if args.logs.is_some() {
        let lines = list(&answer, "logs");
        if lines.is_empty() {
            output::line("nothing was kept: lines are kept of attempts that fail, or always with `logs: always`")?;
        }
        for line in lines {
            let [attempt, time, level] = ["attempt", "time", "level"].map(|field| shown(&line[field]));
            let message = line["message"].as_str().unwrap_or_default();
            output::line(format_args!("{attempt}  {time}  {level:5}  {message}"))?;
        }
        return Ok(Outcome::Done);
    }
    let rows: Vec<[String; 6]> = list(&answer, "deliveries")
        .iter()
        .map(|delivery| {
            let remark = [&delivery["error"], &delivery["note"]].map(shown).into_iter().find(|text| text != "-");
            let [handler, state, attempts, when, retry_at] =
                ["handler", "state", "attempts", "when", "retry_at"].map(|field| shown(&delivery[field]));
            [handler, state, attempts, when, retry_at, remark.unwrap_or_else(|| "-".into())]
        })
        .collect();
    match rows.is_empty() {
        true => output::line("no handler is known here, or the event waits to enter the log")?,
        false => output::block(output::table(["handler", "state", "attempts", "when", "retry_at", "error"], rows))?,
    }
    Ok(Outcome::Done)
}

async fn deliveries_of(target: &Target, event: EventRef) -> anyhow::Result<Value> {
    let bus = match target {
        Target::Server(remote) => {
            return remote.get_json(&["v1", "events", &event.to_text(), "deliveries"], &[]).await;
        }
        Target::Store(bus) => bus,
    };
    let reports = match target.event(event).await? {
        Found::Logged(event) => bus.deliveries(event.seq).await?.unwrap_or_default(),
        Found::Pending(_) => Vec::new(),
    };
    as_json(&DeliveriesShape::from(&*reports))
}

async fn logs_of(target: &Target, event: EventRef, handler: &str) -> anyhow::Result<Value> {
    let bus = match target {
        Target::Server(remote) => {
            let path = ["v1", "events", &event.to_text(), "deliveries", handler, "logs"];
            return remote.get_json(&path, &[("limit", LOGS_LIMIT.to_string())]).await;
        }
        Target::Store(bus) => bus,
    };
    let handler = GroupName::parse("logs", handler)?;
    if bus.store().group(&handler).await?.is_none() {
        bail!(Error::NotFound(format!("there is no handler `{handler}`: `ensue handler list` shows those there are")));
    }
    let lines = match target.event(event).await? {
        Found::Logged(event) => bus.store().lines(&handler, event.seq, 0, LOGS_LIMIT).await?,
        Found::Pending(_) => Vec::new(),
    };
    as_json(&LogsShape::new(&lines, 0, LOGS_LIMIT))
}
