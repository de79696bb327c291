//! Who runs the jobs of this process?
//!
//! One task claims, starts and settles; what is not done at once becomes a task of its own. It claims as many jobs as it
//! has workers that are free, and more when jobs turn out to be short, so that a commit is shared by many, and the next ones are
//! on their way while these run. What is claimed ahead and cannot be started soon is given back, for who is idle elsewhere.

mod claiming;
mod pace;
mod settling;

use super::attempt::{self, Begun, Over, Start};
use super::job_metrics::JobMetrics;
use super::offer::Offer;
use super::served::Served;
use crate::Ensue;
use crate::delivery::Deliveries;
use claiming::{Claiming, claimed};
use ensue_core::jobs::job::{CLAIM_HANDLERS_MAX, JOBS_MAX};
use ensue_core::jobs::{Claim, Held, Job, JobChange};
use ensue_core::{GroupName, StoreError};
use pace::PutOff;
use settling::{Settling, answered};
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How many jobs run at once in one process, unless told.
pub const WORKERS: usize = 16;
/// The most that are claimed ahead of those that run; half of them at once.
const AHEAD_MAX: usize = 512;
/// Jobs of which so many were done in this time are short.
const SHORT: Duration = Duration::from_millis(5);
/// How often is looked for jobs of which nobody in this process has heard: what becomes available elsewhere is heard of with
/// the pulse; this is for what nobody has thought of.
const LOOK_EVERY: Duration = Duration::from_secs(30);
/// The same, where no other process can write.
const LOOK_EVERY_ALONE: Duration = Duration::from_secs(60);
/// With so many ends to write, no more are claimed.
const UNWRITTEN_MAX: usize = 2 * JOBS_MAX;
/// How long what is claimed waits for a worker before it is given back: jobs that were short are not any more.
const QUEUED_MAX: Duration = Duration::from_millis(100);
/// How long nothing is claimed after something had to be given back.
const CALM: Duration = Duration::from_millis(100);
/// From how many ends on a settlement is not put off.
const MANY: usize = 32;
/// How long to wait after something went wrong.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

fn held_of(job: &Job) -> Held {
    Held { id: job.id, fence: job.fence }
}

/// How many are claimed ahead next, after so many of those that were started were done at once in this time.
fn ahead_next(ahead: usize, workers: usize, done_at_once: usize, took: Duration) -> usize {
    match done_at_once {
        0 => ahead / 2,
        _ if took < SHORT => (ahead * 2).max(workers).min(AHEAD_MAX),
        _ => ahead,
    }
}

/// Is there nothing left to do, as of this look?
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Rest {
    pub looks: u64,
    pub idle: bool,
    /// How many attempts have ended.
    pub ran: u64,
}

/// What a pool is told, and tells.
pub(crate) struct Wires {
    pub stop: watch::Receiver<bool>,
    pub rest: watch::Sender<Rest>,
    /// Counts up when somebody wants it to look whether there is something to do.
    pub looks: watch::Receiver<u64>,
}

pub(crate) struct Pool {
    bus: Ensue,
    deliveries: Arc<Deliveries>,
    served: HashMap<GroupName, Arc<Served>>,
    /// In the order in which they are asked for, turned with each claim.
    keys: VecDeque<GroupName>,
    worker: String,
    running: JoinSet<Over>,
    /// Claimed, and not started.
    queue: VecDeque<(Job, super::running::Hearing)>,
    /// How many of each handler are queued or run.
    busy: HashMap<GroupName, usize>,
    /// How many of each handler run.
    at_work: HashMap<GroupName, usize>,
    finished: Vec<Over>,
    /// What is to be written of them.
    to_write: VecDeque<JobChange>,
    /// Does something become available with it: because a lane turns, or a job is given back or has sent others?
    frees: bool,
    /// What is being written of them; meanwhile others are claimed and run.
    settling: Option<Settling>,
    /// What is being claimed; meanwhile what is queued runs.
    claiming: Option<Claiming>,
    /// How many of each handler are claimed ahead.
    ahead: HashMap<GroupName, usize>,
    /// When something of what is queued was started last.
    started_at: Instant,
    maybe_more: bool,
    /// May the last claim have left something that it had no room for?
    maybe_left: bool,
    /// When the last claim and the last settlement were sent.
    claimed_at: Option<Instant>,
    settled_at: Option<Instant>,
    /// The claims and settlements that this turn has put off.
    put_off: PutOff,
    /// Nothing is claimed before this.
    calm_until: Instant,
    ran: u64,
    /// Handlers come and go, and what is said of them changes.
    changes: watch::Receiver<u64>,
    wires: Wires,
}

impl Pool {
    pub fn new(bus: Ensue, deliveries: Arc<Deliveries>, worker: String, wires: Wires) -> Self {
        let mut changes = bus.inner().handlers.changes();
        // The first look is at what is bound by then.
        changes.mark_changed();
        Self {
            bus,
            deliveries,
            keys: VecDeque::new(),
            served: HashMap::new(),
            worker,
            running: JoinSet::new(),
            queue: VecDeque::new(),
            busy: HashMap::new(),
            at_work: HashMap::new(),
            finished: Vec::new(),
            to_write: VecDeque::new(),
            frees: false,
            settling: None,
            claiming: None,
            ahead: HashMap::new(),
            started_at: Instant::now(),
            maybe_more: true,
            maybe_left: true,
            claimed_at: None,
            settled_at: None,
            put_off: PutOff::default(),
            calm_until: Instant::now(),
            ran: 0,
            changes,
            wires,
        }
    }

    /// Works until it is told to stop, and what runs has ended.
    pub async fn run(mut self) {
        loop {
            match self.work().await {
                Ok(()) | Err(StoreError::Closed) => return,
                Err(error) => {
                    tracing::warn!(%error, "jobs cannot be claimed or settled right now; trying again");
                    tokio::time::sleep(AGAIN_AFTER).await;
                    self.maybe_more = true;
                }
            }
        }
    }

    async fn work(&mut self) -> Result<(), StoreError> {
        let mut rules = self.bus.inner().gate.watch();
        let alone = self.bus.store().handler_slots() == 1;
        let look_every = if alone { LOOK_EVERY_ALONE } else { LOOK_EVERY };
        loop {
            self.put_off = PutOff::default();
            let is_offered = self.take_handed();
            self.look_what_is_served();
            let looks = *self.wires.looks.borrow_and_update();
            let stopping = *self.wires.stop.borrow();
            if stopping {
                self.give_back_queued();
            }
            // On its way while what is queued runs.
            let may_claim = !stopping && !is_offered;
            self.begin_claiming(may_claim);
            self.start_queued().await;
            self.begin_settling(stopping).await?;
            self.begin_claiming(may_claim);
            let is_waited_for = is_offered || self.claiming.is_some();
            let has_nothing = self.running.is_empty() && self.is_written() && !is_waited_for;
            if stopping && has_nothing {
                return Ok(());
            }
            let idle = has_nothing && self.queue.is_empty() && !self.maybe_more;
            self.wires.rest.send_replace(Rest { looks, idle, ran: self.ran });
            let (bus, put_off) = (self.bus.clone(), self.put_off);
            if idle && !stopping && !alone {
                self.offer();
            }
            tokio::select! {
                Some(ended) = self.running.join_next() => self.take_ended(ended),
                answers = answered(&mut self.settling) => self.settled(answers)?,
                jobs = claimed(&mut self.claiming) => self.take_answer(jobs)?,
                () = bus.inner().jobs.rung() => self.maybe_more = true,
                () = bus.inner().jobs.offers.over() => {}
                Ok(()) = rules.changed() => self.maybe_more = true,
                Ok(()) = self.changes.changed() => self.changes.mark_changed(),
                Ok(()) = self.wires.looks.changed() => self.maybe_more = true,
                Ok(()) = self.wires.stop.changed() => {}
                () = put_off.is_over() => {}
                () = tokio::time::sleep_until(self.started_at + QUEUED_MAX), if !self.queue.is_empty() => self.give_back_late(),
                () = tokio::time::sleep(look_every), if !stopping => self.maybe_more = true,
            }
            while let Some(ended) = self.running.try_join_next() {
                self.take_ended(ended);
            }
        }
    }

    /// Says what it would claim, for whoever sends a job.
    fn offer(&self) {
        let workers = self.bus.inner().jobs.workers();
        let handlers: Vec<(GroupName, usize)> = self.free_handlers(workers).take(CLAIM_HANDLERS_MAX).collect();
        if !handlers.is_empty() {
            let (claim, deliveries) = (self.claim_of(handlers, workers), self.deliveries.clone());
            self.bus.inner().jobs.offers.make(Offer { claim, may_start: Box::new(move || deliveries.may_start()) });
        }
    }

    fn claim_of(&self, handlers: Vec<(GroupName, usize)>, limit: usize) -> Claim {
        let (lease, worker) = (super::running::lease(), self.worker.clone());
        Claim { handlers, limit, lease, worker, ends_with_store: true }
    }

    /// Offers nothing any more, and takes what was claimed with its offer. Is the offer still taken?
    fn take_handed(&mut self) -> bool {
        let (handed, is_taken) = self.bus.inner().jobs.offers.withdraw();
        for (jobs, sent) in handed {
            // With as many as it has workers there may be more.
            let workers = self.bus.inner().jobs.workers();
            self.maybe_more |= jobs.len() >= workers;
            let of = |handler: &GroupName| jobs.iter().filter(|job| job.handler == *handler).count();
            self.maybe_left |= jobs.iter().any(|job| of(&job.handler) >= self.most_of(&job.handler, workers));
            self.take_claimed(jobs, sent);
        }
        is_taken
    }

    fn take_claimed(&mut self, jobs: Vec<Job>, sent: Instant) {
        if self.queue.is_empty() {
            self.started_at = Instant::now();
        }
        for job in jobs {
            JobMetrics::of(&job.handler).claimed();
            *self.busy.entry(job.handler.clone()).or_default() += 1;
            let hearing = self.bus.inner().jobs.running.add(held_of(&job), sent);
            self.queue.push_back((job, hearing));
        }
    }

    /// Serves what is bound now. What was claimed for a handler that is not is given back.
    fn look_what_is_served(&mut self) {
        if !self.changes.has_changed().unwrap_or(false) {
            return;
        }
        self.changes.mark_unchanged();
        self.served = super::served::all(&self.bus.inner().handlers);
        self.ahead.retain(|handler, _| self.served.contains_key(handler));
        let mut keys: Vec<GroupName> = self.served.keys().cloned().collect();
        keys.sort();
        (self.keys, self.maybe_more) = (keys.into(), true);
    }

    fn take_ended(&mut self, ended: Result<Over, tokio::task::JoinError>) {
        // A task that was ended with its runtime says nothing; its lease passes.
        if let Ok(over) = ended {
            if let Some(at_work) = self.at_work.get_mut(&over.job.handler) {
                *at_work = at_work.saturating_sub(1);
            }
            self.conclude(over);
        }
    }

    /// How many jobs of a handler run at once. Where there are several handlers, one that says nothing of it leaves a quarter
    /// of the workers to the others: it may be slow, or stuck (H27).
    fn most_of(&self, handler: &GroupName, workers: usize) -> usize {
        let said = self.served.get(handler).and_then(|served| served.options.concurrency);
        let spared = if self.keys.len() > 1 { (workers / 4).max(1) } else { 0 };
        said.unwrap_or((workers - spared.min(workers)).max(1))
    }

    /// Do as many jobs of a handler run as may?
    fn is_full(&self, handler: &GroupName, workers: usize) -> bool {
        self.at_work.get(handler).copied().unwrap_or(0) >= self.most_of(handler, workers)
    }

    /// Starts what is queued, as far as there are workers.
    async fn start_queued(&mut self) {
        let (began, workers) = (Instant::now(), self.bus.inner().jobs.workers());
        // How many of each handler that was started were done at once.
        let mut started: HashMap<GroupName, usize> = HashMap::new();
        let mut waiting = VecDeque::new();
        while self.running.len() < workers {
            let Some((job, hearing)) = self.queue.pop_front() else { break };
            let Some(served) = self.served.get(&job.handler).cloned() else {
                self.give_back(job);
                continue;
            };
            if self.is_full(&job.handler, workers) {
                waiting.push_back((job, hearing));
                continue;
            }
            let (held, handler) = (held_of(&job), job.handler.clone());
            if !self.deliveries.may_start() {
                // Nobody would wait for this process any more before a rule is said to hold.
                self.give_back(job);
                continue;
            }
            if !self.bus.inner().jobs.running.may_start(held) {
                // Its lease has passed, or will before anything could be written: it is somebody else's.
                self.forget(held, &handler);
                continue;
            }
            let done_at_once = match attempt::begin(&self.bus, &served, job, hearing).await {
                Start::Held(job) => {
                    self.give_back(*job);
                    continue;
                }
                Start::Begun(Begun::Ended(ended)) => {
                    self.conclude(*ended);
                    1
                }
                Start::Begun(Begun::Waits(rest)) => {
                    *self.at_work.entry(handler.clone()).or_default() += 1;
                    self.running.spawn(rest);
                    0
                }
            };
            match started.get_mut(&handler) {
                Some(done) => *done += done_at_once,
                None => _ = started.insert(handler, done_at_once),
            }
        }
        while let Some(back) = waiting.pop_back() {
            self.queue.push_front(back);
        }
        if !started.is_empty() {
            self.started_at = Instant::now();
        }
        // Short jobs share their commits with many others.
        for (handler, done_at_once) in started {
            let ahead = self.ahead.entry(handler).or_default();
            *ahead = ahead_next(*ahead, workers, done_at_once, began.elapsed());
        }
    }

    /// Notes that an attempt has ended.
    fn conclude(&mut self, over: Over) {
        self.forget(held_of(&over.job), &over.job.handler);
        self.ran += 1;
        self.finished.push(over);
    }

    fn forget(&mut self, held: Held, handler: &GroupName) {
        self.bus.inner().jobs.running.remove(held);
        // There is room for another, whether or not something is to be written.
        self.maybe_more |= self.maybe_left;
        if let Some(busy) = self.busy.get_mut(handler) {
            *busy = busy.saturating_sub(1);
        }
    }

    fn give_back(&mut self, job: Job) {
        // What was given back would be claimed again at once: whatever holds it has a moment to pass.
        self.calm_until = Instant::now() + CALM;
        self.hand_back(job);
    }

    fn hand_back(&mut self, job: Job) {
        self.forget(held_of(&job), &job.handler);
        self.finished.push(Over::given_back(job));
    }

    /// Gives back what was claimed ahead and no worker was free for.
    fn give_back_late(&mut self) {
        while let Some((job, _)) = self.queue.pop_front() {
            self.ahead.remove(&job.handler);
            self.hand_back(job);
        }
    }

    fn give_back_queued(&mut self) {
        while let Some((job, _)) = self.queue.pop_front() {
            self.give_back(job);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Nobody would start what is claimed with its offer now; what was is taken up when its lease has passed.
        self.bus.inner().jobs.offers.withdraw();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_jobs_are_claimed_ahead_within_bounds_however_many_workers_there_are() {
        let (short, long) = (Duration::ZERO, Duration::from_secs(1));
        assert_eq!(
            [(0, 16), (16, 16), (400, 16), (0, 600)].map(|(ahead, workers)| ahead_next(ahead, workers, 1, short)),
            [16, 32, AHEAD_MAX, AHEAD_MAX]
        );
        assert_eq!((ahead_next(64, 16, 1, long), ahead_next(64, 16, 0, short)), (64, 32));
    }
}
