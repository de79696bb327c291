//! Latency of other objects beside one with much to do.
//!
//! A handler takes some milliseconds for each event. Events of fifty objects come at a steady rate: first alone, then
//! while one object has a hundred thousand events in the log, of which the handler has done few.

use super::args::{DirArgs, Engine, EngineArgs, SecondsArgs};
use super::database::{connect, drop_schemas, new_schema};
use super::report::{Report, Target};
use crate::cli::output::OutputArgs;
use anyhow::{Context as _, bail};
use clap::Args;
use ensue::{Context, Ensue, Event, GroupName, NewEvent, Start};
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// How many events of the busy object are in the log.
const BUSY_EVENTS: usize = 100_000;
const BATCH: usize = 1_000;
/// How many other objects there are.
const OTHERS: u64 = 50;
/// How many of their events come each second.
const PER_SECOND: u32 = 200;
/// How long the handler takes, as one does that calls something.
const TAKES: Duration = Duration::from_millis(10);
/// How long to wait for what must come at last.
const WAIT_MAX: Duration = Duration::from_secs(120);
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// `ensue bench busy`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue bench busy                                       # SQLite, in the current folder
  ensue bench busy --store postgres://me@localhost/test  # in schemas of its own")]
pub struct BusyArgs {
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
pub async fn run(args: BusyArgs) -> anyhow::Result<()> {
    let time = Duration::from_secs((args.time.seconds / 2).max(2));
    let report = match args.engine.engine()? {
        Engine::Sqlite => {
            let place = args.dir.new_folder()?;
            let path = |name: &str| {
                let path = place.path().join(name).to_str().map(str::to_owned);
                path.context("the folder's name is not text: choose another with --dir")
            };
            let report = measure("SQLite", &path("alone.db")?, &path("busy.db")?, time).await;
            place.close()?;
            report?
        }
        Engine::Postgres(address) => {
            let schemas = [new_schema(), new_schema()];
            let [alone, busy] = schemas.clone().map(|schema| address.with_schema(&schema));
            let report = measure("Postgres", &alone, &busy, time).await;
            drop_schemas(&connect(&address.without_schema()).await?, &schemas).await?;
            report?
        }
    };
    report.print(args.output.json)
}

async fn measure(engine: &str, alone: &str, busy: &str, time: Duration) -> anyhow::Result<Report> {
    let (alone, busy) = (others(alone, 0, time).await?, others(busy, BUSY_EVENTS, time).await?);
    let mut report = Report::new(format!(
        "From publish to handler on {engine}: {PER_SECOND} events/s of {OTHERS} objects, {} ms each",
        TAKES.as_millis()
    ));
    for (name, quantile, target) in [("p50", 0.5, None), ("p99", 0.99, Some(Target::AtMost(2.0)))] {
        let millis = |times: &Histogram<u64>| times.value_at_quantile(quantile) as f64 / 1e6;
        report.raw(format!("alone, {name}"), millis(&alone), "ms");
        let name = format!("beside one object of {BUSY_EVENTS} events, {name}");
        report.against(name, millis(&busy), "ms", millis(&alone), target);
    }
    Ok(report)
}

/// The time from the call of a publish to the start of its handler, in nanoseconds, for the other objects.
async fn others(url: &str, busy_events: usize, time: Duration) -> anyhow::Result<Histogram<u64>> {
    let bus = Ensue::open(url).await?;
    let start = Instant::now();
    let (times, handled) = (Arc::new(Mutex::new(Histogram::<u64>::new(3)?)), Arc::new(AtomicU64::new(0)));
    let (recorded, counted) = (times.clone(), handled.clone());
    bus.on("busy").named("measure").start(Start::Beginning).handle(move |event: Event, _cx: Context| {
        let now = start.elapsed().as_nanos() as u64;
        if let (Ok(sent), Ok(mut times)) = (event.payload.as_str().parse::<u64>(), recorded.lock()) {
            // It grows as it must.
            let _recorded = times.record(now.saturating_sub(sent));
            counted.fetch_add(1, Ordering::Relaxed);
        }
        async {
            tokio::time::sleep(TAKES).await;
            Ok(())
        }
    })?;
    for _ in 0..busy_events / BATCH {
        let events = (0..BATCH).map(|_| NewEvent::new("busy").object("busy")).collect();
        bus.publish_all(events).await?;
    }
    let running = bus.start().await?;
    let group = GroupName::parse("name", "busy.measure")?;
    let wait_until = start.elapsed() + WAIT_MAX;
    while bus.store().group(&group).await?.is_none_or(|group| group.cursor() < busy_events as u64) {
        if start.elapsed() > wait_until {
            bail!("the cursor does not pass the events of the busy object");
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    let published = publish_others(&bus, start, time).await?;
    let wait_until = start.elapsed() + WAIT_MAX;
    while handled.load(Ordering::Relaxed) < published {
        if start.elapsed() > wait_until {
            bail!("{published} events were published, {} have begun", handled.load(Ordering::Relaxed));
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
    running.shutdown(Duration::from_secs(30)).await?;
    bus.close().await;
    let times = times.lock().map_err(|_| anyhow::anyhow!("a handler has panicked"))?.clone();
    Ok(times)
}

/// Publishes at a steady rate; answers how many.
async fn publish_others(bus: &Ensue, start: Instant, time: Duration) -> anyhow::Result<u64> {
    let mut every = tokio::time::interval(Duration::from_secs(1) / PER_SECOND);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Burst);
    let (mut publishes, began, mut published) = (tokio::task::JoinSet::new(), Instant::now(), 0);
    while began.elapsed() < time {
        every.tick().await;
        let (bus, object) = (bus.clone(), format!("o{}", published % OTHERS));
        publishes.spawn(async move {
            let sent = start.elapsed().as_nanos() as u64;
            bus.publish(NewEvent::new("busy").object(object).payload(&sent)).await
        });
        published += 1;
    }
    while let Some(done) = publishes.join_next().await {
        done??;
    }
    Ok(published)
}
