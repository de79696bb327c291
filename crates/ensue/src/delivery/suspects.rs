//! What ended the processes that ran it before?
//!
//! An event may end every process that runs it. Attempts that are counted before they start see to it that it is not tried
//! for ever (H25); but whatever else was under way at that moment would be counted too. So after a process has vanished,
//! what may have been the cause is run one at a time: then only the cause is counted.

use super::life::READ_AHEAD_MAX;
use ensue_core::Seq;
use ensue_core::positions::{AcquiredSlot, Lane, LaneKey};
use std::collections::HashSet;
use std::time::Duration;
use tokio::time::Instant;

/// So many owners in a row must have vanished at one place before every event from there on is a suspect.
const VANISHED_CAREFUL: u32 = 2;

/// What may have ended the owners before.
#[derive(Debug, Default)]
pub(super) struct Suspects {
    vanished: bool,
    /// Every event up to here is one.
    careful_to: Seq,
    /// Lanes that were being tried when an owner vanished.
    lanes: HashSet<LaneKey>,
    /// The one that runs, and since when.
    running: Option<(LaneKey, Instant)>,
    waiting: Vec<LaneKey>,
}

impl Suspects {
    /// For slots that begin at this cursor.
    pub fn of(slots: &[AcquiredSlot], cursor: Seq) -> Self {
        let vanished = slots.iter().map(|slot| slot.vanished).max().unwrap_or(0);
        let careful_to = if vanished >= VANISHED_CAREFUL { cursor + READ_AHEAD_MAX as Seq } else { 0 };
        Self { vanished: vanished > 0, careful_to, ..Self::default() }
    }

    /// A lane was taken over.
    pub fn loaded(&mut self, lane: &Lane) {
        if self.vanished && lane.attempts > 0 && lane.not_before.is_none() {
            self.lanes.insert(lane.key.clone());
        }
    }

    /// Is this event a suspect?
    pub fn is_one(&self, key: &LaneKey, seq: Seq) -> bool {
        seq <= self.careful_to || self.lanes.contains(key)
    }

    /// May it start? A suspect waits until no other one runs.
    pub fn may_start(&mut self, key: &LaneKey, seq: Seq) -> bool {
        if !self.is_one(key, seq) {
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
