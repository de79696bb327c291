//! Bounds the body bytes that all requests hold together.
//!
//! Bytes are reserved as they arrive, so that a client has to send what it takes from others, and are given back with the
//! body. The first [`FREE_BYTES`] of each body are not counted: ordinary events pass while large bodies fill the budget.
//! The number of connections bounds those.

use axum::body::Bytes;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

/// Default of the bytes that the bodies of all requests hold together.
pub const BODIES_BYTES_MAX: usize = 64 << 20;
/// Bytes of each body that are not counted.
const FREE_BYTES: usize = 16 << 10;
/// Refused bodies that are read to their end at a time: each takes the buffers of its connection.
const DISCARDS_MAX: usize = 64;

/// A byte budget that requests share.
#[derive(Debug, Clone)]
pub struct BodyBudget {
    bytes: Arc<Semaphore>,
    discards: Arc<Semaphore>,
}

impl Default for BodyBudget {
    fn default() -> Self {
        Self::new(BODIES_BYTES_MAX)
    }
}

impl BodyBudget {
    /// A budget of so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        let bytes = Arc::new(Semaphore::new(bytes_max.min(Semaphore::MAX_PERMITS)));
        Self { bytes, discards: Arc::new(Semaphore::new(DISCARDS_MAX)) }
    }

    /// A place among the refused bodies that are read to their end, if there is one.
    pub(super) fn discard(&self) -> Option<SemaphorePermit<'_>> {
        self.discards.try_acquire().ok()
    }

    /// What a new body holds: nothing yet.
    pub(super) fn start(&self) -> Reservation<'_> {
        Reservation { budget: self, permit: None }
    }
}

/// The bytes that one body holds.
#[derive(Debug)]
pub(super) struct Reservation<'b> {
    budget: &'b BodyBudget,
    permit: Option<OwnedSemaphorePermit>,
}

impl Reservation<'_> {
    /// Grows to a body of `bytes`; false if the budget does not allow it.
    pub fn grow(&mut self, bytes: usize) -> bool {
        let reserved = self.permit.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let missing = bytes.saturating_sub(FREE_BYTES).saturating_sub(reserved);
        if missing == 0 {
            return true;
        }
        let more =
            u32::try_from(missing).ok().and_then(|more| self.budget.bytes.clone().try_acquire_many_owned(more).ok());
        match (more, &mut self.permit) {
            (None, _) => return false,
            (Some(more), Some(permit)) => permit.merge(more),
            (Some(more), none) => *none = Some(more),
        }
        true
    }

    /// The body, which holds its bytes until it is dropped.
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
        let budget = BodyBudget::new(100);
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
