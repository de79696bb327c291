//! What waits is to come into the log: who moves it?
//!
//! A loop in every process, and whoever finds so much in the outbox that it must come before what they have to append. A statement may also find that the
//! log has no partition for its places yet: what it takes to go on is done here, and it is sent again.

use super::error::{Failure, Trouble};
use super::partitions::Partitions;
use super::patience::Patience;
use super::read::rows_max;
use super::schema::Sql;
use super::server::Server;
use super::types::Micros;
use crate::clock::Clock;
use ensue_core::store::{PAGE_BYTES_MAX, Released};
use ensue_core::{Seq, StoreError, Timestamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio_postgres::Row;

/// How many events are moved in one commit for who has to wait for them.
const MOVED_AT_ONCE: usize = 1_000;
/// How many commits are made for them at most, before who waits tries again.
const MOVES_MAX: usize = 100;
/// How often a statement is tried while others are in the way, or while it lacks a partition.
pub(super) const TRIES_MAX: u32 = 5;

/// The events that a statement added to the log besides those of `append` itself: its column `logged`.
pub(super) fn logged(row: &Row) -> u64 {
    row.try_get::<_, i64>("logged").map_or(0, |logged| logged as u64)
}

/// Counts events that a committed transaction of this process added to the log.
pub(super) fn count_appended(events: u64) {
    if events > 0 {
        metrics::counter!("ensue_append_events_total", "engine" => "postgres").increment(events);
    }
}

/// What it takes to move events into the log.
pub(super) struct Moving {
    pub server: Arc<Server>,
    pub sql: Arc<Sql>,
    pub clock: Option<Clock>,
    pub partitions: Arc<Partitions>,
    /// The newest place that anybody here has seen: only a hint.
    pub last: Arc<AtomicU64>,
}

impl Moving {
    /// The time of the injected clock; the server's own is null.
    pub fn clock_time(&self) -> Option<Micros> {
        self.clock.as_ref().map(|clock| Micros(clock()))
    }

    /// Notes the new end of the log after a statement that may have appended, and counts the events that it added.
    pub fn log_grew(&self, row: &Row, tail: Option<i64>) {
        if let Some(tail) = tail {
            self.last.fetch_max(tail as u64, Ordering::Relaxed);
            self.partitions.look_ahead(tail as u64);
        }
        count_appended(logged(row));
    }

    /// Moves at most so many, in one commit, by `release_due` or `outbox_drain`. A lost connection is no matter here: what was moved stays moved, and the next
    /// try moves what is left.
    pub async fn move_once(&self, sql: &str, limit: usize) -> Result<Released, StoreError> {
        let (mut patience, mut tries) = (self.server.patience(), 1);
        let (limit, bytes_max) = (rows_max(limit), PAGE_BYTES_MAX as i64);
        let row = loop {
            let now = self.clock_time();
            let hint = self.last.load(Ordering::Relaxed) as i64;
            let reader = self.server.reader_of_call().await?;
            let answer = reader.query(sql, &[&now, &hint, &limit, &bytes_max]).await;
            drop(reader);
            match answer {
                Ok(rows) => break self.server.one(rows)?,
                Err(failure) => self.after_lack(failure, &mut patience, &mut tries).await?,
            }
        };
        let last = row.get::<_, i64>(1) as Seq;
        self.log_grew(&row, Some(last as i64));
        let next_due = row.get::<_, Option<Micros>>(2).map(|due| due.0);
        let next_due = if row.get(3) { Some(Timestamp::MIN) } else { next_due };
        Ok(Released { count: row.get::<_, i64>(0) as usize, last, next_due })
    }

    /// Moves what waits in the outbox, in commits of its own: what is appended takes along only a little. As much as there may be when others go on
    /// publishing; what they have published since is for the next who appends.
    pub async fn move_outbox(&self) -> Result<(), StoreError> {
        for _ in 0..MOVES_MAX {
            if self.move_once(&self.sql.outbox_drain, MOVED_AT_ONCE).await?.next_due.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Does what a statement has failed for the lack of, or pauses if it is worth another try; else says what is wrong.
    pub async fn again_after(
        &self,
        failure: Failure,
        patience: &mut Patience,
        tries: &mut u32,
    ) -> Result<(), StoreError> {
        match Trouble::of(&failure) {
            // If it never ends, others publish faster than anybody moves.
            Trouble::Backlog if !patience.left().is_zero() => self.move_outbox().await,
            Trouble::Lost | Trouble::Busy | Trouble::NoPartition | Trouble::Backlog | Trouble::Refused => {
                self.after_lack(failure, patience, tries).await
            }
        }
    }

    /// The same for a move, which would wait for itself if it found a backlog before it.
    async fn after_lack(&self, failure: Failure, patience: &mut Patience, tries: &mut u32) -> Result<(), StoreError> {
        match Trouble::of(&failure) {
            Trouble::NoPartition if *tries < TRIES_MAX => {
                *tries += 1;
                self.partitions.ensure().await
            }
            Trouble::Lost | Trouble::Busy | Trouble::NoPartition | Trouble::Backlog | Trouble::Refused => {
                self.server.again_after(failure, patience).await
            }
        }
    }
}
