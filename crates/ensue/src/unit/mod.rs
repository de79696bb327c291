//! What belongs to one piece of work, and what happens when it is kept or taken back?
//!
//! A [`UnitOfWork`] is your transaction with what is registered in it. [Operations](Operation) are told at each step; events are kept
//! aside and written just before the commit, so that two units about one object are in the log in the order of their row locks. What a
//! unit publishes is there if and only if the unit is.
//!
//! | when | which hooks, in which order | a hook that fails |
//! |---|---|---|
//! | `register` | `on_register` | is the caller's error; the operation is not registered |
//! | commit | `on_commit` of each, as registered; then events are written, then COMMIT | takes the unit back |
//! | after COMMIT | `on_post_commit` of each, as registered | is logged and told in [`Committed::failed`]; the others run |
//! | something failed | `on_exception` of each, the last first | is logged; the others run |
//! | taking back, whatever the reason | `on_rollback` of each, the last first; ROLLBACK; `on_post_rollback` of each, the last first | is logged; the others run |
//!
//! A unit in a unit ([`UnitOfWork::nested`]) is a savepoint: if it fails, it alone is taken back, with its operations and events;
//! if it does not, they are the outer unit's. Whoever needs no unit publishes with [`Ensue::publish`](crate::Ensue::publish).
//!
//! | question | file |
//! |---|---|
//! | What can take part in a unit? | `operation.rs` |
//! | What is registered and published so far, and who is told in which order? | `parts.rs` |
//! | The unit in a Postgres transaction | `postgres.rs` |
//! | The unit on the embedded engine's writer | `sqlite.rs` |

mod operation;
mod parts;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

pub use operation::{Hooked, Operation, OperationError, Unit, UnitTransaction, done};
#[cfg(feature = "postgres")]
pub use postgres::{InUnit, Working};

use crate::Ensue;
use crate::error::Error;
use ensue_core::{Appended, Invalid, NewEvent};
use parts::Parts;
use serde::Serialize;

/// Why a unit of work was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// An operation said no. Nothing of the unit is stored.
    #[error("the operation's {hook} failed: {reason}")]
    Operation {
        /// Which of its hooks.
        hook: &'static str,
        /// What it said.
        reason: String,
    },
    /// The bus or the transaction did. Nothing of the unit is stored, unless the error says that this is not known.
    #[error(transparent)]
    Bus(#[from] Error),
}

impl From<Invalid> for UnitError {
    fn from(invalid: Invalid) -> Self {
        Self::Bus(invalid.into())
    }
}

/// What became of a unit that was committed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Committed {
    /// What it published. On Postgres they have no `seq` yet.
    pub events: Vec<Appended>,
    /// What operations could not do after the commit, each with its reason.
    pub failed: Vec<String>,
}

/// One piece of work: a transaction, the operations that take part in it, and the events that it publishes. See [`unit`](crate::unit).
pub struct UnitOfWork<T> {
    #[cfg_attr(not(feature = "postgres"), expect(dead_code, reason = "the writer needs no telling where it is"))]
    bus: Ensue,
    /// None when it has ended.
    tx: Option<T>,
    parts: Parts,
    /// How many units are open inside of it.
    depth: usize,
}

impl<T> UnitOfWork<T> {
    fn new(bus: Ensue, tx: T) -> Self {
        Self { bus, tx: Some(tx), parts: Parts::default(), depth: 0 }
    }

    /// The transaction, for your own statements.
    pub fn tx(&mut self) -> &mut T {
        self.tx.as_mut().expect("a unit that can be asked has not ended")
    }

    /// Publishes with the commit: just before it, after everything that is published by then.
    pub fn publish(&mut self, event: NewEvent) -> Result<(), Invalid> {
        self.parts.publish(event)
    }

    /// What is said in the metadata of every event of this unit, such as the request that it comes from: a JSON object. What an
    /// event says itself comes first; what is given later adds to what was given before.
    pub fn context(&mut self, context: &impl Serialize) -> Result<(), Invalid> {
        self.parts.add_context(context)
    }
}

impl<T> Drop for UnitOfWork<T> {
    /// One that nobody has ended is taken back. Its operations are told, each as far as it comes without waiting.
    fn drop(&mut self) {
        if self.tx.is_some() {
            self.parts.taken_back_by_drop(|| self.tx = None);
        }
    }
}
