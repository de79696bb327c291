//! Order under trouble: with many objects, failures, timeouts and panics, every object's events are handled in order, each
//! at least once, and a failing object delays no other.

use crate::support::LONG;
use ensue::{Context, Ensue, Event, HandlerError, NewEvent, Retry, Seq, Start};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const OBJECTS: usize = 1_000;

/// What happened to one object: starts and successes, in order.
#[derive(Debug, Default, Clone)]
struct History {
    started: Vec<Seq>,
    done: Vec<Seq>,
    running: Option<Seq>,
}

#[derive(Default)]
struct Checker {
    histories: HashMap<String, History>,
    faults: Vec<String>,
}

impl Checker {
    fn start(&mut self, object: &str, seq: Seq) {
        let history = self.histories.entry(object.to_owned()).or_default();
        if let Some(other) = history.running {
            self.faults.push(format!("{object}: {seq} started while {other} ran"));
        }
        if history.done.last().is_some_and(|done| *done >= seq) {
            self.faults.push(format!("{object}: {seq} started after {:?} was done", history.done.last()));
        }
        if history.started.last().is_some_and(|last| *last != seq && history.done.last() != Some(last)) {
            self.faults.push(format!("{object}: {seq} started before {:?} was done", history.started.last()));
        }
        history.started.push(seq);
        history.running = Some(seq);
    }

    fn end(&mut self, object: &str, seq: Seq, done: bool) {
        let history = self.histories.get_mut(object).expect("it has started");
        history.running = None;
        if done {
            history.done.push(seq);
        }
    }
}

/// Says that an attempt has ended when it is dropped, however it ends.
struct Attempt {
    checker: Arc<Mutex<Checker>>,
    object: String,
    seq: Seq,
    done: bool,
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.checker.lock().unwrap().end(&self.object, self.seq, self.done);
    }
}

async fn order_holds(url: &str, seed: u64, events: usize) {
    let bus = Ensue::open(url).await.unwrap();
    let (checker, chance) =
        (Arc::new(Mutex::new(Checker::default())), Arc::new(Mutex::new(StdRng::seed_from_u64(seed))));
    let (check, random) = (checker.clone(), chance.clone());
    bus.on("work")
        .named("h")
        .start(Start::Beginning)
        .concurrency(16)
        .timeout(Duration::from_millis(50))
        .retry(Retry::attempts(1_000).first(Duration::from_millis(5)).max(Duration::from_millis(20)))
        .handle(move |event: Event, _cx: Context| {
            let object = event.object.clone().unwrap().to_string();
            let fate = random.lock().unwrap().random_range(0..1_000);
            check.lock().unwrap().start(&object, event.seq);
            let attempt = Attempt { checker: check.clone(), object, seq: event.seq, done: false };
            async move {
                // The whole of it moves in, not its parts.
                let mut attempt = attempt;
                match fate {
                    0..40 => return Err(HandlerError::failed("by chance")),
                    40..45 => panic!("by chance"),
                    45..50 => std::future::pending::<()>().await,
                    50..150 => tokio::time::sleep(Duration::from_millis(1)).await,
                    _ => {}
                }
                attempt.done = true;
                Ok(())
            }
        })
        .unwrap();
    let running = bus.start().await.unwrap();
    let mut objects = StdRng::seed_from_u64(seed + 1);
    for _ in 0..events / 100 {
        let batch =
            (0..100).map(|_| NewEvent::new("work.done").object(format!("o{}", objects.random_range(0..OBJECTS))));
        bus.publish_all(batch.collect()).await.unwrap();
    }
    let is_done = || {
        let checker = checker.lock().unwrap();
        checker.histories.values().map(|history| history.done.len()).sum::<usize>() >= events
    };
    let waited = tokio::time::timeout(LONG, async {
        while !is_done() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    });
    let in_time = waited.await.is_ok();
    bus.drain().await.unwrap();
    running.shutdown(LONG).await.unwrap();
    let group = bus.store().groups().await.unwrap().remove(0);
    bus.close().await;
    let checker = checker.lock().unwrap();
    assert!(checker.faults.is_empty(), "{:?}", &checker.faults[..checker.faults.len().min(5)]);
    let done: usize = checker.histories.values().map(|history| history.done.len()).sum();
    assert!(in_time, "{done} of {events} are done; seed {seed}");
    assert_eq!(done, events, "each once, as nothing has crashed; seed {seed}");
    assert_eq!((group.cursor(), group.lanes), (events as Seq, 0), "seed {seed}");
}

#[tokio::test(flavor = "multi_thread")]
async fn order_holds_whatever_fails_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    order_holds(folder.path().join("log.db").to_str().unwrap(), 7, 20_000).await;
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread")]
async fn order_holds_whatever_fails_on_postgres() {
    let (url, _) = ensue_conformance::postgres::fresh_schema("order");
    order_holds(&url, 8, 6_000).await;
}
