//! Where does an engine read the time?
//!
//! Time is an argument here; engines are given a clock. The machine's own is theirs to bring (`ensue-stores`); the one
//! in this file shows what it was told.

use jiff::{SignedDuration, Timestamp};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Answers what time it is.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A clock that moves only when told to: for tests of what should happen when. Clones are the same clock.
///
/// ```
/// use ensue_core::clock::ManualClock;
/// use std::time::Duration;
/// let clock = ManualClock::at_noon();
/// let noon = clock.now();
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(clock.now().duration_since(noon).as_secs(), 60);
/// ```
#[derive(Debug, Clone)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// A clock that stands at this time, to the microsecond.
    pub fn at(time: Timestamp) -> Self {
        Self(Arc::new(AtomicI64::new(time.as_microsecond())))
    }

    /// A clock that stands at noon of some day.
    pub fn at_noon() -> Self {
        Self(Arc::new(AtomicI64::new(1_794_744_000_000_000)))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: std::time::Duration) {
        let by = SignedDuration::try_from(by).expect("within the range of times");
        self.advance_micros(i64::try_from(by.as_micros()).expect("within the range of times"));
    }

    /// Moves the clock, forward or back.
    pub fn advance_millis(&self, millis: i64) {
        self.advance_micros(millis * 1_000);
    }

    /// Moves the clock, forward or back.
    pub fn advance_micros(&self, micros: i64) {
        self.0.fetch_add(micros, Ordering::SeqCst);
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
