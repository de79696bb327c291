//! What time is it for a store?

pub use ensue_core::clock::{Clock, ManualClock};

use ensue_core::Timestamp;
use std::sync::Arc;

/// The machine's clock.
pub fn system() -> Clock {
    Arc::new(Timestamp::now)
}
