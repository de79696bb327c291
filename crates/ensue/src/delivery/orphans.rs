//! Which slots does nobody claim?
//!
//! Every process works out alone which slots should be whose, over all live processes; but not every process has every
//! handler. A slot that should belong to one that does not serve this group would stay free: so whoever serves it takes
//! what has been free for longer than its rightful owner would need to claim it.

use super::member::Membership;
use ensue_core::Timestamp;
use ensue_core::positions::{GroupState, SlotNumber, SlotState};
use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// How long a slot must have been free: longer than a process needs to finish what runs and take in what should be its own.
const FREE_FOR: Duration = Duration::from_secs(8);

/// The slots of one group that nobody claims.
#[derive(Default)]
pub(super) struct Orphans(Mutex<State>);

#[derive(Default)]
struct State {
    free_since: HashMap<SlotNumber, Instant>,
    taken_on: BTreeSet<SlotNumber>,
}

impl Orphans {
    /// Looks at a group as it is now; are there slots to take on that were not before?
    pub fn look(&self, group: &GroupState, now: Timestamp) -> bool {
        let is_free = |slot: &&SlotState| slot.owner.as_ref().is_none_or(|owner| owner.lease_until < now);
        let free: Vec<SlotNumber> = group.slots.iter().filter(is_free).map(|slot| slot.slot).collect();
        let mut state = self.lock();
        state.free_since.retain(|slot, _| free.contains(slot));
        let mut found = false;
        for slot in free {
            let since = *state.free_since.entry(slot).or_insert_with(Instant::now);
            if since.elapsed() >= FREE_FOR {
                found |= state.taken_on.insert(slot);
            }
        }
        found
    }

    /// Who comes may claim them: they are nobody's again.
    pub fn forget(&self) {
        *self.lock() = State::default();
    }

    /// The slots that a process should have: its own, and those that nobody claims.
    pub fn beside(&self, membership: &Membership, slots: u16) -> Vec<SlotNumber> {
        let own: BTreeSet<SlotNumber> = membership.wanted(slots).into_iter().collect();
        own.union(&self.lock().taken_on).copied().collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
