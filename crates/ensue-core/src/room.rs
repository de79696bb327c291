//! How much of what is read may be held at once?

use crate::store::PAGE_BYTES_MAX;

/// How much still fits: so many bytes together, but always one event, or a large one would never be read.
#[derive(Debug, Clone)]
pub struct Room {
    bytes_max: usize,
    bytes: usize,
    is_empty: bool,
}

impl Room {
    /// Room for so many bytes.
    pub fn of(bytes_max: usize) -> Self {
        Self { bytes_max, bytes: 0, is_empty: true }
    }

    /// Room for a page: [`PAGE_BYTES_MAX`].
    pub fn of_a_page() -> Self {
        Self::of(PAGE_BYTES_MAX)
    }

    /// Takes room for one more of this size; false, and nothing is taken, if it does not fit.
    pub fn take(&mut self, bytes: usize) -> bool {
        let fits = self.is_empty || self.bytes + bytes <= self.bytes_max;
        if fits {
            self.bytes += bytes;
            self.is_empty = false;
        }
        fits
    }

    /// How many bytes were taken.
    pub fn taken(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_one_of_any_size_and_for_no_more_than_fits() {
        let mut room = Room::of(10);
        assert!(room.take(50));
        assert!(!room.take(1));
        let mut room = Room::of(10);
        assert!(room.take(0) && room.take(9));
        assert!(!room.take(2));
        // What did not fit has taken nothing.
        assert!(room.take(1));
        assert!(!room.take(1));
        assert_eq!(room.taken(), 10);
    }
}
