//! What is registered and published so far, and who is told in which order?

use super::operation::{Hooked, Operation, OperationError, Unit};
use super::{Committed, UnitError};
use ensue_core::event::BATCH_MAX;
use ensue_core::{Entry, Invalid, Json, NewEvent};
use futures_util::FutureExt;
use serde::Serialize;

/// Operations and events of a unit.
#[derive(Default)]
pub(super) struct Parts {
    /// One that is being told something is not there meanwhile.
    operations: Vec<Option<Box<dyn Operation>>>,
    events: Vec<NewEvent>,
    context: Option<Json>,
}

/// How much of a unit there was when another was begun inside of it.
#[derive(Clone)]
pub(super) struct Mark {
    operations: usize,
    events: usize,
    context: Option<Json>,
}

/// A hook's error as the unit's.
pub(super) fn told(hook: &'static str) -> impl Fn(OperationError) -> UnitError {
    move |error| UnitError::Operation { hook, reason: error.to_string() }
}

impl Parts {
    pub fn publish(&mut self, event: NewEvent) -> Result<(), Invalid> {
        // Said now, where it can be put right.
        event.clone().check()?;
        self.events.push(event);
        Ok(())
    }

    pub fn add_context(&mut self, context: &impl Serialize) -> Result<(), Invalid> {
        let added = Json::of("context", context)?;
        if !added.is_object() {
            return Err(Invalid::new("context", "must be a JSON object, such as {\"request\":\"abc\"}"));
        }
        let before = self.context.take();
        self.context = Some(before.map_or(Ok(added.clone()), |before| added.over(&before))?);
        Ok(())
    }

    /// A place for an operation.
    pub fn reserve(&mut self) -> usize {
        self.operations.push(None);
        self.operations.len() - 1
    }

    pub fn put(&mut self, place: usize, operation: Box<dyn Operation>) {
        if let Some(reserved) = self.operations.get_mut(place) {
            *reserved = Some(operation);
        }
    }

    pub fn mark(&self) -> Mark {
        Mark { operations: self.operations.len(), events: self.events.len(), context: self.context.clone() }
    }

    /// Takes out what came since.
    pub fn since(&mut self, mark: &Mark) -> Parts {
        let context = std::mem::replace(&mut self.context, mark.context.clone());
        let operations = self.operations.split_off(mark.operations.min(self.operations.len()));
        let events = self.events.split_off(mark.events.min(self.events.len()));
        Parts { operations, events, context }
    }

    /// Everything.
    pub fn take(&mut self) -> Parts {
        std::mem::take(self)
    }

    /// The events, as they are written: in calls of a bounded size.
    pub fn entries(&mut self) -> Result<Vec<Vec<Entry>>, Invalid> {
        let mut entries = Vec::with_capacity(self.events.len());
        for event in self.events.drain(..) {
            let event = match &self.context {
                Some(context) => event.metadata_over(context),
                None => event,
            };
            entries.push(event.check()?);
        }
        let mut calls = Vec::new();
        while !entries.is_empty() {
            let rest = entries.split_off(entries.len().min(BATCH_MAX));
            calls.push(std::mem::replace(&mut entries, rest));
        }
        Ok(calls)
    }

    /// The unit is on disk.
    pub async fn committed(mut self, committed: &mut Committed) {
        for operation in self.operations.iter_mut().flatten() {
            if let Err(error) = operation.on_post_commit().await {
                tracing::error!(%error, "an operation's on_post_commit failed, after the commit of its unit");
                committed.failed.push(error.to_string());
            }
        }
    }

    /// It is taken back next, because of this if something has failed.
    pub async fn taking_back(&mut self, reason: Option<&str>) {
        for operation in self.operations.iter_mut().rev().flatten() {
            if let Some(reason) = reason {
                logged("on_exception", operation.on_exception(reason)).await;
            }
        }
        for operation in self.operations.iter_mut().rev().flatten() {
            logged("on_rollback", operation.on_rollback()).await;
        }
    }

    /// Nobody knows whether it is on disk: neither of the two is told.
    pub async fn in_doubt(mut self, reason: &str) {
        for operation in self.operations.iter_mut().rev().flatten() {
            logged("on_exception", operation.on_exception(reason)).await;
        }
    }

    /// It is taken back.
    pub async fn taken_back(mut self) {
        for operation in self.operations.iter_mut().rev().flatten() {
            logged("on_post_rollback", operation.on_post_rollback()).await;
        }
    }

    /// Nobody has ended it: there is nobody to wait.
    pub fn taken_back_by_drop(&mut self, take_back: impl FnOnce()) {
        let mut parts = self.take();
        let waits =
            || tracing::error!("a unit of work was dropped, and an operation waits in its hook: it is left there");
        if parts.taking_back(None).now_or_never().is_none() {
            waits();
        }
        take_back();
        if parts.taken_back().now_or_never().is_none() {
            waits();
        }
    }
}

/// A hook whose failure changes nothing any more.
async fn logged(hook: &'static str, hooked: Hooked<'_>) {
    if let Err(error) = hooked.await {
        tracing::error!(hook, %error, "an operation failed while its unit was taken back");
    }
}

/// Tells every operation that the unit is about to commit, also those that are registered meanwhile.
pub(super) async fn committing(mut unit: Unit<'_>) -> Result<(), UnitError> {
    let mut place = 0;
    while place < unit.parts().operations.len() {
        if let Some(mut operation) = unit.parts().operations[place].take() {
            let told_so = operation.on_commit(unit.again()).await;
            // In its place also if it failed: it is told of the rest.
            unit.parts().put(place, operation);
            told_so.map_err(told("on_commit"))?;
        }
        place += 1;
    }
    Ok(())
}
