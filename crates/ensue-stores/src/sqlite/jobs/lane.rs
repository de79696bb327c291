//! Which job of an object may run?

use super::super::groups::place;
use super::super::rules;
use super::row::state_of;
use ensue_core::jobs::lane::{Waiting, turn};
use ensue_core::jobs::{Job, JobNumber, JobState};
use ensue_core::{GroupName, ObjectKey, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

/// A job with an object that waits, as [`JobState::Parked`], to be told whether it may run.
pub(super) struct Rest<'a> {
    pub number: JobNumber,
    pub handler: &'a GroupName,
    pub object: &'a ObjectKey,
    pub ordered: bool,
}

/// Lets a parked job with an object go on, if nothing holds it, and says where it stands then.
pub(super) fn go_on(connection: &Connection, rest: &Rest<'_>, now: Timestamp) -> rusqlite::Result<JobState> {
    if rest.ordered {
        turn_lane(connection, rest.handler, rest.object, now)?;
    } else if rules::holds_object(connection, rest.object, now)?.is_none() {
        set_state(connection, rest.number, JobState::Available)?;
    }
    connection
        .prepare_cached("SELECT state FROM ensue_jobs WHERE number = ?1")?
        .query_row([place(rest.number)], |row| state_of(row, 0))
}

/// A job may run as far as time is concerned: it is available, or waits in its lane. Answers which.
pub(super) fn let_run(connection: &Connection, job: &Job, turn: u64, now: Timestamp) -> rusqlite::Result<JobState> {
    let state = if job.object.is_some() { JobState::Parked } else { JobState::Available };
    connection
        .prepare_cached("UPDATE ensue_jobs SET state = ?2, turn = ?3, lease_until = NULL WHERE number = ?1")?
        .execute(params![place(job.id.number()), state.as_str(), place(turn)])?;
    match &job.object {
        Some(object) => {
            let rest = Rest { number: job.id.number(), handler: &job.handler, object, ordered: job.ordered };
            go_on(connection, &rest, now)
        }
        None => Ok(state),
    }
}

/// A job has left its lane, or waits in it for something else: the next one may go.
pub(super) fn turn_lane_of(connection: &Connection, job: &Job, now: Timestamp) -> rusqlite::Result<()> {
    match &job.object {
        Some(object) if job.ordered => turn_lane(connection, &job.handler, object, now),
        _ => Ok(()),
    }
}

/// Makes sure that the next job of a lane, and only that one, may run.
pub(super) fn turn_lane(
    connection: &Connection,
    handler: &GroupName,
    object: &ObjectKey,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let lane = params![object.as_str(), handler.as_str()];
    let first = connection
        .prepare_cached(
            "SELECT number, state FROM ensue_jobs INDEXED BY ensue_jobs_lanes
             WHERE object = ?1 AND handler = ?2 AND turn IS NOT NULL AND ordered ORDER BY turn LIMIT 1",
        )?
        .query_row(lane, |row| Ok(Waiting { number: row.get::<_, i64>(0)? as JobNumber, state: state_of(row, 1)? }))
        .optional()?;
    let mut statement = connection.prepare_cached(
        "SELECT number, state FROM ensue_jobs INDEXED BY ensue_jobs_lane_heads
         WHERE object = ?1 AND handler = ?2 AND state IN ('available', 'running') AND ordered",
    )?;
    let mut rows = statement.query(lane)?;
    let (mut at_work, mut ready) = (false, None);
    while let Some(row) = rows.next()? {
        match state_of(row, 1)? {
            JobState::Running => at_work = true,
            _ => ready = Some(row.get::<_, i64>(0)? as JobNumber),
        }
    }
    let turned = turn(first, at_work, ready, rules::holds_object(connection, object, now)?.is_some());
    if let Some(number) = turned.parked {
        set_state(connection, number, JobState::Parked)?;
    }
    if let Some(number) = turned.freed {
        set_state(connection, number, JobState::Available)?;
    }
    Ok(())
}

/// A rule on an object has come or gone: what waits of it is held or let go, in every handler.
pub(in super::super) fn turn_object(
    connection: &Connection,
    object: &ObjectKey,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let (from, to) = match rules::holds_object(connection, object, now)? {
        Some(_) => (JobState::Available, JobState::Parked),
        None => (JobState::Parked, JobState::Available),
    };
    connection
        .prepare_cached(
            "UPDATE ensue_jobs SET state = ?3
             WHERE object = ?1 AND turn IS NOT NULL AND NOT ordered AND state = ?2",
        )?
        .execute(params![object.as_str(), from.as_str(), to.as_str()])?;
    let handlers: Vec<String> = connection
        .prepare_cached("SELECT DISTINCT handler FROM ensue_jobs WHERE object = ?1 AND turn IS NOT NULL AND ordered")?
        .query_map([object.as_str()], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    handlers.iter().try_for_each(|handler| turn_lane(connection, &GroupName::stored(handler), object, now))
}

fn set_state(connection: &Connection, number: JobNumber, state: JobState) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE ensue_jobs SET state = ?2 WHERE number = ?1")?
        .execute(params![place(number), state.as_str()])?;
    Ok(())
}
