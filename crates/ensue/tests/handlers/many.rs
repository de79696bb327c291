//! Several processes on one database: they share a handler's slots, and whoever comes or goes, each object's events are
//! handled in order and none is left out. Each bus here is a member of its own, as a process is.
#![cfg(feature = "postgres")]

use crate::support::{LONG, until};
use ensue::{Context, Ensue, Event, NewEvent, Running, Seq, Start};
use ensue_conformance::postgres::fresh_schema;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const OBJECTS: usize = 40;

/// What was handled, by whom, in the order in which it was.
type Handled = Arc<Mutex<Vec<(usize, String, Seq)>>>;

struct Node {
    bus: Ensue,
    running: Running,
}

async fn node(url: &str, number: usize, handled: &Handled) -> Node {
    let bus = Ensue::open(url).await.unwrap();
    let handled = handled.clone();
    bus.on("work")
        .named("h")
        .start(Start::Beginning)
        .handle(move |event: Event, _cx: Context| {
            let handled = handled.clone();
            async move {
                tokio::time::sleep(Duration::from_millis(1)).await;
                let object = event.object.as_ref().unwrap().to_string();
                handled.lock().unwrap().push((number, object, event.seq));
                Ok(())
            }
        })
        .unwrap();
    let running = bus.start().await.unwrap();
    Node { bus, running }
}

async fn publish(bus: &Ensue, count: usize) {
    for _ in 0..count / 50 {
        let events = (0..50).map(|n| NewEvent::new("work.done").object(format!("o{}", n % OBJECTS)));
        bus.publish_all(events.collect()).await.unwrap();
    }
}

fn count(handled: &Handled) -> usize {
    handled.lock().unwrap().iter().map(|(_, _, seq)| *seq).collect::<HashSet<_>>().len()
}

/// An event may come again; it never comes for the first time after a later one of its object.
fn assert_in_order(handled: &Handled) {
    let mut newest: HashMap<String, Seq> = HashMap::new();
    let mut seen = HashSet::new();
    for (_, object, seq) in handled.lock().unwrap().iter() {
        if seen.insert(*seq) {
            let newest = newest.entry(object.clone()).or_default();
            assert!(seq > newest, "{object}: {seq} came first after {newest}");
            *newest = *seq;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_share_the_work_and_take_over_from_one_that_is_gone() {
    let (url, _) = fresh_schema("many");
    let handled = Handled::default();
    let first = node(&url, 1, &handled).await;
    publish(&first.bus, 500).await;
    until("one node does not handle all", async || count(&handled) == 500).await;

    // A second one joins: some of the slots become its own.
    let second = node(&url, 2, &handled).await;
    until("one has no slots", async || {
        let group = first.bus.store().groups().await.unwrap().remove(0);
        group.slots.iter().filter_map(|slot| Some(slot.owner.as_ref()?.member.id)).collect::<HashSet<_>>().len() == 2
    })
    .await;
    publish(&first.bus, 2_000).await;
    until("they do not handle all", async || count(&handled) == 2_500).await;
    let by: HashSet<usize> = handled.lock().unwrap().iter().skip(500).map(|(node, ..)| *node).collect();
    assert_eq!(by, HashSet::from([1, 2]));

    // It is gone without a word, as by kill -9: its lease passes, and the first takes over.
    publish(&first.bus, 1_000).await;
    drop(second.running);
    second.bus.close().await;
    until("nobody handles what the second left", async || count(&handled) == 3_500).await;

    // A third joins and the first leaves in order: nothing waits for a lease.
    let third = node(&url, 3, &handled).await;
    publish(&third.bus, 500).await;
    first.running.shutdown(LONG).await.unwrap();
    first.bus.close().await;
    until("nobody handles the rest", async || count(&handled) == 4_000).await;
    third.bus.drain().await.unwrap();
    third.running.shutdown(LONG).await.unwrap();
    assert_in_order(&handled);
    let group = third.bus.store().groups().await.unwrap().remove(0);
    assert_eq!((group.cursor(), group.lanes), (4_000, 0));
}
