//! What do callers of the embedded engine leave behind who send and do not wait for the answer?
#![cfg(feature = "sqlite")]

use ensue_core::store::Read;
use ensue_core::{Appended, Entry, Filter, Json, NewEvent, Store, StoreError};
use ensue_stores::sqlite::{SqliteOptions, SqliteStore};
use std::sync::Arc;
use tokio::task::JoinHandle;

/// A little less than an event may have at most.
const LARGE_BYTES: usize = 1_000_000;

fn entry(topic: &str) -> Entry {
    NewEvent::new(topic).check().unwrap()
}

fn large(topic: &str) -> Entry {
    Entry { payload: Json::stored(format!("\"{}\"", "x".repeat(LARGE_BYTES))), ..entry(topic) }
}

async fn open(folder: &tempfile::TempDir) -> Arc<SqliteStore> {
    let path = folder.path().join("e.db");
    Arc::new(SqliteStore::open(path.to_str().unwrap(), SqliteOptions::default()).await.unwrap())
}

/// On the tests' one-threaded runtime a yield polls the call once: it is in the queue then, or waits to enter it.
async fn call(store: &Arc<SqliteStore>, entry: Entry) -> JoinHandle<Result<Vec<Appended>, StoreError>> {
    let store = store.clone();
    let call = tokio::spawn(async move { store.append(vec![entry]).await });
    tokio::task::yield_now().await;
    call
}

async fn leave(call: JoinHandle<Result<Vec<Appended>, StoreError>>) {
    call.abort();
    assert!(call.await.unwrap_err().is_cancelled());
}

async fn everything(store: &SqliteStore) -> Vec<ensue_core::Event> {
    store.read(Read { after: 0, limit: 1_000, filter: Filter::default() }).await.unwrap().events
}

fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4_096
}

/// The writer stands still; clients send a megabyte each and hang up. What they leave is bounded, and nobody who stayed
/// waits for it.
#[tokio::test]
async fn callers_who_leave_do_not_fill_the_memory() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    let ticket = store.write_ticket().await.unwrap();
    let before = resident_bytes();
    for _ in 0..512 {
        leave(call(&store, large("left")).await).await;
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 256 << 20, "{grown} bytes are kept of 512 calls that nobody waits for");
    let stayed = call(&store, large("stayed")).await;
    drop(ticket);
    assert_eq!(stayed.await.unwrap().unwrap()[0].seq, Some(1));
}

/// Nothing was promised to who left before the writer looked at the call.
#[tokio::test]
async fn a_call_that_nobody_waits_for_any_more_is_not_begun() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    let ticket = store.write_ticket().await.unwrap();
    leave(call(&store, entry("left.first")).await).await;
    let stayed = call(&store, entry("stayed")).await;
    leave(call(&store, entry("left.between")).await).await;
    let last = call(&store, entry("last")).await;
    drop(ticket);
    assert_eq!(stayed.await.unwrap().unwrap()[0].seq, Some(1));
    assert_eq!(last.await.unwrap().unwrap()[0].seq, Some(2));
    let topics: Vec<_> = everything(&store).await.iter().map(|event| event.topic.to_string()).collect();
    assert_eq!(topics, ["stayed", "last"]);
}

/// Waiting to enter the queue is not an error, and closing the store leaves nobody waiting.
#[tokio::test]
async fn more_than_may_wait_is_stored_in_turn_or_told_that_the_store_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    let ticket = store.write_ticket().await.unwrap();
    let mut calls = Vec::new();
    for _ in 0..80 {
        calls.push(call(&store, large("a")).await);
    }
    drop(ticket);
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(call.await.unwrap().unwrap()[0].seq, Some(n as u64 + 1));
    }
    let ticket = store.write_ticket().await.unwrap();
    let mut calls = Vec::new();
    for _ in 0..80 {
        calls.push(call(&store, large("b")).await);
    }
    let closing = store.clone();
    let closed = tokio::spawn(async move { closing.close().await });
    tokio::task::yield_now().await;
    drop(ticket);
    closed.await.unwrap();
    let mut stored = 0;
    for call in calls {
        match call.await.unwrap() {
            Ok(_) => stored += 1,
            Err(error) => assert_eq!(error, StoreError::Closed),
        }
    }
    assert!(0 < stored && stored < 80, "{stored} of 80 had entered the queue");
}

/// One commit records all of its events at one time, so the times tell the commits apart.
#[tokio::test]
async fn one_commit_takes_a_few_megabytes_of_what_waits() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder).await;
    let ticket = store.write_ticket().await.unwrap();
    let mut calls = Vec::new();
    for _ in 0..12 {
        calls.push(call(&store, large("a")).await);
    }
    drop(ticket);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let mut commits = Vec::new();
    for seq in 1..=12 {
        commits.push(store.event(seq).await.unwrap().unwrap().recorded_at);
    }
    for events in commits.chunk_by(|a, b| a == b) {
        assert!(events.len() * LARGE_BYTES <= 4 << 20, "{} MB in one commit", events.len());
    }
    commits.dedup();
    assert!(commits.len() < 12, "what waits is gathered all the same");
}
