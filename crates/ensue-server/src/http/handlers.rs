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

/// All handlers.
#[derive(Serialize, ToSchema)]
#[schema(as = Handlers)]
pub(crate) struct HandlersShape<'a> {
    /// By key.
    pub handlers: Vec<HandlerShape<'a>>,
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
/// Those of this server, and those that others run or have run on the same store.
#[utoipa::path(
    get,
    path = "/v1/handlers",
    operation_id = "list_handlers",
    tag = "handlers",
    responses(
        (status = 200, description = "All handlers, by key", body = HandlersShape),
        BadRequest,
        StoreProblems,
    )
)]
pub(super) async fn list(State(app): State<Arc<App>>, RawQuery(raw): RawQuery) -> Result<Response, Problem> {
    Query::parse(raw.as_deref(), &[])?;
    let reports = app.bus.handler_reports().await?;
    Ok(shapes::json(StatusCode::OK, &HandlersShape { handlers: reports.iter().map(HandlerShape::from).collect() }))
}
