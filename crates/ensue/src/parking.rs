//! What is copied aside before the log forgets it?
//!
//! A lane that stands still would keep the whole log. Before a trim, what such lanes need is parked, lane by lane, as far as
//! it fits ([`ensue_core::positions::parked`]); the trim then goes as far as that allows. Either may be interrupted, and
//! begins again with what the store says.

use ensue_core::positions::{GroupState, LaneKey, LaneQuery, LaneRow, PARKED_ALL, Park, ParkedSize, to_park};
use ensue_core::retention::Retention;
use ensue_core::store::{Read, SharedStore};
use ensue_core::{Event, Filter, Seq, StoreError, Timestamp};
use std::collections::HashSet;

/// How many lanes are looked at, and written, at once.
const LANES_AT_ONCE: usize = 100;
/// How many events of one lane are looked at, and copied, at once.
const EVENTS_AT_ONCE: usize = 500;

/// Parks what lanes need before this place.
pub(crate) async fn park(
    store: &SharedStore,
    retention: &Retention,
    groups: &[GroupState],
    before: Seq,
    now: Timestamp,
) -> Result<(), StoreError> {
    let waited_for = groups.iter().filter(|group| !retention.is_orphan(group, now));
    let waited_for: HashSet<&str> = waited_for.map(|group| group.name.as_str()).collect();
    let mut after = None;
    loop {
        let rows = store.lanes(LaneQuery::Needing { before, after }, LANES_AT_ONCE).await?;
        let Some(last) = rows.last() else { return Ok(()) };
        after = Some((last.group.clone(), last.lane.key.clone()));
        let is_all = rows.len() < LANES_AT_ONCE;
        let mut lanes: Vec<Lane> =
            rows.into_iter().filter(|row| waited_for.contains(row.group.as_str())).map(Lane::of).collect();
        while !lanes.is_empty() {
            let mut parks = Vec::with_capacity(lanes.len());
            for lane in &mut lanes {
                parks.extend(lane.next(store, retention, before).await?);
            }
            store.park(parks).await?;
            lanes.retain(|lane| !lane.is_parked);
            tokio::task::yield_now().await;
        }
        if is_all {
            return Ok(());
        }
    }
}

/// A lane that is being parked.
struct Lane {
    row: LaneRow,
    /// So far, as it was stored or is about to be.
    size: Option<ParkedSize>,
    /// Nothing more can be done for it.
    is_parked: bool,
}

impl Lane {
    fn of(row: LaneRow) -> Self {
        Self { row, size: None, is_parked: false }
    }

    /// What to park of it next. What is not parked, because the lane has changed meanwhile, is left to the next trim: it keeps
    /// the log until then.
    async fn next(
        &mut self,
        store: &SharedStore,
        retention: &Retention,
        before: Seq,
    ) -> Result<Option<Park>, StoreError> {
        let needs_from = self.row.needs_from();
        let (events, looked_to, first) = match &self.row.lane.key {
            LaneKey::Event(seq) => match store.event(*seq).await? {
                Some(event) => (vec![event], PARKED_ALL - 1, *seq),
                None => (Vec::new(), PARKED_ALL - 1, seq + 1),
            },
            LaneKey::Object(object) => {
                let filter = Filter { topic: None, object: Some(object.clone()) };
                let page = store.read(Read { after: needs_from - 1, limit: EVENTS_AT_ONCE, filter }).await?;
                (page.events, page.next, page.first)
            }
        };
        if first > needs_from {
            // Something of it is lost already, and who runs it will say so: it must not be taken for parked.
            self.is_parked = true;
            return Ok(None);
        }
        let (group, key) = (self.row.group.clone(), self.row.lane.key.clone());
        let has = match self.size {
            Some(size) => size,
            None if self.row.parked_to.is_none() => ParkedSize::default(),
            None => store.parked_size(&group, &key).await?,
        };
        let sizes = events.iter().map(|event: &Event| (event.seq, event.bytes() as u64));
        let (seqs, to) = to_park(sizes, looked_to, before, has, retention.parked_max);
        let is_taken = |event: &&Event| seqs.contains(&event.seq);
        let bytes: u64 = events.iter().filter(is_taken).map(|event| event.bytes() as u64).sum();
        self.size = Some(ParkedSize { events: has.events + seqs.len() as u64, bytes: has.bytes + bytes });
        self.is_parked = to >= before || to <= needs_from || seqs.len() < events.len();
        let from = self.row.parked_to;
        if to <= needs_from {
            return Ok(None);
        }
        self.row.parked_to = Some(to);
        Ok(Some(Park { group, key, from, to, seqs }))
    }
}
