//! How is it all started and stopped?

use super::member::Membership;
use super::progress::Progress;
use super::pulse;
use super::router::Router;
use super::settler::Settler;
use super::worker::{Counters, Idle, Parent, Worker};
use crate::Ensue;
use crate::error::Error;
use crate::handlers::{Mode, Spec, parents_of};
use ensue_core::positions::{GroupKind, NewGroup, NewSubscription, slot_of};
use ensue_core::{Event, GroupName, Seq, StoreError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinHandle};
use uuid::Uuid;

/// How many subscriptions of a handler's group are looked at once.
const SUBSCRIPTIONS_PAGE: usize = 100;

/// Everything that runs handlers in this process.
pub(crate) struct Deliveries {
    membership: Arc<Membership>,
    is_member: bool,
    handlers: Vec<Running>,
    look: watch::Sender<u64>,
    stop: watch::Sender<bool>,
    workers: Mutex<Vec<JoinHandle<()>>>,
    loops: Vec<JoinHandle<()>>,
}

/// A handler that a publish can wait for.
pub(super) struct SyncHandler<'d> {
    pub spec: &'d Arc<Spec>,
    pub subscription: Uuid,
    slots_total: u16,
    pub progress: &'d Arc<Progress>,
}

/// A handler that runs.
struct Running {
    spec: Arc<Spec>,
    subscription: Uuid,
    slots_total: u16,
    progress: Option<Arc<Progress>>,
    idle: watch::Receiver<Option<Idle>>,
    worker: AbortHandle,
}

impl Deliveries {
    /// Makes the groups of all handlers, then starts them: none is given anything before all are there.
    pub async fn start(bus: &Ensue) -> Result<Self, Error> {
        let inner = bus.inner();
        let store = bus.store().clone();
        let specs = inner.handlers.bound();
        let slots = store.handler_slots();
        let mut handlers = Vec::with_capacity(specs.len());
        for spec in &specs {
            handlers.push(establish(bus, spec, slots).await?);
        }
        let wanted: Vec<(Arc<Spec>, Uuid)> =
            specs.iter().cloned().zip(handlers.iter().map(|(subscription, _)| *subscription)).collect();
        let is_parent = |at: usize| (0..specs.len()).any(|child| parents_of(&specs, child).contains(&at));
        let followed: Vec<bool> = (0..specs.len()).map(|at| specs[at].mode == Mode::Sync || is_parent(at)).collect();
        let progress: Vec<Option<Arc<Progress>>> =
            followed.iter().map(|followed| followed.then(|| Arc::new(Progress::default()))).collect();
        let router = Arc::new(Router::new(inner.tail.clone(), &wanted, &followed)?);
        let served = specs.iter().map(|spec| spec.key.clone()).collect();
        let membership = Arc::new(Membership::new(store.clone(), inner.member, served));
        let settler = Settler::start(bus.shared());
        let (stop, look) = (watch::Sender::new(false), watch::Sender::new(0));
        let mut loops = Vec::new();
        // Who only runs jobs takes no slots; but a change of rules must wait for it, too.
        let is_member = !handlers.is_empty() || inner.handlers.has_registered();
        if is_member {
            membership.join().await?;
            let begun = membership.lease.begun();
            bus.take_over_rules().await?;
            membership.lease.caught_up(begun);
        }
        if !handlers.is_empty() {
            let listening = router.listen().await?;
            loops.push(tokio::spawn(router.clone().run(listening)));
        }
        let member = is_member.then(|| membership.clone());
        loops.push(tokio::spawn(pulse::run(bus.clone(), member)));
        let (mut running, mut workers) = (Vec::with_capacity(handlers.len()), Vec::new());
        for (at, (spec, (subscription, slots_total))) in specs.iter().cloned().zip(handlers).enumerate() {
            let (idle, is_idle) = watch::channel(None);
            let wake = router.mailboxes[at].wake.clone();
            let parent = |at: usize| Some(Parent { key: specs[at].key.clone(), progress: progress[at].clone()? });
            let parents: Vec<Parent> = parents_of(&specs, at).into_iter().filter_map(parent).collect();
            parents.iter().for_each(|parent| parent.progress.tell(wake.clone()));
            let worker = Worker {
                at,
                spec: spec.clone(),
                subscription,
                slots_total,
                store: store.clone(),
                router: router.clone(),
                settler: settler.clone(),
                membership: membership.clone(),
                states: inner.states.clone(),
                counters: Counters::of(spec.key.as_str()),
                progress: progress[at].clone(),
                parents,
                gate: inner.gate.clone(),
                wake,
                stop: stop.subscribe(),
                look: look.subscribe(),
                idle,
            };
            let task = tokio::spawn(worker.run());
            let worker = task.abort_handle();
            workers.push(task);
            let progress = progress[at].clone();
            running.push(Running { spec, subscription, slots_total, progress, idle: is_idle, worker });
        }
        Ok(Self { membership, is_member, handlers: running, look, stop, workers: Mutex::new(workers), loops })
    }

    /// May this process start anything, as far as its lease is concerned?
    pub fn may_start(&self) -> bool {
        self.membership.holds_lease()
    }

    /// The time by the store's clock.
    pub async fn now(&self) -> Result<ensue_core::Timestamp, StoreError> {
        self.membership.now().await
    }

    /// Tells the workers that something was asked of a lane.
    pub fn asked(&self) {
        self.membership.asked();
    }

    /// Tells the workers that a group was moved or deleted.
    pub fn moved(&self) {
        self.membership.moved();
    }

    /// The handlers that a publish can wait for.
    pub(super) fn sync_handlers(&self) -> impl Iterator<Item = SyncHandler<'_>> {
        let sync = self.handlers.iter().filter(|handler| handler.spec.mode == Mode::Sync);
        sync.filter_map(|handler| {
            let Running { spec, subscription, slots_total, .. } = handler;
            let progress = handler.progress.as_ref()?;
            Some(SyncHandler { spec, subscription: *subscription, slots_total: *slots_total, progress })
        })
    }

    /// Should this process run the event, by what it knows of the others?
    pub(super) fn is_here(&self, handler: &SyncHandler<'_>, event: &Event) -> bool {
        let slot = slot_of(event.object.as_ref(), event.seq, handler.slots_total);
        self.membership.wanted(&handler.spec.key, handler.slots_total).contains(&slot)
    }

    /// Comes back when every handler has done all there is to do up to this place; what waits for its time waits on.
    pub async fn drained(&self, end: Seq) {
        self.look.send_modify(|look| *look += 1);
        let look = *self.look.borrow();
        for handler in &self.handlers {
            let mut idle = handler.idle.clone();
            let is_idle = |idle: &Option<Idle>| idle.is_some_and(|idle| idle.seen_to >= end && idle.look >= look);
            // A worker that has ended does nothing more.
            let _idle_or_ended = idle.wait_for(is_idle).await;
        }
    }

    /// Starts nothing more, lets what runs end within this time, writes down what is done and gives the slots back.
    pub async fn shutdown(&self, bus: &Ensue, wait_max: Duration) -> Result<(), StoreError> {
        self.stop.send_replace(true);
        let deadline = tokio::time::Instant::now() + wait_max;
        let mut in_time = true;
        let workers = std::mem::take(&mut *self.workers.lock().unwrap_or_else(PoisonError::into_inner));
        for worker in workers {
            in_time &= tokio::time::timeout_at(deadline, worker).await.is_ok();
        }
        self.end();
        if !self.is_member {
            return Ok(());
        }
        if !in_time {
            tracing::warn!("handlers did not end in time: what they were at is run again");
        }
        bus.store().leave(self.membership.member.id).await
    }

    /// Ends everything at once.
    pub fn end(&self) {
        self.handlers.iter().for_each(|handler| handler.worker.abort());
        self.loops.iter().for_each(JoinHandle::abort);
    }
}

impl Ensue {
    /// Lets the workers of this process look what happened to their slots.
    pub(crate) fn tell_moved(&self) {
        if let Some(deliveries) = self.inner().deliveries().as_ref() {
            deliveries.moved();
        }
    }
}

impl Drop for Deliveries {
    fn drop(&mut self) {
        self.end();
    }
}

/// Makes the group of a handler and its one subscription; answers the subscription's id, and how many slots there are.
async fn establish(bus: &Ensue, spec: &Spec, slots: u16) -> Result<(Uuid, u16), StoreError> {
    let store = bus.store();
    let group: &GroupName = &spec.key;
    let new = NewGroup { name: group.clone(), kind: GroupKind::Handler, start: spec.start, slots };
    let (state, _) = store.create_group(new).await?;
    let slots = u16::try_from(state.slots.len()).unwrap_or(1);
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
            return Ok((kept.id, slots));
        }
        for other in others {
            store.unsubscribe(group, other).await?;
        }
    }
}
