//! Where do a worker's events come from?
//!
//! From the store, page by page, until it is where the router is; then from its mailbox, until that overflows.

use super::conclude::behind_stuck;
use super::life::{Life, Source};
use super::read_ahead::ReadAhead;
use super::router::{Mail, condition_failed};
use super::worker::Halt;
use crate::handlers::HandlerFilter;
use crate::wanted::Turn;
use ensue_core::condition::Failure;
use ensue_core::positions::{LaneKey, Lost, SlotNumber, slot_of};
use ensue_core::store::{Page, Read, SharedStore};
use ensue_core::{Event, Filter, Seq, StoreError};
use std::sync::Arc;

/// How many places a worker keeps behind one that is not done.
const WINDOW_MAX: usize = 16_384;

/// A page with the events that a handler wants.
pub(crate) struct WantedPage {
    page: Page,
    /// Events on which its condition failed.
    failed: Vec<(Seq, Failure)>,
}

/// Reads a page and keeps what a handler wants of it.
async fn read_wanted(store: SharedStore, wish: HandlerFilter, read: Read) -> Result<WantedPage, StoreError> {
    let mut page = store.read(read).await?;
    let (mut turn, mut failed) = (Turn::begin(), Vec::new());
    let mut wanted = Vec::with_capacity(page.events.len());
    for event in std::mem::take(&mut page.events) {
        let event = Arc::new(event);
        match wish.wants(&event).await? {
            Ok(true) => wanted.push(Arc::unwrap_or_clone(event)),
            Ok(false) => {}
            Err(failure) => failed.push((event.seq, failure)),
        }
        turn.pass_on().await;
    }
    page.events = wanted;
    Ok(WantedPage { page, failed })
}

impl Life<'_> {
    fn has_room(&self, bounds: &ReadAhead) -> bool {
        self.ending.is_none()
            && self.lanes.queued() < bounds.events_max
            && self.lanes.bytes() < bounds.bytes_max
            && self.window.len() < WINDOW_MAX
    }

    /// Takes what there is, while there is room.
    pub fn take_events(&mut self) -> Result<(), StoreError> {
        // One that reads the store by itself finds nothing of it in its mailbox.
        if self.worker.router.known().setbacks != self.setbacks {
            return Err(self.went_back());
        }
        self.looks_again = false;
        let bounds = self.read_ahead();
        loop {
            while self.has_room(&bounds)
                && let Some(event) = self.taken.front().cloned()
            {
                if self.waits_for_lane(&event, &bounds) {
                    return Ok(());
                }
                self.taken.pop_front();
                self.arrive(event, &bounds);
            }
            if !self.has_room(&bounds) || self.reading.is_some() {
                return Ok(());
            }
            if self.taken_to > self.window.seen_to() {
                self.see(self.taken_to);
            }
            match self.source {
                Source::Store => {
                    let seen_to = self.window.seen_to();
                    if seen_to >= self.worker.router.read_to() {
                        if self.worker.router.open(&self.worker.mailbox, seen_to, self.setbacks) {
                            self.source = Source::Mailbox;
                            continue;
                        }
                        // It rings once it has heard.
                        if !self.worker.router.has_heard_of(self.setbacks) {
                            return Ok(());
                        }
                    }
                    let read = Read { after: seen_to, limit: self.pages.limit(), filter: Filter::default() };
                    self.reading = Some(Box::pin(read_wanted(self.worker.store.clone(), self.worker.wish(), read)));
                    return Ok(());
                }
                Source::Mailbox => match self.worker.router.take(&self.worker.mailbox) {
                    Mail::Events(events, to) if events.is_empty() => {
                        self.see(to);
                        return Ok(());
                    }
                    Mail::Events(events, to) => (self.taken, self.taken_to) = (events, to),
                    Mail::Closed(events, to) => {
                        (self.taken, self.taken_to) = (events, to);
                        self.source = Source::Store;
                    }
                    Mail::WentBack => return Err(self.went_back()),
                },
            }
        }
    }

    /// What the handler has read is no longer in the log. Says so, if it had come so far.
    pub fn went_back(&self) -> StoreError {
        self.worker.tell_went_back(self.window.seen_to());
        let why = "the log went back behind what this handler had read: it continues with what is stored";
        StoreError::Unavailable(why.into())
    }

    /// What was read from the store, as far as the tail has come.
    pub fn take_page(&mut self, WantedPage { page, failed }: WantedPage) {
        if *self.worker.stop.borrow() == Halt::Unbound {
            // It may hold what only the successor wants.
            return;
        }
        if page.first > self.window.seen_to() + 1 {
            let lost = Lost { from: self.window.seen_to() + 1, to: page.first - 1 };
            let handler = &self.worker.spec.key;
            tracing::warn!(%handler, lost.from, lost.to, "retention took events that the handler had not come to");
            self.pending.lost = Some(lost);
            self.see(lost.to);
        }
        let (events, next) = self.pages.take(page);
        let (seen_to, read_to) = (self.window.seen_to(), self.worker.router.read_to());
        let next = next.min(read_to);
        let is_new = |event: &Arc<Event>| event.seq <= read_to && event.seq > seen_to;
        (self.taken, self.taken_to) = (events.into_iter().filter(is_new).collect(), next);
        for (seq, failure) in failed.iter().filter(|(seq, _)| *seq <= next && *seq > seen_to) {
            condition_failed(self.worker.spec.key.as_str(), *seq, failure);
        }
        if next <= seen_to {
            // There is less in the log than the tail has seen: it went back, and the tail will say so.
            self.worker.router.look_now();
        }
    }

    fn see(&mut self, to: Seq) {
        self.window.see(to);
        self.worker.progress.see(self.window.seen_to());
    }

    pub fn slot_of(&self, event: &Event) -> SlotNumber {
        slot_of(event.object.as_ref(), event.seq, self.worker.slots_total)
    }

    /// Is it between a range that is run again and where its slot was? Then it is done.
    pub fn skips(&self, event: &Event) -> bool {
        let replay = self.replays.get(usize::from(self.slot_of(event))).copied().flatten();
        replay.is_some_and(|replay| replay.skips(event.seq))
    }

    /// The lane of an event.
    pub fn lane_of(&self, event: &Event) -> LaneKey {
        match &event.object {
            Some(object) if self.worker.spec.ordered => LaneKey::Object(object.clone()),
            Some(_) | None => LaneKey::Event(event.seq),
        }
    }

    /// An event that the handler wants.
    fn arrive(&mut self, event: Arc<Event>, bounds: &ReadAhead) {
        if event.seq <= self.window.seen_to() {
            return;
        }
        let slot = self.slot_of(&event);
        let is_ours =
            self.slot_starts[usize::from(slot)].is_some_and(|start| event.seq > start.cursor) && !self.skips(&event);
        let key = self.lane_of(&event);
        let is_done = self.marks.get(&key).is_some_and(|(_, position)| event.seq < *position);
        if !is_ours || is_done {
            self.see(event.seq);
            return;
        }
        self.moved = true;
        let seq = event.seq;
        self.window.take(seq);
        self.worker.progress.take(seq);
        if self.lanes.is_full(&key, bounds)
            && let Some(first) = self.lanes.get(&key).and_then(|lane| lane.front())
        {
            self.overflow(&key, &first);
        }
        let is_overflow = self.lanes.is_overflow(&key);
        let followed = self.worker.progress.is_followed().then(|| key.clone());
        match self.lanes.arrive(key.clone(), event) {
            true => {}
            false if is_overflow => self.leave_in_log(&key, seq),
            false => {
                let row = followed.and_then(|key| self.lanes.get(&key)?.row.as_ref());
                let stuck = row.filter(|row| row.lane.position < seq).and_then(|row| behind_stuck(&row.lane));
                self.cover(seq);
                if let Some(outcome) = stuck {
                    self.worker.progress.ended(seq, outcome);
                }
            }
        }
    }

    /// A row stands for this event: the cursor may pass it. It is written with the row or after it, never before: whatever
    /// is to be written goes into the next change, and one is under way at a time.
    pub fn cover(&mut self, seq: Seq) {
        self.window.done(seq);
        self.worker.progress.tried(seq);
    }
}
