//! A publish that waits hears of every sync handler that wants the event: whichever process runs it, and whenever the event
//! was first published.

use crate::support::{LONG, event, name};
use ensue::{Context, Ensue, Event, Running};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;

const SHORT: Duration = Duration::from_millis(150);
/// Which process was given which object.
type Handled = Arc<Mutex<Vec<(usize, String)>>>;

/// A process with one sync handler, which waits at the gate.
async fn process(bus: Ensue, number: usize, gate: &Arc<Semaphore>, handled: &Handled) -> (Ensue, Running) {
    let (gate, handled) = (gate.clone(), handled.clone());
    let handler = move |event: Event, _cx: Context| {
        let (gate, handled) = (gate.clone(), handled.clone());
        async move {
            gate.acquire().await?.forget();
            handled.lock().unwrap().push((number, event.object.unwrap().to_string()));
            Ok(())
        }
    };
    bus.on("a").named("h").sync().concurrency(100).handle(handler).unwrap();
    let running = bus.start().await.unwrap();
    (bus, running)
}

/// Who sends an event again, because its answer was lost, waits as the first time; what is done is known at once.
#[tokio::test]
async fn what_was_published_before_is_waited_for_too() {
    let (gate, handled) = (Arc::new(Semaphore::new(0)), Handled::default());
    let (bus, running) = process(Ensue::memory().await.unwrap(), 0, &gate, &handled).await;
    let keyed = || event("a", "x").key("k");
    let first = bus.publish_and_wait(keyed(), SHORT).await.unwrap();
    assert_eq!((first.appended.repeated, first.pending), (false, vec![name("a.h")]));
    let again = bus.publish_and_wait(keyed(), SHORT).await.unwrap();
    assert_eq!((again.appended.repeated, again.pending), (true, vec![name("a.h")]), "it is not done yet");
    gate.add_permits(1);
    let third = bus.publish_and_wait(keyed(), LONG).await.unwrap();
    assert_eq!((third.appended.repeated, third.pending), (true, vec![]));
    assert_eq!(*handled.lock().unwrap(), [(0, "x".to_string())]);
    running.shutdown(LONG).await.unwrap();

    // Started again it remembers nothing of it: the store does.
    let running = bus.start().await.unwrap();
    let again = bus.publish_and_wait(keyed(), LONG).await.unwrap();
    assert_eq!((again.appended.repeated, again.pending), (true, vec![]));
    running.shutdown(LONG).await.unwrap();
    assert_eq!(handled.lock().unwrap().len(), 1, "nothing runs twice");
}

/// Two processes share the handler: whoever publishes waits for both.
#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn what_another_process_runs_is_waited_for() {
    let (url, _) = ensue_conformance::postgres::fresh_schema("sync");
    let (gate, handled) = (Arc::new(Semaphore::new(0)), Handled::default());
    let (one, running) = process(Ensue::open(&url).await.unwrap(), 1, &gate, &handled).await;
    let (two, running_too) = process(Ensue::open(&url).await.unwrap(), 2, &gate, &handled).await;
    crate::support::until("both share what both serve", async || {
        let group = one.store().group(&name("a.h")).await.unwrap().unwrap();
        let owners: Option<std::collections::HashSet<_>> =
            group.slots.iter().map(|slot| Some(slot.owner.as_ref()?.member.id)).collect();
        owners.is_some_and(|owners| owners.len() == 2)
    })
    .await;
    let events = || (0..32).map(|n| event("a", &format!("o{n}")).key(format!("k{n}")));
    let entries = ensue::NewEvent::check_all(events().collect()).unwrap();
    let answers = one.publish_all(events().collect()).await.unwrap();
    assert_eq!(one.wait_for_sync(&entries, &answers, SHORT).await, [name("a.h")]);
    gate.add_permits(32);
    assert_eq!(one.wait_for_sync(&entries, &answers, LONG).await, []);
    let by: std::collections::HashSet<usize> = handled.lock().unwrap().iter().map(|(number, _)| *number).collect();
    assert_eq!(by.len(), 2, "each has run some of them");
    // The other one asks for the same, by their keys.
    let repeated = two.publish_all(events().collect()).await.unwrap();
    assert!(repeated.iter().all(|answer| answer.repeated));
    assert_eq!(two.wait_for_sync(&entries, &repeated, LONG).await, []);
    assert_eq!(handled.lock().unwrap().len(), 32);
    running.shutdown(LONG).await.unwrap();
    running_too.shutdown(LONG).await.unwrap();
}
