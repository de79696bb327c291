//! Who fires what is due?
//!
//! Every process that runs the bus. Each sleeps until the earliest time that it knows of, decides what is due, and lets the store
//! take the first decision about each (`ensue_core::schedules::firing`). What changes elsewhere is heard of with the pulse: so
//! an idle process asks nothing of its own.

use super::batch::Batch;
use super::declared::Declaring;
use super::{Fired, Firing, Kept, Moves, NewRun, RunOutcome, Schedule, firing};
use crate::Ensue;
use crate::delivery::until;
use ensue_core::schedules::{Makes, What};
use ensue_core::{GroupName, StoreError, Timestamp};
use jiff::SignedDuration;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// How many schedules are looked at, and fired in one commit.
const BATCH: usize = 500;
/// After how many decisions others have their turn.
const YIELD_EVERY: usize = 8;
/// How long to wait after something went wrong.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How long a schedule is let be that cannot be read or fired: shorter than what counts as missed, as another process may be able to.
const PUT_OFF: SignedDuration = SignedDuration::from_secs(5);
/// How many schedules are remembered as they were read, and how many bytes of content.
const READ_MAX: usize = 50_000;
const READ_BYTES_MAX: usize = 16_777_216;

/// What a bus knows of schedules while it lives.
pub(crate) struct SchedulesHere {
    changed: Notify,
    /// When the next one is due, as it was last heard.
    pub due: watch::Sender<Option<Instant>>,
    /// What this process declares, if it was told.
    pub declared: Mutex<Option<Vec<Schedule>>>,
    /// Rung when that has changed.
    pub redeclare: Notify,
    /// The bus was closed: nothing can be declared any more.
    pub closed: AtomicBool,
    /// What is known of that. Whoever says what is declared has it, so that one is said after the other.
    pub declaring: tokio::sync::Mutex<Declaring>,
}

impl Default for SchedulesHere {
    fn default() -> Self {
        Self {
            changed: Notify::new(),
            due: watch::Sender::new(None),
            declared: Mutex::new(None),
            redeclare: Notify::new(),
            closed: AtomicBool::new(false),
            declaring: tokio::sync::Mutex::default(),
        }
    }
}

impl SchedulesHere {
    /// The bus was closed: who waits is to look.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.redeclare.notify_one();
        self.ring();
    }

    /// One may be due before the scheduler looks next.
    pub fn ring(&self) {
        self.changed.notify_one();
    }
}

/// Fires until it is dropped.
pub(crate) async fn run(bus: Ensue) {
    let mut heard = bus.inner().schedules.due.subscribe();
    let mut read = Read::default();
    loop {
        let mut next = match fire_due(&bus, &mut read).await {
            Ok(wait) => wait.map(|wait| Instant::now() + wait),
            Err(StoreError::Closed) => return,
            Err(error) => {
                tracing::warn!(%error, "schedules that are due cannot be fired; trying again");
                Some(Instant::now() + AGAIN_AFTER)
            }
        };
        loop {
            tokio::select! {
                () = at(next) => break,
                () = bus.inner().schedules.changed.notified() => break,
                Ok(()) = heard.changed() => next = next.into_iter().chain(*heard.borrow_and_update()).min(),
            }
        }
    }
}

/// Fires what is due by now, beside the scheduler: each occurrence once, whoever comes first.
pub(crate) async fn fire_now(bus: &Ensue) -> Result<(), StoreError> {
    fire_due(bus, &mut Read::default()).await.map(drop)
}

/// Comes back at this time, or never.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Schedules as they were read: reading an expression takes longer than deciding.
#[derive(Default)]
struct Read {
    schedules: HashMap<GroupName, (u64, Schedule)>,
    bytes: usize,
}

impl Read {
    fn get(&mut self, kept: &Kept) -> Result<&Schedule, StoreError> {
        let is_known = self.schedules.get(&kept.name).is_some_and(|(version, _)| *version == kept.version);
        if !is_known {
            let schedule = Schedule::stored(&kept.name, &kept.definition, kept.managed_by.as_deref())?;
            self.bytes += schedule.payload.as_str().len();
            if self.schedules.len() >= READ_MAX || self.bytes > READ_BYTES_MAX {
                self.schedules.clear();
                self.bytes = schedule.payload.as_str().len();
            }
            if let Some((_, before)) = self.schedules.insert(kept.name.clone(), (kept.version, schedule)) {
                self.bytes -= before.payload.as_str().len();
            }
        }
        let gone = || StoreError::Engine(format!("the schedule `{}` was forgotten", kept.name));
        self.schedules.get(&kept.name).map(|(_, schedule)| schedule).ok_or_else(gone)
    }
}

/// Fires everything that is due; answers how long it is to what comes next.
async fn fire_due(bus: &Ensue, read: &mut Read) -> Result<Option<Duration>, StoreError> {
    let store = bus.store();
    loop {
        let now = store.now().await?;
        let due = store.due_schedules(now, BATCH).await?;
        if due.is_empty() {
            let next = store.next_schedule().await?;
            // By the store's clock, which is not ours.
            return Ok(next.map(|next| until(next, now)));
        }
        let mut batch = Batch::new();
        for (index, kept) in due.iter().enumerate() {
            // To count what was missed takes a while: others go on meanwhile.
            if index % YIELD_EVERY == YIELD_EVERY - 1 {
                tokio::task::yield_now().await;
            }
            let firing = match decided(bus, read, kept, now) {
                Ok(firing) => firing,
                Err(error) => put_off(bus, kept.name.clone(), kept.version, kept.watermark, now, &error).await?,
            };
            if let Some(before) = batch.push(firing) {
                fire(bus, before).await?;
            }
        }
        fire(bus, batch.rest()).await?;
    }
}

/// What is to become of one that is due; or why this process cannot read it.
fn decided(bus: &Ensue, read: &mut Read, kept: &Kept, now: Timestamp) -> Result<Firing, StoreError> {
    let schedule = read.get(kept)?;
    let decided = firing::decide(schedule, kept.watermark, now);
    let mut runs = decided.runs;
    bus.inner().as_handlers_say(schedule, &mut runs);
    let moves = Moves { from: kept.watermark, to: decided.watermark, due: decided.due };
    Ok(Firing { name: kept.name.clone(), version: kept.version, moves: Some(moves), runs })
}

/// Lets one be for a while that cannot be fired, so that it does not stop the others. Its watermark stays: whoever can fires it. What
/// its last run says already is not said again.
async fn put_off(
    bus: &Ensue,
    name: GroupName,
    version: u64,
    watermark: Timestamp,
    now: Timestamp,
    error: &StoreError,
) -> Result<Firing, StoreError> {
    let reason = format!("it could not be fired: {error}");
    let last = bus.store().schedule_runs(&name, None, 1).await?;
    let is_said = last.first().is_some_and(|run| matches!(&run.outcome, RunOutcome::Skipped(said) if *said == reason));
    let runs = if is_said {
        Vec::new()
    } else {
        tracing::warn!(%error, schedule = %name, "a schedule is let be until it can be fired");
        vec![NewRun { occurrence: now, manual: false, what: What::Skipped(reason) }]
    };
    let due = now.checked_add(PUT_OFF).ok();
    Ok(Firing { name, version, moves: Some(Moves { from: watermark, to: watermark, due }), runs })
}

/// Has the store carry out what was decided. One that is refused is let be, and the others fire.
async fn fire(bus: &Ensue, firings: Vec<Firing>) -> Result<(), StoreError> {
    let mut parts = vec![firings];
    while let Some(mut part) = parts.pop() {
        if part.is_empty() {
            continue;
        }
        match bus.store().fire(part.clone()).await {
            Ok(fired) => bus.inner().announce_fired(&fired),
            Err(error @ (StoreError::Invalid(_) | StoreError::Engine(_) | StoreError::Conflict(_))) => {
                if part.len() > 1 {
                    parts.push(part.split_off(part.len() / 2));
                    parts.push(part);
                    continue;
                }
                for one in part {
                    let Some(moves) = one.moves else { continue };
                    let now = bus.store().now().await?;
                    let later = put_off(bus, one.name, one.version, moves.from, now, &error).await?;
                    bus.store().fire(vec![later]).await?;
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl crate::bus::Inner {
    /// What a schedule leaves open about its jobs is as their handler says, if this process knows it.
    pub fn as_handlers_say(&self, schedule: &Schedule, runs: &mut [NewRun]) {
        let jobs = runs.iter_mut().filter_map(|run| match &mut run.what {
            What::Fires(Makes::Job(job)) => Some(job),
            What::Fires(Makes::Event(_)) | What::Skipped(_) => None,
        });
        for job in jobs {
            if schedule.priority == 0
                && let Some(priority) = self.handlers.task_priority(&job.handler)
            {
                job.priority = priority;
            }
            if schedule.attempts_max.is_none()
                && let Some((attempts_max, _)) = self.handlers.job_defaults(&job.handler)
            {
                job.attempts_max = attempts_max;
            }
        }
    }

    /// Wakes who waits for what was fired.
    pub fn announce_fired(&self, fired: &[Fired]) {
        let runs = fired.iter().flat_map(|fired| match fired {
            Fired::Done(runs) => &runs[..],
            Fired::Lost | Fired::Held => &[],
        });
        let (mut last, mut jobs) = (None, false);
        for run in runs {
            match &run.outcome {
                RunOutcome::Event(seq) => last = last.max(Some(*seq)),
                RunOutcome::Job(_) => jobs = true,
                RunOutcome::Overlapped(_) | RunOutcome::Skipped(_) => {}
            }
        }
        if let Some(last) = last {
            self.ring(last);
        }
        if jobs {
            self.jobs.ring();
        }
    }
}
