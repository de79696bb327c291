//! What stands still, and how is it brought back?

use super::App;
use super::deliveries::place;
use super::events::path_text;
use super::fields_body::FieldsBody;
use super::problem::{Kind, Problem};
use super::query::{NoQuery, Query};
use super::responses::{BadRequest, BodyProblems, Conflict, NotFound, StoreProblems};
use super::shapes;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use ensue::jobs::{Job, JobState};
use ensue::positions::{Ask, LaneKey, StuckPlace};
use ensue::{GroupName, HeldLane, ObjectKey, Seq, Stuck, Timestamp};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;

/// A page of what stands still, the oldest first.
#[derive(Serialize, ToSchema)]
#[schema(as = Held)]
pub(crate) struct HeldShape<'a> {
    objects: Vec<LaneShape<'a>>,
    /// The `after` of the next page; null if there is none.
    #[schema(required = true)]
    next: Option<String>,
}

impl<'a> HeldShape<'a> {
    /// At most `limit` of these; what is beyond tells that there is another page.
    pub fn page(lanes: &'a [HeldLane], limit: usize) -> Self {
        let next = (lanes.len() > limit).then(|| lanes[..limit].last()).flatten();
        Self {
            objects: lanes.iter().take(limit).map(LaneShape::from).collect(),
            next: next.map(|last| last.place().to_text()),
        }
    }
}

/// An object, or a single event or job, that stands still for one handler.
#[derive(Serialize, ToSchema)]
#[schema(as = Lane)]
pub(crate) struct LaneShape<'a> {
    /// The object, whose later events or jobs wait too. Null for an event alone: one without an object, or of a handler that asks
    /// for no order.
    #[schema(required = true)]
    object: Option<&'a str>,
    /// The handler's key.
    handler: &'a str,
    /// The event that it stands at; null for a job that was sent straight to the handler.
    #[schema(value_type = Option<u64>, required = true)]
    seq: Option<Seq>,
    /// The job that it stands at: one that was sent to the handler, or the one that the event became for workers elsewhere.
    /// Null where the handler is given the event itself.
    #[schema(required = true)]
    job: Option<String>,
    /// `held` (waits for somebody), `dead` (given up, with all later events of the object) or `waiting` (for its time).
    state: &'static str,
    /// How often the event or job was started.
    attempts: u32,
    /// What went wrong last.
    #[schema(required = true)]
    error: Option<&'a str>,
    /// Since when.
    #[schema(value_type = String, format = DateTime)]
    since: Timestamp,
    /// `retry` or `skip` if somebody has asked for that and it is not done yet.
    #[schema(value_type = Option<String>, required = true)]
    asked: Option<&'static str>,
    /// Has somebody brought it back before? `attempts` counts from then on.
    redriven: bool,
}

impl<'a> From<&'a HeldLane> for LaneShape<'a> {
    fn from(lane: &'a HeldLane) -> Self {
        let row = match lane {
            HeldLane::Events(row) => row,
            HeldLane::Jobs { job, ask } => return Self::of_job(lane, job, *ask),
        };
        Self {
            object: match &row.lane.key {
                LaneKey::Object(object) => Some(object.as_str()),
                LaneKey::Event(_) => None,
            },
            handler: row.group.as_str(),
            seq: Some(row.lane.position),
            job: None,
            state: row.lane.state.as_str(),
            attempts: row.lane.attempts,
            error: row.lane.error.as_deref(),
            since: row.since,
            asked: row.ask.map(Ask::as_str),
            redriven: row.lane.redriven,
        }
    }
}

impl<'a> LaneShape<'a> {
    fn of_job(lane: &HeldLane, job: &'a Job, ask: Option<Ask>) -> Self {
        Self {
            object: job.object.as_ref().map(ObjectKey::as_str),
            handler: job.handler.as_str(),
            seq: job.cause.as_ref().map(|cause| cause.seq),
            job: Some(job.id.to_string()),
            state: match job.state {
                JobState::Dead if job.holds_lane() => "held",
                JobState::Dead => "dead",
                _ => "waiting",
            },
            attempts: job.attempts,
            error: job.errors.last().map(|last| last.error.as_str()),
            since: lane.since(),
            asked: ask.map(Ask::as_str),
            redriven: job.redriven,
        }
    }
}

/// Which handler is asked.
#[derive(Deserialize, ToSchema)]
#[schema(as = WhichHandler)]
#[expect(dead_code, reason = "describes what `fields_body.rs` reads by hand")]
pub(super) struct WhichHandlerShape {
    /// Its key; may be left out where only one handler is held.
    handler: Option<String>,
}

/// Lists what stands still
///
/// Lanes whose event or job has exhausted its attempts, the oldest first. Go on with `after` set to the answer's `next`, until that
/// is null.
#[utoipa::path(
    get,
    path = "/v1/objects",
    operation_id = "held_objects",
    tag = "objects",
    params(
        ("held" = bool, Query, description = "`true`; there is no list of all objects"),
        ("after" = Option<String>, Query, description = "What comes after this place: `next` of a page"),
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 1000, description = "At most this many; 100 unless told"),
    ),
    responses(
        (status = 200, description = "What stands still", body = HeldShape),
        BadRequest,
        StoreProblems,
    )
)]
pub(super) async fn list(State(app): State<Arc<App>>, RawQuery(raw): RawQuery) -> Result<Response, Problem> {
    let query = Query::parse(raw.as_deref(), &["held", "after", "limit"])?;
    if query.text("held") != Some("true") {
        return Err(Problem::bad_request("held", "must be `true`: there is no list of all objects"));
    }
    let limit = query.page_limit()?;
    let after = match query.text("after").map(StuckPlace::parse) {
        None => None,
        Some(Some(place)) => Some(place),
        Some(None) => return Err(Problem::bad_request("after", "is no place in this list; use `next` of a page")),
    };
    let lanes = app.bus.held(after, limit + 1).await?;
    Ok(shapes::json(StatusCode::OK, &HeldShape::page(&lanes, limit)))
}

/// Runs the event or job that an object stands at again
///
/// With all its attempts. A job is there to be claimed at once. Of events, whoever runs the handler does it as soon as it hears of it, or the next one who runs it does.
#[utoipa::path(
    post,
    path = "/v1/objects/{object}/retry",
    operation_id = "retry_object",
    tag = "objects",
    params(("object" = String, Path, description = "The object, percent-encoded")),
    request_body(content = WhichHandlerShape, description = "May be left out"),
    responses(
        (status = 200, description = "It is asked", body = LaneShape),
        NotFound,
        Conflict,
        BodyProblems,
    )
)]
pub(super) async fn retry_object(
    State(app): State<Arc<App>>,
    path: Result<Path<String>, PathRejection>,
    _: NoQuery,
    request: Request,
) -> Result<Response, Problem> {
    ask_object(&app, path, request, Ask::Retry).await
}

/// Skips the event or job that an object stands at
///
/// The object goes on with its next one.
#[utoipa::path(
    post,
    path = "/v1/objects/{object}/skip",
    operation_id = "skip_object",
    tag = "objects",
    params(("object" = String, Path, description = "The object, percent-encoded")),
    request_body(content = WhichHandlerShape, description = "May be left out"),
    responses(
        (status = 200, description = "It is asked", body = LaneShape),
        NotFound,
        Conflict,
        BodyProblems,
    )
)]
pub(super) async fn skip_object(
    State(app): State<Arc<App>>,
    path: Result<Path<String>, PathRejection>,
    _: NoQuery,
    request: Request,
) -> Result<Response, Problem> {
    ask_object(&app, path, request, Ask::Skip).await
}

/// Runs an event that stands still again
///
/// One that its handler stands at, alone or as the first of its object.
#[utoipa::path(
    post,
    path = "/v1/events/{place}/retry",
    operation_id = "retry_event",
    tag = "handlers",
    params(("place" = String, Path, description = "The event's `seq` or `id`")),
    request_body(content = WhichHandlerShape, description = "May be left out"),
    responses(
        (status = 200, description = "It is asked", body = LaneShape),
        NotFound,
        Conflict,
        BodyProblems,
    )
)]
pub(super) async fn retry_event(
    State(app): State<Arc<App>>,
    path: Result<Path<String>, PathRejection>,
    _: NoQuery,
    request: Request,
) -> Result<Response, Problem> {
    ask_event(&app, path, request, Ask::Retry).await
}

/// Skips an event that stands still
///
/// It counts as handled, and is recorded as skipped.
#[utoipa::path(
    post,
    path = "/v1/events/{place}/skip",
    operation_id = "skip_event",
    tag = "handlers",
    params(("place" = String, Path, description = "The event's `seq` or `id`")),
    request_body(content = WhichHandlerShape, description = "May be left out"),
    responses(
        (status = 200, description = "It is asked", body = LaneShape),
        NotFound,
        Conflict,
        BodyProblems,
    )
)]
pub(super) async fn skip_event(
    State(app): State<Arc<App>>,
    path: Result<Path<String>, PathRejection>,
    _: NoQuery,
    request: Request,
) -> Result<Response, Problem> {
    ask_event(&app, path, request, Ask::Skip).await
}

async fn ask_object(
    app: &App,
    path: Result<Path<String>, PathRejection>,
    request: Request,
    ask: Ask,
) -> Result<Response, Problem> {
    let object = path_text("object", path)?;
    let object = ObjectKey::parse_filter(&object).map_err(Problem::of_request)?;
    let handler = which(app, request).await?;
    answer(app, &Stuck::Object(object), handler, ask).await
}

async fn ask_event(
    app: &App,
    path: Result<Path<String>, PathRejection>,
    request: Request,
    ask: Ask,
) -> Result<Response, Problem> {
    let seq = place(&app.bus, path).await?;
    let handler = which(app, request).await?;
    let Some(seq) = seq else {
        return Err(Problem::new(Kind::Conflict, "the event is delayed: no handler can be blocked at it yet"));
    };
    answer(app, &Stuck::Event(seq), handler, ask).await
}

async fn which(app: &App, request: Request) -> Result<Option<GroupName>, Problem> {
    let body = FieldsBody::take(request, &app.options, &["handler"]).await?;
    let handler = body.fields()?.text("handler")?;
    Ok(handler.map(|handler| GroupName::parse("handler", &handler)).transpose()?)
}

async fn answer(app: &App, stuck: &Stuck, handler: Option<GroupName>, ask: Ask) -> Result<Response, Problem> {
    let lane = app.bus.ask_stuck(stuck, handler.as_ref(), ask).await.map_err(|error| match error {
        ensue::Error::NotFound(what) => Problem::not_found(format!("{what} (GET /v1/objects?held=true)")),
        other @ (ensue::Error::Invalid(_) | ensue::Error::Store(_) | ensue::Error::Address(_)) => other.into(),
    })?;
    Ok(shapes::json(StatusCode::OK, &LaneShape::from(&lane)))
}
