//! How is a planned append carried out?

use super::heads::Heads;
use super::{delayed, error, read};
use ensue_core::plan::{self, KEY_WINDOW, KeyRecord, Known, Placement, Plan, Tail};
use ensue_core::{Appended, Entry, EventId, IdempotencyKey, Json, ObjectKey, Seq, StoreError, Timestamp, Topic};
use rand::RngCore;
use rusqlite::{CachedStatement, Connection, OptionalExtension, params};
use uuid::Uuid;

/// What the plan asks for, from a connection that holds the write lock.
pub(super) struct SqliteKnown<'c> {
    pub connection: &'c Connection,
    pub heads: &'c mut Heads,
    pub first: Seq,
    pub now: Timestamp,
}

impl Known for SqliteKnown<'_> {
    fn key(&mut self, key: &IdempotencyKey) -> Result<Option<KeyRecord>, StoreError> {
        let horizon = (self.now - KEY_WINDOW).as_microsecond();
        self.connection
            .prepare_cached("SELECT fingerprint, id, seq, prev FROM ensue_keys WHERE key = ?1 AND recorded_at > ?2")
            .and_then(|mut statement| {
                statement
                    .query_row(params![key.as_str(), horizon], |row| {
                        let place = |seq: Option<i64>| seq.map(|seq| seq as Seq);
                        Ok(KeyRecord {
                            fingerprint: row.get(0)?,
                            answer: Appended {
                                id: EventId(read::uuid_of(row, 1)?),
                                seq: place(row.get(2)?),
                                prev: place(row.get(3)?),
                                repeated: false,
                            },
                        })
                    })
                    .optional()
            })
            .map_err(error::of_write)
    }

    fn head(&mut self, object: &ObjectKey) -> Result<Option<Seq>, StoreError> {
        let known = self.heads.newest(object, self.connection).map_err(error::of_write)?;
        // A head that was trimmed since it was noted is none.
        Ok(known.filter(|seq| *seq >= self.first))
    }

    fn random(&mut self) -> [u8; 10] {
        let mut bytes = [0; 10];
        rand::rng().fill_bytes(&mut bytes);
        bytes
    }
}

/// Appends one caller's batch inside an open write transaction. With an error of the plan nothing was written.
pub(super) fn append(
    connection: &Connection,
    heads: &mut Heads,
    clock: Timestamp,
    batch: &[Entry],
) -> Result<Vec<Appended>, StoreError> {
    let (first, tail) = read::ends(connection).map_err(error::of_write)?;
    append_at(connection, heads, clock, first, tail, batch).map(|(answers, _)| answers)
}

/// The same for a caller who already knows where the log begins and ends; answers where it ends now.
pub(super) fn append_at(
    connection: &Connection,
    heads: &mut Heads,
    clock: Timestamp,
    first: Seq,
    tail: Tail,
    batch: &[Entry],
) -> Result<(Vec<Appended>, Tail), StoreError> {
    heads.trust_only_at(tail.seq, connection).map_err(error::of_write)?;
    let now = tail.record_time(clock);
    let plan = plan::append(batch, now, tail, &mut SqliteKnown { connection, heads, first, now })?;
    write(connection, heads, batch, &plan).map_err(error::of_write)?;
    Ok((plan.placements.iter().map(Placement::answer).collect(), plan.tail_after(tail)))
}

/// Was a batch refused by the plan, before anything of it was written?
pub(super) fn is_refusal(error: &StoreError) -> bool {
    match error {
        StoreError::KeyConflict { .. } | StoreError::Conflict(_) | StoreError::Invalid(_) => true,
        StoreError::Full(_)
        | StoreError::Overloaded(_)
        | StoreError::Unavailable(_)
        | StoreError::InDoubt(_)
        | StoreError::Closed
        | StoreError::Locked(_)
        | StoreError::Unsupported(_)
        | StoreError::Schema(_)
        | StoreError::Stopped(_)
        | StoreError::Engine(_) => false,
    }
}

/// Is it the fault of what was to be written, and of nothing else? Others then need not suffer from it.
pub(super) fn is_of_the_entries(error: &StoreError) -> bool {
    is_refusal(error) || matches!(error, StoreError::Engine(_))
}

fn write(connection: &Connection, heads: &mut Heads, batch: &[Entry], plan: &Plan) -> rusqlite::Result<()> {
    let mut log = LogWriter::new(connection, heads)?;
    for (entry, placement) in batch.iter().zip(&plan.placements) {
        match *placement {
            Placement::Repeated(_) => continue,
            Placement::Delayed { id } => delayed::insert(connection, id, entry, plan.recorded_at)?,
            Placement::Logged { id, seq, prev } => log.insert(&Row {
                seq,
                prev,
                id,
                topic: &entry.topic,
                object: entry.object.as_ref(),
                payload: &entry.payload,
                metadata: &entry.metadata,
                occurred_at: entry.occurred_at,
                recorded_at: plan.recorded_at,
                to: entry.to.as_ref(),
            })?,
        }
        if let Some(key) = &entry.key {
            insert_key(connection, key, entry.fingerprint(), placement.answer(), plan.recorded_at)?;
        }
    }
    Ok(())
}

fn insert_key(
    connection: &Connection,
    key: &IdempotencyKey,
    fingerprint: [u8; 32],
    answer: Appended,
    recorded_at: Timestamp,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT OR REPLACE INTO ensue_keys (key, fingerprint, id, seq, prev, recorded_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            key.as_str(),
            fingerprint,
            answer.id.0.as_bytes(),
            answer.seq.map(|seq| seq as i64),
            answer.prev.map(|seq| seq as i64),
            recorded_at.as_microsecond(),
        ])?;
    Ok(())
}

/// A row of the log, borrowed from wherever it is.
pub(super) struct Row<'a> {
    pub seq: Seq,
    pub prev: Option<Seq>,
    pub id: EventId,
    pub topic: &'a Topic,
    pub object: Option<&'a ObjectKey>,
    pub payload: &'a Json,
    pub metadata: &'a Json,
    pub occurred_at: Option<Timestamp>,
    pub recorded_at: Timestamp,
    pub to: Option<&'a Uuid>,
}

/// Inserts planned rows at the end of the log and notes the heads they make.
pub(super) struct LogWriter<'c> {
    insert: CachedStatement<'c>,
    heads: &'c mut Heads,
}

impl<'c> LogWriter<'c> {
    pub fn new(connection: &'c Connection, heads: &'c mut Heads) -> rusqlite::Result<Self> {
        let insert = connection.prepare_cached(
            "INSERT INTO ensue_events
             (seq, prev, id, topic, object, payload, metadata, occurred_at, recorded_at, to_subscription)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
        )?;
        Ok(Self { insert, heads })
    }

    pub fn insert(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        let metadata = Some(row.metadata.as_str()).filter(|metadata| *metadata != "{}");
        let occurred_at = row.occurred_at.filter(|at| *at != row.recorded_at);
        self.insert.execute(params![
            row.seq as i64,
            row.prev.map(|seq| seq as i64),
            row.id.0.as_bytes(),
            row.topic.as_str(),
            row.object.map(ObjectKey::as_str),
            row.payload.as_str(),
            metadata,
            occurred_at.map(|at| at.as_microsecond()),
            row.recorded_at.as_microsecond(),
            row.to.map(Uuid::as_bytes),
        ])?;
        self.heads.placed(row.object, row.seq, row.to.is_some());
        Ok(())
    }
}
