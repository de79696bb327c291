//! Events as CloudEvents: a round trip keeps the event, and pages, webhooks and empty batches have the right form.

use crate::support::Server;
use serde_json::{Value, json};

const ONE: &str = "application/cloudevents+json";
const BATCH: &str = "application/cloudevents-batch+json";

async fn get(server: &Server, target: &str, accept: &str) -> (String, Value) {
    let answer = server.request("GET", target, &[&format!("Accept: {accept}")], b"").await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    (answer.headers["content-type"].clone(), answer.json())
}

#[tokio::test]
async fn cloud_event_comes_back_as_it_was_published() {
    let server = Server::start().await;
    let sent = json!({"specversion": "1.0", "id": "A234-1234", "source": "https://example.com/shop", "type": "order.paid",
        "subject": "order:1", "time": "2018-04-05T17:31:00Z", "datacontenttype": "application/vnd.shop+json",
        "dataschema": "https://example.com/schema", "tenant": "a", "priority": 7, "urgent": true,
        "data": {"total": 12.5, "large": 12345678901234567890_u64}});
    let binary = json!({"specversion": "1.0", "id": "2", "source": "s", "type": "image", "datacontenttype": "image/png",
        "data_base64": "aGVsbG8="});
    let empty = json!({"specversion": "1.0", "id": "3", "source": "s", "type": "ping"});
    let batch = json!([sent, binary, empty]);
    assert_eq!(server.post_as(BATCH, batch.to_string().as_bytes()).await.status, 201);
    for (seq, sent) in (1..).zip([sent, binary, empty]) {
        let (kind, mut got) = get(&server, &format!("/v1/events/{seq}"), ONE).await;
        assert_eq!(kind, ONE);
        assert_eq!(got["seq"], seq.to_string());
        let recorded = got.as_object_mut().unwrap().remove("recordedtime").unwrap();
        for ours in ["seq", "prev"] {
            got.as_object_mut().unwrap().remove(ours);
        }
        if sent.get("time").is_none() {
            assert_eq!(got.as_object_mut().unwrap().remove("time").unwrap(), recorded);
        }
        assert_eq!(got, sent);
    }
}

#[tokio::test]
async fn events_of_our_own_form_are_valid_cloud_events() {
    let server = Server::start().await;
    let body = json!({"topic": "order.paid", "object": "order:1", "payload": {"n": 1},
        "metadata": {"tenant": "a", "Not-Valid": [1.50]}, "occurred_at": "2020-01-02T03:04:05Z"});
    let first = server.post(&body.to_string()).await.json()["events"][0].clone();
    server.post(&body.to_string()).await;
    let (_, event) = get(&server, "/v1/events/2", ONE).await;
    assert_eq!((&event["seq"], &event["prev"]), (&json!("2"), &json!("1")));
    let (kind, page) = get(&server, "/v1/events?limit=1", BATCH).await;
    assert_eq!((kind.as_str(), page.as_array().unwrap().len()), (BATCH, 1));
    let event = &page[0];
    assert_eq!((&event["id"], &event["source"]), (&first["id"], &json!("/ensue")));
    assert_eq!((&event["type"], &event["subject"]), (&json!("order.paid"), &json!("order:1")));
    assert_eq!((&event["time"], &event["tenant"]), (&json!("2020-01-02T03:04:05Z"), &json!("a")));
    assert_eq!((&event["data"], &event["datacontenttype"]), (&json!({"n": 1}), &json!("application/json")));
    assert_eq!(event["ensuemetadata"], "{\"Not-Valid\":[1.5]}");
    let answer = server.request("GET", "/v1/events?limit=1", &[&format!("Accept: {BATCH}")], b"").await;
    assert_eq!((answer.headers["ensue-next"].as_str(), answer.headers["ensue-first"].as_str()), ("1", "1"));
    // Without a preference nothing changes.
    assert_eq!(get(&server, "/v1/events/1", "*/*").await.0, "application/json");
    let later = json!({"topic": "later", "not_before": "2999-01-01T00:00:00Z"});
    let later = server.post(&later.to_string()).await.json()["events"][0]["id"].clone();
    let (_, pending) = get(&server, &format!("/v1/events/{}", later.as_str().unwrap()), ONE).await;
    assert_eq!((&pending["notbefore"], pending.get("seq")), (&json!("2999-01-01T00:00:00Z"), None));
    let (_, pending) = get(&server, "/v1/events?state=pending", ONE).await;
    assert_eq!(pending[0]["id"], later);
}

#[tokio::test]
async fn empty_batch_of_cloud_events_is_accepted() {
    let server = Server::start().await;
    for body in ["[]", " [ ] "] {
        let answer = server.post_as(BATCH, body.as_bytes()).await;
        assert_eq!((answer.status, answer.json()), (200, json!({"events": []})));
    }
    assert_eq!(server.bounds().await.last, 0);
    server.post("[]").await.problem(422);
    server.post_as(BATCH, b"{}").await.problem(400);
}
