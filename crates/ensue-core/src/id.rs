//! How does an id tell its time?
//!
//! An event's id is a UUIDv7 whose time is the event's own `recorded_at` (of a delayed one: when it was accepted).
//! As `recorded_at` never decreases along the log, an id leads to its event by a binary search over `seq`, and the
//! hot path needs no index on ids. Ids identify; they never order.

use jiff::Timestamp;
use std::fmt;
use uuid::Uuid;

/// The public identity of an event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct EventId(pub Uuid);

impl EventId {
    /// The id of an event recorded at this time, from ten random bytes.
    pub fn new(at: Timestamp, random: [u8; 10]) -> Self {
        let mut bytes = [0; 16];
        bytes[..6].copy_from_slice(&at.as_millisecond().to_be_bytes()[2..]);
        bytes[6..].copy_from_slice(&random);
        bytes[6] = 0x70 | (bytes[6] & 0x0F);
        bytes[8] = 0x80 | (bytes[8] & 0x3F);
        Self(Uuid::from_bytes(bytes))
    }

    /// The millisecond in which the event was recorded or, if it was delayed, accepted. None if it is not a UUIDv7.
    pub fn time(&self) -> Option<Timestamp> {
        if self.0.get_version_num() != 7 {
            return None;
        }
        let mut millis = [0; 8];
        millis[2..].copy_from_slice(&self.0.as_bytes()[..6]);
        Timestamp::from_millisecond(i64::from_be_bytes(millis)).ok()
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_tells_the_millisecond_it_was_made_for() {
        let at = Timestamp::from_microsecond(1_763_200_000_123_456).unwrap();
        let id = EventId::new(at, [0xFF; 10]);
        assert_eq!(id.time().unwrap().as_millisecond(), at.as_millisecond());
        assert_eq!(id.0.get_version_num(), 7);
        assert_eq!(id.0.get_variant(), uuid::Variant::RFC4122);
    }

    #[test]
    fn an_id_of_another_kind_tells_no_time() {
        assert_eq!(EventId(Uuid::nil()).time(), None);
    }
}
