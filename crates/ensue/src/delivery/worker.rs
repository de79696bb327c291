//! Who runs one handler?
//!
//! A worker is one task. It begins a [`Life`] with what the store remembers, and begins again with that whenever it has
//! lost a slot or the log went back.

use super::life::{End, Life};
use super::member::{Membership, View};
use super::progress::Progress;
use super::router::{Mailbox, Router};
use super::settler::Settler;
use super::ticks::SLOTS_LOOK_EVERY;
use crate::handlers::{HandlerFilter, Spec, States};
use crate::labels::HANDLERS;
use crate::rules::Gate;
use ensue_core::positions::{Acquire, AcquiredSlot, Replay, SlotNumber};
use ensue_core::store::SharedStore;
use ensue_core::{GroupName, Seq, StoreError, Timestamp};
use futures_util::FutureExt;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

/// How long a life waits for attempts that it has ended.
const ENDED_WITHIN: Duration = Duration::from_secs(30);
/// How long to wait for the tail to compare what it knows with the log.
const COMPARED_WITHIN: Duration = Duration::from_secs(2);
/// How long to wait after something went wrong.
const AGAIN_AFTER: Duration = Duration::from_millis(500);

/// A handler that goes first.
pub(super) struct Parent {
    pub key: GroupName,
    pub progress: Arc<Progress>,
}

/// Those that go first, as of now: handlers come and go.
#[derive(Default)]
pub(super) struct Parents(Mutex<Arc<[Parent]>>);

impl Parents {
    pub fn now(&self) -> Arc<[Parent]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set(&self, parents: Vec<Parent>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = parents.into();
    }
}

/// What a worker is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) enum Halt {
    /// Go on.
    #[default]
    Not,
    /// The handler is no longer bound here: begin nothing new, let what runs come to its end, and give back what it has.
    Unbound,
    /// The process stops: what runs is told to end.
    Stop,
}

/// What a worker works with, in all its lives.
pub(super) struct Worker {
    pub spec: Arc<Spec>,
    pub subscription: Uuid,
    pub slots_total: u16,
    /// When its group was made.
    pub group_made_at: Timestamp,
    /// Set once the group turns out to be gone, or to be another: then the worker ends, and the next pulse begins anew.
    pub is_group_gone: Arc<AtomicBool>,
    pub store: SharedStore,
    pub router: Arc<Router>,
    pub settler: Settler,
    pub membership: Arc<Membership>,
    pub states: Arc<States>,
    pub counters: Counters,
    /// How many events it holds that are not done.
    pub read_ahead: Arc<AtomicUsize>,
    pub progress: Arc<Progress>,
    pub parents: Arc<Parents>,
    /// The rules that this process goes by.
    pub gate: Arc<Gate>,
    /// Its bell is rung by parents, too.
    pub mailbox: Arc<Mailbox>,
    pub stop: watch::Receiver<Halt>,
    /// Counts up when somebody wants every worker to look whether there is something to do.
    pub look: watch::Receiver<u64>,
    /// When everything there is is done and written: up to where, and after which look.
    pub idle: watch::Sender<Option<Idle>>,
}

/// How many attempts have ended, by how.
pub(super) struct Counters {
    pub done: metrics::Counter,
    pub failed: metrics::Counter,
    pub snoozed: metrics::Counter,
    pub cancelled: metrics::Counter,
}

impl Counters {
    pub fn of(handler: &str) -> Self {
        let handler = HANDLERS.label(handler);
        let counter = |outcome: &'static str| metrics::counter!("ensue_delivery_attempts_total", "handler" => handler.clone(), "outcome" => outcome);
        let (done, failed) = (counter("done"), counter("failed"));
        Self { done, failed, snoozed: counter("snoozed"), cancelled: counter("cancelled") }
    }
}

/// Nothing is to be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Idle {
    /// Up to here the log was looked at.
    pub seen_to: Seq,
    /// The look that found it.
    pub look: u64,
}

impl Worker {
    /// Works until it is told to stop.
    pub async fn run(self) {
        self.live_again_and_again().await;
        self.progress.end();
        self.give_back_unbound().await;
    }

    /// Other processes may serve the group, or this one again.
    async fn give_back_unbound(&self) {
        let mut stop = self.stop.clone();
        while *stop.borrow() == Halt::Unbound {
            match self.release_all().await {
                Ok(()) | Err(StoreError::Closed) => return,
                Err(error) => {
                    tracing::warn!(handler = %self.spec.key, %error, "its slots cannot be given back; trying again")
                }
            }
            tokio::select! {
                () = tokio::time::sleep(AGAIN_AFTER) => {}
                _stops = halted(&mut stop, Halt::Unbound) => return,
            }
        }
    }

    async fn release_all(&self) -> Result<(), StoreError> {
        let all: Vec<SlotNumber> = (0..self.slots_total).collect();
        self.store.release(self.membership.member.id, &self.spec.key, &all).await
    }

    async fn live_again_and_again(&self) {
        let mut stop = self.stop.clone();
        loop {
            let end = AssertUnwindSafe(self.live()).catch_unwind().await.unwrap_or_else(|_| {
                let why = "something that the handler brought has panicked";
                Err(StoreError::Engine(why.into()))
            });
            match end {
                Ok(End::Stopped) => return,
                Ok(End::Again) => self.progress.begin_again(),
                Ok(End::WentBack { setbacks, seen_to }) => {
                    self.progress.end();
                    tokio::select! {
                        () = self.tail_compares(setbacks) => self.tell_went_back(seen_to),
                        _halt = halted(&mut stop, Halt::Not) => return,
                    }
                }
                Err(StoreError::Closed) => return,
                Err(_) if *stop.borrow() != Halt::Not => return,
                Err(error) if self.is_group_gone.load(Ordering::SeqCst) => {
                    // One that the store keeps is gone with its group.
                    if self.spec.defined.is_none() {
                        tracing::warn!(handler = %self.spec.key, %error, "its group is made anew, from where it is told to start");
                    }
                    return;
                }
                Err(error) => {
                    self.progress.end();
                    tracing::warn!(handler = %self.spec.key, %error, "the handler begins again");
                    tokio::select! {
                        () = tokio::time::sleep(AGAIN_AFTER) => {}
                        _halt = halted(&mut stop, Halt::Not) => return,
                    }
                }
            }
            if *stop.borrow() != Halt::Not {
                return;
            }
        }
    }

    /// Waits until the tail has found out how far the log went back: what it has read until then is not in the log.
    async fn tail_compares(&self, setbacks: u64) {
        self.router.look_now();
        let _elapsed = tokio::time::timeout(COMPARED_WITHIN, self.router.went_back(setbacks)).await;
    }

    /// Tells what the handler had read that is not in the log any more.
    pub fn tell_went_back(&self, seen_to: Seq) {
        let (handler, from) = (&self.spec.key, self.router.read_to() + 1);
        if from <= seen_to {
            tracing::warn!(%handler, from, to = seen_to, reason = "went_back", "the log lost events that were handled");
        }
    }

    async fn live(&self) -> Result<End, StoreError> {
        let mut view = self.membership.watch();
        let seen = view.borrow_and_update().clone();
        let setbacks = self.router.known().setbacks;
        // Taken again they have new fences: what a life before may still have on its way is not written then.
        self.release_all().await?;
        let wanted = self.wanted();
        let acquired = if wanted.is_empty() { Ok(Vec::new()) } else { self.acquire(&wanted).await };
        let acquired = match acquired {
            Ok(acquired) if !acquired.is_empty() => acquired,
            other => return self.wait_for_slots(view, other).await,
        };
        let mut life = Life::begin(self, setbacks, acquired, seen).await?;
        let end = life.work(&mut view).await;
        life.cancel.send_replace(true);
        life.running.abort_all();
        // One that is in blocking code cannot be ended: the same event must not start beside it.
        let ended = async { while life.running.join_next().await.is_some() {} };
        if tokio::time::timeout(ENDED_WITHIN, ended).await.is_err() {
            tracing::warn!(handler = %self.spec.key, "attempts go on that cannot be ended: they block their threads");
        }
        end
    }

    /// There is nothing to do here: others have the slots, or the group is gone.
    async fn wait_for_slots(
        &self,
        mut view: watch::Receiver<View>,
        acquired: Result<Vec<AcquiredSlot>, StoreError>,
    ) -> Result<End, StoreError> {
        let (mut stop, mut look) = (self.stop.clone(), self.look.clone());
        self.progress.end();
        let seen = *look.borrow_and_update();
        let is_to_have_some = !self.wanted().is_empty();
        // What is to be this worker's, and is with another or cannot be asked for now, may have something to do.
        let is_idle = match &acquired {
            Ok(_) => !is_to_have_some,
            Err(error) => matches!(error, StoreError::Engine(_)),
        };
        if is_idle {
            self.idle.send_replace(Some(Idle { seen_to: Seq::MAX, look: seen }));
        }
        acquired?;
        tokio::select! {
            _changed = view.changed() => {}
            _changed = look.changed() => {}
            // Who has them gives them back, and does not say so.
            () = tokio::time::sleep(SLOTS_LOOK_EVERY), if is_to_have_some => {}
            _halt = halted(&mut stop, Halt::Not) => return Ok(End::Stopped),
        }
        Ok(End::Again)
    }

    /// The slots that should be this worker's.
    pub fn wanted(&self) -> Vec<SlotNumber> {
        self.membership.wanted(&self.spec.key, self.slots_total)
    }

    /// What the slots run again, by number. Asked for once they are taken: who changes it takes them away.
    pub async fn replays(&self) -> Result<Vec<Option<Replay>>, StoreError> {
        let mut replays = vec![None; usize::from(self.slots_total)];
        let group = self.store.group(&self.spec.key).await?.filter(|group| group.created_at == self.group_made_at);
        for slot in group.ok_or_else(|| self.group_is_gone())?.slots {
            if let Some(replay) = replays.get_mut(usize::from(slot.slot)) {
                *replay = slot.replay;
            }
        }
        Ok(replays)
    }

    pub async fn acquire(&self, slots: &[SlotNumber]) -> Result<Vec<AcquiredSlot>, StoreError> {
        let sent = Instant::now();
        let acquire = Acquire {
            group: self.spec.key.clone(),
            member: self.membership.member.clone(),
            lease: self.membership.lease_ttl(),
            slots: slots.to_vec(),
            go_on: None,
        };
        let acquired = self.store.acquire(acquire).await?.ok_or_else(|| self.group_is_gone())?;
        self.membership.renewed(sent);
        self.check_whose_it_is().await?;
        Ok(acquired.slots)
    }

    /// Somebody has deleted the group: nothing of what this worker knows is true any more.
    fn group_is_gone(&self) -> StoreError {
        self.is_group_gone.store(true, Ordering::SeqCst);
        StoreError::Unavailable(format!("the group of the handler `{}` was deleted", self.spec.key))
    }

    /// Is the group still the one of this handler, wanting the same? Looked at when slots were taken: whoever defines a handler
    /// anew takes its slots from those who have them, so nobody passes over what only the new one wants.
    async fn check_whose_it_is(&self) -> Result<(), StoreError> {
        if self.slots_total == 1 && self.spec.defined.is_none() {
            return Ok(());
        }
        let (_, defined) = self.store.definitions().await?;
        let now = defined.iter().find(|one| one.key == self.spec.key).map(|one| one.subscription);
        if now == self.spec.defined.map(|defined| defined.subscription) {
            return Ok(());
        }
        self.release_all().await?;
        Err(StoreError::Unavailable(format!("the handler `{}` was defined anew, or by somebody else", self.spec.key)))
    }

    /// What the handler wants.
    pub fn wish(&self) -> HandlerFilter {
        self.spec.wish(self.subscription)
    }
}

/// Comes back when more is told than this.
pub(super) async fn halted(stop: &mut watch::Receiver<Halt>, heard: Halt) -> Halt {
    // Who would tell is gone: so is the bus.
    stop.wait_for(|halt| *halt > heard).await.map_or(Halt::Stop, |halt| *halt)
}
