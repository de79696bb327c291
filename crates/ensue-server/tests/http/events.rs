//! Publishing in every form, reading, finding and cancelling.

use crate::support::{Answer, Server};
use serde_json::{Value, json};

fn seqs(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["events"].as_array().unwrap().iter().map(|event| event["seq"].clone()).collect()
}

#[tokio::test]
async fn one_event_is_answered_with_its_place_and_shown_as_it_was_sent() {
    let server = Server::start().await;
    let first = server.post(r#"{"topic":"order.placed","object":"order:1"}"#).await;
    assert_eq!((first.status, first.headers["content-type"].as_str()), (201, "application/json"));
    let to = server.group_ok("POST", "g/subscriptions", json!({"topic": "x"}), 201).await["id"].clone();
    let body = format!(
        r#"{{"topic":"order.paid","object":"order:1","payload":{{"total": 120.50}},"metadata":{{"by":"me"}},
        "occurred_at":"2026-11-15T13:00:00+01:00","to":{to}}}"#
    );
    let second = server.post(&body).await.json();
    let answer = &second["events"][0];
    assert_eq!((&answer["seq"], &answer["prev"]), (&json!(2), &json!(1)));
    assert_eq!(answer.as_object().unwrap().len(), 3, "id, seq and prev");

    let id = answer["id"].as_str().unwrap();
    let by_seq = server.get("/v1/events/2").await;
    assert!(by_seq.text().contains(r#""payload":{"total":120.50}"#), "numbers are kept as written: {}", by_seq.text());
    let event = by_seq.json();
    assert_eq!(event, server.get(&format!("/v1/events/{id}")).await.json());
    let recorded_at = event["recorded_at"].clone();
    assert_eq!(
        event,
        json!({"seq": 2, "prev": 1, "id": id, "topic": "order.paid", "object": "order:1", "payload": {"total": 120.5},
            "metadata": {"by": "me"}, "occurred_at": "2026-11-15T12:00:00Z", "recorded_at": recorded_at,
            "to": to, "state": "logged"})
    );
}

#[tokio::test]
async fn a_batch_gets_consecutive_places_as_an_array_or_as_lines() {
    let server = Server::start().await;
    let array = server.post(r#"[{"topic":"a","object":"o"},{"topic":"b"},{"topic":"c","object":"o"}]"#).await;
    assert_eq!(array.status, 201);
    let events = array.json()["events"].clone();
    assert_eq!([&events[0]["seq"], &events[1]["seq"], &events[2]["seq"]], [&json!(1), &json!(2), &json!(3)]);
    assert_eq!([&events[0]["prev"], &events[1]["prev"], &events[2]["prev"]], [&Value::Null, &Value::Null, &json!(1)]);
    let lines = b"{\"topic\":\"d\"}\n\n{\"topic\":\"e\"}";
    let lines = server.post_as("application/x-ndjson; charset=utf-8", lines).await;
    assert_eq!((lines.status, lines.json()["events"][1]["seq"].clone()), (201, json!(5)));
}

#[tokio::test]
async fn the_largest_batch_is_taken() {
    let server = Server::start().await;
    let body = format!("[{}]", vec![r#"{"topic":"a"}"#; 1_000].join(","));
    assert_eq!(server.post(&body).await.status, 201);
    assert_eq!(server.bounds().await.last, 1_000);
}

#[tokio::test]
async fn a_repeated_key_is_answered_as_the_first_time_and_another_event_under_it_is_refused() {
    let server = Server::start().await;
    let first = server.post(r#"{"topic":"a","payload":{"x":1},"key":"k"}"#).await;
    let again = server.post(r#"{"key":"k","topic":"a","payload":{ "x": 1 }}"#).await;
    assert_eq!((first.status, again.status), (201, 200));
    assert_eq!(first.json(), again.json());
    let other = server.post(r#"{"topic":"a","payload":{"x":2},"key":"k"}"#).await;
    assert!(other.problem(409).contains("`k`"));
    // One that is new beside one that is not: something was made.
    let mixed = server.post(r#"[{"topic":"a","payload":{"x":1},"key":"k"},{"topic":"b"}]"#).await;
    assert_eq!(mixed.status, 201);
    assert_eq!(server.bounds().await.last, 2);
}

#[tokio::test]
async fn waiting_for_sync_handlers_answers_at_once_where_there_are_none() {
    let server = Server::start().await;
    let answer =
        server.request("POST", "/v1/events?wait=sync", &["Content-Type: application/json"], b"{\"topic\":\"a\"}");
    assert_eq!(answer.await.status, 201);
}

#[tokio::test]
async fn a_delayed_event_is_pending_until_it_is_cancelled() {
    let server = Server::start().await;
    let body = r#"{"topic":"later","object":"o","payload":[1],"not_before":"2999-01-01T00:00:00Z"}"#;
    let answer = server.post(body).await;
    let published = answer.json()["events"][0].clone();
    assert_eq!((answer.status, &published["seq"], &published["prev"]), (201, &Value::Null, &Value::Null));
    let id = published["id"].as_str().unwrap();
    let path = format!("/v1/events/{id}");

    let shown = server.get(&path).await.json();
    assert_eq!((&shown["state"], &shown["not_before"]), (&json!("pending"), &json!("2999-01-01T00:00:00Z")));
    assert_eq!((&shown["seq"], &shown["prev"], &shown["recorded_at"]), (&Value::Null, &Value::Null, &Value::Null));
    let listed = server.get("/v1/events?state=pending").await.json();
    assert_eq!((&listed["events"][0], &listed["next"]), (&shown, &Value::Null));
    assert_eq!(seqs(&server.get("/v1/events").await), [] as [Value; 0]);

    let cancelled = server.delete(&path).await;
    assert_eq!((cancelled.status, cancelled.json()), (200, json!({"id": id, "state": "cancelled"})));
    assert!(server.delete(&path).await.problem(404).contains(id));
    assert!(server.get(&path).await.problem(404).contains(id));
}

#[tokio::test]
async fn what_is_in_the_log_cannot_be_cancelled() {
    let server = Server::start().await;
    let id = server.post(r#"{"topic":"a"}"#).await.json()["events"][0]["id"].as_str().unwrap().to_string();
    assert!(server.delete(&format!("/v1/events/{id}")).await.problem(409).contains("in the log"));
    assert!(server.delete("/v1/events/1").await.problem(409).contains("in the log"));
    server.delete("/v1/events/2").await.problem(404);
    assert_eq!(server.get("/v1/events/1").await.status, 200);
}

#[tokio::test]
async fn pages_lead_through_the_log_with_every_filter() {
    let server = Server::start().await;
    for (topic, object) in [("order.paid", "x"), ("orders", "x"), ("order", "y"), ("other", "x"), ("order.sent", "x")] {
        server.publish(topic, Some(object)).await;
    }
    let page = server.get("/v1/events?limit=2").await;
    assert_eq!((seqs(&page), page.json()["next"].clone()), (vec![json!(1), json!(2)], json!(2)));
    assert_eq!(seqs(&server.get("/v1/events?after=2").await), [3, 4, 5]);
    assert_eq!(seqs(&server.get("/v1/events?topic=order").await), [1, 3, 5]);
    assert_eq!(seqs(&server.get("/v1/events?object=x").await), [1, 2, 4, 5]);
    assert_eq!(seqs(&server.get("/v1/events?object=x&topic=order&after=1").await), [5]);
    let end = server.get("/v1/events?after=5").await;
    assert_eq!((seqs(&end).len(), end.json()["next"].clone()), (0, json!(5)));
    let time = server.bus.store().event(1).await.unwrap().unwrap().recorded_at;
    assert_eq!(seqs(&server.get(&format!("/v1/events?from_time={time}&after=3")).await), [4, 5]);
    assert_eq!(seqs(&server.get("/v1/events?from_time=2999-01-01T00:00:00Z").await), [] as [Value; 0]);
}

#[tokio::test]
async fn an_objects_chain_is_walked_back_page_by_page() {
    let server = Server::start().await;
    for index in 0..150 {
        server.publish("a", Some("work/1 ü")).await;
        server.publish("a", Some(&format!("other:{index}"))).await;
    }
    let path = "/v1/objects/work%2F1%20%C3%BC/events";
    let (mut seen, mut next) = (Vec::new(), Value::Null);
    loop {
        let before = next.as_u64().map_or(String::new(), |next| format!("&before={next}"));
        let page = server.get(&format!("{path}?limit=70{before}")).await;
        seen.extend(seqs(&page).iter().map(|seq| seq.as_u64().unwrap()));
        next = page.json()["next"].clone();
        if next.is_null() {
            break;
        }
    }
    assert_eq!(seen, (0..150).rev().map(|index| 2 * index + 1).collect::<Vec<u64>>());
    let unknown = server.get("/v1/objects/nobody/events").await;
    assert_eq!((seqs(&unknown).len(), unknown.json()["next"].clone()), (0, Value::Null));
}

#[tokio::test]
async fn an_event_that_retention_took_is_said_to_be_gone() {
    let server = Server::start().await;
    assert!(server.get("/v1/events/1").await.problem(404).contains("empty"));
    for _ in 0..5 {
        server.publish("a", None).await;
    }
    server.bus.store().trim(4, 100).await.unwrap();
    let detail = server.get("/v1/events/2").await.problem(404);
    assert!(detail.contains("retention") && detail.contains("oldest is 4"), "{detail}");
    assert!(server.get("/v1/events/9").await.problem(404).contains("newest is 5"));
    assert!(server.get("/v1/events/0").await.problem(404).contains("seq 1"));
    let unknown = "0190a5a0-0000-7000-8000-000000000001";
    assert!(server.get(&format!("/v1/events/{unknown}")).await.problem(404).contains(unknown));
}

/// Who begins at the beginning sees that it is not the first event that there ever was.
#[tokio::test]
async fn a_page_says_where_the_log_begins() {
    let server = Server::start().await;
    let first = async |target: &str| server.get(target).await.json()["first"].clone();
    assert_eq!(first("/v1/events").await, 1);
    for _ in 0..5 {
        server.publish("a", None).await;
    }
    assert_eq!(first("/v1/events?after=0").await, 1);
    server.bus.store().trim(4, 100).await.unwrap();
    let page = server.get("/v1/events?after=0&limit=1").await;
    assert_eq!((seqs(&page), page.json()["first"].clone()), (vec![json!(4)], json!(4)));
    assert_eq!(first("/v1/events?topic=none").await, 4);
    server.bus.store().trim(6, 100).await.unwrap();
    assert_eq!(first("/v1/events?after=0").await, 6);
}

const CLOUD_EVENT: &str = r#"{"specversion":"1.0","id":"1","source":"/shop","type":"order.paid","subject":"order:1",
    "time":"2026-11-15T12:00:00Z","datacontenttype":"application/json","dataschema":"urn:x","traceparent":"00-ab",
    "attempt":3,"urgent":true,"nothing":null,"data":{"total":5}}"#;

#[tokio::test]
async fn cloudevents_structured() {
    let server = Server::start().await;
    let kind = "application/cloudevents+json; charset=utf-8";
    let answer = server.post_as(kind, CLOUD_EVENT.as_bytes()).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let event = server.get("/v1/events/1").await.json();
    assert_eq!((&event["topic"], &event["object"]), (&json!("order.paid"), &json!("order:1")));
    assert_eq!((&event["occurred_at"], &event["payload"]), (&json!("2026-11-15T12:00:00Z"), &json!({"total": 5})));
    assert_eq!(
        event["metadata"],
        json!({"source": "/shop", "id": "1", "datacontenttype": "application/json", "dataschema": "urn:x",
            "traceparent": "00-ab", "attempt": 3, "urgent": true})
    );
    // Source and id are the key.
    let again = server.post_as(kind, CLOUD_EVENT.as_bytes()).await;
    assert_eq!((again.status, again.json()), (200, answer.json()));
    let other = CLOUD_EVENT.replace("order:1", "order:2");
    server.post_as(kind, other.as_bytes()).await.problem(409);
    // Faults are named as CloudEvents names the attribute.
    for (from, to, named) in [
        ("order.paid", "a..b", "`type`"),
        ("order:1", "", "`subject`"),
        (r#"{"total":5}"#, "1e999999", "`data`"),
        (r#""id":"1","#, "", "`id`"),
        ("1.0", "2.0", "`specversion`"),
    ] {
        let detail = server.post_as(kind, CLOUD_EVENT.replace(from, to).as_bytes()).await.problem(422);
        assert!(detail.contains(named), "{detail}");
    }
    assert_eq!(server.bounds().await.last, 1);
}

/// S8: whoever guesses how a CloudEvent's key is made cannot take it, and is not taken for it.
#[tokio::test]
async fn a_key_of_ones_own_is_never_that_of_a_cloudevent() {
    let server = Server::start().await;
    let cloud = r#"{"specversion":"1.0","id":"1","source":"/s","type":"a"}"#;
    let kind = "application/cloudevents+json";
    assert_eq!(server.post_as(kind, cloud.as_bytes()).await.status, 201);
    for key in ["2:/s:1", "/s1", "/s:1", "/s 1"] {
        let answer = server.post(&format!(r#"{{"topic":"b","key":"{key}"}}"#)).await;
        assert_eq!(answer.status, 201, "{key}: {}", answer.text());
    }
    let detail = server.post(r#"{"topic":"b","key":"\u001f/s\u001f1"}"#).await.problem(422);
    assert!(detail.contains("control character"), "{detail}");
    assert_eq!(server.post_as(kind, cloud.as_bytes()).await.status, 200);
    // A conflict is told in words that its sender knows.
    let other = cloud.replace("\"a\"", "\"b\"");
    let detail = server.post_as(kind, other.as_bytes()).await.problem(409);
    assert!(detail.contains("`/s 1`"), "{detail}");
}

#[tokio::test]
async fn cloudevents_batch() {
    let server = Server::start().await;
    let kind = "application/cloudevents-batch+json";
    let second = CLOUD_EVENT.replace(r#""id":"1""#, r#""id":"2""#);
    let answer = server.post_as(kind, format!("[{CLOUD_EVENT},{second}]").as_bytes()).await;
    assert_eq!((answer.status, answer.json()["events"][1]["prev"].clone()), (201, json!(1)), "{}", answer.text());
    let bad = CLOUD_EVENT.replace("order.paid", "");
    let detail = server.post_as(kind, format!("[{CLOUD_EVENT},{bad}]").as_bytes()).await.problem(422);
    assert!(detail.contains("`events[1].type`"), "{detail}");
    let bad = CLOUD_EVENT.replace("order.paid", "a b");
    let detail = server.post_as(kind, format!("[{CLOUD_EVENT},{bad}]").as_bytes()).await.problem(422);
    assert!(detail.contains("`events[1].type`"), "{detail}");
    assert_eq!(server.bounds().await.last, 2);
}

#[tokio::test]
async fn cloudevents_binary() {
    let server = Server::start().await;
    let headers = [
        "ce-specversion: 1.0",
        "ce-id: 1",
        "ce-source: /shop",
        "ce-type: order.paid",
        "ce-subject: gr%C3%B6%C3%9Fe",
        "ce-time: 2026-11-15T12:00:00Z",
        "ce-traceparent: 00-ab",
    ];
    let post = async |more: &[&str], body: &[u8]| {
        let id = format!("ce-id: {}", server.bounds().await.last + 1);
        let mut all: Vec<&str> = headers.iter().chain(more).copied().collect();
        all[1] = &id;
        let answer = server.request("POST", "/v1/events", &all, body).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        let seq = answer.json()["events"][0]["seq"].clone();
        server.get(&format!("/v1/events/{seq}")).await.json()
    };
    let event = post(&["Content-Type: application/json"], b"{\"total\": 5}").await;
    assert_eq!(
        (&event["topic"], &event["object"], &event["payload"]),
        (&json!("order.paid"), &json!("größe"), &json!({"total": 5}))
    );
    let metadata = json!({"source": "/shop", "id": "1", "traceparent": "00-ab", "datacontenttype": "application/json"});
    assert_eq!(event["metadata"], metadata);

    let text = post(&["Content-Type: text/plain; charset=utf-8"], "grüß \"dich\"".as_bytes()).await;
    assert_eq!((&text["payload"], &text["metadata"]["data_encoding"]), (&json!("grüß \"dich\""), &Value::Null));
    let bytes = post(&["Content-Type: image/png"], &[0xff, 0xfe]).await;
    assert_eq!((&bytes["payload"], &bytes["metadata"]["data_encoding"]), (&json!("//4="), &json!("base64")));
    let nothing = post(&[], b"").await;
    assert_eq!(nothing["payload"], Value::Null);

    let refused = async |from: &str, to: &str, body: &[u8], status: u16, named: &str| {
        let mut all = vec!["Content-Type: application/json"];
        all.extend(headers.iter().map(|header| if header.starts_with(from) { to } else { header }));
        let detail = server.request("POST", "/v1/events", &all, body).await.problem(status);
        assert!(detail.contains(named), "{detail}");
    };
    refused("ce-type", "ce-type: a..b", b"1", 422, "`ce-type`").await;
    refused("ce-type", "x-type: a", b"1", 422, "`ce-type`").await;
    refused("ce-time", "ce-time: noon", b"1", 422, "`ce-time`").await;
    refused("ce-specversion", "ce-specversion: 0.3", b"1", 422, "`ce-specversion`").await;
    refused("ce-subject", "ce-subject: %ff", b"1", 400, "`ce-subject`").await;
    refused("ce-subject", "ce-my-ext: 1", b"1", 422, "`ce-my-ext`").await;
    refused("ce-subject", "ce-id: 7", b"1", 400, "`ce-id`").await;
    refused("nothing", "", b"{", 400, "`body`").await;
    assert_eq!(server.bounds().await.last, 4);
}

/// What an application mounts is the same API, below its own path.
#[tokio::test]
async fn the_router_can_be_mounted_below_a_path() {
    let bus = ensue::Ensue::open("sqlite::memory:").await.unwrap();
    let app = axum::Router::new().nest("/bus", ensue_server::router(bus.clone()));
    let server = Server::serve_router(bus, app).await;
    let kind = ["Content-Type: application/json"];
    assert_eq!(server.request("POST", "/bus/v1/events", &kind, b"{\"topic\":\"a\"}").await.status, 201);
    assert_eq!(server.get("/bus/v1/events/1").await.json()["topic"], "a");
    server.get("/bus/v1/nothing").await.problem(404);
    assert_eq!(server.get("/bus/health").await.status, 200);
}
