//! Log lines of failed attempts: `warn` if another attempt follows, `error` for the last one.
//!
//! Payloads are not logged. Text from events, handlers and workers is escaped and cut.

use ensue_core::handling::{Ended, Next, OnExhausted, Retry, after_attempt};
use ensue_core::jobs::{Job, JobId};
use ensue_core::text::escape;
use ensue_core::{Event, GroupName, ObjectKey, Seq, Timestamp};
use tracing::field::display;

/// The most bytes of an error that are logged; the store keeps the whole.
const ERROR_BYTES_MAX: usize = 1_000;

/// An attempt at a delivery or a job.
pub(crate) struct Attempted<'a> {
    handler: &'a GroupName,
    object: Option<&'a ObjectKey>,
    seq: Option<Seq>,
    job: Option<JobId>,
    attempt: u32,
}

impl<'a> Attempted<'a> {
    /// An attempt at an event.
    pub fn delivery(handler: &'a GroupName, event: &'a Event, attempt: u32) -> Self {
        Self { handler, object: event.object.as_ref(), seq: Some(event.seq), job: None, attempt }
    }

    /// The current attempt at a job.
    pub fn job(job: &'a Job) -> Self {
        let (handler, object) = (&job.handler, job.object.as_ref());
        Self { handler, object, seq: None, job: Some(job.id), attempt: job.attempts }
    }

    /// Decides what follows from the end of the attempt, and logs it if the attempt failed.
    pub fn after(&self, ended: Ended, retry: &Retry, on_exhausted: OnExhausted, now: Timestamp) -> Next {
        let error = match &ended {
            Ended::Failed { error, .. } => Some(shown(error)),
            // Its reason may quote the payload.
            Ended::Unreadable(_) => Some("the payload cannot be read as the type that the handler takes".into()),
            Ended::Done | Ended::Snoozed(_) | Ended::Cancelled(_) => None,
        };
        let next = after_attempt(ended, self.attempt, retry, on_exhausted, now, rand::random());
        if let Some(error) = error {
            self.log(&error, &next);
        }
        next
    }

    fn log(&self, error: &str, next: &Next) {
        let Self { handler, seq, attempt, .. } = self;
        let (object, job) = (self.object.map(|object| display(shown(object.as_str()))), self.job.map(display));
        match next {
            Next::Wait { at, .. } => {
                tracing::warn!(%handler, object, seq, job, attempt, retry_at = %at, %error, "attempt failed");
            }
            Next::Exhausted { policy, .. } => {
                let on_exhausted = policy.as_str();
                tracing::error!(%handler, object, seq, job, attempt, on_exhausted, %error, "last attempt failed");
            }
            Next::Done | Next::Cancelled(_) => {}
        }
    }

    /// Logs that the worker of a job has vanished with it.
    pub fn vanished(&self, worker: Option<&str>, is_dead: bool) {
        let Self { handler, attempt, .. } = self;
        let (object, job) = (self.object.map(|object| display(shown(object.as_str()))), self.job.map(display));
        let worker = worker.map(|worker| display(shown(worker)));
        if is_dead {
            tracing::error!(%handler, object, job, attempt, worker, "worker vanished during the last attempt");
        } else {
            tracing::warn!(%handler, object, job, attempt, worker, "worker vanished; its job is retried");
        }
    }
}

/// The beginning of a text, as one line.
fn shown(text: &str) -> String {
    let end = (0..=ERROR_BYTES_MAX.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    let (kept, cut) = text.split_at(end);
    let mut line = escape(kept).into_owned();
    if !cut.is_empty() {
        line.push_str(" …");
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_one_bounded_line() {
        assert_eq!(shown("a\n\u{1b}[2J\u{202e}b"), "a\\n\\u{1b}[2J\\u{202e}b");
        let long = shown(&"ü".repeat(ERROR_BYTES_MAX));
        assert!(long.len() < ERROR_BYTES_MAX + 10 && long.ends_with(" …"), "{long}");
    }
}
