//! What is due, and what may be forgotten?

use super::PostgresStore;
use super::error::Trouble;
use super::read::{millisecond, place, rows_max};
use super::server::Patience;
use super::types::Micros;
use ensue_core::retention::Bounds;
use ensue_core::store::{Cancelled, Released};
use ensue_core::{EventId, Seq, StoreError};
use std::sync::atomic::Ordering;
use std::time::Instant;

impl PostgresStore {
    /// Moves due events into the log. Lost connections are no matter here: what was released stays released, and the
    /// next try releases what is left.
    pub(super) async fn release(&self, limit: usize) -> Result<Released, StoreError> {
        let look = self.server.query_one(&self.sql.next_due, &[&self.clock_time(), &self.hint()]).await?;
        if !look.get::<_, Option<bool>>(2).unwrap_or(false) {
            let next_due = look.get::<_, Option<Micros>>(1).map(|due| due.0);
            return Ok(Released { count: 0, last: look.get::<_, i64>(0) as Seq, next_due });
        }
        let mut patience = Patience::until(Instant::now() + self.server.unavailable_after);
        let limit = rows_max(limit);
        let row = loop {
            let client = self.server.reader().await?;
            let statement = client.prepare_cached(&self.sql.release_due).await;
            let tried = match statement {
                Ok(statement) => client.query_one(&statement, &[&self.clock_time(), &self.hint(), &limit]).await,
                Err(error) => Err(error),
            };
            match tried {
                Ok(row) => break row,
                Err(error) if Trouble::of(&error) == Trouble::NoPartition => self.partitions.ensure().await?,
                Err(error) => self.server.again_after(error, &mut patience).await?,
            }
        };
        let last = row.get::<_, i64>(1) as Seq;
        self.last.fetch_max(last, Ordering::Relaxed);
        self.partitions.look_ahead(last);
        Ok(Released {
            count: row.get::<_, i64>(0) as usize,
            last,
            next_due: row.get::<_, Option<Micros>>(2).map(|due| due.0),
        })
    }

    pub(super) async fn cancel_delayed(&self, id: EventId) -> Result<Cancelled, StoreError> {
        let (from, to) = millisecond(id);
        let row = self.server.query_one(&self.sql.cancel, &[&id.0, &from, &to, &self.hint()]).await?;
        Ok(match row.get::<_, Option<i64>>(0) {
            None => Cancelled::Unknown,
            Some(0) => Cancelled::Gone,
            Some(seq) => Cancelled::AlreadyLogged(seq as Seq),
        })
    }

    /// Forgets at once for every reader; the rows go when their whole partition is forgotten and nobody is using it.
    pub(super) async fn forget(&self, keep_from: Seq, limit: usize) -> Result<Bounds, StoreError> {
        let params = [place(keep_from), rows_max(limit), self.hint()];
        let row = self.server.query_one(&self.sql.trim, &[&params[0], &params[1], &params[2]]).await?;
        let bounds = Bounds { first: row.get::<_, i64>(0) as Seq, last: row.get::<_, i64>(1) as Seq };
        self.partitions.remove_trimmed().await?;
        Ok(bounds)
    }

    pub(super) async fn forget_keys(&self, limit: usize) -> Result<usize, StoreError> {
        let params = (self.clock_time(), self.hint(), rows_max(limit));
        let row = self.server.query_one(&self.sql.purge_keys, &[&params.0, &params.1, &params.2]).await?;
        Ok(row.get::<_, i64>(0) as usize)
    }

    pub(super) async fn estimate_bytes(&self) -> Result<u64, StoreError> {
        let row = self.server.query_one(&self.sql.bytes, &[&self.hint()]).await?;
        Ok(row.get::<_, i64>(0) as u64)
    }
}
