//! What of the log has this process in hand, because it has just appended it?
//!
//! The newest of it, for the tail, which then need not read it back. It is only a shorter way: whatever is missing here,
//! because another process wrote it or because it was too much to keep, the tail reads from the store.

use crate::pages::HELD_BYTES_MAX;
use ensue_core::follow::Follower;
use ensue_core::room::Room;
use ensue_core::{Event, Seq};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// How much is kept for a tail that does not come; then it has to read.
const OWN_BYTES_MAX: usize = 4 * HELD_BYTES_MAX;

/// Consecutive events that were appended in one session of the store.
#[derive(Debug, Default)]
pub(crate) struct Own {
    listening: AtomicBool,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    session: u64,
    events: VecDeque<Arc<Event>>,
    bytes: usize,
}

impl Own {
    /// Says whether what is appended shall be kept.
    pub fn listen(&self, listening: bool) {
        self.listening.store(listening, Ordering::SeqCst);
        if !listening {
            self.forget();
        }
    }

    /// Lets go of everything: the log went back.
    pub fn forget(&self) {
        self.kept().clear();
    }

    /// What comes right after a place, if it was appended in that session: as much as may be held at once.
    pub fn after(&self, at: Seq, session: u64) -> Option<Vec<Arc<Event>>> {
        let mut kept = self.kept();
        kept.forget_to(at);
        if kept.session != session || kept.events.front()?.seq != at + 1 {
            return None;
        }
        let mut room = Room::of(HELD_BYTES_MAX);
        let count = kept.events.iter().take_while(|event| room.take(event.bytes())).count();
        kept.bytes -= room.taken();
        Some(kept.events.drain(..count).collect())
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn clear(&mut self) {
        self.events.clear();
        self.bytes = 0;
    }

    fn forget_to(&mut self, at: Seq) {
        let known = self.events.partition_point(|event| event.seq <= at);
        self.bytes -= self.events.drain(..known).map(|event| event.bytes()).sum::<usize>();
    }
}

impl Follower for Own {
    fn is_listening(&self) -> bool {
        self.listening.load(Ordering::SeqCst)
    }

    fn committed(&self, session: u64, events: &[Arc<Event>]) {
        let Some(first) = events.first() else { return };
        let mut kept = self.kept();
        let follows = kept.events.back().is_none_or(|last| last.seq + 1 == first.seq);
        if !follows || kept.session != session || kept.bytes > OWN_BYTES_MAX {
            kept.clear();
        }
        kept.session = session;
        kept.bytes += events.iter().map(|event| event.bytes()).sum::<usize>();
        kept.events.extend(events.iter().cloned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensue_core::{EventId, NewEvent, Timestamp};

    fn events(seqs: std::ops::RangeInclusive<Seq>, bytes: usize) -> Vec<Arc<Event>> {
        let entry = NewEvent::new("t").payload(&"x".repeat(bytes)).check().unwrap();
        let (id, at) = (EventId(Default::default()), Timestamp::UNIX_EPOCH);
        seqs.map(|seq| Arc::new(Event::of(entry.clone(), id, seq, None, at))).collect()
    }

    fn seqs(events: Option<Vec<Arc<Event>>>) -> Option<Vec<Seq>> {
        events.map(|events| events.iter().map(|event| event.seq).collect())
    }

    #[test]
    fn only_what_follows_without_a_gap_in_the_same_session_is_given() {
        let own = Own::default();
        own.committed(1, &events(5..=6, 1));
        assert_eq!(own.after(3, 1), None, "4 is another's");
        assert_eq!(own.after(4, 2), None, "the log may be another");
        own.committed(1, &events(7..=7, 1));
        assert_eq!(seqs(own.after(4, 1)), Some(vec![5, 6, 7]));
        own.committed(1, &events(8..=8, 1));
        own.committed(1, &events(10..=11, 1));
        assert_eq!(own.after(7, 1), None, "after a gap, what was before it is let go");
        assert_eq!(seqs(own.after(10, 1)), Some(vec![11]));
        own.committed(1, &events(12..=12, 1));
        own.committed(2, &events(13..=13, 1));
        assert_eq!((own.after(11, 1), seqs(own.after(12, 2))), (None, Some(vec![13])));
    }

    #[test]
    fn little_is_given_at_once_and_not_much_is_kept() {
        let own = Own::default();
        own.committed(1, &events(1..=5, HELD_BYTES_MAX / 2));
        assert_eq!(seqs(own.after(0, 1)), Some(vec![1]));
        assert_eq!(seqs(own.after(1, 1)), Some(vec![2]));
        (0..20).for_each(|commit| own.committed(1, &events(6 + commit..=6 + commit, HELD_BYTES_MAX)));
        assert_eq!(own.after(2, 1), None);
        let kept = own.kept();
        assert!(kept.bytes <= OWN_BYTES_MAX + 2 * HELD_BYTES_MAX, "{}", kept.bytes);
        assert_eq!(kept.bytes, kept.events.iter().map(|event| event.bytes()).sum::<usize>());
    }
}
