//! Requests that a page of another origin can send are refused, with and without tokens (`cli/browser` has the pages).

use crate::support::Server;
use ensue_server::{Hosts, HttpOptions, Tokens};

/// Every method and path that the server describes, with a word for each parameter.
async fn operations(server: &Server) -> Vec<(String, String)> {
    let described = server.get("/openapi.json").await.json();
    let mut operations = Vec::new();
    for (path, methods) in described["paths"].as_object().unwrap() {
        let path: Vec<&str> = path.split('/').map(|part| if part.starts_with('{') { "x" } else { part }).collect();
        for method in methods.as_object().unwrap().keys() {
            operations.push((method.to_uppercase(), path.join("/")));
        }
    }
    assert!(operations.len() > 50, "{operations:?}");
    operations
}

#[tokio::test]
async fn every_route_refuses_another_origin() {
    let server = Server::start().await;
    for (method, path) in operations(&server).await {
        for header in
            ["Origin: http://evil.test", "Origin: null", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site"]
        {
            let detail = server.request(&method, &path, &[header], b"").await.problem(403);
            assert!(detail.contains("another origin"), "{method} {path}: {detail}");
        }
    }
    server.request("OPTIONS", "/v1/events", &["Origin: http://evil.test"], b"").await.problem(403);
    server.request("GET", "/nothing/here", &["Origin: http://evil.test"], b"").await.problem(403);
}

#[tokio::test]
async fn every_write_needs_what_a_form_cannot_send() {
    let server = Server::start().await;
    let writes = operations(&server).await.into_iter().filter(|(method, _)| method != "GET");
    for (method, path) in writes {
        for kind in ["", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=b"] {
            let header = format!("Content-Type: {kind}");
            let detail = server.request(&method, &path, &[&header], b"").await.problem(415);
            assert!(detail.contains("-H 'Content-Type: application/json'"), "{method} {path}: {detail}");
        }
        for header in ["Content-Type: application/json", "X-Requested-With: x\r\nContent-Type: text/plain"] {
            let answer = server.request(&method, &path, &[header], b"").await;
            let is_admitted = answer.status != 415 || !answer.text().contains("-H 'Content-Type");
            assert!(is_admitted, "{method} {path}: {}", answer.text());
        }
    }
}

#[tokio::test]
async fn token_does_not_admit_another_origin() {
    let options = HttpOptions { tokens: Tokens::of(["secret-1"]), ..HttpOptions::default() };
    let server = Server::start_with(options).await;
    let token = "Authorization: Bearer secret-1";
    for header in ["Origin: http://evil.test", "Sec-Fetch-Site: cross-site"] {
        server.request("GET", "/v1/events", &[token, header], b"").await.problem(403);
        server.request("POST", "/v1/schedules/x/run", &[token, header], b"").await.problem(403);
    }
    // A token is proof enough for a write without a body.
    let answer = server.request("DELETE", "/v1/groups/x", &[token, "Content-Type: text/plain"], b"").await;
    assert_eq!(answer.status, 404, "{}", answer.text());
}

#[tokio::test]
async fn without_tokens_only_own_names_are_answered() {
    let server =
        Server::start_with(HttpOptions { hosts: Hosts::local("127.0.0.1:4747"), ..HttpOptions::default() }).await;
    for (method, path) in operations(&Server::start().await).await {
        // The requests of this test have the host `test`.
        let detail = server.request(&method, &path, &[], b"").await.problem(421);
        assert!(detail.contains("localhost") && detail.contains("--token-file"), "{detail}");
    }
    let request = |host: &str| format!("GET /health HTTP/1.1\r\n{host}Connection: close\r\n\r\n");
    for own in ["Host: localhost\r\n", "Host: 127.0.0.1:1\r\n", "Host: [::1]:80\r\n"] {
        assert_eq!(server.send(request(own).as_bytes()).await.status, 200, "{own}");
    }
    for foreign in ["", "Host: evil.test\r\n", "Host: localhost\r\nHost: evil.test\r\n"] {
        server.send(request(foreign).as_bytes()).await.problem(421);
    }
}
