//! May this event be applied now?
//!
//! For a receiver to which events come late, doubled or out of turn (by webhooks, over a queue, from several streams):
//! `prev` names the event of the same object that comes before, so the order of each object can be kept without
//! waiting for anything else. The sequencer remembers the last applied place of each object and decides; the receiver
//! applies, and then says so.
//!
//! Memory is bounded: of more than `objects_max` objects, those whose last event is oldest are forgotten. So the order
//! is sure as long as no event comes later than `objects_max` events of other objects after it; a double that comes
//! later than that is said to be undecided, never lost.

use crate::event::{Event, Seq};
use crate::key::ObjectKey;
use std::collections::{BTreeSet, HashMap};

/// What to do with an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// It is next: apply it, then call [`Sequencer::applied`].
    Apply,
    /// Keep it, and ask again when the event at this place has been applied.
    Wait {
        /// The preceding event of the same object.
        until: Seq,
    },
    /// It was applied already: drop it.
    Duplicate,
    /// It cannot be known: whether it was applied is forgotten, or its `prev` could not be decided by the sender
    /// (`prev_since`). Look it up where the data is, or read the object's history.
    Undecided,
}

/// Tells from (object, `seq`, `prev`) whether to apply, wait, or pass over.
///
/// ```
/// use ensue_core::sequencer::{Sequencer, Step};
/// use ensue_core::ObjectKey;
///
/// let order = ObjectKey::parse("order:1").unwrap();
/// let mut sequencer = Sequencer::new(0, 10_000); // nothing applied yet; remember 10,000 objects
/// // The second event of the order comes first.
/// assert_eq!(sequencer.step(Some(&order), 7, Some(3), None), Step::Wait { until: 3 });
/// assert_eq!(sequencer.step(Some(&order), 3, None, None), Step::Apply);
/// sequencer.applied(Some(&order), 3);
/// assert_eq!(sequencer.step(Some(&order), 7, Some(3), None), Step::Apply);
/// sequencer.applied(Some(&order), 7);
/// assert_eq!(sequencer.step(Some(&order), 3, None, None), Step::Duplicate);
/// ```
#[derive(Debug, Clone)]
pub struct Sequencer {
    objects_max: usize,
    /// The last applied place of each object.
    last: HashMap<ObjectKey, Seq>,
    /// The same, the oldest first.
    oldest: BTreeSet<(Seq, ObjectKey)>,
    /// Everything up to here was applied before this sequencer began.
    begun_after: Seq,
    /// Nothing up to here is still to come.
    settled_to: Seq,
    /// Objects were forgotten whose last place is up to here.
    forgotten_to: Seq,
}

impl Sequencer {
    /// For a receiver that has applied everything up to `begun_after` (0: nothing) and what it says from now on.
    /// Remembers the `objects_max` objects whose events were applied last, at least one.
    pub fn new(begun_after: Seq, objects_max: usize) -> Self {
        Self {
            objects_max: objects_max.max(1),
            last: HashMap::new(),
            oldest: BTreeSet::new(),
            begun_after,
            settled_to: begun_after,
            forgotten_to: 0,
        }
    }

    /// May this event be applied now? `prev` and `prev_since` are those of the event as it was delivered. Events without
    /// an object have no order, and are not remembered.
    pub fn step(&self, object: Option<&ObjectKey>, seq: Seq, prev: Option<Seq>, prev_since: Option<Seq>) -> Step {
        let last = object.and_then(|object| self.last.get(object).copied());
        match last {
            Some(last) if seq <= last => return Step::Duplicate,
            None if seq <= self.begun_after => return Step::Duplicate,
            None if object.is_some() && seq <= self.forgotten_to => return Step::Undecided,
            Some(_) | None => {}
        }
        // An object that is not known has no event that was applied, or was forgotten after all that were.
        let settled_to = self.settled_to.max(last.unwrap_or(self.forgotten_to));
        match (prev, prev_since) {
            (Some(prev), _) if prev > settled_to => Step::Wait { until: prev },
            // Between `since` and this event there is none; what may be before it has to be settled.
            (None, Some(since)) if since > settled_to.saturating_add(1) => Step::Undecided,
            (Some(_), _) | (None, Some(_) | None) => Step::Apply,
        }
    }

    /// The same for an event of the whole log, whose `prev` is the log's own.
    pub fn step_of(&self, event: &Event) -> Step {
        self.step(event.object.as_ref(), event.seq, event.prev, None)
    }

    /// The receiver has applied an event.
    pub fn applied(&mut self, object: Option<&ObjectKey>, seq: Seq) {
        let Some(object) = object else { return };
        if let Some(last) = self.last.insert(object.clone(), seq) {
            self.oldest.remove(&(last, object.clone()));
        }
        self.oldest.insert((seq, object.clone()));
        if self.last.len() > self.objects_max
            && let Some((seq, object)) = self.oldest.pop_first()
        {
            self.last.remove(&object);
            self.forgotten_to = self.forgotten_to.max(seq);
        }
    }

    /// Nothing up to this place is still to come: it was forgotten (a gap), or has been read without holes. Who waits
    /// for something up to there need not any more.
    pub fn settled(&mut self, to: Seq) {
        self.settled_to = self.settled_to.max(to);
    }

    /// The log went back: after this place it is another one, whose events may have numbers that were applied already.
    pub fn went_back(&mut self, kept_to: Seq) {
        let void = self.oldest.split_off(&(kept_to.saturating_add(1), ObjectKey::stored("")));
        for (_, object) in void {
            // What came before it was applied, or it would not have been.
            self.oldest.insert((kept_to, object.clone()));
            self.last.insert(object, kept_to);
        }
        for place in [&mut self.begun_after, &mut self.settled_to, &mut self.forgotten_to] {
            *place = kept_to.min(*place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn object(name: &str) -> ObjectKey {
        ObjectKey::stored(name)
    }

    #[test]
    fn who_begins_in_the_middle_does_not_wait_for_what_it_has() {
        let sequencer = Sequencer::new(100, 10);
        let a = object("a");
        assert_eq!(sequencer.step(Some(&a), 90, Some(80), None), Step::Duplicate);
        assert_eq!(sequencer.step(Some(&a), 101, Some(90), None), Step::Apply);
        assert_eq!(sequencer.step(Some(&a), 110, Some(101), None), Step::Wait { until: 101 });
        assert_eq!(sequencer.step(None, 100, None, None), Step::Duplicate);
        assert_eq!(sequencer.step(None, 101, None, None), Step::Apply);
    }

    /// H4: a filtered stream may not know the preceding event; then it says from where on nothing was skipped.
    #[test]
    fn an_undecided_prev_is_undecided_unless_everything_before_is_settled() {
        let mut sequencer = Sequencer::new(0, 10);
        let a = object("a");
        sequencer.applied(Some(&a), 10);
        assert_eq!(sequencer.step(Some(&a), 200, None, Some(100)), Step::Undecided);
        assert_eq!(sequencer.step(Some(&a), 200, None, Some(11)), Step::Apply);
        sequencer.settled(99);
        assert_eq!(sequencer.step(Some(&a), 200, None, Some(100)), Step::Apply);
        // Without `prev_since`, no `prev` means that there is none.
        assert_eq!(Sequencer::new(0, 10).step(Some(&a), 200, None, None), Step::Apply);
    }

    #[test]
    fn what_a_gap_took_is_not_waited_for() {
        let mut sequencer = Sequencer::new(0, 10);
        let a = object("a");
        sequencer.applied(Some(&a), 3);
        assert_eq!(sequencer.step(Some(&a), 60, Some(40), None), Step::Wait { until: 40 });
        sequencer.settled(50);
        assert_eq!(sequencer.step(Some(&a), 60, Some(40), None), Step::Apply);
    }

    /// H35: numbers are given out again, for other events.
    #[test]
    fn after_the_log_went_back_reused_numbers_are_no_duplicates() {
        let mut sequencer = Sequencer::new(0, 10);
        let (a, b) = (object("a"), object("b"));
        sequencer.applied(Some(&a), 80);
        sequencer.applied(Some(&a), 99);
        sequencer.applied(Some(&b), 70);
        sequencer.went_back(90);
        assert_eq!(sequencer.step(Some(&a), 95, Some(80), None), Step::Apply);
        assert_eq!(sequencer.step(Some(&a), 97, Some(95), None), Step::Wait { until: 95 });
        assert_eq!(sequencer.step(Some(&a), 80, Some(60), None), Step::Duplicate);
        assert_eq!(sequencer.step(Some(&b), 70, None, None), Step::Duplicate);
        assert_eq!(sequencer.oldest.len(), sequencer.last.len());
    }

    #[test]
    fn memory_is_bounded_and_what_is_forgotten_is_undecided() {
        let mut sequencer = Sequencer::new(0, 100);
        for seq in 1..=10_000 {
            sequencer.applied(Some(&object(&format!("o{seq}"))), seq);
        }
        assert_eq!((sequencer.last.len(), sequencer.oldest.len()), (100, 100));
        assert_eq!(sequencer.step(Some(&object("o5")), 5, None, None), Step::Undecided);
        assert_eq!(sequencer.step(Some(&object("o9999")), 9_999, None, None), Step::Duplicate);
        // An object that was quiet for long goes on.
        assert_eq!(sequencer.step(Some(&object("o5")), 10_001, Some(5), None), Step::Apply);
    }

    proptest! {
        /// Whatever the order of arrival, and however often: each object's events are applied once and in order.
        #[test]
        fn any_order_of_arrival_becomes_the_order_of_the_log(
            objects in prop::collection::vec(0_u8..5, 1..60),
            arrivals in prop::collection::vec(any::<prop::sample::Index>(), 1..300),
        ) {
            let mut newest = HashMap::new();
            let log: Vec<(ObjectKey, Seq, Option<Seq>)> = (1..)
                .zip(&objects)
                .map(|(seq, name)| (object(&name.to_string()), seq, newest.insert(name, seq)))
                .collect();
            let mut sequencer = Sequencer::new(0, 5);
            let (mut waiting, mut applied) = (Vec::new(), Vec::new());
            // At random with doubles, and in the end everything once more.
            for (key, seq, prev) in arrivals.iter().map(|index| index.get(&log)).chain(log.iter().rev()) {
                waiting.push((key, *seq, *prev));
                while let Some(ready) = waiting.iter().position(|(key, seq, prev)| {
                    !matches!(sequencer.step(Some(key), *seq, *prev, None), Step::Wait { .. })
                }) {
                    let (key, seq, prev) = waiting.swap_remove(ready);
                    match sequencer.step(Some(key), seq, prev, None) {
                        Step::Apply => {
                            applied.push((key.clone(), seq, prev));
                            sequencer.applied(Some(key), seq);
                        }
                        Step::Duplicate => {}
                        Step::Wait { .. } | Step::Undecided => unreachable!("nothing is forgotten here"),
                    }
                }
            }
            prop_assert!(waiting.is_empty());
            for (key, _, _) in &log {
                let of_object = |all: &[(ObjectKey, Seq, Option<Seq>)]| -> Vec<Seq> {
                    all.iter().filter(|(other, _, _)| other == key).map(|(_, seq, _)| *seq).collect()
                };
                prop_assert_eq!(of_object(&applied), of_object(&log));
            }
        }
    }
}
