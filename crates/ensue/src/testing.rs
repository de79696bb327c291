//! How do I test what should happen when?
//!
//! A bus in memory whose store reads the time from a clock that moves only when told to.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), ensue::Error> {
//! use ensue::NewEvent;
//! use ensue::testing::{ManualClock, memory_at};
//! use std::time::Duration;
//!
//! let clock = ManualClock::at_noon();
//! let bus = memory_at(&clock).await?;
//! let in_an_hour = clock.now() + Duration::from_secs(3_600);
//! bus.publish(NewEvent::new("reminder").not_before(in_an_hour)).await?;
//!
//! assert_eq!(bus.store().release_due(100).await?.count, 0);
//! clock.advance(Duration::from_secs(3_600));
//! assert_eq!(bus.store().release_due(100).await?.count, 1);
//! # Ok(()) }
//! ```

use crate::Ensue;
use crate::error::Error;
pub use ensue_core::clock::ManualClock;
use ensue_stores::sqlite::{SqliteOptions, SqliteStore};

/// A bus whose events live as long as the process, by this clock.
pub async fn memory_at(clock: &ManualClock) -> Result<Ensue, Error> {
    let options = SqliteOptions { clock: Some(clock.clock()), ..SqliteOptions::default() };
    Ok(Ensue::with_sqlite(SqliteStore::open(":memory:", options).await?))
}
