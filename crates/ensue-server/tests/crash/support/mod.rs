//! What do clients see of a server that is killed again and again?
//!
//! Clients publish small batches over HTTP and write down what was answered. Half of them name every event by a key and
//! send a batch again until it is answered; for the others an answer that never came stays unknown. A reader follows
//! the log from its beginning with `ensue tail` through all of it.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

pub mod sql;

pub use super::cli_support::PATIENCE;
use super::cli_support::{Lines, Server, ensue};
use ensue::chain::Audit;
use ensue::{Ensue, Event, EventId, Filter, ObjectKey, Options, Read, Seq};
use ensue_conformance::history::{self, Answer, Call, Outcome, Seen};
use serde::Deserialize;
use serde_json::{Value, json};
use sql::SqlLoad;
use std::collections::{BTreeSet, HashMap};
use std::net::TcpListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::task::JoinHandle;

/// How many clients publish at once.
const CLIENTS: usize = 12;
/// How many objects they publish about.
const OBJECTS: usize = 25;
/// How many calls must be answered between two kills, so that every life of the server has seen load.
const CALLS_PER_LIFE: u64 = 40;
/// How soon a killed server must answer again.
const RESTART_MAX: Duration = Duration::from_secs(2);

/// How many times to kill: `ENSUE_KILLS`, or 30.
fn kills() -> usize {
    std::env::var("ENSUE_KILLS").map_or(30, |text| text.parse().expect("ENSUE_KILLS is a number"))
}

/// A port for a server that comes back on it. Below the range that the kernel gives to outgoing connections: a client
/// that tries to connect while nobody listens must not get the port for itself.
fn steady_port() -> u16 {
    (0..200)
        .map(|_| 20_000 + rand::random::<u16>() % 10_000)
        .find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok())
        .expect("a free port")
}

/// Starts the server and measures how long it takes until it is ready.
pub async fn start_ready(folder: &Path, port: u16, store: &str) -> (Server, Duration) {
    let listen = format!("127.0.0.1:{port}");
    let begun = Instant::now();
    let mut command = ensue(folder, &["serve", "--listen", &listen, "--store", store]);
    let server = tokio::task::block_in_place(|| Server::start_with(&mut command, folder));
    let client = client();
    loop {
        let ready = client.get(format!("{}/ready", server.url)).send().await;
        if ready.is_ok_and(|answer| answer.status().is_success()) {
            return (server, begun.elapsed());
        }
        assert!(begun.elapsed() < PATIENCE, "the server is not ready");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// A server under load that is about to lose something: its life, or its database.
pub struct Scene {
    folder: TempDir,
    port: u16,
    store: String,
    pub server: Server,
    pub load: Load,
    reader: Lines,
    /// Those who publish in transactions of their own.
    pub sql: Option<SqlLoad>,
    /// When something was killed, on the clients' clock.
    killed_at: Vec<Duration>,
}

impl Scene {
    /// Starts the server in the folder, clients and a reader.
    pub async fn begin(folder: TempDir, store: String) -> Self {
        let port = steady_port();
        let (server, _) = start_ready(folder.path(), port, &store).await;
        let reader = reader(folder.path(), port);
        Self { folder, port, store, server, load: Load::start(port), reader, sql: None, killed_at: Vec::new() }
    }

    /// The moment for a kill: at random, after some load.
    pub async fn moment(&mut self) {
        self.load.answered_more(CALLS_PER_LIFE + rand::random::<u64>() % CALLS_PER_LIFE).await;
        self.killed_at.push(self.load.begun.elapsed());
    }

    /// Shows that nothing was lost.
    pub async fn end(self) {
        self.load.answered_more(CALLS_PER_LIFE).await;
        let begun = self.load.begun;
        let mut calls = self.load.end().await;
        if self.sql.is_some() {
            // What was committed before is in the log before this one.
            calls.push(last_call(self.port, begun).await);
        }
        judge(&self.store, calls, self.sql, &self.killed_at, self.reader).await;
        assert!(self.server.terminate().success());
    }
}

/// kill -9 of the server under concurrent load, again and again: nothing acknowledged is lost, and it is soon back.
pub async fn kill_the_server_again_and_again(folder: TempDir, store: String) {
    let mut scene = Scene::begin(folder, store).await;
    let mut restarts = Vec::new();
    for _ in 0..kills() {
        scene.moment().await;
        scene.server.kill9();
        let (next, took) = start_ready(scene.folder.path(), scene.port, &scene.store).await;
        scene.server = next;
        restarts.push(took);
    }
    scene.end().await;
    assert_restarts_quick(restarts);
}

pub fn client() -> reqwest::Client {
    // The first one in the process installs it; the others find it there.
    rustls::crypto::ring::default_provider().install_default().ok();
    reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(20)).build().unwrap()
}

/// Clients that publish until they are told to stop.
pub struct Load {
    begun: Instant,
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    calls: Arc<Mutex<Vec<Call>>>,
    clients: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(port: u16) -> Self {
        let (stop, answered, calls) = (Arc::new(AtomicBool::new(false)), Arc::default(), Arc::default());
        let begun = Instant::now();
        let clients = (0..CLIENTS)
            .map(|name| {
                let publisher = Publisher {
                    name,
                    url: format!("http://127.0.0.1:{port}/v1/events"),
                    client: client(),
                    begun,
                    stop: stop.clone(),
                    answered: Arc::clone(&answered),
                    calls: Arc::clone(&calls),
                };
                tokio::spawn(publisher.run())
            })
            .collect();
        Self { begun, stop, answered, calls, clients }
    }

    /// Waits until so many more calls were answered.
    pub async fn answered_more(&self, count: u64) {
        let until = self.answered.load(Ordering::SeqCst) + count;
        let begun = Instant::now();
        while self.answered.load(Ordering::SeqCst) < until {
            assert!(begun.elapsed() < PATIENCE, "the server does not answer any more");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    /// Ends the load while the server runs, and answers with what the clients know.
    async fn end(self) -> Vec<Call> {
        self.stop.store(true, Ordering::SeqCst);
        for client in self.clients {
            client.await.unwrap();
        }
        std::mem::take(&mut *self.calls.lock().unwrap())
    }
}

/// One client.
struct Publisher {
    name: usize,
    url: String,
    client: reqwest::Client,
    begun: Instant,
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    calls: Arc<Mutex<Vec<Call>>>,
}

#[derive(Deserialize)]
struct WireAnswer {
    id: EventId,
    seq: Seq,
    prev: Option<Seq>,
}

#[derive(Deserialize)]
struct WireAnswers {
    events: Vec<WireAnswer>,
}

impl Publisher {
    async fn run(self) {
        let keyed = self.name.is_multiple_of(2);
        for number in 0.. {
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            let size = 1 + (number + self.name) % 3;
            let tokens: Vec<String> = (0..size).map(|index| format!("{}-{number}-{index}", self.name)).collect();
            let events: Vec<Value> = tokens.iter().map(|token| self.event(token, keyed)).collect();
            let began = self.begun.elapsed();
            // With keys a batch is sent until it is answered: one call, from the first attempt to the answer.
            let outcome = loop {
                let outcome = send(&self.client, &self.url, &events).await;
                if outcome != Outcome::Unknown {
                    break outcome;
                }
                // Somebody is dead; asking again at once would only burn the time that the restart needs.
                tokio::time::sleep(Duration::from_millis(10)).await;
                if !keyed {
                    break outcome;
                }
            };
            if matches!(outcome, Outcome::Acknowledged(_)) {
                self.answered.fetch_add(1, Ordering::SeqCst);
            }
            let call = Call { began, ended: self.begun.elapsed(), tokens, outcome };
            self.calls.lock().unwrap().push(call);
        }
    }

    fn event(&self, token: &str, keyed: bool) -> Value {
        let mut event = json!({ "topic": "crash.test", "payload": { "token": token } });
        if rand::random::<bool>() {
            event["object"] = format!("object:{}", rand::random::<u32>() as usize % OBJECTS).into();
        }
        if keyed {
            event["key"] = token.into();
        }
        event
    }
}

async fn send(client: &reqwest::Client, url: &str, events: &[Value]) -> Outcome {
    let request = client.post(url).json(&events).send();
    let Ok(response) = request.await else { return Outcome::Unknown };
    let status = response.status();
    let Ok(text) = response.text().await else { return Outcome::Unknown };
    if status.is_server_error() {
        return Outcome::Unknown;
    }
    assert!(status.is_success(), "good events were refused: {status} {text}");
    let answers: WireAnswers = serde_json::from_str(&text).unwrap();
    let answer = |wire: WireAnswer| Answer { id: wire.id, seq: wire.seq, prev: wire.prev };
    Outcome::Acknowledged(answers.events.into_iter().map(answer).collect())
}

/// Follows the log with `ensue tail`, through every death of the server.
fn reader(folder: &Path, port: u16) -> Lines {
    let url = format!("http://127.0.0.1:{port}");
    Lines::of(&mut ensue(folder, &["tail", "--from-beginning", "--json", "--url", &url]))
}

fn token(payload: &Value) -> String {
    payload["token"].as_str().expect("every event has a token").to_string()
}

/// One more publish, when everybody else has ended.
async fn last_call(port: u16, begun: Instant) -> Call {
    let url = format!("http://127.0.0.1:{port}/v1/events");
    let (token, began) = ("last".to_string(), begun.elapsed());
    let event = json!({ "topic": "crash.test", "payload": { "token": &token } });
    let outcome = send(&client(), &url, &[event]).await;
    assert!(matches!(outcome, Outcome::Acknowledged(_)), "{outcome:?}");
    Call { began, ended: begun.elapsed(), tokens: vec![token], outcome }
}

/// What was committed in plain SQL as calls: what was acknowledged is in the log, under its id. A row is there exactly if its event is.
async fn calls_of(sql: SqlLoad, log: &[Seen]) -> Vec<Call> {
    let by_id: HashMap<EventId, &Seen> = log.iter().map(|seen| (seen.id, seen)).collect();
    let events: BTreeSet<String> =
        log.iter().filter(|seen| seen.token.starts_with("sql-")).map(|seen| seen.token.clone()).collect();
    let rows = sql.rows().await;
    assert_eq!(
        rows.symmetric_difference(&events).collect::<Vec<_>>(),
        [""; 0],
        "a row without its event, or the other way round"
    );
    let committed = std::mem::take(&mut *sql.committed.lock().unwrap());
    let acknowledged = committed.iter().filter(|committed| committed.id.is_some()).count();
    println!("{acknowledged} transactions committed, {} never answered", committed.len() - acknowledged);
    let call = |committed: sql::Committed| {
        let answer = |id| {
            let seen = by_id.get(&id).unwrap_or_else(|| panic!("committed and lost: {}", committed.token));
            Outcome::Acknowledged(vec![Answer { id, seq: seen.seq, prev: seen.prev }])
        };
        let outcome = committed.id.map_or(Outcome::Unknown, answer);
        Call { began: committed.began, ended: committed.ended, tokens: vec![committed.token.clone()], outcome }
    };
    committed.into_iter().map(call).collect()
}

/// Reads the whole log from the store and holds it against what the clients and the reader know. `kills` are the times
/// of the kills: calls must have been under way then, or the test has shown nothing.
async fn judge(store: &str, mut calls: Vec<Call>, sql: Option<SqlLoad>, kills: &[Duration], reader: Lines) {
    let bus = Ensue::open_with(store, Options { read_only: true, ..Options::default() }).await.unwrap();
    let bounds = bus.store().bounds().await.unwrap();
    let (mut log, mut faults, mut audit, mut after) = (Vec::new(), Vec::new(), Audit::from(1), 0);
    loop {
        let page = bus.store().read(Read { after, limit: 1_000, filter: Filter::default() }).await.unwrap();
        if page.next == after {
            break;
        }
        after = page.next;
        for event in &page.events {
            audit.see(event, &mut faults);
            log.push(seen(event));
        }
    }
    audit.end(bounds.last, &mut faults);
    bus.close().await;
    assert_eq!(faults, [], "the chain does not verify");
    if let Some(sql) = sql {
        calls.extend(calls_of(sql, &log).await);
    }
    assert_eq!(history::check(&calls, &log, 1), []);

    let acknowledged = calls.iter().filter(|call| matches!(call.outcome, Outcome::Acknowledged(_))).count();
    let unknown = calls.iter().filter(|call| call.outcome == Outcome::Unknown).count();
    println!("{} events; {acknowledged} calls acknowledged, {unknown} never answered", log.len());
    let under_way = |kill: &Duration| calls.iter().any(|call| call.began < *kill && *kill < call.ended);
    assert!(kills.iter().all(under_way), "a kill hit nobody: the load was not concurrent with it");

    // The reader printed each event as it came; it has all of them when it has the last.
    let mut stream = Vec::new();
    while stream.last().map(|seen: &Seen| seen.seq) != Some(bounds.last) {
        let line = tokio::task::block_in_place(|| reader.next());
        let event: Value = serde_json::from_str(&line).unwrap();
        assert!(event["gap"].is_null(), "the reader was told of a gap: {line}");
        stream.push(Seen {
            id: serde_json::from_value(event["id"].clone()).unwrap(),
            seq: event["seq"].as_u64().unwrap(),
            prev: event["prev"].as_u64(),
            object: event["object"].as_str().map(|object| ObjectKey::parse(object).unwrap()),
            token: token(&event["payload"]),
        });
    }
    assert_eq!(history::check_stream(&log, &stream, 0), []);
}

fn seen(event: &Event) -> Seen {
    let payload = serde_json::from_str(event.payload.as_str()).unwrap();
    Seen { id: event.id, seq: event.seq, prev: event.prev, object: event.object.clone(), token: token(&payload) }
}

/// Nine in ten restarts are within the bound. What makes a restart slow by our own fault (a recovery that grows with the
/// log, a lock that outlives its holder) makes them all slow; on a machine that is shared with others a single one may
/// wait for the disk or a processor, and says nothing about us. The worst one is printed.
fn assert_restarts_quick(mut took: Vec<Duration>) {
    took.sort();
    let (median, most, worst) = (took[took.len() / 2], took[(took.len() * 9).div_ceil(10) - 1], took[took.len() - 1]);
    println!(
        "{} restarts: ready after {median:?} in the median, {most:?} nine times in ten, {worst:?} at worst",
        took.len()
    );
    assert!(most <= RESTART_MAX, "nine in ten restarts took up to {most:?}");
}
