//! Whose time has come, and whose worker has vanished?

use crate::Ensue;
use crate::attempted::Attempted;
use crate::delivery::until;
use ensue_core::StoreError;
use ensue_core::jobs::lifecycle::{self, Notified};
use ensue_core::jobs::{Held, Job, JobChange, JobSettled, JobState};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// How many jobs are let go on, or taken from workers that have vanished, in one commit.
const BATCH: usize = 500;
/// The longest wait between two looks. What another process sends meanwhile is heard of with the pulse.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// How long to wait after something went wrong.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Rung when something may be due before the clock looks next.
#[derive(Default)]
pub(crate) struct Sooner(Notify);

impl Sooner {
    pub fn ring(&self) {
        self.0.notify_one();
    }
}

/// Looks until it is dropped.
pub(crate) async fn run(bus: Ensue) {
    let mut due = bus.inner().jobs.due.subscribe();
    loop {
        let wait = match look(&bus).await {
            Ok(looked) => looked.again_after,
            Err(StoreError::Closed) => return,
            Err(error) => {
                tracing::warn!(%error, "jobs that are due cannot go on; trying again");
                AGAIN_AFTER
            }
        };
        let mut at = Instant::now() + wait;
        loop {
            tokio::select! {
                () = tokio::time::sleep_until(at) => break,
                () = bus.inner().jobs.sooner.0.notified() => break,
                Ok(()) = due.changed() => at = at.min(due.borrow_and_update().unwrap_or(at)),
            }
        }
    }
}

/// What a look has done.
pub(crate) struct Looked {
    /// How many jobs wait no longer for their time, or for a worker that has vanished.
    pub let_go: usize,
    /// How long it is to the next look.
    pub again_after: Duration,
}

/// Lets everything go on whose time has come.
pub(crate) async fn look(bus: &Ensue) -> Result<Looked, StoreError> {
    let began = Instant::now();
    bus.expire_rules().await?;
    let mut let_go = 0;
    let next_due = loop {
        let woken = bus.store().wake_jobs(BATCH).await?;
        if woken.count > 0 {
            bus.inner().jobs.ring();
        }
        let vanished = woken.expired.len();
        let_go += woken.count + vanished;
        take_from_vanished(bus, woken.expired).await?;
        if woken.count < BATCH && vanished < BATCH {
            break woken.next_due;
        }
    };
    let next_due = next_due.into_iter().chain(bus.inner().gate.rules().next_expiry()).min();
    let again_after = match next_due {
        // By the store's clock, which is not ours.
        Some(due) => until(due, bus.store().now().await?).min(LOOK_EVERY),
        None => LOOK_EVERY.saturating_sub(began.elapsed()),
    };
    Ok(Looked { let_go, again_after })
}

async fn take_from_vanished(bus: &Ensue, jobs: Vec<Job>) -> Result<(), StoreError> {
    if jobs.is_empty() {
        return Ok(());
    }
    let now = bus.store().now().await?;
    // A lease that has not passed any more, as the store's clock was set back, is its worker's.
    let has_vanished = |job: &Job| lifecycle::notified(Some(job.glance()), false, now) == Notified::Claim;
    let jobs: Vec<Job> = jobs.into_iter().filter(has_vanished).collect();
    let changes = jobs.iter().map(|job| {
        let worker = job.worker.as_deref().unwrap_or("unknown");
        let end = lifecycle::expired(job.attempts, job.attempts_max, worker, now);
        let reason = super::attempt::reason_line(job, &end, job.cancel_asked, now);
        let mut change = JobChange::new(Held { id: job.id, fence: job.fence }, end);
        change.lines.extend(reason);
        change
    });
    let answers = bus.settle_jobs(changes.collect()).await?;
    for (job, answer) in jobs.iter().zip(answers) {
        // One that was renewed meanwhile is its worker's.
        if let JobSettled::Done { state, .. } = answer {
            Attempted::job(job).vanished(job.worker.as_deref(), state == JobState::Dead);
        }
    }
    // Those that are tried again are due now; behind those that are not, a lane may have turned.
    bus.inner().jobs.sooner.ring();
    bus.inner().jobs.ring();
    Ok(())
}
