//! S4: clients that are slow, stalled or many hold up nobody else, and are told why they are given up.

#[path = "http/support/mod.rs"]
mod http_support;

use ensue::{Ensue, NewEvent};
use ensue_server::http::{ByteBudget, ConnectionLimits, Patience};
use ensue_server::{HttpOptions, router_with};
use futures_util::future::select_all;
use http_support::{PATIENCE, Server, parse};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

/// Soon enough for a test, long enough for a request that is sent at once, also where the machine has much else to do.
const SOON: Duration = Duration::from_secs(2);
/// Not within a test.
const NEVER: Duration = Duration::from_secs(3_600);
const PATIENT: Patience = Patience { head_max: NEVER, idle_max: NEVER, stalled_max: NEVER };

async fn server(patience: Patience) -> Server {
    let options = HttpOptions { heartbeat: Duration::from_millis(50), ..HttpOptions::default() };
    limited(options, ConnectionLimits { patience, ..ConnectionLimits::default() }).await
}

async fn limited(options: HttpOptions, limits: ConnectionLimits) -> Server {
    let bus = Ensue::open("sqlite::memory:").await.unwrap();
    Server::serve_limited(bus.clone(), router_with(bus, options), limits).await
}

async fn connect(server: &Server, bytes: &[u8]) -> TcpStream {
    let mut connection = TcpStream::connect(server.address).await.unwrap();
    connection.write_all(bytes).await.unwrap();
    connection
}

/// Everything that comes until the server closes.
async fn to_the_end(connection: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let read = tokio::time::timeout(PATIENCE, connection.read_to_end(&mut bytes)).await;
    read.expect("the server does not close the connection").unwrap();
    bytes
}

/// One answer of a connection that stays open.
async fn answer(connection: &mut TcpStream) -> String {
    let mut bytes = vec![0; 4_096];
    let read = tokio::time::timeout(PATIENCE, connection.read(&mut bytes)).await;
    String::from_utf8_lossy(&bytes[..read.expect("no answer").unwrap()]).into_owned()
}

const HEALTH: &[u8] = b"GET /health HTTP/1.1\r\nHost: test\r\n\r\n";

#[tokio::test]
async fn half_a_head_is_refused_in_time_and_others_are_served_meanwhile() {
    let server = server(Patience { head_max: SOON, ..PATIENT }).await;
    let mut half = connect(&server, b"POST /v1/events HTTP/1.1\r\nHost: te").await;
    assert_eq!(server.post(r#"{"topic":"a"}"#).await.status, 201);
    let detail = parse(&to_the_end(&mut half).await).problem(408);
    assert!(detail.contains("`headers`") && detail.contains("2 s"), "{detail}");
    assert_eq!(server.get("/health").await.status, 200);
}

#[tokio::test]
async fn who_connects_and_says_nothing_is_let_go() {
    let server = server(Patience { head_max: SOON, ..PATIENT }).await;
    assert_eq!(to_the_end(&mut connect(&server, b"").await).await, b"");
}

/// The time for a head neither counts while a connection waits for its next request, nor while it follows a stream.
#[tokio::test]
async fn a_kept_connection_and_a_stream_outlive_the_time_for_a_head() {
    let server = server(Patience { head_max: SOON, ..PATIENT }).await;
    let mut kept = connect(&server, HEALTH).await;
    assert!(answer(&mut kept).await.starts_with("HTTP/1.1 200"));
    let mut stream = server.stream("", &[]).await;
    // Two clients that come later are given up, one after the other.
    for _ in 0..2 {
        to_the_end(&mut connect(&server, b"GET /").await).await;
    }
    kept.write_all(HEALTH).await.unwrap();
    assert!(answer(&mut kept).await.starts_with("HTTP/1.1 200"));
    let seq = server.publish("a", None).await;
    assert_eq!(stream.event().await.unwrap().id, Some(seq));
}

#[tokio::test]
async fn a_connection_that_is_kept_for_nothing_is_let_go_and_a_stream_is_not() {
    let server = server(Patience { idle_max: SOON, ..PATIENT }).await;
    let mut stream = server.stream("", &[]).await;
    // Two that come later are let go, one after the other.
    for _ in 0..2 {
        let mut kept = connect(&server, HEALTH).await;
        assert!(answer(&mut kept).await.starts_with("HTTP/1.1 200"));
        assert_eq!(to_the_end(&mut kept).await, b"");
    }
    let seq = server.publish("a", None).await;
    assert_eq!(stream.event().await.unwrap().id, Some(seq));
}

/// An answer that is under way is sent to its end, whatever time its client takes, and nothing comes in between: the
/// times for a head and for silence count when the client has taken everything.
#[tokio::test]
async fn a_large_answer_that_is_taken_slowly_comes_whole() {
    let server =
        server_with_little_room(Patience { head_max: SOON, idle_max: SOON, ..PATIENT }, HttpOptions::default()).await;
    let payload = "x".repeat(100_000);
    server.bus.publish_all((0..40).map(|_| NewEvent::new("a").payload(&payload)).collect()).await.unwrap();
    let page = server.get("/v1/events").await.body;
    assert!(page.len() > 3_500_000, "{}", page.len());

    let mut quiet = begun(&server).await;
    let mut eager = begun(&server).await;
    eager.write_all(HEALTH).await.unwrap();
    // Two that come later are given up, one after the other.
    for _ in 0..2 {
        to_the_end(&mut connect(&server, b"GET /").await).await;
    }
    let quiet = parse(&to_the_end(&mut quiet).await);
    assert!(quiet.body == page, "{} of {} bytes came", quiet.body.len(), page.len());
    let both = parse(&to_the_end(&mut eager).await);
    let (first, second) = both.body.split_at_checked(page.len()).expect("the answer was cut");
    assert!(first == page, "something else is in the answer");
    assert_eq!(parse(second).status, 200);
}

/// A server from whose hands the system takes only a small part of a page, if the client takes none.
async fn server_with_little_room(patience: Patience, options: HttpOptions) -> Server {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_send_buffer_size(64 << 10).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let bus = Ensue::open("sqlite::memory:").await.unwrap();
    let router = router_with(bus.clone(), options);
    let limits = ConnectionLimits { patience, ..ConnectionLimits::default() };
    Server::serve_at(socket.listen(8).unwrap(), bus, router, limits)
}

/// A client with little room that has asked for a page, and got its first bytes.
async fn begun(server: &Server) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 << 10).unwrap();
    let mut connection = socket.connect(server.address).await.unwrap();
    connection.write_all(b"GET /v1/events HTTP/1.1\r\nHost: test\r\n\r\n").await.unwrap();
    let peeked = tokio::time::timeout(PATIENCE, connection.peek(&mut [0])).await;
    assert_eq!(peeked.expect("no answer").unwrap(), 1);
    connection
}

#[tokio::test]
async fn half_a_body_is_refused_in_time_and_stores_nothing() {
    let options = HttpOptions { body_silence_max: SOON, ..HttpOptions::default() };
    let server = limited(options, ConnectionLimits::default()).await;
    let head = "POST /v1/events HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: 13\r\n\r\n";
    let mut half = connect(&server, format!("{head}{{\"topic\"").as_bytes()).await;
    assert_eq!(server.get("/health").await.status, 200);
    let detail = parse(&to_the_end(&mut half).await).problem(408);
    assert!(detail.contains("`body`") && detail.contains("2 s"), "{detail}");
    assert_eq!(server.bounds().await.last, 0);
}

/// At the limit a connection without a complete request makes room: silent, kept alive, or with half a head.
#[tokio::test]
async fn newcomer_is_served_when_idle_connections_fill_the_limit() {
    const CONNECTIONS_MAX: usize = 8;
    for is_served in [b"".as_slice(), HEALTH, b"GET /health HTTP/1.1\r\nHost: te"] {
        let limits =
            ConnectionLimits { connections_max: CONNECTIONS_MAX, patience: PATIENT, ..ConnectionLimits::default() };
        let server = limited(HttpOptions::default(), limits).await;
        let mut stream = server.stream("", &[]).await;
        let mut idle = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            let mut connection = connect(&server, is_served).await;
            if is_served == HEALTH {
                assert!(answer(&mut connection).await.starts_with("HTTP/1.1 200"));
            }
            idle.push(connection);
        }
        for _ in 0..3 * CONNECTIONS_MAX {
            assert_eq!(tokio::time::timeout(SOON, server.get("/health")).await.expect("locked out").status, 200);
        }
        // The oldest is closed first.
        assert_eq!(to_the_end(&mut idle[0]).await, b"");
        // A stream is a request under way, and stays.
        let seq = server.publish("a", None).await;
        assert_eq!(stream.event().await.unwrap().id, Some(seq));
    }
}

/// Requests under way are not cut off for others, who wait until one ends.
#[tokio::test]
async fn newcomer_waits_while_requests_under_way_fill_the_limit() {
    let limits = ConnectionLimits { connections_max: 2, patience: PATIENT, ..ConnectionLimits::default() };
    let server = limited(HttpOptions { heartbeat: Duration::from_millis(50), ..HttpOptions::default() }, limits).await;
    let mut first = server.stream("", &[]).await;
    let second = server.stream("", &[]).await;
    let mut third = connect(&server, HEALTH).await;
    // The streams go on for longer than the third would need to be answered.
    for _ in 0..50 {
        let seq = server.publish("a", None).await;
        assert_eq!(first.event().await.unwrap().id, Some(seq));
    }
    assert_eq!(third.try_read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
    drop(second);
    assert!(answer(&mut third).await.starts_with("HTTP/1.1 200"));
}

/// The bytes of unfinished bodies are bounded over all connections; ordinary events still pass.
#[tokio::test]
async fn unfinished_bodies_are_refused_beyond_the_budget() {
    const LARGE: usize = 600 << 10;
    let options = HttpOptions { body_budget: ByteBudget::new(1 << 20), ..HttpOptions::default() };
    let server = limited(options, ConnectionLimits::default()).await;
    let body = format!("{{\"topic\":\"a\",\"payload\":\"{}\"}}", "x".repeat(LARGE));
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let unfinished = &[head.as_bytes(), &body.as_bytes()[..LARGE]].concat();
    let first = connect(&server, unfinished).await;
    // Until the first one's bytes have come, another body of this size has room.
    let refused = tokio::time::timeout(PATIENCE, async {
        loop {
            let answer = server.post(&body).await;
            if answer.status == 503 {
                return answer;
            }
        }
    });
    let refused = refused.await.expect("the budget is never exceeded");
    assert!(refused.problem(503).contains("`body`"), "{}", refused.text());
    assert_eq!(refused.headers["retry-after"], "1");
    assert_eq!(server.post(r#"{"topic":"a"}"#).await.status, 201, "an ordinary event passes");
    drop(first);
    // What was given up, and what is answered, makes room.
    let accepted = async { while server.post(&body).await.status != 201 {} };
    tokio::time::timeout(PATIENCE, accepted).await.expect("the budget is never given back");
    for _ in 0..4 {
        assert_eq!(server.post(&body).await.status, 201);
    }
}

/// The bytes of unfinished heads are bounded over all connections; an ordinary request still passes.
#[tokio::test]
async fn unfinished_heads_are_closed_beyond_the_budget() {
    let limits =
        ConnectionLimits { heads_budget: ByteBudget::new(300 << 10), patience: PATIENT, ..ConnectionLimits::default() };
    let server = limited(HttpOptions::default(), limits).await;
    let head = format!("GET /health HTTP/1.1\r\nHost: test\r\nX-Long: {}", "x".repeat(100 << 10));
    let mut heads = Vec::new();
    for _ in 0..8 {
        heads.push(connect(&server, head.as_bytes()).await);
    }
    // Three fit: the first 16 KiB of each are not counted. The others are closed without an answer.
    let mut closed = 0;
    while closed < 5 {
        let ends = heads.iter_mut().map(|head| Box::pin(head.read_u8()));
        let (ended, index, _) =
            tokio::time::timeout(PATIENCE, select_all(ends)).await.expect("more heads are held than the budget allows");
        assert!(ended.is_err(), "an unfinished head is not answered");
        heads.swap_remove(index);
        closed += 1;
        assert_eq!(server.get("/health").await.status, 200, "an ordinary request passes");
    }
    // Those that stayed can finish, and make room.
    for mut head in heads {
        head.write_all(b"\r\n\r\n").await.unwrap();
        assert!(answer(&mut head).await.starts_with("HTTP/1.1 200"));
    }
    for _ in 0..8 {
        let mut whole = connect(&server, format!("{head}\r\n\r\n").as_bytes()).await;
        assert!(answer(&mut whole).await.starts_with("HTTP/1.1 200"));
    }
}

/// Answers that clients do not take are bounded over all connections; nothing with an effect is refused after it.
#[tokio::test]
async fn answers_that_nobody_takes_are_refused_beyond_the_budget() {
    const BUDGET: usize = 5 << 20;
    let options = HttpOptions { answers_budget: ByteBudget::new(BUDGET), ..HttpOptions::default() };
    let server = server_with_little_room(PATIENT, options).await;
    let payload = "x".repeat(900_000);
    server.bus.publish_all((0..4).map(|_| NewEvent::new("a").payload(&payload)).collect()).await.unwrap();
    let json = &["Content-Type: application/json"];
    let put = server.request("PUT", "/v1/groups/g", json, br#"{"start":"beginning"}"#).await;
    assert_eq!(put.status, 201, "{}", put.text());
    let subscribe = server.request("POST", "/v1/groups/g/subscriptions", json, br#"{"where":"true"}"#).await;
    assert_eq!(subscribe.status, 201, "{}", subscribe.text());
    let stalled = begun(&server).await;
    let refused = tokio::time::timeout(PATIENCE, async {
        loop {
            let answer = server.get("/v1/events").await;
            if answer.status == 503 {
                return answer;
            }
        }
    });
    let refused = refused.await.expect("the budget is never exceeded");
    assert_eq!(refused.headers["retry-after"], "1");
    assert!(refused.problem(503).contains("`limit`"), "{}", refused.text());
    for (path, body) in [("/v1/groups/g/read", "{}"), ("/v1/jobs/claim", r#"{"handlers":["h"]}"#)] {
        assert!(server.request("POST", path, json, body.as_bytes()).await.problem(503).contains("try again"), "{path}");
    }
    assert_eq!(server.post(r#"{"topic":"b"}"#).await.status, 201, "what has a small answer passes");
    drop(stalled);
    let read = async { while server.get("/v1/events").await.status != 200 {} };
    tokio::time::timeout(PATIENCE, read).await.expect("the budget is never given back");
    let answer = server.request("POST", "/v1/groups/g/read", json, b"{}").await;
    assert_eq!(answer.status, 200, "nothing was read by the refused call: {}", answer.text());
}

/// A follower that takes nothing is given up, and misses nothing when it comes back with what it saw last.
#[tokio::test]
async fn a_stream_that_nobody_reads_is_cut_and_can_be_resumed() {
    const EVENTS: u64 = 300;
    // Long enough for a client that reads to be kept waiting by a busy machine.
    let server = server(Patience { stalled_max: 2 * SOON, ..PATIENT }).await;
    let payload = "x".repeat(100_000);
    for _ in 0..EVENTS / 100 {
        let batch = (0..100).map(|_| NewEvent::new("a").payload(&payload)).collect();
        server.bus.publish_all(batch).await.unwrap();
    }
    let mut stalled = server.stream("?after=0", &[]).await;
    // Another one reads to the end, and on while the first is given up.
    let mut reading = server.stream("?after=0", &[]).await;
    for seq in 1..=EVENTS {
        assert_eq!(reading.event().await.unwrap().id, Some(seq));
    }
    server.until_streams_are(1).await;
    let seq = server.publish("b", None).await;
    assert_eq!(reading.event().await.unwrap().id, Some(seq));
    // What was under way still arrives; then the stream is over, before its end.
    let mut seen = 0;
    while let Some(event) = stalled.event_or_broken().await {
        seen = event.id.unwrap();
    }
    assert!(seen > 0 && seen < EVENTS, "{seen}");
    let mut resumed = server.stream("", &[&format!("Last-Event-ID: {seen}")]).await;
    assert_eq!(resumed.event().await.unwrap().id, Some(seen + 1));
}
