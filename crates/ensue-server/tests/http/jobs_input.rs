//! Bad input about jobs and rules: a clear refusal, and nothing is changed.

use crate::support::Server;
use serde_json::{Value, json};

const NO_ID: &str = "0190a5a0-0000-7000-8000-000000000001";

/// Everything there is, to be compared.
async fn all(server: &Server) -> (Value, Value, u64) {
    let jobs = server.api_ok("GET", "jobs", Value::Null, 200).await;
    let rules = server.api_ok("GET", "rules", Value::Null, 200).await;
    (jobs, rules, server.bounds().await.last)
}

#[tokio::test]
async fn a_job_that_cannot_be_is_refused_with_its_field() {
    let server = Server::start().await;
    let with = |field: &str, value: Value| {
        let mut job = json!({"handler": "h"});
        job[field] = value;
        job
    };
    for (body, named) in [
        (json!({}), "`handler` is missing"),
        (json!({"handler": "a..b"}), "`handler`"),
        (json!({"handler": 7}), "`handler` must be a string"),
        (with("object", json!("")), "`object`"),
        (with("priority", json!(-1)), "`priority` must be a whole number"),
        (with("priority", json!(1.5)), "`priority` must be a whole number"),
        (with("priority", json!("1")), "`priority` must be a whole number"),
        (with("attempts_max", json!(0)), "`attempts_max` is 0"),
        (with("attempts_max", json!(-1)), "`attempts_max` must be"),
        (with("attempts_max", json!(99_999_999_999_u64)), "`attempts_max` is 99999999999; choose 1 to 1000000"),
        (
            with("not_before", json!("9999-12-31T00:00:00Z")),
            "`not_before` is not a time; write it as RFC 3339, from the year 1 to 9999-12-30",
        ),
        (with("not_before", json!("soon")), "`not_before` is not a time"),
        (with("unique_key", json!("")), "`unique_key` is empty"),
        (with("unique_key", json!("k".repeat(513))), "`unique_key` has 513 bytes"),
        (with("metadata", json!([])), "`metadata` is not a JSON object"),
        (with("on_exhausted", json!("stop")), "`on_exhausted` must be"),
        (with("ordered", json!(1)), "`ordered` must be true or false"),
        (with("x", json!(1)), "`x` is not a field"),
        (json!([]), "`jobs` is empty"),
        (json!([{"handler": "h"}, {"handler": "h", "priority": -1}]), "`jobs[1].priority`"),
        (json!([{"handler": "h"}, {"handler": "h", "object": ""}]), "`jobs[1].object`"),
        (json!([{"handler": "h"}, {"x": 1}]), "`jobs[1].x` is not a field"),
        (json!([{"handler": "h"}, 7]), "`jobs[1]` must be a JSON object"),
        (json!(vec![json!({"handler": "h"}); 1_001]), "`jobs` has 1001 elements"),
        (json!("h"), "`body` must be a JSON object"),
    ] {
        let shown = body.to_string().chars().take(80).collect::<String>();
        let detail = server.api("POST", "jobs", body).await.problem(422);
        assert!(detail.starts_with(named), "{shown}: {detail}");
    }
    let huge = br#"{"handler":"h","priority":18446744073709551616}"#;
    server.request("POST", "/v1/jobs", &["Content-Type: application/json"], huge).await.problem(422);
    for body in [&b"{"[..], b"", b"\xff"] {
        server.request("POST", "/v1/jobs", &["Content-Type: application/json"], body).await.problem(400);
    }
    server.request("POST", "/v1/jobs", &[], b"{}").await.problem(415);
    assert_eq!(all(&server).await.0["jobs"], json!([]), "nothing was sent");
}

#[tokio::test]
async fn a_claim_that_cannot_be_takes_nothing() {
    let server = Server::start().await;
    server.send_job(json!({"handler": "h"})).await;
    let with = |field: &str, value: Value| {
        let mut body = json!({"handlers": ["h"]});
        body[field] = value;
        body
    };
    for (body, named) in [
        (json!({}), "`handlers` is missing"),
        (json!({"handlers": []}), "`handlers` is missing or empty"),
        (json!({"handlers": "h"}), "`handlers` must be a list"),
        (json!({"handlers": [1]}), "`handlers` must be a list"),
        (json!({"handlers": ["a..b"]}), "`handlers`"),
        (json!({"handlers": (0..201).map(|n| format!("h{n}")).collect::<Vec<_>>()}), "`handlers` names 201"),
        (with("limit", json!(0)), "`limit` is 0"),
        (with("limit", json!(1_001)), "`limit` is 1001"),
        (with("limit", json!(-1)), "`limit` must be"),
        (with("lease_ms", json!(0)), "`lease_ms` is 0"),
        (with("lease_ms", json!(99)), "`lease_ms` is 99"),
        (with("lease_ms", json!(86_400_001)), "`lease_ms`"),
        (with("wait_ms", json!(30_001)), "`wait_ms` is 30001"),
        (with("worker", json!("")), "`worker` is empty"),
        (with("worker", json!("w".repeat(256))), "`worker` has 256 bytes"),
        (with("worker", json!("a\nb")), "`worker` may not contain"),
        (with("x", json!(1)), "`x` is not a field"),
    ] {
        let detail = server.api("POST", "jobs/claim", body).await.problem(422);
        assert!(detail.starts_with(named), "{detail}");
    }
    assert_eq!(server.claim("h", 5).await.len(), 1, "it was not taken");
}

#[tokio::test]
async fn a_stale_or_malformed_claim_changes_nothing() {
    let server = Server::start().await;
    let ids = [server.send_job(json!({"handler": "h"})).await, server.send_job(json!({"handler": "h"})).await];
    let claimed = server.claim("h", 2).await;
    let (mine, other) = (claimed[0]["claim"].as_str().unwrap(), claimed[1]["claim"].as_str().unwrap());
    let stale = mine.replacen("claim-1-", "claim-7-", 1);
    let nobody = format!("claim-1-{NO_ID}-{:032}", 0);
    let before = all(&server).await;
    let fitting = [
        ("renew", json!({})),
        ("complete", json!({})),
        ("fail", json!({"error": "x"})),
        ("snooze", json!({"for_ms": 5})),
        ("log", json!({"lines": [{"message": "x"}]})),
    ];
    for (verb, body) in fitting {
        let path = format!("jobs/{}/{verb}", ids[0]);
        let sent = async |path: &str, claim: Value| {
            let mut body = body.clone();
            body["claim"] = claim;
            server.api("POST", path, body).await
        };
        for bad in [Value::Null, json!(""), json!("nonsense"), json!("claim-x-y"), json!(7), json!(other)] {
            assert!(sent(&path, bad).await.problem(422).starts_with("`claim`"));
        }
        assert!(sent(&path, json!(stale)).await.problem(409).contains("lease lost"), "{verb}");
        assert!(sent(&format!("jobs/{NO_ID}/{verb}"), json!(nobody)).await.problem(404).contains(NO_ID), "{verb}");
        sent(&format!("jobs/nonsense/{verb}"), json!(mine)).await.problem(404);
        let mut more = body.clone();
        (more["claim"], more["x"]) = (json!(mine), json!(1));
        server.api("POST", &path, more).await.problem(422);
    }
    for (verb, body, named) in [
        ("renew", json!({"lease_ms": 0}), "`lease_ms`"),
        ("renew", json!({"lease_ms": -5}), "`lease_ms`"),
        ("fail", json!({}), "`error` is missing"),
        ("fail", json!({"error": 7}), "`error`"),
        ("fail", json!({"error": "x", "retry_in_ms": -1}), "`retry_in_ms`"),
        ("fail", json!({"error": "x", "retry_in_ms": 9_000_000_000_000_000_000_u64}), "`retry_in_ms`"),
        ("fail", json!({"error": "x", "retry": false, "retry_in_ms": 1}), "`retry_in_ms`"),
        ("snooze", json!({}), "`for_ms` is missing"),
        ("snooze", json!({"for_ms": 9_000_000_000_000_000_000_u64}), "`for_ms`"),
        ("log", json!({}), "`lines` is missing"),
        ("log", json!({"lines": []}), "`lines` is missing or empty"),
        ("log", json!({"lines": ["x"]}), "`lines[0]` must be"),
        ("log", json!({"lines": [{"message": "a"}, {"level": "info"}]}), "`lines[1].message`"),
        ("log", json!({"lines": [{"message": "a", "level": "loud"}]}), "`lines[0].level`"),
        ("log", json!({"lines": [{"message": "a", "time": "now"}]}), "`lines[0].time`"),
    ] {
        let detail = server.under(&claimed[0], verb, body.clone()).await.problem(422);
        assert!(detail.starts_with(named), "{verb} {body}: {detail}");
    }
    assert_eq!(all(&server).await, before);
    let logs = server.api_ok("GET", &format!("jobs/{}/logs", ids[0]), Value::Null, 200).await;
    assert_eq!(logs["logs"], json!([]));
}

#[tokio::test]
async fn what_a_state_does_not_allow_is_refused_with_what_to_do() {
    let server = Server::start().await;
    let job = || server.send_job(json!({"handler": "h", "attempts_max": 1}));
    let (done, dead, runs, waits) = (job().await, job().await, job().await, job().await);
    let claimed = server.claim("h", 3).await;
    server.under_ok(&claimed[0], "complete", json!({})).await;
    server.under_ok(&claimed[1], "fail", json!({"error": "x"})).await;
    let cancelled = job().await;
    server.api_ok("POST", &format!("jobs/{cancelled}/cancel"), Value::Null, 200).await;
    let before = all(&server).await;
    for (id, verb, told) in [
        (&done, "cancel", "nothing is left to cancel"),
        (&dead, "cancel", "retry it, or skip it"),
        (&cancelled, "cancel", "cancelled already"),
        (&done, "retry", "send a new job"),
        (&runs, "retry", "it is running"),
        (&waits, "retry", "waits to run already"),
        (&cancelled, "retry", "send a new job"),
        (&runs, "skip", "cancel it instead"),
        (&waits, "skip", "cancel it instead"),
        (&dead, "skip", "holds nothing back"),
    ] {
        let detail = server.api("POST", &format!("jobs/{id}/{verb}"), Value::Null).await.problem(409);
        assert!(detail.contains(told), "{verb}: {detail}");
    }
    for verb in ["cancel", "retry", "skip"] {
        for unknown in [NO_ID, "nonsense", "00000000-0000-0000-0000-000000000000"] {
            server.api("POST", &format!("jobs/{unknown}/{verb}"), Value::Null).await.problem(404);
        }
        server.api("POST", &format!("jobs/{waits}/{verb}"), json!({"x": 1})).await.problem(422);
    }
    for path in [format!("jobs/{NO_ID}"), format!("jobs/{NO_ID}/logs"), "jobs/nonsense".into()] {
        server.api("GET", &path, Value::Null).await.problem(404);
    }
    assert_eq!(all(&server).await, before);
}

#[tokio::test]
async fn a_bulk_that_cannot_be_meant_does_nothing() {
    let server = Server::start().await;
    server.send_job(json!({"handler": "h"})).await;
    let before = all(&server).await;
    for (body, named) in [
        (json!({}), "`action` must be"),
        (json!({"action": "delete", "filter": {"handler": "h"}}), "`action` must be"),
        (json!({"action": "cancel"}), "`filter` is missing"),
        (json!({"action": "cancel", "filter": {}}), "`filter` is missing or empty"),
        (json!({"action": "cancel", "filter": {"handler": null}}), "`filter` is missing or empty"),
        (json!({"action": "cancel", "filter": []}), "`filter` must be a JSON object"),
        (json!({"action": "cancel", "filter": {"sate": "dead"}}), "`sate` is not a field"),
        (json!({"action": "cancel", "filter": {"state": "done"}}), "`state` has `done`"),
        (json!({"action": "cancel", "filter": {"handler": "a..b"}}), "`handler`"),
        (json!({"action": "cancel", "filter": {"object": ""}}), "`object`"),
        (json!({"action": "cancel", "filter": {"handler": "h"}, "dry_run": "no"}), "`dry_run` must be"),
    ] {
        let detail = server.api("POST", "jobs/bulk", body).await.problem(422);
        assert!(detail.starts_with(named), "{detail}");
    }
    for query in ["state=done", "handler=a..b", "object=", "after=7", "limit=0", "limit=1001", "x=1", "state="] {
        server.get(&format!("/v1/jobs?{query}")).await.problem(400);
    }
    assert_eq!(all(&server).await, before);
}

#[tokio::test]
async fn a_rule_that_cannot_be_is_refused() {
    let server = Server::start().await;
    server.api_ok("PUT", "rules/pause/handler:kept", Value::Null, 201).await;
    let before = all(&server).await;
    for path in [
        "stop/handler:h",
        "pause/h",
        "pause/queue:h",
        "pause/handler:",
        "pause/handler:a..b",
        "pause/handler:.a",
        "pause/object:",
        "pause/object:%00",
        "pause/object:%ff",
    ] {
        server.api("PUT", &format!("rules/{path}"), Value::Null).await.problem(400);
        server.api("DELETE", &format!("rules/{path}"), Value::Null).await.problem(400);
    }
    for (body, named) in [
        (json!({"expires_at": "2020-01-01T00:00:00Z"}), "`expires_at` is 2020-01-01T00:00:00Z, which has passed"),
        (json!({"expires_at": "soon"}), "`expires_at` is not a time"),
        (json!({"expires_in": "0s"}), "`expires_in`"),
        (json!({"expires_in": "-5m"}), "`expires_in`"),
        (json!({"expires_in": "99999999999d"}), "`expires_in`"),
        (json!({"expires_in": "5m", "expires_at": "2999-01-01T00:00:00Z"}), "`expires_in` stands beside"),
        (json!({"reason": ""}), "`reason` is empty"),
        (json!({"reason": "x".repeat(4_097)}), "`reason` has 4097 bytes"),
        (json!({"author": "me"}), "`author` is not a field"),
    ] {
        let detail = server.api("PUT", "rules/pause/handler:h", body).await.problem(422);
        assert!(detail.starts_with(named), "{detail}");
    }
    let none = server.api_ok("DELETE", "rules/block/handler:kept", Value::Null, 200).await;
    assert_eq!(none, json!({"lifted": false, "rule": null}));
    server.api("PUT", "rules/pause", Value::Null).await.problem(404);
    assert_eq!(all(&server).await, before);
}
