//! How does a job come in?

use super::super::groups::place;
use super::super::writer::Changing;
use super::lane::{self, Rest};
use super::row::stored_priority;
use ensue_core::jobs::job::JOBS_MAX;
use ensue_core::jobs::{Enqueued, JobId, JobNumber, JobState, NewJob};
use ensue_core::{Invalid, ObjectKey, StoreError, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

pub(in super::super) fn check(jobs: &[NewJob]) -> Result<(), StoreError> {
    if jobs.is_empty() || jobs.len() > JOBS_MAX {
        let reason = format!("are {}; send 1 to {JOBS_MAX} at once", jobs.len());
        return Err(Invalid::new("jobs", reason).into());
    }
    jobs.iter().try_for_each(NewJob::check).map_err(StoreError::from)
}

/// Draws this many numbers; the answer is the first of them.
pub(super) fn draw(connection: &Connection, count: usize) -> rusqlite::Result<JobNumber> {
    connection
        .prepare_cached("UPDATE ensue_jobs_state SET last_number = last_number + ?1 RETURNING last_number - ?1 + 1")?
        .query_row([count as i64], |row| row.get::<_, i64>(0))
        .map(|number| number as JobNumber)
}

/// Makes jobs, in order.
pub(in super::super) fn enqueue(changing: &mut Changing<'_>, jobs: &[NewJob]) -> Result<Vec<Enqueued>, StoreError> {
    let now = changing.now();
    changing.sql(|connection| {
        let first = draw(connection, jobs.len())?;
        jobs.iter().zip(first..).map(|(job, number)| one(connection, job, number, now)).collect()
    })
}

fn one(connection: &Connection, job: &NewJob, number: JobNumber, now: Timestamp) -> rusqlite::Result<Enqueued> {
    if let Some(there) = live_with_key(connection, job)? {
        return Ok(there);
    }
    let is_delayed = job.not_before.is_some_and(|at| at > now);
    let (state, turn) = match (is_delayed, &job.object) {
        (true, _) => (JobState::Scheduled, None),
        (false, None) => (JobState::Available, Some(number)),
        // Whether it may run is said when its lane has turned.
        (false, Some(_)) => (JobState::Parked, Some(number)),
    };
    let id = JobId::new(now, rand::random(), number);
    insert(connection, job, id, state, turn, now)?;
    let state = match (&job.object, state) {
        (Some(object), JobState::Parked) => {
            let rest = Rest { number, handler: &job.handler, object, ordered: job.ordered };
            lane::go_on(connection, &rest, now)?
        }
        _ => state,
    };
    Ok(Enqueued { id, is_new: true, state })
}

/// The live job that has this one's key.
fn live_with_key(connection: &Connection, job: &NewJob) -> rusqlite::Result<Option<Enqueued>> {
    let Some(key) = &job.unique_key else { return Ok(None) };
    connection
        .prepare_cached(
            "SELECT id, state FROM ensue_jobs WHERE handler = ?1 AND unique_key = ?2 AND finished_at IS NULL",
        )?
        .query_row(params![job.handler.as_str(), key], |row| {
            let id = JobId(super::super::read::uuid_of(row, 0)?);
            Ok(Enqueued { id, is_new: false, state: super::row::state_of(row, 1)? })
        })
        .optional()
}

fn insert(
    connection: &Connection,
    job: &NewJob,
    id: JobId,
    state: JobState,
    turn: Option<u64>,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let cause = job.cause.as_ref();
    connection
        .prepare_cached(
            "INSERT INTO ensue_jobs (number, id, handler, object, ordered, payload, metadata, priority, state, turn, attempts,
             attempts_max, on_exhausted, not_before, enqueued_at, fence, unique_key, event_seq, event_prev, event_id,
             event_topic, cancel_asked, redriven)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, 0, ?11, ?12, ?13, ?14, 0, ?15, ?16, ?17, ?18, ?19, 0, 0)",
        )?
        .execute(params![
            place(id.number()),
            id.0.as_bytes(),
            job.handler.as_str(),
            job.object.as_ref().map(ObjectKey::as_str),
            job.ordered,
            job.payload.as_str(),
            (job.metadata.as_str() != "{}").then(|| job.metadata.as_str()),
            stored_priority(job.priority),
            state.as_str(),
            turn.map(place),
            job.attempts_max,
            job.on_exhausted.as_str(),
            job.not_before.map(Timestamp::as_microsecond),
            now.as_microsecond(),
            job.unique_key,
            cause.map(|cause| place(cause.seq)),
            cause.and_then(|cause| cause.prev).map(place),
            cause.map(|cause| *cause.id.0.as_bytes()),
            cause.map(|cause| cause.topic.as_str()),
        ])?;
    Ok(())
}
