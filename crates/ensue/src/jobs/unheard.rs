//! What becomes of jobs that were claimed for somebody who has hung up?
//!
//! A worker elsewhere asks and waits, and may go away at any moment: also between the claim's commit and the answer. What it
//! has not heard of is given back, so that nobody waits for its lease to pass and no attempt is used up.

use crate::Ensue;
use ensue_core::StoreError;
use ensue_core::jobs::{Claim, Held, Job, JobChange, JobEnd};
use tokio::sync::oneshot;

/// Claimed jobs on their way. Dropped before they are taken, they are given back.
pub(super) struct Unheard {
    bus: Ensue,
    jobs: Vec<Job>,
}

impl Unheard {
    pub fn new(bus: &Ensue) -> Self {
        Self { bus: bus.clone(), jobs: Vec::new() }
    }

    /// Claims more; answers how many it got. The claim goes to its end by itself, whatever becomes of who waits for it.
    pub async fn claim(&mut self, claim: Claim) -> Result<usize, StoreError> {
        let (sender, receiver) = oneshot::channel();
        let bus = self.bus.clone();
        tokio::spawn(async move {
            let claimed = bus.store().claim(claim).await;
            // Where nobody listens any more, what is sent is dropped, and so given back.
            let _listens = sender.send(claimed.map(|jobs| Self { bus: bus.clone(), jobs }));
        });
        let mut more = receiver.await.map_err(|_| StoreError::Closed)??;
        let count = more.jobs.len();
        self.jobs.append(&mut more.jobs);
        Ok(count)
    }

    pub fn jobs(&self) -> &[Job] {
        &self.jobs
    }

    /// Gives back all but the first `count` jobs.
    pub fn truncate(&mut self, count: usize) {
        let rest = self.jobs.split_off(count.min(self.jobs.len()));
        drop(Self { bus: self.bus.clone(), jobs: rest });
    }

    pub fn jobs_mut(&mut self) -> &mut [Job] {
        &mut self.jobs
    }

    /// They are the worker's now.
    pub fn take(mut self) -> Vec<Job> {
        std::mem::take(&mut self.jobs)
    }
}

impl Drop for Unheard {
    fn drop(&mut self) {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        if self.jobs.is_empty() {
            return;
        }
        let bus = self.bus.clone();
        let back = |job: &Job| JobChange::new(Held { id: job.id, fence: job.fence }, JobEnd::GivenBack);
        let changes: Vec<JobChange> = self.jobs.iter().map(back).collect();
        runtime.spawn(async move {
            match bus.settle_jobs(changes).await {
                Ok(_) => bus.inner().jobs.ring(),
                Err(error) => tracing::warn!(%error, "jobs that nobody waited for run when their leases have passed"),
            }
        });
    }
}
