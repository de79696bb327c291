//! How is the file opened?

use super::error;
use super::wal::{self, WAL_BYTES_KEPT};
use ensue_core::StoreError;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::Path;
use std::time::Duration;

/// Before it, a WAL reset could corrupt the file (H33).
const SQLITE_VERSION_MIN: i32 = 3_051_003;
/// How long a write waits for a foreign connection's write transaction on the same file.
const BUSY_WAIT: Duration = Duration::from_secs(10);
/// How much of the file the writer keeps in memory, in KiB: with SQLite's default of 2 MiB the index of 10,000 objects
/// would be read again and again while it is caught up.
const WRITER_CACHE_KIB: i32 = 16_384;
/// How many statements a connection keeps prepared: more than there are.
const STATEMENTS_KEPT: usize = 256;

pub(super) fn check_library_version() -> Result<(), StoreError> {
    if rusqlite::version_number() < SQLITE_VERSION_MIN {
        return Err(StoreError::Schema(format!(
            "SQLite {} is linked in, but 3.51.3 or newer is needed: older ones can corrupt a WAL; build with the bundled one",
            rusqlite::version()
        )));
    }
    Ok(())
}

pub(super) fn connect_memory() -> Result<Connection, StoreError> {
    Connection::open_in_memory()
        .and_then(|connection| plan_once(&connection).map(|()| connection))
        .map_err(error::of_write)
}

/// Statements are planned when they are prepared, and never again. Otherwise SQLite looks at the value that is bound to a `LIMIT`,
/// and makes a new plan each time one is bound: every claim and every page would be parsed and planned again.
fn plan_once(connection: &Connection) -> rusqlite::Result<()> {
    connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    Ok(())
}

pub(super) fn connect_writer(path: &Path) -> Result<Connection, StoreError> {
    // One that is empty was made just now, or by a process that ended before it wrote anything.
    let is_new = path.metadata().is_ok_and(|file| file.len() == 0);
    let connection = Connection::open(path).map_err(|error| cannot_open(path, &error))?;
    prepare_writer(&connection).map_err(|error| cannot_open(path, &error))?;
    if is_new && let Some(folder) = path.parent() {
        // SQLite syncs what is in the file; that the file is in its folder is ours to sync.
        let synced = std::fs::File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|error| StoreError::Engine(format!("cannot sync {}: {error}", folder.display())))?;
    }
    Ok(connection)
}

/// Makes an empty file that only its owner can read, if there is none; SQLite gives the files beside it the same mode.
pub(super) fn create(path: &Path) -> Result<(), StoreError> {
    match private(OpenOptions::new().write(true).create_new(true)).open(path) {
        Ok(_empty) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(StoreError::Engine(format!("cannot open the store {}: {error}", path.display()))),
    }
}

/// A file that is made is its owner's alone, whatever the umask.
pub(super) fn private(options: &mut OpenOptions) -> &mut OpenOptions {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600);
    options
}

fn prepare_writer(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_WAIT)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    wal::take_over_checkpoints(connection)?;
    connection.pragma_update(None, "journal_size_limit", WAL_BYTES_KEPT as i64)?;
    connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
    plan_once(connection)
}

pub(super) fn connect_reader(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_WAIT)?;
    plan_once(&connection)?;
    Ok(connection)
}

pub(super) fn cannot_open(path: &Path, error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase) => StoreError::Schema(format!(
            "{} is not a SQLite database; choose another path, or move that file away",
            path.display()
        )),
        _ => StoreError::Engine(format!("cannot open the store {}: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_linked_sqlite_is_new_enough() {
        check_library_version().unwrap();
    }
}
