//! Which jobs are there, and how are they called off and brought back?

use super::Outcome;
use super::emit::{self, EmitArgs};
use super::job_ask::{self as ask, JobFilter};
use super::output::{self, OutputArgs, shown};
use super::target::{Access, Target, TargetArgs};
use anyhow::bail;
use clap::{Args, Subcommand};
use ensue::jobs::{JobId, JobState, Steer};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use std::time::Duration;

/// How often is looked for new lines.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// `ensue job …`
#[derive(Debug, Subcommand)]
pub enum JobCommand {
    /// List jobs, in the order in which they were sent
    List(ListArgs),
    /// Show a job
    Show(ShowArgs),
    /// Show what a job said
    Logs(LogsArgs),
    /// Send a job to a handler (as `ensue emit`)
    Create(EmitArgs),
    /// Run a job now: one that waits for its time, or one that is dead
    Retry(SteerArgs),
    /// Let an object go on without a job that failed
    Skip(SteerArgs),
    /// Call a job off
    Cancel(SteerArgs),
}

/// `ensue job list`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue job list
  ensue job list --state dead                                # what waits for somebody
  ensue job list --state available,parked --handler mail     # mail and all below it
  ensue job list --object order:1 --json | jq -r '.jobs[].id'

A job that only a rule keeps from running is parked. held_by says what keeps a job from running;
`ensue explain job:ID` says more. With --json: the answer of GET /v1/jobs.")]
pub struct ListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Only jobs after this one
    #[arg(long, value_name = "ID", value_parser = job_id)]
    after: Option<JobId>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Which jobs are meant.
#[derive(Debug, Args)]
struct FilterArgs {
    /// In this state, or in one of several with commas between
    #[arg(long, value_name = "STATE", value_delimiter = ',', value_parser = state)]
    state: Vec<JobState>,
    /// Of this handler and those below it
    #[arg(long, value_name = "KEY")]
    handler: Option<String>,
    /// Of this object
    #[arg(long, value_name = "OBJECT")]
    object: Option<String>,
}

/// `ensue job show`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue job show 01a1e2e6-451a-783a-8000-000000000001
  ensue job show 01a1e2e6-451a-783a-8000-000000000001 --json | jq .result

With --json: the answer of GET /v1/jobs/ID. Exit code 3: the job does not exist (any more).")]
pub struct ShowArgs {
    /// Its id
    #[arg(value_parser = job_id)]
    id: JobId,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// `ensue job logs`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue job logs 01a1e2e6-451a-783a-8000-000000000001
  ensue job logs 01a1e2e6-451a-783a-8000-000000000001 --follow    # until the job is over

With --json: a line of JSON for each line, as GET /v1/jobs/ID/logs has them.")]
pub struct LogsArgs {
    /// Its id
    #[arg(value_parser = job_id)]
    id: JobId,
    /// Only lines after this one
    #[arg(long, value_name = "LINE", default_value_t = 0)]
    after: u64,
    /// Go on until the job is over
    #[arg(long, short)]
    follow: bool,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// `ensue job retry`, `skip` and `cancel`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue job retry 01a1e2e6-451a-783a-8000-000000000001
  ensue job cancel --state scheduled --handler mail --dry-run     # how many would it be?
  ensue job retry --state dead --handler mail

retry: one that waits for its time runs now; a dead one begins anew with all its attempts, next in
its object's order. skip: the object goes on without a job that failed. cancel: one that waits is
over at once, one that runs is told. With --json: the job as HTTP shows it, or for a filter
{\"matched\", \"refused\", \"dry_run\"}. Exit code 3: the job does not exist; 4: its state forbids it.")]
pub struct SteerArgs {
    /// Its id; without one, all that the filter finds
    #[arg(value_parser = job_id)]
    id: Option<JobId>,
    #[command(flatten)]
    filter: FilterArgs,
    /// Only say how many jobs the filter finds
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    target: TargetArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// For `clap`: the id of a job.
pub fn job_id(text: &str) -> Result<JobId, String> {
    JobId::parse(text)
        .ok_or_else(|| "write an id such as 01a1e2e6-451a-783a-8000-000000000001, as emit and job list show it".into())
}

/// For `clap`: a state.
fn state(text: &str) -> Result<JobState, String> {
    JobState::parse(text.trim())
        .ok_or_else(|| format!("the states are {}", JobState::ALL.map(JobState::as_str).join(", ")))
}

impl FilterArgs {
    fn check(&self) -> anyhow::Result<JobFilter> {
        JobFilter::new(self.state.clone(), self.handler.as_deref(), self.object.as_deref())
    }
}

/// Carries out `ensue job …`.
pub async fn run(command: JobCommand) -> anyhow::Result<Outcome> {
    match command {
        JobCommand::List(args) => list(args).await,
        JobCommand::Show(args) => show(args).await,
        JobCommand::Logs(args) => logs(args).await,
        JobCommand::Create(args) => emit::run(args).await,
        JobCommand::Retry(args) => steer(args, Steer::Retry).await,
        JobCommand::Skip(args) => steer(args, Steer::Skip).await,
        JobCommand::Cancel(args) => steer(args, Steer::Cancel).await,
    }
}

async fn list(args: ListArgs) -> anyhow::Result<Outcome> {
    let filter = args.filter.check()?;
    let list = async |target: &Target| ask::list(target, &filter, args.after, args.limit as usize).await;
    let page = args.target.ask(Access::Read, list).await?;
    if args.output.json {
        output::json(&page)?;
        return Ok(Outcome::Done);
    }
    let fields = ["id", "handler", "object", "state", "priority", "attempts", "enqueued_at", "held_by"];
    let mut rows = Vec::with_capacity(page.jobs.len());
    for job in &page.jobs {
        let job: Value = serde_json::from_str(job.get())?;
        rows.push(fields.map(|field| shown(&job[field])));
    }
    match rows.is_empty() {
        true => output::line("there is no such job")?,
        false => output::block(output::table(fields, rows))?,
    }
    if let Some(next) = page.next {
        output::note(format_args!("what follows: --after {next}"));
    }
    Ok(Outcome::Done)
}

async fn show(args: ShowArgs) -> anyhow::Result<Outcome> {
    let job = args.target.ask(Access::Read, async |target| ask::show(target, args.id).await).await?;
    tell(&job, args.output)?;
    Ok(Outcome::Done)
}

/// What is shown as it was written: a number in it may have more digits than this program counts with.
#[derive(Deserialize)]
struct AsWritten<'a> {
    #[serde(borrow)]
    payload: &'a RawValue,
    #[serde(borrow)]
    metadata: &'a RawValue,
    #[serde(borrow)]
    result: &'a RawValue,
}

fn tell(job: &str, how: OutputArgs) -> anyhow::Result<()> {
    if how.json {
        return output::json_text(job);
    }
    let (fields, written): (Value, AsWritten<'_>) = (serde_json::from_str(job)?, serde_json::from_str(job)?);
    let mut pairs: Vec<(&str, String)> = Vec::new();
    for name in ["id", "handler", "object", "state", "held_by"] {
        pairs.push((name, shown(&fields[name])));
    }
    for (name, text) in [("payload", written.payload), ("metadata", written.metadata), ("result", written.result)] {
        pairs.push((name, text.get().to_owned()));
    }
    let attempts = format!("{} of {}", shown(&fields["attempts"]), shown(&fields["attempts_max"]));
    pairs.extend([("priority", shown(&fields["priority"])), ("attempts", attempts)]);
    for name in ["unique_key", "not_before", "enqueued_at", "started_at", "locked_at", "finished_at", "worker"] {
        pairs.push((name, shown(&fields[name])));
    }
    if !fields["progress"].is_null() {
        pairs.push(("progress", super::task_ask::progress(&fields)));
    }
    if let Some(event) = fields["event"].as_object() {
        pairs.push(("event", format!("{} {}", shown(&event["seq"]), shown(&event["topic"]))));
    }
    for (name, flag) in [("redriven", "redriven"), ("cancel", "cancel_requested")] {
        if fields[flag] == true {
            pairs.push((name, "yes".into()));
        }
    }
    for error in output::list(&fields, "errors") {
        let [attempt, at, error] = ["attempt", "at", "error"].map(|field| shown(&error[field]));
        pairs.push(("error", format!("attempt {attempt} at {at}: {error}")));
    }
    output::block(output::fields(&pairs))
}

async fn logs(args: LogsArgs) -> anyhow::Result<Outcome> {
    let target = args.target.open(Access::Read).await?;
    let mut after = args.after;
    loop {
        // The job first: what it said before its end is there when the end is seen.
        let is_over = !args.follow || ask::is_over(&target, args.id).await?;
        let mut any = false;
        for line in ask::lines(&target, args.id, after).await? {
            after = line["line"].as_u64().unwrap_or(after);
            any = true;
            if args.output.json {
                output::json(&line)?;
                continue;
            }
            let [attempt, time, level] = ["attempt", "time", "level"].map(|field| shown(&line[field]));
            let message = line["message"].as_str().unwrap_or_default();
            output::line(format_args!("{attempt}  {time}  {level:5}  {message}"))?;
        }
        if any {
            continue;
        }
        if is_over {
            break;
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => {}
            () = output::nobody_reads() => break,
        }
    }
    target.close().await;
    Ok(Outcome::Done)
}

async fn steer(args: SteerArgs, steer: Steer) -> anyhow::Result<Outcome> {
    let filter = args.filter.check()?;
    match args.id {
        Some(_) if !filter.is_empty() || args.dry_run => {
            bail!("a job and a filter name different things: give the id, or --state, --handler and --object")
        }
        None if filter.is_empty() => {
            bail!("name the job by its id, or many by --state, --handler or --object")
        }
        Some(_) | None => {}
    }
    let Some(id) = args.id else {
        let all = async |target: &Target| ask::steer_all(target, &filter, steer, args.dry_run).await;
        let answer = args.target.ask(Access::Write, all).await?;
        return output::answer(&answer, args.output, || {
            let would = if args.dry_run { "would be " } else { "" };
            let [matched, refused] = ["matched", "refused"].map(|field| answer[field].as_u64().unwrap_or(0));
            let what = match steer {
                Steer::Cancel => "cancelled",
                Steer::Retry => "retried",
                Steer::Skip => "skipped",
            };
            format!("{} {would}{what}, {refused} refused", output::counted(matched, "job"))
        });
    };
    let job = args.target.ask(Access::Write, async |target| ask::steer(target, id, steer).await).await?;
    if args.output.json {
        output::json_text(&job)?;
        return Ok(Outcome::Done);
    }
    let job: Value = serde_json::from_str(&job)?;
    let told = if job["cancel_requested"] == true { "; its worker is told to stop" } else { "" };
    output::line(format_args!("job {id} is {}{told}", shown(&job["state"])))?;
    Ok(Outcome::Done)
}
