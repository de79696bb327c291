//! Is the server well, and what does it offer?

use super::App;
use super::measure;
use super::problem::{Kind, Problem};
use super::responses::{NotReady, Unauthorized};
use super::shapes::{self, StatusShape};
use super::tokens;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ensue::WorkFailure;
use std::sync::Arc;
use std::time::Duration;

/// How long the store may take to answer before the server calls itself not ready.
const READY_WITHIN: Duration = Duration::from_secs(2);

/// Is the process up?
#[utoipa::path(
    get,
    path = "/health",
    operation_id = "health",
    tag = "system",
    security(()),
    responses((status = 200, description = "It is", body = StatusShape))
)]
pub(super) async fn health() -> Response {
    shapes::json(StatusCode::OK, &StatusShape { status: "ok" })
}

/// Can the server do its work?
///
/// It is not ready while the store does not answer or has a fault (a full disk, failing checkpoints), and after some seconds in which all publishing, reading, moving of the outbox or
/// writing of checkpoints has failed, and after a panic of the job pool. Errors of the store are only told to requests with a token.
#[utoipa::path(
    get,
    path = "/ready",
    operation_id = "ready",
    tag = "system",
    security(()),
    responses(
        (status = 200, description = "It can", body = StatusShape),
        NotReady,
    )
)]
pub(super) async fn ready(State(app): State<Arc<App>>, headers: HeaderMap) -> Result<Response, Problem> {
    let (reason, error) = match tokio::time::timeout(READY_WITHIN, app.bus.store().ready()).await {
        Ok(Ok(())) => match app.bus.failing() {
            None => return Ok(shapes::json(StatusCode::OK, &StatusShape { status: "ok" })),
            Some(WorkFailure { work, lasting, error }) => {
                (format!("{} has failed for {} s", work.as_str(), lasting.as_secs()), error)
            }
        },
        Ok(Err(error)) => ("the store has a fault".to_string(), Some(error)),
        Err(_) => (format!("the store did not answer within {} s", READY_WITHIN.as_secs()), None),
    };
    // The error may name hosts, databases and users.
    let detail = match error.filter(|_| tokens::admits(&app.options.tokens, &headers)) {
        Some(error) => format!("{reason}: {error}"),
        None => format!("{reason}; the server's log says more"),
    };
    Err(Problem::new(Kind::Unavailable, detail))
}

/// Metrics for Prometheus
///
/// docs/metrics.md describes each metric.
#[utoipa::path(
    get,
    path = "/metrics",
    operation_id = "metrics",
    tag = "system",
    responses(
        (status = 200, description = "In Prometheus' text format", body = String, content_type = "text/plain"),
        Unauthorized,
    )
)]
pub(super) async fn metrics(State(app): State<Arc<App>>) -> Response {
    let (groups, jobs, held) = tokio::join!(
        measure::log(app.bus.store(), READY_WITHIN),
        measure::jobs(app.bus.store(), READY_WITHIN),
        measure::held(app.bus.store(), READY_WITHIN),
    );
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], app.recorder.render() + &groups + &jobs + &held + &measure::process())
        .into_response()
}

/// This description
#[utoipa::path(
    get,
    path = "/openapi.json",
    operation_id = "openapi",
    tag = "system",
    responses((status = 200, description = "OpenAPI 3.1", body = serde_json::Value), Unauthorized)
)]
pub(super) async fn openapi(State(app): State<Arc<App>>) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], app.openapi.clone()).into_response()
}
