//! What is slow or stuck delays nobody else, and goes on when it can.

use crate::support::{LONG, Seen, event, name, until};
use ensue::{Context, Ensue, Event};
use std::sync::Arc;
use tokio::sync::{Notify, Semaphore};

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
    until("the stuck one delays the other", async || free.all().len() == EVENTS).await;
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
    let cursor = async || bus.store().group(&name("a.h")).await.unwrap().unwrap().cursor();
    until("the cursor stays behind it", async || cursor().await == 3).await;
    assert_eq!(seen.seqs(), [3]);
    bus.publish(event("a", "x")).await.unwrap();
    gate.add_permits(1);
    bus.drain().await.unwrap();
    assert_eq!(seen.of("x"), [1, 2, 4]);
    running.shutdown(LONG).await.unwrap();
    assert_eq!(bus.store().group(&name("a.h")).await.unwrap().unwrap().lanes, 0);
}
