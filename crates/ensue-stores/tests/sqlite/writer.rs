//! The embedded engine beyond what every engine must do: gathering, the lock, its file, a full disk.
use ensue_core::store::Read;
use ensue_core::{Entry, Filter, NewEvent, Store, StoreError};
use ensue_stores::sqlite::{SqliteOptions, SqliteStore, rusqlite};
use std::future::poll_fn;
use std::path::Path;
use std::sync::Arc;
use std::task::Poll;

fn entry(topic: &str) -> Entry {
    NewEvent::new(topic).object("o").check().unwrap()
}

fn read_only() -> SqliteOptions {
    SqliteOptions { read_only: true, ..SqliteOptions::default() }
}

async fn open(path: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(path.to_str().unwrap(), SqliteOptions::default()).await
}

async fn everything(store: &SqliteStore) -> Vec<ensue_core::Event> {
    store.read(Read { after: 0, limit: 10_000, filter: Filter::default() }).await.unwrap().events
}

/// While the writer is busy calls gather; then one commit takes them all. One commit records all of its events at one
/// time, so the times tell the commits apart.
#[tokio::test]
async fn many_callers_share_few_commits_and_each_gets_its_own_answer() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(open(&folder.path().join("e.db")).await.unwrap());
    let ticket = store.write_ticket().await.unwrap();
    let mut callers = Vec::new();
    for n in 0..200_u64 {
        let store = store.clone();
        // Unconstrained: tokio would stop one task that polls so many.
        let call = async move { store.append(vec![entry(&format!("t.n{n}"))]).await };
        let mut call = Box::pin(tokio::task::unconstrained(call));
        // Polled once it stands in the queue, and cannot be answered before the ticket is given back.
        let waits = poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx).is_pending())).await;
        assert!(waits, "the writer is somebody else's");
        callers.push(call);
    }
    drop(ticket);
    for (n, caller) in (0..).zip(callers) {
        let answers = caller.await.unwrap();
        assert_eq!(answers[0].seq, Some(n + 1), "in the order in which they stood in the queue");
        let event = store.event(n + 1).await.unwrap().unwrap();
        assert_eq!(event.topic.as_str(), format!("t.n{n}"));
    }
    let mut commits: Vec<_> = everything(&store).await.iter().map(|event| event.recorded_at).collect();
    assert_eq!(commits.len(), 200);
    commits.dedup();
    assert!(commits.len() <= 2, "{} commits for 200 callers that all stood in the queue", commits.len());
}

/// H37: a call that SQLite refuses fails alone, although it stood in the queue with others.
#[tokio::test]
async fn one_callers_poison_fails_nobody_else_in_the_same_commit() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(open(&folder.path().join("e.db")).await.unwrap());
    let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON ensue_events WHEN NEW.topic = 'poison'
                  BEGIN SELECT RAISE(ABORT, 'no poison'); END";
    store.transaction(|tx| Ok(tx.execute_batch(refuse)?)).await.unwrap();
    let ticket = store.write_ticket().await.unwrap();
    let topics = ["a", "poison", "b"];
    let callers = topics.map(|topic| call(&store, vec![entry("beside"), entry(topic)]));
    tokio::task::yield_now().await;
    drop(ticket);
    for (caller, topic) in callers.into_iter().zip(topics) {
        assert_eq!(caller.await.unwrap().is_ok(), topic != "poison", "{topic}");
    }
    let log = everything(&store).await;
    let stored: Vec<_> = log.iter().map(|event| (event.topic.as_str(), event.prev)).collect();
    assert_eq!(stored, [("beside", None), ("a", Some(1)), ("beside", Some(2)), ("b", Some(3))]);
}

type Call = tokio::task::JoinHandle<Result<Vec<ensue_core::Appended>, StoreError>>;

fn call(store: &Arc<SqliteStore>, batch: Vec<Entry>) -> Call {
    let store = store.clone();
    tokio::spawn(async move { store.append(batch).await })
}

/// And one whose key is taken is told so alone.
#[tokio::test]
async fn one_callers_conflict_fails_nobody_else_in_the_same_commit() {
    let folder = tempfile::tempdir().unwrap();
    let store = Arc::new(open(&folder.path().join("e.db")).await.unwrap());
    let keyed = |topic: &str| vec![NewEvent::new(topic).key("k").check().unwrap()];
    let ticket = store.write_ticket().await.unwrap();
    let calls = [call(&store, keyed("a")), call(&store, keyed("b")), call(&store, vec![entry("c")])];
    tokio::task::yield_now().await;
    drop(ticket);
    let [first, conflicting, beside] = calls;
    assert_eq!(first.await.unwrap().unwrap()[0].seq, Some(1));
    assert_eq!(conflicting.await.unwrap(), Err(StoreError::KeyConflict { key: "k".into() }));
    assert_eq!(beside.await.unwrap().unwrap()[0].seq, Some(2));
}

/// What is forgotten while it waits to be indexed is never indexed, and what was indexed is taken out: nothing stays
/// behind for ever.
#[tokio::test]
async fn the_index_of_objects_keeps_nothing_of_what_is_forgotten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("e.db");
    let options = SqliteOptions { index_window_events: Some(500), ..SqliteOptions::default() };
    let store = SqliteStore::open(path.to_str().unwrap(), options).await.unwrap();
    let batch = (0..500).map(|n| NewEvent::new("t").object(format!("o{}", n % 100)).check().unwrap()).collect();
    store.append(batch).await.unwrap();
    let own = rusqlite::Connection::open(&path).unwrap();
    let state = || {
        let indexed: i64 = own.query_row("SELECT count(*) FROM ensue_objects", [], |row| row.get(0)).unwrap();
        let complete_to = own.query_row("SELECT indexed_to FROM ensue_log_state", [], |row| row.get(0)).unwrap();
        (indexed, complete_to)
    };
    // Between any two calls a part of the index is written: some of it before the trim, the rest after.
    while state().0 < 100 {
        store.purge_keys(1).await.unwrap();
    }
    assert_eq!(state().1, 0);
    store.trim(501, 1_000).await.unwrap();
    while state().1 == 0 {
        store.purge_keys(1).await.unwrap();
    }
    assert_eq!(state(), (0, 500));
}

/// H33: a second process that would write the same file gets a clear error. (The lock is per open file, so a second
/// open in the same process meets it just as another process does.)
#[tokio::test]
async fn a_second_writer_is_told_who_the_first_is_and_may_still_look() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("e.db");
    let name = path.to_str().unwrap();
    let store = open(&path).await.unwrap();
    store.append(vec![entry("a")]).await.unwrap();
    let error = open(&path).await.err().expect("refused");
    let StoreError::Locked(message) = &error else { panic!("{error}") };
    assert!(message.contains(&format!("process {}", std::process::id())), "{message}");
    assert!(SqliteStore::lock_holder(name).unwrap().is_some());

    let looking = SqliteStore::open(name, read_only()).await.unwrap();
    assert_eq!(everything(&looking).await.len(), 1);
    assert!(matches!(looking.append(vec![entry("b")]).await, Err(StoreError::Unsupported(_))));

    store.close().await;
    assert!(matches!(store.append(vec![entry("b")]).await, Err(StoreError::Closed)));
    assert_eq!(SqliteStore::lock_holder(name).unwrap(), None);
    open(&path).await.unwrap().append(vec![entry("b")]).await.unwrap();
}

/// Ready, even while somebody else has a turn at the write lock; not any more once it is closed.
#[tokio::test]
async fn a_store_is_ready_until_it_is_closed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("e.db");
    let store = open(&path).await.unwrap();
    let ticket = store.write_ticket().await.unwrap();
    store.ready().await.unwrap();
    drop(ticket);
    let looking = SqliteStore::open(path.to_str().unwrap(), read_only()).await.unwrap();
    let memory = SqliteStore::open(":memory:", SqliteOptions::default()).await.unwrap();
    for store in [store, looking, memory] {
        store.ready().await.unwrap();
        store.close().await;
        assert!(matches!(store.ready().await, Err(StoreError::Closed)));
    }
}

/// H32: the disk is full at some write; `max_page_count` makes SQLite say so at a point of our choosing.
#[tokio::test]
async fn a_full_disk_is_said_clearly_loses_nothing_and_passes() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("e.db")).await.unwrap();
    let big = || vec![NewEvent::new("big").object("o").payload(&"x".repeat(50_000)).check().unwrap()];
    store.append(big()).await.unwrap();
    limit_pages(&store, 100).await;
    let mut acknowledged = 1;
    let error = loop {
        match store.append(big()).await {
            Ok(_) => acknowledged += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, StoreError::Full(_)), "{error}");
    assert!(error.to_string().contains("free some space"), "{error}");
    assert_eq!(everything(&store).await.len(), acknowledged);
    limit_pages(&store, 1_000_000).await;
    let answer = store.append(big()).await.unwrap();
    assert_eq!((answer[0].seq, answer[0].prev), (Some(acknowledged as u64 + 1), Some(acknowledged as u64)));
}

async fn limit_pages(store: &SqliteStore, pages: u32) {
    let limited = store.transaction(move |tx| Ok(tx.execute_batch(&format!("PRAGMA max_page_count = {pages}"))?));
    limited.await.unwrap();
}

/// A foreign connection that holds a read transaction for long does not stop appends, trims or other readers.
#[tokio::test]
async fn a_reader_that_stays_open_blocks_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("e.db");
    let store = open(&path).await.unwrap();
    store.append(vec![entry("a")]).await.unwrap();
    let foreign = rusqlite::Connection::open(&path).unwrap();
    foreign.execute_batch("BEGIN; SELECT count(*) FROM ensue_events;").unwrap();
    for _ in 0..50 {
        store.append(vec![entry("a")]).await.unwrap();
    }
    store.trim(30, 1_000).await.unwrap();
    assert_eq!(everything(&store).await.len(), 22);
    let seen: i64 = foreign.query_row("SELECT count(*) FROM ensue_events", [], |row| row.get(0)).unwrap();
    assert_eq!(seen, 1, "the foreign snapshot is as it was");
}

#[tokio::test]
async fn a_file_that_is_no_database_or_has_no_log_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("notes.txt");
    std::fs::write(&text, "these are notes, and long enough that SQLite looks at them: ".repeat(20)).unwrap();
    let before = std::fs::read(&text).unwrap();
    assert!(matches!(open(&text).await, Err(StoreError::Schema(_))));
    assert_eq!(std::fs::read(&text).unwrap(), before);

    let missing = folder.path().join("missing.db");
    assert!(SqliteStore::open(missing.to_str().unwrap(), read_only()).await.is_err());
    assert!(!missing.exists());
    assert!(open(&folder.path().join("no/such/folder/e.db")).await.is_err());
}

/// Other tables of the same file are the application's, and a read-only open of a file without a log says so.
#[tokio::test]
async fn an_applications_own_file_gets_a_log_beside_its_tables() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("app.db");
    rusqlite::Connection::open(&path).unwrap().execute_batch("CREATE TABLE events (mine TEXT)").unwrap();
    let error = SqliteStore::open(path.to_str().unwrap(), read_only()).await.err().expect("no log yet");
    assert!(matches!(error, StoreError::Schema(_)), "{error}");
    open(&path).await.unwrap().append(vec![entry("a")]).await.unwrap();
}
