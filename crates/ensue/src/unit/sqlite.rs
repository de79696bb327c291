//! The unit on the embedded engine's writer.
//!
//! The work runs on the writer's thread, in one turn: a hook of the transaction that would wait there is refused. What comes after the
//! commit or the rollback runs where the caller is.

use super::operation::{Operation, Unit, UnitTransaction};
use super::parts::{Mark, Parts, committing};
use super::{Committed, UnitError, UnitOfWork};
use crate::Ensue;
use ensue_core::StoreError;
use ensue_stores::sqlite::{Transaction, TransactionError};
use futures_util::FutureExt;
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

impl Ensue {
    /// Does a piece of work on the writer: your statements, on your tables in the same file, what operations do, and all events as one
    /// commit. An error or a panic takes everything back. It runs on the writer's thread, so keep it short.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use ensue::{Ensue, NewEvent, TransactionError};
    ///
    /// let bus = Ensue::memory().await?;
    /// let ((), committed) = bus
    ///     .unit_of_work(|unit| {
    ///         unit.tx().execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY)")?;
    ///         unit.publish(NewEvent::new("order.placed").object("order:1"))?;
    ///         // A part that is taken back alone.
    ///         let tried: Result<(), TransactionError> = unit.nested(|inner| {
    ///             inner.publish(NewEvent::new("order.paid").object("order:1"))?;
    ///             Err(TransactionError::rollback("the card was declined"))
    ///         });
    ///         assert!(tried.is_err());
    ///         Ok(())
    ///     })
    ///     .await?;
    /// assert_eq!(committed.events.len(), 1);
    /// # Ok(()) }
    /// ```
    pub async fn unit_of_work<R, F>(&self, work: F) -> Result<(R, Committed), TransactionError>
    where
        R: Send + 'static,
        F: FnOnce(&mut UnitOfWork<&mut Transaction<'_>>) -> Result<R, TransactionError> + Send + 'static,
    {
        // Handed over beside the answer, which a failed transaction does not have; with whether its operations were told.
        let left: Arc<Mutex<(Parts, bool)>> = Arc::default();
        let (bus, leaves) = (self.clone(), left.clone());
        let done = self
            .transaction(move |tx| {
                let mut unit = UnitOfWork::new(bus, tx);
                let worked = work(&mut unit).and_then(|done| Ok((done, unit.before_commit()?)));
                let mut parts = unit.parts.take();
                unit.tx = None;
                if let Err(error) = &worked {
                    let reason = error.to_string();
                    if at_once(parts.taking_back(Some(&reason))).is_err() {
                        tracing::error!(
                            "an operation waits on the writer's thread while its unit is taken back: it is left there"
                        );
                    }
                }
                *leaves.lock().unwrap_or_else(PoisonError::into_inner) = (parts, worked.is_err());
                worked
            })
            .await;
        let (mut parts, is_told) = std::mem::take(&mut *left.lock().unwrap_or_else(PoisonError::into_inner));
        match done {
            Ok((done, mut committed)) => {
                parts.committed(&mut committed).await;
                Ok((done, committed))
            }
            Err(error @ TransactionError::Store(StoreError::InDoubt(_) | StoreError::Stopped(_))) => {
                parts.in_doubt(&error.to_string()).await;
                Err(error)
            }
            Err(error) => {
                if !is_told {
                    // The commit itself failed.
                    parts.taking_back(Some(&error.to_string())).await;
                }
                parts.taken_back().await;
                Err(error)
            }
        }
    }
}

impl UnitOfWork<&mut Transaction<'_>> {
    /// Registers an operation: its `on_register` is called now, the others when their time comes.
    pub fn register(&mut self, operation: impl Operation) -> Result<(), TransactionError> {
        at_once(self.view().register(operation))?.map_err(unit_failed)
    }

    /// Does a part of the work that can be taken back alone. If it fails, the unit is as it was before it, with all that is
    /// registered and published; what you do about the error is up to you.
    pub fn nested<R>(
        &mut self,
        work: impl FnOnce(&mut Self) -> Result<R, TransactionError>,
    ) -> Result<R, TransactionError> {
        let mark: Mark = self.parts.mark();
        self.depth += 1;
        let name = format!("ensue_unit_{}", self.depth);
        self.tx().execute_batch(&format!("SAVEPOINT {name}"))?;
        let worked = work(self);
        match &worked {
            Ok(_) => self.tx().execute_batch(&format!("RELEASE {name}"))?,
            Err(error) => {
                let mut parts = self.parts.since(&mark);
                at_once(parts.taking_back(Some(&error.to_string())))?;
                self.tx().execute_batch(&format!("ROLLBACK TO {name}; RELEASE {name}"))?;
                at_once(parts.taken_back())?;
            }
        }
        self.depth -= 1;
        worked
    }

    /// Everything but COMMIT.
    fn before_commit(&mut self) -> Result<Committed, TransactionError> {
        at_once(committing(self.view()))?.map_err(unit_failed)?;
        let mut committed = Committed::default();
        for call in self.parts.entries()? {
            committed.events.extend(self.tx().publish_checked(&call)?);
        }
        Ok(committed)
    }

    fn view(&mut self) -> Unit<'_> {
        let Self { tx, parts, .. } = self;
        let tx = tx.as_mut().expect("a unit that can be asked has not ended");
        Unit::new(UnitTransaction::Sqlite(tx.connection_mut()), parts)
    }
}

/// What is done in one turn; an error if it would wait.
fn at_once<O>(hook: impl Future<Output = O>) -> Result<O, TransactionError> {
    hook.now_or_never().ok_or_else(|| {
        TransactionError::rollback(
            "a hook of a unit of work waits on the writer's thread, which everybody waits for: on the embedded engine, wait before the unit or in \
             on_post_commit",
        )
    })
}

fn unit_failed(error: UnitError) -> TransactionError {
    match error {
        UnitError::Bus(crate::Error::Store(error)) => TransactionError::Store(error),
        UnitError::Bus(crate::Error::Invalid(invalid)) => TransactionError::from(invalid),
        other @ (UnitError::Bus(_) | UnitError::Operation { .. }) => TransactionError::rollback(other),
    }
}
