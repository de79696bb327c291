//! How is a job called off, brought back, or passed over?

use super::super::groups::place;
use super::super::writer::Changing;
use super::row::job;
use super::settle::{errors_with, say};
use super::{lane, time};
use ensue_core::jobs::lifecycle::{self, Arrow};
use ensue_core::jobs::{Job, JobError, JobId, JobState, Steer, Steered};
use ensue_core::tasks::called_off_line;
use ensue_core::{StoreError, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

pub(super) fn steer(changing: &mut Changing<'_>, ids: &[JobId], steer: Steer) -> Result<Vec<Steered>, StoreError> {
    let now = changing.now();
    changing.sql(|connection| ids.iter().map(|id| one(connection, *id, steer, now)).collect())
}

fn one(connection: &Connection, id: JobId, steer: Steer, now: Timestamp) -> rusqlite::Result<Steered> {
    let Some(found) = job(connection, id)? else { return Ok(Steered::Unknown) };
    let refusal = match lifecycle::after(found.state, steer.input()) {
        Arrow::Refused(why) => Some(why),
        Arrow::LetGo if found.turn.is_none() => Some("it holds nothing back: nothing is left to skip"),
        Arrow::LetGo => let_go(connection, &found, now)?,
        Arrow::Signal => signal(connection, &found)?,
        Arrow::To(JobState::Available) if found.state == JobState::Dead => bring_back(connection, &found, now)?,
        Arrow::To(JobState::Available) => run_now(connection, &found, now)?,
        Arrow::To(state) => finish(connection, &found, state, now)?,
    };
    match refusal {
        Some(why) => Ok(Steered::Refused(Box::new(found), why)),
        None => Ok(job(connection, id)?.map_or(Steered::Unknown, |job| Steered::Done(Box::new(job)))),
    }
}

/// What a change that cannot be refused answers.
type Refusal = Option<&'static str>;

fn let_go(connection: &Connection, job: &Job, now: Timestamp) -> rusqlite::Result<Refusal> {
    connection
        .prepare_cached("UPDATE ensue_jobs SET turn = NULL WHERE number = ?1")?
        .execute([place(job.id.number())])?;
    lane::turn_lane_of(connection, job, now)?;
    Ok(None)
}

fn signal(connection: &Connection, job: &Job) -> rusqlite::Result<Refusal> {
    connection
        .prepare_cached("UPDATE ensue_jobs SET cancel_asked = 1 WHERE number = ?1")?
        .execute([place(job.id.number())])?;
    Ok(None)
}

/// A dead job begins anew, and runs next in its lane.
fn bring_back(connection: &Connection, job: &Job, now: Timestamp) -> rusqlite::Result<Refusal> {
    if let Some(key) = &job.unique_key {
        let taken = connection
            .prepare_cached("SELECT 1 FROM ensue_jobs WHERE handler = ?1 AND unique_key = ?2 AND finished_at IS NULL")?
            .query_row(params![job.handler.as_str(), key], |_| Ok(()))
            .optional()?;
        if taken.is_some() {
            return Ok(Some("a live job has its unique_key: wait for that one, or cancel it"));
        }
    }
    connection
        .prepare_cached(
            "UPDATE ensue_jobs SET attempts = 0, redriven = 1, finished_at = NULL, not_before = NULL WHERE number = ?1",
        )?
        .execute([place(job.id.number())])?;
    lane::let_run(connection, job, job.id.number(), now)?;
    Ok(None)
}

fn run_now(connection: &Connection, job: &Job, now: Timestamp) -> rusqlite::Result<Refusal> {
    connection
        .prepare_cached("UPDATE ensue_jobs SET not_before = NULL WHERE number = ?1")?
        .execute([place(job.id.number())])?;
    time::go(connection, job, now)?;
    Ok(None)
}

/// It is over: called off, or passed over while it was retried.
fn finish(connection: &Connection, job: &Job, state: JobState, now: Timestamp) -> rusqlite::Result<Refusal> {
    let skipped = JobError { attempt: job.attempts, at: now, error: "skipped".into() };
    let errors = errors_with(&job.errors, (state == JobState::Dead).then_some(skipped));
    connection
        .prepare_cached(
            "UPDATE ensue_jobs SET state = ?2, turn = NULL, finished_at = ?3, errors = ?4 WHERE number = ?1",
        )?
        .execute(params![place(job.id.number()), state.as_str(), now.as_microsecond(), errors])?;
    if state == JobState::Cancelled {
        say(connection, job.id.number(), called_off_line(job, now).as_slice())?;
    }
    lane::turn_lane_of(connection, job, now)?;
    Ok(None)
}
