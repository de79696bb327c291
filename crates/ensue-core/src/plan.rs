//! Which `seq`, `prev` and `recorded_at` does a new event get?
//!
//! An engine holds its write lock, tells what it already has, and carries out the plan in one transaction. The plan
//! is the same for every engine that has no query language of its own to express it in; the Postgres engine follows
//! the same rules in its append function, and the conformance suite holds both to the model.

use crate::error::{Invalid, StoreError};
use crate::event::{Appended, Entry, Event, Pending, Seq, whole_microseconds};
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
    /// The newest event of an object that is still in the log.
    fn head(&mut self, object: &ObjectKey) -> Result<Option<Seq>, StoreError>;
    /// Ten random bytes.
    fn random(&mut self) -> [u8; 10];
}

/// What to write, in one transaction, and what to answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// New rows of the log, in `seq` order.
    pub events: Vec<Event>,
    /// New delayed events, in the order they were sent.
    pub delayed: Vec<Pending>,
    /// New idempotency keys.
    pub keys: Vec<(IdempotencyKey, KeyRecord)>,
    /// The answers, one for each entry.
    pub answers: Vec<Appended>,
}

/// Plans one caller's batch: all of it or, with an error, nothing.
pub fn append(batch: Vec<Entry>, clock: Timestamp, tail: Tail, known: &mut dyn Known) -> Result<Plan, StoreError> {
    let recorded_at = tail.record_time(clock);
    let mut plan = Plan { answers: Vec::with_capacity(batch.len()), ..Plan::default() };
    let mut keys_here: HashMap<IdempotencyKey, KeyRecord> = HashMap::new();
    let mut heads_here: HashMap<ObjectKey, Seq> = HashMap::new();
    for mut entry in batch {
        let key = entry.key.take().map(|key| (entry.fingerprint(), key));
        if let Some((fingerprint, key)) = &key {
            let earlier = match keys_here.get(key) {
                Some(record) => Some(*record),
                None => known.key(key)?,
            };
            if let Some(record) = earlier {
                if record.fingerprint != *fingerprint {
                    return Err(StoreError::KeyConflict { key: key.to_string() });
                }
                plan.answers.push(Appended { repeated: true, ..record.answer });
                continue;
            }
        }
        let id = EventId::new(recorded_at, known.random());
        let answer = match entry.not_before {
            Some(not_before) if not_before > recorded_at => {
                plan.delayed.push(Pending {
                    id,
                    topic: entry.topic,
                    object: entry.object,
                    payload: entry.payload,
                    metadata: entry.metadata,
                    occurred_at: entry.occurred_at.unwrap_or(recorded_at),
                    not_before,
                    to: entry.to,
                });
                Appended { id, seq: None, prev: None, repeated: false }
            }
            _ => {
                let seq = tail.seq + 1 + plan.events.len() as Seq;
                let prev = match &entry.object {
                    None => None,
                    Some(object) => match heads_here.insert(object.clone(), seq) {
                        Some(head) => Some(head),
                        None => known.head(object)?,
                    },
                };
                plan.events.push(Event {
                    seq,
                    prev,
                    id,
                    topic: entry.topic,
                    object: entry.object,
                    payload: entry.payload,
                    metadata: entry.metadata,
                    occurred_at: entry.occurred_at.unwrap_or(recorded_at),
                    recorded_at,
                    to: entry.to,
                });
                Appended { id, seq: Some(seq), prev, repeated: false }
            }
        };
        if let Some((fingerprint, key)) = key {
            let record = KeyRecord { fingerprint, answer };
            keys_here.insert(key.clone(), record);
            plan.keys.push((key, record));
        }
        plan.answers.push(answer);
    }
    Ok(plan)
}

/// Plans the release of delayed events that are due, given in the order (`not_before`, accepted): they enter the log
/// in that order.
pub fn release(
    due: Vec<Pending>,
    clock: Timestamp,
    tail: Tail,
    known: &mut dyn Known,
) -> Result<Vec<Event>, StoreError> {
    let recorded_at = tail.record_time(clock);
    let mut heads_here: HashMap<ObjectKey, Seq> = HashMap::new();
    let mut events = Vec::with_capacity(due.len());
    for pending in due {
        let seq = tail.seq + 1 + events.len() as Seq;
        let prev = match &pending.object {
            None => None,
            Some(object) => match heads_here.insert(object.clone(), seq) {
                Some(head) => Some(head),
                None => known.head(object)?,
            },
        };
        events.push(Event {
            seq,
            prev,
            id: pending.id,
            topic: pending.topic,
            object: pending.object,
            payload: pending.payload,
            metadata: pending.metadata,
            occurred_at: pending.occurred_at,
            recorded_at,
            to: pending.to,
        });
    }
    Ok(events)
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

    #[test]
    fn numbers_follow_the_tail_without_a_gap_and_objects_are_chained_within_the_batch() {
        let mut known = Memory { heads: [("o".to_string(), 3)].into(), ..Memory::default() };
        let batch = vec![entry("a", Some("o")), entry("b", None), entry("c", Some("o")), entry("d", Some("new"))];
        let plan = append(batch, at(10), Tail { seq: 5, recorded_at: at(9) }, &mut known).unwrap();
        let places: Vec<_> = plan.answers.iter().map(|a| (a.seq, a.prev)).collect();
        assert_eq!(places, [(Some(6), Some(3)), (Some(7), None), (Some(8), Some(6)), (Some(9), None)]);
    }

    /// H2: the clock steps back between two publishes.
    #[test]
    fn recorded_at_never_decreases_even_when_the_clock_does() {
        let tail = Tail { seq: 1, recorded_at: at(100) };
        let plan = append(vec![entry("a", None)], at(95), tail, &mut Memory::default()).unwrap();
        assert_eq!(plan.events[0].recorded_at, at(100));
    }

    #[test]
    fn a_delayed_event_takes_no_number_and_one_whose_time_has_come_is_not_delayed() {
        let late = NewEvent::new("late").not_before(at(20)).check().unwrap();
        let due = NewEvent::new("due").not_before(at(10)).check().unwrap();
        let plan = append(vec![late, due], at(10), Tail::EMPTY, &mut Memory::default()).unwrap();
        assert_eq!(plan.delayed.len(), 1);
        assert_eq!(plan.answers.iter().map(|a| a.seq).collect::<Vec<_>>(), [None, Some(1)]);
    }

    #[test]
    fn a_repeated_key_answers_as_before_and_another_event_under_it_changes_nothing() {
        let keyed = |payload: &str| NewEvent::new("a").payload_json(payload).key("k").check().unwrap();
        let mut known = Memory::default();
        let first = append(vec![keyed("1"), keyed("1")], at(1), Tail::EMPTY, &mut known).unwrap();
        assert_eq!(first.events.len(), 1);
        assert_eq!(first.answers[1], Appended { repeated: true, ..first.answers[0] });
        known.keys.insert("k".into(), first.keys[0].1);
        let again = append(vec![keyed("1")], at(2), Tail { seq: 1, recorded_at: at(1) }, &mut known).unwrap();
        assert!(again.events.is_empty() && again.answers[0].repeated);
        let other = append(vec![keyed("2")], at(2), Tail { seq: 1, recorded_at: at(1) }, &mut known);
        assert_eq!(other.unwrap_err(), StoreError::KeyConflict { key: "k".into() });
    }

    #[test]
    fn due_events_keep_their_ids_and_enter_in_the_order_given() {
        let pending = |id: u128, object: &str| Pending {
            id: EventId(uuid::Uuid::from_u128(id)),
            topic: crate::Topic::stored("t"),
            object: Some(ObjectKey::stored(object)),
            payload: crate::Json::null(),
            metadata: crate::Json::empty_object(),
            occurred_at: at(0),
            not_before: at(1),
            to: None,
        };
        let due = vec![pending(1, "o"), pending(2, "o")];
        let events = release(due, at(2), Tail { seq: 4, recorded_at: at(0) }, &mut Memory::default()).unwrap();
        assert_eq!(events.iter().map(|e| (e.seq, e.prev)).collect::<Vec<_>>(), [(5, None), (6, Some(5))]);
        assert_eq!(events[1].id.0.as_u128(), 2);
    }
}
