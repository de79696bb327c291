//! Delayed events enter when they are due, old ones go when retention says so, and both go on after a restart.

use ensue::{Ensue, Found, NewEvent, Options, Retention, Subscription, Timestamp};
use std::time::Duration;

fn in_millis(millis: i64) -> Timestamp {
    Timestamp::now() + jiff::SignedDuration::from_millis(millis)
}

#[tokio::test]
async fn delayed_events_enter_the_log_when_due_in_due_order() {
    for millis in [60, 600, 6_000, 60_000] {
        if delayed_events_enter_when_due(millis).await {
            return;
        }
    }
    panic!("nothing is published before it is due");
}

/// Whether this machine publishes so fast that something is delayed at all.
async fn delayed_events_enter_when_due(millis: i64) -> bool {
    let bus = Ensue::memory().await.unwrap();
    let running = bus.start().await.unwrap();
    let mut stream = bus.stream(Subscription::all()).await.unwrap();
    let (late_due, soon_due) = (in_millis(2 * millis), in_millis(millis));
    let late = bus.publish(NewEvent::new("late").object("o").not_before(late_due)).await.unwrap();
    let soon = bus.publish(NewEvent::new("soon").object("o").not_before(soon_due)).await.unwrap();
    let is_pending = matches!(bus.store().find(late.id).await.unwrap(), Some(Found::Pending(_)));
    let now = bus.publish(NewEvent::new("now").object("o")).await.unwrap();
    if Timestamp::now() >= soon_due {
        return false;
    }
    assert_eq!((late.seq, soon.seq, is_pending, now.seq), (None, None, true, Some(1)));
    let mut ids = Vec::new();
    for _ in 0..3 {
        let event = stream.next_event().await.unwrap().event;
        let due =
            [("late", late_due), ("soon", soon_due)].into_iter().find(|(topic, _)| *topic == event.topic.as_str());
        assert!(due.is_none_or(|(_, due)| event.recorded_at >= due), "{event:?} came too early");
        ids.push((event.id, event.prev));
    }
    assert_eq!(ids, [(now.id, None), (soon.id, Some(1)), (late.id, Some(2))]);
    running.shutdown(Duration::from_secs(60)).await.unwrap();
    true
}

#[tokio::test]
async fn a_delayed_event_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("e.db");
    let path = path.to_str().unwrap();
    let bus = Ensue::open(path).await.unwrap();
    let delayed = bus.publish(NewEvent::new("later").not_before(in_millis(50))).await.unwrap();
    bus.close().await;
    let bus = Ensue::open(path).await.unwrap();
    let _running = bus.start().await.unwrap();
    let mut stream = bus.stream(Subscription::all().after(0)).await.unwrap();
    assert_eq!(stream.next_event().await.unwrap().event.id, delayed.id);
}

#[tokio::test]
async fn retention_trims_by_size_and_numbers_go_on() {
    let retention = Retention { bytes: Some(100_000), ..Retention::default() };
    let options = Options { retention, retention_interval: Duration::from_millis(10), ..Options::default() };
    let bus = Ensue::open_with("sqlite::memory:", options).await.unwrap();
    let running = bus.start().await.unwrap();
    for _ in 0..20 {
        bus.publish_all(vec![NewEvent::new("t").payload(&"x".repeat(1_000)); 50]).await.unwrap();
    }
    // Waits for the condition: what is left is about what was asked for.
    while bus.store().bytes().await.unwrap() > 100_000 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let bounds = bus.store().bounds().await.unwrap();
    assert_eq!(bounds.last, 1_000);
    assert!((80..=100).contains(&bounds.count()), "{bounds:?}");
    running.shutdown(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn retention_trims_by_age() {
    let retention = Retention { age: Some(jiff::SignedDuration::from_millis(50)), ..Retention::default() };
    let options = Options { retention, retention_interval: Duration::from_millis(10), ..Options::default() };
    let bus = Ensue::open_with("sqlite::memory:", options).await.unwrap();
    let _running = bus.start().await.unwrap();
    bus.publish_all(vec![NewEvent::new("t").object("o"); 100]).await.unwrap();
    while bus.store().bounds().await.unwrap().count() > 0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let next = bus.publish(NewEvent::new("t").object("o")).await.unwrap();
    assert_eq!((next.seq, next.prev), (Some(101), None));
}
