//! Deliveries that became jobs, and what holds them, over HTTP: the same on both engines.

use crate::handlers_support::until;
use crate::support::{PATIENCE, Server};
use ensue::{Context, Emit, Event, Retry};
use ensue_server::HttpOptions;
use serde_json::{Value, json};
use std::time::Duration;

macro_rules! on_both {
    ($($name:ident;)+) => {
        mod sqlite {
            use super::Server;
            $(
                #[tokio::test]
                async fn $name() {
                    super::$name(&Server::start().await).await;
                }
            )+
        }

        mod postgres {
            use super::{HttpOptions, Server};
            $(
                #[tokio::test]
                async fn $name() {
                    let (url, _schema) = ensue_conformance::postgres::fresh_schema("pull");
                    let bus = ensue::Ensue::open(&url).await.unwrap();
                    super::$name(&Server::serve(bus.clone(), HttpOptions::default()).await).await;
                    bus.close().await;
                }
            )+
        }
    };
}

on_both! {
    a_delivery_that_became_a_job_is_told_by_its_job;
    an_object_that_a_dead_job_holds_is_listed_and_brought_back;
    the_job_of_a_delivery_is_found_behind_many_others;
    a_pull_handler_is_registered_before_a_worker_asks;
    all_rules_that_hold_are_named_and_an_object_waits_for_them;
    a_worker_hears_how_many_of_its_lines_are_kept;
}

impl Server {
    async fn told(&self, path: &str) -> Value {
        self.api_ok("GET", path, Value::Null, 200).await
    }

    /// What became of an event, for the one handler that there is.
    async fn delivery(&self, seq: u64) -> Value {
        let told = self.told(&format!("events/{seq}/deliveries")).await;
        assert_eq!(told["deliveries"].as_array().unwrap().len(), 1, "{told}");
        told["deliveries"][0].clone()
    }

    async fn held(&self) -> Vec<Value> {
        self.told("objects?held=true").await["objects"].as_array().unwrap().clone()
    }

    async fn fail_twice(&self, handler: &str) -> String {
        let mut id = String::new();
        for _ in 0..2 {
            let claimed = self.claim_one(handler).await;
            id = self.under_ok(&claimed, "fail", json!({"error": "no luck"})).await["id"].as_str().unwrap().to_owned();
        }
        id
    }
}

/// Why, in one text.
fn details(explained: &Value) -> String {
    let because = explained["because"].as_array().unwrap();
    because.iter().map(|reason| reason["detail"].as_str().unwrap()).collect::<Vec<_>>().join("\n")
}

async fn a_delivery_that_became_a_job_is_told_by_its_job(server: &Server) {
    server.bus.on("q").named("remote").retry(Retry::delays([Duration::ZERO])).pull().unwrap();
    let running = server.bus.start().await.unwrap();
    let (first, second) = (server.publish("q", Some("q:1")).await, server.publish("q", Some("q:1")).await);
    let id = server.fail_twice("q.remote").await;
    server.until_job(&id, "dead").await;
    until(async || (!server.delivery(second).await["job"].is_null()).then_some(())).await;

    let held = server.delivery(first).await;
    assert_eq!((&held["state"], &held["attempts"]), (&json!("held"), &json!(2)), "{held}");
    assert_eq!((&held["error"], &held["job"]), (&json!("no luck"), &json!(id)), "{held}");
    let waits = server.delivery(second).await;
    assert_eq!((&waits["state"], &waits["attempts"]), (&json!("pending"), &json!(0)), "{waits}");
    assert_eq!((&waits["behind"], &waits["error"]), (&json!(first), &Value::Null), "{waits}");
    let why = server.told(&format!("explain?event={first}")).await;
    assert_eq!((&why["verdict"], &why["handlers"][0]["verdict"]), (&json!("held"), &json!("held")), "{why}");
    assert!(!details(&why).contains("done") && details(&why).contains("it has died in attempt 2 of 2"), "{why}");
    let why = server.told(&format!("explain?event={second}&handler=q.remote")).await;
    assert_eq!((&why["verdict"], &why["because"][0]["kind"]), (&json!("parked"), &json!("predecessor")), "{why}");

    let list = server.held().await;
    assert_eq!(list.len(), 1, "{list:?}");
    assert_eq!((&list[0]["object"], &list[0]["handler"]), (&json!("q:1"), &json!("q.remote")));
    assert_eq!((&list[0]["seq"], &list[0]["job"]), (&json!(first), &json!(id)));
    assert_eq!((&list[0]["state"], &list[0]["error"]), (&json!("held"), &json!("no luck")));
    assert_eq!(server.told("handlers").await["handlers"][0]["held"], 1);
    let page = server.told("events?topic=ensue.object.held").await;
    let notice = &page["events"][0];
    assert_eq!((&notice["object"], &notice["payload"]["object"]), (&json!("ensue:q:1"), &json!("q:1")), "{page}");

    assert_eq!(notice["payload"]["event"], first, "{page}");
    let asked = server.api_ok("POST", "objects/q:1/retry", json!({}), 200).await;
    assert_eq!((&asked["asked"], &asked["job"]), (&json!("retry"), &json!(id)));
    assert!(server.held().await.is_empty());
    assert_eq!(server.fail_twice("q.remote").await, id, "it runs next, with all its attempts");
    server.api_ok("POST", &format!("events/{first}/retry"), json!({"handler": "q.remote"}), 200).await;
    assert_eq!(server.fail_twice("q.remote").await, id);
    let asked = server.api_ok("POST", "objects/q:1/skip", json!({"handler": "q.remote"}), 200).await;
    assert_eq!(asked["asked"], "skip");
    assert!(server.held().await.is_empty());
    server.api_ok("POST", "objects/q:1/skip", json!({}), 404).await;
    assert_eq!(server.delivery(first).await["state"], "dead");
    let why = server.told(&format!("explain?event={first}")).await;
    assert_eq!(why["verdict"], "dead", "{why}");
    assert!(!details(&why).contains("done with it"), "{why}");

    let claimed = server.claim_one("q.remote").await;
    assert_eq!(server.delivery(second).await["state"], "running");
    server.under_ok(&claimed, "complete", json!({})).await;
    let done = server.delivery(second).await;
    assert_eq!((&done["state"], &done["attempts"], &done["error"]), (&json!("done"), &json!(1), &Value::Null));
    assert_eq!(server.told(&format!("explain?event={second}")).await["verdict"], "done");
    running.shutdown(PATIENCE).await.unwrap();
}

async fn an_object_that_a_dead_job_holds_is_listed_and_brought_back(server: &Server) {
    let mut ids = Vec::new();
    for object in ["o", "p", "r"] {
        ids.push(server.send_job(json!({"handler": "h", "object": object, "attempts_max": 1})).await);
        let claimed = server.claim_one("h").await;
        server.under_ok(&claimed, "fail", json!({"error": "no"})).await;
    }
    let next = server.send_job(json!({"handler": "h", "object": "o"})).await;
    let first = server.told("objects?held=true&limit=2").await;
    let after = first["next"].as_str().unwrap().replace('%', "%25").replace('+', "%2B");
    let rest = server.told(&format!("objects?held=true&limit=2&after={after}")).await;
    assert_eq!(rest["next"], Value::Null);
    let pages = [&first, &rest].map(|page| page["objects"].as_array().unwrap().clone()).concat();
    assert_eq!(pages.iter().map(|lane| lane["job"].as_str().unwrap()).collect::<Vec<_>>(), ids, "the oldest first");
    assert_eq!((&pages[0]["seq"], &pages[0]["object"]), (&Value::Null, &json!("o")));
    server.api_ok("POST", "objects/o/skip", json!({}), 200).await;
    assert_eq!(server.claim_one("h").await["id"].as_str(), Some(&*next));
    server.api_ok("POST", "objects/p/retry", json!({"handler": "h"}), 200).await;
    assert_eq!(server.claim_one("h").await["id"].as_str(), Some(&*ids[1]));
    let left = server.held().await;
    assert_eq!((left.len(), left[0]["job"].as_str()), (1, Some(&*ids[2])));
}

/// More jobs than one look goes over are in front of it.
async fn the_job_of_a_delivery_is_found_behind_many_others(server: &Server) {
    for _ in 0..11 {
        server.bus.emit_all((0..1_000).map(|_| Emit::to("other")).collect()).await.unwrap();
    }
    server.bus.on("q").named("remote").pull().unwrap();
    let running = server.bus.start().await.unwrap();
    let seq = server.publish("q", None).await;
    until(async || (!server.delivery(seq).await["job"].is_null()).then_some(())).await;
    assert_eq!(server.delivery(seq).await["state"], "pending");
    let why = server.told(&format!("explain?event={seq}&handler=q.remote")).await;
    assert_eq!(why["verdict"], "available", "{why}");
    assert_eq!(server.told(&format!("explain?event={seq}")).await["verdict"], "open");
    running.shutdown(PATIENCE).await.unwrap();
}

async fn a_pull_handler_is_registered_before_a_worker_asks(server: &Server) {
    server.bus.on("q").named("remote").pull().unwrap();
    let running = server.bus.start().await.unwrap();
    let seq = server.publish("q", None).await;
    let delivery = until(async || Some(server.delivery(seq).await).filter(|one| !one["job"].is_null())).await;
    let job = server.job(delivery["job"].as_str().unwrap()).await;
    let held_by = job["held_by"].as_str().unwrap();
    assert!(held_by.contains("no worker has asked for jobs of the pull handler `q.remote`"), "{held_by}");
    let why = server.told(&format!("explain?job={}", delivery["job"].as_str().unwrap())).await;
    assert!(why["because"][0]["fix"].as_str().unwrap().contains("/v1/jobs/claim"), "{why}");
    running.shutdown(PATIENCE).await.unwrap();
}

async fn all_rules_that_hold_are_named_and_an_object_waits_for_them(server: &Server) {
    server.bus.on("a").named("h").handle(async |_: Event, _: Context| Ok(())).unwrap();
    let running = server.bus.start().await.unwrap();
    server.publish("a", Some("before")).await;
    for rule in ["rules/pause/handler:a", "rules/block/handler:a.h", "rules/pause/handler:j", "rules/block/object:x"] {
        server.api_ok("PUT", rule, json!({"reason": rule}), 201).await;
    }
    let seq = server.publish("a", Some("o")).await;
    let why = server.told("explain?object=o").await;
    assert_eq!((&why["verdict"], &why["because"][0]["ref"]), (&json!("held"), &json!(seq.to_string())), "{why}");
    let text = details(&why);
    assert!(text.contains("rules/pause/handler:a") && text.contains("rules/block/handler:a.h"), "{text}");
    let event = server.told(&format!("explain?event={seq}&handler=a.h")).await;
    assert_eq!((&event["because"][0]["kind"], &event["because"][1]["kind"]), (&json!("rule"), &json!("rule")));
    let sent = server.api_ok("POST", "jobs", json!({"handler": "j", "object": "x"}), 201).await;
    assert_eq!(sent["state"], "parked");
    let sent = server.api_ok("POST", "jobs", json!({"handler": "j"}), 201).await;
    assert_eq!(sent["state"], "parked", "also where it could run but for the rule");
    let job = server.job(sent["id"].as_str().unwrap()).await;
    assert_eq!(job["state"], "parked");
    let job = server.send_job(json!({"handler": "j", "object": "x"})).await;
    let job = server.job(&job).await;
    let held_by = job["held_by"].as_str().unwrap();
    assert!(held_by.contains("rules/pause/handler:j") && held_by.contains("rules/block/object:x"), "{held_by}");
    for rule in ["rules/pause/handler:a", "rules/block/handler:a.h"] {
        server.api_ok("DELETE", rule, Value::Null, 200).await;
    }
    until(async || (server.told("explain?object=o").await["verdict"] == "free").then_some(())).await;
    running.shutdown(PATIENCE).await.unwrap();
}

async fn a_worker_hears_how_many_of_its_lines_are_kept(server: &Server) {
    let id = server.send_job(json!({"handler": "h"})).await;
    let claimed = server.claim_one("h").await;
    let lines = |count: usize| json!({"lines": vec![json!({"message": "said"}); count]});
    for _ in 0..10 {
        let kept = server.under_ok(&claimed, "log", lines(990)).await;
        assert_eq!(kept["kept"], 990);
    }
    assert_eq!(server.under_ok(&claimed, "log", lines(150)).await["kept"], 99);
    assert_eq!(server.under_ok(&claimed, "log", lines(1)).await["kept"], 0);
    let logs = server.told(&format!("jobs/{id}/logs?after=9998&limit=10")).await;
    let said: Vec<&str> = logs["logs"].as_array().unwrap().iter().map(|l| l["message"].as_str().unwrap()).collect();
    assert_eq!((said.len(), said[0]), (2, "said"));
    assert!(said[1].starts_with("51 more lines were dropped"), "{said:?}");
}
