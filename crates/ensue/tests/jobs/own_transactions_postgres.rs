//! The same on Postgres, in transactions of the application's driver.

#![cfg(feature = "postgres")]

use crate::support::{LONG, Seen, noting, until_state};
use ensue::jobs::JobState;
use ensue::testing::{ManualClock, jobs, open_at};
use ensue::{Emit, Ensue};
use ensue_conformance::postgres::{fresh_schema, shared_url};
use std::time::Duration;
use tokio_postgres::{Client, NoTls};

async fn client() -> Client {
    let (client, connection) = tokio_postgres::connect(&shared_url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

fn numbered(n: u32) -> Emit {
    Emit::to("h").object("o").payload(&n)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_a_transaction_is_sent_with_its_commit() {
    let (url, _schema) = fresh_schema("emit");
    let bus = Ensue::open(&url).await.unwrap();
    let seen: Seen = noting(&bus, "h");
    let running = bus.start().await.unwrap();
    let mut client = client().await;

    let tx = client.transaction().await.unwrap();
    let mut tx = tx;
    bus.emit_in(&mut tx, numbered(0)).await.unwrap();
    tx.rollback().await.unwrap();

    let mut tx = client.transaction().await.unwrap();
    let first = bus.emit_in(&mut tx, numbered(1).priority(u64::MAX).unique_key("k")).await.unwrap();
    let again = bus.emit_in(&mut tx, numbered(1).unique_key("k")).await.unwrap();
    assert_eq!(first, again);
    let rest = bus.emit_all_in(&mut tx, (2..20).map(numbered).collect()).await.unwrap();
    let refused = bus.emit_in(&mut tx, numbered(1).attempts_max(0)).await.unwrap_err();
    assert!(refused.to_string().contains("attempts_max"), "{refused}");
    assert!(bus.job(first).await.unwrap().is_none(), "it is there before the commit");
    tx.commit().await.unwrap();
    for id in std::iter::once(first).chain(rest) {
        until_state(&bus, id, JobState::Succeeded).await;
    }
    assert_eq!(seen.all(), (1..20).map(|n| n.to_string()).collect::<Vec<_>>());
    running.shutdown(LONG).await.unwrap();
}

#[tokio::test]
async fn a_job_of_a_transaction_has_the_time_of_the_test_clock() {
    let (url, _schema) = fresh_schema("emit");
    let clock = ManualClock::at_noon();
    let bus = open_at(&url, &clock).await.unwrap();
    let seen = noting(&bus, "h");
    let running = bus.start().await.unwrap();
    let mut client = client().await;
    let mut tx = client.transaction().await.unwrap();
    let in_an_hour = clock.now() + Duration::from_secs(3_600);
    bus.emit_all_in(&mut tx, vec![numbered(1), numbered(2).not_before(in_an_hour)]).await.unwrap();
    tx.commit().await.unwrap();
    bus.drain().await.unwrap();
    assert_eq!(seen.all(), ["1"]);
    assert!(jobs(&bus).await.unwrap().iter().all(|job| job.enqueued_at == clock.now()));
    clock.advance(Duration::from_secs(3_600));
    bus.drain().await.unwrap();
    assert_eq!(seen.all(), ["1", "2"]);
    running.shutdown(LONG).await.unwrap();
}

#[cfg(feature = "sqlx")]
#[tokio::test(flavor = "multi_thread")]
async fn sqlx_sends_too() {
    use sqlx::{Connection, PgConnection};
    let (url, _schema) = fresh_schema("emit");
    let bus = Ensue::open(&url).await.unwrap();
    let mut own = PgConnection::connect(&shared_url()).await.unwrap();
    let mut tx = own.begin().await.unwrap();
    let id = bus.emit_in(&mut tx, numbered(1)).await.unwrap();
    let all = bus.emit_all_in(&mut *tx, vec![numbered(2), numbered(3)]).await.unwrap();
    tx.commit().await.unwrap();
    let there: Vec<_> = jobs(&bus).await.unwrap().iter().map(|job| job.id).collect();
    assert_eq!(there, [id, all[0], all[1]]);
}
