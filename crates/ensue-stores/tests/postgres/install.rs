//! Making a schema from the script, removing it, and seeing that it is not as it should be.

use crate::old::OLD;
use crate::support::groups::open;
use crate::support::{Log, on};
use ensue_core::{Store, StoreError};
use ensue_stores::postgres::{PostgresOptions, PostgresStore, Upgrade};

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

#[tokio::test]
async fn a_dry_run_tells_what_would_be_done_and_does_nothing() {
    let log = Log::new().await;
    let nothing = Upgrade::look(&log.url).await.unwrap();
    assert_eq!((nothing.from, nothing.script.contains("CREATE TABLE")), (0, true));
    assert_eq!(log.number("SELECT count(*) FROM pg_namespace WHERE nspname = 'LOG'").await, 0);
    let old = OLD.iter().find(|old| old.name == "13").unwrap();
    old.make(&log).await;
    let upgrade = Upgrade::look(&log.url).await.unwrap();
    assert_eq!(upgrade.from, 13);
    assert!(
        upgrade.to > 13 && upgrade.script.contains("jobs_dead") && !upgrade.script.contains("jobs_sent ON"),
        "{upgrade:?}"
    );
    assert_eq!(log.number("SELECT max(version)::bigint FROM LOG.schema_version").await, 13);
    // The same SQL by hand; and not twice.
    log.admin.batch_execute(&format!("BEGIN; {} COMMIT", upgrade.script)).await.unwrap();
    let twice = log.admin.batch_execute(&upgrade.script).await.unwrap_err();
    let twice = twice.as_db_error().unwrap();
    assert!(twice.code().code() == "55000" && twice.message().contains("not 13"), "{twice:?}");
    let done = Upgrade::carry_out(&log.url).await.unwrap();
    assert_eq!((done.from, done.script.as_str()), (upgrade.to, ""));
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
