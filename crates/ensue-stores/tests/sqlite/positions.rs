//! What is special about positions in the embedded store: its file, its one process, and its transactions?
use ensue_core::clock::ManualClock;
use ensue_core::positions::{
    Acquire, AcquiredSlot, Delivery, DeliveryState, GroupKind, GroupState, Lane, LaneChange, LaneKey, LaneQuery,
    LaneState, Level, LogLine, Member, NewGroup, NewSubscription, Settled, SlotChange, Start,
};
use ensue_core::{Entry, GroupName, Json, NewEvent, ObjectKey, Positions, Seq, Store, StoreError};
use ensue_stores::sqlite::{SqliteOptions, SqliteStore, TransactionError, rusqlite};
use jiff::{SignedDuration, Timestamp};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;
use uuid::Uuid;

const LEASE: SignedDuration = SignedDuration::from_secs(30);

struct File {
    _folder: TempDir,
    path: PathBuf,
    clock: ManualClock,
}

impl File {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("e.db");
        Self { _folder: folder, path, clock: ManualClock::at(Timestamp::from_second(1_000_000).unwrap()) }
    }

    async fn open(&self) -> SqliteStore {
        self.open_with(false).await.unwrap()
    }

    async fn open_with(&self, read_only: bool) -> Result<SqliteStore, StoreError> {
        let options = SqliteOptions { clock: Some(self.clock.clock()), read_only, ..SqliteOptions::default() };
        SqliteStore::open(self.path.to_str().unwrap(), options).await
    }
}

fn name(text: &str) -> GroupName {
    GroupName::parse("group", text).unwrap()
}

fn member(n: u128, kind: GroupKind) -> Member {
    Member { id: Uuid::from_u128(n), name: format!("m{n}"), kind }
}

fn event(object: &str) -> Entry {
    NewEvent::new("t").object(object).check().unwrap()
}

async fn create(store: &SqliteStore, group: &str, kind: GroupKind) -> GroupState {
    let new = NewGroup { name: name(group), kind, start: Start::Beginning, slots: 1 };
    store.create_group(new).await.unwrap().0
}

/// Takes the one slot of a group, if it can be had.
async fn take(store: &SqliteStore, group: &str, member: &Member) -> Option<AcquiredSlot> {
    let acquire = Acquire { group: name(group), member: member.clone(), lease: LEASE, slots: Vec::new(), go_on: None };
    store.acquire(acquire).await.unwrap().unwrap().slots.first().copied()
}

async fn group(store: &SqliteStore, group: &str) -> GroupState {
    store.group(&name(group)).await.unwrap().unwrap()
}

fn change(group: &str, member: &Member, slot: AcquiredSlot) -> SlotChange {
    SlotChange::new(name(group), slot.slot, member.id, slot.fence)
}

fn lane(object: &str, position: Seq, state: LaneState) -> Lane {
    let key = LaneKey::Object(ObjectKey::parse(object).unwrap());
    let error = Some("no route".into());
    Lane { key, position, state, attempts: 2, not_before: None, error, redriven: false }
}

fn delivery(group: &str, seq: Seq, finished_at: Timestamp) -> Delivery {
    Delivery {
        group: name(group),
        seq,
        object: None,
        state: DeliveryState::Dead,
        attempts: 3,
        error: Some("no route".into()),
        started_at: finished_at,
        finished_at,
    }
}

fn subscription(group: &str, params: &str, expires_in: Option<SignedDuration>) -> NewSubscription {
    let params = Json::parse("params", params).unwrap();
    NewSubscription { group: name(group), topic: None, condition: None, params, expires_in }
}

/// Rebuilds the file as the first version had it, with its log.
fn take_back_to_version_1(path: &Path) {
    let connection = rusqlite::Connection::open(path).unwrap();
    let mut tables = connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table'").unwrap();
    let names: Vec<String> = tables.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
    let first = ["ensue_schema", "ensue_events", "ensue_log_state", "ensue_objects", "ensue_delayed", "ensue_keys"];
    for name in names.iter().filter(|name| name.starts_with("ensue_") && !first.contains(&name.as_str())) {
        connection.execute_batch(&format!("DROP TABLE {name}")).unwrap();
    }
    connection.execute_batch("UPDATE ensue_schema SET version = 1").unwrap();
}

#[tokio::test]
async fn a_file_of_version_1_keeps_its_log_and_gets_positions() {
    let file = File::new();
    let store = file.open().await;
    store.append(vec![event("a"), event("b")]).await.unwrap();
    store.close().await;
    take_back_to_version_1(&file.path);

    // Who only looks changes nothing, and is told what to do.
    let looking = file.open_with(true).await.unwrap();
    assert_eq!(looking.bounds().await.unwrap().last, 2);
    let error = looking.groups().await.unwrap_err();
    assert!(matches!(&error, StoreError::Schema(text) if text.contains("open it once for writing")), "{error}");
    looking.close().await;

    let store = file.open().await;
    assert_eq!(store.bounds().await.unwrap().last, 2);
    assert_eq!(store.groups().await.unwrap(), []);
    assert_eq!(create(&store, "g", GroupKind::Pull).await.cursor(), 0);
    store.close().await;
    let looking = file.open_with(true).await.unwrap();
    assert_eq!(looking.groups().await.unwrap().len(), 1);
    looking.close().await;
}

#[tokio::test]
async fn positions_survive_reopening() {
    let file = File::new();
    let store = file.open().await;
    store.append(vec![event("a"), event("b"), event("a")]).await.unwrap();
    create(&store, "g", GroupKind::Handler).await;
    store.subscribe(subscription("g", r#"{"a":1}"#, Some(LEASE))).await.unwrap();
    let process = member(1, GroupKind::Handler);
    let slot = take(&store, "g", &process).await.unwrap();
    let at = file.clock.now();
    let settled = SlotChange {
        cursor: Some(3),
        lanes: vec![LaneChange::Put(lane("a", 1, LaneState::Held)), LaneChange::Put(lane("b", 2, LaneState::Dead))],
        deliveries: vec![delivery("g", 1, at)],
        lines: vec![LogLine { seq: 1, attempt: 1, at, level: Level::Warn, message: "slow".into() }],
        lost: Some(ensue_core::positions::Lost { from: 1, to: 1 }),
        ..change("g", &process, slot)
    };
    assert_eq!(store.settle(vec![settled]).await.unwrap(), [Settled::Done(vec![])]);
    store.release(process.id, &name("g"), &[0]).await.unwrap();
    let before = (
        store.groups().await.unwrap(),
        store.subscriptions(&name("g"), None, 10).await.unwrap(),
        store.lanes(LaneQuery::Stuck { group: None }, 10).await.unwrap(),
        store.deliveries(1).await.unwrap(),
        store.lines(&name("g"), 1, 0, 10).await.unwrap(),
    );
    assert_eq!((before.0[0].lanes, before.0[0].oldest_lane, before.0[0].subscriptions), (1, Some(1), 1));
    assert_eq!((before.1.len(), before.2.len(), before.3.len(), before.4.len()), (1, 2, 1, 1));
    store.close().await;

    let store = file.open().await;
    let after = (
        store.groups().await.unwrap(),
        store.subscriptions(&name("g"), None, 10).await.unwrap(),
        store.lanes(LaneQuery::Stuck { group: None }, 10).await.unwrap(),
        store.deliveries(1).await.unwrap(),
        store.lines(&name("g"), 1, 0, 10).await.unwrap(),
    );
    assert_eq!(after, before);
    store.close().await;
}

/// Only one process writes to a file: whoever opens it knows that the one before is gone, and need not wait for leases.
#[tokio::test]
async fn at_open_processes_are_gone_and_counted_as_vanished_and_readers_live_on() {
    let file = File::new();
    let store = file.open().await;
    create(&store, "h", GroupKind::Handler).await;
    create(&store, "p", GroupKind::Pull).await;
    let (process, reader) = (member(1, GroupKind::Handler), member(2, GroupKind::Pull));
    let had = take(&store, "h", &process).await.unwrap();
    let read = take(&store, "p", &reader).await.unwrap();
    store.close().await;

    let store = file.open().await;
    assert_eq!(store.renew(process.id, LEASE).await.unwrap(), None);
    assert_eq!(group(&store, "h").await.slots[0].owner, None);
    // What the gone process would still write is not taken.
    let late = SlotChange { cursor: Some(0), ..change("h", &process, had) };
    assert_eq!(store.settle(vec![late]).await.unwrap(), [Settled::FenceLost]);
    let next = take(&store, "h", &member(3, GroupKind::Handler)).await.unwrap();
    assert_eq!((next.fence, next.vanished), (had.fence + 1, 1));

    // The reader goes on under its fence, and nobody else reads.
    assert_eq!(take(&store, "p", &member(4, GroupKind::Pull)).await, None);
    assert_eq!(group(&store, "p").await.slots[0].owner.as_ref().unwrap().member, reader);
    let done = SlotChange { cursor: Some(0), ..change("p", &reader, read) };
    assert_eq!(store.settle(vec![done]).await.unwrap(), [Settled::Done(vec![])]);
    store.close().await;

    // Two that vanish in a row are two, also when the second is the same member.
    let store = file.open().await;
    let next = take(&store, "h", &member(3, GroupKind::Handler)).await.unwrap();
    assert_eq!((next.fence, next.vanished), (had.fence + 2, 2));
    store.close().await;
}

#[tokio::test]
async fn a_settle_is_committed_with_the_users_statements() {
    let file = File::new();
    let store = file.open().await;
    store.append(vec![event("a")]).await.unwrap();
    create(&store, "h", GroupKind::Handler).await;
    let process = member(1, GroupKind::Handler);
    let slot = take(&store, "h", &process).await.unwrap();
    let settled = SlotChange { cursor: Some(1), events: vec![event("a")], ..change("h", &process, slot) };
    let done = store.transaction(move |tx| {
        tx.execute_batch("CREATE TABLE effects (n INTEGER); INSERT INTO effects VALUES (1)")?;
        tx.settle(&settled)
    });
    let (published, announced) = done.await.unwrap();
    assert_eq!((published[0].seq, published[0].prev), (Some(2), Some(1)));
    assert_eq!(announced, published);
    assert_eq!(group(&store, "h").await.cursor(), 1);
    assert_eq!(effects(&store).await, 1);
    store.close().await;
}

async fn effects(store: &SqliteStore) -> i64 {
    let count =
        store.transaction(|tx| Ok(tx.query_row("SELECT count(*) FROM effects", [], |row| row.get::<_, i64>(0))?));
    count.await.unwrap().0
}

/// Whoever lost its slot while it worked has no effect, even if its closure does not look at the answer.
#[tokio::test]
async fn a_lost_fence_takes_the_users_statements_back() {
    let file = File::new();
    let store = file.open().await;
    store.append(vec![event("a")]).await.unwrap();
    create(&store, "h", GroupKind::Handler).await;
    store.transaction(|tx| Ok(tx.execute_batch("CREATE TABLE effects (n INTEGER)")?)).await.unwrap();
    let (former, next) = (member(1, GroupKind::Handler), member(2, GroupKind::Handler));
    let slot = take(&store, "h", &former).await.unwrap();
    file.clock.advance(Duration::from_secs(31));
    take(&store, "h", &next).await.unwrap();
    for swallows in [false, true] {
        let settled = SlotChange { cursor: Some(1), events: vec![event("a")], ..change("h", &former, slot) };
        let lost = store.transaction(move |tx| {
            tx.execute_batch("INSERT INTO effects VALUES (1)")?;
            let answer = tx.settle(&settled);
            if swallows { Ok(()) } else { answer.map(|_| ()) }
        });
        let error = lost.await.unwrap_err();
        let said = matches!(&error, TransactionError::Store(StoreError::Conflict(text))
            if text.contains("taken over") && text.contains("drop the work"));
        assert!(said, "{error}");
    }
    assert_eq!((effects(&store).await, store.bounds().await.unwrap().last), (0, 1));
    assert_eq!(group(&store, "h").await.cursor(), 0);
    store.close().await;
}

#[tokio::test]
async fn what_is_refused_of_one_change_leaves_nothing_of_it_and_all_of_the_others() {
    let file = File::new();
    let store = file.open().await;
    let keyed = |payload: &str| NewEvent::new("t").object("k").payload_json(payload).key("k").check().unwrap();
    store.append(vec![keyed("1")]).await.unwrap();
    let poison = "CREATE TRIGGER refuse BEFORE INSERT ON ensue_events WHEN NEW.topic = 'poison'
                  BEGIN SELECT RAISE(ABORT, 'no poison'); END";
    store.transaction(|tx| Ok(tx.execute_batch(poison)?)).await.unwrap();
    let process = member(1, GroupKind::Handler);
    let mut slots = Vec::new();
    for group in ["a", "b", "c", "d"] {
        create(&store, group, GroupKind::Handler).await;
        slots.push(take(&store, group, &process).await.unwrap());
    }
    let settled = |group: &str, slot, events| SlotChange {
        cursor: Some(1),
        lanes: vec![LaneChange::Put(lane("o", 1, LaneState::Waiting))],
        events,
        ..change(group, &process, slot)
    };
    let changes = vec![
        settled("a", slots[0], vec![event("o")]),
        settled("b", slots[1], vec![event("o"), keyed("2")]),
        // The first of its events is written before the second fails.
        settled("c", slots[2], vec![event("o"), NewEvent::new("poison").check().unwrap()]),
        settled("d", slots[3], vec![event("o")]),
    ];
    let answers = store.settle(changes).await.unwrap();
    let [Settled::Done(first), Settled::Refused(conflict), Settled::Refused(poisoned), Settled::Done(last)] =
        &answers[..]
    else {
        panic!("{answers:?}");
    };
    assert_eq!(*conflict, StoreError::KeyConflict { key: "k".into() });
    assert!(poisoned.to_string().contains("no poison"), "{poisoned}");
    assert_eq!([(first[0].seq, first[0].prev), (last[0].seq, last[0].prev)], [(Some(2), None), (Some(3), Some(2))]);
    for (group_name, cursor) in [("a", 1), ("b", 0), ("c", 0), ("d", 1)] {
        let state = group(&store, group_name).await;
        assert_eq!((state.cursor(), state.lanes), (cursor, cursor), "{group_name}");
    }
    let chain = store.chain(&ObjectKey::parse("o").unwrap(), None, 10).await.unwrap();
    assert_eq!(chain.iter().map(|event| event.seq).collect::<Vec<_>>(), [3, 2]);
    store.close().await;
}

/// A new group of the same name is another: what was under way for the old one is not taken for it.
#[tokio::test]
async fn fences_and_versions_go_on_when_a_group_is_made_again() {
    let file = File::new();
    let store = file.open().await;
    store.append(vec![event("a")]).await.unwrap();
    create(&store, "h", GroupKind::Handler).await;
    store.subscribe(subscription("h", "1", None)).await.unwrap();
    let version = group(&store, "h").await.version;
    let process = member(1, GroupKind::Handler);
    let old = take(&store, "h", &process).await.unwrap();
    assert!(store.delete_group(&name("h")).await.unwrap());
    let late = SlotChange { cursor: Some(1), ..change("h", &process, old) };
    assert_eq!(store.settle(vec![late.clone()]).await.unwrap(), [Settled::FenceLost]);
    let made_again = create(&store, "h", GroupKind::Handler).await;
    assert!(made_again.version > version, "{made_again:?}");
    let new = take(&store, "h", &process).await.unwrap();
    assert!(new.fence > old.fence);
    assert_eq!(store.settle(vec![late]).await.unwrap(), [Settled::FenceLost]);
    assert_eq!(store.renew(process.id, LEASE).await.unwrap().unwrap().version, 1, "it was told of the deleted group");
    store.close().await;
}

/// What a crash leaves of a large group's deletion goes when the file is opened, and nobody sees it before.
#[tokio::test]
async fn what_is_left_of_a_deleted_group_goes_when_the_file_is_opened() {
    let file = File::new();
    let store = file.open().await;
    store.append(vec![event("a")]).await.unwrap();
    create(&store, "h", GroupKind::Handler).await;
    store.subscribe(subscription("h", "1", None)).await.unwrap();
    let process = member(1, GroupKind::Handler);
    let slot = take(&store, "h", &process).await.unwrap();
    let settled = SlotChange {
        lanes: vec![LaneChange::Put(lane("a", 1, LaneState::Held))],
        deliveries: vec![delivery("h", 1, file.clock.now())],
        lines: vec![LogLine { seq: 1, attempt: 1, at: file.clock.now(), level: Level::Info, message: "a".into() }],
        ..change("h", &process, slot)
    };
    store.settle(vec![settled]).await.unwrap();
    // As after the first of the deletion's commits.
    let forgotten = "INSERT INTO ensue_groups_gone SELECT number FROM ensue_groups;
                     DELETE FROM ensue_groups; DELETE FROM ensue_slots";
    store.transaction(move |tx| Ok(tx.execute_batch(forgotten)?)).await.unwrap();
    assert_eq!(store.lanes(LaneQuery::Stuck { group: None }, 10).await.unwrap(), []);
    assert_eq!(store.lanes(LaneQuery::Object(ObjectKey::parse("a").unwrap()), 10).await.unwrap(), []);
    assert_eq!(store.deliveries(1).await.unwrap(), []);
    store.close().await;
    let store = file.open().await;
    for table in ["groups_gone", "subscriptions", "lanes", "deliveries", "delivery_lines"] {
        let query = format!("SELECT count(*) FROM ensue_{table}");
        let rows = store.transaction(move |tx| Ok(tx.query_row(&query, [], |row| row.get::<_, i64>(0))?));
        assert_eq!(rows.await.unwrap().0, 0, "{table}");
    }
    assert_eq!(store.purge_deliveries(Timestamp::MIN, 0, 10).await.unwrap(), 0, "none is counted any more");
    store.close().await;
}

/// A reader that left without a word is forgotten some day; until then it is remembered whose slot it is.
#[tokio::test]
async fn readers_of_long_ago_are_forgotten_but_not_when_their_groups_were_read() {
    let file = File::new();
    let store = file.open().await;
    create(&store, "p", GroupKind::Pull).await;
    create(&store, "q", GroupKind::Pull).await;
    let reader = member(1, GroupKind::Pull);
    take(&store, "p", &reader).await.unwrap();
    let served_at = group(&store, "p").await.served_at;
    assert_eq!(served_at, file.clock.now() + LEASE);
    file.clock.advance(Duration::from_secs(23 * 3_600));
    take(&store, "q", &member(2, GroupKind::Pull)).await.unwrap();
    assert!(group(&store, "p").await.slots[0].owner.is_some());
    file.clock.advance(Duration::from_secs(2 * 3_600));
    take(&store, "q", &member(3, GroupKind::Pull)).await.unwrap();
    let state = group(&store, "p").await;
    assert_eq!((&state.slots[0].owner, state.served_at), (&None, served_at));
    assert_eq!(take(&store, "p", &reader).await.unwrap().vanished, 1);
    store.close().await;
}

/// H28: subscriptions are compared in full; their hash only finds what is to be compared.
#[tokio::test]
async fn subscriptions_that_share_a_hash_stay_distinct() {
    let file = File::new();
    let store = file.open().await;
    let (one, _) = store.subscribe(subscription("g", "1", None)).await.unwrap();
    let (other, _) = store.subscribe(subscription("g", "2", None)).await.unwrap();
    assert!(store.unsubscribe(&name("g"), other.id).await.unwrap());
    // The first gets the hash of the other, as if it had it by chance.
    store.subscribe(subscription("h", "2", None)).await.unwrap();
    let collide = "UPDATE ensue_subscriptions SET identity_hash =
                   (SELECT identity_hash FROM ensue_subscriptions WHERE params = '2')";
    store.transaction(move |tx| Ok(tx.execute_batch(collide)?)).await.unwrap();
    let (again, is_new) = store.subscribe(subscription("g", "2", None)).await.unwrap();
    assert!(is_new && again.id != one.id);
    let without_condition = store.subscribe(subscription("g", "2", None)).await.unwrap();
    assert_eq!((without_condition.0.id, without_condition.1), (again.id, false));
    // No condition and one without a letter have the same hash anyway.
    let empty = NewSubscription { condition: Some(String::new()), ..subscription("g", "2", None) };
    let (empty, is_new) = store.subscribe(empty).await.unwrap();
    assert!(is_new && empty.condition.as_deref() == Some(""));
    let all = store.subscriptions(&name("g"), None, 10).await.unwrap();
    assert_eq!((all.len(), group(&store, "g").await.subscriptions), (3, 3));
    store.close().await;
}
