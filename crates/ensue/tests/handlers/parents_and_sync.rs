//! Children come after their parents, and a publish can wait for what is sync.

use crate::support::{LONG, event, name, pending};
use ensue::{Context, Ensue, Event, HandlerError};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;

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
    // On a busy machine the quick one may need some time, too: who asks again under the same key waits on.
    let mut wait = Duration::from_millis(200);
    let pending = loop {
        let pending = pending(&bus.publish_and_wait(event("a", "x").key("k"), wait).await.unwrap().handlers);
        if pending.len() < 2 || wait > LONG {
            break pending;
        }
        wait *= 4;
    };
    assert_eq!(pending, [name("a.late")]);
    assert_eq!(done.load(Ordering::SeqCst), 1);
    gate.add_permits(2);
    let waited = bus.publish_and_wait(event("a", "y"), LONG).await.unwrap();
    let outcomes: Vec<_> = waited.handlers.iter().map(|one| (one.handler.as_str(), one.outcome.as_str())).collect();
    assert_eq!(outcomes, [("a.late", "done"), ("a.quick", "done")]);
    assert_eq!(bus.publish_and_wait(event("other", "y"), LONG).await.unwrap().handlers, []);
    running.shutdown(LONG).await.unwrap();
}
