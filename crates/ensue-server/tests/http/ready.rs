//! H46: `/ready` tells the truth, and details only to those with a token.

use crate::support::Server;
use crate::support::moody::{Mood, Moody};
use ensue::{Context, Ensue, Event, NewEvent, StoreError, Timestamp, Work};
use ensue_conformance::postgres::{fresh_schema, shared_url};
use ensue_server::{HttpOptions, Tokens, router_with};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const WAIT_MAX: Duration = Duration::from_secs(60);
const WITH_TOKEN: &str = "Authorization: Bearer secret-1";

async fn guarded(bus: Ensue) -> Server {
    let options = HttpOptions { tokens: Tokens::of(["secret-1"]), ..HttpOptions::default() };
    Server::serve_router(bus.clone(), router_with(bus, options)).await
}

/// A server whose store does as it is told.
async fn moody() -> (Server, Arc<Mutex<Mood>>) {
    let mood = Arc::<Mutex<Mood>>::default();
    let store = Ensue::memory().await.unwrap().store().clone();
    (guarded(Ensue::with_store(Moody::new(store, mood.clone()))).await, mood)
}

/// The details of `/ready` with this status, without and with a token.
async fn until_ready_is(server: &Server, status: u16) -> (String, String) {
    let begun = Instant::now();
    while server.get("/ready").await.status != status {
        assert!(begun.elapsed() < WAIT_MAX, "/ready never was {status}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let detail = |text: String| serde_json::from_str::<serde_json::Value>(&text).unwrap()["detail"].to_string();
    let anonymous = server.get("/ready").await;
    let known = server.request("GET", "/ready", &[WITH_TOKEN], b"").await;
    (detail(anonymous.text()), detail(known.text()))
}

#[tokio::test]
async fn ready_names_no_host_and_database_without_a_token() {
    let (server, mood) = moody().await;
    *mood.lock().unwrap() = Mood::Fails(StoreError::Unavailable("Postgres at db.internal:5432/shop: away".into()));
    let (anonymous, known) = until_ready_is(&server, 503).await;
    assert!(!anonymous.contains("internal") && !anonymous.contains("shop"), "{anonymous}");
    assert!(known.contains("db.internal:5432/shop"), "{known}");
    let wrong = server.request("GET", "/ready", &["Authorization: Bearer wrong"], b"").await.problem(503);
    assert!(!wrong.contains("internal"), "{wrong}");
}

#[tokio::test]
async fn ready_reports_publishing_that_fails_for_seconds() {
    let (server, mood) = moody().await;
    let publish =
        || server.request("POST", "/v1/events", &[WITH_TOKEN, "Content-Type: application/json"], b"{\"topic\":\"a\"}");
    *mood.lock().unwrap() = Mood::WorkFails(Work::Publish, StoreError::Full("no space left at db.internal".into()));
    let begun = Instant::now();
    while server.get("/ready").await.status == 200 {
        assert!(begun.elapsed() < WAIT_MAX, "/ready stays 200");
        publish().await.problem(507);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (anonymous, known) = until_ready_is(&server, 503).await;
    assert!(anonymous.contains("publishing has failed for") && !anonymous.contains("internal"), "{anonymous}");
    assert!(known.contains("no space left at db.internal"), "{known}");
    *mood.lock().unwrap() = Mood::Well;
    assert_eq!(publish().await.status, 201);
    assert_eq!(server.get("/ready").await.status, 200, "one success ends it");
}

#[tokio::test]
async fn ready_reports_reading_the_outbox_and_checkpoints_that_fail_for_seconds() {
    let works = [
        (Work::Read, "reading the log"),
        (Work::Release, "moving the outbox"),
        (Work::Checkpoint, "writing checkpoints"),
    ];
    for (work, phrase) in works {
        let mood = Arc::<Mutex<Mood>>::default();
        let bus = Ensue::with_store(Moody::new(Ensue::memory().await.unwrap().store().clone(), mood.clone()));
        bus.on("a").named("h").handle(async |_: Event, _: Context| Ok(())).unwrap();
        let _running = bus.start().await.unwrap();
        let server = guarded(bus.clone()).await;
        bus.publish(NewEvent::new("a")).await.unwrap();
        assert_eq!(server.get("/ready").await.status, 200);
        *mood.lock().unwrap() = Mood::WorkFails(work, StoreError::Unavailable("away".into()));
        let (detail, ()) = tokio::join!(until_ready_is(&server, 503), async {
            // The log is read, the handler has a cursor to write, and an event is due.
            bus.publish(NewEvent::new("a")).await.unwrap();
            bus.publish(NewEvent::new("a").not_before(Timestamp::now() + Duration::from_millis(50))).await.unwrap();
        });
        assert!(detail.0.contains(phrase), "{work:?}: {detail:?}");
        *mood.lock().unwrap() = Mood::Well;
        until_ready_is(&server, 200).await;
    }
}

/// S14: the holder of the lock of the log is named, publishing is answered, and `/ready` reports it.
#[tokio::test]
async fn ready_reports_publishing_that_waits_for_a_lock() {
    let (url, schema) = fresh_schema("ready");
    let server = guarded(Ensue::open(&url).await.unwrap()).await;
    let (mut holder, connection) = tokio_postgres::connect(&shared_url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    holder.batch_execute("SET application_name = 'a stranger'").await.unwrap();
    let pid: i32 = holder.query_one("SELECT pg_backend_pid()", &[]).await.unwrap().get(0);
    let held = holder.transaction().await.unwrap();
    held.batch_execute(&format!("SELECT {schema}.lock_log()")).await.unwrap();
    let publish =
        || server.request("POST", "/v1/events", &[WITH_TOKEN, "Content-Type: application/json"], b"{\"topic\":\"a\"}");
    let begun = Instant::now();
    let (answer, (anonymous, _)) = tokio::join!(publish(), until_ready_is(&server, 503));
    assert!(anonymous.contains("publishing has failed for"), "{anonymous}");
    let problem = answer.problem(503);
    assert!(problem.contains(&format!("pid {pid} ")) && problem.contains("a stranger"), "{problem}");
    assert!(begun.elapsed() < Duration::from_secs(15), "{:?}", begun.elapsed());
    held.rollback().await.unwrap();
    assert_eq!(publish().await.status, 201);
    assert_eq!(server.get("/ready").await.status, 200);
}
