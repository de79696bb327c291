//! How many conditions and how many events does one core take in a second?
//!
//! `cargo run --release -p ensue-core --example match_rate`

use ensue_core::condition::{Condition, EventView, SubscriptionView};
use ensue_core::matching::{Found, Index, Subscription, Want};
use ensue_core::{Event, EventId, Json, ObjectKey, Timestamp, Topic};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

const AT_LEAST: Duration = Duration::from_millis(700);
const SIMPLE: &str = "e.topic = 'order.paid'";
const NUMERIC: &str = "(e.payload->>'total')::numeric > 100";
const MEDIUM: &str = "e.topic LIKE 'order.%' AND (e.payload->>'total')::numeric > 100 \
                      AND e.payload->'customer'->>'country' IN ('de', 'fr', 'pl') AND e.payload ? 'items'";
const SHARED: [&str; 3] = [
    "s.params @> jsonb_build_object('customer', e.payload->>'customer_id')",
    "e.payload->>'customer_id' = s.params->>'customer'",
    "e.payload @> s.params",
];

fn event(number: usize, of: usize) -> Event {
    let payload = format!(
        r#"{{"customer_id":"c{}","total":{}.50,"customer":{{"country":"de","name":"A"}},"items":[{{"sku":"a","n":1}}]}}"#,
        number * 7_919 % of,
        number % 300
    );
    Event {
        seq: number as u64,
        prev: None,
        id: EventId(Uuid::from_u128(number as u128)),
        topic: Topic::stored("order.paid"),
        object: Some(ObjectKey::stored("order:1")),
        payload: Json::parse("payload", &payload).expect("JSON"),
        metadata: Json::empty_object(),
        occurred_at: Timestamp::UNIX_EPOCH,
        recorded_at: Timestamp::UNIX_EPOCH,
        to: None,
    }
}

/// The time this thread has had a core, so that what else runs on the machine does not count.
fn cpu_time() -> Duration {
    let schedstat = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux with scheduler statistics");
    Duration::from_nanos(schedstat.split(' ').next().and_then(|nanos| nanos.parse().ok()).expect("nanoseconds"))
}

/// Calls per second of one core, from at least a fixed time of them.
fn rate(mut call: impl FnMut(usize)) -> f64 {
    let (start, mut calls) = (cpu_time(), 0);
    loop {
        for _ in 0..1_024 {
            call(calls);
            calls += 1;
        }
        let spent = cpu_time() - start;
        if spent >= AT_LEAST {
            return calls as f64 / spent.as_secs_f64();
        }
    }
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4_096
}

fn subscription(number: usize, params: String) -> Subscription {
    let params = Json::parse("params", &params).expect("JSON");
    Subscription { id: Uuid::from_u128(number as u128), group: "group".into(), params }
}

fn measure_index(name: &str, index: &Index, subscriptions: usize, spread: usize, bytes: usize) {
    let events: Vec<Event> = (0..20_000).map(|number| event(number, spread)).collect();
    let (mut found, mut matched) = (Found::default(), 0);
    let per_second = rate(|call| {
        index.matches(&EventView::new(&events[call % events.len()]), &mut found);
        matched += found.matched.len();
    });
    let each = bytes / subscriptions.max(1);
    println!("{subscriptions:>9} subscriptions  {per_second:>12.0} events/s  {each:>4} bytes each  {name}");
    assert!(matched > 0, "nothing matched: the figure would mean nothing");
}

fn main() {
    let params = Json::empty_object();
    let subscription_view = SubscriptionView::new(Uuid::nil(), "group", &params);
    let events: Vec<Event> = (0..1_000).map(|number| event(number, 1_000)).collect();
    for (name, source) in [("simple", SIMPLE), ("numeric", NUMERIC), ("medium", MEDIUM)] {
        let condition = Condition::parse(source).expect("a condition");
        let fresh = rate(|call| {
            let view = EventView::new(&events[call % events.len()]);
            std::hint::black_box(condition.matches(&view, &subscription_view).is_ok());
        });
        let view = EventView::new(&events[0]);
        let again = rate(|_| {
            std::hint::black_box(condition.matches(std::hint::black_box(&view), &subscription_view).is_ok());
        });
        println!("{name:<8} {fresh:>12.0} conditions/s on a new event each  {again:>12.0} on one event");
    }
    for source in SHARED {
        for count in [1, 1_000, 100_000, 1_000_000] {
            let want = Want { topic: None, condition: Arc::new(Condition::parse(source).expect("a condition")) };
            let before = resident_bytes();
            let mut index = Index::new();
            let key = if source == SHARED[2] { "customer_id" } else { "customer" };
            for number in 0..count {
                index.add(&want, subscription(number, format!("{{\"{key}\":\"c{number}\"}}")));
            }
            let bytes = resident_bytes().saturating_sub(before);
            measure_index(source, &index, count, count, bytes);
        }
    }
    let before = resident_bytes();
    let mut index = Index::new();
    for condition in 0..100 {
        let source = format!("e.payload->>'customer_id' = s.params->>'customer' AND e.seq % 100 <> {condition}");
        let want = Want { topic: None, condition: Arc::new(Condition::parse(&source).expect("a condition")) };
        for number in 0..1_000 {
            index.add(&want, subscription(condition * 1_000 + number, format!("{{\"customer\":\"c{number}\"}}")));
        }
    }
    measure_index("100 conditions of 1,000 each", &index, 100_000, 1_000, resident_bytes().saturating_sub(before));
}
