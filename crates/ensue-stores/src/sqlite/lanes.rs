//! Which objects stand still?

use super::groups::{self, GroupNumber, place, unknown_word};
use super::read::time_of;
use super::writer::Changing;
use ensue_core::positions::{Ask, Lane, LaneChange, LaneKey, LaneQuery, LaneRow, LaneState, SlotNumber};
use ensue_core::{GroupName, Seq, StoreError, Timestamp};
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

macro_rules! select_lanes {
    ($rest:literal) => {
        concat!(
            "SELECT g.name, l.slot, l.lane_key, l.position, l.state, l.attempts, l.not_before, l.error, l.redriven,
             l.since, l.ask, l.parked_to ",
            $rest
        )
    };
}

fn row_of(row: &Row<'_>) -> rusqlite::Result<LaneRow> {
    let ask = match row.get_ref(10)?.as_str_or_null()? {
        Some(word) => Some(Ask::stored(word).ok_or_else(|| unknown_word(10, word))?),
        None => None,
    };
    let (key, state) = (row.get_ref(2)?.as_str()?, row.get_ref(4)?.as_str()?);
    Ok(LaneRow {
        group: GroupName::stored(row.get_ref(0)?.as_str()?),
        slot: row.get(1)?,
        lane: Lane {
            key: LaneKey::stored(key).ok_or_else(|| unknown_word(2, key))?,
            position: row.get::<_, i64>(3)? as Seq,
            state: LaneState::stored(state).ok_or_else(|| unknown_word(4, state))?,
            attempts: row.get(5)?,
            not_before: row.get::<_, Option<i64>>(6)?.map(time_of),
            error: row.get(7)?,
            redriven: row.get(8)?,
        },
        since: time_of(row.get(9)?),
        ask,
        parked_to: row.get::<_, Option<i64>>(11)?.map(|seq| seq as Seq),
    })
}

/// Writes what the owner of a lane says of it.
pub(super) fn change(
    connection: &Connection,
    group: GroupNumber,
    slot: SlotNumber,
    change: &LaneChange,
    now: Timestamp,
) -> rusqlite::Result<()> {
    match change {
        LaneChange::Put(lane) => put(connection, group, slot, lane, now),
        LaneChange::Remove(key) => {
            connection
                .prepare_cached("DELETE FROM ensue_lanes WHERE group_number = ?1 AND lane_key = ?2")?
                .execute(params![group, key.to_text()])?;
            Ok(())
        }
    }
}

fn put(
    connection: &Connection,
    group: GroupNumber,
    slot: SlotNumber,
    lane: &Lane,
    now: Timestamp,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO ensue_lanes
             (group_number, lane_key, slot, position, state, attempts, not_before, error, redriven, since)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
             ON CONFLICT (group_number, lane_key) DO UPDATE SET
             slot = ?3, position = ?4, state = ?5, attempts = ?6, not_before = ?7, error = ?8, redriven = ?9, ask = NULL
             WHERE ?4 >= position",
        )?
        .execute(params![
            group,
            lane.key.to_text(),
            slot,
            place(lane.position),
            lane.state.as_str(),
            lane.attempts,
            lane.not_before.map(Timestamp::as_microsecond),
            lane.error,
            lane.redriven,
            now.as_microsecond(),
        ])?;
    Ok(())
}

pub(super) fn lanes(connection: &Connection, query: &LaneQuery, limit: usize) -> rusqlite::Result<Vec<LaneRow>> {
    match query {
        LaneQuery::Slots { group, slots, after } => of_slots(connection, group, slots, after.as_ref(), limit),
        LaneQuery::Stuck { group: None } => all(
            connection,
            select_lanes!(
                "FROM ensue_lanes l JOIN ensue_groups g ON g.number = l.group_number
                 WHERE l.state IN ('held', 'dead') ORDER BY l.since, l.lane_key, g.name LIMIT ?1"
            ),
            [limit as i64],
        ),
        LaneQuery::Stuck { group: Some(group) } => all(
            connection,
            select_lanes!(
                "FROM ensue_groups g JOIN ensue_lanes l ON l.group_number = g.number
                 WHERE g.name = ?1 AND l.state IN ('held', 'dead') ORDER BY l.since, l.lane_key LIMIT ?2"
            ),
            params![group.as_str(), limit as i64],
        ),
        LaneQuery::StuckAfter(after) => all(
            connection,
            select_lanes!(
                "FROM ensue_lanes l JOIN ensue_groups g ON g.number = l.group_number
                 WHERE l.state IN ('held', 'dead') AND (l.since, l.lane_key, g.name) > (?1, ?2, ?3) AND l.since >= ?1
                 ORDER BY l.since, l.lane_key, g.name LIMIT ?4"
            ),
            params![after.since.as_microsecond(), after.key.to_text(), after.group.as_str(), limit as i64],
        ),
        LaneQuery::Object(object) => all(
            connection,
            select_lanes!(
                "FROM ensue_lanes l JOIN ensue_groups g ON g.number = l.group_number
                 WHERE l.lane_key = ?1 ORDER BY g.name LIMIT ?2"
            ),
            params![LaneKey::Object(object.clone()).to_text(), limit as i64],
        ),
        LaneQuery::One(group, key) => one(connection, group, key).map(|row| row.into_iter().take(limit).collect()),
        LaneQuery::Asked(member) => all(
            connection,
            select_lanes!(
                "FROM ensue_slots s JOIN ensue_lanes l ON l.group_number = s.group_number AND l.slot = s.slot
                 JOIN ensue_groups g ON g.number = l.group_number
                 WHERE s.owner = ?1 AND l.ask IS NOT NULL ORDER BY g.name, l.lane_key LIMIT ?2"
            ),
            params![member.as_bytes(), limit as i64],
        ),
        LaneQuery::Needing { before, after } => {
            let (group, key) =
                after.as_ref().map_or(("", String::new()), |(group, key)| (group.as_str(), key.to_text()));
            all(
                connection,
                select_lanes!(
                    "FROM ensue_lanes l JOIN ensue_groups g ON g.number = l.group_number
                     WHERE l.state IN ('waiting', 'held') AND l.position < ?1 AND ifnull(l.parked_to, 0) < ?1
                     AND (g.name, l.lane_key) > (?2, ?3) ORDER BY g.name, l.lane_key LIMIT ?4"
                ),
                params![place(*before), group, key, limit as i64],
            )
        }
    }
}

fn all(connection: &Connection, query: &str, params: impl Params) -> rusqlite::Result<Vec<LaneRow>> {
    connection.prepare_cached(query)?.query_map(params, row_of)?.collect()
}

fn of_slots(
    connection: &Connection,
    group: &GroupName,
    slots: &[SlotNumber],
    after: Option<&LaneKey>,
    limit: usize,
) -> rusqlite::Result<Vec<LaneRow>> {
    let after = after.map(LaneKey::to_text).unwrap_or_default();
    let mut statement = connection.prepare_cached(select_lanes!(
        "FROM ensue_groups g JOIN ensue_lanes l ON l.group_number = g.number
         WHERE g.name = ?1 AND l.lane_key > ?2 ORDER BY l.lane_key"
    ))?;
    let rows = statement.query_map(params![group.as_str(), after], row_of)?;
    rows.filter(|row| row.as_ref().map_or(true, |row| slots.contains(&row.slot))).take(limit).collect()
}

fn one(connection: &Connection, group: &GroupName, key: &LaneKey) -> rusqlite::Result<Option<LaneRow>> {
    connection
        .prepare_cached(select_lanes!(
            "FROM ensue_groups g JOIN ensue_lanes l ON l.group_number = g.number
             WHERE g.name = ?1 AND l.lane_key = ?2"
        ))?
        .query_row(params![group.as_str(), key.to_text()], row_of)
        .optional()
}

/// Is an event done? Its lane knows, or else the cursor of its slot.
pub(super) fn is_done(
    connection: &Connection,
    group: &GroupName,
    slot: SlotNumber,
    key: &LaneKey,
    seq: Seq,
) -> rusqlite::Result<bool> {
    if let Some(row) = one(connection, group, key)? {
        return Ok(row.lane.position > seq);
    }
    let cursor = connection
        .prepare_cached(
            "SELECT s.cursor FROM ensue_groups g JOIN ensue_slots s ON s.group_number = g.number
             WHERE g.name = ?1 AND s.slot = ?2",
        )?
        .query_row(params![group.as_str(), slot], |row| row.get::<_, i64>(0))
        .optional()?;
    Ok(cursor.is_some_and(|cursor| cursor as Seq >= seq))
}

/// Writes what somebody asks, for the owner of the lane to find, and lets the owner know.
pub(super) fn ask(
    changing: &mut Changing<'_>,
    group: &GroupName,
    key: &LaneKey,
    ask: Ask,
) -> Result<Option<LaneRow>, StoreError> {
    changing.sql(|connection| {
        let Some(number) = groups::number_of(connection, group)? else { return Ok(None) };
        let slot = connection
            .prepare_cached("UPDATE ensue_lanes SET ask = ?3 WHERE group_number = ?1 AND lane_key = ?2 RETURNING slot")?
            .query_row(params![number, key.to_text(), ask.as_str()], |row| row.get::<_, SlotNumber>(0))
            .optional()?;
        let Some(slot) = slot else { return Ok(None) };
        connection
            .prepare_cached(
                "UPDATE ensue_members SET version = version + 1
                 WHERE id = (SELECT owner FROM ensue_slots WHERE group_number = ?1 AND slot = ?2)",
            )?
            .execute(params![number, slot])?;
        one(connection, group, key)
    })
}
