//! How does the suite get a store to try?
//!
//! A [`Factory`] knows an engine. It makes a [`Place`]: somewhere one store lives (a file, a schema), empty at first.
//! The store can be opened there, closed, and opened again to see what survived.

use async_trait::async_trait;
use ensue_core::clock::Clock;
use ensue_core::store::SharedStore;

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
