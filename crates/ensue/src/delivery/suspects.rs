//! What ended the processes that ran it before?
//!
//! An event may end every process that runs it. Attempts that are counted before they start see to it that it is not tried
//! for ever (H25); but whatever else was under way at that moment would be counted too. So after a process has vanished,
//! what may have been the cause is run one at a time: then only the cause is counted.

use ensue_core::Seq;
use ensue_core::positions::{AcquiredSlot, Lane, LaneKey};
use std::collections::{HashMap, HashSet};
use std::time::Duration;
use tokio::time::Instant;

/// So many owners in a row must have vanished at one place before every event from there on is a suspect.
const VANISHED_CAREFUL: u32 = 2;
/// How many starts of a lane are counted after a process has vanished: as many as may have ended since its row was written.
const COUNTED_STARTS: u32 = 100;

/// What may have ended the owners before.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    vanished: bool,
    /// Every event up to here is one.
    careful_to: Seq,
    /// Lanes that were being tried when an owner vanished.
    lanes: HashSet<LaneKey>,
    /// Lanes that may have been, as the cursor does not wait for them: how many starts are still to be counted. They
    /// run beside each other.
    counted: HashMap<LaneKey, u32>,
    /// The one that runs, and since when.
    running: Option<(LaneKey, Instant)>,
    waiting: Vec<LaneKey>,
}

impl Suspects {
    /// For slots that begin at this cursor.
    pub fn of(slots: &[AcquiredSlot], cursor: Seq, read_ahead: usize) -> Self {
        let vanished = slots.iter().map(|slot| slot.vanished).max().unwrap_or(0);
        let careful_to = if vanished >= VANISHED_CAREFUL { cursor + read_ahead as Seq } else { 0 };
        Self { vanished: vanished > 0, careful_to, ..Self::default() }
    }

    /// A lane was taken over.
    pub fn loaded(&mut self, lane: &Lane) {
        if self.vanished && lane.not_before.is_none() {
            match lane.attempts {
                0 => drop(self.counted.insert(lane.key.clone(), COUNTED_STARTS)),
                _ => drop(self.lanes.insert(lane.key.clone())),
            }
        }
    }

    /// Is a start of this lane to be written down before it?
    pub fn is_counted(&self, key: &LaneKey) -> bool {
        self.counted.contains_key(key)
    }

    /// Is this event a suspect?
    pub fn is_one(&self, key: &LaneKey, seq: Seq) -> bool {
        seq <= self.careful_to || self.lanes.contains(key)
    }

    /// May it start? A suspect waits until no other one runs; so does one that is counted, if this is its last attempt.
    pub fn may_start(&mut self, key: &LaneKey, seq: Seq, is_last_attempt: bool) -> bool {
        let waits = self.is_one(key, seq) || (is_last_attempt && self.is_counted(key));
        if !waits {
            return true;
        }
        match &self.running {
            Some((other, _)) if other != key => {
                self.waiting.push(key.clone());
                false
            }
            Some(_) | None => {
                self.running = Some((key.clone(), Instant::now()));
                true
            }
        }
    }

    /// An attempt has ended, and with it the suspicion; these may look again.
    pub fn ended(&mut self, key: &LaneKey) -> Vec<LaneKey> {
        if let Some(left) = self.counted.get_mut(key) {
            *left -= 1;
            if *left == 0 {
                self.counted.remove(key);
            }
        }
        if self.running.as_ref().is_none_or(|(running, _)| running != key) {
            return Vec::new();
        }
        self.running = None;
        self.lanes.remove(key);
        std::mem::take(&mut self.waiting)
    }

    /// If the one that runs has outlived this time, it is not what ends processes; these may look again.
    pub fn outlived(&mut self, time: Duration) -> Vec<LaneKey> {
        match &self.running {
            Some((key, since)) if since.elapsed() >= time => {
                let key = key.clone();
                self.ended(&key)
            }
            Some(_) | None => Vec::new(),
        }
    }
}
