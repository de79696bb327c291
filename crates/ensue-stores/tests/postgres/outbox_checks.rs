//! H43, S13: one row of the outbox or of the log stops neither publishing nor reading.

use crate::support::session::Session;
use crate::support::sql::{log, refusal, seqs};
use crate::support::{Log, on};
use ensue_core::store::{Read, SharedStore};
use ensue_core::{Filter, Seq, Timestamp};
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

/// The arguments of `outbox_put`, of which a case replaces some.
const COLUMNS: [(&str, &str); 9] = [
    ("topics", "ARRAY['t']"),
    ("payloads", "ARRAY['{}']"),
    ("metadata", "NULL"),
    ("occurred_at", "NULL"),
    ("not_before", "NULL"),
    ("to", "NULL"),
    ("objects", "NULL"),
    ("keys", "NULL"),
    ("fingerprints", "NULL"),
];

/// A call of `outbox_put` with these columns instead of the plain ones.
fn put(columns: &[(&str, &str)]) -> String {
    let value = |(name, plain): &(&str, &str)| {
        let replaced = columns.iter().find(|(replaced, _)| replaced == name);
        format!("p_{name} => {}", replaced.map_or(*plain, |(_, value)| *value))
    };
    format!("SELECT LOG.outbox_put({})", COLUMNS.iter().map(value).collect::<Vec<_>>().join(", "))
}

async fn run(log: &Log, client: &Client, sql: &str) -> Result<(), tokio_postgres::Error> {
    client.batch_execute(&sql.replace("LOG", &log.schema)).await
}

/// Moves everything that waits, then the places of the whole log.
async fn places(store: &SharedStore) -> Vec<Seq> {
    while store.release_due(1_000).await.expect("the outbox is moved").count > 0 {}
    let page = store.read(Read { after: 0, limit: 100, filter: Filter::default() }).await.expect("the log is read");
    page.events.iter().map(|event| event.seq).collect()
}

#[tokio::test]
async fn publisher_cannot_put_invalid_rows_into_the_outbox() {
    let log = log().await;
    let publisher = log.login(&["publish"]).await;
    let cases: [(&str, &[(&str, &str)]); 24] = [
        ("fingerprint", &[("keys", "ARRAY['k']")]),
        ("fingerprint", &[("keys", "ARRAY['k']"), ("fingerprints", "ARRAY[NULL]::bytea[]")]),
        ("fingerprint", &[("keys", "ARRAY['k']"), ("fingerprints", r"ARRAY['\x00']::bytea[]")]),
        ("key", &[("keys", "ARRAY[repeat('k', 5000)]"), ("fingerprints", "ARRAY[sha256('a')]")]),
        ("key", &[("keys", "ARRAY[E'a\\u0007']"), ("fingerprints", "ARRAY[sha256('a')]")]),
        ("occurred_at", &[("occurred_at", "ARRAY['infinity']::timestamptz[]")]),
        ("occurred_at", &[("occurred_at", "ARRAY['-infinity']::timestamptz[]")]),
        ("occurred_at", &[("occurred_at", "ARRAY['294000-01-01']::timestamptz[]")]),
        ("not_before", &[("not_before", "ARRAY['infinity']::timestamptz[]")]),
        ("not_before", &[("not_before", "ARRAY['4000-01-01 BC']::timestamptz[]")]),
        ("topic", &[("topics", "ARRAY['ensue.job.dead']")]),
        ("topic", &[("topics", "ARRAY['ensue']")]),
        ("topic", &[("topics", "ARRAY['a..b']")]),
        ("topic", &[("topics", "ARRAY[E'a\\u001b[31m']")]),
        ("topic", &[("topics", "ARRAY[NULL]::text[]")]),
        ("topic", &[("topics", "ARRAY[repeat('t', 256)]")]),
        ("object", &[("objects", "ARRAY[E'a\\nb']")]),
        ("object", &[("objects", "ARRAY['']")]),
        ("payload", &[("payloads", "ARRAY[NULL]::text[]")]),
        ("payload", &[("payloads", "ARRAY['\"' || repeat('x', 60 << 20) || '\"']")]),
        ("metadata", &[("metadata", "ARRAY['[]']")]),
        ("payloads", &[("topics", "ARRAY['a', 'b']")]),
        ("objects", &[("objects", "ARRAY['a', 'b']")]),
        ("topics", &[("topics", "NULL")]),
    ];
    for (named, columns) in cases {
        let sql = put(columns);
        let error = run(&log, &publisher, &sql).await.expect_err(&sql[..sql.len().min(300)]);
        let refusal = refusal(&error);
        assert_eq!(refusal.state, SqlState::INVALID_PARAMETER_VALUE, "{named}: {sql} {refusal:?}");
        assert!(refusal.text.starts_with(named), "{sql}: {refusal:?}");
    }
    assert_eq!(log.number("SELECT count(*) FROM LOG.outbox").await, 0);
    // A time of the caller's choosing is no argument, so that no id and no record is of another year.
    let clock = "SELECT count(*) FROM pg_proc p WHERE p.pronamespace = 'LOG'::regnamespace AND 'p_now' = ANY (p.proargnames) \
        AND has_function_privilege('LOG_publish', p.oid, 'EXECUTE')";
    assert_eq!(log.number(clock).await, 0);
    // What is right goes in.
    let right: &[(&str, &str)] = &[
        ("topics", "ARRAY['a.b', 'größe']"),
        ("payloads", "ARRAY['{\"n\": 1}', 'null']"),
        ("metadata", "ARRAY[NULL, '{\"trace\": 1}']"),
        ("objects", "ARRAY['o', NULL]"),
        ("keys", "ARRAY[NULL, 'k']"),
        ("fingerprints", "ARRAY[NULL, sha256('a')]"),
    ];
    run(&log, &publisher, &put(right)).await.unwrap();
    run(&log, &publisher, &put(right)).await.unwrap();
    let store = log.open().await;
    assert_eq!(places(&store).await, [1, 2, 3]);
    assert_eq!(store.append(on("o")).await.unwrap()[0].seq, Some(4));
    store.close().await;
}

/// Rows that no function of ours writes: each with the start of the reason under which it is set aside.
const BAD_ROWS: [(&str, &str); 9] = [
    ("(occurred_at, id, topic, payload, key) VALUES (now(), LOG.new_id(), 'bad', '{}', 'k')", "key has no fingerprint"),
    ("(occurred_at, id, topic, payload) VALUES ('infinity', LOG.new_id(), 'bad', '{}')", "occurred_at is not"),
    (
        "(occurred_at, not_before, id, topic, payload) VALUES (now(), 'infinity', LOG.new_id(), 'bad', '{}')",
        "not_before is not",
    ),
    (
        "(occurred_at, id, topic, payload) SELECT now(), LOG.new_id(), 'bad', to_jsonb(string_agg(md5(n::text), '')) \
         FROM generate_series(1, 100000) n",
        "payload has",
    ),
    ("(occurred_at, id, count, events) VALUES (now(), LOG.new_id(), 2, '[{\"topic\": \"bad\"}]')", "count is 2"),
    (
        "(occurred_at, id, count, events) VALUES (now(), LOG.new_id(), 1, '{\"topic\": \"bad\"}')",
        "events is not an array",
    ),
    (
        "(occurred_at, id, count, events) VALUES (now(), LOG.new_id(), 1, '[{\"topic\": \"bad\", \"to\": \"me\"}]')",
        "invalid input syntax for type uuid",
    ),
    ("(occurred_at, id, count, events) VALUES (now(), LOG.new_id(), 1, '[{}]')", "null value in column \"topic\""),
    (
        "(occurred_at, not_before, id, topic, payload) \
         SELECT now(), now() + interval '1 hour', d.id, 'bad', '{}' FROM LOG.delayed d WHERE d.seq IS NULL",
        "duplicate key value",
    ),
];

async fn with_bad_rows(log: &Log) -> Session {
    let session = Session::of(log).await;
    session.run("SELECT LOG.publish('late', not_before => now() + interval '1 day'); ").await.unwrap();
    session.run("SELECT LOG.poll_for_events()").await.unwrap();
    for (nth, (bad, _)) in BAD_ROWS.iter().enumerate() {
        session.run(&format!("SELECT LOG.publish('good', to_jsonb({nth}))")).await.unwrap();
        session.run(&format!("INSERT INTO LOG.outbox {bad}")).await.unwrap();
        session.run(&format!("SELECT LOG.publish('keyed', key => 'key {nth}')")).await.unwrap();
    }
    session
}

async fn assert_bad_rows_are_rejected(log: &Log, store: &SharedStore) {
    assert_eq!(places(store).await, (1..=18 + 1).collect::<Vec<_>>());
    assert_eq!(log.number("SELECT count(*) FROM LOG.outbox").await, 0);
    let rejected = "SELECT reason FROM LOG.outbox_rejected ORDER BY number".replace("LOG", &log.schema);
    let reasons: Vec<String> = log.admin.query(&rejected, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(reasons.len(), BAD_ROWS.len(), "{reasons:?}");
    for (reason, (_, expected)) in reasons.iter().zip(BAD_ROWS) {
        assert!(reason.starts_with(expected), "{reason} is not {expected}");
    }
    let topics = "SELECT count(*) FROM LOG.events WHERE topic = 'bad'";
    assert_eq!(log.number(topics).await, 0);
    assert_eq!(store.outbox_rejected().await.unwrap(), 9);
}

#[tokio::test]
async fn append_goes_past_bad_outbox_rows() {
    let log = log().await;
    with_bad_rows(&log).await;
    let store = log.open().await;
    let appended = store.append(on("o")).await.expect("a bad row does not stop an append");
    assert_eq!(appended[0].seq, Some(19), "everything that was published before comes before it");
    assert_bad_rows_are_rejected(&log, &store).await;
    store.close().await;
}

#[tokio::test]
async fn drain_goes_past_bad_outbox_rows() {
    let log = log().await;
    with_bad_rows(&log).await;
    let store = log.open().await;
    assert_eq!(places(&store).await, (1..=18).collect::<Vec<_>>());
    store.append(on("o")).await.unwrap();
    assert_bad_rows_are_rejected(&log, &store).await;
    store.close().await;
}

#[tokio::test]
async fn poll_for_events_goes_past_bad_outbox_rows() {
    let log = log().await;
    let session = with_bad_rows(&log).await;
    while session.text("SELECT LOG.poll_for_events()").await != "0" {}
    let store = log.open().await;
    store.append(on("o")).await.unwrap();
    assert_bad_rows_are_rejected(&log, &store).await;
    store.close().await;
}

#[tokio::test]
async fn rejected_row_is_requeued_once_it_is_corrected() {
    let log = log().await;
    let session = Session::of(&log).await;
    session.run(&format!("INSERT INTO LOG.outbox {}", BAD_ROWS[1].0)).await.unwrap();
    session.run(&format!("INSERT INTO LOG.outbox {}", BAD_ROWS[6].0)).await.unwrap();
    let store = log.open().await;
    assert_eq!(places(&store).await, [] as [Seq; 0]);
    let operator = log.login(&["operate"]).await;
    let requeue = "SELECT LOG.requeue_rejected(min(number)) FROM LOG.outbox_rejected";
    let again = refusal(&run(&log, &operator, requeue).await.expect_err("it is still wrong"));
    assert!(again.text.starts_with("occurred_at is not"), "{again:?}");
    let requeue = "SELECT LOG.requeue_rejected(min(number), occurred_at => now()) FROM LOG.outbox_rejected";
    run(&log, &operator, requeue).await.unwrap();
    assert_eq!(places(&store).await, [1]);
    run(&log, &operator, "DELETE FROM LOG.outbox_rejected").await.unwrap();
    assert_eq!(store.outbox_rejected().await.unwrap(), 0);
    store.close().await;
}

/// H43: rows of the log that no program of ours writes.
#[tokio::test]
async fn reader_goes_past_times_that_are_out_of_range() {
    let log = log().await;
    let consumer = log.login(&["consume"]).await;
    log.subscribing(&consumer, "'g', 'true'").await.unwrap();
    log.put("SELECT n, 't', '{}'::jsonb FROM generate_series(1, 6) n").await;
    log.run("UPDATE LOG.stored_events SET occurred_at = 'infinity' WHERE seq = 1").await;
    log.run("UPDATE LOG.stored_events SET occurred_at = '-infinity' WHERE seq = 2").await;
    log.run("UPDATE LOG.stored_events SET occurred_at = '200000-01-01' WHERE seq = 3").await;
    log.run("UPDATE LOG.stored_events SET recorded_at = 'infinity' WHERE seq IN (4, 6)").await;
    let store = log.open().await;
    assert_eq!(places(&store).await, [1, 2, 3, 4, 5, 6]);
    let page = store.read(Read { after: 0, limit: 100, filter: Filter::default() }).await.unwrap();
    assert_eq!(page.events[0].occurred_at, Timestamp::MAX);
    assert_eq!(page.events[1].occurred_at, Timestamp::MIN);
    assert!(store.pulse(None).await.unwrap().last == 6);
    for seq in 1..=6 {
        assert!(store.event(seq).await.unwrap().is_some());
        assert!(store.find(page.events[seq as usize - 1].id).await.is_ok());
    }
    // The log goes on by the clock.
    let appended = store.append(on("o")).await.unwrap();
    assert_eq!(appended[0].seq, Some(7));
    let recorded = store.event(7).await.unwrap().unwrap().recorded_at;
    assert!(recorded < Timestamp::MAX - jiff::SignedDuration::from_hours(24), "{recorded}");
    log.run("SELECT LOG.publish('u')").await;
    assert_eq!(places(&store).await.len(), 8);

    let read = log.reading(&consumer, "'g'").await.unwrap();
    assert_eq!(seqs(&read), [1, 2, 3, 4, 5, 6, 7, 8]);
    let times = "SELECT count(*) FROM LOG.events WHERE isfinite(occurred_at) AND isfinite(recorded_at) \
        AND extract(year FROM occurred_at) BETWEEN 1 AND 9999";
    assert_eq!(log.number(times).await, 8);
    let times = "SELECT count(*) FROM LOG.read_next_events('g', peek => true) WHERE isfinite(occurred_at) AND isfinite(recorded_at)";
    assert_eq!(log.number(times).await, 8);
    store.close().await;
}
