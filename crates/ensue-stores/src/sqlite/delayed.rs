//! Where do delayed events wait?

use super::append;
use super::read::{self, json_of, time_of, to_of, uuid_of};
use super::writer::Changing;
use ensue_core::store::{Cancelled, Released};
use ensue_core::{Entry, EventId, IdempotencyKey, Json, ObjectKey, Pending, Seq, StoreError, Timestamp, Topic, plan};
use rusqlite::{Connection, OptionalExtension, Row, params};

macro_rules! select_delayed {
    ($rest:literal) => {
        concat!(
            "SELECT id, topic, object, payload, metadata, occurred_at, not_before, to_subscription, seq FROM ensue_delayed ",
            $rest
        )
    };
}

/// Where an event that was once delayed is now.
pub(super) enum Place {
    Pending(Pending),
    Logged(Seq),
}

fn pending_of(row: &Row<'_>) -> rusqlite::Result<Pending> {
    Ok(Pending {
        id: EventId(uuid_of(row, 0)?),
        topic: Topic::stored(row.get_ref(1)?.as_str()?),
        object: row.get_ref(2)?.as_str_or_null()?.map(ObjectKey::stored),
        payload: Json::stored(row.get::<_, String>(3)?),
        metadata: json_of(row, 4)?,
        occurred_at: time_of(row.get(5)?),
        not_before: time_of(row.get(6)?),
        to: to_of(row, 7)?,
    })
}

pub(super) fn insert(
    connection: &Connection,
    id: EventId,
    entry: &Entry,
    accepted_at: Timestamp,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO ensue_delayed
             (id, not_before, topic, object, payload, metadata, occurred_at, to_subscription, key)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?
        .execute(params![
            id.0.as_bytes(),
            entry.not_before.unwrap_or(accepted_at).as_microsecond(),
            entry.topic.as_str(),
            entry.object.as_ref().map(ObjectKey::as_str),
            entry.payload.as_str(),
            entry.metadata.as_str(),
            entry.occurred_at.unwrap_or(accepted_at).as_microsecond(),
            entry.to.as_ref().map(uuid::Uuid::as_bytes),
            entry.key.as_ref().map(IdempotencyKey::as_str),
        ])?;
    Ok(())
}

fn next_due(connection: &Connection) -> rusqlite::Result<Option<Timestamp>> {
    connection
        .prepare_cached("SELECT not_before FROM ensue_delayed WHERE seq IS NULL ORDER BY not_before, accepted LIMIT 1")?
        .query_row([], |row| row.get(0).map(time_of))
        .optional()
}

/// The answer to a release if nothing is due.
pub(super) fn nothing_due(connection: &Connection, clock: Timestamp) -> rusqlite::Result<Option<Released>> {
    let (_, tail) = read::ends(connection)?;
    let next_due = next_due(connection)?;
    if next_due.is_some_and(|due| due <= tail.record_time(clock)) {
        return Ok(None);
    }
    Ok(Some(Released { count: 0, last: tail.seq, next_due }))
}

/// Moves what is due into the log.
pub(super) fn release(changing: &mut Changing<'_>, limit: usize) -> Result<Released, StoreError> {
    let (_, tail) = changing.sql(read::ends)?;
    let now = tail.record_time(changing.clock());
    let due: Vec<Pending> = changing.sql(|connection| {
        let mut statement = connection.prepare_cached(select_delayed!(
            "WHERE seq IS NULL AND not_before <= ?1 ORDER BY not_before, accepted LIMIT ?2"
        ))?;
        let due = statement.query_map(params![now.as_microsecond(), limit as i64], pending_of)?;
        read::up_to_a_page(due, Pending::bytes)
    })?;
    let places = plan::release(&due, tail, &mut changing.known()?)?;
    changing.log(|log| {
        for (pending, &(seq, prev)) in due.iter().zip(&places) {
            log.insert(&append::Row {
                seq,
                prev,
                id: pending.id,
                topic: &pending.topic,
                object: pending.object.as_ref(),
                payload: &pending.payload,
                metadata: &pending.metadata,
                occurred_at: Some(pending.occurred_at),
                recorded_at: now,
                to: pending.to.as_ref(),
            })?;
        }
        Ok(())
    })?;
    changing.sql(|connection| {
        let mut logged = connection
            .prepare_cached("UPDATE ensue_delayed SET seq = ?2, payload = NULL, metadata = NULL WHERE id = ?1")?;
        for (pending, (seq, _)) in due.iter().zip(&places) {
            logged.execute(params![pending.id.0.as_bytes(), *seq as i64])?;
        }
        let last = tail.seq + due.len() as Seq;
        Ok(Released { count: due.len(), last, next_due: next_due(connection)? })
    })
}

pub(super) fn pending(connection: &Connection, limit: usize) -> rusqlite::Result<Vec<Pending>> {
    let mut statement =
        connection.prepare_cached(select_delayed!("WHERE seq IS NULL ORDER BY not_before, accepted LIMIT ?1"))?;
    let pending = statement.query_map([limit as i64], pending_of)?;
    read::up_to_a_page(pending, Pending::bytes)
}

/// How many wait: counted in the index of those alone.
pub(super) fn count(connection: &Connection) -> rusqlite::Result<u64> {
    let mut statement = connection.prepare_cached("SELECT count(*) FROM ensue_delayed WHERE seq IS NULL")?;
    statement.query_row([], |row| Ok(row.get::<_, i64>(0)? as u64))
}

pub(super) fn find(connection: &Connection, id: EventId) -> rusqlite::Result<Option<Place>> {
    connection
        .prepare_cached(select_delayed!("WHERE id = ?1"))?
        .query_row([id.0.as_bytes()], |row| match row.get::<_, Option<i64>>(8)? {
            Some(seq) => Ok(Place::Logged(seq as Seq)),
            None => pending_of(row).map(Place::Pending),
        })
        .optional()
}

pub(super) fn cancel(changing: &mut Changing<'_>, id: EventId) -> Result<Cancelled, StoreError> {
    changing.sql(|connection| {
        let gone = connection
            .prepare_cached("DELETE FROM ensue_delayed WHERE id = ?1 AND seq IS NULL RETURNING key")?
            .query_row([id.0.as_bytes()], |row| row.get::<_, Option<String>>(0))
            .optional()?;
        if let Some(key) = gone {
            connection
                .prepare_cached("DELETE FROM ensue_keys WHERE key = ?1 AND id = ?2")?
                .execute(params![key, id.0.as_bytes()])?;
            return Ok(Cancelled::Gone);
        }
        Ok(match read::find(connection, id)? {
            Some(ensue_core::Found::Logged(event)) => Cancelled::AlreadyLogged(event.seq),
            Some(ensue_core::Found::Pending(_)) | None => Cancelled::Unknown,
        })
    })
}
