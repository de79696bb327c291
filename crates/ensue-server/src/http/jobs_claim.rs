//! How does a worker in any language get jobs, and say what became of them?

use super::App;
use super::answers::check_room;
use super::fields_body::{BodyFields, FieldsBody};
use super::groups::Segment;
use super::jobs::{job_id, no_job};
use super::jobs_body;
use super::jobs_requests::{ClaimShape, CompleteShape, FailShape, RenewShape, ReportShape, SayShape, SnoozeShape};
use super::jobs_shapes::{ClaimedJobsShape, ClaimedShape, JobShape, RenewedShape};
use super::problem::{Kind, Problem};
use super::query::NoQuery;
use super::responses::{BodyProblems, Conflict, NotFound};
use super::shapes;
use super::stop::stopped;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use ensue::GroupName;
use ensue::jobs::{ClaimRef, ClaimedJob, JobId, JobOutcome, Progress, SeenJob};
use ensue::text::check_text;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
use utoipa::ToSchema;

/// The most jobs that one claim takes.
const LIMIT_MAX: u64 = 1_000;
/// How long a claim waits at most for something to claim.
const WAIT_MAX: Duration = Duration::from_secs(30);
/// How long a claim lasts unless told.
const LEASE: Duration = Duration::from_secs(30);
/// The longest time that a job may be put off.
const LATER_MAX: Duration = Duration::from_secs(366 * 24 * 3_600);
/// Who a worker is that does not say so.
const NAMELESS: &str = "over HTTP";
/// The longest name of a worker, in bytes.
const WORKER_BYTES_MAX: usize = 255;
/// The most handlers that one claim may name.
const HANDLERS_MAX: usize = 200;
/// The longest error, in bytes; what is longer is cut.
const ERROR_BYTES_MAX: usize = 16 << 10;

/// Claims jobs
///
/// Takes jobs of the handlers that are named, the highest priority first and the oldest inside it, one at a time of each
/// object. They are the worker's until the lease has passed: renew the claim while the work takes longer, and settle it
/// with `complete`, `fail` or `snooze`. The claim is a secret of its worker. A worker that is not heard of loses its jobs to
/// the next one, and whatever it sends afterwards is refused with 409. What is claimed for a client that has hung up is given
/// back. A claim that waits while the server stops is answered with 503, not with an empty list.
#[utoipa::path(
    post,
    path = "/v1/jobs/claim",
    operation_id = "claim_jobs",
    tag = "jobs",
    request_body = ClaimShape,
    responses(
        (status = 200, description = "The jobs, in the order in which they are to run; none if nothing came in time", body = ClaimedJobsShape),
        BodyProblems,
    )
)]
pub(super) async fn claim(State(app): State<Arc<App>>, _: NoQuery, request: Request) -> Result<Response, Problem> {
    let known = &["handlers", "limit", "lease_ms", "wait_ms", "worker"];
    let body = FieldsBody::take(request, &app.options, known).await?;
    let fields = body.fields()?;
    let handlers = handlers(&fields)?;
    let limit = match fields.number("limit")? {
        None => 1,
        Some(limit @ 1..=LIMIT_MAX) => limit as usize,
        Some(limit) => return Err(Problem::invalid("limit", format!("is {limit}; choose 1 to {LIMIT_MAX}"))),
    };
    let wait_max = bounded(&fields, "wait_ms", WAIT_MAX)?.unwrap_or(Duration::ZERO);
    let lease = fields.millis("lease_ms")?.unwrap_or(LEASE);
    let worker = fields.text("worker")?.unwrap_or_else(|| NAMELESS.into());
    check_worker(&worker)?;
    check_room(&app.options.answers_budget)?;
    let mut stop = app.options.stop.clone();
    let claimed = tokio::select! {
        biased;
        claimed = app.bus.claim_jobs(handlers, limit, lease, wait_max, &worker) => claimed?,
        // What is being claimed is given back.
        () = stopped(&mut stop) => {
            return Err(Problem::new(Kind::Unavailable, "the server stops, and nothing has come yet: claim again"));
        }
    };
    let seen = |ClaimedJob { job, claim }| {
        let state = job.state;
        (SeenJob { job, state, held_by: None, progress: None }, claim)
    };
    let seen: Vec<(SeenJob, ClaimRef)> = claimed.into_iter().map(seen).collect();
    let jobs = seen.iter().map(|(job, claim)| ClaimedShape::of(job, claim)).collect();
    Ok(shapes::json(StatusCode::OK, &ClaimedJobsShape { jobs }))
}

fn handlers(fields: &BodyFields<'_>) -> Result<Vec<GroupName>, Problem> {
    let Some(names) = fields.texts("handlers")?.filter(|names| !names.is_empty()) else {
        return Err(Problem::invalid("handlers", "is missing or empty; name the handlers whose jobs you run"));
    };
    let mut handlers: Vec<GroupName> = Vec::new();
    for name in &names {
        let handler = GroupName::parse("handlers", name)?;
        if !handlers.contains(&handler) {
            handlers.push(handler);
        }
    }
    if handlers.len() > HANDLERS_MAX {
        let reason = format!("names {} handlers; at most {HANDLERS_MAX} are allowed in one claim", handlers.len());
        return Err(Problem::invalid("handlers", reason));
    }
    Ok(handlers)
}

fn check_worker(worker: &str) -> Result<(), Problem> {
    Ok(check_text("worker", worker, WORKER_BYTES_MAX)?)
}

/// A length of time up to a bound.
fn bounded(fields: &BodyFields<'_>, name: &'static str, max: Duration) -> Result<Option<Duration>, Problem> {
    match fields.millis(name)? {
        Some(time) if time > max => {
            Err(Problem::invalid(name, format!("is {}; at most {} are allowed", time.as_millis(), max.as_millis())))
        }
        time => Ok(time),
    }
}

/// What a request under a claim has in common.
struct Under {
    id: JobId,
    body: FieldsBody,
}

async fn under(app: &App, path: Segment, request: Request, known: &'static [&'static str]) -> Result<Under, Problem> {
    let id = job_id(path)?;
    Ok(Under { id, body: FieldsBody::take(request, &app.options, known).await? })
}

/// The claim that the body carries, of the job that the path names.
pub(super) fn claim_of(id: JobId, fields: &BodyFields<'_>) -> Result<ClaimRef, Problem> {
    let Some(text) = fields.text("claim")? else {
        return Err(Problem::invalid("claim", "is missing; send the one that came with the claimed job"));
    };
    let claim = ClaimRef::parse(&text)?;
    match claim.job() == id {
        true => Ok(claim),
        false => Err(Problem::invalid("claim", "is of another job; send the one that came with this job")),
    }
}

/// A refusal under a claim. Of a job that is not there it is said so.
pub(super) async fn refused(app: &App, id: JobId, error: ensue::Error) -> Problem {
    match error {
        ensue::Error::Store(ensue::StoreError::Conflict(_)) => match app.bus.job(id).await {
            Ok(None) => no_job(id),
            Ok(Some(_)) | Err(_) => error.into(),
        },
        error => error.into(),
    }
}

async fn settle(app: &App, id: JobId, claim: ClaimRef, outcome: JobOutcome) -> Result<Response, Problem> {
    let job = match app.bus.settle_claim(&claim, outcome).await {
        Ok(job) => job,
        Err(error) => return Err(refused(app, id, error).await),
    };
    Ok(shapes::json(StatusCode::OK, &JobShape::from(&app.bus.tell_job(job).await?)))
}

/// Renews a claim
///
/// From now on for `lease_ms`. The answer also says whether somebody has called the job off.
#[utoipa::path(
    post,
    path = "/v1/jobs/{id}/renew",
    operation_id = "renew_job",
    tag = "jobs",
    params(("id" = String, Path, description = "The job's id")),
    request_body = RenewShape,
    responses(
        (status = 200, description = "It is the worker's for longer", body = RenewedShape),
        NotFound,
        Conflict,
        BodyProblems,
    )
)]
pub(super) async fn renew(
    State(app): State<Arc<App>>,
    path: Segment,
    _: NoQuery,
    request: Request,
) -> Result<Response, Problem> {
    let Under { id, body } = under(&app, path, request, &["claim", "lease_ms"]).await?;
    let fields = body.fields()?;
    let (claim, lease) = (claim_of(id, &fields)?, fields.millis("lease_ms")?.unwrap_or(LEASE));
    match app.bus.renew_claim(&claim, lease).await {
        Ok(renewed) => {
            let shape = RenewedShape { lease_expires_at: renewed.lease_until, cancel: renewed.cancel };
            Ok(shapes::json(StatusCode::OK, &shape))
        }
        Err(error) => Err(refused(&app, id, error).await),
    }
}

/// Says that a job is done
///
/// Its `events` are published and its `jobs` sent in the same commit. A job that was cancelled meanwhile is done
/// all the same. A repeat under the same claim answers 200 with the job, also after it is over, and publishes and
/// sends nothing again.
#[utoipa::path(
    post,
    path = "/v1/jobs/{id}/complete",
    operation_id = "complete_job",
    tag = "jobs",
    params(("id" = String, Path, description = "The job's id")),
    request_body = CompleteShape,
    responses(
        (status = 200, description = "On disk; the job as it is now", body = JobShape),
        NotFound,
        Conflict,
        BodyProblems,
    )
)]
pub(super) async fn complete(
    State(app): State<Arc<App>>,
    path: Segment,
    _: NoQuery,
    request: Request,
) -> Result<Response, Problem> {
    let Under { id, body } = under(&app, path, request, &["claim", "result", "events", "jobs"]).await?;
    let fields = body.fields()?;
    let claim = claim_of(id, &fields)?;
    let outcome = JobOutcome::Done {
        result: fields.json("result")?,
        events: jobs_body::events(&fields)?,
        jobs: jobs_body::sent(&fields)?,
    };
    settle(&app, id, claim, outcome).await
}

/// Says that an attempt at a job failed
///
/// It is tried again as its handler says, or after `retry_in_ms`, while it has attempts left; with `"retry": false`, or when
/// they are exhausted, it is dead. A repeat under the same claim answers 200 with the job as it is then.
#[utoipa::path(
    post,
    path = "/v1/jobs/{id}/fail",
    operation_id = "fail_job",
    tag = "jobs",
    params(("id" = String, Path, description = "The job's id")),
    request_body = FailShape,
    responses(
        (status = 200, description = "On disk; the job as it is now", body = JobShape),
        NotFound,
        Conflict,
        BodyProblems,
    )
)]
pub(super) async fn fail(
    State(app): State<Arc<App>>,
    path: Segment,
    _: NoQuery,
    request: Request,
) -> Result<Response, Problem> {
    let Under { id, body } = under(&app, path, request, &["claim", "error", "retry", "retry_in_ms"]).await?;
    let fields = body.fields()?;
    let claim = claim_of(id, &fields)?;
    let Some(error) = fields.text("error")? else {
        return Err(Problem::invalid("error", "is missing; say what went wrong, for whoever looks at the job"));
    };
    let (retry, after) = (fields.flag_or("retry", true)?, bounded(&fields, "retry_in_ms", LATER_MAX)?);
    if !retry && after.is_some() {
        return Err(Problem::invalid("retry_in_ms", "does not go with `\"retry\": false`; leave one of them out"));
    }
    settle(
        &app,
        id,
        claim,
        JobOutcome::Failed { error: jobs_body::cut(&error, ERROR_BYTES_MAX).into_owned(), retry, after },
    )
    .await
}

/// Puts a job off
///
/// It runs again after `for_ms`, keeps its place in its object's order, and no attempt is used up. A repeat under the
/// same claim answers 200 with the job as it is then.
#[utoipa::path(
    post,
    path = "/v1/jobs/{id}/snooze",
    operation_id = "snooze_job",
    tag = "jobs",
    params(("id" = String, Path, description = "The job's id")),
    request_body = SnoozeShape,
    responses(
        (status = 200, description = "On disk; the job as it is now", body = JobShape),
        NotFound,
        Conflict,
        BodyProblems,
    )
)]
pub(super) async fn snooze(
    State(app): State<Arc<App>>,
    path: Segment,
    _: NoQuery,
    request: Request,
) -> Result<Response, Problem> {
    let Under { id, body } = under(&app, path, request, &["claim", "for_ms"]).await?;
    let fields = body.fields()?;
    let claim = claim_of(id, &fields)?;
    let Some(wait) = bounded(&fields, "for_ms", LATER_MAX)? else {
        return Err(Problem::invalid("for_ms", "is missing; say after how many milliseconds it is to run again"));
    };
    settle(&app, id, claim, JobOutcome::Snoozed(wait)).await
}

/// Says how far a job is
///
/// Instead of what was said before; shown with the job, also when it is over. `total` and `unit` may be left out.
#[utoipa::path(
    post,
    path = "/v1/jobs/{id}/progress",
    operation_id = "report_job",
    tag = "jobs",
    params(("id" = String, Path, description = "The job's id")),
    request_body = ReportShape,
    responses(
        (status = 200, description = "On disk", body = super::shapes::StatusShape),
        NotFound,
        Conflict,
        BodyProblems,
    )
)]
pub(super) async fn progress(
    State(app): State<Arc<App>>,
    path: Segment,
    _: NoQuery,
    request: Request,
) -> Result<Response, Problem> {
    let Under { id, body } = under(&app, path, request, &["claim", "done", "total", "unit"]).await?;
    let fields = body.fields()?;
    let claim = claim_of(id, &fields)?;
    let Some(done) = fields.number("done")? else {
        return Err(Problem::invalid("done", "is missing; say how much is done, as a whole number"));
    };
    let (total, unit) = (fields.number("total")?, fields.text("unit")?);
    let progress = Progress { done, total, unit, at: ensue::Timestamp::now() };
    progress.check()?;
    match app.bus.report_under_claim(&claim, progress).await {
        Ok(()) => Ok(shapes::json(StatusCode::OK, &shapes::StatusShape { status: "ok" })),
        Err(error) => Err(refused(&app, id, error).await),
    }
}

/// What was kept of what a worker said.
#[derive(Serialize, ToSchema)]
#[schema(as = Said)]
pub(crate) struct SaidShape {
    /// `ok`.
    #[schema(value_type = String)]
    status: &'static str,
    /// How many of the lines are kept; the others are beyond the 10,000 of the job.
    kept: usize,
}

/// Keeps what a worker says about a job
///
/// In the order in which it comes, also lines that are equal. The first 10,000 lines of a job are kept, the last of which says
/// that more were dropped; the answer says how many of these were kept.
#[utoipa::path(
    post,
    path = "/v1/jobs/{id}/log",
    operation_id = "say_job",
    tag = "jobs",
    params(("id" = String, Path, description = "The job's id")),
    request_body = SayShape,
    responses(
        (status = 200, description = "On disk", body = SaidShape),
        NotFound,
        Conflict,
        BodyProblems,
    )
)]
pub(super) async fn log(
    State(app): State<Arc<App>>,
    path: Segment,
    _: NoQuery,
    request: Request,
) -> Result<Response, Problem> {
    let Under { id, body } = under(&app, path, request, &["claim", "lines"]).await?;
    let fields = body.fields()?;
    let claim = claim_of(id, &fields)?;
    let lines = jobs_body::lines(&fields, ensue::Timestamp::now())?;
    match app.bus.say_under_claim(&claim, lines).await {
        Ok(kept) => Ok(shapes::json(StatusCode::OK, &SaidShape { status: "ok", kept })),
        Err(error) => Err(refused(&app, id, error).await),
    }
}
