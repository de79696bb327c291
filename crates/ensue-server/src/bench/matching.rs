//! How fast is it found who wants an event?
//!
//! In the processor time of this thread, so that what else runs on the machine does not count.

use super::matching_sql;
use super::report::{Report, Target};
use crate::cli::output::OutputArgs;
use anyhow::ensure;
use clap::Args;
use ensue::condition::{Condition, EventView};
use ensue::matching::{Found, Index, Subscription, Want};
use ensue::{Address, Event, EventId, Json, ObjectKey, Timestamp, Topic};
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// What subscriptions of one condition differ in is found by a hash.
const SHARED: &str = "e.payload->>'customer_id' = s.params->>'customer'";
/// How many subscriptions share it.
const COUNTS: [usize; 4] = [1, 1_000, 100_000, 1_000_000];
/// How many different events are matched, over and over.
const EVENTS: usize = 20_000;
/// How many conditions there are in the second case, and how many subscriptions each has.
const CONDITIONS: usize = 100;
const EACH: usize = 1_000;

/// `ensue bench match`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue bench match            # up to a million subscriptions, about 1 GB of memory
  ensue bench match --json
  ensue bench match --sql postgres://me@localhost/test  # readers over SQL, beside PGMB's way")]
pub struct MatchArgs {
    /// About how long to measure each case, in seconds
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=60))]
    seconds: u64,
    /// Measure readers over SQL instead, in schemas of their own in this Postgres database
    #[arg(long, value_name = "URL")]
    sql: Option<Address>,
    #[command(flatten)]
    output: OutputArgs,
}

/// Measures and prints.
pub async fn run(args: MatchArgs) -> anyhow::Result<()> {
    let report = match &args.sql {
        Some(address) => matching_sql::run(address).await?,
        None => tokio::task::block_in_place(|| in_process(&args))?,
    };
    report.print(args.output.json)
}

fn in_process(args: &MatchArgs) -> anyhow::Result<Report> {
    let at_least = Duration::from_secs(args.seconds);
    let mut report = Report::new("Matching one event after the other, on one core");
    let mut at_a_thousand = 0.0;
    for count in COUNTS {
        let before = resident_bytes();
        let mut index = Index::new();
        let want = Want { topic: None, condition: Arc::new(Condition::parse(SHARED)?) };
        for number in 0..count {
            index.add(&want, subscription(number, number)?);
        }
        let bytes = resident_bytes().saturating_sub(before);
        let rate = rate(&index, count, at_least)?;
        let name = format!("{count} subscriptions of one condition");
        match count {
            1_000_000 => {
                report.absolute(name, rate, "events/s", Target::AtLeast(300_000.0));
                let name = "cost of an event among 1,000,000, beside 1,000";
                report.absolute(name, at_a_thousand / rate, "times", Target::AtMost(3.0));
            }
            _ => report.raw(name, rate, "events/s"),
        }
        if count == 1_000 {
            at_a_thousand = rate;
        }
        if count > 1_000 {
            report.raw(format!("memory of each of {count} subscriptions"), bytes as f64 / count as f64, "bytes");
        }
    }
    let mut index = Index::new();
    for condition in 0..CONDITIONS {
        let source = format!("{SHARED} AND e.seq % 100 <> {condition}");
        let want = Want { topic: None, condition: Arc::new(Condition::parse(&source)?) };
        for number in 0..EACH {
            index.add(&want, subscription(condition * EACH + number, number)?);
        }
    }
    let rate = rate(&index, EACH, at_least)?;
    let name = format!("{CONDITIONS} conditions of {EACH} subscriptions each");
    report.absolute(name, rate, "events/s", Target::AtLeast(30_000.0));
    Ok(report)
}

fn subscription(id: usize, customer: usize) -> anyhow::Result<Subscription> {
    let params = Json::parse("params", format!("{{\"customer\":\"c{customer}\"}}"))?;
    Ok(Subscription { id: Uuid::from_u128(id as u128), group: "group".into(), params })
}

/// Events per second of this thread's time.
fn rate(index: &Index, customers: usize, at_least: Duration) -> anyhow::Result<f64> {
    let events: Vec<Event> = (0..EVENTS).map(|number| event(number, customers)).collect::<anyhow::Result<_>>()?;
    let (mut found, mut matched, mut calls) = (Found::default(), 0, 0);
    let start = thread_time();
    loop {
        for event in events.iter().cycle().skip(calls % EVENTS).take(1_024) {
            index.matches(&EventView::new(event), &mut found);
            matched += found.matched.len();
        }
        calls += 1_024;
        let spent = thread_time() - start;
        if spent >= at_least {
            ensure!(matched > 0, "nothing matched: the figure would mean nothing");
            return Ok(calls as f64 / spent.as_secs_f64());
        }
    }
}

fn event(number: usize, customers: usize) -> anyhow::Result<Event> {
    let payload = format!(
        r#"{{"customer_id":"c{}","total":{}.50,"customer":{{"country":"de","name":"A"}},"items":[{{"sku":"a","n":1}}]}}"#,
        number * 7_919 % customers,
        number % 300
    );
    Ok(Event {
        seq: number as u64,
        prev: None,
        id: EventId(Uuid::from_u128(number as u128)),
        topic: Topic::stored("order.paid"),
        object: Some(ObjectKey::stored("order:1")),
        payload: Json::parse("payload", payload)?,
        metadata: Json::empty_object(),
        occurred_at: Timestamp::UNIX_EPOCH,
        recorded_at: Timestamp::UNIX_EPOCH,
        to: None,
    })
}

/// The time this thread has had a core; where that is not told, the time that passed.
fn thread_time() -> Duration {
    static BEGAN: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanos = told.and_then(|told| told.split(' ').next()?.parse().ok());
    nanos.map_or_else(|| BEGAN.get_or_init(Instant::now).elapsed(), Duration::from_nanos)
}

/// The memory of this process, where that is told.
fn resident_bytes() -> usize {
    let told = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    told.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4_096
}
