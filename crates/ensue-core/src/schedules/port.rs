//! What must an engine keep of schedules?
//!
//! An engine does not read what fires when: it keeps a text, a watermark and a time, and lets whoever decided from that
//! watermark move it, once, in one commit with what follows.

use super::firing::{NewRun, What};
use super::schedule::Makes;
use crate::error::{Invalid, StoreError};
use crate::event::{Seq, whole_microseconds};
use crate::jobs::{JobId, NewJob};
use crate::json::Json;
use crate::key::GroupName;
use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use std::collections::HashSet;
use uuid::Uuid;

/// How many schedules may be kept.
pub const SCHEDULES_MAX: usize = 100_000;
/// How many runs of a schedule are kept: the last.
pub const RUNS_MAX: u64 = 100;
/// The most schedules that one call fires, and the most runs that it writes.
pub const FIRINGS_MAX: usize = 1_000;
/// The most names that one process declares.
pub const DECLARED_MAX: usize = 10_000;

/// A schedule to be kept, or kept anew. It is decided from what is there, and taken only if that is still so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutSchedule {
    /// What it is called.
    pub name: GroupName,
    /// What it is, for those who read it.
    pub definition: Json,
    /// Who declares it, if it goes when nobody does any more.
    pub managed_by: Option<String>,
    /// The version and the watermark of the one that is there; none if there is none.
    pub over: Option<(u64, Timestamp)>,
    /// Up to where it is decided.
    pub watermark: Timestamp,
    /// When it is to be looked at; none if it is not.
    pub due: Option<Timestamp>,
}

/// A schedule that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// What it is called.
    pub name: GroupName,
    /// What it is.
    pub definition: Json,
    /// Who declares it.
    pub managed_by: Option<String>,
    /// Grows with each change of any schedule; no two have the same.
    pub version: u64,
    /// Up to where it is decided.
    pub watermark: Timestamp,
    /// When it is to be looked at.
    pub due: Option<Timestamp>,
    /// Does a rule hold it? While one does it is never due.
    pub held: bool,
    /// When it was first put.
    pub created_at: Timestamp,
    /// When it became what it is.
    pub updated_at: Timestamp,
}

/// What somebody who found a schedule due has decided.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Firing {
    /// Which.
    pub name: GroupName,
    /// As it was.
    pub version: u64,
    /// How its watermark moves; none if somebody fires it by hand.
    pub moves: Option<Moves>,
    /// What becomes of which occurrence, in this order.
    pub runs: Vec<NewRun>,
}

/// How a watermark moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moves {
    /// From here: if it is elsewhere, somebody else has decided.
    pub from: Timestamp,
    /// To here.
    pub to: Timestamp,
    /// When it is to be looked at next: later than it was due, so that whoever has looked need not look there again.
    pub due: Option<Timestamp>,
}

impl Firing {
    /// How many bytes are written for it, about.
    pub fn bytes(&self) -> usize {
        let bytes = |run: &NewRun| match &run.what {
            What::Fires(Makes::Event(entry)) => entry.payload.as_str().len() + entry.metadata.as_str().len(),
            What::Fires(Makes::Job(job)) => job.payload.as_str().len() + job.metadata.as_str().len(),
            What::Skipped(reason) => reason.len(),
        };
        self.runs.iter().map(bytes).sum()
    }
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fired {
    /// It is on disk: what became of each run.
    Done(Vec<Run>),
    /// The schedule is another one by now, or gone, or somebody else has fired it: nothing was written.
    Lost,
    /// A rule holds it: nothing was written.
    Held,
}

/// What became of an occurrence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// Its place among the runs of its schedule, 1 for the first.
    pub number: u64,
    /// Which occurrence.
    pub occurrence: Timestamp,
    /// When it was decided, by the store's clock.
    pub at: Timestamp,
    /// Did somebody ask for it?
    pub manual: bool,
    /// What came of it.
    pub outcome: RunOutcome,
}

/// What came of an occurrence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunOutcome {
    /// An event was published.
    Event(Seq),
    /// A job was sent.
    Job(JobId),
    /// The job of an earlier one is not over: this one.
    Overlapped(JobId),
    /// It was left out, for this reason.
    Skipped(String),
}

/// What a process hears when it declares its schedules.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Declared {
    /// Those of its names under which nothing is kept, by name.
    pub missing: Vec<GroupName>,
    /// Schedules that nobody who lives declares any more, by name: they are gone.
    pub removed: Vec<GroupName>,
}

/// A process that declares schedules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Declarer {
    /// Which.
    pub process: Uuid,
    /// Until when it said so.
    pub until: Timestamp,
}

/// Why a schedule cannot be kept: there are too many.
pub fn too_many() -> StoreError {
    let reason = format!("would be one schedule more than the {SCHEDULES_MAX} that can be kept: delete some first");
    Invalid::new("name", reason).into()
}

/// Refuses firings that no engine should carry out.
pub fn check(firings: &[Firing]) -> Result<(), StoreError> {
    let runs: usize = firings.iter().map(|firing| firing.runs.len()).sum();
    if firings.is_empty() || firings.len() > FIRINGS_MAX || runs > FIRINGS_MAX {
        let reason = format!("are {} with {runs} runs; fire 1 to {FIRINGS_MAX} at once", firings.len());
        return Err(Invalid::new("firings", reason).into());
    }
    let names: HashSet<&GroupName> = firings.iter().map(|firing| &firing.name).collect();
    if names.len() < firings.len() {
        return Err(Invalid::new("firings", "name a schedule twice: decide again after the first").into());
    }
    let mut jobs = firings.iter().flat_map(|firing| &firing.runs).filter_map(|run| match &run.what {
        What::Fires(Makes::Job(job)) => Some(job),
        What::Fires(Makes::Event(_)) | What::Skipped(_) => None,
    });
    jobs.try_for_each(NewJob::check).map_err(StoreError::from)
}

impl PutSchedule {
    /// With times as engines keep them.
    pub fn in_microseconds(mut self) -> Self {
        self.watermark = whole_microseconds(self.watermark);
        self.due = self.due.map(whole_microseconds);
        self
    }
}

/// Schedules, durably.
#[async_trait]
pub trait Schedules: Send + Sync + 'static {
    /// Keeps a schedule, or keeps it anew with a new version; none if what is there is not what it was decided over. One more than
    /// [`SCHEDULES_MAX`] is [`StoreError::Invalid`].
    async fn put_schedule(&self, put: PutSchedule) -> Result<Option<Kept>, StoreError>;

    /// A schedule.
    async fn schedule(&self, name: &GroupName) -> Result<Option<Kept>, StoreError>;

    /// Schedules by name, after this one: at most `limit` of them.
    async fn schedules(&self, after: Option<&GroupName>, limit: usize) -> Result<Vec<Kept>, StoreError>;

    /// Forgets a schedule with its runs; was there one?
    async fn delete_schedule(&self, name: &GroupName) -> Result<bool, StoreError>;

    /// Schedules that are due by this time and not held, the longest due first and then by name: at most `limit` of them, and
    /// [`PAGE_BYTES_MAX`](crate::store::PAGE_BYTES_MAX) bytes of definitions (but always one).
    async fn due_schedules(&self, now: Timestamp, limit: usize) -> Result<Vec<Kept>, StoreError>;

    /// When the next schedule is due that no rule holds.
    async fn next_schedule(&self) -> Result<Option<Timestamp>, StoreError>;

    /// Carries out what was decided, in one commit; an answer for each, in the same order. A job with a `unique_key` is made only if
    /// none of its handler with that key is live. At most [`FIRINGS_MAX`], each schedule once, and nothing that [`check`] refuses. After an error nothing of it was
    /// written.
    async fn fire(&self, firings: Vec<Firing>) -> Result<Vec<Fired>, StoreError>;

    /// What became of the occurrences of a schedule, the newest first, before this number: at most `limit` of the last
    /// [`RUNS_MAX`].
    async fn schedule_runs(&self, name: &GroupName, before: Option<u64>, limit: usize) -> Result<Vec<Run>, StoreError>;

    /// A process says which schedules it declares, and will for so long, in place of what it said before. Those that somebody
    /// manages and that nobody declares at this time are forgotten; a declaration whose time has passed counts for one `lease`
    /// more, so that whoever restarts finds its schedules.
    async fn declare_schedules(
        &self,
        process: Uuid,
        names: &[GroupName],
        lease: SignedDuration,
    ) -> Result<Declared, StoreError>;

    /// Who declares this schedule, or any if none is named, also if its time has passed meanwhile; by process.
    async fn declarers(&self, name: Option<&GroupName>) -> Result<Vec<Declarer>, StoreError>;

    /// A process declares nothing any more, for good: one that restarts does not say so. What it declared stays until another process declares something.
    async fn undeclare_schedules(&self, process: Uuid) -> Result<(), StoreError>;
}
