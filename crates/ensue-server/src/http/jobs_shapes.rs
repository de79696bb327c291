//! What do answers about jobs look like?

use super::tasks_shapes::ProgressShape;
use ensue::jobs::{Bulk, Cause, ClaimRef, Enqueued, JobError, JobId, JobLine, SeenJob, SeenPage};
use ensue::{EventId, Json, Seq, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

/// A job.
#[derive(Serialize, ToSchema)]
#[schema(as = Job)]
pub(crate) struct JobShape<'a> {
    #[schema(value_type = String, format = "uuid")]
    id: JobId,
    /// The key of the handler that runs it.
    handler: &'a str,
    /// What it is about.
    #[schema(required = true)]
    object: Option<&'a str>,
    /// Do the jobs of this handler and object run one after another?
    ordered: bool,
    /// The content.
    #[schema(value_type = serde_json::Value)]
    payload: &'a Json,
    /// What is said about it.
    #[schema(value_type = serde_json::Value)]
    metadata: &'a Json,
    /// `scheduled available running parked retrying succeeded dead cancelled`. One that only a rule keeps from running is
    /// `parked`.
    state: &'static str,
    /// Higher first, first come first served inside. Any 64-bit number: read it as an integer.
    priority: u64,
    /// How often it was claimed, and the attempt was not given back.
    attempts: u32,
    /// How often it is attempted.
    attempts_max: u32,
    /// What happens to the others of its object when it has died: `hold`, `skip` or `dead_letter_object`.
    on_exhausted: &'static str,
    /// When its time comes, or came.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    not_before: Option<Timestamp>,
    #[schema(value_type = String, format = DateTime)]
    enqueued_at: Timestamp,
    /// When it was last claimed.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    locked_at: Option<Timestamp>,
    /// Until when its worker has it, unless it renews.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    lease_expires_at: Option<Timestamp>,
    /// When it was first claimed.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    started_at: Option<Timestamp>,
    /// When it was over.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    finished_at: Option<Timestamp>,
    /// Who has it, or had it last.
    #[schema(required = true)]
    worker: Option<&'a str>,
    /// What went wrong, the newest last; at most 20 are kept.
    errors: Vec<JobErrorShape<'a>>,
    /// What keeps it from running, for people; null if nothing does.
    #[schema(required = true)]
    held_by: Option<&'a str>,
    /// The event that it follows from.
    #[schema(required = true)]
    event: Option<JobEventShape<'a>>,
    /// While it is live, its handler gets no other with this key.
    #[schema(required = true)]
    unique_key: Option<&'a str>,
    /// What its worker made of it.
    #[schema(value_type = Option<serde_json::Value>, required = true)]
    result: Option<&'a Json>,
    /// Was it brought back after its death?
    redriven: bool,
    /// Was its worker told to stop?
    cancel_requested: bool,
    /// How far it is, or was when it ended; null if it has not said so.
    #[schema(required = true)]
    progress: Option<ProgressShape<'a>>,
}

/// What went wrong in one attempt.
#[derive(Serialize, ToSchema)]
#[schema(as = JobError)]
pub(crate) struct JobErrorShape<'a> {
    attempt: u32,
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    error: &'a str,
}

/// The event that a job follows from.
#[derive(Serialize, ToSchema)]
#[schema(as = JobEvent)]
pub(crate) struct JobEventShape<'a> {
    seq: Seq,
    /// The preceding event of its object.
    #[schema(value_type = Option<u64>, required = true)]
    prev: Option<Seq>,
    #[schema(value_type = String, format = "uuid")]
    id: EventId,
    topic: &'a str,
}

impl<'a> From<&'a SeenJob> for JobShape<'a> {
    fn from(SeenJob { job, state, held_by, progress }: &'a SeenJob) -> Self {
        let error = |JobError { attempt, at, error }: &'a JobError| JobErrorShape { attempt: *attempt, at: *at, error };
        let event = |Cause { seq, prev, id, topic }: &'a Cause| JobEventShape {
            seq: *seq,
            prev: *prev,
            id: *id,
            topic: topic.as_str(),
        };
        Self {
            id: job.id,
            handler: job.handler.as_str(),
            object: job.object.as_ref().map(|object| object.as_str()),
            ordered: job.ordered,
            payload: &job.payload,
            metadata: &job.metadata,
            state: state.as_str(),
            priority: job.priority,
            attempts: job.attempts,
            attempts_max: job.attempts_max,
            on_exhausted: job.on_exhausted.as_str(),
            not_before: job.not_before,
            enqueued_at: job.enqueued_at,
            locked_at: job.locked_at,
            lease_expires_at: job.lease_until,
            started_at: job.started_at,
            finished_at: job.finished_at,
            worker: job.worker.as_deref(),
            errors: job.errors.iter().map(error).collect(),
            held_by: held_by.as_deref(),
            event: job.cause.as_ref().map(event),
            unique_key: job.unique_key.as_deref(),
            result: job.result.as_ref(),
            redriven: job.redriven,
            cancel_requested: job.cancel_asked,
            progress: progress.as_ref().map(ProgressShape::from),
        }
    }
}

/// A page of jobs, in the order in which they were sent. May be empty although there is a `next`.
#[derive(Serialize, ToSchema)]
#[schema(as = Jobs)]
pub(crate) struct JobsShape<'a> {
    jobs: Vec<JobShape<'a>>,
    /// The `after` of the next page; null if there is none.
    #[schema(value_type = Option<String>, format = "uuid", required = true)]
    next: Option<JobId>,
}

impl<'a> From<&'a SeenPage> for JobsShape<'a> {
    fn from(page: &'a SeenPage) -> Self {
        let last = page.jobs.last().map(|seen| seen.job.id);
        // A page may end at a job that it does not show: the place alone is what counts.
        let next = page.next.map(|number| match last.filter(|id| id.number() == number) {
            Some(id) => id,
            None => JobId::new(Timestamp::UNIX_EPOCH, 0, number),
        });
        Self { jobs: page.jobs.iter().map(JobShape::from).collect(), next }
    }
}

/// What became of a job that was sent.
#[derive(Serialize, ToSchema)]
#[schema(as = SentJob)]
pub(crate) struct SentShape {
    /// Its own, or that of the live one with the same `unique_key`.
    #[schema(value_type = String, format = "uuid")]
    id: JobId,
    state: &'static str,
    /// Was one there already, with the same `unique_key`?
    existing: bool,
}

impl From<&Enqueued> for SentShape {
    fn from(sent: &Enqueued) -> Self {
        Self { id: sent.id, state: sent.state.as_str(), existing: !sent.is_new }
    }
}

/// What became of jobs that were sent: of one, or of all in the order of the array.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[schema(as = SentJobs)]
pub(crate) enum SentOneOrManyShape {
    One(SentShape),
    Many { jobs: Vec<SentShape> },
}

/// Jobs that were claimed, in the order in which they are to run.
#[derive(Serialize, ToSchema)]
#[schema(as = ClaimedJobs)]
pub(crate) struct ClaimedJobsShape<'a> {
    pub jobs: Vec<ClaimedShape<'a>>,
}

/// A job that was claimed.
#[derive(Serialize, ToSchema)]
#[schema(as = ClaimedJob)]
pub(crate) struct ClaimedShape<'a> {
    #[serde(flatten)]
    job: JobShape<'a>,
    /// To be sent back with everything about the job. Only its worker knows it.
    claim: String,
}

impl<'a> ClaimedShape<'a> {
    pub fn of(job: &'a SeenJob, claim: &ClaimRef) -> Self {
        Self { job: JobShape::from(job), claim: claim.to_string() }
    }
}

/// A claim that was renewed.
#[derive(Serialize, ToSchema)]
#[schema(as = RenewedClaim)]
pub(crate) struct RenewedShape {
    #[schema(value_type = String, format = DateTime)]
    pub lease_expires_at: Timestamp,
    /// Is the worker to stop? Then settle the job in any way: it is cancelled, unless it is complete.
    pub cancel: bool,
}

/// What came of steering many jobs.
#[derive(Serialize, ToSchema)]
#[schema(as = BulkAnswer)]
pub(crate) struct BulkShape {
    /// How many it was done to; with `dry_run`, how many it would be done to.
    matched: u64,
    /// How many the filter found in a state that does not allow it.
    refused: u64,
    dry_run: bool,
}

impl BulkShape {
    pub fn new(Bulk { matched, refused }: Bulk, dry_run: bool) -> Self {
        Self { matched, refused, dry_run }
    }
}

/// What a job said.
#[derive(Serialize, ToSchema)]
#[schema(as = JobLogs)]
pub(crate) struct JobLogsShape<'a> {
    /// In order. Two that are equal are two.
    logs: Vec<JobLineShape<'a>>,
    /// The `after` of the next page; null where nothing follows now.
    #[schema(required = true)]
    next: Option<u64>,
}

impl<'a> JobLogsShape<'a> {
    pub fn new(lines: &'a [JobLine], limit: usize) -> Self {
        let next = (lines.len() == limit).then(|| lines.last()).flatten();
        Self { logs: lines.iter().map(JobLineShape::from).collect(), next: next.map(|last| last.line) }
    }
}

/// A line.
#[derive(Serialize, ToSchema)]
#[schema(as = JobLine)]
pub(crate) struct JobLineShape<'a> {
    /// Its place among the lines of its job: 1 for the first.
    line: u64,
    /// In which attempt: 1 for the first.
    attempt: u32,
    #[schema(value_type = String, format = DateTime)]
    time: Timestamp,
    /// `debug`, `info`, `warn` or `error`.
    level: &'static str,
    message: &'a str,
}

impl<'a> From<&'a JobLine> for JobLineShape<'a> {
    fn from(line: &'a JobLine) -> Self {
        let JobLine { line, attempt, at, level, message } = line;
        Self { line: *line, attempt: *attempt, time: *at, level: level.as_str(), message }
    }
}
