//! Reads of the log from its end, newest first.
//!
//! The store reads forward only, so the log is read in windows from the end, each turned around. The events of one object
//! come from its chain. As a forward read does, this looks at a bounded part of the log, for a bounded time.

use crate::selection::{ConditionErrors, Sieve, Sifted, TIME_MAX};
use crate::wanted::{Direct, Wanted};
use ensue_core::filter::Filter;
use ensue_core::room::Room;
use ensue_core::store::{Page, Read, SCAN_MAX, SharedStore};
use ensue_core::{Event, Seq, StoreError};
use std::time::Instant;

/// Places in the first window, and in the largest. A window grows while its events are small.
const WINDOW_FIRST: u64 = 16;
const WINDOW_MAX: u64 = 1_024;

/// A page of events, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewestPage {
    /// The events; may be empty although older ones would follow.
    pub events: Vec<Event>,
    /// The `before` of the next page; none if no older event is in range.
    pub next: Option<Seq>,
    /// The oldest place of the log.
    pub first: Seq,
    /// Failures of the condition on events that the page passed over.
    pub condition_errors: Option<ConditionErrors>,
}

/// Reads at most `limit` events after `after` and before `before` (none: from the end of the log).
pub(crate) async fn read(
    store: &SharedStore,
    before: Option<Seq>,
    after: Seq,
    limit: usize,
    wanted: &Wanted,
) -> Result<NewestPage, StoreError> {
    let bounds = store.bounds().await?;
    let end = bounds.last + 1;
    let before = before.map_or(end, |before| before.min(end));
    // The oldest place in range, and the oldest that this page looks at.
    let oldest = bounds.first.max(after.saturating_add(1));
    let filter = wanted.store_filter();
    let scan_to = match filter.object {
        Some(_) => oldest,
        None => oldest.max(before.saturating_sub(SCAN_MAX)),
    };
    let mut backward =
        Backward { store, filter: &filter, wanted, scan_to, window: WINDOW_FIRST, began: Instant::now() };
    let room = Room::of_a_page();
    let (events, next, condition_errors) = match &wanted.condition {
        None => {
            let mut kept = Kept { limit, room, events: Vec::new(), next: before };
            while backward.continues_at(kept.next) && kept.take(backward.page(kept.next).await?) == Sifted::More {}
            (kept.events, kept.next, None)
        }
        Some(_) => {
            let page = Page { events: Vec::new(), next: before, first: bounds.first };
            let mut sieve = Sieve { wanted, limit, page, errors: None, room, began: backward.began };
            while backward.continues_at(sieve.page.next) {
                let page = backward.page(sieve.page.next).await?;
                if sieve.sift(page).await? == Sifted::Enough {
                    break;
                }
            }
            (sieve.page.events, sieve.page.next, sieve.errors)
        }
    };
    let next = Some(next).filter(|next| *next > oldest);
    Ok(NewestPage { events, next, first: bounds.first, condition_errors })
}

/// Reads pages of a filter backward.
struct Backward<'a> {
    store: &'a SharedStore,
    filter: &'a Filter,
    wanted: &'a Wanted,
    /// The oldest place to look at.
    scan_to: Seq,
    /// Places in the next window.
    window: u64,
    began: Instant,
}

impl Backward<'_> {
    /// Whether a page before this place is to be read.
    fn continues_at(&self, next: Seq) -> bool {
        next > self.scan_to && self.began.elapsed() < TIME_MAX
    }

    /// Events before `before`, newest first. The page's `next` is the oldest place that was looked at.
    async fn page(&mut self, before: Seq) -> Result<Page, StoreError> {
        let Page { mut events, next, first } = match &self.filter.object {
            Some(object) => {
                let events = self.store.chain(object, Some(before), WINDOW_MAX as usize).await?;
                // The first event of the chain may follow direct messages.
                let is_chain = self.wanted.direct == Direct::Exclude;
                let more = |oldest: &&Event| oldest.prev.is_some() || !is_chain;
                let next = events.last().filter(more).map_or(0, |oldest| oldest.seq);
                Page { events, next: next.max(self.scan_to), first: 0 }
            }
            None => self.window(before).await?,
        };
        let in_range = |seq: Seq| (self.scan_to..before).contains(&seq);
        events.retain(|event| in_range(event.seq) && self.wanted.passes(event));
        Ok(Page { events, next, first })
    }

    /// The window before `before`. A page of the store ends early where its events are large. Then the window is reduced
    /// to the positions after that page, until one page has all of it.
    async fn window(&mut self, before: Seq) -> Result<Page, StoreError> {
        let last = before - 1;
        let mut after = last.saturating_sub(self.window).max(self.scan_to - 1);
        loop {
            let places = last - after;
            let read = Read { after, limit: places as usize, filter: Filter::default() };
            let Page { mut events, next, first } = self.store.read(read).await?;
            if next < last && next > after {
                (after, self.window) = (next, last - next);
                continue;
            }
            self.window = (self.window * 2).min(WINDOW_MAX);
            events.reverse();
            return Ok(Page { events, next: after + 1, first });
        }
    }
}

/// The events of a page without a condition.
struct Kept {
    limit: usize,
    room: Room,
    events: Vec<Event>,
    /// The oldest place that was looked at.
    next: Seq,
}

impl Kept {
    fn take(&mut self, page: Page) -> Sifted {
        for event in page.events {
            let seq = event.seq;
            if !self.room.take(event.bytes()) {
                return Sifted::Enough;
            }
            self.events.push(event);
            self.next = seq;
            if self.events.len() == self.limit {
                return Sifted::Enough;
            }
        }
        self.next = page.next;
        Sifted::More
    }
}
