//! Which events of the log are for the group?
//!
//! The log is read page by page and matched in process. A page is always read before the group's version: whoever
//! subscribed before an event was published is among those it is matched with.

use super::pull::went_back;
use super::wanting::{Shared, WantingCache};
use super::{unknown, verbs};
use crate::error::Error;
use crate::evaluation::{self, EvaluationClass};
use crate::wanted::{Turn, count_failure};
use ensue_core::condition::{EventView, Failure};
use ensue_core::matching::{Found, Index};
use ensue_core::positions::{EventAt, Lost};
use ensue_core::retention::Bounds;
use ensue_core::room::Room;
use ensue_core::store::{Page, Read, SCAN_MAX, SharedStore};
use ensue_core::{Event, Filter, GroupName, ObjectKey, Seq};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use uuid::Uuid;

/// How many events are read from the store at once.
const PAGE: usize = 500;
/// After how long a scan stops with what it has. Every scan looks at one event at least.
const TIME_MAX: Duration = Duration::from_millis(250);
/// How many failures of conditions are told.
const FAILURES_TOLD_MAX: usize = 10;

/// An event, and who of the group wants it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PulledEvent {
    /// The event, with the `prev` of what the group gets.
    pub event: Event,
    /// Set if `prev` is not known: between this place and the event the group gets nothing of its
    /// object, and of what is before nothing is claimed.
    pub prev_since: Option<Seq>,
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
    /// The event there, if it is known.
    pub newest: Option<EventAt>,
    begun_after: Seq,
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
        newest: Option<EventAt>,
    ) -> Self {
        let newest = newest.filter(|event| event.seq == after);
        let (events, failures, room) = (Vec::new(), Vec::new(), Room::of_a_page());
        let begun_after = after;
        Self { store, cache, group, limit, at: after, newest, begun_after, events, failures, lost: None, room }
    }

    /// The events, each with its previous one of the same object among them (H4). What the group got
    /// of an object before is not looked up: `prev_since` says from where nothing was left out.
    pub fn take_events(&mut self) -> Vec<PulledEvent> {
        let mut events = std::mem::take(&mut self.events);
        let begun_after = self.lost.map_or(self.begun_after, |lost| lost.to.max(self.begun_after));
        let mut before: HashMap<ObjectKey, Seq> = HashMap::new();
        for PulledEvent { event, prev_since, .. } in &mut events {
            let Some(object) = &event.object else { continue };
            let here = before.insert(object.clone(), event.seq);
            *prev_since = event.prev.filter(|_| here.is_none()).map(|prev| prev.min(begun_after) + 1);
            event.prev = here;
        }
        events
    }

    /// Goes on until there is enough, the log ends, or it has looked far enough.
    pub async fn go_on(&mut self) -> Result<Stopped, Error> {
        let (began, scan_to) = (Instant::now(), self.at.saturating_add(SCAN_MAX));
        loop {
            // With the event where it is: it tells whether the log is still the same (H44).
            let read = Read { after: self.at.saturating_sub(1), limit: PAGE + 1, filter: Filter::default() };
            let page = self.store.read(read).await?;
            self.compare(&page)?;
            self.pass_what_is_lost(&page);
            if page.next <= self.at {
                return Ok(Stopped::End);
            }
            let state = self.store.group(self.group).await?.ok_or_else(|| unknown(self.group))?;
            let wanting = self.cache.at(self.store, self.group, state.version).await?;
            if self.sift(page, wanting, began).await? == Stopped::Enough {
                return Ok(Stopped::Enough);
            }
            if self.at >= scan_to || began.elapsed() >= TIME_MAX {
                return Ok(Stopped::Far);
            }
        }
    }

    /// Is what was looked at still in the log?
    fn compare(&mut self, page: &Page) -> Result<(), Error> {
        let first = page.events.first().filter(|event| event.seq == self.at).map(EventAt::of);
        match self.newest {
            None => self.newest = first,
            Some(newest) if newest.is_held(first.map(|event| event.id), page.first) => {}
            Some(newest) => return Err(went_back(self.group, newest.seq - 1, newest.seq)),
        }
        Ok(())
    }

    fn pass_what_is_lost(&mut self, page: &Page) {
        let bounds = Bounds { first: page.first, last: page.next.max(page.first - 1) };
        if let Some(lost) = verbs::lost_after(self.at, bounds) {
            let from = self.lost.map_or(lost.from, |earlier| earlier.from);
            self.lost = Some(Lost { from, to: lost.to });
            (self.at, self.newest) = (lost.to, None);
        }
    }

    /// Takes what is wanted of a page, until there is enough or the time is over.
    async fn sift(&mut self, page: Page, wanting: Shared, began: Instant) -> Result<Stopped, Error> {
        let wanting = Arc::new(wanting);
        let mut turn = Turn::begin();
        for event in page.events {
            if event.seq <= self.at {
                continue;
            }
            let event = Arc::new(event);
            let answer = match Answer::quick(&wanting.index, &event) {
                Some(answer) => answer,
                None => {
                    let (wanting, event) = (wanting.clone(), event.clone());
                    evaluation::run(EvaluationClass::Request, move || Answer::of(&wanting.index, &event)).await?
                }
            };
            let (seq, newest) = (event.seq, EventAt::of(&event));
            for (subscription, failure) in answer.failed {
                count_failure(self.group.as_str());
                if self.failures.len() < FAILURES_TOLD_MAX {
                    self.failures.push(PullFailure { subscription, seq, detail: failure.to_string() });
                }
            }
            let mut subscriptions = answer.matched;
            if !subscriptions.is_empty() {
                if !self.room.take(event.bytes() + subscriptions.len() * size_of::<Uuid>()) {
                    return Ok(Stopped::Enough);
                }
                subscriptions.sort_unstable();
                let (event, prev_since) = (Arc::unwrap_or_clone(event), None);
                self.events.push(PulledEvent { event, prev_since, subscriptions });
            }
            (self.at, self.newest) = (seq, Some(newest));
            if self.events.len() == self.limit {
                return Ok(Stopped::Enough);
            }
            if began.elapsed() >= TIME_MAX {
                return Ok(Stopped::Far);
            }
            turn.pass_on().await;
        }
        if page.next > self.at {
            (self.at, self.newest) = (page.next, None);
        }
        Ok(Stopped::Far)
    }
}

/// The subscriptions that want an event, and those whose condition failed on it.
pub(crate) struct Answer {
    pub matched: Vec<Uuid>,
    pub failed: Vec<(Uuid, Failure)>,
}

impl Answer {
    /// None if the quick budget is exceeded.
    pub fn quick(index: &Index, event: &Event) -> Option<Self> {
        let view = EventView::quick(event);
        let answer = Self::in_view(index, &view);
        (!view.is_exhausted()).then_some(answer)
    }

    /// However long it takes.
    pub fn of(index: &Index, event: &Arc<Event>) -> Self {
        let parsed = evaluation::parsed(event);
        Self::in_view(index, &EventView::shared(event, &parsed))
    }

    fn in_view(index: &Index, view: &EventView<'_>) -> Self {
        let mut found = Found::default();
        index.matches(view, &mut found);
        let matched = found.matched.iter().map(|subscription| subscription.id).collect();
        let failed = found.failed.into_iter().map(|(subscription, failure)| (subscription.id, failure)).collect();
        Self { matched, failed }
    }
}
