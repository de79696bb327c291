//! How does a group read the log, and say how far it is?

use super::App;
use super::answers::check_room;
use super::fields_body::FieldsBody;
use super::groups::{Segment, group_name};
use super::groups_shapes::{CommittedShape, PulledShape};
use super::problem::{Kind, Problem};
use super::query::NoQuery;
use super::responses::{BodyProblems, Conflict, NotFound};
use super::shapes;
use super::stop::stopped;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use ensue::groups::Pull;
use serde::Deserialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// How to read. Other fields are refused.
#[derive(Deserialize, ToSchema)]
#[schema(as = ReadGroup)]
#[expect(dead_code, reason = "describes what `fields_body.rs` reads by hand")]
pub(super) struct ReadShape {
    /// At most this many events; 100 unless told.
    #[schema(minimum = 1, maximum = 1000)]
    limit: Option<u64>,
    /// If there is nothing: how long to wait for something; not at all unless told.
    #[schema(maximum = 30000)]
    wait_ms: Option<u64>,
    /// How long nobody else may read, from the answer on; 30 s unless told, also for a read that goes on under a `lease` of another
    /// length.
    #[schema(minimum = 100, maximum = 3600000)]
    lease_ms: Option<u64>,
    /// Only look: takes no lease, and works while somebody else has it. Touches nothing: a subscription that nobody reads or touches
    /// expires all the same.
    peek: Option<bool>,
    /// Read after this place, not before the group's cursor (but for a peek). Unless told: where the last read under `lease` ended, or at
    /// the group's cursor.
    cursor: Option<u64>,
    /// The lease of an earlier read, to go on under.
    lease: Option<String>,
}

/// How far a group is. Other fields are refused.
#[derive(Deserialize, ToSchema)]
#[schema(as = CommitGroup)]
#[expect(dead_code, reason = "describes what `fields_body.rs` reads by hand")]
pub(super) struct CommitShape {
    /// Everything up to here is done: the `cursor` of a read, or the `seq` of an event that it answered. May be left out
    /// with `release`.
    cursor: Option<u64>,
    /// The lease of the read.
    lease: String,
    /// Give the lease back, so that somebody else can read at once.
    release: Option<bool>,
}

/// Reads what is next for a group
///
/// Answers the events that subscriptions of the group want, and takes the group's lease, also where there are none. Go on
/// under the answer's `lease`, and commit the answer's `cursor` when the events are done with: what is not committed
/// comes again to whoever reads next. An event that was published `to` a subscription is for that one alone. A read looks
/// at a bounded part of the log, so that `events` may be empty although more would follow.
#[utoipa::path(
    post,
    path = "/v1/groups/{group}/read",
    operation_id = "read_group",
    tag = "groups",
    params(("group" = String, Path, description = "The name of the group")),
    request_body(content = ReadShape, description = "May be left out"),
    responses(
        (status = 200, description = "What is next", body = PulledShape),
        NotFound,
        Conflict,
        BodyProblems,
    )
)]
pub(super) async fn read(
    State(app): State<Arc<App>>,
    path: Segment,
    _: NoQuery,
    request: Request,
) -> Result<Response, Problem> {
    const FIELDS: &[&str] = &["limit", "wait_ms", "lease_ms", "peek", "cursor", "lease"];
    let group = group_name(path)?;
    let body = FieldsBody::take(request, &app.options, FIELDS).await?;
    let fields = body.fields()?;
    let default = Pull::default();
    let pull = Pull {
        limit: fields.number("limit")?.map_or(default.limit, |limit| usize::try_from(limit).unwrap_or(usize::MAX)),
        wait: fields.millis("wait_ms")?.unwrap_or(default.wait),
        lease: fields.millis("lease_ms")?.unwrap_or(default.lease),
        peek: fields.flag("peek")?,
        cursor: fields.number("cursor")?,
        under: fields.text("lease")?,
        reader: "over HTTP".into(),
    };
    check_room(&app.options.answers_budget)?;
    let mut stop = app.options.stop.clone();
    let groups = app.bus.groups();
    let pulled = tokio::select! {
        biased;
        pulled = groups.pull(&group, pull) => pulled.map_err(in_fields)?,
        // What the read took is given back with it.
        () = stopped(&mut stop) => {
            return Err(Problem::new(Kind::Unavailable, "the server stops, and nothing has come yet: read again"));
        }
    };
    Ok(shapes::json(StatusCode::OK, &PulledShape::from(&pulled)))
}

/// A refusal by the library, told of the fields of the body.
fn in_fields(error: ensue::Error) -> Problem {
    Problem::from(error).rename(|field| match field {
        "wait" => "wait_ms".into(),
        "lease" => "lease_ms".into(),
        "under" => "lease".into(),
        other => other.to_owned().into(),
    })
}

/// Says how far a group is
///
/// Under the lease of a read. If that is lost, the group stays where it is.
#[utoipa::path(
    post,
    path = "/v1/groups/{group}/commit",
    operation_id = "commit_group",
    tag = "groups",
    params(("group" = String, Path, description = "The name of the group")),
    request_body = CommitShape,
    responses(
        (status = 200, description = "On disk", body = CommittedShape),
        NotFound,
        Conflict,
        BodyProblems,
    )
)]
pub(super) async fn commit(
    State(app): State<Arc<App>>,
    path: Segment,
    _: NoQuery,
    request: Request,
) -> Result<Response, Problem> {
    let group = group_name(path)?;
    let body = FieldsBody::take(request, &app.options, &["cursor", "lease", "release"]).await?;
    let fields = body.fields()?;
    let (cursor, release) = (fields.number("cursor")?, fields.flag("release")?);
    let Some(lease) = fields.text("lease")? else {
        return Err(Problem::invalid("lease", "is missing; send the one that the read answered"));
    };
    if cursor.is_none() && !release {
        return Err(Problem::invalid("cursor", "is missing; send the one that the read answered, or `release`"));
    }
    let committed = app.bus.groups().commit(&group, &lease, cursor, release).await?;
    Ok(shapes::json(StatusCode::OK, &CommittedShape::from(committed)))
}
