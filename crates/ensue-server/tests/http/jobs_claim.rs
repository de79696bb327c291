//! What a claim takes, and in which shape it is answered.

use crate::support::Server;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// A job has the fields that are promised, and `/openapi.json` describes them all.
#[tokio::test]
async fn a_jobs_fields_are_those_described() {
    let server = Server::start().await;
    let id = server.send_job(json!({"handler": "h"})).await;
    let schemas = server.get("/openapi.json").await.json()["components"]["schemas"].clone();
    let described: BTreeSet<String> = schemas["Job"]["properties"].as_object().unwrap().keys().cloned().collect();
    let job = server.job(&id).await;
    let sent: BTreeSet<String> = job.as_object().unwrap().keys().cloned().collect();
    assert_eq!(sent, described);
    for promised in [
        "id",
        "handler",
        "object",
        "payload",
        "state",
        "priority",
        "attempts",
        "attempts_max",
        "not_before",
        "enqueued_at",
        "locked_at",
        "started_at",
        "finished_at",
        "worker",
        "errors",
        "held_by",
        "event",
    ] {
        assert!(sent.contains(promised), "{promised}");
    }
    let claimed = server.claim_one("h").await;
    let mut with_claim: BTreeSet<String> = claimed.as_object().unwrap().keys().cloned().collect();
    assert!(with_claim.remove("claim"));
    assert_eq!(with_claim, sent);
}

/// What is refused takes nothing and changes nothing.
#[tokio::test]
async fn a_settle_whose_events_are_refused_does_nothing() {
    let server = Server::start().await;
    let id = server.send_job(json!({"handler": "h"})).await;
    let claimed = server.claim_one("h").await;
    let before = server.job(&id).await;
    for (events, named) in [
        (json!([{"topic": "ensue.mine"}]), "`events[0].topic`"),
        (json!([{"topic": "a"}, {"payload": 1}]), "`events[1].topic`"),
        (json!([{"topic": "a", "x": 1}]), "`events[0].x`"),
        (json!({"topic": "a"}), "`events`"),
    ] {
        let detail = server.under(&claimed, "complete", json!({"events": events})).await.problem(422);
        assert!(detail.starts_with(named), "{detail}");
    }
    assert_eq!((server.job(&id).await, server.bounds().await.last), (before, 0));
    server.under_ok(&claimed, "complete", json!({"events": []})).await;
}

/// Several handlers share one claim, by priority over all of them; a handler named twice is one.
#[tokio::test]
async fn a_claim_of_several_handlers_goes_by_priority() {
    let server = Server::start().await;
    for (handler, priority) in [("a", 1), ("b", 3), ("a", 2), ("c", 9)] {
        server.send_job(json!({"handler": handler, "priority": priority})).await;
    }
    let body = json!({"handlers": ["a", "b", "a"], "limit": 10});
    let claimed = server.api_ok("POST", "jobs/claim", body, 200).await;
    let order: Vec<&Value> = claimed["jobs"].as_array().unwrap().iter().map(|job| &job["priority"]).collect();
    assert_eq!(order, [3, 2, 1]);
    assert_eq!(claimed["jobs"][0]["worker"], "over HTTP");
}
