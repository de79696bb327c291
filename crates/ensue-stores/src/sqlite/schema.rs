//! What do the tables look like?
//!
//! All names begin with `ensue_`: an application's own tables may live in the same file. For the same reason the
//! version of the schema is a table and not `PRAGMA user_version`, which is the application's.
//!
//! The hot path writes one table, at its end. The index on objects follows later (`objects.rs`).

use super::error;
use super::wal::WAL_BYTES_KEPT;
use ensue_core::StoreError;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use std::path::Path;
use std::time::Duration;

/// Before it, a WAL reset could corrupt the file (H33).
const SQLITE_VERSION_MIN: i32 = 3_051_003;
/// How long a write waits for a foreign connection's write transaction on the same file.
const BUSY_WAIT: Duration = Duration::from_secs(10);
/// A checkpoint every 4,096 pages (16 MiB): amortises its fsyncs without letting the WAL grow.
const CHECKPOINT_PAGES: u32 = 4_096;
/// How much of the file the writer keeps in memory, in KiB: with SQLite's default of 2 MiB the index of 10,000 objects
/// would be read again and again while it is caught up.
const WRITER_CACHE_KIB: i32 = 16_384;

/// Every step from an empty file to the present, in order. A step, once released, never changes.
const MIGRATIONS: [&str; 1] = ["
CREATE TABLE ensue_events (
    seq             INTEGER PRIMARY KEY,
    prev            INTEGER,
    id              BLOB NOT NULL,
    topic           TEXT NOT NULL,
    object          TEXT,
    payload         TEXT NOT NULL,
    metadata        TEXT,             -- NULL is {}
    occurred_at     INTEGER,          -- microseconds; NULL is recorded_at
    recorded_at     INTEGER NOT NULL, -- microseconds
    to_subscription BLOB
) STRICT;
-- One row: what retention took, so that numbers and times go on from there.
CREATE TABLE ensue_log_state (
    one                 INTEGER PRIMARY KEY CHECK (one = 1),
    trimmed_to          INTEGER NOT NULL,
    trimmed_recorded_at INTEGER NOT NULL,
    indexed_to          INTEGER NOT NULL  -- ensue_objects is complete up to this seq
) STRICT;
INSERT INTO ensue_log_state VALUES (1, 0, -377705023201000000, 0);

-- The events of each object; written late, see objects.rs.
CREATE TABLE ensue_objects (
    object TEXT NOT NULL,
    seq    INTEGER NOT NULL,
    PRIMARY KEY (object, seq)
) STRICT, WITHOUT ROWID;

-- Delayed events; once in the log, only id and seq are kept, for finding by id.
CREATE TABLE ensue_delayed (
    accepted        INTEGER PRIMARY KEY AUTOINCREMENT,
    id              BLOB NOT NULL UNIQUE,
    not_before      INTEGER NOT NULL,
    topic           TEXT NOT NULL,
    object          TEXT,
    payload         TEXT,
    metadata        TEXT,
    occurred_at     INTEGER NOT NULL,
    to_subscription BLOB,
    key             TEXT,             -- freed when the event is cancelled
    seq             INTEGER
) STRICT;
CREATE INDEX ensue_delayed_due ON ensue_delayed (not_before, accepted) WHERE seq IS NULL;
CREATE INDEX ensue_delayed_logged ON ensue_delayed (seq) WHERE seq IS NOT NULL;

CREATE TABLE ensue_keys (
    key         TEXT PRIMARY KEY,
    fingerprint BLOB NOT NULL,
    id          BLOB NOT NULL,
    seq         INTEGER,
    prev        INTEGER,
    recorded_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX ensue_keys_age ON ensue_keys (recorded_at);
"];

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
    Connection::open_in_memory().map_err(error::of_write)
}

pub(super) fn connect_writer(path: &Path) -> Result<Connection, StoreError> {
    let is_new = !path.exists();
    let connection = Connection::open(path).map_err(|error| cannot_open(path, &error))?;
    prepare_writer(&connection).map_err(|error| cannot_open(path, &error))?;
    if is_new && let Some(folder) = path.parent() {
        // SQLite syncs what is in the file; that the file is in its folder is ours to sync.
        let synced = std::fs::File::open(folder).and_then(|folder| folder.sync_all());
        synced.map_err(|error| StoreError::Engine(format!("cannot sync {}: {error}", folder.display())))?;
    }
    Ok(connection)
}

fn prepare_writer(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_WAIT)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    connection.pragma_update(None, "synchronous", "FULL")?;
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "journal_size_limit", WAL_BYTES_KEPT as i64)?;
    connection.pragma_update(None, "cache_size", -WRITER_CACHE_KIB)?;
    connection.set_prepared_statement_cache_capacity(64);
    Ok(())
}

pub(super) fn connect_reader(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags)?;
    connection.busy_timeout(BUSY_WAIT)?;
    Ok(connection)
}

fn cannot_open(path: &Path, error: &rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(rusqlite::ErrorCode::NotADatabase) => StoreError::Schema(format!(
            "{} is not a SQLite database; choose another path, or move that file away",
            path.display()
        )),
        _ => StoreError::Engine(format!("cannot open the store {}: {error}", path.display())),
    }
}

/// Can the file be looked at as it is?
pub(super) fn check_readable(path: &Path) -> Result<(), StoreError> {
    if !path.exists() {
        let message = format!("there is no store at {}; start `ensue serve` or publish to make one", path.display());
        return Err(StoreError::Engine(message));
    }
    let connection = connect_reader(path).map_err(|error| cannot_open(path, &error))?;
    match version(&connection).map_err(|error| cannot_open(path, &error))? {
        0 => Err(StoreError::Schema(format!("{} is a database without an Ensue log in it", path.display()))),
        found => check_version(found),
    }
}

fn version(connection: &Connection) -> rusqlite::Result<usize> {
    let exists: bool =
        connection.query_row("SELECT count(*) FROM sqlite_schema WHERE name = 'ensue_schema'", [], |row| row.get(0))?;
    if !exists {
        return Ok(0);
    }
    connection.query_row("SELECT version FROM ensue_schema", [], |row| row.get::<_, i64>(0)).map(|v| v as usize)
}

fn check_version(found: usize) -> Result<(), StoreError> {
    if found > MIGRATIONS.len() {
        return Err(StoreError::Schema(format!(
            "the store's schema has version {found}, this program knows {}: use the newer Ensue that wrote it",
            MIGRATIONS.len()
        )));
    }
    Ok(())
}

/// Brings the file to the present schema, in one transaction.
pub(super) fn migrate(connection: &mut Connection) -> Result<(), StoreError> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(error::of_write)?;
    let found = version(&transaction).map_err(error::of_write)?;
    check_version(found)?;
    if found < MIGRATIONS.len() {
        let mut script = String::new();
        if found == 0 {
            script.push_str(
                "CREATE TABLE ensue_schema (version INTEGER NOT NULL) STRICT; INSERT INTO ensue_schema VALUES (0);",
            );
        }
        script.extend(MIGRATIONS[found..].iter().copied());
        script.push_str(&format!("UPDATE ensue_schema SET version = {};", MIGRATIONS.len()));
        transaction.execute_batch(&script).map_err(error::of_write)?;
    }
    transaction.commit().map_err(error::of_write)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_of_a_newer_ensue_is_refused_and_left_alone() {
        let mut connection = connect_memory().unwrap();
        migrate(&mut connection).unwrap();
        migrate(&mut connection).unwrap();
        connection.execute("UPDATE ensue_schema SET version = 99", []).unwrap();
        let error = migrate(&mut connection).unwrap_err();
        assert!(matches!(&error, StoreError::Schema(message) if message.contains("99")), "{error}");
        assert_eq!(version(&connection).unwrap(), 99);
    }

    #[test]
    fn the_linked_sqlite_is_new_enough() {
        check_library_version().unwrap();
    }

    #[test]
    fn an_applications_own_user_version_is_left_alone() {
        let mut connection = connect_memory().unwrap();
        connection.pragma_update(None, "user_version", 7).unwrap();
        migrate(&mut connection).unwrap();
        let kept: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        assert_eq!(kept, 7);
    }
}
