//! Does the embedded engine do what every engine must?
#![cfg(feature = "sqlite")]

use async_trait::async_trait;
use ensue_conformance::{Clock, Factory, Place, random};
use ensue_core::store::SharedStore;
use ensue_stores::sqlite::{SqliteOptions, SqliteStore};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

/// Stores in files on the disk.
struct OnDisk;
/// Stores in files that live in memory where the machine has such a folder: syncing them costs nothing.
struct InMemoryFiles;

struct File(TempDir);

#[async_trait]
impl Factory for OnDisk {
    async fn make(&self) -> Box<dyn Place> {
        Box::new(File(TempDir::new().expect("a temporary folder")))
    }
}

#[async_trait]
impl Factory for InMemoryFiles {
    async fn make(&self) -> Box<dyn Place> {
        let shared_memory = Path::new("/dev/shm");
        let folder = if shared_memory.is_dir() { TempDir::new_in(shared_memory) } else { TempDir::new() };
        Box::new(File(folder.expect("a temporary folder")))
    }
}

#[async_trait]
impl Place for File {
    async fn open(&self, clock: Clock) -> SharedStore {
        let path = self.0.path().join("ensue.db");
        let options = SqliteOptions { clock: Some(clock), ..SqliteOptions::default() };
        Arc::new(SqliteStore::open(path.to_str().expect("a path in UTF-8"), options).await.expect("the store opens"))
    }
}

ensue_conformance::conformance_tests!(OnDisk);

/// Engine and model side by side, the clock stepping back, the store reopened.
#[test]
fn random_calls_have_the_answers_of_the_model() {
    random::compare(&InMemoryFiles, 256);
}
