//! The same API on Postgres.

use crate::support::Server;
use ensue_server::HttpOptions;
use serde_json::json;

#[tokio::test]
async fn publishing_reading_streaming_and_cancelling_work_on_postgres() {
    let (url, _schema) = ensue_conformance::postgres::fresh_schema("http");
    let bus = ensue::Ensue::open(&url).await.unwrap();
    let server = Server::serve(bus, HttpOptions::default()).await;
    assert_eq!(server.get("/ready").await.status, 200);
    let answer = server.post(r#"[{"topic":"a","object":"o","payload":{"x":1.50},"key":"k"},{"topic":"b"}]"#).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    assert_eq!(server.post(r#"{"topic":"a","object":"o","payload":{"x":1.50},"key":"k"}"#).await.status, 200);
    server.post(r#"{"topic":"other","key":"k"}"#).await.problem(409);
    let conflict = server.post(r#"[{"topic":"a"},{"topic":"other","key":"k"}]"#).await;
    assert!(conflict.problem(409).contains("`events[1].key` is `k`"), "{}", conflict.text());
    server.get("/v1/events?after=99").await.problem(422);
    assert!(server.post(r#"{"topic":""}"#).await.problem(422).contains("`topic`"));

    let delayed = server.post(r#"{"topic":"later","not_before":"2999-01-01T00:00:00Z"}"#).await.json();
    let path = format!("/v1/events/{}", delayed["events"][0]["id"].as_str().unwrap());
    assert_eq!(server.get(&path).await.json()["state"], "pending");
    assert_eq!(server.delete(&path).await.json()["state"], "cancelled");

    let mut stream = server.stream("?after=0&object=o", &[]).await;
    assert_eq!(stream.event().await.unwrap().data["payload"], json!({"x": 1.5}));
    let answer = server.post(r#"{"topic":"c","object":"o"}"#).await.json();
    assert_eq!(answer["events"][0]["prev"], json!(1));
    assert_eq!(stream.event().await.unwrap().data["prev"], json!(1));

    let page = server.get("/v1/events?topic=b").await.json();
    assert_eq!((&page["events"][0]["seq"], &page["next"]), (&json!(2), &json!(3)));
    assert_eq!(server.get("/v1/objects/o/events").await.json()["events"][0]["seq"], json!(3));
}
