//! Many events that are published with one call are one row of the outbox, until each is in the log as if it had come alone.

use crate::outbox::{Publisher, topics};
use crate::support::{Log, on, whole_log};
use ensue_core::store::Cancelled;
use ensue_core::{EventId, Found};
use uuid::Uuid;

impl Publisher {
    async fn many(&self, events: &str) -> Vec<Uuid> {
        let sql = format!("SELECT * FROM {}.publish_many('{events}')", self.schema);
        let rows = self.client.query(&sql, &[]).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    }
}

fn event(n: usize) -> String {
    format!("{{\"topic\":\"t.n{n}\",\"object\":\"o{}\",\"payload\":{n}}}", n % 7)
}

fn events(numbers: std::ops::Range<usize>) -> String {
    format!("[{}]", numbers.map(event).collect::<Vec<_>>().join(","))
}

#[tokio::test]
async fn many_share_rows_and_are_in_the_log_one_by_one() {
    let log = Log::new().await;
    let store = log.open().await;
    let publisher = Publisher::of(&log).await;
    let ids = publisher.many(&events(0..2_500)).await;
    assert_eq!(log.number("SELECT count(*) FROM LOG.outbox").await, 3, "a row for a thousand");
    assert_eq!(topics(&store).await.len(), 2_500);
    let all = whole_log(&store).await;
    for (n, (event, id)) in all.iter().zip(&ids).enumerate() {
        assert_eq!((event.id.0, event.payload.as_str()), (*id, n.to_string().as_str()), "in the order of the call");
        assert_eq!(event.prev, (n >= 7).then(|| n as u64 - 6), "chained to the one before of its object");
    }
    assert!(matches!(store.find(EventId(ids[2_100])).await.unwrap(), Some(Found::Logged(event)) if event.seq == 2_101));
    assert_eq!(log.number("SELECT count(*) FROM LOG.outbox").await, 0);
}

/// Whatever kind a row is of, and however few are moved at once, the order is that of publishing (H3).
#[tokio::test]
async fn rows_of_all_kinds_keep_their_order() {
    for limit in [1, 2, 3, 5, 1_000] {
        let log = Log::new().await;
        let store = log.open().await;
        let publisher = Publisher::of(&log).await;
        publisher.publish("a", "o").await;
        publisher.many(r#"[{"topic":"b","object":"o"},{"topic":"c","object":"o"},{"topic":"d"}]"#).await;
        publisher.id("SELECT LOG.publish('e', object => 'o', key => 'k')").await;
        publisher.many(r#"[{"topic":"f","object":"o"},{"topic":"g","object":"p"}]"#).await;
        publisher.id("SELECT LOG.publish('later', not_before => now() + interval '1 hour')").await;
        publisher.many(r#"[{"topic":"h","object":"p","key":"l"},{"topic":"i","object":"p"}]"#).await;
        publisher.publish("j", "p").await;
        while log.number("SELECT count(*) FROM LOG.outbox").await > 0 {
            store.release_due(limit).await.unwrap();
        }
        assert_eq!(topics(&store).await, ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"], "{limit} at once");
        let prevs: Vec<_> = whole_log(&store).await.iter().map(|event| event.prev).collect();
        let expected = [None, Some(1), Some(2), None, Some(3), Some(5), None, Some(7), Some(8), Some(9)];
        assert_eq!(prevs, expected, "{limit} at once");
        assert_eq!(store.pending_count().await.unwrap(), 1);
    }
}

/// However rows of many and rows with keys take turns, one commit moves what it may, and an append takes along what is not much.
#[tokio::test]
async fn rows_of_all_kinds_are_moved_together() {
    let log = Log::new().await;
    let store = log.open().await;
    let turns = |count: usize| {
        let many = "[{\"topic\":\"t\",\"object\":\"o\"},{\"topic\":\"t\"}]";
        format!(
            "DO $$ BEGIN FOR n IN 1..{count} LOOP
                 PERFORM LOG.publish('t', object => 'o', key => gen_random_uuid()::text); PERFORM LOG.publish_many('{many}'); END LOOP; END $$"
        )
    };
    log.run(&turns(100)).await;
    assert_eq!(store.release_due(1_000).await.unwrap().count, 300, "in one commit");
    log.run(&turns(100)).await;
    let moved = "SELECT count(DISTINCT e.recorded_at) FROM LOG.stored_events e WHERE e.seq > 300";
    let told = store.append(on("o")).await.unwrap();
    assert_eq!((told[0].seq, told[0].prev), (Some(601), Some(599)), "after what was committed before");
    assert_eq!(log.number(moved).await, 1, "in the append's own commit");
    assert_eq!(whole_log(&store).await.len(), 601);
}

/// H10, H34: gone with the transaction, and before what is appended after the commit.
#[tokio::test]
async fn many_share_the_fate_of_their_transaction() {
    let log = Log::new().await;
    let store = log.open().await;
    let publisher = Publisher::of(&log).await;
    publisher.run("BEGIN").await.unwrap();
    publisher.many(&events(0..10)).await;
    publisher.run("SAVEPOINT s").await.unwrap();
    publisher.many(&events(10..20)).await;
    publisher.run("ROLLBACK TO s").await.unwrap();
    assert_eq!(topics(&store).await, [""; 0], "nobody sees them before the commit");
    publisher.run("COMMIT").await.unwrap();
    let told = store.append(on("o3")).await.unwrap();
    assert_eq!((told[0].seq, told[0].prev), (Some(11), Some(4)));
}

/// Who looks for an event, or cancels it, finds it where it is: it need not have been moved yet.
#[tokio::test]
async fn an_event_is_found_and_cancelled_while_it_waits_in_the_outbox() {
    let log = Log::new().await;
    let store = log.open().await;
    let publisher = Publisher::of(&log).await;
    let ids = publisher.many(&events(0..3)).await;
    assert_eq!(log.number("SELECT count(*) FROM LOG.outbox").await, 1);
    assert!(matches!(store.find(EventId(ids[1])).await.unwrap(), Some(Found::Logged(event)) if event.seq == 2));
    let single = publisher.publish("t", "o").await;
    assert_eq!(store.cancel(EventId(single)).await.unwrap(), Cancelled::AlreadyLogged(4));
    let delayed = publisher.id("SELECT LOG.publish('d', not_before => now() + interval '1 hour')").await;
    assert_eq!(store.cancel(EventId(delayed)).await.unwrap(), Cancelled::Gone);
    let delayed = publisher.id("SELECT LOG.publish('d', not_before => now() + interval '1 hour')").await;
    assert!(matches!(store.find(EventId(delayed)).await.unwrap(), Some(Found::Pending(_))));
    let nowhere = Uuid::parse_str("01900000-0000-7000-8000-000000000001").unwrap();
    assert_eq!(store.find(EventId(nowhere)).await.unwrap(), None);
    assert_eq!(store.cancel(EventId(nowhere)).await.unwrap(), Cancelled::Unknown);
}

/// H37: what the move could not read is refused when it is published, and what a text means is a matter of who has written it.
#[tokio::test]
async fn nothing_waits_that_could_not_be_moved() {
    let log = Log::new().await;
    let store = log.open().await;
    let publisher = Publisher::of(&log).await;
    let bad_to = r#"SELECT LOG.publish_many('[{"topic":"a"},{"topic":"b","to":"nobody"}]')"#;
    publisher.run(bad_to).await.expect_err("`to` is no id");
    publisher.run("SET TimeZone = 'America/New_York'").await.unwrap();
    publisher.many(r#"[{"topic":"a","occurred_at":"2026-01-01 12:00:00"}]"#).await;
    publisher
        .many(&format!("[{{\"topic\":\"large\",\"payload\":\"{}\"}},{{\"topic\":\"z\"}}]", "x".repeat(500_000)))
        .await;
    assert_eq!(topics(&store).await, ["a", "large", "z"]);
    let all = whole_log(&store).await;
    assert_eq!(all[0].occurred_at.to_string(), "2026-01-01T17:00:00Z");
    assert_eq!(all[1].payload.as_str().len(), 500_002);
}

/// A function in SQL that says more of itself than what it calls is planned anew in every transaction that calls it.
#[tokio::test]
async fn what_is_called_for_each_event_is_inlined() {
    let log = Log::new().await;
    log.open().await.close().await;
    log.run("CREATE TABLE LOG.args (t text, at timestamptz, id uuid)").await;
    for call in [
        "plain_fault(t, 10)",
        "dotted_fault(t, 'a')",
        "time_fault(at)",
        "event_fault(t, t, t, at, at)",
        "size_fault(length(t))",
        "put_fault(t, t, t, t::bytea)",
        "stored_time(at)",
        "id_start(at)",
        "event_id(id, at)",
        "first_id_after(at)",
        "new_id()",
        "recording_time(at, at)",
        "time_text(at)",
        "job_id(1, length(t)::bigint)",
        "job_bucket(t, t)",
    ] {
        let sql = format!("EXPLAIN VERBOSE SELECT {0}.{call} FROM {0}.args", log.schema);
        let plan: Vec<String> =
            log.admin.query(&sql, &[]).await.unwrap().iter().map(|row| row.get::<_, String>(0)).collect();
        let (name, _) = call.split_once('(').unwrap();
        assert!(!plan.concat().contains(&format!("{name}(")), "{call} is called for each row: {plan:?}");
    }
}
