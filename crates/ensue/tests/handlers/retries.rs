//! What fails is tried again, in its object's order, and in the end it is held or given up where somebody sees it.

use crate::support::{LONG, Seen, event, name, stuck, until};
use ensue::positions::{Ask, LaneQuery};
use ensue::testing::{ManualClock, memory_at};
use ensue::{Context, Ensue, Event, HandlerError, OnExhausted, Outcome, Retry, Standing, Timestamp};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

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
        let rows = bus.store().lanes(LaneQuery::Stuck { group: None }, 10).await.unwrap();
        assert_eq!(rows.len(), usize::from(policy != OnExhausted::Skip), "{policy:?}");
        let asked = bus.ask_stuck(&stuck("x"), None, Ask::Skip).await;
        assert_eq!(asked.is_ok(), policy != OnExhausted::Skip, "{policy:?}");
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
    let told = async |seq| bus.deliveries(seq).await.unwrap().unwrap().remove(0).verdict;
    let before = told(1).await;
    assert_eq!((before.standing, before.attempts, before.redriven), (Standing::Held, 1, false));
    bus.ask_stuck(&stuck("x"), None, Ask::Retry).await.unwrap();
    bus.drain().await.unwrap();
    assert_eq!(seen.seqs(), [1, 1, 2]);
    assert_eq!(*redriven.lock().unwrap(), [(false, 1), (true, 1), (false, 1)]);
    // And it is told so, with how often it ran in all.
    let (first, second) = (told(1).await, told(2).await);
    assert_eq!((first.standing, first.attempts, first.redriven), (Standing::Done, 2, true));
    assert_eq!((second.standing, second.attempts, second.redriven), (Standing::Done, 1, false));
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

/// An alert is a handler: that an object waits for somebody is an event like any other, and what fails about it makes none.
#[tokio::test]
async fn that_an_object_is_held_is_told_in_the_log() {
    let bus = Ensue::memory().await.unwrap();
    let fails = async |_: Event, _: Context| -> Result<(), HandlerError> { Err(HandlerError::failed("broken")) };
    bus.on("a").named("h").retry(Retry::never()).handle(fails).unwrap();
    bus.on("ensue.object.held").named("alert").retry(Retry::never()).handle(fails).unwrap();
    let running = bus.start().await.unwrap();
    bus.publish_all(vec![event("a", "x"), event("a", "x")]).await.unwrap();
    bus.drain().await.unwrap();
    assert_eq!(bus.store().bounds().await.unwrap().last, 3);
    let told = bus.store().event(3).await.unwrap().unwrap();
    assert_eq!((told.topic.as_str(), told.object.unwrap().as_str()), ("ensue.object.held", "ensue:x"));
    for part in ["\"handler\":\"a.h\"", "\"event\":1", "broken"] {
        assert!(told.payload.as_str().contains(part), "{}", told.payload.as_str());
    }
    let next = bus.publish(event("a", "x")).await.unwrap();
    assert_eq!((next.seq, next.prev), (Some(4), Some(2)), "what Ensue tells is not in the object's chain");
    running.shutdown(LONG).await.unwrap();
}

/// H26: events that fail together are tried again at times that are spread over the whole delay.
#[tokio::test]
async fn deliveries_that_fail_together_come_back_apart() {
    const EVENTS: usize = 1_000;
    let delay = Duration::from_secs(3_600);
    let bus = Ensue::memory().await.unwrap();
    bus.on("a")
        .named("h")
        .retry(Retry::attempts(2).first(delay).max(delay))
        .handle(async |_: Event, _: Context| Err::<(), _>(HandlerError::failed("the relay is down")))
        .unwrap();
    let running = bus.start().await.unwrap();
    let begun = Timestamp::now();
    bus.publish_all((0..EVENTS).map(|n| event("a", &format!("o{n}"))).collect()).await.unwrap();
    let lanes = async || {
        let of_all = LaneQuery::Slots { group: name("a.h"), slots: vec![0], after: None };
        bus.store().lanes(of_all, EVENTS).await.unwrap()
    };
    until("all have failed", async || lanes().await.len() == EVENTS).await;
    let times: Vec<Timestamp> = lanes().await.into_iter().filter_map(|row| row.lane.not_before).collect();
    for quarter in 0..4 {
        let part = delay.as_secs_f64() / 4.0;
        let is_in = |at: &&Timestamp| (at.duration_since(begun).as_secs_f64() / part).floor() as usize == quarter;
        let count = times.iter().filter(is_in).count();
        // A quarter of them each, by chance: fourteen in a thousand more or less.
        assert!((150..350).contains(&count), "{count} come back in the quarter {quarter} of their delay");
    }
    running.shutdown(LONG).await.unwrap();
}
