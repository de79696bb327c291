//! What a handler publishes, or writes in its own transaction, commits with the note that it is done.

use crate::support::{LONG, Seen, event, lane, name, until};
use ensue::positions::{DeliveryState, LaneQuery, LaneState};
use ensue::testing::{ManualClock, memory_at};
use ensue::{Context, Ensue, Event, HandlerError, NewEvent, Retry, TransactionError};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

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
    // One of them is the notice that an object is held.
    assert_eq!(bus.store().bounds().await.unwrap().last, 9);
    running.shutdown(LONG).await.unwrap();
}

/// Its effects are gone, so it is not done, whatever it says; another attempt does it.
#[tokio::test]
async fn a_settle_that_never_committed_fails_the_attempt() {
    let bus = Ensue::memory().await.unwrap();
    bus.transaction(|tx| Ok(tx.execute_batch("CREATE TABLE effects (seq INTEGER)")?)).await.unwrap();
    let own = bus.clone();
    bus.on("a")
        .named("h")
        .retry(Retry::delays([Duration::ZERO]))
        .handle(move |event: Event, cx: Context| {
            let bus = own.clone();
            async move {
                let first = cx.attempt() == 1;
                cx.publish(NewEvent::new("b"))?;
                let taken_back = bus.transaction(move |tx| {
                    tx.execute("INSERT INTO effects VALUES (?1)", [event.seq as i64])?;
                    cx.done_in(tx)?;
                    if first { Err(TransactionError::rollback("no")) } else { Ok(()) }
                });
                assert_eq!(taken_back.await.is_err(), first);
                Ok(())
            }
        })
        .unwrap();
    let running = bus.start().await.unwrap();
    bus.publish(event("a", "o")).await.unwrap();
    until("it is not done", async || bus.store().group(&name("a.h")).await.unwrap().unwrap().cursor() >= 1).await;
    let count = "SELECT count(*) FROM effects";
    until("its effect is gone", async || {
        bus.transaction(|tx| Ok(tx.query_row(count, [], |row| row.get::<_, i64>(0))?)).await.unwrap() == 1
    })
    .await;
    bus.drain().await.unwrap();
    let deliveries = bus.store().deliveries(1).await.unwrap();
    let known: Vec<_> = deliveries.iter().map(|one| (one.state, one.attempts)).collect();
    assert_eq!(known.last(), Some(&(DeliveryState::Done, 2)));
    assert_eq!(bus.store().bounds().await.unwrap().last, 2, "what was published is not there once");
    running.shutdown(LONG).await.unwrap();
}

/// Effects in the same file happen once, also when the attempt fails after its commit.
#[tokio::test]
async fn done_in_settles_in_the_handlers_own_transaction() {
    // After two seconds the slow one steps aside, and nothing is done ahead of the cursor any more.
    for _ in 0..20 {
        if done_in_ahead_of_the_cursor().await {
            return;
        }
    }
    panic!("the slow one always steps aside first");
}

/// Whether anything was.
async fn done_in_ahead_of_the_cursor() -> bool {
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
    let stuck = async || bus.store().lanes(LaneQuery::Stuck { group: None }, 9).await.unwrap();
    until("the others wait for the slow one", async || count(&bus).await == 2 && !stuck().await.is_empty()).await;
    let stuck = stuck().await;
    assert_eq!((stuck.len(), stuck[0].lane.position), (1, 3));
    let marked = bus.store().lanes(LaneQuery::One(name("a.h"), lane("x")), 1).await.unwrap();
    if bus.store().group(&name("a.h")).await.unwrap().unwrap().cursor() > 0 {
        return false;
    }
    assert_eq!((marked[0].lane.state, marked[0].lane.position), (LaneState::Done, 5));
    gate.add_permits(1);
    bus.drain().await.unwrap();
    running.shutdown(LONG).await.unwrap();
    assert_eq!(count(&bus).await, 2);
    // The last is the notice that an object is held.
    assert_eq!(bus.store().bounds().await.unwrap().last, 7);
    let group = bus.store().group(&name("a.h")).await.unwrap().unwrap();
    assert_eq!(group.lanes, 1);
    assert!(bus.store().lanes(LaneQuery::One(name("a.h"), lane("x")), 1).await.unwrap().is_empty());
    true
}
