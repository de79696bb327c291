//! What has happened to a worker's slots and lanes?
//!
//! Processes come and go, and with them slots; and somebody may ask something of a lane.

use super::life::{Ending, Life};
use super::member::View;
use super::ticks::SLOTS_LOOK_EVERY;
use ensue_core::StoreError;
use ensue_core::handling::SyncOutcome;
use ensue_core::positions::{AcquiredSlot, Ask, Lane, LaneKey, LaneQuery, LaneState, SlotNumber};
use tokio::sync::watch;
use tokio::time::Instant;

/// How many asks are looked at once.
const ASKS_MAX: usize = 1_000;

impl Life<'_> {
    /// Something happened to the members, to this one's slots or to a lane. Must the worker begin again?
    pub async fn ownership_changed(&mut self, view: &mut watch::Receiver<View>) -> Result<bool, StoreError> {
        let seen = std::mem::replace(&mut self.view, view.borrow_and_update().clone());
        if self.view.asked_here != seen.asked_here || self.view.version != seen.version {
            self.answer_asked().await?;
        }
        if self.view.is_same_for(&self.worker.spec.key, &seen) {
            return Ok(false);
        }
        let owned: Vec<SlotNumber> = self.slots.iter().map(|slot| slot.slot).collect();
        let has = self.worker.acquire(&owned).await?;
        let fences = |slots: &[AcquiredSlot]| slots.iter().map(|slot| (slot.slot, slot.fence)).collect::<Vec<_>>();
        if fences(&has) != fences(&self.slots) {
            return Ok(true);
        }
        let wanted = self.worker.wanted();
        if self.ending.is_none() && owned.iter().any(|slot| !wanted.contains(slot)) {
            (self.ending, self.ending_since) = (Some(Ending::HandOver), Instant::now());
        }
        Ok(false)
    }

    /// Looks for slots that should be this worker's and were not free.
    pub async fn look_for_slots(&mut self) -> Result<(), StoreError> {
        if self.ending.is_some() || self.slots_looked.elapsed() < SLOTS_LOOK_EVERY {
            return Ok(());
        }
        self.slots_looked = Instant::now();
        let wanted = self.worker.wanted();
        let is_owned = |slot: &SlotNumber| self.slots.iter().any(|owned| owned.slot == *slot);
        let missing: Vec<SlotNumber> = wanted.into_iter().filter(|slot| !is_owned(slot)).collect();
        if !missing.is_empty() && !self.worker.acquire(&missing).await?.is_empty() {
            // They are taken in with a new life; what runs is finished first.
            (self.ending, self.ending_since) = (Some(Ending::HandOver), Instant::now());
        }
        Ok(())
    }

    /// Does what was asked of lanes since.
    pub async fn answer_asked(&mut self) -> Result<(), StoreError> {
        let asked = self.worker.store.lanes(LaneQuery::Asked(self.worker.membership.member.id), ASKS_MAX).await?;
        // Those of other handlers are answered by them; then this one looks again.
        self.asked_more = asked.len() >= ASKS_MAX;
        for row in asked {
            if row.group == self.worker.spec.key
                && let Some(ask) = row.ask
                && self.is_unanswered(&row.lane)
            {
                self.answer(&row.lane.key, ask);
            }
        }
        Ok(())
    }

    /// Is what was asked of a lane, as it is stored, still to be done? It is stored until the answer is written: whoever looks again
    /// before that finds a lane that has gone on since, and would pass over one event more.
    fn is_unanswered(&self, stored: &Lane) -> bool {
        let row = self.lanes.get(&stored.key).and_then(|memory| memory.row.as_ref());
        row.is_some_and(|row| row.lane.position <= stored.position)
    }

    /// Does what somebody asked of a lane.
    pub fn answer(&mut self, key: &LaneKey, ask: Ask) {
        let Some(memory) = self.lanes.get_mut(key) else { return };
        // What runs is finished first.
        if memory.busy.is_some() {
            memory.ask = Some(ask);
            return;
        }
        let Some(row) = &mut memory.row else { return };
        let (slot, seq) = (row.slot, row.lane.position);
        match ask {
            Ask::Retry => {
                (row.lane.state, row.lane.attempts, row.lane.not_before) = (LaneState::Waiting, 0, None);
                row.lane.redriven = true;
                self.started_before.remove(&seq);
                self.worker.progress.reopen(seq);
            }
            Ask::Skip => {
                let (attempts, error) = (row.lane.attempts, row.lane.error.clone());
                self.worker.progress.ended(seq, SyncOutcome::skipped(error.clone()));
                self.record_skipped(slot, key, seq, attempts, error);
                self.lanes.pass(key, seq);
            }
        }
        if let Some(row) = self.lanes.get(key).and_then(|memory| memory.row.clone()) {
            self.pending.put(row.slot, row.lane);
        }
        self.lanes.ready(key);
    }
}
