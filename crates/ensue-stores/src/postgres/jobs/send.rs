//! How does a job come in?
//!
//! In one round trip and one commit: those that differ in nothing but their payloads by a short way (`sql/fn_jobs_send_alike.sql`), others with all that is said of each
//! (`sql/fn_jobs_enqueue.sql`). What was answered is kept for a while under the identity of the call: if the connection is lost it is sent again, and either done then or
//! answered as it was.

use super::super::bell::Bell;
use super::super::moving::Moving;
use super::super::server::Params;
use super::call::Call;
use super::columns::{NewJobs, attempts_of, chance};
use super::row::{id_of, rank_of, state_of};
use super::together::{Together, Work};
use ensue_core::handling::OnExhausted;
use ensue_core::jobs::job::JOBS_MAX;
use ensue_core::jobs::{Enqueued, JobState, NewJob};
use ensue_core::{Invalid, StoreError};
use std::sync::Arc;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

pub(in super::super) fn check(jobs: &[NewJob]) -> Result<(), StoreError> {
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

impl Work for Sending {
    type Part = Vec<NewJob>;
    type Answer = Vec<Enqueued>;
    type Key = ();
    const DOING: &'static str = "jobs were sent";
    const COUNT_MAX: usize = JOBS_MAX;
    /// For fewer a commit is not worth its connection, as what waits goes with the next one.
    const BESIDE_FROM: usize = 200;

    fn key(_: &Vec<NewJob>) {}

    fn count(jobs: &Vec<NewJob>) -> usize {
        jobs.len()
    }

    fn bytes(jobs: &Vec<NewJob>) -> usize {
        jobs.iter().map(|job| job.payload.as_str().len() + job.metadata.as_str().len()).sum()
    }

    async fn carry_out(&self, parts: &[Vec<NewJob>]) -> Result<Vec<Vec<Enqueued>>, StoreError> {
        let all: Vec<&NewJob> = parts.iter().flatten().collect();
        let mut sent = self.send(&all).await?.into_iter();
        Ok(parts.iter().map(|part| sent.by_ref().take(part.len()).collect()).collect())
    }
}

impl Together<Sending> {
    /// Sends jobs with those of others, or alone where they may have to wait for a lock, because one has an object or a key.
    pub async fn send(self: &Arc<Self>, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>, StoreError> {
        if jobs.iter().any(|job| job.object.is_some() || job.unique_key.is_some()) {
            return self.alone().send(&jobs.iter().collect::<Vec<_>>()).await;
        }
        self.join(jobs).await
    }
}

impl Sending {
    pub async fn send(&self, jobs: &[&NewJob]) -> Result<Vec<Enqueued>, StoreError> {
        match alike(jobs) {
            Some(first) => self.send_alike(first, jobs).await,
            None => self.send_each(jobs).await,
        }
    }

    /// Jobs of which each says what it is.
    async fn send_each(&self, jobs: &[&NewJob]) -> Result<Vec<Enqueued>, StoreError> {
        let columns = NewJobs::of(jobs.iter().copied());
        let (mut call, now) = (Call::new(Self::DOING), self.moving.clock_time());
        let (id, lock, ring) = (call.id, call.lock, self.bell.has_others());
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&now, &id, &lock];
        params.extend(columns.params());
        params.push(&ring);
        let rows = call.until_answered(&self.moving, &self.moving.sql.jobs.enqueue, &params, None).await?;
        all_sent(&self.moving.server.one(rows)?, jobs.len())
    }

    /// Jobs that are as this one is, but for their payloads.
    async fn send_alike(&self, one: &NewJob, jobs: &[&NewJob]) -> Result<Vec<Enqueued>, StoreError> {
        let (mut call, now) = (Call::new(Self::DOING), self.moving.clock_time());
        let (id, lock, ring) = (call.id, call.lock, self.bell.has_others());
        let (handler, rank, attempts_max) = (one.handler.as_str(), rank_of(one.priority), attempts_of(one));
        let payloads: Vec<&str> = jobs.iter().map(|job| job.payload.as_str()).collect();
        let params: Params<'_> = &[&now, &id, &lock, &chance(), &handler, &rank, &attempts_max, &payloads, &ring];
        let rows = call.until_answered(&self.moving, &self.moving.sql.jobs.send_alike, params, None).await?;
        all_sent_alike(&self.moving.server.one(rows)?, jobs.len())
    }
}

/// The first of them, if they differ in nothing but their payloads and nothing else is said of any but handler, priority and attempts.
fn alike<'a>(jobs: &[&'a NewJob]) -> Option<&'a NewJob> {
    let first = *jobs.first()?;
    let is_plain = |job: &&NewJob| {
        // Each is named, so that what is added some day is not passed over.
        let NewJob {
            handler,
            object,
            ordered,
            payload: _,
            metadata,
            priority,
            not_before,
            unique_key,
            attempts_max,
            on_exhausted,
            cause,
        } = *job;
        (handler, priority, attempts_max) == (&first.handler, &first.priority, &first.attempts_max)
            && *ordered
            && *on_exhausted == OnExhausted::Hold
            && object.is_none()
            && not_before.is_none()
            && unique_key.is_none()
            && cause.is_none()
            && metadata.as_str() == "{}"
    };
    jobs.iter().all(is_plain).then_some(first)
}

/// In how many columns is answered what became of jobs that were sent.
pub(super) const SENT_COLUMNS: usize = 4;

/// What became of so many jobs, in the first columns.
pub(super) fn all_sent(row: &Row, count: usize) -> Result<Vec<Enqueued>, StoreError> {
    none_forgotten(enqueued(row, 0)?, count)
}

/// What became of so many jobs that are alike: they have a stamp if they were sent now, and else were sent before and stand somehow.
fn all_sent_alike(row: &Row, count: usize) -> Result<Vec<Enqueued>, StoreError> {
    let (stamp, first, numbers): (Option<i64>, Option<i64>, Option<Vec<i64>>) = (row.get(0), row.get(1), row.get(2));
    let new =
        |stamp: i64, number: i64| Some(Enqueued { id: id_of(stamp, number), is_new: true, state: JobState::Available });
    let numbers = numbers.unwrap_or_default().into_iter();
    let sent = match (stamp, first) {
        (Some(stamp), Some(first)) => (first..).take(count).map(|number| new(stamp, number)).collect(),
        (Some(stamp), None) => numbers.map(|number| new(stamp, number)).collect(),
        (None, _) => standing(Some(numbers.map(Some).collect()), row.get(3), None, row.get(4))?,
    };
    none_forgotten(sent, count)
}

/// All of them, as many as were sent.
fn none_forgotten(sent: Vec<Option<Enqueued>>, count: usize) -> Result<Vec<Enqueued>, StoreError> {
    let sent = sent.into_iter().flatten().collect::<Vec<_>>();
    if sent.len() != count {
        return Err(StoreError::InDoubt("the jobs were sent, and some are forgotten already".into()));
    }
    Ok(sent)
}

/// What became of jobs that were sent, in four columns; none of one that was not to be made.
pub(super) fn enqueued(row: &Row, first: usize) -> Result<Vec<Option<Enqueued>>, StoreError> {
    standing(row.get(first), row.get(first + 1), row.get(first + 2), row.get(first + 3))
}

/// How jobs stand, from parallel arrays: their numbers, stamps, which are new if not all are, and states. None of one that is not there.
fn standing(
    numbers: Option<Vec<Option<i64>>>,
    stamps: Option<Vec<Option<i64>>>,
    are_new: Option<Vec<Option<bool>>>,
    states: Option<Vec<Option<&str>>>,
) -> Result<Vec<Option<Enqueued>>, StoreError> {
    let (numbers, stamps) = (numbers.unwrap_or_default(), stamps.unwrap_or_default());
    let states = states.unwrap_or_default();
    let one = |index: usize| {
        let (Some(number), Some(stamp), Some(state)) = (numbers[index], stamps[index], states[index]) else {
            return Ok(None);
        };
        let is_new = are_new.as_ref().is_none_or(|are_new| are_new[index] == Some(true));
        Ok(Some(Enqueued { id: id_of(stamp, number), is_new, state: state_of(state)? }))
    };
    (0..numbers.len()).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensue_core::jobs::Cause;
    use ensue_core::{EventId, GroupName, Json, ObjectKey, Timestamp, Topic};
    use uuid::Uuid;

    #[test]
    fn a_job_of_which_more_is_said_than_of_the_first_does_not_go_the_short_way() {
        let plain = || NewJob::new(GroupName::stored("h"));
        let other_payload = NewJob { payload: Json::of("payload", &1).unwrap(), ..plain() };
        assert_eq!(alike(&[&plain(), &other_payload]), Some(&plain()));
        assert_eq!(alike(&[]), None);
        let cause = Cause { seq: 1, prev: None, id: EventId(Uuid::nil()), topic: Topic::stored("t") };
        let others = [
            NewJob { handler: GroupName::stored("i"), ..plain() },
            NewJob { object: Some(ObjectKey::stored("o")), ..plain() },
            NewJob { ordered: false, ..plain() },
            NewJob { metadata: Json::of("metadata", &[1]).unwrap(), ..plain() },
            NewJob { priority: 1, ..plain() },
            NewJob { not_before: Some(Timestamp::UNIX_EPOCH), ..plain() },
            NewJob { unique_key: Some("k".into()), ..plain() },
            NewJob { attempts_max: 1, ..plain() },
            NewJob { on_exhausted: OnExhausted::Skip, ..plain() },
            NewJob { cause: Some(cause), ..plain() },
        ];
        for other in others {
            assert_eq!(alike(&[&plain(), &other]), None, "{other:?}");
            assert_eq!(alike(&[&other, &plain()]), None, "{other:?}");
        }
    }
}
