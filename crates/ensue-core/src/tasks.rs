//! What is a task?
//!
//! A job that brings one collection of a source up to date, seen with the names and statuses of that world. Its handler has
//! the key `task.SOURCE.COLLECTION`; its id is `SOURCE_COLLECTION_UUID`, of which the last part is the job's. At most one
//! task of a collection is live: all of them have the same `unique_key`, whoever sends them. A key of that form says so alone: who
//! sends need not know the collection.

use crate::error::Invalid;
use crate::jobs::{Job, JobId, JobLine, JobNumber, JobState, NewJob};
use crate::key::GroupName;
use crate::positions::Level;
use crate::text::{is_unprintable, quoted};
use jiff::Timestamp;

/// What the keys of all handlers of tasks begin with.
pub const TASK_PREFIX: &str = "task.";
/// The longest name of a source or a collection, in bytes.
pub const NAME_BYTES_MAX: usize = 100;
/// The priority of a task unless told.
pub const TASK_PRIORITY: u64 = 100;
/// So much is the priority of a task that is made by hand above that of its collection.
pub const MANUAL_PRIORITY_ABOVE: u64 = 1_000;

/// The default priority of a task that is made by hand: a person waits for it, so it runs before those of schedules.
pub fn manual_priority(of_collection: u64) -> u64 {
    of_collection.saturating_add(MANUAL_PRIORITY_ABOVE)
}

/// What the log of a task says last that was called off.
pub const CALLED_OFF: &str = "it was called off";

/// Is a job of this handler kept as a task? Its key begins as those of tasks do.
pub fn has_task_prefix(handler: &GroupName) -> bool {
    handler.as_str().starts_with(TASK_PREFIX)
}

/// A collection of a source.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Collection {
    source: String,
    name: String,
}

/// Refuses what cannot be the name of a source or a collection.
pub fn check_name(field: &str, name: &str) -> Result<(), Invalid> {
    if name.is_empty() {
        return Err(Invalid::new(field, "is empty; write a name such as `github`"));
    }
    if name.len() > NAME_BYTES_MAX {
        let reason = format!("has {} bytes; at most {NAME_BYTES_MAX} are allowed: shorten it", name.len());
        return Err(Invalid::new(field, reason));
    }
    match name.chars().find(|c| !(c.is_alphanumeric() && !is_unprintable(*c) || matches!(c, '_' | '-'))) {
        Some(c) => Err(Invalid::new(field, format!("may not contain {}; use letters, digits, _ and -", quoted(c)))),
        None => Ok(()),
    }
}

impl Collection {
    /// The collection of a source, by their names.
    pub fn new(source: &str, name: &str) -> Result<Self, Invalid> {
        check_name("source", source)?;
        check_name("collection", name)?;
        Ok(Self { source: source.to_owned(), name: name.to_owned() })
    }

    /// The collection that a handler is for, if it is one of tasks.
    pub fn of_handler(handler: &GroupName) -> Option<Self> {
        let (source, name) = handler.as_str().strip_prefix(TASK_PREFIX)?.split_once('.')?;
        Self::new(source, name).ok()
    }

    /// The name of its source.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Its own name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `SOURCE.COLLECTION`: what its schedule is called.
    pub fn dotted(&self) -> String {
        format!("{}.{}", self.source, self.name)
    }

    /// The key of the handler of its tasks.
    pub fn handler(&self) -> GroupName {
        GroupName::stored(&format!("{TASK_PREFIX}{}.{}", self.source, self.name))
    }

    /// The `unique_key` of all its tasks, whoever makes them: at most one is live.
    pub fn unique_key(&self) -> String {
        format!("schedule:{}", self.dotted())
    }

    /// The id of the task that is this job.
    pub fn task_id(&self, job: JobId) -> String {
        format!("{}_{}_{job}", self.source, self.name)
    }
}

/// A job as it is sent. One for a collection is one of its tasks: it has the key of all of them, and unless told (0 is no task's) the
/// priority of the collection where that is known, or else that of tasks.
pub fn as_task(mut job: NewJob, priority: Option<u64>) -> NewJob {
    if let Some(collection) = Collection::of_handler(&job.handler) {
        job.unique_key = Some(collection.unique_key());
        if job.priority == 0 {
            job.priority = priority.unwrap_or(TASK_PRIORITY);
        }
    }
    job
}

/// The last line of a task that is called off while it waits for its next attempt. One that has not begun has said nothing.
pub fn called_off_line(job: &Job, at: Timestamp) -> Option<JobLine> {
    let is_meant = job.started_at.is_some() && Collection::of_handler(&job.handler).is_some();
    let message = || CALLED_OFF.to_owned();
    is_meant.then(|| JobLine { line: 0, attempt: job.attempts, at, level: Level::Info, message: message() })
}

/// Refuses a priority that no task has.
pub fn check_priority(priority: u64) -> Result<(), Invalid> {
    match priority {
        0 => Err(Invalid::new("priority", "is 0; write a positive number, or leave it out for 100")),
        _ => Ok(()),
    }
}

/// Refuses the key of a collection's tasks for a handler that is none.
pub fn check_no_task(field: &str, key: &GroupName) -> Result<(), Invalid> {
    let Some(collection) = Collection::of_handler(key) else { return Ok(()) };
    let reason = format!(
        "makes the key `{key}`, which the tasks of a collection `{}` have: choose another name, such as `{}.mine`",
        collection.dotted(),
        collection.name()
    );
    Err(Invalid::new(field, reason))
}

/// The job that the id of a task ends with. Whether it is a task of that name is for who finds the job:
/// [`is_task_id`].
pub fn job_of_task(id: &str) -> Option<JobId> {
    let (_, last) = id.rsplit_once('_')?;
    // An id is written in one way.
    JobId::parse(last).filter(|job| job.to_string() == last)
}

/// Is this the id of the task that a job is?
pub fn is_task_id(id: &str, job: &Job) -> bool {
    Collection::of_handler(&job.handler).is_some_and(|collection| collection.task_id(job.id) == id)
}

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TaskStatus {
    /// It waits: for a worker, its next attempt, or what holds it.
    Scheduled,
    /// A worker has it.
    Running,
    /// It failed, and is not tried again.
    Failed,
    /// It is done.
    Success,
    /// Somebody called it off.
    Canceled,
}

impl TaskStatus {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Scheduled, Self::Running, Self::Failed, Self::Success, Self::Canceled];

    /// Of a job in this state.
    pub fn of(state: JobState) -> Self {
        match state {
            JobState::Scheduled | JobState::Available | JobState::Parked | JobState::Retrying => Self::Scheduled,
            JobState::Running => Self::Running,
            JobState::Dead => Self::Failed,
            JobState::Succeeded => Self::Success,
            JobState::Cancelled => Self::Canceled,
        }
    }

    /// The states of a job that are this status.
    pub fn states(self) -> Vec<JobState> {
        JobState::ALL.into_iter().filter(|state| Self::of(*state) == self).collect()
    }

    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "SCHEDULED",
            Self::Running => "RUNNING",
            Self::Failed => "FAILED",
            Self::Success => "SUCCESS",
            Self::Canceled => "CANCELED",
        }
    }

    /// From its word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == word)
    }

    /// Is it over?
    pub fn is_final(self) -> bool {
        match self {
            Self::Scheduled | Self::Running => false,
            Self::Failed | Self::Success | Self::Canceled => true,
        }
    }
}

/// Which tasks to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskQuery {
    /// Of this source.
    pub source: String,
    /// Of this collection of it; of all if there is none.
    pub collection: Option<String>,
    /// In one of these states; in any if it is empty.
    pub states: Vec<JobState>,
    /// Made at this time or later.
    pub from: Timestamp,
    /// Made at this time or earlier.
    pub to: Timestamp,
    /// After the task that was made at this time and has this number.
    pub after: Option<(Timestamp, JobNumber)>,
}

impl TaskQuery {
    /// The first and the last key of a handler that is meant, as bytes compare: keys between them are all of the source.
    pub fn handlers(&self) -> (String, String) {
        match &self.collection {
            Some(collection) => {
                let key = format!("{TASK_PREFIX}{}.{collection}", self.source);
                (key.clone(), key)
            }
            // A slash comes right after the dot, and is in no name.
            None => (format!("{TASK_PREFIX}{}.", self.source), format!("{TASK_PREFIX}{}/", self.source)),
        }
    }

    /// Is it one of these?
    pub fn matches(&self, job: &Job) -> bool {
        let (first, last) = self.handlers();
        let place = (job.enqueued_at, job.id.number());
        (first.as_str()..=last.as_str()).contains(&job.handler.as_str())
            && (self.from..=self.to).contains(&job.enqueued_at)
            && (self.states.is_empty() || self.states.contains(&job.state))
            && self.after.is_none_or(|after| place > after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_leads_to_its_job_whatever_the_names_are() {
        let job = JobId::new(Timestamp::from_second(1_763_200_000).unwrap(), 7, 42);
        for (source, name) in [("github", "issues"), ("a_b", "c_d"), ("_", "-"), ("ü", "7")] {
            let collection = Collection::new(source, name).unwrap();
            assert_eq!(Collection::of_handler(&collection.handler()), Some(collection.clone()));
            assert_eq!(job_of_task(&collection.task_id(job)), Some(job));
        }
        let upper = format!("a_b_{}", job.to_string().to_uppercase());
        for bad in ["", "a_b", "a_b_", &job.to_string(), &upper, &format!("a_b_{}", job.0.simple())] {
            assert_eq!(job_of_task(bad), None, "{bad}");
        }
    }

    #[test]
    fn names_that_could_be_taken_for_others_are_refused() {
        for bad in ["", "a.b", "a/b", "a b", "a\u{7}", &"x".repeat(NAME_BYTES_MAX + 1)] {
            assert_eq!(Collection::new(bad, "c").unwrap_err().field, "source", "{bad:?}");
            assert_eq!(Collection::new("s", bad).unwrap_err().field, "collection", "{bad:?}");
        }
        for other in ["task", "task.a", "task.a.b.c", "tasks.a.b", "a.task.b"] {
            assert_eq!(Collection::of_handler(&GroupName::stored(other)), None, "{other}");
        }
    }

    #[test]
    fn a_job_for_a_collection_is_one_of_its_tasks_whoever_sends_it() {
        let job = |handler: &str| NewJob { unique_key: Some("mine".into()), ..NewJob::new(GroupName::stored(handler)) };
        for (priority, known, sent) in [(0, None, 100), (0, Some(7), 7), (9, None, 9), (9, Some(7), 9)] {
            let task = as_task(NewJob { priority, ..job("task.s.c") }, known);
            assert_eq!((task.unique_key.as_deref(), task.priority), (Some("schedule:s.c"), sent));
        }
        for other in ["task.s", "task.s.c.d", "mail.send"] {
            assert_eq!(as_task(job(other), Some(7)), job(other));
            assert_eq!(check_no_task("name", &GroupName::stored(other)), Ok(()));
        }
        let refused = check_no_task("name", &GroupName::stored("task.s.c")).unwrap_err();
        assert!(refused.field == "name" && refused.reason.contains("`s.c`"), "{refused}");
        assert!(check_priority(1).is_ok() && check_priority(0).is_err());
    }

    #[test]
    fn every_state_is_a_status() {
        let all: usize = TaskStatus::ALL.into_iter().map(|status| status.states().len()).sum();
        assert_eq!(all, JobState::ALL.len());
        for status in TaskStatus::ALL {
            assert_eq!(TaskStatus::parse(status.as_str()), Some(status));
            assert!(status.states().iter().all(|state| state.is_final() == status.is_final()));
        }
    }
}
