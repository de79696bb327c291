//! How does a job come in?
//!
//! In one round trip and one commit (`sql/fn_jobs_enqueue.sql`). What was answered is kept for a while under the identity of
//! the call: if the connection is lost it is sent again, and either done then or answered as it was.

use super::super::bell::Bell;
use super::super::moving::Moving;
use super::super::types::Micros;
use super::call::Call;
use super::columns::NewJobs;
use super::row::{id_of, state_of};
use ensue_core::jobs::job::JOBS_MAX;
use ensue_core::jobs::{Enqueued, NewJob};
use ensue_core::{Invalid, StoreError};
use std::sync::Arc;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

pub(super) fn check(jobs: &[NewJob]) -> Result<(), StoreError> {
    if jobs.is_empty() || jobs.len() > JOBS_MAX {
        let reason = format!("are {}; send 1 to {JOBS_MAX} at once", jobs.len());
        return Err(Invalid::new("jobs", reason).into());
    }
    jobs.iter().try_for_each(NewJob::check).map_err(StoreError::from)
}

/// What it takes to send jobs.
pub(in super::super) struct Sending {
    pub moving: Arc<Moving>,
    pub bell: Arc<Bell>,
}

impl Sending {
    pub async fn send(&self, jobs: &[NewJob]) -> Result<Vec<Enqueued>, StoreError> {
        let columns = NewJobs::of(jobs.iter());
        let (mut call, now) = (Call::new("jobs were sent"), self.moving.clock.as_ref().map(|clock| Micros(clock())));
        let (id, lock, ring) = (call.id, call.lock, self.bell.has_others());
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&now, &id, &lock];
        params.extend(columns.params());
        params.push(&ring);
        let rows = call.until_answered(&self.moving, &self.moving.sql.jobs.enqueue, &params, None).await?;
        all_sent(&self.moving.server.one(rows)?, jobs.len())
    }
}

/// In how many columns is answered what became of jobs that were sent.
pub(super) const SENT_COLUMNS: usize = 4;

/// What became of so many jobs, in the first columns.
pub(super) fn all_sent(row: &Row, count: usize) -> Result<Vec<Enqueued>, StoreError> {
    let sent = enqueued(row, 0)?.into_iter().flatten().collect::<Vec<_>>();
    if sent.len() != count {
        return Err(StoreError::InDoubt("the jobs were sent, and some are forgotten already".into()));
    }
    Ok(sent)
}

/// What became of jobs that were sent, in four columns; none of one that was not to be made.
pub(super) fn enqueued(row: &Row, first: usize) -> Result<Vec<Option<Enqueued>>, StoreError> {
    let numbers = row.get::<_, Option<Vec<Option<i64>>>>(first).unwrap_or_default();
    let stamps = row.get::<_, Option<Vec<Option<i64>>>>(first + 1).unwrap_or_default();
    let are_new = row.get::<_, Option<Vec<Option<bool>>>>(first + 2);
    let states = row.get::<_, Option<Vec<Option<&str>>>>(first + 3).unwrap_or_default();
    let one = |index: usize| {
        let (Some(number), Some(stamp), Some(state)) = (numbers[index], stamps[index], states[index]) else {
            return Ok(None);
        };
        let is_new = are_new.as_ref().is_none_or(|are_new| are_new[index] == Some(true));
        Ok(Some(Enqueued { id: id_of(stamp, number), is_new, state: state_of(state)? }))
    };
    (0..numbers.len()).map(one).collect()
}
