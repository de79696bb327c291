//! What became of an event, for every handler?

use super::App;
use super::events::{Named, missing, named, unknown_id};
use super::problem::Problem;
use super::query::{NoQuery, Query};
use super::responses::{BadRequest, NotFound, StoreProblems};
use super::shapes;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use ensue::positions::LogLine;
use ensue::{DeliveryReport, Ensue, Found, GroupName, Seq, Timestamp};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// What became of an event.
#[derive(Serialize, ToSchema)]
#[schema(as = Deliveries)]
pub(crate) struct DeliveriesShape<'a> {
    /// One for each handler, by key. Empty while the event is pending: handlers get to know it when it enters the log.
    pub deliveries: Vec<DeliveryShape<'a>>,
}

/// What became of an event, for one handler.
#[derive(Serialize, ToSchema)]
#[schema(as = Delivery)]
pub(crate) struct DeliveryShape<'a> {
    /// The handler's key.
    handler: &'a str,
    /// That of its job where it became one, for workers elsewhere. `done`; `pending` (waits for its turn, or began a moment ago), `running`, `waiting` (put off by the handler),
    /// `retrying`; `held` (attempts exhausted: waits for somebody), `dead` (given up), `cancelled` (by the handler),
    /// `skipped` (by somebody); `not_matched` (the handler does not want it), `before_start` (older than the handler), `passed`
    /// (the handler is past it and has got another condition since: whether it ran then is not known).
    state: &'static str,
    /// How often it was started, as far as that is known.
    attempts: u32,
    /// When it last ended, where that is recorded: of failures, and of everything with `audit`.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    when: Option<Timestamp>,
    /// When it is tried again.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    retry_at: Option<Timestamp>,
    /// What went wrong last.
    #[schema(required = true)]
    error: Option<&'a str>,
    /// The event of the same object that it waits for.
    #[schema(value_type = Option<u64>, required = true)]
    behind: Option<Seq>,
    /// Has somebody brought it back after its attempts were used up? Then it is to run for that, was held again, or is done.
    redriven: bool,
    /// The job that it became: of a handler whose deliveries workers claim, until that job is forgotten.
    #[schema(required = true)]
    job: Option<String>,
    /// What else is to be said, for people.
    #[schema(required = true)]
    note: Option<&'a str>,
}

impl<'a> From<&'a [DeliveryReport]> for DeliveriesShape<'a> {
    fn from(reports: &'a [DeliveryReport]) -> Self {
        let shape = |report: &'a DeliveryReport| DeliveryShape {
            handler: report.handler.as_str(),
            state: report.verdict.standing.as_str(),
            attempts: report.verdict.attempts,
            when: report.verdict.at,
            retry_at: report.verdict.next_at,
            error: report.verdict.error.as_deref(),
            behind: report.verdict.behind,
            redriven: report.verdict.redriven,
            job: report.job.as_ref().map(|job| job.id.to_string()),
            note: report.note.as_deref(),
        };
        Self { deliveries: reports.iter().map(shape).collect() }
    }
}

/// What a delivery said.
#[derive(Serialize, ToSchema)]
#[schema(as = DeliveryLogs)]
pub(crate) struct LogsShape<'a> {
    /// In order.
    pub logs: Vec<LineShape<'a>>,
    /// The `skip` of the next page; null where nothing more can follow.
    #[schema(required = true)]
    pub next: Option<u64>,
}

/// A line.
#[derive(Serialize, ToSchema)]
#[schema(as = LogLine)]
pub(crate) struct LineShape<'a> {
    /// In which attempt: 1 for the first.
    attempt: u32,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    time: Timestamp,
    /// `debug`, `info` (as stdout of a command), `warn` or `error` (as its stderr).
    level: &'static str,
    /// What it said.
    message: &'a str,
}

impl<'a> LogsShape<'a> {
    pub fn new(lines: &'a [LogLine], skip: u64, limit: usize) -> Self {
        let shape = |line: &'a LogLine| LineShape {
            attempt: line.attempt,
            time: line.at,
            level: line.level.as_str(),
            message: &line.message,
        };
        let next = (lines.len() == limit).then_some(skip + lines.len() as u64);
        Self { logs: lines.iter().map(shape).collect(), next }
    }
}

/// The place of an event that the path names; none while it is pending.
pub(super) async fn place(bus: &Ensue, path: Result<Path<String>, PathRejection>) -> Result<Option<Seq>, Problem> {
    match named(path)? {
        Named::Place(seq) => match bus.event(seq).await? {
            Some(_) => Ok(Some(seq)),
            None => Err(missing(bus, seq).await?),
        },
        Named::Id(id) => match bus.find(id).await? {
            Some(Found::Logged(event)) => Ok(Some(event.seq)),
            Some(Found::Pending(_)) => Ok(None),
            None => Err(unknown_id(id)),
        },
    }
}

/// Tells what became of an event
///
/// For every handler that the store knows. What simply succeeded leaves no record, and is told from how far the handler is.
#[utoipa::path(
    get,
    path = "/v1/events/{place}/deliveries",
    operation_id = "event_deliveries",
    tag = "handlers",
    params(("place" = String, Path, description = "The event's `seq` or `id`")),
    responses(
        (status = 200, description = "What became of it", body = DeliveriesShape),
        BadRequest,
        NotFound,
        StoreProblems,
    )
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    path: Result<Path<String>, PathRejection>,
    _: NoQuery,
) -> Result<Response, Problem> {
    let reports = match place(&app.bus, path).await? {
        Some(seq) => match app.bus.deliveries(seq).await? {
            Some(reports) => reports,
            // Retention came between.
            None => return Err(missing(&app.bus, seq).await?),
        },
        None => Vec::new(),
    };
    Ok(shapes::json(StatusCode::OK, &DeliveriesShape::from(&*reports)))
}

/// Shows what a delivery said
///
/// The lines of attempts that failed, and of all attempts where the handler keeps them (`logs: always`).
#[utoipa::path(
    get,
    path = "/v1/events/{place}/deliveries/{handler}/logs",
    operation_id = "delivery_logs",
    tag = "handlers",
    params(
        ("place" = String, Path, description = "The event's `seq` or `id`"),
        ("handler" = String, Path, description = "The handler's key, percent-encoded"),
        ("skip" = Option<u64>, Query, description = "Without so many lines; 0 unless told"),
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 1000, description = "At most this many; 100 unless told"),
    ),
    responses(
        (status = 200, description = "The lines, in order; none if nothing was kept", body = LogsShape),
        BadRequest,
        NotFound,
        StoreProblems,
    )
)]
pub(super) async fn logs(
    State(app): State<Arc<App>>,
    path: Result<Path<(String, String)>, PathRejection>,
    RawQuery(raw): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::parse(raw.as_deref(), &["skip", "limit"])?;
    let (skip, limit) = (query.seq("skip")?.unwrap_or(0), query.page_limit()?);
    let (event, handler) = match path {
        Ok(Path((event, handler))) => (Ok(Path(event)), handler),
        Err(rejection) => (Err(rejection), String::new()),
    };
    let seq = place(&app.bus, event).await?;
    let handler = GroupName::parse("handler", &handler).map_err(Problem::of_request)?;
    if app.bus.store().group(&handler).await?.is_none() {
        let detail = format!("there is no handler `{handler}`: GET /v1/handlers lists those there are");
        return Err(Problem::not_found(detail));
    }
    let lines = match seq {
        Some(seq) => app.bus.store().lines(&handler, seq, skip, limit).await?,
        None => Vec::new(),
    };
    Ok(shapes::json(StatusCode::OK, &LogsShape::new(&lines, skip, limit)))
}
