//! How is a collection of a source brought up to date, one task at a time?
//!
//! A task is a [job](crate::jobs) whose handler belongs to a collection. It has the job's lifecycle, lease, attempts and log;
//! what is added here are the names: sources, collections, ids and statuses ([`ensue_core::tasks`]).

pub use ensue_core::tasks::{
    Collection, MANUAL_PRIORITY_ABOVE, NAME_BYTES_MAX, TASK_PREFIX, TASK_PRIORITY, TaskQuery, TaskStatus, check_name,
    check_no_task, check_priority, is_task_id, job_of_task, manual_priority,
};

use crate::Ensue;
use crate::error::Error;
use crate::handlers::{ErasedHandler, Handler, Typed};
use crate::jobs::{Emit, JobOptions};
use ensue_core::handling::{OnExhausted, Retry};
use ensue_core::jobs::{Job, JobLine, JobNumber, Progress, Steer};
use ensue_core::room::Room;
use ensue_core::{EventId, Invalid, Payload, StoreError, Timestamp};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often is looked whether a task has ended.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How many tasks are read at once.
const PAGE: usize = 1_000;

/// How the tasks of a collection are run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CollectionOptions {
    /// Higher runs first; among equals, first come first served.
    pub priority: u64,
    /// An attempt that takes longer is ended and has failed; there is no limit unless told.
    pub timeout: Option<Duration>,
    /// When its tasks are made by themselves, as it was written: a cron expression.
    pub schedule: Option<String>,
    /// The time zone of the schedule, as it was written; UTC unless told.
    pub timezone: Option<String>,
    /// Does its code see to its timeout itself, and end in time?
    pub ends_itself: bool,
}

impl Default for CollectionOptions {
    fn default() -> Self {
        Self { priority: TASK_PRIORITY, timeout: None, schedule: None, timezone: None, ends_itself: false }
    }
}

/// A collection, with what brings it up to date.
#[derive(Clone)]
pub struct CollectionHandler {
    pub(crate) collection: Collection,
    pub(crate) options: CollectionOptions,
    pub(crate) retry: Retry,
    /// None if workers elsewhere claim its tasks.
    pub(crate) code: Option<Arc<dyn ErasedHandler>>,
}

impl CollectionHandler {
    /// The collection of this name of a source, and the code that brings it up to date. One attempt is made.
    pub fn new<P: Payload>(
        source: &str,
        name: &str,
        options: CollectionOptions,
        code: impl Handler<P>,
    ) -> Result<Self, Invalid> {
        let collection = Collection::new(source, name)?;
        Ok(Self { collection, options, retry: Retry::never(), code: Some(Arc::new(Typed::new(code))) })
    }

    /// A collection whose tasks workers elsewhere claim, as jobs of [`Collection::handler`]. `timeout` bounds how long a
    /// claim may be held in all.
    pub fn pull(source: &str, name: &str, options: CollectionOptions) -> Result<Self, Invalid> {
        Ok(Self { collection: Collection::new(source, name)?, options, retry: Retry::never(), code: None })
    }

    /// The same code with other options.
    pub fn with_options(self, options: CollectionOptions) -> Self {
        let ends_itself = self.options.ends_itself;
        Self { options: CollectionOptions { ends_itself, ..options }, ..self }
    }

    /// Do workers elsewhere claim its tasks?
    pub fn is_pull(&self) -> bool {
        self.code.is_none()
    }

    /// How often a task is attempted, and after how long; once unless told.
    pub fn retry(self, retry: Retry) -> Self {
        Self { retry, ..self }
    }

    /// Which collection it is.
    pub fn collection(&self) -> &Collection {
        &self.collection
    }

    /// How its tasks are run.
    pub fn options(&self) -> &CollectionOptions {
        &self.options
    }

    /// The same, as its jobs are run: one at a time, with all that they say.
    pub(crate) fn job_options(&self) -> JobOptions {
        JobOptions {
            retry: self.retry.clone(),
            timeout: self.options.timeout,
            concurrency: Some(1),
            on_exhausted: OnExhausted::Skip,
            logs_always: true,
        }
    }
}

/// A task, as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Which collection it brings up to date.
    pub collection: Collection,
    /// The job that it is.
    pub job: Job,
    /// How far it is, or was when it ended.
    pub progress: Option<Progress>,
}

impl Task {
    /// Its id: `SOURCE_COLLECTION_UUID`.
    pub fn id(&self) -> String {
        self.collection.task_id(self.job.id)
    }

    /// Where it stands.
    pub fn status(&self) -> TaskStatus {
        TaskStatus::of(self.job.state)
    }
}

/// Some of the tasks that were asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskPage {
    /// By the time at which they were made.
    pub tasks: Vec<Task>,
    /// May there be more after the last of them?
    pub has_more: bool,
}

/// What came of wanting a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskStarted {
    /// Its id, or that of the one that waits or runs already.
    pub id: String,
    /// Was it made by this call?
    pub is_new: bool,
}

fn no_task(id: &str) -> Error {
    let shown: String = id.chars().take(300).collect();
    Error::NotFound(format!(
        "there is no task {shown:?}: use the id that POST /tasks answered; it may have been forgotten after its end"
    ))
}

impl Ensue {
    /// Says which collections this process brings up to date, instead of those that it was told before. May be called at any
    /// time: what runs goes on to its end as it was begun. Nothing is changed if it cannot be.
    pub async fn set_collections(&self, collections: Vec<CollectionHandler>) -> Result<(), Error> {
        let mut change = self.rebind();
        change.collections(collections);
        change.apply().await
    }

    /// The collections that this process brings up to date, in the order in which it was told.
    pub fn collections(&self) -> Vec<CollectionHandler> {
        self.inner().handlers.collections()
    }

    /// Makes a task for a collection of this process, unless one waits or runs already: the look and the making are one step.
    /// Its priority is [`MANUAL_PRIORITY_ABOVE`] above that of the collection, so that it runs before those of schedules.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use ensue::tasks::{CollectionHandler, CollectionOptions};
    /// use ensue::{Context, Ensue, Event, HandlerError, Json};
    /// async fn sync(_task: Event<Json>, cx: Context) -> Result<(), HandlerError> {
    ///     cx.log("nothing is new");
    ///     Ok(())
    /// }
    /// let bus = Ensue::memory().await?;
    /// bus.set_collections(vec![CollectionHandler::new("github", "issues", CollectionOptions::default(), sync)?]).await?;
    /// let running = bus.start().await?;
    /// let started = bus.run_task("github", "issues").await?;
    /// bus.drain().await?;
    /// assert_eq!(bus.task(&started.id).await?.map(|task| task.status().as_str()), Some("SUCCESS"));
    /// # running.shutdown(std::time::Duration::from_secs(5)).await?;
    /// # Ok(()) }
    /// ```
    pub async fn run_task(&self, source: &str, collection: &str) -> Result<TaskStarted, Error> {
        let priority = manual_priority(self.known_collection(source, collection)?.options.priority);
        self.run_task_at(source, collection, priority).await
    }

    /// The same with this priority. One that waits or runs already keeps its own.
    pub async fn run_task_at(&self, source: &str, collection: &str, priority: u64) -> Result<TaskStarted, Error> {
        check_priority(priority)?;
        let known = self.known_collection(source, collection)?;
        let collection = &known.collection;
        let job = Emit::to(collection.handler().as_str())
            .priority(priority)
            .attempts_max(known.retry.attempts_max())
            .on_exhausted(OnExhausted::Skip);
        let sent = self.emit(job).await?;
        Ok(TaskStarted { id: collection.task_id(sent.id), is_new: sent.is_new })
    }

    fn known_collection(&self, source: &str, collection: &str) -> Result<CollectionHandler, Error> {
        let mut of_source = self.collections();
        of_source.retain(|known| known.collection.source() == source);
        if of_source.is_empty() {
            let shown: String = source.chars().take(120).collect();
            let detail = format!(
                "there is no source {shown:?} here: write it under `sources` in the config file, and have the server read that again (restart it, or send it SIGHUP)"
            );
            return Err(Error::NotFound(detail));
        }
        let names: Vec<String> = of_source.iter().map(|known| known.collection.name().to_owned()).collect();
        of_source.into_iter().find(|known| known.collection.name() == collection).ok_or_else(|| {
            let shown: String = collection.chars().take(120).collect();
            let has = names.join(", ");
            Error::NotFound(format!("the source {source:?} has no collection {shown:?}; it has: {has}"))
        })
    }

    /// A task, by its id.
    pub async fn task(&self, id: &str) -> Result<Option<Task>, Error> {
        let Some(job) = job_of_task(id) else { return Ok(None) };
        match self.job(job).await?.filter(|job| is_task_id(id, job)) {
            Some(job) => Ok(self.as_tasks(vec![job]).await?.pop()),
            None => Ok(None),
        }
    }

    /// A task that must be there, by its id.
    pub async fn known_task(&self, id: &str) -> Result<Task, Error> {
        self.task(id).await?.ok_or_else(|| no_task(id))
    }

    /// Where a task is in the order of [`Ensue::tasks`], to go on after it; also one that was forgotten since, by the time in
    /// its id.
    pub async fn task_place(&self, id: &str) -> Result<(Timestamp, JobNumber), Error> {
        let job = job_of_task(id).ok_or_else(|| no_task(id))?;
        match self.job(job).await? {
            Some(job) if is_task_id(id, &job) => Ok(place_of(&job)),
            Some(_) => Err(no_task(id)),
            None => EventId(job.0).time().map(|at| (at, job.number())).ok_or_else(|| no_task(id)),
        }
    }

    /// Tasks by the time at which they were made, at most `limit`, and no more than a page has room for. Go on after the last
    /// of them: [`TaskQuery::after`].
    pub async fn tasks(&self, mut query: TaskQuery, limit: usize) -> Result<TaskPage, Error> {
        let mut jobs: Vec<Job> = Vec::new();
        let (mut room, mut is_full) = (Room::of_a_page(), limit == 0);
        let mut wanted = limit.min(PAGE);
        while !is_full {
            let page = self.store().tasks(query.clone(), wanted).await?;
            let Some(last) = page.last() else { break };
            query.after = Some(place_of(last));
            let count = jobs.len();
            // Longer keys are among them, which are no collection's.
            for job in page.into_iter().filter(|job| Collection::of_handler(&job.handler).is_some()) {
                if jobs.len() == limit || !room.take(job.payload.as_str().len()) {
                    is_full = true;
                    break;
                }
                jobs.push(job);
            }
            is_full |= jobs.len() == limit;
            wanted = if jobs.len() == count { PAGE } else { (limit - jobs.len()).min(PAGE) };
        }
        Ok(TaskPage { tasks: self.as_tasks(jobs).await?, has_more: is_full })
    }

    async fn as_tasks(&self, jobs: Vec<Job>) -> Result<Vec<Task>, Error> {
        let mut tasks = Vec::with_capacity(jobs.len());
        for page in jobs.chunks(PAGE) {
            let ids: Vec<_> = page.iter().map(|job| job.id).collect();
            let progress = self.store().progress(&ids).await?;
            let task = |(job, progress): (&Job, Option<Progress>)| {
                Some(Task { collection: Collection::of_handler(&job.handler)?, job: job.clone(), progress })
            };
            tasks.extend(page.iter().zip(progress).filter_map(task));
        }
        Ok(tasks)
    }

    /// What a task said, after this line.
    pub async fn task_lines(&self, task: &Task, after: u64, limit: usize) -> Result<Vec<JobLine>, Error> {
        self.job_lines(task.job.id, after, limit).await
    }

    /// Calls a task off, and waits this long at most for its end: one that runs is told to stop, and is ended if it does not.
    /// Answers the task as it is then.
    pub async fn cancel_task(&self, id: &str, wait_max: Duration) -> Result<Task, Error> {
        let mut task = self.known_task(id).await?;
        let told = |error: Error| match error {
            Error::Store(StoreError::Conflict(why)) => {
                // The reason is about the job; who asks knows the task.
                let job = format!("job {}", task.job.id);
                Error::Store(StoreError::Conflict(why.replace(&job, &format!("task {id}"))))
            }
            error => error,
        };
        self.steer_job(task.job.id, Steer::Cancel).await.map_err(told)?;
        let deadline = Instant::now() + wait_max;
        loop {
            task = self.known_task(id).await?;
            if task.status().is_final() || Instant::now() >= deadline {
                return Ok(task);
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}

/// Where a task is in the order of [`Ensue::tasks`].
pub fn place_of(job: &Job) -> (Timestamp, JobNumber) {
    (job.enqueued_at, job.id.number())
}
