//! How does one wait until there is nothing to do?
//!
//! What other processes have is theirs, as long as they live. A slot that one of them was killed with looks the same until its lease has passed: so
//! who drains waits until the owner is heard of again, or the slot is its own.

use super::start_and_stop::Deliveries;
use crate::Ensue;
use crate::error::Error;
use ensue_core::positions::{Owner, SlotNumber};
use ensue_core::{GroupName, Invalid, Seq, StoreError};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// How many events are moved into the log in one commit.
const RELEASED_AT_ONCE: usize = 1_000;
/// How often others are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// What nobody has taken in this time is with processes that cannot take it: it is not waited for.
const OTHERS_WAIT_MAX: Duration = Duration::from_secs(15);

impl Ensue {
    /// Waits until every handler of this process has done all there is to do now, jobs and schedules that are due included. What
    /// waits for its time is not waited for, nor what another live process has. For tests, and for work that is started by a timer.
    /// An error if the bus does not run.
    pub async fn drain(&self) -> Result<(), Error> {
        let (deliveries, jobs) = (self.inner().deliveries().clone(), self.inner().job_loops().clone());
        let (Some(deliveries), Some(jobs)) = (deliveries, jobs) else {
            let reason = "needs a bus that runs: nothing is handled before `start()` or after `shutdown`";
            return Err(Invalid::new("drain", reason).into());
        };
        loop {
            crate::schedules::fire_now(self).await?;
            self.release_all().await?;
            let end = self.store().bounds().await?.last;
            self.inner().tail.look_now();
            self.drain_handlers(&deliveries, end).await?;
            let ran_before = jobs.ran();
            let let_go = crate::jobs::look(self).await?.let_go;
            jobs.drained().await;
            // Handlers and jobs may have published, also in their own transactions, and sent jobs.
            self.release_all().await?;
            if self.store().bounds().await?.last == end && jobs.ran() == ran_before && let_go == 0 {
                return Ok(());
            }
        }
    }

    /// Moves into the log what is due, and what committed transactions have published.
    async fn release_all(&self) -> Result<(), StoreError> {
        while self.store().release_due(RELEASED_AT_ONCE).await?.count >= RELEASED_AT_ONCE {}
        Ok(())
    }

    /// Waits until what this process has is done, and what it has not is with somebody who lives.
    async fn drain_handlers(&self, deliveries: &Deliveries, end: Seq) -> Result<(), StoreError> {
        let begun = Instant::now();
        let mut first_seen: BTreeMap<(GroupName, SlotNumber), Option<Owner>> = BTreeMap::new();
        loop {
            deliveries.drained(end).await;
            if self.store().handler_slots() == 1 {
                return Ok(());
            }
            let mut is_waiting = false;
            for (group, slot) in deliveries.elsewhere(self.store(), end).await? {
                let seen = first_seen.entry((group, slot.slot)).or_insert_with(|| slot.owner.clone());
                // A lease that was renewed since is that of a process that lives.
                let lives = slot.owner.is_some() && *seen != slot.owner;
                is_waiting |= !lives;
            }
            if !is_waiting || begun.elapsed() > OTHERS_WAIT_MAX {
                return Ok(());
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}
