//! When are the sync handlers done with what was published?
//!
//! A handler of this process says so itself. What another process runs, and what was published before, nobody tells of: that
//! is looked up in the store, seldom at first and ever more seldom, and for the handlers alone that are waited for.

use super::first_turn::in_handler;
use super::progress::Progress;
use super::start_and_stop::Deliveries;
use crate::Ensue;
use crate::error::Error;
use ensue_core::handling::Standing;
use ensue_core::{Appended, Entry, Event, GroupName, NewEvent, Seq, Timestamp};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// When what another process runs is first looked up, and how long it takes at most until it is looked up again.
const LOOK_FIRST: Duration = Duration::from_millis(50);
const LOOK_AGAIN_MAX: Duration = Duration::from_millis(500);
/// When what this process runs is looked up all the same: its slot may have moved to another.
const LOOK_HERE_AFTER: Duration = Duration::from_secs(1);

/// What a publish that waited for its sync handlers answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waited {
    /// The event, which is on disk either way.
    pub appended: Appended,
    /// The sync handlers that were not done in time. They go on, durably.
    pub pending: Vec<GroupName>,
}

impl Ensue {
    /// Publishes an event and waits until the sync handlers of this process that want it are done, whichever process runs
    /// them, at most this long. An event that was published before (by its key) is waited for as well. From inside a
    /// handler, and for an event that is delayed, nothing is waited for.
    pub async fn publish_and_wait(&self, event: NewEvent, wait_max: Duration) -> Result<Waited, Error> {
        let entry = event.check()?;
        let answers = self.append(vec![entry.clone()]).await?;
        let pending = self.wait_for_sync(&[entry], &answers, wait_max).await;
        Ok(Waited { appended: answers[0], pending })
    }

    /// Waits until the sync handlers of this process that want these events are done with them, as
    /// [`publish_and_wait`](Self::publish_and_wait) does; answers which were not in time, by key.
    pub async fn wait_for_sync(&self, entries: &[Entry], answers: &[Appended], wait_max: Duration) -> Vec<GroupName> {
        let deliveries = self.inner().deliveries().clone();
        let Some(deliveries) = deliveries.filter(|_| !in_handler()) else { return Vec::new() };
        let deadline = Instant::now() + wait_max;
        let mut open = Open::of(&deliveries, entries, answers).await;
        let mut told: FuturesUnordered<_> = (open.waits.iter().enumerate())
            .map(|(at, wait)| {
                let done = wait.progress.when_done(wait.seq);
                async move { done.await.is_ok().then_some(at) }
            })
            .collect();
        let (mut look_at, mut pause) = (Instant::now() + open.look_first(), LOOK_FIRST);
        while !open.left.is_empty() && Instant::now() < deadline {
            tokio::select! {
                biased;
                Some(done) = told.next() => {
                    done.map(|at| open.left.remove(&at));
                }
                () = tokio::time::sleep_until(look_at.min(deadline)) => {
                    self.look_up(&mut open, deadline).await;
                    look_at = Instant::now() + pause;
                    pause = (pause * 2).min(LOOK_AGAIN_MAX);
                }
            }
        }
        let late: BTreeSet<&GroupName> = open.left.iter().map(|at| &open.waits[*at].handler).collect();
        late.into_iter().cloned().collect()
    }

    /// Looks up what is still open, until the deadline. Where the store does not answer, it stays open.
    async fn look_up(&self, open: &mut Open, deadline: Instant) {
        let mut by_seq: BTreeMap<Seq, Vec<usize>> = BTreeMap::new();
        open.left.iter().for_each(|at| by_seq.entry(open.waits[*at].seq).or_default().push(*at));
        for (seq, waits) in by_seq {
            let handlers: Vec<GroupName> = waits.iter().map(|at| open.waits[*at].handler.clone()).collect();
            match tokio::time::timeout_at(deadline, self.deliveries_to(seq, Some(&handlers))).await {
                Ok(Ok(reports)) => {
                    let reports = reports.unwrap_or_default();
                    let has_ended = |wait: &Wait| {
                        let report = reports.iter().find(|report| report.handler == wait.handler);
                        report.is_some_and(|report| wait.has_ended(report.verdict.standing))
                    };
                    waits.iter().filter(|at| has_ended(&open.waits[**at])).for_each(|at| {
                        open.left.remove(at);
                    });
                }
                Ok(Err(error)) => tracing::debug!(%error, seq, "it cannot be looked up whether handlers are done"),
                Err(_late) => return,
            }
        }
    }
}

/// One handler and one event that it wants.
struct Wait {
    handler: GroupName,
    seq: Seq,
    /// Should this process run it?
    is_here: bool,
    /// Was it published before?
    is_repeated: bool,
    progress: Arc<Progress>,
}

impl Wait {
    /// Is there nothing more to wait for? A handler that began after the event, or wants something else since, had its group made
    /// anew or was changed meanwhile: it has not run what was just published. What was published before may be older than it.
    fn has_ended(&self, standing: Standing) -> bool {
        match standing {
            Standing::BeforeStart | Standing::Passed | Standing::NotMatched => self.is_repeated,
            standing => !standing.is_open(),
        }
    }
}

/// What is waited for. Whoever stops waiting leaves nothing behind.
struct Open {
    waits: Vec<Wait>,
    left: BTreeSet<usize>,
}

impl Open {
    async fn of(deliveries: &Deliveries, entries: &[Entry], answers: &[Appended]) -> Self {
        let mut waits = Vec::new();
        for handler in deliveries.sync_handlers() {
            for (entry, answer) in entries.iter().zip(answers) {
                let Some(event) = logged(entry, answer).map(Arc::new) else { continue };
                let wants = handler.spec.wish(handler.subscription).wants(&event).await;
                if wants.is_ok_and(|answer| answer.unwrap_or(false)) {
                    waits.push(Wait {
                        handler: handler.spec.key.clone(),
                        seq: event.seq,
                        is_here: deliveries.is_here(&handler, &event),
                        is_repeated: answer.repeated,
                        progress: handler.progress.clone(),
                    });
                }
            }
        }
        let left = (0..waits.len()).collect();
        Self { waits, left }
    }

    /// How long until the store is first asked.
    fn look_first(&self) -> Duration {
        let wait = |wait: &Wait| match (wait.is_repeated, wait.is_here) {
            (true, _) => Duration::ZERO,
            (false, false) => LOOK_FIRST,
            (false, true) => LOOK_HERE_AFTER,
        };
        self.waits.iter().map(wait).min().unwrap_or_default()
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.waits.iter().for_each(|wait| wait.progress.forget(wait.seq));
    }
}

/// The event as it is in the log, all but its times, which are about now.
fn logged(entry: &Entry, answer: &Appended) -> Option<Event> {
    let now = Timestamp::now();
    Some(Event {
        seq: answer.seq?,
        prev: answer.prev,
        id: answer.id,
        topic: entry.topic.clone(),
        object: entry.object.clone(),
        payload: entry.payload.clone(),
        metadata: entry.metadata.clone(),
        occurred_at: entry.occurred_at.unwrap_or(now),
        recorded_at: now,
        to: entry.to,
    })
}
