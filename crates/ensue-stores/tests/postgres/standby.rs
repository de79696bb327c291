//! Standbys: an acknowledged event is on the one that commits wait for, and nothing is decided on one that only follows.

use crate::support::wire::{Still, Wire};
use crate::support::{Log, connect, on, places, whole_log};
use ensue_conformance::postgres::PrivatePostgres;
use ensue_conformance::suite::checked;
use ensue_core::store::SharedStore;
use ensue_core::{NewEvent, Store, StoreError};
use ensue_stores::postgres::{PostgresOptions, PostgresStore};
use std::sync::Arc;
use std::time::Duration;

/// The sessions whose commit waits for a standby.
const WAITING: &str = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'";
/// Those of them that have looked for a batch.
const LOOKED: &str = "SELECT least(count(*), 1) FROM pg_stat_activity \
                      WHERE application_name = 'LOG' AND wait_event = 'SyncRep' AND query LIKE '%.stored(%'";
/// Ends the store's sessions, and with them what waits for a standby.
const END_SESSIONS: &str =
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'LOG'";

/// Notices soon that a connection hangs, and gives up soon.
fn impatient() -> PostgresOptions {
    let (statement_time_max, unavailable_after) = (Duration::from_millis(1_000), Duration::from_millis(1_000));
    PostgresOptions { statement_time_max, unavailable_after, readers_max: 2, ..PostgresOptions::default() }
}

/// Notices soon that a connection hangs, and goes on trying.
fn persistent() -> PostgresOptions {
    PostgresOptions { unavailable_after: Duration::from_secs(60), ..impatient() }
}

/// From now on commits wait for a standby that is not there.
async fn lose_the_standby(server: &PrivatePostgres, log: &Log) {
    log.run("ALTER SYSTEM SET synchronous_standby_names = 'nobody'").await;
    log.run("SELECT pg_reload_conf()").await;
    let probe = connect(&server.url()).await;
    let probing = tokio::spawn(async move {
        while probe.batch_execute("SELECT pg_logical_emit_message(true, 'test', '')").await.is_ok() {}
    });
    log.until(WAITING, 1).await;
    probing.abort();
}

/// Commits wait no more.
async fn need_no_standby(log: &Log) {
    log.run("ALTER SYSTEM RESET synchronous_standby_names").await;
    log.run("SELECT pg_reload_conf()").await;
    log.until(WAITING, 0).await;
}

/// The server has the event, and a failover would lose it: that is not said to be stored.
#[tokio::test]
async fn what_no_standby_has_is_not_acknowledged() {
    let server = PrivatePostgres::start().unwrap();
    let log = Log::in_database(&server.url()).await;
    let store = log.open_hasty(impatient()).await;
    store.append(on("o")).await.unwrap();
    lose_the_standby(&server, &log).await;
    let keyed = || checked(vec![NewEvent::new("t").object("o").key("k")]);
    for attempt in ["first", "again, by its key"] {
        let answer = store.append(keyed()).await;
        assert!(matches!(answer, Err(StoreError::InDoubt(_))), "{attempt}: {answer:?}");
        log.until(END_SESSIONS, 0).await;
    }
    need_no_standby(&log).await;
    assert_eq!(store.append(on("o")).await.unwrap()[0].seq, Some(3));

    // One that has the patience is told as soon as the standby has it.
    let store = log.open_with(persistent()).await;
    lose_the_standby(&server, &log).await;
    let appending = store.clone();
    let append = tokio::spawn(async move { appending.append(on("o")).await });
    log.until(LOOKED, 1).await;
    assert!(!append.is_finished(), "answered before a standby has it");
    need_no_standby(&log).await;
    let answer = append.await.unwrap().unwrap()[0];
    assert_eq!((answer.seq, answer.prev), (Some(4), Some(3)));
    assert_eq!(whole_log(&store).await.len(), 4);
}

/// A primary behind a wire, and beside it a server that is in recovery and knows the same log as it was once.
struct Pair {
    wire: Wire,
    log: Log,
    standby: PrivatePostgres,
    _primary: PrivatePostgres,
}

impl Pair {
    async fn start() -> Self {
        let (primary, mut standby) = (PrivatePostgres::start().unwrap(), PrivatePostgres::start().unwrap());
        let log = Log::in_database(&primary.url()).await;
        let url = standby.url_with_schema(&log.schema);
        PostgresStore::open(&url, PostgresOptions::default()).await.unwrap().close().await;
        standby.stop().unwrap();
        std::fs::write(standby.folder().join("data/standby.signal"), "").unwrap();
        standby.restart().unwrap();
        Self { wire: Wire::to(&primary.url()).await, log, standby, _primary: primary }
    }

    /// Its two addresses, the primary's first.
    fn hosts(&self) -> [String; 2] {
        [&self.wire.url, &self.standby.url()].map(|url| {
            let (_, rest) = url.split_once('@').unwrap();
            rest.split_once('/').unwrap().0.to_string()
        })
    }

    async fn open(&self, hosts: &str, parameters: &str) -> Result<SharedStore, StoreError> {
        let name = &self.log.schema;
        let url = format!(
            "postgres://ensue@{hosts}/postgres?schema={name}&application_name={name}&sslmode=disable{parameters}"
        );
        Ok(Arc::new(PostgresStore::open(&url, persistent()).await?))
    }
}

/// The way to the primary is closed for a moment, and the store gets to the standby, which knows nothing of the batch
/// nor of the session that it was sent on. What became of it can only be told by the primary.
#[tokio::test]
async fn what_became_of_a_batch_is_not_asked_of_a_standby() {
    let pair = Pair::start().await;
    let hosts = pair.hosts().join(",");
    for (round, parameters) in [(0, ""), (1, "&target_session_attrs=any")] {
        let store = pair.open(&hosts, parameters).await.unwrap();
        store.append(on("o")).await.unwrap();
        let writer =
            "SELECT pid::bigint FROM pg_stat_activity WHERE application_name = 'LOG' AND query LIKE '%.append(%'";
        let process = pair.log.number(writer).await;
        pair.wire.refuse_next_connection.store(true, std::sync::atomic::Ordering::SeqCst);
        pair.wire.stand_where_open(Still::BothWays);
        let answer = store.append(on("o")).await.unwrap()[0];
        assert_eq!(answer.seq, Some(2 * round + 2));
        pair.wire.stand(Still::Nothing);
        pair.log.until(&format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {process}"), 0).await;
        assert_eq!(whole_log(&store).await.len() as u64, 2 * round + 2, "stored twice{parameters}");
        store.close().await;
        pair.log.until("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'LOG'", 0).await;
    }

    // It does not matter which of them is named first.
    let [primary, standby] = pair.hosts();
    let store = pair.open(&format!("{standby},{primary}"), "").await.unwrap();
    assert_eq!(store.append(on("o")).await.unwrap()[0].seq, Some(5));
    assert_eq!(places(&whole_log(&store).await).len(), 5);
}
