//! What the tests of jobs share.

use ensue::jobs::{Job, JobId, JobState};
use ensue::rules::{NewRule, RuleKind, Scope};
use ensue::{Context, Emit, Ensue, Event, HandlerError, JobOptions, Retry};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// No test takes so long, unless what it waits for never comes.
pub const LONG: Duration = Duration::from_secs(180);
/// After this a condition is not waited for any more. Tens of thousands of jobs on a machine that others use take their time.
const PATIENCE: Duration = Duration::from_secs(300);

/// What handlers were given, in order.
#[derive(Clone, Default)]
pub struct Seen(Arc<Mutex<Vec<String>>>);

impl Seen {
    pub fn add(&self, what: impl Into<String>) {
        self.0.lock().unwrap().push(what.into());
    }

    pub fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Registers a handler that notes the payloads it is given.
pub fn noting(bus: &Ensue, key: &str) -> Seen {
    let seen = Seen::default();
    let noted = seen.clone();
    bus.register(
        key,
        with(noted, async |noted, job: Event, _: Context| {
            noted.add(job.payload.as_str());
            Ok(())
        }),
    )
    .unwrap();
    seen
}

/// One attempt at a time, and tried again at once.
pub fn at_once(attempts_max: u32) -> JobOptions {
    let retry = Retry::delays(vec![Duration::ZERO; attempts_max as usize - 1]);
    JobOptions { retry, concurrency: Some(1), ..JobOptions::default() }
}

pub async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let looked = tokio::time::timeout(PATIENCE, async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    looked.await.unwrap_or_else(|_| panic!("it never came about: {what}"))
}

pub async fn until_state(bus: &Ensue, id: JobId, state: JobState) -> Job {
    until(state.as_str(), async || bus.job(id).await.unwrap().filter(|job| job.state == state)).await
}

pub async fn sent(bus: &Ensue, emit: Emit) -> JobId {
    bus.emit(emit).await.unwrap().id
}

pub fn rule(kind: RuleKind, scope: &str) -> NewRule {
    let scope = Scope::parse(scope).unwrap();
    NewRule { kind, scope, reason: Some("because".into()), author: "ann".into(), expires_at: None }
}

pub fn failed<T>(why: &str) -> Result<T, HandlerError> {
    Err(HandlerError::failed(why))
}

/// A handler that shares something.
pub fn with<T, O, F, Fut>(shared: T, run: F) -> impl Fn(Event, Context) -> Fut + Send + Sync + 'static
where
    T: Clone + Send + Sync + 'static,
    F: Fn(T, Event, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<O, HandlerError>> + Send,
{
    move |event, cx| run(shared.clone(), event, cx)
}
