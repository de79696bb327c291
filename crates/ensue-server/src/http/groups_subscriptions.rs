//! How does a group say what it wants?

use super::App;
use super::fields_body::FieldsBody;
use super::groups::{Segment, checked_name, group_name};
use super::groups_shapes::{DeletedSubscriptionShape, SubscriptionShape, SubscriptionsShape};
use super::problem::Problem;
use super::query::{NoQuery, Query};
use super::responses::{BadRequest, BodyProblems, Conflict, DiskFull, NotFound, StoreProblems};
use super::shapes;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use ensue::groups::Wants;
use ensue::positions::SubscriptionState;
use ensue::store::PAGE_BYTES_MAX;
use ensue::{Invalid, Json};
use serde::Deserialize;
use std::sync::Arc;
use utoipa::ToSchema;
use uuid::Uuid;

/// The fields of a subscription.
const FIELDS: &[&str] = &["topic", "where", "params", "expires_in"];

/// Events that a group is to get, by `topic`, `where` or both. Other fields are refused.
#[derive(Deserialize, ToSchema)]
#[schema(as = NewSubscription)]
#[expect(dead_code, reason = "describes what `fields_body.rs` reads by hand")]
pub(super) struct NewSubscriptionShape {
    /// This topic and those below it: `order` is also `order.paid`, never `orders`.
    #[schema(max_length = 255)]
    topic: Option<String>,
    /// An SQL expression over `e`, the event (`topic, object, payload, metadata, seq, id, occurred_at, recorded_at`), and
    /// `s`, the subscription (`params, id, group_id`).
    #[schema(example = "(e.payload->>'total')::numeric > (s.params->>'min')::numeric", max_length = 16384)]
    r#where: Option<String>,
    /// What the condition reads as `s.params`: any JSON of at most 64 KiB; `{}` unless told.
    params: Option<serde_json::Value>,
    /// Goes when nobody reads the group or touches the subscription for this long, such as `10m`; stays if it is left out.
    #[schema(example = "10m")]
    expires_in: Option<String>,
}

/// Refuses a subscription to every event that nobody has asked for, such as by an empty body.
fn check_explicit(wants: &Wants) -> Result<(), Invalid> {
    match wants.topic.is_none() && wants.condition.is_none() {
        true => {
            Err(Invalid::new("where", "is missing; write a condition, or `true` for every event, or name a `topic`"))
        }
        false => Ok(()),
    }
}

fn subscription_id(text: &str) -> Result<Uuid, Problem> {
    let reason = "in the path is not the id (a UUID) of a subscription; use one that subscribing answered";
    Uuid::parse_str(text).map_err(|_| Problem::bad_request("id", reason))
}

/// A group and a subscription that the path names.
type Segments = Result<Path<(String, String)>, PathRejection>;

fn named(path: Segments) -> Result<(String, Uuid), Problem> {
    let unreadable = |_| Problem::bad_request("group", "in the path is not UTF-8; percent-encode it as UTF-8");
    let Path((group, id)) = path.map_err(unreadable)?;
    Ok((checked_name(group)?, subscription_id(&id)?))
}

/// Subscribes a group
///
/// A group that is not there is made, and begins now. One with the same topic, condition and params is the same
/// subscription: it is touched, and the longer expiry holds.
#[utoipa::path(
    post,
    path = "/v1/groups/{group}/subscriptions",
    operation_id = "subscribe",
    tag = "groups",
    params(("group" = String, Path, description = "The name of the group")),
    request_body(
        content = NewSubscriptionShape,
        description = "`topic` or `where` is required; `{\"where\": \"true\"}` subscribes to every event"
    ),
    responses(
        (status = 201, description = "It is new", body = SubscriptionShape),
        (status = 200, description = "The group had it, and it is touched", body = SubscriptionShape),
        Conflict,
        BodyProblems,
    )
)]
pub(super) async fn subscribe(
    State(app): State<Arc<App>>,
    path: Segment,
    _: NoQuery,
    request: Request,
) -> Result<Response, Problem> {
    let group = group_name(path)?;
    let body = FieldsBody::take(request, &app.options, FIELDS).await?;
    let fields = body.fields()?;
    let wants = Wants {
        topic: fields.text("topic")?,
        condition: fields.text("where")?,
        params: fields.json("params")?.unwrap_or_else(Json::empty_object),
        expires_in: fields.span("expires_in")?,
    };
    check_explicit(&wants)?;
    let (subscription, is_new) = app.bus.groups().subscribe(&group, wants).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(shapes::json(status, &SubscriptionShape::from(&subscription)))
}

/// Lists the subscriptions of a group
///
/// By id, the oldest first. Go on with `after` set to the answer's `next`, until that is null.
#[utoipa::path(
    get,
    path = "/v1/groups/{group}/subscriptions",
    operation_id = "list_subscriptions",
    tag = "groups",
    params(
        ("group" = String, Path, description = "The name of the group"),
        ("after" = Option<String>, Query, format = "uuid", description = "Subscriptions after this one"),
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 1000, description = "At most this many; 100 unless told"),
    ),
    responses(
        (status = 200, description = "A page of subscriptions", body = SubscriptionsShape),
        BadRequest,
        NotFound,
        StoreProblems,
    )
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    path: Segment,
    RawQuery(raw): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::parse(raw.as_deref(), &["after", "limit"])?;
    let limit = query.page_limit()?;
    let not_an_id = |_| Problem::bad_request("after", "is not the id (a UUID) of a subscription; use `next` of a page");
    let after = query.text("after").map(Uuid::parse_str).transpose().map_err(not_an_id)?;
    let (page, has_more) = page(&app, &group_name(path)?, after, limit).await?;
    let next = page.last().filter(|_| has_more).map(|last| last.id);
    let subscriptions = page.iter().map(SubscriptionShape::from).collect();
    Ok(shapes::json(StatusCode::OK, &SubscriptionsShape { subscriptions, next }))
}

/// Subscriptions that are read at once. Each has at most 80 kB.
const PART: usize = 50;

/// A page of at most `limit` subscriptions and about [`PAGE_BYTES_MAX`], and whether there are more.
async fn page(
    app: &App,
    group: &str,
    mut after: Option<Uuid>,
    limit: usize,
) -> Result<(Vec<SubscriptionState>, bool), Problem> {
    let (mut page, mut bytes) = (Vec::new(), 0);
    loop {
        let wanted = PART.min(limit + 1 - page.len());
        let part = app.bus.groups().subscriptions(group, after, wanted).await?;
        let is_last = part.len() < wanted;
        for subscription in part {
            if page.len() == limit || bytes > PAGE_BYTES_MAX {
                return Ok((page, true));
            }
            bytes += subscription.condition.as_ref().map_or(0, |text| text.len()) + subscription.params.as_str().len();
            after = Some(subscription.id);
            page.push(subscription);
        }
        if is_last {
            return Ok((page, false));
        }
    }
}

/// Takes a subscription out of its group
#[utoipa::path(
    delete,
    path = "/v1/groups/{group}/subscriptions/{id}",
    operation_id = "unsubscribe",
    tag = "groups",
    params(
        ("group" = String, Path, description = "The name of the group"),
        ("id" = String, Path, format = "uuid", description = "The id of the subscription"),
    ),
    responses(
        (status = 200, description = "It is gone", body = DeletedSubscriptionShape),
        BadRequest,
        NotFound,
        Conflict,
        DiskFull,
        StoreProblems,
    )
)]
pub(super) async fn unsubscribe(State(app): State<Arc<App>>, path: Segments, _: NoQuery) -> Result<Response, Problem> {
    let (group, id) = named(path)?;
    app.bus.groups().unsubscribe(&group, id).await?;
    Ok(shapes::json(StatusCode::OK, &DeletedSubscriptionShape { id, state: "deleted" }))
}

/// Keeps a subscription from expiring
///
/// Reading its group does so, too.
#[utoipa::path(
    post,
    path = "/v1/groups/{group}/subscriptions/{id}/touch",
    operation_id = "touch_subscription",
    tag = "groups",
    params(
        ("group" = String, Path, description = "The name of the group"),
        ("id" = String, Path, format = "uuid", description = "The id of the subscription"),
    ),
    responses(
        (status = 200, description = "The subscription", body = SubscriptionShape),
        BadRequest,
        NotFound,
        Conflict,
        DiskFull,
        StoreProblems,
    )
)]
pub(super) async fn touch(State(app): State<Arc<App>>, path: Segments, _: NoQuery) -> Result<Response, Problem> {
    let (group, id) = named(path)?;
    let subscription = app.bus.groups().touch(&group, id).await?;
    Ok(shapes::json(StatusCode::OK, &SubscriptionShape::from(&subscription)))
}
