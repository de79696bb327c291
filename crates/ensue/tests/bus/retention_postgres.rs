//! Retention frees the disk on Postgres, as on SQLite.

#![cfg(feature = "postgres")]

use crate::transaction_postgres::client;
use ensue::{Ensue, NewEvent, Options, Retention};
use ensue_conformance::postgres::fresh_schema;
use jiff::SignedDuration;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);

/// Publishes so many events under this retention, and waits until the rows on the disk are at most
/// one and a quarter times the events of the log. Returns the events of the log and the rows.
async fn kept(retention: Retention, count: usize, limit: u64) -> (u64, u64) {
    let (url, schema) = fresh_schema("retention");
    let options = Options { retention, retention_interval: Duration::from_millis(10), ..Options::default() };
    let bus = Ensue::open_with(&url, options).await.unwrap();
    for _ in 0..count / 500 {
        bus.publish_all(vec![NewEvent::new("t").payload(&"x".repeat(1_000)); 500]).await.unwrap();
    }
    let running = bus.start().await.unwrap();
    let client = client().await;
    let on_disk = format!("SELECT count(*) FROM {schema}.stored_events");
    let freed = async {
        loop {
            let events = bus.store().bounds().await.unwrap().count();
            let rows = client.query_one(&on_disk, &[]).await.unwrap().get::<_, i64>(0) as u64;
            if events <= limit && rows * 4 <= events * 5 {
                return (events, rows);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let kept = tokio::time::timeout(PATIENCE, freed).await.expect("the disk is freed");
    assert_eq!(bus.publish(NewEvent::new("t")).await.unwrap().seq, Some(count as u64 + 1));
    running.shutdown(PATIENCE).await.unwrap();
    kept
}

/// H42.
#[tokio::test]
async fn retention_by_age_frees_the_disk() {
    let retention = Retention { age: Some(SignedDuration::from_millis(200)), ..Retention::default() };
    assert_eq!(kept(retention, 2_500, 0).await, (0, 0));
}

/// H42.
#[tokio::test]
async fn retention_by_size_frees_the_disk() {
    let retention = Retention { bytes: Some(1_000_000), ..Retention::default() };
    let (events, rows) = kept(retention, 5_000, 1_000).await;
    assert!((900..=1_000).contains(&events) && rows <= 1_250, "{events} events, {rows} rows");
}
