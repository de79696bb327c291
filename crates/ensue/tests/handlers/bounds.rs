//! Attempts that were not made do not count, and what was lost is told.

use ensue::positions::{Ask, LaneKey, LaneQuery, LaneState};
use ensue::{Context, Ensue, Event, GroupName, HandlerError, NewEvent, ObjectKey, Retry};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;

const LONG: Duration = Duration::from_secs(30);

fn event(object: &str) -> NewEvent {
    NewEvent::new("a").object(object)
}

fn name() -> GroupName {
    GroupName::parse("name", "a.h").unwrap()
}

fn lane(object: &str) -> LaneKey {
    LaneKey::Object(ObjectKey::parse(object).unwrap())
}

async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.unwrap_or_else(|_| panic!("{what}"));
}

/// H19: the process is shut down after an attempt was counted and before it was started: it has not used it up.
#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_uses_up_no_attempt() {
    let folder = tempfile::tempdir().unwrap();
    let bus = Ensue::open(folder.path().join("log.db").to_str().unwrap()).await.unwrap();
    let starts = Arc::new(Mutex::new(Vec::new()));
    let seen = starts.clone();
    let handler = move |_event: Event, cx: Context| {
        seen.lock().unwrap().push(cx.attempt());
        async move { if cx.attempt() == 1 { Err(HandlerError::failed("once")) } else { Ok(()) } }
    };
    bus.on("a").named("h").retry(Retry::delays([Duration::from_millis(500)])).handle(handler).unwrap();
    let running = bus.start().await.unwrap();
    bus.publish(event("o")).await.unwrap();
    until("no row", async || !bus.store().lanes(LaneQuery::One(name(), lane("o")), 1).await.unwrap().is_empty()).await;
    // The writer is busy while the second attempt is counted, and then the process is shut down.
    let (busy, other) = (Arc::new(Semaphore::new(0)), bus.clone());
    let says = busy.clone();
    let work = tokio::spawn(async move {
        let slow = move |_tx: &mut ensue::Transaction<'_>| {
            says.add_permits(1);
            std::thread::sleep(Duration::from_secs(2));
            Ok(())
        };
        other.transaction(slow).await
    });
    busy.acquire().await.unwrap().forget();
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    running.shutdown(LONG).await.unwrap();
    work.await.unwrap().unwrap();
    assert_eq!(*starts.lock().unwrap(), [1]);
    let running = bus.start().await.unwrap();
    until("it is never settled", async || {
        let rows = bus.store().lanes(LaneQuery::One(name(), lane("o")), 1).await.unwrap();
        rows.first().is_none_or(|row| row.lane.state == LaneState::Held)
    })
    .await;
    let row = bus.store().lanes(LaneQuery::One(name(), lane("o")), 1).await.unwrap();
    assert_eq!(*starts.lock().unwrap(), [1, 2], "it was given up without its second attempt: {row:?}");
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
    bus.publish_all(["o", "o", "p", "p"].map(event).into()).await.unwrap();
    bus.drain().await.unwrap();
    bus.store().trim(3, 100).await.unwrap();
    bus.ask_lane(&name(), &lane("o"), Ask::Retry).await.unwrap().unwrap();
    until("it stays", async || bus.store().group(&name()).await.unwrap().unwrap().lanes == 0).await;
    let group = bus.store().group(&name()).await.unwrap().unwrap();
    assert!(
        group.lost.is_some(),
        "two events were passed over without a word: {:?}",
        bus.store().deliveries(1).await.unwrap()
    );
    running.shutdown(LONG).await.unwrap();
}
