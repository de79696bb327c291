//! The extent of the log, and reading it newest first.

use crate::support::Server;
use ensue::Ensue;
use ensue_server::HttpOptions;
use serde_json::{Value, json};

/// The same on both engines.
async fn servers() -> [Server; 2] {
    let (url, _schema) = ensue_conformance::postgres::fresh_schema("http");
    let postgres = Server::serve(Ensue::open(&url).await.unwrap(), HttpOptions::default()).await;
    [Server::start().await, postgres]
}

fn seqs(page: &Value) -> Vec<u64> {
    page["events"].as_array().unwrap().iter().map(|event| event["seq"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn log_endpoint_returns_bounds_and_bytes() {
    for server in servers().await {
        assert_eq!(server.get("/v1/log").await.json(), json!({ "first": null, "last": null, "bytes": 0 }));
        for _ in 0..3 {
            server.publish("order.paid", None).await;
        }
        let log = server.get("/v1/log").await.json();
        assert_eq!((&log["first"], &log["last"]), (&json!(1), &json!(3)));
        assert!(log["bytes"].as_u64().unwrap() > 0, "{log}");
        server.bus.store().trim(2, 10).await.unwrap();
        assert_eq!(server.get("/v1/log").await.json()["first"], 2);
        server.bus.store().trim(4, 10).await.unwrap();
        assert_eq!(server.get("/v1/log").await.json(), json!({ "first": null, "last": null, "bytes": 0 }));
    }
}

#[tokio::test]
async fn descending_pages_begin_with_the_newest_event() {
    for server in servers().await {
        for n in 0..10 {
            server.publish(["order.paid", "mail"][n % 2], Some(["a", "b"][n % 2])).await;
        }
        let page = server.get("/v1/events?order=desc&limit=4").await.json();
        assert_eq!((seqs(&page), &page["next"], &page["first"]), (vec![10, 9, 8, 7], &json!(7), &json!(1)));
        let page = server.get("/v1/events?order=desc&limit=4&before=3").await.json();
        assert_eq!((seqs(&page), &page["next"]), (vec![2, 1], &json!(null)));
        for (query, expected) in [
            ("topic=order", vec![9, 7, 5, 3, 1]),
            ("object=b&limit=2", vec![10, 8]),
            ("where=e.seq%20%3C%204", vec![3, 2, 1]),
            ("after=7", vec![10, 9, 8]),
            ("after=7&before=10", vec![9, 8]),
            ("before=1", vec![]),
            ("before=0", vec![]),
            ("before=99&limit=1", vec![10]),
        ] {
            let page = server.get(&format!("/v1/events?order=desc&{query}")).await.json();
            assert_eq!(seqs(&page), expected, "{query}");
        }
        let ascending = server.get("/v1/events").await.json();
        assert_eq!(server.get("/v1/events?order=asc").await.json(), ascending);
        for (query, field) in
            [("before=3", "`before`"), ("order=up", "`order`"), ("state=pending&order=desc", "`order`")]
        {
            let detail = server.get(&format!("/v1/events?{query}")).await.problem(400);
            assert!(detail.contains(field), "{detail}");
        }
    }
}
