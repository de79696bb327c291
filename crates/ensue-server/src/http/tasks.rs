//! How is a collection brought up to date, and what became of its tasks?
//!
//! The paths and answers are those of the scheduler's design; each path is known with and without a slash at its end.

use super::App;
use super::events::path_text;
use super::fields_body::FieldsBody;
use super::groups::Segment;
use super::problem::Problem;
use super::query::{NoQuery, Query};
use super::responses::{BadRequest, BodyProblems, Conflict, Invalid, NotFound, StoreProblems};
use super::shapes;
use super::tasks_shapes::{TaskLineShape, TaskLogsShape, TaskShape, TaskStartedShape, TasksShape};
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use ensue::tasks::{Task, TaskQuery, TaskStatus, check_name};
use ensue::{Ensue, Timestamp};
use std::sync::Arc;
use std::time::Duration;

/// How many tasks an answer has unless told, and at most.
const TASKS_MAX: usize = 10_000;
/// How long a cancellation waits for the end of what runs.
const CANCEL_WAIT: Duration = Duration::from_secs(2);
/// How many lines are read at once.
const LINES: usize = 1_000;

async fn named(bus: &Ensue, path: Segment) -> Result<Task, Problem> {
    Ok(bus.known_task(&path_text("id", path)?).await?)
}

/// A period, both of its ends included.
fn period(query: &Query) -> Result<(Option<Timestamp>, Option<Timestamp>), Problem> {
    match (query.time("start")?, query.time("end")?) {
        (Some(start), Some(end)) if start > end => {
            let reason = format!("is {start}, after `end`, {end}; exchange them");
            Err(Problem::invalid("start", reason))
        }
        period => Ok(period),
    }
}

fn required<'a>(query: &'a Query, name: &'static str, example: &str) -> Result<&'a str, Problem> {
    let missing = || Problem::bad_request(name, format!("is missing; add it to the query, as in `{name}={example}`"));
    query.text(name).filter(|text| !text.is_empty()).ok_or_else(missing)
}

/// Makes a task
///
/// For a collection of a source, unless one waits or runs already: the look and the making are one step, so that of any
/// number of requests at once one makes it. By default it runs before those that schedules make.
#[utoipa::path(
    post,
    path = "/tasks",
    operation_id = "run_task",
    tag = "tasks",
    security(("token" = []), ("admin_token" = [])),
    params(
        ("source" = String, Query, description = "The source"),
        ("collection" = String, Query, description = "The collection of it"),
        ("priority" = Option<u64>, Query, minimum = 1, description = "Higher runs first; by default 1,000 above that of the collection"),
    ),
    responses(
        (status = 201, description = "Made, and on disk", body = TaskStartedShape),
        (status = 200, description = "One waits or runs already: its id", body = TaskStartedShape),
        NotFound,
        BodyProblems,
    )
)]
pub(super) async fn create(
    State(app): State<Arc<App>>,
    RawQuery(raw): RawQuery,
    request: Request,
) -> Result<Response, Problem> {
    let query = Query::parse(raw.as_deref(), &["source", "collection", "priority"])?;
    let source = required(&query, "source", "github")?.to_owned();
    let collection = required(&query, "collection", "issues")?.to_owned();
    let priority = match query.text("priority").map(str::parse::<u64>) {
        None => None,
        Some(Ok(priority)) => Some(priority),
        Some(Err(_)) => {
            return Err(Problem::bad_request("priority", format!("must be a whole number from 1 to {}", u64::MAX)));
        }
    };
    FieldsBody::take(request, &app.options, &[]).await?.fields()?;
    // In a task of its own: a client that hangs up meanwhile leaves nobody unrung who waits for it.
    let bus = app.bus.clone();
    let ended = |_| Err(ensue::StoreError::InDoubt("the task that sent it was ended".into()).into());
    let run = async move {
        match priority {
            Some(priority) => bus.run_task_at(&source, &collection, priority).await,
            None => bus.run_task(&source, &collection).await,
        }
    };
    let started = tokio::spawn(run).await.unwrap_or_else(ended)?;
    let status = if started.is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok(shapes::json(status, &TaskStartedShape::from(&started)))
}

/// Lists tasks
///
/// Those of a source that were made from `start` to `end`, both included, by the time at which they were made. Where there
/// are more than `limit`, or than fit into one answer, go on with `after` set to the answer's `next`, until that is null.
#[utoipa::path(
    get,
    path = "/tasks",
    operation_id = "list_tasks",
    tag = "tasks",
    security(("token" = []), ("admin_token" = [])),
    params(
        ("source" = String, Query, description = "Of this source"),
        ("start" = String, Query, format = DateTime, description = "Made at this time or later"),
        ("end" = String, Query, format = DateTime, description = "Made at this time or earlier"),
        ("status" = Option<String>, Query, description = "`SCHEDULED`, `RUNNING`, `FAILED`, `SUCCESS` or `CANCELED`"),
        ("collection" = Option<String>, Query, description = "Of this collection; of all unless told"),
        ("after" = Option<String>, Query, description = "After this task"),
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 10000, description = "At most this many; 10,000 unless told"),
    ),
    responses(
        (status = 200, description = "The tasks", body = TasksShape),
        BadRequest,
        NotFound,
        Invalid,
        StoreProblems,
    )
)]
pub(super) async fn list(State(app): State<Arc<App>>, RawQuery(raw): RawQuery) -> Result<Response, Problem> {
    let known = ["source", "start", "end", "status", "collection", "after", "limit"];
    let query = Query::parse(raw.as_deref(), &known)?;
    let source = required(&query, "source", "github")?;
    let collection = query.text("collection");
    check_name("source", source).map_err(Problem::of_request)?;
    if let Some(collection) = collection {
        check_name("collection", collection).map_err(Problem::of_request)?;
    }
    for name in ["start", "end"] {
        required(&query, name, "2026-11-16T00:00:00Z")?;
    }
    let (Some(from), Some(to)) = period(&query)? else {
        return Err(Problem::bad_request("start", "is missing; add `start` and `end` to the query"));
    };
    let states = match query.text("status").map(|word| (word, TaskStatus::parse(word))) {
        None => Vec::new(),
        Some((_, Some(status))) => status.states(),
        Some((_, None)) => {
            let words = TaskStatus::ALL.map(TaskStatus::as_str).join(", ");
            return Err(Problem::bad_request("status", format!("is not known; write one of {words}")));
        }
    };
    let limit = match query.text("limit").map(str::parse) {
        None => TASKS_MAX,
        Some(Ok(limit @ 1..=TASKS_MAX)) => limit,
        Some(_) => return Err(Problem::bad_request("limit", format!("must be a number from 1 to {TASKS_MAX}"))),
    };
    let after = match query.text("after") {
        Some(id) => Some(app.bus.task_place(id).await?),
        None => None,
    };
    let wanted =
        TaskQuery { source: source.to_owned(), collection: collection.map(str::to_owned), states, from, to, after };
    let tasks = app.bus.tasks(wanted.clone(), limit).await?;
    if tasks.tasks.is_empty() {
        check_known(&app.bus, wanted).await?;
    }
    Ok(shapes::json(StatusCode::OK, &TasksShape::from(&tasks)))
}

/// Refuses a source or a collection that nobody knows: it is not in the config file, and has no task of any time.
async fn check_known(bus: &Ensue, wanted: TaskQuery) -> Result<(), Problem> {
    let TaskQuery { source, collection, .. } = &wanted;
    let is_it = |name: &str| collection.as_deref().is_none_or(|collection| collection == name);
    let mut known = bus.collections();
    known.retain(|one| one.collection().source() == source && is_it(one.collection().name()));
    // Nothing was made earlier, and not every engine knows earlier times.
    let (from, to) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
    let ever = TaskQuery { states: Vec::new(), from, to, after: None, ..wanted.clone() };
    if !known.is_empty() || !bus.tasks(ever, 1).await?.tasks.is_empty() {
        return Ok(());
    }
    let what = match collection {
        Some(collection) => format!("no collection {:?} of a source {:?}", shown(collection), shown(source)),
        None => format!("no source {:?}", shown(source)),
    };
    Err(Problem::not_found(format!("there is {what}: it is not under `sources` in the config file, and has no tasks")))
}

fn shown(text: &str) -> String {
    text.chars().take(120).collect()
}

/// Shows a task
#[utoipa::path(
    get,
    path = "/tasks/{id}",
    operation_id = "show_task",
    tag = "tasks",
    security(("token" = []), ("admin_token" = [])),
    params(("id" = String, Path, description = "The task's id")),
    responses(
        (status = 200, description = "The task", body = TaskShape),
        BadRequest,
        NotFound,
        StoreProblems,
    )
)]
pub(super) async fn show(State(app): State<Arc<App>>, path: Segment, _: NoQuery) -> Result<Response, Problem> {
    Ok(shapes::json(StatusCode::OK, &TaskShape::from(&named(&app.bus, path).await?)))
}

/// Calls a task off
///
/// One that waits is canceled at once. One that runs is told to stop: its program gets SIGTERM and, after five seconds,
/// SIGKILL, with all that it has started. The answer comes when it has ended, or after two seconds with the task as it is
/// then.
#[utoipa::path(
    post,
    path = "/tasks/{id}/cancel",
    operation_id = "cancel_task",
    tag = "tasks",
    security(("token" = []), ("admin_token" = [])),
    params(("id" = String, Path, description = "The task's id")),
    responses(
        (status = 200, description = "The task as it is now", body = TaskShape),
        NotFound,
        Conflict,
        BodyProblems,
    )
)]
pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    path: Segment,
    _: NoQuery,
    request: Request,
) -> Result<Response, Problem> {
    let id = path_text("id", path)?;
    FieldsBody::take(request, &app.options, &[]).await?.fields()?;
    let task = app.bus.cancel_task(&id, CANCEL_WAIT).await?;
    Ok(shapes::json(StatusCode::OK, &TaskShape::from(&task)))
}

/// Shows what a task said
///
/// In the order in which it was said, also while it runs. To follow one as it goes on: `GET /v1/jobs/{id}/logs` with the last
/// part of its id.
#[utoipa::path(
    get,
    path = "/tasks/{id}/logs",
    operation_id = "task_logs",
    tag = "tasks",
    security(("token" = []), ("admin_token" = [])),
    params(
        ("id" = String, Path, description = "The task's id"),
        ("start" = Option<String>, Query, format = DateTime, description = "Only lines of this time or later"),
        ("end" = Option<String>, Query, format = DateTime, description = "Only lines of this time or earlier"),
    ),
    responses(
        (status = 200, description = "The lines", body = TaskLogsShape),
        BadRequest,
        NotFound,
        Invalid,
        StoreProblems,
    )
)]
pub(super) async fn logs(
    State(app): State<Arc<App>>,
    path: Segment,
    RawQuery(raw): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::parse(raw.as_deref(), &["start", "end"])?;
    let (start, end) = period(&query)?;
    let task = named(&app.bus, path).await?;
    let mut telling = Telling { bus: app.bus.clone(), task, start, end, after: 0, any: false, over: false };
    // The first page before the answer begins: what fails by then is told as it should be.
    let first = telling.page(b"{\"logs\":[".to_vec()).await?;
    let json = [(header::CONTENT_TYPE, "application/json")];
    if telling.over {
        return Ok((StatusCode::OK, json, first).into_response());
    }
    let rest = futures_util::stream::unfold(telling, async |mut telling| match telling.over {
        true => None,
        false => Some((telling.page(Vec::new()).await, telling)),
    });
    let chunks = futures_util::stream::iter([Ok(first)]);
    let body = Body::from_stream(futures_util::StreamExt::chain(chunks, rest));
    Ok((StatusCode::OK, json, body).into_response())
}

/// The lines of a task on their way to a client, a page at a time.
struct Telling {
    bus: Ensue,
    task: Task,
    start: Option<Timestamp>,
    end: Option<Timestamp>,
    after: u64,
    any: bool,
    over: bool,
}

impl Telling {
    /// The next part of the answer, behind what is there of it.
    async fn page(&mut self, mut text: Vec<u8>) -> Result<Bytes, ensue::Error> {
        let lines = self.bus.task_lines(&self.task, self.after, LINES).await?;
        let is_meant =
            |at: Timestamp| self.start.is_none_or(|start| start <= at) && self.end.is_none_or(|end| at <= end);
        for line in lines.iter().filter(|line| is_meant(line.at)) {
            if std::mem::replace(&mut self.any, true) {
                text.push(b',');
            }
            let shape = TaskLineShape::from(line);
            text.extend(serde_json::to_vec(&shape).expect("times and texts can always be written as JSON"));
        }
        self.after = lines.last().map_or(self.after, |line| line.line);
        if lines.len() < LINES {
            text.extend_from_slice(b"]}\n");
            self.over = true;
        }
        Ok(text.into())
    }
}
