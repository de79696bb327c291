//! Handlers that are defined over HTTP while everything runs, on both engines.

use crate::handlers_support::until;
use crate::support::{Server, defined};
use ensue::{Context, Ensue, Event};
use ensue_server::HttpOptions;
use serde_json::{Value, json};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(30);

/// A server whose bus runs, and has a handler of its own.
async fn started(url: &str) -> (Server, ensue::Running) {
    let bus = Ensue::open(url).await.unwrap();
    bus.on("a").named("bound").handle(|_event: Event, _cx: Context| async { Ok(()) }).unwrap();
    let running = bus.start().await.unwrap();
    (Server::serve(bus, HttpOptions::default()).await, running)
}

macro_rules! on_both_engines {
    ($($name:ident;)+) => {
        mod sqlite {
            $(
                #[tokio::test]
                async fn $name() {
                    let (server, running) = super::started("sqlite::memory:").await;
                    super::defined::$name(&server).await;
                    running.shutdown(super::LONG).await.unwrap();
                }
            )+
        }

        mod postgres {
            $(
                #[tokio::test]
                async fn $name() {
                    let (url, _schema) = ensue_conformance::postgres::fresh_schema("defined");
                    let (server, running) = super::started(&url).await;
                    super::defined::$name(&server).await;
                    running.shutdown(super::LONG).await.unwrap();
                    server.bus.close().await;
                }
            )+
        }
    };
}

on_both_engines! {
    a_handler_is_made_shown_changed_and_deleted;
    jobs_of_an_object_come_in_order_and_rules_hold_them;
    what_cannot_be_is_refused_and_changes_nothing;
}

/// The store keeps it: after a restart it goes on where it was, with what was published meanwhile.
async fn survives_a_restart(url: &str) {
    let (server, running) = started(url).await;
    server.api_ok("PUT", "handlers/remote", json!({"on": "order.paid", "retry": {"attempts_max": 2}}), 201).await;
    server.publish("order.paid", Some("order:1")).await;
    server.bus.drain().await.unwrap();
    running.shutdown(LONG).await.unwrap();
    server.publish("order.paid", Some("order:2")).await;
    server.bus.close().await;
    drop(server);

    let (server, running) = started(url).await;
    let kept = server.api_ok("GET", "handlers/remote", Value::Null, 200).await;
    assert_eq!((&kept["here"], &kept["retry"]["attempts_max"]), (&json!(true), &json!(2)));
    server.bus.drain().await.unwrap();
    let jobs = server.claim("remote", 9).await;
    assert_eq!(jobs.iter().map(|job| job["event"]["seq"].as_u64().unwrap()).collect::<Vec<_>>(), [1, 2]);
    running.shutdown(LONG).await.unwrap();
    server.bus.close().await;
}

#[tokio::test]
async fn what_was_defined_survives_a_restart_on_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    survives_a_restart(&format!("sqlite:{}", folder.path().join("a.db").display())).await;
}

#[tokio::test]
async fn what_was_defined_survives_a_restart_on_postgres() {
    let (url, _schema) = ensue_conformance::postgres::fresh_schema("defined");
    survives_a_restart(&url).await;
}

/// Known to a second process within moments, and served by it when the first is gone.
#[tokio::test]
async fn a_second_process_knows_and_serves_what_the_first_was_told() {
    let (url, _schema) = ensue_conformance::postgres::fresh_schema("defined");
    let (one, first) = started(&url).await;
    let (other, second) = started(&url).await;
    let shown = async |server: &Server| server.api("GET", "handlers/remote", Value::Null).await;
    one.api_ok("PUT", "handlers/remote", json!({"on": "order.paid"}), 201).await;
    until(async || (shown(&other).await.json()["here"] == true).then_some(())).await;
    first.shutdown(LONG).await.unwrap();
    one.publish("order.paid", Some("order:1")).await;
    assert_eq!(other.claim_one("remote").await["event"]["seq"], 1);
    other.api_ok("PUT", "handlers/remote", json!({"on": "order.sent"}), 200).await;
    one.publish("order.sent", Some("order:2")).await;
    assert_eq!(one.claim_one("remote").await["event"]["seq"], 2);
    one.api_ok("DELETE", "handlers/remote", Value::Null, 200).await;
    until(async || (shown(&other).await.status == 404 && other.bus.handlers().len() == 1).then_some(())).await;
    second.shutdown(LONG).await.unwrap();
    for server in [&one, &other] {
        server.bus.close().await;
    }
}
