//! Is nothing that was acknowledged lost when the server or the database is killed, on Postgres?

mod cli_support;
mod crash_support;

use crash_support::{CALLS_PER_LIFE, Load, assert_restarts_quick, judge, kills, reader, start_ready, steady_port};
use ensue_conformance::postgres::PrivatePostgres;

/// How many times Postgres itself is killed.
const POSTGRES_KILLS: usize = 5;

/// kill -9 of the server under concurrent load; its last statement may still be running in the database.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    let postgres = tokio::task::block_in_place(PrivatePostgres::start).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let store = postgres.url_with_schema("crash");
    let port = steady_port();
    let (mut server, _) = start_ready(folder.path(), port, &store).await;
    let reader = reader(folder.path(), port);
    let load = Load::start(port);
    let (mut restarts, mut killed_at) = (Vec::new(), Vec::new());
    for _ in 0..kills() {
        load.answered_more(CALLS_PER_LIFE + rand::random::<u64>() % CALLS_PER_LIFE).await;
        killed_at.push(load.now());
        server.kill9();
        let (next, took) = start_ready(folder.path(), port, &store).await;
        server = next;
        restarts.push(took);
    }
    load.answered_more(CALLS_PER_LIFE).await;
    let calls = load.end().await;
    judge(&store, &calls, &killed_at, reader).await;
    assert!(server.terminate().success());
    assert_restarts_quick(restarts);
}

/// kill -9 of Postgres and all its children under concurrent load: the server stays up and goes on by itself.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_when_postgres_is_killed_and_the_server_recovers_by_itself() {
    let mut postgres = tokio::task::block_in_place(PrivatePostgres::start).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let store = postgres.url_with_schema("crash");
    let port = steady_port();
    let (mut server, _) = start_ready(folder.path(), port, &store).await;
    let reader = reader(folder.path(), port);
    let load = Load::start(port);
    let mut killed_at = Vec::new();
    for _ in 0..POSTGRES_KILLS {
        load.answered_more(CALLS_PER_LIFE + rand::random::<u64>() % CALLS_PER_LIFE).await;
        killed_at.push(load.now());
        tokio::task::block_in_place(|| {
            postgres.kill9().unwrap();
            postgres.restart().unwrap();
        });
        assert!(!server.has_ended(), "the server gave up when its database died");
    }
    load.answered_more(CALLS_PER_LIFE).await;
    let calls = load.end().await;
    judge(&store, &calls, &killed_at, reader).await;
    assert!(server.terminate().success());
}
