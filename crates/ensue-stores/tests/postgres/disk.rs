//! H32: the disk is full. Calls say so, nothing is half stored, and all goes on when there is room.

use crate::support::{Log, connect, on, places, whole_log};
use ensue_conformance::mount::mount_small;
use ensue_conformance::postgres::PrivatePostgres;
use ensue_conformance::suite::checked;
use ensue_core::{NewEvent, StoreError};
use ensue_stores::postgres::{PostgresOptions, PostgresStore};
use std::os::unix::fs::{MetadataExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

/// The server says what it says when its disk is full.
#[tokio::test]
async fn a_server_without_room_is_full_until_it_has_room() {
    let log = Log::new().await;
    let store = log.open().await;
    store.append(on("o")).await.unwrap();
    log.run(
        "CREATE FUNCTION LOG.no_room() RETURNS trigger LANGUAGE plpgsql AS \
         $$ BEGIN RAISE 'could not extend file' USING ERRCODE = 'disk_full'; END $$; \
         CREATE TRIGGER no_room BEFORE INSERT ON LOG.stored_events FOR EACH ROW EXECUTE FUNCTION LOG.no_room()",
    )
    .await;
    let error = store.append(on("o")).await.unwrap_err();
    assert!(matches!(error, StoreError::Full(_)), "{error}");
    log.run("DROP TRIGGER no_room ON LOG.stored_events").await;
    store.append(on("o")).await.unwrap();
    assert_eq!(places(&whole_log(&store).await), [(1, None), (2, Some(1))]);
}

/// A small disk in memory, for as long as this lives.
struct SmallDisk {
    folder: PathBuf,
}

impl SmallDisk {
    /// None where mounting is said to be impossible.
    fn mount(folder: PathBuf) -> Option<Self> {
        std::fs::create_dir(&folder).unwrap();
        mount_small(&folder, 4).then_some(Self { folder })
    }

    fn grow(&self) {
        assert!(self.run("mount", &["-o", "remount,size=64m"]), "more room");
    }

    fn run(&self, program: &str, args: &[&str]) -> bool {
        let done = Command::new(program).args(args).arg(&self.folder).output();
        done.is_ok_and(|output| output.status.success())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily: the server may still have files open there.
        self.run("umount", &["-l"]);
    }
}

/// Gives a folder to whom another one belongs.
fn give(folder: &Path, owner_of: &Path) {
    let owner = std::fs::metadata(owner_of).unwrap();
    chown(folder, Some(owner.uid()), Some(owner.gid())).unwrap();
}

/// A real one: the tables are on a disk of 4 MiB.
#[tokio::test]
async fn a_disk_that_is_really_full_loses_nothing() {
    let server = PrivatePostgres::start().unwrap();
    let Some(disk) = SmallDisk::mount(server.folder().join("small")) else { return };
    give(&disk.folder, server.folder());
    let admin = connect(&server.url()).await;
    admin.batch_execute(&format!("CREATE TABLESPACE small LOCATION '{}'", disk.folder.display())).await.unwrap();
    admin.batch_execute("ALTER ROLE CURRENT_USER SET default_tablespace = small").await.unwrap();
    let store = PostgresStore::open(&server.url_with_schema("full"), PostgresOptions::default()).await.unwrap();
    let store: ensue_core::store::SharedStore = Arc::new(store);

    let event = || {
        let noise: String = (0..4_000).map(|_| format!("{:08x}", rand::random::<u32>())).collect();
        checked(vec![NewEvent::new("t").object("o").payload(&noise)])
    };
    let mut stored = 0;
    let error = loop {
        match store.append(event()).await {
            Ok(_) => stored += 1,
            Err(error) => break error,
        }
        assert!(stored < 1_000, "4 MiB hold no more");
    };
    assert!(matches!(error, StoreError::Full(_)), "{error}");
    assert!(stored > 0, "some had room");
    assert!(matches!(store.append(event()).await, Err(StoreError::Full(_))), "and it stays full");
    assert_eq!(whole_log(&store).await.len(), stored, "what can be read is what was acknowledged");

    disk.grow();
    let answer = store.append(event()).await.unwrap()[0];
    assert_eq!((answer.seq, answer.prev), (Some(stored as u64 + 1), Some(stored as u64)));
    assert_eq!(whole_log(&store).await.len(), stored + 1);
    store.close().await;
}
