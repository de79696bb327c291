//! S14: locks that a stranger can take hang nothing without an answer.

use crate::support::sql::{log, refusal};
use crate::support::{Log, on};
use ensue_core::jobs::NewJob;
use ensue_core::{GroupName, Jobs, StoreError};
use ensue_stores::postgres::{PostgresOptions, PostgresStore};
use std::time::Duration;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

const WAIT_MAX: Duration = Duration::from_secs(60);

/// Takes every advisory lock whose key a login without any right can read in the functions of the schema, once
/// for each of the numbers that stand beside it, if some do.
async fn take_advisory_locks(log: &Log, stranger: &Client, key: &str, beside: &str) -> i64 {
    let sql = format!(
        "SELECT count(pg_advisory_lock({key})) FROM (SELECT DISTINCT m[1]::bigint AS key FROM pg_proc p, \
         regexp_matches(p.prosrc, 'advisory[a-z_]*\\((-?[0-9]+){beside}', 'g') m \
         WHERE p.pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = '{}')) k, generate_series(0, {}) b",
        log.schema,
        if beside == "[)]" { 0 } else { 1_023 }
    );
    stranger.query_one(&sql, &[]).await.unwrap().get(0)
}

/// The locks with one number.
async fn take_single_locks(log: &Log, stranger: &Client) -> i64 {
    take_advisory_locks(log, stranger, "k.key", "[)]").await
}

/// Those of lanes, which have two.
async fn take_lane_locks(log: &Log, stranger: &Client) -> i64 {
    take_advisory_locks(log, stranger, "k.key::int, b", ", b").await
}

async fn open(log: &Log) -> PostgresStore {
    PostgresStore::open(&log.url, PostgresOptions::default()).await.unwrap()
}

fn job(handler: &str) -> NewJob {
    NewJob::new(GroupName::parse("handler", handler).unwrap())
}

#[tokio::test]
async fn stranger_holds_up_neither_publishing_nor_jobs() {
    let log = log().await;
    let stranger = log.login(&[]).await;
    assert!(take_single_locks(&log, &stranger).await >= 1, "the keys were found");
    for table in ["log_lock", "serving_lock", "rules_lock", "partitions", "stored_events"] {
        let lock = format!("BEGIN; LOCK TABLE {}.{table} IN ACCESS SHARE MODE", log.schema);
        let refused = stranger.batch_execute(&lock).await.expect_err(table);
        assert_eq!(refusal(&refused).state, SqlState::INSUFFICIENT_PRIVILEGE, "{table}");
        stranger.batch_execute("ROLLBACK").await.unwrap();
    }
    let work = async {
        let store = open(&log).await;
        assert_eq!(ensue_core::Store::append(&store, on("o")).await.unwrap()[0].seq, Some(1));
        log.run("SELECT LOG.publish('a')").await;
        while ensue_core::Store::release_due(&store, 10).await.unwrap().count > 0 {}
        assert_eq!(ensue_core::Store::bounds(&store).await.unwrap().last, 2);
        log.run("SELECT LOG.pause('handler:x'); SELECT LOG.resume('handler:x')").await;
        store.enqueue(vec![job("h")]).await.unwrap();
        ensue_core::Store::close(&store).await;
    };
    tokio::time::timeout(WAIT_MAX, work).await.expect("a stranger's lock holds nothing up");
}

/// Lanes have a thousand locks, which stay advisory: what waits for one is answered, with who holds it.
#[tokio::test]
async fn call_that_waits_for_a_strangers_lock_is_answered_with_its_pid() {
    let log = log().await;
    let stranger = log.login(&[]).await;
    stranger.batch_execute("SET application_name = 'a stranger'").await.unwrap();
    let pid: i32 = stranger.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    assert_eq!(take_lane_locks(&log, &stranger).await, 1_024);
    let store = open(&log).await;
    let sending = store.enqueue(vec![NewJob { object: Some(ensue_core::ObjectKey::parse("o").unwrap()), ..job("h") }]);
    let error = tokio::time::timeout(WAIT_MAX, sending).await.expect("it is answered").expect_err("it cannot be sent");
    let StoreError::Unavailable(text) = &error else { panic!("{error:?}") };
    assert!(text.contains(&format!("pid {pid} (")) && text.contains("\"a stranger\""), "{text}");
    assert!(store.lock_holders().await.unwrap().iter().any(|holder| holder.transaction.0 == pid));
    stranger.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
    store.enqueue(vec![job("h")]).await.unwrap();
    ensue_core::Store::close(&store).await;
}

/// A session over SQL without a `lock_timeout` of its own is answered too.
#[tokio::test]
async fn sql_call_that_waits_for_a_strangers_lock_is_answered_with_its_pid() {
    let log = log().await;
    let stranger = log.login(&[]).await;
    let pid: i32 = stranger.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    log.run("SELECT LOG.enqueue('h', '{}', 'o')").await;
    let claimed = format!("SELECT id, claim FROM {}.claim_jobs(ARRAY['h'])", log.schema);
    let claimed = log.admin.query_one(&claimed, &[]).await.unwrap();
    let (id, claim): (String, String) = (claimed.get(0), claimed.get(1));
    assert_eq!(take_lane_locks(&log, &stranger).await, 1_024);
    log.plant("jobs_lock", "30000ms", "300ms").await;
    let worker = log.login(&["consume"]).await;
    let complete = format!("SELECT {}.complete_job('{id}', '{claim}')", log.schema);
    let completing = tokio::time::timeout(WAIT_MAX, worker.batch_execute(&complete)).await.expect("it is answered");
    let refused = refusal(&completing.expect_err("it cannot be completed"));
    assert_eq!(refused.state, SqlState::LOCK_NOT_AVAILABLE);
    assert!(refused.text.contains(&format!("held by pid {pid} (")), "{}", refused.text);
    stranger.batch_execute("SELECT pg_advisory_unlock_all()").await.unwrap();
    worker.batch_execute(&complete).await.unwrap();
    let timeout: String = worker.query_one("SHOW lock_timeout", &[]).await.unwrap().get(0);
    assert_eq!(timeout, "0", "the session keeps its setting");
}

/// The bug that is planted: the log is locked by an advisory lock, as it was.
#[tokio::test]
async fn advisory_lock_on_the_log_would_let_a_stranger_stop_appends() {
    let log = log().await;
    let stranger = log.login(&[]).await;
    let lock = format!("LOCK TABLE \"{}\".log_lock IN SHARE UPDATE EXCLUSIVE MODE", log.schema);
    log.plant("append", &lock, "PERFORM pg_advisory_xact_lock(4711)").await;
    take_single_locks(&log, &stranger).await;
    let store = open(&log).await;
    let error = ensue_core::Store::append(&store, on("o")).await.expect_err("it waits in vain");
    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
    ensue_core::Store::close(&store).await;
}
