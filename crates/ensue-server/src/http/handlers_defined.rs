//! How does a handler come, change and go while everything runs?
//!
//! Only those that workers elsewhere serve: what runs in a server is said by its config file, or is its application's code.

use super::App;
use super::events::path_text;
use super::fields_body::{BodyFields, FieldsBody};
use super::groups::Segment;
use super::handlers::HandlerShape;
use super::problem::Problem;
use super::query::Query;
use super::responses::{BadRequest, BodyProblems, Conflict, DiskFull, NotFound, StoreProblems};
use super::shapes;
use crate::config::handlers::RetryFields;
use crate::config::handlers_check::{condition_of, retry_of};
use axum::extract::{RawQuery, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use ensue::positions::Start;
use ensue::{GroupName, HandlerLimits, OnExhausted, PullHandler, Retry};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use utoipa::ToSchema;

/// What can be said about a handler.
const FIELDS: &[&str] =
    &["on", "where", "params", "ordered", "concurrency", "retry", "timeout", "on_exhausted", "start"];

/// A handler whose deliveries are claimed as jobs. Other fields are refused.
#[derive(Deserialize, ToSchema)]
#[schema(as = DefineHandler)]
#[expect(dead_code, reason = "describes what `fields_body.rs` reads by hand")]
pub(super) struct DefineShape {
    /// The dotted key that it is bound to, with everything below it; may be left out beside a `where`.
    on: Option<String>,
    /// Only events for which this condition holds.
    r#where: Option<String>,
    /// What the condition reads as `s.params`.
    #[schema(value_type = Option<serde_json::Value>)]
    params: Option<serde_json::Value>,
    /// Are jobs of one object run in order, one after another? `true` unless told.
    ordered: Option<bool>,
    /// How many deliveries become jobs at once in one server; 8 unless told. How many jobs run is up to the workers.
    #[schema(minimum = 1, maximum = 10000)]
    concurrency: Option<u64>,
    /// `{"attempts_max": 5, "first": "1s", "max": "5m"}`, or `{"delays": ["1m", "5m"]}`.
    #[schema(value_type = Option<serde_json::Value>)]
    retry: Option<serde_json::Value>,
    /// How long a claim may be held in all, such as `10m`, whatever leases the worker asks for; no limit unless told.
    timeout: Option<String>,
    /// `hold` (the default), `skip` or `dead_letter_object`.
    on_exhausted: Option<String>,
    /// Where it begins if it is new: `now` (the default), `beginning`, or the `seq` of the last event that it is not to get.
    #[schema(value_type = Option<serde_json::Value>)]
    start: Option<serde_json::Value>,
}

/// A handler that was deleted.
#[derive(Serialize, ToSchema)]
#[schema(as = DeletedHandler)]
pub(crate) struct DeletedHandlerShape<'a> {
    pub key: &'a str,
    /// `deleted`.
    #[schema(value_type = String)]
    pub state: &'static str,
}

/// The key that the path names.
fn key_of(path: Segment) -> Result<GroupName, Problem> {
    let text = path_text("key", path)?;
    GroupName::parse("key", &text).map_err(|invalid| Problem::bad_request(invalid.field, invalid.reason))
}

/// What a body says about a handler.
fn handler_of(fields: &BodyFields<'_>) -> Result<PullHandler, Problem> {
    let condition = fields.text("where")?;
    let condition = condition_of(condition.as_deref(), fields.json("params")?)?;
    let unless_told = HandlerLimits::default();
    let concurrency = fields.number("concurrency")?.map(|count| usize::try_from(count).unwrap_or(usize::MAX));
    let timeout = fields.span("timeout")?.map(|timeout| Duration::try_from(timeout).unwrap_or(Duration::MAX));
    let limits = HandlerLimits {
        concurrency: concurrency.unwrap_or(unless_told.concurrency),
        timeout,
        retry: retry(fields)?.unwrap_or_default(),
        on_exhausted: on_exhausted(fields)?.unwrap_or_default(),
        ..unless_told
    };
    Ok(PullHandler {
        on: fields.text("on")?,
        condition,
        start: fields.place("start")?.unwrap_or(Start::Now),
        ordered: fields.flag_or("ordered", true)?,
        limits,
    })
}

/// What a JSON text says about a handler; the error is for people.
pub(crate) fn handler_of_text(text: &str) -> Result<PullHandler, String> {
    let body = FieldsBody::of_text(text, FIELDS);
    let handler = body.fields().and_then(|fields| handler_of(&fields));
    handler.map_err(|problem| problem.detail().to_owned())
}

fn retry(fields: &BodyFields<'_>) -> Result<Option<Retry>, Problem> {
    let Some(given) = fields.as_it_stands("retry").filter(|given| *given != "null") else { return Ok(None) };
    let given: RetryFields = serde_json::from_str(given).map_err(|error| {
        let reason = error.to_string();
        let reason = reason.rsplit_once(" at line ").map_or(reason.as_str(), |(reason, _)| reason);
        Problem::invalid("retry", format!("cannot be: {reason}"))
    })?;
    retry_of(&given).map(Some).map_err(|reason| Problem::invalid("retry", reason))
}

fn on_exhausted(fields: &BodyFields<'_>) -> Result<Option<OnExhausted>, Problem> {
    let Some(word) = fields.text("on_exhausted")? else { return Ok(None) };
    let wrong = || Problem::invalid("on_exhausted", "is not known here: write hold, skip or dead_letter_object");
    OnExhausted::parse(&word).map(Some).ok_or_else(wrong)
}

async fn shown(app: &App, key: &GroupName, status: StatusCode) -> Result<Response, Problem> {
    let report = app.bus.handler_report(key).await?;
    let missing = || Problem::not_found(format!("there is no handler `{key}`: GET /v1/handlers lists those there are"));
    Ok(shapes::json(status, &HandlerShape::from(&report.ok_or_else(missing)?)))
}

/// Shows a handler
///
/// How it is run, as far as this server knows, and how far it has come.
#[utoipa::path(
    get,
    path = "/v1/handlers/{key}",
    operation_id = "show_handler",
    tag = "handlers",
    params(("key" = String, Path, description = "Its key")),
    responses(
        (status = 200, description = "The handler", body = HandlerShape),
        BadRequest,
        NotFound,
        StoreProblems,
    )
)]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    path: Segment,
    RawQuery(raw): RawQuery,
) -> Result<Response, Problem> {
    Query::parse(raw.as_deref(), &[])?;
    shown(&app, &key_of(path)?, StatusCode::OK).await
}

/// Defines a handler for workers elsewhere
///
/// Each event that it wants becomes a job under its key, in order for each object, and workers in any language claim it
/// (`POST /v1/jobs/claim`). The store keeps it: it survives restarts, and every server on the store serves it, within a second.
/// Defined again, it has the new settings and goes on where it was; `start` counts when it is new. A conflict if a config file or an
/// application binds the key, or a group of that name is read.
#[utoipa::path(
    put,
    path = "/v1/handlers/{key}",
    operation_id = "define_handler",
    tag = "handlers",
    params(("key" = String, Path, description = "Its key, in dotted segments; also the name of its group")),
    request_body = DefineShape,
    responses(
        (status = 201, description = "It is new", body = HandlerShape),
        (status = 200, description = "It was there, and is as told now", body = HandlerShape),
        Conflict,
        BodyProblems,
    )
)]
pub(super) async fn define(
    State(app): State<Arc<App>>,
    path: Segment,
    RawQuery(raw): RawQuery,
    request: Request,
) -> Result<Response, Problem> {
    Query::parse(raw.as_deref(), &[])?;
    let key = key_of(path)?;
    let body = FieldsBody::take(request, &app.options, FIELDS).await?;
    let handler = handler_of(&body.fields()?)?;
    let is_new = app.bus.define_pull(&key, &handler).await?;
    shown(&app, &key, if is_new { StatusCode::CREATED } else { StatusCode::OK }).await
}

/// Deletes a handler that was defined
///
/// With its group and its place in the log. Jobs that were made for it stay, and can be claimed. A conflict if a config file or
/// an application binds it.
#[utoipa::path(
    delete,
    path = "/v1/handlers/{key}",
    operation_id = "delete_handler",
    tag = "handlers",
    params(("key" = String, Path, description = "Its key")),
    responses(
        (status = 200, description = "It is gone", body = DeletedHandlerShape),
        BadRequest,
        NotFound,
        Conflict,
        DiskFull,
        StoreProblems,
    )
)]
pub(super) async fn undefine(
    State(app): State<Arc<App>>,
    path: Segment,
    RawQuery(raw): RawQuery,
) -> Result<Response, Problem> {
    Query::parse(raw.as_deref(), &[])?;
    let key = key_of(path)?;
    app.bus.undefine_pull(&key).await?;
    Ok(shapes::json(StatusCode::OK, &DeletedHandlerShape { key: key.as_str(), state: "deleted" }))
}
