//! Which jobs run here now, and may they go on?
//!
//! Every job that this process has is renewed a few times before its lease passes, by a task of its own. One that could not be
//! renewed in time by our own clock, or that somebody else has, is told to end, and then ended.

use ensue_core::StoreError;
use ensue_core::jobs::{Held, JobId, JobRenewed};
use jiff::SignedDuration;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// Set before it is told to end, if it is because somebody called it off.
    called_off: Arc<AtomicBool>,
    /// It is lost: whatever comes of it is not written.
    lost: watch::Sender<bool>,
}

impl Here {
    fn call_off(&self) {
        self.called_off.store(true, Ordering::SeqCst);
        self.cancel.send_replace(true);
    }
}

/// The jobs that this process has.
#[derive(Default)]
pub(crate) struct RunningJobs(Mutex<HashMap<Held, Here>>);

/// What an attempt hears while it runs.
pub(crate) struct Hearing {
    /// It is to end as soon as it can.
    pub cancelled: watch::Receiver<bool>,
    /// Is that so because somebody called it off?
    pub called_off: Arc<AtomicBool>,
    /// It is somebody else's.
    pub lost: watch::Receiver<bool>,
}

impl RunningJobs {
    /// A job was claimed by a call that was sent at this time.
    pub fn add(&self, held: Held, sent: Instant) -> Hearing {
        let (cancel, cancelled) = watch::channel(false);
        let (lost_sender, lost) = watch::channel(false);
        let called_off = Arc::new(AtomicBool::new(false));
        let here = Here { deadline: sent + LEASE, cancel, called_off: called_off.clone(), lost: lost_sender };
        self.lock().insert(held, here);
        Hearing { cancelled, called_off, lost }
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
            here.call_off();
        }
    }

    /// Tells all to end.
    pub fn cancel_all(&self) {
        for here in self.lock().values() {
            here.cancel.send_replace(true);
        }
    }

    /// Renews all claims, until it is dropped: `renew` asks the store.
    pub async fn keep<R, A>(self: Arc<Self>, renew: R)
    where
        R: Fn(Vec<Held>) -> A,
        A: Future<Output = Result<Vec<Option<JobRenewed>>, StoreError>>,
    {
        loop {
            tokio::time::sleep(RENEW_EVERY).await;
            // A store that hangs is no reason to let go on what is somebody else's by now.
            let hangs = |_| Err(StoreError::Unavailable("the store does not answer".into()));
            match tokio::time::timeout(RENEW_WITHIN, self.renew(&renew)).await.unwrap_or_else(hangs) {
                Ok(()) => {}
                Err(StoreError::Closed) => return,
                Err(error) => {
                    tracing::warn!(%error, "the leases of running jobs cannot be renewed; trying again");
                    self.give_up_late().await;
                }
            }
        }
    }

    async fn renew<R, A>(&self, renew: &R) -> Result<(), StoreError>
    where
        R: Fn(Vec<Held>) -> A,
        A: Future<Output = Result<Vec<Option<JobRenewed>>, StoreError>>,
    {
        let held: Vec<Held> = self.lock().keys().copied().collect();
        if held.is_empty() {
            return Ok(());
        }
        let sent = Instant::now();
        let answers = renew(held.clone()).await?;
        let mut lost = Vec::new();
        {
            let mut here = self.lock();
            for (held, answer) in held.iter().zip(answers) {
                let Some(here) = here.get_mut(held) else { continue };
                match answer {
                    Some(renewed) => {
                        here.deadline = sent + LEASE;
                        if renewed.cancel {
                            here.call_off();
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

#[cfg(test)]
mod tests {
    use super::*;
    use ensue_core::Timestamp;

    fn held(number: u64, fence: u64) -> Held {
        Held { id: JobId::new(Timestamp::UNIX_EPOCH, 0, number), fence }
    }

    fn renewed(cancel: bool) -> Option<JobRenewed> {
        Some(JobRenewed { lease_until: Timestamp::UNIX_EPOCH, cancel })
    }

    /// A job that this process lost, and claimed again while the first attempt was still ending.
    #[tokio::test(start_paused = true)]
    async fn two_claims_of_one_job_are_told_apart() {
        let running = Arc::new(RunningJobs::default());
        let first = running.add(held(1, 1), Instant::now());
        let second = running.add(held(1, 2), Instant::now());
        let answer = |held: &Held| if held.fence == 1 { None } else { renewed(false) };
        let renew = move |all: Vec<Held>| std::future::ready(Ok(all.iter().map(answer).collect()));
        let keeping = tokio::spawn(running.clone().keep(renew));
        let mut lost = first.lost.clone();
        lost.wait_for(|lost| *lost).await.unwrap();
        assert!(*first.cancelled.borrow() && !first.called_off.load(Ordering::SeqCst), "nobody called it off");
        assert!(!*second.cancelled.borrow() && !*second.lost.borrow(), "the newer claim is this process's");
        running.remove(held(1, 1));
        assert!(running.may_start(held(1, 2)) && !running.may_start(held(1, 1)));
        // Whoever wants the job to end means all of it.
        let again = running.add(held(1, 3), Instant::now());
        running.cancel(held(1, 0).id);
        assert!(*second.cancelled.borrow() && *again.cancelled.borrow());
        keeping.abort();
    }

    /// A store that does not answer is no reason to go on with what may be somebody else's.
    #[tokio::test(start_paused = true)]
    async fn what_a_store_that_hangs_does_not_renew_is_ended_when_its_lease_has_passed() {
        let running = Arc::new(RunningJobs::default());
        let hearing = running.add(held(1, 1), Instant::now());
        let begun = Instant::now();
        let keeping = tokio::spawn(running.clone().keep(|_| std::future::pending()));
        let mut lost = hearing.lost.clone();
        tokio::time::timeout(LEASE * 4, lost.wait_for(|lost| *lost)).await.expect("it is ended").unwrap();
        assert!(*hearing.cancelled.borrow() && begun.elapsed() >= LEASE, "not before");
        assert!(!running.may_start(held(1, 1)));
        keeping.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_renewed_goes_on_and_hears_that_it_is_to_end() {
        let running = Arc::new(RunningJobs::default());
        let hearing = running.add(held(1, 1), Instant::now());
        let renewals = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let counted = renewals.clone();
        let renew = move |all: Vec<Held>| {
            let count = counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            std::future::ready(Ok(vec![renewed(count >= 10); all.len()]))
        };
        let keeping = tokio::spawn(running.clone().keep(renew));
        let mut cancelled = hearing.cancelled.clone();
        cancelled.wait_for(|cancelled| *cancelled).await.unwrap();
        assert_eq!(renewals.load(std::sync::atomic::Ordering::SeqCst), 11);
        assert!(hearing.called_off.load(Ordering::SeqCst));
        assert!(!*hearing.lost.borrow() && running.may_start(held(1, 1)), "long after its first lease");
        keeping.abort();
    }
}
