//! H33: one writer for each database, under every name, without harm to the locks of SQLite.

use ensue_core::{NewEvent, Store, StoreError};
use ensue_stores::sqlite::{SqliteOptions, SqliteStore};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Tells the process that a test starts which database to open.
const DATABASE: &str = "ENSUE_TEST_LOCK_DATABASE";

async fn open(path: &Path) -> Result<SqliteStore, StoreError> {
    SqliteStore::open(path.to_str().unwrap(), SqliteOptions::default()).await
}

async fn append(store: &SqliteStore) {
    store.append(vec![NewEvent::new("a").check().unwrap()]).await.unwrap();
}

fn events(path: &Path) -> i64 {
    let own = rusqlite::Connection::open(path).unwrap();
    own.query_row("SELECT count(*) FROM ensue_events", [], |row| row.get(0)).unwrap()
}

fn wal(path: &Path) -> Option<u64> {
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    PathBuf::from(wal).metadata().ok().map(|file| file.ino())
}

/// Has another process open the database and close it: the last connection deletes the write-ahead
/// log.
fn open_and_close_elsewhere(path: &Path) {
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", "lock::database_is_opened_and_closed_here"]).env(DATABASE, path);
    assert!(child.status().unwrap().success());
}

#[test]
fn database_is_opened_and_closed_here() {
    if let Some(path) = std::env::var_os(DATABASE) {
        events(Path::new(&path));
    }
}

#[tokio::test]
async fn second_writer_is_refused_under_every_name_and_without_the_lock_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("e.db");
    let (hard, soft) = (folder.path().join("hard.db"), folder.path().join("soft.db"));
    let store = open(&path).await.unwrap();
    append(&store).await;
    std::fs::hard_link(&path, &hard).unwrap();
    symlink(&path, &soft).unwrap();
    for deleted in [false, true] {
        if deleted {
            std::fs::remove_file(folder.path().join("e.db.lock")).unwrap();
        }
        for name in [&path, &hard, &soft] {
            let error = open(name).await.err().expect("refused");
            assert!(matches!(&error, StoreError::Locked(_)), "{name:?}: {error}");
            assert!(error.to_string().contains("in use by"), "{error}");
            assert!(SqliteStore::lock_holder(name.to_str().unwrap()).unwrap().is_some(), "{name:?}");
        }
    }
    append(&store).await;
    store.close().await;
    let store = open(&hard).await.unwrap();
    append(&store).await;
    store.close().await;
    assert_eq!(events(&path), 3);
    assert_eq!(SqliteStore::lock_holder(path.to_str().unwrap()).unwrap(), None);
}

#[tokio::test]
async fn refused_writer_leaves_the_write_ahead_log_of_the_first_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("e.db");
    let store = open(&path).await.unwrap();
    append(&store).await;
    let before = wal(&path).expect("a write-ahead log");
    std::fs::remove_file(folder.path().join("e.db.lock")).unwrap();
    assert!(open(&path).await.is_err());
    assert!(SqliteStore::lock_holder(path.to_str().unwrap()).unwrap().is_some());
    open_and_close_elsewhere(&path);
    assert_eq!(wal(&path), Some(before), "another program took itself for the last one");
    append(&store).await;
    assert_eq!(events(&path), 2);
    store.close().await;
}

/// The application's own connection outlives the store.
#[tokio::test]
async fn closed_store_leaves_the_write_ahead_log_of_another_connection_in_place() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("e.db");
    let store = open(&path).await.unwrap();
    append(&store).await;
    let own = rusqlite::Connection::open(&path).unwrap();
    own.execute_batch("CREATE TABLE mine (x); INSERT INTO mine VALUES (1)").unwrap();
    store.close().await;
    let before = wal(&path).expect("a write-ahead log");
    open_and_close_elsewhere(&path);
    assert_eq!(wal(&path), Some(before), "another program took itself for the last one");
    own.execute_batch("INSERT INTO mine VALUES (2)").unwrap();
    drop(own);
    let own = rusqlite::Connection::open(&path).unwrap();
    let rows: i64 = own.query_row("SELECT count(*) FROM mine", [], |row| row.get(0)).unwrap();
    assert_eq!(rows, 2);
}
