//! Handlers come, change and go while the bus runs: nothing is lost, order is kept, what runs goes on.

use crate::support::{LONG, Seen, event, name, until};
use ensue::{Context, Ensue, Event, HandlerBuilder, HandlerError, HandlerLimits};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Semaphore;

fn noting(
    seen: &Seen,
) -> impl Fn(Event, Context) -> std::future::Ready<Result<(), HandlerError>> + Send + Sync + 'static {
    let seen = seen.clone();
    move |event: Event, _cx: Context| {
        seen.push(&event);
        std::future::ready(Ok(()))
    }
}

fn bind(builder: HandlerBuilder, seen: &Seen) {
    builder.named("h").handle(noting(seen)).unwrap();
}

/// A handler that is taken out keeps its place: bound again, it goes on from there.
#[tokio::test]
async fn handlers_come_and_go_while_the_bus_runs() {
    let bus = Ensue::memory().await.unwrap();
    let running = bus.start().await.unwrap();
    let seen = Seen::default();
    bus.publish(event("a", "o")).await.unwrap();
    let change = bus.rebind();
    bind(change.on("a"), &seen);
    change.apply().await.unwrap();
    bus.publish(event("a", "o")).await.unwrap();
    bus.drain().await.unwrap();
    assert_eq!(seen.seqs(), [2], "it begins now");

    let mut change = bus.rebind();
    change.unbind(&name("a.h"));
    change.apply().await.unwrap();
    assert_eq!(bus.handlers().len(), 0);
    until("its slots are given back", async || {
        let group = bus.store().group(&name("a.h")).await.unwrap().unwrap();
        group.slots.iter().all(|slot| slot.owner.is_none())
    })
    .await;
    bus.publish(event("a", "o")).await.unwrap();
    bus.drain().await.unwrap();
    assert_eq!(seen.seqs(), [2]);

    let change = bus.rebind();
    bind(change.on("a"), &seen);
    change.apply().await.unwrap();
    bus.drain().await.unwrap();
    assert_eq!(seen.seqs(), [2, 3]);
    running.shutdown(LONG).await.unwrap();
}

/// Of a change that cannot be, nothing is done.
#[tokio::test]
async fn a_change_is_all_or_nothing() {
    let bus = Ensue::memory().await.unwrap();
    let seen = Seen::default();
    bind(bus.on("a"), &seen);
    let running = bus.start().await.unwrap();
    let mut change = bus.rebind();
    bind(change.on("b"), &seen);
    bind(change.on("a"), &seen);
    let refused = change.apply().await.unwrap_err().to_string();
    assert!(refused.contains("`a.h`, which another handler has"), "{refused}");
    assert_eq!(bus.handlers().len(), 1);
    change = bus.rebind();
    let none = HandlerLimits { concurrency: 0, ..HandlerLimits::default() };
    assert!(change.limits(&name("a.h"), none).unwrap_err().to_string().contains("concurrency"));
    bus.publish(event("a", "o")).await.unwrap();
    bus.drain().await.unwrap();
    assert_eq!(seen.seqs(), [1]);
    running.shutdown(LONG).await.unwrap();
}

/// The code is replaced while an attempt runs: that goes on to its end, is not told to stop and not run again, and the next event of
/// its object waits for it.
#[tokio::test(flavor = "multi_thread")]
async fn what_runs_ends_before_its_successor_begins() {
    let bus = Ensue::memory().await.unwrap();
    let (before, after, gate) = (Seen::default(), Seen::default(), Arc::new(Semaphore::new(0)));
    let (seen, open) = (before.clone(), gate.clone());
    let slow = move |event: Event, cx: Context| {
        let (seen, open) = (seen.clone(), open.clone());
        async move {
            seen.push(&event);
            tokio::select! {
                permit = open.acquire() => permit.unwrap().forget(),
                () = cx.cancelled() => return Err(HandlerError::permanent("it was told to stop")),
            }
            Ok(())
        }
    };
    bus.on("a").named("h").handle(slow).unwrap();
    let running = bus.start().await.unwrap();
    bus.publish(event("a", "o")).await.unwrap();
    until("the slow one begins", async || before.seqs() == [1]).await;

    let mut change = bus.rebind();
    change.unbind(&name("a.h"));
    bind(change.on("a"), &after);
    change.apply().await.unwrap();
    bus.publish_all(vec![event("a", "o"), event("a", "p")]).await.unwrap();
    let second = bus.rebind();
    bind(second.on("b"), &after);
    second.apply().await.unwrap();
    bus.publish(event("b", "q")).await.unwrap();
    until("others are not held up", async || after.seqs() == [4]).await;
    assert_eq!((before.seqs(), after.of("o")), (vec![1], vec![]));
    gate.add_permits(1);
    bus.drain().await.unwrap();
    assert_eq!((before.seqs(), after.of("o"), after.of("p")), (vec![1], vec![2], vec![3]));
    let held = bus.stuck(10).await.unwrap();
    assert!(held.is_empty(), "{held:?}");
    running.shutdown(LONG).await.unwrap();
}

/// More may run at once from one moment to the next, and what runs is left alone.
#[tokio::test(flavor = "multi_thread")]
async fn limits_are_changed_in_place() {
    let bus = Ensue::memory().await.unwrap();
    let (begun, gate) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
    let (count, open) = (begun.clone(), gate.clone());
    let slow = move |_event: Event, _cx: Context| {
        count.fetch_add(1, Ordering::SeqCst);
        let open = open.clone();
        async move {
            open.acquire().await.unwrap().forget();
            Ok(())
        }
    };
    bus.on("a").named("h").concurrency(1).handle(slow).unwrap();
    let running = bus.start().await.unwrap();
    bus.publish_all((0..6).map(|n| event("a", &format!("o{n}"))).collect()).await.unwrap();
    until("one runs", async || begun.load(Ordering::SeqCst) == 1).await;
    let mut change = bus.rebind();
    let limits = HandlerLimits { concurrency: 4, ..HandlerLimits::default() };
    change.limits(&name("a.h"), limits).unwrap();
    change.apply().await.unwrap();
    assert_eq!(bus.handlers()[0].concurrency, 4);
    until("four run", async || begun.load(Ordering::SeqCst) == 4).await;
    gate.add_permits(6);
    bus.drain().await.unwrap();
    assert_eq!(begun.load(Ordering::SeqCst), 6, "none was begun twice");
    running.shutdown(LONG).await.unwrap();
}

/// A handler is replaced again and again while events come: each event is handled, and those of an object in order. A mailbox
/// that is taken away must not look like one into which nothing was put.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_while_handlers_are_replaced() {
    const EVENTS: u64 = 2_000;
    let bus = Ensue::memory().await.unwrap();
    let seen = Seen::default();
    bind(bus.on("a"), &seen);
    let running = bus.start().await.unwrap();
    let publisher = bus.clone();
    let publishing = tokio::spawn(async move {
        for n in 0..EVENTS {
            publisher.publish(event("a", &format!("o{}", n % 7))).await.unwrap();
        }
    });
    while !publishing.is_finished() {
        let mut change = bus.rebind();
        change.unbind(&name("a.h"));
        bind(change.on("a"), &seen);
        change.apply().await.unwrap();
        tokio::task::yield_now().await;
    }
    publishing.await.unwrap();
    bus.drain().await.unwrap();
    let mut newest: HashMap<String, u64> = HashMap::new();
    let mut handled = std::collections::BTreeSet::new();
    for (object, seq) in seen.all() {
        handled.insert(seq);
        let before = newest.entry(object.clone()).or_default();
        // A successor may do again what was not written down; it never goes ahead.
        assert!(seq <= *before + 7, "{object}: {seq} after {before}");
        *before = seq.max(*before);
    }
    assert_eq!(handled.len() as u64, EVENTS);
    running.shutdown(LONG).await.unwrap();
}

/// A child that is bound later waits for the first attempts of its parent, as one that was there from the beginning.
#[tokio::test(flavor = "multi_thread")]
async fn a_child_that_comes_later_waits_for_its_parent() {
    let bus = Ensue::memory().await.unwrap();
    let (parent, child, gate) = (Seen::default(), Seen::default(), Arc::new(Semaphore::new(0)));
    let (seen, open) = (parent.clone(), gate.clone());
    let slow = move |event: Event, _cx: Context| {
        seen.push(&event);
        let open = open.clone();
        async move {
            open.acquire().await.unwrap().forget();
            Ok(())
        }
    };
    bus.on("a").named("parent").handle(slow).unwrap();
    let running = bus.start().await.unwrap();
    let change = bus.rebind();
    change.on("a.b").named("child").handle(noting(&child)).unwrap();
    change.on("c").named("other").handle(noting(&child)).unwrap();
    change.apply().await.unwrap();
    bus.publish_all(vec![event("a.b", "o"), event("c", "p")]).await.unwrap();
    until("the parent begins, and who is no child", async || parent.seqs() == [1] && child.seqs() == [2]).await;
    gate.add_permits(1);
    bus.drain().await.unwrap();
    assert_eq!(child.seqs(), [2, 1]);
    running.shutdown(LONG).await.unwrap();
}

/// Jobs that are sent to a handler that comes later are run by it.
#[tokio::test]
async fn jobs_of_a_handler_that_comes_later_are_run() {
    let bus = Ensue::memory().await.unwrap();
    let running = bus.start().await.unwrap();
    let seen = Seen::default();
    bus.emit(ensue::Emit::to("a.h").object("o")).await.unwrap();
    let change = bus.rebind();
    bind(change.on("a"), &seen);
    change.apply().await.unwrap();
    until("it is run", async || seen.of("o").len() == 1).await;
    running.shutdown(LONG).await.unwrap();
}
