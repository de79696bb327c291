//! Opening a log: by many at once, by those who may only look, and by those who may not.

use crate::support::{Log, connect, on, whole_log};
use ensue_conformance::postgres::shared_url;
use ensue_core::{EventId, StoreError};
use ensue_stores::postgres::{PostgresOptions, PostgresStore, Upgrade};
use std::time::Duration;
use tokio::task::JoinSet;

fn quick() -> PostgresOptions {
    PostgresOptions { unavailable_after: Duration::from_secs(2), ..PostgresOptions::default() }
}

async fn refusal(url: &str, options: PostgresOptions) -> StoreError {
    match PostgresStore::open(url, options).await {
        Ok(_) => panic!("it opens"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn eight_nodes_that_open_a_new_schema_at_once_all_succeed() {
    let log = Log::new().await;
    let mut nodes = JoinSet::new();
    for _ in 0..8 {
        let url = log.url.clone();
        nodes.spawn(async move { PostgresStore::open(&url, PostgresOptions::default()).await });
    }
    for node in nodes.join_all().await {
        node.expect("each of them opens").close_now().await;
    }
    assert_eq!(log.number("SELECT count(*) - max(version) FROM LOG.schema_version").await, 0, "each migration once");
    assert_eq!(log.number("SELECT count(*) FROM LOG.partitions").await, 3);
}

/// So that a test that holds a concrete store can end it.
trait CloseNow {
    async fn close_now(self);
}

impl CloseNow for PostgresStore {
    async fn close_now(self) {
        ensue_core::Store::close(&self).await;
    }
}

#[tokio::test]
async fn a_schema_of_a_newer_program_is_refused_unless_it_is_compatible() {
    let log = Log::new().await;
    log.open().await.close().await;
    let newest = log.number("SELECT max(version)::bigint FROM LOG.schema_version").await;
    log.run(&format!("INSERT INTO LOG.schema_version (version, compatible_from) VALUES (998, {newest})")).await;
    log.open().await.close().await;
    log.run("INSERT INTO LOG.schema_version (version, compatible_from) VALUES (999, 999)").await;
    match refusal(&log.url, quick()).await {
        StoreError::Schema(text) => assert!(text.contains("version 999") && text.contains("newer"), "{text}"),
        other => panic!("{other}"),
    }
}

/// Whichever way somebody comes: to write, to read, to upgrade, to see what an upgrade would do, or with the script.
#[tokio::test]
#[ignore = "needs a Postgres that is older than 14: make versions has one"]
async fn a_server_older_than_14_is_refused_and_nothing_is_made_there() {
    let log = Log::new().await;
    let version = log.number("SELECT current_setting('server_version_num')::bigint").await / 10_000;
    assert!(version < 14, "this is Postgres {version}: nothing is to be refused");
    let told = |way: &str, error: StoreError| match error {
        StoreError::Schema(text) => {
            let words = format!("has version {version}; Ensue needs 14 or newer: upgrade the server");
            assert!(text.contains(&words), "{way}: {text}");
        }
        other => panic!("{way}: {other:?}"),
    };
    told("open", refusal(&log.url, quick()).await);
    told("open to read", refusal(&log.url, PostgresOptions { read_only: true, ..quick() }).await);
    told("look", Upgrade::look(&log.url).await.unwrap_err());
    told("migrate", Upgrade::carry_out(&log.url).await.unwrap_err());
    let script = log.admin.batch_execute(&Upgrade::install(&log.schema)).await.unwrap_err();
    let script = script.as_db_error().unwrap();
    assert!(script.message().contains("Ensue needs Postgres 14 or newer"), "{script:?}");
    assert_eq!(log.number("SELECT count(*) FROM pg_namespace WHERE nspname = 'LOG'").await, 0);
}

/// A process that runs while another brings the schema to a version that it may not run beside hears of it with its next pulse, or when it connects
/// again, and does nothing more.
#[tokio::test]
async fn a_running_process_notices_that_it_may_not_run_beside_the_schema_any_more() {
    let log = Log::new().await;
    let (pulsing, other) = (log.open().await, log.open_with(quick()).await);
    let newest = log.number("SELECT max(version)::bigint FROM LOG.schema_version").await;
    log.run(&format!("INSERT INTO LOG.schema_version (version, compatible_from) VALUES (998, {newest})")).await;
    pulsing.pulse(None).await.unwrap();
    log.end_sessions().await;
    pulsing.append(on("o")).await.unwrap();
    other.append(on("o")).await.unwrap();

    log.run("INSERT INTO LOG.schema_version (version, compatible_from) VALUES (999, 999)").await;
    let is_told = |error: StoreError| match error {
        StoreError::Schema(text) => assert!(text.contains("version 999") && text.contains("newer"), "{text}"),
        other => panic!("{other}"),
    };
    is_told(pulsing.pulse(None).await.expect_err("with a pulse"));
    is_told(pulsing.ready().await.expect_err("it is not ready"));
    is_told(pulsing.append(on("o")).await.expect_err("it writes nothing more"));
    log.end_sessions().await;
    is_told(other.ready().await.expect_err("with a new connection"));
    is_told(other.append(on("o")).await.expect_err("it writes nothing more"));
    assert_eq!(log.number("SELECT count(*) FROM LOG.stored_events").await, 2);
}

#[tokio::test]
async fn a_schema_with_other_tables_in_it_is_refused_and_left_as_it_was() {
    let log = Log::new().await;
    log.run("CREATE SCHEMA LOG; CREATE TABLE LOG.stored_events (mine int)").await;
    assert!(matches!(refusal(&log.url, quick()).await, StoreError::Schema(_)));
    assert_eq!(log.number("SELECT count(*) FROM pg_tables WHERE schemaname = 'LOG'").await, 1);
}

#[tokio::test]
async fn a_read_only_open_changes_nothing() {
    let log = Log::new().await;
    let read_only = PostgresOptions { read_only: true, ..quick() };
    assert!(matches!(refusal(&log.url, read_only.clone()).await, StoreError::Schema(_)));
    assert_eq!(log.number("SELECT count(*) FROM pg_namespace WHERE nspname = 'LOG'").await, 0);

    let writer = log.open().await;
    writer.append(on("o")).await.unwrap();
    let reader = log.open_with(read_only).await;
    assert_eq!(whole_log(&reader).await.len(), 1);
    let nobody = EventId(uuid::Uuid::nil());
    let unsupported = |error: StoreError| assert!(matches!(error, StoreError::Unsupported(_)), "{error}");
    unsupported(reader.append(on("o")).await.unwrap_err());
    unsupported(reader.trim(2, 10).await.unwrap_err());
    unsupported(reader.release_due(10).await.unwrap_err());
    unsupported(reader.purge_keys(10).await.unwrap_err());
    unsupported(reader.cancel(nobody).await.unwrap_err());
    assert_eq!(whole_log(&reader).await.len(), 1);
}

#[tokio::test]
async fn any_name_may_be_a_schema() {
    let log = Log::new().await;
    for odd in ["with%20blank", "Quote%22d", "it's", "%24body%24", "per%25cent%25I", "{schema_text}", "größe"] {
        let url = format!("{}?schema={odd}{:08x}", shared_url(), rand::random::<u32>());
        let options = PostgresOptions { partition_rows: Some(3), ..quick() };
        let store = PostgresStore::open(&url, options).await.unwrap_or_else(|error| panic!("{odd}: {error}"));
        let store: ensue_core::store::SharedStore = std::sync::Arc::new(store);
        for _ in 0..10 {
            store.append(on("o")).await.unwrap();
        }
        store.trim(5, 10).await.unwrap();
        assert_eq!(whole_log(&store).await.len(), 6, "{odd}");
        store.close().await;
    }
    drop(log);
}

/// S7: a canary in the place of the password is in none of the messages.
#[tokio::test]
async fn errors_say_what_to_do_and_never_tell_the_password() {
    let admin = connect(&shared_url()).await;
    let role = format!("nobody_{:08x}", rand::random::<u32>());
    admin.batch_execute(&format!("CREATE ROLE {role} LOGIN PASSWORD 'canary'")).await.unwrap();
    let authority = shared_url().split_once("://").unwrap().1.split_once('/').unwrap().0.to_string();
    let host = authority.rsplit_once('@').map_or(authority.clone(), |(_, host)| host.to_string());
    let told = |error: StoreError, words: &str| {
        let text = error.to_string();
        assert!(text.contains(words), "`{words}` is not in: {text}");
        assert!(!text.contains("canary"), "{text}");
    };
    let user = format!("postgres://{role}:canary@{host}");
    told(refusal(&format!("{user}/postgres?schema=forbidden_{role}"), quick()).await, "GRANT CREATE ON DATABASE");
    told(refusal(&format!("{user}/no_such_database"), quick()).await, "createdb");
    told(refusal("postgres://u:canary@127.0.0.1:1/db", quick()).await, "is the server running");
    told(refusal("postgres://u:canary@127.0.0.1:port/db", quick()).await, "postgres://USER:PASSWORD@HOST:PORT");
    told(refusal(&format!("{user}/postgres?sslmode=require"), quick()).await, "sslmode");
    let missing = format!("{user}/postgres?sslmode=verify-full&sslrootcert=/no/such/file");
    told(refusal(&missing, quick()).await, "sslrootcert");
}
