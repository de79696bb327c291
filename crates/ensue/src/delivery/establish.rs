//! What does the store have to know of a handler before it runs?

use crate::Ensue;
use crate::error::Error;
use crate::handlers::Spec;
use ensue_core::positions::{GroupKind, NewGroup, NewSubscription};
use ensue_core::{Invalid, StoreError, Timestamp};
use std::sync::Arc;
use uuid::Uuid;

/// How many subscriptions of a handler's group are looked at once.
const SUBSCRIPTIONS_PAGE: usize = 100;

/// What the store knows of a handler.
#[derive(Debug, Clone, Copy)]
pub(super) struct Established {
    pub subscription: Uuid,
    pub slots_total: u16,
    /// When its group was made: one of that name that was made later is another.
    pub group_made_at: Timestamp,
}

impl Ensue {
    /// Makes the groups of handlers that were bound and not started yet, before something is published: a handler gets
    /// every event that is published after it was bound.
    pub(crate) async fn establish_bound(&self) -> Result<(), Error> {
        let inner = self.inner();
        if inner.handlers.is_established() {
            return Ok(());
        }
        let _turn = inner.rebinding.lock().await;
        if inner.handlers.is_established() {
            return Ok(());
        }
        let bindings = inner.handlers.bindings();
        let bound = inner.handlers.bound().into_iter().filter(|spec| spec.defined.is_none()).collect();
        establish_all(self, bound).await?;
        inner.handlers.has_established(bindings);
        Ok(())
    }
}

/// Makes the groups of handlers that are bound here, and their subscriptions; looks up those that the store keeps. One of those
/// that is gone meanwhile is left out.
pub(super) async fn establish_all(bus: &Ensue, specs: Vec<Arc<Spec>>) -> Result<Vec<(Arc<Spec>, Established)>, Error> {
    let (store, slots) = (bus.store(), bus.store().handler_slots());
    let group_of =
        |spec: &Spec| NewGroup { name: spec.key.clone(), kind: GroupKind::Handler, start: spec.start, slots };
    // First those that need not be made: one that is somebody else's is refused before anything is.
    for spec in specs.iter().filter(|spec| spec.defined.is_none()) {
        if store.group(&spec.key).await?.is_some() {
            store.create_group(group_of(spec)).await?;
        }
    }
    check_not_defined(bus, &specs).await?;
    let mut groups = Vec::with_capacity(specs.len());
    for spec in &specs {
        groups.push(match spec.defined {
            None => Some(store.create_group(group_of(spec)).await?.0),
            Some(_) => store.group(&spec.key).await?,
        });
    }
    // Whoever defines a handler makes its group with it: once the group is there, it can be seen whose it is.
    check_not_defined(bus, &specs).await?;
    let mut established = Vec::with_capacity(specs.len());
    for (spec, group) in specs.into_iter().zip(groups) {
        let Some(group) = group else { continue };
        let subscription = match spec.defined {
            None => subscribe(bus, &spec).await?,
            Some(defined) => defined.subscription,
        };
        let slots_total = u16::try_from(group.slots.len()).unwrap_or(1);
        let group_made_at = group.created_at;
        established.push((spec, Established { subscription, slots_total, group_made_at }));
    }
    Ok(established)
}

/// Is none of them one that the store keeps?
async fn check_not_defined(bus: &Ensue, specs: &[Arc<Spec>]) -> Result<(), Error> {
    if specs.iter().all(|spec| spec.defined.is_some()) {
        return Ok(());
    }
    let (_, defined) = bus.store().definitions().await?;
    let is_both = |spec: &&Arc<Spec>| spec.defined.is_none() && defined.iter().any(|one| one.key == spec.key);
    let Some(spec) = specs.iter().find(is_both) else { return Ok(()) };
    let reason = format!(
        "makes the key `{0}`, which a handler in the store has: choose another name, or delete that (`ensue handler delete {0}`)",
        spec.key
    );
    Err(Invalid::new("name", reason).into())
}

/// Makes the one subscription of a handler; answers its id.
async fn subscribe(bus: &Ensue, spec: &Spec) -> Result<Uuid, StoreError> {
    let (store, group) = (bus.store(), &spec.key);
    let subscription = NewSubscription {
        group: group.clone(),
        topic: spec.topic.clone(),
        condition: spec.condition.as_ref().map(|condition| condition.source().to_owned()),
        params: spec.params.clone(),
        expires_in: None,
    };
    let (kept, _) = store.subscribe(subscription).await?;
    // What the handler wanted under the same name before, it wants no longer.
    loop {
        let known = store.subscriptions(group, None, SUBSCRIPTIONS_PAGE).await?;
        let others: Vec<Uuid> = known.iter().map(|other| other.id).filter(|id| *id != kept.id).collect();
        if others.is_empty() {
            return Ok(kept.id);
        }
        for other in others {
            store.unsubscribe(group, other).await?;
        }
    }
}
