//! On Postgres a process with nothing to do claims with the commit that sends: nothing of that may be lost on the way.
#![cfg(feature = "postgres")]

use crate::support::{LONG, sent, until, until_state};
use ensue::jobs::JobState;
use ensue::{Context, Emit, Ensue, Event};
use ensue_conformance::postgres::fresh_schema;
use futures_util::future::poll_immediate;

async fn bus(url: &str) -> Ensue {
    let bus = Ensue::open(url).await.unwrap();
    bus.register("work", async |_: Event, _: Context| Ok(())).unwrap();
    bus
}

/// Whoever sends goes on sending while the process stops: what was claimed for it is run or given back, never left behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_process_that_stops_leaves_nothing_claimed() {
    let (url, _) = fresh_schema("offers");
    let bus = bus(&url).await;
    for _ in 0..15 {
        let running = bus.start().await.unwrap();
        // It waits, and offers.
        bus.drain().await.unwrap();
        let senders: Vec<_> = (0..3)
            .map(|_| {
                let bus = bus.clone();
                tokio::spawn(async move {
                    let mut ids = Vec::new();
                    for n in 0..5 {
                        ids.push(sent(&bus, Emit::to("work").payload(&n)).await);
                    }
                    ids
                })
            })
            .collect();
        // The first are on their way.
        tokio::task::yield_now().await;
        running.shutdown(LONG).await.unwrap();
        for sender in senders {
            for id in sender.await.unwrap() {
                let job = bus.job(id).await.unwrap().unwrap();
                assert!(matches!(job.state, JobState::Available | JobState::Succeeded), "{job:?}");
            }
        }
    }
    // What was left is run by who comes next.
    let running = bus.start().await.unwrap();
    bus.drain().await.unwrap();
    assert!(bus.store().job_counts().await.unwrap().is_empty());
    running.shutdown(LONG).await.unwrap();
}

/// Who sends a job and goes away before it is answered takes nothing with it.
#[tokio::test(flavor = "multi_thread")]
async fn who_hangs_up_while_a_job_is_sent_leaves_it_to_the_process() {
    let (url, _) = fresh_schema("offers");
    let bus = bus(&url).await;
    let running = bus.start().await.unwrap();
    for n in 0..20 {
        bus.drain().await.unwrap();
        let key = format!("k{n}");
        // Polled once it is on its way, and then dropped.
        let answered = poll_immediate(bus.emit(Emit::to("work").unique_key(&key))).await;
        assert!(answered.is_none(), "nothing is written so soon");
        let again = until("it runs, or has run", async || {
            let again = bus.emit(Emit::to("work").unique_key(&key)).await.unwrap();
            Some(again.id)
        })
        .await;
        until_state(&bus, again, JobState::Succeeded).await;
        assert_eq!(bus.job(again).await.unwrap().unwrap().attempts, 1, "nobody had to wait for a lease to pass");
    }
    running.shutdown(LONG).await.unwrap();
}
