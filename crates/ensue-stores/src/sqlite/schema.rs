//! What do the tables look like?
//!
//! All names begin with `ensue_`: an application's own tables may live in the same file. For the same reason the
//! version of the schema is a table and not `PRAGMA user_version`, which is the application's.
//!
//! The hot path writes one table, at its end. The index on objects follows later (`objects.rs`).

use super::connect::{cannot_open, connect_reader};
use super::error;
use ensue_core::StoreError;
use rusqlite::{Connection, TransactionBehavior};
use std::path::Path;

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

/// Can the file be looked at as it is?
pub(super) fn check_readable(path: &Path) -> Result<(), StoreError> {
    if !path.exists() {
        let message = format!(
            "there is no store at {0}; check the path, or make one with `ensue serve --store sqlite:{0}`",
            path.display()
        );
        return Err(StoreError::Engine(message));
    }
    let connection = connect_reader(path).map_err(|error| cannot_open(path, &error))?;
    match version(&connection).map_err(|error| cannot_open(path, &error))? {
        0 => Err(StoreError::Schema(format!(
            "{} is a database without an Ensue log in it; choose another file, or start `ensue serve` to make a log in this one",
            path.display()
        ))),
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
    use super::super::connect::connect_memory;
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
    fn an_applications_own_user_version_is_left_alone() {
        let mut connection = connect_memory().unwrap();
        connection.pragma_update(None, "user_version", 7).unwrap();
        migrate(&mut connection).unwrap();
        let kept: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
        assert_eq!(kept, 7);
    }
}
