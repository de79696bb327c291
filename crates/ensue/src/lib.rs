//! Ensue makes things happen after other things, durably and in order.
//!
//! Publish an [event](NewEvent) and it is on disk, in one order that everybody sees, chained to the preceding event of
//! the same object. Streams follow the log from any point, replay before live.
//!
//! ```
//! # #[cfg(feature = "sqlite")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use ensue::{Ensue, NewEvent, Streamed, Subscription};
//!
//! let bus = Ensue::memory().await?; // or Ensue::open("ensue.db"), or Ensue::open("postgres://…")
//! let placed = bus.publish(NewEvent::new("order.placed").object("order:1")).await?;
//!
//! // With your own data, in one commit.
//! let paid = bus
//!     .transaction(|tx| {
//!         tx.execute("CREATE TABLE payments (order_id INTEGER, amount INTEGER)", [])?;
//!         tx.execute("INSERT INTO payments VALUES (1, 120)", [])?;
//!         tx.publish(NewEvent::new("order.paid").object("order:1").payload(&120))
//!     })
//!     .await?;
//! assert_eq!(paid.prev, placed.seq);
//!
//! // Everything about orders, from the beginning, and then live.
//! let mut orders = bus.stream(Subscription::topic("order").after(0)).await?;
//! assert_eq!(orders.next_event().await?.event.topic.as_str(), "order.placed");
//! assert_eq!(orders.next_event().await?.event.payload.as_str(), "120");
//! // A stream that cannot deliver something says so; see `Streamed`.
//! assert_eq!(orders.next().await, Some(Ok(Streamed::Caught(2))));
//! # Ok(()) }
//! # #[cfg(not(feature = "sqlite"))]
//! # fn main() {}
//! ```
//!
//! What should follow from an event is a handler: durable, in order for each object, retried when it fails.
//!
//! ```
//! # #[cfg(feature = "sqlite")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use ensue::{Context, Ensue, Event, HandlerError, NewEvent};
//!
//! async fn invoice(event: Event, cx: Context) -> Result<(), HandlerError> {
//!     let order = event.object.ok_or_else(|| HandlerError::permanent("an order without a number"))?;
//!     cx.publish(NewEvent::new("invoice.written").object(order.as_str()))?; // commits with the note that it is done
//!     Ok(())
//! }
//!
//! let bus = Ensue::memory().await?;
//! bus.on("order.paid").named("invoice").handle(invoice)?;
//! let running = bus.start().await?;
//! bus.publish(NewEvent::new("order.paid").object("order:1")).await?;
//! bus.drain().await?; // for tests and examples: everything there is to do is done
//! assert_eq!(bus.store().event(2).await?.map(|event| event.topic.to_string()).as_deref(), Some("invoice.written"));
//! running.shutdown(std::time::Duration::from_secs(30)).await?;
//! # Ok(()) }
//! # #[cfg(not(feature = "sqlite"))]
//! # fn main() {}
//! ```
//!
//! Readers elsewhere, in any language, have a place in the log as a group: [`Ensue::groups`].
//!
//! A receiver to which events come late, doubled or out of turn keeps the order of each object with a [`Sequencer`].
//! Tests of what should happen when have a clock of their own in `testing`.
//!
//! | question | file |
//! |---|---|
//! | How do I open, publish and stream? | `bus.rs`, `open.rs` |
//! | What is a handler, and how is one bound? | `handlers/`, `binding.rs` |
//! | How does an event come to its handlers? | `delivery/` |
//! | Log lines of failed attempts | `attempted.rs` |
//! | How is work sent to a handler, run once, and followed? | `jobs/` |
//! | How is a collection brought up to date, one task at a time? | `tasks.rs` |
//! | How is something paused, blocked and let go on? | `rules/` |
//! | How does something happen at a time, again and again? | `schedules/` |
//! | Why is this not running? | `explain.rs` |
//! | How does somebody outside of the process read the log, durably? | `groups/` |
//! | Which store does a text mean? | `address.rs` |
//! | How do my own SQLite statements and a publish become one commit? | `transaction.rs` |
//! | How are events published in my own Postgres transaction? | `publish_in.rs` |
//! | What belongs to one piece of work, and what happens when it is kept or taken back? | `unit/` |
//! | What does a stream want, and from where on? | `subscription.rs`, `wanted.rs` |
//! | What does a page of the log hold for somebody with a condition? | `selection.rs` |
//! | Where are costly conditions evaluated? | `evaluation.rs` |
//! | How is the log read newest first? | `newest.rs` |
//! | How does one reader serve every stream? | `tail.rs`, `stream.rs` |
//! | How much of the log is held for a stream at once? | `pages.rs`, `large_events.rs` |
//! | Up to where is the log still what it was? | `marks.rs` |
//! | What is `prev` for somebody who sees a part of the log? | `filtered_prev.rs` |
//! | Who lets delayed events in and old ones go? | `upkeep.rs` |
//! | What is copied aside before the log forgets it? | `parking.rs` |
//! | Where is an event that somebody names? | `lookup.rs` |
//! | What is kept of what became of deliveries? | `history.rs` |
//! | How do I test what should happen when? | `testing.rs` |
//! | What can go wrong at the library's door? | `error.rs` |

mod address;
mod attempted;
mod binding;
mod bus;
mod delivery;
mod direct;
mod error;
mod evaluation;
pub mod explain;
mod filtered_prev;
pub mod groups;
mod handlers;
mod health;
mod history;
pub mod jobs;
#[doc(hidden)]
pub mod labels;
mod large_events;
mod lookup;
mod marks;
mod newest;
mod open;
mod own;
mod pages;
mod parking;
#[cfg(feature = "postgres")]
mod publish_in;
pub mod rules;
pub mod schedules;
mod selection;
mod stream;
mod subscription;
mod supervision;
mod tail;
pub mod tasks;
pub mod testing;
#[cfg(feature = "sqlite")]
mod transaction;
pub mod unit;
mod upkeep;
mod wanted;

pub use address::{Address, Place};
pub use bus::Ensue;
pub use delivery::{DeliveryReport, HandlerReport, HeldLane, READ_AHEAD, READ_AHEAD_MAX};
pub use delivery::{Stuck, SyncReport, Waited};
pub use direct::ChainPage;
pub use ensue_core::handling::{OnExhausted, Retry, RetryShape, Standing, SyncOutcome, Verdict};
pub use ensue_core::positions::{Level, Start};
pub use ensue_core::retention::{Bounds, Retention};
pub use ensue_core::store::{Cancelled, Page, Read, SharedStore, Store};
pub use ensue_core::{
    Appended, Event, EventId, Fact, Filter, Found, GroupName, IdempotencyKey, Invalid, Json, NewEvent, ObjectKey,
    Pending, Seq, Sequencer, StoreError, Timestamp, Topic, event, key, plan, positions, sequencer, store, store_key,
};
pub use ensue_core::{Definitions, Jobs, Positions, Rules, definitions};
pub use ensue_core::{chain, condition, matching, text};
/// Implements [`Fact`](trait@Fact): `#[fact(type = "record", action = "published")]` above the type.
#[cfg(feature = "derive")]
pub use ensue_derive::Fact;
/// Implements [`JobArgs`](trait@JobArgs): `#[job(handler = "mail.receipt")]` above the type.
#[cfg(feature = "derive")]
pub use ensue_derive::JobArgs;
pub use error::Error;
pub use handlers::{
    BatchHandler, Binding, Context, Handler, HandlerBuilder, HandlerError, HandlerInfo, HandlerLimits, Mode, Outcome,
    PullHandler, Rebinding, Settles,
};
pub use health::{Work, WorkFailure};
pub use history::History;
pub use jobs::{Emit, EmitsIn, JobArgs, JobOptions};
pub use newest::NewestPage;
pub use open::Options;
pub use selection::{ConditionErrors, Selection};
pub use stream::{Delivered, EventStream, GapReason, Streamed};
pub use subscription::Subscription;
pub use unit::{Operation, UnitError, UnitOfWork};
pub use upkeep::Running;
pub use wanted::{ConditionError, Direct, Wanted, Where};

#[cfg(feature = "postgres")]
pub use ensue_stores::postgres::{Drift, PostgresOptions, PostgresStore, ServerSettings, Upgrade};

/// Your own transactions on Postgres, and the drivers whose they may be.
#[cfg(feature = "postgres")]
pub mod postgres {
    pub use ensue_stores::postgres::own::{OwnedTransaction, PostgresTransaction};
    #[cfg(feature = "sqlx")]
    pub use ensue_stores::postgres::sqlx;
    pub use ensue_stores::postgres::{deadpool_postgres, tokio_postgres};
}

#[cfg(feature = "sqlite")]
pub use ensue_stores::sqlite::rusqlite;
#[cfg(feature = "sqlite")]
pub use ensue_stores::sqlite::{OwnTransaction, SqliteStore, Transaction, TransactionError, WriteTicket};

/// What the pages of `docs/` show is compiled and run with the examples in here.
#[cfg(all(doctest, feature = "sqlite"))]
#[doc = include_str!("../../../docs/write-an-engine.md")]
mod pages_shown {}

/// See above.
#[cfg(all(doctest, feature = "sqlite"))]
#[doc = include_str!("../../../docs/transactions.md")]
mod transactions_shown {}
