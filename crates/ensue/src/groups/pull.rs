//! What is next for a group, and who may read it?
//!
//! A group has one slot, and whoever reads takes it. The lease is as long as was asked for from the moment of the answer
//! on; while a reader looks or waits for something to happen, it is held for as long as that may take. A reader that goes
//! away meanwhile gives back what it took.

use super::lease::Lease;
use super::scan::{PullFailure, PulledEvent, Scan, Stopped};
use super::{Groups, named, unknown};
use crate::error::Error;
use crate::tail::{Chunk, Listening};
use ensue_core::positions::{Acquire, AcquiredSlot, EventAt, GroupKind, GroupState, Lost, Member};
use ensue_core::store::SharedStore;
use ensue_core::{GroupName, Invalid, Seq, StoreError};
use jiff::SignedDuration;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::Instant;

/// The most events that one read answers.
pub const LIMIT_MAX: usize = 1_000;
/// The longest that one read waits.
pub const WAIT_MAX: Duration = Duration::from_secs(30);
/// The shortest lease.
pub const LEASE_MIN: Duration = Duration::from_millis(100);
/// The longest lease.
pub const LEASE_MAX: Duration = Duration::from_secs(3_600);

/// A lease that is shorter than this could run out before the answer is there: it begins with the answer then.
const WORK_MAX: SignedDuration = SignedDuration::from_secs(10);

/// How to read a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pull {
    /// At most this many events, from 1 to [`LIMIT_MAX`].
    pub limit: usize,
    /// If there is nothing: how long to wait for something, at most [`WAIT_MAX`].
    pub wait: Duration,
    /// How long nobody else may read, from the answer on: [`LEASE_MIN`] to [`LEASE_MAX`]. Who goes on under a lease says it anew.
    pub lease: Duration,
    /// Only look: takes no lease, works while somebody else has it, and touches no subscription.
    pub peek: bool,
    /// Read after this place, not before the group's cursor (but for a peek) nor beyond the end of the log; where the
    /// lease is if it is left out, or else at the cursor.
    pub cursor: Option<Seq>,
    /// The lease of an earlier read, to go on under.
    pub under: Option<String>,
    /// For people: who reads.
    pub reader: String,
}

impl Default for Pull {
    fn default() -> Self {
        Self {
            limit: 100,
            wait: Duration::ZERO,
            lease: Duration::from_secs(30),
            peek: false,
            cursor: None,
            under: None,
            reader: "reader".into(),
        }
    }
}

/// What was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulled {
    /// What the group's subscriptions want, in `seq` order. May be empty although more follows: go on.
    pub events: Vec<PulledEvent>,
    /// Everything up to here was looked at: what to commit when the events are done with.
    pub cursor: Seq,
    /// What to go on and to commit under; none after a peek.
    pub lease: Option<String>,
    /// What retention took before it could be read.
    pub lost: Option<Lost>,
    /// The first conditions that failed on an event that was looked at.
    pub failures: Vec<PullFailure>,
}

impl Pull {
    fn check(&self) -> Result<(), Invalid> {
        if !(1..=LIMIT_MAX).contains(&self.limit) {
            return Err(Invalid::new("limit", format!("is {}; choose from 1 to {LIMIT_MAX}", self.limit)));
        }
        if self.wait > WAIT_MAX {
            let reason = format!("is longer than {} s; wait less, and read again", WAIT_MAX.as_secs());
            return Err(Invalid::new("wait", reason));
        }
        if !(LEASE_MIN..=LEASE_MAX).contains(&self.lease) {
            let (min, max) = (LEASE_MIN.as_millis(), LEASE_MAX.as_secs());
            return Err(Invalid::new("lease", format!("must be from {min} ms to {max} s (an hour)")));
        }
        Ok(())
    }
}

impl Groups<'_> {
    /// Reads what is next for a group, and takes its lease. What is not committed comes again.
    pub async fn pull(&self, group: &str, pull: Pull) -> Result<Pulled, Error> {
        let name = named(group)?;
        pull.check()?;
        let under = match &pull.under {
            Some(text) => Some(self.lease_of(text).await?),
            None => None,
        };
        let state = self.pulled_group(&name).await?;
        let under = under.map(|lease| lease.ok_or_else(|| lease_lost(&name))).transpose()?;
        self.let_expired_go(&state).await?;
        check_place(&pull, state.cursor(), self.bus).await?;
        let deadline = Instant::now() + pull.wait;
        if pull.peek {
            let after = pull.cursor.or(under.map(|lease| lease.at)).unwrap_or(state.cursor());
            let mut scan = self.scan(&name, &pull, after, under);
            self.fill(&mut scan, deadline, None).await?;
            let events = scan.take_events();
            let Scan { at: cursor, lost, failures, .. } = scan;
            return Ok(Pulled { events, cursor, lease: None, lost, failures });
        }
        let mut hold = Hold::take(self.bus.store(), &name, &pull, under).await?;
        let pulled = self.pull_under(&mut hold, &name, &pull, under, deadline).await;
        match &pulled {
            Ok(_) => hold.was_answered(),
            Err(_) => hold.give_back().await,
        }
        pulled
    }

    /// The lease that a reader sent; none if it is forged.
    async fn lease_of(&self, text: &str) -> Result<Option<Lease>, Error> {
        let lease = Lease::parse(text, &self.bus.store().store_key().await?);
        Ok(lease.map_err(|invalid| Invalid::new("under", invalid.reason))?)
    }

    async fn pull_under(
        &self,
        hold: &mut Hold,
        name: &GroupName,
        pull: &Pull,
        under: Option<Lease>,
        deadline: Instant,
    ) -> Result<Pulled, Error> {
        // Somebody may have moved the group since it was looked at.
        check_place(pull, hold.slot.cursor, self.bus).await?;
        let after = pull.cursor.or(under.map(|lease| lease.at)).unwrap_or(hold.slot.cursor);
        let mut scan = self.scan(name, pull, after, under);
        self.fill(&mut scan, deadline, Some(hold)).await?;
        hold.settle_for_its_lease().await?;
        let events = scan.take_events();
        let Scan { at: cursor, newest, lost, failures, .. } = scan;
        let newest = self.newest_of(name, under, after, cursor, newest).await?;
        let given_to = under.map_or(cursor, |lease| lease.given_to.max(cursor));
        let lost_ever = lost.or(under.and_then(|lease| lease.lost));
        let (member, fence) = (hold.acquire.member.id, hold.slot.fence);
        let lease =
            Lease { member, fence, at: cursor, given_to, lost: lost_ever, given_id: newest.map(|event| event.id) };
        let lease = lease.to_text(&self.bus.store().store_key().await?);
        Ok(Pulled { events, cursor, lease: Some(lease), lost, failures })
    }

    fn scan<'s>(&'s self, name: &'s GroupName, pull: &Pull, after: Seq, under: Option<Lease>) -> Scan<'s> {
        let newest = under.and_then(|lease| lease.newest());
        Scan::new(self.bus.store(), &self.bus.inner().wanting, name, pull.limit, after, newest)
    }

    /// The newest event that was looked at, by this read or under the lease before: what that was led to must still be in
    /// the log after the read. A read that began there has compared it.
    async fn newest_of(
        &self,
        name: &GroupName,
        under: Option<Lease>,
        after: Seq,
        at: Seq,
        newest: Option<EventAt>,
    ) -> Result<Option<EventAt>, Error> {
        let Some(before) = under.and_then(|lease| lease.newest()) else { return Ok(newest) };
        if before.seq != after {
            let store = self.bus.store();
            let stored = store.event(before.seq).await?.map(|event| event.id);
            if !before.is_held(stored, store.bounds().await?.first) {
                return Err(went_back(name, before.seq - 1, before.seq));
            }
        }
        Ok(if at <= before.seq { Some(before) } else { newest })
    }

    /// Scans until something is found or time is up: listens first, then reads, then waits, so that nothing falls between.
    async fn fill(&self, scan: &mut Scan<'_>, deadline: Instant, mut hold: Option<&mut Hold>) -> Result<(), Error> {
        let mut live = None;
        loop {
            let stopped = scan.go_on().await?;
            if !scan.events.is_empty() || stopped == Stopped::Enough || Instant::now() >= deadline {
                return Ok(());
            }
            match (stopped, &mut live) {
                (Stopped::Far | Stopped::Enough, _) => {}
                (Stopped::End, Some(live)) => {
                    if !something_new(live, scan.at, deadline).await {
                        return Ok(());
                    }
                }
                (Stopped::End, none) => {
                    if let Some(hold) = &mut hold {
                        hold.hold_until(deadline).await?;
                    }
                    let Listening { live: listening, .. } = self.bus.inner().tail.listen().await?;
                    *none = Some(listening);
                }
            }
        }
    }

    /// An expired subscription is gone. Reading its group would touch it, so it has to go before.
    async fn let_expired_go(&self, state: &GroupState) -> Result<(), Error> {
        const BATCH: usize = 1_000;
        // Who may only look touches nothing.
        if self.bus.inner().options.read_only {
            return Ok(());
        }
        let store = self.bus.store();
        let at_hand = self.bus.inner().wanting.expires_first(&state.name, state.version).await;
        if let Some(expires_first) = at_hand {
            let Some(expires_first) = expires_first else { return Ok(()) };
            if store.now().await?.duration_since(state.served_at) <= expires_first {
                return Ok(());
            }
        }
        while store.expire_subscriptions(BATCH).await? == BATCH {}
        Ok(())
    }
}

/// Waits until the log has more than this reader has seen; false if time is up before.
async fn something_new(live: &mut broadcast::Receiver<Arc<Chunk>>, at: Seq, deadline: Instant) -> bool {
    loop {
        match tokio::time::timeout_at(deadline, live.recv()).await {
            Ok(Ok(chunk)) if chunk.next <= at => {}
            Ok(Ok(_) | Err(RecvError::Lagged(_))) => return true,
            // The store was closed, or the runtime of the tail has ended: the answer is what there is.
            Ok(Err(RecvError::Closed)) | Err(_) => return false,
        }
    }
}

/// Can the group be read after the place that is asked for?
async fn check_place(pull: &Pull, committed: Seq, bus: &crate::Ensue) -> Result<(), Error> {
    let Some(cursor) = pull.cursor else { return Ok(()) };
    let last = bus.store().bounds().await?.last;
    // A look at what is done moves nothing, and commits nothing.
    let from = if pull.peek { 0 } else { committed };
    if (from..=last).contains(&cursor) {
        return Ok(());
    }
    let reason = format!(
        "is {cursor}; this group can be read after {committed}, its cursor, to {last}, the newest event: choose one of \
         these, look at what is before with `peek`, or move the group with seek"
    );
    Err(Invalid::new("cursor", reason).into())
}

/// The slot of a group while a read is under way.
struct Hold {
    store: SharedStore,
    acquire: Acquire,
    slot: AcquiredSlot,
    /// Was it taken by this read, or does it go on under a lease?
    is_new: bool,
    /// Is it held for longer than was asked for?
    is_long: bool,
    /// Nothing is to be given back any more.
    is_over: bool,
}

impl Hold {
    async fn take(store: &SharedStore, group: &GroupName, pull: &Pull, under: Option<Lease>) -> Result<Self, Error> {
        let id =
            under.map_or_else(|| uuid::Builder::from_random_bytes(rand::random()).into_uuid(), |lease| lease.member);
        let acquire = Acquire {
            group: group.clone(),
            member: Member { id, name: pull.reader.clone(), kind: GroupKind::Pull },
            lease: signed(pull.lease),
            slots: Vec::new(),
            go_on: under.map(|lease| lease.fence),
        };
        let held_for = acquire.lease.max(WORK_MAX);
        let asked = Acquire { lease: held_for, ..acquire.clone() };
        let acquired = store.acquire(asked).await?.ok_or_else(|| unknown(group))?;
        let Some(slot) = acquired.slots.first().copied() else {
            return Err(match (under, acquired.held_by) {
                (Some(_), _) => lease_lost(group),
                (None, Some(owner)) => held(group, &owner.member, owner.lease_until),
                (None, None) => lease_lost(group),
            });
        };
        let (store, is_new, is_long) = (store.clone(), under.is_none(), held_for > acquire.lease);
        Ok(Self { store, acquire, slot, is_new, is_long, is_over: false })
    }

    /// Goes on under the lease that it has, for this long from now.
    async fn go_on(&mut self, lease: SignedDuration) -> Result<(), Error> {
        let acquire = Acquire { lease, go_on: Some(self.slot.fence), ..self.acquire.clone() };
        let acquired = self.store.acquire(acquire).await?.ok_or_else(|| unknown(&self.acquire.group))?;
        match acquired.slots.is_empty() {
            true => Err(lease_lost(&self.acquire.group)),
            false => Ok(()),
        }
    }

    /// Holds it while the reader waits, and for its lease after that.
    async fn hold_until(&mut self, deadline: Instant) -> Result<(), Error> {
        let wait = deadline.saturating_duration_since(Instant::now());
        self.go_on(self.acquire.lease.max(WORK_MAX) + signed(wait)).await?;
        self.is_long = true;
        Ok(())
    }

    /// From the answer on, the lease is as long as was asked for.
    async fn settle_for_its_lease(&mut self) -> Result<(), Error> {
        if self.is_long {
            self.go_on(self.acquire.lease).await?;
            self.is_long = false;
        }
        Ok(())
    }

    /// The reader has it now.
    fn was_answered(&mut self) {
        self.is_over = true;
    }

    /// The read has failed: what it took is free again.
    async fn give_back(&mut self) {
        self.is_over = true;
        give_back(&self.store, self.acquire.clone(), self.slot, self.is_new, self.is_long).await;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        // Nobody waits for the answer any more. The lease runs out by itself where there is no runtime left.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            let (store, acquire, slot) = (self.store.clone(), self.acquire.clone(), self.slot);
            let (is_new, is_long) = (self.is_new, self.is_long);
            runtime.spawn(async move { give_back(&store, acquire, slot, is_new, is_long).await });
        }
    }
}

/// Undoes what a read did to the slot: one that was taken becomes free, one that was held before is held for its lease.
async fn give_back(store: &SharedStore, acquire: Acquire, slot: AcquiredSlot, is_new: bool, is_long: bool) {
    let done = match (is_new, is_long) {
        (true, _) => store.leave(acquire.member.id).await,
        (false, true) => store.acquire(Acquire { go_on: Some(slot.fence), ..acquire }).await.map(drop),
        (false, false) => Ok(()),
    };
    if let Err(error) = done {
        tracing::debug!(%error, "a lease could not be given back; it runs out by itself");
    }
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

pub(super) fn lease_lost(group: &GroupName) -> Error {
    let told = format!(
        "the lease on the group `{group}` is lost: it has run out, or the group was taken or moved; nothing was changed. \
         Read again without it: what was not committed comes again"
    );
    StoreError::Conflict(told).into()
}

/// What was read under the lease is not in the log any more.
pub(super) fn went_back(group: &GroupName, committed: Seq, given_to: Seq) -> Error {
    let told = format!(
        "went_back: a failover has lost events that the group `{group}` was given from {} to {given_to}; nothing was \
         changed. Read again without the lease: what the log holds from there on comes, also under the same numbers",
        committed + 1
    );
    StoreError::Conflict(told).into()
}

fn held(group: &GroupName, by: &Member, until: jiff::Timestamp) -> Error {
    let told = format!(
        "somebody ({}) reads the group `{group}` under a lease until {until}: come back then, go on under that lease, or \
         look with `peek`",
        by.name
    );
    StoreError::Conflict(told).into()
}
