//! What must an engine keep of work that is to be done once?
//!
//! The third part of the port: jobs, from being sent to being over. Every change that must be atomic is one verb; what a
//! worker writes is written under the fence of its claim, and a fence that is no longer the newest changes nothing. Times
//! are the store's clock's, as it is.
//!
//! | question | file |
//! |---|---|
//! | What is a job? | [`job`] |
//! | What can become of it? | [`lifecycle`] |
//! | Which job of a lane is next? | [`lane`] |
//! | Which events does Ensue itself publish? | [`notices`] |
//! | How long may a worker elsewhere hold a job? | [`patience`] |
//! | Where does a job stand for whoever looks? | [`seen()`] |
//! | How far is one that runs? | [`progress`] |

pub mod job;
pub mod lane;
pub mod lifecycle;
pub mod notices;
pub mod patience;
pub mod progress;
pub mod scaling;
mod seen;

pub use job::{Cause, Job, JobError, JobId, JobLine, JobNumber, NewJob};
pub use lifecycle::{ClaimUse, Input, JobEnd, JobState, Settlement};
pub use progress::Progress;
pub use seen::{seen, seen_counts};

use crate::error::StoreError;
use crate::event::{Appended, Entry, Seq};
use crate::json::Json;
use crate::key::{GroupName, ObjectKey};
use crate::positions::Fence;
use crate::tasks::TaskQuery;
use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};

/// What came of sending a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Enqueued {
    /// The job's id: its own, or that of the live one with the same `unique_key`.
    pub id: JobId,
    /// Was it made by this call?
    pub is_new: bool,
    /// Where it stands now.
    pub state: JobState,
}

/// Somebody who wants jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Of these handlers, and how many of each at most.
    pub handlers: Vec<(GroupName, usize)>,
    /// How many in all at most.
    pub limit: usize,
    /// How long the claim lasts unless it is renewed.
    pub lease: SignedDuration,
    /// Who wants them.
    pub worker: String,
    /// Does whoever wants them end when the machine of the embedded store does? Then nobody is left to act on a claim that a
    /// power failure takes back, and it need not be on disk before it is answered.
    pub ends_with_store: bool,
}

/// A job that somebody has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Held {
    /// Which.
    pub id: JobId,
    /// Under which fence.
    pub fence: Fence,
}

/// What a worker hears when it renews a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobRenewed {
    /// Until when it has the job now.
    pub lease_until: Timestamp,
    /// Is it to stop?
    pub cancel: bool,
}

/// What a worker writes about a job that it has: all of it or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobChange {
    /// Which job, under which fence.
    pub held: Held,
    /// How the attempt ended.
    pub end: JobEnd,
    /// What its handler made of it.
    pub result: Option<Json>,
    /// What it said; the store numbers the lines.
    pub lines: Vec<JobLine>,
    /// Events to publish.
    pub events: Vec<Entry>,
    /// Jobs to send.
    pub jobs: Vec<NewJob>,
}

impl JobChange {
    /// Nothing but the end.
    pub fn new(held: Held, end: JobEnd) -> Self {
        Self { held, end, result: None, lines: Vec::new(), events: Vec::new(), jobs: Vec::new() }
    }
}

/// What came of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobSettled {
    /// It is on disk.
    Done {
        /// Where the job stands now.
        state: JobState,
        /// What it published.
        events: Vec<Appended>,
        /// What it sent.
        jobs: Vec<Enqueued>,
    },
    /// The job is somebody else's, or over, or its worker was taken for vanished and is not: nothing of this change was
    /// written.
    LeaseLost,
    /// Its events or jobs cannot be taken: nothing of this change was written.
    Refused(StoreError),
}

/// What somebody wants of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Steer {
    /// That it does not run, or stops.
    Cancel,
    /// That it runs now.
    Retry,
    /// That its lane goes on without it.
    Skip,
}

impl Steer {
    /// The input that it is.
    pub fn input(self) -> Input {
        match self {
            Self::Cancel => Input::Cancel,
            Self::Retry => Input::Retry,
            Self::Skip => Input::Skip,
        }
    }
}

/// What came of steering a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Steered {
    /// It was done; the job as it is now.
    Done(Box<Job>),
    /// Its state does not allow it; the job as it is, and what to do instead.
    Refused(Box<Job>, &'static str),
    /// There is no such job.
    Unknown,
}

/// What looking after time found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Woken {
    /// How many jobs whose time had come wait no longer for it.
    pub count: usize,
    /// Jobs whose lease has passed, the earliest first: whoever looks settles them with [`lifecycle::expired`], which
    /// holds only if nobody has renewed them meanwhile.
    pub expired: Vec<Job>,
    /// When to look again: the next job that is due or whose lease passes, by the store's clock.
    pub next_due: Option<Timestamp>,
}

/// Which jobs to look at.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobQuery {
    /// In one of these states; in any if it is empty.
    pub states: Vec<JobState>,
    /// Of this handler and those below it.
    pub handler: Option<GroupName>,
    /// Of this object.
    pub object: Option<ObjectKey>,
    /// That follow from this event.
    pub cause: Option<Seq>,
    /// Only those that [keep the others of their object waiting](Job::holds_lane).
    pub holding: bool,
    /// After this one; from the first if there is none.
    pub after: Option<JobNumber>,
}

impl JobQuery {
    /// Is it one of these, wherever it begins?
    pub fn matches(&self, job: &Outline<'_>) -> bool {
        let is_under = |prefix: &GroupName| crate::key::is_under(prefix.as_str(), job.handler.as_str());
        (self.states.is_empty() || self.states.contains(&job.state))
            && self.handler.as_ref().is_none_or(is_under)
            && self.object.as_ref().is_none_or(|wanted| job.object == Some(wanted))
            && self.cause.is_none_or(|wanted| job.cause == Some(wanted))
            && (!self.holding || job.holds_lane)
    }
}

/// What a query looks at.
#[derive(Debug, Clone, Copy)]
pub struct Outline<'a> {
    /// Where the job stands.
    pub state: JobState,
    /// The key of its handler.
    pub handler: &'a GroupName,
    /// What it is about.
    pub object: Option<&'a ObjectKey>,
    /// The event that it follows from.
    pub cause: Option<Seq>,
    /// See [`Job::holds_lane`].
    pub holds_lane: bool,
}

impl<'a> Outline<'a> {
    /// Of this job.
    pub fn of(job: &'a Job) -> Self {
        Self {
            state: job.state,
            handler: &job.handler,
            object: job.object.as_ref(),
            cause: job.cause.as_ref().map(|cause| cause.seq),
            holds_lane: job.holds_lane(),
        }
    }
}

/// How far one look at jobs goes before it answers with what it has.
pub const JOB_SCAN_MAX: usize = 10_000;

/// A page of jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobPage {
    /// By number. May be empty although more would follow: the scan is bounded by [`JOB_SCAN_MAX`], and by
    /// [`PAGE_BYTES_MAX`](crate::store::PAGE_BYTES_MAX) bytes of payload (but always one job).
    pub jobs: Vec<Job>,
    /// The `after` of the next page; none if there is nothing behind this one.
    pub next: Option<JobNumber>,
}

/// How many jobs of a handler are in a state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobCount {
    /// The handler.
    pub handler: GroupName,
    /// The state.
    pub state: JobState,
    /// How many.
    pub count: u64,
}

/// Somebody runs the jobs of a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Of this handler.
    pub handler: GroupName,
    /// Was said last to be so until then.
    pub until: Timestamp,
}

/// Jobs and all that is known of them, durably.
#[async_trait]
pub trait Jobs: Send + Sync + 'static {
    /// Sends jobs: all of them in this order, or none. One whose handler has a live job with the same `unique_key` is not
    /// made again, and answers that one's id; also within one call. At most [`job::JOBS_MAX`].
    async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>, StoreError>;

    /// Takes available jobs, the highest priority first and the oldest turn inside it, over all handlers asked for. What a
    /// rule holds at this moment is not taken. At most [`job::CLAIM_HANDLERS_MAX`] handlers. Counts their attempts and raises their fences. Answers in the order in which
    /// they are to run.
    async fn claim(&self, claim: Claim) -> Result<Vec<Job>, StoreError>;

    /// Sends jobs and then claims, for who has nothing else to do: in one commit where the engine can. What is sent is sent,
    /// whether or not anything can be claimed.
    async fn enqueue_and_claim(
        &self,
        jobs: Vec<NewJob>,
        claim: Claim,
    ) -> Result<(Vec<Enqueued>, Vec<Job>), StoreError> {
        let sent = self.enqueue(jobs).await?;
        Ok((sent, self.claim(claim).await.unwrap_or_default()))
    }

    /// Renews claims; none for one that is lost.
    async fn renew_jobs(&self, held: &[Held], lease: SignedDuration) -> Result<Vec<Option<JobRenewed>>, StoreError>;

    /// Writes how attempts ended, in one commit; an answer for each, in the same order. A job that is over leaves its lane,
    /// unless it died and [holds it](lifecycle::holds_lane); with [`OnExhausted::DeadLetterObject`] its death is that of all
    /// that wait in its lane at that moment. What [`notices::job_dead`] says of those that died is published in the same
    /// commit, behind everything else in it, by number. An end that [may not be written](JobEnd::may_end) is [`JobSettled::LeaseLost`].
    ///
    /// [`OnExhausted::DeadLetterObject`]: crate::handling::OnExhausted::DeadLetterObject
    async fn settle_jobs(&self, changes: Vec<JobChange>) -> Result<Vec<JobSettled>, StoreError>;

    /// Writes what a running job says; false if it is somebody else's, or over. Of all that a job says the first
    /// [`job::JOB_LINES_MAX`] lines are kept.
    async fn say(&self, held: Held, lines: Vec<JobLine>) -> Result<bool, StoreError>;

    /// Writes how far a running job is, instead of what was said before; false if it is somebody else's, or over. What was said
    /// later than this stays.
    async fn report(&self, held: Held, progress: Progress) -> Result<bool, StoreError>;

    /// How far each of these jobs is, or was when it ended; none for one that has not said so, or is not there.
    async fn progress(&self, ids: &[JobId]) -> Result<Vec<Option<Progress>>, StoreError>;

    /// Tasks by the time at which they were made, then by number: at most `limit` of them, and
    /// [`PAGE_BYTES_MAX`](crate::store::PAGE_BYTES_MAX) bytes of payload (but always one task). Looks at nothing else.
    async fn tasks(&self, query: TaskQuery, limit: usize) -> Result<Vec<Job>, StoreError>;

    /// Lets jobs go on whose time has come, the earliest first, and finds those whose lease has passed: at most `limit` of
    /// each.
    async fn wake_jobs(&self, limit: usize) -> Result<Woken, StoreError>;

    /// Does to each job what is wanted, in one commit; an answer for each, in the same order. A dead job that is retried
    /// begins its attempts anew, is marked, and runs next in its lane.
    async fn steer(&self, ids: &[JobId], steer: Steer) -> Result<Vec<Steered>, StoreError>;

    /// A job.
    async fn job(&self, id: JobId) -> Result<Option<Job>, StoreError>;

    /// Jobs by number: at most `limit` of them.
    async fn jobs(&self, query: JobQuery, limit: usize) -> Result<JobPage, StoreError>;

    /// The job that goes before this one in its lane: the one that runs, or else the one with the smallest turn below its
    /// own. None if nothing does, or it is in no lane.
    async fn predecessor(&self, id: JobId) -> Result<Option<Job>, StoreError>;

    /// What a job said, by line, after this one: at most `limit` lines.
    async fn job_lines(&self, id: JobId, after: u64, limit: usize) -> Result<Vec<JobLine>, StoreError>;

    /// How many jobs there are, by handler and state; those that are over are not counted.
    async fn job_counts(&self) -> Result<Vec<JobCount>, StoreError>;

    /// Notes that somebody runs the jobs of these handlers, and will for so long.
    async fn serve_jobs(&self, handlers: &[GroupName], lease: SignedDuration) -> Result<(), StoreError>;

    /// Who was said to run jobs, by handler, also where the time has passed.
    async fn job_servers(&self) -> Result<Vec<Server>, StoreError>;

    /// Forgets up to `limit` tasks ([`has_task_prefix`](crate::tasks::has_task_prefix)) that are over, with what they said: those that
    /// ended before `before`, and the oldest beyond `keep`, however they ended. Answers how many.
    async fn purge_tasks(&self, before: Timestamp, keep: u64, limit: usize) -> Result<usize, StoreError>;

    /// Forgets up to `limit` other jobs that are over and hold no lane, with what they said: those that ended before `before`,
    /// and the oldest beyond `keep`. Those that died are counted by themselves: no other pushes one out. Answers how many.
    async fn purge_jobs(&self, before: Timestamp, keep: u64, limit: usize) -> Result<usize, StoreError>;
}
