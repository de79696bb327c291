//! How does a group come, move and go?

use super::App;
use super::events::path_text;
use super::fields_body::FieldsBody;
use super::groups_shapes::{DeletedGroupShape, GroupShape, GroupsShape};
use super::problem::Problem;
use super::query::{NoQuery, Query};
use super::responses::{BadRequest, BodyProblems, Conflict, DiskFull, NotFound, StoreProblems};
use super::shapes;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, RawQuery, Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use ensue::GroupName;
use ensue::positions::Start;
use serde::Deserialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// A segment of the path that names something.
pub(super) type Segment = Result<Path<String>, PathRejection>;

/// The group that the path names.
pub(super) fn group_name(path: Segment) -> Result<String, Problem> {
    checked_name(path_text("group", path)?)
}

pub(super) fn checked_name(name: String) -> Result<String, Problem> {
    GroupName::parse("group", &name).map(|_| name).map_err(Problem::of_request)
}

/// Where a group begins.
#[derive(Deserialize, ToSchema)]
#[schema(as = NewGroup)]
#[expect(dead_code, reason = "describes what `fields_body.rs` reads by hand")]
pub(super) struct NewGroupShape {
    /// `now` (the default), `beginning`, or the `seq` of the last event that it is not to get.
    #[schema(value_type = Option<serde_json::Value>)]
    start: Option<serde_json::Value>,
}

/// Where a group goes.
#[derive(Deserialize, ToSchema)]
#[schema(as = Seek)]
#[expect(dead_code, reason = "describes what `fields_body.rs` reads by hand")]
pub(super) struct SeekShape {
    /// `now`, `beginning`, or a `seq`: the group goes on with the event after that.
    #[schema(value_type = serde_json::Value)]
    to: serde_json::Value,
}

/// A part of the log.
#[derive(Deserialize, ToSchema)]
#[schema(as = Replay)]
#[expect(dead_code, reason = "describes what `fields_body.rs` reads by hand")]
pub(super) struct ReplayShape {
    /// Its first `seq`.
    from: u64,
    /// Its last `seq`.
    to: u64,
}

/// Makes a group
///
/// A group is a durable reader: a place in the log, and subscriptions that say what it wants. One that is there stays as it
/// is, wherever in the log `start` says.
#[utoipa::path(
    put,
    path = "/v1/groups/{group}",
    operation_id = "create_group",
    tag = "groups",
    params(("group" = String, Path, description = "Its name, in dotted segments")),
    request_body(content = NewGroupShape, description = "May be left out"),
    responses(
        (status = 201, description = "It is new", body = GroupShape),
        (status = 200, description = "It was there, and is as it was", body = GroupShape),
        Conflict,
        BodyProblems,
    )
)]
pub(super) async fn create(
    State(app): State<Arc<App>>,
    path: Segment,
    _: NoQuery,
    request: Request,
) -> Result<Response, Problem> {
    let name = group_name(path)?;
    let body = FieldsBody::take(request, &app.options, &["start"]).await?;
    let start = body.fields()?.place("start")?.unwrap_or(Start::Now);
    let (group, is_new) = app.bus.groups().create(&name, start).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(shapes::json(status, &GroupShape::from(&group)))
}

/// Shows a group
#[utoipa::path(
    get,
    path = "/v1/groups/{group}",
    operation_id = "show_group",
    tag = "groups",
    params(("group" = String, Path, description = "Its name")),
    responses(
        (status = 200, description = "The group", body = GroupShape),
        BadRequest,
        NotFound,
        StoreProblems,
    )
)]
pub(super) async fn show(State(app): State<Arc<App>>, path: Segment, _: NoQuery) -> Result<Response, Problem> {
    let group = app.bus.groups().get(&group_name(path)?).await?;
    Ok(shapes::json(StatusCode::OK, &GroupShape::from(&group)))
}

/// Deletes a group
///
/// With its subscriptions and all else that is known of it. Whoever reads it loses its lease. While a process serves the handler
/// of a config file or an application, its group is not deleted; one that the store keeps is deleted with it.
#[utoipa::path(
    delete,
    path = "/v1/groups/{group}",
    operation_id = "delete_group",
    tag = "groups",
    params(("group" = String, Path, description = "Its name")),
    responses(
        (status = 200, description = "It is gone", body = DeletedGroupShape),
        BadRequest,
        NotFound,
        Conflict,
        DiskFull,
        StoreProblems,
    )
)]
pub(super) async fn delete(State(app): State<Arc<App>>, path: Segment, _: NoQuery) -> Result<Response, Problem> {
    let name = group_name(path)?;
    app.bus.groups().delete(&name).await?;
    Ok(shapes::json(StatusCode::OK, &DeletedGroupShape { name: &name, state: "deleted" }))
}

/// Lists the groups
///
/// Those of handlers too, by name. Go on with `after` set to the answer's `next`, until that is null.
#[utoipa::path(
    get,
    path = "/v1/groups",
    operation_id = "list_groups",
    tag = "groups",
    params(
        ("after" = Option<String>, Query, description = "Groups after the one of this name"),
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 1000, description = "At most this many; 100 unless told"),
    ),
    responses(
        (status = 200, description = "A page of groups", body = GroupsShape),
        BadRequest,
        StoreProblems,
    )
)]
pub(super) async fn list(State(app): State<Arc<App>>, RawQuery(raw): RawQuery) -> Result<Response, Problem> {
    let query = Query::parse(raw.as_deref(), &["after", "limit"])?;
    let limit = query.page_limit()?;
    let after = query.group("after")?;
    let groups = app.bus.groups().page(after.as_ref().map(GroupName::as_str), limit + 1).await?;
    Ok(shapes::json(StatusCode::OK, &GroupsShape::page(&groups, limit)))
}

/// Moves a group to another place
///
/// Forward or back. Whoever reads it loses its lease. A handler's group can be moved, too: what is after that place runs
/// (again), and objects that wait for a retry are forgotten.
#[utoipa::path(
    post,
    path = "/v1/groups/{group}/seek",
    operation_id = "seek_group",
    tag = "groups",
    params(("group" = String, Path, description = "Its name")),
    request_body = SeekShape,
    responses(
        (status = 200, description = "The group, where it is now", body = GroupShape),
        NotFound,
        BodyProblems,
    )
)]
pub(super) async fn seek(
    State(app): State<Arc<App>>,
    path: Segment,
    _: NoQuery,
    request: Request,
) -> Result<Response, Problem> {
    let name = group_name(path)?;
    let body = FieldsBody::take(request, &app.options, &["to"]).await?;
    let Some(to) = body.fields()?.place("to")? else {
        return Err(Problem::invalid("to", "is missing; say \"now\", \"beginning\" or a seq"));
    };
    let group = app.bus.groups().seek(&name, to).await?;
    Ok(shapes::json(StatusCode::OK, &GroupShape::from(&group)))
}

/// Has a handler run a part of the log again
///
/// From the first `seq` to the last; then it goes on where it was. In order for each object; what was under way at this moment may
/// be run again, too. A conflict while objects of the handler wait or are held, or while it replays already.
#[utoipa::path(
    post,
    path = "/v1/groups/{group}/replay",
    operation_id = "replay_group",
    tag = "groups",
    params(("group" = String, Path, description = "The name of a handler's group: the handler's key")),
    request_body = ReplayShape,
    responses(
        (status = 200, description = "The group, where it is now", body = GroupShape),
        NotFound,
        Conflict,
        BodyProblems,
    )
)]
pub(super) async fn replay(
    State(app): State<Arc<App>>,
    path: Segment,
    _: NoQuery,
    request: Request,
) -> Result<Response, Problem> {
    let name = group_name(path)?;
    let body = FieldsBody::take(request, &app.options, &["from", "to"]).await?;
    let fields = body.fields()?;
    let place = |field: &'static str| -> Result<u64, Problem> {
        let missing = || Problem::invalid(field, "is missing; say the first and the last seq of the range");
        fields.number(field)?.ok_or_else(missing)
    };
    let group = app.bus.groups().replay(&name, place("from")?, place("to")?).await?;
    Ok(shapes::json(StatusCode::OK, &GroupShape::from(&group)))
}
