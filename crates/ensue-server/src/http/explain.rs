//! Why is this not running?

use super::App;
use super::events::{Named, missing, named, unknown_id};
use super::problem::Problem;
use super::query::Query;
use super::responses::{BadRequest, NotFound, StoreProblems};
use super::shapes;
use axum::extract::{Path, RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use ensue::explain::{ExplainedDelivery, ExplainedEvent, ExplainedObject, Explanation, Reason};
use ensue::jobs::{Job, JobId};
use ensue::{Ensue, Found, GroupName, ObjectKey, Pending};
use serde::Serialize;
use std::sync::Arc;
use utoipa::ToSchema;

/// Why something does or does not run.
#[derive(Serialize, ToSchema)]
#[schema(as = Explanation)]
pub(crate) struct ExplainedShape<'a> {
    /// In one word: the state of a job, what became of an event (`done`, `pending`, `held`, `not_matched`, …), of an object
    /// `held`, `waiting` or `free`, or of a schedule `held`, `waiting`, `due`, `overdue`, `failing` or `over`.
    verdict: &'a str,
    /// Why, what weighs most first.
    because: Vec<ReasonShape<'a>>,
    /// Of an event without `handler` and `group`: the same for each handler.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    handlers: Option<Vec<ExplainedHandlerShape<'a>>>,
    /// Of an object: its jobs that are not over, and those that died; the first 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    jobs: Option<Vec<ExplainedJobShape<'a>>>,
}

/// One reason.
#[derive(Serialize, ToSchema)]
#[schema(as = Reason)]
pub(crate) struct ReasonShape<'a> {
    /// `condition`, `predecessor`, `rule`, `lease`, `limit`, `delay`, `handler`, `error` or `state`.
    kind: &'static str,
    /// What it is about: the id of a job or a rule, the seq of an event, the key of a handler.
    #[serde(rename = "ref")]
    #[schema(required = true)]
    about: Option<&'a str>,
    /// In words.
    detail: &'a str,
    /// What to do about it.
    #[schema(required = true)]
    fix: Option<&'a str>,
}

/// Why an event was or was not handled, for one handler.
#[derive(Serialize, ToSchema)]
#[schema(as = ExplainedHandler)]
pub(crate) struct ExplainedHandlerShape<'a> {
    handler: &'a str,
    verdict: &'a str,
    because: Vec<ReasonShape<'a>>,
}

/// Why a job of an object does or does not run.
#[derive(Serialize, ToSchema)]
#[schema(as = ExplainedJob)]
pub(crate) struct ExplainedJobShape<'a> {
    #[schema(value_type = String, format = "uuid")]
    id: JobId,
    handler: &'a str,
    verdict: &'a str,
    because: Vec<ReasonShape<'a>>,
}

fn because(reasons: &[Reason]) -> Vec<ReasonShape<'_>> {
    let shape = |reason| {
        let Reason { kind, about, detail, fix }: &Reason = reason;
        ReasonShape { kind: kind.as_str(), about: about.as_deref(), detail, fix: fix.as_deref() }
    };
    reasons.iter().map(shape).collect()
}

impl<'a> From<&'a Explanation> for ExplainedShape<'a> {
    fn from(explanation: &'a Explanation) -> Self {
        let Explanation { verdict, because: reasons } = explanation;
        Self { verdict, because: because(reasons), handlers: None, jobs: None }
    }
}

impl<'a> From<&'a ExplainedEvent> for ExplainedShape<'a> {
    fn from(event: &'a ExplainedEvent) -> Self {
        let handler = |one: &'a ExplainedDelivery| ExplainedHandlerShape {
            handler: one.handler.as_str(),
            verdict: &one.explanation.verdict,
            because: because(&one.explanation.because),
        };
        let handlers = event.handlers.iter().map(handler).collect();
        Self { handlers: Some(handlers), ..Self::from(&event.explanation) }
    }
}

impl<'a> From<&'a ExplainedObject> for ExplainedShape<'a> {
    fn from(object: &'a ExplainedObject) -> Self {
        let job = |(job, explanation): &'a (Job, Explanation)| ExplainedJobShape {
            id: job.id,
            handler: job.handler.as_str(),
            verdict: &explanation.verdict,
            because: because(&explanation.because),
        };
        Self { jobs: Some(object.jobs.iter().map(job).collect()), ..Self::from(&object.explanation) }
    }
}

/// Explains why something does or does not run
///
/// One of: an event, for one handler or group or for all handlers; a job; an object; a schedule. Each reason says what kind it is, what
/// it is about, and what to do about it.
#[utoipa::path(
    get,
    path = "/v1/explain",
    operation_id = "explain",
    tag = "explain",
    params(
        ("event" = Option<String>, Query, description = "The event's `seq` or `id`"),
        ("handler" = Option<String>, Query, description = "Only with `event`: for this handler"),
        ("group" = Option<String>, Query, description = "Only with `event`: for this group"),
        ("job" = Option<String>, Query, format = "uuid", description = "The job's id"),
        ("object" = Option<String>, Query, description = "The object"),
        ("schedule" = Option<String>, Query, description = "The schedule's name"),
    ),
    responses(
        (status = 200, description = "Why", body = ExplainedShape),
        BadRequest,
        NotFound,
        StoreProblems,
    )
)]
pub(super) async fn explain(State(app): State<Arc<App>>, RawQuery(raw): RawQuery) -> Result<Response, Problem> {
    let query = Query::parse(raw.as_deref(), &["event", "handler", "group", "job", "object", "schedule"])?;
    let asked = ["event", "job", "object", "schedule"].map(|name| query.text(name).map(|value| (name, value)));
    let mut asked = asked.into_iter().flatten();
    let (Some((what, value)), None) = (asked.next(), asked.next()) else {
        return Err(Problem::bad_request("query", "must have one of event, job, object and schedule, and only one"));
    };
    for name in ["handler", "group"] {
        if what != "event" && query.text(name).is_some() {
            return Err(Problem::bad_request(name, "goes with `event`; leave it out"));
        }
    }
    let bus = &app.bus;
    match what {
        "event" => explain_event(bus, &query, value).await,
        "job" => {
            let unknown =
                || Problem::not_found(format!("there is no job {:?}", value.chars().take(60).collect::<String>()));
            let id = JobId::parse(value).ok_or_else(unknown)?;
            Ok(shapes::json(StatusCode::OK, &ExplainedShape::from(&bus.explain_job(id).await?)))
        }
        "object" => {
            let object = ObjectKey::parse_filter(value).map_err(Problem::of_request)?;
            Ok(shapes::json(StatusCode::OK, &ExplainedShape::from(&bus.explain_object(&object).await?)))
        }
        _ => {
            let name = GroupName::parse("schedule", value).map_err(Problem::of_request)?;
            Ok(shapes::json(StatusCode::OK, &ExplainedShape::from(&bus.explain_schedule(&name).await?)))
        }
    }
}

async fn explain_event(bus: &Ensue, query: &Query, value: &str) -> Result<Response, Problem> {
    let (handler, group) = (query.group("handler")?, query.group("group")?);
    if handler.is_some() && group.is_some() {
        return Err(Problem::bad_request("group", "stands beside `handler`: ask for one of them"));
    }
    let place = named(Ok(Path(value.to_owned()))).map_err(|_| {
        Problem::bad_request(
            "event",
            "is neither the seq nor the id (a UUID) of an event; use one that a publish answered",
        )
    })?;
    let seq = match place {
        Named::Place(seq) => seq,
        Named::Id(id) => match bus.find(id).await?.ok_or_else(|| unknown_id(id))? {
            Found::Logged(event) => event.seq,
            Found::Pending(pending) => {
                return Ok(shapes::json(StatusCode::OK, &ExplainedShape::from(&not_yet(&pending))));
            }
        },
    };
    let explained = match (handler, group) {
        (Some(handler), _) => {
            let explained = bus.explain_event(seq, Some(&handler)).await?;
            explained.and_then(|all| all.into_iter().next()).map(|one| one.explanation)
        }
        (None, Some(group)) => bus.explain_event_for_group(seq, &group).await?,
        (None, None) => {
            return match bus.explain_event_in_all(seq).await? {
                Some(event) => Ok(shapes::json(StatusCode::OK, &ExplainedShape::from(&event))),
                None => Err(missing(bus, seq).await?),
            };
        }
    };
    match explained {
        Some(explanation) => Ok(shapes::json(StatusCode::OK, &ExplainedShape::from(&explanation))),
        None => Err(missing(bus, seq).await?),
    }
}

/// A delayed event is nobody's yet.
pub(crate) fn not_yet(pending: &Pending) -> Explanation {
    let detail = format!("it enters the log at {}; nobody gets it before", pending.not_before);
    let reason = Reason::new(ensue::explain::ReasonKind::Delay, Some(pending.id.to_string()), detail);
    let because = vec![reason.fix(format!("ensue event cancel {}", pending.id))];
    Explanation { verdict: "pending".into(), because }
}
