//! How fast do events come to their handlers?
//!
//! Publishing in batches while handlers that do nothing consume, until the last event is handled; beside appending alone
//! on the same engine, and on Postgres beside plain inserts. Then the time from a publish to its handler while a thousand
//! events come each second.

use super::append_postgres::{raw_batches, raw_table};
use super::args::{DirArgs, Engine, EngineArgs, SecondsArgs};
use super::callers::batches;
use super::database::{connect, drop_schemas, new_schema};
use super::report::{Report, Target};
use super::rounds::{self, Rates, SLICE};
use super::sample::{Objects, Sample};
use crate::cli::output::OutputArgs;
use anyhow::{Context as _, bail};
use clap::Args;
use ensue::{Address, Context, Ensue, Event, NewEvent, Running};
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio_postgres::{Client, Statement};

/// How many events a batch has.
const BATCH: usize = 100;
/// How many handlers share the events in the second case.
const HANDLERS: u64 = 100;
/// How many events a second come while the time to the handler is measured.
const PER_SECOND: u32 = 1_000;
/// How long they come before the time is taken: connections are made and plans are kept by then.
const WARM_UP: Duration = Duration::from_secs(1);
/// How long a round may take until everything is handled.
const HANDLED_WITHIN: Duration = Duration::from_secs(60);
const UNIT: &str = "events/s";

/// `ensue bench flow`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue bench flow                                       # SQLite, in the current folder
  ensue bench flow --store postgres://me@localhost/test  # in schemas of its own")]
pub struct FlowArgs {
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
pub async fn run(args: FlowArgs) -> anyhow::Result<()> {
    let report = match args.engine.engine()? {
        Engine::Sqlite => {
            let place = args.dir.new_folder()?;
            let raw = Beside::Append;
            let report = measure("SQLite", &sqlite_logs(&place)?, &raw, args.time.seconds).await;
            place.close()?;
            report?
        }
        Engine::Postgres(address) => postgres(&address, args.time.seconds).await?,
    };
    report.print(args.output.json)
}

/// A log of its own for each thing that is measured.
struct Logs {
    append: String,
    one: String,
    many: String,
    latency: String,
}

fn sqlite_logs(place: &TempDir) -> anyhow::Result<Logs> {
    let path = |name: &str| {
        let path = place.path().join(name).to_str().map(str::to_owned);
        path.context("the folder's name is not text: choose another with --dir")
    };
    Ok(Logs { append: path("append.db")?, one: path("one.db")?, many: path("many.db")?, latency: path("latency.db")? })
}

async fn postgres(address: &Address, seconds: u64) -> anyhow::Result<Report> {
    let schemas = [new_schema(), new_schema(), new_schema(), new_schema()];
    let raw = connect(&address.without_schema()).await?;
    raw.batch_execute(&format!("CREATE SCHEMA {}_raw", schemas[0])).await.context("cannot make a schema")?;
    let measured = async {
        let (_, insert) = raw_table(&raw, &schemas[0]).await?;
        let [append, one, many, latency] = schemas.clone().map(|schema| address.with_schema(&schema));
        let logs = Logs { append, one, many, latency };
        measure("Postgres", &logs, &Beside::Inserts { client: &raw, insert, seq: AtomicI64::new(0) }, seconds).await
    };
    let measured = measured.await;
    drop_schemas(&raw, &[format!("{}_raw", schemas[0])]).await?;
    drop_schemas(&raw, &schemas).await?;
    measured
}

/// What handling is compared to.
enum Beside<'r> {
    /// Appending alone, on the same engine.
    Append,
    /// Plain inserts.
    Inserts { client: &'r Client, insert: Statement, seq: AtomicI64 },
}

/// A bus whose handlers count what they are given.
pub struct Flow {
    bus: Ensue,
    running: Running,
    handled: Arc<AtomicU64>,
    published: AtomicU64,
}

impl Flow {
    /// One handler of everything for `handlers` 1, else so many that want one topic each.
    pub async fn open(url: &str, handlers: u64) -> anyhow::Result<Self> {
        let bus = Ensue::open(url).await?;
        let handled = Arc::new(AtomicU64::new(0));
        for number in 0..handlers {
            let counted = handled.clone();
            let topic = if handlers == 1 { "order".to_owned() } else { format!("order.t{number}") };
            bus.on(topic.as_str()).named("count").handle(move |_event: Event, _cx: Context| {
                counted.fetch_add(1, Ordering::Relaxed);
                std::future::ready(Ok(()))
            })?;
        }
        let running = bus.start().await?;
        Ok(Self { bus, running, handled, published: AtomicU64::new(0) })
    }

    /// Publishes for a slice, and waits until everything is handled.
    async fn slice(&self, sample: &Sample, topics: u64) -> anyhow::Result<(u64, Duration)> {
        let start = Instant::now();
        let mut count = 0;
        while start.elapsed() < SLICE {
            let events = (0..BATCH as u64).map(|number| event(sample, topics, number)).collect();
            count += self.bus.publish_all(events).await?.len() as u64;
        }
        self.until_handled(count).await?;
        Ok((count, start.elapsed()))
    }

    /// The same by several callers at once.
    pub async fn slice_of(
        &self,
        sample: &Arc<Sample>,
        callers: usize,
        batch: usize,
    ) -> anyhow::Result<(u64, Duration)> {
        let start = Instant::now();
        let (count, _) = batches(&self.bus, sample, callers, batch).await?;
        self.until_handled(count).await?;
        Ok((count, start.elapsed()))
    }

    /// Waits until so many more are handled.
    async fn until_handled(&self, more: u64) -> anyhow::Result<()> {
        let start = Instant::now();
        let published = self.published.fetch_add(more, Ordering::Relaxed) + more;
        while self.handled.load(Ordering::Relaxed) < published {
            if start.elapsed() > HANDLED_WITHIN {
                bail!("{published} events were published, {} are handled", self.handled.load(Ordering::Relaxed));
            }
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        Ok(())
    }

    pub async fn close(self) -> anyhow::Result<()> {
        self.running.shutdown(Duration::from_secs(30)).await?;
        self.bus.close().await;
        Ok(())
    }
}

fn event(sample: &Sample, topics: u64, number: u64) -> NewEvent {
    let (object, payload) = sample.row();
    let topic = if topics == 1 { super::sample::TOPIC.to_owned() } else { format!("order.t{}", number % topics) };
    let event = NewEvent::new(topic).payload_json(payload);
    match object {
        Some(object) => event.object(object),
        None => event,
    }
}

async fn measure(engine: &str, logs: &Logs, beside: &Beside<'_>, seconds: u64) -> anyhow::Result<Report> {
    // First, while the machine is not busy with what the other cases leave behind: checkpoints, vacuum.
    let latency = latency(Duration::from_secs((seconds / 4).max(2)), &logs.latency).await?;
    let append = Ensue::open(&logs.append).await?;
    let (one, many) = (Flow::open(&logs.one, 1).await?, Flow::open(&logs.many, HANDLERS).await?);
    let sample = Arc::new(Sample::new(Objects::Half));
    let mut rates: [Rates; 4] = Default::default();
    // The first round warms up and is not counted.
    for round in 0..=rounds::count(seconds, rates.len()) {
        let appended = batches(&append, &sample, 1, BATCH).await?;
        let raw = match beside {
            Beside::Append => appended,
            Beside::Inserts { client, insert, seq } => raw_batches(client, insert, &sample, seq, BATCH).await?,
        };
        let results = [raw, appended, one.slice(&sample, 1).await?, many.slice(&sample, HANDLERS).await?];
        for (rates, (count, took)) in rates.iter_mut().zip(results).filter(|_| round > 0) {
            rates.add(count, took);
        }
    }
    append.close().await;
    one.close().await?;
    many.close().await?;

    let mut report = Report::new(format!(
        "From publish to handlers on {engine}: 200-byte payloads, half of the events on {} objects, batches of {BATCH}, {} rounds of {} ms each",
        super::sample::OBJECTS,
        rounds::count(seconds, rates.len()),
        SLICE.as_millis(),
    ));
    let [raw, appended, one, many] = &rates;
    let (p50, p99) = match beside {
        Beside::Append => {
            report.raw_rates("appending alone, one caller", appended, UNIT);
            report.rates("published and handled by one handler", one, UNIT, raw, Some(Target::AtLeast(0.6)));
            (1.0, 5.0)
        }
        Beside::Inserts { .. } => {
            report.raw_rates("plain inserts", raw, UNIT);
            report.rates("appending alone, one caller", appended, UNIT, raw, None);
            report.rates("published and handled by one handler", one, UNIT, raw, Some(Target::AtLeast(0.6)));
            (3.0, 15.0)
        }
    };
    let name = format!("published and handled by {HANDLERS} handlers, each of 1 %");
    report.rates(name, many, UNIT, appended, Some(Target::AtLeast(0.4)));
    for (name, quantile, target) in [("p50", 0.5, p50), ("p99", 0.99, p99)] {
        let millis = latency.value_at_quantile(quantile) as f64 / 1e6;
        let name = format!("from publish to handler at {PER_SECOND} events/s, {name}");
        report.absolute(name, millis, "ms", Target::AtMost(target));
    }
    Ok(report)
}

/// The time from the call of a publish to the start of its handler, in nanoseconds, while so many come each second.
async fn latency(measure_for: Duration, url: &str) -> anyhow::Result<Histogram<u64>> {
    let bus = Ensue::open(url).await?;
    let start = Instant::now();
    let took = Arc::new(Mutex::new(Histogram::<u64>::new(3)?));
    let handled = Arc::new(AtomicU64::new(0));
    let (times, counted) = (took.clone(), handled.clone());
    bus.on("latency").named("measure").handle(move |event: Event, _cx: Context| {
        let now = start.elapsed().as_nanos() as u64;
        if let (Ok(sent), Ok(mut times)) = (event.payload.as_str().parse::<u64>(), times.lock())
            && u128::from(sent) > WARM_UP.as_nanos()
        {
            // It grows as it must.
            let _recorded = times.record(now.saturating_sub(sent));
        }
        counted.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok(()))
    })?;
    let running = bus.start().await?;
    let mut every = tokio::time::interval(Duration::from_secs(1) / PER_SECOND);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
    let mut publishes = tokio::task::JoinSet::new();
    let began = Instant::now();
    let mut published = 0;
    while began.elapsed() < WARM_UP + measure_for {
        every.tick().await;
        let bus = bus.clone();
        publishes.spawn(async move {
            let sent = start.elapsed().as_nanos() as u64;
            bus.publish(NewEvent::new("latency").payload(&sent)).await
        });
        published += 1;
        while let Some(done) = publishes.try_join_next() {
            done??;
        }
    }
    while let Some(done) = publishes.join_next().await {
        done??;
    }
    while handled.load(Ordering::Relaxed) < published {
        if began.elapsed() > measure_for + HANDLED_WITHIN {
            bail!("{published} events were published, {} are handled", handled.load(Ordering::Relaxed));
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    running.shutdown(Duration::from_secs(30)).await?;
    bus.close().await;
    let took = took.lock().map_err(|_| anyhow::anyhow!("a handler has panicked"))?.clone();
    Ok(took)
}
