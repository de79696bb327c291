//! Events that one transaction publishes with several calls are consecutive in the log.

use crate::outbox::{Publisher, topics};
use crate::support::{Log, on, whole_log};
use ensue_conformance::suite::checked;
use ensue_core::{Event, NewEvent};
use std::collections::HashMap;

/// The events of each writer must be consecutive. The writer is the first word of the topic.
fn assert_together(log: &[Event]) {
    let mut ends: HashMap<&str, u64> = HashMap::new();
    for event in log {
        let writer = event.topic.as_str().split('.').next().unwrap();
        let before = ends.insert(writer, event.seq);
        assert!(before.is_none_or(|before| before + 1 == event.seq), "{writer} is split at {}", event.seq);
    }
}

/// Three transactions write in turns, rows of all kinds.
#[tokio::test]
async fn events_of_one_transaction_stay_together() {
    for limit in [1, 2, 3, 5, 1_000] {
        let log = Log::new().await;
        let store = log.open().await;
        let (a, b) = (Publisher::of(&log).await, Publisher::of(&log).await);
        let c = Publisher::of(&log).await;
        for writer in [&a, &b, &c] {
            writer.run("BEGIN").await.unwrap();
        }
        a.publish("a.main", "o").await;
        let many = r#"[{"topic":"b.1","object":"p"},{"topic":"b.2","object":"p"}]"#;
        b.run(&format!("SELECT LOG.publish_many('{many}')")).await.unwrap();
        c.publish("c.1", "q").await;
        a.run("SAVEPOINT s; SELECT LOG.publish('a.undone'); ROLLBACK TO s").await.unwrap();
        a.run("SELECT LOG.publish('a.sub', object => 'o', key => 'k')").await.unwrap();
        b.publish("b.3", "p").await;
        a.publish("a.last", "r").await;
        c.publish("c.2", "q").await;
        b.publish("b.4", "p").await;
        for writer in [&c, &b, &a] {
            writer.run("COMMIT").await.unwrap();
        }
        while log.number("SELECT count(*) FROM LOG.outbox").await > 0 {
            store.release_due(limit).await.unwrap();
        }
        let expected = ["a.main", "a.sub", "a.last", "c.1", "c.2", "b.1", "b.2", "b.3", "b.4"];
        assert_eq!(topics(&store).await, expected, "{limit} at once");
    }
}

/// H34: a transaction that published about something else first does not take an event of this
/// object ahead.
#[tokio::test]
async fn commits_on_one_object_keep_their_order() {
    let log = Log::new().await;
    let store = log.open().await;
    let (early, late) = (Publisher::of(&log).await, Publisher::of(&log).await);
    early.run("CREATE TABLE LOG.mine (n int); INSERT INTO LOG.mine VALUES (0)").await.unwrap();
    early.run("BEGIN; SELECT LOG.publish('early.other', object => 'p')").await.unwrap();
    let locked =
        |n, topic| format!("UPDATE LOG.mine SET n = {n}; SELECT LOG.publish('{topic}', object => 'o'); COMMIT");
    late.run(&format!("BEGIN; {}", locked(1, "late"))).await.unwrap();
    early.run(&locked(2, "early")).await.unwrap();
    assert_eq!(topics(&store).await, ["late", "early.other", "early"]);
}

/// It takes several moves. Meanwhile others commit, an event becomes due, and a client appends.
#[tokio::test]
async fn a_transaction_that_needs_several_moves_is_not_split() {
    let log = Log::new().await;
    let store = log.open().await;
    let (large, other) = (Publisher::of(&log).await, Publisher::of(&log).await);
    other.run("SELECT LOG.publish('due', not_before => now() + interval '1 hour')").await.unwrap();
    store.release_due(10).await.unwrap();
    log.run("UPDATE LOG.delayed SET not_before = now()").await;
    let five = "SELECT count(LOG.publish('large', object => 'o')) FROM generate_series(1, 5)";
    large.run(&format!("BEGIN; {five}")).await.unwrap();
    other.run("BEGIN; SELECT LOG.publish('other', object => 'p')").await.unwrap();
    large.run(&format!("{five}; COMMIT")).await.unwrap();
    store.release_due(3).await.unwrap();
    // Its last row is older than the last of the transaction that is moved in part.
    other.run("COMMIT").await.unwrap();
    store.release_due(3).await.unwrap();
    other.run("SELECT LOG.poll_for_events(2)").await.unwrap();
    store.append(on("o")).await.unwrap();
    let all = whole_log(&store).await;
    assert_together(&all);
    let moved: Vec<_> = all.iter().map(|event| event.topic.as_str()).collect();
    assert_eq!(moved[..11], [&["large"; 10][..], &["other"]].concat());
    assert!(moved[11..].contains(&"t"), "{moved:?}");
    assert!(topics(&store).await.contains(&"due".to_owned()), "what is due follows");
}

/// A row that cannot be moved is found whatever the order of transactions is (H43).
#[tokio::test]
async fn a_bad_row_between_transactions_is_rejected_alone() {
    let log = Log::new().await;
    let store = log.open().await;
    let (a, b) = (Publisher::of(&log).await, Publisher::of(&log).await);
    a.run("BEGIN; SELECT LOG.publish('a.1')").await.unwrap();
    b.run("BEGIN; SELECT LOG.publish('b.1'); SELECT LOG.publish('b.2')").await.unwrap();
    b.run("UPDATE LOG.outbox SET occurred_at = 'infinity' WHERE topic = 'b.1'").await.unwrap();
    a.run("SELECT LOG.publish('a.2'); COMMIT").await.unwrap();
    b.run("SELECT LOG.publish('b.3'); COMMIT").await.unwrap();
    assert_eq!(topics(&store).await, ["a.1", "a.2", "b.2", "b.3"]);
    assert_eq!(log.number("SELECT count(*) FROM LOG.outbox_rejected").await, 1);
}

/// Many writers at once, while a store moves and appends.
#[tokio::test]
async fn transactions_of_many_writers_stay_together() {
    const WRITERS: usize = 12;
    const ROUNDS: usize = 25;
    let log = Log::new().await;
    let store = log.open().await;
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let publisher = Publisher::of(&log).await;
        writers.spawn(async move {
            for round in 0..ROUNDS {
                publisher.run("BEGIN").await.unwrap();
                for part in 0..4 {
                    publisher.publish(&format!("w{writer}r{round}.n{part}"), &format!("o{part}")).await;
                }
                publisher.run("COMMIT").await.unwrap();
            }
        });
    }
    let mut appended = 0;
    while !writers.is_empty() {
        store.release_due(7).await.unwrap();
        store.append(checked(vec![NewEvent::new(format!("t{appended}"))])).await.unwrap();
        appended += 1;
        while let Some(done) = writers.try_join_next() {
            done.unwrap();
        }
    }
    assert_eq!(topics(&store).await.len(), WRITERS * ROUNDS * 4 + appended);
    let all = whole_log(&store).await;
    assert_together(&all);
    let parts: Vec<_> = all.iter().map(|event| event.topic.as_str()).filter(|topic| topic.starts_with('w')).collect();
    for of_one in parts.chunks(4) {
        let ends: Vec<_> = of_one.iter().map(|topic| topic.split_once('.').unwrap().1).collect();
        assert_eq!(ends, ["n0", "n1", "n2", "n3"], "in their order");
    }
}
