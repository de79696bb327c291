//! Where does a lane that stands apart find its events?
//!
//! In the log; and those that retention has taken since, in parked rows. The log is looked at first: what it does not have
//! any more was parked before it went.

use super::lanes::Busy;
use super::life::Life;
use super::router::condition_failed;
use crate::handlers::HandlerFilter;
use ensue_core::positions::{LaneKey, LaneQuery, Lost, ParkedQuery};
use ensue_core::room::Room;
use ensue_core::store::{Read, SharedStore};
use ensue_core::{Event, Filter, GroupName, Seq, StoreError};
use std::sync::Arc;

/// What was read for a lane.
pub(super) struct Fetched {
    key: LaneKey,
    after: Seq,
    found: Result<Found, StoreError>,
}

/// What there is of a lane after some place.
struct Found {
    /// In order.
    events: Vec<Arc<Event>>,
    /// There are no others up to here.
    to: Seq,
    /// What retention took without parking it.
    lost: Option<Lost>,
}

impl Life<'_> {
    /// Reads what is next in a lane that stands apart.
    pub fn fetch(&mut self, key: LaneKey, after: Seq, to: Seq) {
        if let Some(lane) = self.lanes.get_mut(&key) {
            lane.busy = Some(Busy::Fetching);
        }
        let (store, group, wish) = (self.worker.store.clone(), self.worker.spec.key.clone(), self.worker.wish());
        // One while much is held already.
        let bounds = self.read_ahead();
        let limit = if self.lanes.queued() < bounds.events_max / 2 { bounds.lane_events_max } else { 1 };
        self.fetching.spawn(async move {
            let found = match find(&store, &group, &key, after, to, limit).await {
                Ok(found) => found.wanted(&wish, &group).await,
                Err(error) => Err(error),
            };
            Fetched { key, after, found }
        });
    }

    /// What was read for a lane.
    pub fn fetched(&mut self, fetched: Fetched) -> Result<(), StoreError> {
        let Fetched { key, after, found } = fetched;
        for key in std::mem::take(&mut self.after_fetch) {
            self.lanes.ready(&key);
        }
        let Found { events, to, lost } = found?;
        if let Some(lost) = lost {
            let handler = &self.worker.spec.key;
            tracing::warn!(%handler, lane = key.to_text(), lost.from, lost.to, "retention took events that a lane had not come to");
            self.pending.lost = Some(lost);
        }
        let is_next = |event: &Arc<Event>| event.seq > after && event.seq <= to && !self.skips(event);
        let mut events: Vec<Arc<Event>> = events.into_iter().filter(is_next).collect();
        let (mut room, mut to) = (Room::of(self.read_ahead().lane_bytes_max), to);
        let held = events.iter().take_while(|event| room.take(event.bytes())).count();
        if held < events.len() {
            // The rest is read when the lane has come so far.
            events.truncate(held);
            to = events.last().map_or(after, |event| event.seq);
        }
        self.lanes.fetched(&key, events, to);
        Ok(())
    }
}

impl Found {
    /// Only what the handler wants. An event on which its condition fails it does not get.
    async fn wanted(self, wish: &HandlerFilter, group: &GroupName) -> Result<Self, StoreError> {
        let mut events = Vec::with_capacity(self.events.len());
        for event in self.events {
            match wish.wants(&event).await? {
                Ok(true) => events.push(event),
                Ok(false) => {}
                Err(failure) => condition_failed(group.as_str(), event.seq, &failure),
            }
        }
        Ok(Self { events, ..self })
    }
}

fn shared(events: Vec<Event>) -> Vec<Arc<Event>> {
    events.into_iter().map(Arc::new).collect()
}

/// What is next of a lane after some place, and up to where.
async fn find(
    store: &SharedStore,
    group: &GroupName,
    key: &LaneKey,
    after: Seq,
    to: Seq,
    limit: usize,
) -> Result<Found, StoreError> {
    let (events, next, first) = match key {
        LaneKey::Event(seq) => match store.event(*seq).await? {
            Some(event) => (vec![event], to, 0),
            None => (Vec::new(), to, seq + 1),
        },
        LaneKey::Object(object) => {
            let filter = Filter { topic: None, object: Some(object.clone()) };
            let page = store.read(Read { after, limit, filter }).await?;
            (page.events, page.next.min(to), page.first)
        }
    };
    if first <= after + 1 {
        return Ok(Found { events: shared(events), to: next, lost: None });
    }
    // How far it is parked is read before what is parked: that only grows meanwhile.
    let row = store.lanes(LaneQuery::One(group.clone(), key.clone()), 1).await?.pop();
    let parked_to = row.and_then(|row| row.parked_to).unwrap_or(0);
    let query = ParkedQuery::Lane { group: group.clone(), key: key.clone(), after };
    let mut parked = store.parked(query, limit).await?;
    parked.retain(|event| event.seq < first);
    if let Some(last) = parked.last() {
        // The rest of it, and then the log, is read when the lane has come so far.
        let to = last.seq.min(to);
        return Ok(Found { events: shared(parked), to, lost: None });
    }
    let lost = Lost { from: parked_to.max(after + 1), to: (first - 1).min(to) };
    Ok(Found { events: shared(events), to: next, lost: (lost.from <= lost.to).then_some(lost) })
}
