//! How is a task asked of a server, or of a store?
//!
//! Both answer with the same JSON: a server sends it, and for a store it is made here by the same shapes.

use super::output::{as_json, shown};
use super::target::Target;
use crate::http::tasks_shapes::{TaskShape, TasksShape};
use anyhow::bail;
use ensue::Timestamp;
use ensue::jobs::Progress;
use ensue::tasks::{TaskQuery, TaskStatus};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::time::Duration;

/// How long a cancellation waits for the end of what runs.
const CANCEL_WAIT: Duration = Duration::from_secs(2);
/// Later than any task: the end of the year 9998.
pub const FAR: Timestamp = Timestamp::constant(253_370_764_799, 0);

/// Which tasks are meant.
#[derive(Debug)]
pub struct TaskFilter {
    pub source: String,
    pub collection: Option<String>,
    pub status: Option<TaskStatus>,
    pub start: Timestamp,
    pub end: Timestamp,
    pub after: Option<String>,
    pub limit: usize,
}

/// Makes a task, or finds the one that is there: the answer, and whether it is new.
pub async fn start(
    target: &Target,
    source: &str,
    collection: &str,
    priority: Option<u64>,
) -> anyhow::Result<(Value, bool)> {
    match target {
        Target::Server(remote) => {
            let mut query = vec![("source", source.to_owned()), ("collection", collection.to_owned())];
            query.extend(priority.map(|priority| ("priority", priority.to_string())));
            let (status, answer) = remote.post_query(&["tasks"], &query).await?;
            Ok((answer, status == StatusCode::CREATED))
        }
        Target::Store(_) => bail!("a task is run by a server: use --url"),
    }
}

/// Tasks by the time at which they were made.
pub async fn list(target: &Target, filter: &TaskFilter) -> anyhow::Result<Value> {
    let TaskFilter { source, collection, status, start, end, after, limit } = filter;
    match target {
        Target::Server(remote) => {
            let mut query = vec![("source", source.clone()), ("start", start.to_string()), ("end", end.to_string())];
            query.push(("limit", limit.to_string()));
            query.extend(collection.clone().map(|collection| ("collection", collection)));
            query.extend(status.map(|status| ("status", status.as_str().to_owned())));
            query.extend(after.clone().map(|after| ("after", after)));
            remote.get_json(&["tasks"], &query).await
        }
        Target::Store(bus) => {
            let after = match after {
                Some(id) => Some(bus.task_place(id).await?),
                None => None,
            };
            let (source, collection) = (source.clone(), collection.clone());
            let states = status.map(TaskStatus::states).unwrap_or_default();
            let query = TaskQuery { source, collection, states, from: *start, to: *end, after };
            as_json(&TasksShape::from(&bus.tasks(query, *limit).await?))
        }
    }
}

/// One task.
pub async fn show(target: &Target, id: &str) -> anyhow::Result<Value> {
    match target {
        Target::Server(remote) => remote.get_json(&["tasks", id], &[]).await,
        Target::Store(bus) => as_json(&TaskShape::from(&bus.known_task(id).await?)),
    }
}

/// Calls a task off; answers the task as it is then.
pub async fn cancel(target: &Target, id: &str) -> anyhow::Result<Value> {
    match target {
        Target::Server(remote) => remote.ask_json(Method::POST, &["tasks", id, "cancel"], &Value::Null).await,
        Target::Store(bus) => as_json(&TaskShape::from(&bus.cancel_task(id, CANCEL_WAIT).await?)),
    }
}

/// How far a task is, in words; nothing if it has not said so.
pub fn progress(task: &Value) -> String {
    let progress = &task["progress"];
    let Some(done) = progress["done"].as_u64() else { return String::new() };
    let unit = progress["unit"].as_str().map(str::to_owned);
    Progress { done, total: progress["total"].as_u64(), unit, at: Timestamp::UNIX_EPOCH }.to_string()
}

/// A line of a job, as the log of its task has it.
pub fn task_line(line: &Value) -> Value {
    let level = if line["level"] == "error" { "error" } else { "info" };
    json!({ "time": shown(&line["time"]), "message": line["message"], "level": level })
}
