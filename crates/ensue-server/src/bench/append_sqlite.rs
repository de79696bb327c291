//! How does the embedded engine compare to plain SQLite?
//!
//! Raw: one connection, WAL, `synchronous=FULL`, a plain table with our columns and no index beside its key. Ours:
//! from `publish` to its answer, checking, chaining and the index on objects included.

use super::args::DirArgs;
use super::callers::{batches, singles};
use super::report::{Report, Target};
use super::rounds::{self, Rates, SLICE};
use super::sample::{Objects, Sample, TOPIC};
use anyhow::Context;
use ensue::rusqlite::{self, Connection, params};
use ensue::{Ensue, Timestamp};
use hdrhistogram::Histogram;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How many events a batch has.
const BATCH: usize = 100;
/// How many callers publish one event at a time.
const CALLERS: usize = 256;
/// How long the system rests between two publishes of the idle case.
const REST: Duration = Duration::from_millis(2);

const UNIT: &str = "events/s";
const HALF_OF_RAW: Option<Target> = Some(Target::AtLeast(0.5));
const QUARTER_OF_RAW: Option<Target> = Some(Target::AtLeast(0.25));
const TWICE_RAW: Option<Target> = Some(Target::AtMost(2.0));

/// Measures in a new folder inside `dir`, which is removed afterwards.
pub async fn run(dir: &DirArgs, seconds: u64) -> anyhow::Result<Report> {
    let place = dir.new_folder()?;
    let sample = Arc::new(Sample::new(Objects::Half));
    let plain = Arc::new(Sample::new(Objects::None));
    let mut raw = Raw::open(&place.path().join("raw.db"))?;
    let path = place.path().join("ensue.db");
    let bus = Ensue::open(path.to_str().context("the folder's name is not text: choose another with --dir")?).await?;

    let mut rates: [Rates; 5] = Default::default();
    // The first round warms up and is not counted.
    for round in 0..=rounds::count(seconds, rates.len()) {
        let results = [
            tokio::task::block_in_place(|| raw.slice(&sample))?,
            batches(&bus, &sample, 1, BATCH).await?,
            batches(&bus, &sample, 4, BATCH).await?,
            singles(&bus, &sample, CALLERS).await?,
            batches(&bus, &plain, 1, BATCH).await?,
        ];
        for (rates, (count, took)) in rates.iter_mut().zip(results).filter(|_| round > 0) {
            rates.add(count, took);
        }
    }
    let idle = idle(&bus, &mut raw, &sample, Duration::from_secs((seconds / 4).max(1))).await?;
    bus.close().await;

    let mut report = Report::new(format!(
        "Appending on SQLite {} in {}: 200-byte payloads, half of the events on {} objects, {} rounds of {} ms each",
        rusqlite::version(),
        dir.path().display(),
        super::sample::OBJECTS,
        rounds::count(seconds, rates.len()),
        SLICE.as_millis(),
    ));
    let [raw, one, four, singles, no_objects] = &rates;
    report.raw_rates(format!("plain SQLite, batches of {BATCH}"), raw, UNIT);
    report.rates(format!("ensue, batches of {BATCH}, one caller"), one, UNIT, raw, HALF_OF_RAW);
    report.rates(format!("ensue, batches of {BATCH}, 4 callers"), four, UNIT, raw, None);
    report.rates(format!("ensue, {CALLERS} callers of one event"), singles, UNIT, raw, QUARTER_OF_RAW);
    // Beside the first: what the index on objects costs.
    report.rates(format!("ensue, batches of {BATCH}, one caller, no objects"), no_objects, UNIT, raw, None);
    for (name, quantile) in [("p50", 0.5), ("p99", 0.99)] {
        let (raw, ours) = (micros(&idle.raw, quantile), micros(&idle.ours, quantile));
        report.raw(format!("one plain SQLite commit on an idle system, {name}"), raw, "µs");
        report.against(format!("one ensue publish on an idle system, {name}"), ours, "µs", raw, TWICE_RAW);
    }
    Ok(report)
}

/// The latencies of single commits, in nanoseconds.
struct Idle {
    raw: Histogram<u64>,
    ours: Histogram<u64>,
}

fn micros(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    histogram.value_at_quantile(quantile) as f64 / 1_000.0
}

/// One publish and one bare commit in turn, with a rest before each.
async fn idle(bus: &Ensue, raw: &mut Raw, sample: &Sample, measure_for: Duration) -> anyhow::Result<Idle> {
    let mut idle = Idle { raw: Histogram::new(3)?, ours: Histogram::new(3)? };
    let start = Instant::now();
    while start.elapsed() < measure_for {
        tokio::time::sleep(REST).await;
        let event = sample.event();
        let began = Instant::now();
        bus.publish(event).await?;
        idle.ours.record(began.elapsed().as_nanos() as u64)?;
        tokio::time::sleep(REST).await;
        let row = sample.row();
        let began = Instant::now();
        tokio::task::block_in_place(|| raw.insert([row]))?;
        idle.raw.record(began.elapsed().as_nanos() as u64)?;
    }
    Ok(idle)
}

/// Plain SQLite with a plain table.
struct Raw {
    connection: Connection,
    seq: i64,
}

impl Raw {
    fn open(path: &Path) -> anyhow::Result<Self> {
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.execute_batch(
            "CREATE TABLE events (
                seq INTEGER PRIMARY KEY, prev INTEGER, id BLOB NOT NULL, topic TEXT NOT NULL, object TEXT,
                payload TEXT NOT NULL, metadata TEXT, occurred_at INTEGER, recorded_at INTEGER NOT NULL,
                to_subscription BLOB) STRICT",
        )?;
        Ok(Self { connection, seq: 0 })
    }

    fn slice(&mut self, sample: &Sample) -> anyhow::Result<(u64, Duration)> {
        let start = Instant::now();
        let mut count = 0;
        while start.elapsed() < SLICE {
            self.insert((0..BATCH).map(|_| sample.row()))?;
            count += BATCH as u64;
        }
        Ok((count, start.elapsed()))
    }

    /// Inserts rows in one commit.
    fn insert(&mut self, rows: impl IntoIterator<Item = (Option<String>, String)>) -> rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        {
            let mut insert = transaction
                .prepare_cached("INSERT INTO events VALUES (?1, ?2, ?3, ?4, ?5, ?6, NULL, NULL, ?7, NULL)")?;
            let recorded_at = Timestamp::now().as_microsecond();
            for (object, payload) in rows {
                self.seq += 1;
                let prev = object.is_some().then_some(self.seq - 1);
                let id = Uuid::from_u128(rand::random());
                insert.execute(params![self.seq, prev, id.as_bytes(), TOPIC, object, payload, recorded_at])?;
            }
        }
        transaction.commit()
    }
}
