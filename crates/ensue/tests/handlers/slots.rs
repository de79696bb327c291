//! Slots move between processes: nothing stops meanwhile, and none is left without an owner.

#![cfg(feature = "postgres")]

use ensue::{Context, Ensue, Event, GroupName, NewEvent, Seq};
use ensue_conformance::postgres::fresh_schema;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(30);
type Starts = Arc<Mutex<Vec<Seq>>>;

fn event(object: &str) -> NewEvent {
    NewEvent::new("a").object(object)
}

fn bind(bus: &Ensue, starts: &Starts) {
    let seen = starts.clone();
    let handler = move |event: Event, _cx: Context| {
        let seen = seen.clone();
        async move {
            seen.lock().unwrap().push(event.seq);
            if event.object.as_ref().unwrap().as_str() == "slow" {
                std::future::pending::<()>().await;
            }
            Ok(())
        }
    };
    bus.on("a").named("h").handle(handler).unwrap();
}

async fn owners(bus: &Ensue) -> usize {
    let group = bus.store().group(&GroupName::parse("name", "a.h").unwrap()).await.unwrap().unwrap();
    let mut all: Vec<_> =
        group.slots.iter().filter_map(|slot| slot.owner.as_ref().map(|owner| owner.member.id)).collect();
    all.sort_unstable();
    all.dedup();
    all.len()
}

async fn free_slots(bus: &Ensue) -> usize {
    let group = bus.store().group(&GroupName::parse("name", "a.h").unwrap()).await.unwrap().unwrap();
    group.slots.iter().filter(|slot| slot.owner.is_none()).count()
}

async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let wait = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, wait).await.unwrap_or_else(|_| panic!("{what}"));
}

/// A process joins while one attempt of another takes long: whatever else there is goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_attempt_stops_nobody_when_slots_move() {
    let (url, _) = fresh_schema("slots");
    let starts = Starts::default();
    let first = Ensue::open(&url).await.unwrap();
    bind(&first, &starts);
    let _running = first.start().await.unwrap();
    first.publish(event("slow")).await.unwrap();
    until("the slow one starts", async || !starts.lock().unwrap().is_empty()).await;
    let second = Ensue::open(&url).await.unwrap();
    bind(&second, &starts);
    let _running_too = second.start().await.unwrap();
    first.publish_all((0..100).map(|n| event(&format!("o{n}"))).collect()).await.unwrap();
    until("all are started", async || {
        starts.lock().unwrap().iter().filter(|seq| **seq > 1).collect::<HashSet<_>>().len() == 100
    })
    .await;
    until("both have slots", async || owners(&first).await == 2).await;
}

/// A third process joins. One of the two that are there gives its part back at once, the other when its attempts have ended:
/// also what is given back late finds an owner.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_back_late_finds_an_owner() {
    let (url, _) = fresh_schema("slots");
    let starts = Starts::default();
    let mut all = Vec::new();
    for takes in [0, 5, 0] {
        let bus = Ensue::open(&url).await.unwrap();
        let seen = starts.clone();
        let handler = move |event: Event, _cx: Context| {
            let seen = seen.clone();
            async move {
                seen.lock().unwrap().push(event.seq);
                tokio::time::sleep(Duration::from_secs(takes)).await;
                Ok(())
            }
        };
        bus.on("a").named("h").concurrency(100).handle(handler).unwrap();
        if all.len() == 2 {
            bus.publish_all((0..60).map(|n| event(&format!("o{n}"))).collect()).await.unwrap();
            until("all are started", async || starts.lock().unwrap().len() >= 60).await;
        }
        let running = bus.start().await.unwrap();
        all.push((bus, running));
        if all.len() == 2 {
            until("both have slots", async || owners(&all[0].0).await == 2 && free_slots(&all[0].0).await == 0).await;
        }
    }
    let bus = &all[0].0;
    until("all have slots, and none is free", async || owners(bus).await == 3 && free_slots(bus).await == 0).await;
    bus.publish_all((0..60).map(|n| event(&format!("o{n}"))).collect()).await.unwrap();
    let is_started =
        async || starts.lock().unwrap().iter().filter(|seq| **seq > 60).collect::<HashSet<_>>().len() == 60;
    until("what comes then is started", is_started).await;
}

/// Processes with different handlers share a database: what only one of them serves is served by it alone.
#[tokio::test(flavor = "multi_thread")]
async fn slots_that_nobody_else_claims_are_taken_on() {
    let (url, _) = fresh_schema("orphans");
    let (here, there) = (Starts::default(), Starts::default());
    let other = Ensue::open(&url).await.unwrap();
    other.on("b").named("h").handle(|_event: Event, _cx: Context| async { Ok(()) }).unwrap();
    let _other_running = other.start().await.unwrap();
    let bus = Ensue::open(&url).await.unwrap();
    bind(&bus, &here);
    let _running = bus.start().await.unwrap();
    bus.publish_all((0..100).map(|n| event(&format!("o{n}"))).collect()).await.unwrap();
    until("all are handled by the one that can", async || here.lock().unwrap().len() >= 100).await;
    // Another one that can comes: it gets its share.
    let too = Ensue::open(&url).await.unwrap();
    bind(&too, &there);
    let _running_too = too.start().await.unwrap();
    until("both have slots", async || owners(&bus).await == 2 && free_slots(&bus).await == 0).await;
    bus.publish_all((0..100).map(|n| event(&format!("o{n}"))).collect()).await.unwrap();
    until("all are handled", async || {
        let seqs: HashSet<Seq> = here.lock().unwrap().iter().chain(there.lock().unwrap().iter()).copied().collect();
        seqs.len() == 200
    })
    .await;
}
