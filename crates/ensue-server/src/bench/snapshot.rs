//! What does a snapshot that somebody holds open cost jobs and events on Postgres?
//!
//! As long as it is open no row version and no index entry that it might see is removed: a queue grows over its own past.
//! Jobs and as many events come at a steady rate, every second event through the outbox, first without such a snapshot and then beside one.

use super::args::{Engine, EngineArgs};
use super::database::{connect, drop_schemas, new_schema};
use super::jobs::{UNIT, Work};
use super::report::{Report, Target};
use crate::cli::output::OutputArgs;
use anyhow::{Context, bail};
use clap::Args;
use ensue::{Address, Context as HandlerContext, Ensue, Event, NewEvent, Running};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::time::MissedTickBehavior;
use tokio_postgres::{Client, Statement};

/// How long jobs come before anything is measured.
const WARM_UP: Duration = Duration::from_secs(5);
/// How long is measured without a snapshot, at most.
const WITHOUT_MAX: Duration = Duration::from_secs(60);

/// How many connections publish through the outbox.
const CLIENTS: usize = 8;
/// How long what was sent may take to be done.
const DONE_WITHIN: Duration = Duration::from_secs(60);

/// `ensue bench snapshot`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue bench snapshot --store postgres://me@localhost/test  # for ten minutes
  ensue bench snapshot --store postgres://me@localhost/test --seconds 30")]
pub struct SnapshotArgs {
    /// How many jobs come each second, and how many events
    #[arg(long, value_name = "N", default_value_t = 800, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    per_second: u32,
    /// How long the snapshot is held; without it is measured for as long, and at most a minute
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = clap::value_parser!(u64).range(5..=3_600))]
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
    let report = measure(&schema, &address, &args).await;
    drop_schemas(&beside, &[schema]).await?;
    report?.print(args.output.json)
}

/// What came of a stretch of time: of jobs, of events that were published, and of events that came through the outbox.
struct Stretch {
    jobs_per_second: f64,
    events_per_second: f64,
    took: [Histogram<u64>; 3],
}

async fn measure(schema: &str, address: &Address, args: &SnapshotArgs) -> anyhow::Result<Report> {
    let work = Work::open(&address.with_schema(schema)).await?;
    let events = Events::open(schema, address).await?;
    let (length, rate) = (Duration::from_secs(args.seconds), args.per_second);
    steadily(&work, &events, rate, WARM_UP).await?;
    let without = steadily(&work, &events, rate, length.min(WITHOUT_MAX)).await?;
    let holder = connect(&address.without_schema()).await?;
    holder
        .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_snapshot()")
        .await
        .context("cannot hold a snapshot")?;
    let beside = steadily(&work, &events, rate, length).await?;
    holder.batch_execute("ROLLBACK").await?;
    events.close().await?;
    work.close().await?;

    let mut report = Report::new(format!(
        "Jobs and events on Postgres while a snapshot is held for {} s: {rate} of each a second, half of the events through the outbox",
        args.seconds,
    ));
    let at_least = Some(Target::AtLeast(0.99));
    report.raw("jobs run without it", without.jobs_per_second, UNIT);
    report.against("jobs run beside it", beside.jobs_per_second, UNIT, without.jobs_per_second, at_least);
    report.raw("events handled without it", without.events_per_second, "events/s");
    report.against(
        "events handled beside it",
        beside.events_per_second,
        "events/s",
        without.events_per_second,
        at_least,
    );
    let names = ["from sending a job to its start", "from publish to handler", "the same through the outbox"];
    for (name, (without, beside)) in names.into_iter().zip(without.took.iter().zip(&beside.took)) {
        let p95 = |took: &Histogram<u64>| took.value_at_quantile(0.95) as f64 / 1e6;
        report.raw(format!("{name} without it, p95"), p95(without), "ms");
        report.against(format!("{name} beside it, p95"), p95(beside), "ms", p95(without), Some(Target::AtMost(2.0)));
        report.raw(format!("{name} beside it, the longest"), beside.max() as f64 / 1e6, "ms");
    }
    Ok(report)
}

/// A bus whose handler notes how long events took to come to it, and who publishes them.
struct Events {
    bus: Ensue,
    running: Running,
    /// Publish in transactions of their own; several, because each waits for its commit.
    clients: Vec<(Client, Statement)>,
    sent: AtomicU64,
    handled: Arc<AtomicU64>,
    took: Arc<Mutex<[Histogram<u64>; 2]>>,
    began: Instant,
}

impl Events {
    async fn open(schema: &str, address: &Address) -> anyhow::Result<Self> {
        let (bus, began) = (Ensue::open(&address.with_schema(schema)).await?, Instant::now());
        let handled = Arc::new(AtomicU64::new(0));
        let took = Arc::new(Mutex::new([Histogram::<u64>::new(3)?, Histogram::new(3)?]));
        let (counted, times) = (handled.clone(), took.clone());
        bus.on("timed").named("measure").handle(move |event: Event, _cx: HandlerContext| {
            if let (Ok(sent), Ok(mut times)) = (event.payload.as_str().parse::<u64>(), times.lock()) {
                let which = usize::from(event.topic.as_str() == "timed.outbox");
                // It grows as it must.
                let _recorded = times[which].record((began.elapsed().as_nanos() as u64).saturating_sub(sent));
            }
            counted.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Ok(()))
        })?;
        let running = bus.start().await?;
        let mut clients = Vec::with_capacity(CLIENTS);
        for _ in 0..CLIENTS {
            let client = connect(&address.without_schema()).await?;
            let publish = client.prepare(&format!("SELECT {schema}.publish('timed.outbox', $1::text::jsonb)")).await?;
            clients.push((client, publish));
        }
        let sent = AtomicU64::new(0);
        Ok(Self { bus, running, clients, sent, handled, took, began })
    }

    /// Publishes one event, every second one through the outbox.
    async fn send(&self) -> anyhow::Result<()> {
        let now = (self.began.elapsed().as_nanos() as u64).to_string();
        let number = self.sent.fetch_add(1, Ordering::Relaxed);
        if number.is_multiple_of(2) {
            self.bus.publish(NewEvent::new("timed.direct").payload_json(now)).await?;
        } else {
            let (client, publish) = &self.clients[(number / 2) as usize % CLIENTS];
            client.execute(publish, &[&now]).await?;
        }
        Ok(())
    }

    async fn finish(&self) -> anyhow::Result<()> {
        let (began, sent) = (Instant::now(), self.sent.load(Ordering::Relaxed));
        while self.handled.load(Ordering::Relaxed) < sent {
            if began.elapsed() > DONE_WITHIN {
                bail!("{sent} events were published, {} are handled", self.handled.load(Ordering::Relaxed));
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// How long they took, since this was asked before.
    fn take_took(&self) -> anyhow::Result<[Histogram<u64>; 2]> {
        let mut took = self.took.lock().map_err(|_| anyhow::anyhow!("a handler has panicked"))?;
        let taken = took.clone();
        took.iter_mut().for_each(Histogram::reset);
        Ok(taken)
    }

    async fn close(self) -> anyhow::Result<()> {
        self.running.shutdown(Duration::from_secs(30)).await?;
        self.bus.close().await;
        Ok(())
    }
}

/// Sends so many jobs and events each second for so long, and waits until they are run.
async fn steadily(work: &Work, events: &Events, per_second: u32, length: Duration) -> anyhow::Result<Stretch> {
    work.take_starts()?;
    events.take_took()?;
    let (began, jobs, handled) = (Instant::now(), work.done(), events.handled.load(Ordering::Relaxed));
    let mut every = tokio::time::interval(Duration::from_secs(1) / per_second);
    every.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (mut sending, mut publishing) = (FuturesUnordered::new(), FuturesUnordered::new());
    while began.elapsed() < length {
        tokio::select! {
            _ = every.tick() => {
                sending.push(work.send_timed());
                publishing.push(events.send());
            }
            Some(sent) = sending.next() => sent?,
            Some(published) = publishing.next() => published?,
        }
    }
    while let Some(sent) = sending.next().await {
        sent?;
    }
    while let Some(published) = publishing.next().await {
        published?;
    }
    work.finish().await?;
    events.finish().await?;
    let took = began.elapsed().as_secs_f64();
    let [direct, outbox] = events.take_took()?;
    Ok(Stretch {
        jobs_per_second: (work.done() - jobs) as f64 / took,
        events_per_second: (events.handled.load(Ordering::Relaxed) - handled) as f64 / took,
        took: [work.take_starts()?, direct, outbox],
    })
}
