//! How do handlers come and go while the bus runs?

use super::builder::{Binding, Gathered, HandlerBuilder};
use super::context::Priorities;
use super::limits::HandlerLimits;
use crate::Ensue;
use crate::error::Error;
use crate::tasks::CollectionHandler;
use ensue_core::{GroupName, Invalid, StoreError};
use std::sync::PoisonError;

/// A change of what is bound, made at once with [`apply`](Rebinding::apply); see [`Ensue::rebind`].
#[must_use = "nothing is changed before `apply`"]
pub struct Rebinding {
    bus: Ensue,
    bound: Gathered,
    unbound: Vec<GroupName>,
    limits: Vec<(GroupName, HandlerLimits)>,
    collections: Option<Vec<CollectionHandler>>,
}

impl Ensue {
    /// Begins to change what is bound, while the bus runs. What runs goes on to its end, as it was begun; of a handler that is
    /// taken out or replaced, nothing new is started until then.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use ensue::{Context, Ensue, Event, HandlerError, NewEvent};
    /// # use std::time::Duration;
    ///
    /// async fn index(event: Event, cx: Context) -> Result<(), HandlerError> {
    ///     cx.publish(NewEvent::new("record.indexed"))?;
    ///     Ok(())
    /// }
    ///
    /// let bus = Ensue::memory().await?;
    /// let running = bus.start().await?;
    /// let change = bus.rebind();
    /// change.on("record.published").named("index").handle(index)?;
    /// change.apply().await?;
    /// bus.publish(NewEvent::new("record.published")).await?;
    /// bus.drain().await?;
    /// assert_eq!(bus.store().bounds().await?.last, 2);
    /// # running.shutdown(Duration::from_secs(5)).await?;
    /// # Ok(()) }
    /// ```
    pub fn rebind(&self) -> Rebinding {
        let (unbound, limits) = (Vec::new(), Vec::new());
        Rebinding { bus: self.clone(), bound: Gathered::default(), unbound, limits, collections: None }
    }
}

impl Rebinding {
    /// Begins to bind a handler, as [`Ensue::on`] does.
    pub fn on(&self, binding: impl Into<Binding>) -> HandlerBuilder {
        HandlerBuilder::new(self.bus.clone(), binding.into()).among(self.bound.clone())
    }

    /// Takes a handler out. Its group stays, and with it its place in the log. One of the same key may be bound in its stead.
    pub fn unbind(&mut self, key: &GroupName) {
        self.unbound.push(key.clone());
    }

    /// Changes how a handler is run from now on; what runs is left alone.
    pub fn limits(&mut self, key: &GroupName, limits: HandlerLimits) -> Result<(), Invalid> {
        limits.check()?;
        self.limits.push((key.clone(), limits));
        Ok(())
    }

    /// Says which collections this process brings up to date, instead of those that it was told before.
    pub fn collections(&mut self, collections: Vec<CollectionHandler>) {
        self.collections = Some(collections);
    }

    /// Makes the change: all of it, or nothing if it cannot be.
    pub async fn apply(self) -> Result<(), Error> {
        // In a task of its own: who stops waiting leaves nothing half done.
        let ended = |_| Err(StoreError::InDoubt("the task that binds handlers was ended".into()).into());
        tokio::spawn(self.apply_here()).await.unwrap_or_else(ended)
    }

    async fn apply_here(self) -> Result<(), Error> {
        let inner = self.bus.inner();
        let _turn = inner.rebinding.lock().await;
        let bound = std::mem::take(&mut *self.bound.lock().unwrap_or_else(PoisonError::into_inner));
        let stays = |key: &GroupName| inner.handlers.find(key).is_some() && !self.unbound.contains(key);
        if let Some((key, _)) =
            self.limits.iter().find(|(key, _)| !stays(key) && !bound.iter().any(|spec| spec.key == *key))
        {
            return Err(Invalid::new(
                "key",
                format!("is `{key}`, which nobody binds here: bind it, or leave its limits out"),
            )
            .into());
        }
        if !bound.is_empty() || !self.unbound.is_empty() || self.collections.is_some() {
            let before = inner.handlers.change(&self.unbound, bound, self.collections)?;
            tell_attempts(inner);
            let deliveries = inner.deliveries().clone();
            if let Some(deliveries) = deliveries
                && let Err(error) = deliveries.take_over(&self.bus).await
            {
                inner.handlers.restore(before);
                tell_attempts(inner);
                return Err(error);
            }
        }
        for (key, limits) in self.limits {
            inner.handlers.set_limits(&key, limits);
        }
        let deliveries = inner.deliveries().clone();
        deliveries.iter().for_each(|deliveries| deliveries.wake());
        Ok(())
    }
}

/// What runs knows the priorities of tasks, too.
fn tell_attempts(inner: &crate::bus::Inner) {
    let all = inner.handlers.collections();
    inner.states.put(Priorities(all.iter().map(|one| (one.collection.handler(), one.options.priority)).collect()));
}
