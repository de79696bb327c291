//! Which handlers are there, and how do they stand?

use super::App;
use super::problem::Problem;
use super::query::Query;
use super::responses::{BadRequest, StoreProblems};
use super::shapes;
use crate::config::units::Span;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use ensue::{HandlerReport, Json, Mode, Seq};
use jiff::SignedDuration;
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// A page of handlers.
#[derive(Serialize, ToSchema)]
#[schema(as = Handlers)]
pub(crate) struct HandlersShape<'a> {
    /// By key.
    handlers: Vec<HandlerShape<'a>>,
    /// The `after` of the next page; null if there is none.
    #[schema(required = true)]
    next: Option<&'a str>,
}

impl<'a> HandlersShape<'a> {
    /// At most `limit` of these; what is beyond tells that there is another page.
    pub fn page(reports: &'a [HandlerReport], limit: usize) -> Self {
        let next = (reports.len() > limit).then(|| reports[..limit].last()).flatten();
        Self {
            handlers: reports.iter().take(limit).map(HandlerShape::from).collect(),
            next: next.map(|last| last.key.as_str()),
        }
    }
}

/// A handler.
#[derive(Serialize, ToSchema)]
#[schema(as = Handler)]
pub(crate) struct HandlerShape<'a> {
    /// Its key: what it is bound to and its name. Also the name of its group.
    key: &'a str,
    /// What it is bound to; null for every topic.
    #[schema(required = true)]
    on: Option<&'a str>,
    /// Its condition.
    #[schema(required = true)]
    r#where: Option<&'a str>,
    /// What its condition reads as `s.params`.
    #[schema(value_type = serde_json::Value)]
    params: &'a Json,
    /// Is it bound in this server? Of others only the store's side is known.
    here: bool,
    /// `sync` or `async`.
    #[schema(value_type = Option<String>, required = true)]
    mode: Option<&'static str>,
    /// One after another for each object?
    #[schema(required = true)]
    ordered: Option<bool>,
    /// How many at once in this server.
    #[schema(required = true)]
    concurrency: Option<usize>,
    /// How often an event is attempted.
    #[schema(required = true)]
    attempts_max: Option<u32>,
    /// How long an attempt may take.
    #[schema(required = true)]
    timeout: Option<String>,
    /// What then: `hold`, `skip` or `dead_letter_object`.
    #[schema(value_type = Option<String>, required = true)]
    on_exhausted: Option<&'static str>,
    /// Everything up to here is done, or stands in a lane of its own.
    #[schema(value_type = Option<u64>, required = true)]
    cursor: Option<Seq>,
    /// How many events of the log come after that.
    lag: u64,
    /// How many lanes wait for somebody; counted up to 1,000.
    held: u64,
    /// Nobody runs it: no process has it right now, and this server does not know it.
    orphaned: bool,
}

impl<'a> From<&'a HandlerReport> for HandlerShape<'a> {
    fn from(report: &'a HandlerReport) -> Self {
        let here = report.here.as_ref();
        let span = |time| SignedDuration::try_from(time).map(|time| Span(time).to_string()).ok();
        Self {
            key: report.key.as_str(),
            on: report.on.as_ref().map(|on| on.as_str()),
            r#where: report.condition.as_deref(),
            params: &report.params,
            here: here.is_some(),
            mode: here.map(|here| match here.mode {
                Mode::Sync => "sync",
                Mode::Async => "async",
            }),
            ordered: here.map(|here| here.ordered),
            concurrency: here.map(|here| here.concurrency),
            attempts_max: here.map(|here| here.attempts_max),
            timeout: here.and_then(|here| here.timeout).and_then(span),
            on_exhausted: here.map(|here| here.on_exhausted.as_str()),
            cursor: report.group.as_ref().map(|group| group.cursor()),
            lag: report.lag,
            held: report.held,
            orphaned: here.is_none() && !report.is_served,
        }
    }
}

/// Lists the handlers
///
/// Those of this server, and those that others run or have run on the same store. Go on with `after` set to the answer's
/// `next`, until that is null.
#[utoipa::path(
    get,
    path = "/v1/handlers",
    operation_id = "list_handlers",
    tag = "handlers",
    params(
        ("after" = Option<String>, Query, description = "Handlers after the one of this key"),
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 1000, description = "At most this many; 100 unless told"),
    ),
    responses(
        (status = 200, description = "A page of handlers, by key", body = HandlersShape),
        BadRequest,
        StoreProblems,
    )
)]
pub(super) async fn list(State(app): State<Arc<App>>, RawQuery(raw): RawQuery) -> Result<Response, Problem> {
    let query = Query::parse(raw.as_deref(), &["after", "limit"])?;
    let limit = query.page_limit()?;
    let reports = app.bus.handler_reports_after(query.group("after")?.as_ref(), limit + 1).await?;
    Ok(shapes::json(StatusCode::OK, &HandlersShape::page(&reports, limit)))
}
