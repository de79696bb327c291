//! Bad input gets a clear refusal that names the field and says what to do, and changes nothing.

use crate::support::{Answer, Server, condition};

/// A server with something in its log, so that a change would show.
async fn server() -> Server {
    let server = Server::start().await;
    server.publish("order.placed", Some("order:1")).await;
    server
}

async fn state(server: &Server) -> (ensue::Bounds, usize) {
    (server.bounds().await, server.bus.store().pending(1_000).await.unwrap().len())
}

/// The request is refused with this status, the field is named, and the log is as before.
#[track_caller]
fn assert_refused(answer: &Answer, status: u16, field: &str) -> String {
    let detail = answer.problem(status);
    assert!(detail.contains(&format!("`{field}`")), "`{field}` is not named: {detail}");
    assert_eq!(answer.json()["field"], field);
    detail
}

async fn post_is_refused(body: &str, status: u16, field: &str) -> String {
    let server = server().await;
    let before = state(&server).await;
    let answer = server.post(body).await;
    let detail = assert_refused(&answer, status, field);
    assert_eq!(state(&server).await, before);
    detail
}

async fn get_is_refused(target: &str, headers: &[&str], status: u16, field: &str) -> String {
    let server = server().await;
    let before = state(&server).await;
    let answer = server.request("GET", target, headers, b"").await;
    let detail = assert_refused(&answer, status, field);
    assert_eq!(state(&server).await, before);
    detail
}

#[tokio::test]
async fn no_topic() {
    let detail = post_is_refused(r#"{"payload":1}"#, 422, "topic").await;
    assert!(detail.contains("missing") && detail.contains("order.paid"), "{detail}");
}

#[tokio::test]
async fn empty_topic() {
    post_is_refused(r#"{"topic":""}"#, 422, "topic").await;
}

#[tokio::test]
async fn a_topic_with_an_empty_segment() {
    post_is_refused(r#"{"topic":"a..b"}"#, 422, "topic").await;
}

#[tokio::test]
async fn a_topic_of_256_bytes() {
    let detail = post_is_refused(&format!(r#"{{"topic":"{}"}}"#, "a".repeat(256)), 422, "topic").await;
    assert!(detail.contains("255"), "{detail}");
}

#[tokio::test]
async fn a_number_as_topic() {
    let detail = post_is_refused(r#"{"topic":5}"#, 422, "topic").await;
    assert!(detail.contains("string"), "{detail}");
}

#[tokio::test]
async fn a_topic_of_the_system() {
    post_is_refused(r#"{"topic":"ensue.gap"}"#, 422, "topic").await;
}

#[tokio::test]
async fn an_unknown_field() {
    post_is_refused(r#"{"topic":"a","paylaod":1}"#, 422, "paylaod").await;
}

#[tokio::test]
async fn a_field_twice() {
    post_is_refused(r#"{"topic":"a","object":"x","object":"y"}"#, 422, "object").await;
}

#[tokio::test]
async fn a_bad_time() {
    for field in ["occurred_at", "not_before"] {
        for time in [r#""tomorrow""#, r#""2026-02-30T00:00:00Z""#, r#""2026-11-15""#, "1763200000", "{}"] {
            post_is_refused(&format!(r#"{{"topic":"a","{field}":{time}}}"#), 422, field).await;
        }
    }
}

#[tokio::test]
async fn not_json() {
    for body in ["", "topic=a", "{", r#"{"topic":"a"} x"#, "{\"topic\":\"a\n\"}", "{'topic':'a'}"] {
        post_is_refused(body, 400, "body").await;
    }
}

#[tokio::test]
async fn not_utf_8() {
    let server = server().await;
    let before = state(&server).await;
    assert_refused(&server.post_as("application/json", b"{\"topic\":\"\xff\"}").await, 400, "body");
    assert_eq!(state(&server).await, before);
}

#[tokio::test]
async fn json_nested_3000_deep() {
    let deep = format!("{}{}", "[".repeat(3_000), "]".repeat(3_000));
    let objects = format!("{}1{}", "{\"a\":".repeat(3_000), "}".repeat(3_000));
    for value in [&deep, &objects] {
        let detail = post_is_refused(&format!(r#"{{"topic":"a","payload":{value}}}"#), 422, "payload").await;
        assert!(detail.contains("nested") && detail.contains("64"), "{detail}");
        let detail = post_is_refused(&format!(r#"{{"topic":"a","metadata":{value}}}"#), 422, "metadata").await;
        assert!(detail.contains("nested"), "{detail}");
    }
    assert!(post_is_refused(&deep, 422, "events[0]").await.contains("nested"));
    assert!(post_is_refused(&objects, 422, "a").await.contains("nested"));
    // Never closed: not JSON at all.
    post_is_refused(&"[".repeat(3_000), 400, "body").await;
}

#[tokio::test]
async fn a_body_over_1_mib() {
    let body = format!(r#"{{"topic":"a","payload":"{}"}}"#, "x".repeat(1 << 20));
    let detail = post_is_refused(&body, 413, "body").await;
    assert!(detail.contains("1048576"), "{detail}");
}

/// The sender says nothing of the size, and sends all of it before it looks for an answer.
#[tokio::test]
async fn a_body_over_1_mib_in_chunks() {
    let server = server().await;
    let before = state(&server).await;
    let mut request =
        b"POST /v1/events HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Type: application/json\r\n\
        Transfer-Encoding: chunked\r\n\r\n"
            .to_vec();
    for _ in 0..48 {
        request.extend_from_slice(b"10000\r\n");
        request.extend(std::iter::repeat_n(b' ', 0x10000));
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"0\r\n\r\n");
    assert_refused(&server.send(&request).await, 413, "body");
    assert_eq!(state(&server).await, before);
}

#[tokio::test]
async fn a_batch_over_1000() {
    let body = format!("[{}]", vec![r#"{"topic":"a"}"#; 1_001].join(","));
    let detail = post_is_refused(&body, 422, "events").await;
    assert!(detail.contains("1001") && detail.contains("1000"), "{detail}");
}

#[tokio::test]
async fn an_empty_batch() {
    post_is_refused("[]", 422, "events").await;
}

#[tokio::test]
async fn one_bad_event_in_a_batch() {
    let events = |bad: &str| format!(r#"[{{"topic":"a"}},{{"topic":"b"}},{{"topic":"c"}},{bad},{{"topic":"d"}}]"#);
    post_is_refused(&events(r#"{"topic":""}"#), 422, "events[3].topic").await;
    post_is_refused(&events(r#"{"topic":"x","payload":1e400000}"#), 422, "events[3].payload").await;
    post_is_refused(&events(r#"{"topic":"x","key":""}"#), 422, "events[3].key").await;
    post_is_refused(&events(r#"{"topic":"x","foo":1}"#), 422, "events[3].foo").await;
    post_is_refused(&events("null"), 422, "events[3]").await;
}

#[tokio::test]
async fn one_bad_line_of_many() {
    let server = server().await;
    let before = state(&server).await;
    let lines = "{\"topic\":\"a\"}\n{\"topic\":\"b\"}\n{\"topic\":\"b..c\"}\n";
    assert_refused(&server.post_as("application/x-ndjson", lines.as_bytes()).await, 422, "events[2].topic");
    let lines = "{\"topic\":\"a\"}\n{\"topic\":\n";
    assert_refused(&server.post_as("application/x-ndjson", lines.as_bytes()).await, 400, "events[1]");
    assert_eq!(state(&server).await, before);
}

/// Who sent a thousand events wants to know which one to correct.
#[tokio::test]
async fn a_key_of_another_event_in_a_batch() {
    let server = server().await;
    server.post(r#"{"topic":"a","key":"used"}"#).await;
    let before = state(&server).await;
    let used = r#"[{"topic":"a"},{"topic":"a","key":"mine"},{"topic":"other","key":"used"}]"#;
    let detail = assert_refused(&server.post(used).await, 409, "events[2].key");
    assert!(detail.contains("is `used`, which was already used for another event"), "{detail}");
    let lines = used.trim_matches(['[', ']']).replace("},", "}\n");
    assert_refused(&server.post_as("application/x-ndjson", lines.as_bytes()).await, 409, "events[2].key");
    assert_refused(&server.post(r#"[{"topic":"other","key":"used"}]"#).await, 409, "events[0].key");
    assert_refused(&server.post(r#"{"topic":"other","key":"used"}"#).await, 409, "key");
    // Two events of one batch under one key: the first of them is no mistake.
    let twice = r#"[{"topic":"a","key":"k"},{"topic":"a","key":"k"},{"topic":"b"},{"topic":"b","key":"k"}]"#;
    let detail = assert_refused(&server.post(twice).await, 409, "events[3].key");
    assert!(detail.contains("is `k`, which `events[0]`, another event, has too"), "{detail}");
    assert_eq!(state(&server).await, before);
}

#[tokio::test]
async fn a_cloudevent_whose_id_is_taken_in_a_batch() {
    let server = server().await;
    let event = |kind: &str| format!(r#"{{"specversion":"1.0","id":"1","source":"/s","type":"{kind}"}}"#);
    server.post_as("application/cloudevents+json", event("a").as_bytes()).await;
    let before = state(&server).await;
    let batch = format!("[{},{}]", event("x").replace("\"1\"", "\"2\""), event("b"));
    let refused = server.post_as("application/cloudevents-batch+json", batch.as_bytes()).await;
    let detail = assert_refused(&refused, 409, "events[1].id");
    assert!(detail.contains("and its source make the key `/s 1`"), "{detail}");
    let headers = ["ce-specversion: 1.0", "ce-id: 1", "ce-source: /s", "ce-type: b"];
    assert_refused(&server.request("POST", "/v1/events", &headers, b"").await, 409, "ce-id");
    assert_eq!(state(&server).await, before);
}

#[tokio::test]
async fn what_not_every_store_can_keep() {
    post_is_refused(r#"{"topic":"a","payload":"\u0000"}"#, 422, "payload").await;
    post_is_refused(r#"{"topic":"a","payload":"\ud800"}"#, 422, "payload").await;
    post_is_refused(r#"{"topic":"a","object":"a\u0000b"}"#, 422, "object").await;
    post_is_refused(r#"{"topic":"a","metadata":[]}"#, 422, "metadata").await;
    post_is_refused(r#"{"topic":"a","to":"me"}"#, 422, "to").await;
}

/// A megabyte of `1e399` would be 68 megabytes in a store that writes numbers out; so would a thousand events of a
/// kilobyte each.
#[tokio::test]
async fn numbers_that_grow_when_they_are_written_out() {
    let numbers = |count: usize| format!("[{}]", vec!["1e399"; count].join(","));
    for field in ["payload", "metadata"] {
        let value = format!(r#"{{"n":{}}}"#, numbers(150_000));
        let detail = post_is_refused(&format!(r#"{{"topic":"a","{field}":{value}}}"#), 422, field).await;
        assert!(detail.contains("written out") && detail.contains("strings"), "{detail}");
    }
    let event = format!(r#"{{"topic":"a","payload":{}}}"#, numbers(150));
    let batch = format!("[{}]", vec![event; 1_000].join(","));
    post_is_refused(&batch, 422, "events[0].payload").await;
}

#[tokio::test]
async fn after_minus_1() {
    get_is_refused("/v1/events?after=-1", &[], 400, "after").await;
    get_is_refused("/v1/events/stream?after=-1", &[], 400, "after").await;
    get_is_refused("/v1/events?after=99999999999999999999", &[], 400, "after").await;
}

/// With an empty page such a reader would wait at a place that the log has not come to, and miss what comes before it.
#[tokio::test]
async fn after_the_end_of_the_log() {
    for target in ["/v1/events?after=2", "/v1/events?after=2&topic=none", "/v1/events?after=9223372036854775807"] {
        let detail = get_is_refused(target, &[], 422, "after").await;
        assert!(detail.contains("the newest event is 1"), "{detail}");
    }
    let empty = Server::start().await;
    assert!(empty.get("/v1/events?after=1").await.problem(422).contains("the log is empty"));
    assert_eq!(empty.get("/v1/events?after=0").await.status, 200);
    // The end itself is where every follower waits, also when retention took all there was.
    let server = server().await;
    assert_eq!(server.get("/v1/events?after=1").await.json()["next"], 1);
    server.bus.store().trim(2, 10).await.unwrap();
    assert_eq!(server.get("/v1/events?after=1").await.json()["next"], 1);
}

#[tokio::test]
async fn limit_0() {
    get_is_refused("/v1/events?limit=0", &[], 400, "limit").await;
    get_is_refused("/v1/events?limit=1001", &[], 400, "limit").await;
    get_is_refused("/v1/events/stream?limit=0", &[], 400, "limit").await;
    get_is_refused("/v1/objects/o/events?limit=0", &[], 400, "limit").await;
}

#[tokio::test]
async fn a_malformed_last_event_id() {
    for value in ["abc", "-1", "1.5", "0x10", "99999999999999999999"] {
        get_is_refused("/v1/events/stream", &[&format!("Last-Event-ID: {value}")], 400, "Last-Event-ID").await;
    }
}

#[tokio::test]
async fn a_path_that_is_not_utf_8() {
    get_is_refused("/v1/objects/%ff%fe/events", &[], 400, "object").await;
    get_is_refused("/v1/events/%ff", &[], 400, "place").await;
    get_is_refused("/v1/events?object=%ff", &[], 400, "object").await;
}

/// Bytes that no client library would send: they never reach a handler, and are answered with a reason all the same.
#[tokio::test]
async fn what_is_not_even_http() {
    let server = server().await;
    let before = state(&server).await;
    for request in [
        &b"GET /v1/objects/\xff\xfe/events HTTP/1.1\r\nHost: test\r\n\r\n"[..],
        b"GET /v1/events?topic=<> HTTP/1.1\r\nbroken header\r\n\r\n",
        b"GET\r\n\r\n",
    ] {
        assert_refused(&server.send(request).await, 400, "path");
    }
    let long = format!("GET /{} HTTP/1.1\r\nHost: test\r\n\r\n", "a".repeat(70_000));
    assert_refused(&server.send(long.as_bytes()).await, 414, "path");
    let headers: String = (0..200).map(|index| format!("x-{index}: y\r\n")).collect();
    let many = format!("GET / HTTP/1.1\r\nHost: test\r\n{headers}\r\n");
    assert_refused(&server.send(many.as_bytes()).await, 431, "headers");
    assert_eq!(state(&server).await, before);
}

/// The sender asks whether it may send so much, and is told before it does.
#[tokio::test]
async fn a_body_over_1_mib_that_is_asked_for_first() {
    let server = server().await;
    let head = "POST /v1/events HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Type: application/json\r\n\
        Expect: 100-continue\r\nContent-Length: 2000000\r\n\r\n";
    assert_refused(&server.send(head.as_bytes()).await, 413, "body");
}

#[tokio::test]
async fn an_unknown_or_bad_parameter() {
    get_is_refused("/v1/events?topics=a", &[], 400, "topics").await;
    get_is_refused("/v1/events?topic=a..b", &[], 400, "topic").await;
    get_is_refused("/v1/events?from_time=noon", &[], 400, "from_time").await;
    get_is_refused("/v1/events?after=1&after=2", &[], 400, "after").await;
    get_is_refused("/v1/events/1?x=1", &[], 400, "x").await;
    get_is_refused("/v1/events/first", &[], 400, "place").await;
}

/// What is no condition is refused by page and stream alike, with the part and what to write instead.
#[tokio::test]
async fn a_bad_condition() {
    let parentheses = |count: usize| format!("{}true{}", "(".repeat(count), ")".repeat(count));
    let long = format!("e.topic = '{}'", "a".repeat(17_000));
    for (bad, named) in [
        ("e.tpoic = 'a'", "e.tpoic"),
        ("topic = 'a'", "e.topic"),
        ("now() > e.recorded_at", "now"),
        ("pg_sleep(10) IS NULL", "pg_sleep"),
        ("e.topic = (SELECT 'a')", "SELECT"),
        ("EXISTS (SELECT 1 FROM events)", "EXISTS"),
        ("true; DROP TABLE events", ";"),
        ("e.topic = $1", "$1"),
        ("e.topic = ", "is not an SQL expression"),
        ("e.topic = 'a", "cannot be read"),
        ("e.payload", "boolean"),
        ("e.payload->>'n' > 5", "integer"),
        ("", "is empty"),
        ("true\0", "zero byte"),
        (parentheses(5_000).as_str(), "4000"),
        (parentheses(500).as_str(), "nested"),
        (long.as_str(), "16384"),
    ] {
        for path in ["/v1/events", "/v1/events/stream"] {
            let target = format!("{path}?{}", condition(bad, None));
            let detail = get_is_refused(&target, &[], 422, "where").await;
            assert!(detail.contains(named), "{named} is not in: {detail}");
        }
    }
}

#[tokio::test]
async fn bad_params() {
    let deep = format!("{}{}", "[".repeat(3_000), "]".repeat(3_000));
    for (bad, named) in [
        ("", "is not JSON"),
        ("{n:1}", "is not JSON"),
        ("{} {}", "is not JSON"),
        ("\"\\u0000\"", "u0000"),
        (deep.as_str(), "nested"),
    ] {
        for path in ["/v1/events", "/v1/events/stream"] {
            let target = format!("{path}?{}", condition("true", Some(bad)));
            let detail = get_is_refused(&target, &[], 422, "params").await;
            assert!(detail.contains(named), "{named} is not in: {detail}");
        }
    }
    for path in ["/v1/events", "/v1/events/stream"] {
        let detail = get_is_refused(&format!("{path}?params=%7B%7D"), &[], 422, "params").await;
        assert!(detail.contains("without `where`") && detail.contains("leave it out"), "{detail}");
        get_is_refused(&format!("{path}?where=true&where=true"), &[], 400, "where").await;
        get_is_refused(&format!("{path}?where=%ff"), &[], 400, "where").await;
    }
    get_is_refused("/v1/events?state=pending&where=true", &[], 400, "where").await;
    get_is_refused("/v1/objects/o/events?where=true", &[], 400, "where").await;
    let long = condition("true", Some(&format!("\"{}\"", "x".repeat(70_000))));
    assert_refused(&server().await.get(&format!("/v1/events?{long}")).await, 414, "path");
}

#[tokio::test]
async fn another_content_type() {
    let server = server().await;
    let before = state(&server).await;
    for kind in ["text/plain", "application/x-www-form-urlencoded", "application/json; charset=latin1"] {
        assert_refused(&server.post_as(kind, b"{\"topic\":\"a\"}").await, 415, "content-type");
    }
    assert_refused(&server.request("POST", "/v1/events", &[], b"{\"topic\":\"a\"}").await, 415, "content-type");
    assert_eq!(state(&server).await, before);
}

#[tokio::test]
async fn an_idempotency_key_where_it_is_not_read() {
    let server = server().await;
    let before = state(&server).await;
    let headers = ["content-type: application/json", "idempotency-key: k"];
    let answer = server.request("POST", "/v1/events", &headers, b"{\"topic\":\"a\"}").await;
    assert!(assert_refused(&answer, 400, "idempotency-key").contains("`key`"));
    assert_eq!(state(&server).await, before);
}

#[tokio::test]
async fn a_wait_for_something_else() {
    let server = server().await;
    let before = state(&server).await;
    let kind = "Content-Type: application/json";
    assert_refused(&server.request("POST", "/v1/events?wait=5", &[kind], b"{\"topic\":\"a\"}").await, 400, "wait");
    assert_refused(&server.request("POST", "/v1/events?wiat=sync", &[kind], b"{\"topic\":\"a\"}").await, 400, "wiat");
    assert_eq!(state(&server).await, before);
}

/// H37 at the door: the sender goes away in the middle of its body.
#[tokio::test]
async fn a_body_that_ends_early_stores_nothing() {
    use tokio::io::AsyncWriteExt;
    let server = server().await;
    let before = state(&server).await;
    let head =
        "POST /v1/events HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n";
    let mut connection = tokio::net::TcpStream::connect(server.address).await.unwrap();
    connection.write_all(format!("{head}{{\"topic\":\"a\"}}").as_bytes()).await.unwrap();
    drop(connection);
    // A later request is answered, and the log is as it was.
    assert_eq!(server.get("/health").await.status, 200);
    assert_eq!(state(&server).await, before);
}
