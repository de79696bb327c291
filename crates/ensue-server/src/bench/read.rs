//! Does reading stay as cheap when the log grows?
//!
//! A short and a long log, read at their ends in turn: a page must cost the same. Then the long one is read whole, page
//! by page, and the memory of the process watched.

use super::process::resident_bytes;
use super::report::{Report, Target};
use super::rounds::median;
use super::sample::{Objects, Sample};
use crate::cli::output::OutputArgs;
use anyhow::Context;
use clap::Args;
use ensue::{Ensue, Filter, Options, Read, Seq};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// How many events the short log has.
const SHORT: u64 = 10_000;
/// How many events are read at the end.
const PAGE: usize = 1_000;
/// How many times each end is read.
const ROUNDS: usize = 200;
/// How many events are written in one batch while filling.
const FILL_BATCH: usize = 1_000;
/// How many batches are under way at once while filling.
const FILL_CALLERS: usize = 4;

/// `ensue bench read`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue bench read                                           # 10 million events: about 4 GB of disk for a while
  ensue bench read --events 1000000 --dir /mnt/data")]
pub struct ReadArgs {
    /// How many events the long log has
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(SHORT..))]
    events: u64,
    /// The folder whose file system is measured
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    dir: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
}

/// Measures and prints.
pub async fn run(args: ReadArgs) -> anyhow::Result<()> {
    let place = tempfile::Builder::new()
        .prefix("ensue-bench-")
        .tempdir_in(&args.dir)
        .with_context(|| format!("cannot make a folder in {}: choose another with --dir", args.dir.display()))?;
    let short = filled(&place.path().join("short.db"), SHORT).await?;
    let long = filled(&place.path().join("long.db"), args.events).await?;

    let (mut short_ms, mut long_ms) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let times = [read_end(&short).await?, read_end(&long).await?];
        // The first round warms up and is not counted.
        if round > 0 {
            short_ms.push(times[0]);
            long_ms.push(times[1]);
        }
    }
    let before = resident_bytes(std::process::id())?;
    let began = Instant::now();
    let most = read_whole(&long, args.events).await?;
    let took = began.elapsed();
    short.close().await;
    long.close().await;

    let mut report = Report::new(format!(
        "Reading SQLite logs of {} and {} events, 200-byte payloads, medians of {ROUNDS} reads in turn",
        crate::cli::output::grouped(SHORT),
        crate::cli::output::grouped(args.events),
    ));
    let (raw, ours) = (median(&short_ms), median(&long_ms));
    report.raw(format!("{PAGE} events at the end of the short log"), raw, "ms");
    report.against(format!("{PAGE} events at the end of the long log"), ours, "ms", raw, Some(Target::AtMost(1.5)));
    report.raw("reading the long log whole", args.events as f64 / took.as_secs_f64(), "events/s");
    let grown = most.saturating_sub(before) as f64 / 1e6;
    report.absolute("memory that reading it whole added", grown, "MB", Target::AtMost(40.0));
    report.print(args.output.json)
}

/// A log with so many events, opened to look only.
async fn filled(path: &Path, events: u64) -> anyhow::Result<Ensue> {
    let path = path.to_str().context("the folder's name is not text: choose another with --dir")?;
    let bus = Ensue::open(path).await?;
    let style = ProgressStyle::with_template("filling {wide_bar} {human_pos}/{human_len}, {per_sec}, {eta} left")?;
    let bar = ProgressBar::new(events).with_style(style);
    let sample = Sample::new(Objects::Half);
    let mut left = events;
    while left > 0 {
        let mut batches = Vec::new();
        for _ in 0..FILL_CALLERS {
            let count = left.min(FILL_BATCH as u64);
            if count > 0 {
                batches.push(bus.publish_all(sample.events(count as usize)));
                left -= count;
            }
        }
        for stored in futures_util::future::join_all(batches).await {
            bar.inc(stored?.len() as u64);
        }
    }
    bar.finish_and_clear();
    bus.close().await;
    Ok(Ensue::open_with(path, Options { read_only: true, ..Options::default() }).await?)
}

/// How many milliseconds the last page takes.
async fn read_end(bus: &Ensue) -> anyhow::Result<f64> {
    let after = bus.store().bounds().await?.last - PAGE as Seq;
    let began = Instant::now();
    let page = bus.store().read(Read { after, limit: PAGE, filter: Filter::default() }).await?;
    anyhow::ensure!(page.events.len() == PAGE, "the log's end has {} events instead of {PAGE}", page.events.len());
    Ok(began.elapsed().as_secs_f64() * 1_000.0)
}

/// Reads everything and answers with the most memory that the process held meanwhile, in bytes.
async fn read_whole(bus: &Ensue, events: u64) -> anyhow::Result<u64> {
    let process = std::process::id();
    let (mut after, mut seen, mut most, mut pages) = (0, 0, 0, 0u64);
    loop {
        let page = bus.store().read(Read { after, limit: PAGE, filter: Filter::default() }).await?;
        if page.next == after {
            break;
        }
        seen += page.events.len() as u64;
        after = page.next;
        pages += 1;
        if pages.is_multiple_of(64) {
            most = most.max(resident_bytes(process)?);
        }
    }
    anyhow::ensure!(seen == events, "the log has {seen} events instead of {events}");
    Ok(most)
}
