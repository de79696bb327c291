//! Every status that is described of tasks happens: see `openapi.rs`.

use crate::openapi::{JSON, NO_ID, TOKEN};
use crate::support::Server;
use std::collections::BTreeSet;

const EVER: &str = "start=2020-01-01T00:00:00Z&end=2999-01-01T00:00:00Z";

/// What each operation on tasks answers by itself.
pub async fn answer(server: &Server, seen: &mut BTreeSet<(String, String, u16)>) {
    let mut ask = async |method: &str, path: &str, target: &str, body: &str| {
        let answer = server.request(method, &format!("/tasks{target}"), &[TOKEN, JSON], body.as_bytes()).await;
        seen.insert((method.to_string(), format!("/tasks{path}"), answer.status));
        answer
    };
    let made = ask("POST", "", "?source=s&collection=c", "").await.json();
    let id = made["task_id"].as_str().unwrap().to_string();
    for (target, body) in [
        ("?source=s&collection=c", ""),
        ("?source=x&collection=c", ""),
        ("", ""),
        ("?source=s&collection=c", r#"{"x":1}"#),
    ] {
        ask("POST", "", target, body).await;
    }
    let backwards = "?source=s&start=2026-01-02T00:00:00Z&end=2026-01-01T00:00:00Z";
    for target in [&format!("?source=s&{EVER}"), &format!("?source=x&{EVER}"), "", backwards] {
        ask("GET", "", target, "").await;
    }
    let unknown = format!("s_c_{NO_ID}");
    for target in [format!("/{id}"), format!("/{unknown}"), format!("/{id}?x=1")] {
        ask("GET", "/{id}", &target, "").await;
    }
    for query in ["", "?x=1", "?start=2026-01-02T00:00:00Z&end=2026-01-01T00:00:00Z"] {
        ask("GET", "/{id}/logs", &format!("/{id}/logs{query}"), "").await;
    }
    ask("GET", "/{id}/logs", &format!("/{unknown}/logs"), "").await;
    // The second time it is over.
    for (target, body) in [
        (format!("/{id}/cancel"), ""),
        (format!("/{id}/cancel"), ""),
        (format!("/{unknown}/cancel"), ""),
        (format!("/{id}/cancel?x=1"), ""),
        (format!("/{id}/cancel"), r#"{"x":1}"#),
    ] {
        ask("POST", "/{id}/cancel", &target, body).await;
    }
}
