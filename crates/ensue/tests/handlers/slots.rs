//! Slots move between processes: nothing stops meanwhile, and none is left without an owner.

#![cfg(feature = "postgres")]

use crate::support::{LONG, event, name, until};
use ensue::{Context, Ensue, Event, NewEvent, Seq};
use ensue_conformance::postgres::fresh_schema;
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Starts = Arc<Mutex<Vec<Seq>>>;

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
    let group = bus.store().group(&name("a.h")).await.unwrap().unwrap();
    let mut all: Vec<_> =
        group.slots.iter().filter_map(|slot| slot.owner.as_ref().map(|owner| owner.member.id)).collect();
    all.sort_unstable();
    all.dedup();
    all.len()
}

async fn free_slots(bus: &Ensue) -> usize {
    let group = bus.store().group(&name("a.h")).await.unwrap().unwrap();
    group.slots.iter().filter(|slot| slot.owner.is_none()).count()
}

/// A process joins while one attempt of another takes long: whatever else there is goes on.
#[tokio::test(flavor = "multi_thread")]
async fn a_slow_attempt_stops_nobody_when_slots_move() {
    let (url, _) = fresh_schema("slots");
    let starts = Starts::default();
    let first = Ensue::open(&url).await.unwrap();
    bind(&first, &starts);
    let _running = first.start().await.unwrap();
    first.publish(event("a", "slow")).await.unwrap();
    until("the slow one starts", async || !starts.lock().unwrap().is_empty()).await;
    let second = Ensue::open(&url).await.unwrap();
    bind(&second, &starts);
    let _running_too = second.start().await.unwrap();
    first.publish_all((0..100).map(|n| event("a", &format!("o{n}"))).collect()).await.unwrap();
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
            bus.publish_all((0..60).map(|n| event("a", &format!("o{n}"))).collect()).await.unwrap();
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
    bus.publish_all((0..60).map(|n| event("a", &format!("o{n}"))).collect()).await.unwrap();
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
    bus.publish_all((0..100).map(|n| event("a", &format!("o{n}"))).collect()).await.unwrap();
    until("all are handled by the one that can", async || here.lock().unwrap().len() >= 100).await;
    // Another one that can comes: it gets its share.
    let too = Ensue::open(&url).await.unwrap();
    bind(&too, &there);
    let _running_too = too.start().await.unwrap();
    until("both have slots", async || owners(&bus).await == 2 && free_slots(&bus).await == 0).await;
    bus.publish_all((0..100).map(|n| event("a", &format!("o{n}"))).collect()).await.unwrap();
    until("all are handled", async || {
        let seqs: HashSet<Seq> = here.lock().unwrap().iter().chain(there.lock().unwrap().iter()).copied().collect();
        seqs.len() == 200
    })
    .await;
}

/// A process with a handler of its own, and one that others have too.
async fn with_own_and_shared(url: &str, own: &str, seen: &Starts) -> (Ensue, ensue::Running) {
    let bus = Ensue::open(url).await.unwrap();
    for topic in [own, "shared"] {
        let seen = seen.clone();
        let handler = move |event: Event, _cx: Context| {
            seen.lock().unwrap().push(event.seq);
            async { Ok(()) }
        };
        bus.on(topic).named("h").handle(handler).unwrap();
    }
    let running = bus.start().await.unwrap();
    (bus, running)
}

/// Who has the slots of a group, and under which fences.
async fn held(bus: &Ensue, group: &str) -> Vec<(Option<String>, u64)> {
    let group = bus.store().group(&name(group)).await.unwrap().unwrap();
    let owner = |slot: &ensue::positions::SlotState| slot.owner.as_ref().map(|owner| owner.member.id.to_string());
    group.slots.iter().map(|slot| (owner(slot), slot.fence)).collect()
}

/// How many processes have slots of a group; none if a slot is free.
async fn sharers(bus: &Ensue, group: &str) -> Option<usize> {
    let owners: Option<HashSet<String>> = held(bus, group).await.into_iter().map(|(owner, _)| owner).collect();
    owners.map(|owners| owners.len())
}

/// Who comes, goes or dies does not touch what it never served: not a slot of that moves. What several serve is shared by
/// those, and by nobody else.
#[tokio::test(flavor = "multi_thread")]
async fn slots_are_divided_among_those_who_serve_the_group() {
    let (url, _) = fresh_schema("serving");
    let (seen_here, seen_there) = (Starts::default(), Starts::default());
    let (here, _running) = with_own_and_shared(&url, "a", &seen_here).await;
    until("the first has all", async || sharers(&here, "a.h").await == Some(1)).await;
    until("the first has all", async || sharers(&here, "shared.h").await == Some(1)).await;
    let untouched = held(&here, "a.h").await;
    for ends_in_order in [true, false] {
        let (there, running) = with_own_and_shared(&url, "b", &seen_there).await;
        until("both share what both serve", async || sharers(&here, "shared.h").await == Some(2)).await;
        until("the second has its own", async || sharers(&here, "b.h").await == Some(1)).await;
        let events = (0..60).map(|n| NewEvent::new(["a", "b", "shared"][n % 3]).object(format!("o{n}")));
        let appended = here.publish_all(events.collect()).await.unwrap();
        let wanted: HashSet<Seq> = appended.iter().filter_map(|one| one.seq).collect();
        until("all are handled", async || {
            let (here, there) = (seen_here.lock().unwrap(), seen_there.lock().unwrap());
            here.iter().chain(there.iter()).filter(|seq| wanted.contains(seq)).collect::<HashSet<_>>().len() == 60
        })
        .await;
        assert_eq!(held(&here, "a.h").await, untouched, "who comes takes nothing that it does not serve");
        match ends_in_order {
            true => running.shutdown(LONG).await.unwrap(),
            false => drop(running), // as by kill -9: its lease passes
        }
        there.close().await;
        until("the first has all again", async || sharers(&here, "shared.h").await == Some(1)).await;
        assert_eq!(held(&here, "a.h").await, untouched, "who goes leaves the others as they were");
        let shared = (0..20).map(|n| NewEvent::new("shared").object(format!("o{n}")));
        let last = here.publish_all(shared.collect()).await.unwrap()[19].seq.unwrap();
        until("the first handles it", async || seen_here.lock().unwrap().contains(&last)).await;
    }
}
