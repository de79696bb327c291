//! What does a snapshot that somebody holds open cost jobs on Postgres?
//!
//! As long as it is open no row version and no index entry that it might see is removed: a queue grows over its own past.
//! Jobs come at a steady rate, first without such a snapshot and then beside one.

use super::args::{Engine, EngineArgs};
use super::database::{connect, drop_schemas, new_schema};
use super::jobs::{UNIT, Work};
use super::report::{Report, Target};
use crate::cli::output::OutputArgs;
use anyhow::{Context, bail};
use clap::Args;
use ensue::Address;
use hdrhistogram::Histogram;
use std::time::{Duration, Instant};
use tokio::time::MissedTickBehavior;

/// How long jobs come before anything is measured.
const WARM_UP: Duration = Duration::from_secs(5);
/// How long is measured without a snapshot, at most.
const WITHOUT_MAX: Duration = Duration::from_secs(60);

/// `ensue bench snapshot`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue bench snapshot --store postgres://me@localhost/test  # for five minutes
  ensue bench snapshot --store postgres://me@localhost/test --seconds 30")]
pub struct SnapshotArgs {
    /// How many jobs come each second
    #[arg(long, value_name = "N", default_value_t = 800, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    per_second: u32,
    /// How long the snapshot is held; without it is measured for as long, and at most a minute
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = clap::value_parser!(u64).range(5..=3_600))]
    seconds: u64,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Measures in a schema of its own, which is dropped afterwards, and prints.
pub async fn run(args: SnapshotArgs) -> anyhow::Result<()> {
    let Engine::Postgres(address) = args.engine.engine()? else {
        bail!("only Postgres keeps old rows for a snapshot: give it with --store postgres://USER@HOST/DATABASE");
    };
    let schema = new_schema();
    let beside = connect(&address.without_schema()).await?;
    let report = measure(&address.with_schema(&schema), &address, &args).await;
    drop_schemas(&beside, &[schema]).await?;
    report?.print(args.output.json)
}

/// What came of a stretch of time.
struct Stretch {
    per_second: f64,
    starts: Histogram<u64>,
}

async fn measure(url: &str, address: &Address, args: &SnapshotArgs) -> anyhow::Result<Report> {
    let work = Work::open(url).await?;
    let length = Duration::from_secs(args.seconds);
    steadily(&work, args.per_second, WARM_UP).await?;
    let without = steadily(&work, args.per_second, length.min(WITHOUT_MAX)).await?;
    let holder = connect(&address.without_schema()).await?;
    holder
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_snapshot()")
        .await
        .context("cannot hold a snapshot")?;
    let beside = steadily(&work, args.per_second, length).await?;
    holder.batch_execute("ROLLBACK").await?;
    work.close().await?;

    let mut report = Report::new(format!(
        "Jobs on Postgres while a snapshot is held for {} s: {} a second",
        args.seconds, args.per_second,
    ));
    report.raw("run without it", without.per_second, UNIT);
    report.against("run beside it", beside.per_second, UNIT, without.per_second, Some(Target::AtLeast(0.99)));
    let p95 = |stretch: &Stretch| stretch.starts.value_at_quantile(0.95) as f64 / 1e6;
    report.raw("from sending to start without it, p95", p95(&without), "ms");
    report.against(
        "from sending to start beside it, p95",
        p95(&beside),
        "ms",
        p95(&without),
        Some(Target::AtMost(2.0)),
    );
    Ok(report)
}

/// Sends so many each second for so long, and waits until they are run.
async fn steadily(work: &Work, per_second: u32, length: Duration) -> anyhow::Result<Stretch> {
    work.take_starts()?;
    let (began, before) = (Instant::now(), work.done());
    let mut every = tokio::time::interval(Duration::from_secs(1) / per_second);
    every.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut sending = futures_util::stream::FuturesUnordered::new();
    while began.elapsed() < length {
        tokio::select! {
            _ = every.tick() => sending.push(work.send_timed()),
            Some(sent) = futures_util::StreamExt::next(&mut sending) => sent?,
        }
    }
    while let Some(sent) = futures_util::StreamExt::next(&mut sending).await {
        sent?;
    }
    work.finish().await?;
    let ran = (work.done() - before) as f64;
    Ok(Stretch { per_second: ran / began.elapsed().as_secs_f64(), starts: work.take_starts()? })
}
