//! Making a schema from the script, removing it, and seeing that it is not as it should be.

use crate::old::OLD;
use crate::support::groups::open;
use crate::support::session::Session;
use crate::support::{Log, on};
use ensue_core::{Store, StoreError};
use ensue_stores::postgres::{PostgresOptions, PostgresStore, Upgrade};

/// What `doctor` compares a schema with, and where it is kept.
const FACTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/postgres/sql/facts.txt");

#[tokio::test]
async fn the_facts_in_the_repository_are_those_of_a_schema_that_was_just_made() {
    let log = Log::new().await;
    let facts = open(&log.url, PostgresOptions::default()).await.facts().await.unwrap();
    if std::env::var_os("ENSUE_WRITE_FACTS").is_some() {
        std::fs::write(FACTS, &facts).unwrap();
    }
    let kept = std::fs::read_to_string(FACTS).unwrap_or_default();
    assert!(kept == facts, "sql/facts.txt is not up to date: run this test with ENSUE_WRITE_FACTS=1");
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
    assert_eq!(log.number("SELECT count(*) FROM LOG.stored_events").await, 1);
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

/// Who has looked at jobs when an upgrade comes goes on to change them, and the upgrade waits: neither waits for the other in a circle.
#[tokio::test]
async fn an_upgrade_waits_for_who_is_about_to_change_a_job() {
    let log = Log::new().await;
    let old = OLD.iter().find(|old| old.name == "13").unwrap();
    old.make(&log).await;
    old.fill(&log).await;
    let session = Session::of(&log).await;
    session.run("BEGIN; SELECT 1 FROM LOG.jobs FOR UPDATE").await.unwrap();
    let url = log.url.clone();
    let upgrade = tokio::spawn(async move { Upgrade::carry_out(&url).await });
    let waiting = "SELECT count(*) FROM pg_locks l WHERE l.relation = 'LOG.jobs'::regclass AND NOT l.granted";
    log.until(waiting, 1).await;
    session.run("UPDATE LOG.jobs SET state = state; COMMIT").await.expect("a change of jobs during the upgrade");
    assert_eq!(upgrade.await.unwrap().expect("the upgrade").from, 13);
}

#[tokio::test]
async fn drift_is_told_by_name() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    assert_eq!(store.drift().await.unwrap(), []);
    log.run("DROP INDEX LOG.jobs_due; DROP FUNCTION LOG.purge_keys; \
         CREATE OR REPLACE FUNCTION LOG.elapsed(p_since timestamptz, p_now timestamptz) RETURNS bigint LANGUAGE sql IMMUTABLE AS 'SELECT 0::bigint'").await;
    assert_eq!(
        found(&store).await,
        [
            "the function purge_keys is missing",
            "the index jobs_due of jobs is missing",
            "the function elapsed is not this program's",
        ]
    );
}

async fn found(store: &PostgresStore) -> Vec<String> {
    store.drift().await.unwrap().into_iter().map(|drift| drift.found).collect()
}

/// Whatever somebody has done to the schema by hand is told of, with what to do.
#[tokio::test]
async fn all_that_a_schema_lacks_is_told_of() {
    let partition = "the partition events_p11 of the log, for the events 11 to 20, is missing";
    for (done, told) in [
        ("DROP VIEW LOG.events", "the view events is missing"),
        ("DROP TABLE LOG.own_settlements", "the table own_settlements is missing"),
        ("ALTER TABLE LOG.jobs DROP COLUMN worker CASCADE", "the column worker of jobs is missing"),
        ("ALTER TABLE LOG.jobs ALTER COLUMN result TYPE varchar", "the column result of jobs is varchar"),
        ("GRANT EXECUTE ON FUNCTION LOG.publish TO PUBLIC", "anybody may call the function publish"),
        (
            "GRANT EXECUTE ON FUNCTION LOG.trim TO LOG_publish",
            "the role LOG_publish may call the function LOG.\"trim\"",
        ),
        (
            "REVOKE EXECUTE ON FUNCTION LOG.publish FROM LOG_publish",
            "the role LOG_publish may not call the function publish",
        ),
        ("REVOKE SELECT ON LOG.events FROM LOG_consume", "the role LOG_consume may not SELECT events"),
        (
            "ALTER FUNCTION LOG.publish RESET search_path",
            "the function publish is plpgsql, volatile, security definer, from",
        ),
        ("ALTER FUNCTION LOG.publish SECURITY INVOKER", "the function publish is plpgsql, volatile, security invoker"),
        ("ALTER FUNCTION LOG.publish OWNER TO CURRENT_USER", "the function publish does not run as the role LOG_owner"),
        ("ALTER TABLE LOG.config DISABLE TRIGGER config_check", "the trigger config_check of config is disabled"),
        ("DROP TABLE LOG.events_p11", partition),
        (
            "ALTER TABLE LOG.stored_events DETACH PARTITION LOG.events_p11",
            "for the events 11 to 20, is no part of it any more",
        ),
        (
            "ALTER TABLE LOG.delayed DROP CONSTRAINT delayed_pkey CASCADE",
            "the constraint delayed_pkey of delayed is missing",
        ),
        ("DROP TABLE LOG.config", "the table config is missing"),
    ] {
        let log = Log::new().await;
        let store = open(&log.url, PostgresOptions { partition_rows: Some(10), ..PostgresOptions::default() }).await;
        log.run(done).await;
        let (drift, told) = (found(&store).await, told.replace("LOG", &log.schema));
        assert!(drift.iter().any(|found| found.contains(&told)), "{done}: {drift:?}");
        assert!(drift.len() <= 4, "{done}: {drift:?}");
        store.close().await;
    }
}

/// What `apply_grants()` would make is told of, and is no fault: everything works without it.
#[tokio::test]
async fn a_role_that_is_not_there_is_told_of() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    log.run("DROP OWNED BY LOG_operate; DROP ROLE LOG_operate").await;
    let drift = store.drift().await.unwrap();
    assert!(drift.len() == 1 && drift[0].is_harmless && drift[0].fix.contains("apply_grants()"), "{drift:?}");
    assert_eq!(drift[0].found, format!("there is no role {}_operate", log.schema));
}

/// A schema of a newer version is not called up to date, and one that lets nobody older in is refused.
#[tokio::test]
async fn a_dry_run_on_a_newer_schema_says_so() {
    let log = Log::new().await;
    log.open().await.close().await;
    log.run("INSERT INTO LOG.schema_version (version, compatible_from) VALUES (998, 1)").await;
    let upgrade = Upgrade::look(&log.url).await.unwrap();
    assert!(upgrade.script.contains("to version 998") && upgrade.script.contains("nothing to do"), "{upgrade:?}");
    log.run("INSERT INTO LOG.schema_version (version, compatible_from) VALUES (999, 999)").await;
    match Upgrade::look(&log.url).await {
        Err(StoreError::Schema(text)) => assert!(text.contains("version 999") && text.contains("newer"), "{text}"),
        other => panic!("{other:?}"),
    }
}

/// Who only looks at an older schema is told how it is brought up to date.
#[tokio::test]
async fn who_looks_at_an_older_schema_is_told_to_migrate() {
    let log = Log::new().await;
    let looking = PostgresOptions { read_only: true, ..PostgresOptions::default() };
    for (before, words) in
        [("SELECT 1", "there is no Ensue in"), ("DELETE FROM LOG.schema_version WHERE version > 13", "has version 13")]
    {
        log.run(before).await;
        match PostgresStore::open(&log.url, looking.clone()).await.map(|_| ()) {
            Err(StoreError::Schema(text)) => {
                assert!(text.contains(words) && text.contains("`ensue migrate`"), "{text}")
            }
            other => panic!("{other:?}"),
        }
        if words.starts_with("there") {
            log.open().await.close().await;
        }
    }
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
