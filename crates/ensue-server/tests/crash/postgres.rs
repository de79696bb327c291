//! Is nothing that was acknowledged lost when the server or the database is killed, on Postgres?

use crate::support::Scene;
use crate::support::sql::SqlLoad;
use ensue_conformance::postgres::PrivatePostgres;
use std::time::{Duration, Instant};

/// How many times Postgres itself is killed: `ENSUE_POSTGRES_KILLS`, or 5.
fn postgres_kills() -> usize {
    std::env::var("ENSUE_POSTGRES_KILLS").map_or(5, |text| text.parse().expect("ENSUE_POSTGRES_KILLS is a number"))
}

/// The last statement of a killed server may still be running in the database when the next one begins.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_when_the_server_is_killed() {
    let postgres = tokio::task::block_in_place(PrivatePostgres::start).unwrap();
    let store = postgres.url_with_schema("crash");
    crate::support::kill_the_server_again_and_again(tempfile::tempdir().unwrap(), store).await;
}

/// kill -9 of Postgres and all its children under concurrent load, half of it in plain SQL transactions: the server stays up and goes on
/// by itself, and an event of a transaction is there exactly if its row is.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_when_postgres_is_killed_and_the_server_recovers_by_itself() {
    let mut postgres = tokio::task::block_in_place(PrivatePostgres::start).unwrap();
    let mut scene = Scene::begin(tempfile::tempdir().unwrap(), postgres.url_with_schema("crash")).await;
    scene.sql = Some(SqlLoad::start(&mut scene.load, postgres.url(), "crash").await);
    let mut recoveries = Vec::new();
    for _ in 0..postgres_kills() {
        scene.moment().await;
        let killed = Instant::now();
        tokio::task::block_in_place(|| {
            postgres.kill9().unwrap();
            postgres.restart().unwrap();
        });
        let accepts_after = killed.elapsed();
        scene.load.answered_more(1).await;
        scene.sql.as_ref().expect("it was begun").answered_one_more().await;
        recoveries.push((killed.elapsed(), accepts_after));
        assert!(!scene.server.has_ended(), "the server gave up when its database died");
    }
    scene.end().await;
    let millis = |time: &Duration| time.as_millis();
    for (answers_after, accepts_after) in &recoveries {
        println!(
            "Postgres killed: it accepted connections after {} ms, the server answered again after {} ms",
            millis(accepts_after),
            millis(answers_after)
        );
    }
}
