//! How fast are jobs sent, claimed, run and settled?
//!
//! Jobs that do nothing, with 16 workers in this process; beside inserting and deleting the same rows, on Postgres beside a
//! bare loop that claims with SKIP LOCKED and deletes. Then what a claim costs with few and with very many jobs waiting, half
//! of them paused, and the time from sending a job on an idle system to its start.

use super::args::{DirArgs, Engine, EngineArgs, SecondsArgs};
use super::jobs_postgres;
use super::report::{Report, Target};
use super::rounds::{self, Rates, SLICE};
use super::sample::{Objects, Sample};
use crate::cli::output::OutputArgs;
use anyhow::{Context as _, bail};
use clap::Args;
use ensue::jobs::Claim;
use ensue::rules::{NewRule, RuleKind, Scope};
use ensue::rusqlite::{Connection, params};
use ensue::{Context, Emit, Ensue, Event, GroupName, Running, Timestamp};
use hdrhistogram::Histogram;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How many jobs are sent at once.
pub const BATCH: usize = 100;
/// How many jobs wait in the first case of claiming.
const FEW: usize = 1_000;
/// How many claims are measured.
const CLAIMS: usize = 100;
/// How many jobs a claim takes.
const CLAIMED: usize = 16;
/// How long the system rests before a job is sent to it idle.
const REST: Duration = Duration::from_millis(5);
/// How many are sent so before the time is taken: connections are made and plans are kept by then.
const WARM_UP: usize = 50;
/// How long a round may take until everything is done.
const DONE_WITHIN: Duration = Duration::from_secs(60);
pub const UNIT: &str = "jobs/s";
/// Whose jobs are measured.
pub const HANDLER: &str = "bench.noop";
const PAUSED: &str = "bench.paused";

/// `ensue bench jobs`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue bench jobs                                       # SQLite, in the current folder
  ensue bench jobs --waiting 100000                      # with fewer jobs waiting
  ensue bench jobs --store postgres://me@localhost/test  # in schemas of its own")]
pub struct JobsArgs {
    /// How many jobs wait, half of them paused, while the cost of a claim is measured
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(4_000..=10_000_000))]
    waiting: u64,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    dir: DirArgs,
    #[command(flatten)]
    time: SecondsArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Measures and prints.
pub async fn run(args: JobsArgs) -> anyhow::Result<()> {
    let report = match args.engine.engine()? {
        Engine::Sqlite => {
            let place = args.dir.new_folder()?;
            let report = sqlite(place.path(), args.time.seconds, args.waiting as usize).await;
            place.close()?;
            report?
        }
        Engine::Postgres(address) => jobs_postgres::run(&address, args.time.seconds, args.waiting as usize).await?,
    };
    report.print(args.output.json)
}

async fn sqlite(folder: &Path, seconds: u64, waiting: usize) -> anyhow::Result<Report> {
    let path = |name: &str| -> anyhow::Result<String> {
        let path = folder.join(name);
        Ok(path.to_str().context("the folder's name is not text: choose another with --dir")?.to_owned())
    };
    let mut raw = Raw::open(Path::new(&path("raw.db")?))?;
    let work = Work::open(&path("jobs.db")?).await?;
    // First, while the machine is not busy with what the other cases leave behind.
    let idle = work.idle(Duration::from_secs((seconds / 4).max(1))).await?;
    let sample = Sample::new(Objects::None);
    let mut rates: [Rates; 2] = Default::default();
    // The first round warms up and is not counted.
    for round in 0..=rounds::count(seconds, rates.len()) {
        let results = [tokio::task::block_in_place(|| raw.slice(&sample))?, work.slice(&sample).await?];
        for (rates, (count, took)) in rates.iter_mut().zip(results).filter(|_| round > 0) {
            rates.add(count, took);
        }
    }
    work.close().await?;
    let mut report = Report::new(format!(
        "Jobs on SQLite: 200-byte payloads, sent in batches of {BATCH}, {} workers, {} rounds of {} ms each",
        ensue::jobs::WORKERS,
        rounds::count(seconds, rates.len()),
        SLICE.as_millis(),
    ));
    let [raw, ours] = &rates;
    report.raw_rates(format!("plain SQLite, inserted and deleted in batches of {BATCH}"), raw, UNIT);
    report.rates("sent, claimed, run and settled", ours, UNIT, raw, Some(Target::AtLeast(0.25)));
    claiming(&mut report, &path("few.db")?, &path("many.db")?, waiting).await?;
    starting(&mut report, &idle, 1.0);
    Ok(report)
}

/// Adds what a claim costs with few and with many jobs waiting.
pub async fn claiming(report: &mut Report, few: &str, many: &str, waiting: usize) -> anyhow::Result<()> {
    let few = claim_cost(few, FEW.max(2 * CLAIMS * CLAIMED)).await?;
    let many = claim_cost(many, waiting).await?;
    report.raw(format!("a claim of {CLAIMED} with few jobs waiting, half of them paused"), few, "µs");
    let name = format!("a claim of {CLAIMED} with {waiting} jobs waiting, half of them paused");
    report.against(name, many, "µs", few, Some(Target::AtMost(1.5)));
    Ok(())
}

/// Adds how long a job takes to start on an idle system.
pub fn starting(report: &mut Report, idle: &Histogram<u64>, p50_max: f64) {
    let millis = |quantile| idle.value_at_quantile(quantile) as f64 / 1e6;
    report.absolute("from sending to start on an idle system, p50", millis(0.5), "ms", Target::AtMost(p50_max));
    report.raw("from sending to start on an idle system, p99", millis(0.99), "ms");
}

/// The median time of a claim while so many jobs wait, in microseconds. Nobody runs them.
async fn claim_cost(url: &str, waiting: usize) -> anyhow::Result<f64> {
    let bus = Ensue::open(url).await?;
    let sample = Sample::new(Objects::None);
    for at in 0..waiting / 1_000 {
        let handler = if at % 2 == 0 { HANDLER } else { PAUSED };
        let jobs = (0..1_000).map(|_| Emit::to(handler).payload_json(sample.row().1)).collect();
        bus.emit_all(jobs).await?;
    }
    bus.set_rule(pause(PAUSED)?).await?;
    let handlers = [HANDLER, PAUSED].map(|key| (GroupName::stored(key), CLAIMED));
    let lease = "1h".parse().context("a lease")?;
    let mut took = Vec::with_capacity(CLAIMS);
    for _ in 0..CLAIMS {
        let claim =
            Claim { handlers: handlers.to_vec(), limit: CLAIMED, lease, worker: "bench".into(), ends_with_store: true };
        let began = Instant::now();
        let claimed = bus.store().claim(claim).await?;
        took.push(began.elapsed().as_secs_f64() * 1e6);
        if claimed.len() != CLAIMED {
            bail!("{} jobs were claimed instead of {CLAIMED}", claimed.len());
        }
    }
    bus.close().await;
    Ok(rounds::median(&took))
}

fn pause(handler: &str) -> anyhow::Result<NewRule> {
    let scope = Scope::parse(&format!("handler:{handler}"))?;
    Ok(NewRule { kind: RuleKind::Pause, scope, reason: None, author: "bench".into(), expires_at: None })
}

/// A bus whose handler does nothing but count.
pub struct Work {
    pub bus: Ensue,
    running: Running,
    done: Arc<AtomicU64>,
    sent: AtomicU64,
    /// When jobs started, in nanoseconds since `began`, if their payload is a number: when they were sent.
    starts: Arc<Mutex<Histogram<u64>>>,
    began: Instant,
}

impl Work {
    pub async fn open(url: &str) -> anyhow::Result<Self> {
        let bus = Ensue::open(url).await?;
        let (done, began) = (Arc::new(AtomicU64::new(0)), Instant::now());
        let starts = Arc::new(Mutex::new(Histogram::<u64>::new(3)?));
        let (counted, times) = (done.clone(), starts.clone());
        bus.register(HANDLER, move |job: Event, _cx: Context| {
            if let Ok(sent) = job.payload.as_str().parse::<u64>()
                && let Ok(mut times) = times.lock()
            {
                // It grows as it must.
                let _recorded = times.record((began.elapsed().as_nanos() as u64).saturating_sub(sent));
            }
            counted.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Ok(()))
        })?;
        let running = bus.start().await?;
        Ok(Self { bus, running, done, sent: AtomicU64::new(0), starts, began })
    }

    /// Nothing is started before `resume`.
    pub async fn pause(&self) -> anyhow::Result<()> {
        self.bus.set_rule(pause(HANDLER)?).await?;
        Ok(())
    }

    pub async fn resume(&self) -> anyhow::Result<()> {
        let rule = pause(HANDLER)?;
        self.bus.lift_rule(rule.kind, &rule.scope, &rule.author).await?;
        Ok(())
    }

    /// Sends a batch; answers how many jobs it has.
    pub async fn send(&self, sample: &Sample, batch: usize) -> anyhow::Result<u64> {
        let jobs = (0..batch).map(|_| Emit::to(HANDLER).payload_json(sample.row().1)).collect();
        let sent = self.bus.emit_all(jobs).await?.len() as u64;
        self.sent.fetch_add(sent, Ordering::Relaxed);
        Ok(sent)
    }

    /// Waits until everything that was sent is run and settled.
    pub async fn finish(&self) -> anyhow::Result<()> {
        let (start, sent) = (Instant::now(), self.sent.load(Ordering::Relaxed));
        while self.done.load(Ordering::Relaxed) < sent {
            if start.elapsed() > DONE_WITHIN {
                bail!("{sent} jobs were sent, {} are done", self.done.load(Ordering::Relaxed));
            }
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        self.bus.drain().await?;
        Ok(())
    }

    /// Sends for a slice, and waits until everything is done.
    async fn slice(&self, sample: &Sample) -> anyhow::Result<(u64, Duration)> {
        let start = Instant::now();
        let mut count = 0;
        while start.elapsed() < SLICE {
            count += self.send(sample, BATCH).await?;
        }
        self.finish().await?;
        Ok((count, start.elapsed()))
    }

    /// Sends one job after another to an idle system; the first ones warm up and are not counted.
    pub async fn idle(&self, measure_for: Duration) -> anyhow::Result<Histogram<u64>> {
        for _ in 0..WARM_UP {
            self.send_timed().await?;
            self.finish().await?;
        }
        self.take_starts()?;
        let start = Instant::now();
        while start.elapsed() < measure_for {
            tokio::time::sleep(REST).await;
            self.send_timed().await?;
            self.finish().await?;
        }
        self.take_starts()
    }

    /// Sends a job that tells when it started.
    pub async fn send_timed(&self) -> anyhow::Result<()> {
        let sent = self.began.elapsed().as_nanos() as u64;
        self.bus.emit(Emit::to(HANDLER).payload(&sent)).await?;
        self.sent.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// How long they took to start, since this was asked before.
    pub fn take_starts(&self) -> anyhow::Result<Histogram<u64>> {
        let mut starts = self.starts.lock().map_err(|_| anyhow::anyhow!("a handler has panicked"))?;
        let taken = starts.clone();
        starts.reset();
        Ok(taken)
    }

    /// How many jobs were run.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    pub async fn close(self) -> anyhow::Result<()> {
        self.running.shutdown(Duration::from_secs(30)).await?;
        self.bus.close().await;
        Ok(())
    }
}

/// Plain SQLite with a plain table.
struct Raw {
    connection: Connection,
    number: i64,
}

impl Raw {
    fn open(path: &Path) -> anyhow::Result<Self> {
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "journal_mode", "WAL")?;
        connection.pragma_update(None, "synchronous", "FULL")?;
        connection.execute_batch(
            "CREATE TABLE jobs (
                number INTEGER PRIMARY KEY, id BLOB NOT NULL, handler TEXT NOT NULL, payload TEXT NOT NULL,
                priority INTEGER NOT NULL, state TEXT NOT NULL, attempts INTEGER NOT NULL, enqueued_at INTEGER NOT NULL
            ) STRICT",
        )?;
        Ok(Self { connection, number: 0 })
    }

    fn slice(&mut self, sample: &Sample) -> anyhow::Result<(u64, Duration)> {
        let start = Instant::now();
        let mut count = 0;
        while start.elapsed() < SLICE {
            let first = self.number + 1;
            self.insert(sample)?;
            self.delete(first)?;
            count += BATCH as u64;
        }
        Ok((count, start.elapsed()))
    }

    fn insert(&mut self, sample: &Sample) -> ensue::rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        {
            let mut insert =
                transaction.prepare_cached("INSERT INTO jobs VALUES (?1, ?2, ?3, ?4, 0, 'available', 0, ?5)")?;
            let now = Timestamp::now().as_microsecond();
            for _ in 0..BATCH {
                self.number += 1;
                let id = uuid::Uuid::from_u128(rand::random());
                insert.execute(params![self.number, id.as_bytes(), HANDLER, sample.row().1, now])?;
            }
        }
        transaction.commit()
    }

    fn delete(&mut self, first: i64) -> ensue::rusqlite::Result<()> {
        let transaction = self.connection.transaction()?;
        {
            let mut delete = transaction.prepare_cached("DELETE FROM jobs WHERE number = ?1")?;
            for number in first..=self.number {
                delete.execute([number])?;
            }
        }
        transaction.commit()
    }
}
