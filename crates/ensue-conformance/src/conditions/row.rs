//! What do the tried conditions look at?

use ensue_core::{Event, EventId, Json, ObjectKey, Timestamp, Topic};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use uuid::Uuid;

/// An event and a subscription.
pub struct SampleRow {
    /// The event.
    pub event: Event,
    /// The subscription's id.
    pub subscription: Uuid,
    /// The subscription's group.
    pub group: String,
    /// The subscription's params.
    pub params: Json,
}

/// Texts that mean something to some cast or some operator.
pub(super) const TEXTS: [&str; 28] = [
    "",
    "a",
    "b",
    "ab",
    "A",
    "order.paid",
    "order",
    "Order",
    "ä",
    "日本",
    "x%y",
    "a_b",
    "\\",
    "'",
    "\"",
    " 5 ",
    "5",
    "-7",
    "1.50",
    "1e3",
    "NaN",
    "true",
    "off",
    "2026-01-31T12:00:00Z",
    "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
    "{a,b}",
    "9223372036854775808",
    "[1,2]",
];

/// Numbers as JSON writes them.
const NUMBERS: [&str; 16] = [
    "0",
    "-0",
    "1",
    "2",
    "-3",
    "5",
    "10",
    "1.0",
    "1.50",
    "0.001",
    "1e3",
    "1E-2",
    "2147483647",
    "2147483648",
    "9223372036854775807",
    "12345678901234567890.123",
];

/// Few keys, so that conditions and rows meet.
pub(super) const KEYS: [&str; 8] = ["a", "b", "c", "n", "t", "kind", "topic", "list"];

fn json(rng: &mut StdRng, depth: usize) -> String {
    match rng.random_range(0..if depth == 0 { 5 } else { 9 }) {
        0 => "null".into(),
        1 => if rng.random() { "true" } else { "false" }.into(),
        2 => NUMBERS.choose(rng).expect("numbers").to_string(),
        3 | 4 => serde_json::to_string(TEXTS.choose(rng).expect("texts")).expect("a string"),
        5 | 6 => {
            let items: Vec<String> = (0..rng.random_range(0..4)).map(|_| json(rng, depth - 1)).collect();
            format!("[{}]", items.join(","))
        }
        _ => object(rng, depth),
    }
}

fn object(rng: &mut StdRng, depth: usize) -> String {
    let pairs: Vec<String> = (0..rng.random_range(0..5))
        .map(|_| format!("\"{}\":{}", KEYS.choose(rng).expect("keys"), json(rng, depth - 1)))
        .collect();
    format!("{{{}}}", pairs.join(","))
}

/// So many rows, the same for the same seed.
pub fn rows(seed: u64, count: usize) -> Vec<SampleRow> {
    let mut rng = StdRng::seed_from_u64(seed);
    (0..count).map(|_| row(&mut rng)).collect()
}

fn row(rng: &mut StdRng) -> SampleRow {
    let at = Timestamp::from_microsecond(rng.random_range(0..2_000_000_000_000_000)).expect("a time");
    let earlier = Timestamp::from_second(rng.random_range(0..2_000_000_000)).expect("a time");
    let topics = ["order", "order.paid", "a", "ab", "Order"];
    let objects = ["a", "b", "order:1", "ä", "5"];
    let parse = |text: String| Json::parse("sample", &text).expect("generated JSON is JSON");
    let object_or_any = |rng: &mut StdRng| if rng.random_bool(0.8) { object(rng, 3) } else { json(rng, 3) };
    SampleRow {
        event: Event {
            seq: *[1, 2, 5, 1_000, u64::from(u32::MAX), i64::MAX as u64].choose(rng).expect("numbers"),
            prev: None,
            id: EventId::new(at, rng.random()),
            topic: Topic::stored(topics.choose(rng).expect("topics")),
            object: rng.random_bool(0.8).then(|| ObjectKey::stored(objects.choose(rng).expect("objects"))),
            payload: parse(object_or_any(rng)),
            metadata: parse(object(rng, 2)),
            occurred_at: if rng.random() { at } else { earlier },
            recorded_at: at,
            to: None,
        },
        subscription: Uuid::from_u128(rng.random()),
        group: TEXTS.choose(rng).expect("texts").to_string(),
        params: parse(object_or_any(rng)),
    }
}
