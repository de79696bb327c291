//! Which schedules are there, and what became of their occurrences?
//!
//! Whether a rule holds a schedule is noted in its row, by the change of the rule (`rules.rs`): so what is held is in no index that is
//! looked at for what is due.

use super::SqliteStore;
use super::groups::place;
use super::jobs::send;
use super::read::{time_of, uuid_of};
use super::writer::Changing;
use async_trait::async_trait;
use ensue_core::event::whole_microseconds;
use ensue_core::jobs::{Enqueued, JobId, NewJob};
use ensue_core::room::Room;
use ensue_core::schedules::port::{DECLARED_MAX, RUNS_MAX, SCHEDULES_MAX, check, too_many};
use ensue_core::schedules::{
    Declared, Declarer, Fired, Firing, Kept, Makes, PutSchedule, Run, RunOutcome, Schedules, What,
};
use ensue_core::{Appended, Entry, GroupName, Invalid, Json, StoreError, Timestamp};
use jiff::SignedDuration;
use rusqlite::{Connection, OptionalExtension, Row, params};
use std::collections::HashSet;
use uuid::Uuid;

/// The tables.
pub(super) const TABLES: &str = "
-- One row.
CREATE TABLE ensue_schedules_state (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL,
    count   INTEGER NOT NULL  -- rows of ensue_schedules
) STRICT;
INSERT INTO ensue_schedules_state VALUES (1, 0, 0);
CREATE TABLE ensue_schedules (
    name       TEXT PRIMARY KEY,
    version    INTEGER NOT NULL,
    definition TEXT NOT NULL,
    managed_by TEXT,
    watermark  INTEGER NOT NULL, -- microseconds, as all times here
    due        INTEGER,
    held       INTEGER NOT NULL, -- is there a rule?
    runs       INTEGER NOT NULL, -- the number of the last run
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX ensue_schedules_due ON ensue_schedules (due, name) WHERE due IS NOT NULL AND NOT held;
CREATE INDEX ensue_schedules_managed ON ensue_schedules (name) WHERE managed_by IS NOT NULL;
CREATE TABLE ensue_schedule_runs (
    name       TEXT NOT NULL,
    number     INTEGER NOT NULL,
    occurrence INTEGER NOT NULL,
    at         INTEGER NOT NULL,
    manual     INTEGER NOT NULL,
    event_seq  INTEGER,
    job        BLOB,
    overlapped INTEGER NOT NULL, -- is it the job of an earlier one?
    skipped    TEXT,
    PRIMARY KEY (name, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE ensue_schedule_declarations (
    process BLOB NOT NULL,
    name    TEXT NOT NULL,
    until   INTEGER NOT NULL,
    PRIMARY KEY (process, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX ensue_schedule_declarations_name ON ensue_schedule_declarations (name, until);
CREATE TRIGGER ensue_schedules_gone AFTER DELETE ON ensue_schedules BEGIN
    DELETE FROM ensue_schedule_runs WHERE name = OLD.name;
    UPDATE ensue_schedules_state SET count = count - 1;
END;
";

/// Who declares schedules has one row that says until when, so that to say it again writes that and not every name.
pub(super) const DECLARERS: &str = "
CREATE TABLE ensue_schedule_declarers (
    process BLOB PRIMARY KEY,
    until   INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO ensue_schedule_declarers SELECT process, max(until) FROM ensue_schedule_declarations GROUP BY process;
DROP INDEX ensue_schedule_declarations_name;
ALTER TABLE ensue_schedule_declarations DROP COLUMN until;
CREATE INDEX ensue_schedule_declarations_name ON ensue_schedule_declarations (name);
CREATE TRIGGER ensue_schedule_declarer_gone AFTER DELETE ON ensue_schedule_declarers BEGIN
    DELETE FROM ensue_schedule_declarations WHERE process = OLD.process;
END;
";

/// Schedules, as they are kept.
macro_rules! select_schedules {
    ($rest:literal) => {
        concat!(
            "SELECT name, version, definition, managed_by, watermark, due, held, created_at, updated_at FROM ensue_schedules ",
            $rest
        )
    };
}

fn kept_of(row: &Row<'_>) -> rusqlite::Result<Kept> {
    Ok(Kept {
        name: GroupName::stored(row.get_ref(0)?.as_str()?),
        version: row.get::<_, i64>(1)? as u64,
        definition: Json::stored(row.get::<_, String>(2)?),
        managed_by: row.get(3)?,
        watermark: time_of(row.get(4)?),
        due: row.get::<_, Option<i64>>(5)?.map(time_of),
        held: row.get(6)?,
        created_at: time_of(row.get(7)?),
        updated_at: time_of(row.get(8)?),
    })
}

fn find(connection: &Connection, name: &GroupName) -> rusqlite::Result<Option<Kept>> {
    connection.prepare_cached(select_schedules!("WHERE name = ?1"))?.query_row([name.as_str()], kept_of).optional()
}

fn page(connection: &Connection, after: Option<&GroupName>, limit: usize) -> rusqlite::Result<Vec<Kept>> {
    let mut page = connection.prepare_cached(select_schedules!("WHERE name > ?1 ORDER BY name LIMIT ?2"))?;
    // Before every name.
    let after = after.map_or("", GroupName::as_str);
    page.query_map(params![after, limit as i64], kept_of)?.collect()
}

fn due(connection: &Connection, now: Timestamp, limit: usize) -> rusqlite::Result<Vec<Kept>> {
    let mut statement = connection.prepare_cached(select_schedules!(
        "WHERE due IS NOT NULL AND NOT held AND due <= ?1 ORDER BY due, name LIMIT ?2"
    ))?;
    let mut rows = statement.query(params![now.as_microsecond(), limit as i64])?;
    let (mut due, mut room) = (Vec::new(), Room::of_a_page());
    while let Some(row) = rows.next()? {
        // Its size first: what does not fit is not copied.
        if !room.take(row.get_ref(2)?.as_str()?.len()) {
            break;
        }
        due.push(kept_of(row)?);
    }
    Ok(due)
}

fn next(connection: &Connection) -> rusqlite::Result<Option<Timestamp>> {
    connection
        .prepare_cached(
            "SELECT due FROM ensue_schedules WHERE due IS NOT NULL AND NOT held ORDER BY due, name LIMIT 1",
        )?
        .query_row([], |row| row.get::<_, i64>(0).map(time_of))
        .optional()
}

/// A rule on this schedule was set or lifted.
pub(super) fn rule_changed(connection: &Connection, name: &GroupName) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "UPDATE ensue_schedules SET held = EXISTS (
                 SELECT 1 FROM ensue_rules WHERE kind IN ('pause', 'block') AND scope = 'schedule:' || ?1) WHERE name = ?1",
        )?
        .execute([name.as_str()])
        .map(drop)
}

fn put(changing: &mut Changing<'_>, put: &PutSchedule) -> Result<Option<Kept>, StoreError> {
    let now = changing.now();
    let there = changing.sql(|connection| find(connection, &put.name))?;
    if there.as_ref().map(|there| (there.version, there.watermark)) != put.over {
        return Ok(None);
    }
    let is_new = there.is_none();
    let (version, count) = changing.sql(|connection| {
        connection
            .prepare_cached(
                "UPDATE ensue_schedules_state SET version = version + 1, count = count + ?1 RETURNING version, count",
            )?
            .query_row([is_new], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?)))
    })?;
    if is_new && count as usize > SCHEDULES_MAX {
        return Err(too_many());
    }
    changing.sql(|connection| {
        connection
            .prepare_cached(
                "INSERT INTO ensue_schedules
                 (name, version, definition, managed_by, watermark, due, held, runs, created_at, updated_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, 0, 0, ?7, ?7)
                 ON CONFLICT (name) DO UPDATE SET version = ?2, definition = ?3, managed_by = ?4, watermark = ?5, due = ?6,
                     updated_at = ?7",
            )?
            .execute(params![
                put.name.as_str(),
                version,
                put.definition.as_str(),
                put.managed_by,
                put.watermark.as_microsecond(),
                put.due.map(Timestamp::as_microsecond),
                now.as_microsecond(),
            ])?;
        rule_changed(connection, &put.name)?;
        find(connection, &put.name)
    })
}

fn delete(connection: &Connection, name: &GroupName) -> rusqlite::Result<bool> {
    connection
        .prepare_cached("DELETE FROM ensue_schedules WHERE name = ?1")?
        .execute([name.as_str()])
        .map(|gone| gone == 1)
}

/// Moves the watermark, if it is where it was; none if it may be fired.
fn move_on(connection: &Connection, firing: &Firing) -> rusqlite::Result<Option<Fired>> {
    let there = find(connection, &firing.name)?;
    let Some(there) = there.filter(|there| there.version == firing.version) else { return Ok(Some(Fired::Lost)) };
    if firing.moves.is_some_and(|moves| moves.from != there.watermark) {
        return Ok(Some(Fired::Lost));
    }
    if there.held {
        return Ok(Some(Fired::Held));
    }
    if let Some(moves) = firing.moves {
        connection.prepare_cached("UPDATE ensue_schedules SET watermark = ?2, due = ?3 WHERE name = ?1")?.execute(
            params![firing.name.as_str(), moves.to.as_microsecond(), moves.due.map(Timestamp::as_microsecond)],
        )?;
    }
    Ok(None)
}

fn fire(changing: &mut Changing<'_>, firings: Vec<Firing>) -> Result<Vec<Fired>, StoreError> {
    let refused: Vec<Option<Fired>> = changing
        .sql(|connection| firings.iter().map(|firing| move_on(connection, firing)).collect::<rusqlite::Result<_>>())?;
    // Together: that is one look at the end of the log, and one draw of numbers.
    let (mut events, mut jobs): (Vec<Entry>, Vec<NewJob>) = (Vec::new(), Vec::new());
    let fire = firings.iter().zip(&refused).filter(|(_, refused)| refused.is_none());
    for run in fire.flat_map(|(firing, _)| &firing.runs) {
        match &run.what {
            What::Fires(Makes::Event(entry)) => events.push(entry.clone()),
            What::Fires(Makes::Job(job)) => jobs.push(job.clone()),
            What::Skipped(_) => {}
        }
    }
    let appended = if events.is_empty() { Vec::new() } else { changing.append(&events)? };
    let sent = if jobs.is_empty() { Vec::new() } else { send::enqueue(changing, &jobs)? };
    let (mut appended, mut sent, now) = (appended.into_iter(), sent.into_iter(), changing.now());
    changing.sql(|connection| {
        let write = |(firing, refused): (Firing, Option<Fired>)| match refused {
            Some(refused) => Ok(refused),
            None => write_runs(connection, firing, &mut appended, &mut sent, now).map(Fired::Done),
        };
        firings.into_iter().zip(refused).map(write).collect()
    })
}

fn write_runs(
    connection: &Connection,
    firing: Firing,
    appended: &mut impl Iterator<Item = Appended>,
    sent: &mut impl Iterator<Item = Enqueued>,
    now: Timestamp,
) -> rusqlite::Result<Vec<Run>> {
    let (name, count) = (firing.name, firing.runs.len() as i64);
    if count == 0 {
        return Ok(Vec::new());
    }
    let last: i64 = connection
        .prepare_cached("UPDATE ensue_schedules SET runs = runs + ?2 WHERE name = ?1 RETURNING runs")?
        .query_row(params![name.as_str(), count], |row| row.get(0))?;
    let mut runs = Vec::with_capacity(firing.runs.len());
    for (new, number) in firing.runs.into_iter().zip(last - count + 1..) {
        let outcome = match new.what {
            What::Skipped(reason) => RunOutcome::Skipped(reason),
            What::Fires(Makes::Event(_)) => RunOutcome::Event(appended.next().and_then(|event| event.seq).unwrap_or(0)),
            What::Fires(Makes::Job(_)) => match sent.next() {
                Some(job) if job.is_new => RunOutcome::Job(job.id),
                Some(job) => RunOutcome::Overlapped(job.id),
                None => return Err(rusqlite::Error::QueryReturnedNoRows),
            },
        };
        let occurrence = whole_microseconds(new.occurrence);
        let run = Run { number: number as u64, occurrence, at: now, manual: new.manual, outcome };
        insert_run(connection, &name, &run)?;
        runs.push(run);
    }
    connection
        .prepare_cached("DELETE FROM ensue_schedule_runs WHERE name = ?1 AND number <= ?2")?
        .execute(params![name.as_str(), last - place(RUNS_MAX)])?;
    Ok(runs)
}

fn insert_run(connection: &Connection, name: &GroupName, run: &Run) -> rusqlite::Result<()> {
    let (seq, job, overlapped, skipped) = match &run.outcome {
        RunOutcome::Event(seq) => (Some(place(*seq)), None, false, None),
        RunOutcome::Job(job) => (None, Some(job), false, None),
        RunOutcome::Overlapped(job) => (None, Some(job), true, None),
        RunOutcome::Skipped(reason) => (None, None, false, Some(reason)),
    };
    connection
        .prepare_cached(
            "INSERT INTO ensue_schedule_runs (name, number, occurrence, at, manual, event_seq, job, overlapped, skipped)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)",
        )?
        .execute(params![
            name.as_str(),
            place(run.number),
            run.occurrence.as_microsecond(),
            run.at.as_microsecond(),
            run.manual,
            seq,
            job.map(|job| job.0.as_bytes()),
            overlapped,
            skipped,
        ])?;
    Ok(())
}

fn run_of(row: &Row<'_>) -> rusqlite::Result<Run> {
    let (seq, skipped) = (row.get::<_, Option<i64>>(4)?, row.get::<_, Option<String>>(7)?);
    let outcome = match (seq, skipped) {
        (Some(seq), _) => RunOutcome::Event(seq as u64),
        (None, Some(reason)) => RunOutcome::Skipped(reason),
        (None, None) => {
            let job = JobId(uuid_of(row, 5)?);
            if row.get(6)? { RunOutcome::Overlapped(job) } else { RunOutcome::Job(job) }
        }
    };
    Ok(Run {
        number: row.get::<_, i64>(0)? as u64,
        occurrence: time_of(row.get(1)?),
        at: time_of(row.get(2)?),
        manual: row.get(3)?,
        outcome,
    })
}

fn runs(connection: &Connection, name: &GroupName, before: Option<u64>, limit: usize) -> rusqlite::Result<Vec<Run>> {
    connection
        .prepare_cached(
            "SELECT number, occurrence, at, manual, event_seq, job, overlapped, skipped FROM ensue_schedule_runs
             WHERE name = ?1 AND number < ?2 ORDER BY number DESC LIMIT ?3",
        )?
        .query_map(params![name.as_str(), before.map_or(i64::MAX, place), limit as i64], run_of)?
        .collect()
}

fn declare(
    connection: &Connection,
    process: Uuid,
    names: &[GroupName],
    lapsed: Timestamp,
    until: Timestamp,
) -> rusqlite::Result<Declared> {
    connection
        .prepare_cached(
            "INSERT INTO ensue_schedule_declarers (process, until) VALUES (?1, ?2)
             ON CONFLICT (process) DO UPDATE SET until = excluded.until",
        )?
        .execute(params![process.as_bytes(), until.as_microsecond()])?;
    connection
        .prepare_cached("DELETE FROM ensue_schedule_declarers WHERE until <= ?1")?
        .execute([lapsed.as_microsecond()])?;
    // What it said before is there already: only what is new or gone is written.
    let mut before = HashSet::new();
    let mut said = connection.prepare_cached("SELECT name FROM ensue_schedule_declarations WHERE process = ?1")?;
    let mut rows = said.query([process.as_bytes()])?;
    while let Some(row) = rows.next()? {
        before.insert(GroupName::stored(row.get_ref(0)?.as_str()?));
    }
    let mut note =
        connection.prepare_cached("INSERT INTO ensue_schedule_declarations (process, name) VALUES (?1, ?2)")?;
    let now_said: HashSet<&GroupName> = names.iter().collect();
    for name in now_said.iter().filter(|name| !before.contains(**name)) {
        note.execute(params![process.as_bytes(), name.as_str()])?;
    }
    let mut take_back =
        connection.prepare_cached("DELETE FROM ensue_schedule_declarations WHERE process = ?1 AND name = ?2")?;
    for name in before.iter().filter(|name| !now_said.contains(name)) {
        take_back.execute(params![process.as_bytes(), name.as_str()])?;
    }
    let removed = names_of(
        connection,
        "SELECT name FROM ensue_schedules s WHERE managed_by IS NOT NULL AND NOT EXISTS (
             SELECT 1 FROM ensue_schedule_declarations d WHERE d.name = s.name) ORDER BY name",
    )?;
    for name in &removed {
        delete(connection, name)?;
    }
    let mut missing = names.to_vec();
    missing.sort();
    missing.dedup();
    let mut lacking = Vec::new();
    for name in missing {
        if find(connection, &name)?.is_none() {
            lacking.push(name);
        }
    }
    Ok(Declared { missing: lacking, removed })
}

fn names_of(connection: &Connection, sql: &str) -> rusqlite::Result<Vec<GroupName>> {
    connection.prepare_cached(sql)?.query_map([], |row| Ok(GroupName::stored(row.get_ref(0)?.as_str()?)))?.collect()
}

#[async_trait]
impl Schedules for SqliteStore {
    async fn put_schedule(&self, new: PutSchedule) -> Result<Option<Kept>, StoreError> {
        let new = new.in_microseconds();
        self.change(move |changing| put(changing, &new)).await
    }

    async fn schedule(&self, name: &GroupName) -> Result<Option<Kept>, StoreError> {
        let name = name.clone();
        self.look_at_positions(move |connection| find(connection, &name)).await
    }

    async fn schedules(&self, after: Option<&GroupName>, limit: usize) -> Result<Vec<Kept>, StoreError> {
        let after = after.cloned();
        self.look_at_positions(move |connection| page(connection, after.as_ref(), limit)).await
    }

    async fn delete_schedule(&self, name: &GroupName) -> Result<bool, StoreError> {
        let name = name.clone();
        self.change(move |changing| changing.sql(|connection| delete(connection, &name))).await
    }

    async fn due_schedules(&self, now: Timestamp, limit: usize) -> Result<Vec<Kept>, StoreError> {
        self.look_at_positions(move |connection| due(connection, now, limit)).await
    }

    async fn next_schedule(&self) -> Result<Option<Timestamp>, StoreError> {
        self.look_at_positions(next).await
    }

    async fn fire(&self, firings: Vec<Firing>) -> Result<Vec<Fired>, StoreError> {
        check(&firings)?;
        self.change_of(firings.len() * 3, move |changing| fire(changing, firings)).await
    }

    async fn schedule_runs(&self, name: &GroupName, before: Option<u64>, limit: usize) -> Result<Vec<Run>, StoreError> {
        let name = name.clone();
        self.look_at_positions(move |connection| runs(connection, &name, before, limit)).await
    }

    async fn declare_schedules(
        &self,
        process: Uuid,
        names: &[GroupName],
        lease: SignedDuration,
    ) -> Result<Declared, StoreError> {
        if names.len() > DECLARED_MAX {
            return Err(Invalid::new("names", format!("are {}; declare up to {DECLARED_MAX}", names.len())).into());
        }
        let names = names.to_vec();
        self.change(move |changing| {
            let now = changing.now();
            let until = super::slots::lease_end(now, lease);
            // What has lapsed counts for one lease more.
            let lapsed = now.checked_sub(lease).unwrap_or(Timestamp::MIN);
            changing.sql(|connection| declare(connection, process, &names, lapsed, until))
        })
        .await
    }

    async fn declarers(&self, name: Option<&GroupName>) -> Result<Vec<Declarer>, StoreError> {
        let name = name.map(ToString::to_string);
        self.look_at_positions(move |connection| {
            // Who declares nothing is none.
            let mut all = connection.prepare_cached(
                "SELECT process, until FROM ensue_schedule_declarers p WHERE EXISTS (
                     SELECT 1 FROM ensue_schedule_declarations d WHERE d.process = p.process AND (?1 IS NULL OR d.name = ?1)
                 ) ORDER BY process",
            )?;
            let declarer = |row: &Row<'_>| {
                Ok(Declarer { process: uuid_of(row, 0)?, until: time_of(row.get(1)?) })
            };
            all.query_map([name], declarer)?.collect()
        })
        .await
    }

    async fn undeclare_schedules(&self, process: Uuid) -> Result<(), StoreError> {
        self.change(move |changing| {
            changing.sql(|connection| {
                connection
                    .prepare_cached("DELETE FROM ensue_schedule_declarers WHERE process = ?1")?
                    .execute([process.as_bytes()])
                    .map(drop)
            })
        })
        .await
    }
}
