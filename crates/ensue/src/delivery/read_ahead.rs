//! Bounds of the events that a handler holds in memory.
//!
//! A handler reads ahead of what it runs, so that other objects run while one waits. One object may hold a small part of
//! that: its lane leaves the rest in the log and reads it from there, in order ([`Life::overflow`]). So a busy object
//! takes neither the memory nor the turn of the others.

use super::life::Life;
use ensue_core::positions::LaneKey;
use ensue_core::{Event, Invalid, Seq};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Default number of events that a handler holds which are not done.
pub const READ_AHEAD: usize = 1_024;
/// The most events that a handler may hold.
pub const READ_AHEAD_MAX: usize = 16_384;
/// How many bytes of events a handler holds that are not done.
const BYTES_MAX: usize = 16 << 20;
/// One object holds at most this part of each.
const OBJECTS_MIN: usize = 16;

/// Can a handler read ahead so many events?
pub fn check_read_ahead(events: usize) -> Result<usize, Invalid> {
    if (1..=READ_AHEAD_MAX).contains(&events) {
        return Ok(events);
    }
    Err(Invalid::new("read_ahead", format!("is {events}; choose between 1 and {READ_AHEAD_MAX}")))
}

/// How much a handler holds in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ReadAhead {
    pub events_max: usize,
    pub bytes_max: usize,
    /// For one object; but always one event.
    pub lane_events_max: usize,
    pub lane_bytes_max: usize,
}

impl ReadAhead {
    /// Of so many events, for a handler of batches of this size: one object can fill a batch.
    pub fn of(events_max: usize, batch: usize) -> Self {
        let lane_events_max = (events_max / OBJECTS_MIN).max(batch).max(1);
        Self { events_max, bytes_max: BYTES_MAX, lane_events_max, lane_bytes_max: BYTES_MAX / OBJECTS_MIN }
    }
}

impl Life<'_> {
    pub fn read_ahead(&self) -> ReadAhead {
        ReadAhead::of(self.worker.read_ahead.load(Ordering::Relaxed), self.worker.spec.batch)
    }

    /// Must this event wait for its lane? One that has just become full may be emptied at once by a quick handler; and
    /// while the end of an attempt is written with what it published, a row would take the place of its mark.
    pub fn waits_for_lane(&mut self, event: &Event, bounds: &ReadAhead) -> bool {
        let key = self.lane_of(event);
        if !self.lanes.is_full(&key, bounds) {
            return false;
        }
        let has_waited = self.waited_at == Some(event.seq);
        self.waited_at = Some(event.seq);
        self.looks_again = !has_waited;
        !has_waited || self.lanes.is_writing(&key)
    }

    /// The row of a full lane stands for this event: the cursor may pass it, as in [`Life::cover`]. Nobody has tried it,
    /// so that children wait for it.
    pub fn leave_in_log(&mut self, key: &LaneKey, seq: Seq) {
        self.window.done(seq);
        self.worker.progress.left_in_log(key, seq);
    }

    /// A lane that is full gets a row: from now on it reads the log, and keeps what it holds.
    pub fn overflow(&mut self, key: &LaneKey, first: &Arc<Event>) {
        let (slot, lane) = (self.slot_of(first), self.waiting(key, first.seq, 0));
        for seq in self.lanes.overflow(key, slot, lane.clone()) {
            self.leave_in_log(key, seq);
        }
        self.pending.put(slot, lane);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_object_holds_a_small_part_but_fills_a_batch() {
        let lane_of = |events, batch| ReadAhead::of(events, batch).lane_events_max;
        assert_eq!([lane_of(1_024, 1), lane_of(1_024, 500), lane_of(8, 1)], [64, 500, 1]);
    }

    #[test]
    fn bounds_of_the_read_ahead_are_told() {
        assert_eq!(check_read_ahead(16_384), Ok(16_384));
        for bad in [0, 16_385] {
            assert!(check_read_ahead(bad).unwrap_err().reason.ends_with("choose between 1 and 16384"));
        }
    }
}
