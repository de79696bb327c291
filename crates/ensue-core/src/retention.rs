//! What may be forgotten?
//!
//! The log is trimmed from its old end, by age, by size or both: whichever asks for more. The newest number and time
//! given out survive any trim, so `seq` goes on where it was even when nothing is left.

use crate::event::Seq;
use jiff::{SignedDuration, Timestamp};

/// What the owner of a log wants kept. Nothing set means: everything.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Retention {
    /// Forget what was recorded longer ago than this.
    pub age: Option<SignedDuration>,
    /// Forget the oldest beyond about this many bytes of events.
    pub bytes: Option<u64>,
}

impl Retention {
    /// The time before which events may go, or none if age does not matter.
    pub fn horizon(&self, now: Timestamp) -> Option<Timestamp> {
        now.checked_sub(self.age?).ok()
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

    const BOUNDS: Bounds = Bounds { first: 101, last: 200 };

    #[test]
    fn nothing_set_keeps_everything() {
        assert_eq!(keep_from(&Retention::default(), BOUNDS, None, u64::MAX), 101);
    }

    #[test]
    fn whichever_of_age_and_size_asks_for_more_wins() {
        let retention = Retention { age: Some(SignedDuration::from_hours(1)), bytes: Some(50) };
        assert_eq!(keep_from(&retention, BOUNDS, Some(120), 100), 151);
        assert_eq!(keep_from(&retention, BOUNDS, Some(180), 100), 180);
        assert_eq!(keep_from(&retention, BOUNDS, Some(180), 10), 180);
    }

    #[test]
    fn a_trim_may_empty_the_log_and_never_reaches_beyond_it() {
        let retention = Retention { age: None, bytes: Some(0) };
        assert_eq!(keep_from(&retention, BOUNDS, None, 1), 201);
        let empty = Bounds { first: 201, last: 200 };
        assert_eq!(empty.count(), 0);
        assert_eq!(keep_from(&retention, empty, Some(500), 0), 201);
    }
}
