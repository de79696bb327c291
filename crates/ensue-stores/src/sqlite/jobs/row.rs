//! How is a job kept as a row?

use super::super::groups::{place, unknown_word};
use super::super::read::{json_of, time_of, uuid_of};
use ensue_core::handling::OnExhausted;
use ensue_core::jobs::{Cause, Job, JobError, JobId, JobNumber, JobState, Settlement};
use ensue_core::{EventId, GroupName, Json, ObjectKey, Seq, Topic};
use rusqlite::{Connection, OptionalExtension, Row};

/// The columns of a whole job, as [`job_of`] reads them.
macro_rules! job_columns {
    () => {
        "number, id, handler, object, ordered, payload, metadata, priority, state, turn, attempts, attempts_max,
         on_exhausted, not_before, enqueued_at, locked_at, started_at, finished_at, worker, fence, lease_until, errors,
         unique_key, event_seq, event_prev, event_id, event_topic, cancel_asked, redriven, result, settled"
    };
}
pub(super) use job_columns;

/// Any priority as SQLite keeps numbers, in the same order.
pub(super) fn stored_priority(priority: u64) -> i64 {
    (priority ^ (1 << 63)) as i64
}

fn priority_of(stored: i64) -> u64 {
    (stored as u64) ^ (1 << 63)
}

pub(super) fn state_of(row: &Row<'_>, column: usize) -> rusqlite::Result<JobState> {
    let word = row.get_ref(column)?.as_str()?;
    JobState::parse(word).ok_or_else(|| unknown_word(column, word))
}

pub(super) fn on_exhausted_of(row: &Row<'_>, column: usize) -> rusqlite::Result<OnExhausted> {
    let word = row.get_ref(column)?.as_str()?;
    OnExhausted::parse(word).ok_or_else(|| unknown_word(column, word))
}

pub(super) fn number_of(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<u64>> {
    Ok(row.get::<_, Option<i64>>(column)?.map(|number| number as u64))
}

fn cause_of(row: &Row<'_>) -> rusqlite::Result<Option<Cause>> {
    let Some(seq) = number_of(row, 23)? else { return Ok(None) };
    Ok(Some(Cause {
        seq,
        prev: number_of(row, 24)?.map(|prev| prev as Seq),
        id: EventId(uuid_of(row, 25)?),
        topic: Topic::stored(row.get_ref(26)?.as_str()?),
    }))
}

pub(super) fn job_of(row: &Row<'_>) -> rusqlite::Result<Job> {
    let time = |column: usize| -> rusqlite::Result<_> { Ok(row.get::<_, Option<i64>>(column)?.map(time_of)) };
    let errors = match row.get_ref(21)?.as_str_or_null()? {
        Some(text) => JobError::stored(text).ok_or_else(|| unknown_word(21, text))?,
        None => Vec::new(),
    };
    let state = state_of(row, 8)?;
    Ok(Job {
        id: JobId(uuid_of(row, 1)?),
        handler: GroupName::stored(row.get_ref(2)?.as_str()?),
        object: row.get_ref(3)?.as_str_or_null()?.map(ObjectKey::stored),
        ordered: row.get(4)?,
        payload: Json::stored(row.get::<_, String>(5)?),
        metadata: json_of(row, 6)?,
        priority: priority_of(row.get(7)?),
        state,
        turn: number_of(row, 9)?,
        attempts: row.get(10)?,
        attempts_max: row.get(11)?,
        on_exhausted: on_exhausted_of(row, 12)?,
        not_before: time(13)?,
        enqueued_at: time_of(row.get(14)?),
        locked_at: time(15)?,
        started_at: time(16)?,
        finished_at: time(17)?,
        worker: row.get(18)?,
        fence: row.get::<_, i64>(19)? as u64,
        lease_until: time(20)?,
        errors,
        unique_key: row.get(22)?,
        cause: cause_of(row)?,
        cancel_asked: row.get(27)?,
        redriven: row.get(28)?,
        result: row.get::<_, Option<String>>(29)?.map(Json::stored),
        settled: Settlement::stored(state, row.get_ref(30)?.as_str_or_null()?),
    })
}

/// The job of an id: its number leads to the row, which must have the same id.
pub(super) fn job(connection: &Connection, id: JobId) -> rusqlite::Result<Option<Job>> {
    Ok(numbered(connection, id.number())?.filter(|job| job.id == id))
}

pub(super) fn numbered(connection: &Connection, number: JobNumber) -> rusqlite::Result<Option<Job>> {
    connection
        .prepare_cached(concat!("SELECT ", job_columns!(), " FROM ensue_jobs WHERE number = ?1"))?
        .query_row([place(number)], job_of)
        .optional()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_priority_comes_back_and_keeps_its_order() {
        let priorities = [0, 1, 9_007, 1 << 53, (1 << 53) + 1, (1 << 63) - 1, 1 << 63, u64::MAX - 1, u64::MAX];
        assert!(priorities.windows(2).all(|pair| stored_priority(pair[0]) < stored_priority(pair[1])));
        assert!(priorities.iter().all(|priority| priority_of(stored_priority(*priority)) == *priority));
    }
}
