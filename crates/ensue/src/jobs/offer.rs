//! How does a job that is sent to a process with nothing to do start without a second trip to the disk?
//!
//! A pool that waits offers what it would claim next. Whoever sends a job in this process may take the offer: the job is sent
//! and claimed in one commit, by the same rules as any claim, and what was claimed is handed to the pool. A pool does not
//! end, and is not idle, while an offer of its own is taken.

use crate::Ensue;
use ensue_core::StoreError;
use ensue_core::jobs::{Claim, Enqueued, Job, JobState, NewJob};
use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;
use tokio::time::Instant;

/// Jobs, and when their claim was sent.
type Handed = (Vec<Job>, Instant);

/// What a pool would claim.
pub(crate) struct Offer {
    pub claim: Claim,
    /// Could it start anything? A process that has lost its lease claims nothing.
    pub may_start: Box<dyn Fn() -> bool + Send>,
}

#[derive(Default)]
struct State {
    offer: Option<Offer>,
    /// How many offers are taken.
    taken: usize,
    handed: Vec<Handed>,
}

/// What a pool offers, and what came of it.
#[derive(Default)]
pub(crate) struct Offers {
    state: Mutex<State>,
    /// Rung when a taken offer is over.
    over: Notify,
}

impl Offers {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pool waits, and would claim this.
    pub fn make(&self, offer: Offer) {
        self.lock().offer = Some(offer);
    }

    /// The pool offers nothing now. Answers what was handed to it, and whether an offer is still taken.
    pub fn withdraw(&self) -> (Vec<Handed>, bool) {
        let mut state = self.lock();
        state.offer = None;
        (std::mem::take(&mut state.handed), state.taken > 0)
    }

    /// Comes back when a taken offer is over.
    pub async fn over(&self) {
        self.over.notified().await;
    }

    /// Takes the offer, if it is about any of these jobs and they are few.
    fn take(&self, jobs: &[NewJob]) -> Option<Claim> {
        let mut state = self.lock();
        let fits = |offer: &Offer| {
            let is_asked = |job: &NewJob| offer.claim.handlers.iter().any(|(asked, _)| *asked == job.handler);
            jobs.len() <= offer.claim.limit && jobs.iter().any(is_asked) && (offer.may_start)()
        };
        let offer = state.offer.take_if(|offer| fits(offer))?;
        state.taken += 1;
        Some(offer.claim)
    }

    fn hand_over(&self, jobs: Vec<Job>, sent: Instant) {
        self.lock().handed.push((jobs, sent));
    }

    fn give_back(&self) {
        self.lock().taken -= 1;
        self.over.notify_one();
    }
}

/// An offer that was taken; dropped it is over, whatever came of it.
struct Taken {
    bus: Ensue,
    claim: Claim,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.bus.inner().jobs.offers.give_back();
    }
}

impl Taken {
    async fn send(self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>, StoreError> {
        let (inner, sent) = (self.bus.inner(), Instant::now());
        let (enqueued, claimed) = self.bus.store().enqueue_and_claim(jobs, self.claim.clone()).await?;
        let here: HashSet<_> = claimed.iter().map(|job| job.id).collect();
        inner.jobs.offers.hand_over(claimed, sent);
        // Others hear of what is not here; nobody else can start the rest.
        let elsewhere = enqueued.iter().filter(|job| job.state != JobState::Available || !here.contains(&job.id));
        inner.jobs_sent(&elsewhere.copied().collect::<Vec<_>>());
        Ok(enqueued)
    }
}

impl Ensue {
    /// Sends jobs with the pool's offer, if there is one about them; else they are given back.
    pub(super) async fn send_and_claim(
        &self,
        jobs: Vec<NewJob>,
    ) -> Result<Result<Vec<Enqueued>, StoreError>, Vec<NewJob>> {
        let Some(claim) = self.inner().jobs.offers.take(&jobs) else { return Err(jobs) };
        let taken = Taken { bus: self.clone(), claim };
        // A task of its own: who sends may go away, and what was claimed must be handed over.
        let sending = tokio::spawn(taken.send(jobs));
        let ended = |_| Err(StoreError::InDoubt("the task that sent jobs was ended".into()));
        Ok(sending.await.unwrap_or_else(ended))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensue_core::GroupName;

    fn offer(handler: &str, limit: usize) -> Offer {
        Offer { claim: claim(handler, limit), may_start: Box::new(|| true) }
    }

    fn claim(handler: &str, limit: usize) -> Claim {
        let handlers = vec![(GroupName::stored(handler), limit)];
        Claim { handlers, limit, lease: super::super::running::lease(), worker: "w".into(), ends_with_store: true }
    }

    fn jobs(handler: &str, count: usize) -> Vec<NewJob> {
        vec![crate::Emit::to(handler).check(|_| None, |_| None).unwrap(); count]
    }

    #[test]
    fn an_offer_is_taken_once_by_who_sends_few_jobs_of_its_handlers() {
        let offers = Offers::default();
        assert_eq!(offers.take(&jobs("h", 1)), None);
        offers.make(offer("h", 2));
        assert_eq!((offers.take(&jobs("other", 1)), offers.take(&jobs("h", 3))), (None, None));
        assert!(!offers.withdraw().1);
        assert_eq!(offers.take(&jobs("h", 1)), None, "it was withdrawn");
        offers.make(offer("h", 2));
        assert_eq!(offers.take(&jobs("h", 2)), Some(claim("h", 2)));
        assert_eq!(offers.take(&jobs("h", 1)), None, "it is taken");
        assert!(offers.withdraw().1);
        offers.give_back();
        assert_eq!(offers.withdraw(), (Vec::new(), false));
    }

    #[test]
    fn a_process_that_could_start_nothing_claims_nothing() {
        let offers = Offers::default();
        offers.make(Offer { may_start: Box::new(|| false), ..offer("h", 2) });
        assert_eq!(offers.take(&jobs("h", 1)), None);
        assert!(!offers.withdraw().1);
    }

    #[test]
    fn what_is_handed_over_comes_to_the_pool_once() {
        let (offers, sent) = (Offers::default(), Instant::now());
        offers.hand_over(Vec::new(), sent);
        assert_eq!(offers.withdraw().0, [(Vec::new(), sent)]);
        assert!(offers.withdraw().0.is_empty());
    }
}
