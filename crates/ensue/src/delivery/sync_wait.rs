//! The wait of a publish for its sync handlers: until each is done, has failed for good, or waits for a person.
//!
//! A handler of this process says so itself. What another process runs, and what was published before, nobody tells of: that
//! is looked up in the store, seldom at first and ever more seldom, and for the handlers alone that are waited for.

use super::first_turn::in_handler;
use super::progress::Progress;
use super::start_and_stop::Deliveries;
use crate::Ensue;
use crate::error::Error;
use ensue_core::handling::{Standing, SyncOutcome};
use ensue_core::{Appended, Entry, Event, GroupName, NewEvent, ObjectKey, Seq, Timestamp};
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

/// The answer of a publish that waited for its sync handlers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waited {
    /// The event, which is on disk either way.
    pub appended: Appended,
    /// The sync handlers that want it, by key.
    pub handlers: Vec<SyncReport>,
}

/// The outcome of one sync handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncReport {
    /// Its key.
    pub handler: GroupName,
    /// How far it is. Of several events the outcome with the highest severity.
    pub outcome: SyncOutcome,
    /// The event that the outcome is about, unless all are done.
    pub seq: Option<Seq>,
}

impl SyncReport {
    /// A handler of which nothing more is known.
    pub fn pending(handler: GroupName) -> Self {
        Self { handler, outcome: SyncOutcome::Pending, seq: None }
    }

    /// The outcome of all handlers together: the one with the highest severity.
    pub fn overall(reports: &[Self]) -> &'static str {
        let outcomes = reports.iter().map(|report| &report.outcome);
        outcomes.max_by_key(|outcome| outcome.severity()).unwrap_or(&SyncOutcome::Done).as_str()
    }
}

impl Ensue {
    /// Publishes an event and waits for the sync handlers of this process that want it, whichever process runs them, at most
    /// this long. It waits until each is done, has failed for good or is blocked until a person acts. An event that was
    /// published before (by its key) is waited for as well. From inside a handler, and for an event that is delayed, nothing
    /// is waited for.
    pub async fn publish_and_wait(&self, event: NewEvent, wait_max: Duration) -> Result<Waited, Error> {
        let entry = event.check()?;
        let answers = self.append(vec![entry.clone()]).await?;
        let handlers = self.wait_for_sync(&[entry], &answers, wait_max).await;
        Ok(Waited { appended: answers[0], handlers })
    }

    /// Waits for the sync handlers of this process that want these events, as
    /// [`publish_and_wait`](Self::publish_and_wait) does; answers with the outcome of each, by key.
    pub async fn wait_for_sync(&self, entries: &[Entry], answers: &[Appended], wait_max: Duration) -> Vec<SyncReport> {
        let deliveries = self.inner().deliveries().clone();
        let Some(deliveries) = deliveries.filter(|_| !in_handler()) else { return Vec::new() };
        let deadline = Instant::now() + wait_max;
        let mut open = Open::of(&deliveries, entries, answers).await;
        // What a rule holds has not started: it was not in the log before.
        let is_new = |wait: &Wait| !wait.is_repeated;
        self.close_held_by_rules(&mut open, is_new);
        let mut told: FuturesUnordered<_> = (open.waits.iter().enumerate())
            .map(|(at, wait)| {
                let ended = wait.progress.when_ended(wait.seq, wait.object.clone(), wait.is_repeated);
                async move { ended.await.ok().map(|outcome| (at, outcome)) }
            })
            .collect();
        let (mut look_at, mut pause) = (Instant::now() + open.look_first(), LOOK_FIRST);
        while !open.left.is_empty() && Instant::now() < deadline {
            tokio::select! {
                biased;
                Some(ended) = told.next() => {
                    if let Some((at, outcome)) = ended {
                        open.close(at, outcome);
                    }
                }
                () = tokio::time::sleep_until(look_at.min(deadline)) => {
                    self.look_up(&mut open, deadline).await;
                    look_at = Instant::now() + pause;
                    pause = (pause * 2).min(LOOK_AGAIN_MAX);
                }
            }
        }
        open.reports()
    }

    /// Looks up what is still open, until the deadline. Where the store does not answer, it stays open.
    async fn look_up(&self, open: &mut Open, deadline: Instant) {
        let mut by_seq: BTreeMap<Seq, Vec<usize>> = BTreeMap::new();
        open.left.iter().for_each(|at| by_seq.entry(open.waits[*at].seq).or_default().push(*at));
        let mut running = BTreeSet::new();
        for (seq, waits) in by_seq {
            let handlers: Vec<GroupName> = waits.iter().map(|at| open.waits[*at].handler.clone()).collect();
            match tokio::time::timeout_at(deadline, self.deliveries_to(seq, Some(&handlers))).await {
                Ok(Ok(reports)) => {
                    let reports = reports.unwrap_or_default();
                    for at in waits {
                        let wait = &open.waits[at];
                        let Some(report) = reports.iter().find(|report| report.handler == wait.handler) else {
                            continue;
                        };
                        if report.verdict.standing == Standing::Running {
                            running.insert((wait.handler.clone(), seq));
                        }
                        open.close(at, SyncOutcome::of(&report.verdict, wait.is_repeated));
                    }
                }
                Ok(Err(error)) => tracing::debug!(%error, seq, "it cannot be looked up whether handlers are done"),
                Err(_late) => return,
            }
        }
        self.close_held_by_rules(open, |wait| !running.contains(&(wait.handler.clone(), wait.seq)));
    }

    /// Answers for what rules hold.
    fn close_held_by_rules(&self, open: &mut Open, may_be_held: impl Fn(&Wait) -> bool) {
        let rules = self.inner().gate.rules();
        for at in open.left.clone() {
            let wait = &open.waits[at];
            let rule = rules.holding(&wait.handler, wait.object.as_ref(), Timestamp::MIN);
            if let Some(rule) = rule.filter(|_| may_be_held(wait)) {
                let reason = rule.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
                let error = format!("a {} of {} holds it{reason}", rule.kind.as_str(), rule.scope);
                open.close(at, SyncOutcome::Blocked { error });
            }
        }
    }
}

/// One handler and one event that it wants.
struct Wait {
    handler: GroupName,
    seq: Seq,
    object: Option<ObjectKey>,
    outcome: SyncOutcome,
    /// Should this process run it?
    is_here: bool,
    /// Was it published before?
    is_repeated: bool,
    progress: Arc<Progress>,
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
                        object: event.object.clone(),
                        outcome: SyncOutcome::Pending,
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

    /// Notes an outcome; a wait with one that may change stays open.
    fn close(&mut self, at: usize, outcome: SyncOutcome) {
        if outcome != SyncOutcome::Pending && self.left.remove(&at) {
            self.waits[at].outcome = outcome;
        }
    }

    /// The outcome of each handler, by key.
    fn reports(&self) -> Vec<SyncReport> {
        let mut reports: BTreeMap<&GroupName, SyncReport> = BTreeMap::new();
        for Wait { handler, seq, outcome, .. } in &self.waits {
            let seq = (*outcome != SyncOutcome::Done).then_some(*seq);
            let report = SyncReport { handler: handler.clone(), outcome: outcome.clone(), seq };
            match reports.get_mut(handler) {
                Some(known) if known.outcome.severity() >= outcome.severity() => {}
                Some(known) => *known = report,
                None => {
                    reports.insert(handler, report);
                }
            }
        }
        reports.into_values().collect()
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
