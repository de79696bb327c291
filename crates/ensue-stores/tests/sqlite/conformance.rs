//! Does the embedded engine do what every engine must?
use async_trait::async_trait;
use ensue_conformance::{Clock, Factory, Place, random, random_jobs, random_positions, random_schedules};
use ensue_core::store::SharedStore;
use ensue_stores::sqlite::{SqliteOptions, SqliteStore};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// Stores in files on the disk.
struct OnDisk;
/// Stores in files that live in memory where the machine has such a folder: syncing them costs nothing.
struct InMemoryFiles {
    index_window_events: Option<u64>,
}

/// The index of objects lags behind as it usually does, so that it is hardly ever used.
const LATE_INDEX: InMemoryFiles = InMemoryFiles { index_window_events: None };
/// The index of objects is written all the time, an entry between any two calls, and cut off at any of them.
const BUSY_INDEX: InMemoryFiles = InMemoryFiles { index_window_events: Some(3) };

struct File {
    folder: TempDir,
    index_window_events: Option<u64>,
}

#[async_trait]
impl Factory for OnDisk {
    async fn make(&self) -> Box<dyn Place> {
        Box::new(File { folder: TempDir::new().expect("a temporary folder"), index_window_events: None })
    }
}

#[async_trait]
impl Factory for InMemoryFiles {
    async fn make(&self) -> Box<dyn Place> {
        let shared_memory = Path::new("/dev/shm");
        let folder = if shared_memory.is_dir() { TempDir::new_in(shared_memory) } else { TempDir::new() };
        let folder = folder.expect("a temporary folder");
        Box::new(File { folder, index_window_events: self.index_window_events })
    }
}

#[async_trait]
impl Place for File {
    async fn open(&self, clock: Clock) -> SharedStore {
        let path = self.folder.path().join("ensue.db");
        let index_window_events = self.index_window_events;
        let options = SqliteOptions { clock: Some(clock), index_window_events, ..SqliteOptions::default() };
        Arc::new(SqliteStore::open(path.to_str().expect("a path in UTF-8"), options).await.expect("the store opens"))
    }
}

ensue_conformance::conformance_tests!(OnDisk);

mod busy_index {
    ensue_conformance::conformance_tests!(crate::conformance::BUSY_INDEX);
}

/// Engine and model side by side, the clock stepping back, the store reopened.
#[test]
fn random_calls_have_the_answers_of_the_model() {
    random::compare(&LATE_INDEX, 200);
}

#[test]
fn random_calls_have_the_answers_of_the_model_while_the_index_is_written() {
    random::compare(&BUSY_INDEX, 200);
}

/// The same about groups: leases pass, owners take over from each other, subscriptions expire.
#[test]
fn random_calls_about_groups_have_the_answers_of_the_model() {
    random_positions::compare(&LATE_INDEX, 200);
}

/// The same about jobs: workers vanish and come back late, jobs are retried, cancelled and brought back, rules come and go.
#[test]
fn random_calls_about_jobs_have_the_answers_of_the_model() {
    random_jobs::compare(&LATE_INDEX, 200);
}

/// The same about schedules: fired by who decided from what was, held, changed, declared and forgotten.
#[test]
fn random_calls_about_schedules_have_the_answers_of_the_model() {
    random_schedules::compare(&LATE_INDEX, 200);
}
