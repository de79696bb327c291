//! Budget of one evaluation.
//!
//! Every operation is charged by the bytes, digits and nodes that it looks at, before it is carried out. A step stands for about
//! one nanosecond, so the whole budget is a few milliseconds, whatever the condition and the event are. Memory is charged with the
//! same steps: an evaluation builds at most [`BUILT_BYTES_MAX`] bytes.

use super::failure::Failure;
use std::cell::Cell;

/// The most steps of one evaluation: about five milliseconds. A LIKE over a whole payload of 1 MiB fits.
pub const STEPS_MAX: u32 = 1 << 22;
/// Steps within which an evaluation may run on a thread that others wait for: less than 0.1 ms.
pub const QUICK_STEPS_MAX: u32 = 1 << 16;
/// The largest text or jsonb that a condition may build, in bytes.
pub const VALUE_BYTES_MAX: usize = 2 << 20;
/// The most bytes that one evaluation builds in all.
pub const BUILT_BYTES_MAX: usize = STEPS_MAX as usize * BUILT_BYTES_PER_STEP;

/// Bytes that are compared for one step.
const BYTES_PER_STEP: usize = 16;
/// Bytes that are built for one step.
const BUILT_BYTES_PER_STEP: usize = 4;
/// Bytes that the nodes of a value may take.
const NODES_BYTES_MAX: usize = 4 * VALUE_BYTES_MAX;
/// Digits of a machine word, by which big numbers are calculated.
const DIGITS_PER_WORD: usize = 16;
/// Steps to read or write a float, which takes big integers at worst.
const FLOAT_STEPS: usize = 4_096;

/// Steps that are left of one evaluation.
pub(crate) struct Meter {
    limit: u32,
    left: Cell<u32>,
    is_exhausted: Cell<bool>,
}

impl Meter {
    /// The budget of one evaluation.
    pub(crate) fn new() -> Self {
        Self::of(STEPS_MAX)
    }

    /// A budget of so many steps.
    #[inline]
    pub(super) fn of(limit: u32) -> Self {
        Self { limit, left: Cell::new(limit), is_exhausted: Cell::new(false) }
    }

    /// Steps that are left.
    #[inline]
    pub(super) fn left(&self) -> u32 {
        self.left.get()
    }

    /// Charges all that an evaluation spent that had a part of this budget.
    pub(super) fn charge_all_of(&self, other: &Meter) {
        self.left.set(self.left.get().saturating_sub(other.spent()));
        self.is_exhausted.set(self.is_exhausted.get() || other.is_exhausted());
    }

    /// Steps that were charged.
    #[inline]
    pub(super) fn spent(&self) -> u32 {
        self.limit - self.left.get()
    }

    /// Did an operation cost more than was left?
    #[inline]
    pub(super) fn is_exhausted(&self) -> bool {
        self.is_exhausted.get()
    }

    /// Pays for so many steps.
    #[inline]
    pub(crate) fn steps(&self, count: usize) -> Result<(), Failure> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        match self.left.get().checked_sub(count) {
            Some(left) => {
                self.left.set(left);
                Ok(())
            }
            None => {
                self.left.set(0);
                self.is_exhausted.set(true);
                Err(Failure::TooCostly(self.limit))
            }
        }
    }

    /// Pays for comparing so many bytes.
    #[inline]
    pub(super) fn bytes(&self, count: usize) -> Result<(), Failure> {
        self.steps(count / BYTES_PER_STEP)
    }

    /// Pays for building a value of so many bytes, if it may be so large.
    pub(super) fn build(&self, count: usize) -> Result<(), Failure> {
        self.append(0, count)
    }

    /// Pays for adding so many bytes to a value, if it may become so large.
    pub(super) fn append(&self, there: usize, count: usize) -> Result<(), Failure> {
        if there.saturating_add(count) > VALUE_BYTES_MAX {
            return Err(Failure::TooLarge(VALUE_BYTES_MAX));
        }
        self.steps(count.div_ceil(BUILT_BYTES_PER_STEP))
    }

    /// Pays for the nodes of a parsed text, if there may be so many.
    pub(super) fn nodes(&self, count: usize) -> Result<(), Failure> {
        let bytes = count.saturating_mul(size_of::<super::json::Node>());
        if bytes > NODES_BYTES_MAX {
            return Err(Failure::TooLarge(NODES_BYTES_MAX));
        }
        self.steps(bytes / BUILT_BYTES_PER_STEP)
    }

    /// Pays for an operation on numbers that have so many digits in all: its cost grows with their square.
    pub(super) fn digits(&self, count: usize) -> Result<(), Failure> {
        let words = count / DIGITS_PER_WORD + 1;
        self.steps(words.saturating_mul(words).saturating_mul(8))
    }

    /// Pays for reading or writing a float.
    pub(super) fn float(&self) -> Result<(), Failure> {
        self.steps(FLOAT_STEPS)
    }
}
