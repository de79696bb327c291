//! Which tasks were made when, and how far is each job?
//!
//! Tasks have an index of their own, by handler and time, which no other job is in. A source has few collections: each is
//! read from its place in the index, and what they have is put in order.

use super::super::groups::place;
use super::super::read::time_of;
use super::super::writer::Changing;
use super::row::{job_columns, job_of, state_of};
use super::settle::running;
use ensue_core::jobs::{Held, Job, JobId, Progress};
use ensue_core::room::Room;
use ensue_core::tasks::TaskQuery;
use ensue_core::{StoreError, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};

/// Where a task is in the order of the list, and its number.
type Place = (i64, i64);

pub(super) fn tasks(connection: &Connection, query: &TaskQuery, limit: usize) -> rusqlite::Result<Vec<Job>> {
    let mut places: Vec<Place> = Vec::new();
    for handler in handlers(connection, query)? {
        of_handler(connection, &handler, query, limit, &mut places)?;
        places.sort_unstable();
        places.truncate(limit);
    }
    // Only what is in the list is read whole, and of that no more than a page has room for.
    let mut whole =
        connection.prepare_cached(concat!("SELECT ", job_columns!(), " FROM ensue_jobs WHERE number = ?1"))?;
    let (mut found, mut room) = (Vec::with_capacity(places.len()), Room::of_a_page());
    for (_, number) in places {
        let job = whole.query_row([number], job_of)?;
        if !room.take(job.payload.as_str().len()) {
            break;
        }
        found.push(job);
    }
    Ok(found)
}

/// The handlers that there are tasks of: from one to the next, whatever many tasks each has.
fn handlers(connection: &Connection, query: &TaskQuery) -> rusqlite::Result<Vec<String>> {
    let (mut first, last) = query.handlers();
    let mut next = connection.prepare_cached(
        "SELECT handler FROM ensue_jobs INDEXED BY ensue_jobs_tasks WHERE substr(handler, 1, 5) = 'task.'
         AND handler >= ?1 AND handler <= ?2 ORDER BY handler LIMIT 1",
    )?;
    let mut found = Vec::new();
    while let Some(handler) = next.query_row([&first, &last], |row| row.get::<_, String>(0)).optional()? {
        // The smallest text behind it.
        first = format!("{handler}\u{1}");
        found.push(handler);
    }
    Ok(found)
}

fn of_handler(
    connection: &Connection,
    handler: &str,
    query: &TaskQuery,
    limit: usize,
    found: &mut Vec<Place>,
) -> rusqlite::Result<()> {
    let mut statement = connection.prepare_cached(
        "SELECT enqueued_at, number, state FROM ensue_jobs INDEXED BY ensue_jobs_tasks
         WHERE substr(handler, 1, 5) = 'task.' AND handler = ?1
         AND enqueued_at >= ?2 AND enqueued_at <= ?3 AND (enqueued_at, number) > (?4, ?5) ORDER BY enqueued_at, number",
    )?;
    let (after, number) = query.after.map_or((i64::MIN, 0), |(at, number)| (at.as_microsecond(), place(number)));
    let from = query.from.as_microsecond().max(after);
    let mut rows = statement.query(params![handler, from, query.to.as_microsecond(), after, number])?;
    let mut taken = 0;
    while let Some(row) = rows.next()?.filter(|_| taken < limit) {
        if query.states.is_empty() || query.states.contains(&state_of(row, 2)?) {
            found.push((row.get(0)?, row.get(1)?));
            taken += 1;
        }
    }
    Ok(())
}

/// Writes how far a job is, if it runs under this fence.
pub(super) fn report(changing: &mut Changing<'_>, held: Held, progress: &Progress) -> Result<bool, StoreError> {
    changing.sql(|connection| {
        if running(connection, held)?.is_none() {
            return Ok(false);
        }
        connection
            .prepare_cached(
                "INSERT INTO ensue_job_progress AS p (number, done, total, unit, at) VALUES (?1, ?2, ?3, ?4, ?5)
                 ON CONFLICT (number) DO UPDATE SET done = excluded.done, total = excluded.total, unit = excluded.unit,
                 at = excluded.at WHERE excluded.at >= p.at",
            )?
            .execute(params![
                place(held.id.number()),
                place(progress.done),
                progress.total.map(place),
                progress.unit,
                progress.at.as_microsecond(),
            ])?;
        Ok(true)
    })
}

pub(super) fn progress(connection: &Connection, ids: &[JobId]) -> rusqlite::Result<Vec<Option<Progress>>> {
    let mut statement = connection.prepare_cached(
        "SELECT p.done, p.total, p.unit, p.at FROM ensue_job_progress p JOIN ensue_jobs j ON j.number = p.number
         WHERE p.number = ?1 AND j.id = ?2",
    )?;
    let mut one =
        |id: &JobId| statement.query_row(params![place(id.number()), id.0.as_bytes()], progress_of).optional();
    ids.iter().map(&mut one).collect()
}

fn progress_of(row: &Row<'_>) -> rusqlite::Result<Progress> {
    let at: Timestamp = time_of(row.get(3)?);
    let total = row.get::<_, Option<i64>>(1)?.map(|total| total as u64);
    Ok(Progress { done: row.get::<_, i64>(0)? as u64, total, unit: row.get(2)?, at })
}
