//! Every status that is described of jobs, rules and explanations happens: see `openapi.rs`.

use crate::openapi::{JSON, NO_ID, TOKEN};
use crate::support::Server;
use std::collections::BTreeSet;

/// What each operation on jobs, rules and explanations answers by itself.
pub async fn answer(server: &Server, seen: &mut BTreeSet<(String, String, u16)>) {
    let mut ask = async |method: &str, path: &str, target: &str, body: &str| {
        let answer = server.request(method, &format!("/v1{target}"), &[TOKEN, JSON], body.as_bytes()).await;
        seen.insert((method.to_string(), format!("/v1{path}"), answer.status));
        answer
    };
    let one = r#"{"handler":"j","unique_key":"k","attempts_max":1}"#;
    let id = ask("POST", "/jobs", "/jobs", one).await.json()["id"].as_str().unwrap().to_string();
    for body in [one, "{", "{}"] {
        ask("POST", "/jobs", "/jobs", body).await;
    }
    for (path, good, empty) in [
        ("/jobs/claim", r#"{"handlers":["j"]}"#, "{}"),
        ("/jobs/complete", r#"{"jobs":[]}"#, "{}"),
        ("/jobs/bulk", r#"{"action":"skip","filter":{"handler":"j"}}"#, "{}"),
    ] {
        for body in [empty, "{"] {
            ask("POST", path, path, body).await;
        }
        ask("POST", path, &format!("{path}?x=1"), good).await;
    }
    ask("POST", "/jobs/bulk", "/jobs/bulk", r#"{"action":"skip","filter":{"handler":"j"}}"#).await;
    for target in ["/jobs", "/jobs?x=1"] {
        ask("GET", "/jobs", target, "").await;
    }
    for target in [format!("/jobs/{id}"), format!("/jobs/{NO_ID}"), format!("/jobs/{id}?x=1")] {
        ask("GET", "/jobs/{id}", &target, "").await;
        ask(
            "GET",
            "/jobs/{id}/logs",
            &target.replace(&id, &format!("{id}/logs")).replace(NO_ID, &format!("{NO_ID}/logs")),
            "",
        )
        .await;
    }
    let claimed = ask("POST", "/jobs/claim", "/jobs/claim", r#"{"handlers":["j"]}"#).await.json();
    let claim = claimed["jobs"][0]["claim"].as_str().unwrap().to_string();
    let stale = claim.replacen("claim-1-", "claim-9-", 1);
    for (verb, more) in [
        ("renew", ""),
        ("log", r#","lines":[{"message":"x"}]"#),
        ("progress", r#","done":1"#),
        ("snooze", r#","for_ms":0"#),
        ("complete", ""),
        ("fail", r#","error":"x""#),
    ] {
        let path = format!("/jobs/{{id}}/{verb}");
        let body = |claim: &str| format!(r#"{{"claim":"{claim}"{more}}}"#);
        // Each settles a job of its own.
        let own =
            ask("POST", "/jobs", "/jobs", r#"{"handler":"own"}"#).await.json()["id"].as_str().unwrap().to_string();
        let claimed = ask("POST", "/jobs/claim", "/jobs/claim", r#"{"handlers":["own"],"limit":100}"#).await.json();
        let mine = claimed["jobs"].as_array().unwrap().iter().find(|job| job["id"] == *own).unwrap()["claim"].clone();
        ask("POST", &path, &format!("/jobs/{own}/{verb}"), &body(mine.as_str().unwrap())).await;
        ask("POST", &path, &format!("/jobs/{id}/{verb}"), &body(&stale)).await;
        ask("POST", &path, &format!("/jobs/{id}/{verb}"), &body("nonsense")).await;
        ask("POST", &path, &format!("/jobs/{id}/{verb}?x=1"), &body(&claim)).await;
        ask("POST", &path, &format!("/jobs/{NO_ID}/{verb}"), &body(&format!("claim-1-{NO_ID}-{:032}", 0))).await;
    }
    let many = format!(r#"{{"jobs":[{{"id":"{id}","claim":"{claim}"}}]}}"#);
    ask("POST", "/jobs/complete", "/jobs/complete", &many).await;
    let sent = ask("POST", "/jobs", "/jobs", r#"{"handler":"w","not_before":"2999-01-01T00:00:00Z"}"#).await.json();
    let waits = sent["id"].as_str().unwrap().to_string();
    let sent = ask("POST", "/jobs", "/jobs", r#"{"handler":"l","object":"l","attempts_max":1}"#).await.json();
    let dead = sent["id"].as_str().unwrap().to_string();
    let claimed = ask("POST", "/jobs/claim", "/jobs/claim", r#"{"handlers":["l"]}"#).await.json();
    let body = format!(r#"{{"claim":"{}","error":"x"}}"#, claimed["jobs"][0]["claim"].as_str().unwrap());
    ask("POST", "/jobs/{id}/fail", &format!("/jobs/{dead}/fail"), &body).await;
    for (verb, good) in [("retry", &waits), ("skip", &dead), ("cancel", &waits)] {
        let path = format!("/jobs/{{id}}/{verb}");
        // The second time its state does not allow it.
        for (target, body) in [
            (format!("/jobs/{good}/{verb}"), ""),
            (format!("/jobs/{good}/{verb}"), ""),
            (format!("/jobs/{NO_ID}/{verb}"), ""),
            (format!("/jobs/{good}/{verb}?x=1"), ""),
            (format!("/jobs/{good}/{verb}"), r#"{"x":1}"#),
        ] {
            ask("POST", &path, &target, body).await;
        }
    }
    for target in ["/rules", "/rules?x=1"] {
        ask("GET", "/rules", target, "").await;
    }
    let rule = "/rules/{kind}/{scope}";
    for body in ["", "", r#"{"x":1}"#, "{"] {
        ask("PUT", rule, "/rules/pause/object:a/b", body).await;
    }
    for target in ["/rules/pause/object:a/b", "/rules/pause/object:a/b", "/rules/x/y"] {
        ask("DELETE", rule, target, "").await;
    }
    for target in ["?object=o", "?object=", &format!("?job={NO_ID}"), "?schedule=s"] {
        ask("GET", "/explain", &format!("/explain{target}"), "").await;
    }
}
