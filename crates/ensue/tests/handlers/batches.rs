//! Handlers of batches keep the order of each object, and leave nobody behind.

use ensue::{Context, Ensue, Event, HandlerError, NewEvent, Seq};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;

const LONG: Duration = Duration::from_secs(10);
type Runs = Arc<Mutex<Vec<Vec<Seq>>>>;

fn event(object: &str) -> NewEvent {
    NewEvent::new("a").object(object)
}

/// A batch of two events of one object fails, each is run alone; meanwhile another object comes and begins a batch, which
/// must not take the turn of the first one away.
#[tokio::test]
async fn a_lane_that_cannot_join_a_batch_keeps_its_turn() {
    let bus = Ensue::memory().await.unwrap();
    let (runs, gate) = (Runs::default(), Arc::new(Semaphore::new(0)));
    let (seen, gated) = (runs.clone(), gate.clone());
    let handler = move |events: Vec<Event>, _cx: Context| {
        let (seen, gate) = (seen.clone(), gated.clone());
        async move {
            let seqs: Vec<Seq> = events.iter().map(|event| event.seq).collect();
            seen.lock().unwrap().push(seqs.clone());
            if seqs == [1, 2] {
                return Err(HandlerError::failed("together"));
            }
            if seqs == [1] {
                gate.acquire().await?.forget();
            }
            Ok(())
        }
    };
    bus.on("a").named("h").concurrency(1).batch(10).handle_batch(handler).unwrap();
    let running = bus.start().await.unwrap();
    bus.publish_all(vec![event("x"), event("x")]).await.unwrap();
    while !runs.lock().unwrap().contains(&vec![1]) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    bus.publish(event("w")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(300)).await; // it has arrived, and waits
    gate.add_permits(1);
    let drained = tokio::time::timeout(LONG, bus.drain()).await;
    assert!(drained.is_ok(), "event 2 is never run: {:?}", runs.lock().unwrap());
    running.shutdown(LONG).await.unwrap();
}

/// H5: whatever a batch is divided by, events of one object run one after another, and once.
#[tokio::test]
async fn a_divided_batch_keeps_the_order_of_an_object() {
    let bus = Ensue::memory().await.unwrap();
    let (runs, open, bad) = (Runs::default(), Arc::new(Mutex::new(HashSet::new())), Arc::new(Mutex::new(Vec::new())));
    let (seen, opened, faults) = (runs.clone(), open.clone(), bad.clone());
    let handler = move |events: Vec<Event>, _cx: Context| {
        let (seen, open, bad) = (seen.clone(), opened.clone(), faults.clone());
        async move {
            let seqs: Vec<Seq> = events.iter().map(|event| event.seq).collect();
            seen.lock().unwrap().push(seqs.clone());
            if !open.lock().unwrap().insert("o") {
                bad.lock().unwrap().push(seqs.clone());
            }
            tokio::time::sleep(Duration::from_millis(20 * seqs[0])).await;
            open.lock().unwrap().remove("o");
            Ok(())
        }
    };
    bus.on("a").named("h").split_by(|event| event.payload.as_str().to_owned()).handle_batch(handler).unwrap();
    let running = bus.start().await.unwrap();
    bus.publish_all([1, 2, 1].map(|key| event("o").payload(&key)).into()).await.unwrap();
    tokio::time::timeout(LONG, bus.drain()).await.expect("it never ends").unwrap();
    running.shutdown(LONG).await.unwrap();
    let mut starts: Vec<Seq> = runs.lock().unwrap().iter().flatten().copied().collect();
    assert!(bad.lock().unwrap().is_empty(), "two at once: {:?}", runs.lock().unwrap());
    starts.sort_unstable();
    assert_eq!(starts, [1, 2, 3]);
}
