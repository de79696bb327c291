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
/// How long after having been told to end a job that was lost is ended.
const END_AFTER: Duration = Duration::from_secs(1);

pub(crate) fn lease() -> SignedDuration {
    SignedDuration::try_from(LEASE).unwrap_or(SignedDuration::MAX)
}

/// A job that this process has.
struct Here {
    held: Held,
    /// Nobody else has it before this.
    deadline: Instant,
    cancel: watch::Sender<bool>,
    /// It is lost: whatever comes of it is not written.
    lost: watch::Sender<bool>,
}

/// The jobs that this process has.
#[derive(Default)]
pub(crate) struct RunningJobs(Mutex<HashMap<JobId, Here>>);

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
        self.lock().insert(held.id, Here { held, deadline: sent + LEASE, cancel, lost: lost_sender });
        Hearing { cancelled, lost }
    }

    /// It has ended.
    pub fn remove(&self, id: JobId) {
        self.lock().remove(&id);
    }

    /// May it be started, by our own clock?
    pub fn may_start(&self, id: JobId) -> bool {
        self.lock().get(&id).is_some_and(|here| Instant::now() < here.deadline)
    }

    /// Tells a job to end, if it runs here.
    pub fn cancel(&self, id: JobId) {
        if let Some(here) = self.lock().get(&id) {
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
            match self.renew(&store).await {
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
        let held: Vec<Held> = self.lock().values().map(|here| here.held).collect();
        if held.is_empty() {
            return Ok(());
        }
        let sent = Instant::now();
        let answers = store.renew_jobs(&held, lease()).await?;
        let mut lost = Vec::new();
        {
            let mut here = self.lock();
            for (held, answer) in held.iter().zip(answers) {
                let Some(here) = here.get_mut(&held.id).filter(|here| here.held == *held) else { continue };
                match answer {
                    Some(renewed) => {
                        here.deadline = sent + LEASE;
                        if renewed.cancel {
                            here.cancel.send_replace(true);
                        }
                    }
                    None => lost.push(held.id),
                }
            }
        }
        self.give_up(lost).await;
        Ok(())
    }

    async fn give_up_late(&self) {
        let now = Instant::now();
        let late = self.lock().values().filter(|here| here.deadline <= now).map(|here| here.held.id).collect();
        self.give_up(late).await;
    }

    /// Tells jobs that are lost to end, and ends them.
    async fn give_up(&self, ids: Vec<JobId>) {
        if ids.is_empty() {
            return;
        }
        tracing::warn!(jobs = ids.len(), "running jobs have lost their leases and are ended");
        ids.iter().for_each(|id| self.cancel(*id));
        tokio::time::sleep(END_AFTER).await;
        let here = self.lock();
        for here in ids.iter().filter_map(|id| here.get(id)) {
            here.lost.send_replace(true);
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<JobId, Here>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
