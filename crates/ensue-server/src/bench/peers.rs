//! What do queues and brokers on Postgres reach by which they are commonly compared?
//!
//! Eight callers at once where others have eight connections: events published one by one and in batches, published and handled at once, read by a group with few and
//! with many subscriptions, jobs sent in batches, and claimed and settled by eight workers. Absolute figures, beside plain inserts of the same run; the other systems are to be
//! measured on the same server, in the same minutes.

use super::append_postgres::{raw_batches, raw_table};
use super::args::{Engine, EngineArgs, SecondsArgs};
use super::callers::{batches, singles};
use super::database::{connect, drop_schemas, new_schema};
use super::flow::Flow;
use super::report::Report;
use super::rounds::{self, Rates, SLICE, slice};
use super::sample::{Objects, Sample};
use crate::cli::output::OutputArgs;
use anyhow::{Context as _, bail};
use clap::Args;
use ensue::groups::{Pull, Wants};
use ensue::jobs::{Claim, Held, JobChange, JobEnd};
use ensue::{Address, Emit, Ensue, GroupName, Json, Start};
use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::{Duration, Instant};

/// How many callers there are at once, and how many a batch has.
const CALLERS: usize = 8;
const BATCH: usize = 100;
/// How many subscriptions a group has, and how many events it is given.
const SUBSCRIPTIONS: [usize; 3] = [1, 1_000, 100_000];
const DISPATCHED: usize = 50_000;
const HANDLER: &str = "bench.noop";

/// `ensue bench peers`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue bench peers --store postgres://me@localhost/test  # in schemas of its own")]
pub struct PeersArgs {
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    time: SecondsArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Measures in schemas of its own, which are dropped afterwards, and prints.
pub async fn run(args: PeersArgs) -> anyhow::Result<()> {
    let Engine::Postgres(address) = args.engine.engine()? else {
        bail!("others are on Postgres: give it with --store postgres://USER@HOST/DATABASE");
    };
    let schemas = [new_schema(), new_schema(), new_schema()];
    let raw = connect(&address.without_schema()).await?;
    raw.batch_execute(&format!("CREATE SCHEMA {}_raw", schemas[0])).await.context("cannot make a schema")?;
    let report = measure(&address, &schemas, &raw, args.time.seconds).await;
    drop_schemas(&raw, &[format!("{}_raw", schemas[0])]).await?;
    drop_schemas(&raw, &schemas).await?;
    report?.print(args.output.json)
}

async fn measure(
    address: &Address,
    schemas: &[String; 3],
    raw: &tokio_postgres::Client,
    seconds: u64,
) -> anyhow::Result<Report> {
    let (_, insert) = raw_table(raw, &schemas[0]).await?;
    let bus = Ensue::open(&address.with_schema(&schemas[0])).await?;
    let flow = Flow::open(&address.with_schema(&schemas[1]), 1).await?;
    let (half, seq) = (Arc::new(Sample::new(Objects::Half)), AtomicI64::new(0));
    let mut rates: [Rates; 6] = Default::default();
    // The first round warms up and is not counted.
    for round in 0..=rounds::count(seconds, rates.len()) {
        let results = [
            raw_batches(raw, &insert, &half, &seq, BATCH).await?,
            singles(&bus, &half, CALLERS).await?,
            batches(&bus, &half, CALLERS, BATCH).await?,
            flow.slice_of(&half, CALLERS, BATCH).await?,
            send(&bus, &half).await?,
            work(&bus).await?,
        ];
        for (rates, (count, took)) in rates.iter_mut().zip(results).filter(|_| round > 0) {
            rates.add(count, took);
        }
    }
    flow.close().await?;
    bus.close().await;

    let mut report = Report::new(format!(
        "By what others are measured, on Postgres: 200-byte payloads, {CALLERS} callers, {} rounds of {} ms each",
        rounds::count(seconds, rates.len()),
        SLICE.as_millis(),
    ));
    let [raw, one, hundred, handled, sent, worked] = &rates;
    report.raw_rates(format!("plain inserts, batches of {BATCH}, one connection"), raw, "rows/s");
    report.rates("events published one by one", one, "events/s", raw, None);
    report.rates(format!("events published in batches of {BATCH}"), hundred, "events/s", raw, None);
    report.rates("the same, and handled", handled, "events/s", raw, None);
    report.rates(format!("jobs sent in batches of {BATCH}"), sent, "jobs/s", raw, None);
    report.rates(format!("jobs claimed and settled, {BATCH} at once"), worked, "jobs/s", raw, None);
    let dispatch = Ensue::open(&address.with_schema(&schemas[2])).await?;
    for count in SUBSCRIPTIONS {
        let (events, took) = read_by_group(&dispatch, &half, count).await?;
        let name = format!("events read and committed by a group with {count} subscriptions");
        report.raw(name, events as f64 / took.as_secs_f64(), "events/s");
    }
    dispatch.close().await;
    Ok(report)
}

/// Sends jobs for a slice.
async fn send(bus: &Ensue, sample: &Arc<Sample>) -> anyhow::Result<(u64, Duration)> {
    let (bus, sample) = (bus.clone(), sample.clone());
    slice(CALLERS, move |_| {
        let (bus, sample) = (bus.clone(), sample.clone());
        async move {
            let jobs = (0..BATCH).map(|_| Emit::to(HANDLER).payload_json(sample.row().1)).collect();
            Ok(bus.emit_all(jobs).await?.len() as u64)
        }
    })
    .await
}

/// Claims and settles until nothing is left, as workers elsewhere do.
async fn work(bus: &Ensue) -> anyhow::Result<(u64, Duration)> {
    let start = Instant::now();
    let workers = (0..CALLERS).map(|_| tokio::spawn(work_alone(bus.clone())));
    let mut done = 0;
    for worker in workers.collect::<Vec<_>>() {
        done += worker.await??;
    }
    Ok((done, start.elapsed()))
}

async fn work_alone(bus: Ensue) -> anyhow::Result<u64> {
    let lease = "1m".parse().context("a lease")?;
    let mut done = 0;
    loop {
        let handlers = vec![(GroupName::stored(HANDLER), BATCH)];
        let claim = Claim { handlers, limit: BATCH, lease, worker: "bench".into(), ends_with_store: false };
        let jobs = bus.store().claim(claim).await?;
        if jobs.is_empty() {
            return Ok(done);
        }
        let end = |job: &ensue::jobs::Job| JobChange::new(Held { id: job.id, fence: job.fence }, JobEnd::Succeeded);
        done += bus.store().settle_jobs(jobs.iter().map(end).collect()).await?.len() as u64;
    }
}

/// A group with so many subscriptions of one condition, of which each event meets one: how many it reads, and how long that takes.
async fn read_by_group(bus: &Ensue, sample: &Arc<Sample>, subscriptions: usize) -> anyhow::Result<(u64, Duration)> {
    let group = format!("dispatch{subscriptions}");
    bus.groups().create(&group, Start::Now).await?;
    for number in 0..subscriptions {
        let params = Json::of("params", &serde_json::json!({ "number": number }))?;
        let wants = Wants { params, ..Wants::when("e.metadata->'number' = s.params->'number'") };
        bus.groups().subscribe(&group, wants).await?;
    }
    for first in (0..DISPATCHED).step_by(1_000) {
        let with_number = |n: usize| sample.event().metadata(&serde_json::json!({ "number": n % subscriptions }));
        bus.publish_all((first..first + 1_000).map(with_number).collect()).await?;
    }
    let (start, mut read) = (Instant::now(), 0);
    while read < DISPATCHED as u64 {
        let pulled = bus.groups().pull(&group, Pull { limit: 1_000, ..Pull::default() }).await?;
        read += pulled.events.len() as u64;
        let lease = pulled.lease.context("a read that is no peek has a lease")?;
        bus.groups().commit(&group, &lease, Some(pulled.cursor), true).await?;
    }
    Ok((read, start.elapsed()))
}
