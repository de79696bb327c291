//! What becomes of a commit that SQLite could not finish?
//!
//! A commit goes to the write-ahead log and is synced there; then SQLite notes the new frames in the index of that log,
//! a file of shared memory that grows now and then. If there is no room for that growth the commit fails and is rolled
//! back, but its frames are on the disk: nobody sees them now, and whoever opens the file after a crash would take
//! them for a good commit. To say "nothing was stored", they must be gone.
//!
//! The next commit is written over them. So one follows at once that changes nothing: if it fails in the same way, what
//! is found after a crash is that one.

use super::error;
use ensue_core::StoreError;
use rusqlite::Connection;

/// Dirties one page and leaves it as it was. (An update to the value that is there already would write nothing.)
pub(super) const CHANGE_NOTHING: &str = "UPDATE ensue_schema SET version = version + 1;
    UPDATE ensue_schema SET version = version - 1;";

/// Commits the open transaction: all of it is on disk, or, with an error other than [`StoreError::InDoubt`] and
/// [`StoreError::Stopped`], nothing of it ever will be.
pub(super) fn commit(connection: &Connection) -> Result<(), StoreError> {
    let committed = connection.prepare_cached("COMMIT").and_then(|mut commit| commit.execute([]));
    match committed {
        Ok(_) => Ok(()),
        Err(error) if error::is_no_room_for_shared_memory(&error) => match overwrite(connection) {
            Ok(()) => Err(error::of_write(error)),
            Err(failed) => Err(StoreError::InDoubt(format!(
                "the disk is full: free some space; what the log holds after the next good write, or after a restart, is what counts: {failed}"
            ))),
        },
        Err(error) => Err(error::of_write(error)),
    }
}

/// Writes over what a failed commit left behind.
fn overwrite(connection: &Connection) -> rusqlite::Result<()> {
    roll_back(connection)?;
    match connection.execute_batch(&format!("BEGIN IMMEDIATE; {CHANGE_NOTHING} COMMIT;")) {
        // Its frames are written, as those of the one before were.
        Err(error) if error::is_no_room_for_shared_memory(&error) => roll_back(connection),
        overwritten => overwritten,
    }
}

/// Rolls back, unless SQLite has done it by itself.
pub(super) fn roll_back(connection: &Connection) -> rusqlite::Result<()> {
    if connection.is_autocommit() { Ok(()) } else { connection.execute_batch("ROLLBACK") }
}
