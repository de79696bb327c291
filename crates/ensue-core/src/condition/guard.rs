//! Panics during an evaluation, as failures of the condition.
//!
//! A panic is a fault of Ensue. It must not end the task that evaluates, which serves other subscriptions too.

use super::failure::Failure;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Evaluates, and turns a panic into a failure. What an evaluation changes is its own, or a count of steps.
pub(crate) fn caught<T>(evaluate: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(evaluate)).unwrap_or(Err(Failure::Panicked))
}
