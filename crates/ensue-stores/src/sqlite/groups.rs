//! Which groups are there, and where do they stand?
//!
//! What belongs to a group refers to it by its number. Forgetting a group takes its name and its slots away at once;
//! the rest, which may be hundreds of thousands of rows, goes in short turns between which others write.

use super::writer::Changing;
use super::{read, slots, subscriptions};
use ensue_core::positions::Unreplayable;
use ensue_core::positions::replay::{UnderWay, check_range, replayed};
use ensue_core::positions::{GroupKind, GroupState, Lost, NewGroup, Start, check_cursor};
use ensue_core::retention::Bounds;
use ensue_core::{GroupName, Seq, StoreError, Timestamp};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Row, params};

/// How many rows of a forgotten group go in one turn: about 10 ms.
const SWEEP_ROWS: usize = 2_000;

/// The number of a group, never used again.
pub(super) type GroupNumber = i64;

/// A place as SQLite keeps it; nothing is beyond the largest.
pub(super) fn place(seq: Seq) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}

/// A word in the store that this program does not know.
pub(super) fn unknown_word(column: usize, word: &str) -> rusqlite::Error {
    let why = format!("the word `{word}` is not known; use the newer Ensue that wrote it");
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, why.into())
}

pub(super) fn kind_of(row: &Row<'_>, column: usize) -> rusqlite::Result<GroupKind> {
    let word = row.get_ref(column)?.as_str()?;
    GroupKind::stored(word).ok_or_else(|| unknown_word(column, word))
}

pub(super) fn number_of(connection: &Connection, name: &GroupName) -> rusqlite::Result<Option<GroupNumber>> {
    connection
        .prepare_cached("SELECT number FROM ensue_groups WHERE name = ?1")?
        .query_row([name.as_str()], |row| row.get(0))
        .optional()
}

/// See [`GroupState::version`].
pub(super) fn version(connection: &Connection, group: GroupNumber) -> rusqlite::Result<u64> {
    connection
        .prepare_cached("SELECT version FROM ensue_groups WHERE number = ?1")?
        .query_row([group], |row| row.get::<_, i64>(0))
        .map(|version| version as u64)
}

pub(super) fn group(connection: &Connection, name: &GroupName, now: Timestamp) -> rusqlite::Result<Option<GroupState>> {
    let mut statement = connection.prepare_cached(
        "SELECT number, name, kind, created_at, version, subscriptions, lost_from, lost_to
         FROM ensue_groups WHERE name = ?1",
    )?;
    statement.query_row([name.as_str()], |row| state_of(connection, row, now)).optional()
}

pub(super) fn groups(connection: &Connection, now: Timestamp) -> rusqlite::Result<Vec<GroupState>> {
    let mut statement = connection.prepare_cached(
        "SELECT number, name, kind, created_at, version, subscriptions, lost_from, lost_to
         FROM ensue_groups ORDER BY name",
    )?;
    statement.query_map([], |row| state_of(connection, row, now))?.collect()
}

pub(super) fn groups_after(
    connection: &Connection,
    kind: Option<GroupKind>,
    after: Option<&GroupName>,
    limit: usize,
    now: Timestamp,
) -> rusqlite::Result<Vec<GroupState>> {
    let mut statement = connection.prepare_cached(
        "SELECT number, name, kind, created_at, version, subscriptions, lost_from, lost_to
         FROM ensue_groups WHERE name > ?1 AND (?2 IS NULL OR kind = ?2) ORDER BY name LIMIT ?3",
    )?;
    let after = after.map_or("", GroupName::as_str);
    let rows = statement
        .query_map(params![after, kind.map(GroupKind::as_str), limit as i64], |row| state_of(connection, row, now))?;
    rows.collect()
}

fn state_of(connection: &Connection, row: &Row<'_>, now: Timestamp) -> rusqlite::Result<GroupState> {
    let number: GroupNumber = row.get(0)?;
    let created_at = read::time_of(row.get(3)?);
    let (slots, served_at) = slots::slots(connection, number)?;
    let (lanes, oldest_lane) = needed_lanes(connection, number)?;
    let expired = subscriptions::count_expired(connection, number, served_at, now)?;
    let lost_from: Option<i64> = row.get(6)?;
    let lost_to: Option<i64> = row.get(7)?;
    Ok(GroupState {
        name: GroupName::stored(row.get_ref(1)?.as_str()?),
        kind: kind_of(row, 2)?,
        created_at,
        served_at,
        slots,
        version: row.get::<_, i64>(4)? as u64,
        subscriptions: (row.get::<_, i64>(5)? as u64).saturating_sub(expired),
        lanes,
        oldest_lane,
        lost: lost_from.zip(lost_to).map(|(from, to)| Lost { from: from as Seq, to: to as Seq }),
    })
}

/// How many lanes still need an event, and the oldest place of the log that they need.
fn needed_lanes(connection: &Connection, group: GroupNumber) -> rusqlite::Result<(u64, Option<Seq>)> {
    connection
        .prepare_cached(
            "SELECT count(*), min(max(position, ifnull(parked_to, 0))) FROM ensue_lanes
             WHERE group_number = ?1 AND state IN ('waiting', 'held')",
        )?
        .query_row([group], |row| {
            Ok((row.get::<_, i64>(0)? as u64, row.get::<_, Option<i64>>(1)?.map(|seq| seq as Seq)))
        })
}

pub(super) fn create(changing: &mut Changing<'_>, new: &NewGroup) -> Result<(GroupState, bool), StoreError> {
    let now = changing.now();
    if let Some(there) = changing.sql(|connection| group(connection, &new.name, now))? {
        return if there.kind == new.kind { Ok((there, false)) } else { Err(there.kind.has_the_name(&there.name)) };
    }
    new.check_slots()?;
    let cursor = new.start.cursor(changing.sql(read::bounds)?)?;
    changing.sql(|connection| {
        insert(connection, new, cursor, now)?;
        group(connection, &new.name, now)?.ok_or(rusqlite::Error::QueryReturnedNoRows).map(|state| (state, true))
    })
}

/// The number of a group; made to be read, from now on, if it is not there.
pub(super) fn number_or_new(
    connection: &Connection,
    name: &GroupName,
    bounds: Bounds,
    now: Timestamp,
) -> rusqlite::Result<GroupNumber> {
    match number_of(connection, name)? {
        Some(number) => Ok(number),
        None => {
            let new = NewGroup { name: name.clone(), kind: GroupKind::Pull, start: Start::Now, slots: 1 };
            insert(connection, &new, bounds.last, now)
        }
    }
}

fn insert(connection: &Connection, new: &NewGroup, cursor: Seq, now: Timestamp) -> rusqlite::Result<GroupNumber> {
    // From the floors on: whoever still writes under a fence of an earlier group of this name, or remembers its
    // version, must not take this one for it.
    let number: GroupNumber = connection
        .prepare_cached(
            "INSERT INTO ensue_groups (name, kind, created_at, version, subscriptions)
             SELECT ?1, ?2, ?3, version_floor, 0 FROM ensue_positions_state RETURNING number",
        )?
        .query_row(params![new.name.as_str(), new.kind.as_str(), now.as_microsecond()], |row| row.get(0))?;
    let mut slot = connection.prepare_cached(
        "INSERT INTO ensue_slots (group_number, slot, cursor, fence, vanished, served_at)
         SELECT ?1, ?2, ?3, fence_floor, 0, ?4 FROM ensue_positions_state",
    )?;
    for n in 0..new.slots {
        slot.execute(params![number, n, place(cursor), now.as_microsecond()])?;
    }
    Ok(number)
}

/// Takes a group out of the store; what belonged to it is left to [`sweep`].
pub(super) fn forget(changing: &mut Changing<'_>, name: &GroupName) -> Result<bool, StoreError> {
    changing.sql(|connection| {
        let Some(number) = number_of(connection, name)? else { return Ok(false) };
        slots::tell_owners(connection, number)?;
        connection
            .prepare_cached(
                "UPDATE ensue_positions_state SET
                 fence_floor = max(fence_floor, (SELECT max(fence) FROM ensue_slots WHERE group_number = ?1)),
                 version_floor = max(version_floor, (SELECT version + 1 FROM ensue_groups WHERE number = ?1))",
            )?
            .execute([number])?;
        for forget in [
            "DELETE FROM ensue_slots WHERE group_number = ?1",
            "DELETE FROM ensue_groups WHERE number = ?1",
            "INSERT INTO ensue_groups_gone VALUES (?1)",
        ] {
            connection.prepare_cached(forget)?.execute([number])?;
        }
        Ok(true)
    })
}

/// Deletes some of what belonged to forgotten groups; false if nothing is left.
pub(super) fn sweep(changing: &mut Changing<'_>) -> Result<bool, StoreError> {
    changing.sql(|connection| sweep_some(connection, SWEEP_ROWS))
}

fn sweep_some(connection: &Connection, rows_max: usize) -> rusqlite::Result<bool> {
    let gone = connection
        .prepare_cached("SELECT group_number FROM ensue_groups_gone LIMIT 1")?
        .query_row([], |row| row.get::<_, GroupNumber>(0))
        .optional()?;
    let Some(gone) = gone else { return Ok(false) };
    let mut left = rows_max;
    for delete in [
        "DELETE FROM ensue_subscriptions WHERE rowid IN
         (SELECT rowid FROM ensue_subscriptions WHERE group_number = ?1 ORDER BY id LIMIT ?2)",
        "DELETE FROM ensue_subscription_changes WHERE group_number = ?1 AND (version, id) IN
         (SELECT version, id FROM ensue_subscription_changes WHERE group_number = ?1 LIMIT ?2)",
        "DELETE FROM ensue_lanes WHERE rowid IN (SELECT rowid FROM ensue_lanes WHERE group_number = ?1 LIMIT ?2)",
        "DELETE FROM ensue_delivery_lines WHERE rowid IN
         (SELECT rowid FROM ensue_delivery_lines WHERE group_number = ?1 LIMIT ?2)",
    ] {
        left -= connection.prepare_cached(delete)?.execute(params![gone, left as i64])?;
    }
    let deliveries = connection
        .prepare_cached(
            "DELETE FROM ensue_deliveries WHERE rowid IN
             (SELECT rowid FROM ensue_deliveries WHERE group_number = ?1 LIMIT ?2)",
        )?
        .execute(params![gone, left as i64])?;
    super::deliveries::count(connection, -(deliveries as i64))?;
    if deliveries < left {
        connection.prepare_cached("DELETE FROM ensue_groups_gone WHERE group_number = ?1")?.execute([gone])?;
    }
    Ok(true)
}

/// Finishes what was begun before the file was closed.
pub(super) fn sweep_all(connection: &Connection) -> rusqlite::Result<()> {
    while sweep_some(connection, usize::MAX >> 1)? {}
    Ok(())
}

pub(super) fn seek(changing: &mut Changing<'_>, name: &GroupName, to: Seq) -> Result<Option<GroupState>, StoreError> {
    let now = changing.now();
    let bounds = changing.sql(read::bounds)?;
    let Some(number) = changing.sql(|connection| number_of(connection, name))? else { return Ok(None) };
    let to = check_cursor("to", to, bounds)?;
    changing.sql(|connection| {
        slots::tell_owners(connection, number)?;
        subscriptions::forget_expired(connection, number, now)?;
        connection
            .prepare_cached(
                "UPDATE ensue_slots SET cursor = ?2, replay_to = NULL, resume_at = NULL, owner = NULL, vanished = 0, served_at = max(served_at, ?3)
                 WHERE group_number = ?1",
            )?
            .execute(params![number, place(to), now.as_microsecond()])?;
        connection.prepare_cached("DELETE FROM ensue_lanes WHERE group_number = ?1")?.execute([number])?;
        group(connection, name, now)
    })
}

/// Has a handler's group run a range again.
pub(super) fn replay(
    changing: &mut Changing<'_>,
    name: &GroupName,
    after: Seq,
    to: Seq,
) -> Result<Option<GroupState>, StoreError> {
    let now = changing.now();
    let bounds = changing.sql(read::bounds)?;
    let Some(number) = changing.sql(|connection| number_of(connection, name))? else { return Ok(None) };
    let Some(there) = changing.sql(|connection| group(connection, name, now))? else { return Ok(None) };
    if there.kind == GroupKind::Pull {
        return Err(Unreplayable::IsRead.of(name));
    }
    check_range(after, to, bounds)?;
    if changing.sql(|connection| has_lanes(connection, number))? {
        return Err(Unreplayable::HasLanes.of(name));
    }
    match UnderWay::of(&there.slots, after, to) {
        UnderWay::Nothing => {}
        UnderWay::NotBegun => return Ok(Some(there)),
        UnderWay::Something => return Err(Unreplayable::IsUnderWay.of(name)),
    }
    changing.sql(|connection| {
        slots::tell_owners(connection, number)?;
        subscriptions::forget_expired(connection, number, now)?;
        let mut back = connection.prepare_cached(
            "UPDATE ensue_slots SET cursor = ?3, replay_to = ?4, resume_at = ?5, owner = NULL, vanished = 0,
             served_at = max(served_at, ?6) WHERE group_number = ?1 AND slot = ?2",
        )?;
        for slot in &there.slots {
            let (cursor, replay) = replayed(slot.cursor, after, to).unwrap_or((slot.cursor, None));
            let (replay_to, resume) =
                (replay.map(|replay| place(replay.to)), replay.map(|replay| place(replay.resume)));
            back.execute(params![number, slot.slot, place(cursor), replay_to, resume, now.as_microsecond()])?;
        }
        group(connection, name, now)
    })
}

fn has_lanes(connection: &Connection, group: GroupNumber) -> rusqlite::Result<bool> {
    connection
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM ensue_lanes WHERE group_number = ?1)")?
        .query_row([group], |row| row.get(0))
}
