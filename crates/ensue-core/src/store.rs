//! What must an engine be able to do?
//!
//! The port between the loops and the engines, in verbs of the domain. Every change that must be atomic is one verb.
//! `ensue-conformance` has the suite that any engine must pass, and the model that says what each verb means.

use crate::definitions::Definitions;
use crate::error::StoreError;
use crate::event::{Appended, Entry, Event, Found, Pending, Seq};
use crate::filter::Filter;
use crate::follow::Follower;
use crate::id::EventId;
use crate::jobs::Jobs;
use crate::key::ObjectKey;
use crate::positions::{Positions, Renewed};
use crate::retention::Bounds;
use crate::rules::Rules;
use crate::schedules::Schedules;
use crate::store_key::StoreKey;
use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

/// How far one filtered read looks before it answers with what it has.
pub const SCAN_MAX: u64 = 10_000;
/// How many bytes of events one page, chain or list holds at most (but always one event).
pub const PAGE_BYTES_MAX: usize = 4 << 20;

/// What to read: at most `limit` events after `after` that `filter` matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Read {
    /// Events after this place; 0 for all.
    pub after: Seq,
    /// At most this many, at least 1.
    pub limit: usize,
    /// Only those.
    pub filter: Filter,
}

/// A page of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// In `seq` order. May be empty although more would follow: the scan is bounded by [`SCAN_MAX`] and
    /// [`PAGE_BYTES_MAX`].
    pub events: Vec<Event>,
    /// Everything up to here was looked at: the `after` of the next read. Never smaller than the `after` given.
    pub next: Seq,
    /// The oldest place of the log when it was read. If it is beyond the place after `after`, what was between is
    /// forgotten and cannot be read any more.
    pub first: Seq,
}

/// What releasing due events did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Released {
    /// How many were moved: into the log, or, of those that others published in their own transactions, to where they wait for their time.
    pub count: usize,
    /// The newest `seq` after that.
    pub last: Seq,
    /// When the next one is due, if any waits: for a timer, by the store's clock.
    pub next_due: Option<Timestamp>,
}

/// What cancelling a delayed event found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cancelled {
    /// It was pending and is gone.
    Gone,
    /// It is in the log already, and stays there.
    AlreadyLogged(Seq),
    /// No event has this id.
    Unknown,
}

/// What an idle process hears of the others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pulse {
    /// The newest place of the log.
    pub last: Seq,
    /// The event there; none if there is none, or retention took it.
    pub newest: Option<EventId>,
    /// When the next delayed event is due, if any waits.
    pub next_due: Option<Timestamp>,
    /// The store's clock.
    pub now: Timestamp,
    /// What a member hears; none if the store does not know it (any more), or nobody's lease was to be renewed.
    pub renewed: Option<Renewed>,
    /// The version of the rules.
    pub rules_version: u64,
    /// The version of what is defined.
    pub definitions_version: u64,
    /// Is another one than before when a job may have become available since then, by anybody; stays where no other process
    /// can do that.
    pub jobs_sent: u64,
    /// When the next job is due, or its lease passes; none where no other process can have changed it.
    pub jobs_due: Option<Timestamp>,
    /// When the next schedule is due.
    pub schedules_due: Option<Timestamp>,
    /// Was something committed by others that waits to be moved into the log, by [`Store::release_due`]?
    pub waiting: bool,
}

/// How a process hears that another has changed something. The store is the truth, this only a doorbell: what is lost costs the time to
/// the next look.
#[async_trait]
pub trait Wake: Send + Sync {
    /// Lets other processes look now.
    fn ring(&self);

    /// Waits until somebody has rung, at most this long. `found`: has the last look found something that was rung for?
    async fn wait(&self, found: bool, limit: Duration);
}

/// A durable, gapless, ordered log of events.
///
/// Wherever time matters (is an event due, has a key's window passed) it is the recording time: the store's clock, but
/// never before the newest `recorded_at`, so that a clock that steps back undoes nothing.
///
/// All verbs may be called from many tasks at once. Errors say what to do; after any error the store holds either
/// all or nothing of the call; which of the two is left open by [`StoreError::InDoubt`] and [`StoreError::Stopped`].
#[async_trait]
pub trait Store: Positions + Jobs + Rules + Definitions + Schedules {
    /// The doorbell between processes, where there can be several.
    fn wake(&self) -> Option<Arc<dyn Wake>> {
        None
    }

    /// A word for logs and `doctor`: `sqlite`, `postgres`.
    fn engine(&self) -> &'static str;

    /// The secret key of this store: random, made with the store, and the same for every process that opens it.
    async fn store_key(&self) -> Result<StoreKey, StoreError>;

    /// Appends one caller's batch: atomic, consecutive, acknowledged when it is on disk. Delayed entries
    /// (`not_before` in the future) are kept aside until they are due. A repeated key answers as it did first;
    /// a key used for another event refuses the whole batch with [`StoreError::KeyConflict`]. An engine may gather
    /// the calls of many callers into one commit. An engine that loses its connection while a call is under way
    /// finds out whether it was stored before it answers or tries again; where it cannot within its time limit,
    /// [`StoreError::InDoubt`] leaves that open, and a key makes a repetition safe. Who stops waiting does not learn
    /// whether the call was stored: what was not begun by then is let go, what was begun is finished.
    async fn append(&self, batch: Vec<Entry>) -> Result<Vec<Appended>, StoreError>;

    /// Moves into the log what others have committed for it in their own transactions, if the engine has such, and then
    /// delayed events whose time has come, in order of (`not_before`, acceptance): at most `limit` of
    /// them, and [`PAGE_BYTES_MAX`] bytes as the engine keeps them (but always one event), so that the commit is short.
    /// What is left is due in the answer's `next_due`.
    async fn release_due(&self, limit: usize) -> Result<Released, StoreError>;

    /// Reads a page of the log.
    async fn read(&self, read: Read) -> Result<Page, StoreError>;

    /// The events of one object before `before` (none: from the newest), newest first: at most `limit` of them, and
    /// [`PAGE_BYTES_MAX`] bytes.
    async fn chain(&self, object: &ObjectKey, before: Option<Seq>, limit: usize) -> Result<Vec<Event>, StoreError>;

    /// The event at a place of the log.
    async fn event(&self, seq: Seq) -> Result<Option<Event>, StoreError>;

    /// The event of an id, in the log or pending.
    async fn find(&self, id: EventId) -> Result<Option<Found>, StoreError>;

    /// Delayed events in the order in which they will enter the log: at most `limit` of them, and [`PAGE_BYTES_MAX`]
    /// bytes.
    async fn pending(&self, limit: usize) -> Result<Vec<Pending>, StoreError>;

    /// How many delayed events wait.
    async fn pending_count(&self) -> Result<u64, StoreError>;

    /// Rows of the outbox that cannot enter the log and wait for an operator. Engines without an outbox have none.
    async fn outbox_rejected(&self) -> Result<u64, StoreError> {
        Ok(0)
    }

    /// Cancels a delayed event that has not entered the log, and frees its key: who sends it again means it.
    async fn cancel(&self, id: EventId) -> Result<Cancelled, StoreError>;

    /// The oldest and the newest place of the log.
    async fn bounds(&self) -> Result<Bounds, StoreError>;

    /// The place of the last event recorded before `time` (`first - 1` if there is none): reading after it begins at
    /// `time`.
    async fn seq_before(&self, time: Timestamp) -> Result<Seq, StoreError>;

    /// About how many bytes the events in the log take, estimated from a sample.
    async fn bytes(&self) -> Result<u64, StoreError>;

    /// Forget what was recorded longer ago than this, if the store itself says so, for who has no word of its own: engines whose users set it
    /// beside the log. Asked anew whenever something may be forgotten.
    async fn retention_age(&self) -> Result<Option<SignedDuration>, StoreError> {
        Ok(None)
    }

    /// Forgets events before `keep_from`, the oldest first, at most `limit` of them; answers what is left. Numbers go
    /// on where they were, even when nothing is left. `prev` of a later event no longer points to what is forgotten.
    async fn trim(&self, keep_from: Seq, limit: usize) -> Result<Bounds, StoreError>;

    /// Frees the disk of what is trimmed, as far as trims leave that to later, and allocates ahead as it is set now.
    /// `forgets` says whether there is a retention. Called regularly, whether or not something was trimmed.
    async fn maintain(&self, forgets: bool) -> Result<(), StoreError> {
        let _engine_that_trims_at_once = forgets;
        Ok(())
    }

    /// Forgets up to `limit` idempotency keys whose window has passed; answers how many.
    async fn purge_keys(&self, limit: usize) -> Result<usize, StoreError>;

    /// The store's clock.
    async fn now(&self) -> Result<Timestamp, StoreError>;

    /// Passes on to `follower` what is appended through this store, if the engine can; it may leave out any commit, which
    /// is then found in the log. One follower is enough: another may be ignored.
    fn follow(&self, _follower: Arc<dyn Follower>) {}

    /// Changes whenever the log may have become another one unseen (H35): with every connection by which events are
    /// appended. While it stays, what a follower is given comes after what was read.
    fn session(&self) -> u64 {
        0
    }

    /// What has happened? All that an idle process asks again and again, and what [`Positions::renew`] does for a member, if
    /// one is given. Where a question is a way to a server and back, an engine asks all of it at once.
    async fn pulse(&self, lease: Option<(Uuid, SignedDuration)>) -> Result<Pulse, StoreError> {
        let renewed = match lease {
            Some((member, lease)) => self.renew(member, lease).await?,
            None => None,
        };
        let last = self.bounds().await?.last;
        let newest = self.event(last).await?.map(|event| event.id);
        let next_due = self.pending(1).await?.first().map(|pending| pending.not_before);
        let (now, rules_version) = (self.now().await?, self.rules_version().await?);
        let (definitions_version, jobs_sent, jobs_due) = (self.definitions_version().await?, 0, None);
        let schedules_due = self.next_schedule().await?;
        Ok(Pulse {
            last,
            newest,
            next_due,
            now,
            renewed,
            rules_version,
            definitions_version,
            jobs_sent,
            jobs_due,
            schedules_due,
            waiting: false,
        })
    }

    /// Would calls be answered now? [`StoreError::Stopped`] once the store has stopped writing,
    /// [`StoreError::Closed`] once it was closed, another error while it knows of a fault, such as a
    /// full disk; a store that was opened to look only is ready when it can be read. Cheap, and waits
    /// for nobody's turn to write.
    async fn ready(&self) -> Result<(), StoreError>;

    /// Finishes what was accepted, refuses what comes after, and lets go of the store.
    async fn close(&self);
}

/// Any engine.
pub type SharedStore = Arc<dyn Store>;
