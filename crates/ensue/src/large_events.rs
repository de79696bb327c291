//! One copy of a large event, however many readers hold it.
//!
//! Streams that cannot keep up read the store by themselves. Without this, each of them would hold its own copy.

use ensue_core::{Event, EventId};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

/// Events of fewer bytes are not worth sharing.
const LARGE_BYTES_MIN: usize = 16 << 10;
/// How many entries the table has before those of dropped events are removed.
const ENTRIES_MIN: usize = 64;

/// Large events that are held in this process.
#[derive(Default)]
struct Table {
    events: HashMap<EventId, Weak<Event>>,
    /// How many entries it may have before it is cleaned.
    entries_max: usize,
}

static TABLE: LazyLock<Mutex<Table>> = LazyLock::new(Mutex::default);

/// The event, or the copy of it that somebody holds already.
pub(crate) fn shared(event: Event) -> Arc<Event> {
    if event.bytes() < LARGE_BYTES_MIN {
        return Arc::new(event);
    }
    let known = TABLE.lock().unwrap_or_else(PoisonError::into_inner).events.get(&event.id).and_then(Weak::upgrade);
    // Compared outside of the lock. Another log may have another event under the same id.
    if let Some(known) = known.filter(|known| **known == event) {
        return known;
    }
    let event = Arc::new(event);
    let mut table = TABLE.lock().unwrap_or_else(PoisonError::into_inner);
    table.events.insert(event.id, Arc::downgrade(&event));
    if table.events.len() > table.entries_max {
        table.events.retain(|_, held| held.strong_count() > 0);
        table.entries_max = 2 * table.events.len().max(ENTRIES_MIN);
    }
    event
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensue_core::{Json, Timestamp, Topic};

    fn event(id: u128, bytes: usize) -> Event {
        Event {
            seq: 1,
            prev: None,
            id: EventId(uuid::Uuid::from_u128(id)),
            topic: Topic::stored("a"),
            object: None,
            payload: Json::stored(format!("\"{}\"", "x".repeat(bytes))),
            metadata: Json::empty_object(),
            occurred_at: Timestamp::UNIX_EPOCH,
            recorded_at: Timestamp::UNIX_EPOCH,
            to: None,
        }
    }

    #[test]
    fn copies_of_a_large_event_are_one() {
        let (first, second) = (shared(event(1, 1 << 20)), shared(event(1, 1 << 20)));
        assert!(Arc::ptr_eq(&first, &second));
        assert!(!Arc::ptr_eq(&first, &shared(event(1, 1 << 19))), "another event with the same id");
        assert!(!Arc::ptr_eq(&shared(event(2, 100)), &shared(event(2, 100))));
    }

    #[test]
    fn dropped_events_leave_the_table() {
        for id in 100..1_000 {
            shared(event(id, LARGE_BYTES_MIN));
        }
        assert!(TABLE.lock().unwrap().events.len() <= 3 * ENTRIES_MIN);
    }
}
