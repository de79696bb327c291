//! How is a collection brought up to date from the command line, and what became of its tasks?

use super::args;
use super::output::{self, OutputArgs, shown};
use super::target::{Access, Target, TargetArgs};
use super::task_ask::{self as ask, TaskFilter};
use super::{Outcome, job_ask};
use anyhow::bail;
use clap::{Args, Subcommand};
use ensue::Timestamp;
use ensue::tasks::{TaskStatus, job_of_task};
use serde_json::Value;
use std::time::Duration;

/// How often is looked for new lines.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// `ensue task …`
#[derive(Debug, Subcommand)]
pub enum TaskCommand {
    /// Bring a collection up to date now, and follow what its task says until it ends
    Run(RunArgs),
    /// List the tasks of a source, by the time at which they were made
    List(ListArgs),
    /// Show a task
    Show(ShowArgs),
    /// Show what a task said
    Logs(LogsArgs),
    /// Call a task off
    Cancel(CancelArgs),
}

/// `ensue task run`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue task run github issues
  ensue task run github issues --detach        # prints the task's id, and does not wait

Needs a server: the config file that it was started with says what runs. If a task of the collection
waits or runs already, that one is followed. Stopping this command does not stop the task.
With --json: a line of JSON for each line, and the task at the end.
Exit code 0: it succeeded (with --detach: it was made, or is there); 1: it failed or was canceled.")]
pub struct RunArgs {
    /// The source
    source: String,
    /// The collection of it
    collection: String,
    /// Higher runs first [default: 1000 above the collection's, before those of schedules]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    priority: Option<u64>,
    /// Do not wait for its end
    #[arg(long, short)]
    detach: bool,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// `ensue task list`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue task list github
  ensue task list github --collection issues --status FAILED
  ensue task list github --start 2026-11-16T00:00:00Z --end 2026-11-16T23:59:59Z --json

With --json: the answer of GET /tasks.")]
pub struct ListArgs {
    /// The source
    source: String,
    /// Only of this collection
    #[arg(long, value_name = "NAME")]
    collection: Option<String>,
    /// Only in this status: SCHEDULED, RUNNING, FAILED, SUCCESS or CANCELED
    #[arg(long, value_parser = status)]
    status: Option<TaskStatus>,
    /// Made at this time or later
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    start: Option<Timestamp>,
    /// Made at this time or earlier
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    end: Option<Timestamp>,
    /// Only tasks after this one
    #[arg(long, value_name = "ID")]
    after: Option<String>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    limit: u32,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// `ensue task show`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue task show github_issues_01a1e2e6-451a-783a-8000-000000000001
  ensue task show github_issues_01a1e2e6-451a-783a-8000-000000000001 --json | jq -r .status

With --json: the answer of GET /tasks/ID. Exit code 3: the task does not exist (any more).")]
pub struct ShowArgs {
    /// Its id
    id: String,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// `ensue task logs`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue task logs github_issues_01a1e2e6-451a-783a-8000-000000000001
  ensue task logs github_issues_01a1e2e6-451a-783a-8000-000000000001 --follow    # until it ends

With --json: a line of JSON for each line, as GET /tasks/ID/logs has them.")]
pub struct LogsArgs {
    /// Its id
    id: String,
    /// Go on until the task is over
    #[arg(long, short)]
    follow: bool,
    /// Only lines of this time or later
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    start: Option<Timestamp>,
    /// Only lines of this time or earlier
    #[arg(long, value_name = "TIME", value_parser = args::time)]
    end: Option<Timestamp>,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// `ensue task cancel`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue task cancel github_issues_01a1e2e6-451a-783a-8000-000000000001

One that waits is over at once. The program of one that runs is asked to end (SIGTERM) and, after
five seconds, ended, with all that it has started. With --json: the task as it is then.
Exit code 3: the task does not exist; 4: it is over already.")]
pub struct CancelArgs {
    /// Its id
    id: String,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// For `clap`: a status.
fn status(text: &str) -> Result<TaskStatus, String> {
    TaskStatus::parse(text)
        .ok_or_else(|| format!("the statuses are {}", TaskStatus::ALL.map(TaskStatus::as_str).join(", ")))
}

/// Carries out `ensue task …`.
pub async fn run(command: TaskCommand) -> anyhow::Result<Outcome> {
    match command {
        TaskCommand::Run(args) => run_one(args).await,
        TaskCommand::List(args) => list(args).await,
        TaskCommand::Show(args) => show(args).await,
        TaskCommand::Logs(args) => logs(args).await,
        TaskCommand::Cancel(args) => cancel(args).await,
    }
}

async fn run_one(args: RunArgs) -> anyhow::Result<Outcome> {
    if args.target.opens_store() {
        bail!("a task is run by a server, whose config file says what runs: leave --store out, or use --url");
    }
    let flags = args.target.flags();
    let target = args.target.open(Access::Read).await?;
    let (started, is_new) = ask::start(&target, &args.source, &args.collection, args.priority).await?;
    let id = shown(&started["task_id"]);
    if args.detach {
        match args.output.json {
            true => output::json(&started)?,
            false => output::line(&id)?,
        }
        return Ok(Outcome::Done);
    }
    if !args.output.json {
        let already = if is_new { "" } else { " waits or runs already: this is what it says" };
        output::note(format_args!("task {id}{already} (`ensue task cancel {id}{flags}` calls it off)"));
    }
    let shows = Shows { start: None, end: None, json: args.output.json, progress: !args.output.json };
    if !follow(&target, &id, true, shows).await? {
        return Ok(Outcome::Done);
    }
    let task = ask::show(&target, &id).await?;
    let status = shown(&task["status"]);
    match args.output.json {
        true => output::json(&task)?,
        false => output::note(format_args!("task {id} is {status}")),
    }
    match TaskStatus::parse(&status) {
        Some(TaskStatus::Success) => Ok(Outcome::Done),
        Some(TaskStatus::Scheduled | TaskStatus::Running | TaskStatus::Failed | TaskStatus::Canceled) | None => {
            Ok(Outcome::ProblemsFound)
        }
    }
}

/// What is shown of what a task says.
#[derive(Clone, Copy)]
struct Shows {
    start: Option<Timestamp>,
    end: Option<Timestamp>,
    json: bool,
    progress: bool,
}

impl Shows {
    fn line(&self, line: &Value) -> anyhow::Result<()> {
        let at: Option<Timestamp> = line["time"].as_str().and_then(|time| time.parse().ok());
        let is_meant = |at| self.start.is_none_or(|start| start <= at) && self.end.is_none_or(|end| at <= end);
        if !at.is_none_or(is_meant) {
            return Ok(());
        }
        let line = ask::task_line(line);
        if self.json {
            return output::json(&line);
        }
        let [time, level] = ["time", "level"].map(|field| shown(&line[field]));
        let message = line["message"].as_str().unwrap_or_default();
        output::line(format_args!("{time}  {level:5}  {message}"))
    }
}

/// Shows what a task says, until it has ended if that is wanted; false if nobody reads it any more.
async fn follow(target: &Target, id: &str, to_its_end: bool, shows: Shows) -> anyhow::Result<bool> {
    let mut after = 0;
    let mut told = String::new();
    loop {
        // The task first: what it said before its end is there when the end is seen.
        let task = ask::show(target, id).await?;
        let status = TaskStatus::parse(&shown(&task["status"]));
        let is_over = !to_its_end || status.is_none_or(TaskStatus::is_final);
        let progress = ask::progress(&task);
        if shows.progress && !progress.is_empty() && progress != told {
            output::note(format_args!("  {progress}"));
            told = progress;
        }
        let Some(job) = job_of_task(id) else { return Ok(true) };
        let mut any = false;
        for line in job_ask::lines(target, job, after).await? {
            after = line["line"].as_u64().unwrap_or(after);
            any = true;
            shows.line(&line)?;
        }
        if any {
            continue;
        }
        if is_over {
            return Ok(true);
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = output::nobody_reads() => return Ok(false),
        }
    }
}

async fn list(args: ListArgs) -> anyhow::Result<Outcome> {
    let filter = TaskFilter {
        source: args.source,
        collection: args.collection,
        status: args.status,
        start: args.start.unwrap_or(Timestamp::UNIX_EPOCH),
        end: args.end.unwrap_or(ask::FAR),
        after: args.after,
        limit: args.limit as usize,
    };
    let answer = args.target.ask(Access::Read, async |target| ask::list(target, &filter).await).await?;
    if args.output.json {
        output::json(&answer)?;
        return Ok(Outcome::Done);
    }
    let fields = ["id", "status", "priority", "created_at", "started_at", "finished_at"];
    let rows: Vec<[String; 7]> = output::list(&answer, "tasks")
        .iter()
        .map(|task| {
            let [id, status, priority, created, started, finished] = fields.map(|field| shown(&task[field]));
            [id, status, priority, created, started, finished, ask::progress(task)]
        })
        .collect();
    let heads = ["id", "status", "priority", "created_at", "started_at", "finished_at", "progress"];
    match rows.is_empty() {
        true => output::line("there is no such task")?,
        false => output::block(output::table(heads, rows))?,
    }
    if let Some(next) = answer["next"].as_str() {
        output::note(format_args!("what follows: --after {next}"));
    }
    Ok(Outcome::Done)
}

async fn show(args: ShowArgs) -> anyhow::Result<Outcome> {
    let task = args.target.ask(Access::Read, async |target| ask::show(target, &args.id).await).await?;
    output::answer(&task, args.output, || {
        let names = ["id", "source", "collection", "status", "priority", "created_at", "started_at", "finished_at"];
        let mut pairs: Vec<(&str, String)> = names.into_iter().map(|name| (name, shown(&task[name]))).collect();
        pairs.push(("attempts", format!("{} of {}", shown(&task["attempts"]), shown(&task["attempts_max"]))));
        for (name, text) in [("progress", ask::progress(&task)), ("error", shown(&task["error"]))] {
            if !task[name].is_null() {
                pairs.push((name, text));
            }
        }
        output::fields(&pairs)
    })
}

async fn logs(args: LogsArgs) -> anyhow::Result<Outcome> {
    let target = args.target.open(Access::Read).await?;
    let shows = Shows { start: args.start, end: args.end, json: args.output.json, progress: false };
    follow(&target, &args.id, args.follow, shows).await?;
    target.close().await;
    Ok(Outcome::Done)
}

async fn cancel(args: CancelArgs) -> anyhow::Result<Outcome> {
    let task = args.target.ask(Access::Write, async |target| ask::cancel(target, &args.id).await).await?;
    output::answer(&task, args.output, || match shown(&task["status"]).as_str() {
        "RUNNING" => format!("task {} is told to stop, and is ended if it does not", args.id),
        status => format!("task {} is {status}", args.id),
    })
}
