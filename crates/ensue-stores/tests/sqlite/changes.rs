//! Changes of all kinds share commits, and each is stored as if it were alone.
use ensue_core::jobs::{Claim, Enqueued, JobState, Jobs, NewJob};
use ensue_core::positions::{
    Acquire, Delivery, DeliveryState, GroupKind, Member, NewGroup, Positions, Settled, SlotChange, Start,
};
use ensue_core::store::Read;
use ensue_core::{Entry, Filter, GroupName, NewEvent, Store, StoreError};
use ensue_stores::sqlite::{SqliteOptions, SqliteStore};
use jiff::{SignedDuration, Timestamp};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use uuid::Uuid;

const LEASE: SignedDuration = SignedDuration::from_secs(30);

async fn open(path: &Path) -> Arc<SqliteStore> {
    Arc::new(SqliteStore::open(path.to_str().unwrap(), SqliteOptions::default()).await.unwrap())
}

async fn new() -> (TempDir, Arc<SqliteStore>) {
    let folder = tempfile::tempdir().unwrap();
    let store = open(&folder.path().join("e.db")).await;
    (folder, store)
}

fn name(text: &str) -> GroupName {
    GroupName::parse("group", text).unwrap()
}

fn entry(topic: &str) -> Entry {
    NewEvent::new(topic).object("o").check().unwrap()
}

/// Calls that are made at once, on this one-threaded runtime: each is in the queue when the next one is made.
struct Calls {
    store: Arc<SqliteStore>,
}

impl Calls {
    async fn of<T, F>(&self, call: impl FnOnce(Arc<SqliteStore>) -> F) -> JoinHandle<T>
    where
        T: Send + 'static,
        F: Future<Output = T> + Send + 'static,
    {
        let task = tokio::spawn(call(self.store.clone()));
        tokio::task::yield_now().await;
        task
    }

    async fn append(&self, topic: &str) -> JoinHandle<Result<Vec<ensue_core::Appended>, StoreError>> {
        let entry = entry(topic);
        self.of(|store| async move { store.append(vec![entry]).await }).await
    }

    async fn enqueue(&self, handler: &str) -> JoinHandle<Result<Vec<Enqueued>, StoreError>> {
        let job = NewJob::new(name(handler));
        self.of(|store| async move { store.enqueue(vec![job]).await }).await
    }

    async fn claim(&self, handler: &str) -> JoinHandle<Result<Vec<ensue_core::jobs::Job>, StoreError>> {
        let handlers = vec![(name(handler), 10)];
        let claim = Claim { handlers, limit: 10, lease: LEASE, worker: "w".into(), ends_with_store: true };
        self.of(|store| async move { store.claim(claim).await }).await
    }
}

/// Counts the commits from now on.
async fn counted(store: &SqliteStore) -> Arc<AtomicU64> {
    let commits = Arc::new(AtomicU64::new(0));
    let counter = commits.clone();
    let hook = move || {
        counter.fetch_add(1, Ordering::SeqCst);
        false
    };
    store.transaction(move |tx| Ok(tx.commit_hook(Some(hook))?)).await.unwrap();
    commits.store(0, Ordering::SeqCst);
    commits
}

async fn refuse(store: &SqliteStore, table: &'static str, when: &'static str, how: &'static str) {
    let trigger = format!(
        "CREATE TRIGGER refuse BEFORE INSERT ON {table} WHEN {when} BEGIN SELECT RAISE({how}, 'no poison'); END"
    );
    store.transaction(move |tx| Ok(tx.execute_batch(&trigger)?)).await.unwrap();
}

async fn topics(store: &SqliteStore) -> Vec<(String, Option<u64>)> {
    let read = Read { after: 0, limit: 100, filter: Filter::default() };
    let events = store.read(read).await.unwrap().events;
    events.iter().map(|event| (event.topic.as_str().to_owned(), event.prev)).collect()
}

async fn available(store: &SqliteStore) -> Vec<(String, u64)> {
    let counts = store.job_counts().await.unwrap();
    let available = counts.into_iter().filter(|count| count.state == JobState::Available);
    available.map(|count| (count.handler.as_str().to_owned(), count.count)).collect()
}

/// What stands in the queue together is one commit, in the order of the queue: a claim gets what was sent just before it.
#[tokio::test]
async fn appends_and_changes_of_many_callers_share_one_commit_in_their_order() {
    let (_folder, store) = new().await;
    let commits = counted(&store).await;
    let ticket = store.write_ticket().await.unwrap();
    let calls = Calls { store: store.clone() };
    let first = calls.append("a").await;
    let sent = calls.enqueue("h").await;
    let claimed = calls.claim("h").await;
    let too_late = calls.enqueue("h").await;
    let last = calls.append("b").await;
    drop(ticket);
    assert_eq!(first.await.unwrap().unwrap()[0].seq, Some(1));
    let id = sent.await.unwrap().unwrap()[0].id;
    assert_eq!(claimed.await.unwrap().unwrap().iter().map(|job| job.id).collect::<Vec<_>>(), [id]);
    assert_eq!(too_late.await.unwrap().unwrap()[0].state, JobState::Available);
    assert_eq!(last.await.unwrap().unwrap()[0].prev, Some(1));
    assert_eq!(commits.load(Ordering::SeqCst), 1);
}

/// H37: a change that SQLite refuses fails alone, whatever stands before and behind it.
#[tokio::test]
async fn one_callers_poison_fails_no_change_or_append_in_the_same_commit() {
    let (_folder, store) = new().await;
    refuse(&store, "ensue_jobs", "NEW.handler = 'poison'", "ABORT").await;
    let commits = counted(&store).await;
    let ticket = store.write_ticket().await.unwrap();
    let calls = Calls { store: store.clone() };
    let first = calls.enqueue("good").await;
    let beside = calls.append("a").await;
    // Its first job is fine: that one goes, too.
    let jobs = ["half", "poison"].map(|handler| NewJob::new(name(handler))).to_vec();
    let poison = calls.of(|store| async move { store.enqueue(jobs).await }).await;
    let behind = calls.enqueue("good").await;
    let last = calls.append("b").await;
    drop(ticket);
    assert!(matches!(poison.await.unwrap(), Err(StoreError::Engine(text)) if text.contains("no poison")));
    let numbers = [first.await.unwrap().unwrap()[0].id.number(), behind.await.unwrap().unwrap()[0].id.number()];
    assert_eq!(numbers, [1, 2], "the numbers that it drew are drawn again");
    beside.await.unwrap().unwrap();
    last.await.unwrap().unwrap();
    assert_eq!(available(&store).await, [("good".to_owned(), 2)]);
    assert_eq!(topics(&store).await, [("a".to_owned(), None), ("b".to_owned(), Some(1))]);
    assert_eq!(commits.load(Ordering::SeqCst), 1);
}

/// The same of a poison that comes first, and of appends that are refused together.
#[tokio::test]
async fn a_poison_that_comes_first_or_among_appends_fails_alone() {
    let (_folder, store) = new().await;
    refuse(&store, "ensue_jobs", "NEW.handler = 'poison'", "ABORT").await;
    let trigger = "CREATE TRIGGER refuse_event BEFORE INSERT ON ensue_events WHEN NEW.topic = 'poison'
                   BEGIN SELECT RAISE(ABORT, 'no poison'); END";
    store.transaction(move |tx| Ok(tx.execute_batch(trigger)?)).await.unwrap();
    let ticket = store.write_ticket().await.unwrap();
    let calls = Calls { store: store.clone() };
    let first = calls.enqueue("poison").await;
    let sent = calls.enqueue("good").await;
    let appends = [calls.append("a").await, calls.append("poison").await, calls.append("b").await];
    let behind = calls.enqueue("good").await;
    drop(ticket);
    assert!(first.await.unwrap().is_err());
    sent.await.unwrap().unwrap();
    behind.await.unwrap().unwrap();
    let mut answers = Vec::new();
    for append in appends {
        answers.push(append.await.unwrap().is_ok());
    }
    assert_eq!(answers, [true, false, true]);
    assert_eq!(topics(&store).await, [("a".to_owned(), None), ("b".to_owned(), Some(1))]);
    assert_eq!(available(&store).await, [("good".to_owned(), 2)]);
}

/// What a change has published is taken back with it: the next event of the object follows the one before.
#[tokio::test]
async fn events_of_a_change_that_is_undone_are_nobodys_predecessor() {
    let (_folder, store) = new().await;
    refuse(&store, "ensue_deliveries", "TRUE", "ABORT").await;
    let group = NewGroup { name: name("g"), kind: GroupKind::Handler, start: Start::Beginning, slots: 1 };
    store.create_group(group).await.unwrap();
    let member = Member { id: Uuid::from_u128(1), name: "m".into(), kind: GroupKind::Handler };
    let acquire = Acquire { group: name("g"), member: member.clone(), lease: LEASE, slots: vec![], go_on: None };
    let slot = store.acquire(acquire).await.unwrap().unwrap().slots[0];
    let change = || SlotChange::new(name("g"), slot.slot, member.id, slot.fence);
    let now = Timestamp::now();
    let dead = Delivery {
        group: name("g"),
        seq: 1,
        object: None,
        state: DeliveryState::Dead,
        attempts: 1,
        error: None,
        started_at: now,
        finished_at: now,
    };
    let undone = SlotChange { events: vec![entry("undone"), entry("undone")], deliveries: vec![dead], ..change() };
    let good = SlotChange { events: vec![entry("c")], ..change() };

    let ticket = store.write_ticket().await.unwrap();
    let calls = Calls { store: store.clone() };
    let first = calls.append("a").await;
    let undone = calls.of(|store| async move { store.settle(vec![undone]).await }).await;
    let second = calls.append("b").await;
    let settled = calls.of(|store| async move { store.settle(vec![good]).await }).await;
    drop(ticket);
    first.await.unwrap().unwrap();
    assert!(matches!(undone.await.unwrap(), Err(StoreError::Engine(_))));
    second.await.unwrap().unwrap();
    assert!(matches!(&settled.await.unwrap().unwrap()[..], [Settled::Done(_)]));
    let log = topics(&store).await;
    let seen: Vec<_> = log.iter().map(|(topic, prev)| (topic.as_str(), *prev)).collect();
    assert_eq!(seen, [("a", None), ("b", Some(1)), ("c", Some(2))]);
    let object = ensue_core::ObjectKey::parse("o").unwrap();
    let chain = store.chain(&object, None, 10).await.unwrap();
    assert_eq!(chain.iter().map(|event| event.seq).collect::<Vec<_>>(), [3, 2, 1]);
}

/// SQLite may end a whole transaction by itself: then nobody in it was stored, and nobody is told so who was not. Appends are
/// tried again, each alone.
#[tokio::test]
async fn when_sqlite_ends_the_transaction_nothing_of_it_is_stored_and_everybody_hears_of_it() {
    let (_folder, store) = new().await;
    refuse(&store, "ensue_jobs", "NEW.handler = 'poison'", "ROLLBACK").await;
    let ticket = store.write_ticket().await.unwrap();
    let calls = Calls { store: store.clone() };
    let sent = calls.enqueue("good").await;
    let append = calls.append("a").await;
    let poison = calls.enqueue("poison").await;
    let behind = calls.enqueue("behind").await;
    drop(ticket);
    assert!(matches!(sent.await.unwrap(), Err(StoreError::Engine(_))));
    assert!(matches!(poison.await.unwrap(), Err(StoreError::Engine(_))));
    assert_eq!(append.await.unwrap().unwrap()[0].seq, Some(1));
    assert_eq!(behind.await.unwrap().unwrap()[0].id.number(), 1);
    assert_eq!(topics(&store).await, [("a".to_owned(), None)]);
    assert_eq!(available(&store).await, [("behind".to_owned(), 1)]);
}

/// What nobody waits for any more is done all the same, and what takes long stands alone.
#[tokio::test]
async fn a_change_whose_caller_has_left_is_made() {
    let (_folder, store) = new().await;
    let ticket = store.write_ticket().await.unwrap();
    let calls = Calls { store: store.clone() };
    calls.enqueue("h").await.abort();
    let beside = calls.append("a").await;
    drop(ticket);
    beside.await.unwrap().unwrap();
    assert_eq!(available(&store).await, [("h".to_owned(), 1)]);
}
