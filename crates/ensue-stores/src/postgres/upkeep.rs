//! What is due, what has happened, and what may be forgotten?

use super::PostgresStore;
use super::error::Trouble;
use super::groups::member_at;
use super::id_parts;
use super::read::{millisecond, place, rows_max};
use super::slots::micros_of;
use super::types::Micros;
use ensue_core::positions::Renewed;
use ensue_core::retention::Bounds;
use ensue_core::store::{Cancelled, Pulse, Released};
use ensue_core::{EventId, Seq, StoreError};
use jiff::SignedDuration;
use std::sync::atomic::Ordering;
use std::time::Instant;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

impl PostgresStore {
    /// Moves what others have committed in the outbox and due events into the log.
    pub(super) async fn release(&self, limit: usize) -> Result<Released, StoreError> {
        self.moving.move_once(&self.sql.release_due, limit).await
    }

    /// All that an idle process asks, in one round trip.
    pub(super) async fn feel_pulse(&self, lease: Option<(Uuid, SignedDuration)>) -> Result<Pulse, StoreError> {
        let (member, lease) = (lease.map(|(member, _)| member), lease.map(|(_, lease)| micros_of(lease)));
        let (now, hint, bells) = (self.clock_time(), self.hint(), self.bell.is_to_hear());
        let (began, appends) = (Instant::now(), self.bell.appends_so_far());
        // An injected clock may show any time.
        let leases_after = self.looks.pulse_leases_after(began).filter(|_| self.clock.is_none());
        let after = leases_after.map(Micros);
        let (state, from, name) = self.schedules_from.params();
        let params: [&(dyn ToSql + Sync); 9] = [&now, &hint, &member, &lease, &bells, &after, &state, &from, &name];
        let rows = match self.server.query(&self.sql.positions.pulse, &params).await {
            Err(error @ StoreError::Schema(_)) => return Err(self.why_not_beside(error).await),
            answer => answer?,
        };
        let members = rows.iter().filter_map(|row| member_at(row, 6).transpose()).collect::<Result<_, _>>()?;
        let first = self.server.one(rows)?;
        if let Some([version, compatible_from]) = first.get::<_, Option<Vec<i32>>>(19).as_deref() {
            self.server.beside.hear(*version, *compatible_from, &self.server.place);
            self.server.beside.check()?;
        }
        let (now, last) = (first.get::<_, Micros>(0).0, first.get::<_, i64>(1) as Seq);
        let id = first.get::<_, Option<Uuid>>(3).zip(first.get::<_, Option<Micros>>(4));
        let version = first.get::<_, Option<i64>>(5);
        if self.last.fetch_max(last, Ordering::Relaxed) < last {
            self.bell.grew_since(appends);
        }
        let waiting = first.get(16);
        if waiting {
            self.bell.others_wrote();
        }
        if let Some((listeners, asleep)) = first.get::<_, Option<i64>>(17).zip(first.get(18)) {
            self.bell.hear(listeners, asleep);
        }
        let due = first.get::<_, Option<Micros>>(11).map(|due| due.0);
        let jobs_due = self.looks.pulsed(began, leases_after, now, due);
        let jobs = self.looks.heard(first.get(10), first.get(12), first.get(13), Instant::now());
        if jobs.is_fresh {
            self.bell.found();
        }
        Ok(Pulse {
            last,
            newest: id.map(|(part, recorded_at)| id_parts::whole(part, recorded_at.0)),
            next_due: first.get::<_, Option<Micros>>(2).map(|due| due.0),
            now,
            renewed: version.map(|version| Renewed { version: version as u64, members }),
            rules_version: first.get::<_, i64>(9) as u64,
            definitions_version: first.get::<_, i64>(14) as u64,
            jobs_sent: jobs.count,
            jobs_due,
            schedules_due: first.get::<_, Option<Micros>>(15).map(|due| due.0),
            waiting,
        })
    }

    /// Something is not there that this program knows: because it may not run beside the schema any more?
    async fn why_not_beside(&self, error: StoreError) -> StoreError {
        // A new connection looks.
        let connected = self.server.connect(self.server.unavailable_after).await;
        drop(connected);
        self.server.beside.check().err().unwrap_or(error)
    }

    /// Moves what was published in transactions before this call to where it is found. A store that only reads leaves it to others.
    pub(super) async fn move_what_waits(&self) -> Result<(), StoreError> {
        if self.read_only { Ok(()) } else { self.moving.move_outbox().await }
    }

    /// Cancels an event that waits, also in the outbox, from where it is moved first. It is looked at first: if the answer to the cancellation is lost, the next try
    /// finds nothing, and only who saw the event waiting knows that this means success.
    pub(super) async fn cancel_delayed(&self, id: EventId) -> Result<Cancelled, StoreError> {
        let bounds = self.bounds_now().await?;
        let mut is_moved = false;
        while self.server.query(&self.sql.pending_by_id, &[&id.0]).await?.is_empty() {
            if let Some(seq) = self.find_place(id).await? {
                return Ok(Cancelled::AlreadyLogged(seq));
            }
            if is_moved {
                return Ok(Cancelled::Unknown);
            }
            self.move_what_waits().await?;
            is_moved = true;
        }
        let mut answer_was_lost = false;
        let cancelled = self.cancel_waiting(id, bounds, &mut answer_was_lost).await;
        // Whatever went wrong after that, it may be done.
        let doubt = |error: StoreError| error.in_doubt("the connection was lost while the event was cancelled");
        if answer_was_lost { cancelled.map_err(doubt) } else { cancelled }
    }

    /// Cancels an event that was seen waiting when the log had these bounds.
    async fn cancel_waiting(
        &self,
        id: EventId,
        bounds: Bounds,
        answer_was_lost: &mut bool,
    ) -> Result<Cancelled, StoreError> {
        let (from, to) = millisecond(id);
        let mut patience = self.server.patience();
        let row = loop {
            let (part, hint) = (id_parts::part(id), self.hint());
            let reader = self.server.reader().await?;
            let answer = reader.query(&self.sql.cancel, &[&id.0, &part, &from, &to, &hint]).await;
            drop(reader);
            match answer {
                Ok(rows) => break self.server.one(rows)?,
                Err(failure) => {
                    *answer_was_lost |= Trouble::of(&failure) == Trouble::Lost;
                    self.server.again_after(failure, &mut patience).await?;
                }
            }
        };
        match row.get::<_, Option<i64>>(0) {
            Some(0) => Ok(Cancelled::Gone),
            Some(seq) => Ok(Cancelled::AlreadyLogged(seq as Seq)),
            None if !*answer_was_lost => Ok(Cancelled::Unknown),
            // It would have entered the log after what was its end then: is all that still there?
            None if self.bounds_now().await?.first <= bounds.last + 1 => Ok(Cancelled::Gone),
            None => Err(StoreError::InDoubt(
                "it is gone, but was either cancelled, or entered the log and was forgotten by retention".into(),
            )),
        }
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

    /// `partition_retention_period`, as it is set now.
    pub(super) async fn age_set(&self) -> Result<Option<SignedDuration>, StoreError> {
        let row = self.server.query_one(&self.sql.retention_age, &[]).await?;
        Ok(row.get::<_, Option<i64>>(0).map(SignedDuration::from_micros))
    }

    pub(super) async fn estimate_bytes(&self) -> Result<u64, StoreError> {
        let row = self.server.query_one(&self.sql.bytes, &[&self.hint()]).await?;
        Ok(row.get::<_, i64>(0) as u64)
    }
}
