//! Resuming a stream as a browser does: with the last event ID that the WHATWG parser remembers.

use crate::support::{PATIENCE, Server};
use ensue::Ensue;
use ensue_server::HttpOptions;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// An `EventSource` as the HTML standard describes it (section 9.2, server-sent events).
#[derive(Default)]
pub struct EventSource {
    /// The field that a reconnect sends as `Last-Event-ID`.
    pub last_event_id: String,
    id_buffer: String,
    event_buffer: String,
    data_buffer: String,
    connection: Option<TcpStream>,
    unread: String,
}

/// An event that the parser dispatched: `type` and `data`.
pub type Dispatched = (String, String);

impl EventSource {
    pub async fn connect(&mut self, server: &Server, query: &str) {
        let mut connection = TcpStream::connect(server.address).await.unwrap();
        let resume = match self.last_event_id.as_str() {
            "" => String::new(),
            id => format!("Last-Event-ID: {id}\r\n"),
        };
        let head = format!("GET /v1/events/stream{query} HTTP/1.0\r\nHost: {}\r\n{resume}\r\n", server.address);
        connection.write_all(head.as_bytes()).await.unwrap();
        self.connection = Some(connection);
        self.unread.clear();
        while self.line().await.is_some_and(|line| !line.is_empty()) {}
        (self.event_buffer, self.data_buffer) = Default::default();
        self.id_buffer.clone_from(&self.last_event_id);
    }

    async fn line(&mut self) -> Option<String> {
        loop {
            if let Some((line, rest)) = self.unread.split_once('\n') {
                let line = line.trim_end_matches('\r').to_owned();
                self.unread = rest.to_owned();
                return Some(line);
            }
            let mut piece = [0; 4096];
            let read = self.connection.as_mut()?.read(&mut piece);
            let read = tokio::time::timeout(PATIENCE, read).await.expect("the stream is silent").unwrap_or(0);
            if read == 0 {
                return None;
            }
            self.unread.push_str(std::str::from_utf8(&piece[..read]).unwrap());
        }
    }

    /// Interprets lines until an event is dispatched; none at the end of the stream.
    pub async fn next(&mut self) -> Option<Dispatched> {
        loop {
            if let Some(dispatched) = self.block().await? {
                return Some(dispatched);
            }
        }
    }

    /// Interprets one block. An empty data buffer dispatches nothing, but sets the last event ID.
    async fn block(&mut self) -> Option<Option<Dispatched>> {
        loop {
            let line = self.line().await?;
            if line.is_empty() {
                self.last_event_id.clone_from(&self.id_buffer);
                let (event, mut data) = (std::mem::take(&mut self.event_buffer), std::mem::take(&mut self.data_buffer));
                if data.is_empty() {
                    return Some(None);
                }
                data.pop();
                return Some(Some((if event.is_empty() { "message".into() } else { event }, data)));
            }
            let (field, value) = line.split_once(':').unwrap_or((&line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match field {
                "event" => self.event_buffer = value.into(),
                "data" => self.data_buffer = format!("{}{value}\n", self.data_buffer),
                "id" if !value.contains('\0') => self.id_buffer = value.into(),
                _ => {}
            }
        }
    }

    /// Reads blocks until the last event ID is at least this; fails if an event is dispatched.
    pub async fn until_position(&mut self, seq: u64) {
        let reached = async {
            while self.last_event_id.parse::<u64>().ok().is_none_or(|at| at < seq) {
                let dispatched = self.block().await.expect("the stream ended");
                assert_eq!(dispatched, None);
            }
        };
        tokio::time::timeout(PATIENCE, reached).await.expect("the stream sends no position");
        assert_eq!(self.last_event_id, seq.to_string());
    }
}

fn quick_heartbeats() -> HttpOptions {
    HttpOptions { heartbeat: Duration::from_millis(20), ..HttpOptions::default() }
}

/// H41: the server restarts, and events are published before the client is back.
#[tokio::test]
async fn filtered_stream_that_received_nothing_loses_nothing_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("ensue.db").to_str().unwrap().to_owned();
    for filter in ["?topic=wanted", "?where=e.topic%20%3D%20%27wanted%27", "?object=o"] {
        let bus = Ensue::open(&store).await.unwrap();
        let server = Server::serve(bus.clone(), HttpOptions::default()).await;
        let last = server.publish("other", None).await;
        let mut source = EventSource::default();
        source.connect(&server, filter).await;
        source.until_position(last).await;
        drop(server);
        bus.close().await;

        let bus = Ensue::open(&store).await.unwrap();
        let server = Server::serve(bus.clone(), HttpOptions::default()).await;
        let missed = server.publish("wanted", Some("o")).await;
        source.connect(&server, filter).await;
        assert_eq!(source.next().await.unwrap().0, "wanted", "{filter}");
        assert_eq!(source.last_event_id, missed.to_string());
        drop(server);
        bus.close().await;
    }
}

/// H41: retention deletes only events that the stream has examined.
#[tokio::test]
async fn filtered_stream_sees_no_gap_for_deleted_events_that_it_examined() {
    let server = Server::start_with(quick_heartbeats()).await;
    let mut source = EventSource::default();
    source.connect(&server, "?topic=wanted").await;
    server.publish("wanted", None).await;
    assert_eq!(source.next().await.unwrap().0, "wanted");
    for _ in 0..9 {
        server.publish("other", None).await;
    }
    source.until_position(10).await;
    server.bus.store().trim(8, 100).await.unwrap();
    source.connect(&server, "?topic=wanted").await;
    server.publish("wanted", None).await;
    assert_eq!(source.next().await.unwrap().0, "wanted");
    assert_eq!(source.last_event_id, "11");
}

/// A position comes only after all wanted events before it.
#[tokio::test]
async fn position_of_a_stream_is_never_ahead_of_its_events() {
    let options = HttpOptions { heartbeat: Duration::from_millis(1), ..HttpOptions::default() };
    let server = Server::start_with(options).await;
    let mut source = EventSource::default();
    source.connect(&server, "?after=0&topic=wanted").await;
    let publish = async {
        for n in 0..600 {
            server.publish(if n % 3 == 0 { "wanted" } else { "other" }, None).await;
        }
    };
    let read = async {
        for seq in (1..=600).step_by(3) {
            while source.block().await.expect("the stream ended").is_none() {
                let position = source.last_event_id.parse::<u64>().expect("a position");
                assert!(position < seq, "{position} came before event {seq}");
            }
            assert_eq!(source.last_event_id, seq.to_string());
        }
    };
    tokio::join!(publish, read);
    source.until_position(600).await;
}

/// A stop ends the stream with its position, so that a later resume reads nothing twice.
#[tokio::test]
async fn stopping_server_sends_the_position_of_a_stream() {
    // A stop may come before the stream has examined the last event. Then its position is smaller.
    for turns in 0..100 {
        let stop = tokio::sync::watch::Sender::new(false);
        let options =
            HttpOptions { stop: stop.subscribe(), heartbeat: Duration::from_secs(3600), ..HttpOptions::default() };
        let server = Server::start_with(options).await;
        let mut source = EventSource::default();
        source.connect(&server, "?topic=wanted").await;
        source.until_position(0).await;
        server.publish("wanted", None).await;
        source.next().await.unwrap();
        assert_eq!(source.last_event_id, "1");
        server.publish("other", None).await;
        for _ in 0..turns {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        stop.send_replace(true);
        assert_eq!(source.next().await, None);
        if source.last_event_id == "2" {
            return;
        }
    }
    panic!("a stop never sends the position");
}

/// Browsers dispatch named events only to listeners of that name; `onmessage` receives the type `message`.
#[tokio::test]
async fn events_without_names_reach_onmessage() {
    let server = Server::start().await;
    server.publish("order.paid", None).await;
    server.publish("order.sent", None).await;
    server.bus.store().trim(2, 100).await.unwrap();
    let mut source = EventSource { last_event_id: "0".into(), ..EventSource::default() };
    source.connect(&server, "?event=message").await;
    let (name, data) = source.next().await.unwrap();
    assert_eq!(name, "message");
    assert!(data.contains("order.sent"), "{data}");
    // A gap is no event of the log and keeps its name.
    server.publish("order.sent", None).await;
    server.bus.store().trim(4, 100).await.unwrap();
    source.last_event_id = "1".into();
    source.connect(&server, "?event=message").await;
    assert_eq!(source.next().await.unwrap().0, "ensue.gap");
    for value in ["", "topic", "Message", "order.paid"] {
        let refused = server.get(&format!("/v1/events/stream?event={value}")).await.problem(400);
        assert!(refused.starts_with("`event` must be `message`"), "{refused}");
    }
}
