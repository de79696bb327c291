//! How is one attempt at a job run?

use super::job_metrics::JobMetrics;
use super::live;
use super::running::Hearing;
use super::served::Served;
use crate::Ensue;
use crate::attempted::Attempted;
use crate::delivery::first_turn::{FirstTurn, first_turn};
use crate::handlers::{Context, ContextParts, LINES_MAX, Settlement, Work};
use ensue_core::handling::{Ended, OwnCommit};
use ensue_core::jobs::{Held, Job, JobChange, JobEnd, JobLine};
use ensue_core::positions::Level;
use ensue_core::tasks::{CALLED_OFF, Collection};
use ensue_core::{Event, EventId, Timestamp, Topic};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use tokio::sync::watch;

/// An attempt that has ended.
pub(super) struct Over {
    pub job: Job,
    how: How,
}

enum How {
    /// Like this, and that is to be written.
    Ended { served: Arc<Served>, ended: Ended, settlement: Settlement, called_off: bool },
    /// It was given back without having been started.
    GivenBack,
    /// Nothing is to be written: somebody else has the job.
    Lost,
}

impl Over {
    fn new(served: Arc<Served>, job: Job, context: &Context, ended: Ended) -> Self {
        let (settlement, called_off) = (context.take(), context.is_called_off());
        let ended = ended.with_own_commit(settlement.own_commit);
        Self { job, how: How::Ended { served, ended, settlement, called_off } }
    }

    /// A job that was not started.
    pub fn given_back(job: Job) -> Self {
        Self { job, how: How::GivenBack }
    }

    /// May another job become available with it, or this one again? Not if it has just succeeded.
    pub fn frees(&self) -> bool {
        let is_plain =
            |how: &How| matches!(how, How::Ended { ended: Ended::Done, settlement, .. } if settlement.jobs.is_empty());
        self.job.object.is_some() || !is_plain(&self.how)
    }

    /// What is to be written of it at this time by the store's clock. Counts the attempt.
    pub fn change(self, now: Timestamp) -> Option<JobChange> {
        let Self { job, how } = self;
        let held = Held { id: job.id, fence: job.fence };
        if let How::Ended { ended, .. } = &how {
            JobMetrics::of(&job.handler).ended(&job, ended.into(), Some(now));
        }
        match how {
            How::Lost => None,
            How::GivenBack => Some(JobChange::new(held, JobEnd::GivenBack)),
            // What has settled in its own transaction is written already.
            How::Ended { settlement, .. } if settlement.own_commit == OwnCommit::Committed => None,
            How::Ended { served, ended, settlement, called_off } => {
                Some(change_of(&served, &job, held, ended, settlement, called_off, now))
            }
        }
    }
}

fn change_of(
    served: &Served,
    job: &Job,
    held: Held,
    ended: Ended,
    settlement: Settlement,
    called_off: bool,
    now: Timestamp,
) -> JobChange {
    let (options, attempt) = (&served.options, job.attempts);
    let retry = options.retry.limited_to(job.attempts_max);
    let succeeded = ended == Ended::Done;
    let end = JobEnd::of(Attempted::job(job).after(ended, &retry, options.on_exhausted, now));
    let reason = reason_line(job, &end, called_off, Timestamp::now());
    let mut change = JobChange::new(held, end);
    if succeeded {
        (change.events, change.jobs) = (settlement.events, settlement.jobs);
    }
    if !succeeded || options.logs_always || settlement.written {
        change.lines = settlement.lines.into_iter().map(|line| live::line_of(attempt, line)).collect();
    }
    change.lines.extend(reason);
    change
}

/// The last line of a task's attempt that did not succeed: its log says why. One that was called off is over however its attempt ended,
/// and that is said first. Other jobs have their errors.
pub(super) fn reason_line(job: &Job, end: &JobEnd, called_off: bool, at: Timestamp) -> Option<JobLine> {
    Collection::of_handler(&job.handler)?;
    let (level, message) = match (end, called_off) {
        (JobEnd::Succeeded, _) => return None,
        (JobEnd::CalledOff { why }, _) => (Level::Info, why.clone()),
        (end, true) => {
            let how = end.error().map(|error| format!("; its attempt had ended with: {error}"));
            (Level::Info, format!("{CALLED_OFF}{}", how.unwrap_or_default()))
        }
        (end, false) => (Level::Error, end.error()?.to_owned()),
    };
    Some(JobLine { line: 0, attempt: job.attempts, at, level, message })
}

/// How many lines an attempt may say, so that each of its job's has its share of what is kept, with two more that tell what
/// was dropped and why it failed.
fn lines_max(attempts_max: u32) -> usize {
    (LINES_MAX / attempts_max.max(1) as usize).max(LINES_MIN) - 2
}

/// How many lines an attempt may say however many there are.
const LINES_MIN: usize = 200;

/// What came of wanting to start.
pub(super) enum Start {
    /// A rule holds it.
    Held(Box<Job>),
    Begun(Begun),
}

pub(super) enum Begun {
    Ended(Box<Over>),
    Waits(Pin<Box<dyn Future<Output = Over> + Send>>),
}

/// What a handler sees of a job: an event on the topic of what it follows from, or of its own key.
pub(crate) fn event_of(job: &Job) -> Event {
    let cause = job.cause.as_ref();
    Event {
        seq: cause.map_or(0, |cause| cause.seq),
        prev: cause.and_then(|cause| cause.prev),
        id: cause.map_or(EventId(job.id.0), |cause| cause.id),
        topic: cause.map_or_else(|| Topic::stored(job.handler.as_str()), |cause| cause.topic.clone()),
        object: job.object.clone(),
        payload: job.payload.clone(),
        metadata: job.metadata.clone(),
        occurred_at: job.enqueued_at,
        recorded_at: job.enqueued_at,
        to: None,
    }
}

/// Begins an attempt, unless a rule holds it.
pub(super) async fn begin(bus: &Ensue, served: &Arc<Served>, job: Job, hearing: Hearing) -> Start {
    let event = Arc::new(event_of(&job));
    let Hearing { cancelled, called_off, lost } = hearing;
    let held = Held { id: job.id, fence: job.fence };
    let context = Context::new(ContextParts {
        group: job.handler.clone(),
        fence: job.fence,
        seq: event.seq,
        attempt: job.attempts,
        redriven: job.redriven,
        timeout: served.options.timeout,
        cancelled,
        called_off: Some(called_off),
        lines_max: lines_max(job.attempts_max),
        logs_always: served.options.logs_always,
        states: bus.inner().states.clone(),
        work: Work::Job(held),
        task: Collection::of_handler(&job.handler).map(|_| Box::new(job.clone())),
    });
    let inside = bus.inner().gate.enter();
    if inside.held_by(&job.handler, job.object.as_ref()).is_some() {
        return Start::Held(Box::new(job));
    }
    let run = served.code.run(vec![event], context.clone());
    let timeout = served.options.timeout.filter(|_| !served.ends_itself);
    let first = first_turn(run, timeout).await;
    drop(inside);
    let (served, store) = (served.clone(), bus.store().clone());
    let rest = match first {
        FirstTurn::Ended(ended) if !context.has_progress() && !context.has_own_transaction() => {
            return Start::Begun(Begun::Ended(Box::new(Over::new(served, job, &context, ended))));
        }
        // How far it came is written before its end.
        FirstTurn::Ended(ended) => Box::pin(std::future::ready(ended)),
        FirstTurn::Waits(rest) => rest,
    };
    Start::Begun(Begun::Waits(Box::pin(async move {
        tokio::select! {
            ended = live::run(&store, held, &context, rest) => {
                context.look_for_commit().await;
                Over::new(served, job, &context, ended)
            }
            () = is_lost(lost) => Over { job, how: How::Lost },
        }
    })))
}

async fn is_lost(mut lost: watch::Receiver<bool>) {
    if lost.wait_for(|lost| *lost).await.is_err() {
        // Nobody looks after it any more: it has ended.
        std::future::pending().await
    }
}
