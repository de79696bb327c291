//! What of an id is stored?
//!
//! The time of an id is the event's `recorded_at`, which its row has anyway, and which nobody knows before the log is
//! locked. So the log keeps the rest of the id, as it was sent: making 1,000 whole ids there, from text, would take a
//! twelfth of the time of an append. An id whose time is not that of its row is stored whole; its version tells it.

use ensue_core::{EventId, Timestamp};
use uuid::Uuid;

/// The first bytes of an id tell its time.
const TIME_BYTES: usize = 6;
/// The byte whose upper half is the version: 7 in a whole id, 0 in a part.
const VERSION_BYTE: usize = 6;

/// An id without its time.
pub(super) fn part(id: EventId) -> Uuid {
    let mut bytes = id.0.into_bytes();
    bytes[..TIME_BYTES].fill(0);
    bytes[VERSION_BYTE] &= 0x0F;
    Uuid::from_bytes(bytes)
}

/// The id of the event that was recorded at this time with this stored.
pub(super) fn whole(stored: Uuid, recorded_at: Timestamp) -> EventId {
    if stored.get_version_num() != 0 {
        return EventId(stored);
    }
    let mut random = [0; 10];
    random.copy_from_slice(&stored.as_bytes()[TIME_BYTES..]);
    EventId::new(recorded_at, random)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_whole_again_with_its_time() {
        for micros in [-62_135_596_800_000_000, -1_500, -1, 0, 999, 1_763_200_000_123_457, 253_402_207_199_999_999] {
            let at = Timestamp::from_microsecond(micros).unwrap();
            for random in [[0; 10], [0xFF; 10], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]] {
                let id = EventId::new(at, random);
                assert_eq!(whole(part(id), at), id);
                assert_eq!(part(id), part(EventId::new(Timestamp::UNIX_EPOCH, random)), "the time leaves no trace");
            }
        }
    }

    #[test]
    fn a_whole_id_keeps_its_own_time() {
        let accepted = EventId::new(Timestamp::UNIX_EPOCH, [7; 10]);
        assert_eq!(whole(accepted.0, Timestamp::from_second(5).unwrap()), accepted);
    }
}
