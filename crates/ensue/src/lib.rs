//! Ensue makes things happen after other things, durably and in order.
//!
//! Publish an [event](NewEvent) and it is on disk, in one order that everybody sees, chained to the preceding event of
//! the same object. Streams follow the log from any point, replay before live.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), ensue::Error> {
//! use ensue::{Ensue, NewEvent};
//!
//! let bus = Ensue::memory().await?; // or Ensue::open("ensue.db"), or Ensue::open("postgres://…")
//! let first = bus.publish(NewEvent::new("order.placed").object("order:1")).await?;
//! let second = bus.publish(NewEvent::new("order.paid").object("order:1").payload(&120)).await?;
//! assert_eq!(second.prev, first.seq);
//! # Ok(()) }
//! ```
//!
//! | question | file |
//! |---|---|
//! | How do I open, publish and stream? | `bus.rs`, `open.rs` |
//! | How do my own SQLite statements and a publish become one commit? | `transaction.rs` |
//! | How does one reader serve every stream? | `tail.rs`, `stream.rs` |
//! | What is `prev` for somebody who sees a part of the log? | `filtered_prev.rs` |
//! | Who lets delayed events in and old ones go? | `upkeep.rs` |

#![warn(missing_docs)]

mod bus;
mod error;
mod filtered_prev;
mod open;
mod stream;
mod subscription;
mod tail;
#[cfg(feature = "sqlite")]
mod transaction;
mod upkeep;

pub use bus::Ensue;
pub use ensue_core::chain;
pub use ensue_core::retention::{Bounds, Retention};
pub use ensue_core::store::{Cancelled, Page, Read, SharedStore, Store};
pub use ensue_core::{
    Appended, Event, EventId, Fact, Filter, Found, IdempotencyKey, Invalid, Json, NewEvent, ObjectKey, Pending, Seq,
    StoreError, Timestamp, Topic, event, key, plan, store,
};
pub use error::Error;
pub use open::Options;
pub use stream::{Delivered, EventStream, Streamed};
pub use subscription::Subscription;
pub use upkeep::Running;

#[cfg(feature = "postgres")]
pub use ensue_stores::postgres::{PostgresOptions, PostgresStore, ServerSettings};
#[cfg(feature = "sqlite")]
pub use ensue_stores::sqlite::rusqlite;
#[cfg(feature = "sqlite")]
pub use ensue_stores::sqlite::{OwnTransaction, SqliteStore, Transaction, TransactionError, WriteTicket};
