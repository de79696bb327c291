//! Making a schema from the script, removing it, upgrading it under load, and seeing that it is not as it should be.

use crate::support::groups::{Engine, LEASE, name, open};
use crate::support::session::Session;
use crate::support::{Log, on, whole_log};
use ensue_core::jobs::{Claim, Held, JobChange, JobEnd, NewJob};
use ensue_core::store::SharedStore;
use ensue_core::{Jobs, Store, StoreError};
use ensue_stores::postgres::{PostgresOptions, PostgresStore, Upgrade};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// Where the script for the schema `ensue` is kept.
const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../sql/ensue.sql");

#[test]
fn the_script_in_the_repository_is_what_this_program_makes() {
    if std::env::var_os("ENSUE_WRITE_SCRIPT").is_some() {
        std::fs::write(SCRIPT, Upgrade::install("ensue")).unwrap();
    }
    let kept = std::fs::read_to_string(SCRIPT).unwrap_or_default();
    assert!(
        kept == Upgrade::install("ensue"),
        "sql/ensue.sql is not up to date: cargo run -- migrate --sql > sql/ensue.sql"
    );
}

#[tokio::test]
async fn what_the_script_makes_is_what_a_store_that_is_opened_makes() {
    let (log, other) = (Log::new().await, Log::new().await);
    // As on every server but that of the tests: each function is read before it is made.
    log.run("SET check_function_bodies = on").await;
    log.admin.batch_execute(&Upgrade::install(&log.schema)).await.unwrap();
    other.open().await.close().await;
    let relations = "SELECT count(*) FROM pg_class WHERE relnamespace = 'LOG'::regnamespace";
    assert_eq!(log.number(relations).await, other.number(relations).await);
    let functions = "SELECT count(*) FROM pg_proc WHERE pronamespace = 'LOG'::regnamespace";
    assert_eq!(log.number(functions).await, other.number(functions).await);
    // Without a store ever having been opened there, somebody publishes and the event is in the log.
    log.run("SELECT LOG.publish('a'); SELECT LOG.poll_for_events(10)").await;
    assert_eq!(log.number("SELECT count(*) FROM LOG.events").await, 1);
    let store = log.open().await;
    assert_eq!(store.append(on("o")).await.unwrap()[0].seq, Some(2));
    assert_eq!(Upgrade::look(&log.url).await.unwrap().script, "", "nothing is to be done");

    let twice = log.admin.batch_execute(&Upgrade::install(&log.schema)).await.unwrap_err();
    let twice = twice.as_db_error().unwrap();
    assert!(twice.message().contains("is installed") && twice.hint().unwrap().contains("ensue migrate"), "{twice:?}");
    store.close().await;
    log.run("DROP SCHEMA LOG CASCADE").await;
    assert_eq!(
        log.number(
            "SELECT count(*) FROM pg_class WHERE relname LIKE 'events_p%' AND relnamespace::regnamespace::text = 'LOG'"
        )
        .await,
        0
    );
    log.open().await.close().await;
}

/// Makes the schema what it was before the newest tables.
async fn put_back(session: &Session) {
    session.run("DROP TABLE LOG.config; DROP FUNCTION LOG.config_check; DROP FUNCTION LOG.mutation_payload; DROP INDEX LOG.jobs_sent; DROP INDEX LOG.jobs_dead; \
         DROP FUNCTION LOG.maintain; DROP FUNCTION LOG.enqueue; DELETE FROM LOG.schema_version WHERE version > 12").await.unwrap();
}

#[tokio::test]
async fn a_dry_run_tells_what_would_be_done_and_does_nothing() {
    let log = Log::new().await;
    let session = Session::of(&log).await;
    let nothing = Upgrade::look(&log.url).await.unwrap();
    assert_eq!((nothing.from, nothing.script.contains("CREATE TABLE")), (0, true));
    assert_eq!(log.number("SELECT count(*) FROM pg_namespace WHERE nspname = 'LOG'").await, 0);
    log.open().await.close().await;
    put_back(&session).await;
    let upgrade = Upgrade::look(&log.url).await.unwrap();
    assert_eq!(upgrade.from, 12);
    assert!(
        upgrade.to > 12
            && upgrade.script.contains("jobs_sent")
            && !upgrade.script.contains("CREATE TABLE \"{}\".outbox"),
        "{upgrade:?}"
    );
    assert_eq!(log.number("SELECT max(version)::bigint FROM LOG.schema_version").await, 12);
    // The same SQL by hand; and not twice.
    session.run(&format!("BEGIN; {} COMMIT", upgrade.script)).await.unwrap();
    let (code, message) = {
        let error = session.run(&upgrade.script).await.unwrap_err();
        let error = error.as_db_error().unwrap().clone();
        (error.code().code().to_owned(), error.message().to_owned())
    };
    assert!(code == "55000" && message.contains("not 12"), "{message}");
    let done = Upgrade::carry_out(&log.url).await.unwrap();
    assert_eq!((done.from, done.script.as_str()), (upgrade.to, ""));
}

/// Upgraded while others append, read and run jobs: nothing is lost, order is kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_upgrade_under_load_loses_nothing() {
    /// How many appends there are before the upgrade, and after it, at least.
    const SOME: usize = 100;
    let log = Log::new().await;
    let engine: Engine = open(&log.url, PostgresOptions::default()).await;
    let session = Session::of(&log).await;
    put_back(&session).await;
    let (stop, appended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let mut load = JoinSet::new();
    for n in 0..4 {
        let (store, appended, over) = (engine.clone() as SharedStore, appended.clone(), stop.clone());
        load.spawn(async move {
            while !over.load(Ordering::SeqCst) {
                store.append(on(&format!("o{n}"))).await.expect("an append during the upgrade");
                appended.fetch_add(1, Ordering::SeqCst);
            }
        });
    }
    let (store, over) = (engine.clone(), stop.clone());
    let jobs = tokio::spawn(async move {
        let (mut sent, mut ran) = (0, 0);
        while !over.load(Ordering::SeqCst) || ran < sent {
            if !over.load(Ordering::SeqCst) {
                sent += store.enqueue(vec![NewJob::new(name("a"))]).await.expect("a job during the upgrade").len();
            }
            let claim = Claim {
                handlers: vec![(name("a"), 9)],
                limit: 9,
                lease: LEASE,
                worker: "w".into(),
                ends_with_store: false,
            };
            let taken = store.claim(claim).await.expect("a claim during the upgrade");
            ran += taken.len();
            let ends = taken.iter().map(|job| JobChange::new(Held { id: job.id, fence: job.fence }, JobEnd::Succeeded));
            store.settle_jobs(ends.collect()).await.expect("an end during the upgrade");
        }
        (sent, ran)
    });
    let until_appended = async |count: usize| {
        while appended.load(Ordering::SeqCst) < count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    until_appended(SOME).await;
    assert_eq!(Upgrade::carry_out(&log.url).await.unwrap().from, 12);
    until_appended(appended.load(Ordering::SeqCst) + SOME).await;
    stop.store(true, Ordering::SeqCst);
    load.join_all().await;
    let (sent, ran) = jobs.await.unwrap();
    assert_eq!(sent, ran);
    let store = engine as SharedStore;
    let all = whole_log(&store).await;
    assert_eq!(all.len(), appended.load(Ordering::SeqCst));
    log.run("SELECT LOG.maintain()").await;
}

/// Who has looked at jobs when an upgrade comes goes on to change them, and the upgrade waits: neither waits for the other in a circle.
#[tokio::test]
async fn an_upgrade_waits_for_who_is_about_to_change_a_job() {
    let log = Log::new().await;
    log.open().await.close().await;
    let session = Session::of(&log).await;
    put_back(&session).await;
    session.run("BEGIN; SELECT 1 FROM LOG.jobs FOR UPDATE").await.unwrap();
    let url = log.url.clone();
    let upgrade = tokio::spawn(async move { Upgrade::carry_out(&url).await });
    let waiting = "SELECT count(*) FROM pg_locks l WHERE l.relation = 'LOG.jobs'::regclass AND NOT l.granted";
    log.until(waiting, 1).await;
    session.run("UPDATE LOG.jobs SET state = state; COMMIT").await.expect("a change of jobs during the upgrade");
    assert_eq!(upgrade.await.unwrap().expect("the upgrade").from, 12);
}

#[tokio::test]
async fn drift_is_told_by_name() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    assert_eq!(store.drift().await.unwrap(), [""; 0]);
    log.run("DROP INDEX LOG.jobs_due; DROP FUNCTION LOG.purge_keys; \
         CREATE OR REPLACE FUNCTION LOG.elapsed(p_since timestamptz, p_now timestamptz) RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint'").await;
    let mut drift = store.drift().await.unwrap();
    drift.sort_unstable();
    assert_eq!(
        drift,
        [
            "the function elapsed is not this program's",
            "the function purge_keys is missing",
            "the index jobs_due of jobs is missing"
        ]
    );
}

/// Somebody with more rights makes the schema; who may not is told what to ask for.
#[tokio::test]
async fn a_role_that_may_not_make_a_schema_is_told_what_to_ask_for() {
    let log = Log::new().await;
    let role = format!("{}_poor", log.schema);
    log.admin.batch_execute(&format!("CREATE ROLE {role} LOGIN")).await.unwrap();
    let url = log.url.replacen("ensue@", &format!("{role}@"), 1);
    match Upgrade::carry_out(&url).await {
        Err(StoreError::Engine(text)) => assert!(text.contains("GRANT CREATE ON DATABASE"), "{text}"),
        other => panic!("{other:?}"),
    }
    let hint =
        log.admin.batch_execute(&format!("SET ROLE {role}; {}", Upgrade::install(&log.schema))).await.unwrap_err();
    log.run("RESET ROLE").await;
    let hint = hint.as_db_error().unwrap().hint().unwrap().to_owned();
    assert!(hint.contains("GRANT CREATE ON DATABASE postgres TO") && hint.contains("AUTHORIZATION"), "{hint}");
    log.run(&format!("CREATE SCHEMA LOG AUTHORIZATION {role}")).await;
    assert_eq!(Upgrade::carry_out(&url).await.unwrap().from, 0);
    let store = PostgresStore::open(&url, PostgresOptions::default()).await.unwrap();
    assert_eq!(store.append(on("o")).await.unwrap()[0].seq, Some(1));
    store.close().await;
}
