//! What is in the log?

use super::PostgresStore;
use super::asking::Ready;
use super::error::Failure;
use super::id_parts;
use super::types::{JsonbOut, Micros};
use ensue_core::retention::Bounds;
use ensue_core::room::Room;
use ensue_core::store::{PAGE_BYTES_MAX, Page, Read, SCAN_MAX};
use ensue_core::{Event, EventId, Found, Json, ObjectKey, Pending, Seq, StoreError, Timestamp, Topic};
use futures_util::{StreamExt, future, pin_mut};
use std::sync::atomic::Ordering;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row, RowStream};

/// A place as Postgres counts: beyond its numbers there is no event.
pub(super) fn place(seq: Seq) -> i64 {
    i64::try_from(seq).unwrap_or(i64::MAX)
}

/// A number of rows as Postgres counts.
pub(super) fn rows_max(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX).min(1 << 40)
}

impl PostgresStore {
    pub(super) async fn read_page(&self, read: Read) -> Result<Page, StoreError> {
        match &read.filter.object {
            None => self.read_places(&read).await,
            Some(object) => self.read_object(&read, object).await,
        }
    }

    /// A page of all events or of a topic. Bounds and page go out together and come back in order: one round trip, and
    /// what the page holds beyond the bounds was appended meanwhile and is left to the next read.
    async fn read_places(&self, read: &Read) -> Result<Page, StoreError> {
        let mut patience = self.server.patience();
        let mut begin = read.after;
        loop {
            let client = self.server.reader().await?;
            let reading = async {
                let tail = client.ready(&self.sql.tail).await?;
                let range = client.ready(&self.sql.read_range).await?;
                let asked = future::try_join3(
                    self.bounds_on(&client, &tail),
                    self.range(&client, &range, read, begin),
                    self.bounds_on(&client, &tail),
                );
                let (bounds, mut page, afterwards) = client.together(asked).await?;
                // What the page was to hold is forgotten, or was forgotten while it was read: look again from there, so
                // that `first` tells the reader exactly what it misses.
                if afterwards.first > bounds.first || bounds.first - 1 > begin {
                    begin = read.after.max(afterwards.first - 1);
                    return Ok(None);
                }
                let fitting = page.events.iter().take_while(|event| event.seq <= bounds.last).count();
                let stopped = page.stopped && fitting == page.events.len();
                page.events.truncate(fitting);
                let next = match page.events.last() {
                    Some(event) if stopped => event.seq,
                    Some(_) | None => begin.saturating_add(SCAN_MAX).min(bounds.last).max(read.after),
                };
                Ok::<_, Failure>(Some(Page { events: page.events, next, first: bounds.first }))
            };
            match client.run(reading).await {
                Ok(Some(page)) => return Ok(page),
                Ok(None) => {}
                Err(failure) => self.server.again_after(failure, &mut patience).await?,
            }
        }
    }

    async fn range(&self, client: &Client, range: &Ready, read: &Read, begin: Seq) -> Result<Taken, Error> {
        let end = place(begin.saturating_add(SCAN_MAX));
        let topic = read.filter.topic.as_ref().map(|topic| topic.as_str());
        let (begin, limit, bytes) = (place(begin), rows_max(read.limit), PAGE_BYTES_MAX as i64);
        let rows = range.rows(client, &[&begin, &end, &limit, &topic, &bytes]).await?;
        Taken::from(rows, read.limit).await
    }

    /// A page of one object. If something was forgotten while it was read, it is read again: the walk and its end are
    /// two statements, and must be about the same log.
    async fn read_object(&self, read: &Read, object: &ObjectKey) -> Result<Page, StoreError> {
        let mut bounds = self.bounds_now().await?;
        loop {
            let page = self.walk_object(read, object, bounds).await?;
            let afterwards = self.bounds_now().await?;
            if afterwards.first == bounds.first {
                return Ok(page);
            }
            bounds = afterwards;
        }
    }

    /// Walks the index of one object.
    async fn walk_object(&self, read: &Read, object: &ObjectKey, bounds: Bounds) -> Result<Page, StoreError> {
        let Bounds { first, last } = bounds;
        let topic = read.filter.topic.as_ref().map(|topic| topic.as_str());
        let (begin, end, limit) = (place(read.after), place(last), rows_max(read.limit));
        let (bytes, looked_at_max, object) = (PAGE_BYTES_MAX as i64, SCAN_MAX as i64, object.as_str());
        let mut patience = self.server.patience();
        let taken = loop {
            let client = self.server.reader().await?;
            let reading = async {
                let walk = client.ready(&self.sql.read_object).await?;
                let params: [&(dyn ToSql + Sync); 7] = [&begin, &end, &limit, &topic, &bytes, &looked_at_max, &object];
                let walked = async { Taken::from(walk.rows(&client, &params).await?, read.limit).await };
                client.together(walked).await
            };
            match client.run(reading).await {
                Ok(taken) => break taken,
                Err(failure) => self.server.again_after(failure, &mut patience).await?,
            }
        };
        let next = match taken.events.last() {
            Some(event) if taken.stopped => event.seq,
            Some(_) | None => {
                let ends = self.server.query(&self.sql.walk_end, &[&begin, &end, &object, &looked_at_max]).await?;
                match &ends[..] {
                    [last_looked_at, _] => last_looked_at.get::<_, i64>(0) as Seq,
                    _ => last.max(read.after),
                }
            }
        };
        Ok(Page { events: taken.events, next, first })
    }

    pub(super) async fn bounds_now(&self) -> Result<Bounds, StoreError> {
        let row = self.server.query_one(&self.sql.tail, &[&self.hint()]).await?;
        Ok(self.bounds_of(&row))
    }

    async fn bounds_on(&self, client: &Client, tail: &Ready) -> Result<Bounds, Error> {
        Ok(self.bounds_of(&tail.one(client, &[&self.hint()]).await?))
    }

    fn bounds_of(&self, row: &Row) -> Bounds {
        let (last, trimmed_to): (i64, i64) = (row.get(0), row.get(2));
        self.last.fetch_max(last as Seq, Ordering::Relaxed);
        Bounds { first: trimmed_to as Seq + 1, last: last as Seq }
    }

    /// The newest place that anybody here has seen.
    pub(super) fn hint(&self) -> i64 {
        place(self.last.load(Ordering::Relaxed))
    }

    pub(super) async fn read_chain(
        &self,
        object: &ObjectKey,
        before: Option<Seq>,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let before = before.map_or(i64::MAX, place);
        let (limit, bytes) = (rows_max(limit), PAGE_BYTES_MAX as i64);
        let rows = self.server.query(&self.sql.chain, &[&object.as_str(), &before, &limit, &bytes]).await?;
        self.up_to_a_page(&rows, event, Event::bytes)
    }

    pub(super) async fn read_event(&self, seq: Seq) -> Result<Option<Event>, StoreError> {
        let rows = self.server.query(&self.sql.event, &[&place(seq)]).await?;
        rows.first().map(|row| event(row).map_err(|error| self.misread(error))).transpose()
    }

    /// The event with this id, also if it was published in a transaction and waits in the outbox: moved into the log, it is found.
    pub(super) async fn find_event(&self, id: EventId) -> Result<Option<Found>, StoreError> {
        if let Some(found) = self.look_for_event(id).await? {
            return Ok(Some(found));
        }
        self.move_what_waits().await?;
        self.look_for_event(id).await
    }

    async fn look_for_event(&self, id: EventId) -> Result<Option<Found>, StoreError> {
        let waiting = self.server.query(&self.sql.pending_by_id, &[&id.0]).await?;
        if let Some(row) = waiting.first() {
            return Ok(Some(Found::Pending(pending(row).map_err(|error| self.misread(error))?)));
        }
        match self.find_place(id).await? {
            None => Ok(None),
            Some(seq) => Ok(self.read_event(seq).await?.map(Found::Logged)),
        }
    }

    /// Where in the log is it?
    pub(super) async fn find_place(&self, id: EventId) -> Result<Option<Seq>, StoreError> {
        let (from, to) = millisecond(id);
        let params: [&(dyn ToSql + Sync); 5] = [&id.0, &id_parts::part(id), &from, &to, &self.hint()];
        let row = self.server.query_one(&self.sql.find_seq, &params).await?;
        Ok(row.get::<_, Option<i64>>(0).map(|seq| seq as Seq))
    }

    pub(super) async fn read_pending(&self, limit: usize) -> Result<Vec<Pending>, StoreError> {
        let rows = self.server.query(&self.sql.pending, &[&rows_max(limit), &(PAGE_BYTES_MAX as i64)]).await?;
        self.up_to_a_page(&rows, pending, Pending::bytes)
    }

    /// The server counts in its own way and may have sent somewhat more than fits.
    pub(super) fn up_to_a_page<T>(
        &self,
        rows: &[Row],
        of: impl Fn(&Row) -> Result<T, Error>,
        bytes_of: impl Fn(&T) -> usize,
    ) -> Result<Vec<T>, StoreError> {
        let mut room = Room::of_a_page();
        let read = rows.iter().map(|row| of(row).map_err(|error| self.misread(error)));
        read.take_while(|row| row.as_ref().map_or(true, |row| room.take(bytes_of(row)))).collect()
    }

    pub(super) async fn count_pending(&self) -> Result<u64, StoreError> {
        let row = self.server.query_one(&self.sql.pending_count, &[]).await?;
        Ok(row.get::<_, i64>(0) as u64)
    }

    pub(super) async fn find_seq_before(&self, time: Timestamp) -> Result<Seq, StoreError> {
        // Rounded up: an event of the microsecond in which the time lies is before it.
        let whole = Timestamp::from_microsecond(time.as_microsecond()).unwrap_or(time);
        let rounded_up = if whole < time { whole + jiff::SignedDuration::from_micros(1) } else { whole };
        let row = self.server.query_one(&self.sql.seq_before, &[&Micros(rounded_up), &self.hint()]).await?;
        Ok(row.get::<_, i64>(0) as Seq)
    }
}

/// The millisecond that an id tells, as the times from which and to which it lasts.
pub(super) fn millisecond(id: EventId) -> (Option<Micros>, Option<Micros>) {
    let from = id.time();
    let to = from.and_then(|from| from.checked_add(jiff::SignedDuration::from_millis(1)).ok());
    (from.map(Micros), to.map(Micros))
}

/// What fits on a page, and whether it was full before the rows ended.
struct Taken {
    events: Vec<Event>,
    stopped: bool,
}

impl Taken {
    /// Takes rows as they come, so that no more than a page of them is ever held.
    async fn from(rows: RowStream, limit: usize) -> Result<Self, Error> {
        pin_mut!(rows);
        let mut events: Vec<Event> = Vec::new();
        let mut room = Room::of_a_page();
        let mut more_follow = false;
        while let Some(row) = rows.next().await {
            let row = row?;
            let event = event(&row)?;
            more_follow = row.try_get(10)?;
            if !room.take(event.bytes()) {
                return Ok(Self { events, stopped: true });
            }
            events.push(event);
            if events.len() == limit {
                return Ok(Self { events, stopped: true });
            }
        }
        Ok(Self { events, stopped: more_follow })
    }
}

pub(super) fn event(row: &Row) -> Result<Event, Error> {
    let recorded_at = row.try_get::<_, Micros>(8)?.0;
    Ok(Event {
        seq: row.try_get::<_, i64>(0)? as Seq,
        prev: row.try_get::<_, Option<i64>>(1)?.map(|prev| prev as Seq),
        id: id_parts::whole(row.try_get(2)?, recorded_at),
        topic: Topic::stored(row.try_get(3)?),
        object: row.try_get::<_, Option<&str>>(4)?.map(ObjectKey::stored),
        payload: row.try_get::<_, JsonbOut>(5)?.0,
        metadata: row.try_get::<_, Option<JsonbOut>>(6)?.map_or_else(Json::empty_object, |json| json.0),
        occurred_at: row.try_get::<_, Micros>(7)?.0,
        recorded_at,
        to: row.try_get(9)?,
    })
}

fn pending(row: &Row) -> Result<Pending, Error> {
    Ok(Pending {
        id: EventId(row.try_get(0)?),
        topic: Topic::stored(row.try_get(1)?),
        object: row.try_get::<_, Option<&str>>(2)?.map(ObjectKey::stored),
        payload: row.try_get::<_, JsonbOut>(3)?.0,
        metadata: row.try_get::<_, Option<JsonbOut>>(4)?.map_or_else(Json::empty_object, |json| json.0),
        occurred_at: row.try_get::<_, Micros>(5)?.0,
        not_before: row.try_get::<_, Micros>(6)?.0,
        to: row.try_get(7)?,
    })
}
