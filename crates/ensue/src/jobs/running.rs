//! Which jobs run here now, and may they go on?
//!
//! Every job that this process has is renewed a few times before its lease passes, by a task of its own. One that could not be
//! renewed in time by our own clock, or that somebody else has, is told to end, and then ended.

use ensue_core::StoreError;
use ensue_core::jobs::{Held, JobId};
use ensue_core::store::SharedStore;
use jiff::SignedDuration;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long a claim lasts: what a process that dies was at is taken up by others after this.
pub(crate) const LEASE: Duration = Duration::from_secs(15);
/// How often it is renewed.
const RENEW_EVERY: Duration = Duration::from_secs(5);
/// How long a renewal may take.
const RENEW_WITHIN: Duration = Duration::from_secs(5);
/// How long after having been told to end a job that was lost is ended.
const END_AFTER: Duration = Duration::from_secs(1);

pub(crate) fn lease() -> SignedDuration {
    SignedDuration::try_from(LEASE).unwrap_or(SignedDuration::MAX)
}

/// A job that this process has.
struct Here {
    /// Nobody else has it before this.
    deadline: Instant,
    cancel: watch::Sender<bool>,
    /// It is lost: whatever comes of it is not written.
    lost: watch::Sender<bool>,
}

/// The jobs that this process has.
#[derive(Default)]
pub(crate) struct RunningJobs(Mutex<HashMap<Held, Here>>);

/// What an attempt hears while it runs.
pub(crate) struct Hearing {
    /// It is to end as soon as it can.
    pub cancelled: watch::Receiver<bool>,
    /// It is somebody else's.
    pub lost: watch::Receiver<bool>,
}

impl RunningJobs {
    /// A job was claimed by a call that was sent at this time.
    pub fn add(&self, held: Held, sent: Instant) -> Hearing {
        let (cancel, cancelled) = watch::channel(false);
        let (lost_sender, lost) = watch::channel(false);
        self.lock().insert(held, Here { deadline: sent + LEASE, cancel, lost: lost_sender });
        Hearing { cancelled, lost }
    }

    /// It has ended.
    pub fn remove(&self, held: Held) {
        self.lock().remove(&held);
    }

    /// May it be started, by our own clock?
    pub fn may_start(&self, held: Held) -> bool {
        self.lock().get(&held).is_some_and(|here| Instant::now() < here.deadline)
    }

    /// Tells a job to end, if it runs here.
    pub fn cancel(&self, id: JobId) {
        for (_, here) in self.lock().iter().filter(|(held, _)| held.id == id) {
            here.cancel.send_replace(true);
        }
    }

    /// Tells all to end.
    pub fn cancel_all(&self) {
        for here in self.lock().values() {
            here.cancel.send_replace(true);
        }
    }

    /// Renews all claims, until it is dropped.
    pub async fn keep(self: Arc<Self>, store: SharedStore) {
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            // A store that hangs is no reason to let go on what is somebody else's by now.
            let hangs = |_| Err(StoreError::Unavailable("the store does not answer".into()));
            match tokio::time::timeout(RENEW_WITHIN, self.renew(&store)).await.unwrap_or_else(hangs) {
                Ok(()) => {}
                Err(StoreError::Closed) => return,
                Err(error) => {
                    tracing::warn!(%error, "the leases of running jobs cannot be renewed; trying again");
                    self.give_up_late().await;
                }
            }
        }
    }

    async fn renew(&self, store: &SharedStore) -> Result<(), StoreError> {
        let held: Vec<Held> = self.lock().keys().copied().collect();
        if held.is_empty() {
            return Ok(());
        }
        let sent = Instant::now();
        let answers = store.renew_jobs(&held, lease()).await?;
        let mut lost = Vec::new();
        {
            let mut here = self.lock();
            for (held, answer) in held.iter().zip(answers) {
                let Some(here) = here.get_mut(held) else { continue };
                match answer {
                    Some(renewed) => {
                        here.deadline = sent + LEASE;
                        if renewed.cancel {
                            here.cancel.send_replace(true);
                        }
                    }
                    None => lost.push(*held),
                }
            }
        }
        self.give_up(lost).await;
        Ok(())
    }

    async fn give_up_late(&self) {
        let now = Instant::now();
        let late = self.lock().iter().filter(|(_, here)| here.deadline <= now).map(|(held, _)| *held).collect();
        self.give_up(late).await;
    }

    /// Tells jobs that are lost to end, and ends them.
    async fn give_up(&self, all: Vec<Held>) {
        if all.is_empty() {
            return;
        }
        tracing::warn!(jobs = all.len(), "running jobs have lost their leases and are ended");
        for here in all.iter().filter_map(|held| self.lock().get(held).map(|here| here.cancel.clone())) {
            here.send_replace(true);
        }
        tokio::time::sleep(END_AFTER).await;
        let here = self.lock();
        for here in all.iter().filter_map(|held| here.get(held)) {
            here.lost.send_replace(true);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Held, Here>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
