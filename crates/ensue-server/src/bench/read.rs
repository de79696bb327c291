//! Does reading stay as cheap when the log grows?
//!
//! A short and a long log, appended to and read at their ends in turn: it must cost the same. Then the long one is read whole, page
//! by page, and streamed whole by a server, and the memory of either process watched.

use super::args::{DirArgs, EngineArgs};
use super::callers::batches;
use super::logs::{Logs, fill};
use super::process::{Served, resident_bytes};
use super::report::{Report, Target};
use super::rounds::{Rates, median};
use super::sample::{Objects, Sample};
use crate::cli::output::{OutputArgs, grouped};
use anyhow::Context;
use clap::Args;
use ensue::{Ensue, Filter, Options, Read, Seq};
use std::sync::Arc;
use std::time::Instant;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// How many events the short log has.
const SHORT: u64 = 100_000;
/// How many events are published at once, and in how many slices of time on each log.
const BATCH: usize = 100;
const SLICES: usize = 12;
/// How many events are read at the end.
const PAGE: usize = 1_000;
/// How many times each end is read.
const ROUNDS: usize = 200;
/// How many events of a stream pass between two looks at the server's memory.
const SAMPLE_EVENTS: u64 = 10_000;
/// The most that reading the whole log may add to a process, in MB: a page and what reading needs besides.
const GROWTH_MB_MAX: f64 = 40.0;

/// `ensue bench read`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue bench read                                           # 10 million events, about 4 GB
  ensue bench read --events 1000000 --dir /mnt/data
  ensue bench read --store postgres://me@localhost/test      # in schemas of its own")]
pub struct ReadArgs {
    /// How many events the long log has
    #[arg(long, value_name = "N", default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(SHORT..))]
    events: u64,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    dir: DirArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Measures and prints. The logs are cleared away, whatever happens.
pub async fn run(args: ReadArgs) -> anyhow::Result<()> {
    let logs = Logs::new(args.engine.engine()?, args.dir.new_folder()?)?;
    let measured = measure(&logs, args.events).await;
    logs.clear().await?;
    measured?.print(args.output.json)
}

async fn measure(logs: &Logs, events: u64) -> anyhow::Result<Report> {
    fill(&logs.short, SHORT).await?;
    fill(&logs.long, events).await?;
    let [raw, ours] = publishing(logs).await?;
    let (short, long) = (looked_at(&logs.short).await?, looked_at(&logs.long).await?);
    let events = long.store().bounds().await?.last;
    let (mut short_ms, mut long_ms) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let times = [read_end(&short).await?, read_end(&long).await?];
        // The first round warms up and is not counted.
        if round > 0 {
            short_ms.push(times[0]);
            long_ms.push(times[1]);
        }
    }
    let mut report = Report::new(format!(
        "Reading {} logs of {} and {} events, 200-byte payloads, medians of {ROUNDS} reads in turn",
        logs.engine(),
        grouped(SHORT),
        grouped(events),
    ));
    report.raw_rates(format!("publishing to the short log, batches of {BATCH}"), &raw, "events/s");
    let name = format!("publishing to the long log, batches of {BATCH}");
    report.rates(name, &ours, "events/s", &raw, Some(Target::AtLeast(0.9)));
    let (raw, ours) = (median(&short_ms), median(&long_ms));
    report.raw(format!("{PAGE} events at the end of the short log"), raw, "ms");
    report.against(
        format!("{PAGE} events at the end of the long log"),
        ours,
        "ms",
        raw,
        Some(Target::AtMost(1.0 / 0.9)),
    );

    let before = resident_bytes(std::process::id())?;
    let began = Instant::now();
    let most = read_whole(&long, events).await?;
    report.raw("reading the long log whole", events as f64 / began.elapsed().as_secs_f64(), "events/s");
    report.absolute("memory that reading it whole added", megabytes(before, most), "MB", Target::AtMost(GROWTH_MB_MAX));
    short.close().await;
    long.close().await;

    let server = Served::start(&["serve", "--listen", "127.0.0.1:0", "--store", &logs.long], logs.folder()).await?;
    let before = server.resident_bytes()?;
    let began = Instant::now();
    let most = stream_whole(&server, events).await?;
    report.raw("streaming the long log whole over HTTP", events as f64 / began.elapsed().as_secs_f64(), "events/s");
    let grown = megabytes(before, most);
    report.absolute("memory that streaming it whole added to the server", grown, "MB", Target::AtMost(GROWTH_MB_MAX));
    server.end().await?;
    Ok(report)
}

/// Opens a log to look only.
async fn looked_at(log: &str) -> anyhow::Result<Ensue> {
    Ok(Ensue::open_with(log, Options { read_only: true, ..Options::default() }).await?)
}

/// How fast the short and the long log take events, in turn.
async fn publishing(logs: &Logs) -> anyhow::Result<[Rates; 2]> {
    let (short, long) = (Ensue::open(&logs.short).await?, Ensue::open(&logs.long).await?);
    let sample = Arc::new(Sample::new(Objects::Half));
    let mut rates: [Rates; 2] = Default::default();
    for round in 0..=SLICES {
        let results = [batches(&short, &sample, 1, BATCH).await?, batches(&long, &sample, 1, BATCH).await?];
        // The first round warms up and is not counted.
        for (rates, (count, took)) in rates.iter_mut().zip(results).filter(|_| round > 0) {
            rates.add(count, took);
        }
    }
    short.close().await;
    long.close().await;
    Ok(rates)
}

fn megabytes(from: u64, to: u64) -> f64 {
    to.saturating_sub(from) as f64 / 1e6
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

/// Follows the log from its beginning to its end and answers with the most memory that the server held meanwhile.
async fn stream_whole(server: &Served, events: u64) -> anyhow::Result<u64> {
    let mut connection = TcpStream::connect(server.address()).await.context("cannot connect to the server")?;
    // Version 1.0 gets a body without chunks.
    let request = format!("GET /v1/events/stream?after=0&limit={events} HTTP/1.0\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    let mut lines = BufReader::with_capacity(1 << 16, connection);
    let (mut line, mut at, mut most) = (Vec::new(), 0, 0);
    while lines.read_until(b'\n', &mut line).await? > 0 {
        if let Some(id) = line.strip_prefix(b"id: ") {
            let id: Seq = std::str::from_utf8(id)?.trim_end().parse().context("an id is no seq")?;
            anyhow::ensure!(id == at + 1, "event {id} came after event {at}");
            at = id;
            if at.is_multiple_of(SAMPLE_EVENTS) {
                most = most.max(server.resident_bytes()?);
            }
        }
        line.clear();
    }
    anyhow::ensure!(at == events, "the stream ended at event {at} of {events}");
    Ok(most.max(server.resident_bytes()?))
}
