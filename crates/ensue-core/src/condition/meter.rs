//! How much may one condition cost on one event?
//!
//! Every step that depends on the size of the event is paid for, so that a small condition over a large event cannot
//! hold up everybody else.

use super::failure::Failure;
use std::cell::Cell;

/// The most steps of one evaluation: some ten milliseconds at worst. A LIKE over a whole payload of 1 MiB fits.
pub const STEPS_MAX: u32 = 1 << 22;
/// The largest text or jsonb that a condition may build, in bytes.
pub const VALUE_BYTES_MAX: usize = 2 << 20;
/// Bytes that are copied or compared in one go, for one step.
const BYTES_PER_STEP: usize = 32;

/// What is left of the steps of one evaluation.
pub(super) struct Meter {
    left: Cell<u32>,
}

impl Meter {
    pub(super) fn new() -> Self {
        Self { left: Cell::new(STEPS_MAX) }
    }

    /// Pays for so many steps.
    pub(super) fn steps(&self, count: usize) -> Result<(), Failure> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        match self.left.get().checked_sub(count) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => Err(Failure::TooCostly(STEPS_MAX)),
        }
    }

    /// Pays for copying or comparing so many bytes.
    pub(super) fn bytes(&self, count: usize) -> Result<(), Failure> {
        self.steps(count / BYTES_PER_STEP)
    }

    /// Pays for building a value of so many bytes, if it may be so large.
    pub(super) fn build(&self, count: usize) -> Result<(), Failure> {
        if count > VALUE_BYTES_MAX {
            return Err(Failure::TooLarge(VALUE_BYTES_MAX));
        }
        self.bytes(count)
    }
}
