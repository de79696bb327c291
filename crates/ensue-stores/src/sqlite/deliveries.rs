//! What became of deliveries, and what did they say?

use super::groups::{self, GroupNumber, place, unknown_word};
use super::read::time_of;
use super::writer::Changing;
use ensue_core::positions::{Delivery, DeliveryState, Level, LogLine};
use ensue_core::{GroupName, ObjectKey, Seq, StoreError, Timestamp};
use rusqlite::{Connection, Row, params};

/// Writes what became of deliveries, over what was known of them.
pub(super) fn record(connection: &Connection, group: GroupNumber, deliveries: &[Delivery]) -> rusqlite::Result<()> {
    let mut more = 0;
    for delivery in deliveries {
        let values = params![
            group,
            place(delivery.seq),
            delivery.object.as_ref().map(ObjectKey::as_str),
            delivery.state.as_str(),
            delivery.attempts,
            delivery.error,
            delivery.started_at.as_microsecond(),
            delivery.finished_at.as_microsecond(),
        ];
        let known = connection
            .prepare_cached(
                "UPDATE ensue_deliveries SET object = ?3, state = ?4, attempts = ?5, error = ?6, started_at = ?7,
                 finished_at = ?8 WHERE group_number = ?1 AND seq = ?2",
            )?
            .execute(values)?;
        if known == 0 {
            connection
                .prepare_cached(
                    "INSERT INTO ensue_deliveries
                     (group_number, seq, object, state, attempts, error, started_at, finished_at)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
                )?
                .execute(values)?;
            more += 1;
        }
    }
    count(connection, more)
}

/// Notes that there are so many more deliveries: `purge` must know how many there are without counting them.
pub(super) fn count(connection: &Connection, more: i64) -> rusqlite::Result<()> {
    if more != 0 {
        connection.prepare_cached("UPDATE ensue_positions_state SET deliveries = deliveries + ?1")?.execute([more])?;
    }
    Ok(())
}

/// Writes what deliveries said.
pub(super) fn say(connection: &Connection, group: GroupNumber, lines: &[LogLine]) -> rusqlite::Result<()> {
    let mut insert = connection.prepare_cached(
        "INSERT INTO ensue_delivery_lines (group_number, seq, attempt, at, level, message)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    )?;
    for line in lines {
        let (at, level) = (line.at.as_microsecond(), line.level.as_str());
        insert.execute(params![group, place(line.seq), line.attempt, at, level, line.message])?;
    }
    Ok(())
}

pub(super) fn deliveries(connection: &Connection, seq: Seq) -> rusqlite::Result<Vec<Delivery>> {
    connection
        .prepare_cached(
            "SELECT g.name, d.seq, d.object, d.state, d.attempts, d.error, d.started_at, d.finished_at
             FROM ensue_deliveries d JOIN ensue_groups g ON g.number = d.group_number
             WHERE d.seq = ?1 ORDER BY g.name",
        )?
        .query_map([place(seq)], delivery_of)?
        .collect()
}

fn delivery_of(row: &Row<'_>) -> rusqlite::Result<Delivery> {
    let state = row.get_ref(3)?.as_str()?;
    Ok(Delivery {
        group: GroupName::stored(row.get_ref(0)?.as_str()?),
        seq: row.get::<_, i64>(1)? as Seq,
        object: row.get_ref(2)?.as_str_or_null()?.map(ObjectKey::stored),
        state: DeliveryState::stored(state).ok_or_else(|| unknown_word(3, state))?,
        attempts: row.get(4)?,
        error: row.get(5)?,
        started_at: time_of(row.get(6)?),
        finished_at: time_of(row.get(7)?),
    })
}

pub(super) fn lines(
    connection: &Connection,
    group: &GroupName,
    seq: Seq,
    skip: u64,
    limit: usize,
) -> rusqlite::Result<Vec<LogLine>> {
    let Some(number) = groups::number_of(connection, group)? else { return Ok(Vec::new()) };
    connection
        .prepare_cached(
            "SELECT seq, attempt, at, level, message FROM ensue_delivery_lines
             WHERE group_number = ?1 AND seq = ?2 ORDER BY line LIMIT ?3 OFFSET ?4",
        )?
        .query_map(params![number, place(seq), limit as i64, place(skip)], line_of)?
        .collect()
}

fn line_of(row: &Row<'_>) -> rusqlite::Result<LogLine> {
    let level = row.get_ref(3)?.as_str()?;
    Ok(LogLine {
        seq: row.get::<_, i64>(0)? as Seq,
        attempt: row.get(1)?,
        at: time_of(row.get(2)?),
        level: Level::stored(level).ok_or_else(|| unknown_word(3, level))?,
        message: row.get(4)?,
    })
}

/// A recorded delivery that may go.
struct Old {
    row: i64,
    group: GroupNumber,
    seq: i64,
}

/// Up to `limit` deliveries that ended before `before`, and the oldest beyond `keep`: together they are the beginning
/// of the index by age.
fn old(connection: &Connection, before: Timestamp, keep: u64, limit: usize) -> rusqlite::Result<Vec<Old>> {
    let there: i64 =
        connection.prepare_cached("SELECT deliveries FROM ensue_positions_state")?.query_row([], |row| row.get(0))?;
    let too_many = usize::try_from((there as u64).saturating_sub(keep)).unwrap_or(usize::MAX);
    let mut statement = connection.prepare_cached(
        "SELECT rowid, group_number, seq, finished_at FROM ensue_deliveries ORDER BY finished_at, seq, group_number LIMIT ?1",
    )?;
    let mut rows = statement.query([limit as i64])?;
    let mut old = Vec::new();
    while let Some(row) = rows.next()? {
        if old.len() >= too_many && time_of(row.get(3)?) >= before {
            break;
        }
        old.push(Old { row: row.get(0)?, group: row.get(1)?, seq: row.get(2)? });
    }
    Ok(old)
}

/// Up to `limit` lines that were said before `before` by deliveries of which nothing is recorded, the oldest first. Of
/// what is older, most went with its delivery, so that few are passed over.
fn old_lines(connection: &Connection, before: Timestamp, limit: usize) -> rusqlite::Result<Vec<i64>> {
    connection
        .prepare_cached(
            "SELECT l.line FROM ensue_delivery_lines l INDEXED BY ensue_delivery_lines_age WHERE l.at < ?1
             AND NOT EXISTS (SELECT 1 FROM ensue_deliveries d WHERE d.group_number = l.group_number AND d.seq = l.seq)
             ORDER BY l.at, l.line LIMIT ?2",
        )?
        .query_map(params![before.as_microsecond(), limit as i64], |row| row.get(0))?
        .collect()
}

/// Is there anything to forget?
pub(super) fn any_old(connection: &Connection, before: Timestamp, keep: u64) -> rusqlite::Result<bool> {
    Ok(!old(connection, before, keep, 1)?.is_empty() || !old_lines(connection, before, 1)?.is_empty())
}

/// Forgets old deliveries, with what they said, and what others said that left nothing else.
pub(super) fn purge(
    changing: &mut Changing<'_>,
    before: Timestamp,
    keep: u64,
    limit: usize,
) -> Result<usize, StoreError> {
    changing.sql(|connection| {
        let old = old(connection, before, keep, limit)?;
        let mut lines =
            connection.prepare_cached("DELETE FROM ensue_delivery_lines WHERE group_number = ?1 AND seq = ?2")?;
        let mut delivery = connection.prepare_cached("DELETE FROM ensue_deliveries WHERE rowid = ?1")?;
        for Old { row, group, seq } in &old {
            lines.execute([group, seq])?;
            delivery.execute([row])?;
        }
        count(connection, -(old.len() as i64))?;
        let lines = old_lines(connection, before, limit - old.len())?;
        let mut line = connection.prepare_cached("DELETE FROM ensue_delivery_lines WHERE line = ?1")?;
        lines.iter().try_for_each(|number| line.execute([number]).map(drop))?;
        Ok(old.len() + lines.len())
    })
}
