//! What does a handler get to know and do while it runs?

mod done_in;

pub use done_in::Settles;
#[cfg(feature = "postgres")]
pub(crate) use done_in::StoreHere;
pub(crate) use done_in::done_mark;

use crate::jobs::{ClaimRef, Emit};
use crate::tasks::Task;
use ensue_core::event::BATCH_MAX;
use ensue_core::handling::OwnCommit;
use ensue_core::jobs::job::JOBS_MAX;
use ensue_core::jobs::{Held, Job, NewJob, Progress};
use ensue_core::positions::delivery::LINE_BYTES_MAX;
use ensue_core::positions::{EventAt, Fence, LaneKey, Level, LogLine, SlotNumber};
use ensue_core::tasks::Collection;
use ensue_core::text::plain;
use ensue_core::{Entry, GroupName, Invalid, NewEvent, Seq, StoreKey, Timestamp};
use std::any::{Any, TypeId, type_name};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, watch};
use uuid::Uuid;

/// The most lines that one attempt may say; the rest is dropped, and counted.
pub(crate) const LINES_MAX: usize = 10_000;
/// The most bytes that they may have.
const LINES_BYTES_MAX: usize = 1 << 20;
/// With so many lines, or bytes of them, that are not written, whoever writes them while it runs is called.
const LINES_WAITING: usize = 1_000;
/// See [`LINES_WAITING`].
const BYTES_WAITING: usize = 128 << 10;

/// Values that handlers share, one of each type.
#[derive(Default)]
pub(crate) struct States(RwLock<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl States {
    pub fn put<T: Send + Sync + 'static>(&self, value: T) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).insert(TypeId::of::<T>(), Arc::new(value));
    }

    fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        let found = self.0.read().unwrap_or_else(PoisonError::into_inner).get(&TypeId::of::<T>()).cloned();
        found.and_then(|value| value.downcast().ok())
    }
}

/// The priorities of the tasks of this process, by their handlers, as a value that all attempts share.
pub(crate) struct Priorities(pub HashMap<GroupName, u64>);

/// The key that signs claims, as a value that all attempts share.
pub(crate) struct ClaimKey(pub StoreKey);

/// What an attempt is told.
pub(crate) struct ContextParts {
    pub group: GroupName,
    pub fence: Fence,
    /// Of the event that is handled; of a job, of the event that it follows from, or 0.
    pub seq: Seq,
    pub attempt: u32,
    pub redriven: bool,
    pub timeout: Option<Duration>,
    pub cancelled: watch::Receiver<bool>,
    /// Set before `cancelled` if it is because somebody wants the job not to be done.
    pub called_off: Option<Arc<AtomicBool>>,
    /// How many lines it may say.
    pub lines_max: usize,
    /// Are they kept also when it succeeds?
    #[cfg_attr(
        not(any(feature = "sqlite", feature = "postgres")),
        allow(dead_code, reason = "only a handler's own transaction asks")
    )]
    pub logs_always: bool,
    pub states: Arc<States>,
    #[cfg_attr(
        not(any(feature = "sqlite", feature = "postgres")),
        allow(dead_code, reason = "only a handler's own transaction asks")
    )]
    pub work: Work,
    /// The job, if it is a task.
    pub task: Option<Box<Job>>,
}

/// What is being run, as the store knows it.
#[cfg_attr(
    not(any(feature = "sqlite", feature = "postgres")),
    allow(dead_code, reason = "only a handler's own transaction asks")
)]
pub(crate) enum Work {
    Delivery(DeliveryWork),
    Job(Held),
}

/// The delivery of an event, or of several.
pub(crate) struct DeliveryWork {
    pub member: Uuid,
    pub slot: SlotNumber,
    pub lane: LaneKey,
    /// The other events of a batch: slot, fence, lane and place.
    pub others: Vec<(SlotNumber, Fence, LaneKey, Seq)>,
    /// The newest of all of them.
    pub newest: EventAt,
}

/// What a running handler knows and can do. Cheap to clone; all clones are the same attempt.
#[derive(Clone)]
pub struct Context(Arc<Inner>);

struct Inner {
    parts: ContextParts,
    deadline: Option<Instant>,
    prev_since: OnceLock<Seq>,
    said: Mutex<Said>,
    /// Rung when there is enough to write.
    enough: Notify,
}

/// What an attempt leaves behind when it ends.
#[derive(Default)]
struct Said {
    /// What is not written yet.
    lines: Vec<LogLine>,
    bytes_waiting: usize,
    /// What was said in all, written or not.
    line_count: usize,
    line_bytes: usize,
    dropped_lines: u64,
    /// Was something of it written while it runs?
    written: bool,
    progress: Option<Progress>,
    events: Vec<Entry>,
    jobs: Vec<NewJob>,
    /// Was `done_in` called?
    settles_itself: bool,
    settled: bool,
    /// What was settled in its own transactions, of whose end nobody has told us.
    #[cfg(feature = "postgres")]
    calls: Vec<Uuid>,
}

/// What is to be written when an attempt has succeeded.
#[derive(Default)]
pub(crate) struct Settlement {
    pub lines: Vec<LogLine>,
    /// Was something that it said written while it ran? Then the rest is, too.
    pub written: bool,
    pub events: Vec<Entry>,
    pub jobs: Vec<NewJob>,
    /// What became of its own transactions.
    pub own_commit: OwnCommit,
}

impl Context {
    pub(crate) fn new(parts: ContextParts) -> Self {
        let deadline = parts.timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        Self(Arc::new(Inner {
            parts,
            deadline,
            prev_since: OnceLock::new(),
            said: Mutex::default(),
            enough: Notify::new(),
        }))
    }

    pub(crate) fn set_prev_since(&self, since: Option<Seq>) {
        if let Some(since) = since {
            self.0.prev_since.get_or_init(|| since);
        }
    }

    /// Set if `prev` of the event could not be decided: between this place and the event the
    /// handler gets nothing of its object, and of what is before nothing is claimed. `prev` is none
    /// then.
    pub fn prev_since(&self) -> Option<Seq> {
        self.0.prev_since.get().copied()
    }

    /// Says a line, at level `info`. Lines are kept when the attempt fails, or always if the handler asks for that. What a job
    /// says that takes longer than about a second can be read while it runs, and is kept.
    pub fn log(&self, message: impl Into<String>) {
        self.log_at(Level::Info, message);
    }

    /// Says a line at a level.
    pub fn log_at(&self, level: Level, message: impl Into<String>) {
        let mut message = message.into();
        let mut said = self.said();
        if said.dropped_lines > 0
            || said.line_count >= self.0.parts.lines_max
            || said.line_bytes + message.len().min(LINE_BYTES_MAX) > LINES_BYTES_MAX
        {
            said.dropped_lines += 1;
            return;
        }
        if message.len() > LINE_BYTES_MAX {
            let cut = (0..=LINE_BYTES_MAX).rev().find(|at| message.is_char_boundary(*at)).unwrap_or(0);
            let dropped = message.len() - cut;
            message.truncate(cut);
            message.push_str(&format!(" … ({dropped} bytes were cut)"));
        }
        let message = plain(&message).into_owned();
        said.line_count += 1;
        said.line_bytes += message.len();
        said.bytes_waiting += message.len();
        let ContextParts { seq, attempt, .. } = self.0.parts;
        said.lines.push(LogLine { seq, attempt, at: Timestamp::now(), level, message });
        if said.lines.len() >= LINES_WAITING || said.bytes_waiting >= BYTES_WAITING {
            self.0.enough.notify_one();
        }
    }

    /// Says how far a job is: so much, of so much in all if that is known, of what is counted, such as `rows`. The newest is
    /// shown with the job, about once a second. Nothing is made of it for an event, or if it cannot be kept.
    pub fn progress(&self, done: u64, total: Option<u64>, unit: Option<&str>) {
        self.set_progress(Progress { done, total, unit: unit.map(str::to_owned), at: Timestamp::now() });
    }

    /// The same, as a whole.
    pub fn set_progress(&self, progress: Progress) {
        if progress.check().is_ok() {
            self.said().progress = Some(progress);
        }
    }

    /// Is there something to be written of how far it is?
    pub(crate) fn has_progress(&self) -> bool {
        self.said().progress.is_some()
    }

    /// Is it an attempt at a job, and not at an event?
    pub fn is_job(&self) -> bool {
        matches!(self.0.parts.work, Work::Job(_))
    }

    /// What a worker elsewhere would hold of the job: with it, somebody who works for this attempt may say over HTTP how far it is. None
    /// for an event.
    pub fn claim(&self) -> Option<ClaimRef> {
        match &self.0.parts.work {
            Work::Job(held) => self.0.parts.states.get::<ClaimKey>().map(|key| ClaimRef::of(*held, &key.0)),
            Work::Delivery(_) => None,
        }
    }

    /// The task that is run, as it was when this attempt began; none if it is none.
    pub fn task(&self) -> Option<Task> {
        let job = self.0.parts.task.as_deref()?;
        Some(Task { collection: Collection::of_handler(&job.handler)?, job: job.clone(), progress: None })
    }

    /// Which attempt this is: 1 for the first.
    pub fn attempt(&self) -> u32 {
        self.0.parts.attempt
    }

    /// Was the event brought back by somebody after its attempts were exhausted?
    pub fn redriven(&self) -> bool {
        self.0.parts.redriven
    }

    /// The key of the handler.
    pub fn handler(&self) -> &str {
        self.0.parts.group.as_str()
    }

    /// How long this attempt may take; none if the handler has no timeout.
    pub fn timeout(&self) -> Option<Duration> {
        self.0.parts.timeout
    }

    /// When this attempt is ended if it has not ended by then; none if the handler has no timeout.
    pub fn deadline(&self) -> Option<Instant> {
        self.0.deadline
    }

    /// Is the attempt to end as soon as it can: because the process stops, or has lost the right to run it?
    pub fn is_cancelled(&self) -> bool {
        *self.0.parts.cancelled.borrow()
    }

    /// Is that so because somebody called the job off? Then nobody will run it again.
    pub fn is_called_off(&self) -> bool {
        self.0.parts.called_off.as_ref().is_some_and(|called_off| called_off.load(Ordering::SeqCst))
    }

    /// Comes back when the attempt is to end as soon as it can.
    pub async fn cancelled(&self) {
        let mut cancelled = self.0.parts.cancelled.clone();
        // Who would cancel is gone: so is the attempt, soon.
        let _cancelled_or_gone = cancelled.wait_for(|cancelled| *cancelled).await;
    }

    /// Comes back when somebody has called the job off, also if the process was stopping by then.
    pub async fn called_off(&self) {
        let mut cancelled = self.0.parts.cancelled.clone();
        while !self.is_called_off() {
            // Whoever calls it off tells it to end, once more if it was told already.
            if cancelled.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// A number that grows whenever somebody else takes this work over. A receiver that remembers the highest it has
    /// seen can refuse what comes late from somebody who has lost it.
    pub fn fence(&self) -> u64 {
        self.0.parts.fence
    }

    /// The value of this type that was given to [`Ensue::state`](crate::Ensue::state).
    ///
    /// # Panics
    /// If none was given; which fails the attempt and says so.
    pub fn state<T: Send + Sync + 'static>(&self) -> Arc<T> {
        let found = self.0.parts.states.get();
        found.unwrap_or_else(|| panic!("no state of type {}: give it to the bus with `bus.state(…)`", type_name::<T>()))
    }

    /// Publishes an event if and when this attempt succeeds, in one commit with the note that it did.
    pub fn publish(&self, event: NewEvent) -> Result<(), Invalid> {
        let entry = event.check()?;
        let mut said = self.said();
        if said.events.len() >= BATCH_MAX {
            let reason = format!(
                "are {BATCH_MAX} already, the most that one attempt may publish: publish the rest from another event"
            );
            return Err(Invalid::new("events", reason));
        }
        said.events.push(entry);
        Ok(())
    }

    /// Sends a job if and when this attempt succeeds, in one commit with the note that it did.
    pub fn emit(&self, job: Emit) -> Result<(), Invalid> {
        let known: Option<Arc<Priorities>> = self.0.parts.states.get();
        self.emit_checked(job.check(|_| None, |handler| known?.0.get(handler).copied())?)
    }

    pub(crate) fn emit_checked(&self, job: NewJob) -> Result<(), Invalid> {
        let mut said = self.said();
        if said.jobs.len() >= JOBS_MAX {
            let reason =
                format!("are {JOBS_MAX} already, the most that one attempt may send: send the rest from another");
            return Err(Invalid::new("jobs", reason));
        }
        said.jobs.push(job);
        Ok(())
    }

    /// What it has said, taken out.
    pub(crate) fn take(&self) -> Settlement {
        let mut said = self.said();
        let Said { mut lines, dropped_lines, written, events, jobs, settles_itself, settled, .. } =
            std::mem::take(&mut *said);
        lines.extend(self.dropped_note(dropped_lines));
        let own_commit = match (settles_itself, settled) {
            (_, true) => OwnCommit::Committed,
            (true, false) => OwnCommit::Missing,
            (false, false) => OwnCommit::Unused,
        };
        let (events, jobs) = if settled { Default::default() } else { (events, jobs) };
        Settlement { lines, written, events, jobs, own_commit }
    }

    /// The line that tells how many were dropped, if any were.
    fn dropped_note(&self, dropped: u64) -> Option<LogLine> {
        let ContextParts { seq, attempt, lines_max, .. } = self.0.parts;
        let message =
            format!("{dropped} more lines were dropped: an attempt may say {lines_max}, and {LINES_BYTES_MAX} bytes");
        (dropped > 0).then(|| LogLine { seq, attempt, at: Timestamp::now(), level: Level::Warn, message })
    }

    /// Comes back when there is enough to be written at once.
    pub(crate) async fn said_enough(&self) {
        self.0.enough.notified().await;
    }

    /// What it has said since this was asked, and how far it is if it has said so: to be written while it runs.
    pub(crate) fn take_said(&self) -> (Vec<LogLine>, Option<Progress>) {
        let mut said = self.said();
        said.bytes_waiting = 0;
        (std::mem::take(&mut said.lines), said.progress.take())
    }

    /// What was taken is written.
    pub(crate) fn is_written(&self) {
        self.said().written = true;
    }

    /// What was taken could not be written: it comes before what was said since.
    pub(crate) fn put_back(&self, mut lines: Vec<LogLine>, progress: Option<Progress>) {
        let mut said = self.said();
        lines.append(&mut said.lines);
        said.lines = lines;
        if said.progress.is_none() {
            said.progress = progress;
        }
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.0.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
