//! Partitions come before they are needed and go when nobody looks.

use crate::support::{Log, WAIT_MAX, on, whole_log};
use ensue_conformance::suite::checked;
use ensue_core::store::SharedStore;
use ensue_core::{NewEvent, Seq, StoreError, Timestamp};
use ensue_stores::clock::ManualClock;
use ensue_stores::postgres::PostgresOptions;
use std::time::Instant;

const ATTACHED: &str = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'LOG.stored_events'::regclass";
const TABLES: &str = "SELECT count(*) FROM pg_tables WHERE schemaname = 'LOG' AND tablename LIKE 'events_p%'";

async fn small(log: &Log) -> SharedStore {
    log.open_with(PostgresOptions { partition_rows: Some(10), ..PostgresOptions::default() }).await
}

#[tokio::test]
async fn partitions_roll_over_and_at_least_two_are_ahead() {
    let log = Log::new().await;
    let store = small(&log).await;
    assert_eq!(log.number(ATTACHED).await, 3);
    for _ in 0..95 {
        store.append(on("o")).await.unwrap();
    }
    whole_log(&store).await;
    // 95 events are in the tenth partition; two more are ahead as soon as the background task is done.
    log.until("SELECT (max(to_seq) >= 121)::int::bigint FROM LOG.partitions", 1).await;
    assert_eq!(log.number("SELECT count(*) FROM ONLY LOG.stored_events").await, 0);
}

/// A batch larger than all partitions that are there: the append makes what it lacks.
#[tokio::test]
async fn an_append_that_finds_no_partition_makes_one() {
    let log = Log::new().await;
    let store = small(&log).await;
    log.run("ALTER TABLE LOG.stored_events DETACH PARTITION LOG.events_p11; DROP TABLE LOG.events_p11").await;
    log.run("ALTER TABLE LOG.stored_events DETACH PARTITION LOG.events_p21; DROP TABLE LOG.events_p21").await;
    log.run("DELETE FROM LOG.partitions WHERE from_seq > 1").await;
    let answers = store.append(checked(vec![NewEvent::new("t").object("o"); 25])).await.unwrap();
    assert_eq!(answers[24].seq, Some(25));
    whole_log(&store).await;
}

/// Where nobody runs a node and `maintain()` was not called in time, who polls makes the partition, whatever its rights.
#[tokio::test]
async fn a_poll_that_finds_no_partition_makes_one() {
    let log = Log::new().await;
    small(&log).await.close().await;
    log.run("SELECT LOG.publish_many((SELECT jsonb_agg(jsonb_build_object('topic', 't', 'object', 'o')) FROM generate_series(1, 1995) n))").await;
    log.run("UPDATE LOG.config SET value = '7' WHERE key = 'partition_interval'").await;
    let publisher = log.login(&["publish"]).await;
    for _ in 0..2 {
        publisher.batch_execute(&format!("SELECT {}.poll_for_events()", log.schema)).await.expect("it makes one");
    }
    assert_eq!(log.number("SELECT count(*) FROM LOG.stored_events").await, 1_995);
    assert!(log.number("SELECT min(to_seq - from_seq) FROM LOG.partitions").await == 7, "as large as the setting says");
}

/// Partitions ahead are dropped by hand while a node runs: the next append makes them anew, and so does `maintain()`.
#[tokio::test]
async fn a_partition_that_was_dropped_by_hand_is_made_anew() {
    let log = Log::new().await;
    let store = small(&log).await;
    store.append(checked(vec![NewEvent::new("t").object("o"); 5])).await.unwrap();
    log.run("DROP TABLE LOG.events_p11, LOG.events_p21").await;
    let answers = store.append(checked(vec![NewEvent::new("t").object("o"); 20])).await.unwrap();
    assert_eq!(answers[19].seq, Some(25));
    whole_log(&store).await;

    // All that the background task makes is made.
    log.until("SELECT max(to_seq) FROM LOG.partitions", 61).await;
    store.close().await;
    log.run("DROP TABLE LOG.events_p31; ALTER TABLE LOG.stored_events DETACH PARTITION LOG.events_p21").await;
    log.run("UPDATE LOG.config SET value = '10' WHERE key = 'partition_interval'").await;
    let attached = log.number(ATTACHED).await;
    let made = log.number("SELECT partitions_made FROM LOG.maintain()").await;
    assert_eq!(made, log.number(ATTACHED).await - attached, "what it says it made is there");
    assert!(made >= 2);
    assert_eq!(log.number("SELECT count(*) FROM LOG.stored_events").await, 25, "what was only taken out is back");
    log.run("INSERT INTO LOG.stored_events (seq, topic, payload, recorded_at, id_part) VALUES (40, 't', '{}', now(), gen_random_uuid())").await;
}

/// Trims until the query answers this number: a trim that finds somebody in its way for a moment leaves the rest to the next one.
async fn trim_until(log: &Log, store: &SharedStore, before: Seq, sql: &str, expected: i64) {
    let begun = Instant::now();
    loop {
        store.trim(before, 1_000).await.unwrap();
        if log.number(sql).await == expected {
            return;
        }
        assert!(begun.elapsed() < WAIT_MAX, "never came true: {expected} = {sql}");
    }
}

/// A partition that is forgotten, and that somebody has dropped before, is no obstacle to the removal of others.
#[tokio::test]
async fn a_trim_passes_over_partitions_that_somebody_has_dropped() {
    let log = Log::new().await;
    let store = small(&log).await;
    store.append(checked(vec![NewEvent::new("t").object("o"); 25])).await.unwrap();
    log.run("DROP TABLE LOG.events_p1").await;
    trim_until(&log, &store, 25, "SELECT min(from_seq) FROM LOG.partitions", 21).await;
}

/// The server says what it says for want of a partition, and making them does not help.
#[tokio::test]
async fn a_release_that_no_partition_helps_says_so() {
    let log = Log::new().await;
    let clock = ManualClock::at(Timestamp::from_second(1_800_000_000).unwrap());
    let store = log.open_with(PostgresOptions { clock: Some(clock.clock()), ..PostgresOptions::default() }).await;
    let due = Timestamp::from_second(1_800_000_001).unwrap();
    store.append(checked(vec![NewEvent::new("never").not_before(due)])).await.unwrap();
    log.run("ALTER TABLE LOG.stored_events ADD CHECK (topic <> 'never')").await;
    clock.advance_millis(1_000);
    let released = tokio::time::timeout(WAIT_MAX, store.release_due(10)).await.expect("it ends");
    assert!(matches!(&released, Err(StoreError::Engine(text)) if text.contains("ensue doctor")), "{released:?}");
}

/// The size of partitions is changed: the new ones begin where the old ones end.
#[tokio::test]
async fn another_size_goes_on_where_the_last_partition_ends() {
    let log = Log::new().await;
    let store = small(&log).await;
    store.append(checked(vec![NewEvent::new("t"); 15])).await.unwrap();
    store.close().await;
    let store = log.open_with(PostgresOptions { partition_rows: Some(7), ..PostgresOptions::default() }).await;
    for _ in 0..40 {
        store.append(on("o")).await.unwrap();
    }
    assert_eq!(whole_log(&store).await.len(), 55);
    log.until("SELECT count(*) FROM (SELECT from_seq - lag(to_seq) OVER (ORDER BY from_seq) AS gap FROM LOG.partitions) g WHERE gap <> 0", 0)
        .await;
}

#[tokio::test]
async fn a_trim_drops_partitions_that_are_wholly_forgotten() {
    let log = Log::new().await;
    let store = small(&log).await;
    for _ in 0..35 {
        store.append(on("o")).await.unwrap();
    }
    log.until("SELECT (max(to_seq) >= 61)::int::bigint FROM LOG.partitions", 1).await;
    let before = log.number(TABLES).await;
    trim_until(&log, &store, 25, TABLES, before - 2).await;
    assert_eq!(log.number("SELECT min(seq) FROM LOG.stored_events").await, 25, "the others are deleted");
    assert_eq!(whole_log(&store).await[0].seq, 25);
}

/// Somebody reads for minutes and holds ACCESS SHARE on the log. A DROP that waited for him would stop every publish
/// behind it.
#[tokio::test]
async fn a_held_read_lock_stops_neither_trim_nor_publish() {
    let log = Log::new().await;
    let store = small(&log).await;
    for _ in 0..35 {
        store.append(on("o")).await.unwrap();
    }
    log.until("SELECT (max(to_seq) >= 61)::int::bigint FROM LOG.partitions", 1).await;
    let before = log.number(TABLES).await;
    log.hold("LOCK TABLE LOG.stored_events IN ACCESS SHARE MODE").await;
    let calls = async {
        assert_eq!(store.trim(31, 1_000).await.unwrap().first, 31);
        // New partitions are attached under the reader's eyes.
        for _ in 0..60 {
            store.append(on("o")).await.unwrap();
        }
    };
    tokio::time::timeout(WAIT_MAX, calls).await.expect("neither waits for the reader");
    assert_eq!(whole_log(&store).await.len(), 65);
    log.let_go().await;
    assert!(log.number(TABLES).await >= before, "nothing was dropped meanwhile");
    trim_until(&log, &store, 31, "SELECT min(from_seq) FROM LOG.partitions", 31).await;
}

/// H38: retention forgets everything and the files are gone, the process restarts: numbers and times go on.
#[tokio::test]
async fn an_emptied_log_goes_on_where_it_was() {
    let log = Log::new().await;
    let store = small(&log).await;
    for _ in 0..20 {
        store.append(on("o")).await.unwrap();
    }
    let newest = store.event(20).await.unwrap().unwrap().recorded_at;
    let bounds = store.trim(u64::MAX, usize::MAX).await.unwrap();
    assert_eq!((bounds.first, bounds.last), (21, 20));
    assert_eq!(log.number("SELECT count(*) FROM LOG.stored_events").await, 0);
    store.close().await;
    let store = small(&log).await;
    assert_eq!(store.bounds().await.unwrap(), bounds);
    let next = store.append(on("o")).await.unwrap()[0];
    assert_eq!((next.seq, next.prev), (Some(21), None));
    assert!(store.event(21).await.unwrap().unwrap().recorded_at >= newest);
}

/// H38: the newest partitions are empty when the process restarts.
#[tokio::test]
async fn empty_newest_partitions_do_not_restart_the_numbers() {
    let log = Log::new().await;
    let store = small(&log).await;
    store.append(checked(vec![NewEvent::new("t").object("o"); 10])).await.unwrap();
    store.close().await;
    let store = small(&log).await;
    assert_eq!(store.bounds().await.unwrap().last, 10);
    let next = store.append(on("o")).await.unwrap()[0];
    assert_eq!((next.seq, next.prev), (Some(11), Some(10)));
}

/// A node makes partitions as `ensue.config` says at the time, unless it was opened with a size of its own.
#[tokio::test]
async fn the_size_and_the_number_of_partitions_are_settings_that_are_read_live() {
    let log = Log::new().await;
    let store = log.open().await;
    assert_eq!(log.number("SELECT max(to_seq) FROM LOG.partitions").await, 3_000_001);
    // As if all but the last ten places of what there is were used up.
    log.run("UPDATE LOG.config SET value = '20' WHERE key = 'partition_interval'").await;
    log.run("UPDATE LOG.config SET value = '5' WHERE key = 'future_intervals_to_create'").await;
    log.run("INSERT INTO LOG.stored_events (seq, topic, payload, recorded_at, id_part) VALUES (2999990, 't', '{}', now(), '00000000-0000-0000-8000-000000000001')")
        .await;
    for _ in 0..30 {
        store.append(on("o")).await.unwrap();
    }
    log.until("SELECT (max(to_seq) >= 3000020 + 80)::int::bigint FROM LOG.partitions", 1).await;
    assert_eq!(
        log.number("SELECT count(*) FROM LOG.partitions WHERE from_seq > 3000000 AND to_seq - from_seq <> 20").await,
        0
    );
}

const ROWS: &str = "SELECT count(*) FROM LOG.stored_events";
/// Events of the partitions ahead, the smallest and the largest.
const SMALLEST_AHEAD: &str = "SELECT min(to_seq - from_seq) FROM LOG.partitions WHERE from_seq > 1";
const LARGEST_AHEAD: &str = "SELECT max(to_seq - from_seq) FROM LOG.partitions WHERE from_seq > 1";

/// H42: a log that is smaller than its first partition.
#[tokio::test]
async fn trimmed_events_of_a_small_log_leave_the_disk() {
    let log = Log::new().await;
    let store = log.open().await;
    for _ in 0..5 {
        store.append(checked(vec![NewEvent::new("t").object("o"); 500])).await.unwrap();
    }
    store.trim(401, 1_000).await.unwrap();
    assert_eq!(log.number(ROWS).await, 2_500, "a quarter of the log may wait for its partition");
    store.trim(1_001, 1_000).await.unwrap();
    assert_eq!(log.number(ROWS).await, 1_500);
    assert_eq!(whole_log(&store).await.len(), 1_500);
    while store.trim(2_501, 1_000).await.unwrap().first < 2_501 {}
    assert_eq!(log.number(ROWS).await, 0);
    store.close().await;
    // H38: numbers go on.
    let store = log.open().await;
    let next = store.append(on("o")).await.unwrap()[0];
    assert_eq!((next.seq, next.prev), (Some(2_501), None));
}

/// A batch whose connection was lost may have been stored, trimmed and deleted: it is not sent again.
#[tokio::test]
async fn deleted_events_leave_a_lost_batch_in_doubt() {
    let log = Log::new().await;
    let store = log.open().await;
    store.append(checked(vec![NewEvent::new("t"); 100])).await.unwrap();
    store.trim(101, 1_000).await.unwrap();
    let find = |after: i64| format!("SELECT * FROM {}.stored({after}, now(), ARRAY[gen_random_uuid()])", log.schema);
    assert_eq!(log.admin.query(&find(100), &[]).await.unwrap().len(), 0);
    let refused = log.admin.query(&find(99), &[]).await.unwrap_err();
    assert_eq!(refused.code().unwrap().code(), "55000", "{refused}");
}

/// A store on partitions of this size.
async fn sized(log: &Log, size: i64) -> SharedStore {
    let rows = Some(size as u64);
    log.open_with(PostgresOptions { partition_rows: rows, ..PostgresOptions::default() }).await.close().await;
    log.run(&format!("UPDATE LOG.config SET value = '{size}' WHERE key = 'partition_interval'")).await;
    log.open().await
}

/// H42: with a retention, partitions are small from the next one on, also where large ones were made ahead.
#[tokio::test]
async fn partitions_are_sized_by_what_retention_leaves() {
    let log = Log::new().await;
    let store = sized(&log, 200).await;
    store.append(checked(vec![NewEvent::new("t"); 100])).await.unwrap();
    log.run("UPDATE LOG.config SET value = '1000000' WHERE key = 'partition_interval'").await;
    log.until_maintained(&store, false, SMALLEST_AHEAD, 1_000_000).await;
    log.until_maintained(&store, true, LARGEST_AHEAD, 10_000).await;
    assert_eq!(log.number(SMALLEST_AHEAD).await, 10_000);
    assert_eq!(log.number(ATTACHED).await, 4, "the one that is written to, and three ahead");
    // As if the log had 400,000 events.
    log.run("UPDATE LOG.log_state SET trimmed_to = -399900").await;
    let wanted = "SELECT o_rows FROM LOG.partitions_wanted(NULL, NULL, true)";
    assert_eq!(log.number(wanted).await, 40_000, "at most an eighth of it");
}

/// `partition_interval` is changed while a node runs.
#[tokio::test]
async fn another_partition_interval_holds_for_partitions_that_are_ahead() {
    let log = Log::new().await;
    let store = sized(&log, 100).await;
    for size in [5_000, 300, 70_000] {
        log.run(&format!("UPDATE LOG.config SET value = '{size}' WHERE key = 'partition_interval'")).await;
        log.until_maintained(&store, false, SMALLEST_AHEAD, size).await;
        assert_eq!(log.number(LARGEST_AHEAD).await, size);
        store.append(checked(vec![NewEvent::new("t").object("o"); 10])).await.unwrap();
    }
    log.run("UPDATE LOG.config SET value = '40' WHERE key = 'partition_interval'").await;
    let begun = Instant::now();
    while log.number(LARGEST_AHEAD).await != 40 {
        log.run("SELECT LOG.maintain()").await;
        assert!(begun.elapsed() < WAIT_MAX, "maintain() does not go by the setting");
    }
    assert_eq!(whole_log(&store).await.len(), 30);
    let gaps = "SELECT count(*) FROM (SELECT from_seq - lag(to_seq) OVER (ORDER BY from_seq) AS gap \
                FROM LOG.partitions) g WHERE gap <> 0";
    assert_eq!(log.number(gaps).await, 0);
}

/// Resizing the partitions ahead does not wait for a long read, and delays no other statement.
#[tokio::test]
async fn a_held_read_lock_stops_neither_another_size_nor_publish() {
    let log = Log::new().await;
    let store = sized(&log, 100).await;
    store.append(on("o")).await.unwrap();
    log.run("UPDATE LOG.config SET value = '500' WHERE key = 'partition_interval'").await;
    log.hold("LOCK TABLE LOG.stored_events IN ACCESS SHARE MODE").await;
    let calls = async {
        store.maintain(false).await.unwrap();
        for _ in 0..20 {
            store.append(on("o")).await.unwrap();
        }
    };
    tokio::time::timeout(WAIT_MAX, calls).await.expect("neither waits for the reader");
    assert_eq!(log.number(SMALLEST_AHEAD).await, 100, "what was there is left as it is");
    log.let_go().await;
    log.until_maintained(&store, false, SMALLEST_AHEAD, 500).await;
    assert_eq!(whole_log(&store).await.len(), 21);
}

/// Where no node runs.
#[tokio::test]
async fn maintain_frees_the_disk_of_a_small_log() {
    let log = Log::new().await;
    let store = log.open().await;
    store.append(checked(vec![NewEvent::new("t"); 1_000])).await.unwrap();
    store.close().await;
    log.run("UPDATE LOG.config SET value = '1 microsecond' WHERE key = 'partition_retention_period'").await;
    log.run("DO $$ BEGIN WHILE (SELECT again FROM LOG.maintain()) LOOP END LOOP; END $$").await;
    assert_eq!(log.number(ROWS).await, 0);
}

impl Log {
    /// Maintains until the query answers this number: a call that meets a lock leaves the work to the next.
    async fn until_maintained(&self, store: &SharedStore, forgets: bool, sql: &str, expected: i64) {
        let begun = Instant::now();
        loop {
            store.maintain(forgets).await.unwrap();
            if self.number(sql).await == expected {
                return;
            }
            assert!(begun.elapsed() < WAIT_MAX, "never came true: {expected} = {sql}");
        }
    }
}
