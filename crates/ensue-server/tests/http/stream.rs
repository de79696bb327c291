//! Streams: history, then live, without a gap or a double, and told when something cannot be delivered.

use crate::support::moody::Moody;
use crate::support::{PATIENCE, Server};
use ensue::{Ensue, NewEvent};
use ensue_server::HttpOptions;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;

#[tokio::test]
async fn a_stream_without_a_place_begins_now() {
    let server = Server::start().await;
    server.publish("a", None).await;
    let mut stream = server.stream("", &[]).await;
    let seq = server.publish("b", None).await;
    let event = stream.event().await.unwrap();
    assert_eq!((event.id, event.event.as_str()), (Some(seq), "b"));
}

#[tokio::test]
async fn an_event_is_streamed_as_it_is_shown() {
    let server = Server::start().await;
    let body = r#"{"topic":"order.paid","object":"o","payload":{"text":"a\nb"},"metadata":{"m":1}}"#;
    assert_eq!(server.post(body).await.status, 201);
    let event = server.stream("?after=0", &[]).await.event().await.unwrap();
    assert_eq!(event.data, server.get("/v1/events/1").await.json());
    assert_eq!(event.data["payload"]["text"], "a\nb");
}

#[tokio::test]
async fn last_event_id_wins_over_after_and_resumes_behind_it() {
    let server = Server::start().await;
    for _ in 0..5 {
        server.publish("a", None).await;
    }
    let mut stream = server.stream("?after=0", &["Last-Event-ID: 3"]).await;
    assert_eq!(stream.event().await.unwrap().id, Some(4));
    let mut stream = server.stream("?after=2", &[]).await;
    assert_eq!(stream.event().await.unwrap().id, Some(3));
    // Browsers without an id send an empty one.
    let mut stream = server.stream("?after=1", &["Last-Event-ID:"]).await;
    assert_eq!(stream.event().await.unwrap().id, Some(2));
}

#[tokio::test]
async fn a_stream_can_begin_at_a_time_and_end_after_so_many() {
    let server = Server::start().await;
    for _ in 0..4 {
        server.publish("a", None).await;
    }
    let event = server.bus.store().event(1).await.unwrap().unwrap();
    let mut stream = server.stream(&format!("?from_time={}&after=1&limit=2", event.recorded_at), &[]).await;
    assert_eq!(stream.event().await.unwrap().id, Some(2));
    assert_eq!(stream.event().await.unwrap().id, Some(3));
    assert_eq!(stream.event().await, None);
}

/// H14: clients that come while others publish get every event once and in order, whether it was history or live.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn replay_before_live_without_a_gap_or_a_double_while_others_publish() {
    const EVENTS: u64 = 600;
    const CLIENTS: u64 = 12;
    let server = std::sync::Arc::new(Server::start().await);
    let mut clients = Vec::new();
    let publishers: Vec<_> = (0..3)
        .map(|_| {
            let server = server.clone();
            tokio::spawn(async move {
                for _ in 0..EVENTS / 3 {
                    server.publish("a", Some("o")).await;
                }
            })
        })
        .collect();
    for client in 0..CLIENTS {
        // Each comes at another moment of the publishing.
        while server.bounds().await.last < client * (EVENTS / CLIENTS) {
            tokio::task::yield_now().await;
        }
        let server = server.clone();
        clients.push(tokio::spawn(async move {
            let mut stream = server.stream(&format!("?after={client}"), &[]).await;
            for seq in client + 1..=EVENTS {
                let event = stream.event().await.unwrap();
                assert_eq!(event.id, Some(seq));
                let prev = if seq == 1 { Value::Null } else { json!(seq - 1) };
                assert_eq!(event.data["prev"], prev);
            }
        }));
    }
    for task in publishers.into_iter().chain(clients) {
        tokio::time::timeout(PATIENCE * 3, task).await.expect("publishing and streaming come to an end").unwrap();
    }
}

/// H14: what the client saw last is older than what retention left.
#[tokio::test]
async fn a_resume_older_than_the_log_is_told_what_is_missing() {
    let server = Server::start().await;
    for _ in 0..10 {
        server.publish("a", None).await;
    }
    server.bus.store().trim(6, 100).await.unwrap();
    let mut stream = server.stream("", &["Last-Event-ID: 2"]).await;
    let gap = stream.event().await.unwrap();
    assert_eq!((gap.event.as_str(), gap.data), ("ensue.gap", json!({"from": 3, "to": 5, "reason": "forgotten"})));
    // Who resumes behind the gap is not told of it again.
    assert_eq!(gap.id, Some(5));
    assert_eq!(stream.event().await.unwrap().id, Some(6));
    let mut stream = server.stream("", &["Last-Event-ID: 5"]).await;
    assert_eq!(stream.event().await.unwrap().id, Some(6));
}

/// H35: the log was restored from a backup, and the client has seen events that it does not have.
#[tokio::test]
async fn a_resume_beyond_the_end_of_the_log_is_told_and_goes_on_with_what_comes() {
    let server = Server::start().await;
    server.publish("a", None).await;
    let mut stream = server.stream("", &["Last-Event-ID: 500"]).await;
    let gap = stream.event().await.unwrap();
    assert_eq!((gap.event.as_str(), gap.data), ("ensue.gap", json!({"from": 2, "to": 500, "reason": "beyond_end"})));
    assert_eq!(gap.id, Some(1));
    server.publish("b", None).await;
    assert_eq!(stream.event().await.unwrap().id, Some(2));
}

/// H35: a failover loses what an open stream has delivered, and its numbers are given out again.
#[tokio::test]
async fn an_open_stream_is_told_that_the_log_went_back_and_gets_what_took_the_numbers() {
    let model = ensue_conformance::model::Model::new(ensue_conformance::ManualClock::at_noon().clock());
    let server = Server::serve(ensue::Ensue::with_store(model.clone()), HttpOptions::default()).await;
    let mut stream = server.stream("?after=0", &[]).await;
    for seq in 1..=5 {
        server.publish("lost", None).await;
        assert_eq!(stream.event().await.unwrap().id, Some(seq));
    }
    model.fail_over(2);
    server.publish("new", None).await;
    let gap = stream.event().await.unwrap();
    assert_eq!((gap.event.as_str(), gap.data), ("ensue.gap", json!({"from": 4, "to": 5, "reason": "went_back"})));
    // Who comes back now goes on before what was lost.
    assert_eq!(gap.id, Some(3));
    let new = stream.event().await.unwrap();
    assert_eq!((new.event.as_str(), new.id), ("new", Some(4)));
}

#[tokio::test]
async fn a_silent_stream_says_that_it_is_still_there() {
    let server =
        Server::start_with(HttpOptions { heartbeat: Duration::from_millis(20), ..HttpOptions::default() }).await;
    let mut stream = server.stream("", &[]).await;
    let mut beats = 0;
    while beats < 3 {
        let block = stream.block().await.unwrap();
        assert_eq!((block.id, block.event.as_str()), (Some(0), ""));
        beats += usize::from(block.comment.contains("still here"));
    }
    // And events still come.
    let seq = server.publish("a", None).await;
    assert_eq!(stream.event().await.unwrap().id, Some(seq));
}

/// H4: the predecessor was filtered out; `prev` is the one before it that the client gets.
#[tokio::test]
async fn prev_is_the_previous_event_that_the_filter_matches() {
    let server = Server::start().await;
    for topic in ["order.placed", "audit", "order.paid", "audit", "orders"] {
        server.publish(topic, Some("o")).await;
    }
    let mut stream = server.stream("?after=0&topic=order", &[]).await;
    let (placed, paid) = (stream.event().await.unwrap(), stream.event().await.unwrap());
    assert_eq!((placed.id, &placed.data["prev"]), (Some(1), &Value::Null));
    assert_eq!((paid.id, &paid.data["prev"]), (Some(3), &json!(1)));
    server.publish("order.sent", Some("o")).await;
    let sent = stream.event().await.unwrap();
    assert_eq!((sent.id, &sent.data["prev"]), (Some(6), &json!(3)));
    // A client that comes later, and has not seen event 3, is told of it all the same.
    let mut late = server.stream("?after=5&topic=order", &[]).await;
    assert_eq!(late.event().await.unwrap().data["prev"], json!(3));
}

#[tokio::test]
async fn what_cannot_be_decided_of_prev_is_said() {
    let server = Server::start().await;
    server.publish("order.placed", Some("o")).await;
    for _ in 0..150 {
        server.publish("audit", Some("o")).await;
    }
    let seq = server.publish("order.paid", Some("o")).await;
    let mut stream = server.stream(&format!("?after={}&topic=order", seq - 1), &[]).await;
    let event = stream.event().await.unwrap();
    assert_eq!(event.data["prev"], Value::Null);
    assert!(event.data["prev_since"].as_u64().is_some_and(|since| since > 1 && since < seq), "{}", event.data);
}

#[tokio::test]
async fn only_the_objects_and_topics_asked_for_are_streamed() {
    let server = Server::start().await;
    for (topic, object) in [("a", "x"), ("a.b", "x"), ("ab", "x"), ("a", "y"), ("a.c", "x")] {
        server.publish(topic, Some(object)).await;
    }
    let mut stream = server.stream("?after=0&topic=a&object=x&limit=3", &[]).await;
    let mut seen = Vec::new();
    while let Some(event) = stream.event().await {
        seen.push(event.id.unwrap());
    }
    assert_eq!(seen, [1, 2, 5]);
}

#[tokio::test]
async fn streams_end_at_once_when_the_server_stops() {
    let stop = watch::Sender::new(false);
    let server = Server::start_with(HttpOptions { stop: stop.subscribe(), ..HttpOptions::default() }).await;
    let mut stream = server.stream("", &[]).await;
    stop.send_replace(true);
    // A stream that does not end does not fall silent either: its heartbeats are no events.
    let end = tokio::time::timeout(PATIENCE, stream.event()).await;
    assert_eq!(end.expect("the stream goes on"), None);
}

/// A client that does not read holds up nobody, and the server does not read the log for it into memory: what one client
/// takes to the end, the other leaves in the store.
#[tokio::test]
async fn a_client_that_does_not_read_leaves_the_log_in_the_store() {
    const EVENTS: u64 = 3_000;
    let memory = Ensue::open("sqlite::memory:").await.unwrap();
    let store = Moody::new(memory.store().clone(), Arc::default());
    let events_read = store.events_read.clone();
    let server = Server::serve(Ensue::with_store(store), HttpOptions::default()).await;
    let payload = "x".repeat(10_000);
    for _ in 0..EVENTS / 500 {
        let batch = (0..500).map(|_| NewEvent::new("a").payload(&payload)).collect();
        server.bus.publish_all(batch).await.unwrap();
    }
    let _silent = server.stream("?after=0", &[]).await;
    let mut reading = server.stream("?after=0", &[]).await;
    for seq in 1..=EVENTS {
        assert_eq!(reading.event().await.unwrap().id, Some(seq));
    }
    // The reading one took each event once, and a few more where pages were larger than what is held of them.
    let for_the_silent = events_read.load(Ordering::Relaxed) - EVENTS as usize;
    assert!(for_the_silent < EVENTS as usize / 2, "{for_the_silent} events were read for nobody");
}
