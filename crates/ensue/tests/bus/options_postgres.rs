//! One way to set clock, connections and schema of a bus that publishes in transactions of its
//! application.

#![cfg(feature = "postgres")]

use crate::transaction_postgres::client;
use ensue::testing::ManualClock;
use ensue::{Context, Emit, Ensue, Event, NewEvent, Options, PostgresOptions, PostgresStore, Wanted};
use ensue_conformance::postgres::fresh_schema;
use std::time::Duration;

#[tokio::test]
async fn a_bus_with_a_test_clock_publishes_in_the_applications_transactions() {
    let (url, schema) = fresh_schema("clock");
    let clock = ManualClock::at_noon();
    let options = Options { clock: Some(clock.clone()), connections_max: Some(4), ..Options::default() };
    let bus = Ensue::open_with(&url, options).await.unwrap();
    let mut client = client().await;
    let mut tx = client.transaction().await.unwrap();
    bus.publish_in(&mut tx, NewEvent::new("order.placed")).await.unwrap();
    let in_an_hour = clock.now() + Duration::from_secs(3_600);
    bus.publish_in(&mut tx, NewEvent::new("order.reminder").not_before(in_an_hour)).await.unwrap();
    tx.commit().await.unwrap();
    bus.store().release_due(10).await.unwrap();
    assert_eq!(bus.store().event(1).await.unwrap().unwrap().recorded_at, clock.now());
    assert_eq!(bus.store().bounds().await.unwrap().last, 1);
    clock.advance(Duration::from_secs(3_600));
    bus.store().release_due(10).await.unwrap();
    assert_eq!(bus.store().bounds().await.unwrap().last, 2);
    let there = format!("SELECT count(*) FROM {schema}.stored_events");
    assert_eq!(client.query_one(&there, &[]).await.unwrap().get::<_, i64>(0), 2, "the schema of the URL");
}

#[tokio::test]
async fn too_few_connections_are_refused_wherever_they_are_said() {
    let (url, _schema) = fresh_schema("few");
    let options = Options { connections_max: Some(3), ..Options::default() };
    let by_options = Ensue::open_with(&url, options).await.err().unwrap().to_string();
    let by_url = Ensue::open(&format!("{url}&connections=3")).await.err().unwrap().to_string();
    assert_eq!(by_options, by_url);
    assert!(by_url.contains("at least 4"), "{by_url}");
}

/// Many call at once; then nobody does, and what they needed is closed.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_without_work_keeps_three_connections() {
    let (url, schema) = fresh_schema("rest");
    let options = PostgresOptions { idle_max: Duration::from_secs(2), ..PostgresOptions::default() };
    let store = PostgresStore::open(&format!("{url}&application_name={schema}"), options).await.unwrap();
    let bus = Ensue::with_store(store);
    bus.on("a").named("h").handle(async |_: Event, _: Context| Ok(())).unwrap();
    let running = bus.start().await.unwrap();
    let mut calls = tokio::task::JoinSet::new();
    for _ in 0..64 {
        let bus = bus.clone();
        calls.spawn(async move {
            bus.publish(NewEvent::new("a")).await.unwrap();
            bus.read(0, 10, &Wanted::default()).await.unwrap();
            bus.emit(Emit::to("nobody")).await.unwrap();
        });
    }
    calls.join_all().await;
    bus.drain().await.unwrap();
    let client = client().await;
    let count = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1";
    let wait = async {
        while client.query_one(count, &[&schema]).await.unwrap().get::<_, i64>(0) > 3 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(120), wait).await.expect("its connections stay");
    running.shutdown(Duration::from_secs(30)).await.unwrap();
}
