//! What happened to one object?

use super::App;
use super::events::path_text;
use super::problem::Problem;
use super::query::Query;
use super::responses::{BadRequest, StoreProblems};
use super::shapes::{self, PageShape};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use ensue::{Direct, ObjectKey};
use std::sync::Arc;

/// Walks back an object's chain
///
/// Newest first. Go on with `before` set to the answer's `next`, until that is null. A page may be
/// empty although more would follow.
#[utoipa::path(
    get,
    path = "/v1/objects/{object}/events",
    operation_id = "object_events",
    tag = "objects",
    params(
        ("object" = String, Path, description = "The object, percent-encoded"),
        ("before" = Option<u64>, Query, description = "Events before this place; the newest first if left out"),
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 1000, description = "At most this many; 100 unless told"),
        ("include" = Option<String>, Query, description = "`direct`: also direct messages, events that are sent `to` one \
            subscription. Default: without them"),
    ),
    responses(
        (status = 200, description = "A page of the chain, newest first", body = PageShape),
        BadRequest,
        StoreProblems,
    )
)]
pub(super) async fn chain(
    State(app): State<Arc<App>>,
    path: Result<Path<String>, PathRejection>,
    RawQuery(raw): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::parse(raw.as_deref(), &["before", "limit", "include"])?;
    let (before, limit) = (query.seq("before")?, query.page_limit()?);
    let object = path_text("object", path)?;
    let object = ObjectKey::parse_filter(&object).map_err(Problem::of_request)?;
    let with_direct = query.direct()? == Direct::Include;
    let page = app.bus.chain(&object, before, limit, with_direct).await?;
    Ok(shapes::json(StatusCode::OK, &PageShape::of_chain(&page)))
}
