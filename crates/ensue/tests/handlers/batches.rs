//! Handlers of batches get many at once, keep the order of each object, and leave nobody behind.

use crate::support::{LONG, Seen, event, name, until};
use ensue::{Context, Ensue, Event, HandlerError, NewEvent, Retry, Seq, Start};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;

type Runs = Arc<Mutex<Vec<Vec<Seq>>>>;

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
    // Bound after it, so that this one is also given events after it.
    let arrived = Seen::default();
    let given = arrived.clone();
    let witness = move |event: Event, _cx: Context| {
        given.push(&event);
        async { Ok(()) }
    };
    bus.on("a").named("witness").handle(witness).unwrap();
    let running = bus.start().await.unwrap();
    bus.publish_all(vec![event("a", "x"), event("a", "x")]).await.unwrap();
    until("it is not run alone", async || runs.lock().unwrap().contains(&vec![1])).await;
    bus.publish(event("a", "w")).await.unwrap();
    until("the third never arrives", async || !arrived.of("w").is_empty()).await;
    gate.add_permits(1);
    let drained = tokio::time::timeout(LONG, bus.drain()).await;
    assert!(drained.is_ok(), "event 2 is never run: {:?}", runs.lock().unwrap());
    // The third had its turn before the second: it had arrived, and waited.
    assert_eq!(*runs.lock().unwrap(), [vec![1, 2], vec![1], vec![3], vec![2]]);
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
    bus.publish_all([1, 2, 1].map(|key| event("a", "o").payload(&key)).into()).await.unwrap();
    tokio::time::timeout(LONG, bus.drain()).await.expect("it never ends").unwrap();
    running.shutdown(LONG).await.unwrap();
    let mut starts: Vec<Seq> = runs.lock().unwrap().iter().flatten().copied().collect();
    assert!(bad.lock().unwrap().is_empty(), "two at once: {:?}", runs.lock().unwrap());
    starts.sort_unstable();
    assert_eq!(starts, [1, 2, 3]);
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
    let published =
        bus.store().read(ensue::Read { after: 100, limit: 1_000, filter: Default::default() }).await.unwrap();
    for event in published.events.iter().filter(|event| event.topic.as_str() == "b") {
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
