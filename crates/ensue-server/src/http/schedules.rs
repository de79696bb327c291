//! How does something happen at a time, again and again?

use super::App;
use super::events::path_text;
use super::fields_body::{BodyFields, FieldsBody};
use super::groups::Segment;
use super::jobs_body;
use super::problem::Problem;
use super::query::{NoQuery, Query};
use super::responses::{BadRequest, BodyProblems, Conflict, DiskFull, NotFound, StoreProblems};
use super::schedules_shapes::{
    DeletedScheduleShape, PutScheduleShape, RunShape, RunsShape, ScheduleShape, SchedulesShape,
};
use super::shapes;
use crate::config::schedules::{FIELDS, Fields, schedule_of};
use crate::config::units::Span;
use axum::extract::{RawQuery, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use ensue::GroupName;
use ensue::schedules::Schedule;
use std::sync::Arc;

/// The schedule that the path names.
fn name_of(path: Segment) -> Result<GroupName, Problem> {
    GroupName::parse("name", &path_text("name", path)?).map_err(Problem::of_request)
}

/// What a body says about a schedule.
fn schedule_in(name: GroupName, body: &BodyFields<'_>) -> Result<Schedule, Problem> {
    let attempts_max = body.number("attempts_max")?.map(jobs_body::attempts).transpose()?;
    let fields = Fields {
        cron: body.text("cron")?,
        every: body.span("every")?.map(Span),
        timezone: body.text("timezone")?,
        misfire: body.text("misfire")?,
        overlap: body.text("overlap")?,
        jitter: body.span("jitter")?.map(Span),
        topic: body.text("topic")?,
        handler: body.text("handler")?,
        payload: None,
        priority: body.number("priority")?,
        attempts_max,
    };
    Ok(schedule_of(name, &fields, body.json("payload")?)?)
}

/// What a JSON text says about a schedule; the error is for people.
pub(crate) fn schedule_of_text(name: GroupName, text: &str) -> Result<Schedule, String> {
    let body = FieldsBody::of_text(text, FIELDS);
    let schedule = body.fields().and_then(|fields| schedule_in(name, &fields));
    schedule.map_err(|problem| problem.detail().to_owned())
}

/// Lists the schedules
///
/// By name, with their next five times. Those of a config file have `managed_by`.
#[utoipa::path(
    get,
    path = "/v1/schedules",
    operation_id = "list_schedules",
    tag = "schedules",
    params(
        ("after" = Option<String>, Query, description = "Only those after this name: the `next` of the page before"),
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 1000, description = "At most so many; 100 unless told"),
    ),
    responses(
        (status = 200, description = "A page of schedules", body = SchedulesShape),
        BadRequest,
        StoreProblems,
    )
)]
pub(super) async fn list(State(app): State<Arc<App>>, RawQuery(raw): RawQuery) -> Result<Response, Problem> {
    let query = Query::parse(raw.as_deref(), &["after", "limit"])?;
    let (limit, after) = (query.page_limit()?, query.group("after")?);
    let schedules = app.bus.schedules(after.as_ref(), limit + 1).await?;
    Ok(shapes::json(StatusCode::OK, &SchedulesShape::page(&schedules, limit)))
}

/// Shows a schedule
///
/// With what its times mean, in plain English, and its next five.
#[utoipa::path(
    get,
    path = "/v1/schedules/{name}",
    operation_id = "show_schedule",
    tag = "schedules",
    params(("name" = String, Path, description = "Its name")),
    responses(
        (status = 200, description = "The schedule", body = ScheduleShape),
        BadRequest,
        NotFound,
        StoreProblems,
    )
)]
pub(super) async fn show(State(app): State<Arc<App>>, path: Segment, _: NoQuery) -> Result<Response, Problem> {
    let name = name_of(path)?;
    let missing =
        || Problem::not_found(format!("there is no schedule `{name}`: GET /v1/schedules lists those there are"));
    let seen = app.bus.find_schedule(&name).await?.ok_or_else(missing)?;
    Ok(shapes::json(StatusCode::OK, &ScheduleShape::from(&seen)))
}

/// Makes a schedule, or changes it
///
/// At its times an event is published on the object `schedule:NAME`, or a job is sent to a handler, in one commit with the note that it
/// was: each occurrence fires once, however many servers there are. Changed while its times stay, it goes on where it was; with other times it
/// begins now. A conflict if a config file declares it.
#[utoipa::path(
    put,
    path = "/v1/schedules/{name}",
    operation_id = "put_schedule",
    tag = "schedules",
    params(("name" = String, Path, description = "Its name, in dotted segments")),
    request_body = PutScheduleShape,
    responses(
        (status = 201, description = "It is new", body = ScheduleShape),
        (status = 200, description = "It was there, and is as told now", body = ScheduleShape),
        Conflict,
        BodyProblems,
    )
)]
pub(super) async fn put(
    State(app): State<Arc<App>>,
    path: Segment,
    _: NoQuery,
    request: Request,
) -> Result<Response, Problem> {
    let name = name_of(path)?;
    let body = FieldsBody::take(request, &app.options, FIELDS).await?;
    let schedule = schedule_in(name, &body.fields()?)?;
    let (seen, is_new) = app.bus.schedule(schedule).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(shapes::json(status, &ScheduleShape::from(&seen)))
}

/// Deletes a schedule
///
/// With what is known of its runs. Jobs that were sent stay. A conflict if a server that lives declares it.
#[utoipa::path(
    delete,
    path = "/v1/schedules/{name}",
    operation_id = "delete_schedule",
    tag = "schedules",
    params(("name" = String, Path, description = "Its name")),
    responses(
        (status = 200, description = "It is gone", body = DeletedScheduleShape),
        BadRequest,
        NotFound,
        Conflict,
        DiskFull,
        StoreProblems,
    )
)]
pub(super) async fn delete(State(app): State<Arc<App>>, path: Segment, _: NoQuery) -> Result<Response, Problem> {
    let name = name_of(path)?;
    app.bus.delete_schedule(&name).await?;
    Ok(shapes::json(StatusCode::OK, &DeletedScheduleShape { name: name.as_str(), state: "deleted" }))
}

/// Fires a schedule now
///
/// Whatever its times say; they stay as they are. Its overlap policy decides: look at the `outcome`. A conflict while it is
/// paused or blocked.
#[utoipa::path(
    post,
    path = "/v1/schedules/{name}/run",
    operation_id = "run_schedule",
    tag = "schedules",
    params(("name" = String, Path, description = "Its name")),
    responses(
        (status = 200, description = "What came of it", body = RunShape),
        BadRequest,
        NotFound,
        Conflict,
        DiskFull,
        StoreProblems,
    )
)]
pub(super) async fn run(State(app): State<Arc<App>>, path: Segment, _: NoQuery) -> Result<Response, Problem> {
    let run = app.bus.run_schedule(&name_of(path)?).await?;
    Ok(shapes::json(StatusCode::OK, &RunShape::from(&run)))
}

/// Lists what became of a schedule's occurrences
///
/// The newest first; the last 100 are kept.
#[utoipa::path(
    get,
    path = "/v1/schedules/{name}/runs",
    operation_id = "list_schedule_runs",
    tag = "schedules",
    params(
        ("name" = String, Path, description = "Its name"),
        ("before" = Option<u64>, Query, description = "Only those before this number: the `next` of the page before"),
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 1000, description = "At most so many; 100 unless told"),
    ),
    responses(
        (status = 200, description = "A page of runs", body = RunsShape),
        BadRequest,
        NotFound,
        StoreProblems,
    )
)]
pub(super) async fn runs(
    State(app): State<Arc<App>>,
    path: Segment,
    RawQuery(raw): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::parse(raw.as_deref(), &["before", "limit"])?;
    let (before, limit) = (query.seq("before")?, query.page_limit()?);
    let runs = app.bus.schedule_runs(&name_of(path)?, before, limit + 1).await?;
    Ok(shapes::json(StatusCode::OK, &RunsShape::page(&runs, limit)))
}
