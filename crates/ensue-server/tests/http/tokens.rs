//! Tokens: needed everywhere but where they cannot be, asked for before anything is read, and never shown.

use crate::support::Server;
use ensue_server::{HttpOptions, Tokens};
use std::io::Write;
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

async fn guarded(secrets: &[&str]) -> Server {
    Server::start_with(HttpOptions { tokens: Tokens::of(secrets), ..HttpOptions::default() }).await
}

const GUARDED: [(&str, &str); 9] = [
    ("POST", "/v1/events"),
    ("GET", "/v1/events"),
    ("GET", "/v1/events/1"),
    ("DELETE", "/v1/events/1"),
    ("GET", "/v1/events/stream"),
    ("GET", "/v1/objects/o/events"),
    ("GET", "/metrics"),
    ("GET", "/openapi.json"),
    ("GET", "/nothing/here"),
];

#[tokio::test]
async fn every_route_but_health_and_ready_needs_a_token() {
    let server = guarded(&["secret-1"]).await;
    for (method, target) in GUARDED {
        for headers in [&[][..], &["Authorization: Bearer wrong"], &["Authorization: Basic c2VjcmV0LTE="]] {
            let answer = server.request(method, target, headers, b"").await;
            let detail = answer.problem(401);
            assert!(detail.contains("Authorization: Bearer"), "{detail}");
            assert!(answer.headers["www-authenticate"].starts_with("Bearer realm"), "{method} {target}");
        }
    }
    // A wrong method does not get around it.
    server.request("PUT", "/v1/events", &[], b"").await.problem(401);
    for target in ["/health", "/ready"] {
        assert_eq!(server.get(target).await.status, 200);
    }
    assert_eq!(server.bounds().await.last, 0);
}

#[tokio::test]
async fn any_of_the_tokens_opens() {
    let server = guarded(&["secret-1", "secret-2"]).await;
    for token in ["secret-1", "secret-2"] {
        let headers = [&format!("Authorization: Bearer {token}"), "Content-Type: application/json"];
        assert_eq!(server.request("POST", "/v1/events", &headers, b"{\"topic\":\"a\"}").await.status, 201);
    }
    assert_eq!(server.bounds().await.last, 2);
}

/// S5: who has no token cannot make the server read a body. This one announces a body and never sends it.
#[tokio::test]
async fn a_token_is_checked_before_the_body_is_read() {
    let server = guarded(&["secret-1"]).await;
    let mut connection = TcpStream::connect(server.address).await.unwrap();
    let head =
        "POST /v1/events HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n";
    connection.write_all(head.as_bytes()).await.unwrap();
    let mut answer = [0; 12];
    let read = tokio::time::timeout(crate::support::PATIENCE, connection.read_exact(&mut answer));
    read.await.expect("the server waits for the body").unwrap();
    assert_eq!(&answer, b"HTTP/1.1 401");
}

/// Everything that is logged in this process.
#[derive(Clone, Default)]
struct Logged(Arc<Mutex<Vec<u8>>>);

impl Write for Logged {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// S7: a canary secret is searched for in logs, answers and figures.
#[tokio::test]
async fn a_token_appears_in_no_log_no_answer_and_no_figure() {
    const CANARY: &str = "canary-4f1e7c";
    const WRONG: &str = "canary-wrong-9a";
    let logged = Logged::default();
    let writer = logged.clone();
    tracing_subscriber::fmt().with_max_level(tracing::Level::TRACE).with_writer(move || writer.clone()).init();

    let options = HttpOptions { tokens: Tokens::of([CANARY]), ..HttpOptions::default() };
    tracing::info!("options: {options:?}");
    let server = Server::start_with(options).await;
    let mut seen = String::new();
    for (method, target) in GUARDED.into_iter().filter(|(_, target)| !target.ends_with("stream")) {
        for token in [CANARY, WRONG] {
            for line in [format!("Authorization: Bearer {token}"), format!("Authorization: {token}")] {
                let answer = server.request(method, target, &[&line, "Content-Type: application/json"], b"{}").await;
                seen.push_str(&format!("{:?}\n{}\n", answer.headers, answer.text()));
            }
        }
    }
    let figures = server.request("GET", "/metrics", &[&format!("Authorization: Bearer {CANARY}")], b"").await;
    assert!(figures.text().contains("ensue_http_requests_total{"), "{}", figures.text());
    seen.push_str(&figures.text());
    seen.push_str(&String::from_utf8_lossy(&logged.0.lock().unwrap()));
    assert!(seen.contains("options: HttpOptions"), "logs are captured");
    assert!(!seen.contains("canary"), "{seen}");
}
