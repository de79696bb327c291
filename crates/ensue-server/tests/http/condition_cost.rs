//! Costly conditions are bounded, and do not hold up other requests.

use crate::support::{PATIENCE, Server, condition};
use ensue::NewEvent;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A condition whose constants take more than one budget.
fn costly_constants() -> String {
    vec!["1e999 / 3e333 > e.seq"; 300].join(" OR ")
}

/// A condition that takes a whole budget on the large event.
fn costly_like() -> String {
    format!("e.payload->>'s' LIKE '%{}b'", "a".repeat(5_000))
}

async fn with_large_event() -> Server {
    let server = Server::start().await;
    server.bus.publish(NewEvent::new("large").payload(&json!({"s": "a".repeat(900_000)}))).await.unwrap();
    server
}

#[tokio::test]
async fn constants_beyond_the_budget_are_refused_everywhere() {
    let server = Server::start().await;
    for path in ["/v1/events", "/v1/events/stream"] {
        let detail = server.get(&format!("{path}?{}", condition(&costly_constants(), None))).await.problem(422);
        assert!(detail.contains("`where`") && detail.contains("`1e999`"), "{detail}");
    }
    let wants = json!({"where": costly_constants()});
    for (method, path) in [("POST", "groups/g/subscriptions"), ("PUT", "handlers/h")] {
        let told = server.api(method, path, wants.clone()).await.problem(422);
        assert!(told.contains("`where`") && told.contains("steps"), "{path}: {told}");
    }
}

#[tokio::test]
async fn page_reports_costly_condition() {
    let server = with_large_event().await;
    let page = server.get(&format!("/v1/events?{}", condition(&costly_like(), None))).await.json();
    assert_eq!((&page["events"], &page["condition_errors"]["count"]), (&json!([]), &json!(1)));
    assert!(page["condition_errors"]["first"]["detail"].as_str().unwrap().contains("steps"), "{page}");
}

/// On a runtime with one thread, a request that is answered during an evaluation shows that it runs elsewhere.
#[tokio::test]
async fn other_requests_are_answered_during_an_evaluation() {
    let server = Arc::new(with_large_event().await);
    let costly = format!("/v1/events?{}", condition(&costly_like(), None));
    let is_answered = Arc::new(AtomicBool::new(false));
    let hostile = tokio::spawn({
        let (server, is_answered) = (server.clone(), is_answered.clone());
        async move {
            let page = server.get(&costly).await.json();
            is_answered.store(true, Ordering::SeqCst);
            page
        }
    });
    let mut answered_meanwhile = 0;
    while !is_answered.load(Ordering::SeqCst) {
        assert_eq!(server.get("/health").await.status, 200);
        answered_meanwhile += u32::from(!is_answered.load(Ordering::SeqCst));
    }
    assert_eq!(hostile.await.unwrap()["condition_errors"]["count"], 1);
    assert!(answered_meanwhile >= 3, "{answered_meanwhile} requests were answered");
}

/// A handler gets its events while the conditions of others fail on a large one.
#[tokio::test]
async fn costly_condition_of_one_handler_does_not_keep_events_from_another() {
    let server = Server::start().await;
    let running = server.bus.start().await.unwrap();
    for (key, wants) in [
        ("costly", json!({"on": "a", "where": costly_like()})),
        ("cheap", json!({"on": "a", "where": "e.payload ? 's'"})),
    ] {
        assert_eq!(server.api("PUT", &format!("handlers/{key}"), wants).await.status, 201);
    }
    for bytes in [10, 900_000, 10] {
        server.bus.publish(NewEvent::new("a").payload(&json!({"s": "a".repeat(bytes)}))).await.unwrap();
    }
    let mut claimed = Vec::new();
    while claimed.len() < 3 {
        let claim = json!({"handlers": ["cheap"], "lease_ms": 60_000, "wait_ms": 30_000, "limit": 10, "worker": "w"});
        let jobs = server.api("POST", "jobs/claim", claim).await.json();
        claimed.extend(jobs["jobs"].as_array().unwrap().iter().map(|job| job["id"].clone()));
    }
    let none = json!({"handlers": ["costly"], "lease_ms": 60_000, "limit": 10, "worker": "w"});
    let few = server.api("POST", "jobs/claim", none).await.json();
    assert_eq!(few["jobs"], json!([]), "two small events do not match, and the large one costs too much");
    running.shutdown(PATIENCE).await.unwrap();
}

/// A large payload is sent from the event that all streams share.
#[tokio::test]
async fn large_event_comes_whole_in_a_stream() {
    let server = Server::start().await;
    let mut stream = server.stream(&format!("?after=0&{}", condition("e.payload ? 's'", None)), &[]).await;
    let payload = json!({"s": format!("\"payload\":null{}", "ä\n\"".repeat(100_000))});
    let large = NewEvent::new("a").object("payload\":null").payload(&payload);
    let seq = server.bus.publish(large).await.unwrap().seq;
    let small = server.bus.publish(NewEvent::new("b").payload(&json!({"s": 1}))).await.unwrap().seq;
    let events = [stream.event().await.unwrap(), stream.event().await.unwrap()];
    assert_eq!(events.each_ref().map(|event| event.id), [seq, small]);
    let sent = &events[0].data;
    assert_eq!(*sent, server.get(&format!("/v1/events/{}", seq.unwrap())).await.json());
    assert_eq!(sent["payload"], payload);
}
