//! Metrics of jobs, by handler: claims, ended attempts and their durations.
//!
//! Attempts of this process and of remote workers are counted alike, by the process that records their end.

use super::JobOutcome;
use crate::labels::{HANDLERS, OTHER};
use ensue_core::handling::Ended;
use ensue_core::jobs::Job;
use ensue_core::{GroupName, Timestamp};
use metrics::{Counter, Histogram};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

/// The label `outcome`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum AttemptOutcome {
    Done,
    Failed,
    Snoozed,
    Cancelled,
}

impl From<&Ended> for AttemptOutcome {
    fn from(ended: &Ended) -> Self {
        match ended {
            Ended::Done => Self::Done,
            Ended::Failed { .. } | Ended::Unreadable(_) => Self::Failed,
            Ended::Snoozed(_) => Self::Snoozed,
            Ended::Cancelled(_) => Self::Cancelled,
        }
    }
}

impl From<&JobOutcome> for AttemptOutcome {
    fn from(outcome: &JobOutcome) -> Self {
        match outcome {
            JobOutcome::Done { .. } => Self::Done,
            JobOutcome::Failed { .. } => Self::Failed,
            JobOutcome::Snoozed(_) => Self::Snoozed,
        }
    }
}

/// The series of one handler. Found by their labels once and kept, because a lookup allocates.
pub(crate) struct JobMetrics {
    claims: Counter,
    done: Counter,
    failed: Counter,
    snoozed: Counter,
    cancelled: Counter,
    seconds: Histogram,
}

static KEPT: LazyLock<RwLock<HashMap<String, Arc<JobMetrics>>>> = LazyLock::new(RwLock::default);

impl JobMetrics {
    /// The series of a handler; those past the limit of labels share one.
    pub fn of(handler: &GroupName) -> Arc<Self> {
        if let Some(figures) = KEPT.read().unwrap_or_else(PoisonError::into_inner).get(handler.as_str()) {
            return figures.clone();
        }
        Self::kept(HANDLERS.label(handler.as_str()))
    }

    /// The series `other`: for attempts whose handler was not read.
    pub fn unnamed() -> Arc<Self> {
        Self::kept(OTHER.into())
    }

    fn kept(label: String) -> Arc<Self> {
        let mut kept = KEPT.write().unwrap_or_else(PoisonError::into_inner);
        kept.entry(label).or_insert_with_key(|label| Arc::new(Self::labelled(label))).clone()
    }

    fn labelled(handler: &str) -> Self {
        let attempts = |outcome: &'static str| metrics::counter!("ensue_job_attempts_total", "handler" => handler.to_owned(), "outcome" => outcome);
        Self {
            claims: metrics::counter!("ensue_job_claims_total", "handler" => handler.to_owned()),
            done: attempts("done"),
            failed: attempts("failed"),
            snoozed: attempts("snoozed"),
            cancelled: attempts("cancelled"),
            seconds: metrics::histogram!("ensue_job_seconds", "handler" => handler.to_owned()),
        }
    }

    pub fn claimed(&self) {
        self.claims.increment(1);
    }

    /// Counts a success whose duration is not known.
    pub fn completed(&self) {
        self.done.increment(1);
    }

    /// Counts an attempt. Both times are of the store's clock; without the end the duration is not recorded.
    pub fn ended(&self, job: &Job, outcome: AttemptOutcome, ended_at: Option<Timestamp>) {
        let counter = match outcome {
            AttemptOutcome::Done => &self.done,
            AttemptOutcome::Failed => &self.failed,
            AttemptOutcome::Snoozed => &self.snoozed,
            AttemptOutcome::Cancelled => &self.cancelled,
        };
        counter.increment(1);
        if let (Some(claimed_at), Some(ended_at)) = (job.locked_at, ended_at) {
            self.seconds.record(ended_at.duration_since(claimed_at).as_secs_f64().max(0.0));
        }
    }
}
