//! How does a worker write how an attempt ended?
//!
//! Most only succeed: one statement, which finds the job only under its fence. One that publishes or sends has a savepoint
//! of its own: what is refused of it leaves nothing, and the others stay.

use super::super::append;
use super::super::groups::place;
use super::super::writer::Changing;
use super::lane;
use super::row::{job, job_columns, job_of, numbered};
use super::send;
use ensue_core::handling::OnExhausted;
use ensue_core::jobs::job::JOB_LINES_MAX;
use ensue_core::jobs::lane::died_with;
use ensue_core::jobs::lifecycle::{self, Arrow};
use ensue_core::jobs::{
    Held, Job, JobChange, JobEnd, JobError, JobLine, JobNumber, JobSettled, JobState, NewJob, Settlement, notices,
};
use ensue_core::{Json, StoreError, Timestamp};
use rusqlite::{Connection, params};

pub(in super::super) fn settle(
    changing: &mut Changing<'_>,
    changes: &[JobChange],
) -> Result<Vec<JobSettled>, StoreError> {
    let now = changing.now();
    let mut dead = Vec::new();
    let answers = changes.iter().map(|change| one(changing, change, now, &mut dead)).collect::<Result<_, _>>()?;
    tell(changing, dead)?;
    Ok(answers)
}

/// Publishes what is told of jobs that have died.
fn tell(changing: &mut Changing<'_>, mut dead: Vec<JobNumber>) -> Result<(), StoreError> {
    dead.sort_unstable();
    let mut told = Vec::new();
    for number in dead {
        let job = changing.sql(|connection| numbered(connection, number))?;
        told.extend(job.iter().flat_map(notices::job_ended));
    }
    if !told.is_empty() {
        changing.append(&told)?;
    }
    Ok(())
}

/// Makes one change; who dies by it is added to `dead`.
fn one(
    changing: &mut Changing<'_>,
    change: &JobChange,
    now: Timestamp,
    dead: &mut Vec<JobNumber>,
) -> Result<JobSettled, StoreError> {
    let sends_nothing = change.events.is_empty() && change.jobs.is_empty();
    if change.end == JobEnd::Succeeded
        && sends_nothing
        && changing.sql(|connection| succeed(connection, change, now))?
    {
        return Ok(JobSettled::Done { state: JobState::Succeeded, events: Vec::new(), jobs: Vec::new() });
    }
    let job = changing.sql(|connection| running(connection, change.held))?;
    let Some(job) = job.filter(|job| change.end.may_end(job.lease_until, now)) else {
        return Ok(JobSettled::LeaseLost);
    };
    if sends_nothing {
        let state = changing.sql(|connection| write(connection, &job, change, now, dead))?;
        return Ok(JobSettled::Done { state, events: Vec::new(), jobs: Vec::new() });
    }
    if let Err(refusal) = change.jobs.iter().try_for_each(NewJob::check) {
        return Ok(JobSettled::Refused(refusal.into()));
    }
    let dead_before = dead.len();
    let settled = changing.apart(append::is_of_the_entries, |changing| publish(changing, &job, change, now, dead))?;
    Ok(settled.unwrap_or_else(|refusal| {
        dead.truncate(dead_before);
        JobSettled::Refused(refusal)
    }))
}

/// Writes an end, with what was said.
fn write(
    connection: &Connection,
    job: &Job,
    change: &JobChange,
    now: Timestamp,
    dead: &mut Vec<JobNumber>,
) -> rusqlite::Result<JobState> {
    say(connection, job.id.number(), &change.lines)?;
    end(connection, job, &change.end, change.result.as_ref(), now, dead)
}

/// The same, with what it publishes and sends. It is over before its jobs are made: they may have its key, and its lane.
fn publish(
    changing: &mut Changing<'_>,
    job: &Job,
    change: &JobChange,
    now: Timestamp,
    dead: &mut Vec<JobNumber>,
) -> Result<JobSettled, StoreError> {
    let events = if change.events.is_empty() { Vec::new() } else { changing.append(&change.events)? };
    let state = changing.sql(|connection| write(connection, job, change, now, dead))?;
    let jobs = if change.jobs.is_empty() { Vec::new() } else { send::enqueue(changing, &change.jobs)? };
    Ok(JobSettled::Done { state, events, jobs })
}

/// The job, if it runs under this fence.
pub(super) fn running(connection: &Connection, held: Held) -> rusqlite::Result<Option<Job>> {
    let job = job(connection, held.id)?;
    Ok(job.filter(|job| job.fence == held.fence && job.state == JobState::Running))
}

/// The end of most: done, in no lane, and nothing to publish or send. False if it is not one of these, or is lost.
///
/// Nothing is returned by the statement itself: SQLite would make a table for that each time.
fn succeed(connection: &Connection, change: &JobChange, now: Timestamp) -> rusqlite::Result<bool> {
    let held = change.held;
    let mut statement = connection.prepare_cached(
        "UPDATE ensue_jobs SET state = 'succeeded', finished_at = ?4, lease_until = NULL, turn = NULL, cancel_asked = 0,
         result = ?5 WHERE number = ?1 AND id = ?2 AND fence = ?3 AND state = 'running' AND object IS NULL",
    )?;
    let values = params![
        place(held.id.number()),
        held.id.0.as_bytes(),
        place(held.fence),
        now.as_microsecond(),
        change.result.as_ref().map(Json::as_str),
    ];
    let is_done = statement.execute(values)? == 1;
    if is_done {
        say(connection, held.id.number(), &change.lines)?;
    }
    Ok(is_done)
}

/// The errors of a job with one more, as they are kept.
pub(super) fn errors_with(errors: &[JobError], one: Option<JobError>) -> Option<String> {
    let none = errors.is_empty() && one.is_none();
    (!none).then(|| JobError::kept(errors, one))
}

/// Writes how an attempt at a running job ended.
fn end(
    connection: &Connection,
    job: &Job,
    end: &JobEnd,
    result: Option<&Json>,
    now: Timestamp,
    dead: &mut Vec<JobNumber>,
) -> rusqlite::Result<JobState> {
    let Arrow::To(state) = lifecycle::after(job.state, end.input(job.cancel_asked)) else { return Ok(job.state) };
    let attempts = if end.uses_attempt() { job.attempts } else { job.attempts.saturating_sub(1) };
    let error = end.error().map(|error| JobError { attempt: job.attempts, at: now, error: error.to_owned() });
    let keeps_turn = match state {
        JobState::Dead => lifecycle::holds_lane(job.on_exhausted, job.in_lane()),
        state => !state.is_final(),
    };
    connection
        .prepare_cached(
            "UPDATE ensue_jobs SET state = ?2, attempts = ?3, not_before = coalesce(?4, not_before), errors = ?5,
             finished_at = ?6, lease_until = NULL, turn = iif(?7, turn, NULL), result = ?8, settled = ?9,
             cancel_asked = iif(?6 IS NULL, cancel_asked, 0) WHERE number = ?1",
        )?
        .execute(params![
            place(job.id.number()),
            state.as_str(),
            attempts,
            end.not_before().filter(|_| !state.is_final()).map(Timestamp::as_microsecond),
            errors_with(&job.errors, error),
            state.is_final().then(|| now.as_microsecond()),
            keeps_turn,
            result.filter(|_| state == JobState::Succeeded).map(Json::as_str),
            end.settlement().map(Settlement::as_str),
        ])?;
    if state == JobState::Dead {
        dead.push(job.id.number());
    }
    match state {
        // It may run at once, if it is still the first of its lane.
        JobState::Available => {
            let turn = job.turn.unwrap_or_else(|| job.id.number());
            return lane::let_run(connection, job, turn, now);
        }
        JobState::Dead if job.on_exhausted == OnExhausted::DeadLetterObject => {
            dead.extend(bury_lane(connection, job, end.error().unwrap_or_default(), now)?);
        }
        _ => lane::turn_lane_of(connection, job, now)?,
    }
    Ok(state)
}

/// The death of a job is that of all that wait in its lane; answers who they were.
fn bury_lane(connection: &Connection, dead: &Job, error: &str, now: Timestamp) -> rusqlite::Result<Vec<JobNumber>> {
    let Some(object) = dead.object.as_ref().filter(|_| dead.ordered) else { return Ok(Vec::new()) };
    let waiting: Vec<Job> = connection
        .prepare_cached(concat!(
            "SELECT ",
            job_columns!(),
            " FROM ensue_jobs WHERE object = ?1 AND handler = ?2 AND turn IS NOT NULL AND ordered
              AND state IN ('parked', 'scheduled', 'retrying', 'available')"
        ))?
        .query_map(params![object.as_str(), dead.handler.as_str()], job_of)?
        .collect::<rusqlite::Result<_>>()?;
    let error = died_with(error);
    let mut bury = connection.prepare_cached(
        "UPDATE ensue_jobs SET state = 'dead', turn = NULL, finished_at = ?2, errors = ?3 WHERE number = ?1",
    )?;
    for job in &waiting {
        let one = JobError { attempt: job.attempts, at: now, error: error.clone() };
        bury.execute(params![place(job.id.number()), now.as_microsecond(), errors_with(&job.errors, Some(one))])?;
    }
    Ok(waiting.iter().map(|job| job.id.number()).collect())
}

/// Writes what a running job says, if it is this one's.
pub(super) fn say_under(changing: &mut Changing<'_>, held: Held, lines: &[JobLine]) -> Result<bool, StoreError> {
    changing.sql(|connection| {
        let is_held = running(connection, held)?.is_some();
        if is_held {
            say(connection, held.id.number(), lines)?;
        }
        Ok(is_held)
    })
}

pub(super) fn say(connection: &Connection, number: JobNumber, lines: &[JobLine]) -> rusqlite::Result<()> {
    if lines.is_empty() {
        return Ok(());
    }
    let last: i64 = connection
        .prepare_cached("SELECT coalesce(max(line), 0) FROM ensue_job_lines WHERE number = ?1")?
        .query_row([place(number)], |row| row.get(0))?;
    let mut insert = connection.prepare_cached(
        "INSERT INTO ensue_job_lines (number, line, attempt, at, level, message) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    for (line, at) in lines.iter().zip(last + 1..=place(JOB_LINES_MAX)) {
        insert.execute(params![
            place(number),
            at,
            line.attempt,
            line.at.as_microsecond(),
            line.level.as_str(),
            line.message
        ])?;
    }
    Ok(())
}
