//! How is the log read?

use super::delayed;
use super::objects::{self, Recent};
use ensue_core::plan::Tail;
use ensue_core::retention::Bounds;
use ensue_core::room::Room;
use ensue_core::store::{Page, Read, SCAN_MAX};
use ensue_core::{Event, EventId, Filter, Found, Json, ObjectKey, Seq, Timestamp, Topic};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

/// How many events the size of the log is estimated from.
const SAMPLE_EVENTS: u64 = 1_000;

macro_rules! select_events {
    ($rest:literal) => {
        concat!(
            "SELECT seq, prev, id, topic, object, payload, metadata, occurred_at, recorded_at, to_subscription FROM ensue_events ",
            $rest
        )
    };
}

pub(super) fn time_of(micros: i64) -> Timestamp {
    let nearest = if micros < 0 { Timestamp::MIN } else { Timestamp::MAX };
    Timestamp::from_microsecond(micros).unwrap_or(nearest)
}

pub(super) fn uuid_of(row: &Row<'_>, column: usize) -> rusqlite::Result<Uuid> {
    let bytes: [u8; 16] = row.get(column)?;
    Ok(Uuid::from_bytes(bytes))
}

pub(super) fn json_of(row: &Row<'_>, column: usize) -> rusqlite::Result<Json> {
    Ok(row.get::<_, Option<String>>(column)?.map_or_else(Json::empty_object, Json::stored))
}

pub(super) fn to_of(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Uuid>> {
    Ok(row.get::<_, Option<[u8; 16]>>(column)?.map(Uuid::from_bytes))
}

/// The event of a row. One that was damaged, or written by hand, is delivered as well as it can be, so that it does not stop
/// those who read past it (H43).
pub(super) fn event_of(row: &Row<'_>) -> rusqlite::Result<Event> {
    whole_event_of(row).or_else(|error| {
        let seq: i64 = row.get(0)?;
        tracing::error!(seq, %error, "stored event is damaged; delivering what can be decoded of it");
        metrics::counter!("ensue_damaged_events_total", "engine" => "sqlite").increment(1);
        Ok(damaged_event_of(row, seq as Seq))
    })
}

/// What can be decoded: bytes that are not UTF-8 are replaced, and what is of another type is left out.
fn damaged_event_of(row: &Row<'_>, seq: Seq) -> Event {
    let text = |column: usize| match row.get_ref(column) {
        Ok(ValueRef::Text(bytes) | ValueRef::Blob(bytes)) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Ok(ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_)) | Err(_) => None,
    };
    let number = |column: usize| row.get::<_, Option<i64>>(column).ok().flatten();
    let json = |column: usize| text(column).and_then(|text| Json::parse("payload", &text).ok());
    let recorded_at = time_of(number(8).unwrap_or(0));
    Event {
        seq,
        prev: number(1).map(|prev| prev as Seq),
        id: EventId(uuid_of(row, 2).unwrap_or_default()),
        topic: Topic::stored(&text(3).unwrap_or_default()),
        object: text(4).map(|object| ObjectKey::stored(&object)),
        payload: json(5).unwrap_or_else(Json::empty_object),
        metadata: json(6).filter(Json::is_object).unwrap_or_else(Json::empty_object),
        occurred_at: number(7).map_or(recorded_at, time_of),
        recorded_at,
        to: to_of(row, 9).ok().flatten(),
    }
}

fn whole_event_of(row: &Row<'_>) -> rusqlite::Result<Event> {
    let recorded_at = time_of(row.get(8)?);
    Ok(Event {
        seq: row.get::<_, i64>(0)? as Seq,
        prev: row.get::<_, Option<i64>>(1)?.map(|seq| seq as Seq),
        id: EventId(uuid_of(row, 2)?),
        topic: Topic::stored(row.get_ref(3)?.as_str()?),
        object: row.get_ref(4)?.as_str_or_null()?.map(ObjectKey::stored),
        payload: Json::stored(row.get::<_, String>(5)?),
        metadata: json_of(row, 6)?,
        occurred_at: row.get::<_, Option<i64>>(7)?.map_or(recorded_at, time_of),
        recorded_at,
        to: to_of(row, 9)?,
    })
}

/// What retention took: the newest forgotten place and its time.
fn trimmed(connection: &Connection) -> rusqlite::Result<Tail> {
    connection
        .prepare_cached("SELECT trimmed_to, trimmed_recorded_at FROM ensue_log_state")?
        .query_row([], |row| Ok(Tail { seq: row.get::<_, i64>(0)? as Seq, recorded_at: time_of(row.get(1)?) }))
}

/// Where the log ends, and where it begins.
pub(super) fn ends(connection: &Connection) -> rusqlite::Result<(Seq, Tail)> {
    let trimmed = trimmed(connection)?;
    let newest = connection
        .prepare_cached("SELECT seq, recorded_at FROM ensue_events ORDER BY seq DESC LIMIT 1")?
        .query_row([], |row| Ok(Tail { seq: row.get::<_, i64>(0)? as Seq, recorded_at: time_of(row.get(1)?) }))
        .optional()?;
    let mut tail = newest.unwrap_or(trimmed);
    // Written by hand: the log continues by the clock.
    if tail.recorded_at == Timestamp::MAX {
        tail.recorded_at = Timestamp::MIN;
    }
    Ok((trimmed.seq + 1, tail))
}

pub(super) fn bounds(connection: &Connection) -> rusqlite::Result<Bounds> {
    let (first, tail) = ends(connection)?;
    Ok(Bounds { first, last: tail.seq })
}

/// `recent` is what is not indexed of the object that is asked for, if it is known without looking. What was committed
/// after `known_to` is left to the next read: its objects may not be known yet.
pub(super) fn page(
    connection: &Connection,
    read: &Read,
    recent: Option<Recent>,
    known_to: Seq,
) -> rusqlite::Result<Page> {
    let bounds = bounds(connection)?;
    let bounds = Bounds { last: bounds.last.min(known_to), ..bounds };
    if read.after >= bounds.last {
        return Ok(Page { events: Vec::new(), next: read.after, first: bounds.first });
    }
    match &read.filter.object {
        Some(object) => {
            let recent = or_scan(connection, object, recent)?;
            let bounds = Bounds { last: bounds.last.min(recent.known_to).max(read.after), ..bounds };
            page_of_object(connection, read, object, &recent, bounds)
        }
        None => page_of_range(connection, read, bounds),
    }
}

fn page_of_range(connection: &Connection, read: &Read, bounds: Bounds) -> rusqlite::Result<Page> {
    // The stretch before the first event is not worth looking at.
    let after = read.after.max(bounds.first - 1);
    let end = bounds.last.min(after.saturating_add(SCAN_MAX));
    let mut statement = connection.prepare_cached(select_events!("WHERE seq > ?1 AND seq <= ?2 ORDER BY seq"))?;
    let mut rows = statement.query(params![after as i64, end as i64])?;
    let mut filling = Filling::new(read);
    while let Some(row) = rows.next()? {
        if !filling.take(row, &read.filter)? {
            return Ok(filling.stopped_early(read.after, bounds.first));
        }
    }
    Ok(Page { events: filling.events, next: end, first: bounds.first })
}

fn or_scan(connection: &Connection, object: &ObjectKey, recent: Option<Recent>) -> rusqlite::Result<Recent> {
    recent.map_or_else(|| objects::scan_for(connection, object), Ok)
}

fn page_of_object(
    connection: &Connection,
    read: &Read,
    object: &ObjectKey,
    recent: &Recent,
    bounds: Bounds,
) -> rusqlite::Result<Page> {
    // Without a topic to look for, no more than one event beyond the page is needed.
    let look_at_max = match read.filter.topic {
        Some(_) => SCAN_MAX as usize,
        None => (SCAN_MAX as usize).min(read.limit.saturating_add(1)),
    };
    let after = read.after.max(bounds.first - 1);
    let seqs = objects::after(connection, object, recent, after, look_at_max)?;
    let mut statement = connection.prepare_cached(select_events!("WHERE seq = ?1"))?;
    let mut filling = Filling::new(read);
    let mut last_looked_at = read.after;
    for seq in seqs.iter().take_while(|seq| **seq <= bounds.last) {
        let mut rows = statement.query([*seq as i64])?;
        let Some(row) = rows.next()? else { continue };
        if !filling.take(row, &read.filter)? {
            return Ok(filling.stopped_early(last_looked_at, bounds.first));
        }
        last_looked_at = *seq;
    }
    let next = if seqs.len() == SCAN_MAX as usize { last_looked_at } else { bounds.last };
    Ok(Page { events: filling.events, next, first: bounds.first })
}

/// A page while it fills up.
struct Filling {
    events: Vec<Event>,
    room: Room,
    limit: usize,
}

impl Filling {
    fn new(read: &Read) -> Self {
        Self { events: Vec::new(), room: Room::of_a_page(), limit: read.limit }
    }

    /// Looks at a row; false if the page has no room for it.
    fn take(&mut self, row: &Row<'_>, filter: &Filter) -> rusqlite::Result<bool> {
        if self.events.len() >= self.limit {
            return Ok(false);
        }
        // The topic is looked at before the row is copied.
        if let Some(topic) = &filter.topic
            && !ensue_core::key::is_under(topic.as_str(), row.get_ref(3)?.as_str().unwrap_or_default())
        {
            return Ok(true);
        }
        let event = event_of(row)?;
        let fits = self.room.take(event.bytes());
        if fits {
            self.events.push(event);
        }
        Ok(fits)
    }

    fn stopped_early(self, looked_at: Seq, first: Seq) -> Page {
        let next = self.events.last().map_or(looked_at, |event| event.seq);
        Page { events: self.events, next, first }
    }
}

pub(super) fn chain(
    connection: &Connection,
    object: &ObjectKey,
    before: Option<Seq>,
    limit: usize,
    recent: Option<Recent>,
) -> rusqlite::Result<Vec<Event>> {
    let recent = or_scan(connection, object, recent)?;
    let first = bounds(connection)?.first;
    let seqs = objects::before(connection, object, &recent, before.unwrap_or(Seq::MAX), limit)?;
    let events = seqs.iter().filter(|seq| **seq >= first).map(|seq| event(connection, *seq));
    up_to_a_page(events.filter_map(Result::transpose), Event::bytes)
}

/// Takes rows while they fit on a page, without looking at those that do not.
pub(super) fn up_to_a_page<T>(
    rows: impl Iterator<Item = rusqlite::Result<T>>,
    bytes_of: impl Fn(&T) -> usize,
) -> rusqlite::Result<Vec<T>> {
    let mut room = Room::of_a_page();
    rows.take_while(|row| row.as_ref().map_or(true, |row| room.take(bytes_of(row)))).collect()
}

/// The id of the event at a place.
pub(super) fn id_at(connection: &Connection, seq: Seq) -> rusqlite::Result<Option<EventId>> {
    let Ok(seq) = i64::try_from(seq) else { return Ok(None) };
    let mut select = connection.prepare_cached("SELECT id FROM ensue_events WHERE seq = ?1")?;
    select.query_row([seq], |row| Ok(EventId(uuid_of(row, 0).unwrap_or_default()))).optional()
}

pub(super) fn event(connection: &Connection, seq: Seq) -> rusqlite::Result<Option<Event>> {
    let Ok(seq) = i64::try_from(seq) else { return Ok(None) };
    connection.prepare_cached(select_events!("WHERE seq = ?1"))?.query_row([seq], event_of).optional()
}

/// An id tells when it was recorded to the millisecond, and recorded times never decrease along the log.
pub(super) fn find(connection: &Connection, id: EventId) -> rusqlite::Result<Option<Found>> {
    match delayed::find(connection, id)? {
        Some(delayed::Place::Pending(pending)) => return Ok(Some(Found::Pending(pending))),
        Some(delayed::Place::Logged(seq)) => return Ok(event(connection, seq)?.map(Found::Logged)),
        None => {}
    }
    let Some(millisecond) = id.time() else { return Ok(None) };
    let from = seq_before(connection, millisecond)?;
    let after_it = millisecond.as_microsecond() + 1_000;
    let mut statement =
        connection.prepare_cached("SELECT seq, id, recorded_at FROM ensue_events WHERE seq > ?1 ORDER BY seq")?;
    let mut rows = statement.query([from as i64])?;
    while let Some(row) = rows.next()? {
        if row.get::<_, i64>(2)? >= after_it {
            return Ok(None);
        }
        if uuid_of(row, 1)? == id.0 {
            let seq = row.get::<_, i64>(0)? as Seq;
            return Ok(event(connection, seq)?.map(Found::Logged));
        }
    }
    Ok(None)
}

/// A binary search over `seq`, which has no gaps.
pub(super) fn seq_before(connection: &Connection, time: Timestamp) -> rusqlite::Result<Seq> {
    let bounds = bounds(connection)?;
    let mut recorded_at = connection.prepare_cached("SELECT recorded_at FROM ensue_events WHERE seq = ?1")?;
    let (mut before, mut not_before) = (bounds.first - 1, bounds.last + 1);
    while before + 1 < not_before {
        let middle = before + (not_before - before) / 2;
        let at: i64 = recorded_at.query_row([middle as i64], |row| row.get(0))?;
        if time_of(at) < time { before = middle } else { not_before = middle }
    }
    Ok(before)
}

pub(super) fn bytes(connection: &Connection) -> rusqlite::Result<u64> {
    let bounds = bounds(connection)?;
    let count = bounds.count();
    let sample = count.min(SAMPLE_EVENTS);
    let mut length = connection.prepare_cached(
        "SELECT octet_length(topic) + coalesce(octet_length(object), 0) + octet_length(payload) + coalesce(octet_length(metadata), 2)
         FROM ensue_events WHERE seq = ?1",
    )?;
    let mut sum = 0;
    for n in 0..sample {
        let seq = bounds.first + (u128::from(n) * u128::from(count) / u128::from(sample)) as u64;
        sum += length.query_row([seq as i64], |row| row.get::<_, i64>(0))? as u64;
    }
    Ok(if sample == 0 { 0 } else { (u128::from(sum) * u128::from(count) / u128::from(sample)) as u64 })
}
