//! What is published in somebody's own transaction: it is in the log after the commit, in order, once; or nowhere.

use crate::support::groups::{LEASE, acquire, change, handler_group, name, open};
use crate::support::session::Session;
use crate::support::{Log, connect, on, whole_log};
use ensue_conformance::postgres::{PrivatePostgres, shared_url};
use ensue_core::jobs::{Claim, Held, JobChange, JobEnd, JobSettled, NewJob};
use ensue_core::positions::{Settled, SlotChange};
use ensue_core::store::SharedStore;
use ensue_core::{EventId, Found, Jobs, Positions};
use ensue_stores::postgres::PostgresOptions;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use uuid::Uuid;

/// A client of somebody's own, which publishes with plain SQL.
pub(crate) struct Publisher {
    pub(crate) client: Client,
    pub(crate) schema: String,
}

impl Publisher {
    pub(crate) async fn of(log: &Log) -> Self {
        Self { client: connect(&shared_url()).await, schema: log.schema.clone() }
    }

    /// `LOG` stands for the schema.
    pub(crate) async fn run(&self, sql: &str) -> Result<(), tokio_postgres::Error> {
        self.client.batch_execute(&sql.replace("LOG", &self.schema)).await
    }

    pub(crate) async fn publish(&self, topic: &str, object: &str) -> Uuid {
        self.id(&format!("SELECT LOG.publish('{topic}', object => '{object}')")).await
    }

    /// Moves what waits, in this session.
    async fn poll(&self) -> i64 {
        self.client.query_one(&format!("SELECT {}.poll_for_events()", self.schema), &[]).await.unwrap().get(0)
    }

    pub(crate) async fn id(&self, sql: &str) -> Uuid {
        self.client.query_one(&sql.replace("LOG", &self.schema), &[]).await.unwrap().get(0)
    }
}

/// Moves everything; the topics of the whole log.
pub(crate) async fn topics(store: &SharedStore) -> Vec<String> {
    while store.release_due(1_000).await.unwrap().count > 0 {}
    whole_log(store).await.into_iter().map(|event| event.topic.to_string()).collect()
}

/// H10: the event is there when the data is, and not otherwise.
#[tokio::test]
async fn what_is_published_in_a_transaction_shares_its_fate() {
    let log = Log::new().await;
    let store = log.open().await;
    let publisher = Publisher::of(&log).await;
    publisher.run("CREATE TABLE LOG.mine (n int)").await.unwrap();

    publisher.run("BEGIN; INSERT INTO LOG.mine VALUES (1)").await.unwrap();
    let id = publisher.publish("a.kept", "o").await;
    assert_eq!(topics(&store).await, [""; 0], "nobody sees it before the commit");
    publisher.run("COMMIT").await.unwrap();
    publisher.run("BEGIN; INSERT INTO LOG.mine VALUES (2); SELECT LOG.publish('b.undone'); ROLLBACK").await.unwrap();
    publisher
        .run("BEGIN; SELECT LOG.publish('c.kept'); SAVEPOINT s; SELECT LOG.publish('d.undone'); ROLLBACK TO s; COMMIT")
        .await
        .unwrap();

    assert_eq!(topics(&store).await, ["a.kept", "c.kept"]);
    assert_eq!(log.number("SELECT count(*) FROM LOG.mine").await, 1);
    match store.find(EventId(id)).await.unwrap() {
        Some(Found::Logged(event)) => assert_eq!((event.seq, event.id.0), (1, id)),
        other => panic!("{other:?}"),
    }
}

/// H1: a transaction that began to publish first commits last; a reader has passed the other's event by then.
#[tokio::test]
async fn what_is_committed_late_still_arrives() {
    let log = Log::new().await;
    let store = log.open().await;
    let (first, second) = (Publisher::of(&log).await, Publisher::of(&log).await);
    first.run("BEGIN").await.unwrap();
    first.publish("first", "o").await;
    second.publish("second", "o").await;
    assert_eq!(topics(&store).await, ["second"]);
    for n in 0..3 {
        second.publish(&format!("later{n}"), "o").await;
        store.release_due(1_000).await.unwrap();
    }
    first.run("COMMIT").await.unwrap();
    assert_eq!(topics(&store).await, ["second", "later0", "later1", "later2", "first"]);
}

/// H34: who has committed a publish and then calls us is in the log in this order; every append moves what waits first.
#[tokio::test]
async fn what_was_committed_before_a_call_comes_before_it() {
    let log = Log::new().await;
    let store = log.open().await;
    let publisher = Publisher::of(&log).await;
    for round in 0..20 {
        publisher.publish("mine", "o").await;
        let told = store.append(on("o")).await.unwrap();
        let (seq, prev) = (round * 2 + 2, round * 2 + 1);
        assert_eq!((told[0].seq, told[0].prev), (Some(seq), Some(prev)), "it follows what was committed before");
    }
}

/// The same for a transaction that was under way when appends before it looked.
#[tokio::test]
async fn what_was_under_way_when_others_looked_comes_before_who_calls_after_its_commit() {
    let log = Log::new().await;
    let store = log.open().await;
    let publisher = Publisher::of(&log).await;
    for _ in 0..3 {
        publisher.run("BEGIN").await.unwrap();
        publisher.publish("mine", "o").await;
        // So many that one of them notes how far it has looked.
        for _ in 0..40 {
            store.append(on("o")).await.unwrap();
        }
        publisher.run("COMMIT").await.unwrap();
        store.append(on("o")).await.unwrap();
        let all = whole_log(&store).await;
        assert_eq!(all[all.len() - 2].topic.as_str(), "mine", "it was committed before the call");
    }
}

/// Two transactions about one row follow each other by its lock, whichever of them began first.
#[tokio::test]
async fn transactions_on_one_object_follow_their_locks() {
    let log = Log::new().await;
    let store = log.open().await;
    let (early, late) = (Publisher::of(&log).await, Publisher::of(&log).await);
    early.run("CREATE TABLE LOG.mine (n int); INSERT INTO LOG.mine VALUES (0)").await.unwrap();
    // The one that began to write first comes second to the row.
    early.run("CREATE TABLE LOG.other (n int); BEGIN; INSERT INTO LOG.other VALUES (1)").await.unwrap();
    late.run("BEGIN; UPDATE LOG.mine SET n = 1; SELECT LOG.publish('one', object => 'o'); COMMIT").await.unwrap();
    early.run("UPDATE LOG.mine SET n = 2; SELECT LOG.publish('two', object => 'o'); COMMIT").await.unwrap();
    assert_eq!(topics(&store).await, ["one", "two"]);
}

/// H8: Postgres is killed between the commit and the move.
#[tokio::test]
async fn what_is_committed_outlives_a_crash_of_the_server() {
    let mut server = PrivatePostgres::start().unwrap();
    let log = Log::in_database(&server.url()).await;
    let store = log.open().await;
    log.run("SELECT LOG.publish_many((SELECT jsonb_agg(jsonb_build_object('topic', 't', 'object', 'o' || n % 7, 'payload', n)) FROM generate_series(1, 1000) n))").await;
    server.kill9().unwrap();
    server.restart().unwrap();
    assert_eq!(topics(&store).await.len(), 1_000);
    let log = whole_log(&store).await;
    assert!(log.iter().zip(1..).all(|(event, n)| event.payload.as_str() == n.to_string()), "in the order of the call");
    store.close().await;
}

/// A move that is undone is not remembered as done.
#[tokio::test]
async fn a_move_that_is_rolled_back_is_made_again() {
    let log = Log::new().await;
    let store = log.open().await;
    let publisher = Publisher::of(&log).await;
    publisher.run("SELECT LOG.poll_for_events()").await.unwrap();
    publisher.publish("t", "o").await;
    publisher.run("BEGIN; SELECT LOG.poll_for_events(); ROLLBACK").await.unwrap();
    publisher.run("SELECT LOG.poll_for_events()").await.unwrap();
    assert_eq!(whole_log(&store).await.len(), 1);
}

/// A transaction that stays open, here or elsewhere, holds nobody up.
#[tokio::test]
async fn an_open_transaction_delays_nobody_else() {
    let log = Log::new().await;
    let store = log.open().await;
    let (open, other) = (Publisher::of(&log).await, Publisher::of(&log).await);
    open.run("BEGIN ISOLATION LEVEL REPEATABLE READ").await.unwrap();
    open.publish("open", "o").await;
    for n in 1..=50 {
        other.publish("t", "o").await;
        assert_eq!(store.append(on("o")).await.unwrap()[0].seq, Some(n * 2));
    }
    open.run("COMMIT").await.unwrap();
    assert_eq!(topics(&store).await.len(), 101);
}

/// What waits is more than an append takes along: it is moved first, and the append follows it.
#[tokio::test]
async fn an_append_behind_much_in_the_outbox_comes_after_all_of_it() {
    let log = Log::new().await;
    let store = log.open().await;
    log.run("SELECT count(LOG.publish('t', object => 'o' || n % 100)) FROM generate_series(1, 7000) n").await;
    let told = store.append(on("o1")).await.unwrap();
    assert_eq!((told[0].seq, told[0].prev), (Some(7_001), Some(6_901)));
    assert_eq!(whole_log(&store).await.len(), 7_001);
}

/// The same for what is published with a settlement, of slots and of jobs; nobody else moves anything here.
#[tokio::test]
async fn a_settlement_behind_much_in_the_outbox_comes_after_all_of_it() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    handler_group(&store, "g", 1).await;
    let fence = acquire(&store, "g", 1).await.slots[0].fence;
    let much = "SELECT count(LOG.publish('t', object => 'o' || n % 100)) FROM generate_series(1, 7000) n";
    log.run(much).await;
    let settled = store.settle(vec![SlotChange { events: on("o1"), ..change("g", 0, 1, fence) }]).await.unwrap();
    assert!(matches!(&settled[..], [Settled::Done(told)] if told[0].seq == Some(7_001)), "{settled:?}");

    store.enqueue(vec![NewJob::new(name("h"))]).await.unwrap();
    let (handlers, worker) = (vec![(name("h"), 1)], "w".to_owned());
    let claim = Claim { handlers, limit: 1, lease: LEASE, worker, ends_with_store: false };
    let job = store.claim(claim).await.unwrap().remove(0);
    log.run(much).await;
    let held = Held { id: job.id, fence: job.fence };
    let end = JobChange { events: on("o1"), ..JobChange::new(held, JobEnd::Succeeded) };
    let settled = store.settle_jobs(vec![end]).await.unwrap();
    assert!(matches!(&settled[..], [JobSettled::Done { events, .. }] if events[0].seq == Some(14_002)), "{settled:?}");
}

/// Who polls in a transaction that has written something, and then publishes in it, finds it with the next poll.
#[tokio::test]
async fn what_is_published_after_a_poll_in_the_same_transaction_is_not_passed_over() {
    let log = Log::new().await;
    let store = log.open().await;
    let (one, other) = (Publisher::of(&log).await, Publisher::of(&log).await);
    one.run("CREATE TABLE LOG.mine (n int)").await.unwrap();
    one.run("BEGIN; INSERT INTO LOG.mine VALUES (1)").await.unwrap();
    other.run("INSERT INTO LOG.mine VALUES (2)").await.unwrap();
    one.run("SELECT LOG.poll_for_events(); SELECT LOG.publish('t'); COMMIT").await.unwrap();
    assert_eq!(one.poll().await, 1, "no other session is there to move it");
    assert_eq!(whole_log(&store).await.len(), 1);
}

/// The same if the transaction had written nothing before, and the poll itself does: it makes a partition.
#[tokio::test]
async fn what_is_published_after_a_poll_that_made_room_is_not_passed_over() {
    let log = Log::new().await;
    let store = log.open().await;
    let (one, other) = (Publisher::of(&log).await, Publisher::of(&log).await);
    other.run("SELECT LOG.publish('first')").await.unwrap();
    log.run(
        "DO $$ DECLARE r regclass; BEGIN FOR r IN SELECT i.inhrelid::regclass FROM pg_inherits i WHERE i.inhparent = 'LOG.stored_events'::regclass
         LOOP EXECUTE 'DROP TABLE ' || r; END LOOP; END $$",
    )
    .await;
    one.run("BEGIN; SELECT LOG.poll_for_events(); SELECT LOG.publish('second'); COMMIT").await.unwrap();
    assert_eq!(one.poll().await, 1, "no other session is there to move it");
    assert_eq!(topics(&store).await, ["first", "second"]);
}

/// The same key is the same event, from here and from there, now and later; with another content it is refused.
#[tokio::test]
async fn a_key_is_used_once() {
    let log = Log::new().await;
    let store = log.open().await;
    let publisher = Publisher::of(&log).await;
    let same = "SELECT LOG.publish('t', '{\"n\":1}', key => 'k')";
    let first = publisher.id(same).await;
    assert_eq!(publisher.id(same).await, first, "while it waits");
    assert_eq!(topics(&store).await, ["t"]);
    assert_eq!(publisher.id(same).await, first, "when it is in the log");
    let many = format!("SELECT * FROM LOG.publish_many('[{}]')", r#"{"topic":"t","payload":{"n":1},"key":"k"}"#);
    assert_eq!(publisher.id(&many).await, first, "among others");
    for another in
        ["SELECT LOG.publish('t', '{\"n\":2}', key => 'k')", "SELECT LOG.publish('u', '{\"n\":1}', key => 'k')"]
    {
        let refused = publisher.run(another).await.unwrap_err();
        assert_eq!(refused.code(), Some(&SqlState::UNIQUE_VIOLATION), "{refused:?}");
    }
    assert_eq!(topics(&store).await, ["t"]);
}

/// Two transactions with one key at once: the second waits for the first, and goes by what became of it.
#[tokio::test]
async fn two_with_one_key_at_once_publish_one_event() {
    let log = Log::new().await;
    let store = log.open().await;
    for ending in ["COMMIT", "ROLLBACK"] {
        let (one, other) = (Publisher::of(&log).await, Publisher::of(&log).await);
        let sql = format!("SELECT LOG.publish('{}', key => 'k{ending}')", ending.to_lowercase());
        one.run("BEGIN").await.unwrap();
        let first = one.id(&sql).await;
        let second = tokio::spawn(async move { other.id(&sql).await });
        log.until(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%LOG%publish%'",
            1,
        )
        .await;
        one.run(ending).await.unwrap();
        assert_eq!(second.await.unwrap() == first, ending == "COMMIT");
    }
    assert_eq!(topics(&store).await, ["commit", "rollback"]);
}

/// A transaction with a snapshot of its own does not see that its key was used since, and is never told an id that nobody will find.
#[tokio::test]
async fn a_key_that_a_snapshot_does_not_show_is_a_serialization_failure() {
    let log = Log::new().await;
    let store = log.open().await;
    for (isolation, drained) in [("REPEATABLE READ", true), ("SERIALIZABLE", true), ("REPEATABLE READ", false)] {
        let (one, other) = (Publisher::of(&log).await, Publisher::of(&log).await);
        let sql = format!("SELECT LOG.publish('t', key => '{isolation}{drained}')");
        one.run(&format!("BEGIN ISOLATION LEVEL {isolation}; SELECT 1")).await.unwrap();
        let theirs = other.id(&sql).await;
        if drained {
            other.run("SELECT LOG.poll_for_events()").await.unwrap();
        }
        let refused = one.run(&sql).await.expect_err("the key was used");
        assert_eq!(refused.code(), Some(&SqlState::T_R_SERIALIZATION_FAILURE), "{refused:?}");
        one.run(&format!("ROLLBACK; BEGIN ISOLATION LEVEL {isolation}")).await.unwrap();
        assert_eq!(one.id(&sql).await, theirs);
        let unused = one.id(&format!("SELECT LOG.publish('u', key => 'u{isolation}{drained}')")).await;
        one.run("COMMIT").await.unwrap();
        topics(&store).await;
        assert!(matches!(store.find(EventId(unused)).await.unwrap(), Some(Found::Logged(_))));
    }
    assert_eq!(topics(&store).await.len(), 6);
}

/// A key that somebody without a transaction uses while ours is open: the same content is one event, another one is not lost.
#[tokio::test]
async fn what_was_published_under_a_key_meanwhile_is_not_doubled_and_nothing_is_lost() {
    let log = Log::new().await;
    let store = log.open().await;
    let publisher = Publisher::of(&log).await;
    publisher.run("BEGIN").await.unwrap();
    let id = publisher.id("SELECT LOG.publish('same', key => 'k')").await;
    publisher.id("SELECT LOG.publish('mine', key => 'l')").await;
    // As if they had come another way: under these keys, with the first one's content.
    log.run(
        "INSERT INTO LOG.stored_events (seq, recorded_at, id_part, topic, payload) VALUES (1, clock_timestamp(), LOG.new_id(), 'same', '{}'); \
         INSERT INTO LOG.keys SELECT k, LOG.event_fingerprint('same', NULL, '{}', NULL, NULL, NULL, NULL), id_part, 1, NULL, recorded_at \
         FROM LOG.stored_events, unnest(ARRAY['k', 'l']) k",
    )
    .await;
    publisher.run("COMMIT").await.unwrap();
    assert_eq!(topics(&store).await, ["same", "mine"]);
    assert!(matches!(store.find(EventId(id)).await.unwrap(), Some(Found::Logged(event)) if event.seq == 1));
}

/// A delayed one waits; one that is recorded long after its id was made is found by it.
#[tokio::test]
async fn delayed_and_late_events_are_found_by_their_ids() {
    let log = Log::new().await;
    let store = log.open().await;
    let publisher = Publisher::of(&log).await;
    let delayed = publisher.id("SELECT LOG.publish('d', not_before => now() + interval '1 hour')").await;
    log.run("INSERT INTO LOG.outbox (occurred_at, id, topic, payload) VALUES (now(), '01900000-0000-7000-8000-000000000001', 'late', '{}')").await;
    assert_eq!(topics(&store).await, ["late"]);
    assert!(matches!(store.find(EventId(delayed)).await.unwrap(), Some(Found::Pending(_))));
    let late = Uuid::parse_str("01900000-0000-7000-8000-000000000001").unwrap();
    assert!(matches!(store.find(EventId(late)).await.unwrap(), Some(Found::Logged(event)) if event.seq == 1));
    log.run("UPDATE LOG.delayed SET not_before = now() WHERE seq IS NULL").await;
    assert_eq!(topics(&store).await, ["late", "d"]);
    assert!(matches!(store.find(EventId(delayed)).await.unwrap(), Some(Found::Logged(event)) if event.seq == 2));
}

/// Moved by themselves, without keys and delays beside them: whose id does not tell where the log has recorded them are found all the same.
#[tokio::test]
async fn late_events_and_those_ahead_of_the_clock_are_found_by_their_ids() {
    let log = Log::new().await;
    let store = log.open().await;
    let ids = [
        ("late", "01900000-0000-7000-8000-000000000001"),
        ("ahead", "7fff0000-0000-7000-8000-000000000001"),
        ("many", "01900000-0000-7000-8000-100000000001"),
        ("many", "01900000-0000-7000-8000-100000000002"),
        ("timely", ""),
    ];
    for (topic, id) in &ids[..2] {
        log.run(&format!(
            "INSERT INTO LOG.outbox (occurred_at, id, topic, payload) VALUES (now(), '{id}', '{topic}', '{{}}')"
        ))
        .await;
        assert_eq!(topics(&store).await.last().map(String::as_str), Some(*topic));
    }
    log.run("INSERT INTO LOG.outbox (occurred_at, id, count, events) VALUES (now(), '01900000-0000-7000-8000-100000000000', 2, \
             '[{\"topic\":\"many\"},{\"topic\":\"many\"}]')").await;
    // One that needs no help, in the same move.
    let timely = Publisher::of(&log).await.id("SELECT LOG.publish('timely')").await;
    assert_eq!(topics(&store).await, ids.map(|(topic, _)| topic));
    let ids = ids.map(|(_, id)| Uuid::parse_str(id).unwrap_or(timely));
    for (id, seq) in ids.into_iter().zip(1..) {
        assert!(
            matches!(store.find(EventId(id)).await.unwrap(), Some(Found::Logged(event)) if event.seq == seq),
            "{id}"
        );
    }
    assert_eq!(log.number("SELECT count(*) FROM LOG.delayed WHERE seq < 5").await, 4, "the way from id to seq is kept");
}

/// What every engine refuses is refused here too, and nothing of the call is stored.
#[tokio::test]
async fn bad_input_is_named_and_changes_nothing() {
    let log = Log::new().await;
    let store = log.open().await;
    let publisher = Publisher::of(&log).await;
    for (sql, words) in [
        ("SELECT LOG.publish('')", "topic is empty"),
        ("SELECT LOG.publish(NULL)", "topic is empty"),
        ("SELECT LOG.publish('a..b')", "empty segment"),
        ("SELECT LOG.publish('.a')", "empty segment"),
        ("SELECT LOG.publish('a b')", "topic may not contain ' '"),
        ("SELECT LOG.publish('a' || chr(10))", "topic may not contain"),
        ("SELECT LOG.publish('größe.a b')", "topic may not contain ' '"),
        ("SELECT LOG.publish('a—b')", "topic may not contain '—'"),
        ("SELECT LOG.publish('ensue.rule.set')", "only Ensue itself"),
        ("SELECT LOG.publish('ensue')", "only Ensue itself"),
        ("SELECT LOG.publish(repeat('a', 256))", "256 bytes"),
        ("SELECT LOG.publish('a', object => '')", "object is empty"),
        ("SELECT LOG.publish('a', object => repeat('o', 513))", "513 bytes"),
        ("SELECT LOG.publish('a', object => 'x' || chr(1))", "may not contain the character"),
        ("SELECT LOG.publish('a', key => '')", "key is empty"),
        ("SELECT LOG.publish('a', key => repeat('k', 513))", "513 bytes"),
        ("SELECT LOG.publish('a', NULL)", "payload is missing"),
        ("SELECT LOG.publish('a', metadata => '[]')", "metadata must be"),
        ("SELECT LOG.publish('a', not_before => 'infinity')", "not_before"),
        ("SELECT LOG.publish('a', not_before => '10000-01-01')", "not_before"),
        ("SELECT LOG.publish('a', to_jsonb(repeat('x', 1100000)))", "at most 1048576"),
        ("SELECT LOG.publish('a', '\"\\u0000\"')", "unsupported Unicode escape sequence"),
        ("SELECT LOG.publish_many('{}')", "must be a JSON array"),
        ("SELECT LOG.publish_many('[1]')", "must be a JSON object"),
        ("SELECT LOG.publish_many('[{\"topic\":\"a\"},{\"topic\":\"a\",\"pay\":1}]')", "no field 'pay'"),
        ("SELECT LOG.publish_many('[{\"topic\":\"a\"},{\"payload\":1}]')", "topic is empty"),
        ("SELECT LOG.publish_many('[{\"topic\":\"a\"},{\"topic\":\"a\",\"key\":\"\"}]')", "key is empty"),
        (
            "SELECT LOG.publish_many('[{\"topic\":\"a\",\"occurred_at\":\"yesterday noon\"}]')",
            "occurred_at is \"yesterday noon\"",
        ),
        (
            "SELECT LOG.publish_many('[{\"topic\":\"a\",\"not_before\":\"2026-13-01\"}]')",
            "not_before is \"2026-13-01\"",
        ),
        ("SELECT LOG.publish_many('[{\"topic\":\"a\"},{\"topic\":\"a\",\"to\":\"b\"}]')", "to is \"b\""),
        ("SELECT LOG.publish_many('[{\"topic\":\"a\"},{\"topic\":\"a\",\"to\":[]}]')", "to is []; write a text"),
        (
            "SELECT LOG.publish_many('[{\"topic\":\"a\",\"object\":\"x\"},{\"topic\":\"a\",\"object\":\"\"}]')",
            "object is empty",
        ),
        (
            "SELECT LOG.publish_many('[{\"topic\":\"a\",\"object\":\"x\"},{\"topic\":\"a\",\"object\":\"\\u0001\"}]')",
            "object may not contain",
        ),
        (
            "SELECT LOG.publish_many(jsonb_build_array('{\"topic\":\"a\",\"object\":\"x\"}'::jsonb, \
             jsonb_build_object('topic', 'a', 'object', repeat('x', 513))))",
            "object has 513 bytes",
        ),
        (
            "SELECT LOG.publish_many('[{\"topic\":\"a\"},{\"topic\":\"a\",\"metadata\":5}]')",
            "metadata must be a JSON object",
        ),
        ("SELECT LOG.publish_many('[{\"topic\":7}]')", "topic is 7; write a text"),
        ("SELECT LOG.publish_many('[{\"topic\":\"a\"},{\"topic\":\"a\",\"object\":5}]')", "object is 5; write a text"),
        ("SELECT LOG.publish_many('[{\"topic\":\"a\",\"object\":{\"a\":1}}]')", "object is {\"a\": 1}; write a text"),
        ("SELECT LOG.publish_many('[{\"topic\":\"a\",\"key\":1}]')", "key is 1; write a text"),
        (
            "SELECT LOG.publish_many('[{\"topic\":\"a\",\"occurred_at\":20260101}]')",
            "occurred_at is 20260101; write a text",
        ),
        ("BEGIN ISOLATION LEVEL SERIALIZABLE; SELECT LOG.poll_for_events()", "read committed"),
        ("SELECT LOG.poll_for_events(0)", "chunk_size"),
    ] {
        let refused = publisher.run(sql).await.expect_err(sql);
        let told = refused.as_db_error().unwrap_or_else(|| panic!("{sql}: {refused:?}"));
        assert!(told.message().contains(words), "{sql}: {told}");
        publisher.run("ROLLBACK").await.unwrap();
    }
    assert_eq!(topics(&store).await, [""; 0]);
}

/// All fields come through, as they were given.
#[tokio::test]
async fn many_are_published_with_all_their_fields() {
    let log = Log::new().await;
    let store = log.open().await;
    let session = Session::of(&log).await;
    let to = session.text("SELECT LOG.subscribe('g', 'false')::text").await;
    log.run(
        &r#"SELECT LOG.publish_many('[
            {"topic":"a","payload":{"x":[1,2.50,null]},"metadata":{"trace":"t"},"object":"o","occurred_at":"2020-02-02T02:02:02Z"},
            {"topic":"a.b-c:d/e@f+g~h=i$j_k.ß","object":"o"},
            {"topic":"c","metadata":{},"to":"TO"}]')"#
            .replace("TO", &to),
    )
    .await;
    log.run("SELECT LOG.publish_many('[]')").await;
    assert_eq!(topics(&store).await.len(), 3);
    let events = whole_log(&store).await;
    assert_eq!(events[0].payload.as_str(), r#"{"x":[1,2.50,null]}"#);
    assert_eq!((events[0].metadata.as_str(), events[1].metadata.as_str()), (r#"{"trace":"t"}"#, "{}"));
    assert_eq!(events[0].occurred_at.to_string(), "2020-02-02T02:02:02Z");
    assert_eq!((events[1].prev, events[2].prev), (Some(1), None));
    assert_eq!(events[2].to.map(|to| to.to_string()).as_deref(), Some(&*to));
    for unknown in [
        r#"SELECT LOG.publish('a', subscription_id => '01900000-0000-7000-8000-000000000002')"#,
        r#"SELECT LOG.publish_many('[{"topic":"a"},{"topic":"a","to":"01900000-0000-7000-8000-000000000002"}]')"#,
        r#"SELECT LOG.publish_many('[{"topic":"a","key":"k","to":"01900000-0000-7000-8000-000000000002"}]')"#,
    ] {
        let (_, refused) = session.refusal(unknown).await;
        assert!(refused.contains("no subscription has this id"), "{unknown}: {refused}");
    }
    assert_eq!(topics(&store).await.len(), 3);
}
