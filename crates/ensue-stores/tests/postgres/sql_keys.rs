//! Subscriptions that are looked up by keys are those that evaluating everybody finds.

use crate::support::Log;
use crate::support::groups::{name, open, subscription};
use crate::support::sql::{log, seqs};
use ensue_core::condition::{Condition, EventView, SubscriptionView};
use ensue_core::positions::{NewSubscription, Positions};
use ensue_core::{Event, EventId, Json, ObjectKey, Timestamp, Topic};
use ensue_stores::postgres::PostgresOptions;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;
use uuid::Uuid;

/// With keys of each kind, with several, with parts that look like keys and are none.
const CONDITIONS: &[&str] = &[
    "true",
    "s.params @> jsonb_build_object('topic', e.topic)",
    "s.params @> jsonb_build_object('topic', e.topic, 'n', e.payload->'n')",
    "s.params @> jsonb_build_object('n', e.payload->'n')",
    "s.params @> jsonb_build_object('n', e.payload->'n') AND e.seq % 2 = 0",
    "s.params @> jsonb_build_object('k', e.payload->>'k') AND e.topic = 'order'",
    "s.params->'k' @> jsonb_build_object('n', e.payload->'n')",
    "jsonb_build_object('topic', e.topic) <@ s.params",
    "s.params @> jsonb_build_object('topic', 'x', 'topic', e.topic)",
    "s.params @> jsonb_build_object('topics', jsonb_build_array(e.topic))",
    "s.params @> jsonb_build_object('topics', ARRAY[e.topic], 'n', e.payload->'n')",
    "s.params @> jsonb_build_object('topics', ARRAY[e.topic, e.object])",
    "s.params @> jsonb_build_object('topics', jsonb_build_array(e.payload->'n'))",
    "s.params @> jsonb_build_object('topics', jsonb_build_array(e.object))",
    "s.params @> jsonb_build_object('topics', ARRAY[e.topic], 'p', hashtext(e.topic) % 2)",
    "s.params->'topics' @> jsonb_build_array(e.payload->'n')",
    "s.params->'topics' @> to_jsonb(e.topic)",
    "s.params->'topics' @> to_jsonb(e.object)",
    "s.params->'topics' ? e.topic",
    "s.params->'topics' ? e.object AND s.params @> jsonb_build_object('n', e.payload->'n')",
    "s.params ? e.topic",
    "(s.params->'topics' ? e.topic) = true",
    "NOT s.params->'topics' ? e.topic",
    "s.params->'topics' ? e.topic OR e.topic = 'x'",
    "(s.params->'topics' ? e.topic OR s.params->>'topic' = e.topic) AND s.params->'n' = e.payload->'n'",
    "(e.seq > 0 AND (s.params->>'topic' = e.topic))",
    "e.topic = s.params->>'topic'",
    "lower(e.object) = s.params->>'topic'",
    "s.params->>'topic' = e.object",
    "s.params->>'n' = e.payload->>'n'",
    "e.payload->'n' = s.params->'n'",
    "e.payload->'k'->'n' = s.params->'k'->'n'",
    "s.params->'k'->>'0' = e.payload->>'k'",
    "e.topic = s.params->>'topic' AND e.payload->>'k' = s.params->>'k'",
    "e.seq > 1 AND s.params->>'topic' = e.topic",
    "(e.topic = 'x') BETWEEN false AND s.params @> jsonb_build_object('topic', e.topic)",
    "CASE WHEN e.seq > 2 AND s.params ? e.topic THEN true ELSE s.params ? 'n' END",
    "s.params @> jsonb_build_object('topic', e.topic) IS NOT TRUE",
    "s.params @> (jsonb_build_object('topic', e.topic) || e.payload)",
    "s.params @> jsonb_build_object('n', (e.payload->>'n')::int)",
    "e.payload @> s.params",
    "s.params @> e.payload",
];

const JSONS: &[&str] = &[
    "{}",
    "[]",
    "null",
    "1",
    "\"order\"",
    "[\"order\",\"x\"]",
    "{\"topic\":\"order\"}",
    "{\"topic\":\"order.paid\",\"n\":1}",
    "{\"topic\":null,\"n\":null}",
    "{\"topic\":[\"order\"],\"n\":[1,2]}",
    "{\"topic\":\"a\",\"k\":\"a\",\"n\":\"1\"}",
    "{\"n\":1}",
    "{\"n\":1.00,\"k\":\"order\"}",
    "{\"n\":\"x\",\"k\":[\"a\"]}",
    "{\"n\":2,\"k\":{\"n\":2}}",
    "{\"n\":[2],\"k\":{\"n\":2.0,\"0\":\"a\"}}",
    "{\"n\":{\"m\":1},\"topic\":\"order\",\"k\":\"a\"}",
    "{\"n\":{\"m\":1,\"o\":2},\"topics\":[\"order\",\"order.paid\",\"order\"]}",
    "{\"topics\":[\"order\",\"a\"],\"n\":1,\"p\":1}",
    "{\"topics\":[1,2.0,null,{\"m\":1},\"x\"],\"n\":2,\"p\":0}",
    "{\"topics\":\"order\",\"p\":-1}",
    "{\"topics\":{\"order\":1,\"a\":null}}",
    "{\"topics\":[],\"order\":1}",
    "{\"topics\":null,\"x\":1}",
];
const TOPICS: &[&str] = &["order", "order.paid", "x", "a"];

fn sql(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn event(rng: &mut StdRng, seq: u64) -> Event {
    let payload = Json::parse("payload", *JSONS.choose(rng).expect("JSON")).unwrap();
    Event {
        seq,
        prev: None,
        id: EventId(Uuid::nil()),
        topic: Topic::stored(TOPICS.choose(rng).expect("topics")),
        object: rng.random_bool(0.7).then(|| ObjectKey::stored(["order", "A", "a"].choose(rng).expect("objects"))),
        payload,
        metadata: Json::empty_object(),
        occurred_at: Timestamp::UNIX_EPOCH,
        recorded_at: Timestamp::UNIX_EPOCH,
        to: None,
    }
}

/// Random subscriptions, made over SQL and in the library, and random events: how many pairs were compared, and those of
/// an event and a subscription on which a reader over SQL and the evaluator differ.
pub async fn differences(log: &Log, seed: u64) -> (usize, Vec<String>) {
    let mut rng = StdRng::seed_from_u64(seed);
    let store = open(&log.url, PostgresOptions::default()).await;
    let mut all = Vec::new();
    for condition in CONDITIONS {
        for _ in 0..12 {
            let params = Json::parse("params", *JSONS.choose(&mut rng).expect("JSON")).unwrap();
            let topic = rng.random_bool(0.2).then(|| Topic::stored(TOPICS.choose(&mut rng).expect("topics")));
            let id = if topic.is_none() && rng.random() {
                log.subscribe(&format!("'g', {}, {}", sql(condition), sql(params.as_str()))).await
            } else {
                let (params, topic) = (params.clone(), topic.clone());
                let new = NewSubscription { params, topic, ..subscription("g", condition) };
                store.subscribe(new).await.unwrap().0.id
            };
            all.push((id, Condition::parse(condition).unwrap(), topic, params));
        }
    }
    let events: Vec<Event> = (1..=60).map(|seq| event(&mut rng, seq)).collect();
    let rows = events.iter().map(|event| {
        let object = event.object.as_ref().map_or("NULL".into(), |object| sql(object.as_str()));
        format!("({}, {}, {object}, {}::jsonb)", event.seq, sql(event.topic.as_str()), sql(event.payload.as_str()))
    });
    log.run(&format!(
        "INSERT INTO LOG.stored_events (seq, topic, object, payload, recorded_at, id_part) \
         SELECT x.*, clock_timestamp(), overlay(gen_random_uuid()::text PLACING '0' FROM 15 FOR 1)::uuid \
         FROM (VALUES {}) x(seq, topic, object, payload) ORDER BY seq",
        rows.collect::<Vec<_>>().join(",")
    ))
    .await;
    let mut wanted = BTreeSet::new();
    let mut at = 0;
    loop {
        let read = log.read(&format!("'g', {at}, 7, peek => true")).await;
        for row in &read {
            row.wanted_by.iter().for_each(|id| assert!(wanted.insert((row.seq as u64, *id)), "{row:?}: twice"));
        }
        match read.last() {
            Some(last) => at = last.next_cursor,
            None => break,
        }
    }
    let (mut compared, mut differences) = (0, Vec::new());
    for event in &events {
        let view = EventView::new(event);
        let mut seen = BTreeSet::new();
        for (id, condition, topic, params) in &all {
            let is_under = topic.as_ref().is_none_or(|topic| event.topic.is_under(topic));
            // What fails may be passed over where the order is open.
            let Ok(holds) = condition.matches(&view, &SubscriptionView::new(*id, "g", params)) else { continue };
            compared += usize::from(seen.insert(*id));
            let over_sql = wanted.contains(&(event.seq, *id));
            if over_sql != (is_under && holds) {
                let (condition, params) = (condition.source(), params.as_str());
                differences.push(format!("{condition} with {params} on {event:?}: over SQL {over_sql}"));
            }
        }
    }
    (compared, differences)
}

#[tokio::test]
async fn what_is_looked_up_by_keys_is_what_evaluating_everybody_finds() {
    for seed in 0..3 {
        let log = log().await;
        let (compared, differences) = differences(&log, seed).await;
        assert!(compared > 10_000, "only {compared} were compared");
        assert!(differences.is_empty(), "{} of {compared}: {}", differences.len(), differences[0]);
        let keyed = "SELECT count(*) FROM LOG.subscription_conditions WHERE keys IS NOT NULL";
        assert!(log.number(keyed).await >= 25, "conditions that have keys");
    }
}

/// Conditions and whether they have keys, and keys that say it all.
#[tokio::test]
async fn the_forms_of_the_page_are_looked_up() {
    let log = log().await;
    for (condition, has_keys, are_exact) in [
        ("s.params @> jsonb_build_object('topic', e.topic)", true, true),
        ("(s.params @> jsonb_build_object('topic', e.payload->>'key', 'n', e.seq))", true, true),
        ("s.params->'topics' ? e.topic", true, true),
        ("s.params @> jsonb_build_object('topics', jsonb_build_array(e.topic))", true, true),
        ("s.params @> jsonb_build_object('topics', ARRAY[e.topic])", true, true),
        ("s.params @> jsonb_build_object('topics', ARRAY[e.topic, e.object])", true, false),
        ("e.topic = s.params->>'topic'", true, true),
        ("e.topic = s.params->>'topic' AND e.seq > 5", true, false),
        ("s.params->'n' = e.payload->'n'", true, false),
        ("s.params->>'it''s' = e.topic", true, true),
        ("s.params->>'n' = 'a'", false, false),
        ("e.topic = s.params->>'topic' OR e.seq > 5", false, false),
        ("NOT s.params ? e.topic", false, false),
        ("e.topic = 'a'", false, false),
        ("true", false, false),
    ] {
        let sql = format!(
            "SELECT k.o_keys IS NOT NULL, k.o_is_exact FROM {0}.condition_keys({0}.condition_tokens($1)) k",
            log.schema
        );
        let row = log.admin.query_one(&sql, &[&condition]).await.unwrap();
        assert_eq!((row.get::<_, bool>(0), row.get::<_, bool>(1)), (has_keys, are_exact), "{condition}");
    }
}

/// A page with more pairs than one look evaluates is cut, and nothing is left out.
#[tokio::test]
async fn events_that_very_many_want_are_read_to_the_end() {
    let log = log().await;
    for condition in ["e.topic = s.params->>'t'", "e.topic = s.params->>'t' AND e.seq > 0"] {
        log.run(&format!(
            "SELECT count(LOG.subscribe('g', {}, jsonb_build_object('t', 't', 'n', n))) FROM generate_series(1, 400) n",
            sql(condition)
        ))
        .await;
    }
    log.put("SELECT n, 't', '{}'::jsonb FROM generate_series(1, 300) n").await;
    let (mut all, mut at) = (Vec::new(), 0);
    loop {
        let read = log.read(&format!("'g', {at}, 1000, peek => true")).await;
        let Some(last) = read.last() else { break };
        at = last.next_cursor;
        assert!(read.iter().all(|row| row.wanted_by.len() == 800), "each wants each");
        all.extend(seqs(&read));
    }
    assert_eq!(all, (1..=300).collect::<Vec<i64>>());
}

/// A subscription is deleted with its keys, and a condition with its last subscription.
#[tokio::test]
async fn nothing_is_kept_of_those_who_have_gone() {
    let log = log().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    let ids = [r#"{"topics": ["a", "b"]}"#, r#"{"topics": 1}"#, "{}"];
    let mut made = Vec::new();
    for params in ids {
        made.push(log.subscribe(&format!("'g', 's.params->''topics'' ? e.topic', '{params}'")).await);
    }
    made.push(log.subscribe("'g'").await);
    assert_eq!(log.number("SELECT count(*) FROM LOG.subscription_keys").await, 5);
    assert_eq!(log.number("SELECT count(*) FROM LOG.subscription_conditions").await, 2);
    for id in made {
        assert!(store.unsubscribe(&name("g"), id).await.unwrap());
    }
    assert_eq!(log.number("SELECT count(*) FROM LOG.subscription_keys").await, 0);
    assert_eq!(log.number("SELECT count(*) FROM LOG.subscription_conditions").await, 0);
}

/// Many in one transaction are one version of the group, and are counted and told of as others are.
#[tokio::test]
async fn many_who_subscribe_in_one_transaction_are_one_change() {
    let log = log().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    log.subscribe("'g', 'e.seq > 0'").await;
    let before = store.group(&name("g")).await.unwrap().unwrap();
    log.run("SELECT count(LOG.subscribe('g', 'e.seq > s.id::text::int', to_jsonb(n))) FROM generate_series(1, 500) n")
        .await;
    let group = store.group(&name("g")).await.unwrap().unwrap();
    assert_eq!((group.version, group.subscriptions), (before.version + 1, 501));
    let changes = store.subscription_changes(&name("g"), before.version, 1_000).await.unwrap().unwrap();
    assert_eq!((changes.version, changes.there.len()), (group.version, 500));
    let id = changes.there[0].id;
    assert!(store.unsubscribe(&name("g"), id).await.unwrap());
    assert_eq!(store.group(&name("g")).await.unwrap().unwrap().subscriptions, 500);
    assert_eq!(log.number("SELECT count(*) FROM LOG.subscription_counts").await, 0);
}
