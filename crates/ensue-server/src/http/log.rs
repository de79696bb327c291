//! The extent of the log.

use super::App;
use super::problem::Problem;
use super::query::NoQuery;
use super::responses::{BadRequest, StoreProblems};
use super::shapes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use ensue::{Bounds, Seq};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// The extent of the log.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Log)]
pub(crate) struct LogShape {
    /// The oldest event; null if the log is empty.
    #[schema(value_type = Option<u64>, required = true)]
    first: Option<Seq>,
    /// The newest event; null if the log is empty.
    #[schema(value_type = Option<u64>, required = true)]
    last: Option<Seq>,
    /// Size of the events in bytes, estimated from a sample.
    bytes: u64,
}

impl LogShape {
    pub fn new(bounds: Bounds, bytes: u64) -> Self {
        let is_empty = bounds.count() == 0;
        Self { first: (!is_empty).then_some(bounds.first), last: (!is_empty).then_some(bounds.last), bytes }
    }
}

/// Shows the extent of the log
///
/// The first and last event, and the size. `GET /v1/events?order=desc` reads from the last one.
#[utoipa::path(
    get,
    path = "/v1/log",
    operation_id = "show_log",
    tag = "events",
    responses(
        (status = 200, description = "The extent of the log", body = LogShape),
        BadRequest,
        StoreProblems,
    )
)]
pub(super) async fn show(State(app): State<Arc<App>>, _: NoQuery) -> Result<Response, Problem> {
    let store = app.bus.store();
    let (bounds, bytes) = (store.bounds().await?, store.bytes().await?);
    Ok(shapes::json(StatusCode::OK, &LogShape::new(bounds, bytes)))
}
