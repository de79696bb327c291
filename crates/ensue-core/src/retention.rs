//! What may be forgotten?
//!
//! The log is trimmed from its old end, by age, by size or both: whichever asks for more. The newest number and time
//! given out survive any trim, so `seq` goes on where it was even when nothing is left.
//!
//! What a group has not passed stays, however old or large the log is, unless the group is an orphan: nobody has served it
//! for longer than the owner of the log is willing to wait. What an orphan loses, it is told.
//!
//! A lane that stands still does not keep the log: what it needs is parked first
//! ([`parked`](crate::positions::parked)), up to a bound.

use crate::event::Seq;
use crate::positions::{GroupState, ParkedMax};
use jiff::{SignedDuration, Timestamp};

/// What the owner of a log wants kept. Nothing set means: everything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// Forget what was recorded longer ago than this.
    pub age: Option<SignedDuration>,
    /// Forget the oldest beyond about this many bytes of events.
    pub bytes: Option<u64>,
    /// Keep what a group still needs for so long after it was last served; for ever if there is none.
    pub hold_max: Option<SignedDuration>,
    /// How much is copied aside for a lane that stands still, before it keeps the log.
    pub parked_max: ParkedMax,
}

impl Retention {
    /// The time before which events may go, or none if age does not matter.
    pub fn horizon(&self, now: Timestamp) -> Option<Timestamp> {
        now.checked_sub(self.age?).ok()
    }

    /// Is there anything to forget, ever?
    pub fn forgets(&self) -> bool {
        self.age.is_some() || self.bytes.is_some()
    }

    /// Has nobody served this group for so long that the log no longer waits for it?
    pub fn is_orphan(&self, group: &GroupState, now: Timestamp) -> bool {
        self.hold_max.is_some_and(|hold_max| now.duration_since(group.served_at) > hold_max)
    }

    /// The group that holds the log back, and the oldest event that it still needs; none if nobody holds it.
    pub fn held_back_by<'g>(
        &self,
        groups: impl IntoIterator<Item = &'g GroupState>,
        now: Timestamp,
    ) -> Option<(&'g GroupState, Seq)> {
        let waited_for = groups.into_iter().filter(|group| !self.is_orphan(group, now));
        waited_for.map(|group| (group, group.needs_from())).min_by_key(|(_, needs_from)| *needs_from)
    }

    /// Lanes that need events before which place are in the way of a trim up to `unwanted_before`? Where a group's own cursor
    /// keeps the log, nothing is gained by parking what is behind it. None if no lane is in the way.
    pub fn lanes_in_the_way(&self, groups: &[GroupState], unwanted_before: Seq, now: Timestamp) -> Option<Seq> {
        let waited_for = || groups.iter().filter(|group| !self.is_orphan(group, now));
        let before = waited_for().map(|group| group.cursor() + 1).fold(unwanted_before, Seq::min);
        let is_in_the_way = |group: &GroupState| group.oldest_lane.is_some_and(|needed| needed < before);
        waited_for().any(is_in_the_way).then_some(before)
    }
}

/// What of the log is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bounds {
    /// The oldest event still in the log; `last + 1` when it is empty.
    pub first: Seq,
    /// The newest `seq` ever given out; 0 if none ever was.
    pub last: Seq,
}

impl Bounds {
    /// How many events are in the log.
    pub fn count(&self) -> u64 {
        self.last + 1 - self.first
    }
}

/// The oldest event to keep. `first_young` is the first event at or after the [`Retention::horizon`] (none if age does
/// not matter), `bytes` the size of the log as it is, taken as evenly spread.
pub fn keep_from(retention: &Retention, bounds: Bounds, first_young: Option<Seq>, bytes: u64) -> Seq {
    let by_age = first_young.unwrap_or(bounds.first);
    let by_size = match retention.bytes {
        Some(bytes_max) if bytes > bytes_max => {
            let keep = u128::from(bounds.count()) * u128::from(bytes_max) / u128::from(bytes);
            bounds.last + 1 - keep as u64
        }
        _ => bounds.first,
    };
    by_age.max(by_size).clamp(bounds.first, bounds.last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::GroupName;
    use crate::positions::{GroupKind, SlotState};

    const BOUNDS: Bounds = Bounds { first: 101, last: 200 };

    #[test]
    fn nothing_set_keeps_everything() {
        assert_eq!(keep_from(&Retention::default(), BOUNDS, None, u64::MAX), 101);
    }

    #[test]
    fn whichever_of_age_and_size_asks_for_more_wins() {
        let retention = Retention { age: Some(SignedDuration::from_hours(1)), bytes: Some(50), ..Retention::default() };
        assert_eq!(keep_from(&retention, BOUNDS, Some(120), 100), 151);
        assert_eq!(keep_from(&retention, BOUNDS, Some(180), 100), 180);
        assert_eq!(keep_from(&retention, BOUNDS, Some(180), 10), 180);
    }

    #[test]
    fn a_trim_may_empty_the_log_and_never_reaches_beyond_it() {
        let retention = Retention { bytes: Some(0), ..Retention::default() };
        assert_eq!(keep_from(&retention, BOUNDS, None, 1), 201);
        let empty = Bounds { first: 201, last: 200 };
        assert_eq!(empty.count(), 0);
        assert_eq!(keep_from(&retention, empty, Some(500), 0), 201);
    }

    fn group(name: &str, cursor: Seq, oldest_lane: Option<Seq>, served_hours_ago: i64) -> GroupState {
        let slot = SlotState { slot: 0, cursor, fence: 1, vanished: 0, owner: None, replay: None };
        let served_at = NOW.checked_sub(SignedDuration::from_hours(served_hours_ago)).unwrap();
        GroupState {
            name: GroupName::stored(name),
            kind: GroupKind::Pull,
            created_at: Timestamp::UNIX_EPOCH,
            served_at,
            slots: vec![slot],
            version: 1,
            subscriptions: 0,
            lanes: 0,
            oldest_lane,
            lost: None,
        }
    }

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn held(hold_max_hours: Option<i64>, groups: &[GroupState]) -> Option<(&str, Seq)> {
        let hold_max = hold_max_hours.map(SignedDuration::from_hours);
        let retention = Retention { hold_max, ..Retention::default() };
        retention.held_back_by(groups, NOW).map(|(group, from)| (group.name.as_str(), from))
    }

    #[test]
    fn the_group_that_needs_the_oldest_event_holds_the_log() {
        assert_eq!(held(Some(24), &[]), None);
        let groups = [group("fast", 190, None, 0), group("slow", 150, None, 1), group("stuck", 180, Some(120), 2)];
        assert_eq!(held(Some(24), &groups[..2]), Some(("slow", 151)));
        assert_eq!(held(Some(24), &groups), Some(("stuck", 120)), "a lane needs its event");
    }

    #[test]
    fn lanes_are_in_the_way_only_behind_the_slowest_cursor() {
        let retention = Retention { hold_max: Some(SignedDuration::from_hours(24)), ..Retention::default() };
        let in_the_way = |groups: &[GroupState]| retention.lanes_in_the_way(groups, 170, NOW);
        assert_eq!(in_the_way(&[]), None);
        assert_eq!(in_the_way(&[group("fast", 190, None, 0), group("later", 190, Some(170), 0)]), None);
        assert_eq!(in_the_way(&[group("stuck", 190, Some(120), 0)]), Some(170));
        assert_eq!(in_the_way(&[group("slow", 150, None, 0), group("stuck", 190, Some(120), 0)]), Some(151));
        assert_eq!(in_the_way(&[group("slow", 110, None, 0), group("stuck", 190, Some(120), 0)]), None);
        assert_eq!(in_the_way(&[group("slow", 110, None, 25), group("stuck", 190, Some(120), 0)]), Some(170));
        assert_eq!(in_the_way(&[group("orphan", 190, Some(120), 25)]), None, "nobody waits for it");
    }

    #[test]
    fn an_orphan_holds_nothing_unless_the_log_waits_for_ever() {
        let groups = [group("live", 150, None, 24), group("orphan", 10, None, 25)];
        assert_eq!(held(Some(24), &groups), Some(("live", 151)));
        assert_eq!(held(None, &groups), Some(("orphan", 11)));
        assert_eq!(held(Some(24), &groups[1..]), None);
        // A lease that ends later than now is no reason to call its group an orphan.
        assert_eq!(held(Some(24), &[group("leased", 10, None, -1)]), Some(("leased", 11)));
    }
}
