//! What do answers about tasks look like?

use ensue::jobs::{JobLine, Progress};
use ensue::tasks::{Task, TaskPage, TaskStarted};
use ensue::{Level, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

/// A task: a job that brings one collection of a source up to date.
#[derive(Serialize, ToSchema)]
#[schema(as = Task)]
pub(crate) struct TaskShape<'a> {
    /// `SOURCE_COLLECTION_UUID`; the last part is the id of the job that it is.
    id: String,
    source: &'a str,
    collection: &'a str,
    /// Higher runs first, first come first served inside. Any 64-bit number: read it as an integer.
    priority: u64,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When it first began; an empty string if it has not.
    started_at: String,
    /// When it was over; an empty string if it is not.
    finished_at: String,
    /// `SCHEDULED` (it waits: for a worker, for its next attempt, or for what holds it), `RUNNING`, `FAILED`, `SUCCESS` or
    /// `CANCELED`.
    status: &'static str,
    /// How often it was begun.
    attempts: u32,
    /// How often it is attempted.
    attempts_max: u32,
    /// What went wrong last, or why it was called off.
    #[schema(required = true)]
    error: Option<&'a str>,
    /// How far it is, or was when it ended.
    #[schema(required = true)]
    progress: Option<ProgressShape<'a>>,
}

/// A time, or nothing.
fn text(time: Option<Timestamp>) -> String {
    time.map_or_else(String::new, |time| time.to_string())
}

impl<'a> From<&'a Task> for TaskShape<'a> {
    fn from(task: &'a Task) -> Self {
        let Task { collection, job, progress } = task;
        Self {
            id: task.id(),
            source: collection.source(),
            collection: collection.name(),
            priority: job.priority,
            created_at: job.enqueued_at,
            started_at: text(job.started_at),
            finished_at: text(job.finished_at),
            status: task.status().as_str(),
            attempts: job.attempts,
            attempts_max: job.attempts_max,
            error: job.errors.last().map(|error| error.error.as_str()),
            progress: progress.as_ref().map(ProgressShape::from),
        }
    }
}

/// How far a job is.
#[derive(Serialize, ToSchema)]
#[schema(as = Progress)]
pub(crate) struct ProgressShape<'a> {
    /// So much is done.
    done: u64,
    /// Of so much; null if that is not known.
    #[schema(required = true)]
    total: Option<u64>,
    /// What is counted, such as `rows`.
    #[schema(required = true)]
    unit: Option<&'a str>,
    /// When it was said.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
}

impl<'a> From<&'a Progress> for ProgressShape<'a> {
    fn from(Progress { done, total, unit, at }: &'a Progress) -> Self {
        Self { done: *done, total: *total, unit: unit.as_deref(), at: *at }
    }
}

/// Tasks, by the time at which they were made.
#[derive(Serialize, ToSchema)]
#[schema(as = Tasks)]
pub(crate) struct TasksShape<'a> {
    tasks: Vec<TaskShape<'a>>,
    /// The `after` of the next page; null if there is none.
    #[schema(required = true)]
    next: Option<String>,
}

impl<'a> From<&'a TaskPage> for TasksShape<'a> {
    fn from(TaskPage { tasks, has_more }: &'a TaskPage) -> Self {
        let next = tasks.last().filter(|_| *has_more).map(Task::id);
        Self { tasks: tasks.iter().map(TaskShape::from).collect(), next }
    }
}

/// A task that was wanted.
#[derive(Serialize, ToSchema)]
#[schema(as = StartedTask)]
pub(crate) struct TaskStartedShape<'a> {
    task_id: &'a str,
}

impl<'a> From<&'a TaskStarted> for TaskStartedShape<'a> {
    fn from(started: &'a TaskStarted) -> Self {
        Self { task_id: &started.id }
    }
}

/// What a task said.
#[derive(Serialize, ToSchema)]
#[schema(as = TaskLogs)]
pub(crate) struct TaskLogsShape<'a> {
    /// In the order in which it was said. Two that are equal are two.
    pub logs: Vec<TaskLineShape<'a>>,
}

/// A line.
#[derive(Serialize, ToSchema)]
#[schema(as = TaskLine)]
pub(crate) struct TaskLineShape<'a> {
    #[schema(value_type = String, format = DateTime)]
    time: Timestamp,
    message: &'a str,
    /// `info` or `error`.
    level: &'static str,
}

impl<'a> From<&'a JobLine> for TaskLineShape<'a> {
    fn from(line: &'a JobLine) -> Self {
        let level = match line.level {
            Level::Debug | Level::Info | Level::Warn => "info",
            Level::Error => "error",
        };
        Self { time: line.at, message: &line.message, level }
    }
}
