//! How does the suite get a store to try?
//!
//! A [`Factory`] knows an engine. It makes a [`Place`]: somewhere one store lives (a file, a schema), empty at first.
//! The store can be opened there, closed, and opened again to see what survived.

use async_trait::async_trait;
use ensue_core::Timestamp;
use ensue_core::store::SharedStore;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Where an engine reads the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// An engine to try.
#[async_trait]
pub trait Factory: Send + Sync {
    /// A place for a new empty store.
    async fn make(&self) -> Box<dyn Place>;
}

/// Where one store lives. What the place needs goes when it is dropped.
#[async_trait]
pub trait Place: Send + Sync {
    /// Opens the store that lives here; the one opened before was closed.
    async fn open(&self, clock: Clock) -> SharedStore;
}

/// A clock that moves only when told to.
#[derive(Debug, Clone)]
pub struct TestClock(Arc<AtomicI64>);

impl TestClock {
    /// A clock that stands at noon of some day.
    pub fn at_noon() -> Self {
        Self(Arc::new(AtomicI64::new(1_794_744_000_000_000)))
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
