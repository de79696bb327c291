//! How late are schedules that are all due at once, and what do they cost while none is?
//!
//! Half of them publish an event, half send a job. All are due with the same second; how late each was is read from what the store
//! kept of its run. Before that the process is measured while nothing is due.

use super::args::{DirArgs, Engine, EngineArgs};
use super::process::cpu_time_of;
use super::report::{Report, Target};
use super::{database, process};
use crate::cli::output::OutputArgs;
use anyhow::{Context, bail};
use clap::Args;
use ensue::schedules::{Schedule, Target as Follows, Timing};
use ensue::{Ensue, GroupName, Timestamp, Topic};
use futures_util::future::try_join_all;
use jiff::SignedDuration;
use std::time::Duration;

/// How many are made, and looked at, at once.
const AT_ONCE: usize = 64;
/// How long the process is measured while nothing is due.
const IDLE: Duration = Duration::from_secs(10);
/// How long is waited for the last one.
const PATIENCE: Duration = Duration::from_secs(120);

/// `ensue bench schedules`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue bench schedules
  ensue bench schedules --count 1000
  ensue bench schedules --store postgres://me@localhost/test

All fire within 2 s of their time, and a process with 10,000 schedules takes at most 1 % of a
processor while none is due: those are the targets.")]
pub struct SchedulesArgs {
    /// How many schedules
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(2..=100_000))]
    count: u64,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    dir: DirArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Carries it out.
pub async fn run(args: SchedulesArgs) -> anyhow::Result<()> {
    let folder = args.dir.new_folder()?;
    let (store, schema) = match args.engine.engine()? {
        Engine::Sqlite => {
            let place = folder.path().join("schedules.db");
            (place.to_str().context("the folder's name is not text: choose another with --dir")?.to_owned(), None)
        }
        Engine::Postgres(address) => {
            let schema = database::new_schema();
            (address.with_schema(&schema), Some((address.without_schema(), schema)))
        }
    };
    let bus = Ensue::open(&store).await?;
    let measured = measure(&bus, args.count).await;
    bus.close().await;
    if let Some((url, schema)) = schema {
        database::drop_schemas(&database::connect(&url).await?, &[schema]).await?;
    }
    measured?.print(args.output.json)
}

fn name(n: u64) -> GroupName {
    GroupName::stored(&format!("bench.s{n}"))
}

/// The expression of one second of a year.
fn at(time: Timestamp) -> String {
    time.strftime("%-S %-M %-H %-d %-m *").to_string()
}

async fn make(bus: &Ensue, count: u64, cron: &str) -> anyhow::Result<()> {
    let timing = Timing::cron(cron, None)?;
    for first in (0..count).step_by(AT_ONCE) {
        let one = |n: u64| {
            let follows = match n % 2 {
                0 => Follows::Topic(Topic::stored("bench.tick")),
                _ => Follows::Handler(GroupName::stored("bench.nobody")),
            };
            bus.schedule(Schedule::new(name(n), timing.clone(), follows))
        };
        try_join_all((first..count.min(first + AT_ONCE as u64)).map(one)).await?;
    }
    Ok(())
}

async fn measure(bus: &Ensue, count: u64) -> anyhow::Result<Report> {
    let engine = bus.store().engine();
    // First in half a year, so that nothing is due while the others are made.
    let now = bus.store().now().await?;
    make(bus, count, &at(now + SignedDuration::from_hours(24 * 180))).await?;
    let running = bus.start().await?;
    let before = cpu_time_of(std::process::id())?;
    tokio::time::sleep(IDLE).await;
    let idle = (cpu_time_of(std::process::id())? - before).as_secs_f64() / IDLE.as_secs_f64();
    // Twice as long as it took to make them, at least.
    let began = std::time::Instant::now();
    let margin = SignedDuration::from_secs(5 + (count / 100) as i64);
    let due = bus.store().now().await? + margin;
    let due = Timestamp::from_second(due.as_second())?;
    make(bus, count, &at(due)).await?;
    if bus.store().now().await? >= due {
        bail!("{count} schedules took {:?} to make, longer than expected: measure fewer with --count", began.elapsed());
    }
    let mut late = lateness(bus, count, due).await?;
    running.shutdown(Duration::from_secs(30)).await?;
    late.sort();
    let millis = |index: usize| late[index].as_secs_f64() * 1_000.0;
    let mut report =
        Report::new(format!("{count} schedules due in the same second ({engine}), half events, half jobs"));
    report.raw("the median fires after", millis(late.len() / 2), "ms");
    report.absolute("the last fires after", millis(late.len() - 1), "ms", Target::AtMost(2_000.0));
    report.absolute("processor time while none is due", idle * 100.0, "%", Target::AtMost(1.0));
    report.raw("memory", process::resident_bytes(std::process::id())? as f64 / 1e6, "MB");
    Ok(report)
}

/// How late each was.
async fn lateness(bus: &Ensue, count: u64, due: Timestamp) -> anyhow::Result<Vec<SignedDuration>> {
    let began = std::time::Instant::now();
    let wait = Duration::try_from(due.duration_since(bus.store().now().await?)).unwrap_or_default();
    tokio::time::sleep(wait + Duration::from_secs(3)).await;
    while bus.store().next_schedule().await?.is_some_and(|next| next <= due) {
        if began.elapsed() > wait + PATIENCE {
            bail!("some did not fire within {} s", PATIENCE.as_secs());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let mut late = Vec::with_capacity(count as usize);
    for n in 0..count {
        let runs = bus.schedule_runs(&name(n), None, 2).await?;
        match &runs[..] {
            [run] if run.occurrence == due => late.push(run.at.duration_since(due)),
            other => bail!("`{}` fired {} times", name(n), other.len()),
        }
    }
    Ok(late)
}
