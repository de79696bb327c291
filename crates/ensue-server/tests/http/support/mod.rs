//! How do tests talk to a server?
//!
//! Over a real socket and in plain bytes, so that requests no client library would send can be sent too.

#![allow(dead_code, reason = "each test binary uses a part of this")]

pub mod claims;
pub mod defined;
pub mod groups;
pub mod jobs;
pub mod moody;
pub mod tasks;

use ensue::{Bounds, Ensue, NewEvent, Seq};
use ensue_server::http::{ConnectionLimits, serve};
use ensue_server::{HttpOptions, router_with};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

/// Longer than anything here takes, unless it hangs.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A server on a port of its own.
pub struct Server {
    pub bus: Ensue,
    pub address: SocketAddr,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// What came back.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Answer {
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {:?}", self.text()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The `detail` of a refusal; fails if it is not a well-formed one with this status.
    #[track_caller]
    pub fn problem(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", self.text());
        assert_eq!(self.headers["content-type"], "application/problem+json");
        let problem = self.json();
        assert_eq!(problem["status"], status);
        assert!(problem["type"].as_str().is_some_and(|text| text.starts_with("urn:ensue:problem:")), "{problem}");
        assert!(problem["title"].is_string(), "{problem}");
        problem["detail"].as_str().unwrap().to_string()
    }
}

impl Server {
    /// A server on an empty log in memory.
    pub async fn start() -> Self {
        Self::start_with(HttpOptions::default()).await
    }

    pub async fn start_with(options: HttpOptions) -> Self {
        Self::serve(Ensue::open("sqlite::memory:").await.unwrap(), options).await
    }

    pub async fn serve(bus: Ensue, options: HttpOptions) -> Self {
        Self::serve_router(bus.clone(), router_with(bus, options)).await
    }

    pub async fn serve_router(bus: Ensue, router: axum::Router) -> Self {
        Self::serve_limited(bus, router, ConnectionLimits::default()).await
    }

    pub async fn serve_limited(bus: Ensue, router: axum::Router, limits: ConnectionLimits) -> Self {
        Self::serve_at(TcpListener::bind("127.0.0.1:0").await.unwrap(), bus, router, limits)
    }

    pub fn serve_at(listener: TcpListener, bus: Ensue, router: axum::Router, limits: ConnectionLimits) -> Self {
        let address = listener.local_addr().unwrap();
        let never = tokio::sync::watch::channel(false).1;
        let task = tokio::spawn(serve(listener, router, limits, never));
        Self { bus, address, task }
    }

    pub async fn bounds(&self) -> Bounds {
        self.bus.store().bounds().await.unwrap()
    }

    /// How many streams are open, by the figures of the process: a test that asks has it to itself.
    pub async fn open_streams(&self) -> i64 {
        let figures = self.get("/metrics").await.text();
        let line = figures.lines().find(|line| line.starts_with("ensue_streams ")).unwrap_or("ensue_streams 0");
        line["ensue_streams ".len()..].parse().unwrap()
    }

    /// Waits until so many streams are open.
    pub async fn until_streams_are(&self, count: i64) {
        tokio::time::timeout(PATIENCE, async { while self.open_streams().await != count {} })
            .await
            .expect("the number of open streams is another");
    }

    /// Waits until the figures are as they should be: what the store does not tell in time is left out of them.
    pub async fn until_figures(&self, are: impl Fn(&str) -> bool) {
        let looked = async {
            loop {
                let figures = self.get("/metrics").await.text();
                if are(&figures) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, looked).await.is_err() {
            panic!("the figures are others: {}", self.get("/metrics").await.text());
        }
    }

    pub async fn publish(&self, topic: &str, object: Option<&str>) -> Seq {
        let event = NewEvent::new(topic);
        let event = match object {
            Some(object) => event.object(object),
            None => event,
        };
        self.bus.publish(event).await.unwrap().seq.unwrap()
    }

    /// Sends bytes as they are and reads the answer until the server closes.
    pub async fn send(&self, request: &[u8]) -> Answer {
        tokio::time::timeout(PATIENCE, async {
            let mut connection = TcpStream::connect(self.address).await.unwrap();
            connection.write_all(request).await.unwrap();
            let mut answer = Vec::new();
            connection.read_to_end(&mut answer).await.unwrap();
            parse(&answer)
        })
        .await
        .expect("the server did not answer in time")
    }

    /// Sends a request with a body; `headers` are lines without their ends.
    pub async fn request(&self, method: &str, target: &str, headers: &[&str], body: &[u8]) -> Answer {
        self.send(&request(method, target, headers, body)).await
    }

    pub async fn get(&self, target: &str) -> Answer {
        self.request("GET", target, &[], b"").await
    }

    pub async fn delete(&self, target: &str) -> Answer {
        self.request("DELETE", target, &[], b"").await
    }

    pub async fn post(&self, body: &str) -> Answer {
        self.post_as("application/json", body.as_bytes()).await
    }

    pub async fn post_as(&self, content_type: &str, body: &[u8]) -> Answer {
        self.request("POST", "/v1/events", &[&format!("Content-Type: {content_type}")], body).await
    }

    /// Opens the stream of events and reads its head.
    pub async fn stream(&self, query: &str, headers: &[&str]) -> Sse {
        self.sse(&format!("/v1/events/stream{query}"), headers).await
    }

    /// Opens a stream and reads its head.
    pub async fn sse(&self, target: &str, headers: &[&str]) -> Sse {
        let mut connection = TcpStream::connect(self.address).await.unwrap();
        // Version 1.0 gets a body without chunks.
        let head = request("GET", target, headers, b"");
        let head = String::from_utf8(head).unwrap().replacen("HTTP/1.1", "HTTP/1.0", 1);
        connection.write_all(head.as_bytes()).await.unwrap();
        let mut stream = Sse { lines: BufReader::new(connection) };
        assert!(stream.line().await.unwrap().ends_with("200 OK"));
        let mut head = String::new();
        while let Some(line) = stream.line().await
            && !line.is_empty()
        {
            head.push_str(&line.to_ascii_lowercase());
            head.push('\n');
        }
        assert!(head.contains("content-type: text/event-stream"), "{head}");
        stream
    }
}

/// A value as a query takes it.
pub fn encoded(value: &str) -> String {
    value
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'_' | b'-' => (byte as char).to_string(),
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

/// A condition as a query takes it.
pub fn condition(condition: &str, params: Option<&str>) -> String {
    let params = params.map(|params| format!("&params={}", encoded(params))).unwrap_or_default();
    format!("where={}{params}", encoded(condition))
}

fn request(method: &str, target: &str, headers: &[&str], body: &[u8]) -> Vec<u8> {
    let mut head = format!("{method} {target} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n");
    for header in headers {
        head.push_str(header);
        head.push_str("\r\n");
    }
    let has_type = headers.iter().any(|header| header.to_ascii_lowercase().starts_with("content-type:"));
    if body.is_empty() && matches!(method, "POST" | "PUT" | "DELETE") && !has_type {
        head.push_str("Content-Type: application/json\r\n");
    }
    if !body.is_empty() || method == "POST" {
        head.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    let mut request = head.into_bytes();
    request.extend_from_slice(body);
    request
}

pub fn parse(answer: &[u8]) -> Answer {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n").expect("an answer has a head");
    let head = String::from_utf8(answer[..end].to_vec()).unwrap();
    let mut lines = head.split("\r\n");
    let status = lines.next().unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    let headers: BTreeMap<_, _> = lines
        .map(|line| line.split_once(':').unwrap())
        .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_string()))
        .collect();
    assert!(!headers.contains_key("transfer-encoding"), "use `stream` for answers in chunks");
    Answer { status, headers, body: answer[end + 4..].to_vec() }
}

/// An open stream of server-sent events.
pub struct Sse {
    lines: BufReader<TcpStream>,
}

/// One block of a stream: an event, or comments.
#[derive(Debug, Default, Clone, PartialEq)]
pub struct Block {
    pub id: Option<Seq>,
    pub event: String,
    pub data: Value,
    pub comment: String,
}

impl Sse {
    async fn line(&mut self) -> Option<String> {
        let mut line = String::new();
        let read =
            tokio::time::timeout(PATIENCE, self.lines.read_line(&mut line)).await.expect("the stream fell silent");
        (read.unwrap() > 0).then(|| line.trim_end_matches(['\r', '\n']).to_string())
    }

    /// The next event; none at the end of the stream, or where it was cut off.
    pub async fn event_or_broken(&mut self) -> Option<Block> {
        let mut block = Vec::new();
        while !block.ends_with(b"\n\n") {
            let read = tokio::time::timeout(PATIENCE, self.lines.read_until(b'\n', &mut block)).await;
            if !matches!(read.expect("the stream fell silent"), Ok(1..)) {
                return None;
            }
            if block.starts_with(b":") && block.ends_with(b"\n\n") {
                block.clear();
            }
        }
        let text = String::from_utf8(block).unwrap();
        let id = text.lines().find_map(|line| line.strip_prefix("id: ")).map(|id| id.parse().unwrap());
        Some(Block { id, ..Block::default() })
    }

    /// The next block, comments included; none at the end of the stream.
    pub async fn block(&mut self) -> Option<Block> {
        let mut block = Block::default();
        loop {
            let line = self.line().await?;
            match line.split_once(": ").unwrap_or((&line, "")) {
                ("", "") => return Some(block),
                ("", comment) => block.comment.push_str(comment),
                ("id", id) => block.id = Some(id.parse().unwrap()),
                ("event", event) => block.event = event.to_string(),
                ("data", data) => block.data = serde_json::from_str(data).unwrap(),
                other => panic!("unexpected field {other:?}"),
            }
        }
    }

    /// The next block that is not a comment.
    pub async fn event(&mut self) -> Option<Block> {
        loop {
            let block = self.block().await?;
            if block.comment.is_empty() {
                return Some(block);
            }
        }
    }
}
