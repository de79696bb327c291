//! H32 on a real file system that is really full: a small one in memory, mounted for the test.
//!
//! Mounting needs root; whoever cannot mount has to say so. `sqlite_writer.rs` shows the same promise with a limit of
//! SQLite's own, everywhere.
use ensue_conformance::mount::mount_small;
use ensue_core::chain::Audit;
use ensue_core::store::Read;
use ensue_core::{Entry, Event, EventId, Filter, NewEvent, ObjectKey, Seq, Store, StoreError};
use ensue_stores::sqlite::{SqliteOptions, SqliteStore};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a test waits before it fails.
const PATIENCE: Duration = Duration::from_secs(60);
/// How much a file takes at least.
const BLOCK_BYTES: u64 = 4_096;

/// A small mounted file system, unmounted when dropped.
struct SmallDisk {
    folder: tempfile::TempDir,
    ballast: File,
}

impl SmallDisk {
    /// None where mounting is said to be impossible.
    fn mount(mebibytes: u32) -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        if !mount_small(folder.path(), mebibytes) {
            return None;
        }
        let ballast = File::create(folder.path().join("ballast")).unwrap();
        Some(Self { folder, ballast })
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("e.db")
    }

    /// Takes all the room that there is but for so many blocks.
    fn fill_but(&self, blocks: u64) {
        let mut filled = self.ballast.metadata().unwrap().len();
        while (&self.ballast).write_all(&[1; BLOCK_BYTES as usize]).is_ok() {
            filled += BLOCK_BYTES;
        }
        self.ballast.set_len(filled.saturating_sub(blocks * BLOCK_BYTES)).unwrap();
    }

    /// Gives all the room back.
    fn empty(&mut self) {
        self.ballast = File::create(self.folder.path().join("ballast")).unwrap();
    }

    /// The store as the next process would find it if this one died now.
    async fn after_a_crash(&self) -> Vec<Event> {
        let copy = tempfile::tempdir().unwrap();
        for name in ["e.db", "e.db-wal"] {
            std::fs::copy(self.folder.path().join(name), copy.path().join(name)).unwrap();
        }
        let store = open(&copy.path().join("e.db")).await;
        let events = everything(&store).await;
        store.close().await;
        events
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _unmounted = Command::new("umount").arg("--lazy").arg(self.folder.path()).status();
    }
}

/// With an index of objects that is always on its way, so that it meets the full disk too.
async fn open(path: &Path) -> SqliteStore {
    let options = SqliteOptions { index_window_events: Some(100), ..SqliteOptions::default() };
    SqliteStore::open(path.to_str().unwrap(), options).await.unwrap()
}

fn entry(object: &str, payload_bytes: usize) -> Vec<Entry> {
    vec![NewEvent::new("t").object(object).payload(&"x".repeat(payload_bytes)).check().unwrap()]
}

async fn everything(store: &SqliteStore) -> Vec<Event> {
    let (mut events, mut after) = (Vec::new(), 0);
    loop {
        let page = store.read(Read { after, limit: 1_000, filter: Filter::default() }).await.unwrap();
        if page.next == after {
            return events;
        }
        after = page.next;
        events.extend(page.events);
    }
}

fn ids(events: &[Event]) -> BTreeSet<EventId> {
    events.iter().map(|event| event.id).collect()
}

/// No gap, no fork, and every chain is what the log says it is.
async fn assert_chained(store: &SqliteStore, events: &[Event], objects: usize) {
    let bounds = store.bounds().await.unwrap();
    let (mut audit, mut faults) = (Audit::from(bounds.first), Vec::new());
    events.iter().for_each(|event| audit.see(event, &mut faults));
    audit.end(bounds.last, &mut faults);
    assert_eq!(faults, []);
    for object in (0..objects).map(|n| ObjectKey::parse(&format!("o{n}")).unwrap()) {
        let of_object = events.iter().rev().filter(|event| event.object.as_ref() == Some(&object));
        let chain = store.chain(&object, None, 50).await.unwrap();
        assert_eq!(
            chain.iter().map(|event| event.seq).collect::<Vec<_>>(),
            of_object.take(chain.len().max(1)).map(|event| event.seq).collect::<Vec<_>>()
        );
    }
}

/// Waits until the store is ready; nobody writes meanwhile.
async fn ready_again(store: &SqliteStore) {
    let begun = Instant::now();
    while let Err(fault) = store.ready().await {
        assert!(begun.elapsed() < PATIENCE, "{fault}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// H46: ready as long as there is room, and without a caller once there is room again.
#[tokio::test(flavor = "multi_thread")]
async fn full_disk_is_not_ready_until_there_is_room_again() {
    let Some(mut disk) = SmallDisk::mount(16) else { return };
    let store = open(&disk.store()).await;
    store.append(entry("o0", 10)).await.unwrap();
    store.ready().await.unwrap();
    disk.fill_but(0);
    let refused = async {
        loop {
            if let Err(error) = store.append(entry("o0", 100_000)).await {
                return error;
            }
        }
    };
    assert!(matches!(refused.await, StoreError::Full(_)));
    let fault = store.ready().await.unwrap_err().to_string();
    assert!(fault.contains("free some space"), "{fault}");
    disk.empty();
    ready_again(&store).await;
    store.append(entry("o0", 100_000)).await.unwrap();
    store.close().await;
}

const CALLERS: usize = 8;
const OBJECTS: usize = 40;

/// Publishes until there is no room; answers with what was acknowledged.
async fn publish_until_full(store: Arc<SqliteStore>) -> Vec<EventId> {
    let mut acknowledged = Vec::new();
    loop {
        assert!(acknowledged.len() < 20_000, "more is acknowledged than there is room for");
        let object = format!("o{}", rand::random::<u32>() as usize % OBJECTS);
        let payload_bytes = 1 << (rand::random::<u32>() % 12);
        match store.append(entry(&object, payload_bytes)).await {
            Ok(answers) => acknowledged.push(answers[0].id),
            Err(StoreError::Full(_)) => return acknowledged,
            Err(error) => panic!("not said clearly: {error}"),
        }
    }
}

/// The disk fills up at a different point of the load each time: in the write-ahead log, in the index that is moved
/// between two appends, in a checkpoint that is tried after a commit.
#[tokio::test(flavor = "multi_thread")]
async fn a_disk_that_fills_up_under_load_loses_nothing_and_works_again_with_room_every_time() {
    let Some(mut disk) = SmallDisk::mount(32) else { return };
    let store = Arc::new(open(&disk.store()).await);
    let mut acknowledged = BTreeSet::new();
    for round in 0..12_u64 {
        let callers: Vec<_> = (0..CALLERS).map(|_| tokio::spawn(publish_until_full(store.clone()))).collect();
        let goal = store.bounds().await.unwrap().last + 1 + rand::random::<u64>() % 400;
        while store.bounds().await.unwrap().last < goal && !callers[0].is_finished() {
            tokio::task::yield_now().await;
        }
        disk.fill_but(rand::random::<u64>() % 64);
        for caller in callers {
            acknowledged.extend(caller.await.unwrap());
        }
        // Everything that was acknowledged and nothing else, for readers now and for whoever comes after a crash.
        let events = everything(&store).await;
        assert!(ids(&events) == acknowledged, "round {round}");
        assert!(ids(&disk.after_a_crash().await) == acknowledged, "round {round}, after a crash");
        assert_chained(&store, &events, OBJECTS).await;
        let ready = store.ready().await;
        assert!(!matches!(ready, Err(StoreError::Stopped(_))), "a full disk has stopped the store: {ready:?}");

        disk.empty();
        let answers = store.append(entry("o0", 10)).await.expect("there is room again");
        acknowledged.insert(answers[0].id);
        if round % 3 == 2 {
            // Room for the next rounds, which use the freed pages again.
            while store.trim(Seq::MAX, 500).await.unwrap().count() > 0 {}
            acknowledged.clear();
        }
    }
    store.close().await;
    let reopened = open(&disk.store()).await;
    assert!(ids(&everything(&reopened).await) == acknowledged);
    reopened.close().await;
}

/// The index of the write-ahead log lives in a file of its own, which grows by 32 KiB when the log has 4,062 frames. If
/// there is room for the frames but not for that, SQLite fails a commit whose frames are on the disk: the next process
/// to open the file would find it.
#[tokio::test]
async fn a_commit_that_failed_for_want_of_shared_memory_does_not_come_back_after_a_crash() {
    const FRAME_BYTES: u64 = BLOCK_BYTES + 24;
    const FRAMES_BEFORE_GROWTH: u64 = 4_062;
    let Some(mut disk) = SmallDisk::mount(48) else { return };
    let store = SqliteStore::open(disk.store().to_str().unwrap(), SqliteOptions::default()).await.unwrap();
    let wal = disk.folder.path().join("e.db-wal");
    let frames = || std::fs::metadata(&wal).unwrap().len() / FRAME_BYTES;
    let mut acknowledged = BTreeSet::new();
    while frames() < FRAMES_BEFORE_GROWTH - 12 {
        acknowledged.insert(store.append(entry("o0", 1_000)).await.unwrap()[0].id);
    }
    // Room for the frames up to there and a few more, but not for 32 KiB.
    disk.fill_but((FRAMES_BEFORE_GROWTH - frames()) * FRAME_BYTES / BLOCK_BYTES + 5);
    let mut refused = 0;
    while refused < 3 {
        assert!(acknowledged.len() < 10_000, "more is acknowledged than there is room for");
        match store.append(entry("o0", 1_000)).await {
            Ok(answers) => assert!(acknowledged.insert(answers[0].id)),
            Err(StoreError::Full(_)) => {
                refused += 1;
                assert!(ids(&everything(&store).await) == acknowledged);
                assert!(ids(&disk.after_a_crash().await) == acknowledged, "what was refused came back");
            }
            Err(error) => panic!("not said clearly: {error}"),
        }
    }
    assert!(frames() >= FRAMES_BEFORE_GROWTH, "{} frames: it was the log that had no room", frames());
    disk.empty();
    acknowledged.insert(store.append(entry("o0", 1_000)).await.expect("there is room again")[0].id);
    let events = everything(&store).await;
    assert!(ids(&events) == acknowledged);
    assert_chained(&store, &events, 1).await;
    store.close().await;
}
