//! A handler gets what it is bound to, as what it asks for, and nothing else.

use crate::support::{LONG, Seen, event};
use ensue::positions::{LaneQuery, LaneState};
use ensue::{Context, Ensue, Event, Fact, Json, NewEvent, Start, Subscription};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(serde::Serialize, serde::Deserialize, Fact)]
#[fact(type = "record", action = "published")]
struct RecordPublished {
    recid: String,
}

#[tokio::test]
async fn a_handler_gets_what_it_is_bound_to_and_nothing_else() {
    let bus = Ensue::memory().await.unwrap();
    let seen = Seen::default();
    let given = seen.clone();
    bus.on("record")
        .named("index")
        .handle(move |event: Event, _cx: Context| {
            given.push(&event);
            async { Ok(()) }
        })
        .unwrap();
    let running = bus.start().await.unwrap();
    for topic in ["record.published", "records.published", "record", "other"] {
        bus.publish(NewEvent::new(topic)).await.unwrap();
    }
    bus.drain().await.unwrap();
    assert_eq!(seen.seqs(), [1, 3]);
    running.shutdown(LONG).await.unwrap();
}

#[tokio::test]
async fn a_new_handler_begins_now_unless_told_and_goes_on_where_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.db");
    let path = path.to_str().unwrap();
    let seen = (Seen::default(), Seen::default());
    for round in 0..3_u64 {
        let bus = Ensue::open(path).await.unwrap();
        if round == 0 {
            bus.publish(event("a", "o")).await.unwrap();
        }
        for (key, start, seen) in [("now", Start::Now, &seen.0), ("all", Start::Beginning, &seen.1)] {
            let given = seen.clone();
            let handler = move |event: Event, _cx: Context| {
                given.push(&event);
                async { Ok(()) }
            };
            bus.on("a").named(key).start(start).handle(handler).unwrap();
        }
        let running = bus.start().await.unwrap();
        bus.publish(event("a", "o")).await.unwrap();
        bus.drain().await.unwrap();
        running.shutdown(LONG).await.unwrap();
        bus.close().await;
    }
    assert_eq!(seen.0.seqs(), [2, 3, 4]);
    assert_eq!(seen.1.seqs(), [1, 2, 3, 4]);
}

/// A payload that does not decode fails at once and for good: no other attempt would help.
#[tokio::test]
async fn a_payload_that_does_not_decode_is_held_after_one_attempt() {
    let bus = Ensue::memory().await.unwrap();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let given = seen.clone();
    bus.on("record.published")
        .named("index")
        .handle(move |event: Event<RecordPublished>, _cx: Context| {
            given.lock().unwrap().push(event.payload.recid);
            async { Ok(()) }
        })
        .unwrap();
    let running = bus.start().await.unwrap();
    bus.publish(NewEvent::fact(&RecordPublished { recid: "7".into() }).object("record:7")).await.unwrap();
    bus.publish(event("record.published", "record:8").payload(&12)).await.unwrap();
    bus.drain().await.unwrap();
    assert_eq!(*seen.lock().unwrap(), ["7"]);
    let held = bus.store().lanes(LaneQuery::Stuck { group: None }, 10).await.unwrap();
    assert_eq!(held.len(), 1);
    assert_eq!((held[0].lane.attempts, held[0].lane.position, held[0].lane.state), (1, 2, LaneState::Held));
    assert!(held[0].lane.error.as_ref().unwrap().contains("record.published"), "{:?}", held[0].lane.error);
    running.shutdown(LONG).await.unwrap();
}

#[tokio::test]
async fn a_condition_chooses_events_and_one_that_fails_on_an_event_does_not_stop_the_handler() {
    let bus = Ensue::memory().await.unwrap();
    let seen = Seen::default();
    let given = seen.clone();
    bus.on("order")
        .named("big")
        .when(
            "(e.payload->>'total')::numeric > (s.params->>'over')::numeric",
            Json::parse("params", "{\"over\":100}").unwrap(),
        )
        .handle(move |event: Event, _cx: Context| {
            given.push(&event);
            async { Ok(()) }
        })
        .unwrap();
    let running = bus.start().await.unwrap();
    for total in ["99", "101", "\"many\"", "200"] {
        bus.publish(NewEvent::new("order.paid").payload_json(format!("{{\"total\":{total}}}"))).await.unwrap();
    }
    bus.drain().await.unwrap();
    assert_eq!(seen.seqs(), [2, 4]);
    running.shutdown(LONG).await.unwrap();
}

#[tokio::test]
async fn names_that_collide_and_settings_that_cannot_be_meant_are_refused() {
    let bus = Ensue::memory().await.unwrap();
    let handler = |_event: Event, _cx: Context| async { Ok(()) };
    bus.on("a").named("h").handle(handler).unwrap();
    let refusals = [
        bus.on("a").named("h").handle(handler).unwrap_err().to_string(),
        bus.on("a").handle(handler).unwrap_err().to_string(),
        bus.on("a..b").named("h").handle(handler).unwrap_err().to_string(),
        bus.on("a").named("").handle(handler).unwrap_err().to_string(),
        bus.on("a").named("c").concurrency(0).handle(handler).unwrap_err().to_string(),
        bus.on("a").named("t").timeout(Duration::ZERO).handle(handler).unwrap_err().to_string(),
        bus.on("a").named("w").when("e.tpoic = 'x'", Json::null()).handle(handler).unwrap_err().to_string(),
        bus.on("a").handle_registered("unknown").unwrap_err().to_string(),
    ];
    let expected = ["a.h", "named", "`on`", "name", "concurrency", "timeout", "e.tpoic", "unknown"];
    for (refusal, expected) in refusals.iter().zip(expected) {
        assert!(refusal.contains(expected), "{refusal}");
    }
    let running = bus.start().await.unwrap();
    assert!(bus.on("a").named("late").handle(handler).unwrap_err().to_string().contains("before"));
    running.shutdown(LONG).await.unwrap();
}

/// It would fail at every event that it is given.
#[tokio::test]
async fn a_handler_of_a_fact_is_bound_to_the_topic_of_the_fact() {
    let bus = Ensue::memory().await.unwrap();
    let index = async |_: Event<RecordPublished>, _: Context| Ok(());
    let batch = async |_: Vec<Event<RecordPublished>>, _: Context| Ok(());
    bus.register("acme.index", index).unwrap();
    for on in ["record.deleted", "order.placed", "record", "recor"] {
        for refused in [
            bus.on(on).named("a").handle(index),
            bus.on(on).named("a").handle_batch(batch),
            bus.on(on).handle_registered("acme.index"),
            bus.on(Subscription::topic(on)).named("a").handle(index),
        ] {
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains(on) && refused.contains("`record.published`"), "{refused}");
        }
    }
    bus.on("record.published").named("same").handle(index).unwrap();
    bus.on("record.published.again").named("below").handle(index).unwrap();
    bus.on("record").named("any").handle(async |_: Event<Json>, _: Context| Ok(())).unwrap();
    let published = "e.topic = 'record.published'";
    bus.on("record").named("chosen").when(published, Json::empty_object()).handle(index).unwrap();
    bus.on(Subscription::when(published, Json::empty_object())).named("all").handle(index).unwrap();
}

#[tokio::test]
async fn a_drain_of_a_bus_that_does_not_run_is_refused() {
    let bus = Ensue::memory().await.unwrap();
    assert!(bus.drain().await.unwrap_err().to_string().contains("start()"));
    let running = bus.start().await.unwrap();
    bus.drain().await.unwrap();
    running.shutdown(LONG).await.unwrap();
    assert!(bus.drain().await.unwrap_err().to_string().contains("start()"));
}

/// H24: a condition that has no answer for an event keeps it from its own handler, and from no other.
#[tokio::test]
async fn a_condition_that_fails_keeps_an_event_from_nobody_else() {
    let bus = Ensue::memory().await.unwrap();
    let (picky, other) = (Seen::default(), Seen::default());
    let bind = |name: &str, on: Subscription, seen: &Seen| {
        let seen = seen.clone();
        let handler = move |event: Event, _cx: Context| {
            seen.push(&event);
            async { Ok(()) }
        };
        bus.on(on).named(name).handle(handler).unwrap();
    };
    let condition = "(e.payload->>'n')::int > 0";
    bind("picky", Subscription::when(condition, Json::empty_object()), &picky);
    bind("other", Subscription::topic("a"), &other);
    let running = bus.start().await.unwrap();
    for n in ["1", "\"none\"", "2"] {
        bus.publish(event("a", "o").payload_json(format!("{{\"n\":{n}}}"))).await.unwrap();
        // One by one: each is matched for both at once, and not read by each handler for itself.
        bus.drain().await.unwrap();
    }
    assert_eq!((picky.seqs(), other.seqs()), (vec![1, 3], vec![1, 2, 3]));
    running.shutdown(LONG).await.unwrap();
}
