//! Consumers with nothing but SQL: subscribe, read, commit. The promises are those of the groups over HTTP.

use crate::support::groups::{name, open, subscription};
use crate::support::sql::{Read, Refusal, log, seqs};
use crate::support::{Log, WAIT_MAX, connect};
use ensue_conformance::postgres::shared_url;
use ensue_core::positions::subscription::identity_of_params;
use ensue_core::positions::{NewSubscription, Positions};
use ensue_core::{Json, NewEvent, Topic};
use ensue_stores::postgres::PostgresOptions;
use std::time::Instant;
use tokio_postgres::error::SqlState;
use uuid::Uuid;

/// Reads a group to its end, so many at a time, and commits each chunk.
async fn read_all(log: &Log, group: &str, chunk: usize) -> Vec<Read> {
    let mut all = Vec::new();
    loop {
        let read = log.read(&format!("'{group}', chunk_size => {chunk}")).await;
        let Some(last) = read.last().cloned() else { return all };
        assert!(read.len() <= chunk);
        assert_eq!(log.committing(group, last.next_cursor, true, &last.lease.unwrap()).await, Ok(last.next_cursor));
        all.extend(read);
    }
}

/// A hundred events whose rows are physically shuffled, read in chunks of ten.
pub async fn read_shuffled(log: &Log) -> Vec<Read> {
    log.subscribe("'g', 'e.seq > 0'").await;
    let shuffled =
        "SELECT n, 'order.paid', jsonb_build_object('n', n) FROM generate_series(1, 100) n ORDER BY (n * 37) % 101";
    log.put(shuffled).await;
    read_all(log, "g", 10).await
}

/// H3: rows physically shuffled, chunk 10 of 100: all 100 are read, once, in order.
#[tokio::test]
async fn every_event_is_read_once_and_in_order_wherever_its_row_lies() {
    let log = log().await;
    let read = read_shuffled(&log).await;
    assert_eq!(seqs(&read), (1..=100).collect::<Vec<i64>>());
    assert!(read.iter().all(|row| row.wanted_by.len() == 1));
    assert_eq!(log.cursor("g").await, 100);
}

/// Ten events, two of which some conditions fail on, read in chunks of four. Answers what was read, then those whose condition fails, then
/// those whose does not.
pub async fn read_poisoned(log: &Log) -> (Vec<Read>, Vec<Uuid>, Vec<Uuid>) {
    let shared = "$c$(e.payload->>(s.params->>'field'))::int > 0$c$";
    let bad = log.subscribe("'g', $c$(e.payload->>'n')::int > 0$c$").await;
    let by_params = log.subscribe(&format!("'g', {shared}, '{{\"field\": \"n\"}}'")).await;
    let by_other = log.subscribe(&format!("'g', {shared}, '{{\"field\": \"m\"}}'")).await;
    let good = log.subscribe("'g', $c$e.topic = 'order.paid'$c$").await;
    log.put(
        "SELECT n, 'order.paid', jsonb_build_object('m', 1, 'n', CASE WHEN n IN (3, 7) THEN 'seven' ELSE n::text END) \
         FROM generate_series(1, 10) n",
    )
    .await;
    (read_all(log, "g", 4).await, vec![bad, by_params], vec![by_other, good])
}

/// Has everybody got what they want, whatever fails elsewhere?
pub fn nobody_misses_anything(read: &[Read], failing: &[Uuid], others: &[Uuid]) -> bool {
    let mut all = [failing, others].concat();
    let mut others = others.to_vec();
    all.sort_unstable();
    others.sort_unstable();
    seqs(read) == (1..=10).collect::<Vec<i64>>()
        && read.iter().all(|row| row.wanted_by == if [3, 7].contains(&row.seq) { &*others } else { &*all })
}

/// H24: one subscription whose condition fails on some event is reported; all others still get the event.
#[tokio::test]
async fn a_condition_that_fails_on_an_event_is_told_with_its_subscription_and_nobody_else_misses_anything() {
    let log = log().await;
    let (read, failing, others) = read_poisoned(&log).await;
    assert!(nobody_misses_anything(&read, &failing, &others), "{read:?}");
    let told = "SELECT id, failures, failed_seq, failed_with, failed_at IS NOT NULL FROM LOG.group_subscriptions \
                WHERE group_id = 'g' AND failures > 0 ORDER BY id";
    let told = log.admin.query(&told.replace("LOG", &log.schema), &[]).await.unwrap();
    let mut expected = failing;
    expected.sort_unstable();
    assert_eq!(told.iter().map(|row| row.get::<_, Uuid>(0)).collect::<Vec<_>>(), expected);
    for row in told {
        assert_eq!((row.get::<_, i64>(1), row.get::<_, i64>(2)), (2, 7), "each event is counted once");
        assert!(row.get::<_, &str>(3).contains("seven") && row.get::<_, bool>(4));
    }
}

/// What the library lets in and the functions do not understand gets nothing and is told; the others get everything.
#[tokio::test]
async fn a_condition_that_is_not_understood_keeps_nobody_from_reading() {
    let log = log().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    let hostile = store.subscribe(subscription("g", "true) OR pg_sleep(60) IS NULL OR (true")).await.unwrap().0.id;
    let tagged = store.subscribe(subscription("g", "e.topic = $tag$t$tag$")).await.unwrap().0.id;
    let good = store.subscribe(subscription("g", "e.topic = 't'")).await.unwrap().0.id;
    let begun = Instant::now();
    log.put("SELECT n, 't', '{}'::jsonb FROM generate_series(1, 3) n").await;
    let read = log.read("'g'").await;
    assert!(begun.elapsed() < WAIT_MAX / 4, "it was not executed");
    assert_eq!(read.iter().map(|row| row.wanted_by.clone()).collect::<Vec<_>>(), vec![vec![good]; 3]);
    let told =
        log.admin.query(&format!("SELECT id FROM {}.group_subscriptions WHERE failures > 0", log.schema), &[]).await;
    let mut told: Vec<Uuid> = told.unwrap().iter().map(|row| row.get(0)).collect();
    told.sort_unstable();
    let mut expected = [hostile, tagged];
    expected.sort_unstable();
    assert_eq!(told, expected);
}

#[tokio::test]
async fn a_subscription_is_the_same_over_sql_and_in_the_library() {
    let log = log().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    let params =
        Json::parse("params", r#"{"b": [1.0, 2.50, -0.0, 1e3], "a": {"é\n\u0001": null, "t": true}, "": "x.0"}"#)
            .unwrap();
    let wanted = NewSubscription { params: params.clone(), ..subscription("g", "e.payload @> s.params") };
    let (made, is_new) = store.subscribe(wanted.clone()).await.unwrap();
    assert!(is_new);
    let literal = params.as_str().replace('\'', "''");
    let same = log.subscribe(&format!("'g', 'e.payload @> s.params', '{literal}'")).await;
    assert_eq!(same, made.id, "made in the library, found over SQL");
    let identity = format!("SELECT {}.params_identity($1::text::jsonb)", log.schema);
    for text in
        [params.as_str(), "{}", "[]", "null", "12.00", r#""a.0""#, r#"{"x":{"y":[1.10,{"z":0.0}]}}"#, "1e-7", "-1.50e2"]
    {
        let json = Json::parse("params", text).unwrap();
        let said: String = log.admin.query_one(&identity, &[&text]).await.unwrap().get(0);
        assert_eq!(said, identity_of_params(&json), "{text}");
    }

    let here = log.subscribe("'h', 'e.seq > 1', '{\"k\": 1}', '1 hour'").await;
    let there =
        NewSubscription { params: Json::parse("params", "{\"k\":1.0}").unwrap(), ..subscription("h", "e.seq > 1") };
    let (there, is_new) = store.subscribe(there).await.unwrap();
    assert_eq!((there.id, is_new), (here, false), "made over SQL, found in the library");
    assert_eq!(there.expires_in, None, "the longer expiry wins, and none is the longest");
    assert_eq!(log.subscribe("'h', 'e.seq > 1', '{\"k\": 1}', '1 minute'").await, here);
    assert_eq!(log.number("SELECT count(*) FROM LOG.subscriptions WHERE expires_in IS NULL").await, 2);
    assert_ne!(log.subscribe("'h', 'e.seq > 1', '{\"k\": \"1\"}'").await, here);
    assert_ne!(log.subscribe("'h', 'e.seq > 2', '{\"k\": 1}'").await, here);
    assert_ne!(log.subscribe("'h'").await, here);

    let unsubscribe = format!("SELECT {}.unsubscribe($1)", log.schema);
    let gone = log.admin.query_one(&unsubscribe, &[&here]).await.unwrap().get::<_, bool>(0);
    let again = log.admin.query_one(&unsubscribe, &[&here]).await.unwrap().get::<_, bool>(0);
    assert_eq!((gone, again), (true, false));
    assert!(store.subscriptions(&name("h"), None, 100).await.unwrap().iter().all(|one| one.id != here));
}

/// One that the library makes has a topic; one event may be for one subscription alone, whatever its condition.
#[tokio::test]
async fn topics_and_receivers_are_those_of_the_library() {
    let log = log().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    let topic =
        NewSubscription { topic: Some(Topic::stored("order")), ..subscription("g", "(e.payload->>'n')::int = 1") };
    let below_order = store.subscribe(topic).await.unwrap().0.id;
    let never = log.subscribe("'g', 'false'").await;
    log.put(
        "VALUES (1, 'order', '{\"n\": 1}'::jsonb), (2, 'order.paid', '{\"n\": 1}'), (3, 'orders', '{\"n\": \"x\"}'), \
         (4, 'other', '{\"n\": \"x\"}'), (5, 'order', '{\"n\": 2}'), (6, 'any', '{}')",
    )
    .await;
    log.run(&format!("UPDATE LOG.stored_events SET to_subscription = '{never}' WHERE seq = 6")).await;
    let read = log.read("'g'").await;
    let got: Vec<(i64, Vec<Uuid>)> = read.iter().map(|row| (row.seq, row.wanted_by.clone())).collect();
    assert_eq!(got, [(1, vec![below_order]), (2, vec![below_order]), (6, vec![never])]);
    let failures = log.number("SELECT sum(failures)::bigint FROM LOG.subscriptions").await;
    assert_eq!(failures, 0, "what its topic passes over is not looked at");
}

/// H4: `prev` is the previous event of the object that the read has.
#[tokio::test]
async fn prev_of_a_read_is_the_previous_event_that_the_group_gets() {
    let log = log().await;
    log.subscribe("'g', 'e.topic = ''t'''").await;
    for topic in ["u", "t", "u", "t"] {
        log.run(&format!("SELECT LOG.publish('{topic}', object => 'o')")).await;
    }
    log.run("SELECT LOG.poll_for_events()").await;
    let prevs = log.number("SELECT coalesce(sum(coalesce(prev, 100) * seq), 0)::bigint FROM LOG.read_next_events('g')");
    assert_eq!(prevs.await, 2 * 100 + 4 * 2);
}

/// Reads four, is away for longer than its lease while another reads two, and commits its four. Answers what it is told, and what the other
/// has.
pub async fn commit_stale(log: &Log) -> (Result<i64, Refusal>, Vec<Read>) {
    let slow = log.read("'g', chunk_size => 4, lease_for => '100 milliseconds'").await;
    log.until("SELECT count(*) FROM LOG.members WHERE lease_until >= clock_timestamp()", 0).await;
    let second = log.read("'g', chunk_size => 2").await;
    let last = slow.last().expect("four");
    (log.committing("g", last.seq, true, last.lease.as_deref().expect("a lease")).await, second)
}

#[tokio::test]
async fn one_reads_at_a_time_and_a_lease_that_is_lost_changes_nothing() {
    let log = log().await;
    log.subscribe("'g'").await;
    log.put("SELECT n, 't', '{}'::jsonb FROM generate_series(1, 20) n").await;
    let first = log.read("'g', chunk_size => 5").await;
    assert_eq!(seqs(&first), [1, 2, 3, 4, 5]);
    let lease = first[0].lease.clone().unwrap();

    let held = log.reading(&log.admin, "'g'").await.unwrap_err();
    assert_eq!(held.state, SqlState::LOCK_NOT_AVAILABLE);
    assert!(
        held.text.contains("reads the group 'g' under a lease until") && held.text.contains("peek"),
        "{}",
        held.text
    );
    assert_eq!(seqs(&log.read("'g', chunk_size => 3, peek => true").await), [1, 2, 3], "who only looks takes nothing");
    assert_eq!(log.read("'g', peek => true").await[0].lease, None);

    // On under the lease, and from a place of one's own.
    let more = log.read(&format!("'g', chunk_size => 5, under => '{lease}'")).await;
    assert_eq!(seqs(&more), [6, 7, 8, 9, 10]);
    let lease = more[0].lease.clone().unwrap();
    assert_eq!(seqs(&log.read(&format!("'g', 2, 2, under => '{lease}'")).await), [3, 4]);

    for (cursor, why) in [(11, "everything up to 10 was read"), (21, "everything up to 10"), (-1, "the group is at 0")]
    {
        let refused = log.committing("g", cursor, true, &lease).await.unwrap_err();
        assert_eq!(refused.state, SqlState::INVALID_PARAMETER_VALUE, "{cursor}");
        assert!(refused.text.contains(why), "{cursor}: {}", refused.text);
    }
    assert_eq!(log.committing("g", 7, false, &lease).await, Ok(7));
    let back = log.committing("g", 6, false, &lease).await.unwrap_err();
    assert!(back.text.contains("is at 7 already"), "{}", back.text);
    assert_eq!(
        log.reading(&log.admin, "'g'").await.unwrap_err().state,
        SqlState::LOCK_NOT_AVAILABLE,
        "it was not released"
    );
    assert_eq!(log.committing("g", 10, true, &lease).await, Ok(10));

    let lost = log.committing("g", 10, true, &lease).await.unwrap_err();
    assert_eq!(lost.state, SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
    assert!(lost.text.contains("lost") && lost.text.contains("Read again"), "{}", lost.text);
    let lost = log.reading(&log.admin, &format!("'g', under => '{lease}'")).await.unwrap_err();
    assert_eq!(lost.state, SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);

    // H16: the first is away for longer than its lease, the second takes over, the first comes back.
    let (stale, second) = commit_stale(&log).await;
    assert_eq!(stale.unwrap_err().state, SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
    assert_eq!(seqs(&second), [11, 12]);
    assert_eq!(log.cursor("g").await, 10);
    assert_eq!(log.committing("g", 12, true, second[0].lease.as_deref().unwrap()).await, Ok(12));
    assert_eq!(seqs(&read_all(&log, "g", 100).await), (13..=20).collect::<Vec<i64>>());
}

#[tokio::test]
async fn a_lease_that_has_run_out_changes_nothing_though_nobody_took_the_group() {
    let log = log().await;
    log.subscribe("'g'").await;
    log.put("SELECT n, 't', '{}'::jsonb FROM generate_series(1, 3) n").await;
    let read = log.read("'g', lease_for => '100 milliseconds'").await;
    log.until("SELECT count(*) FROM LOG.members WHERE lease_until >= clock_timestamp()", 0).await;
    let stale = log.committing("g", 3, true, read[0].lease.as_deref().unwrap()).await.unwrap_err();
    assert_eq!(stale.state, SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
    assert_eq!(log.cursor("g").await, 0);
}

/// What nobody wants is passed by, a bounded part of the log at a time, without anybody having to commit it.
#[tokio::test]
async fn a_group_passes_what_nobody_wants_and_a_read_that_finds_nothing_holds_nothing() {
    let log = log().await;
    log.subscribe("'g', 'e.topic = ''rare'''").await;
    log.put("SELECT n, CASE WHEN n = 25000 THEN 'rare' ELSE 't' END, '{}'::jsonb FROM generate_series(1, 25001) n")
        .await;
    let (mut reads, mut found) = (0, Vec::new());
    while found.is_empty() {
        assert_eq!(log.cursor("g").await % 10_000, log.cursor("g").await.min(25_000) % 10_000);
        found = log.read("'g'").await;
        reads += 1;
        assert!(reads < 1_000, "it goes on");
    }
    assert!(reads >= 3, "a read looks at a bounded part of the log");
    assert_eq!(seqs(&found), [25_000]);
    assert_eq!(
        log.committing("g", found[0].next_cursor, true, found[0].lease.as_deref().unwrap()).await,
        Ok(found[0].next_cursor)
    );
    while !log.read("'g'").await.is_empty() || log.cursor("g").await < 25_001 {}
    assert_eq!(log.number("SELECT count(*) FROM LOG.members").await, 0, "nobody has a lease");

    // Under a lease, or from a place of one's own, nothing is passed: what is before may not be done with.
    log.put("SELECT 25002, 'rare', '{}'::jsonb UNION ALL SELECT 25003, 't', '{}'").await;
    assert_eq!(log.read("'g', 25002").await, []);
    let read = log.read("'g', chunk_size => 1").await;
    assert_eq!(seqs(&read), [25_002]);
    assert_eq!(log.read(&format!("'g', under => '{}'", read[0].lease.as_deref().unwrap())).await, []);
    assert_eq!(log.cursor("g").await, 25_001);
}

/// H31: who asks again and again while nothing happens writes nothing; but reading keeps what would expire.
#[tokio::test]
async fn an_idle_read_writes_nothing_unless_something_would_expire() {
    let log = log().await;
    log.subscribe("'g'").await;
    log.put("SELECT 1, 't', '{}'::jsonb").await;
    read_all(&log, "g", 1).await;
    let wrote = async || {
        log.admin.batch_execute("BEGIN").await.unwrap();
        assert_eq!(log.read("'g'").await, []);
        let wrote = log.number("SELECT count(pg_current_xact_id_if_assigned())").await;
        log.admin.batch_execute("COMMIT").await.unwrap();
        wrote
    };
    assert_eq!(wrote().await, 0);
    log.subscribe("'g', 'true', '{}', '1 hour'").await;
    log.run("UPDATE LOG.subscriptions SET touched_at = touched_at - interval '50 minutes'; UPDATE LOG.slots SET served_at = served_at - interval '50 minutes'").await;
    assert_eq!(wrote().await, 1);
    let kept = "SELECT count(*) FROM LOG.slots WHERE served_at > clock_timestamp() - interval '10 minutes'";
    assert_eq!(log.number(kept).await, 1);
}

#[tokio::test]
async fn an_expired_subscription_gets_nothing() {
    let log = log().await;
    log.subscribe("'g', 'e.seq = 1', '{}', '1 hour'").await;
    log.subscribe("'g', 'e.seq = 2'").await;
    log.run("UPDATE LOG.subscriptions SET touched_at = touched_at - interval '2 hours'; UPDATE LOG.slots SET served_at = served_at - interval '2 hours'").await;
    log.put("SELECT n, 't', '{}'::jsonb FROM generate_series(1, 3) n").await;
    assert_eq!(seqs(&log.read("'g'").await), [2]);
    assert_eq!(log.number("SELECT count(*) FROM LOG.subscriptions").await, 1, "and is gone");
}

/// H9: a group that retention has overtaken is told what it lost, with its commit, and goes on after it.
#[tokio::test]
async fn what_retention_took_is_noted_when_it_is_passed() {
    let log = log().await;
    log.subscribe("'g'").await;
    log.put("SELECT n, 't', '{}'::jsonb FROM generate_series(1, 9) n").await;
    log.run("UPDATE LOG.log_state SET trimmed_to = 4, trimmed_recorded_at = clock_timestamp()").await;
    let read = log.read("'g', chunk_size => 3").await;
    assert_eq!(seqs(&read), [5, 6, 7]);
    let lost = "SELECT count(*) FROM LOG.slots WHERE lost_from = 1 AND lost_to = 4";
    assert_eq!(log.number(lost).await, 0, "not before it is passed");
    log.committing("g", 7, true, read[0].lease.as_deref().unwrap()).await.unwrap();
    assert_eq!(log.number(lost).await, 1);
}

/// S1: a condition that costs without bound is ended by the reader's own limit, and nothing is changed.
#[tokio::test]
async fn a_statement_timeout_ends_a_read_and_leaves_everything_as_it_was() {
    let log = log().await;
    let costly = vec!["lower(e.payload->>'t') = 'x'"; 200].join(" OR ");
    log.subscribe(&format!("'g', $c${costly}$c$")).await;
    log.put("SELECT n, 't', jsonb_build_object('t', repeat('a', 500000)) FROM generate_series(1, 100) n").await;
    log.run("SET statement_timeout = '100ms'").await;
    let ended = log.reading(&log.admin, "'g'").await.unwrap_err();
    log.run("RESET statement_timeout").await;
    assert_eq!(ended.state, SqlState::QUERY_CANCELED);
    assert_eq!((log.cursor("g").await, log.number("SELECT count(*) FROM LOG.members").await), (0, 0));
    assert_eq!(log.number("SELECT sum(failures)::bigint FROM LOG.subscriptions").await, 0);
}

#[tokio::test]
async fn large_events_are_read_a_few_at_a_time() {
    let log = log().await;
    log.subscribe("'g'").await;
    log.put("SELECT n, 't', jsonb_build_object('text', (SELECT string_agg(md5(n::text || m), '') FROM generate_series(1, 30000) m)) \
             FROM generate_series(1, 10) n").await;
    let first = log.read("'g'").await;
    assert!((1..=5).contains(&first.len()), "{} of almost a megabyte each", first.len());
    log.committing("g", first[0].next_cursor, true, first[0].lease.as_deref().unwrap()).await.unwrap();
    let rest = read_all(&log, "g", 100).await;
    let all: Vec<i64> = seqs(&first).into_iter().chain(seqs(&rest)).collect();
    assert_eq!(all, (1..=10).collect::<Vec<i64>>());
}

/// Whoever subscribed before an event was published gets it, also when the reader was there before the subscription.
#[tokio::test]
async fn a_new_group_begins_at_the_end_of_the_log_and_misses_nothing_after_it() {
    let log = log().await;
    let store = log.open().await;
    let publish = async |topic: &str| {
        store.append(ensue_conformance::suite::checked(vec![NewEvent::new(topic)])).await.unwrap();
    };
    publish("before").await;
    log.subscribe("'g', 'e.topic = ''a'''").await;
    publish("a").await;
    publish("b").await;
    assert_eq!(seqs(&read_all(&log, "g", 10).await), [2]);
    log.subscribe("'g', 'e.topic = ''b'''").await;
    publish("b").await;
    let read = read_all(&log, "g", 10).await;
    assert_eq!((seqs(&read), read[0].topic.as_str()), (vec![4], "b"));
    // A whole id, as everybody knows it: half of one is stored.
    let whole = log.subscribe("'ids', $c$e.id::text LIKE '______________7%'$c$").await;
    publish("c").await;
    assert_eq!(read_all(&log, "ids", 10).await.iter().map(|row| row.wanted_by.clone()).collect::<Vec<_>>(), [[whole]]);
    let view = "SELECT count(*) FROM LOG.events l JOIN LOG.stored_events e ON e.seq = l.seq WHERE l.id = LOG.event_id(e.id_part, e.recorded_at) AND l.metadata = '{}'";
    assert_eq!(log.number(view).await, 5);
}

/// Two readers at the same moment: one has the lease, the other is told; nothing is read twice while a lease lasts.
#[tokio::test]
async fn of_many_readers_at_once_one_gets_each_event() {
    let log = std::sync::Arc::new(log().await);
    log.subscribe("'g'").await;
    log.put("SELECT n, 't', '{}'::jsonb FROM generate_series(1, 200) n").await;
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..4 {
        let log = log.clone();
        readers.spawn(async move {
            let client = connect(&shared_url()).await;
            let mut mine = Vec::new();
            loop {
                match log.reading(&client, "'g', chunk_size => 7").await {
                    Ok(read) if read.is_empty() => return mine,
                    Ok(read) => {
                        let last = read.last().unwrap();
                        log.committing("g", last.next_cursor, true, last.lease.as_deref().unwrap()).await.unwrap();
                        mine.extend(seqs(&read));
                    }
                    Err(refusal) => assert_eq!(refusal.state, SqlState::LOCK_NOT_AVAILABLE, "{refusal:?}"),
                }
            }
        });
    }
    let mut all: Vec<i64> = readers.join_all().await.concat();
    all.sort_unstable();
    assert_eq!(all, (1..=200).collect::<Vec<i64>>());
}

/// H44: the end of the log is lost, and the log grows past it with other events. The lease is older.
#[tokio::test]
async fn what_a_failover_lost_is_neither_committed_nor_read_on_from() {
    let log = log().await;
    log.subscribe("'g'").await;
    log.put("SELECT n, 't', '{}'::jsonb FROM generate_series(1, 20) n").await;
    let lease = log.read("'g', chunk_size => 15").await[0].lease.clone().unwrap();
    assert_eq!(log.committing("g", 5, false, &lease).await, Ok(5));
    log.run("DELETE FROM LOG.stored_events WHERE seq > 10").await;
    for (from, to) in [(11, 12), (13, 42)] {
        log.put(&format!("SELECT n, 'new', '{{}}'::jsonb FROM generate_series({from}, {to}) n")).await;
        let told = log.committing("g", 12, false, &lease).await.unwrap_err();
        assert_eq!(told.state, SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE);
        assert!(told.text.contains("went_back") && told.text.contains("from 6 to 15"), "{}", told.text);
        let told = log.reading(&log.admin, &format!("'g', under => '{lease}'")).await.unwrap_err();
        assert!(told.text.contains("went_back"), "{}", told.text);
    }
    assert_eq!(log.cursor("g").await, 5);
    log.run(&format!("SELECT LOG.set_group_cursor('g', NULL, true, '{lease}')")).await;
    assert_eq!(seqs(&read_all(&log, "g", 100).await), (6..=42).collect::<Vec<i64>>());
}

#[tokio::test]
async fn bad_input_is_named_with_what_to_write() {
    let log = log().await;
    log.subscribe("'g'").await;
    crate::support::groups::handler_group(&open(&log.url, PostgresOptions::default()).await, "order.paid.index", 1)
        .await;
    for (arguments, state, why) in [
        ("'none'", SqlState::UNDEFINED_OBJECT, "Subscribe to it"),
        ("'order.paid.index'", SqlState::OBJECT_IN_USE, "belongs to the handler"),
        ("'g', chunk_size => 0", SqlState::INVALID_PARAMETER_VALUE, "from 1 to 1000"),
        ("'g', chunk_size => 1001", SqlState::INVALID_PARAMETER_VALUE, "from 1 to 1000"),
        ("'g', chunk_size => NULL", SqlState::INVALID_PARAMETER_VALUE, "from 1 to 1000"),
        ("'g', 1", SqlState::INVALID_PARAMETER_VALUE, "after 0, its cursor, to 0"),
        ("'g', -1", SqlState::INVALID_PARAMETER_VALUE, "after 0, its cursor"),
        ("'g', under => 'x'", SqlState::INVALID_PARAMETER_VALUE, "send it as it was"),
        ("'g', lease_for => '1 ms'", SqlState::INVALID_PARAMETER_VALUE, "100 milliseconds to an hour"),
        ("'g', lease_for => '2 hours'", SqlState::INVALID_PARAMETER_VALUE, "100 milliseconds to an hour"),
    ] {
        let refused = log.reading(&log.admin, arguments).await.unwrap_err();
        assert_eq!(refused.state, state, "{arguments}: {refused:?}");
        assert!(refused.text.contains(why), "{arguments}: {}", refused.text);
    }
    let long = "x".repeat(256);
    for (arguments, state, why) in [
        ("''", SqlState::INVALID_PARAMETER_VALUE, "gid is empty"),
        ("NULL", SqlState::INVALID_PARAMETER_VALUE, "gid is empty"),
        ("'a..b'", SqlState::INVALID_PARAMETER_VALUE, "empty segment"),
        ("'a b'", SqlState::INVALID_PARAMETER_VALUE, "' '"),
        (&format!("'{long}'"), SqlState::INVALID_PARAMETER_VALUE, "at most 255"),
        ("'order.paid.index'", SqlState::OBJECT_IN_USE, "belongs to the handler"),
        (
            "'h', 'true', jsonb_build_object('x', repeat('x', 70000))",
            SqlState::INVALID_PARAMETER_VALUE,
            "at most 65536",
        ),
        ("'h', 'true', (repeat('[', 70) || repeat(']', 70))::jsonb", SqlState::INVALID_PARAMETER_VALUE, "64 levels"),
        ("'h', 'true', ('1' || repeat('0', 500))::jsonb", SqlState::INVALID_PARAMETER_VALUE, "400 digits"),
        ("'h', 'true', '{}', '1 ms'", SqlState::INVALID_PARAMETER_VALUE, "100 milliseconds"),
        ("'h', 'true', '{}', '20 years'", SqlState::INVALID_PARAMETER_VALUE, "3660 days"),
        ("'h', ''", SqlState::INVALID_PARAMETER_VALUE, "write true"),
    ] {
        let refused = log.subscribing(&log.admin, arguments).await.unwrap_err();
        assert_eq!(refused.state, state, "{arguments}: {refused:?}");
        assert!(refused.text.contains(why), "{arguments}: {}", refused.text);
    }
    assert_eq!(log.number("SELECT count(*) FROM LOG.groups").await, 2, "what is refused makes no group");
    let refused = log.committing("g", 0, true, "x").await.unwrap_err();
    assert!(refused.text.contains("send it as it was"));
    let missing = log.admin.query(&format!("SELECT {}.set_group_cursor('g', 0)", log.schema), &[]).await.unwrap_err();
    assert!(missing.as_db_error().unwrap().message().contains("the lease is missing"));
    assert!(log.subscribing(&log.admin, "'größe.ß'").await.is_ok(), "letters of any script");
}
