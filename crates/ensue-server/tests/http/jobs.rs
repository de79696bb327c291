//! Jobs over HTTP, on the embedded engine. What must hold on any engine is in `support/jobs.rs`.

use crate::handlers_support::until;
use crate::support::{PATIENCE, Server, jobs};
use ensue::{Context, Event};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

macro_rules! on_sqlite {
    ($($name:ident;)+) => {
        $(
            #[tokio::test]
            async fn $name() {
                jobs::$name(&Server::start().await).await;
            }
        )+
    };
}

on_sqlite! {
    a_job_is_sent_claimed_said_of_and_completed_with_its_events;
    jobs_run_by_priority_and_one_at_a_time_of_each_object;
    a_unique_key_is_taken_while_its_job_is_live;
    a_worker_that_lost_its_lease_changes_nothing;
    a_job_fails_dies_holds_its_object_and_is_brought_back_or_skipped;
    a_job_is_called_off_at_once_or_when_its_worker_hears_of_it;
    a_snoozed_job_comes_back_and_no_attempt_is_used_up;
    a_claim_that_waits_is_woken_by_a_job;
    jobs_are_listed_by_state_handler_and_object_in_pages;
    many_are_steered_by_a_filter_after_a_dry_run;
}

/// A live tail tells what is said as it is said, and ends when the job is over.
#[tokio::test]
async fn who_listens_to_a_job_hears_it_to_its_end() {
    let server = Server::start().await;
    let id = server.send_job(json!({"handler": "h"})).await;
    let claimed = server.claim_one("h").await;
    let lines = |message: &str| json!({"lines": [{"message": message}]});
    server.under_ok(&claimed, "log", lines("one")).await;
    let mut tail = server.sse(&format!("/v1/jobs/{id}/logs"), &["Accept: text/event-stream"]).await;
    let heard = tail.event().await.unwrap();
    assert_eq!((heard.id, &*heard.event, &heard.data["message"]), (Some(1), "line", &json!("one")));
    server.under_ok(&claimed, "log", lines("two")).await;
    assert_eq!(tail.event().await.unwrap().data["message"], "two");
    server.under_ok(&claimed, "complete", json!({})).await;
    let end = tail.event().await.unwrap();
    assert_eq!((&*end.event, &end.data), ("end", &json!({"state": "succeeded"})));
    assert!(tail.event().await.is_none(), "the stream has ended");
    // Who was cut off comes back.
    let headers = ["Accept: text/event-stream", "Last-Event-ID: 1"];
    let mut again = server.sse(&format!("/v1/jobs/{id}/logs"), &headers).await;
    assert_eq!(again.event().await.unwrap().id, Some(2));
    assert_eq!(again.event().await.unwrap().event, "end");
}

/// A worker whose connection breaks while it waits takes no job with it.
#[tokio::test]
async fn a_client_that_hangs_up_while_it_waits_takes_nothing() {
    let server = Server::start().await;
    let body = r#"{"handlers":["h"],"wait_ms":30000}"#;
    let head = format!(
        "POST /v1/jobs/claim HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    for _ in 0..20 {
        let mut connection = TcpStream::connect(server.address).await.unwrap();
        connection.write_all(head.as_bytes()).await.unwrap();
        let sent = server.send_job(json!({"handler": "h"})).await;
        drop(connection);
        // Answered before it hung up, or not at all: either way nobody else is kept waiting for it for long.
        let job = server.job(&sent).await;
        if job["state"] == "running" {
            server.api_ok("POST", &format!("jobs/{sent}/cancel"), Value::Null, 200).await;
            continue;
        }
        assert_eq!(server.claim_one("h").await["id"].as_str(), Some(&*sent));
    }
}

/// The result and the lines of a handler in the server's own process are seen over HTTP, too.
#[tokio::test]
async fn a_job_of_a_registered_handler_runs_in_the_server() {
    let server = Server::start().await;
    let code = async |job: Event, cx: Context| {
        cx.log("working");
        if job.payload.as_str() == "1" { Err(ensue::HandlerError::failed("no")) } else { Ok(()) }
    };
    server.bus.register("code", code).unwrap();
    let running = server.bus.start().await.unwrap();
    let good = server.send_job(json!({"handler": "code"})).await;
    let bad = server.send_job(json!({"handler": "code", "payload": 1, "attempts_max": 1})).await;
    server.until_job(&good, "succeeded").await;
    let dead = server.until_job(&bad, "dead").await;
    assert_eq!(dead["errors"][0]["error"], "no");
    let logs = server.api_ok("GET", &format!("jobs/{bad}/logs"), Value::Null, 200).await;
    assert_eq!(logs["logs"][0]["message"], "working");
    running.shutdown(PATIENCE).await.unwrap();
}

/// Deliveries of a pull handler are jobs that name their event, in the order of its object.
#[tokio::test]
async fn the_deliveries_of_a_pull_handler_are_claimed_as_jobs() {
    let server = Server::start().await;
    server.bus.on("order").named("remote").pull().unwrap();
    let running = server.bus.start().await.unwrap();
    let first = server.publish("order.paid", Some("o")).await;
    let second = server.publish("order.paid", Some("o")).await;
    let claimed = server.claim_one("order.remote").await;
    let event = &claimed["event"];
    assert_eq!(
        (event["seq"].as_u64(), &event["prev"], &event["topic"]),
        (Some(first), &Value::Null, &json!("order.paid"))
    );
    assert_eq!(claimed["object"], "o");
    assert!(server.claim("order.remote", 5).await.is_empty(), "the second waits for the first");
    let target = format!("explain?event={second}&handler=order.remote");
    let explained = until(async || {
        // It may not be a job yet.
        Some(server.api_ok("GET", &target, Value::Null, 200).await).filter(|told| told["verdict"] == "parked")
    })
    .await;
    assert_eq!(explained["because"][0]["ref"], claimed["id"]);
    server.under_ok(&claimed, "complete", json!({})).await;
    let next = server.claim_one("order.remote").await;
    assert_eq!((next["event"]["seq"].as_u64(), next["event"]["prev"].as_u64()), (Some(second), Some(first)));
    running.shutdown(PATIENCE).await.unwrap();
}

/// How many jobs wait and what holds them is at /metrics, and goes with them.
#[tokio::test]
async fn jobs_and_rules_are_counted() {
    let server = Server::start().await;
    server.api_ok("POST", "jobs", json!([{"handler": "metered.h"}, {"handler": "metered.h"}]), 201).await;
    server.api_ok("PUT", "rules/block/object:metered", Value::Null, 201).await;
    let lines = [r#"ensue_jobs{handler="metered.h",state="available"} 2"#, r#"ensue_rules{kind="block"} 1"#];
    server.until_figures(|figures| lines.iter().all(|line| figures.contains(line))).await;
    for job in server.claim("metered.h", 5).await {
        server.under_ok(&job, "complete", json!({})).await;
    }
    server
        .until_figures(|figures| {
            figures.contains("ensue_rules{") && !figures.contains("ensue_jobs{handler=\"metered.h\"")
        })
        .await;
}

/// A claim that waits is answered when the server stops, so that its connection can close.
#[tokio::test]
async fn a_claim_that_waits_ends_when_the_server_stops() {
    let stop = tokio::sync::watch::Sender::new(false);
    let options = ensue_server::HttpOptions { stop: stop.subscribe(), ..ensue_server::HttpOptions::default() };
    let server = Server::start_with(options).await;
    let waits = server.api("POST", "jobs/claim", json!({"handlers": ["h"], "wait_ms": 30_000}));
    let stops = async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        stop.send_replace(true);
    };
    let (answer, ()) = tokio::join!(waits, stops);
    answer.problem(503);
}

/// An answer holds a page; what does not fit stays claimable, and no attempt is used up.
#[tokio::test]
async fn claim_of_large_jobs_returns_a_page() {
    const COUNT: usize = 20;
    let server = Server::start().await;
    for _ in 0..COUNT {
        server.send_job(json!({"handler": "h", "payload": "x".repeat(600_000)})).await;
    }
    let mut seen = 0;
    while seen < COUNT {
        let body = json!({"handlers": ["h"], "limit": 100, "lease_ms": 3_600_000, "wait_ms": 30_000});
        let claimed = server.api_ok("POST", "jobs/claim", body, 200).await;
        let jobs = claimed["jobs"].as_array().unwrap();
        assert!(!jobs.is_empty(), "the jobs that were given back do not come");
        assert!(jobs.len() <= 7, "{} jobs of 600 kB in an answer", jobs.len());
        assert!(jobs.iter().all(|job| job["attempts"] == 1), "a job that was given back used up an attempt");
        seen += jobs.len();
    }
    assert_eq!(seen, COUNT);
}
