//! How are events read, found and cancelled?

use super::App;
use super::cloudevents_out::{self, Form};
use super::problem::{Kind, Problem};
use super::query::{NoQuery, Query, SEQ_MAX};
use super::responses::{AlreadyLogged, BadRequest, Invalid, NotFound, StoreProblems};
use super::shapes::{self, CancelledShape, CloudEventShape, EventShape, EventState, PageShape};
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use ensue::{Bounds, Cancelled, Direct, Ensue, EventId, Found, Seq};
use std::sync::Arc;
use uuid::Uuid;

/// Reads a page of the log
///
/// Go on with `after` set to the answer's `next`. A page may be empty although more would follow, because a read looks
/// at a bounded part of the log. Retention forgets the oldest events: `first` says where the log begins now, so that a
/// `first` beyond the place after `after` tells how many can no longer be read. An `after` beyond the newest event is
/// refused with 422 (a stream, which goes on by itself, tells it as `ensue.gap`).
///
/// With `order=desc` the page has the newest events first, and `next` is the `before` of the next page. It is null after
/// the oldest event in range. `after` and `from_time` then limit how far back the pages go.
///
/// With a condition in `where`, the page has the events for which it holds. Those on which it fails, as a cast of a text
/// that is no number does, are left out and counted in `condition_errors`.
#[utoipa::path(
    get,
    path = "/v1/events",
    operation_id = "read_events",
    tag = "events",
    params(
        ("after" = Option<u64>, Query, description = "Events after this place; 0, the default, for all"),
        ("order" = Option<String>, Query, description = "`asc` (the default), or `desc` for the newest first"),
        ("before" = Option<u64>, Query, description = "Only with `order=desc`: events before this place; from the newest if left out"),
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 1000, description = "At most this many; 100 unless told"),
        ("topic" = Option<String>, Query, description = "This topic and those below it: `order` matches `order.paid`, never `orders`"),
        ("object" = Option<String>, Query, description = "Events of this object alone"),
        ("where" = Option<String>, Query, max_length = 16384, description = "Only events for which this condition holds: an SQL expression over `e`, the event (`topic, object, payload, metadata, seq, id, occurred_at, recorded_at`), and `s.params`, such as `(e.payload->>'total')::numeric > 100`. `s.id` is the nil UUID and `s.group_id` is empty here"),
        ("params" = Option<String>, Query, description = "JSON that the condition reads as `s.params`; `{}` unless told. Only with `where`"),
        ("from_time" = Option<String>, Query, format = DateTime, description = "Events recorded at or after this time"),
        ("include" = Option<String>, Query, description = "`direct`: also direct messages, events that are sent `to` one \
            subscription. Default: without them"),
        ("state" = Option<String>, Query, description = "`logged` (the default), or `pending` for the delayed events in the order in which they will enter the log"),
    ),
    responses(
        (status = 200, description = "A page, in `seq` order or, with `order=desc`, in reverse. With `Accept: application/cloudevents-batch+json` an array of \
            CloudEvents; the headers `ensue-next` and `ensue-first` hold `next` and `first`", content(
            (PageShape = "application/json"),
            (Vec<CloudEventShape> = "application/cloudevents-batch+json")
        )),
        BadRequest,
        Invalid,
        StoreProblems,
    )
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let form = Form::accepted(&headers);
    let known =
        ["after", "before", "order", "limit", "topic", "object", "where", "params", "from_time", "state", "include"];
    let query = Query::parse(raw.as_deref(), &known)?;
    let limit = query.page_limit()?;
    match query.text("state") {
        None | Some("logged") => {}
        Some("pending") => return list_pending(&app.bus, &query, limit, form).await,
        Some(_) => return Err(Problem::bad_request("state", "must be `logged` or `pending`")),
    }
    let wanted = query.wanted().await?;
    let before = query.seq("before")?;
    let after = start(&app.bus, &query).await?.unwrap_or(0);
    match query.text("order") {
        None | Some("asc") => {}
        Some("desc") => {
            let newest = app.bus.read_newest(before, after, limit, &wanted).await?;
            return Ok(match form {
                Form::Json => shapes::json(StatusCode::OK, &PageShape::from(&newest)),
                Form::One | Form::Batch => cloudevents_out::newest(&newest),
            });
        }
        Some(_) => return Err(Problem::bad_request("order", "must be `asc` or `desc`")),
    }
    if before.is_some() {
        return Err(Problem::bad_request("before", "needs `order=desc`; use `after` to read in ascending order"));
    }
    let selection = app.bus.read(after, limit, &wanted).await?;
    let page = &selection.page;
    if page.next == after
        && let Some(reason) = beyond_end(after, app.bus.store().bounds().await?)
    {
        return Err(Problem::invalid("after", reason));
    }
    Ok(match form {
        Form::Json => shapes::json(StatusCode::OK, &PageShape::from(&selection)),
        Form::One | Form::Batch => cloudevents_out::page(&selection),
    })
}

/// Why a place cannot be read from, if it is beyond the end: no reader was ever given it by this log, or it was lost in a
/// failover. Answered with an empty page, such a reader would wait for it and miss everything that comes before.
pub(crate) fn beyond_end(after: Seq, bounds: Bounds) -> Option<String> {
    (after > bounds.last).then(|| match bounds.last {
        0 => format!("is {after}, and the log is empty; read from 0, and check that this is the log that you mean"),
        last => format!(
            "is {after}, beyond the end of the log: the newest event is {last}; check that this is the log that you \
             mean. If it is and it once had more, a failover lost some: go on after an event that you find in it"
        ),
    })
}

async fn list_pending(bus: &Ensue, query: &Query, limit: usize, form: Form) -> Result<Response, Problem> {
    for name in ["after", "before", "order", "topic", "object", "where", "params", "from_time"] {
        if query.text(name).is_some() {
            return Err(Problem::bad_request(name, "does not go with `state=pending`; leave it out"));
        }
    }
    let mut pending = bus.store().pending(limit).await?;
    let direct = query.direct()?;
    pending.retain(|pending| pending.to.is_none() || direct == Direct::Include);
    Ok(match form {
        Form::Json => shapes::json(StatusCode::OK, &PageShape::of_pending(&pending)),
        Form::One | Form::Batch => cloudevents_out::pending(&pending),
    })
}

/// The place that `after` and `from_time` ask to begin after, whichever is later.
pub(super) async fn start(bus: &Ensue, query: &Query) -> Result<Option<Seq>, Problem> {
    let after = query.seq("after")?;
    let before_time = match query.time("from_time")? {
        Some(time) => Some(bus.store().seq_before(time).await?),
        None => None,
    };
    Ok(after.max(before_time))
}

/// What the last segment of `/v1/events/{place}` names.
pub(super) enum Named {
    Place(Seq),
    Id(EventId),
}

pub(super) fn named(path: Result<Path<String>, PathRejection>) -> Result<Named, Problem> {
    let text = path_text("place", path)?;
    if let Ok(seq @ 0..=SEQ_MAX) = text.parse()
        && text.bytes().all(|byte| byte.is_ascii_digit())
    {
        return Ok(Named::Place(seq));
    }
    match Uuid::parse_str(&text) {
        Ok(id) => Ok(Named::Id(EventId(id))),
        Err(_) => {
            let reason =
                "in the path is neither the seq nor the id (a UUID) of an event; use one that a publish answered";
            Err(Problem::bad_request("place", reason))
        }
    }
}

/// A segment of the path, percent-decoded.
pub(super) fn path_text(name: &str, path: Result<Path<String>, PathRejection>) -> Result<String, Problem> {
    let unreadable = |_| Problem::bad_request(name, "in the path is not UTF-8; percent-encode it as UTF-8");
    path.map(|Path(text)| text).map_err(unreadable)
}

/// Why there is no event at a place.
pub(super) async fn missing(bus: &Ensue, seq: Seq) -> Result<Problem, Problem> {
    let bounds = bus.store().bounds().await?;
    Ok(Problem::not_found(match () {
        () if seq == 0 => "there is no event 0: the first one has seq 1".to_string(),
        () if bounds.last == 0 => format!("there is no event {seq}: the log is empty"),
        () if seq > bounds.last => format!("there is no event {seq} yet: the newest is {}", bounds.last),
        () if bounds.count() == 0 => format!("event {seq} is gone from the log by retention, as all events are"),
        () => format!("event {seq} is gone from the log by retention: the oldest is {}", bounds.first),
    }))
}

pub(super) fn unknown_id(id: EventId) -> Problem {
    Problem::not_found(format!(
        "no event has the id {id}: check it; the event may also have been cancelled, or be gone from the log by retention"
    ))
}

/// Shows one event
///
/// By its `seq` or by its `id`; a delayed one only has an id.
#[utoipa::path(
    get,
    path = "/v1/events/{place}",
    operation_id = "show_event",
    tag = "events",
    params(("place" = String, Path, description = "The event's `seq` or `id`")),
    responses(
        (status = 200, description = "The event, in the log or pending; with `Accept: application/cloudevents+json` as a \
            CloudEvent", content(
            (EventShape = "application/json"),
            (CloudEventShape = "application/cloudevents+json")
        )),
        BadRequest,
        NotFound,
        StoreProblems,
    )
)]
pub(super) async fn show(
    State(app): State<Arc<App>>,
    path: Result<Path<String>, PathRejection>,
    _: NoQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let form = Form::accepted(&headers);
    let found = match named(path)? {
        Named::Place(seq) => match app.bus.event(seq).await? {
            Some(event) => Found::Logged(event),
            None => return Err(missing(&app.bus, seq).await?),
        },
        Named::Id(id) => app.bus.find(id).await?.ok_or_else(|| unknown_id(id))?,
    };
    Ok(match (form, &found) {
        (Form::Json, Found::Logged(event)) => shapes::json(StatusCode::OK, &EventShape::from(event)),
        (Form::Json, Found::Pending(pending)) => shapes::json(StatusCode::OK, &EventShape::from(pending)),
        (form, Found::Logged(event)) => cloudevents_out::one(form, event.into()),
        (form, Found::Pending(pending)) => cloudevents_out::one(form, pending.into()),
    })
}

/// Cancels a delayed event
///
/// One that is in the log stays there: the log is never changed.
#[utoipa::path(
    delete,
    path = "/v1/events/{place}",
    operation_id = "cancel_event",
    tag = "events",
    params(("place" = String, Path, description = "The event's `id`")),
    responses(
        (status = 200, description = "It will never enter the log", body = CancelledShape),
        BadRequest,
        NotFound,
        AlreadyLogged,
        StoreProblems,
    )
)]
pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    path: Result<Path<String>, PathRejection>,
    _: NoQuery,
) -> Result<Response, Problem> {
    let already_logged = |seq: Seq| {
        let detail = format!("event {seq} is in the log and stays there; publish another event that takes it back");
        Problem::new(Kind::AlreadyLogged, detail)
    };
    let id = match named(path)? {
        Named::Id(id) => id,
        // Whatever has a seq is in the log.
        Named::Place(seq) => {
            return Err(match app.bus.event(seq).await? {
                Some(_) => already_logged(seq),
                None => missing(&app.bus, seq).await?,
            });
        }
    };
    match app.bus.store().cancel(id).await? {
        Cancelled::Gone => Ok(shapes::json(StatusCode::OK, &CancelledShape { id, state: EventState::Cancelled })),
        Cancelled::AlreadyLogged(seq) => Err(already_logged(seq)),
        Cancelled::Unknown => Err(unknown_id(id)),
    }
}
