//! How do deliveries become jobs?

use super::builder::Spec;
use super::context::Context;
use super::handler::{ErasedHandler, Run};
use super::limits::LimitsNow;
use ensue_core::handling::Ended;
use ensue_core::jobs::{Cause, NewJob};
use ensue_core::{Event, GroupName};
use std::sync::Arc;

/// Stands where code will be.
pub(super) struct NoCode;

impl ErasedHandler for NoCode {
    fn run(&self, _: Vec<Arc<Event>>, _: Context) -> Run {
        Box::pin(std::future::ready(Ended::Done))
    }
}

/// Sends a job for each event to its own key. Events of one object are handled in order, so its jobs are in order too.
pub(super) struct Pull {
    key: GroupName,
    ordered: bool,
    limits: LimitsNow,
}

impl Pull {
    pub fn of(spec: &Spec) -> Self {
        Self { key: spec.key.clone(), ordered: spec.ordered, limits: spec.limits.clone() }
    }

    fn job_of(&self, event: &Event) -> NewJob {
        let limits = self.limits.get();
        NewJob {
            object: event.object.clone(),
            ordered: self.ordered,
            payload: event.payload.clone(),
            metadata: event.metadata.clone(),
            attempts_max: limits.retry.attempts_max(),
            on_exhausted: limits.on_exhausted,
            cause: Some(Cause::of(event)),
            ..NewJob::new(self.key.clone())
        }
    }
}

impl ErasedHandler for Pull {
    fn run(&self, events: Vec<Arc<Event>>, cx: Context) -> Run {
        let sent = events.iter().try_for_each(|event| cx.emit_checked(self.job_of(event)));
        let ended = match sent {
            Ok(()) => Ended::Done,
            Err(error) => Ended::Failed { error: error.to_string(), after: None, permanent: false },
        };
        Box::pin(std::future::ready(ended))
    }
}
