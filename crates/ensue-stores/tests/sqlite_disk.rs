//! H32 on a real file system that is really full: a small one in memory, mounted for the test.
//!
//! Mounting needs root. Where it is not allowed the test says so; `sqlite_writer.rs` shows the same promise with a limit
//! of SQLite's own, everywhere.

use ensue_core::store::Read;
use ensue_core::{Entry, Filter, NewEvent, Store, StoreError};
use ensue_stores::sqlite::{SqliteOptions, SqliteStore};
use std::path::Path;
use std::process::Command;

/// A mounted file system of 4 MiB, unmounted when dropped.
struct SmallDisk(tempfile::TempDir);

impl SmallDisk {
    fn mount() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(folder.path()).status();
        mounted.is_ok_and(|status| status.success()).then(|| Self(folder))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _unmounted = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
    }
}

fn big() -> Vec<Entry> {
    vec![NewEvent::new("big").object("o").payload(&"x".repeat(20_000)).check().unwrap()]
}

#[tokio::test]
async fn a_full_file_system_is_said_clearly_loses_nothing_and_works_again_with_room() {
    let Some(disk) = SmallDisk::mount() else {
        eprintln!("not run: mounting a small file system is not allowed here");
        return;
    };
    let ballast = disk.path().join("ballast");
    std::fs::write(&ballast, vec![1; 1 << 20]).unwrap();
    let path = disk.path().join("e.db");
    let store = SqliteStore::open(path.to_str().unwrap(), SqliteOptions::default()).await.unwrap();
    let mut acknowledged = 0;
    let error = loop {
        match store.append(big()).await {
            Ok(_) => acknowledged += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(&error, StoreError::Full(_)), "{error}");
    assert!(acknowledged > 10);
    // Full stays full, and what was acknowledged stays readable.
    assert!(matches!(store.append(big()).await, Err(StoreError::Full(_))));
    let read = || Read { after: 0, limit: 1_000, filter: Filter::default() };
    assert_eq!(store.read(read()).await.unwrap().events.len(), acknowledged);

    std::fs::remove_file(&ballast).unwrap();
    let answer = store.append(big()).await.unwrap();
    assert_eq!(answer[0].prev, Some(acknowledged as u64));

    store.close().await;
    let reopened = SqliteStore::open(path.to_str().unwrap(), SqliteOptions::default()).await.unwrap();
    assert_eq!(reopened.read(read()).await.unwrap().events.len(), acknowledged + 1);
    reopened.close().await;
}
