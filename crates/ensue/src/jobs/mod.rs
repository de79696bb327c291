//! How is work sent to a handler, run once, and followed?
//!
//! | question | file |
//! |---|---|
//! | How is a job sent? | `emit.rs` |
//! | Typed jobs | `args.rs` |
//! | How is a job sent in a transaction of the application? | `emit_in.rs` |
//! | Which jobs can this process run, and how? | `served.rs` |
//! | Who runs them? | `pool.rs`, `attempt.rs`, and what they say meanwhile `live.rs` |
//! | How does a job start with the commit that sends it? | `offer.rs` |
//! | Which run here now, and may they go on? | `running.rs` |
//! | Whose time has come, and whose worker has vanished? | `clock.rs` |
//! | How do workers elsewhere get jobs? | `elsewhere.rs`, and where they have hung up `unheard.rs` |
//! | How are jobs found, called off and brought back? | `steering.rs` |
//! | What is told of a job to whoever looks at it? | `seen.rs` |
//! | Metrics of claims and attempts | `job_metrics.rs` |

mod args;
mod attempt;
mod clock;
mod elsewhere;
mod emit;
mod emit_in;
mod job_metrics;
mod live;
mod offer;
mod pool;
mod running;
mod seen;
mod served;
mod steering;
mod unheard;

pub use ensue_core::handling::retry::ATTEMPTS_LIMIT;
pub use ensue_core::jobs::{
    Cause, Claim, Enqueued, Held, Input, Job, JobChange, JobCount, JobEnd, JobError, JobId, JobLine, JobNumber,
    JobPage, JobQuery, JobRenewed, JobSettled, JobState, Jobs, NewJob, Progress, Server, Steer, Steered, Woken,
    lifecycle, notices, scaling, seen_counts,
};

pub use args::JobArgs;
pub use elsewhere::{ClaimRef, ClaimedJob, Completion, JobOutcome};
pub use emit::Emit;
pub use emit_in::EmitsIn;
pub use ensue_core::jobs::job::JOBS_MAX;
pub use pool::WORKERS;
pub use seen::{SeenJob, SeenPage};
pub use served::JobOptions;
pub use steering::{Bulk, BulkFilter, no_job};

pub(crate) use clock::{Sooner, look};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
pub(crate) use live::line_of;
pub(crate) use running::RunningJobs;
pub(crate) use seen::Around;

use crate::Ensue;
use crate::delivery::Deliveries;
use crate::error::Error;
use crate::health::Work;
use crate::supervision::{has_panicked, supervised};
use ensue_core::store::SharedStore;
use ensue_core::{GroupName, StoreError};
use futures_util::future::poll_immediate;
use offer::Offers;
use pool::{Pool, Rest, Wires};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinHandle};
use tokio::time::Instant;

/// What a bus knows of jobs while it lives.
pub(crate) struct JobsHere {
    /// Rung when a job may have become available, or is about to. A lost ring costs latency, never a job.
    bell: Notify,
    /// The same, for workers elsewhere that wait.
    pub waiting: watch::Sender<u64>,
    pub sooner: Sooner,
    pub running: Arc<RunningJobs>,
    pub offers: Offers,
    workers: AtomicUsize,
    /// How many jobs were sent by anybody, as it was last heard.
    sent: AtomicU64,
    /// When the next job is due or its lease passes, as it was last heard.
    pub due: watch::Sender<Option<Instant>>,
}

impl Default for JobsHere {
    fn default() -> Self {
        Self {
            bell: Notify::new(),
            waiting: watch::Sender::new(0),
            sooner: Sooner::default(),
            running: Arc::default(),
            offers: Offers::default(),
            workers: AtomicUsize::new(WORKERS),
            sent: AtomicU64::new(0),
            due: watch::Sender::new(None),
        }
    }
}

impl JobsHere {
    pub fn ring(&self) {
        self.bell.notify_one();
        self.waiting.send_modify(|rings| *rings = rings.wrapping_add(1));
    }

    async fn rung(&self) {
        self.bell.notified().await;
    }

    /// What a pulse says of jobs: others may have sent some.
    pub fn hear(&self, sent: u64, due: Option<Instant>) {
        if self.sent.swap(sent, Ordering::Relaxed) != sent {
            self.ring();
        }
        self.due.send_replace(due);
    }

    pub fn workers(&self) -> usize {
        self.workers.load(Ordering::Relaxed)
    }
}

/// Everything that runs jobs in this process.
pub(crate) struct JobLoops {
    stop: watch::Sender<bool>,
    looks: watch::Sender<u64>,
    rest: watch::Receiver<Rest>,
    pool: Mutex<Option<JoinHandle<()>>>,
    loops: Vec<JoinHandle<()>>,
}

/// How long it is known that this process runs jobs of its handlers, unless it says so again.
const SERVED_FOR: Duration = Duration::from_secs(90);

impl JobLoops {
    pub fn start(bus: &Ensue, deliveries: Arc<Deliveries>) -> Self {
        let stop = watch::Sender::new(false);
        let (rest_sender, rest) = watch::channel(Rest::default());
        let looks = watch::Sender::new(0);
        let worker = format!("{}", bus.inner().member);
        let loops = vec![
            keep("job clock", bus, clock::run),
            keep("job leases", bus, |bus| bus.inner().jobs.running.clone().keep(renewing(bus.store().clone()))),
            keep("served jobs", bus, say_served),
        ];
        let wires = Wires { stop: stop.subscribe(), rest: rest_sender, looks: looks.subscribe() };
        let pool = Pool::new(bus.clone(), deliveries, worker, wires).run();
        let inner = bus.shared();
        let leases: Vec<AbortHandle> = loops[1..].iter().map(JoinHandle::abort_handle).collect();
        let pool = tokio::spawn(async move {
            // It knows what runs, so it is not started again: the process is to be restarted. Others take its jobs when
            // their leases have passed.
            if has_panicked("job pool", pool).await {
                leases.iter().for_each(AbortHandle::abort);
                inner.health.end(Work::Jobs);
            }
        });
        Self { stop, looks, rest, pool: Mutex::new(Some(pool)), loops }
    }

    /// How many attempts have ended.
    pub fn ran(&self) -> u64 {
        self.rest.borrow().ran
    }

    /// Comes back when everything there is to do is done.
    pub async fn drained(&self) {
        if self.pool.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
            return;
        }
        self.looks.send_modify(|looks| *looks += 1);
        let wanted = *self.looks.borrow();
        let mut rest = self.rest.clone();
        // A pool that has ended does nothing more.
        let _idle_or_ended = rest.wait_for(|rest| rest.idle && rest.looks >= wanted).await;
    }

    /// Starts nothing more, tells what runs to end and lets it, within this time.
    pub async fn shutdown(&self, bus: &Ensue, wait_max: Duration) {
        self.stop.send_replace(true);
        bus.inner().jobs.running.cancel_all();
        let pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(mut pool) = pool
            && tokio::time::timeout(wait_max, &mut pool).await.is_err()
        {
            tracing::warn!("jobs did not end in time: they are run again when their leases have passed");
            pool.abort();
        }
        self.end();
    }

    pub fn end(&self) {
        self.loops.iter().for_each(JoinHandle::abort);
        if let Some(pool) = self.pool.lock().unwrap_or_else(PoisonError::into_inner).take() {
            pool.abort();
        }
    }
}

impl Drop for JobLoops {
    fn drop(&mut self) {
        self.end();
    }
}

/// The answer of a store that is asked to renew claims.
type Renewing = Pin<Box<dyn Future<Output = Result<Vec<Option<JobRenewed>>, StoreError>> + Send>>;

/// Asks a store to renew claims.
fn renewing(store: SharedStore) -> impl Fn(Vec<Held>) -> Renewing {
    move |held| {
        let store = store.clone();
        Box::pin(async move { store.renew_jobs(&held, running::lease()).await })
    }
}

/// Starts a loop.
fn keep<F: Future<Output = ()> + Send + 'static>(
    task: &'static str,
    bus: &Ensue,
    work: fn(Ensue) -> F,
) -> JoinHandle<()> {
    let bus = bus.clone();
    tokio::spawn(supervised(task, move || work(bus.clone())))
}

/// Says again and again which jobs this process runs.
async fn say_served(bus: Ensue) {
    let mut changes = bus.inner().handlers.changes();
    let lease = jiff::SignedDuration::try_from(SERVED_FOR).unwrap_or(jiff::SignedDuration::MAX);
    loop {
        changes.mark_unchanged();
        let keys: Vec<GroupName> = served::all(&bus.inner().handlers).into_keys().collect();
        let said = if keys.is_empty() { Ok(()) } else { bus.store().serve_jobs(&keys, lease).await };
        match said {
            Ok(()) => {}
            Err(StoreError::Closed) => return,
            Err(error) => tracing::warn!(%error, "which jobs are run here cannot be noted; trying again"),
        }
        tokio::select! {
            () = tokio::time::sleep(SERVED_FOR / 3) => {}
            Ok(()) = changes.changed() => {}
        }
    }
}

impl Ensue {
    /// Sends a job to a handler: answered when it is on disk.
    pub async fn emit(&self, job: Emit) -> Result<Enqueued, Error> {
        Ok(self.emit_all(vec![job]).await?[0])
    }

    /// Sends jobs, all or none, in this order.
    pub async fn emit_all(&self, jobs: Vec<Emit>) -> Result<Vec<Enqueued>, Error> {
        let jobs = jobs.into_iter().map(|job| self.checked_job(job)).collect::<Result<Vec<NewJob>, _>>()?;
        Ok(self.send_jobs(jobs).await?)
    }

    /// Sends jobs and wakes who waits for them.
    ///
    /// An engine of one process carries calls out in the order in which they were made. There the pool need not wait for the
    /// disk to hear of jobs: it claims while they are on their way, stands right behind them, and shares their commit or has
    /// the next. Its claim looks at rules, lanes and priorities as any other, and is answered when the jobs are on disk.
    /// Elsewhere a pool that waits offers to have its claim sent along.
    async fn send_jobs(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>, StoreError> {
        let (store, inner) = (self.store(), self.inner());
        let is_alone = store.handler_slots() == 1;
        let jobs = match self.send_and_claim(jobs).await {
            Ok(sent) => return sent,
            Err(jobs) => jobs,
        };
        let mut sending = store.enqueue(jobs);
        // The first poll puts them into the queue.
        let sent = match poll_immediate(&mut sending).await {
            Some(sent) => sent?,
            None => {
                if is_alone {
                    inner.jobs.bell.notify_one();
                }
                sending.await?
            }
        };
        // Again, for those who were too early, and those who wait elsewhere.
        inner.jobs_sent(&sent);
        Ok(sent)
    }

    /// A job as its handler would have it, if this process knows the handler.
    pub(crate) fn checked_job(&self, job: Emit) -> Result<NewJob, ensue_core::Invalid> {
        let handlers = &self.inner().handlers;
        job.check(|handler| handlers.job_defaults(handler), |handler| handlers.task_priority(handler))
    }

    /// How many jobs run at once in this process; [`WORKERS`] unless told. May be changed while the bus runs.
    pub fn set_workers(&self, workers: usize) {
        self.inner().jobs.workers.store(workers.max(1), Ordering::Relaxed);
        self.inner().jobs.ring();
    }

    /// Writes how attempts ended, and wakes whoever follows from it.
    pub(crate) async fn settle_jobs(&self, changes: Vec<JobChange>) -> Result<Vec<JobSettled>, StoreError> {
        let waits = changes.iter().any(|change| change.end.not_before().is_some());
        let answers = self.store().settle_jobs(changes).await?;
        let inner = self.inner();
        for answer in &answers {
            if let JobSettled::Done { state, events, jobs } = answer {
                inner.announce(events);
                inner.jobs_sent(jobs);
                if *state == JobState::Dead {
                    // The log has something new about it.
                    inner.tail.look_now();
                }
            }
        }
        if waits {
            inner.jobs.sooner.ring();
        }
        // A lane may have turned.
        inner.jobs.waiting.send_modify(|rings| *rings = rings.wrapping_add(1));
        Ok(answers)
    }
}

impl crate::bus::Inner {
    /// Wakes who waits for these jobs.
    pub fn jobs_sent(&self, sent: &[Enqueued]) {
        if sent.iter().any(|job| job.is_new && job.state == JobState::Scheduled) {
            self.jobs.sooner.ring();
        }
        if sent.iter().any(|job| job.is_new && job.state == JobState::Available) {
            self.jobs.ring();
        }
    }
}
