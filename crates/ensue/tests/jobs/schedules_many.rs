//! Schedules on Postgres, with several processes whose clocks differ: each occurrence fires once (H20, H2).
#![cfg(feature = "postgres")]

use crate::support::LONG;
use ensue::schedules::{Misfire, Schedule, Target, Timing};
use ensue::{Ensue, GroupName, PostgresOptions, PostgresStore, Read, Timestamp, Topic};
use ensue_conformance::postgres::fresh_schema;
use jiff::SignedDuration;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A process whose clock is so many seconds off.
async fn node(url: &str, off_secs: i64) -> Ensue {
    let clock = Arc::new(move || Timestamp::now() + SignedDuration::from_secs(off_secs));
    let options = PostgresOptions { clock: Some(clock), ..PostgresOptions::default() };
    Ensue::with_store(PostgresStore::open(url, options).await.unwrap())
}

/// Three schedulers on one store with clocks 5 s apart, starting and stopping at random.
#[tokio::test(flavor = "multi_thread")]
async fn each_occurrence_fires_once_whatever_the_clocks_say() {
    let (url, _) = fresh_schema("schedules");
    let maker = node(&url, 0).await;
    for n in 0..10 {
        let timing = Timing::every(SignedDuration::from_secs(1), None).unwrap();
        let target = Target::Topic(Topic::parse("tick").unwrap());
        let schedule = Schedule::new(GroupName::parse("name", &format!("s{n}")).unwrap(), timing, target);
        maker.schedule(Schedule { misfire: Misfire::All, ..schedule }).await.unwrap();
    }
    let until = Instant::now() + Duration::from_secs(12);
    let mut nodes = tokio::task::JoinSet::new();
    for off in [-5, 0, 5] {
        let url = url.clone();
        nodes.spawn(async move {
            while Instant::now() < until {
                let bus = node(&url, off).await;
                let running = bus.start().await.unwrap();
                tokio::time::sleep(Duration::from_millis(rand::random_range(100..2_500))).await;
                running.shutdown(LONG).await.unwrap();
                bus.close().await;
                tokio::time::sleep(Duration::from_millis(rand::random_range(0..500))).await;
            }
        });
    }
    nodes.join_all().await;
    let (mut of_each, mut after): (HashMap<String, Vec<Timestamp>>, u64) = (HashMap::new(), 0);
    loop {
        let page = maker.store().read(Read { after, limit: 1_000, filter: Default::default() }).await.unwrap();
        if page.next == after {
            break;
        }
        after = page.next;
        for event in page.events {
            of_each.entry(event.object.unwrap().to_string()).or_default().push(event.occurred_at);
        }
    }
    assert_eq!(of_each.len(), 10);
    for (schedule, times) in of_each {
        assert!(times.len() >= 10, "{schedule}: {times:?}");
        let second = SignedDuration::from_secs(1);
        assert!(times.windows(2).all(|pair| pair[1].duration_since(pair[0]) == second), "{schedule}: {times:?}");
    }
    maker.close().await;
}
