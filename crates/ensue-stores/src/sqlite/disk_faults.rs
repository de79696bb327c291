//! What the disk refuses now: writes for want of room, or checkpoints (H46).
//!
//! The writer notes how its commits and checkpoints end. `ready` reports a fault, and asks the writer
//! for a commit that changes nothing: so the fault ends without a caller.

use ensue_core::StoreError;
use rusqlite::ErrorCode;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Pause between two commits that only try the disk.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct DiskFaults(Mutex<Faults>);

#[derive(Debug, Default)]
struct Faults {
    write: Option<String>,
    checkpoint: Option<StoreError>,
    probed_at: Option<Instant>,
}

impl DiskFaults {
    /// Notes how a commit ended. An error of another kind is not the disk's, or has stopped the store.
    pub fn note_commit(&self, error: Option<&StoreError>) {
        let mut faults = self.faults();
        match error {
            None if faults.write.take().is_some() => tracing::info!("there is room again; writes succeed"),
            Some(StoreError::Full(reason)) => {
                if faults.write.is_none() {
                    tracing::error!(error = %reason, "disk is full; writes are refused until there is room");
                }
                faults.write = Some(reason.clone());
            }
            None | Some(_) => {}
        }
    }

    /// Notes how a checkpoint ended.
    pub fn note_checkpoint(&self, error: Option<&rusqlite::Error>) {
        let mut faults = self.faults();
        match error {
            None => {
                if faults.checkpoint.take().is_some() {
                    tracing::info!("checkpoints succeed again");
                }
            }
            Some(error) => {
                let fault = checkpoint_fault(error);
                if faults.checkpoint.is_none() {
                    tracing::error!(error = %fault, "checkpoint failed; it is tried again");
                }
                faults.checkpoint = Some(fault);
            }
        }
    }

    /// The fault to report, if there is one.
    pub fn current(&self) -> Option<StoreError> {
        let faults = self.faults();
        let write = faults.write.as_ref().map(|reason| {
            let advice = "the disk is full, and writes are refused: free some space; they succeed by themselves then";
            StoreError::Engine(format!("{advice} ({reason})"))
        });
        write.or_else(|| faults.checkpoint.clone())
    }

    /// Whether it is time to try the disk once more.
    pub fn is_probe_due(&self) -> bool {
        let mut faults = self.faults();
        let is_due = faults.probed_at.is_none_or(|probed_at| probed_at.elapsed() >= PROBE_INTERVAL);
        if is_due {
            faults.probed_at = Some(Instant::now());
        }
        is_due
    }

    fn faults(&self) -> MutexGuard<'_, Faults> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn checkpoint_fault(error: &rusqlite::Error) -> StoreError {
    let is_full = error.sqlite_error_code() == Some(ErrorCode::DiskFull);
    let advice = if is_full { "free some space" } else { "check the disk and the kernel's log" };
    StoreError::Engine(format!(
        "the write-ahead log cannot be moved into the database ({error}), and grows: {advice}; acknowledged events \
         are safe in the write-ahead log, so do not delete it"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    fn error(code: i32) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(ffi::Error::new(code), None)
    }

    #[test]
    fn fault_is_reported_with_its_advice_until_the_next_success() {
        let faults = DiskFaults::default();
        faults.note_commit(Some(&StoreError::Engine("of one caller".into())));
        assert_eq!(faults.current(), None);
        faults.note_checkpoint(Some(&error(ffi::SQLITE_IOERR_WRITE)));
        let told = faults.current().unwrap().to_string();
        assert!(told.contains("check the disk") && told.contains("do not delete"), "{told}");
        faults.note_commit(None);
        assert!(faults.current().is_some(), "a commit does not need the database file");
        faults.note_checkpoint(Some(&error(ffi::SQLITE_FULL)));
        assert!(faults.current().unwrap().to_string().contains("free some space"));
        faults.note_commit(Some(&StoreError::Full("no room".into())));
        assert!(faults.current().unwrap().to_string().contains("writes are refused"));
        faults.note_commit(None);
        faults.note_checkpoint(None);
        assert_eq!(faults.current(), None);
    }
}
