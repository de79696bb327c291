//! What may the bodies of requests about jobs say?
//!
//! Descriptions only: `jobs_body.rs` and `fields_body.rs` read them by hand.

#![expect(dead_code, reason = "describes what is read by hand")]

use super::shapes::NewEventShape;
use serde::Deserialize;
use utoipa::ToSchema;

/// A job to send. Other fields are refused.
#[derive(Deserialize, ToSchema)]
#[schema(as = NewJob)]
pub(super) struct NewJobShape {
    /// The key of the handler that is to run it. It need not be known yet.
    #[schema(example = "mail.send", max_length = 255)]
    handler: String,
    /// The content; null if left out.
    payload: Option<serde_json::Value>,
    /// What is said about it: a JSON object.
    metadata: Option<std::collections::HashMap<String, serde_json::Value>>,
    /// What it is about. Jobs of one handler and object run one after another, in the order in which they were sent.
    #[schema(example = "order:17", max_length = 512)]
    object: Option<String>,
    /// `false`: the jobs of its object need not run one after another.
    ordered: Option<bool>,
    /// Higher first, first come first served inside; 0 unless told, and of a task that of its collection, or 100. Any 64-bit number.
    priority: Option<u64>,
    /// Runs no earlier than this.
    #[schema(format = DateTime)]
    not_before: Option<String>,
    /// While a job of the handler with this key is live, another is not made. The tasks of a collection have one of their own.
    #[schema(max_length = 512)]
    unique_key: Option<String>,
    /// How often it is attempted; as its handler says unless told, and 5 where that is not known.
    #[schema(minimum = 1, maximum = 1000000)]
    attempts_max: Option<u32>,
    /// What happens to the others of its object when it has died: `hold`, `skip` or `dead_letter_object`.
    on_exhausted: Option<String>,
}

/// One job, or several that are sent together or not at all.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(as = OneOrManyJobs)]
pub(super) enum OneOrManyJobsShape {
    One(Box<NewJobShape>),
    Many(Vec<NewJobShape>),
}

/// What to do to many jobs. Other fields are refused.
#[derive(Deserialize, ToSchema)]
#[schema(as = BulkRequest)]
pub(super) struct BulkRequestShape {
    /// `cancel`, `retry` or `skip`.
    action: String,
    filter: BulkFilterShape,
    /// Only say how many it would be done to.
    dry_run: Option<bool>,
}

/// Which jobs are meant; at least one of these.
#[derive(Deserialize, ToSchema)]
#[schema(as = BulkFilter)]
pub(super) struct BulkFilterShape {
    /// In this state, or in one of several with commas between.
    state: Option<String>,
    /// Of this handler and those below it.
    handler: Option<String>,
    /// Of this object.
    object: Option<String>,
}

/// What a worker wants. Other fields are refused.
#[derive(Deserialize, ToSchema)]
#[schema(as = ClaimJobs)]
pub(super) struct ClaimShape {
    /// Jobs of these handlers, by their keys: 1 to 200.
    handlers: Vec<String>,
    /// At most this many; 1 unless told.
    #[schema(minimum = 1, maximum = 1000)]
    limit: Option<u64>,
    /// How long the jobs are the worker's, unless it renews; 30 s unless told. No longer than the `timeout` of the job's handler
    /// allows.
    #[schema(minimum = 100, maximum = 86400000)]
    lease_ms: Option<u64>,
    /// If there is nothing: how long to wait for something; not at all unless told.
    #[schema(maximum = 30000)]
    wait_ms: Option<u64>,
    /// What the worker is called, for people.
    #[schema(max_length = 255)]
    worker: Option<String>,
}

/// How long a claim goes on. Other fields are refused.
#[derive(Deserialize, ToSchema)]
#[schema(as = RenewClaim)]
pub(super) struct RenewShape {
    claim: String,
    /// From now on; 30 s unless told. No longer than the `timeout` of the job's handler allows.
    #[schema(minimum = 100, maximum = 86400000)]
    lease_ms: Option<u64>,
}

/// What a worker made of a job. Other fields are refused.
#[derive(Deserialize, ToSchema)]
#[schema(as = CompleteJob)]
pub(super) struct CompleteShape {
    claim: String,
    /// Kept with the job.
    result: Option<serde_json::Value>,
    /// Published in the same commit, or nothing is done at all.
    events: Option<Vec<NewEventShape>>,
    /// Sent in the same commit, or nothing is done at all.
    #[schema(max_items = 1000)]
    jobs: Option<Vec<NewJobShape>>,
}

/// Claimed jobs that are done. Other fields are refused.
#[derive(Deserialize, ToSchema)]
#[schema(as = CompleteJobs)]
pub(super) struct CompleteManyShape {
    /// 1 to 1,000, each job once.
    #[schema(min_items = 1, max_items = 1000)]
    jobs: Vec<CompleteOneShape>,
}

/// A claimed job that is done. Other fields are refused.
#[derive(Deserialize, ToSchema)]
#[schema(as = CompleteOneOfMany)]
pub(super) struct CompleteOneShape {
    id: String,
    claim: String,
    /// Kept with the job.
    result: Option<serde_json::Value>,
    /// Published in the same commit, or nothing of this job is written.
    events: Option<Vec<NewEventShape>>,
    /// Sent in the same commit, or nothing of this job is written.
    #[schema(max_items = 1000)]
    jobs: Option<Vec<NewJobShape>>,
}

/// What went wrong. Other fields are refused.
#[derive(Deserialize, ToSchema)]
#[schema(as = FailJob)]
pub(super) struct FailShape {
    claim: String,
    /// In words; kept with the job.
    error: String,
    /// `false`: another attempt would not help; the job is dead.
    retry: Option<bool>,
    /// After how long it is tried again; as its handler says unless told.
    #[schema(maximum = 31622400000_u64)]
    retry_in_ms: Option<u64>,
}

/// How long a job is put off. Other fields are refused.
#[derive(Deserialize, ToSchema)]
#[schema(as = SnoozeJob)]
pub(super) struct SnoozeShape {
    claim: String,
    #[schema(maximum = 31622400000_u64)]
    for_ms: u64,
}

/// How far a worker is with a job. Other fields are refused.
#[derive(Deserialize, ToSchema)]
#[schema(as = ReportProgress)]
pub(super) struct ReportShape {
    claim: String,
    /// So much is done.
    #[schema(maximum = 9223372036854775807_u64)]
    done: u64,
    /// Of so much, if that is known.
    #[schema(maximum = 9223372036854775807_u64)]
    total: Option<u64>,
    /// What is counted.
    #[schema(example = "rows", max_length = 64)]
    unit: Option<String>,
}

/// What a worker says about a job. Other fields are refused.
#[derive(Deserialize, ToSchema)]
#[schema(as = SayLines)]
pub(super) struct SayShape {
    claim: String,
    /// 1 to 1,000.
    lines: Vec<SayLineShape>,
}

/// A line to be kept.
#[derive(Deserialize, ToSchema)]
#[schema(as = SayLine)]
pub(super) struct SayLineShape {
    /// At most 8 KiB are kept.
    message: String,
    /// `debug`, `info` (unless told), `warn` or `error`.
    level: Option<String>,
    /// When; now unless told.
    #[schema(format = DateTime)]
    time: Option<String>,
}
