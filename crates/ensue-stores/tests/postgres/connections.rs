//! A process has few connections while it has little to do, and never more than it may.

use crate::support::Log;
use ensue_core::Filter;
use ensue_core::store::{Read, SharedStore};
use ensue_stores::postgres::PostgresOptions;
use std::time::Duration;
use tokio::task::JoinSet;

const CONNECTIONS: &str = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'LOG'";

/// Many read at once, and many send: all pools are full.
async fn busy(log: &Log, options: PostgresOptions) -> SharedStore {
    let store = log.open_with(options).await;
    let mut calls = JoinSet::new();
    for _ in 0..64 {
        let store = store.clone();
        calls.spawn(async move {
            store.read(Read { after: 0, limit: 10, filter: Filter::default() }).await.unwrap();
            store.rules().await.unwrap();
            store.settle_jobs(Vec::new()).await.unwrap();
        });
    }
    calls.join_all().await;
    store
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_rest_are_closed() {
    let log = Log::new().await;
    let options = PostgresOptions { idle_max: Duration::from_millis(200), ..PostgresOptions::default() };
    let store = busy(&log, options).await;
    // The writer connects with the first append; nobody listens here.
    log.until(CONNECTIONS, 0).await;
    store.read(Read { after: 0, limit: 10, filter: Filter::default() }).await.unwrap();
    store.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_process_has_at_most_the_connections_it_may_have() {
    let log = Log::new().await;
    let store = busy(&log, PostgresOptions::default().connections_max(5).unwrap()).await;
    let count = log.number(CONNECTIONS).await;
    assert!((1..=5).contains(&count), "{count} connections");
    store.close().await;
}
