//! What does parking mean?

use super::State;
use super::known::Known;
use ensue_core::positions::{LaneKey, LaneRow, LaneState, Park, ParkedQuery, ParkedSize};
use ensue_core::{Event, GroupName, Seq};

/// An event that was copied aside for a lane.
#[derive(Debug, Clone)]
pub(super) struct Parked {
    pub group: GroupName,
    pub key: LaneKey,
    pub event: Event,
}

impl Parked {
    fn is_of(&self, group: &GroupName, key: &LaneKey) -> bool {
        self.group == *group && self.key == *key
    }
}

/// Does a lane need its events?
pub(super) fn is_needed(row: &LaneRow) -> bool {
    matches!(row.lane.state, LaneState::Waiting | LaneState::Held)
}

impl State {
    pub fn park(&mut self, park: Park) -> bool {
        let Park { group, key, from, to, mut seqs } = park;
        let is_it = |row: &&mut LaneRow| row.group == group && row.lane.key == key && is_needed(row);
        let Some(row) = self.known.lanes.iter_mut().find(is_it) else { return false };
        if row.parked_to != from || from.is_some_and(|from| to <= from) {
            return false;
        }
        seqs.retain(|seq| *seq >= row.lane.position);
        let events: Vec<Event> = self.log.iter().filter(|event| seqs.contains(&event.seq)).cloned().collect();
        if events.len() != seqs.len() {
            return false;
        }
        row.parked_to = Some(to);
        let parked = events.into_iter().map(|event| Parked { group: group.clone(), key: key.clone(), event });
        self.known.parked.extend(parked);
        true
    }
}

impl Known {
    /// As many of what is asked for as there are.
    pub fn parked(&self, query: &ParkedQuery, limit: usize) -> Vec<&Event> {
        let all = self.parked.iter();
        let (mut found, limit): (Vec<&Event>, usize) = match query {
            ParkedQuery::Lane { group, key, after } => {
                let of_lane = all.filter(|one| one.is_of(group, key) && one.event.seq > *after);
                (of_lane.map(|one| &one.event).collect(), limit)
            }
            ParkedQuery::Place(seq) => {
                (all.filter(|one| one.event.seq == *seq).map(|one| &one.event).collect(), limit.min(1))
            }
            ParkedQuery::Id(id) => {
                (all.filter(|one| one.event.id == *id).map(|one| &one.event).collect(), limit.min(1))
            }
        };
        found.sort_by_key(|event| event.seq);
        found.truncate(limit);
        found
    }

    pub fn parked_size(&self, group: &GroupName, key: &LaneKey) -> ParkedSize {
        let of_lane = || self.parked.iter().filter(|one| one.is_of(group, key));
        let bytes = of_lane().map(|one| one.event.bytes() as u64).sum();
        ParkedSize { events: of_lane().count() as u64, bytes }
    }

    /// A lane has passed what is before this place, or all if it is gone.
    pub fn forget_parked(&mut self, group: &GroupName, key: &LaneKey, before: Option<Seq>) {
        let is_passed = |one: &Parked| before.is_none_or(|before| one.event.seq < before);
        self.parked.retain(|one| !one.is_of(group, key) || !is_passed(one));
    }
}
