//! What comes by the clock?
//!
//! Lanes that are due, attempts that take long, children that have waited long enough, slots that should be this worker's.

use super::checkpoint::CHECKPOINT_LAZILY;
use super::lanes::Busy;
use super::life::{Ending, Life};
use ensue_core::StoreError;
use ensue_core::positions::LaneKey;
use std::time::Duration;
use tokio::time::Instant;

/// An attempt that takes longer gets a row, so that the cursor can pass it.
const SLOW_AFTER: Duration = Duration::from_secs(2);
/// How often attempts are looked at for that.
const SLOW_LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long slots that are to be given back wait for what runs.
const HAND_OVER_MAX: Duration = Duration::from_secs(5);
/// How long lanes that wait sleep at most before the store's clock is looked at again.
const CLOCK_LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often slots are looked for that should be this worker's.
pub(super) const SLOTS_LOOK_EVERY: Duration = Duration::from_secs(1);

impl Life<'_> {
    pub fn sleep_until(&self) -> Instant {
        let now = Instant::now();
        let lazily = self.checkpointed + CHECKPOINT_LAZILY;
        let checkpoint = self.checkpointed + self.checkpoint_every;
        let is_moving = self.flushing.is_none() && (self.moved || !self.pending.is_empty());
        let mut until = if is_moving { checkpoint } else { lazily.max(now + CLOCK_LOOK_EVERY) };
        if !self.running.is_empty() || !self.parked.is_empty() || self.asked_more {
            until = until.min(now + SLOW_LOOK_EVERY);
        }
        if self.slots.len() < usize::from(self.worker.slots_total) {
            until = until.min(now + SLOTS_LOOK_EVERY);
        }
        if let Some(due) = self.lanes.next_due() {
            let wait = Duration::try_from(due.duration_since(self.now)).unwrap_or_default();
            until = until.min(now + wait.clamp(Duration::from_millis(1), CLOCK_LOOK_EVERY));
        }
        until
    }

    /// Looks at the clock, at lanes that are due and at attempts that take long.
    pub async fn tick(&mut self) -> Result<(), StoreError> {
        if self.lanes.next_due().is_some() {
            self.now = self.worker.membership.now().await?;
            self.lanes.wake_due(self.now);
        }
        if self.slow_looked.elapsed() >= SLOW_LOOK_EVERY {
            self.slow_looked = Instant::now();
            let is_slow = |busy: Option<Busy>| match busy {
                Some(Busy::Attempt { since, .. }) => since.elapsed() >= SLOW_AFTER,
                Some(Busy::Writing | Busy::Fetching) | None => false,
            };
            let slow: Vec<LaneKey> = (self.lanes.iter())
                .filter(|(_, lane)| lane.row.as_ref().is_none_or(|row| row.lane.attempts == 0) && is_slow(lane.busy))
                .map(|(key, _)| key.clone())
                .collect();
            slow.into_iter().for_each(|key| self.step_aside(&key));
        }
        if self.asked_more {
            self.answer_asked().await?;
        }
        self.look_for_slots().await?;
        for key in self.suspects.outlived(SLOW_AFTER) {
            self.lanes.ready(&key);
        }
        if self.ending == Some(Ending::HandOver) && self.ending_since.elapsed() >= HAND_OVER_MAX {
            // Who takes over runs them again.
            self.running.abort_all();
        }
        self.unpark();
        Ok(())
    }

    /// Lets those that wait for their parents look again.
    pub fn unpark(&mut self) {
        for key in std::mem::take(&mut self.parked) {
            self.lanes.ready(&key);
        }
    }
}
