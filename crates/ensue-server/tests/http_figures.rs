//! Metrics of the process. Each test has them to itself: tests take turns and compare differences.

#[path = "http/support/mod.rs"]
mod http_support;

use ensue::{Context, Ensue, Event, HandlerError, NewEvent, Retry};
use ensue_server::HttpOptions;
use http_support::Server;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use tokio::sync::{Mutex, MutexGuard};

async fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::const_new(());
    TURN.lock().await
}

async fn until_figure(server: &Server, name: &str, is: f64) {
    server.until_figures(|text| figure(text, name) == Some(is)).await;
}

/// The value of a series, by its name with labels.
fn figure(text: &str, series: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' ')?.parse().ok())
}

#[tokio::test]
async fn streams_connections_and_the_log_are_told_as_they_are() {
    let _turn = turn().await;
    let server = Server::start().await;
    let first = server.stream("", &[]).await;
    let second = server.stream("", &[]).await;
    server.until_streams_are(2).await;
    drop(first);
    server.until_streams_are(1).await;
    drop(second);
    server.until_streams_are(0).await;

    for _ in 0..5 {
        server.publish("a", None).await;
    }
    server.bus.store().trim(3, 100).await.unwrap();
    let later =
        r#"[{"topic":"b","not_before":"2999-01-01T00:00:00Z"},{"topic":"c","not_before":"2999-01-01T00:00:00Z"}]"#;
    let delayed = server.post(later).await.json();
    until_figure(&server, "ensue_log_first_seq", 3.0).await;
    until_figure(&server, "ensue_log_last_seq", 5.0).await;
    until_figure(&server, "ensue_pending_events", 2.0).await;
    server.delete(&format!("/v1/events/{}", delayed["events"][0]["id"].as_str().unwrap())).await;
    until_figure(&server, "ensue_pending_events", 1.0).await;
    // The connection of this request; earlier ones are closed or about to be.
    until_figure(&server, "ensue_connections", 1.0).await;
}

/// Publishes on each path that leads into the log: HTTP, a key that repeats, a delayed event, a handler, a job's
/// completion, a rule, a schedule.
async fn publish_on_every_path(server: &Server) {
    let soon = jiff::Timestamp::now() + jiff::SignedDuration::from_millis(100);
    let delayed = json!({"topic": "delayed", "not_before": soon.to_string()});
    for body in [
        json!({"topic": "a", "object": "o"}),
        json!([{"topic": "a"}, {"topic": "b", "key": "k"}]),
        json!({"topic": "handled", "object": "o"}),
        delayed,
    ] {
        server.api_ok("POST", "events", body, 201).await;
    }
    server.api_ok("POST", "events", json!({"topic": "b", "key": "k"}), 200).await;
    server.send_job(json!({"handler": "remote", "attempts_max": 1})).await;
    let job = server.claim_one("remote").await;
    server.under_ok(&job, "complete", json!({"events": [{"topic": "completed"}, {"topic": "completed"}]})).await;
    server.send_job(json!({"handler": "remote", "attempts_max": 1})).await;
    let job = server.claim_one("remote").await;
    server.under_ok(&job, "fail", json!({"error": "on purpose", "retry": false})).await;
    server.api_ok("PUT", "rules/pause/handler:other", json!({}), 201).await;
    server.api_ok("DELETE", "rules/pause/handler:other", Value::Null, 200).await;
    server.api_ok("PUT", "schedules/s", json!({"every": "1h", "topic": "scheduled"}), 201).await;
    server.api_ok("POST", "schedules/s/run", Value::Null, 200).await;
}

async fn until_topics(server: &Server, topics: &[&str]) {
    for topic in topics {
        server
            .stream(&format!("?after=0&topic={topic}&limit=1"), &[])
            .await
            .event()
            .await
            .expect("an event of the topic");
    }
}

fn publishing_handler(bus: &Ensue) {
    let handler = async |_: Event, cx: Context| {
        cx.publish(NewEvent::new("by.handler"))?;
        Ok::<_, HandlerError>(())
    };
    bus.on("handled").named("publisher").retry(Retry::never()).handle(handler).unwrap();
}

const PATHS: [&str; 5] = ["by.handler", "completed", "scheduled", "delayed", "ensue.job.dead"];

#[tokio::test]
async fn every_event_that_enters_a_sqlite_log_is_counted_once() {
    let _turn = turn().await;
    let folder = tempfile::tempdir().unwrap();
    let bus = Ensue::open(folder.path().join("e.db").to_str().unwrap()).await.unwrap();
    publishing_handler(&bus);
    let running = bus.start().await.unwrap();
    let server = Server::serve(bus.clone(), HttpOptions::default()).await;
    let series = "ensue_append_events_total{engine=\"sqlite\"}";
    let before = figure(&server.get("/metrics").await.text(), series).unwrap_or(0.0);
    publish_on_every_path(&server).await;
    bus.transaction(|tx| tx.publish(NewEvent::new("in.transaction")).map(drop)).await.unwrap();
    let undone = bus.transaction(|tx| {
        tx.publish(NewEvent::new("undone"))?;
        Err::<(), _>(ensue::TransactionError::rollback("on purpose"))
    });
    undone.await.unwrap_err();
    until_topics(&server, &PATHS).await;
    let logged = server.bounds().await.last;
    until_figure(&server, series, before + logged as f64).await;
    running.shutdown(http_support::PATIENCE).await.unwrap();
}

#[tokio::test]
async fn every_event_that_enters_a_postgres_log_is_counted_once() {
    let _turn = turn().await;
    let (url, schema) = ensue_conformance::postgres::fresh_schema("figures");
    let bus = Ensue::open(&url).await.unwrap();
    publishing_handler(&bus);
    let running = bus.start().await.unwrap();
    let server = Server::serve(bus.clone(), HttpOptions::default()).await;
    let series = "ensue_append_events_total{engine=\"postgres\"}";
    let before = figure(&server.get("/metrics").await.text(), series).unwrap_or(0.0);
    publish_on_every_path(&server).await;
    let (sql, connection) =
        tokio_postgres::connect(&ensue_conformance::postgres::shared_url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    sql.batch_execute(&format!(
        "SELECT {0}.publish('by.sql', '{{}}'); \
         SELECT count(*) FROM {0}.publish_many('[{{\"topic\":\"by.sql\"}},{{\"topic\":\"by.sql\"}}]')",
        schema
    ))
    .await
    .unwrap();
    until_topics(&server, &PATHS).await;
    until_topics(&server, &["by.sql"]).await;
    // An append moves waiting outbox rows into the log in its own transaction.
    sql.batch_execute(&format!("SELECT {}.publish('by.sql', '{{}}')", schema)).await.unwrap();
    server.publish("a", None).await;
    let logged = server.bounds().await.last;
    until_figure(&server, series, before + logged as f64).await;
    running.shutdown(http_support::PATIENCE).await.unwrap();
}

#[tokio::test]
async fn attempts_of_remote_workers_are_counted_and_timed() {
    let _turn = turn().await;
    let server = Server::start().await;
    let handler = "figures.remote";
    for (verb, body) in [
        ("complete", json!({})),
        ("complete", json!({"result": 1})),
        ("fail", json!({"error": "on purpose"})),
        ("snooze", json!({"for_ms": 60_000})),
    ] {
        server.send_job(json!({"handler": handler})).await;
        let job = server.claim_one(handler).await;
        server.under_ok(&job, verb, body).await;
    }
    let text = server.get("/metrics").await.text();
    let attempts = |outcome: &str| {
        figure(&text, &format!("ensue_job_attempts_total{{handler=\"{handler}\",outcome=\"{outcome}\"}}"))
    };
    assert_eq!(
        (attempts("done"), attempts("failed"), attempts("snoozed")),
        (Some(2.0), Some(1.0), Some(1.0)),
        "{text}"
    );
    assert_eq!(figure(&text, &format!("ensue_job_claims_total{{handler=\"{handler}\"}}")), Some(4.0), "{text}");
    assert_eq!(figure(&text, &format!("ensue_job_seconds_count{{handler=\"{handler}\"}}")), Some(4.0), "{text}");
}

#[tokio::test]
async fn build_and_process_are_described() {
    let _turn = turn().await;
    let server = Server::start().await;
    let text = server.get("/metrics").await.text();
    let build = format!("ensue_build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION"));
    assert_eq!(figure(&text, &build), Some(1.0), "{text}");
    let started = figure(&text, "process_start_time_seconds").unwrap();
    let now = jiff::Timestamp::now().as_second() as f64;
    // The kernel tells the time of its boot in whole seconds.
    assert!(started <= now + 2.0 && started > now - 86_400.0, "{started}");
    assert!(figure(&text, "process_resident_memory_bytes").unwrap() > 1e6);
    assert!(figure(&text, "process_cpu_seconds_total").unwrap() > 0.0);
    assert!(figure(&text, "process_open_fds").unwrap() < figure(&text, "process_max_fds").unwrap());
}

/// Names and types in the table of docs/metrics.md.
fn documented() -> BTreeMap<String, String> {
    let page = include_str!("../../../docs/metrics.md");
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| `")?.split('|').map(str::trim);
        let name = cells.next()?.split('`').next()?.to_owned();
        Some((name, cells.next()?.to_owned()))
    };
    page.lines().filter_map(row).collect()
}

#[tokio::test]
async fn metrics_and_their_documentation_agree() {
    let _turn = turn().await;
    let folder = tempfile::tempdir().unwrap();
    let bus = Ensue::open(folder.path().join("e.db").to_str().unwrap()).await.unwrap();
    publishing_handler(&bus);
    let failing = async |_: Event, _: Context| Err::<(), _>(HandlerError::failed("on purpose"));
    bus.on("held").named("failing").retry(Retry::never()).handle(failing).unwrap();
    let running = bus.start().await.unwrap();
    let server = Server::serve(bus.clone(), HttpOptions::default()).await;
    publish_on_every_path(&server).await;
    server.send_job(json!({"handler": "nobody"})).await;
    server.api_ok("POST", "events", json!({"topic": "held", "object": "h", "payload": {"n": "x"}}), 201).await;
    server.get("/v1/events?where=(e.payload-%3E%3E'n')::int%20%3E%201").await;
    let _stream = server.stream("", &[]).await;
    until_topics(&server, &PATHS).await;
    // The size of the write-ahead log is read once in a number of commits.
    for _ in 0..300 {
        server.publish("a", None).await;
    }
    let exposed = |text: &str| -> BTreeMap<String, String> {
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split_once(' '));
        types.map(|(name, kind)| (name.to_owned(), kind.to_owned())).collect()
    };
    server.until_figures(|text| exposed(text) == documented()).await;
    for line in server.get("/metrics").await.text().lines().filter(|line| line.starts_with("# TYPE ")) {
        let name = line.split(' ').nth(2).unwrap();
        let described = format!("# HELP {name} ");
        assert!(server.get("/metrics").await.text().contains(&described), "{name} has no description");
    }
    running.shutdown(http_support::PATIENCE).await.unwrap();
}
