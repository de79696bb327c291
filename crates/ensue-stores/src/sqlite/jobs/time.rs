//! Whose time has come, and whose has passed?

use super::super::read::{time_of, uuid_of};
use super::super::writer::Changing;
use super::lane;
use super::row::{job_columns, job_of};
use super::send::draw;
use ensue_core::jobs::{Job, JobState, Woken};
use ensue_core::{StoreError, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

fn due(connection: &Connection, now: Timestamp, limit: usize) -> rusqlite::Result<Vec<Job>> {
    connection
        .prepare_cached(concat!(
            "SELECT ",
            job_columns!(),
            " FROM ensue_jobs INDEXED BY ensue_jobs_due WHERE state IN ('scheduled', 'retrying') AND not_before <= ?1
              ORDER BY not_before, number LIMIT ?2"
        ))?
        .query_map(params![now.as_microsecond(), limit as i64], job_of)?
        .collect()
}

fn expired(connection: &Connection, now: Timestamp, limit: usize) -> rusqlite::Result<Vec<Job>> {
    connection
        .prepare_cached(concat!(
            "SELECT ",
            job_columns!(),
            " FROM ensue_jobs INDEXED BY ensue_jobs_leases WHERE state = 'running' AND lease_until <= ?1
              ORDER BY lease_until, number LIMIT ?2"
        ))?
        .query_map(params![now.as_microsecond(), limit as i64], job_of)?
        .collect()
}

/// When the next job is due, or its lease passes: those that were just found not counted.
fn next_due(connection: &Connection, found: &[Job]) -> rusqlite::Result<Option<Timestamp>> {
    let due: Option<i64> = connection
        .prepare_cached(
            "SELECT not_before FROM ensue_jobs INDEXED BY ensue_jobs_due WHERE state IN ('scheduled', 'retrying')
             ORDER BY not_before LIMIT 1",
        )?
        .query_row([], |row| row.get(0))
        .optional()?;
    let lease: Option<i64> = connection
        .prepare_cached(
            "SELECT lease_until FROM ensue_jobs INDEXED BY ensue_jobs_leases WHERE state = 'running'
             ORDER BY lease_until, number LIMIT 1 OFFSET ?1",
        )?
        .query_row([found.len() as i64], |row| row.get(0))
        .optional()?;
    Ok(due.into_iter().chain(lease).min().map(time_of))
}

/// If nothing is due: what a look found.
pub(super) fn look(connection: &Connection, now: Timestamp, limit: usize) -> rusqlite::Result<Option<Woken>> {
    if !due(connection, now, 1)?.is_empty() {
        return Ok(None);
    }
    let expired = expired(connection, now, limit)?;
    let next_due = next_due(connection, &expired)?;
    Ok(Some(Woken { count: 0, expired, next_due }))
}

pub(super) fn wake(changing: &mut Changing<'_>, limit: usize) -> Result<Woken, StoreError> {
    let now = changing.now();
    changing.sql(|connection| {
        let due = due(connection, now, limit)?;
        for job in &due {
            go(connection, job, now)?;
        }
        let expired = expired(connection, now, limit)?;
        let next_due = next_due(connection, &expired)?;
        Ok(Woken { count: due.len(), expired, next_due })
    })
}

/// A job waits no longer for its time. One that had no place yet gets the last one.
pub(super) fn go(connection: &Connection, job: &Job, now: Timestamp) -> rusqlite::Result<JobState> {
    let turn = match job.turn {
        Some(turn) => turn,
        None => draw(connection, 1)?,
    };
    lane::let_run(connection, job, turn, now)
}

/// H6: the leases of jobs that ran in processes which have ended are over. Who claims from outside keeps what it has.
pub(in super::super) fn let_go_of_processes(connection: &Connection, now: Timestamp) -> rusqlite::Result<()> {
    let members = connection
        .prepare_cached("SELECT id FROM ensue_members WHERE kind = 'handler'")?
        .query_map([], |row| uuid_of(row, 0))?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let mut expire = connection.prepare_cached(
        "UPDATE ensue_jobs SET lease_until = ?2 WHERE state = 'running' AND lease_until > ?2 AND worker = ?1",
    )?;
    members.iter().try_for_each(|id| expire.execute(params![id.to_string(), now.as_microsecond()]).map(drop))
}
