//! Which slots are this process's?
//!
//! A process is a member, with one lease for all its slots. It says which groups it serves; where several processes share a
//! store, every member knows who else serves them and works out alone which slots are whose. Where one process alone can
//! write, all are its.

use super::lease::Lease;
use ensue_core::positions::{GroupKind, Member, Renewed, SlotNumber, servers_of, slots_for};
use ensue_core::store::SharedStore;
use ensue_core::{GroupName, StoreError, Timestamp};
use jiff::SignedDuration;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

/// How long a lease is where processes share a store: what a process that dies holds is free after this, and the others
/// hear of it with their next pulse.
const LEASE: Duration = Duration::from_millis(3_500);
/// How often it is renewed at most: there may be a hundred pulses a second.
pub(super) const RENEWED_EVERY: Duration = Duration::from_millis(200);
/// How long the store's clock is taken to go as ours does.
const CLOCK_TRUSTED: Duration = Duration::from_secs(5);
/// A lease that is as good as none: one process alone can write.
const LEASE_ALONE: Duration = Duration::from_secs(365 * 24 * 3_600);

/// What workers follow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct View {
    /// The live processes that serve each of this one's groups.
    pub servers: BTreeMap<GroupName, Vec<Uuid>>,
    /// Counts up when something happened to this member's slots or lanes.
    pub version: u64,
    /// Counts up when this process asked something of a lane itself.
    pub asked_here: u64,
    /// Counts up when this process moved or deleted a group itself, or the store had forgotten it.
    pub moved_here: u64,
}

impl View {
    /// Is a group's part of it as it was?
    pub fn is_same_for(&self, group: &GroupName, seen: &Self) -> bool {
        let servers = |view: &Self| view.servers.get(group).cloned();
        (self.version, self.moved_here, servers(self)) == (seen.version, seen.moved_here, servers(seen))
    }
}

/// This process, among those that share the store.
pub(super) struct Membership {
    pub member: Member,
    /// What it serves; none before it has joined.
    groups: Mutex<Option<Vec<GroupName>>>,
    /// Was something else said, and not answered?
    in_doubt: AtomicBool,
    store: SharedStore,
    alone: bool,
    pub lease: Lease,
    view: watch::Sender<View>,
    /// The version of its own and the live processes, when it last looked who serves what.
    looked: Mutex<Option<(u64, Vec<Uuid>)>>,
    clock: Mutex<Option<(Instant, Timestamp)>>,
}

impl Membership {
    /// This process, under an id that it has as long as its bus.
    pub fn new(store: SharedStore, id: Uuid) -> Self {
        let name = format!("{}:{}", hostname(), std::process::id());
        let alone = store.handler_slots() == 1;
        let (lease, view) = (Lease::none(Instant::now()), watch::Sender::new(View::default()));
        let member = Member { id, name, kind: GroupKind::Handler };
        let (looked, clock) = (Mutex::new(None), Mutex::new(None));
        let groups = Mutex::new(None);
        let in_doubt = AtomicBool::new(false);
        Self { member, groups, in_doubt, store, alone, lease, view, looked, clock }
    }

    pub fn lease_ttl(&self) -> SignedDuration {
        let lease = if self.alone { LEASE_ALONE } else { LEASE };
        SignedDuration::try_from(lease).unwrap_or(SignedDuration::MAX)
    }

    pub fn watch(&self) -> watch::Receiver<View> {
        self.view.subscribe()
    }

    /// May something be started?
    pub fn holds_lease(&self) -> bool {
        self.alone || self.lease.lets_start(Instant::now())
    }

    /// The lease was renewed by a call that was sent at this time.
    pub fn renewed(&self, sent: Instant) {
        self.lease.renewed(sent, LEASE, Instant::now());
    }

    /// Which of a group's slots should be this process's?
    pub fn wanted(&self, group: &GroupName, slots: u16) -> Vec<SlotNumber> {
        let view = self.view.borrow();
        let servers = view.servers.get(group).map(Vec::as_slice).unwrap_or_default();
        slots_for(self.member.id, slots, servers)
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

    /// Has it said what it serves?
    pub fn has_joined(&self) -> bool {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn is_in_doubt(&self) -> bool {
        self.in_doubt.load(Ordering::SeqCst)
    }

    fn groups(&self) -> Vec<GroupName> {
        self.groups.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default()
    }

    /// Says what this process serves from now on, and looks who else does: before the first slot of it is taken.
    pub async fn serve(&self, groups: Vec<GroupName>) -> Result<(), StoreError> {
        if self.has_joined() && self.groups() == groups && !self.is_in_doubt() {
            return Ok(());
        }
        let sent = Instant::now();
        let served = self.store.serve(self.member.clone(), self.lease_ttl(), groups.clone()).await;
        // Without an answer nobody knows what the store takes this process to serve.
        self.in_doubt.store(served.is_err(), Ordering::SeqCst);
        served?;
        *self.groups.lock().unwrap_or_else(PoisonError::into_inner) = Some(groups);
        self.renewed(sent);
        *self.looked.lock().unwrap_or_else(PoisonError::into_inner) = None;
        let version = self.view.borrow().version;
        match self.look_who_serves(version).await {
            // It is said, and the next pulse looks again.
            Err(error) if !self.alone => {
                tracing::warn!(%error, "who else serves the handlers cannot be looked at; trying again")
            }
            looked => return looked,
        }
        Ok(())
    }

    /// Says again what this process serves.
    async fn join_again(&self) -> Result<(), StoreError> {
        let sent = Instant::now();
        self.store.serve(self.member.clone(), self.lease_ttl(), self.groups()).await?;
        self.in_doubt.store(false, Ordering::SeqCst);
        self.renewed(sent);
        let version = self.view.borrow().version;
        self.look_who_serves(version).await
    }

    /// Is the lease to be renewed with each pulse? Not where nobody could take it.
    pub fn has_lease(&self) -> bool {
        !self.alone && self.has_joined()
    }

    /// Whose lease is to be renewed with a pulse at this time, unless that was just done?
    pub fn to_renew(&self, now: Instant) -> Option<(Uuid, SignedDuration)> {
        let (ttl, in_doubt) = (self.lease_ttl(), self.is_in_doubt());
        let is_fresh = self.lease.was_renewed_within(RENEWED_EVERY, ttl.unsigned_abs(), now);
        (self.has_lease() && (in_doubt || !is_fresh)).then_some((self.member.id, ttl))
    }

    /// A pulse that was sent at this time has renewed the lease, and told this.
    pub async fn hear(&self, sent: Instant, renewed: Option<Renewed>, now: Timestamp) -> Result<(), StoreError> {
        *self.clock.lock().unwrap_or_else(PoisonError::into_inner) = Some((Instant::now(), now));
        let Some(renewed) = renewed.filter(|_| !self.is_in_doubt()) else {
            // The store has forgotten this process, or knows something else of it: its slots may be anybody's, and workers find out.
            self.join_again().await?;
            self.moved();
            return Ok(());
        };
        self.renewed(sent);
        let heard = Some((renewed.version, renewed.members.iter().map(|member| member.id).collect()));
        let is_known = *self.looked.lock().unwrap_or_else(PoisonError::into_inner) == heard;
        if is_known { Ok(()) } else { self.look_who_serves(renewed.version).await }
    }

    /// Looks who serves what, having heard of this version. It is remembered with the processes that were found: who comes or
    /// goes between a renewal and this look is noticed with the next renewal.
    async fn look_who_serves(&self, version: u64) -> Result<(), StoreError> {
        let serving = self.store.members().await?;
        let servers = servers_of(&self.groups(), &serving);
        let found = serving.iter().map(|one| one.member.id).collect();
        *self.looked.lock().unwrap_or_else(PoisonError::into_inner) = Some((version, found));
        self.view.send_if_modified(|view| {
            let changed = view.servers != servers || view.version != version;
            (view.servers, view.version) = (servers, version);
            changed
        });
        Ok(())
    }
}

fn hostname() -> String {
    let read = std::fs::read_to_string("/proc/sys/kernel/hostname").ok().map(|name| name.trim().to_owned());
    read.or_else(|| std::env::var("HOSTNAME").ok()).filter(|name| !name.is_empty()).unwrap_or_else(|| "host".into())
}
