//! What time is it for a store?

use ensue_core::Timestamp;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Where an engine reads the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The machine's clock.
pub fn system() -> Clock {
    Arc::new(Timestamp::now)
}

/// A clock that moves only when told to: for tests of what should happen when.
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// A clock that stands at this time.
    pub fn at(time: Timestamp) -> Self {
        Self(Arc::new(AtomicI64::new(time.as_microsecond())))
    }

    /// Moves the clock, forward or back.
    pub fn advance_millis(&self, millis: i64) {
        self.0.fetch_add(millis * 1_000, Ordering::SeqCst);
    }

    /// The time it shows.
    pub fn now(&self) -> Timestamp {
        Timestamp::from_microsecond(self.0.load(Ordering::SeqCst)).expect("moved by a test, within range")
    }

    /// The same clock, as engines take it.
    pub fn clock(&self) -> Clock {
        let clock = self.clone();
        Arc::new(move || clock.now())
    }
}
