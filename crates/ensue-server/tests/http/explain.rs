//! Why is this not running, asked over HTTP?

use crate::handlers_support::until;
use crate::support::{PATIENCE, Server};
use ensue::{Context, Event, HandlerError, Retry};
use serde_json::{Value, json};

async fn explained(server: &Server, query: &str) -> Value {
    server.api_ok("GET", &format!("explain?{query}"), Value::Null, 200).await
}

/// The kinds of its reasons.
fn kinds(explained: &Value) -> Vec<&str> {
    explained["because"].as_array().unwrap().iter().map(|reason| reason["kind"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn an_event_is_explained_for_each_handler_and_for_one() {
    let server = Server::start().await;
    let fails = async |_: Event, _: Context| Err::<(), _>(HandlerError::failed("no luck"));
    let works = async |_: Event, _: Context| Ok(());
    server.bus.on("a").named("fails").retry(Retry::attempts(1)).handle(fails).unwrap();
    server.bus.on("a").named("works").handle(works).unwrap();
    server.bus.on("a").named("picky").when("e.payload->>'x' = '1'", ensue::Json::empty_object()).handle(works).unwrap();
    let running = server.bus.start().await.unwrap();
    let first = server.publish("a", Some("o")).await;
    let second = server.publish("a", Some("o")).await;
    let held = format!("event={first}&handler=a.fails");
    for (handler, verdict) in [("a.fails", "held"), ("a.works", "done"), ("a.picky", "not_matched")] {
        let asked = format!("event={first}&handler={handler}");
        until(async || (explained(&server, &asked).await["verdict"] == verdict).then_some(())).await;
    }
    let why = explained(&server, &held).await;
    assert_eq!(kinds(&why), ["state", "error"]);
    assert!(why["because"][0]["fix"].as_str().unwrap().contains("ensue object retry o --handler a.fails"), "{why}");
    assert_eq!(why["because"][1]["detail"], "no luck");
    let behind = explained(&server, &format!("event={second}&handler=a.fails")).await;
    assert_eq!(
        (&behind["because"][0]["kind"], &behind["because"][0]["ref"]),
        (&json!("predecessor"), &json!(first.to_string()))
    );
    let picky = explained(&server, &format!("event={first}&handler=a.picky")).await;
    assert_eq!((&picky["verdict"], kinds(&picky)), (&json!("not_matched"), vec!["condition"]));
    assert!(picky["because"][0]["detail"].as_str().unwrap().contains("e.payload->>'x' = '1'"), "{picky}");
    let all = explained(&server, &format!("event={first}")).await;
    assert_eq!((&all["verdict"], all["handlers"].as_array().unwrap().len()), (&json!("held"), 3));
    let id = server.get(&format!("/v1/events/{first}")).await.json()["id"].clone();
    assert_eq!(explained(&server, &format!("event={}", id.as_str().unwrap())).await, all);
    let object = explained(&server, "object=o").await;
    assert_eq!((&object["verdict"], &object["because"][0]["ref"]), (&json!("held"), &json!(first.to_string())));
    running.shutdown(PATIENCE).await.unwrap();
}

#[tokio::test]
async fn an_event_is_explained_for_a_group_that_is_read_from_outside() {
    let server = Server::start().await;
    server.group_ok("POST", "g/subscriptions", json!({"topic": "a"}), 201).await;
    let (wanted, other) = (server.publish("a", None).await, server.publish("b", None).await);
    let of = async |seq: u64| explained(&server, &format!("event={seq}&group=g")).await;
    let waits = of(wanted).await;
    assert_eq!((&waits["verdict"], kinds(&waits)), (&json!("pending"), vec!["handler", "condition"]));
    let not = of(other).await;
    assert_eq!((&not["verdict"], kinds(&not)), (&json!("not_matched"), vec!["condition"]));
    let read = server.group_ok("POST", "g/read", json!({}), 200).await;
    let reads = of(wanted).await;
    assert_eq!((&reads["verdict"], kinds(&reads)), (&json!("running"), vec!["lease", "condition"]));
    let commit = json!({"cursor": read["cursor"], "lease": read["lease"], "release": true});
    server.group_ok("POST", "g/commit", commit, 200).await;
    assert_eq!(of(wanted).await["verdict"], "done");
}

#[tokio::test]
async fn a_delayed_event_and_a_delayed_job_wait_for_their_time() {
    let server = Server::start().await;
    let at = "2999-01-01T00:00:00Z";
    let event = server.post(&json!({"topic": "a", "not_before": at}).to_string()).await.json();
    let event = explained(&server, &format!("event={}", event["events"][0]["id"].as_str().unwrap())).await;
    let job = server.send_job(json!({"handler": "h", "not_before": at})).await;
    let job = explained(&server, &format!("job={job}")).await;
    for (why, verdict) in [(event, "pending"), (job, "scheduled")] {
        assert_eq!((why["verdict"].as_str(), kinds(&why)), (Some(verdict), vec!["delay"]));
        assert!(why["because"][0]["detail"].as_str().unwrap().contains("2999-01-01"), "{why}");
        assert!(why["because"][0]["fix"].is_string());
    }
}

#[tokio::test]
async fn what_cannot_be_explained_is_refused() {
    let server = Server::start().await;
    let seq = server.publish("a", None).await;
    let no_id = "0190a5a0-0000-7000-8000-000000000001";
    for (query, status) in [
        ("", 400),
        ("event=1&job=x", 400),
        ("event=x", 400),
        ("job=1&handler=h", 400),
        ("object=", 400),
        ("evnt=1", 400),
        (&format!("event={seq}&handler=h&group=g"), 400),
        (&format!("event={seq}&handler=none"), 404),
        (&format!("event={seq}&group=none"), 404),
        ("event=99", 404),
        (&format!("event={no_id}"), 404),
        (&format!("job={no_id}"), 404),
        ("job=nonsense", 404),
        ("schedule=nightly", 404),
    ] {
        server.get(&format!("/v1/explain?{query}")).await.problem(status);
    }
}

/// A worker that has claimed before and does not come back: more of them would not help.
#[tokio::test]
async fn job_that_no_worker_claims_is_explained_as_such() {
    let server = Server::start().await;
    server.send_job(json!({"handler": "h"})).await;
    let claimed = server.claim_one("h").await;
    let waits = server.send_job(json!({"handler": "h"})).await;
    let why = explained(&server, &format!("job={waits}")).await;
    assert_eq!((kinds(&why), &why["because"][0]["ref"]), (vec!["limit"], &json!("h")), "one runs: {why}");
    server.under_ok(&claimed, "complete", json!({})).await;
    let why = explained(&server, &format!("job={waits}")).await;
    assert_eq!(kinds(&why), ["handler"]);
    let reason = &why["because"][0];
    assert!(reason["detail"].as_str().unwrap().starts_with("no worker claims it"), "{why}");
    assert!(reason["fix"].as_str().unwrap().contains("POST /v1/jobs/claim"), "{why}");
}
