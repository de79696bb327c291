//! What is settled stays settled: nothing published or committed with a settle happens twice.

use crate::support::{LONG, event, lane, name, until};
use ensue::positions::{LaneQuery, LaneState};
use ensue::testing::{ManualClock, memory_at};
use ensue::{Context, Ensue, Event, HandlerError, NewEvent, OnExhausted, Outcome, Retry, Seq};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;

type Starts = Arc<Mutex<Vec<(Seq, u32)>>>;

async fn effects(bus: &Ensue) -> i64 {
    let sql = "SELECT count(*) FROM effects";
    bus.transaction(move |tx| Ok(tx.query_row(sql, [], |row| row.get::<_, i64>(0))?)).await.unwrap()
}

/// An attempt has settled in its own transaction and then takes long: the row that lets the cursor pass it must not say
/// that it is to be run again.
#[tokio::test]
async fn what_is_settled_stays_settled_when_its_attempt_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.db");
    let hang = Arc::new(AtomicBool::new(true));
    for round in 0..2 {
        let bus = Ensue::open(path.to_str().unwrap()).await.unwrap();
        bus.transaction(|tx| Ok(tx.execute_batch("CREATE TABLE IF NOT EXISTS effects (seq INTEGER)")?)).await.unwrap();
        let (own, hangs) = (bus.clone(), hang.clone());
        let handler = move |event: Event, cx: Context| {
            let (bus, hangs) = (own.clone(), hangs.clone());
            async move {
                bus.transaction(move |tx| {
                    tx.execute("INSERT INTO effects VALUES (?1)", [event.seq as i64])?;
                    cx.done_in(tx)
                })
                .await
                .map_err(HandlerError::failed)?;
                if hangs.load(Ordering::SeqCst) {
                    std::future::pending::<()>().await;
                }
                Ok(())
            }
        };
        bus.on("a").named("h").handle(handler).unwrap();
        let running = bus.start().await.unwrap();
        if round == 0 {
            bus.publish(event("a", "o")).await.unwrap();
            until("it never comes", async || effects(&bus).await == 1).await;
            // The attempt goes on for longer than two seconds: the cursor passes it.
            until("it never comes", async || bus.store().group(&name("a.h")).await.unwrap().unwrap().cursor() == 1)
                .await;
            hang.store(false, Ordering::SeqCst);
            drop(running); // as if the process had ended
        } else {
            bus.drain().await.unwrap();
            assert_eq!(effects(&bus).await, 1, "its effects happened twice");
            running.shutdown(LONG).await.unwrap();
        }
        bus.close().await;
    }
}

/// An attempt is ended by its timeout while its transaction waits for the writer: the transaction commits all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_timeout_does_not_double_what_is_about_to_commit() {
    let folder = tempfile::tempdir().unwrap();
    let bus = Ensue::open(folder.path().join("log.db").to_str().unwrap()).await.unwrap();
    bus.transaction(|tx| Ok(tx.execute_batch("CREATE TABLE effects (seq INTEGER)")?)).await.unwrap();
    let own = bus.clone();
    bus.on("a")
        .named("h")
        .timeout(Duration::from_millis(300))
        // On a busy machine an attempt may be over before it has sent its transaction.
        .retry(Retry::delays([Duration::from_millis(10); 100]))
        .handle(move |event: Event, cx: Context| {
            let bus = own.clone();
            async move {
                if cx.attempt() == 1 {
                    let (busy, other) = (Arc::new(Semaphore::new(0)), bus.clone());
                    let says = busy.clone();
                    tokio::spawn(async move {
                        other
                            .transaction(move |_tx| {
                                says.add_permits(1);
                                std::thread::sleep(Duration::from_millis(900));
                                Ok(())
                            })
                            .await
                    });
                    busy.acquire().await?.forget();
                }
                bus.transaction(move |tx| {
                    tx.execute("INSERT INTO effects VALUES (?1)", [event.seq as i64])?;
                    cx.done_in(tx)
                })
                .await
                .map_err(HandlerError::failed)?;
                Ok(())
            }
        })
        .unwrap();
    let running = bus.start().await.unwrap();
    bus.publish(event("a", "o")).await.unwrap();
    until("it never comes", async || {
        let group = bus.store().group(&name("a.h")).await.unwrap().unwrap();
        group.cursor() == 1 && group.lanes == 0
    })
    .await;
    assert_eq!(effects(&bus).await, 1, "its effects happened twice");
    running.shutdown(LONG).await.unwrap();
}

/// A lane with a row does 2 without a word and 3 with something published: both are written in one flush, and the older
/// place must not be written over the newer.
#[tokio::test]
async fn what_was_published_once_is_not_published_again_after_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.db");
    let (hang, starts) = (Arc::new(AtomicBool::new(true)), Starts::default());
    for round in 0..2 {
        let bus = Ensue::open(path.to_str().unwrap()).await.unwrap();
        let (hangs, seen) = (hang.clone(), starts.clone());
        let handler = move |event: Event, cx: Context| {
            let (hangs, seen) = (hangs.clone(), seen.clone());
            async move {
                seen.lock().unwrap().push((event.seq, cx.attempt()));
                match (event.seq, cx.attempt()) {
                    (1, 1) => Err(HandlerError::failed("once")),
                    (3, _) => Ok(cx.publish(NewEvent::new("out"))?),
                    (4, _) if hangs.load(Ordering::SeqCst) => std::future::pending().await,
                    _ => Ok(()),
                }
            }
        };
        bus.on("a").named("h").retry(Retry::delays([Duration::from_millis(300); 3])).handle(handler).unwrap();
        let running = bus.start().await.unwrap();
        if round == 0 {
            bus.publish_all((0..4).map(|_| event("a", "o")).collect()).await.unwrap();
            until("it never comes", async || starts.lock().unwrap().iter().any(|(seq, _)| *seq == 4)).await;
            until("it never comes", async || bus.store().bounds().await.unwrap().last == 5).await;
            hang.store(false, Ordering::SeqCst);
            drop(running);
        } else {
            bus.drain().await.unwrap();
            assert_eq!(bus.store().bounds().await.unwrap().last, 5, "it was published twice");
            running.shutdown(LONG).await.unwrap();
        }
        bus.close().await;
    }
}

/// The publish of an event ahead of the cursor is refused, after another one of its object was marked: the mark must
/// still go, or the object is run again from there with the next start.
#[tokio::test]
async fn a_refused_publish_leaves_no_mark_behind() {
    let bus = Ensue::memory().await.unwrap();
    bus.publish(NewEvent::new("taken").key("k").payload(&1)).await.unwrap();
    let (gate, starts) = (Arc::new(Semaphore::new(0)), Starts::default());
    let (gated, seen) = (gate.clone(), starts.clone());
    let handler = move |event: Event, cx: Context| {
        let (gate, seen) = (gated.clone(), seen.clone());
        async move {
            seen.lock().unwrap().push((event.seq, cx.attempt()));
            match event.seq {
                2 => gate.acquire().await?.forget(),
                3 => cx.publish(NewEvent::new("out"))?,
                4 => cx.publish(NewEvent::new("out").key("k"))?,
                _ => {}
            }
            Ok(())
        }
    };
    bus.on("a").named("h").on_exhausted(OnExhausted::Skip).handle(handler).unwrap();
    let running = bus.start().await.unwrap();
    bus.publish_all(["slow", "b", "b"].map(|object| event("a", object)).into()).await.unwrap();
    until("it never comes", async || {
        let known = bus.store().deliveries(4).await.unwrap();
        known.iter().any(|delivery| delivery.state == ensue::positions::DeliveryState::Dead)
    })
    .await;
    gate.add_permits(1);
    bus.publish_all((0..3).map(|_| event("a", "b")).collect()).await.unwrap();
    bus.drain().await.unwrap();
    running.shutdown(LONG).await.unwrap();
    let before = starts.lock().unwrap().clone();
    let running = bus.start().await.unwrap();
    bus.drain().await.unwrap();
    running.shutdown(LONG).await.unwrap();
    assert_eq!(*starts.lock().unwrap(), before, "the object was run again");
}

/// The attempts of an event ahead of the cursor are known, and its row must not be taken for one that has caught up.
#[tokio::test]
async fn attempts_ahead_of_the_cursor_count_after_a_restart() {
    // After two seconds the slow one steps aside, and nothing is ahead of the cursor any more.
    for _ in 0..20 {
        if attempts_ahead_of_the_cursor().await {
            return;
        }
    }
    panic!("the slow one always steps aside first");
}

/// Whether there were any.
async fn attempts_ahead_of_the_cursor() -> bool {
    let clock = ManualClock::at_noon();
    let bus = memory_at(&clock).await.unwrap();
    let starts = Starts::default();
    let seen = starts.clone();
    let handler = move |event: Event, cx: Context| {
        let seen = seen.clone();
        async move {
            if event.seq == 1 {
                std::future::pending::<()>().await;
            }
            seen.lock().unwrap().push((event.seq, cx.attempt()));
            Err::<Outcome, _>(HandlerError::failed("no").retry_after(Duration::from_secs(3_600)))
        }
    };
    bus.on("a").named("h").retry(Retry::attempts(3)).handle(handler).unwrap();
    let running = bus.start().await.unwrap();
    bus.publish_all(["slow", "b"].map(|object| event("a", object)).into()).await.unwrap();
    let attempts = async || {
        let rows = bus.store().lanes(LaneQuery::One(name("a.h"), lane("b")), 1).await.unwrap();
        rows.first().map(|row| (row.lane.state, row.lane.attempts))
    };
    until("it never comes", async || attempts().await == Some((LaneState::Waiting, 1))).await;
    running.shutdown(Duration::ZERO).await.unwrap();
    if bus.store().group(&name("a.h")).await.unwrap().unwrap().cursor() != 0 {
        return false;
    }
    clock.advance(Duration::from_secs(7_200));
    let running = bus.start().await.unwrap();
    until("it never comes", async || starts.lock().unwrap().len() == 2).await;
    assert_eq!(*starts.lock().unwrap(), [(2, 1), (2, 2)]);
    running.shutdown(Duration::ZERO).await.unwrap();
    true
}
