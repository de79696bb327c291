//! Properties of all answers and all paths.

use crate::support::{Answer, Server};
use serde_json::Value;

/// Every described path with values for its parameters, and whether it can be read with GET.
async fn paths(server: &Server) -> Vec<(String, bool)> {
    let description = server.get("/openapi.json").await.json();
    let filled = |path: &str| {
        let path = path.replace("{place}", "1").replace("{kind}", "pause").replace("{scope}", "object:o");
        let path = path.replace("{id}", "0190a5a0-0000-7000-8000-000000000001");
        path.split('/').map(|part| if part.starts_with('{') { "x" } else { part }).collect::<Vec<_>>().join("/")
    };
    let paths = description["paths"].as_object().unwrap().iter();
    paths.map(|(path, item)| (filled(path), item.get("get").is_some())).collect()
}

fn is_json(answer: &Answer) -> bool {
    answer.headers.get("content-type").is_some_and(|kind| kind.ends_with("json"))
}

/// A terminal's next prompt, and `cat` of several answers, begin on a line of their own.
#[tokio::test]
async fn every_json_answer_ends_with_a_newline() {
    let server = Server::start().await;
    server.publish("a", Some("o")).await;
    for (path, _) in paths(&server).await {
        for method in ["GET", "POST", "PUT", "DELETE"] {
            if (method, path.as_str()) == ("GET", "/v1/events/stream") {
                continue;
            }
            let answer = server.request(method, &path, &["content-type: application/json"], b"{}").await;
            let text = answer.text();
            assert!(!is_json(&answer) || text.ends_with('\n') && !text.ends_with("\n\n"), "{method} {path}: {text:?}");
        }
    }
    let broken = server.send(b"GET /\xff HTTP/1.1\r\nHost: test\r\n\r\n").await;
    assert!(is_json(&broken) && broken.text().ends_with('\n'), "{}", broken.text());
}

#[tokio::test]
async fn every_path_may_end_with_a_slash() {
    let server = Server::start().await;
    server.publish("a", Some("o")).await;
    for (path, readable) in paths(&server).await {
        if !readable || ["/metrics", "/v1/events/stream"].contains(&path.as_str()) {
            continue;
        }
        let (plain, slash) = (server.get(&path).await, server.get(&format!("{path}/")).await);
        assert_eq!((plain.status, plain.text()), (slash.status, slash.text()), "{path}");
    }
    let query = server.get("/v1/events/?limit=1&topic=a").await.json();
    assert_eq!(query["events"][0]["seq"], 1);
    let posted = server.request("POST", "/v1/events/", &["content-type: application/json"], br#"{"topic":"a"}"#).await;
    assert_eq!(posted.status, 201, "{}", posted.text());
    server.request("PATCH", "/v1/events/", &["content-type: application/json"], b"").await.problem(405);
    let figures = server.get("/metrics/").await.text();
    assert!(
        figures.contains(r#"ensue_http_requests_total{method="POST",path="/v1/events",status="201"}"#),
        "{figures}"
    );
}

/// The scope of a rule is the rest of the path, whatever it is.
#[tokio::test]
async fn the_slash_of_a_scope_belongs_to_it() {
    let server = Server::start().await;
    let target = "/v1/rules/pause/object:folder/";
    let rule: Value = server.request("PUT", target, &["content-type: application/json"], b"{}").await.json();
    assert_eq!(rule["scope"], "object:folder/");
    assert_eq!(server.delete(target).await.status, 200);
}
