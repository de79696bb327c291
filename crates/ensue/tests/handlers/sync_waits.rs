//! A publish that waits hears of every sync handler that wants the event: whichever process runs it, and whenever the event
//! was first published.

use crate::support::{LONG, event, name, pending, until};
use ensue::rules::{NewRule, RuleKind, Scope};
use ensue::{Context, Ensue, Event, HandlerError, OnExhausted, Retry, Running, SyncOutcome, SyncReport, Waited};
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
    assert_eq!((first.appended.repeated, pending(&first.handlers)), (false, vec![name("a.h")]));
    let again = bus.publish_and_wait(keyed(), SHORT).await.unwrap();
    assert_eq!((again.appended.repeated, pending(&again.handlers)), (true, vec![name("a.h")]), "it is not done yet");
    gate.add_permits(1);
    let third = bus.publish_and_wait(keyed(), LONG).await.unwrap();
    assert_eq!((third.appended.repeated, pending(&third.handlers)), (true, vec![]));
    assert_eq!(*handled.lock().unwrap(), [(0, "x".to_string())]);
    running.shutdown(LONG).await.unwrap();

    // Started again it remembers nothing of it: the store does.
    let running = bus.start().await.unwrap();
    let again = bus.publish_and_wait(keyed(), LONG).await.unwrap();
    assert_eq!((again.appended.repeated, pending(&again.handlers)), (true, vec![]));
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
    until("both share what both serve", async || {
        let group = one.store().group(&name("a.h")).await.unwrap().unwrap();
        let owners: Option<std::collections::HashSet<_>> =
            group.slots.iter().map(|slot| Some(slot.owner.as_ref()?.member.id)).collect();
        owners.is_some_and(|owners| owners.len() == 2)
    })
    .await;
    let events = || (0..32).map(|n| event("a", &format!("o{n}")).key(format!("k{n}")));
    let entries = ensue::NewEvent::check_all(events().collect()).unwrap();
    let answers = one.publish_all(events().collect()).await.unwrap();
    assert_eq!(pending(&one.wait_for_sync(&entries, &answers, SHORT).await), [name("a.h")]);
    gate.add_permits(32);
    let done = |reports: Vec<SyncReport>| reports.iter().all(|report| report.outcome == SyncOutcome::Done);
    assert!(done(one.wait_for_sync(&entries, &answers, LONG).await));
    let by: std::collections::HashSet<usize> = handled.lock().unwrap().iter().map(|(number, _)| *number).collect();
    assert_eq!(by.len(), 2, "each has run some of them");
    // The other one asks for the same, by their keys.
    let repeated = two.publish_all(events().collect()).await.unwrap();
    assert!(repeated.iter().all(|answer| answer.repeated));
    assert!(done(two.wait_for_sync(&entries, &repeated, LONG).await));
    assert_eq!(handled.lock().unwrap().len(), 32);
    running.shutdown(LONG).await.unwrap();
    running_too.shutdown(LONG).await.unwrap();
}

/// A bus with sync handlers that fail each in its way while the payload is "fail".
async fn failing() -> (Ensue, Running) {
    let bus = Ensue::memory().await.unwrap();
    let policies =
        [("held", OnExhausted::Hold), ("skips", OnExhausted::Skip), ("stops", OnExhausted::DeadLetterObject)];
    for (key, policy) in policies {
        let judge = |event: Event, _cx: Context| async move {
            let fails = event.payload.as_str() == "\"fail\"";
            if fails { Err(HandlerError::failed("no paper")) } else { Ok(()) }
        };
        bus.on("a").named(key).sync().retry(Retry::attempts(1)).on_exhausted(policy).handle(judge).unwrap();
    }
    let running = bus.start().await.unwrap();
    (bus, running)
}

/// The outcome of each handler, without waiting for the deadline.
async fn outcomes(bus: &Ensue, event: ensue::NewEvent) -> Vec<(String, SyncOutcome)> {
    let wait = bus.publish_and_wait(event, Duration::from_secs(86_400));
    let Waited { handlers, .. } = tokio::time::timeout(LONG, wait).await.expect("it is known").unwrap();
    handlers.into_iter().map(|report| (report.handler.to_string(), report.outcome)).collect()
}

fn blocked(error: &str) -> SyncOutcome {
    SyncOutcome::Blocked { error: error.into() }
}

fn failed(error: &str) -> SyncOutcome {
    SyncOutcome::Failed { error: error.into() }
}

fn of(outcomes: [SyncOutcome; 3]) -> Vec<(String, SyncOutcome)> {
    ["a.held", "a.skips", "a.stops"].map(String::from).into_iter().zip(outcomes).collect()
}

#[tokio::test]
async fn failed_and_blocked_sync_handlers_are_answered_before_the_deadline() {
    let (bus, running) = failing().await;
    let fail = |key: &str| event("a", "x").payload_json(r#""fail""#).key(key);
    let ends = [blocked("no paper"), failed("no paper"), failed("no paper")];
    assert_eq!(outcomes(&bus, fail("k")).await, of(ends.clone()));
    assert_eq!(outcomes(&bus, fail("k")).await, of(ends), "the same for a repeated publish, from the store");
    // What comes after it in its object does not run before a person acts.
    let behind = "it waits for event 1 of the same object, which is held";
    let ends = [blocked(behind), SyncOutcome::Done, failed("its object was given up at event 1")];
    assert_eq!(outcomes(&bus, event("a", "x").key("next")).await, of(ends.clone()));
    assert_eq!(outcomes(&bus, event("a", "x").key("next")).await, of(ends));
    let done = [SyncOutcome::Done, SyncOutcome::Done, SyncOutcome::Done];
    assert_eq!(outcomes(&bus, event("a", "y")).await, of(done));
    running.shutdown(LONG).await.unwrap();
}

#[tokio::test]
async fn a_publish_that_waits_learns_that_an_earlier_event_of_its_object_came_to_be_held() {
    let bus = Ensue::memory().await.unwrap();
    let gate = Arc::new(Semaphore::new(0));
    let opened = gate.clone();
    let handler = move |_event: Event, _cx: Context| {
        let gate = opened.clone();
        async move {
            gate.acquire().await.map_err(HandlerError::failed)?.forget();
            Err::<(), _>(HandlerError::failed("no paper"))
        }
    };
    bus.on("a").named("h").sync().retry(Retry::attempts(1)).handle(handler).unwrap();
    let running = bus.start().await.unwrap();
    bus.publish(event("a", "x")).await.unwrap();
    let waits = outcomes(&bus, event("a", "x"));
    let fails = async {
        until("the second event is in the log", async || bus.store().bounds().await.unwrap().last == 2).await;
        gate.add_permits(1);
    };
    let (outcomes, ()) = tokio::join!(waits, fails);
    assert_eq!(outcomes, [("a.h".into(), SyncOutcome::held_behind(1))]);
    running.shutdown(LONG).await.unwrap();
}

#[tokio::test]
async fn what_a_rule_holds_is_blocked_with_its_reason() {
    let (bus, running) = failing().await;
    let scope = Scope::parse("handler:a.held").unwrap();
    let reason = Some("the printer is moved".to_string());
    let rule = NewRule { kind: RuleKind::Pause, scope, reason, author: "ann".into(), expires_at: None };
    bus.set_rule(rule).await.unwrap();
    let ends =
        [blocked("a pause of handler:a.held holds it (the printer is moved)"), SyncOutcome::Done, SyncOutcome::Done];
    assert_eq!(outcomes(&bus, event("a", "x")).await, of(ends));
    running.shutdown(LONG).await.unwrap();
}
