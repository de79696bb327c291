//! How does a handler run a part of the log again, and then go on where it was?
//!
//! Each slot goes back before the range, and passes over what is between the end of the range and where it was: that is
//! done. So one stream runs all of it, in order for each object, and never two of one object at once. A range is only
//! replayed where nothing stands apart from the stream: a lane says what is done of its object with one place, which cannot
//! be in front of the range and behind it.

use crate::error::{Invalid, StoreError};
use crate::event::Seq;
use crate::key::GroupName;
use crate::positions::group::SlotState;
use crate::retention::Bounds;

/// A slot's way through a range that is run again. It is kept when the slot has passed it, for lanes that it left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replay {
    /// The last event that is run again.
    pub to: Seq,
    /// Where the slot was: what is after `to` and up to here is done.
    pub resume: Seq,
}

impl Replay {
    /// Is this event done, although the slot's cursor may be before it?
    pub fn skips(&self, seq: Seq) -> bool {
        seq > self.to && seq <= self.resume
    }
}

/// Where a slot goes that stands at `cursor` when what is after `after` and up to `to` is to be run again; none if it has not
/// come there yet.
pub fn replayed(cursor: Seq, after: Seq, to: Seq) -> Option<(Seq, Option<Replay>)> {
    match cursor {
        cursor if cursor <= after => None,
        cursor if cursor <= to => Some((after, None)),
        resume => Some((after, Some(Replay { to, resume }))),
    }
}

/// Does a group replay something?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnderWay {
    /// No.
    Nothing,
    /// What is asked for, and nobody has begun with it: asked for twice, because an answer was lost, it is done once.
    NotBegun,
    /// Yes.
    Something,
}

impl UnderWay {
    /// Of a group with these slots, when what is after `after` and up to `to` is asked for.
    pub fn of(slots: &[SlotState], after: Seq, to: Seq) -> Self {
        let is_under_way = |slot: &&SlotState| slot.replay.is_some_and(|replay| slot.cursor < replay.resume);
        let is_the_same = |slot: &SlotState| {
            slot.cursor == after && slot.owner.is_none() && slot.replay.is_some_and(|replay| replay.to == to)
        };
        let mut under_way = slots.iter().filter(is_under_way);
        match under_way.clone().next() {
            None => Self::Nothing,
            Some(_) if under_way.all(is_the_same) => Self::NotBegun,
            Some(_) => Self::Something,
        }
    }
}

/// Can this range be read?
pub fn check_range(after: Seq, to: Seq, bounds: Bounds) -> Result<(), Invalid> {
    let Bounds { first, last } = bounds;
    if after + 1 < first {
        let reason =
            format!("is {}, but the oldest event in the log is {first}: choose that or a later one", after + 1);
        return Err(Invalid::new("from", reason));
    }
    if to > last {
        let reason = format!("is {to}, but the newest event is {last}: choose that or an earlier one");
        return Err(Invalid::new("to", reason));
    }
    if to <= after {
        let reason = format!("is {to}: choose the last seq of the range, at least its first, {}", after + 1);
        return Err(Invalid::new("to", reason));
    }
    Ok(())
}

/// Why a group runs nothing again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unreplayable {
    /// It is read from outside.
    IsRead,
    /// An object of it stands apart, or is given up.
    HasLanes,
    /// It is at it already.
    IsUnderWay,
}

impl Unreplayable {
    /// The error of a group.
    pub fn of(self, group: &GroupName) -> StoreError {
        let what_to_do = match self {
            Self::IsRead => "is read from outside, and no handler runs it: read the range with `peek` and `cursor`",
            Self::HasLanes => {
                "has objects that wait or are held: retry or skip what is held, wait for what is retried, and ask again; or \
                 seek, which runs everything after a place again"
            }
            Self::IsUnderWay => "is replaying a range already: ask again when it is through, or seek",
        };
        StoreError::Conflict(format!("the group `{group}` {what_to_do}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_goes_back_and_passes_over_what_is_done() {
        assert_eq!(replayed(9, 9, 20), None);
        assert_eq!(replayed(5, 9, 20), None);
        assert_eq!(replayed(10, 9, 20), Some((9, None)));
        assert_eq!(replayed(20, 9, 20), Some((9, None)));
        let replay = Replay { to: 20, resume: 100 };
        assert_eq!(replayed(100, 9, 20), Some((9, Some(replay))));
        assert_eq!([20, 21, 100, 101].map(|seq| replay.skips(seq)), [false, true, true, false]);
    }

    #[test]
    fn a_range_outside_of_the_log_is_refused_with_what_to_choose() {
        let bounds = Bounds { first: 11, last: 20 };
        assert_eq!(check_range(10, 20, bounds), Ok(()));
        assert_eq!(check_range(10, 11, bounds), Ok(()));
        for (after, to, field) in [(9, 20, "from"), (10, 21, "to"), (12, 12, "to"), (12, 11, "to")] {
            assert_eq!(check_range(after, to, bounds).unwrap_err().field, field, "{after}..={to}");
        }
    }
}
