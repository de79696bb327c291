//! What do callers of the Postgres engine leave behind who send and do not wait for the answer?

#![cfg(feature = "postgres")]

#[path = "postgres/support/mod.rs"]
mod postgres_support;

use ensue_core::store::SharedStore;
use ensue_core::{Appended, Entry, Json, StoreError};
use postgres_support::{Log, on, whole_log};
use tokio::task::JoinHandle;

fn large() -> Vec<Entry> {
    let payload = Json::stored(format!("\"{}\"", "x".repeat(1_000_000)));
    on("o").into_iter().map(|entry| Entry { payload: payload.clone(), ..entry }).collect()
}

/// On the tests' one-threaded runtime a yield polls the call once: it is in the queue then, or waits to enter it.
async fn call(store: &SharedStore, batch: Vec<Entry>) -> JoinHandle<Result<Vec<Appended>, StoreError>> {
    let store = store.clone();
    let call = tokio::spawn(async move { store.append(batch).await });
    tokio::task::yield_now().await;
    call
}

async fn leave(call: JoinHandle<Result<Vec<Appended>, StoreError>>) {
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4_096
}

/// The log is locked; clients send a megabyte each and hang up. What they leave is bounded, and what was not sent to the
/// server before they left is never sent.
#[tokio::test]
async fn callers_who_leave_do_not_fill_the_memory() {
    let log = Log::new().await;
    let store = log.open().await;
    log.hold("SELECT LOG.lock_log()").await;
    let under_way = call(&store, on("o")).await;
    log.until_waiting(1).await;
    let before = resident_bytes();
    for _ in 0..512 {
        leave(call(&store, large()).await).await;
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 256 << 20, "{grown} bytes are kept of 512 calls that nobody waits for");
    let stayed = call(&store, large()).await;
    log.let_go().await;
    assert_eq!(under_way.await.unwrap().unwrap()[0].seq, Some(1));
    assert_eq!(stayed.await.unwrap().unwrap()[0].seq, Some(2));
}

/// Nothing was promised to who left before the call was sent. What is with the server is finished, whoever waits for it.
#[tokio::test]
async fn only_a_call_that_was_not_sent_yet_is_let_go() {
    let log = Log::new().await;
    let store = log.open().await;
    log.hold("SELECT LOG.lock_log()").await;
    let sent = call(&store, on("sent")).await;
    log.until_waiting(1).await;
    leave(sent).await;
    leave(call(&store, on("left")).await).await;
    let stayed = call(&store, on("stayed")).await;
    leave(call(&store, on("left")).await).await;
    log.let_go().await;
    stayed.await.unwrap().unwrap();
    store.append(on("after")).await.unwrap();
    let objects: Vec<_> = whole_log(&store).await.iter().flat_map(|event| event.object.clone()).collect();
    assert_eq!(objects.iter().map(|object| object.as_str()).collect::<Vec<_>>(), ["sent", "stayed", "after"]);
}

/// Waiting to enter the queue is not an error, and a store that is closed still answers who had begun.
#[tokio::test]
async fn more_than_may_wait_is_stored_in_turn_even_while_the_store_closes() {
    let log = Log::new().await;
    let store = log.open().await;
    log.hold("SELECT LOG.lock_log()").await;
    let mut calls = vec![call(&store, on("o")).await];
    log.until_waiting(1).await;
    for _ in 0..80 {
        calls.push(call(&store, large()).await);
    }
    let closing = store.clone();
    let closed = tokio::spawn(async move { closing.close().await });
    tokio::task::yield_now().await;
    log.let_go().await;
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap().unwrap()[0].seq, Some(n as u64 + 1));
    }
    closed.await.unwrap();
}
