//! The index gives the answer of evaluating every subscription, failures included.

use ensue_core::condition::{Condition, EventView, SubscriptionView};
use ensue_core::matching::{Found, Index, Subscription, Want};
use ensue_core::{Event, EventId, Json, ObjectKey, Timestamp, Topic};
use proptest::prelude::*;
use std::collections::BTreeSet;
use std::sync::Arc;
use uuid::Uuid;

/// Conditions of every kind: with keys, with anchors, with parts that fail, with none of them.
const CONDITIONS: [&str; 43] = [
    "true",
    "NULL",
    "e.topic = 'order.paid'",
    "e.topic IN ('order', 'order.paid')",
    "e.topic = s.params->>'topic'",
    "s.params->>'topic' = e.topic AND (e.payload->>'n')::numeric > 1",
    "(e.payload->>'n')::int > 1 AND e.topic = 'order'",
    "(e.payload->>'n')::int > (s.params->>'n')::int",
    "s.params @> jsonb_build_object('topic', e.topic)",
    "s.params @> jsonb_build_object('topic', e.topic, 'object', e.object)",
    "s.params @> jsonb_build_object('n', e.payload->'n')",
    "s.params @> jsonb_build_object('topic', e.topic, 'n', e.payload->'n')",
    "s.params @> jsonb_build_object('n', e.seq)",
    "s.params @> jsonb_build_object('topic', 'x', 'topic', e.topic)",
    "s.params @> jsonb_build_object('topic', e.topic, 'n', (e.payload->>'n')::int)",
    "e.payload @> s.params",
    "e.payload @> s.params AND e.seq % 2 = 0",
    "e.payload @> (s.params->'k')",
    "e.payload->'n' = s.params->'n'",
    "e.payload->>'k' = 'a' AND s.params ? 'topic'",
    "e.payload->>'k' = 'a' OR e.topic = s.params->>'topic'",
    "lower(e.object) = lower(s.params->>'object') AND e.object IS NOT NULL",
    "s.group_id = e.topic",
    "e.payload->'k' = '\"a\"' AND 10 / (e.seq - 2) > 0",
    "s.params->>'topic' IS NULL",
    "s.params->'topics' ? e.topic",
    "s.params ? e.topic AND (e.payload->>'n')::int > 0",
    "s.params->'topics' ? e.object",
    "s.params @> jsonb_build_object('topics', ARRAY[e.topic])",
    "jsonb_build_object('topics', jsonb_build_array(e.topic)) <@ s.params",
    "s.params @> jsonb_build_object('topics', ARRAY[e.topic, e.object])",
    "s.params @> jsonb_build_object('topics', jsonb_build_array(e.topic, e.payload))",
    "s.params @> jsonb_build_object('topics', jsonb_build_array(e.payload->'n'))",
    "s.params @> jsonb_build_object('topics', ARRAY[e.object], 'n', e.payload->'n')",
    "s.params @> jsonb_build_object('topics', ARRAY[]::text[], 'n', e.payload->'k')",
    "s.params @> jsonb_build_object('topics', ARRAY[e.topic], 'partition', abs(hashtext(e.topic) % 2))",
    "s.params @> jsonb_build_object('topics', ARRAY[e.topic], 'partition', hashtext(e.topic) % 2)",
    "s.params->'topics' @> to_jsonb(e.topic)",
    "s.params->'topics' @> jsonb_build_array(e.seq) OR e.topic = 'x'",
    "s.params->'topics' @> jsonb_build_array(e.seq)",
    "s.params->'topics' @> to_jsonb(ARRAY[e.topic])",
    "s.params->'topics' ? e.topic AND s.params->'topics' ? e.object AND s.params->'n' = e.payload->'n'",
    "s.params @> e.payload",
];

const JSONS: [&str; 33] = [
    "{}",
    "[]",
    "null",
    "1",
    "{\"topic\":\"order\"}",
    "{\"topic\":\"order.paid\",\"n\":1}",
    "{\"topic\":null}",
    "{\"topic\":[\"order\"]}",
    "{\"n\":1}",
    "{\"n\":1.00}",
    "{\"n\":\"1\"}",
    "{\"n\":\"x\"}",
    "{\"n\":2,\"k\":\"a\"}",
    "{\"k\":\"a\"}",
    "{\"k\":{\"n\":2}}",
    "{\"k\":{\"n\":2,\"k\":[1]}}",
    "{\"object\":\"A\"}",
    "{\"object\":\"a\",\"topic\":\"order\"}",
    "{\"object\":null,\"topic\":\"order\"}",
    "{\"n\":[1,2]}",
    "{\"n\":2}",
    "{\"n\":\"3\"}",
    "{\"topics\":[\"order\",\"order.paid\",\"order\",\"a\"]}",
    "{\"topics\":[\"order\",\"A\"],\"n\":1,\"partition\":1}",
    "{\"topics\":[\"order\",{\"n\":1},1,2,2.0],\"n\":{\"n\":2,\"m\":3},\"partition\":0}",
    "{\"topics\":\"order\"}",
    "{\"topics\":{\"order\":1,\"a\":null}}",
    "{\"topics\":[]}",
    "{\"topics\":[null,[\"order\"],true],\"partition\":-1}",
    "[\"order\",\"order.paid\"]",
    "\"order\"",
    "{\"order\":1,\"order.paid\":{}}",
    "{\"topics\":[1,\"x\"],\"k\":[]}",
];
const TOPICS: [&str; 5] = ["order", "order.paid", "orders", "order.paid.late", "x"];

fn json(index: usize) -> Json {
    Json::parse("json", JSONS[index]).unwrap()
}

fn event(seq: u64, topic: usize, object: Option<&str>, payload: usize) -> Event {
    Event {
        seq,
        prev: None,
        id: EventId(Uuid::from_u128(u128::from(seq))),
        topic: Topic::stored(TOPICS[topic]),
        object: object.map(ObjectKey::stored),
        payload: json(payload),
        metadata: Json::empty_object(),
        occurred_at: Timestamp::UNIX_EPOCH,
        recorded_at: Timestamp::UNIX_EPOCH,
        to: None,
    }
}

/// What evaluating every subscription says: the ids of those who match, and of those whose condition fails.
fn one_by_one(all: &[(Want, Subscription)], event: &Event) -> (BTreeSet<Uuid>, BTreeSet<Uuid>) {
    let (mut matched, mut failed) = (BTreeSet::new(), BTreeSet::new());
    let view = EventView::new(event);
    for (want, subscription) in all {
        if !want.topic.as_ref().is_none_or(|topic| event.topic.is_under(topic)) {
            continue;
        }
        let its = SubscriptionView::new(subscription.id, &subscription.group, &subscription.params);
        match want.condition.matches(&view, &its) {
            Ok(true) => matched.insert(subscription.id),
            Ok(false) => false,
            Err(_) => failed.insert(subscription.id),
        };
    }
    (matched, failed)
}

fn by_index(index: &Index, event: &Event) -> (BTreeSet<Uuid>, BTreeSet<Uuid>) {
    let mut found = Found::default();
    index.matches(&EventView::new(event), &mut found);
    let ids = |all: &mut dyn Iterator<Item = Uuid>, count: usize| {
        let ids: BTreeSet<Uuid> = all.collect();
        assert_eq!(ids.len(), count, "nobody is named twice");
        ids
    };
    (
        ids(&mut found.matched.iter().map(|subscription| subscription.id), found.matched.len()),
        ids(&mut found.failed.iter().map(|(subscription, _)| subscription.id), found.failed.len()),
    )
}

fn subscription(
    number: usize,
    (condition, topic, params, group): (usize, usize, usize, usize),
) -> (Want, Subscription) {
    let want = Want {
        topic: (topic < 3).then(|| Topic::stored(TOPICS[topic])),
        condition: Arc::new(Condition::parse(CONDITIONS[condition]).unwrap()),
    };
    let group = TOPICS[group].into();
    (want, Subscription { id: Uuid::from_u128(number as u128), group, params: json(params) })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]
    #[test]
    fn the_index_answers_as_evaluating_everybody_does(
        subscriptions in prop::collection::vec((0..CONDITIONS.len(), 0..8_usize, 0..JSONS.len(), 0..TOPICS.len()), 0..60),
        removed in prop::collection::vec(0..60_usize, 0..20),
        events in prop::collection::vec(
            (1..6_u64, 0..TOPICS.len(), prop::option::of(prop::sample::select(vec!["a", "A", "b"])), 0..JSONS.len()),
            1..12,
        ),
    ) {
        let mut all: Vec<_> = subscriptions.into_iter().enumerate().map(|(n, one)| subscription(n, one)).collect();
        let mut index = Index::new();
        for (want, one) in &all {
            index.add(want, one.clone());
        }
        for number in removed {
            let id = Uuid::from_u128(number as u128);
            let was_there = all.iter().any(|(_, one)| one.id == id);
            prop_assert_eq!(index.remove(id).is_some(), was_there);
            all.retain(|(_, one)| one.id != id);
        }
        prop_assert_eq!(index.len(), all.len());
        for (seq, topic, object, payload) in events {
            let event = event(seq, topic, object, payload);
            prop_assert_eq!(by_index(&index, &event), one_by_one(&all, &event), "{:?}", event);
        }
    }
}

#[test]
fn a_condition_that_fails_is_reported_with_its_subscription_and_concerns_nobody_else() {
    // H24: one poison condition must not keep an event from the others.
    let all = [subscription(1, (6, 9, 0, 0)), subscription(2, (0, 9, 0, 0)), subscription(3, (4, 9, 4, 0))];
    let mut index = Index::new();
    for (want, one) in &all {
        index.add(want, one.clone());
    }
    let (matched, failed) = by_index(&index, &event(1, 0, None, 11));
    assert_eq!(matched, [2, 3].map(Uuid::from_u128).into());
    assert_eq!(failed, [1].map(Uuid::from_u128).into());
}

#[test]
fn an_event_that_is_sent_to_one_reaches_that_one_alone() {
    let all = [subscription(1, (1, 9, 0, 0)), subscription(2, (0, 9, 0, 0))];
    let mut index = Index::new();
    for (want, one) in &all {
        index.add(want, one.clone());
    }
    let mut event = event(1, 0, None, 0);
    event.to = Some(Uuid::from_u128(1));
    assert_eq!(by_index(&index, &event).0, [1].map(Uuid::from_u128).into());
    event.to = Some(Uuid::from_u128(9));
    assert_eq!(by_index(&index, &event).0, BTreeSet::new());
}

#[test]
fn a_subscription_added_again_is_replaced() {
    let mut index = Index::new();
    let (want, one) = subscription(1, (4, 9, 4, 0));
    index.add(&want, one.clone());
    index.add(&want, Subscription { params: json(5), ..one });
    assert_eq!(index.len(), 1);
    assert_eq!(by_index(&index, &event(1, 0, None, 0)).0, BTreeSet::new());
    assert_eq!(by_index(&index, &event(1, 1, None, 0)).0, [1].map(Uuid::from_u128).into());
}

fn indexed(condition: &str, params: impl Iterator<Item = String>) -> Index {
    let want = Want { topic: None, condition: Arc::new(Condition::parse(condition).unwrap()) };
    let mut index = Index::new();
    for (number, params) in params.enumerate() {
        let params = Json::parse("params", params).unwrap();
        index.add(&want, Subscription { id: Uuid::from_u128(number as u128), group: "g".into(), params });
    }
    index
}

/// Ten times as many subscribers cost an event no more steps.
#[test]
fn subscribers_to_several_topics_cost_one_lookup() {
    for condition in [
        "s.params->'topics' ? e.topic",
        "s.params @> jsonb_build_object('topics', ARRAY[e.topic])",
        "s.params @> jsonb_build_object('topics', jsonb_build_array(e.topic))",
        "s.params @> jsonb_build_object('topics', ARRAY[e.topic], 'partition', hashtext(e.topic) % 1)",
        "s.params->'topics' @> to_jsonb(e.topic)",
        "s.params @> jsonb_build_object('one', to_jsonb(e.topic))",
    ] {
        let steps = [200, 2_000].map(|count| {
            let params = |n: usize| {
                format!(r#"{{"topics":["order","t{n}","t{}"],"one":"t{n}","partition":0}}"#, (n + 1) % count)
            };
            let index = indexed(condition, (0..count).map(params));
            let event = Event { topic: Topic::stored("t7"), ..event(1, 0, None, 0) };
            let (view, mut found) = (EventView::new(&event), Found::default());
            index.matches(&view, &mut found);
            assert_eq!(found.matched.len(), if condition.contains("'one'") { 1 } else { 2 }, "{condition}");
            view.steps()
        });
        assert_eq!(steps[0], steps[1], "{condition}");
    }
}

/// A list that is long, or whose keys are, is evaluated, and keeps nothing in the index.
#[test]
fn long_list_is_evaluated_and_found() {
    let long = (0..5_000).map(|n| format!("\"t{n}\"")).collect::<Vec<_>>().join(",");
    let wide = format!(r#"{{"topics":["t1","t2","t7"],"object":"{}"}}"#, "a".repeat(60_000));
    let condition = "s.params->'topics' ? e.topic";
    let index = indexed(condition, [format!(r#"{{"topics":[{long}]}}"#)].into_iter());
    let event = Event {
        topic: Topic::stored("t7"),
        object: Some(ObjectKey::stored(&"a".repeat(60_000))),
        ..event(1, 0, None, 0)
    };
    assert_eq!(by_index(&index, &event).0.len(), 1);
    let both = format!("{condition} AND e.object = s.params->>'object'");
    let index = indexed(&both, [wide].into_iter());
    assert_eq!(by_index(&index, &event).0.len(), 1);
}
