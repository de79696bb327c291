//! Which conditions and events should be tried, so that a difference from Postgres shows?
//!
//! Everything comes from one seed. Expressions are made type by type, so that most of them pass the checker; values are
//! drawn from the corners: texts that look like numbers, numbers at the ends of their types, nulls of both kinds.

mod expression;
mod row;

pub use expression::{Expressions, Order};
pub use row::{SampleRow, rows};
