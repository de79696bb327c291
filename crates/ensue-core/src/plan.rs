//! Which `seq`, `prev` and `recorded_at` does a new event get?
//!
//! An engine holds its write lock, tells what it already has, and carries out the plan in one transaction. The plan
//! is the same for every engine that has no query language of its own to express it in; the Postgres engine follows
//! the same rules in its append function, and the conformance suite holds both to the model.

use crate::error::{Invalid, StoreError};
use crate::event::{Appended, Entry, Pending, Seq, whole_microseconds};
use crate::id::EventId;
use crate::key::{IdempotencyKey, ObjectKey};
use jiff::{SignedDuration, Timestamp};
use std::collections::HashMap;

/// How long an idempotency key is remembered.
pub const KEY_WINDOW: SignedDuration = SignedDuration::from_hours(24);

/// Where the log ends: the newest `seq` ever given out (0 if none) and the newest `recorded_at`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tail {
    /// The newest `seq` ever given out, trimmed or not.
    pub seq: Seq,
    /// The newest `recorded_at` ever given out.
    pub recorded_at: Timestamp,
}

impl Tail {
    /// The end of a log that never had an event.
    pub const EMPTY: Tail = Tail { seq: 0, recorded_at: Timestamp::MIN };

    /// The time to record at: the clock's, but never before what is already recorded.
    pub fn record_time(&self, clock: Timestamp) -> Timestamp {
        whole_microseconds(clock).max(self.recorded_at)
    }
}

/// What an engine remembers of an idempotency key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyRecord {
    /// [`Entry::fingerprint`] of the first event under the key.
    pub fingerprint: [u8; 32],
    /// What was answered then.
    pub answer: Appended,
}

/// What the plan asks of the engine while it holds its write lock.
pub trait Known {
    /// The record of a key whose window has not passed.
    fn key(&mut self, key: &IdempotencyKey) -> Result<Option<KeyRecord>, StoreError>;
    /// The newest event of an object that is still in the log and is not a direct message.
    fn head(&mut self, object: &ObjectKey) -> Result<Option<Seq>, StoreError>;
    /// Ten random bytes.
    fn random(&mut self) -> [u8; 10];
}

/// Where the entries of a batch go: one placement for each.
#[derive(Debug, PartialEq, Eq)]
pub struct Plan {
    /// When all of it is recorded.
    pub recorded_at: Timestamp,
    /// In the order of the entries.
    pub placements: Vec<Placement>,
}

/// What to write for one entry, and what to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// It was stored before: answers as it did then.
    Repeated(Appended),
    /// It waits for its time.
    Delayed {
        /// Its identity.
        id: EventId,
    },
    /// It enters the log.
    Logged {
        /// Its identity.
        id: EventId,
        /// Its place.
        seq: Seq,
        /// The place of the preceding event of the same object, direct messages left out.
        prev: Option<Seq>,
    },
}

impl Placement {
    /// What to answer.
    pub fn answer(&self) -> Appended {
        match *self {
            Placement::Repeated(first) => Appended { repeated: true, ..first },
            Placement::Delayed { id } => Appended { id, seq: None, prev: None, repeated: false },
            Placement::Logged { id, seq, prev } => Appended { id, seq: Some(seq), prev, repeated: false },
        }
    }
}

impl Plan {
    /// Where the log ends once the plan is carried out.
    pub fn tail_after(&self, tail: Tail) -> Tail {
        let newest = self.placements.iter().rev().find_map(|placement| match placement {
            Placement::Logged { seq, .. } => Some(*seq),
            Placement::Repeated(_) | Placement::Delayed { .. } => None,
        });
        newest.map_or(tail, |seq| Tail { seq, recorded_at: self.recorded_at })
    }
}

/// Gives out places at the end of the log, chained by object.
struct Numbering<'k> {
    next: Seq,
    /// The newest event of each object among those placed here.
    heads: HashMap<ObjectKey, Seq>,
    known: &'k mut dyn Known,
}

impl<'k> Numbering<'k> {
    fn after(tail: Tail, known: &'k mut dyn Known) -> Self {
        Self { next: tail.seq + 1, heads: HashMap::new(), known }
    }

    /// A direct message follows its object's chain and is not part of it: readers that do not get
    /// it must not be pointed to it.
    fn place(&mut self, object: Option<&ObjectKey>, is_direct: bool) -> Result<(Seq, Option<Seq>), StoreError> {
        let seq = self.next;
        self.next += 1;
        let Some(object) = object else { return Ok((seq, None)) };
        let here = match is_direct {
            true => self.heads.get(object).copied(),
            false => self.heads.insert(object.clone(), seq),
        };
        let prev = match here {
            Some(head) => Some(head),
            None => self.known.head(object)?,
        };
        Ok((seq, prev))
    }
}

/// Plans one caller's batch: all of it or, with an error, nothing.
pub fn append(batch: &[Entry], clock: Timestamp, tail: Tail, known: &mut dyn Known) -> Result<Plan, StoreError> {
    let recorded_at = tail.record_time(clock);
    let mut placements = Vec::with_capacity(batch.len());
    let mut keys_here: HashMap<&IdempotencyKey, KeyRecord> = HashMap::new();
    let mut numbering = Numbering::after(tail, known);
    for entry in batch {
        let fingerprint = entry.key.as_ref().map(|_| entry.fingerprint());
        if let (Some(key), Some(fingerprint)) = (&entry.key, fingerprint) {
            let earlier = match keys_here.get(key) {
                Some(record) => Some(*record),
                None => numbering.known.key(key)?,
            };
            if let Some(record) = earlier {
                if record.fingerprint != fingerprint {
                    return Err(StoreError::KeyConflict { key: key.to_string() });
                }
                placements.push(Placement::Repeated(record.answer));
                continue;
            }
        }
        let id = EventId::new(recorded_at, numbering.known.random());
        let placement = match entry.not_before {
            Some(not_before) if not_before > recorded_at => Placement::Delayed { id },
            Some(_) | None => {
                let (seq, prev) = numbering.place(entry.object.as_ref(), entry.to.is_some())?;
                Placement::Logged { id, seq, prev }
            }
        };
        if let (Some(key), Some(fingerprint)) = (&entry.key, fingerprint) {
            keys_here.insert(key, KeyRecord { fingerprint, answer: placement.answer() });
        }
        placements.push(placement);
    }
    Ok(Plan { recorded_at, placements })
}

/// Plans the release of delayed events that are due, given in the order (`not_before`, accepted): they enter the log
/// in that order, each at a place and after a predecessor.
pub fn release(due: &[Pending], tail: Tail, known: &mut dyn Known) -> Result<Vec<(Seq, Option<Seq>)>, StoreError> {
    let mut numbering = Numbering::after(tail, known);
    due.iter().map(|pending| numbering.place(pending.object.as_ref(), pending.to.is_some())).collect()
}

/// Two entries of one batch that share a key must be the same event.
pub fn check_keys_within(batch: &[Entry]) -> Result<(), StoreError> {
    let mut seen: HashMap<&IdempotencyKey, [u8; 32]> = HashMap::new();
    for entry in batch {
        if let Some(key) = &entry.key {
            let fingerprint = entry.fingerprint();
            if *seen.entry(key).or_insert(fingerprint) != fingerprint {
                return Err(StoreError::KeyConflict { key: key.to_string() });
            }
        }
    }
    Ok(())
}

/// An empty batch asks for nothing and is a mistake of its sender.
pub fn check_not_empty<T>(batch: &[T]) -> Result<(), Invalid> {
    if batch.is_empty() {
        return Err(Invalid::new("events", "is empty; send at least one event"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::NewEvent;

    #[derive(Default)]
    struct Memory {
        heads: HashMap<String, Seq>,
        keys: HashMap<String, KeyRecord>,
    }

    impl Known for Memory {
        fn key(&mut self, key: &IdempotencyKey) -> Result<Option<KeyRecord>, StoreError> {
            Ok(self.keys.get(key.as_str()).copied())
        }
        fn head(&mut self, object: &ObjectKey) -> Result<Option<Seq>, StoreError> {
            Ok(self.heads.get(object.as_str()).copied())
        }
        fn random(&mut self) -> [u8; 10] {
            [7; 10]
        }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn entry(topic: &str, object: Option<&str>) -> Entry {
        let event = NewEvent::new(topic);
        let event = match object {
            Some(object) => event.object(object),
            None => event,
        };
        event.check().unwrap()
    }

    fn answers(plan: &Plan) -> Vec<Appended> {
        plan.placements.iter().map(Placement::answer).collect()
    }

    #[test]
    fn numbers_follow_the_tail_without_a_gap_and_objects_are_chained_within_the_batch() {
        let mut known = Memory { heads: [("o".to_string(), 3)].into(), ..Memory::default() };
        let batch = [entry("a", Some("o")), entry("b", None), entry("c", Some("o")), entry("d", Some("new"))];
        let tail = Tail { seq: 5, recorded_at: at(9) };
        let plan = append(&batch, at(10), tail, &mut known).unwrap();
        let places: Vec<_> = answers(&plan).iter().map(|a| (a.seq, a.prev)).collect();
        assert_eq!(places, [(Some(6), Some(3)), (Some(7), None), (Some(8), Some(6)), (Some(9), None)]);
        assert_eq!(plan.tail_after(tail), Tail { seq: 9, recorded_at: at(10) });
    }

    #[test]
    fn a_direct_message_is_not_in_the_chain_of_its_object() {
        let mut known = Memory { heads: [("o".to_string(), 3)].into(), ..Memory::default() };
        let direct = || NewEvent::new("d").object("o").to(uuid::Uuid::from_u128(1)).check().unwrap();
        let batch = [direct(), entry("a", Some("o")), direct(), entry("b", Some("o"))];
        let tail = Tail { seq: 5, recorded_at: at(9) };
        let plan = append(&batch, at(10), tail, &mut known).unwrap();
        let prevs: Vec<_> = answers(&plan).iter().map(|answer| answer.prev).collect();
        assert_eq!(prevs, [Some(3), Some(3), Some(7), Some(7)]);
    }

    /// H2: the clock steps back between two publishes.
    #[test]
    fn recorded_at_never_decreases_even_when_the_clock_does() {
        let tail = Tail { seq: 1, recorded_at: at(100) };
        let plan = append(&[entry("a", None)], at(95), tail, &mut Memory::default()).unwrap();
        assert_eq!(plan.recorded_at, at(100));
    }

    #[test]
    fn a_delayed_event_takes_no_number_and_one_whose_time_has_come_is_not_delayed() {
        let late = NewEvent::new("late").not_before(at(20)).check().unwrap();
        let due = NewEvent::new("due").not_before(at(10)).check().unwrap();
        let plan = append(&[late, due], at(10), Tail::EMPTY, &mut Memory::default()).unwrap();
        assert!(matches!(plan.placements[..], [Placement::Delayed { .. }, Placement::Logged { seq: 1, .. }]));
    }

    #[test]
    fn a_repeated_key_answers_as_before_and_another_event_under_it_changes_nothing() {
        let keyed = |payload: &str| NewEvent::new("a").payload_json(payload).key("k").check().unwrap();
        let mut known = Memory::default();
        let first = append(&[keyed("1"), keyed("1")], at(1), Tail::EMPTY, &mut known).unwrap();
        let stored = answers(&first)[0];
        assert_eq!(answers(&first)[1], Appended { repeated: true, ..stored });
        let record = KeyRecord { fingerprint: keyed("1").fingerprint(), answer: stored };
        known.keys.insert("k".into(), record);
        let tail = Tail { seq: 1, recorded_at: at(1) };
        let again = append(&[keyed("1")], at(2), tail, &mut known).unwrap();
        assert_eq!(again.placements, [Placement::Repeated(stored)]);
        assert_eq!(again.tail_after(tail), tail);
        let other = append(&[keyed("2")], at(2), tail, &mut known);
        assert_eq!(other.unwrap_err(), StoreError::KeyConflict { key: "k".into() });
    }

    #[test]
    fn due_events_enter_in_the_order_given_and_are_chained() {
        let pending = |object: &str| Pending {
            id: EventId(uuid::Uuid::nil()),
            topic: crate::Topic::stored("t"),
            object: Some(ObjectKey::stored(object)),
            payload: crate::Json::null(),
            metadata: crate::Json::empty_object(),
            occurred_at: at(0),
            not_before: at(1),
            to: None,
        };
        let tail = Tail { seq: 4, recorded_at: at(0) };
        let places = release(&[pending("o"), pending("o")], tail, &mut Memory::default()).unwrap();
        assert_eq!(places, [(5, None), (6, Some(5))]);
    }
}
