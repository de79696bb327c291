//! Health of the work on the store: which kind of it fails, and for how long (H46).
//!
//! [`Store::ready`](ensue_core::Store::ready) shows that the store answers, not that it can be written. Work is failing if
//! no call has succeeded for [`FAILING_AFTER`]. Refusals of invalid input are ignored. `/ready` reports both.

use ensue_core::StoreError;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Duration of failure after which work is reported as failing.
pub(crate) const FAILING_AFTER: Duration = Duration::from_secs(4);
/// Duration without any call after which past failures no longer count: nobody knows whether the next one would fail.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(30);

/// A kind of work on the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Appending events to the log.
    Publish,
    /// Reading the end of the log, for streams and handlers.
    Read,
    /// Moving events from the outbox, and delayed events that are due, into the log.
    Release,
    /// Writing cursors and lanes of handlers.
    Checkpoint,
    /// Running jobs.
    Jobs,
}

impl Work {
    const ALL: [Self; 5] = [Self::Publish, Self::Read, Self::Release, Self::Checkpoint, Self::Jobs];

    /// A phrase for people, such as `publishing`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Publish => "publishing",
            Self::Read => "reading the log",
            Self::Release => "moving the outbox into the log",
            Self::Checkpoint => "writing checkpoints",
            Self::Jobs => "running jobs",
        }
    }
}

/// Work that fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkFailure {
    /// What fails.
    pub work: Work,
    /// For how long.
    pub lasting: Duration,
    /// The last error; none if no call has ended.
    pub error: Option<StoreError>,
}

#[derive(Debug, Default)]
pub(crate) struct Health([Mutex<Record>; Work::ALL.len()]);

/// What is known of one kind of work.
#[derive(Debug, Default)]
struct Record {
    /// Calls that have not ended.
    calls: usize,
    /// Since when none of them has ended.
    waiting_since: Option<Instant>,
    failure: Option<Failure>,
    /// Since when the task that does it has ended by a panic.
    ended_since: Option<Instant>,
}

#[derive(Debug)]
struct Failure {
    first: Instant,
    last: Instant,
    error: StoreError,
}

/// A call under way; it ends when this is dropped.
struct Call<'h>(&'h Mutex<Record>);

impl<'h> Call<'h> {
    fn begin(record: &'h Mutex<Record>) -> Self {
        let mut begun = locked(record);
        begun.calls += 1;
        begun.waiting_since.get_or_insert_with(Instant::now);
        Self(record)
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let mut record = locked(self.0);
        record.calls -= 1;
        record.waiting_since = (record.calls > 0).then(Instant::now);
    }
}

fn locked(record: &Mutex<Record>) -> MutexGuard<'_, Record> {
    record.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Health {
    /// Waits for a call, and notes how it ends. A call that is given up ends without a note.
    pub async fn watch<T>(
        &self,
        work: Work,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let record = &self.0[work as usize];
        let under_way = Call::begin(record);
        let result = call.await;
        drop(under_way);
        locked(record).note(result.as_ref().err());
        result
    }

    /// Notes that the task that does this work has ended by a panic, for good.
    pub fn end(&self, work: Work) {
        locked(&self.0[work as usize]).ended_since.get_or_insert_with(Instant::now);
    }

    /// The work that has failed for longest, if any has failed for long enough.
    pub fn failing(&self) -> Option<WorkFailure> {
        let now = Instant::now();
        let failing = Work::ALL.into_iter().filter_map(|work| locked(&self.0[work as usize]).failing(work, now));
        failing.max_by_key(|failing| failing.lasting)
    }
}

impl Record {
    fn note(&mut self, error: Option<&StoreError>) {
        let now = Instant::now();
        match (error, &mut self.failure) {
            (None, failure) => *failure = None,
            (Some(error), _) if is_refusal(error) => {}
            (Some(error), Some(failure)) if now.duration_since(failure.last) < FORGOTTEN_AFTER => {
                failure.last = now;
                failure.error = error.clone();
            }
            (Some(error), failure) => *failure = Some(Failure { first: now, last: now, error: error.clone() }),
        }
    }

    fn failing(&self, work: Work, now: Instant) -> Option<WorkFailure> {
        if let Some(since) = self.ended_since {
            let error = Some(StoreError::Engine("its task panicked; restart the process".into()));
            return Some(WorkFailure { work, lasting: now.duration_since(since), error });
        }
        let waited =
            self.waiting_since.map(|since| now.duration_since(since)).filter(|waited| *waited >= FAILING_AFTER);
        let failure = self.failure.as_ref().filter(|failure| {
            // A single failure may be that of a single event.
            failure.last.duration_since(failure.first) >= FAILING_AFTER
                && (waited.is_some() || now.duration_since(failure.last) < FORGOTTEN_AFTER)
        });
        let lasting = failure.map(|failure| now.duration_since(failure.first)).or(waited)?;
        Some(WorkFailure { work, lasting, error: failure.map(|failure| failure.error.clone()) })
    }
}

/// Whether the error is about the call, and says nothing about the store.
fn is_refusal(error: &StoreError) -> bool {
    match error {
        StoreError::KeyConflict { .. }
        | StoreError::Conflict(_)
        | StoreError::Invalid(_)
        | StoreError::Overloaded(_)
        | StoreError::Unsupported(_) => true,
        StoreError::Full(_)
        | StoreError::Unavailable(_)
        | StoreError::InDoubt(_)
        | StoreError::Closed
        | StoreError::Locked(_)
        | StoreError::Schema(_)
        | StoreError::Stopped(_)
        | StoreError::Engine(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::{pending, ready};

    fn unavailable() -> StoreError {
        StoreError::Unavailable("away".into())
    }

    async fn fail(health: &Health, error: StoreError) {
        let _error = health.watch(Work::Publish, ready(Err::<(), _>(error))).await;
    }

    async fn pass(time: Duration) {
        tokio::time::advance(time).await;
    }

    #[tokio::test(start_paused = true)]
    async fn work_that_fails_for_seconds_is_reported_until_it_succeeds() {
        let health = Health::default();
        fail(&health, unavailable()).await;
        pass(FAILING_AFTER * 2).await;
        assert_eq!(health.failing(), None, "one failure is not a state");
        fail(&health, unavailable()).await;
        let failing = health.failing().unwrap();
        assert_eq!((failing.work, failing.lasting), (Work::Publish, FAILING_AFTER * 2));
        assert_eq!(failing.error, Some(unavailable()));
        health.watch(Work::Publish, ready(Ok(()))).await.unwrap();
        assert_eq!(health.failing(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn work_whose_task_has_panicked_is_failing_for_good() {
        let health = Health::default();
        health.end(Work::Jobs);
        pass(FORGOTTEN_AFTER * 2).await;
        let failing = health.failing().unwrap();
        assert_eq!((failing.work, failing.lasting), (Work::Jobs, FORGOTTEN_AFTER * 2));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_are_forgotten_when_nobody_tries_any_more() {
        let health = Health::default();
        fail(&health, unavailable()).await;
        pass(FAILING_AFTER).await;
        fail(&health, unavailable()).await;
        pass(FORGOTTEN_AFTER).await;
        assert_eq!(health.failing(), None);
        fail(&health, unavailable()).await;
        assert_eq!(health.failing(), None, "it begins again");
    }

    #[tokio::test(start_paused = true)]
    async fn refused_events_do_not_count_as_failures() {
        let health = Health::default();
        for _ in 0..10 {
            fail(&health, StoreError::Conflict("taken".into())).await;
            pass(FAILING_AFTER).await;
        }
        assert_eq!(health.failing(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_never_end_are_reported_until_they_are_given_up() {
        let health = Health::default();
        let hanging = tokio::time::timeout(FAILING_AFTER * 2, health.watch(Work::Read, pending::<Result<(), _>>()));
        let look = async {
            pass(FAILING_AFTER - Duration::from_millis(1)).await;
            assert_eq!(health.failing(), None);
            pass(Duration::from_millis(1)).await;
            health.failing()
        };
        let (ended, seen) = tokio::join!(hanging, look);
        assert!(ended.is_err());
        assert_eq!(seen, Some(WorkFailure { work: Work::Read, lasting: FAILING_AFTER, error: None }));
        assert_eq!(health.failing(), None);
    }
}
