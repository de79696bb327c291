//! Attempts that were not made do not count, and what was lost is told.

use crate::support::{LONG, event, lane, name, stuck, until};
use ensue::positions::{Ask, LaneQuery};
use ensue::testing::{ManualClock, memory_at};
use ensue::{Context, Ensue, Event, HandlerError, Retry};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

/// Which of these objects have so many attempts counted in the store?
async fn counted(bus: &Ensue, objects: &[String], attempts: u32) -> Vec<String> {
    let mut counted = Vec::new();
    for object in objects {
        let rows = bus.store().lanes(LaneQuery::One(name("a.h"), lane(object)), 1).await.unwrap();
        counted.extend(rows.iter().filter(|row| row.lane.attempts == attempts).map(|_| object.clone()));
    }
    counted
}

/// H19: the process is shut down after attempts were counted and before they were started: they are not used up.
#[tokio::test]
async fn a_shutdown_uses_up_no_attempt() {
    let clock = ManualClock::at_noon();
    let bus = memory_at(&clock).await.unwrap();
    let objects: Vec<String> = (0..8).map(|n| format!("o{n}")).collect();
    let (starts, stands) = (Arc::new(Mutex::new(HashMap::<String, Vec<u32>>::new())), Arc::new(Notify::new()));
    let (own, all, seen, tells) = (bus.clone(), objects.clone(), starts.clone(), stands.clone());
    let stood = Arc::new(AtomicBool::new(false));
    let handler = move |event: Event, cx: Context| {
        let (bus, all, seen, tells, once) = (own.clone(), all.clone(), seen.clone(), tells.clone(), stood.clone());
        async move {
            let object = event.object.as_ref().unwrap().to_string();
            seen.lock().unwrap().entry(object).or_default().push(cx.attempt());
            if cx.attempt() == 1 {
                return Err(HandlerError::failed("once"));
            }
            // One runs at a time: it stands in the way of what is counted and not started.
            let waits = counted(&bus, &all, 2).await;
            let is_in_the_way = waits.iter().any(|object| !seen.lock().unwrap()[object].contains(&2));
            if is_in_the_way && !once.swap(true, Ordering::SeqCst) {
                tells.notify_one();
                cx.cancelled().await;
            }
            Ok(())
        }
    };
    let retry = Retry::delays([Duration::from_secs(10)]);
    bus.on("a").named("h").concurrency(1).retry(retry).handle(handler).unwrap();
    let running = bus.start().await.unwrap();
    bus.publish_all(objects.iter().map(|object| event("a", object)).collect()).await.unwrap();
    until("they do not fail", async || counted(&bus, &objects, 1).await == objects).await;
    clock.advance(Duration::from_secs(10));
    let counted_first = tokio::time::timeout(LONG, stands.notified()).await;
    assert!(counted_first.is_ok(), "no attempt is counted before it starts");
    running.shutdown(LONG).await.unwrap();
    assert_eq!(counted(&bus, &objects, 2).await, Vec::<String>::new(), "what was not started stays counted");
    assert!(starts.lock().unwrap().values().any(|attempts| *attempts == [1]), "all were started");
    let running = bus.start().await.unwrap();
    until("they are never settled", async || bus.store().group(&name("a.h")).await.unwrap().unwrap().lanes == 0).await;
    assert!(starts.lock().unwrap().values().all(|attempts| *attempts == [1, 2]), "{starts:?}");
    running.shutdown(LONG).await.unwrap();
}

/// H9: retention takes the event that a lane stands at: the handler is told what it lost.
#[tokio::test]
async fn what_retention_takes_from_a_lane_is_told() {
    let bus = Ensue::memory().await.unwrap();
    let handler = |event: Event, _cx: Context| async move {
        if event.seq <= 2 { Err(HandlerError::permanent("no")) } else { Ok(()) }
    };
    bus.on("a").named("h").handle(handler).unwrap();
    let running = bus.start().await.unwrap();
    bus.publish_all(["o", "o", "p", "p"].map(|object| event("a", object)).into()).await.unwrap();
    bus.drain().await.unwrap();
    bus.store().trim(3, 100).await.unwrap();
    bus.ask_stuck(&stuck("o"), Some(&name("a.h")), Ask::Retry).await.unwrap();
    until("it stays", async || bus.store().group(&name("a.h")).await.unwrap().unwrap().lanes == 0).await;
    let group = bus.store().group(&name("a.h")).await.unwrap().unwrap();
    assert!(
        group.lost.is_some(),
        "two events were passed over without a word: {:?}",
        bus.store().deliveries(1).await.unwrap()
    );
    running.shutdown(LONG).await.unwrap();
}
