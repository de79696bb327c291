//! H39: one object with much to do holds a small part of the memory and of the starts.
#![cfg(feature = "sqlite")]

use crate::support::{LONG, Seen, event, name, on_both, until};
use ensue::{Context, Ensue, Event, Filter, HandlerError, NewEvent, Read, Retry, Seq, Start};
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;

/// How many events of the busy object there are: more than a handler reads ahead.
const BUSY: usize = 3_000;
/// How many of them may end before the others have.
const BEFORE_OTHERS_MAX: usize = 300;
const OTHERS: usize = 5;

async fn publish_busy(bus: &Ensue, count: usize) {
    for _ in 0..count / 1_000 {
        bus.publish_all((0..1_000).map(|_| event("a", "busy")).collect()).await.unwrap();
    }
}

/// The busy object runs one event at a time; five other objects get their turns meanwhile.
async fn busy_object_does_not_starve_the_others(url: &str) {
    let bus = Ensue::open(url).await.unwrap();
    let (gate, seen) = (Arc::new(Semaphore::new(0)), Seen::default());
    let (gated, given) = (gate.clone(), seen.clone());
    bus.on("a")
        .named("h")
        .start(Start::Beginning)
        .concurrency(4)
        .handle(move |event: Event, _cx: Context| {
            let (gate, given) = (gated.clone(), given.clone());
            async move {
                if event.object.as_ref().is_some_and(|object| object.as_str() == "busy") {
                    gate.acquire().await?.forget();
                } else {
                    tokio::task::yield_now().await;
                }
                given.push(&event);
                Ok(())
            }
        })
        .unwrap();
    publish_busy(&bus, BUSY).await;
    let others: Vec<String> = (0..OTHERS).map(|n| format!("o{n}")).collect();
    bus.publish_all(others.iter().map(|other| event("a", other)).collect()).await.unwrap();
    let running = bus.start().await.unwrap();
    let mut ended = 0;
    while seen.all().len() - seen.of("busy").len() < OTHERS {
        gate.add_permits(1);
        ended += 1;
        until("the busy object stands still", async || seen.of("busy").len() >= ended).await;
        assert!(ended < BEFORE_OTHERS_MAX, "{ended} events of the busy object, and the others wait");
    }
    gate.add_permits(BUSY);
    bus.drain().await.unwrap();
    let busy = seen.of("busy");
    assert!(busy.len() == BUSY && busy.is_sorted(), "{} events", busy.len());
    until("the row of the busy lane stays", async || {
        let group = bus.store().group(&name("a.h")).await.unwrap().unwrap();
        group.lanes == 0 && group.cursor() == (BUSY + OTHERS) as u64
    })
    .await;
    running.shutdown(LONG).await.unwrap();
}

/// A lane that reads the log keeps its order and leaves nothing out, through failures and a new start of the handlers;
/// what its events publish is there once.
async fn full_lane_keeps_order_and_publishes_once(url: &str) {
    let bus = Ensue::open(url).await.unwrap();
    bus.set_read_ahead(32).unwrap();
    let (seen, tries) = (Seen::default(), Arc::new(AtomicUsize::new(0)));
    let (given, tried) = (seen.clone(), tries.clone());
    bus.on("a")
        .named("h")
        .start(Start::Beginning)
        .concurrency(4)
        .retry(Retry::attempts(1_000).first(Duration::from_millis(1)).max(Duration::from_millis(1)))
        .handle(move |event: Event, cx: Context| {
            let (given, tried) = (given.clone(), tried.clone());
            async move {
                tokio::task::yield_now().await;
                if tried.fetch_add(1, Ordering::Relaxed) % 50 == 49 {
                    return Err(HandlerError::failed("one of fifty"));
                }
                if event.seq % 7 == 0 {
                    cx.publish(NewEvent::new("echo").payload(&event.seq))?;
                }
                given.push(&event);
                Ok(())
            }
        })
        .unwrap();
    let events =
        |from: usize| (from..from + 500).map(|n| event("a", &format!("o{}", if n % 3 == 0 { n % 40 } else { 0 })));
    bus.publish_all(events(0).collect()).await.unwrap();
    let running = bus.start().await.unwrap();
    until("nothing runs", async || seen.all().len() > 100).await;
    running.shutdown(LONG).await.unwrap();
    bus.publish_all(events(500).collect()).await.unwrap();
    let running = bus.start().await.unwrap();
    bus.drain().await.unwrap();
    until("lanes wait", async || {
        bus.drain().await.unwrap();
        bus.store().group(&name("a.h")).await.unwrap().unwrap().lanes == 0
    })
    .await;
    running.shutdown(LONG).await.unwrap();
    // What was done ahead of the cursor without publishing may run again after the new start.
    let mut done = HashSet::new();
    let first: Vec<(String, Seq)> = seen.all().into_iter().filter(|(_, seq)| done.insert(*seq)).collect();
    assert_eq!(first.len(), 1_000);
    for object in 0..40 {
        let object = format!("o{object}");
        assert!(first.iter().filter(|(of, _)| *of == object).is_sorted_by_key(|(_, seq)| seq), "{object}");
    }
    let read = Read { after: 0, limit: 2_000, filter: Filter::default() };
    let log = bus.store().read(read).await.unwrap().events;
    let echoes = log.iter().filter(|event| event.topic.as_str() == "echo");
    let mut echoed: Vec<Seq> = echoes.map(|event| event.payload.as_str().parse().unwrap()).collect();
    echoed.sort_unstable();
    let mut wanted: Vec<Seq> = done.into_iter().filter(|seq| seq % 7 == 0).collect();
    wanted.sort_unstable();
    assert_eq!(echoed, wanted);
}

/// Events of a busy object still go together to a handler of batches, in order; when a batch fails, each runs alone.
async fn full_lane_fills_batches(url: &str) {
    let bus = Ensue::open(url).await.unwrap();
    bus.set_read_ahead(64).unwrap();
    let (seen, batches) = (Seen::default(), Arc::new(AtomicUsize::new(0)));
    let (given, counted) = (seen.clone(), batches.clone());
    bus.on("a")
        .named("h")
        .start(Start::Beginning)
        .batch(50)
        .handle_batch(move |events: Vec<Event>, _cx: Context| {
            let (given, counted) = (given.clone(), counted.clone());
            async move {
                tokio::task::yield_now().await;
                let is_first = counted.fetch_add(1, Ordering::Relaxed) == 3;
                if is_first && events.len() > 1 {
                    return Err(HandlerError::failed("the fourth batch"));
                }
                events.iter().for_each(|event| given.push(event));
                Ok(())
            }
        })
        .unwrap();
    publish_busy(&bus, BUSY).await;
    let running = bus.start().await.unwrap();
    bus.drain().await.unwrap();
    running.shutdown(LONG).await.unwrap();
    let busy = seen.of("busy");
    assert!(busy.len() == BUSY && busy.is_sorted_by(|a, b| a < b), "{} events", busy.len());
    let batches = batches.load(Ordering::Relaxed);
    assert!(batches < BUSY / 10, "{batches} batches");
}

on_both! { "busy";
    busy_object_does_not_starve_the_others;
    full_lane_keeps_order_and_publishes_once;
    full_lane_fills_batches;
}
