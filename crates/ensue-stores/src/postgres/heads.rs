//! Which event of this object came last, as far as we have seen? Direct messages are left out.
//!
//! A cache that saves the append function its lookups. It may be behind, because other nodes append too, and it says
//! how far it has seen: the function looks up only what came after that. So it is never trusted further than it is true,
//! and it stays useful beside other writers.

use ensue_core::{ObjectKey, Seq};
use std::collections::HashMap;

/// How many objects are remembered: two generations of this many, about 100 bytes each.
const GENERATION_MAX: usize = 50_000;

/// The newest event of an object, and the place up to which this is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub seq: Seq,
    pub seen_to: Seq,
}

/// The newest events of the objects that we appended to lately.
#[derive(Debug, Default)]
pub(super) struct Heads {
    young: HashMap<ObjectKey, Head>,
    /// What was young before; dropped whole when the young ones have become too many.
    old: HashMap<ObjectKey, Head>,
    /// Every event after `gapless_from` up to `seen_to` was appended by us: a head that was true anywhere between is
    /// true up to `seen_to`.
    gapless_from: Seq,
    seen_to: Seq,
}

impl Heads {
    /// Starts anew, at the end of the log as a new connection found it. A failover may have lost what we remember, so
    /// nothing is carried over from one connection to the next.
    pub fn begin_at(tail: Seq) -> Self {
        Self { gapless_from: tail, seen_to: tail, ..Self::default() }
    }

    /// What is known of an object.
    pub fn get(&self, object: &ObjectKey) -> Option<Head> {
        let head = self.young.get(object).or_else(|| self.old.get(object))?;
        let seen_to = if head.seen_to >= self.gapless_from { self.seen_to } else { head.seen_to };
        Some(Head { seq: head.seq, seen_to })
    }

    /// We appended the places after `before` up to `tail`: others may have been there between our last append and
    /// `before`.
    pub fn appended(&mut self, before: Seq, tail: Seq) {
        if before != self.seen_to {
            self.gapless_from = before;
        }
        self.seen_to = tail;
    }

    /// The newest event of an object in what we appended just now.
    pub fn set(&mut self, object: &ObjectKey, seq: Seq) {
        let head = Head { seq, seen_to: self.seen_to };
        if let Some(known) = self.young.get_mut(object) {
            *known = head;
            return;
        }
        if self.young.len() >= GENERATION_MAX {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(object.clone(), head);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(name: &str) -> ObjectKey {
        ObjectKey::stored(name)
    }

    #[test]
    fn a_head_stays_true_to_the_end_while_we_append_alone() {
        let mut heads = Heads::begin_at(10);
        heads.appended(10, 12);
        heads.set(&object("a"), 11);
        heads.appended(12, 20);
        assert_eq!(heads.get(&object("a")), Some(Head { seq: 11, seen_to: 20 }));
        assert_eq!(heads.get(&object("b")), None);
    }

    #[test]
    fn a_head_is_true_no_further_than_where_another_node_may_have_appended() {
        let mut heads = Heads::begin_at(10);
        heads.appended(10, 12);
        heads.set(&object("a"), 11);
        heads.appended(15, 16); // 13 to 15 were another's
        heads.set(&object("b"), 16);
        assert_eq!(heads.get(&object("a")), Some(Head { seq: 11, seen_to: 12 }));
        assert_eq!(heads.get(&object("b")), Some(Head { seq: 16, seen_to: 16 }));
        heads.appended(16, 18);
        assert_eq!(heads.get(&object("a")), Some(Head { seq: 11, seen_to: 12 }));
        assert_eq!(heads.get(&object("b")), Some(Head { seq: 16, seen_to: 18 }));
    }

    #[test]
    fn the_number_of_objects_remembered_is_bounded_and_the_latest_stay() {
        let mut heads = Heads::begin_at(0);
        for seq in 1..=3 * GENERATION_MAX as Seq {
            heads.appended(seq - 1, seq);
            heads.set(&object(&seq.to_string()), seq);
        }
        assert!(heads.young.len() + heads.old.len() <= 2 * GENERATION_MAX);
        assert!(heads.get(&object(&(3 * GENERATION_MAX).to_string())).is_some());
    }
}
