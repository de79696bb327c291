//! What does it cost to publish in a transaction of one's own, and how soon is it handled?
//!
//! With plain SQL, as any application would, beside a process with a handler: many events in one transaction until all are handled, beside plain
//! inserts of the same rows; many transactions at once with wake-ups and without; and the time to the handler on an idle system.

use super::append_postgres::{raw_batches, raw_table};
use super::args::{Engine, EngineArgs, SecondsArgs};
use super::database::{connect, drop_schemas, new_schema};
use super::report::{Report, Target};
use super::rounds::{self, Rates, SLICE, slice};
use super::sample::{Objects, Sample, TOPIC};
use crate::cli::output::OutputArgs;
use anyhow::{Context as _, bail};
use clap::Args;
use ensue::{Address, Context, Ensue, Event, Running};
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, Statement};

/// How many events one transaction publishes.
const BATCH: usize = 1_000;
/// How many transactions publish at once.
const CLIENTS: usize = 64;
/// How many are timed one by one, and how long nothing happens between them.
const TIMED: u64 = 200;
const IDLE: Duration = Duration::from_millis(60);
/// How long a round may take until everything is handled.
const HANDLED_WITHIN: Duration = Duration::from_secs(60);
const UNIT: &str = "events/s";

/// `ensue bench outbox`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue bench outbox --store postgres://me@localhost/test  # in schemas of its own")]
pub struct OutboxArgs {
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    time: SecondsArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Measures in schemas of its own, which are dropped afterwards, and prints.
pub async fn run(args: OutboxArgs) -> anyhow::Result<()> {
    let Engine::Postgres(address) = args.engine.engine()? else {
        bail!("only Postgres has an outbox: give it with --store postgres://USER@HOST/DATABASE");
    };
    let schema = new_schema();
    let raw = connect(&address.without_schema()).await?;
    raw.batch_execute(&format!("CREATE SCHEMA {schema}_raw")).await.context("cannot make a schema")?;
    let report = measure(&address, &schema, &raw, args.time.seconds).await;
    drop_schemas(&raw, &[format!("{schema}_raw"), schema]).await?;
    report?.print(args.output.json)
}

/// A process with one handler, which counts what it is given and how long that took.
struct Handling {
    bus: Ensue,
    running: Running,
    handled: Arc<AtomicU64>,
    took: Arc<Mutex<Histogram<u64>>>,
    published: AtomicU64,
}

impl Handling {
    async fn open(url: &str, start: Instant) -> anyhow::Result<Self> {
        let bus = Ensue::open(url).await?;
        let (handled, took) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(Histogram::<u64>::new(3)?)));
        let (counted, times) = (handled.clone(), took.clone());
        bus.on("order").named("count").handle(move |event: Event, _cx: Context| {
            let now = start.elapsed().as_nanos() as u64;
            if let (Ok(sent), Ok(mut times)) = (event.payload.as_str().parse::<u64>(), times.lock()) {
                // It grows as it must.
                let _recorded = times.record(now.saturating_sub(sent));
            }
            counted.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Ok(()))
        })?;
        let running = bus.start().await?;
        Ok(Self { bus, running, handled, took, published: AtomicU64::new(0) })
    }

    /// Waits until so many more are handled.
    async fn until_handled(&self, more: u64) -> anyhow::Result<()> {
        let begun = Instant::now();
        let published = self.published.fetch_add(more, Ordering::Relaxed) + more;
        while self.handled.load(Ordering::Relaxed) < published {
            if begun.elapsed() > HANDLED_WITHIN {
                bail!("{published} events were published, {} are handled", self.handled.load(Ordering::Relaxed));
            }
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        Ok(())
    }
}

/// Publishes with plain SQL.
struct Publisher {
    client: Client,
    one: Statement,
    many: Statement,
}

impl Publisher {
    async fn connect(address: &Address, schema: &str) -> anyhow::Result<Self> {
        let client = connect(&address.without_schema()).await?;
        let one = client.prepare(&format!("SELECT {schema}.publish($1, $2::text::jsonb)")).await?;
        let many = client.prepare(&format!("SELECT count(*) FROM {schema}.publish_many($1::text::jsonb)")).await?;
        Ok(Self { client, one, many })
    }

    /// Transactions of many events each, until all are handled.
    async fn batches(&self, sample: &Sample, handling: &Handling) -> anyhow::Result<(u64, Duration)> {
        let start = Instant::now();
        let mut count = 0;
        while start.elapsed() < SLICE {
            let event = |(object, payload): (Option<String>, String)| match object {
                Some(object) => format!("{{\"topic\":\"{TOPIC}\",\"object\":\"{object}\",\"payload\":{payload}}}"),
                None => format!("{{\"topic\":\"{TOPIC}\",\"payload\":{payload}}}"),
            };
            let events: Vec<String> = (0..BATCH).map(|_| event(sample.row())).collect();
            self.client.query_one(&self.many, &[&format!("[{}]", events.join(","))]).await?;
            count += BATCH as u64;
        }
        handling.until_handled(count).await?;
        Ok((count, start.elapsed()))
    }
}

/// Many transactions of one event each, at once.
async fn singles(
    publishers: &Arc<Vec<Publisher>>,
    sample: &Arc<Sample>,
    handling: &Handling,
) -> anyhow::Result<(u64, Duration)> {
    let (all, sample) = (publishers.clone(), sample.clone());
    let published = slice(CLIENTS, move |caller| {
        let (all, sample) = (all.clone(), sample.clone());
        async move {
            let Publisher { client, one, .. } = &all[caller];
            client.execute(one, &[&TOPIC, &sample.row().1]).await?;
            Ok(1)
        }
    })
    .await?;
    handling.until_handled(published.0).await?;
    Ok(published)
}

async fn measure(address: &Address, schema: &str, raw: &Client, seconds: u64) -> anyhow::Result<Report> {
    let (_, insert) = raw_table(raw, schema).await?;
    let start = Instant::now();
    let handling = Handling::open(&address.with_schema(schema), start).await?;
    let timed = Publisher::connect(address, schema).await?;
    let mut woken = Vec::new();
    let mut unheard = Vec::new();
    for _ in 0..CLIENTS {
        woken.push(Publisher::connect(address, schema).await?);
        let silent = Publisher::connect(address, schema).await?;
        silent.client.batch_execute("SET ensue.wake_up = off").await?;
        unheard.push(silent);
    }
    let (woken, unheard) = (Arc::new(woken), Arc::new(unheard));

    // First, while the machine is not busy with what the other cases leave behind.
    for _ in 0..TIMED {
        tokio::time::sleep(IDLE).await;
        let sent = (start.elapsed().as_nanos() as u64).to_string();
        timed.client.batch_execute("BEGIN").await?;
        timed.client.execute(&timed.one, &[&TOPIC, &sent]).await?;
        timed.client.batch_execute("COMMIT").await?;
        handling.until_handled(1).await?;
    }
    let took = handling.took.lock().map_err(|_| anyhow::anyhow!("a handler has panicked"))?.clone();

    let (half, plain) = (Sample::new(Objects::Half), Arc::new(Sample::new(Objects::None)));
    let seq = AtomicI64::new(0);
    let mut rates: [Rates; 4] = Default::default();
    // The first round warms up and is not counted.
    for round in 0..=rounds::count(seconds, rates.len()) {
        let results = [
            raw_batches(raw, &insert, &half, &seq, BATCH).await?,
            timed.batches(&half, &handling).await?,
            singles(&unheard, &plain, &handling).await?,
            singles(&woken, &plain, &handling).await?,
        ];
        for (rates, (count, took)) in rates.iter_mut().zip(results).filter(|_| round > 0) {
            rates.add(count, took);
        }
    }
    handling.running.shutdown(Duration::from_secs(30)).await?;
    handling.bus.close().await;

    let mut report = Report::new(format!(
        "Publishing in transactions on Postgres: 200-byte payloads, {} rounds of {} ms each",
        rounds::count(seconds, rates.len()),
        SLICE.as_millis(),
    ));
    let [raw, many, unheard, woken] = &rates;
    report.raw_rates(format!("plain inserts, batches of {BATCH}"), raw, UNIT);
    let name = format!("publish_many of {BATCH}, in the log and handled");
    report.rates(name, many, UNIT, raw, Some(Target::AtLeast(0.4)));
    report.raw_rates(format!("{CLIENTS} transactions at once, without wake-ups"), unheard, UNIT);
    let name = format!("{CLIENTS} transactions at once, with wake-ups");
    report.rates(name, woken, UNIT, unheard, Some(Target::AtLeast(0.9)));
    for (name, quantile, target) in [("p50", 0.5, Some(10.0)), ("p95", 0.95, None)] {
        let millis = took.value_at_quantile(quantile) as f64 / 1e6;
        let name = format!("from publish to handler on an idle system, {name}");
        match target {
            Some(target) => report.absolute(name, millis, "ms", Target::AtMost(target)),
            None => report.raw(name, millis, "ms"),
        }
    }
    Ok(report)
}
