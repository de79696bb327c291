//! How is it all started and stopped?

use super::establish::{Established, establish_all};
use super::member::Membership;
use super::progress::Progress;
use super::pulse;
use super::router::{Mailbox, Router};
use super::settler::Settler;
use super::worker::{Counters, Halt, Idle, Parent, Parents, Worker};
use crate::Ensue;
use crate::error::Error;
use crate::handlers::{Mode, Spec, parents_of};
use crate::supervision::supervised;
use ensue_core::positions::{SlotState, slot_of};
use ensue_core::store::SharedStore;
use ensue_core::{Event, GroupName, Seq, StoreError};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::{AbortHandle, JoinHandle};
use uuid::Uuid;

/// Everything that runs handlers in this process.
pub(crate) struct Deliveries {
    membership: Arc<Membership>,
    router: Arc<Router>,
    settler: Settler,
    look: watch::Sender<u64>,
    handlers: Mutex<Handlers>,
    loops: Mutex<Vec<JoinHandle<()>>>,
}

/// The handlers that run, and those that come to their end.
#[derive(Default)]
struct Handlers {
    running: Vec<Running>,
    /// No longer bound, or replaced: each ends by itself, and its successor begins after that.
    leaving: Vec<Leaving>,
    is_stopped: bool,
}

/// A handler that a publish can wait for.
pub(super) struct SyncHandler {
    pub spec: Arc<Spec>,
    pub subscription: Uuid,
    slots_total: u16,
    pub progress: Arc<Progress>,
}

/// A handler that runs.
struct Running {
    spec: Arc<Spec>,
    place: Established,
    progress: Arc<Progress>,
    parents: Arc<Parents>,
    mailbox: Arc<Mailbox>,
    idle: watch::Receiver<Option<Idle>>,
    halt: watch::Sender<Halt>,
    /// See [`Worker::is_group_gone`].
    is_group_gone: Arc<AtomicBool>,
    worker: JoinHandle<()>,
}

/// A handler that was unbound.
struct Leaving {
    key: GroupName,
    halt: watch::Sender<Halt>,
    has_ended: watch::Receiver<bool>,
    worker: AbortHandle,
}

impl Deliveries {
    /// Makes the groups of all handlers, then starts them: none is given anything before all are there.
    pub async fn start(bus: &Ensue) -> Result<Self, Error> {
        let inner = bus.inner();
        let membership = Arc::new(Membership::new(bus.store().clone(), inner.member));
        let deliveries = Self {
            router: Arc::new(Router::new(inner.tail.clone())?),
            settler: Settler::start(bus.shared()),
            look: watch::Sender::new(0),
            handlers: Mutex::default(),
            loops: Mutex::default(),
            membership: membership.clone(),
        };
        deliveries.take_over(bus).await?;
        let pulsing = bus.clone();
        deliveries.keep(tokio::spawn(supervised("pulse", move || pulse::run(pulsing.clone(), membership.clone()))));
        Ok(deliveries)
    }

    /// Runs what is bound now: what is not bound any more comes to its end; what is new begins, and so does what has lost its
    /// group. One call at a time: whoever changes what is bound holds `Inner::rebinding`. If it fails, what runs is what ran.
    pub async fn take_over(&self, bus: &Ensue) -> Result<(), Error> {
        let registry = &bus.inner().handlers;
        let (bindings, specs) = (registry.bindings(), registry.bound());
        let is_running = |spec: &Arc<Spec>| self.lock().running.iter().any(|one| one.runs(spec));
        let new: Vec<Arc<Spec>> = specs.iter().filter(|spec| !is_running(spec)).cloned().collect();
        let to_begin = new.clone();
        let new = establish_all(bus, new).await?;
        registry.has_established(bindings);
        // Who only runs jobs takes no slots; but a change of rules must wait for it, too.
        if !specs.is_empty() || registry.has_registered() || self.membership.has_joined() {
            let is_first = !self.membership.has_joined();
            self.membership.serve(specs.iter().map(|spec| spec.key.clone()).collect()).await?;
            if is_first {
                let begun = self.membership.lease.begun();
                bus.take_over_rules().await?;
                self.membership.lease.caught_up(begun);
            }
        }
        if !new.is_empty() && !self.router.is_listening() {
            let listening = self.router.listen().await?;
            self.keep(tokio::spawn(self.router.clone().run(listening)));
        }
        let mut handlers = self.lock();
        if handlers.is_stopped {
            return Ok(());
        }
        handlers.unbind(&self.router, |spec| {
            let is_among = |specs: &[Arc<Spec>]| specs.iter().any(|one| Arc::ptr_eq(one, spec));
            !is_among(&specs) || is_among(&to_begin)
        });
        // All mailboxes are there before the first handler begins.
        let new = new.into_iter().map(|(spec, place)| {
            let progress = Arc::new(Progress::default());
            let mailbox = self.router.add(&spec, place.subscription, progress.clone());
            (spec, place, progress, mailbox)
        });
        let new: Vec<_> = new.collect();
        let mut waiting = Vec::with_capacity(new.len());
        for (spec, place, progress, mailbox) in new {
            let (idle, is_idle) = watch::channel(None);
            let (halt, begin) = (watch::Sender::new(Halt::Not), Arc::new(Notify::new()));
            let is_group_gone = Arc::<AtomicBool>::default();
            let worker = Worker {
                spec: spec.clone(),
                subscription: place.subscription,
                slots_total: place.slots_total,
                group_made_at: place.group_made_at,
                is_group_gone: is_group_gone.clone(),
                store: bus.store().clone(),
                router: self.router.clone(),
                settler: self.settler.clone(),
                membership: self.membership.clone(),
                states: bus.inner().states.clone(),
                counters: Counters::of(spec.key.as_str()),
                read_ahead: bus.inner().read_ahead.clone(),
                progress: progress.clone(),
                parents: Arc::default(),
                gate: bus.inner().gate.clone(),
                mailbox: mailbox.clone(),
                stop: halt.subscribe(),
                look: self.look.subscribe(),
                idle,
            };
            let (parents, before) = (worker.parents.clone(), handlers.leaving_of(&spec.key));
            waiting.push(begin.clone());
            let task = tokio::spawn(async move {
                begin.notified().await;
                // Never two at once of one handler: what the one before has is written and given back first.
                for mut ended in before {
                    let _ended_or_aborted = ended.wait_for(|ended| *ended).await;
                }
                worker.run().await;
            });
            handlers.running.push(Running {
                spec,
                place,
                progress,
                parents,
                mailbox,
                idle: is_idle,
                halt,
                is_group_gone,
                worker: task,
            });
        }
        handlers.order();
        waiting.iter().for_each(|begin| begin.notify_one());
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Handlers> {
        self.handlers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, task: JoinHandle<()>) {
        self.loops.lock().unwrap_or_else(PoisonError::into_inner).push(task);
    }

    /// Has a handler that runs here lost its group?
    pub fn has_lost_a_group(&self) -> bool {
        self.lock().running.iter().any(|handler| handler.is_group_gone.load(Ordering::SeqCst))
    }

    /// Lets the handlers look whether more can start.
    pub fn wake(&self) {
        self.lock().running.iter().for_each(|handler| handler.mailbox.wake.notify_one());
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
    pub(super) fn sync_handlers(&self) -> Vec<SyncHandler> {
        let handlers = self.lock();
        let sync = handlers.running.iter().filter(|handler| handler.spec.mode == Mode::Sync);
        sync.map(|Running { spec, place, progress, .. }| SyncHandler {
            spec: spec.clone(),
            subscription: place.subscription,
            slots_total: place.slots_total,
            progress: progress.clone(),
        })
        .collect()
    }

    /// Should this process run the event, by what it knows of the others?
    pub(super) fn is_here(&self, handler: &SyncHandler, event: &Event) -> bool {
        let slot = slot_of(event.object.as_ref(), event.seq, handler.slots_total);
        self.membership.wanted(&handler.spec.key, handler.slots_total).contains(&slot)
    }

    /// Comes back when every handler has done all there is to do up to this place; what waits for its time waits on.
    pub async fn drained(&self, end: Seq) {
        self.look.send_modify(|look| *look += 1);
        let look = *self.look.borrow();
        let all: Vec<_> = self.lock().running.iter().map(|handler| handler.idle.clone()).collect();
        for mut idle in all {
            let is_idle = |idle: &Option<Idle>| idle.is_some_and(|idle| idle.seen_to >= end && idle.look >= look);
            // A worker that has ended does nothing more.
            let _idle_or_ended = idle.wait_for(is_idle).await;
        }
    }

    /// What of the handlers that run here is behind this place and with somebody else, or with nobody.
    pub async fn elsewhere(&self, store: &SharedStore, end: Seq) -> Result<Vec<(GroupName, SlotState)>, StoreError> {
        let keys: Vec<GroupName> = self.lock().running.iter().map(|handler| handler.spec.key.clone()).collect();
        let groups = store.groups().await?.into_iter().filter(|group| keys.contains(&group.name));
        let is_here =
            |slot: &SlotState| slot.owner.as_ref().is_some_and(|owner| owner.member == self.membership.member);
        let behind = |slot: &SlotState| slot.cursor < end && !is_here(slot);
        Ok(groups
            .flat_map(|group| group.slots.into_iter().filter(behind).map(move |slot| (group.name.clone(), slot)))
            .collect())
    }

    /// Starts nothing more, lets what runs end within this time, writes down what is done and gives the slots back.
    pub async fn shutdown(&self, bus: &Ensue, wait_max: Duration) -> Result<(), StoreError> {
        let deadline = tokio::time::Instant::now() + wait_max;
        let mut in_time = true;
        let ends = self.lock().stop();
        for mut ended in ends {
            let end = tokio::time::timeout_at(deadline, ended.wait_for(|ended| *ended)).await;
            in_time &= end.is_ok();
        }
        self.end();
        if !self.membership.has_joined() {
            return Ok(());
        }
        if !in_time {
            tracing::warn!("handlers did not end in time: what they were at is run again");
        }
        bus.store().leave(self.membership.member.id).await
    }

    /// Ends everything at once.
    pub fn end(&self) {
        let handlers = self.lock();
        handlers.running.iter().for_each(|handler| handler.worker.abort());
        handlers.leaving.iter().for_each(|handler| handler.worker.abort());
        self.loops.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(JoinHandle::abort);
    }
}

impl Handlers {
    /// Those that are not to run any more begin nothing new, and come to their end.
    fn unbind(&mut self, router: &Router, goes: impl Fn(&Arc<Spec>) -> bool) {
        self.leaving.retain(|leaving| !*leaving.has_ended.borrow());
        let (gone, stays) = std::mem::take(&mut self.running).into_iter().partition(|one| goes(&one.spec));
        self.running = stays;
        let gone: Vec<Running> = gone;
        for running in gone {
            running.halt.send_replace(Halt::Unbound);
            router.remove(running.place.subscription);
            self.leaving.push(running.leave());
        }
    }

    /// When those of a key that come to their end have ended.
    fn leaving_of(&self, key: &GroupName) -> Vec<watch::Receiver<bool>> {
        self.leaving.iter().filter(|one| one.key == *key).map(|one| one.has_ended.clone()).collect()
    }

    /// Tells each who its parents are: for one event they go first.
    fn order(&self) {
        let specs: Vec<Arc<Spec>> = self.running.iter().map(|one| one.spec.clone()).collect();
        let mut children: Vec<Vec<Arc<Notify>>> = vec![Vec::new(); specs.len()];
        for (at, handler) in self.running.iter().enumerate() {
            let parents = parents_of(&specs, at);
            parents.iter().for_each(|parent| children[*parent].push(handler.mailbox.wake.clone()));
            let parent = |at: usize| Parent { key: specs[at].key.clone(), progress: self.running[at].progress.clone() };
            handler.parents.set(parents.into_iter().map(parent).collect());
        }
        for (handler, children) in self.running.iter().zip(children) {
            handler.progress.follow(children, handler.spec.mode == Mode::Sync);
        }
    }

    /// Everything stops; answers when each has ended.
    fn stop(&mut self) -> Vec<watch::Receiver<bool>> {
        self.is_stopped = true;
        let running = std::mem::take(&mut self.running);
        self.leaving.extend(running.into_iter().map(Running::leave));
        for leaving in &self.leaving {
            leaving.halt.send_replace(Halt::Stop);
        }
        self.leaving.iter().map(|leaving| leaving.has_ended.clone()).collect()
    }
}

impl Running {
    /// Does it run this handler, on the group that it was begun with?
    fn runs(&self, spec: &Arc<Spec>) -> bool {
        Arc::ptr_eq(&self.spec, spec) && !self.is_group_gone.load(Ordering::SeqCst)
    }

    /// It comes to its end.
    fn leave(self) -> Leaving {
        let (ended, has_ended) = watch::channel(false);
        let (worker, task) = (self.worker.abort_handle(), self.worker);
        tokio::spawn(async move {
            // One that was aborted, or has panicked, has ended too.
            let _ended_or_aborted = task.await;
            ended.send_replace(true);
        });
        Leaving { key: self.spec.key.clone(), halt: self.halt, has_ended, worker }
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
