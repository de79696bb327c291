//! Direct messages: events that are sent `to` one subscription.
//!
//! A direct message reaches the group or the handler of its subscription, and streams that are
//! addressed as it; no other reader gets it unless it asks for direct messages. It is not part of
//! its object's chain: no `prev` points to one.

use crate::Ensue;
use crate::error::Error;
use ensue_core::positions::SubscriptionState;
use ensue_core::store::SharedStore;
use ensue_core::{Entry, Event, GroupName, ObjectKey, Seq};
use std::time::Duration;
use tokio::time::Instant;
use uuid::Uuid;

/// Bounds of the time between two touches of the subscription that a stream is addressed as.
const TOUCH_EVERY_MIN: Duration = Duration::from_millis(100);
const TOUCH_EVERY_MAX: Duration = Duration::from_secs(60);

/// A page of the chain of an object, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChainPage {
    /// The events; may be empty although older ones would follow.
    pub events: Vec<Event>,
    /// The `before` of the next page; none if no older event is there.
    pub next: Option<Seq>,
}

impl Ensue {
    /// Refuses direct messages to subscriptions that are not there.
    pub(crate) async fn check_recipients(&self, entries: &[Entry]) -> Result<(), Error> {
        let ids = Entry::recipients(entries);
        if ids.is_empty() {
            return Ok(());
        }
        let found = self.store().find_subscriptions(&ids).await?;
        Ok(Entry::check_recipients(entries, |id| found.iter().any(|one| one.id == id))?)
    }

    /// The chain of an object, newest first: at most `limit` of its events before `before` (none:
    /// from the newest).
    pub async fn chain(
        &self,
        object: &ObjectKey,
        before: Option<Seq>,
        limit: usize,
        with_direct: bool,
    ) -> Result<ChainPage, Error> {
        let mut events = self.store().chain(object, before, limit).await?;
        // The first event of the chain may follow direct messages.
        let more = |oldest: &&Event| oldest.prev.is_some() || with_direct;
        let next = events.last().filter(more).map(|oldest| oldest.seq);
        events.retain(|event| with_direct || event.to.is_none());
        Ok(ChainPage { events, next })
    }

    /// The address of a stream.
    pub(crate) async fn address(&self, id: Uuid) -> Result<Address, Error> {
        let found = self.store().find_subscriptions(&[id]).await?.pop();
        found.map(Address::of).ok_or_else(|| {
            Error::NotFound(format!(
                "there is no subscription {id}: it was never made, was deleted or has expired; subscribe to a group, and \
                 open the stream with the id of that subscription"
            ))
        })
    }
}

/// The subscription that a stream is addressed as.
pub(crate) struct Address {
    group: GroupName,
    id: Uuid,
    /// How often it is touched; none if it does not expire.
    every: Option<Duration>,
    next: Instant,
}

impl Address {
    /// The address of a subscription that is there.
    pub fn of(subscription: SubscriptionState) -> Self {
        let expires_in = subscription.expires_in.and_then(|expires_in| Duration::try_from(expires_in).ok());
        let every = expires_in.map(|expires_in| (expires_in / 3).clamp(TOUCH_EVERY_MIN, TOUCH_EVERY_MAX));
        Self { group: subscription.group, id: subscription.id, every, next: Instant::now() }
    }

    pub fn is_due(&self) -> bool {
        self.every.is_some() && self.next <= Instant::now()
    }

    /// Comes back when it is to be touched.
    pub async fn due(address: &Option<Self>) {
        match address {
            Some(Self { every: Some(_), next, .. }) => tokio::time::sleep_until(*next).await,
            Some(_) | None => std::future::pending().await,
        }
    }

    /// Keeps the subscription from expiring.
    pub async fn touch(&mut self, store: &SharedStore) {
        let Some(every) = self.every else { return };
        self.next = Instant::now() + every;
        match store.touch(&self.group, self.id).await {
            Ok(Some(_)) => {}
            Ok(None) => {
                tracing::warn!(group = %self.group, id = %self.id, "the subscription of a stream is gone");
                self.every = None;
            }
            Err(error) => tracing::debug!(%error, "the subscription of a stream was not touched; it is touched again"),
        }
    }
}
