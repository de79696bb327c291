//! The write-ahead log: moves it into the database, and reports what keeps it from shrinking.
//!
//! SQLite would do that by itself after a commit, and would ignore errors. Acknowledged events are
//! safe while checkpoints fail: they stay in the write-ahead log, which grows until the disk is full.
//! A checkpoint only counts once its pages are synced. So one that failed, also at its fsync, is tried
//! again: it writes all of its pages once more.
//!
//! A checkpoint stops at the oldest open read transaction. Our own readers never hold one beyond a
//! page; a foreign connection that does makes the log grow for as long as it stays.

use super::disk_faults::DiskFaults;
use rusqlite::Connection;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// SQLite cuts the WAL back to this size whenever it starts over.
pub(super) const WAL_BYTES_KEPT: u64 = 64 << 20;
/// A WAL this large has not started over for long.
const WAL_BYTES_ALARM: u64 = 2 * WAL_BYTES_KEPT;
/// How many commits go by between two looks.
const COMMITS_BETWEEN: u32 = 256;
/// A checkpoint every 4,096 pages (16 MiB): amortises its fsyncs without letting the WAL grow.
const CHECKPOINT_PAGES: i32 = 4_096;
/// Pause before a checkpoint that failed is tried again.
const AGAIN_AFTER: Duration = Duration::from_millis(100);

thread_local! {
    /// Pages in the write-ahead log after the last commit of this thread, which has one writer.
    static PAGES: Cell<i32> = const { Cell::new(0) };
}

/// Leaves the checkpoints of a connection to [`Wal`].
pub(super) fn take_over_checkpoints(connection: &Connection) -> rusqlite::Result<()> {
    connection.pragma_update(None, "wal_autocheckpoint", 0)?;
    connection.wal_hook(Some(|_, pages| {
        PAGES.set(pages);
        Ok(())
    }));
    Ok(())
}

pub(super) struct Wal {
    path: PathBuf,
    faults: Arc<DiskFaults>,
    failed_at: Option<Instant>,
    commits: u32,
    alarmed: bool,
}

impl Wal {
    pub fn of(database: &Path, faults: Arc<DiskFaults>) -> Self {
        let mut path = database.as_os_str().to_owned();
        path.push("-wal");
        Self { path: path.into(), faults, failed_at: None, commits: 0, alarmed: false }
    }

    /// Called after each commit: makes a checkpoint if it is time, and looks at the size now and then.
    pub fn committed(&mut self, connection: &Connection) {
        let is_due = match self.failed_at {
            Some(failed_at) => failed_at.elapsed() >= AGAIN_AFTER,
            None => PAGES.get() >= CHECKPOINT_PAGES,
        };
        if is_due {
            self.checkpoint(connection);
        }
        self.commits += 1;
        if self.commits >= COMMITS_BETWEEN {
            self.commits = 0;
            let bytes = std::fs::metadata(&self.path).map_or(0, |file| file.len());
            if self.look(bytes) {
                tracing::warn!(
                    wal_bytes = bytes,
                    "write-ahead log keeps growing: another connection to this file holds a read \
                     transaction open; end it"
                );
            }
        }
    }

    fn checkpoint(&mut self, connection: &Connection) {
        // One that meets readers, or the checkpoint of another connection, ends early without an error.
        let made = connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()));
        if made.is_err() {
            metrics::counter!("ensue_checkpoint_failures_total").increment(1);
        }
        self.failed_at = made.is_err().then(Instant::now);
        self.faults.note_checkpoint(made.err().as_ref());
    }

    /// Whether the size is to be reported. Failing checkpoints are reported with their own reason.
    fn look(&mut self, bytes: u64) -> bool {
        metrics::gauge!("ensue_wal_bytes").set(bytes as f64);
        let too_large = bytes > WAL_BYTES_ALARM && self.failed_at.is_none();
        let is_new = too_large && !self.alarmed;
        self.alarmed = too_large;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wal() -> Wal {
        Wal::of(Path::new("e.db"), Arc::default())
    }

    #[test]
    fn the_alarm_is_raised_once_per_growth() {
        let mut wal = wal();
        let sizes = [1, WAL_BYTES_ALARM + 1, WAL_BYTES_ALARM + 2, WAL_BYTES_KEPT, WAL_BYTES_ALARM + 1];
        let alarms: Vec<_> = sizes.into_iter().map(|bytes| wal.look(bytes)).collect();
        assert_eq!(alarms, [false, true, false, false, true]);
    }

    #[test]
    fn foreign_reader_is_not_blamed_while_checkpoints_fail() {
        let mut wal = wal();
        wal.failed_at = Some(Instant::now());
        assert!(!wal.look(WAL_BYTES_ALARM + 1));
        wal.failed_at = None;
        assert!(wal.look(WAL_BYTES_ALARM + 1));
    }
}
