//! Which slots are this process's?
//!
//! A process is a member, with one lease for all its slots. Where several processes share a store, every member knows
//! the others by their leases and works out alone which slots are whose. Where one process alone can write, all are its.

use ensue_core::positions::{GroupKind, Member, SlotNumber, preferred_member};
use ensue_core::store::SharedStore;
use ensue_core::{StoreError, Timestamp};
use jiff::SignedDuration;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

/// How long a lease is where processes share a store: what a process that dies holds is free after this.
const LEASE: Duration = Duration::from_secs(4);
/// How often it is renewed.
const RENEW_EVERY: Duration = Duration::from_millis(1_000);
/// How long the store's clock is taken to go as ours does.
const CLOCK_TRUSTED: Duration = Duration::from_secs(5);
/// A lease that is as good as none: one process alone can write.
const LEASE_ALONE: Duration = Duration::from_secs(365 * 24 * 3_600);

/// What workers follow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct View {
    /// All live processes.
    pub members: Vec<Uuid>,
    /// Counts up when something happened to this member's slots or lanes.
    pub version: u64,
    /// Counts up when this process asked something of a lane itself.
    pub asked_here: u64,
    /// Counts up when this process moved or deleted a group itself.
    pub moved_here: u64,
}

/// This process, among those that share the store.
pub(super) struct Membership {
    pub member: Member,
    store: SharedStore,
    alone: bool,
    /// Nothing is started after this, unless the lease was renewed.
    deadline: Mutex<Instant>,
    view: watch::Sender<View>,
    clock: Mutex<Option<(Instant, Timestamp)>>,
}

impl Membership {
    /// This process, under an id that it has as long as its bus.
    pub fn new(store: SharedStore, id: Uuid) -> Self {
        let name = format!("{}:{}", hostname(), std::process::id());
        let alone = store.handler_slots() == 1;
        let deadline = Mutex::new(Instant::now());
        let view = View { members: vec![id], ..View::default() };
        let member = Member { id, name, kind: GroupKind::Handler };
        Self { member, store, alone, deadline, view: watch::Sender::new(view), clock: Mutex::new(None) }
    }

    pub fn lease(&self) -> SignedDuration {
        let lease = if self.alone { LEASE_ALONE } else { LEASE };
        SignedDuration::try_from(lease).unwrap_or(SignedDuration::MAX)
    }

    pub fn watch(&self) -> watch::Receiver<View> {
        self.view.subscribe()
    }

    /// May something be started?
    pub fn holds_lease(&self) -> bool {
        self.alone || Instant::now() < *self.deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lease was renewed by a call that was sent at this time.
    pub fn renewed(&self, sent: Instant) {
        let mut deadline = self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        *deadline = deadline.max(sent + LEASE);
    }

    /// Which of a group's slots should be this process's?
    pub fn wanted(&self, slots: u16) -> Vec<SlotNumber> {
        let view = self.view.borrow();
        let mine = |slot: &SlotNumber| preferred_member(*slot, &view.members) == Some(self.member.id);
        (0..slots).filter(mine).collect()
    }

    /// Tells the workers that something was asked of a lane.
    pub fn asked(&self) {
        self.view.send_modify(|view| view.asked_here += 1);
    }

    /// Tells the workers that a group was moved or deleted.
    pub fn moved(&self) {
        self.view.send_modify(|view| view.moved_here += 1);
    }

    /// The time by the store's clock.
    pub async fn now(&self) -> Result<Timestamp, StoreError> {
        if self.alone {
            return self.store.now().await;
        }
        let known = *self.clock.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((since, time)) = known
            && since.elapsed() < CLOCK_TRUSTED
        {
            return Ok(time + since.elapsed());
        }
        let asked = Instant::now();
        let time = self.store.now().await?;
        *self.clock.lock().unwrap_or_else(PoisonError::into_inner) = Some((asked, time));
        Ok(time)
    }

    /// Renews the lease until it is dropped.
    pub async fn run(self: Arc<Self>) {
        if self.alone {
            return std::future::pending().await;
        }
        loop {
            let sent = Instant::now();
            match self.store.renew(self.member.id, self.lease()).await {
                Ok(Some(renewed)) => {
                    self.renewed(sent);
                    let members: Vec<Uuid> = renewed.members.iter().map(|member| member.id).collect();
                    self.view.send_if_modified(|view| {
                        let changed = view.members != members || view.version != renewed.version;
                        (view.members, view.version) = (members, renewed.version);
                        changed
                    });
                }
                // Nothing was acquired yet, or the store has forgotten this process: workers find out.
                Ok(None) => self.view.send_modify(|view| view.version += 1),
                Err(StoreError::Closed) => return,
                Err(error) => tracing::warn!(%error, "the lease cannot be renewed; trying again"),
            }
            tokio::time::sleep(RENEW_EVERY).await;
        }
    }
}

fn hostname() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned());
    read.or_else(|| std::env::var("HOSTNAME").ok()).filter(|name| !name.is_empty()).unwrap_or_else(|| "host".into())
}
