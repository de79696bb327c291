//! `prev` of a delivery: the previous event of the same object that its handler gets.
//!
//! The log's own `prev` may be an event that the handler does not want, or has given up: a receiver
//! that keeps the order of each object by `prev` would wait for it for ever (H4). A lane runs its
//! events one after another, so the last one that is done is the previous one. Of an object that
//! this life has not handled yet, the chain is walked back a bounded way, so that a restart or a
//! takeover changes nothing. If it cannot be decided, `prev` is none and `prev_since` is set: the
//! handler gets no event of the object between `prev_since` and this one.

use super::worker::Worker;
use crate::handlers::{Context, HandlerFilter};
use ensue_core::positions::{DeliveryState, LaneKey};
use ensue_core::recent::Recent;
use ensue_core::store::SharedStore;
use ensue_core::{Event, GroupName, ObjectKey, Seq, StoreError, Timestamp};
use jiff::SignedDuration;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::OnceCell;
use uuid::Uuid;

/// How many objects a handler remembers.
const OBJECTS_REMEMBERED: usize = 32_768;
/// How far back one event's chain is walked: mostly the first few have the answer.
const WALKS: [usize; 2] = [4, 96];
/// A subscription that is made longer than this after its group replaces an earlier one.
const FIRST_WITHIN: SignedDuration = SignedDuration::from_secs(10);

/// The answer: `since` is set only if `prev` could not be decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Prev {
    prev: Option<Seq>,
    since: Option<Seq>,
}

impl Prev {
    fn decided(prev: Option<Seq>) -> Self {
        Self { prev, since: None }
    }

    /// Nothing is known of this place and what is before it.
    fn unknown_to(place: Seq) -> Self {
        Self { prev: None, since: Some(place + 1) }
    }
}

/// What a handler got before, in one life of its worker.
pub(super) struct Prevs {
    store: SharedStore,
    group: GroupName,
    group_made_at: Timestamp,
    subscription: Uuid,
    filter: HandlerFilter,
    is_ordered: bool,
    /// Up to here it is not known which events the handler got: it was made, or got its condition,
    /// after them.
    unknown_to: OnceCell<Seq>,
    /// The last event of each object that is done.
    done: Mutex<Recent<ObjectKey, Seq>>,
}

impl Prevs {
    pub fn of(worker: &Worker) -> Self {
        Self {
            store: worker.store.clone(),
            group: worker.spec.key.clone(),
            group_made_at: worker.group_made_at,
            subscription: worker.subscription,
            filter: worker.wish(),
            is_ordered: worker.spec.ordered,
            unknown_to: OnceCell::new(),
            done: Mutex::new(Recent::new(OBJECTS_REMEMBERED)),
        }
    }

    /// An event is done, and was not given up.
    pub fn done(&self, key: &LaneKey, seq: Seq) {
        if let LaneKey::Object(object) = key {
            self.lock().insert(object.clone(), seq);
        }
    }

    /// The events of an attempt as the handler gets them; none if that has to be looked up.
    pub fn known(&self, events: &[Arc<Event>], cx: &Context) -> Option<Vec<Arc<Event>>> {
        let prevs: Option<Vec<Prev>> = events.iter().enumerate().map(|(at, _)| self.quick(events, at)).collect();
        Some(given(events, prevs?, cx))
    }

    /// The same, looked up. If the store does not answer, nothing is claimed.
    pub async fn looked_up(&self, events: &[Arc<Event>], cx: &Context) -> Vec<Arc<Event>> {
        let mut prevs = Vec::with_capacity(events.len());
        for (at, event) in events.iter().enumerate() {
            let prev = match self.quick(events, at) {
                Some(prev) => prev,
                None => self.walk_back(event).await.unwrap_or_else(|error| {
                    tracing::debug!(%error, seq = event.seq, "the previous event of an object is not known");
                    Prev::unknown_to(event.seq - 1)
                }),
            };
            prevs.push(prev);
        }
        given(events, prevs, cx)
    }

    fn quick(&self, events: &[Arc<Event>], at: usize) -> Option<Prev> {
        let event = &events[at];
        let (Some(object), Some(prev)) = (&event.object, event.prev) else { return Some(Prev::decided(None)) };
        if self.is_ordered {
            // Of a batch, those before it run with it.
            let here = events[..at].iter().rev().find(|other| other.object.as_ref() == Some(object));
            let before = here.map(|other| other.seq).or_else(|| self.lock().get(object));
            if let Some(before) = before.filter(|before| *before < event.seq) {
                return Some(Prev::decided(Some(before)));
            }
        }
        let unknown_to = self.unknown_to.get()?;
        (prev <= *unknown_to).then(|| Prev::unknown_to(prev))
    }

    async fn walk_back(&self, event: &Event) -> Result<Prev, StoreError> {
        let (Some(object), Some(prev)) = (&event.object, event.prev) else { return Ok(Prev::decided(None)) };
        let unknown_to = *self.unknown_to.get_or_try_init(|| self.look_unknown_to()).await?;
        if prev <= unknown_to {
            return Ok(Prev::unknown_to(prev));
        }
        let (mut before, mut oldest) = (event.seq, None);
        for page in WALKS {
            let walked = self.store.chain(object, Some(before), page).await?;
            for earlier in walked {
                if earlier.seq <= unknown_to {
                    return Ok(Prev::unknown_to(earlier.seq));
                }
                (before, oldest) = (earlier.seq, Some(earlier.prev));
                let earlier = Arc::new(earlier);
                let is_wanted = earlier.to.is_none() && self.filter.wants(&earlier).await?.unwrap_or(false);
                if is_wanted && !self.was_given_up(earlier.seq).await? {
                    return Ok(Prev::decided(Some(earlier.seq)));
                }
            }
            if oldest == Some(None) {
                return Ok(Prev::decided(None));
            }
        }
        // Retention may have taken what `prev` names.
        Ok(oldest.map_or_else(|| Prev::unknown_to(prev), |_| Prev { prev: None, since: Some(before) }))
    }

    async fn was_given_up(&self, seq: Seq) -> Result<bool, StoreError> {
        if !self.is_ordered {
            return Ok(false);
        }
        let recorded = self.store.deliveries(seq).await?;
        let own = recorded.iter().find(|delivery| delivery.group == self.group);
        Ok(own.is_some_and(|own| matches!(own.state, DeliveryState::Dead | DeliveryState::Skipped)))
    }

    async fn look_unknown_to(&self) -> Result<Seq, StoreError> {
        let before_group = self.store.seq_before(self.group_made_at).await?;
        let subscription = self.store.find_subscriptions(&[self.subscription]).await?.pop();
        let replaces = |made_at: Timestamp| made_at.duration_since(self.group_made_at) > FIRST_WITHIN;
        let replaced = subscription.filter(|subscription| replaces(subscription.created_at));
        Ok(replaced.map_or(before_group, |subscription| subscription.created_after.max(before_group)))
    }

    fn lock(&self) -> MutexGuard<'_, Recent<ObjectKey, Seq>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The events with their `prev`; the context tells `prev_since` of the first.
fn given(events: &[Arc<Event>], prevs: Vec<Prev>, cx: &Context) -> Vec<Arc<Event>> {
    cx.set_prev_since(prevs.first().and_then(|prev| prev.since));
    let with_prev = |(event, prev): (&Arc<Event>, Prev)| match event.prev == prev.prev {
        true => event.clone(),
        false => Arc::new(Event { prev: prev.prev, ..(**event).clone() }),
    };
    events.iter().zip(prevs).map(with_prev).collect()
}
