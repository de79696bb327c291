//! Which events of the log are for the group?
//!
//! The log is read page by page and matched in process. A page is always read before the group's version: whoever
//! subscribed before an event was published is among those it is matched with.

use super::wanting::WantingCache;
use super::{unknown, verbs};
use crate::error::Error;
use crate::wanted::{Turn, count_failure};
use ensue_core::condition::EventView;
use ensue_core::matching::{Found, Index};
use ensue_core::positions::Lost;
use ensue_core::retention::Bounds;
use ensue_core::room::Room;
use ensue_core::store::{Page, Read, SCAN_MAX, SharedStore};
use ensue_core::{Event, Filter, GroupName, Seq};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How many events are read from the store at once.
const PAGE: usize = 500;
/// After how long a scan stops with what it has. Every scan looks at one page at least.
const TIME_MAX: Duration = Duration::from_millis(250);
/// How many failures of conditions are told.
const FAILURES_TOLD_MAX: usize = 10;

/// An event, and who of the group wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PulledEvent {
    /// The event.
    pub event: Event,
    /// The ids of the subscriptions that want it, in order: at least one.
    pub subscriptions: Vec<Uuid>,
}

/// A subscription whose condition failed on an event, which it did not get. Others did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullFailure {
    /// Whose condition.
    pub subscription: Uuid,
    /// On which event.
    pub seq: Seq,
    /// What went wrong, and what to write instead.
    pub detail: String,
}

/// Why a scan stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopped {
    /// There is as much as was asked for, or as may be held.
    Enough,
    /// Nothing more is in the log.
    End,
    /// It looked far enough for one time.
    Far,
}

/// Where a reader is, and what it has found.
pub(super) struct Scan<'a> {
    pub store: &'a SharedStore,
    pub cache: &'a WantingCache,
    pub group: &'a GroupName,
    pub limit: usize,
    /// Everything up to here was looked at.
    pub at: Seq,
    pub events: Vec<PulledEvent>,
    pub failures: Vec<PullFailure>,
    /// What retention took before it could be looked at.
    pub lost: Option<Lost>,
    room: Room,
}

impl<'a> Scan<'a> {
    pub fn new(
        store: &'a SharedStore,
        cache: &'a WantingCache,
        group: &'a GroupName,
        limit: usize,
        after: Seq,
    ) -> Self {
        let (events, failures, room) = (Vec::new(), Vec::new(), Room::of_a_page());
        Self { store, cache, group, limit, at: after, events, failures, lost: None, room }
    }

    /// Goes on until there is enough, the log ends, or it has looked far enough.
    pub async fn go_on(&mut self) -> Result<Stopped, Error> {
        let (began, scan_to) = (Instant::now(), self.at.saturating_add(SCAN_MAX));
        loop {
            let read = Read { after: self.at, limit: PAGE, filter: Filter::default() };
            let page = self.store.read(read).await?;
            self.pass_what_is_lost(&page);
            if page.next <= self.at {
                return Ok(Stopped::End);
            }
            let state = self.store.group(self.group).await?.ok_or_else(|| unknown(self.group))?;
            let wanting = self.cache.at(self.store, self.group, state.version).await?;
            if self.sift(page, &wanting.index).await == Stopped::Enough {
                return Ok(Stopped::Enough);
            }
            if self.at >= scan_to || began.elapsed() >= TIME_MAX {
                return Ok(Stopped::Far);
            }
        }
    }

    fn pass_what_is_lost(&mut self, page: &Page) {
        let bounds = Bounds { first: page.first, last: page.next.max(page.first - 1) };
        if let Some(lost) = verbs::lost_after(self.at, bounds) {
            let from = self.lost.map_or(lost.from, |earlier| earlier.from);
            self.lost = Some(Lost { from, to: lost.to });
            self.at = lost.to;
        }
    }

    /// Takes what is wanted of a page.
    async fn sift(&mut self, page: Page, index: &Index) -> Stopped {
        let (mut turn, mut found) = (Turn::begin(), Found::default());
        for event in page.events {
            if event.seq <= self.at {
                continue;
            }
            index.matches(&EventView::new(&event), &mut found);
            for (subscription, failure) in found.failed.drain(..) {
                count_failure(self.group.as_str());
                if self.failures.len() < FAILURES_TOLD_MAX {
                    let (subscription, detail) = (subscription.id, failure.to_string());
                    self.failures.push(PullFailure { subscription, seq: event.seq, detail });
                }
            }
            let seq = event.seq;
            if !found.matched.is_empty() {
                if !self.room.take(event.bytes() + found.matched.len() * size_of::<Uuid>()) {
                    return Stopped::Enough;
                }
                let mut subscriptions: Vec<Uuid> = found.matched.drain(..).map(|one| one.id).collect();
                subscriptions.sort_unstable();
                self.events.push(PulledEvent { event, subscriptions });
            }
            self.at = seq;
            if self.events.len() == self.limit {
                return Stopped::Enough;
            }
            turn.pass_on().await;
        }
        self.at = self.at.max(page.next);
        Stopped::Far
    }
}
