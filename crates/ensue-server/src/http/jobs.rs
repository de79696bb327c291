//! How are jobs sent, found, called off and brought back?

use super::App;
use super::events::path_text;
use super::fields_body::FieldsBody;
use super::groups::Segment;
use super::jobs_body::{self, JOB_FIELDS};
use super::jobs_requests::{BulkRequestShape, OneOrManyJobsShape};
use super::jobs_shapes::{BulkShape, JobShape, JobsShape, SentOneOrManyShape, SentShape};
use super::problem::Problem;
use super::query::{NoQuery, Query};
use super::responses::{BadRequest, BodyProblems, Conflict, NotFound, StoreProblems};
use super::shapes;
use axum::extract::{RawQuery, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use ensue::jobs::{Enqueued, JobId, JobQuery, JobState, Steer};
use ensue::{GroupName, ObjectKey, StoreError};
use std::sync::Arc;

/// The most jobs that one call takes.
const JOBS_MAX: usize = 1_000;

/// The job that the path names. Whatever is no id of a job is the id of none.
pub(super) fn job_id(path: Segment) -> Result<JobId, Problem> {
    let text = path_text("id", path)?;
    JobId::parse(&text).ok_or_else(|| {
        let shown: String = text.chars().take(60).collect();
        Problem::not_found(format!("there is no job {shown:?}; use the id that sending it answered, or GET /v1/jobs"))
    })
}

pub(super) fn no_job(id: JobId) -> Problem {
    ensue::jobs::no_job(id).into()
}

/// Sends one job or several
///
/// To a handler, by its key: whoever runs that handler, or claims its jobs, gets it. Several are sent together or not at all.
/// The answer comes when they are on disk. A job for a handler that nobody runs waits, and says so in `held_by`.
#[utoipa::path(
    post,
    path = "/v1/jobs",
    operation_id = "send_jobs",
    tag = "jobs",
    request_body(content = OneOrManyJobsShape, description = "One job, or an array of at most 1,000"),
    responses(
        (status = 201, description = "On disk. For an array: `jobs`, in its order", body = SentOneOrManyShape),
        (status = 200, description = "Nothing new: each had a live job with its `unique_key`", body = SentOneOrManyShape),
        BodyProblems,
    )
)]
pub(super) async fn send(State(app): State<Arc<App>>, _: NoQuery, request: Request) -> Result<Response, Problem> {
    let body = FieldsBody::take(request, &app.options, JOB_FIELDS).await?;
    let (jobs, is_array) = jobs_body::jobs(body.one_or_many("jobs", JOBS_MAX)?)?;
    // In a task of its own: a client that hangs up meanwhile leaves nobody unrung who waits for jobs.
    let bus = app.bus.clone();
    let ended = |_| Err(StoreError::InDoubt("the task that sent the jobs was ended".into()).into());
    let sent = tokio::spawn(async move { bus.emit_all(jobs).await }).await.unwrap_or_else(ended)?;
    let status = if sent.iter().any(|job| job.is_new) { StatusCode::CREATED } else { StatusCode::OK };
    // They are sent: that rules cannot be looked up changes nothing about it.
    let states = app.bus.seen_states(&sent).await.unwrap_or_else(|_| sent.iter().map(|job| job.state).collect());
    let sent = sent.into_iter().zip(states).map(|(job, state)| Enqueued { state, ..job });
    let mut sent: Vec<SentShape> = sent.map(|job| SentShape::from(&job)).collect();
    let shape = match (is_array, sent.len()) {
        (false, 1) => SentOneOrManyShape::One(sent.remove(0)),
        (true, _) | (false, _) => SentOneOrManyShape::Many { jobs: sent },
    };
    Ok(shapes::json(status, &shape))
}

/// Lists jobs
///
/// In the order in which they were sent, those that are over included until they are forgotten. Go on with `after` set to
/// the answer's `next`, until that is null: a page may be empty although more follow.
#[utoipa::path(
    get,
    path = "/v1/jobs",
    operation_id = "list_jobs",
    tag = "jobs",
    params(
        ("state" = Option<String>, Query, description = "In this state, or in one of several with commas between. Jobs that only a rule keeps from running are `parked`"),
        ("handler" = Option<String>, Query, description = "Of this handler and those below it"),
        ("object" = Option<String>, Query, description = "Of this object"),
        ("after" = Option<String>, Query, format = "uuid", description = "After this job"),
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 1000, description = "At most this many; 100 unless told"),
    ),
    responses(
        (status = 200, description = "A page of jobs", body = JobsShape),
        BadRequest,
        StoreProblems,
    )
)]
pub(super) async fn list(State(app): State<Arc<App>>, RawQuery(raw): RawQuery) -> Result<Response, Problem> {
    let query = Query::parse(raw.as_deref(), &["state", "handler", "object", "after", "limit"])?;
    let after = query.text("after").map(|text| {
        JobId::parse(text).ok_or_else(|| Problem::bad_request("after", "is not the id of a job; use `next` of a page"))
    });
    let states = query.text("state").map(jobs_body::states).transpose();
    let wanted = JobQuery {
        states: states.map_err(|reason| Problem::bad_request("state", reason))?.unwrap_or_default(),
        handler: query.group("handler")?,
        object: query.text("object").map(ObjectKey::parse_filter).transpose().map_err(Problem::of_request)?,
        after: after.transpose()?.map(JobId::number),
        ..JobQuery::default()
    };
    let page = app.bus.seen_jobs(&wanted, query.page_limit()?).await?;
    Ok(shapes::json(StatusCode::OK, &JobsShape::from(&page)))
}

/// Shows a job
#[utoipa::path(
    get,
    path = "/v1/jobs/{id}",
    operation_id = "show_job",
    tag = "jobs",
    params(("id" = String, Path, description = "The job's id")),
    responses(
        (status = 200, description = "The job", body = JobShape),
        BadRequest,
        NotFound,
        StoreProblems,
    )
)]
pub(super) async fn show(State(app): State<Arc<App>>, path: Segment, _: NoQuery) -> Result<Response, Problem> {
    let id = job_id(path)?;
    let job = app.bus.seen_job(id).await?.ok_or_else(|| no_job(id))?;
    Ok(shapes::json(StatusCode::OK, &JobShape::from(&job)))
}

/// Calls a job off
///
/// One that waits is cancelled at once. One that runs is told: its worker hears it when it renews its claim, and the job is
/// cancelled with the next that is heard of it, unless it is complete.
#[utoipa::path(
    post,
    path = "/v1/jobs/{id}/cancel",
    operation_id = "cancel_job",
    tag = "jobs",
    params(("id" = String, Path, description = "The job's id")),
    responses(
        (status = 200, description = "The job as it is now", body = JobShape),
        NotFound,
        Conflict,
        BodyProblems,
    )
)]
pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    path: Segment,
    _: NoQuery,
    request: Request,
) -> Result<Response, Problem> {
    steer(&app, path, request, Steer::Cancel).await
}

/// Runs a job now
///
/// One that waits for its time need not wait any longer. One that is dead begins anew with all its attempts, next in its
/// object's order, and is marked as `redriven`.
#[utoipa::path(
    post,
    path = "/v1/jobs/{id}/retry",
    operation_id = "retry_job",
    tag = "jobs",
    params(("id" = String, Path, description = "The job's id")),
    responses(
        (status = 200, description = "The job as it is now", body = JobShape),
        NotFound,
        Conflict,
        BodyProblems,
    )
)]
pub(super) async fn retry(
    State(app): State<Arc<App>>,
    path: Segment,
    _: NoQuery,
    request: Request,
) -> Result<Response, Problem> {
    steer(&app, path, request, Steer::Retry).await
}

/// Lets an object go on without a job
///
/// One that failed and waits for its next attempt is dead then; of one that is dead already the object's other jobs go on.
#[utoipa::path(
    post,
    path = "/v1/jobs/{id}/skip",
    operation_id = "skip_job",
    tag = "jobs",
    params(("id" = String, Path, description = "The job's id")),
    responses(
        (status = 200, description = "The job as it is now", body = JobShape),
        NotFound,
        Conflict,
        BodyProblems,
    )
)]
pub(super) async fn skip(
    State(app): State<Arc<App>>,
    path: Segment,
    _: NoQuery,
    request: Request,
) -> Result<Response, Problem> {
    steer(&app, path, request, Steer::Skip).await
}

async fn steer(app: &App, path: Segment, request: Request, steer: Steer) -> Result<Response, Problem> {
    let id = job_id(path)?;
    FieldsBody::take(request, &app.options, &[]).await?.fields()?;
    let job = app.bus.steer_job(id, steer).await?;
    Ok(shapes::json(StatusCode::OK, &JobShape::from(&app.bus.tell_job(job).await?)))
}

/// Cancels, retries or skips many jobs
///
/// All that the filter finds, in short commits: what is done stays done if the request is cut off, and asking again goes on.
/// With `dry_run` nothing is changed, and the answer says how many it would be done to.
#[utoipa::path(
    post,
    path = "/v1/jobs/bulk",
    operation_id = "bulk_jobs",
    tag = "jobs",
    request_body = BulkRequestShape,
    responses(
        (status = 200, description = "It is done to all that allow it", body = BulkShape),
        BodyProblems,
    )
)]
pub(super) async fn bulk(State(app): State<Arc<App>>, _: NoQuery, request: Request) -> Result<Response, Problem> {
    let body = FieldsBody::take(request, &app.options, &["action", "filter", "dry_run"]).await?;
    let fields = body.fields()?;
    let steer = match fields.text("action")?.as_deref() {
        Some("cancel") => Steer::Cancel,
        Some("retry") => Steer::Retry,
        Some("skip") => Steer::Skip,
        Some(_) | None => return Err(Problem::invalid("action", "must be `cancel`, `retry` or `skip`")),
    };
    let dry_run = fields.flag("dry_run")?;
    let filter = fields.object("filter", &["state", "handler", "object"])?;
    let Some(filter) = filter.filter(|filter| !filter.is_empty()) else {
        let reason = "is missing or empty; name a `state`, a `handler` or an `object`, so that not every job is meant";
        return Err(Problem::invalid("filter", reason));
    };
    let states = filter.text("state")?.map(|text| jobs_body::states(&text)).transpose();
    let wanted = JobQuery {
        states: states.map_err(|reason| Problem::invalid("state", reason))?.unwrap_or_else(|| could_be(steer)),
        handler: filter.text("handler")?.map(|handler| GroupName::parse("handler", &handler)).transpose()?,
        object: filter.text("object")?.map(|object| ObjectKey::parse_filter(&object)).transpose()?,
        ..JobQuery::default()
    };
    let bulk = app.bus.steer_all(wanted, steer, dry_run).await?;
    Ok(shapes::json(StatusCode::OK, &BulkShape::new(bulk, dry_run)))
}

/// The states in which it can be done, where none are named: those that are over in another way are not looked through.
pub(crate) fn could_be(steer: Steer) -> Vec<JobState> {
    use ensue::jobs::lifecycle::{Arrow, after};
    let allows = |state: &JobState| !matches!(after(*state, steer.input()), Arrow::Refused(_));
    JobState::ALL.into_iter().filter(allows).collect()
}
