//! What must handlers that are defined over HTTP do, on any engine? The server's bus is started.

use super::Server;
use serde_json::{Value, json};

const KEY: &str = "handlers/order.paid.remote";

fn topics_and_seqs(jobs: &[Value]) -> Vec<(String, u64)> {
    let one = |job: &Value| (job["event"]["topic"].as_str().unwrap().to_owned(), job["event"]["seq"].as_u64().unwrap());
    jobs.iter().map(one).collect()
}

pub async fn a_handler_is_made_shown_changed_and_deleted(server: &Server) {
    let body = json!({"on": "order.paid", "where": "e.payload @> s.params", "params": {"total": 7}, "ordered": true,
        "concurrency": 4, "retry": {"attempts_max": 3, "first": "2s", "max": "1m"}, "timeout": "10m",
        "on_exhausted": "skip", "start": "now"});
    server.publish("order.paid", Some("order:0")).await;
    let made = server.api_ok("PUT", KEY, body.clone(), 201).await;
    assert_eq!(
        (&made["key"], &made["on"], &made["here"]),
        (&json!("order.paid.remote"), &json!("order.paid"), &json!(true))
    );
    assert_eq!((&made["where"], &made["params"]), (&body["where"], &body["params"]));
    for field in ["ordered", "concurrency", "retry", "timeout", "on_exhausted", "start"] {
        assert_eq!(made[field], body[field], "{field}");
    }
    assert_eq!((&made["pull"], &made["defined"], &made["cursor"]), (&json!(true), &json!(true), &json!(1)));
    assert_eq!(server.api_ok("GET", KEY, Value::Null, 200).await["retry"], body["retry"]);
    let listed = server.api_ok("GET", "handlers", Value::Null, 200).await;
    let keys: Vec<&str> =
        listed["handlers"].as_array().unwrap().iter().map(|one| one["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["a.bound", "order.paid.remote"]);

    let paid = |object: &str| json!({"topic": "order.paid", "object": object, "payload": {"total": 7}});
    server.api_ok("POST", "events", paid("order:1"), 201).await;
    server.publish("order.paid", Some("order:2")).await;
    let job = server.claim_one("order.paid.remote").await;
    assert_eq!(
        (&job["event"]["seq"], &job["payload"], &job["object"]),
        (&json!(2), &json!({"total": 7}), &json!("order:1"))
    );
    assert_eq!(job["attempts_max"], 3);
    server.under_ok(&job, "complete", json!({})).await;

    // It has come to the event that it does not want, and does not go back to it.
    server.bus.drain().await.unwrap();
    let again = json!({"on": "order", "start": "beginning"});
    let changed = server.api_ok("PUT", KEY, again.clone(), 200).await;
    assert_eq!((&changed["on"], &changed["where"], &changed["timeout"]), (&json!("order"), &Value::Null, &Value::Null));
    assert_eq!(changed["retry"]["attempts_max"], 5);
    server.api_ok("PUT", KEY, again, 200).await;
    server.publish("order.sent", Some("order:3")).await;
    let job = server.claim_one("order.paid.remote").await;
    assert_eq!(topics_and_seqs(&[job]), [("order.sent".to_owned(), 4)], "it goes on where it was");

    server.publish("order.sent", Some("order:4")).await;
    server.bus.drain().await.unwrap();
    let deleted = server.api_ok("DELETE", KEY, Value::Null, 200).await;
    assert_eq!(deleted, json!({"key": "order.paid.remote", "state": "deleted"}));
    server.publish("order.sent", Some("order:5")).await;
    assert_eq!(topics_and_seqs(&server.claim("order.paid.remote", 9).await), [("order.sent".to_owned(), 5)]);
    for method in ["GET", "DELETE"] {
        assert!(server.api(method, KEY, Value::Null).await.problem(404).contains("no handler `order.paid.remote`"));
    }
    assert_eq!(server.api("GET", "groups/order.paid.remote", Value::Null).await.status, 404);
}

pub async fn jobs_of_an_object_come_in_order_and_rules_hold_them(server: &Server) {
    server.api_ok("PUT", KEY, json!({"on": "order.paid"}), 201).await;
    for _ in 0..3 {
        server.publish("order.paid", Some("order:1")).await;
    }
    let mut seqs = Vec::new();
    for _ in 0..3 {
        let job = server.claim_one("order.paid.remote").await;
        assert!(server.claim("order.paid.remote", 9).await.is_empty(), "one at a time");
        seqs.push(job["event"]["seq"].as_u64().unwrap());
        server.under_ok(&job, "complete", json!({})).await;
    }
    assert_eq!(seqs, [1, 2, 3]);
    server.api_ok("PUT", "rules/pause/handler:order.paid.remote", Value::Null, 201).await;
    let paused = server.publish("order.paid", Some("order:2")).await;
    server.bus.drain().await.unwrap();
    assert!(server.claim("order.paid.remote", 9).await.is_empty());
    assert!(server.api_ok("GET", KEY, Value::Null, 200).await["cursor"].as_u64().unwrap() < paused);
    server.api_ok("DELETE", "rules/pause/handler:order.paid.remote", Value::Null, 200).await;
    assert_eq!(server.claim_one("order.paid.remote").await["event"]["seq"], paused);
}

pub async fn what_cannot_be_is_refused_and_changes_nothing(server: &Server) {
    for (body, told) in [
        (json!({}), "`on` is missing"),
        (json!({"on": "a..b"}), "`on` has an empty segment"),
        (json!({"on": 7}), "`on` must be a string"),
        (json!({"on": "a", "command": ["x"]}), "`command` is not a field"),
        (json!({"on": "a", "where": "e.tpoic = 'x'"}), "`where` "),
        (json!({"on": "a", "params": {}}), "`params` is for a `where`"),
        (json!({"on": "a", "ordered": "yes"}), "`ordered` must be true or false"),
        (json!({"on": "a", "concurrency": 0}), "`concurrency` is 0; choose between 1 and"),
        (json!({"on": "a", "concurrency": -1}), "`concurrency` must be a whole number"),
        (json!({"on": "a", "timeout": "soon"}), "`timeout` is no length of time"),
        (json!({"on": "a", "timeout": "0s"}), "`timeout` is no length of time"),
        (json!({"on": "a", "retry": {"attempts": 3}}), "`retry` cannot be: unknown field `attempts`"),
        (json!({"on": "a", "retry": {"first": "soon"}}), "`retry` cannot be: `soon` is no length of time"),
        (json!({"on": "a", "retry": {"first": "9s", "max": "1s"}}), "`retry` cannot be: its `first`"),
        (json!({"on": "a", "retry": {"attempts_max": 0}}), "`retry` has `attempts_max: 0`"),
        (json!({"on": "a", "retry": {"delays": ["1s"], "max": "1s"}}), "`retry` has `delays`"),
        (json!({"on": "a", "on_exhausted": "stop"}), "`on_exhausted` is not known here"),
        (json!({"on": "a", "start": "later"}), "`start` must be"),
        (json!({"on": "a", "start": 999_999}), "`start` is 999999, but the newest event"),
    ] {
        let detail = server.api("PUT", KEY, body.clone()).await.problem(422);
        assert!(detail.starts_with(told), "{body}: {detail}");
        assert_eq!(server.api("GET", KEY, Value::Null).await.status, 404, "{body}");
    }
    assert!(server.api("PUT", "handlers/a..b", json!({"on": "a"})).await.problem(400).contains("`key`"));
    server.api_ok("PUT", KEY, json!({"on": "a", "retry": {"delays": ["0s", "1m"]}}), 201).await;
    server.api("PUT", KEY, json!({"on": "a", "where": "nonsense"})).await.problem(422);
    let kept = server.api_ok("GET", KEY, Value::Null, 200).await;
    assert_eq!((&kept["retry"], &kept["where"]), (&json!({"attempts_max": 3, "delays": ["0s", "1m"]}), &Value::Null));
    server.api_ok("PUT", "groups/read", json!({}), 201).await;
    assert!(server.api("PUT", "handlers/read", json!({"on": "a"})).await.problem(409).contains("a group that is read"));
    for method in ["PUT", "DELETE"] {
        let body = if method == "PUT" { json!({"on": "a"}) } else { Value::Null };
        let detail = server.api(method, "handlers/a.bound", body).await.problem(409);
        assert!(detail.contains("a config file or an application binds"), "{detail}");
    }
    assert_eq!(server.api_ok("GET", "handlers/a.bound", Value::Null, 200).await["defined"], false);
}
