//! How is the old end of the log forgotten?

use super::writer::Changing;
use super::{objects, read};
use ensue_core::plan::KEY_WINDOW;
use ensue_core::retention::Bounds;
use ensue_core::{Seq, StoreError};
use rusqlite::params;

/// One chunk of a trim, in one short transaction. Freed pages are used again by later appends.
pub(super) fn trim(changing: &mut Changing<'_>, keep_from: Seq, limit: usize) -> Result<Bounds, StoreError> {
    changing.sql(|connection| {
        let bounds = read::bounds(connection)?;
        let first = keep_from.min(bounds.first.saturating_add(limit as u64)).min(bounds.last + 1);
        if first <= bounds.first {
            return Ok(bounds);
        }
        connection
            .prepare_cached(
                "UPDATE ensue_log_state SET trimmed_to = ?1,
                 trimmed_recorded_at = (SELECT recorded_at FROM ensue_events WHERE seq = ?1)",
            )?
            .execute([(first - 1) as i64])?;
        objects::forget_before(connection, first)?;
        connection.prepare_cached("DELETE FROM ensue_events WHERE seq < ?1")?.execute([first as i64])?;
        connection.prepare_cached("DELETE FROM ensue_delayed WHERE seq < ?1")?.execute([first as i64])?;
        Ok(Bounds { first, ..bounds })
    })
}

pub(super) fn purge_keys(changing: &mut Changing<'_>, limit: usize) -> Result<usize, StoreError> {
    // By the recording time, as when a key is looked up: a clock that steps back revives none.
    let (_, tail) = changing.sql(read::ends)?;
    let horizon = (tail.record_time(changing.clock()) - KEY_WINDOW).as_microsecond();
    changing.sql(|connection| {
        connection
            .prepare_cached(
                "DELETE FROM ensue_keys WHERE key IN
                 (SELECT key FROM ensue_keys WHERE recorded_at <= ?1 ORDER BY recorded_at LIMIT ?2)",
            )?
            .execute(params![horizon, limit as i64])
    })
}
