//! Which events live on for a lane that stands still?

use super::groups::{self, GroupNumber, place};
use super::read::{event_of, up_to_a_page};
use super::writer::Changing;
use ensue_core::positions::{LaneKey, Park, ParkedQuery, ParkedSize};
use ensue_core::{Event, GroupName, Seq, StoreError};
use rusqlite::{Connection, OptionalExtension, Params, params};

macro_rules! select_parked {
    ($rest:literal) => {
        concat!(
            "SELECT p.seq, p.prev, p.id, p.topic, p.object, p.payload, p.metadata, p.occurred_at, p.recorded_at,
             p.to_subscription FROM ensue_parked p ",
            $rest
        )
    };
}

/// Copies aside what lanes need, in one commit.
pub(super) fn park(changing: &mut Changing<'_>, parks: &[Park]) -> Result<usize, StoreError> {
    changing.sql(|connection| {
        let mut parked = 0;
        for park in parks {
            parked += usize::from(park_one(connection, park)?);
        }
        Ok(parked)
    })
}

fn park_one(connection: &Connection, park: &Park) -> rusqlite::Result<bool> {
    let Some(group) = groups::number_of(connection, &park.group)? else { return Ok(false) };
    let Some(position) = position(connection, group, park)? else { return Ok(false) };
    let needed: Vec<Seq> = park.seqs.iter().copied().filter(|seq| *seq >= position).collect();
    let mut is_there = connection.prepare_cached("SELECT count(*) FROM ensue_events WHERE seq = ?1")?;
    for seq in &needed {
        if is_there.query_row([place(*seq)], |row| row.get::<_, i64>(0))? == 0 {
            return Ok(false);
        }
    }
    let key = park.key.to_text();
    let mut copy = connection.prepare_cached(
        "INSERT INTO ensue_parked (group_number, lane_key, seq, prev, id, topic, object, payload, metadata,
         occurred_at, recorded_at, to_subscription)
         SELECT ?1, ?2, seq, prev, id, topic, object, payload, metadata, occurred_at, recorded_at, to_subscription
         FROM ensue_events WHERE seq = ?3",
    )?;
    for seq in needed {
        copy.execute(params![group, key, place(seq)])?;
    }
    connection
        .prepare_cached("UPDATE ensue_lanes SET parked_to = ?3 WHERE group_number = ?1 AND lane_key = ?2")?
        .execute(params![group, key, place(park.to)])?;
    Ok(true)
}

/// Where a lane stands that is as it was when its parking was decided.
fn position(connection: &Connection, group: GroupNumber, park: &Park) -> rusqlite::Result<Option<Seq>> {
    connection
        .prepare_cached(
            "SELECT position FROM ensue_lanes WHERE group_number = ?1 AND lane_key = ?2
             AND state IN ('waiting', 'held') AND parked_to IS ?3 AND ifnull(parked_to, -1) < ?4",
        )?
        .query_row(params![group, park.key.to_text(), park.from.map(place), place(park.to)], |row| {
            row.get::<_, i64>(0).map(|position| position as Seq)
        })
        .optional()
}

pub(super) fn parked(connection: &Connection, query: &ParkedQuery, limit: usize) -> rusqlite::Result<Vec<Event>> {
    match query {
        ParkedQuery::Lane { group, key, after } => events(
            connection,
            select_parked!(
                "JOIN ensue_groups g ON g.number = p.group_number
                 WHERE g.name = ?1 AND p.lane_key = ?2 AND p.seq > ?3 ORDER BY p.seq LIMIT ?4"
            ),
            params![group.as_str(), key.to_text(), place(*after), limit as i64],
        ),
        // What belonged to a group that is gone may still be there.
        ParkedQuery::Place(seq) => events(
            connection,
            select_parked!("JOIN ensue_groups g ON g.number = p.group_number WHERE p.seq = ?1 LIMIT ?2"),
            params![place(*seq), limit.min(1) as i64],
        ),
        ParkedQuery::Id(id) => events(
            connection,
            select_parked!("JOIN ensue_groups g ON g.number = p.group_number WHERE p.id = ?1 LIMIT ?2"),
            params![id.0.as_bytes(), limit.min(1) as i64],
        ),
    }
}

fn events(connection: &Connection, query: &str, params: impl Params) -> rusqlite::Result<Vec<Event>> {
    let mut statement = connection.prepare_cached(query)?;
    up_to_a_page(statement.query_map(params, event_of)?, Event::bytes)
}

pub(super) fn size(connection: &Connection, group: &GroupName, key: &LaneKey) -> rusqlite::Result<ParkedSize> {
    connection
        .prepare_cached(
            "SELECT count(*), coalesce(sum(octet_length(p.topic) + coalesce(octet_length(p.object), 0)
             + octet_length(p.payload) + coalesce(octet_length(p.metadata), 2)), 0)
             FROM ensue_groups g JOIN ensue_parked p ON p.group_number = g.number
             WHERE g.name = ?1 AND p.lane_key = ?2",
        )?
        .query_row(params![group.as_str(), key.to_text()], |row| {
            Ok(ParkedSize { events: row.get::<_, i64>(0)? as u64, bytes: row.get::<_, i64>(1)? as u64 })
        })
}
