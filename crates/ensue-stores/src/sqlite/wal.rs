//! Is somebody keeping the write-ahead log from being emptied?
//!
//! SQLite moves the WAL into the database at checkpoints, but only up to the oldest open read transaction. Our own
//! readers never hold one beyond a page; a foreign connection that does makes the WAL grow for as long as it stays. That
//! is worth an alarm: nothing is lost, but the disk fills.

use std::path::{Path, PathBuf};

/// SQLite cuts the WAL back to this size whenever it starts over.
pub(super) const WAL_BYTES_KEPT: u64 = 64 << 20;
/// A WAL this large has not started over for long.
const WAL_BYTES_ALARM: u64 = 2 * WAL_BYTES_KEPT;
/// How many commits go by between two looks.
const COMMITS_BETWEEN: u32 = 256;

pub(super) struct WalWatch {
    wal: PathBuf,
    commits: u32,
    alarmed: bool,
}

impl WalWatch {
    pub fn of(database: &Path) -> Self {
        let mut wal = database.as_os_str().to_owned();
        wal.push("-wal");
        Self { wal: wal.into(), commits: 0, alarmed: false }
    }

    /// Called after each commit: looks now and then, and raises the alarm once per growth.
    pub fn committed(&mut self) {
        self.commits += 1;
        if self.commits >= COMMITS_BETWEEN {
            self.commits = 0;
            let bytes = std::fs::metadata(&self.wal).map_or(0, |file| file.len());
            if self.look(bytes) {
                tracing::warn!(
                    wal_bytes = bytes,
                    "the write-ahead log keeps growing: some other connection to this file holds a read transaction open; end it"
                );
            }
        }
    }

    fn look(&mut self, bytes: u64) -> bool {
        metrics::gauge!("ensue_wal_bytes").set(bytes as f64);
        let too_large = bytes > WAL_BYTES_ALARM;
        let is_new = too_large && !self.alarmed;
        self.alarmed = too_large;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_alarm_is_raised_once_per_growth() {
        let mut watch = WalWatch::of(Path::new("e.db"));
        let sizes = [1, WAL_BYTES_ALARM + 1, WAL_BYTES_ALARM + 2, WAL_BYTES_KEPT, WAL_BYTES_ALARM + 1];
        let alarms: Vec<_> = sizes.into_iter().map(|bytes| watch.look(bytes)).collect();
        assert_eq!(alarms, [false, true, false, false, true]);
    }
}
