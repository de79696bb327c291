//! Rules over HTTP, on the embedded engine. What must hold on any engine is in `support/jobs.rs`.

use crate::support::{Server, jobs};
use ensue_server::{HttpOptions, Tokens};
use serde_json::{Value, json};

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
    a_paused_handler_gives_out_nothing_and_its_jobs_are_parked;
    a_held_object_waits_and_its_scope_may_have_slashes;
    a_rule_lifts_itself_when_its_time_has_come;
}

/// The author of a rule is the name of the token that set it.
#[tokio::test]
async fn the_author_is_the_tokens_name() {
    let tokens = Tokens::named([("ann", "secret-of-ann"), ("bob", "secret-of-bob")]);
    let server = Server::start_with(HttpOptions { tokens, ..HttpOptions::default() }).await;
    let [ann, bob] = ["ann", "bob"].map(|name| format!("Authorization: Bearer secret-of-{name}"));
    let set = server.request("PUT", "/v1/rules/pause/handler:h", &[&bob], b"").await;
    assert_eq!((set.status, set.json()["author"].as_str()), (201, Some("bob")));
    let lifted = server.request("DELETE", "/v1/rules/pause/handler:h", &[&ann], b"").await;
    assert_eq!((lifted.status, lifted.json()["rule"]["author"].as_str()), (200, Some("bob")));
    let audit = server.request("GET", "/v1/events?topic=ensue.rule.lifted", &[&ann], b"").await.json();
    assert_eq!(audit["events"][0]["payload"]["lifted_by"], "ann");
    server.request("PUT", "/v1/rules/pause/handler:h", &[], b"").await.problem(401);
}

/// A pause on a parent is shown with its reason on every handler that it holds.
#[tokio::test]
async fn a_paused_handler_shows_the_rule_and_its_reason() {
    let server = Server::start().await;
    for key in ["order.paid.remote", "user.remote"] {
        server.api_ok("PUT", &format!("handlers/{key}"), json!({"on": "order.paid"}), 201).await;
    }
    server.api_ok("PUT", "rules/pause/handler:order", json!({"reason": "the relay is down"}), 201).await;
    server.api_ok("PUT", "rules/block/handler:order.paid.remote", Value::Null, 201).await;
    let shown = server.api_ok("GET", "handlers/order.paid.remote", Value::Null, 200).await;
    let kinds: Vec<_> = shown["rules"].as_array().unwrap().iter().map(|rule| &rule["kind"]).collect();
    assert_eq!(kinds, ["pause", "block"]);
    assert_eq!(
        (&shown["rules"][0]["scope"], &shown["rules"][0]["reason"]),
        (&json!("handler:order"), &json!("the relay is down"))
    );
    let listed = server.api_ok("GET", "handlers", Value::Null, 200).await;
    assert_eq!(listed["handlers"][0]["rules"], shown["rules"]);
    assert_eq!(listed["handlers"][1]["rules"], json!([]));
}

/// The metric and the API agree about jobs that only a rule holds.
#[tokio::test]
async fn metrics_count_jobs_of_a_paused_handler_as_parked() {
    let server = Server::start().await;
    server.send_job(json!({"handler": "mail.send"})).await;
    server.send_job(json!({"handler": "other"})).await;
    server.api_ok("PUT", "rules/pause/handler:mail", Value::Null, 201).await;
    server
        .until_figures(|figures| {
            figures.contains("ensue_jobs{handler=\"mail.send\",state=\"parked\"} 1\n")
                && figures.contains("ensue_jobs{handler=\"other\",state=\"available\"} 1\n")
        })
        .await;
}

#[tokio::test]
async fn lifting_a_rule_again_succeeds_and_changes_nothing() {
    let server = Server::start().await;
    let set = server.api_ok("PUT", "rules/pause/handler:h", Value::Null, 201).await;
    let lifted = server.api_ok("DELETE", "rules/pause/handler:h", Value::Null, 200).await;
    assert_eq!((&lifted["lifted"], &lifted["rule"]["id"]), (&json!(true), &set["id"]));
    let again = server.api_ok("DELETE", "rules/pause/handler:h", Value::Null, 200).await;
    assert_eq!(again, json!({"lifted": false, "rule": null}));
    let audit = server.get("/v1/events?topic=ensue.rule").await.json();
    assert_eq!(audit["events"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_rule_on_a_key_that_nothing_has_is_set_with_a_warning() {
    let server = Server::start().await;
    server.send_job(json!({"handler": "mail.send", "object": "order:1"})).await;
    server.api_ok("PUT", "handlers/order.paid.remote", json!({"on": "order.paid"}), 201).await;
    server.publish("order.paid", Some("order:2")).await;
    server.api_ok("PUT", "schedules/nightly", json!({"every": "1h", "topic": "t"}), 201).await;
    for known in [
        "handler:mail",
        "handler:mail.send",
        "handler:order",
        "handler:order.paid.remote",
        "object:order:1",
        "object:order:2",
        "schedule:nightly",
    ] {
        let set = server.api_ok("PUT", &format!("rules/pause/{known}"), Value::Null, 201).await;
        assert_eq!(set["warning"], Value::Null, "{known}");
    }
    for (unknown, says) in [
        ("handler:mial", "no handler or job has this key"),
        ("handler:mail.sen", "no handler or job has this key"),
        ("object:order:3", "no event and no job"),
        ("schedule:nightl", "no schedule"),
    ] {
        let set = server.api_ok("PUT", &format!("rules/pause/{unknown}"), Value::Null, 201).await;
        assert!(set["warning"].as_str().is_some_and(|warning| warning.starts_with(says)), "{set}");
    }
}
