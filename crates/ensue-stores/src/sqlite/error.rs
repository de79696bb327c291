//! What does an error of SQLite mean for us?

use ensue_core::StoreError;
use rusqlite::ErrorCode;

/// An error while changing the store.
pub(super) fn of_write(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        _ if is_no_room_for_shared_memory(&error) => StoreError::Full(error.to_string()),
        Some(ErrorCode::DiskFull) => StoreError::Full(error.to_string()),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Unavailable(format!(
            "another connection has held the write lock of this file for too long; end its transaction: {error}"
        )),
        // After a failed write or fsync nobody knows what is on the disk, and asking again may answer "fine" although
        // the pages are gone. So it is never retried: the writer stops.
        Some(ErrorCode::SystemIoFailure | ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            StoreError::Stopped(error.to_string())
        }
        _ => StoreError::Engine(error.to_string()),
    }
}

/// The index of the WAL lives in a file beside it and grows with it. If there is no room for that, SQLite speaks of an
/// I/O error; it works again when there is room. What it means for a commit: `commit.rs`.
pub(super) fn is_no_room_for_shared_memory(error: &rusqlite::Error) -> bool {
    use rusqlite::ffi::{SQLITE_IOERR_SHMMAP, SQLITE_IOERR_SHMOPEN, SQLITE_IOERR_SHMSIZE};
    let code = error.sqlite_error().map(|error| error.extended_code);
    code.is_some_and(|code| [SQLITE_IOERR_SHMSIZE, SQLITE_IOERR_SHMOPEN, SQLITE_IOERR_SHMMAP].contains(&code))
}

/// An error while looking at the store: nothing is in doubt but this answer.
pub(super) fn of_read(error: rusqlite::Error) -> StoreError {
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => StoreError::Unavailable(error.to_string()),
        _ => StoreError::Engine(format!("the store cannot be read: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    fn write_error(code: i32) -> StoreError {
        of_write(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None))
    }

    /// H32: an fsync error stops the store; a full disk does not.
    #[test]
    fn a_failed_fsync_stops_the_store_and_a_full_disk_does_not() {
        assert!(matches!(write_error(ffi::SQLITE_IOERR_FSYNC), StoreError::Stopped(_)));
        assert!(matches!(write_error(ffi::SQLITE_IOERR_WRITE), StoreError::Stopped(_)));
        assert!(matches!(write_error(ffi::SQLITE_FULL), StoreError::Full(_)));
        assert!(matches!(write_error(ffi::SQLITE_IOERR_SHMSIZE), StoreError::Full(_)));
        assert!(matches!(write_error(ffi::SQLITE_BUSY), StoreError::Unavailable(_)));
    }
}
