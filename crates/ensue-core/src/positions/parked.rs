//! What is kept of a lane whose events retention is about to take?
//!
//! A lane that stands still needs its event and those behind it, but must not keep the whole log. Before retention takes
//! them, these few are copied aside: they are *parked*. `parked_to` of the lane says how far: what it needs before that
//! place is in parked rows, what it needs from there on is in the log. A parked row goes when its lane has passed it.
//!
//! Parking comes before the trim, and a lane that is fetched looks at the log first: what it does not find there any more
//! was parked before it went. So nothing falls between the two, wherever either is interrupted.

use crate::event::Seq;
use crate::id::EventId;
use crate::key::GroupName;
use crate::positions::lane::LaneKey;

/// How far an event alone is parked: it needs nothing of what comes after it.
pub const PARKED_ALL: Seq = i64::MAX as Seq;

/// How much of one lane is parked at most. Beyond that the lane keeps the log, as if nothing could be parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ParkedMax {
    /// So many events.
    pub events: u64,
    /// So many bytes of events.
    pub bytes: u64,
}

impl Default for ParkedMax {
    fn default() -> Self {
        Self { events: 10_000, bytes: 16 << 20 }
    }
}

/// How much of a lane is parked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ParkedSize {
    /// So many events.
    pub events: u64,
    /// About so many bytes of events, as the engine keeps them.
    pub bytes: u64,
}

/// What to copy aside for one lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Park {
    /// Of this group.
    pub group: GroupName,
    /// Whose lane.
    pub key: LaneKey,
    /// How far it was parked when this was decided: if that has changed, nothing is done.
    pub from: Option<Seq>,
    /// How far it is parked then.
    pub to: Seq,
    /// The events to copy, in order: all that the lane needs from where it is parked up to `to`.
    pub seqs: Vec<Seq>,
}

/// Which parked events to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParkedQuery {
    /// Those of a lane after this place, in order.
    Lane {
        /// Of this group.
        group: GroupName,
        /// Whose lane.
        key: LaneKey,
        /// After this place.
        after: Seq,
    },
    /// The event at this place, whoever needs it.
    Place(Seq),
    /// The event of this id, whoever needs it.
    Id(EventId),
}

/// Which of a lane's events to park: those before `wanted_to`, as far as they fit. `events` are those that the lane needs,
/// each with its bytes, in order; up to `looked_to` there are no others. Answers with their places, and how far the lane is
/// parked then: up to the first event that stays in the log.
pub fn to_park(
    events: impl IntoIterator<Item = (Seq, u64)>,
    looked_to: Seq,
    wanted_to: Seq,
    has: ParkedSize,
    max: ParkedMax,
) -> (Vec<Seq>, Seq) {
    let (mut seqs, mut size) = (Vec::new(), has);
    for (seq, bytes) in events {
        size = ParkedSize { events: size.events + 1, bytes: size.bytes.saturating_add(bytes) };
        if seq >= wanted_to || size.events > max.events || size.bytes > max.bytes {
            return (seqs, seq);
        }
        seqs.push(seq);
    }
    // Nothing more of this lane is there: it needs nothing before what comes next.
    (seqs, looked_to + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: [(Seq, u64); 4] = [(3, 10), (5, 20), (8, 30), (13, 40)];
    const NONE: ParkedSize = ParkedSize { events: 0, bytes: 0 };

    fn max(events: u64, bytes: u64) -> ParkedMax {
        ParkedMax { events, bytes }
    }

    #[test]
    fn what_retention_wants_is_parked_up_to_the_first_event_that_stays() {
        assert_eq!(to_park(EVENTS, 20, 8, NONE, ParkedMax::default()), (vec![3, 5], 8));
        assert_eq!(to_park(EVENTS, 20, 9, NONE, ParkedMax::default()), (vec![3, 5, 8], 13));
        assert_eq!(to_park(EVENTS, 20, 2, NONE, ParkedMax::default()), (vec![], 3));
    }

    #[test]
    fn a_lane_without_further_events_needs_nothing_of_what_was_looked_at() {
        assert_eq!(to_park(EVENTS, 20, 14, NONE, ParkedMax::default()), (vec![3, 5, 8, 13], 21));
        assert_eq!(to_park([], 20, 14, NONE, ParkedMax::default()), (vec![], 21));
    }

    #[test]
    fn beyond_its_bounds_a_lane_keeps_the_log() {
        assert_eq!(to_park(EVENTS, 20, 14, NONE, max(2, 1_000)), (vec![3, 5], 8));
        assert_eq!(to_park(EVENTS, 20, 14, NONE, max(10, 59)), (vec![3, 5], 8));
        assert_eq!(to_park(EVENTS, 20, 14, NONE, max(10, 60)), (vec![3, 5, 8], 13));
        let has = ParkedSize { events: 9, bytes: 0 };
        assert_eq!(to_park(EVENTS, 20, 14, has, max(10, 1_000)), (vec![3], 5));
        let full = ParkedSize { events: 10, bytes: u64::MAX };
        assert_eq!(to_park(EVENTS, 20, 14, full, max(10, 1_000)), (vec![], 3));
    }
}
