//! Is this log whole?
//!
//! The rules of the chain: `seq` has no gaps, `prev` is the last event of the same object before
//! this one that is not a direct message, and `recorded_at` never decreases. [`Audit`] is given the
//! log event by event and collects what breaks a rule.

use crate::event::{Event, Seq};
use crate::key::ObjectKey;
use jiff::Timestamp;
use std::collections::HashMap;
use std::fmt;

/// A rule of the log that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// Numbers are missing.
    Gap {
        /// The first missing number.
        from: Seq,
        /// The last missing number.
        to: Seq,
    },
    /// A number stands twice, or after a larger one.
    OutOfOrder {
        /// The number in question.
        seq: Seq,
        /// The number before it.
        after: Seq,
    },
    /// `prev` is not the object's preceding event: the chain forks, skips or points forward.
    WrongPrev {
        /// The event in question.
        seq: Seq,
        /// Its object, if it has one.
        object: Option<ObjectKey>,
        /// What it says.
        prev: Option<Seq>,
        /// What it should say.
        expected: Option<Seq>,
    },
    /// `recorded_at` goes back.
    TimeGoesBack {
        /// The event in question.
        seq: Seq,
        /// What it says.
        recorded_at: Timestamp,
        /// What the event before it says.
        before: Timestamp,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = |seq: &Option<Seq>| seq.map_or("none".to_string(), |seq| seq.to_string());
        match self {
            Fault::Gap { from, to } => write!(f, "gap: seq {from} to {to} are missing"),
            Fault::OutOfOrder { seq, after } => write!(f, "order: seq {seq} stands after {after}"),
            Fault::WrongPrev { seq, object, prev, expected } => {
                let object = object.as_ref().map_or("no object".to_string(), |object| format!("object {object:?}"));
                write!(f, "chain: seq {seq} ({object}) says prev {}, expected {}", place(prev), place(expected))
            }
            Fault::TimeGoesBack { seq, recorded_at, before } => {
                write!(f, "time: seq {seq} was recorded at {recorded_at}, before its predecessor's {before}")
            }
        }
    }
}

/// Checks a log that is read from its beginning. Remembers the newest event of each object: about 100 bytes each.
#[derive(Debug)]
pub struct Audit {
    first: Seq,
    last: Option<(Seq, Timestamp)>,
    heads: HashMap<ObjectKey, Seq>,
    events: u64,
}

impl Audit {
    /// An audit of a log whose oldest event should be `first`.
    pub fn from(first: Seq) -> Self {
        Self { first, last: None, heads: HashMap::new(), events: 0 }
    }

    /// How many events were seen.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// How many objects were seen.
    pub fn objects(&self) -> usize {
        self.heads.len()
    }

    /// The next event of the log: adds what breaks a rule to `faults`.
    pub fn see(&mut self, event: &Event, faults: &mut Vec<Fault>) {
        self.events += 1;
        let expected_seq = self.last.map_or(self.first, |(seq, _)| seq + 1);
        if event.seq > expected_seq {
            faults.push(Fault::Gap { from: expected_seq, to: event.seq - 1 });
        } else if event.seq < expected_seq {
            faults.push(Fault::OutOfOrder { seq: event.seq, after: expected_seq - 1 });
        }
        if let Some((_, before)) = self.last
            && event.recorded_at < before
        {
            faults.push(Fault::TimeGoesBack { seq: event.seq, recorded_at: event.recorded_at, before });
        }
        let head = match &event.object {
            Some(object) if event.to.is_some() => self.heads.get(object).copied(),
            Some(object) => self.heads.insert(object.clone(), event.seq),
            None => None,
        };
        let right = match (head, event.prev) {
            (Some(head), prev) => prev == Some(head),
            (None, None) => true,
            // The predecessor was trimmed; only an event with an object has one.
            (None, Some(prev)) => event.object.is_some() && prev < self.first,
        };
        if !right {
            faults.push(Fault::WrongPrev {
                seq: event.seq,
                object: event.object.clone(),
                prev: event.prev,
                expected: head,
            });
        }
        self.last = Some((event.seq, event.recorded_at));
    }

    /// The end of the log, as the store tells it: adds what is missing there.
    pub fn end(&self, last: Seq, faults: &mut Vec<Fault>) {
        let seen_to = self.last.map_or(self.first - 1, |(seq, _)| seq);
        if seen_to < last {
            faults.push(Fault::Gap { from: seen_to + 1, to: last });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EventId, Json, Topic};

    fn event(seq: Seq, object: Option<&str>, prev: Option<Seq>, second: i64) -> Event {
        let at = Timestamp::from_second(second).unwrap();
        Event {
            seq,
            prev,
            id: EventId(uuid::Uuid::from_u128(u128::from(seq))),
            topic: Topic::stored("t"),
            object: object.map(ObjectKey::stored),
            payload: Json::null(),
            metadata: Json::empty_object(),
            occurred_at: at,
            recorded_at: at,
            to: None,
        }
    }

    fn faults(first: Seq, log: &[Event]) -> Vec<Fault> {
        let mut audit = Audit::from(first);
        let mut faults = Vec::new();
        log.iter().for_each(|event| audit.see(event, &mut faults));
        faults
    }

    #[test]
    fn a_whole_log_has_no_faults() {
        let log = [
            event(5, Some("a"), Some(2), 1), // its predecessor was trimmed
            event(6, None, None, 1),
            event(7, Some("a"), Some(5), 2),
            event(8, Some("b"), None, 2),
        ];
        assert_eq!(faults(5, &log), []);
    }

    #[test]
    fn every_kind_of_damage_is_seen() {
        let gap = [event(1, None, None, 1), event(3, None, None, 1)];
        assert_eq!(faults(1, &gap), [Fault::Gap { from: 2, to: 2 }]);
        let twice = [event(1, None, None, 1), event(1, None, None, 1)];
        assert_eq!(faults(1, &twice), [Fault::OutOfOrder { seq: 1, after: 1 }]);
        let fork = [event(1, Some("a"), None, 1), event(2, Some("a"), Some(1), 1), event(3, Some("a"), Some(1), 1)];
        assert!(matches!(faults(1, &fork)[..], [Fault::WrongPrev { seq: 3, expected: Some(2), .. }]));
        let forward = [event(1, Some("a"), Some(2), 1), event(2, Some("a"), Some(1), 1)];
        assert!(matches!(faults(1, &forward)[..], [Fault::WrongPrev { seq: 1, .. }]));
        let unowned = [event(5, None, Some(2), 1)];
        assert!(matches!(faults(5, &unowned)[..], [Fault::WrongPrev { seq: 5, .. }]));
        let back = [event(1, None, None, 2), event(2, None, None, 1)];
        assert!(matches!(faults(1, &back)[..], [Fault::TimeGoesBack { seq: 2, .. }]));
    }

    #[test]
    fn a_missing_end_is_seen() {
        let mut audit = Audit::from(1);
        let mut faults = Vec::new();
        audit.see(&event(1, None, None, 1), &mut faults);
        audit.end(3, &mut faults);
        assert_eq!(faults, [Fault::Gap { from: 2, to: 3 }]);
    }
}
