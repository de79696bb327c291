//! Handlers: everything that should follow runs, in order for each object.

use ensue::positions::{Ask, LaneKey, LaneQuery, LaneState};
use ensue::testing::{ManualClock, memory_at};
use ensue::{
    Context, Ensue, Event, Fact, GroupName, HandlerError, Json, NewEvent, ObjectKey, OnExhausted, Outcome, Retry, Seq,
    Start, TransactionError,
};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};

const LONG: Duration = Duration::from_secs(30);

/// What handlers were given, in the order in which they were.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<(String, Seq)>>>);

impl Seen {
    fn push(&self, event: &Event) {
        let object = event.object.as_ref().map_or(String::new(), |object| object.to_string());
        self.0.lock().unwrap().push((object, event.seq));
    }

    fn all(&self) -> Vec<(String, Seq)> {
        self.0.lock().unwrap().clone()
    }

    fn of(&self, object: &str) -> Vec<Seq> {
        self.all().into_iter().filter(|(seen, _)| seen == object).map(|(_, seq)| seq).collect()
    }

    fn seqs(&self) -> Vec<Seq> {
        self.all().into_iter().map(|(_, seq)| seq).collect()
    }
}

fn event(topic: &str, object: &str) -> NewEvent {
    NewEvent::new(topic).object(object)
}

fn name(text: &str) -> GroupName {
    GroupName::parse("name", text).unwrap()
}

fn lane(object: &str) -> LaneKey {
    LaneKey::Object(ObjectKey::parse(object).unwrap())
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

#[derive(serde::Serialize, serde::Deserialize)]
struct RecordPublished {
    recid: String,
}

impl Fact for RecordPublished {
    const TYPE: &str = "record";
    const ACTION: &str = "published";
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

/// H5: while event n of an object is retried, n+1 of that object does not start; other objects do.
#[tokio::test]
async fn a_retry_keeps_the_order_of_its_object_and_holds_nobody_else() {
    let clock = ManualClock::at_noon();
    let bus = memory_at(&clock).await.unwrap();
    let (seen, failures) = (Seen::default(), Arc::new(AtomicUsize::new(2)));
    let (given, fails) = (seen.clone(), failures.clone());
    bus.on("a")
        .named("h")
        .retry(Retry::delays([Duration::from_secs(10), Duration::from_secs(10)]))
        .handle(move |event: Event, _cx: Context| {
            given.push(&event);
            let is_bad =
                event.seq == 1 && fails.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok();
            async move { if is_bad { Err(HandlerError::failed("not yet")) } else { Ok(()) } }
        })
        .unwrap();
    let running = bus.start().await.unwrap();
    for object in ["x", "x", "y", "x", "y"] {
        bus.publish(event("a", object)).await.unwrap();
    }
    bus.drain().await.unwrap();
    assert_eq!((seen.of("x"), seen.of("y")), (vec![1], vec![3, 5]));
    clock.advance(Duration::from_secs(10));
    bus.drain().await.unwrap();
    assert_eq!(seen.of("x"), [1, 1]);
    clock.advance(Duration::from_secs(10));
    bus.drain().await.unwrap();
    assert_eq!(seen.of("x"), [1, 1, 1, 2, 4]);
    // The lane has caught up: the stream serves it again, and no row is left.
    bus.publish(event("a", "x")).await.unwrap();
    bus.drain().await.unwrap();
    assert_eq!(seen.of("x"), [1, 1, 1, 2, 4, 6]);
    running.shutdown(LONG).await.unwrap();
    let group = bus.store().group(&name("a.h")).await.unwrap().unwrap();
    assert_eq!((group.lanes, group.cursor()), (0, 6));
}

/// H12: exhausted retries are visible with their last error; H4: what was skipped does not hold its successors.
#[tokio::test]
async fn what_is_exhausted_is_held_skipped_or_given_up_with_its_object() {
    for (policy, first, after_skip) in [
        (OnExhausted::Hold, vec![1], vec![1, 2, 3]),
        (OnExhausted::Skip, vec![1, 2, 3], vec![1, 2, 3]),
        (OnExhausted::DeadLetterObject, vec![1], vec![1, 2, 3]),
    ] {
        let bus = Ensue::memory().await.unwrap();
        let seen = Seen::default();
        let given = seen.clone();
        bus.on("a")
            .named("h")
            .retry(Retry::never())
            .on_exhausted(policy)
            .handle(move |event: Event, cx: Context| {
                given.push(&event);
                cx.log("tried");
                async move { if event.seq == 1 { Err(HandlerError::failed("poison")) } else { Ok(()) } }
            })
            .unwrap();
        let running = bus.start().await.unwrap();
        for _ in 0..3 {
            bus.publish(event("a", "x")).await.unwrap();
        }
        bus.drain().await.unwrap();
        assert_eq!(seen.seqs(), first, "{policy:?}");
        let deliveries = bus.store().deliveries(1).await.unwrap();
        assert_eq!(deliveries.len(), 1, "{policy:?}");
        assert_eq!(deliveries[0].error.as_deref(), Some("poison"));
        assert_eq!(bus.store().lines(&name("a.h"), 1, 0, 10).await.unwrap()[0].message, "tried");
        let stuck = bus.store().lanes(LaneQuery::Stuck { group: None }, 10).await.unwrap();
        assert_eq!(stuck.len(), usize::from(policy != OnExhausted::Skip), "{policy:?}");
        bus.ask_lane(&name("a.h"), &lane("x"), Ask::Skip).await.unwrap();
        bus.drain().await.unwrap();
        assert_eq!(seen.seqs(), after_skip, "{policy:?}");
        running.shutdown(LONG).await.unwrap();
    }
}

#[tokio::test]
async fn a_held_event_that_is_retried_runs_next_and_is_marked() {
    let bus = Ensue::memory().await.unwrap();
    let seen = Seen::default();
    let redriven = Arc::new(Mutex::new(Vec::new()));
    let (given, marks) = (seen.clone(), redriven.clone());
    bus.on("a")
        .named("h")
        .retry(Retry::never())
        .handle(move |event: Event, cx: Context| {
            given.push(&event);
            marks.lock().unwrap().push((cx.redriven(), cx.attempt()));
            let is_bad = event.seq == 1 && !cx.redriven();
            async move { if is_bad { Err(HandlerError::failed("poison")) } else { Ok(()) } }
        })
        .unwrap();
    let running = bus.start().await.unwrap();
    for _ in 0..2 {
        bus.publish(event("a", "x")).await.unwrap();
    }
    bus.drain().await.unwrap();
    bus.ask_lane(&name("a.h"), &lane("x"), Ask::Retry).await.unwrap();
    bus.drain().await.unwrap();
    assert_eq!(seen.seqs(), [1, 1, 2]);
    assert_eq!(*redriven.lock().unwrap(), [(false, 1), (true, 1), (false, 1)]);
    running.shutdown(LONG).await.unwrap();
}

#[tokio::test]
async fn panics_and_timeouts_are_failures_and_snoozes_are_not() {
    let clock = ManualClock::at_noon();
    let bus = memory_at(&clock).await.unwrap();
    let attempts = Arc::new(Mutex::new(HashMap::<String, Vec<u32>>::new()));
    let seen = attempts.clone();
    bus.on("a")
        .named("h")
        .timeout(Duration::from_millis(20))
        .retry(Retry::delays([Duration::from_secs(1); 3]))
        .handle(move |event: Event, cx: Context| {
            let object = event.object.clone().unwrap().to_string();
            let count = {
                let mut seen = seen.lock().unwrap();
                let of = seen.entry(object.clone()).or_default();
                of.push(cx.attempt());
                of.len()
            };
            async move {
                match (object.as_str(), count) {
                    ("panics", 1) => panic!("ouch"),
                    ("hangs", 1) => std::future::pending().await,
                    ("snoozes", 1) => Ok(Outcome::Snooze(Duration::from_secs(1))),
                    ("asks", 1) => Ok(Outcome::Retry(Duration::from_secs(1))),
                    ("cancels", 1) => Ok(Outcome::Cancel("not ours".into())),
                    _ => Ok(Outcome::Done),
                }
            }
        })
        .unwrap();
    let running = bus.start().await.unwrap();
    for object in ["panics", "hangs", "snoozes", "asks", "cancels"] {
        bus.publish(event("a", object)).await.unwrap();
    }
    bus.drain().await.unwrap();
    clock.advance(Duration::from_secs(1));
    bus.drain().await.unwrap();
    let attempts = attempts.lock().unwrap().clone();
    assert_eq!(attempts["panics"], [1, 2]);
    assert_eq!(attempts["hangs"], [1, 2]);
    assert_eq!(attempts["snoozes"], [1, 1]);
    assert_eq!(attempts["asks"], [1, 2]);
    assert_eq!(attempts["cancels"], [1]);
    assert!(bus.store().deliveries(1).await.unwrap()[0].state.as_str() == "done");
    assert_eq!(bus.store().deliveries(5).await.unwrap()[0].error.as_deref(), Some("not ours"));
    running.shutdown(LONG).await.unwrap();
}

/// What a handler publishes commits with the note that it is done: however it fails, there is one of each.
#[tokio::test]
async fn what_a_handler_publishes_commits_with_its_settle() {
    let clock = ManualClock::at_noon();
    let bus = memory_at(&clock).await.unwrap();
    let seen = Seen::default();
    let given = seen.clone();
    bus.on("order.paid")
        .named("ship")
        .retry(Retry::delays([Duration::from_secs(1)]))
        .handle(|event: Event, cx: Context| async move {
            cx.publish(NewEvent::new("order.shipped").object("shipments").payload(&event.seq))?;
            if cx.attempt() == 1 && event.seq % 2 == 0 { Err(HandlerError::failed("no")) } else { Ok(()) }
        })
        .unwrap();
    bus.on("order.shipped")
        .named("note")
        .handle(move |event: Event, _cx: Context| {
            given.push(&event);
            async { Ok(()) }
        })
        .unwrap();
    let running = bus.start().await.unwrap();
    let batch = (0..10).map(|n| event("order.paid", &format!("order:{n}"))).collect();
    bus.publish_all(batch).await.unwrap();
    bus.drain().await.unwrap();
    assert_eq!(seen.seqs(), [11, 12, 13, 14, 15]);
    clock.advance(Duration::from_secs(1));
    bus.drain().await.unwrap();
    assert_eq!(seen.seqs(), (11..=20).collect::<Vec<_>>());
    running.shutdown(LONG).await.unwrap();
    let group = bus.store().group(&name("order.paid.ship")).await.unwrap().unwrap();
    assert_eq!((group.cursor(), group.lanes), (20, 0));
}

#[tokio::test]
async fn a_publish_that_is_refused_fails_its_delivery_alone() {
    let bus = Ensue::memory().await.unwrap();
    bus.publish(NewEvent::new("taken").key("k").payload(&1)).await.unwrap();
    bus.on("a")
        .named("h")
        .handle(|event: Event, cx: Context| async move {
            let key = if event.seq == 3 { "k".to_owned() } else { format!("k{}", event.seq) };
            cx.publish(NewEvent::new("b").key(key))?;
            Ok(())
        })
        .unwrap();
    let running = bus.start().await.unwrap();
    bus.publish_all((0..4).map(|n| event("a", &format!("o{n}"))).collect()).await.unwrap();
    bus.drain().await.unwrap();
    let stuck = bus.store().lanes(LaneQuery::Stuck { group: None }, 10).await.unwrap();
    assert_eq!(stuck.len(), 1);
    assert_eq!(stuck[0].lane.position, 3);
    assert!(stuck[0].lane.error.as_ref().unwrap().contains("refused"));
    assert_eq!(bus.store().bounds().await.unwrap().last, 8);
    running.shutdown(LONG).await.unwrap();
}

/// Effects in the same file happen once, also when the attempt fails after its commit.
#[tokio::test]
async fn done_in_settles_in_the_handlers_own_transaction() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.db");
    let bus = Ensue::open(path.to_str().unwrap()).await.unwrap();
    bus.transaction(|tx| Ok(tx.execute_batch("CREATE TABLE effects (seq INTEGER)")?)).await.unwrap();
    let (own, gate) = (bus.clone(), Arc::new(Semaphore::new(0)));
    let gated = gate.clone();
    bus.on("a")
        .named("h")
        .retry(Retry::never())
        .handle(move |event: Event, cx: Context| {
            let (bus, gate) = (own.clone(), gated.clone());
            async move {
                if event.object.as_ref().unwrap().as_str() == "slow" {
                    gate.acquire().await?.forget();
                    return Ok(());
                }
                let settle = cx.clone();
                cx.publish(NewEvent::new("b"))?;
                bus.transaction(move |tx| {
                    tx.execute("INSERT INTO effects VALUES (?1)", [event.seq as i64])?;
                    if event.seq == 3 {
                        return Err(TransactionError::rollback("no"));
                    }
                    settle.done_in(tx)
                })
                .await
                .map_err(HandlerError::failed)?;
                Err(HandlerError::failed("after the commit"))
            }
        })
        .unwrap();
    let running = bus.start().await.unwrap();
    // The first is still open: the others are done ahead of the cursor.
    let batch = ["slow", "x", "y", "x"].map(|object| event("a", object));
    bus.publish_all(batch.into()).await.unwrap();
    let count = |bus: &Ensue| {
        let bus = bus.clone();
        async move {
            let sql = "SELECT count(*) FROM effects";
            bus.transaction(|tx| Ok(tx.query_row(sql, [], |row| row.get::<_, i64>(0))?)).await.unwrap()
        }
    };
    while count(&bus).await < 2 || bus.store().lanes(LaneQuery::Stuck { group: None }, 9).await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let stuck = bus.store().lanes(LaneQuery::Stuck { group: None }, 9).await.unwrap();
    assert_eq!((stuck.len(), stuck[0].lane.position), (1, 3));
    let marked = bus.store().lanes(LaneQuery::One(name("a.h"), lane("x")), 1).await.unwrap();
    assert_eq!((marked[0].lane.state, marked[0].lane.position), (LaneState::Done, 5));
    gate.add_permits(1);
    bus.drain().await.unwrap();
    running.shutdown(LONG).await.unwrap();
    assert_eq!(count(&bus).await, 2);
    assert_eq!(bus.store().bounds().await.unwrap().last, 6);
    let group = bus.store().group(&name("a.h")).await.unwrap().unwrap();
    assert_eq!(group.lanes, 1);
    assert!(bus.store().lanes(LaneQuery::One(name("a.h"), lane("x")), 1).await.unwrap().is_empty());
}

/// Parents first: a child's first attempt starts once each parent's first attempt has ended, also if that fails.
#[tokio::test]
async fn children_wait_for_the_first_attempt_of_their_parents() {
    let bus = Ensue::memory().await.unwrap();
    let (order, gate) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Semaphore::new(0)));
    for (on, key) in [("record.published", "child"), ("record", "parent")] {
        let (order, gate) = (order.clone(), gate.clone());
        bus.on(on)
            .named(key)
            .handle(move |event: Event, _cx: Context| {
                let (order, gate) = (order.clone(), gate.clone());
                async move {
                    if key == "parent" {
                        gate.acquire().await?.forget();
                    }
                    order.lock().unwrap().push((event.seq, key));
                    if key == "parent" && event.seq == 2 { Err(HandlerError::failed("no")) } else { Ok(()) }
                }
            })
            .unwrap();
    }
    let running = bus.start().await.unwrap();
    for object in ["x", "y", "x"] {
        bus.publish(event("record.published", object)).await.unwrap();
    }
    gate.add_permits(3);
    bus.drain().await.unwrap();
    let order = order.lock().unwrap().clone();
    for seq in 1..=3 {
        let at = |key| order.iter().position(|entry| *entry == (seq, key)).unwrap();
        assert!(at("parent") < at("child"), "{order:?}");
    }
    running.shutdown(LONG).await.unwrap();
}

#[tokio::test]
async fn a_publish_can_wait_for_sync_handlers_and_is_told_which_were_late() {
    let bus = Ensue::memory().await.unwrap();
    let (done, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    for key in ["quick", "late"] {
        let (done, gate) = (done.clone(), gate.clone());
        bus.on("a")
            .named(key)
            .sync()
            .handle(move |_event: Event, _cx: Context| {
                let (done, gate) = (done.clone(), gate.clone());
                async move {
                    if key == "late" {
                        gate.acquire().await?.forget();
                    }
                    done.fetch_add(1, Ordering::SeqCst);
                    Ok(())
                }
            })
            .unwrap();
    }
    let running = bus.start().await.unwrap();
    let waited = bus.publish_and_wait(event("a", "x"), Duration::from_millis(200)).await.unwrap();
    assert_eq!(waited.pending, [name("a.late")]);
    assert_eq!(done.load(Ordering::SeqCst), 1);
    gate.add_permits(2);
    let waited = bus.publish_and_wait(event("a", "y"), LONG).await.unwrap();
    assert!(waited.pending.is_empty());
    assert_eq!(bus.publish_and_wait(event("other", "y"), LONG).await.unwrap().pending, []);
    running.shutdown(LONG).await.unwrap();
}

/// H27: a handler that is stuck delays no other, and costs bounded memory: what it cannot take stays in the log.
#[tokio::test(flavor = "multi_thread")]
async fn a_stuck_handler_delays_nobody_and_goes_on_when_it_can() {
    const EVENTS: usize = 20_000;
    let bus = Ensue::memory().await.unwrap();
    let (gate, stuck, free) = (Arc::new(Semaphore::new(0)), Seen::default(), Seen::default());
    let (gated, given) = (gate.clone(), stuck.clone());
    bus.on("a")
        .named("stuck")
        .concurrency(4)
        .handle(move |event: Event, _cx: Context| {
            let (gate, given) = (gated.clone(), given.clone());
            async move {
                gate.acquire().await?.forget();
                given.push(&event);
                Ok(())
            }
        })
        .unwrap();
    let given = free.clone();
    bus.on("a")
        .named("free")
        .handle(move |event: Event, _cx: Context| {
            given.push(&event);
            async { Ok(()) }
        })
        .unwrap();
    let running = bus.start().await.unwrap();
    for batch in 0..EVENTS / 1_000 {
        let events = (0..1_000).map(|n| event("a", &format!("o{}", (batch * 1_000 + n) % 50))).collect();
        bus.publish_all(events).await.unwrap();
    }
    while free.all().len() < EVENTS {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(stuck.all().is_empty());
    gate.add_permits(EVENTS * 2);
    bus.drain().await.unwrap();
    for seen in [&stuck, &free] {
        assert_eq!(seen.all().len(), EVENTS);
        for object in 0..50 {
            let seqs = seen.of(&format!("o{object}"));
            assert!(seqs.is_sorted(), "object {object}");
        }
    }
    running.shutdown(LONG).await.unwrap();
}

/// A slow delivery steps aside: the cursor goes on, and its object's order holds.
#[tokio::test]
async fn a_slow_delivery_lets_the_cursor_pass() {
    let bus = Ensue::memory().await.unwrap();
    let (gate, seen, started) = (Arc::new(Semaphore::new(0)), Seen::default(), Arc::new(Notify::new()));
    let (gated, given, begun) = (gate.clone(), seen.clone(), started.clone());
    bus.on("a")
        .named("h")
        .handle(move |event: Event, _cx: Context| {
            let (gate, given, begun) = (gated.clone(), given.clone(), begun.clone());
            async move {
                if event.seq == 1 {
                    begun.notify_one();
                    gate.acquire().await?.forget();
                }
                given.push(&event);
                Ok(())
            }
        })
        .unwrap();
    let running = bus.start().await.unwrap();
    for object in ["x", "x", "y"] {
        bus.publish(event("a", object)).await.unwrap();
    }
    started.notified().await;
    // Its lane gets a row, and the cursor passes it.
    while bus.store().group(&name("a.h")).await.unwrap().unwrap().cursor() < 3 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(seen.seqs(), [3]);
    bus.publish(event("a", "x")).await.unwrap();
    gate.add_permits(1);
    bus.drain().await.unwrap();
    assert_eq!(seen.of("x"), [1, 2, 4]);
    running.shutdown(LONG).await.unwrap();
    assert_eq!(bus.store().group(&name("a.h")).await.unwrap().unwrap().lanes, 0);
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
async fn a_batch_handler_gets_many_and_one_bad_event_holds_only_its_object() {
    let bus = Ensue::memory().await.unwrap();
    let batches = Arc::new(Mutex::new(Vec::<Vec<Seq>>::new()));
    let given = batches.clone();
    bus.on("a")
        .named("h")
        .batch(50)
        .retry(Retry::never())
        .start(Start::Beginning)
        .handle_batch(move |events: Vec<Event>, cx: Context| {
            let seqs: Vec<Seq> = events.iter().map(|event| event.seq).collect();
            let is_bad = seqs.contains(&23);
            given.lock().unwrap().push(seqs.clone());
            async move {
                if is_bad {
                    return Err(HandlerError::failed("poison"));
                }
                cx.publish(NewEvent::new("b").payload(&seqs))?;
                Ok(())
            }
        })
        .unwrap();
    bus.publish_all((1..=100).map(|n| event("a", &format!("o{}", n % 10))).collect()).await.unwrap();
    let running = bus.start().await.unwrap();
    bus.drain().await.unwrap();
    running.shutdown(LONG).await.unwrap();
    let batches = batches.lock().unwrap().clone();
    assert!(batches.iter().any(|batch| batch.len() == 50), "{batches:?}");
    assert!(batches.iter().all(|batch| batch.is_sorted()));
    assert!(batches.contains(&vec![23]), "it was run alone: {batches:?}");
    // What was published says what was done: everything but the bad one and those of its object after it, once.
    let mut done = Vec::new();
    for event in
        bus.store().read(ensue::Read { after: 100, limit: 1_000, filter: Default::default() }).await.unwrap().events
    {
        let seqs: Vec<Seq> =
            event.payload.as_str().trim_matches(['[', ']']).split(',').map(|n| n.parse().unwrap()).collect();
        done.extend(seqs);
    }
    done.sort_unstable();
    let expected: Vec<Seq> = (1..=100).filter(|n| n % 10 != 3 || *n < 23).collect();
    assert_eq!(done, expected);
    let group = bus.store().group(&name("a.h")).await.unwrap().unwrap();
    assert_eq!(group.lanes, 1);
}

#[tokio::test]
async fn a_batch_is_divided_by_a_key() {
    let bus = Ensue::memory().await.unwrap();
    let parts = Arc::new(Mutex::new(Vec::<(String, Vec<Seq>)>::new()));
    let given = parts.clone();
    bus.on("a")
        .named("h")
        .start(Start::Beginning)
        .split_by(|event| event.payload.as_str().to_owned())
        .handle_batch(move |events: Vec<Event>, _cx: Context| {
            let key = events[0].payload.as_str().to_owned();
            assert!(events.iter().all(|event| event.payload.as_str() == key));
            given.lock().unwrap().push((key, events.iter().map(|event| event.seq).collect()));
            async { Ok(()) }
        })
        .unwrap();
    bus.publish_all((0..30).map(|n| event("a", &format!("o{n}")).payload(&(n % 3))).collect()).await.unwrap();
    let running = bus.start().await.unwrap();
    bus.drain().await.unwrap();
    running.shutdown(LONG).await.unwrap();
    let parts = parts.lock().unwrap().clone();
    assert_eq!(parts.len(), 3, "{parts:?}");
    assert!(parts.iter().all(|(_, seqs)| seqs.len() == 10 && seqs.is_sorted()));
    assert_eq!(bus.store().group(&name("a.h")).await.unwrap().unwrap().cursor(), 30);
}
