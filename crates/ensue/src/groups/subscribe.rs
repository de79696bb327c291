//! What does a group want?

use super::{Groups, named, unknown};
use crate::error::Error;
use crate::wanted::Where;
use ensue_core::positions::subscription::PARAMS_BYTES_MAX;
use ensue_core::positions::{NewSubscription, SubscriptionState};
use ensue_core::{GroupName, Invalid, Json, Topic};
use jiff::SignedDuration;
use uuid::Uuid;

/// The shortest expiry: who comes back less often than this would lose what it subscribed to.
const EXPIRES_IN_MIN: SignedDuration = SignedDuration::from_millis(100);
/// The longest expiry; who wants a longer one wants none.
const EXPIRES_IN_MAX: SignedDuration = SignedDuration::from_hours(10 * 366 * 24);

/// What a group is to get. Everything unless told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wants {
    /// This topic and those below it: `order` is also `order.paid`, never `orders`.
    pub topic: Option<String>,
    /// An SQL expression over `e`, the event, and `s`, the subscription, that must hold; see `docs/conditions.md`.
    pub condition: Option<String>,
    /// What the condition reads as `s.params`: any JSON of at most 64 KiB.
    pub params: Json,
    /// Goes when nobody reads the group or touches it for this long; stays if there is none.
    pub expires_in: Option<SignedDuration>,
}

impl Default for Wants {
    fn default() -> Self {
        Self { topic: None, condition: None, params: Json::empty_object(), expires_in: None }
    }
}

impl Wants {
    /// Events for which this condition holds.
    pub fn when(condition: &str) -> Self {
        Self { condition: Some(condition.into()), ..Self::default() }
    }

    /// A topic and everything below it.
    pub fn topic(topic: &str) -> Self {
        Self { topic: Some(topic.into()), ..Self::default() }
    }

    async fn check(self, group: GroupName) -> Result<NewSubscription, Error> {
        let topic = self.topic.as_deref().map(Topic::parse_filter).transpose()?;
        let bytes = self.params.as_str().len();
        if bytes > PARAMS_BYTES_MAX {
            let reason = format!("has {bytes} bytes; at most {PARAMS_BYTES_MAX} are allowed: make it smaller");
            return Err(Invalid::new("params", reason).into());
        }
        if let Some(condition) = &self.condition {
            Where::parse_off_thread(condition, self.params.clone()).await?;
        }
        if self.expires_in.is_some_and(|expiry| !(EXPIRES_IN_MIN..=EXPIRES_IN_MAX).contains(&expiry)) {
            let reason = "must be at least 100ms and at most 3660d; leave it out if it is to stay";
            return Err(Invalid::new("expires_in", reason).into());
        }
        let Self { condition, params, expires_in, .. } = self;
        Ok(NewSubscription { group, topic, condition, params, expires_in })
    }
}

impl Groups<'_> {
    /// Makes a subscription, and says whether it is new. One with the same topic, condition and params, compared in full, is
    /// the same: it is touched, and the longer expiry holds. A group that is not there is made, and begins now.
    pub async fn subscribe(&self, group: &str, wants: Wants) -> Result<(SubscriptionState, bool), Error> {
        let name = named(group)?;
        let new = wants.check(name.clone()).await?;
        if let Some(state) = self.bus.store().group(&name).await? {
            super::check_is_pulled(&state)?;
        }
        Ok(self.bus.store().subscribe(new).await?)
    }

    /// Takes a subscription out of its group.
    pub async fn unsubscribe(&self, group: &str, id: Uuid) -> Result<(), Error> {
        let name = named(group)?;
        self.pulled_group(&name).await?;
        match self.bus.store().unsubscribe(&name, id).await? {
            true => Ok(()),
            false => Err(no_subscription(&name, id)),
        }
    }

    /// Keeps a subscription from expiring. Reading its group does so, too.
    pub async fn touch(&self, group: &str, id: Uuid) -> Result<SubscriptionState, Error> {
        let name = named(group)?;
        self.pulled_group(&name).await?;
        self.bus.store().touch(&name, id).await?.ok_or_else(|| no_subscription(&name, id))
    }

    /// The subscriptions of a group by id, after this one: at most `limit` of them.
    pub async fn subscriptions(
        &self,
        group: &str,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<SubscriptionState>, Error> {
        let name = named(group)?;
        self.bus.store().group(&name).await?.ok_or_else(|| unknown(&name))?;
        Ok(self.bus.store().subscriptions(&name, after, limit).await?)
    }
}

fn no_subscription(group: &GroupName, id: Uuid) -> Error {
    Error::NotFound(format!(
        "the group `{group}` has no subscription {id}: it was never made, was deleted or has expired; subscribe again"
    ))
}
