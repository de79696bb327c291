//! How much of the log is held for a stream at once?
//!
//! A stream whose reader has stopped keeps what was read for it, so that must be little: [`HELD_BYTES_MAX`] instead of
//! the store's whole page. What a page has beyond that is put back, to be read again later; so that this stays rare,
//! the next page asks for as many events as fit by the sizes of the last. The tail, of which a process has one, reads more
//! at once: a page costs as much as the reading of some hundred events.

use crate::large_events;
use ensue_core::room::Room;
use ensue_core::store::Page;
use ensue_core::{Event, Seq};
use std::sync::Arc;

/// How many events are read at once, for a stream and for the tail.
const EVENTS_MAX: usize = 256;
const TAIL_EVENTS_MAX: usize = 1_024;
/// How many bytes of events are held at once for a stream (but always one event), and for the tail: as much as a thousand events of some hundred bytes have.
pub(crate) const HELD_BYTES_MAX: usize = 256 << 10;
const TAIL_BYTES_MAX: usize = 2 * HELD_BYTES_MAX;

/// Reads page after page, none of which holds much.
pub(crate) struct Pages {
    events_max: usize,
    bytes_max: usize,
    limit_next: usize,
}

impl Pages {
    /// For one of many who read.
    pub fn of_stream() -> Self {
        Self { events_max: EVENTS_MAX, bytes_max: HELD_BYTES_MAX, limit_next: EVENTS_MAX }
    }

    /// For the one that reads for all.
    pub fn of_tail() -> Self {
        Self { events_max: TAIL_EVENTS_MAX, bytes_max: TAIL_BYTES_MAX, limit_next: TAIL_EVENTS_MAX }
    }

    /// Was this page, read with one event more than the limit, all that there was? To be asked before it is taken.
    pub fn is_all(&self, page: &Page) -> bool {
        page.events.len() <= self.limit_next && page.events.iter().map(Event::bytes).sum::<usize>() < self.bytes_max
    }

    /// How many events the next page should have.
    pub fn limit(&self) -> usize {
        self.limit_next
    }

    /// What is held of a page, and the place up to which it was looked at then.
    pub fn take(&mut self, page: Page) -> (Vec<Arc<Event>>, Seq) {
        let (mut events, mut next) = (page.events, page.next);
        let mut room = Room::of(self.bytes_max);
        let held = events.iter().take_while(|event| room.take(event.bytes())).count();
        if held < events.len() {
            events.truncate(held);
            next = events[held - 1].seq;
        }
        let average = (room.taken() / held.max(1)).max(1);
        self.limit_next = (self.bytes_max / average).clamp(1, self.events_max);
        (events.into_iter().map(large_events::shared).collect(), next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensue_core::{EventId, Json, Timestamp, Topic};

    fn page(after: Seq, payload_bytes: &[usize]) -> Page {
        let event = |(index, bytes): (usize, &usize)| Event {
            seq: after + 1 + index as Seq,
            prev: None,
            id: EventId(Default::default()),
            topic: Topic::stored("a"),
            object: None,
            payload: Json::stored("x".repeat(*bytes)),
            metadata: Json::empty_object(),
            occurred_at: Timestamp::UNIX_EPOCH,
            recorded_at: Timestamp::UNIX_EPOCH,
            to: None,
        };
        let events: Vec<_> = payload_bytes.iter().enumerate().map(event).collect();
        Page { next: after + events.len() as Seq, events, first: 1 }
    }

    #[test]
    fn what_is_held_is_little_however_large_the_events_are() {
        let mut pages = Pages::of_stream();
        let (held, next) = pages.take(page(0, &[100_000; 40]));
        assert_eq!((held.len(), next, pages.limit()), (2, 2, 2));
        let (held, next) = pages.take(page(2, &[1 << 20]));
        assert_eq!((held.len(), next), (1, 3), "an event larger than all that may be held is held alone");
    }

    #[test]
    fn the_tail_reads_more_at_once_and_holds_little_too() {
        let mut pages = Pages::of_tail();
        assert!(pages.limit() > Pages::of_stream().limit());
        let (held, next) = pages.take(page(0, &[100_000; 40]));
        assert_eq!((held.len(), next, pages.limit()), (5, 5, 5));
        assert!(pages.is_all(&page(5, &[1_000; 5])));
        assert!(!pages.is_all(&page(5, &[1_000; 6])), "one more than was to be read");
        assert!(!pages.is_all(&page(5, &[200_000; 3])), "more than may be held");
    }

    #[test]
    fn small_events_come_by_the_page_and_none_is_left_out() {
        let mut pages = Pages::of_stream();
        let (held, next) = pages.take(page(0, &[200; 256]));
        assert_eq!((held.len(), next, pages.limit()), (256, 256, EVENTS_MAX));
        let (held, next) = pages.take(Page { events: Vec::new(), next: 900, first: 1 });
        assert_eq!((held.len(), next, pages.limit()), (0, 900, EVENTS_MAX));
    }
}
