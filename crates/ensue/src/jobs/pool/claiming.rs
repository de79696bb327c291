//! How does a process get the jobs that it runs?
//!
//! One claim at a time is on its way, in a task of its own. What has happened meanwhile is not forgotten: `maybe_more` is put out when the claim is sent, and
//! whatever comes after that lights it again.

use super::{AHEAD_MAX, CALM, Pool, UNWRITTEN_MAX};
use ensue_core::jobs::Job;
use ensue_core::jobs::job::{CLAIM_HANDLERS_MAX, JOBS_MAX};
use ensue_core::{GroupName, StoreError};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// A claim on its way to the store.
pub(super) struct Claiming {
    sent: Instant,
    limit: usize,
    asked: Vec<(GroupName, usize)>,
    /// Are there handlers that could run more, and were not asked for?
    has_others: bool,
    answer: JoinHandle<Result<Vec<Job>, StoreError>>,
}

/// Comes back with the answer, if one is waited for.
pub(super) async fn claimed(claiming: &mut Option<Claiming>) -> Result<Vec<Job>, StoreError> {
    match claiming {
        Some(claiming) => {
            let ended = |_| Err(StoreError::InDoubt("the task that claimed jobs was ended".into()));
            (&mut claiming.answer).await.unwrap_or_else(ended)
        }
        None => std::future::pending().await,
    }
}

impl Pool {
    /// Begins to claim what can be run, if there may be something and nothing is being claimed.
    pub(super) fn begin_claiming(&mut self, may_claim: bool) {
        if !may_claim || !self.maybe_more || self.claiming.is_some() {
            return;
        }
        if self.unwritten() >= UNWRITTEN_MAX
            || self.put_off.to(self.calm_until, Instant::now())
            || (!self.maybe_left && self.put_off.paced(self.claimed_at, Instant::now()))
        {
            return;
        }
        let workers = self.bus.inner().jobs.workers();
        let limit = self.claim_limit(workers);
        let mut free = self.free_handlers(workers);
        let asked: Vec<(GroupName, usize)> = free.by_ref().take(CLAIM_HANDLERS_MAX).collect();
        let has_others = free.next().is_some();
        drop(free);
        self.maybe_left = true;
        if limit == 0 || asked.is_empty() || self.running.len() >= workers {
            self.maybe_more = false;
            return;
        }
        if !self.deliveries.may_start() {
            self.calm_until = Instant::now() + CALM;
            self.put_off.to(self.calm_until, Instant::now());
            return;
        }
        self.keys.rotate_left(asked.len().min(self.keys.len()));
        self.maybe_more = false;
        self.claimed_at = Some(Instant::now());
        let (bus, claim, sent) = (self.bus.clone(), self.claim_of(asked.clone(), limit), Instant::now());
        let answer = tokio::spawn(async move { bus.store().claim(claim).await });
        self.claiming = Some(Claiming { sent, limit, asked, has_others, answer });
    }

    /// How many are claimed at once: as many as there are workers free, and half of what is claimed ahead, so that the other half is there to run meanwhile.
    fn claim_limit(&self, workers: usize) -> usize {
        // What waits for others of its own handler takes no room from the rest.
        let may_start = |(job, _): &&(Job, _)| !self.is_full(&job.handler, workers);
        let taken = self.running.len() + self.queue.iter().filter(may_start).count();
        let ahead = self.ahead.values().copied().max().unwrap_or(0).min(AHEAD_MAX);
        (workers + ahead).saturating_sub(taken).min(workers + ahead / 2).min(JOBS_MAX)
    }

    pub(super) fn take_answer(&mut self, answer: Result<Vec<Job>, StoreError>) -> Result<(), StoreError> {
        let Some(Claiming { sent, limit, asked, has_others, .. }) = self.claiming.take() else { return Ok(()) };
        let jobs = answer?;
        // With fewer than were asked for there is nothing left, unless some handlers were not asked.
        self.maybe_more |= jobs.len() >= limit || has_others;
        // Of a handler that is busy, or gave as many as it could take, there may be more when one of its jobs has ended.
        let is_used_up = |(handler, most): &(GroupName, usize)| {
            jobs.len() >= *most && jobs.iter().filter(|job| job.handler == *handler).count() >= *most
        };
        self.maybe_left = self.maybe_more || asked.len() < self.keys.len() || asked.iter().any(is_used_up);
        self.take_claimed(jobs, sent);
        Ok(())
    }

    /// Handlers that can run more, and how many more.
    pub(super) fn free_handlers(&self, workers: usize) -> impl Iterator<Item = (GroupName, usize)> {
        self.keys.iter().filter_map(move |key| {
            let most = self.most_of(key, workers) + self.ahead.get(key).copied().unwrap_or(0);
            let busy = self.busy.get(key).copied().unwrap_or(0);
            (busy < most).then(|| (key.clone(), most - busy))
        })
    }
}
