//! Which handlers are there, and how do they stand?

use super::App;
use super::problem::Problem;
use super::query::Query;
use super::responses::{BadRequest, StoreProblems};
use super::rules::RuleShape;
use super::shapes;
use crate::config::units::Span;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use ensue::{HandlerInfo, HandlerReport, Json, Mode, RetryShape as Delays, Seq, Start};
use jiff::SignedDuration;
use serde::Serialize;
use std::sync::Arc;
use std::time::Duration;
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
    /// Is it bound in this server? Of others only the store's side is known, and what is `defined`.
    here: bool,
    /// `sync` or `async`.
    #[schema(value_type = Option<String>, required = true)]
    mode: Option<&'static str>,
    /// Are its deliveries claimed as jobs by workers elsewhere?
    #[schema(required = true)]
    pull: Option<bool>,
    /// Does the store keep it (`PUT /v1/handlers/{key}`)? Else a config file or an application binds it.
    #[schema(required = true)]
    defined: Option<bool>,
    /// Where it begins when it is new: `now`, `beginning` or a `seq`.
    #[schema(value_type = Option<serde_json::Value>, required = true)]
    start: Option<StartShape>,
    /// One after another for each object?
    #[schema(required = true)]
    ordered: Option<bool>,
    /// How many at once in this server.
    #[schema(required = true)]
    concurrency: Option<usize>,
    /// How often an event is attempted.
    #[schema(required = true)]
    attempts_max: Option<u32>,
    /// How often, and after how long, as it can be written.
    #[schema(required = true)]
    retry: Option<RetryShape>,
    /// How long an attempt may take; of one that is pulled, how long a claim may be held in all.
    #[schema(required = true)]
    timeout: Option<String>,
    /// What then: `hold`, `skip` or `dead_letter_object`.
    #[schema(value_type = Option<String>, required = true)]
    on_exhausted: Option<&'static str>,
    /// Everything up to here is done, or stands in a lane of its own.
    #[schema(value_type = Option<u64>, required = true)]
    cursor: Option<Seq>,
    /// How many events of the log come after that; each lane that was set aside counts as one.
    lag: u64,
    /// How many lanes wait for somebody; counted up to 1,000.
    held: u64,
    /// The pauses and blocks on it and on its parents: while there are any, nothing of it starts.
    rules: Vec<RuleShape<'a>>,
    /// Nobody runs it: no process has it right now, and this server does not know it.
    orphaned: bool,
}

/// Where a handler begins when it is new.
#[derive(Serialize)]
#[serde(untagged)]
enum StartShape {
    Word(&'static str),
    After(Seq),
}

impl From<Start> for StartShape {
    fn from(start: Start) -> Self {
        match start {
            Start::Now => Self::Word("now"),
            Start::Beginning => Self::Word("beginning"),
            Start::After(seq) => Self::After(seq),
        }
    }
}

/// How often a handler is attempted, and after how long: up to `first`, `max` and what is between, or `delays` exactly.
#[derive(Serialize, ToSchema)]
#[schema(as = Retry)]
struct RetryShape {
    attempts_max: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    first: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delays: Option<Vec<String>>,
}

impl From<&HandlerInfo> for RetryShape {
    fn from(info: &HandlerInfo) -> Self {
        let (first, max, delays) = match &info.delays {
            Delays::Doubling { first, max } => (Some(span(*first)), Some(span(*max)), None),
            Delays::Exactly(delays) => (None, None, Some(delays.iter().copied().map(span).collect())),
            Delays::ByFunction => (None, None, None),
        };
        Self { attempts_max: info.attempts_max, first, max, delays }
    }
}

/// A length of time as it can be written.
fn span(time: Duration) -> String {
    match time.is_zero() {
        true => "0s".to_owned(),
        false => Span(SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX)).to_string(),
    }
}

impl<'a> From<&'a HandlerReport> for HandlerShape<'a> {
    fn from(report: &'a HandlerReport) -> Self {
        let here = report.here.as_ref();
        let known = here.or(report.defined.as_ref());
        Self {
            key: report.key.as_str(),
            on: report.on.as_ref().map(|on| on.as_str()),
            r#where: report.condition.as_deref(),
            params: &report.params,
            here: here.is_some(),
            mode: known.map(|known| match known.mode {
                Mode::Sync => "sync",
                Mode::Async => "async",
            }),
            pull: known.map(|known| known.pull),
            defined: known.map(|known| known.defined),
            start: known.map(|known| known.start.into()),
            ordered: known.map(|known| known.ordered),
            concurrency: known.map(|known| known.concurrency),
            attempts_max: known.map(|known| known.attempts_max),
            retry: known.map(RetryShape::from),
            timeout: known.and_then(|known| known.timeout).map(span),
            on_exhausted: known.map(|known| known.on_exhausted.as_str()),
            cursor: report.group.as_ref().map(|group| group.cursor()),
            lag: report.lag,
            held: report.held,
            rules: report.rules.iter().map(RuleShape::from).collect(),
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
