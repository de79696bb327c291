//! H30: does everything work through PgBouncer in transaction mode, where a session is somebody else's after each transaction?

use crate::support::{Log, connect, on, places, whole_log};
use async_trait::async_trait;
use ensue_conformance::bouncer::PrivateBouncer;
use ensue_conformance::postgres::{fresh_schema, shared_url};
use ensue_conformance::{Clock, Factory, Place, suite};
use ensue_core::Store;
use ensue_core::store::SharedStore;
use ensue_stores::postgres::{PostgresOptions, PostgresStore};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The variable that has every behaviour tried; otherwise it is one of so many.
const ALL: &str = "ENSUE_TEST_BOUNCER";
const ONE_OF: usize = 12;
/// So few that clients take each other's all the time.
const SESSIONS: usize = 4;

struct ThroughBouncer {
    bouncer: PrivateBouncer,
}

struct InSchema {
    url: String,
}

#[async_trait]
impl Factory for ThroughBouncer {
    async fn make(&self) -> Box<dyn Place> {
        let (_, schema) = fresh_schema("bouncer");
        Box::new(InSchema { url: format!("{}?schema={schema}&pooler=transaction", self.bouncer.url()) })
    }
}

#[async_trait]
impl Place for InSchema {
    async fn open(&self, clock: Clock) -> SharedStore {
        let options = PostgresOptions { clock: Some(clock), partition_rows: Some(5_000), ..PostgresOptions::default() };
        Arc::new(PostgresStore::open(&self.url, options).await.expect("the store opens"))
    }
}

/// What every engine must do, in parallel as tests are.
#[test]
fn the_engine_does_through_a_pooler_what_every_engine_must_do() {
    let every = if std::env::var_os(ALL).is_some() { 1 } else { ONE_OF };
    let factory = ThroughBouncer { bouncer: PrivateBouncer::start(&shared_url(), SESSIONS).unwrap() };
    let behaviours = suite::behaviours().into_iter().step_by(every);
    let left = std::sync::Mutex::new(behaviours);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let Some(behaviour) = left.lock().unwrap().next() else { return };
                    println!("{}", behaviour.name);
                    suite::block_on((behaviour.run)(&factory));
                }
            });
        }
    });
}

/// A pooler in front of the server of the run, and a schema whose address leads through it.
async fn through(sessions: usize) -> (PrivateBouncer, Log) {
    let mut log = Log::new().await;
    let bouncer = tokio::task::block_in_place(|| PrivateBouncer::start(&shared_url(), sessions)).unwrap();
    log.url = format!("{}?schema={1}&application_name={1}", bouncer.url(), log.schema);
    (bouncer, log)
}

impl Log {
    /// The same log without the pooler.
    async fn direct(&self) -> SharedStore {
        let url = format!("{}?schema={}", shared_url(), self.schema);
        Arc::new(PostgresStore::open(&url, PostgresOptions::default()).await.unwrap())
    }
}

/// Sessions are strangers' next: what was set, prepared, locked or listened to would be theirs.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_ours_is_left_in_the_sessions_of_a_pooler() {
    let (bouncer, log) = through(3).await;
    let store = log.open().await;
    let reader = log.open_with(PostgresOptions { read_only: true, ..PostgresOptions::default() }).await;
    let appends = (0..20).map(|number| {
        let store = store.clone();
        tokio::spawn(async move { store.append(on(&format!("o{}", number % 3))).await.unwrap() })
    });
    futures_util::future::join_all(appends).await;
    assert_eq!(whole_log(&reader).await.len(), 20);
    store.wake().unwrap().wait(false, Duration::from_millis(50)).await;

    // As many transactions at once as there are sessions: each is seen.
    let mut seen = BTreeSet::new();
    let mut strangers = Vec::new();
    for _ in 0..3 {
        let stranger = connect(&bouncer.url()).await;
        stranger.batch_execute("BEGIN").await.unwrap();
        let ask = "SELECT current_setting('statement_timeout') || ' ' || current_setting('enable_seqscan') || ' ' || \
                   current_setting('default_transaction_read_only') || ' ' || current_setting('jit') || ' ' || \
                   (SELECT count(*) FROM pg_prepared_statements) || ' ' || \
                   (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()) || ' ' || \
                   (SELECT count(*) FROM pg_listening_channels()), pg_backend_pid()::text";
        for message in stranger.simple_query(ask).await.unwrap() {
            if let tokio_postgres::SimpleQueryMessage::Row(row) = message {
                assert_eq!(row.get(0), Some("0 on off on 0 0 0"));
                seen.insert(row.get(1).map(str::to_owned));
            }
        }
        strangers.push(stranger);
    }
    assert_eq!(seen.len(), 3, "each has a session of its own while its transaction is open");
}

/// The pooler is killed while a batch waits for the log: it is stored once, whatever became of the first try.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_stored_once_when_the_pooler_dies_in_the_middle_of_it() {
    let (mut bouncer, log) = through(SESSIONS).await;
    let store = log.open().await;
    store.append(on("before")).await.unwrap();
    log.hold("SELECT LOG.lock_log()").await;
    let waiting = {
        let store = store.clone();
        tokio::spawn(async move { store.append(on("o")).await })
    };
    log.until_waiting(1).await;
    tokio::task::block_in_place(|| bouncer.restart()).unwrap();
    let killed = Instant::now();
    log.let_go().await;
    let answer = waiting.await.unwrap().unwrap();
    assert!(killed.elapsed() < Duration::from_secs(30), "it took {:?}", killed.elapsed());
    assert_eq!(answer[0].seq, Some(2));
    store.append(on("after")).await.unwrap();
    assert_eq!(places(&whole_log(&store).await), [(1, None), (2, None), (3, None)]);
}

/// What waited in the pooler for too long is not stored after its sender has looked for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_batch_that_the_pooler_keeps_for_long_is_stored_once() {
    let (bouncer, log) = through(1).await;
    let store = log.open().await;
    store.append(on("before")).await.unwrap();
    let stranger = connect(&bouncer.url()).await;
    stranger.batch_execute("BEGIN").await.unwrap();
    let waiting = {
        let store = store.clone();
        tokio::spawn(async move { store.append(on("o")).await })
    };
    // Longer than a batch may take to begin.
    tokio::time::sleep(Duration::from_millis(3_500)).await;
    stranger.batch_execute("COMMIT").await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap()[0].seq, Some(2));
    assert_eq!(whole_log(&store).await.len(), 2);
}

/// In transactions of an application that go through the pooler, too, and wherever they do; nobody is woken, and a look finds them.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_published_in_transactions_through_a_pooler_is_in_the_log_after_their_commit() {
    let (bouncer, log) = through(2).await;
    let store = PostgresStore::open(&log.url, PostgresOptions::default()).await.unwrap();
    let (mut one, other) = (connect(&bouncer.url()).await, connect(&bouncer.url()).await);
    for _ in 0..5 {
        let mut tx = one.transaction().await.unwrap();
        store.publish_in(&mut tx, on("o")).await.unwrap();
        tx.commit().await.unwrap();
        let mut undone = one.transaction().await.unwrap();
        store.publish_in(&mut undone, on("o")).await.unwrap();
        undone.rollback().await.unwrap();
        let publish = format!("BEGIN; SELECT {}.publish('t', object => 'o'); COMMIT", log.schema);
        other.batch_execute(&publish).await.unwrap();
        store.append(on("o")).await.unwrap();
    }
    let store: SharedStore = Arc::new(store);
    let expected: Vec<_> = (1..=15).map(|seq| (seq, (seq > 1).then(|| seq - 1))).collect();
    assert_eq!(places(&whole_log(&store).await), expected);

    // A process with a connection of its own listens, and is woken by one behind the pooler.
    let direct = log.direct().await;
    let wake = direct.wake().unwrap();
    let rung = async {
        loop {
            wake.wait(false, Duration::from_secs(60)).await;
            let last = direct.bounds().await.unwrap().last;
            if last > 15 {
                return last;
            }
        }
    };
    let begun = Instant::now();
    let appends = async {
        loop {
            store.append(on("o")).await.unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::select! {
        last = rung => assert!(last > 15 && begun.elapsed() < Duration::from_secs(50), "{last}, {:?}", begun.elapsed()),
        () = appends => {}
    }
}
