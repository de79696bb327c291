//! Bounds the bytes that all connections hold together: heads, bodies and answers each have a budget.
//!
//! Bytes of requests are reserved as they arrive, so that a client has to send what it takes from others. Bytes are
//! released with the buffer that holds them. The first [`FREE_BYTES`] of each are not counted: ordinary requests and
//! answers pass while large ones fill the budget. The number of connections bounds those.

use axum::body::Bytes;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// Default size of a budget.
pub const BUDGET_BYTES_MAX: usize = 64 << 20;
/// Bytes of each head, body and answer that are not counted.
pub(super) const FREE_BYTES: usize = 16 << 10;
/// Refused bodies that are read to their end at a time: each takes the buffers of its connection.
const DISCARDS_MAX: usize = 64;

/// A byte budget that connections share.
#[derive(Debug, Clone)]
pub struct ByteBudget {
    bytes: Arc<Semaphore>,
    discards: Arc<Semaphore>,
}

impl Default for ByteBudget {
    fn default() -> Self {
        Self::new(BUDGET_BYTES_MAX)
    }
}

impl ByteBudget {
    /// A budget of so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        let bytes = Arc::new(Semaphore::new(bytes_max.min(Semaphore::MAX_PERMITS)));
        Self { bytes, discards: Arc::new(Semaphore::new(DISCARDS_MAX)) }
    }

    /// A place among the refused bodies that are read to their end, if there is one.
    pub(super) fn discard(&self) -> Option<SemaphorePermit<'_>> {
        self.discards.try_acquire().ok()
    }

    /// The bytes that are left.
    pub(super) fn available(&self) -> usize {
        self.bytes.available_permits()
    }

    /// An empty reservation.
    pub(super) fn start(&self) -> Reservation {
        Reservation { bytes: self.bytes.clone(), permit: None }
    }
}

/// The bytes that one head, body or answer holds.
#[derive(Debug)]
pub(super) struct Reservation {
    bytes: Arc<Semaphore>,
    permit: Option<OwnedSemaphorePermit>,
}

impl Reservation {
    /// Grows to `bytes`; false if the budget does not allow it.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let reserved = self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = bytes.saturating_sub(FREE_BYTES).saturating_sub(reserved);
        if missing == 0 {
            return true;
        }
        let more = u32::try_from(missing).ok().and_then(|more| self.bytes.clone().try_acquire_many_owned(more).ok());
        match (more, &mut self.permit) {
            (None, _) => return false,
            (Some(more), Some(permit)) => permit.merge(more),
            (Some(more), none) => *none = Some(more),
        }
        true
    }

    /// Grows to `bytes`, or to what the budget has left.
    pub fn grow_as_far_as_possible(&mut self, bytes: usize) {
        let available = self.bytes.available_permits();
        let reserved = self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        // Others may take what is left meanwhile: then this answer counts as nothing.
        let _is_reserved = self.grow(bytes.min(FREE_BYTES + reserved + available));
    }

    /// The buffer, which holds its bytes until it is dropped.
    pub fn keep(self, bytes: Bytes) -> Bytes {
        match self.permit {
            None => bytes,
            Some(permit) => Bytes::from_owner(Kept { bytes, _permit: permit }),
        }
    }
}

struct Kept {
    bytes: Bytes,
    _permit: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_given_back_with_the_body() {
        let budget = ByteBudget::new(100);
        let (mut one, mut other) = (budget.start(), budget.start());
        assert!(one.grow(FREE_BYTES) && one.grow(FREE_BYTES + 60) && one.grow(FREE_BYTES + 70));
        assert!(other.grow(FREE_BYTES + 30) && !other.grow(FREE_BYTES + 31));
        let kept = one.keep(Bytes::from_static(b"body"));
        assert_eq!(kept, "body");
        assert!(!other.grow(FREE_BYTES + 31));
        drop(kept);
        assert!(other.grow(FREE_BYTES + 100));
        drop(other);
        assert_eq!(budget.bytes.available_permits(), 100);
    }
}
