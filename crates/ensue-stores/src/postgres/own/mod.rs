//! How does what we store become part of somebody's own transaction?
//!
//! | question | file |
//! |---|---|
//! | How is a statement run in it, whichever driver it is of? | `driver` |
//! | The same for sqlx | `driver_sqlx` |
//! | What does a refusal mean to whoever has the transaction? | `refusal` |
//! | How are events published in it? | `publish` |
//! | How are jobs sent in it? | `enqueue` |
//! | How does a handler settle in it? | `settle` |

mod driver;
#[cfg(feature = "sqlx")]
mod driver_sqlx;
mod enqueue;
mod publish;
mod refusal;
mod settle;

pub use driver::{OwnedTransaction, PostgresTransaction};
pub use refusal::Refusal;
pub use settle::{OwnSettlement, OwnWork};

pub(super) use settle::{OWN_DONE, OWN_LOST};
