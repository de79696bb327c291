//! H9: retried and held events outlive the log. An object that stands still does not keep the log, and loses nothing: what it
//! needs is copied aside first, up to a bound.

#![cfg(feature = "sqlite")]

use crate::support::{LONG, Seen, event, lane, name, stuck, until};
use ensue::positions::{Ask, LaneQuery, Lost, ParkedMax, ParkedQuery};
use ensue::{
    Context, Ensue, Event, Found, HandlerError, ObjectKey, OnExhausted, Options, Retention, Retry, Seq, Standing,
    Start, Stuck,
};
use jiff::SignedDuration;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// A bus that forgets everything that nobody needs, as soon as it can.
async fn forgetful(url: &str, parked_max: ParkedMax) -> Ensue {
    let (age, hold_max) = (Some(SignedDuration::from_millis(1)), Some(SignedDuration::from_hours(1)));
    let retention = Retention { age, hold_max, parked_max, ..Retention::default() };
    let options = Options { retention, retention_interval: Duration::from_millis(5), ..Options::default() };
    Ensue::open_with(url, options).await.unwrap()
}

/// Fails on events of `bad…` until it is told otherwise.
struct Bench {
    bus: Ensue,
    seen: Seen,
    is_well: Arc<AtomicBool>,
}

impl Bench {
    async fn new(url: &str, parked_max: ParkedMax, ordered: bool, on_exhausted: OnExhausted) -> Self {
        let bus = forgetful(url, parked_max).await;
        let (seen, is_well) = (Seen::default(), Arc::new(AtomicBool::new(false)));
        let (saw, well) = (seen.clone(), is_well.clone());
        let builder = bus.on("t").named("h").start(Start::Beginning).on_exhausted(on_exhausted);
        let builder = if ordered { builder } else { builder.unordered() };
        builder
            .retry(Retry::attempts(1))
            .handle(move |event: Event, _cx: Context| {
                let (seen, well) = (saw.clone(), well.clone());
                async move {
                    let is_bad = event.object.as_ref().is_some_and(|object| object.as_str().starts_with("bad"));
                    if is_bad && !well.load(Ordering::SeqCst) {
                        return Err(HandlerError::failed("not yet"));
                    }
                    seen.push(&event);
                    Ok(())
                }
            })
            .unwrap();
        Self { bus, seen, is_well }
    }

    async fn first_is(&self, first: Seq) {
        let otherwise = format!("the log never begins with {first}");
        until(&otherwise, async || self.bus.store().bounds().await.unwrap().first == first).await;
    }

    async fn parked(&self, group: &str, object: &str) -> Vec<Seq> {
        let query = ParkedQuery::Lane { group: name(group), key: lane(object), after: 0 };
        let parked = self.bus.store().parked(query, 10_000).await.unwrap();
        // Beside them there may be what Ensue itself says about the object.
        parked.iter().filter(|event| event.topic.as_str() == "t").map(|event| event.seq).collect()
    }

    /// Ten events, every other one of `bad`; answers where those are.
    async fn publish(&self) -> Vec<Seq> {
        let events = (0..10).map(|n| event("t", if n % 2 == 0 { "bad" } else { "good" }));
        let stored = self.bus.publish_all(events.collect()).await.unwrap();
        stored.iter().step_by(2).map(|one| one.seq.unwrap()).collect()
    }

    /// Comes back when nothing is left of the log.
    async fn emptied(&self) {
        until("the log is never forgotten", async || self.bus.store().bounds().await.unwrap().count() == 0).await;
    }
}

/// The log is gone, the object is still there: shown, retried, and run to its end in order.
async fn an_object_that_is_held_outlives_the_log(url: &str) {
    let bench = Bench::new(url, ParkedMax::default(), true, OnExhausted::Hold).await;
    bench.publish().await;
    let whole = bench.bus.store().event(3).await.unwrap().unwrap();
    let running = bench.bus.start().await.unwrap();
    bench.emptied().await;
    assert_eq!(bench.parked("h.t", "bad").await, [0; 0], "the key is the binding's");
    assert_eq!(bench.parked("t.h", "bad").await, [1, 3, 5, 7, 9]);
    assert_eq!(bench.seen.of("good"), [2, 4, 6, 8, 10]);
    // What comes later is parked when its time comes.
    let later = bench.publish().await;
    bench.emptied().await;
    let bad = [vec![1, 3, 5, 7, 9], later].concat();
    assert_eq!(bench.parked("t.h", "bad").await, bad);
    // It is still told of.
    assert_eq!(bench.bus.store().event(3).await.unwrap(), None);
    assert_eq!(bench.bus.event(3).await.unwrap().as_ref(), Some(&whole));
    assert_eq!(bench.bus.find(whole.id).await.unwrap(), Some(Found::Logged(whole)));
    assert_eq!(bench.bus.event(4).await.unwrap(), None);
    let of = async |seq: Seq| bench.bus.deliveries(seq).await.unwrap().unwrap().remove(0).verdict.standing;
    assert_eq!((of(1).await, of(3).await), (Standing::Held, Standing::Pending));
    assert_eq!(bench.bus.stuck(10).await.unwrap().len(), 1);
    bench.is_well.store(true, Ordering::SeqCst);
    bench.bus.ask_stuck(&Stuck::Event(1), None, Ask::Retry).await.unwrap();
    until("it never goes on", async || bench.seen.of("bad").len() == 10).await;
    assert_eq!(bench.seen.of("bad"), bad);
    until("its row never goes", async || {
        bench.bus.store().lanes(LaneQuery::Object(ObjectKey::parse("bad").unwrap()), 1).await.unwrap().is_empty()
    })
    .await;
    assert_eq!(bench.parked("t.h", "bad").await, [0; 0]);
    // And the stream serves it again.
    let latest = bench.publish().await;
    until("the stream passes it over", async || bench.seen.of("bad").len() == 15).await;
    assert_eq!(bench.seen.of("bad")[10..], latest);
    running.shutdown(LONG).await.unwrap();
    assert_eq!(bench.bus.groups().get("t.h").await.unwrap().lost(), None);
    bench.bus.close().await;
}

/// Skipped, the object goes on with what is parked behind it.
async fn an_object_that_is_skipped_goes_on_with_what_is_parked(url: &str) {
    let bench = Bench::new(url, ParkedMax::default(), true, OnExhausted::Hold).await;
    bench.publish().await;
    let running = bench.bus.start().await.unwrap();
    bench.emptied().await;
    bench.bus.ask_stuck(&stuck("bad"), None, Ask::Skip).await.unwrap();
    until("it is never held again", async || {
        bench.bus.stuck(10).await.unwrap().iter().any(|row| row.lane.position == 3 && row.ask.is_none())
    })
    .await;
    bench.is_well.store(true, Ordering::SeqCst);
    bench.bus.ask_stuck(&stuck("bad"), None, Ask::Retry).await.unwrap();
    until("it never goes on", async || bench.seen.of("bad").len() == 4).await;
    assert_eq!(bench.seen.of("bad"), [3, 5, 7, 9]);
    running.shutdown(LONG).await.unwrap();
    bench.bus.close().await;
}

/// An event alone: its handler asks for no order.
async fn an_event_of_a_handler_without_order_outlives_the_log(url: &str) {
    let bench = Bench::new(url, ParkedMax::default(), false, OnExhausted::Hold).await;
    bench.publish().await;
    let running = bench.bus.start().await.unwrap();
    bench.emptied().await;
    bench.is_well.store(true, Ordering::SeqCst);
    for seq in [5, 1, 9] {
        bench.bus.ask_stuck(&Stuck::Event(seq), None, Ask::Retry).await.unwrap();
        until("it is never run", async || bench.seen.of("bad").contains(&seq)).await;
    }
    assert_eq!(bench.bus.groups().get("t.h").await.unwrap().lost(), None);
    running.shutdown(LONG).await.unwrap();
    bench.bus.close().await;
}

/// Beyond the bound the object keeps the log, and loses nothing either.
async fn beyond_its_bound_an_object_keeps_the_log(url: &str) {
    let max = ParkedMax { events: 3, bytes: 1 << 20 };
    let bench = Bench::new(url, max, true, OnExhausted::Hold).await;
    bench.publish().await;
    let running = bench.bus.start().await.unwrap();
    bench.first_is(7).await;
    assert_eq!(bench.parked("t.h", "bad").await, [1, 3, 5]);
    let later = bench.publish().await;
    until("good waits", async || bench.seen.of("good").len() == 10).await;
    assert_eq!(bench.bus.store().bounds().await.unwrap().first, 7);
    bench.is_well.store(true, Ordering::SeqCst);
    bench.bus.ask_stuck(&stuck("bad"), None, Ask::Retry).await.unwrap();
    until("it never goes on", async || bench.seen.of("bad").len() == 10).await;
    assert_eq!(bench.seen.of("bad"), [vec![1, 3, 5, 7, 9], later].concat());
    bench.emptied().await;
    running.shutdown(LONG).await.unwrap();
    bench.bus.close().await;
}

/// Nobody serves the handler for longer than `hold_max`: what was parked is run, what was not is told as lost.
async fn what_is_lost_behind_the_bound_is_told(url: &str) {
    let max = ParkedMax { events: 3, bytes: 1 << 20 };
    let bench = Bench::new(url, max, true, OnExhausted::Hold).await;
    bench.publish().await;
    let running = bench.bus.start().await.unwrap();
    bench.first_is(7).await;
    running.shutdown(LONG).await.unwrap();
    bench.bus.store().trim(11, 1_000).await.unwrap();
    bench.is_well.store(true, Ordering::SeqCst);
    let running = bench.bus.start().await.unwrap();
    bench.bus.ask_stuck(&stuck("bad"), None, Ask::Retry).await.unwrap();
    until("the loss is never told", async || bench.bus.groups().get("t.h").await.unwrap().lost().is_some()).await;
    assert_eq!(bench.bus.groups().get("t.h").await.unwrap().lost(), Some(Lost { from: 7, to: 10 }));
    until("what is parked is not run", async || bench.seen.of("bad").len() >= 3).await;
    assert_eq!(bench.seen.of("bad"), [1, 3, 5]);
    let next = bench.bus.publish(event("t", "bad")).await.unwrap().seq.unwrap();
    until("it never goes on", async || bench.seen.of("bad").contains(&next)).await;
    running.shutdown(LONG).await.unwrap();
    bench.bus.close().await;
}

/// Many objects fail by chance again and again while the log is forgotten as fast as it can be: each event is run to its end
/// once or more, in the order of its object.
async fn failing_by_chance_beside_a_hasty_retention_loses_nothing(url: &str) {
    const EVENTS: u32 = 2_000;
    let bus = forgetful(url, ParkedMax { events: 40, bytes: 1 << 20 }).await;
    let done = Seen::default();
    let saw = done.clone();
    bus.on("t")
        .named("h")
        .start(Start::Beginning)
        .concurrency(16)
        .retry(Retry::attempts(1_000_000).first(Duration::from_millis(5)).max(Duration::from_millis(40)))
        .handle(move |event: Event, _cx: Context| {
            let seen = saw.clone();
            async move {
                if rand::random_range(0..4) == 0 {
                    return Err(HandlerError::failed("by chance"));
                }
                seen.push(&event);
                Ok(())
            }
        })
        .unwrap();
    let running = bus.start().await.unwrap();
    for _ in 0..EVENTS / 20 {
        let batch = (0..20).map(|_| event("t", &format!("o{}", rand::random_range(0..25))));
        bus.publish_all(batch.collect()).await.unwrap();
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    until("not all is done", async || done.all().len() >= EVENTS as usize).await;
    until("the log is never forgotten", async || bus.store().bounds().await.unwrap().count() == 0).await;
    for object in 0..25 {
        let seqs = done.of(&format!("o{object}"));
        assert!(seqs.is_sorted(), "o{object}: {seqs:?}");
    }
    let mut all = done.seqs();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all, (1..=Seq::from(EVENTS)).collect::<Vec<_>>());
    assert_eq!(bus.groups().get("t.h").await.unwrap().lost(), None);
    running.shutdown(LONG).await.unwrap();
    bus.close().await;
}

/// The process ends after the log is gone; the next one finds what is parked.
#[tokio::test]
async fn what_is_parked_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let url = folder.path().join("ensue.db");
    let url = url.to_str().unwrap();
    let bench = Bench::new(url, ParkedMax::default(), true, OnExhausted::Hold).await;
    bench.publish().await;
    let running = bench.bus.start().await.unwrap();
    bench.emptied().await;
    drop(running);
    bench.bus.close().await;
    drop(bench);
    let bench = Bench::new(url, ParkedMax::default(), true, OnExhausted::Hold).await;
    bench.is_well.store(true, Ordering::SeqCst);
    let running = bench.bus.start().await.unwrap();
    assert_eq!(bench.parked("t.h", "bad").await, [1, 3, 5, 7, 9]);
    let next = bench.bus.publish(event("t", "bad")).await.unwrap().seq.unwrap();
    bench.bus.ask_stuck(&stuck("bad"), None, Ask::Retry).await.unwrap();
    until("it never goes on", async || bench.seen.of("bad").len() == 6).await;
    assert_eq!(bench.seen.of("bad"), [1, 3, 5, 7, 9, next]);
    running.shutdown(LONG).await.unwrap();
    bench.bus.close().await;
}

crate::support::on_both! { "parked";
    an_object_that_is_held_outlives_the_log;
    an_object_that_is_skipped_goes_on_with_what_is_parked;
    an_event_of_a_handler_without_order_outlives_the_log;
    beyond_its_bound_an_object_keeps_the_log;
    what_is_lost_behind_the_bound_is_told;
    failing_by_chance_beside_a_hasty_retention_loses_nothing;
}
