//! A handler runs a part of the log again and goes on where it was: in order for each object, nothing left out, nothing else.

#![cfg(feature = "sqlite")]

use crate::support::{LONG, Seen, event, stuck, until};
use ensue::positions::Ask;
use ensue::{Context, Ensue, Error, Event, HandlerError, Retry, Seq, Standing, Start, StoreError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// A handler that fails on one event, once or while it is told to.
async fn bus(url: &str, seen: &Seen, bad: &Arc<AtomicU64>, retry: Retry) -> Ensue {
    let bus = Ensue::open(url).await.unwrap();
    let (seen, bad) = (seen.clone(), bad.clone());
    bus.on("t")
        .named("h")
        .start(Start::Beginning)
        .concurrency(8)
        .retry(retry)
        .handle(move |event: Event, _cx: Context| {
            let (seen, bad) = (seen.clone(), bad.clone());
            async move {
                if bad.load(Ordering::SeqCst) == event.seq {
                    return Err(HandlerError::failed("not this one"));
                }
                seen.push(&event);
                Ok(())
            }
        })
        .unwrap();
    bus
}

/// Publishes events of four objects in turn; answers where the first is.
async fn publish(bus: &Ensue, count: usize) -> Seq {
    let events = (0..count).map(|n| event("t", &format!("o{}", n % 4)));
    bus.publish_all(events.collect()).await.unwrap()[0].seq.unwrap()
}

async fn all_done(bus: &Ensue) {
    until("it is never through", async || {
        bus.drain().await.unwrap();
        let group = bus.groups().get("t.h").await.unwrap();
        group.lag() == 0 && group.state.lanes == 0
    })
    .await;
}

fn of_object(seqs: impl IntoIterator<Item = Seq>, object: u64) -> Vec<Seq> {
    seqs.into_iter().filter(|seq| (seq - 1) % 4 == object).collect()
}

async fn a_range_is_run_again_and_nothing_else(url: &str) {
    let (seen, bad) = (Seen::default(), Arc::default());
    let bus = bus(url, &seen, &bad, Retry::attempts(1)).await;
    let running = bus.start().await.unwrap();
    publish(&bus, 100).await;
    all_done(&bus).await;
    assert_eq!(seen.all().len(), 100);
    bus.groups().replay("t.h", 11, 30).await.unwrap();
    publish(&bus, 20).await;
    all_done(&bus).await;
    for object in 0..4 {
        let expected: Vec<Seq> = of_object((1..=100).chain(11..=30).chain(101..=120), object);
        assert_eq!(seen.of(&format!("o{object}")), expected);
    }
    // And another one, now that it is through; up to the end.
    bus.groups().replay("t.h", 119, 120).await.unwrap();
    until("it is not run again", async || seen.all().len() == 142).await;
    all_done(&bus).await;
    assert_eq!(seen.all().len(), 142);
    running.shutdown(LONG).await.unwrap();
    bus.close().await;
}

/// An event of the range fails: its object stands still there, others go on; then it goes on where it was, and what is between
/// is not run a third time, also by a process that takes over.
async fn what_fails_in_a_range_goes_on_where_it_was(url: &str) {
    let (seen, bad): (Seen, Arc<AtomicU64>) = (Seen::default(), Arc::default());
    let bus = bus(url, &seen, &bad, Retry::attempts(1)).await;
    let running = bus.start().await.unwrap();
    publish(&bus, 100).await;
    all_done(&bus).await;
    bad.store(13, Ordering::SeqCst);
    bus.groups().replay("t.h", 11, 30).await.unwrap();
    until("it is never held", async || bus.stuck(1).await.unwrap().len() == 1).await;
    let first = publish(&bus, 20).await;
    until("others wait", async || {
        bus.drain().await.unwrap();
        bus.groups().get("t.h").await.unwrap().lag() == 1
    })
    .await;
    assert_eq!(seen.of("o0"), of_object(1..=100, 0));
    let of = async |seq: Seq| bus.deliveries(seq).await.unwrap().unwrap().remove(0).verdict.standing;
    assert_eq!(of(13).await, Standing::Held);
    let refused = bus.groups().replay("t.h", 1, 2).await;
    assert!(matches!(refused, Err(Error::Store(StoreError::Conflict(_)))), "{refused:?}");
    running.shutdown(LONG).await.unwrap();
    // The bus starts again with what the store remembers.
    bad.store(0, Ordering::SeqCst);
    let running = bus.start().await.unwrap();
    bus.ask_stuck(&stuck("o0"), None, Ask::Retry).await.unwrap();
    all_done(&bus).await;
    for object in 0..4 {
        let later = of_object(1..=20, object).into_iter().map(|nth| first + nth - 1);
        let expected: Vec<Seq> = of_object((1..=100).chain(11..=30), object).into_iter().chain(later).collect();
        assert_eq!(seen.of(&format!("o{object}")), expected);
    }
    running.shutdown(LONG).await.unwrap();
    bus.close().await;
}

async fn what_cannot_be_replayed_is_refused_with_what_to_do(url: &str) {
    let bus = bus(url, &Seen::default(), &Arc::default(), Retry::attempts(3).first(Duration::from_millis(1))).await;
    let running = bus.start().await.unwrap();
    publish(&bus, 10).await;
    all_done(&bus).await;
    bus.groups().create("read", Start::Beginning).await.unwrap();
    for (group, from, to, word) in [
        ("t.h", 0, 5, "from 1"),
        ("t.h", 5, 4, "at least"),
        ("t.h", 5, 11, "newest"),
        ("read", 1, 5, "peek"),
        ("x", 1, 2, "x"),
    ] {
        let refused = bus.groups().replay(group, from, to).await.unwrap_err().to_string();
        assert!(refused.contains(word), "{refused}");
    }
    running.shutdown(LONG).await.unwrap();
    bus.close().await;
}

crate::support::on_both! { "replay";
    a_range_is_run_again_and_nothing_else;
    what_fails_in_a_range_goes_on_where_it_was;
    what_cannot_be_replayed_is_refused_with_what_to_do;
}
