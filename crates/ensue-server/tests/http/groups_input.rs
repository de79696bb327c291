//! Bad input about groups gets an answer that names the field and says what to do, and changes nothing.

use crate::support::Server;
use serde_json::{Value, json};

#[tokio::test]
async fn what_is_not_there_is_said_to_be_missing() {
    let server = Server::start().await;
    let id = "0190a5a0-0000-7000-8000-000000000001";
    let lease = format!("03{}", "00".repeat(88));
    for (method, path, body) in [
        ("GET", "none".to_string(), Value::Null),
        ("DELETE", "none".into(), Value::Null),
        ("POST", "none/seek".into(), json!({"to": "now"})),
        ("POST", "none/read".into(), json!({})),
        ("POST", "none/read".into(), json!({"peek": true})),
        ("POST", "none/commit".into(), json!({"cursor": 0, "lease": lease})),
        ("GET", "none/subscriptions".into(), Value::Null),
        ("DELETE", format!("none/subscriptions/{id}"), Value::Null),
        ("POST", format!("none/subscriptions/{id}/touch"), Value::Null),
    ] {
        let detail = server.group(method, &path, body).await.problem(404);
        assert!(detail.contains("no group `none`: create it"), "{method} {path}: {detail}");
    }
    assert_eq!(server.get("/v1/groups").await.json(), json!({"groups": [], "next": null}));
}

#[tokio::test]
async fn every_bad_condition_is_refused_with_the_part_that_is_wrong() {
    let server = Server::start().await;
    let parentheses = format!("{}true{}", "(".repeat(5_000), ")".repeat(5_000));
    for (condition, named) in [
        ("e.tpoic = 'a'", "tpoic"),
        ("x.topic = 'a'", "x"),
        ("topic = 'a'", "topic"),
        ("pg_sleep(10) IS NULL", "pg_sleep"),
        ("version() = 'a'", "version"),
        ("e.topic IN (SELECT 'a')", "SELECT"),
        ("EXISTS (SELECT 1)", "EXISTS"),
        ("(SELECT true)", "SELECT"),
        ("true; DROP TABLE events", ";"),
        ("true;", ";"),
        ("e.topic = $1", "$1"),
        ("e.topic = ?", ""),
        ("e.topic = :name", ""),
        ("e.topic = 5", ""),
        ("e.payload > 5", ""),
        ("e.seq = 'a'::bytea", "bytea"),
        ("1", ""),
        ("'a'", ""),
        ("", ""),
        ("e.topic =", ""),
        ("true AND", ""),
        ("e.topic LIKE 5", ""),
        (parentheses.as_str(), ""),
    ] {
        let detail = server.group("POST", "g/subscriptions", json!({"where": condition})).await.problem(422);
        assert!(detail.starts_with("`where`") && detail.contains(named), "{condition:.60}: {detail}");
        assert!(detail.len() < 1_000, "{detail}");
    }
    assert_eq!(
        server.get("/v1/groups").await.json(),
        json!({"groups": [], "next": null}),
        "a refused one makes no group"
    );
}

#[tokio::test]
async fn every_bad_field_is_named_with_what_to_write() {
    let server = Server::start().await;
    server.group_ok("PUT", "g", json!({}), 201).await;
    let large = "x".repeat(70_000);
    let id = "0190a5a0-0000-7000-8000-000000000001";
    for (method, path, body, named) in [
        ("PUT", "h", json!({"start": "soon"}), "`start`"),
        ("PUT", "h", json!({"start": -1}), "`start`"),
        ("PUT", "h", json!({"start": 1.5}), "`start`"),
        ("PUT", "h", json!({"start": {}}), "`start`"),
        ("PUT", "h", json!({"start": 99}), "`start` is 99, but the newest event is 0"),
        ("PUT", "g", json!({"start": 99}), "`start` is 99, but the newest event is 0"),
        ("PUT", "h", json!({"satrt": "now"}), "`satrt`"),
        ("PUT", "h", json!([]), "`body`"),
        ("POST", "g/seek", json!({}), "`to`"),
        ("POST", "g/seek", json!({"to": 1}), "`to`"),
        ("POST", "g/subscriptions", json!({"where": 5}), "`where`"),
        ("POST", "g/subscriptions", json!({"where": ["a"]}), "`where`"),
        ("POST", "g/subscriptions", json!({"topic": "a..b"}), "`topic`"),
        ("POST", "g/subscriptions", json!({"topic": true}), "`topic`"),
        ("POST", "g/subscriptions", json!({"where": "true", "params": large}), "`params`"),
        ("POST", "g/subscriptions", json!({"params": "\u{0}"}), "`params`"),
        (
            "POST",
            "g/subscriptions",
            json!({"where": "(s.params->>'n')::int > 5", "params": {"n": "abc"}}),
            "`params` does not go with the condition: `n`: \"abc\" cannot be read as integer",
        ),
        ("POST", "g/subscriptions", json!({"expires_in": 5}), "`expires_in`"),
        ("POST", "g/subscriptions", json!({"expires_in": "soon"}), "`expires_in`"),
        ("POST", "g/subscriptions", json!({"where": "true", "expires_in": "1ms"}), "`expires_in`"),
        ("POST", "g/subscriptions", json!({"where": "true", "expires_in": "9999999d"}), "`expires_in`"),
        ("POST", "g/subscriptions", json!({"condition": "true"}), "`condition`"),
        ("POST", "g/read", json!({"limit": 0}), "`limit`"),
        ("POST", "g/read", json!({"limit": 1001}), "`limit`"),
        ("POST", "g/read", json!({"limit": "5"}), "`limit`"),
        ("POST", "g/read", json!({"wait_ms": 30_001}), "`wait_ms`"),
        ("POST", "g/read", json!({"wait_ms": "1s"}), "`wait_ms`"),
        ("POST", "g/read", json!({"lease_ms": 99}), "`lease_ms`"),
        ("POST", "g/read", json!({"lease_ms": 3_600_001}), "`lease_ms`"),
        ("POST", "g/read", json!({"peek": "yes"}), "`peek`"),
        ("POST", "g/read", json!({"cursor": -1}), "`cursor`"),
        ("POST", "g/read", json!({"cursor": 1}), "`cursor`"),
        ("POST", "g/read", json!({"lease": 7}), "`lease`"),
        ("POST", "g/read", json!({"lease": "mine"}), "`lease`"),
        ("POST", "g/read", json!({"wait": "1s"}), "`wait`"),
        ("POST", "g/commit", json!({"cursor": 0}), "`lease`"),
        ("POST", "g/commit", json!({"cursor": 0, "lease": "mine"}), "`lease`"),
        ("POST", "g/commit", json!({"lease": format!("03{}", "00".repeat(88))}), "`cursor`"),
        ("POST", "g/commit", json!({"cursor": "0", "lease": ""}), "`cursor`"),
        ("POST", "g/commit", json!({"cursor": 0, "lease": "", "release": 1}), "`release`"),
    ] {
        let detail = server.group(method, path, body.clone()).await.problem(422);
        assert!(detail.starts_with(named), "{method} {path} {body:.80}: {detail}");
    }
    for (method, path, named) in [
        ("GET", "a..b", "`group`"),
        ("PUT", "a%20b", "`group`"),
        ("POST", "%ff/read", "`group`"),
        ("GET", "g?x=1", "`x`"),
        ("GET", "g/subscriptions?limit=0", "`limit`"),
        ("GET", "g/subscriptions?after=x", "`after`"),
        ("DELETE", "g/subscriptions/x", "`id`"),
        ("POST", "g/subscriptions/x/touch", "`id`"),
        ("DELETE", "%ff/subscriptions/x", "`group`"),
    ] {
        let detail = server.group(method, path, Value::Null).await.problem(400);
        assert!(detail.starts_with(named), "{method} {path}: {detail}");
    }
    let doubled = br#"{"limit":1,"limit":2}"#;
    let json = ["Content-Type: application/json"];
    assert!(server.request("POST", "/v1/groups/g/read", &json, doubled).await.problem(422).contains("twice"));
    server.request("POST", "/v1/groups/g/read", &json, b"{").await.problem(400);
    server.request("POST", "/v1/groups/g/read", &json, b"\xff").await.problem(400);
    server.request("POST", "/v1/groups/g/read", &[], b"{}").await.problem(415);
    server.group("DELETE", &format!("g/subscriptions/{id}"), Value::Null).await.problem(404);
    // Nothing of all this has changed anything: nobody holds the group, and it wants nothing.
    let group = server.group_ok("GET", "g", Value::Null, 200).await;
    assert_eq!((&group["slots"][0]["owner"], &group["subscriptions"]), (&Value::Null, &json!(0)));
    assert_eq!(server.get("/v1/groups").await.json()["groups"].as_array().unwrap().len(), 1);
}
