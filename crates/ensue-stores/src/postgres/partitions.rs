//! Is there room for the next events, and what of the forgotten ones can go?
//!
//! Partitions are made ahead of the end of the log, in the background. A statement that changes the log's structure
//! waits only briefly for its lock, because everybody else waits behind it; what did not succeed is tried again later.

use super::error::Trouble;
use super::schema::Sql;
use super::server::Server;
use ensue_core::{Seq, StoreError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use tokio_postgres::types::ToSql;

/// How many partitions there are from the end of the log on where the options say their size, at least: the one that is written to and two more.
const PARTITIONS_AHEAD: u64 = 3;
/// How many partitions one trim removes at most, and how many times it deletes trimmed events.
const REMOVED_MAX: usize = 100;
/// How many trimmed events one commit deletes.
const DELETED_AT_ONCE: i64 = 1_000;

/// The partitions of the log.
pub(super) struct Partitions {
    server: Arc<Server>,
    sql: Arc<Sql>,
    /// How many events a new one holds; none: as `ensue.config` says whenever some are made.
    rows: Option<u64>,
    /// Fewer places than this left: more are made. As it was when some were made last.
    room_min: AtomicU64,
    /// The first place without a partition, as far as we know.
    end: AtomicU64,
    /// The end of the log, as far as we know.
    tail: AtomicU64,
    at_work: AtomicBool,
    /// Whether this node has a retention: then partitions are small enough to be dropped soon.
    forgets: AtomicBool,
}

impl Partitions {
    pub fn new(server: Arc<Server>, sql: Arc<Sql>, rows: Option<u64>) -> Self {
        let (end, tail, at_work) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
        Self {
            server,
            sql,
            rows: rows.map(|rows| rows.max(1)),
            room_min: AtomicU64::new(1),
            end,
            tail,
            at_work,
            forgets: AtomicBool::new(false),
        }
    }

    /// Makes partitions ahead in the background, once the end of the log has come near the end of the last one.
    pub fn look_ahead(self: &Arc<Self>, tail: Seq) {
        self.tail.fetch_max(tail, Ordering::SeqCst);
        if self.has_room() || self.at_work.swap(true, Ordering::SeqCst) {
            return;
        }
        let partitions = self.clone();
        tokio::spawn(async move {
            loop {
                let made = partitions.ensure().await;
                partitions.at_work.store(false, Ordering::SeqCst);
                if let Err(error) = made {
                    // The next append tries again; one that finds no partition reports it.
                    tracing::warn!(%error, "no partitions were made ahead");
                    return;
                }
                // The log may have grown meanwhile, and whoever grew it saw us at work.
                if partitions.has_room() || partitions.at_work.swap(true, Ordering::SeqCst) {
                    return;
                }
            }
        });
    }

    fn has_room(&self) -> bool {
        let left = self.end.load(Ordering::SeqCst).saturating_sub(self.tail.load(Ordering::SeqCst) + 1);
        left >= self.room_min.load(Ordering::SeqCst)
    }

    /// The arguments of `partitions_wanted`.
    fn wanted(&self) -> (Option<i64>, Option<i64>, bool) {
        let rows = self.rows.map(|rows| rows as i64);
        (rows, rows.map(|rows| rows * PARTITIONS_AHEAD as i64), self.forgets.load(Ordering::SeqCst))
    }

    /// Makes partitions ahead now.
    pub async fn ensure(&self) -> Result<(), StoreError> {
        let (rows, ahead, forgets) = self.wanted();
        let row = self.server.query_one(&self.sql.ensure_partitions, &[&rows, &ahead, &forgets]).await?;
        let (rows, ahead) = (row.get::<_, i64>(1) as u64, row.get::<_, i64>(2) as u64);
        // When the first of them is used up; where only one is wanted, when half of it is.
        self.room_min.store((ahead - rows.min(ahead)).max(rows / 2), Ordering::SeqCst);
        // It may be less than it was: partitions ahead may have been replaced by smaller ones.
        self.end.store(row.get::<_, i64>(0) as u64, Ordering::SeqCst);
        Ok(())
    }

    /// Sizes partitions ahead as they are set now, and frees the disk of what is trimmed.
    pub async fn maintain(&self, forgets: bool) -> Result<(), StoreError> {
        self.forgets.store(forgets, Ordering::SeqCst);
        let (rows, ahead, forgets) = self.wanted();
        self.remove(&self.sql.partitions_resize, &[&rows, &ahead, &forgets]).await?;
        self.ensure().await?;
        self.remove_trimmed().await
    }

    /// Removes partitions that hold only trimmed events, and trimmed events of one that is too large to be waited for. What
    /// somebody is reading is left to the next time.
    pub async fn remove_trimmed(&self) -> Result<(), StoreError> {
        let steps: [(&str, &[&(dyn ToSql + Sync)]); 3] = [
            (&self.sql.detach_trimmed, &[]),
            (&self.sql.drop_detached, &[]),
            (&self.sql.delete_trimmed, &[&DELETED_AT_ONCE]),
        ];
        for (statement, params) in steps {
            for _ in 0..REMOVED_MAX {
                if !self.remove(statement, params).await? {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Was there something, and is it gone?
    async fn remove(&self, statement: &str, params: &[&(dyn ToSql + Sync)]) -> Result<bool, StoreError> {
        let mut patience = self.server.patience();
        loop {
            match self.server.reader().await?.query(statement, params).await {
                Ok(rows) => return Ok(self.server.one(rows)?.get(0)),
                Err(failure) if Trouble::of(&failure) == Trouble::Busy => {
                    tracing::debug!(error = %failure, "the log is in use; its partitions are left to the next trim");
                    return Ok(false);
                }
                Err(failure) => self.server.again_after(failure, &mut patience).await?,
            }
        }
    }
}
