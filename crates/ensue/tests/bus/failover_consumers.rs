//! H44: the log goes back under the cursor of a handler or a group, and grows past it with other events. None of these is
//! skipped.

use ensue::groups::{Pull, Pulled, Wants};
use ensue::{Context, Ensue, Event, NewEvent, Seq};
use ensue_conformance::ManualClock;
use ensue_conformance::model::Model;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::watch;

/// Far beyond what any of this takes.
const PATIENCE: Duration = Duration::from_secs(180);

/// A bus on a store that can fail over.
fn bus() -> (Ensue, Model) {
    let model = Model::new(ManualClock::at_noon().clock());
    (Ensue::with_store(model.clone()), model)
}

async fn publish(bus: &Ensue, name: &str, count: usize) {
    let event = |n: usize| NewEvent::new("t").object(format!("o{}", n % 5)).payload(&format!("{name}-{n}"));
    bus.publish_all((0..count).map(event).collect()).await.unwrap();
}

pub async fn until(what: &str, mut condition: impl AsyncFnMut() -> bool) {
    let wait = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// What a handler was given, by payload.
#[derive(Clone, Default)]
struct Given(Arc<Mutex<HashSet<String>>>);

impl Given {
    fn add(&self, event: &Event) {
        self.0.lock().unwrap().insert(event.payload.as_str().trim_matches('"').to_owned());
    }

    fn has_all(&self, name: &str, count: usize) -> bool {
        let given = self.0.lock().unwrap();
        (0..count).all(|n| given.contains(&format!("{name}-{n}")))
    }
}

/// The attempts of the lost events end after the failover, before the tail has looked: their cursor is not written.
#[tokio::test]
async fn handler_gets_what_took_the_places_of_lost_events() {
    for grown_to in [5, 30] {
        let (bus, model) = bus();
        let (given, (gate, gates)) = (Given::default(), watch::channel(true));
        let noted = given.clone();
        let handler = move |event: Event, _: Context| {
            let (given, mut gate) = (noted.clone(), gates.clone());
            async move {
                given.add(&event);
                gate.wait_for(|is_open| *is_open).await.expect("the test has the gate");
                Ok(())
            }
        };
        bus.on("t").named("h").concurrency(16).handle(handler).unwrap();
        let running = bus.start().await.unwrap();
        publish(&bus, "kept", 10).await;
        let cursor = async || bus.store().groups().await.unwrap()[0].cursor();
        until("what was kept is written", async || cursor().await == 10).await;
        gate.send_replace(false);
        publish(&bus, "lost", 10).await;
        until("the lost events are handled", async || given.has_all("lost", 5)).await;
        model.fail_over(10);
        publish(&bus, "new", grown_to).await;
        gate.send_replace(true);
        until("new events are handled", async || given.has_all("new", grown_to)).await;
        publish(&bus, "later", 30).await;
        until("later events are handled", async || given.has_all("later", 30)).await;
        let last = bus.store().bounds().await.unwrap().last;
        until("the cursor is at the end of the log", async || cursor().await == last).await;
        running.shutdown(PATIENCE).await.unwrap();
    }
}

/// The same for one whose lanes have rows: what fails in the lost part of the log leaves none behind.
#[tokio::test]
async fn lane_of_a_lost_event_does_not_skip_what_took_its_place() {
    let (bus, model) = bus();
    let (given, failing) = (Given::default(), Arc::new(Mutex::new(HashSet::<Seq>::new())));
    let (noted, failed) = (given.clone(), failing.clone());
    let handler = move |event: Event, _: Context| {
        let is_lost = event.payload.as_str().contains("lost");
        let is_first = is_lost && failed.lock().unwrap().insert(event.seq);
        let given = noted.clone();
        async move {
            if is_first {
                return Err(ensue::HandlerError::failed("the first time"));
            }
            given.add(&event);
            Ok(())
        }
    };
    let retry = ensue::Retry::delays([Duration::from_millis(300); 3]);
    bus.on("t").named("h").retry(retry).handle(handler).unwrap();
    let running = bus.start().await.unwrap();
    publish(&bus, "kept", 10).await;
    publish(&bus, "lost", 10).await;
    until("lanes have rows", async || {
        let group = bus.store().groups().await.unwrap().remove(0);
        group.lanes == 5
    })
    .await;
    model.fail_over(10);
    publish(&bus, "new", 40).await;
    until("new events are handled", async || given.has_all("new", 40)).await;
    running.shutdown(PATIENCE).await.unwrap();
}

fn payloads(pulled: &Pulled) -> Vec<String> {
    let payload = |one: &ensue::groups::PulledEvent| one.event.payload.as_str().trim_matches('"').to_owned();
    pulled.events.iter().map(payload).collect()
}

/// The lease outlives the failover: what was read under it is neither committed nor continued from.
#[tokio::test]
async fn group_gets_what_took_the_places_of_lost_events() {
    let (bus, model) = bus();
    let groups = bus.groups();
    groups.subscribe("g", Wants::default()).await.unwrap();
    publish(&bus, "kept", 10).await;
    publish(&bus, "lost", 10).await;
    let first = groups.pull("g", Pull { limit: 15, ..Pull::default() }).await.unwrap();
    let lease = first.lease.clone().unwrap();
    assert_eq!(first.cursor, 15);
    groups.commit("g", &lease, Some(5), false).await.unwrap();
    model.fail_over(10);
    for grown in [3, 30] {
        publish(&bus, &format!("new{grown}"), grown).await;
        let told = groups.commit("g", &lease, Some(15), true).await.unwrap_err().to_string();
        assert!(told.contains("went_back") && told.contains("from 6 to 15"), "{told}");
        let under = Pull { under: Some(lease.clone()), ..Pull::default() };
        let told = groups.pull("g", under).await.unwrap_err().to_string();
        assert!(told.contains("went_back"), "{told}");
    }
    assert_eq!(groups.get("g").await.unwrap().cursor(), 5, "nothing was changed");
    groups.commit("g", &lease, None, true).await.unwrap();
    let again = groups.pull("g", Pull::default()).await.unwrap();
    let expected = (5..10).map(|n| format!("kept-{n}"));
    let expected = expected.chain((0..3).map(|n| format!("new3-{n}"))).chain((0..30).map(|n| format!("new30-{n}")));
    assert_eq!(payloads(&again), expected.collect::<Vec<_>>());
    groups.commit("g", &again.lease.unwrap(), Some(again.cursor), true).await.unwrap();
}

/// A reader at the end of the log goes back with it, although it was given nothing that is lost.
#[tokio::test]
async fn reader_that_found_nothing_is_told_that_the_log_went_back() {
    let (bus, model) = bus();
    let groups = bus.groups();
    groups.subscribe("g", Wants::default()).await.unwrap();
    publish(&bus, "lost", 10).await;
    let read = groups.pull("g", Pull::default()).await.unwrap();
    let lease = read.lease.unwrap();
    groups.commit("g", &lease, Some(10), false).await.unwrap();
    let under = || Pull { under: Some(lease.clone()), ..Pull::default() };
    let lease = groups.pull("g", under()).await.unwrap().lease.unwrap();
    model.fail_over(4);
    publish(&bus, "new", 10).await;
    let told = groups.pull("g", Pull { under: Some(lease), ..Pull::default() }).await.unwrap_err().to_string();
    assert!(told.contains("went_back"), "{told}");
}

/// What retention took cannot be compared, and is no reason to refuse a commit.
#[tokio::test]
async fn commit_of_what_retention_has_taken_is_written() {
    let (bus, _) = bus();
    let groups = bus.groups();
    groups.subscribe("g", Wants::default()).await.unwrap();
    publish(&bus, "a", 10).await;
    let read = groups.pull("g", Pull::default()).await.unwrap();
    bus.store().trim(11, 1_000).await.unwrap();
    groups.commit("g", &read.lease.unwrap(), Some(10), true).await.unwrap();
    assert_eq!(groups.get("g").await.unwrap().cursor(), 10);
}
