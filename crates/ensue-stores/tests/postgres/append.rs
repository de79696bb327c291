//! Appends from one node and from several: one order, one chain.

use crate::support::{Log, connect, on, places, whole_log};
use ensue_conformance::postgres::shared_url;
use ensue_conformance::suite::checked;
use ensue_core::{Entry, Json, NewEvent, StoreError, Timestamp};
use ensue_stores::clock::ManualClock;
use ensue_stores::postgres::PostgresOptions;
use tokio::task::JoinSet;

/// Three nodes stand in line for one lock; each has begun its statement before the first of them wrote. A statement that
/// read with the snapshot of its beginning would chain all three to nothing.
async fn three_wait_in_line(log: Log) {
    let mut stores = Vec::new();
    for _ in 0..3 {
        stores.push(log.open().await);
    }
    log.hold("SELECT LOG.lock_log()").await;
    let mut appends = JoinSet::new();
    for store in stores.clone() {
        appends.spawn(async move { store.append(on("o")).await.unwrap()[0] });
    }
    log.until_waiting(3).await;
    log.let_go().await;
    let mut answers: Vec<_> = appends.join_all().await.iter().map(|a| (a.seq, a.prev)).collect();
    answers.sort();
    assert_eq!(answers, [(Some(1), None), (Some(2), Some(1)), (Some(3), Some(2))]);
    assert_eq!(places(&whole_log(&stores[0]).await), [(1, None), (2, Some(1)), (3, Some(2))]);
}

#[tokio::test]
async fn three_appends_that_wait_for_one_lock_chain_correctly() {
    three_wait_in_line(Log::new().await).await;
}

/// The same where the database's default is REPEATABLE READ: the engine pins what it needs.
#[tokio::test]
async fn they_chain_correctly_under_a_default_of_repeatable_read() {
    let admin = connect(&shared_url()).await;
    let name = format!("repeatable_{:08x}", rand::random::<u32>());
    admin.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
    let setting = format!("ALTER DATABASE {name} SET default_transaction_isolation = 'repeatable read'");
    admin.batch_execute(&setting).await.unwrap();
    let (server, _) = shared_url().rsplit_once('/').map(|(a, b)| (a.to_string(), b.to_string())).unwrap();
    three_wait_in_line(Log::in_database(&format!("{server}/{name}")).await).await;
}

/// The log was dropped and made anew under a living node: what it remembers is of another log.
#[tokio::test]
async fn heads_of_a_log_that_is_gone_are_not_trusted() {
    let log = Log::new().await;
    let old = log.open().await;
    for _ in 0..5 {
        old.append(on("o")).await.unwrap();
    }
    log.run("DROP SCHEMA LOG CASCADE").await;
    let new = log.open().await;
    let answers = [old.append(on("o")).await.unwrap()[0], old.append(on("o")).await.unwrap()[0]];
    assert_eq!(answers.map(|answer| (answer.seq, answer.prev)), [(Some(1), None), (Some(2), Some(1))]);
    assert_eq!(places(&whole_log(&new).await), [(1, None), (2, Some(1))]);
}

#[tokio::test]
async fn two_nodes_on_shared_objects_leave_no_gap_and_no_fork() {
    let log = Log::new().await;
    let nodes = [log.open().await, log.open().await];
    let mut callers = JoinSet::new();
    for n in 0..16_usize {
        let store = nodes[n % 2].clone();
        callers.spawn(async move {
            for round in 0..25 {
                let object = |n: usize| NewEvent::new("t").object(format!("o{}", n % 5));
                store.append(checked(vec![object(n + round), object(n), object(n + round)])).await.unwrap();
            }
        });
    }
    callers.join_all().await;
    assert_eq!(whole_log(&nodes[0]).await.len(), 16 * 25 * 3);
}

/// A node remembers the heads of objects. Another node appends meanwhile: what the first remembers is no longer the
/// newest, and must not become a `prev`.
#[tokio::test]
async fn a_remembered_head_is_not_trusted_after_another_node_appended() {
    let log = Log::new().await;
    let (one, other) = (log.open().await, log.open().await);
    one.append(on("shared")).await.unwrap();
    one.append(on("mine")).await.unwrap();
    other.append(on("shared")).await.unwrap();
    let again = one.append(on("shared")).await.unwrap()[0];
    assert_eq!((again.seq, again.prev), (Some(4), Some(3)));
    // And what the other node did not touch is still known.
    let mine = one.append(on("mine")).await.unwrap()[0];
    assert_eq!((mine.seq, mine.prev), (Some(5), Some(2)));
    whole_log(&one).await;
}

/// A delayed event enters an object's chain behind the back of the node that remembers the head.
#[tokio::test]
async fn a_remembered_head_is_not_trusted_after_a_release() {
    let log = Log::new().await;
    let clock = ManualClock::at(Timestamp::from_second(1_800_000_000).unwrap());
    let store = log.open_with(PostgresOptions { clock: Some(clock.clock()), ..PostgresOptions::default() }).await;
    let due = Timestamp::from_second(1_800_000_001).unwrap();
    store.append(checked(vec![NewEvent::new("late").object("o").not_before(due)])).await.unwrap();
    store.append(on("o")).await.unwrap();
    clock.advance_millis(1_000);
    assert_eq!(store.release_due(10).await.unwrap().count, 1);
    let after = store.append(on("o")).await.unwrap()[0];
    assert_eq!((after.seq, after.prev), (Some(3), Some(2)));
    whole_log(&store).await;
}

/// H37: gathered into one commit with 63 others because the log was locked, one payload is refused by the server.
#[tokio::test]
async fn poison_in_a_gathered_batch_fails_its_own_caller_alone() {
    let log = Log::new().await;
    let store = log.open().await;
    store.append(on("o")).await.unwrap();
    log.hold("SELECT LOG.lock_log()").await;
    let first = tokio::spawn({
        let store = store.clone();
        async move { store.append(on("o")).await }
    });
    log.until_waiting(1).await;
    let mut callers = JoinSet::new();
    for n in 0..64 {
        let store = store.clone();
        callers.spawn(async move {
            let mut batch: Vec<Entry> = on("o");
            if n == 31 {
                batch[0].payload = Json::stored(r#""\u0000""#);
            }
            (n, store.append(batch).await)
        });
    }
    tokio::task::yield_now().await;
    log.let_go().await;
    first.await.unwrap().unwrap();
    for (n, answer) in callers.join_all().await {
        match answer {
            Ok(_) => assert_ne!(n, 31),
            Err(StoreError::Invalid(invalid)) => assert_eq!((n, invalid.field.as_str()), (31, "payload")),
            Err(other) => panic!("caller {n}: {other}"),
        }
    }
    assert_eq!(whole_log(&store).await.len(), 2 + 63);
}

/// H2: the clock steps back 5 s between two publishes, and a second node's clock is 30 s behind.
#[tokio::test]
async fn a_clock_that_steps_back_changes_neither_order_nor_recorded_at() {
    let log = Log::new().await;
    let noon = Timestamp::from_second(1_800_000_000).unwrap();
    let (clock, slow) = (ManualClock::at(noon), ManualClock::at(noon));
    slow.advance_millis(-30_000);
    let node = log.open_with(PostgresOptions { clock: Some(clock.clock()), ..PostgresOptions::default() }).await;
    let behind = log.open_with(PostgresOptions { clock: Some(slow.clock()), ..PostgresOptions::default() }).await;
    node.append(on("o")).await.unwrap();
    clock.advance_millis(-5_000);
    node.append(on("o")).await.unwrap();
    behind.append(on("o")).await.unwrap();
    clock.advance_millis(6_000);
    node.append(on("o")).await.unwrap();
    let times: Vec<_> = whole_log(&node).await.iter().map(|event| event.recorded_at).collect();
    let later = Timestamp::from_second(1_800_000_001).unwrap();
    assert_eq!(times, [noon, noon, noon, later]);
}

/// Without an injected clock the server's own time is recorded, the same for all nodes.
#[tokio::test]
async fn the_servers_clock_is_the_clock() {
    let log = Log::new().await;
    let store = log.open().await;
    let before = store.now().await.unwrap();
    let answer = store.append(on("o")).await.unwrap()[0];
    let after = store.now().await.unwrap();
    let event = store.event(1).await.unwrap().unwrap();
    assert!(before <= event.recorded_at && event.recorded_at <= after);
    assert_eq!(event.occurred_at, event.recorded_at);
    assert_eq!(answer.id.time().unwrap().as_millisecond(), event.recorded_at.as_millisecond());
}
