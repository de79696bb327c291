//! When is what is done written down?
//!
//! Cursors a few times a second, and lazily where nothing matched; rows, claims and what handlers publish at once. One write is
//! under way at a time, and what is to be written meanwhile gathers.

use super::life::{End, Life};
use super::pending::{After, Flush, Owner};
use super::settler::SettledAll;
use ensue_core::StoreError;
use ensue_core::positions::Settled;
use std::time::Duration;
use tokio::time::Instant;

/// How often cursors are written.
pub(super) const CHECKPOINT_EVERY: Duration = Duration::from_millis(200);
/// How often they are written at least, where writing them takes long: no more than a twentieth of the time is spent on it. Under a held snapshot it takes longer each time.
const CHECKPOINT_SLOWLY: Duration = Duration::from_secs(2);
const CHECKPOINT_SHARE: u32 = 20;
/// How often they are written where nothing matched.
pub(super) const CHECKPOINT_LAZILY: Duration = Duration::from_secs(10);
/// How long to wait before something is written again that could not be.
const WRITE_AGAIN_AFTER: Duration = Duration::from_millis(500);

/// How often cursors are written after that took so long.
fn checkpoint_every(took: Duration) -> Duration {
    (took * CHECKPOINT_SHARE).clamp(CHECKPOINT_EVERY, CHECKPOINT_SLOWLY)
}

impl Life<'_> {
    pub fn flush_if_due(&mut self) -> Result<(), StoreError> {
        if self.flushing.is_some() {
            return Ok(());
        }
        let since = self.checkpointed.elapsed();
        let due = self.pending.urgent
            || (since >= self.checkpoint_every && (self.moved || !self.pending.is_empty()))
            || (since >= CHECKPOINT_LAZILY && self.window.cursor() > self.written);
        if !due {
            return Ok(());
        }
        let flush = self.make_flush()?;
        self.checkpointed = Instant::now();
        self.moved = !self.window.is_empty();
        if flush.changes.is_empty() {
            flush.after.into_iter().for_each(|after| self.after(after));
            return Ok(());
        }
        self.send(flush);
        Ok(())
    }

    /// What is to be written relies on the newest event that the tail has read: no handler has seen more (H44).
    pub fn make_flush(&mut self) -> Result<Flush, StoreError> {
        let known = self.worker.router.known();
        if known.setbacks != self.setbacks {
            return Err(self.went_back());
        }
        let Self { worker, slots, window, marks, written, lanes, pending, .. } = self;
        let pending = std::mem::take(pending);
        let owner = Owner { group: &worker.spec.key, member: worker.membership.member.id, slots };
        let mut flush = pending.flush(&owner, window, marks, written, lanes);
        flush.changes.iter_mut().for_each(|change| change.relies_on = known.newest);
        // Rows that become marks are among them, and those that have come back since.
        self.removing.extend(flush.removing.iter().cloned());
        self.removing_now = self.removing.clone();
        Ok(flush)
    }

    pub fn send(&mut self, flush: Flush) {
        let (settler, changes) = (self.worker.settler.clone(), flush.changes.clone());
        self.flushing = Some((flush, Box::pin(async move { settler.settle(changes).await })));
    }

    /// What was handed over is written, or not.
    pub async fn flushed(&mut self, settled: SettledAll) -> Result<Option<End>, StoreError> {
        let Some((flush, _)) = self.flushing.take() else { return Ok(None) };
        self.checkpoint_every = checkpoint_every(self.checkpointed.elapsed());
        let settled = match settled {
            Ok(settled) => settled,
            // Whether it is stored is not known, and what the store remembers will tell.
            Err(error @ (StoreError::InDoubt(_) | StoreError::Closed | StoreError::Stopped(_))) => return Err(error),
            Err(error) => {
                tracing::warn!(handler = %self.worker.spec.key, %error, "what is done cannot be written; trying again");
                let (settler, changes) = (self.worker.settler.clone(), flush.changes.clone());
                let again = async move {
                    tokio::time::sleep(WRITE_AGAIN_AFTER).await;
                    settler.settle(changes).await
                };
                self.flushing = Some((flush, Box::pin(again)));
                return Ok(None);
            }
        };
        if settled.iter().any(|settled| matches!(settled, Settled::FenceLost)) {
            tracing::info!(handler = %self.worker.spec.key, "another process has taken slots over");
            return Ok(Some(End::Again));
        }
        if settled.contains(&Settled::WentBack) {
            return Ok(Some(self.refused_as_lost()));
        }
        let Flush { done_with, after, .. } = flush;
        for key in std::mem::take(&mut self.removing_now) {
            self.removing.remove(&key);
        }
        for key in std::mem::take(&mut self.after_flush) {
            self.lanes.ready(&key);
        }
        let others = settled.len() - done_with.len();
        // What is published with rows and cursors is Ensue's own; if that is not taken, begin again with what is stored.
        if let Some(Settled::Refused(error)) =
            settled[..others].iter().find(|settled| matches!(settled, Settled::Refused(_)))
        {
            return Err(error.clone());
        }
        for (done, settled) in done_with.into_iter().zip(&settled[others..]) {
            match settled {
                Settled::Refused(error) => self.refused(done, error).await?,
                Settled::Done(_) | Settled::FenceLost | Settled::WentBack => {
                    self.passed(&done.key, done.event.seq);
                    for other in done.others {
                        self.passed(&other.key, other.event.seq);
                        // A row that could not be part of the change is written with the next.
                        if other.row.is_some() {
                            self.pending.dirty.insert(other.key);
                        }
                    }
                }
            }
        }
        after.into_iter().for_each(|after| self.after(after));
        Ok(None)
    }

    pub fn after(&mut self, after: After) {
        match after {
            After::Start(key) => {
                if let Some(lane) = self.lanes.get_mut(&key) {
                    lane.busy = None;
                    lane.claimed = true;
                }
                self.lanes.ready(&key);
            }
            After::Ready(key) => {
                let ask = self.lanes.get_mut(&key).and_then(|lane| {
                    lane.busy = None;
                    lane.ask.take()
                });
                self.lanes.ready(&key);
                if let Some(ask) = ask {
                    self.answer(&key, ask);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_long_to_write_is_written_less_often_within_bounds() {
        let millis = |count| Duration::from_millis(count);
        let every = [1, 10, 50, 1_000].map(|took| checkpoint_every(millis(took)));
        assert_eq!(every, [millis(200), millis(200), millis(1_000), millis(2_000)]);
    }
}
