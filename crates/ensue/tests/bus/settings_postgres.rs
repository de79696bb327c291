//! Settings that users keep beside the log, in `ensue.config`, and that a node goes by.

#![cfg(feature = "postgres")]

use crate::transaction_postgres::client;
use ensue::{Ensue, NewEvent, Options, Retention};
use ensue_conformance::postgres::fresh_schema;
use jiff::SignedDuration;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(120);

/// `partition_retention_period` is how old events become where the node has no word of its own; it is read live.
#[tokio::test]
async fn a_node_without_a_retention_goes_by_the_setting() {
    let (url, schema) = fresh_schema("settings");
    let quick = Options { retention_interval: Duration::from_millis(10), ..Options::default() };
    let bus = Ensue::open_with(&url, quick.clone()).await.unwrap();
    let running = bus.start().await.unwrap();
    bus.publish_all(vec![NewEvent::new("t"); 20]).await.unwrap();
    let client = client().await;
    let set =
        |value: &str| format!("UPDATE {schema}.config SET value = '{value}' WHERE key = 'partition_retention_period'");
    client.batch_execute(&set("1 hour")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(bus.store().bounds().await.unwrap().first, 1, "they are young");
    client.batch_execute(&set("1 millisecond")).await.unwrap();
    let trimmed = async {
        while bus.store().bounds().await.unwrap().first <= 20 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, trimmed).await.expect("the setting is gone by");
    running.shutdown(PATIENCE).await.unwrap();
    bus.close().await;

    // Who says an age keeps to it.
    let retention = Retention { age: Some(SignedDuration::from_hours(1)), ..Retention::default() };
    let bus = Ensue::open_with(&url, Options { retention, ..quick }).await.unwrap();
    let running = bus.start().await.unwrap();
    bus.publish_all(vec![NewEvent::new("t"); 20]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(bus.store().bounds().await.unwrap().first, 21);
    running.shutdown(PATIENCE).await.unwrap();
}
