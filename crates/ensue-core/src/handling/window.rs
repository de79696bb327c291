//! Up to where is everything done?
//!
//! Deliveries end in any order; a cursor can only say "everything up to here". The window holds what was taken from the
//! log and is not behind the cursor yet.

use crate::event::Seq;
use std::collections::VecDeque;

/// What was taken and not yet passed by the cursor.
#[derive(Debug, Default)]
pub struct Window {
    /// Everything up to here was taken from the log, or is nothing to this group.
    seen_to: Seq,
    /// In order; what is done at the front is gone.
    taken: VecDeque<(Seq, bool)>,
}

impl Window {
    /// Begins after this place.
    pub fn after(cursor: Seq) -> Self {
        Self { seen_to: cursor, taken: VecDeque::new() }
    }

    /// An event was taken; it comes after all others.
    pub fn take(&mut self, seq: Seq) {
        debug_assert!(seq > self.seen_to, "{seq} was seen already, up to {}", self.seen_to);
        self.seen_to = seq;
        self.taken.push_back((seq, false));
    }

    /// Everything up to here was looked at.
    pub fn see(&mut self, to: Seq) {
        self.seen_to = self.seen_to.max(to);
    }

    /// Up to where the log was looked at.
    pub fn seen_to(&self) -> Seq {
        self.seen_to
    }

    /// An event is done, or has a lane of its own.
    pub fn done(&mut self, seq: Seq) {
        if let Ok(index) = self.taken.binary_search_by_key(&seq, |(taken, _)| *taken) {
            self.taken[index].1 = true;
        }
        while self.taken.front().is_some_and(|(_, done)| *done) {
            self.taken.pop_front();
        }
    }

    /// Everything up to here is done.
    pub fn cursor(&self) -> Seq {
        self.taken.front().map_or(self.seen_to, |(seq, _)| seq - 1)
    }

    /// Would the cursor pass this event if it were done?
    pub fn is_next(&self, seq: Seq) -> bool {
        self.taken.front().is_none_or(|(front, _)| *front >= seq)
    }

    /// How many are held, done or not.
    pub fn len(&self) -> usize {
        self.taken.len()
    }

    /// Is everything done?
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_cursor_stands_before_the_oldest_that_is_not_done() {
        let mut window = Window::after(10);
        assert_eq!(window.cursor(), 10);
        [12, 15, 16].into_iter().for_each(|seq| window.take(seq));
        window.see(20);
        assert_eq!(window.cursor(), 11);
        assert!(window.is_next(12) && !window.is_next(15));
        window.done(15);
        assert_eq!(window.cursor(), 11);
        window.done(12);
        assert_eq!((window.cursor(), window.len()), (15, 1));
        window.done(16);
        assert_eq!((window.cursor(), window.is_empty()), (20, true));
        // Again, or never taken: nothing.
        window.done(16);
        window.done(99);
        assert_eq!(window.cursor(), 20);
    }

    proptest! {
        #[test]
        fn in_whatever_order_they_end(count in 1_u64..50, order in prop::collection::vec(0_u64..50, 0..80)) {
            let mut window = Window::after(0);
            (1..=count).for_each(|n| window.take(n * 3));
            let mut open: Vec<Seq> = (1..=count).map(|n| n * 3).collect();
            for n in order {
                window.done(n * 3);
                open.retain(|seq| *seq != n * 3);
                prop_assert_eq!(window.cursor(), open.first().map_or(count * 3, |seq| seq - 1));
            }
        }
    }
}
