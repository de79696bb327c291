//! The unit in a Postgres transaction.

use super::operation::{Operation, Unit, UnitTransaction};
use super::parts::{Mark, committing};
use super::{Committed, UnitError, UnitOfWork};
use crate::Ensue;
use crate::error::Error;
use ensue_core::StoreError;
use ensue_stores::postgres::own::{OwnedTransaction, Refusal};
use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;

/// Work in a unit. Boxed, so that a unit can be done in a task of its own, whatever its transaction borrows.
pub type Working<'a, R, E> = Pin<Box<dyn Future<Output = Result<R, E>> + Send + 'a>>;

/// A transaction that a unit of work can have: of tokio-postgres, deadpool or, with the feature `sqlx`, sqlx.
pub trait InUnit: OwnedTransaction {
    /// As operations see it.
    #[doc(hidden)]
    fn lend(&mut self) -> UnitTransaction<'_>;
}

impl InUnit for ensue_stores::postgres::tokio_postgres::Transaction<'_> {
    fn lend(&mut self) -> UnitTransaction<'_> {
        UnitTransaction::Postgres(self)
    }
}

impl InUnit for ensue_stores::postgres::deadpool_postgres::Transaction<'_> {
    fn lend(&mut self) -> UnitTransaction<'_> {
        UnitTransaction::Postgres(self)
    }
}

#[cfg(feature = "sqlx")]
impl InUnit for ensue_stores::postgres::sqlx::Transaction<'_, ensue_stores::postgres::sqlx::Postgres> {
    fn lend(&mut self) -> UnitTransaction<'_> {
        UnitTransaction::Sqlx(self)
    }
}

impl Ensue {
    /// Does a piece of work in your own transaction on the database of the bus: commits if it is `Ok`, and takes everything back if not.
    ///
    /// ```no_run
    /// # async fn example(bus: ensue::Ensue, mut client: ensue::postgres::tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    /// use ensue::NewEvent;
    ///
    /// let tx = client.transaction().await?;
    /// bus.unit_of_work_in(tx, |unit| {
    ///     Box::pin(async move {
    ///         unit.context(&serde_json::json!({ "request": "r-1" }))?;
    ///         unit.tx().execute("UPDATE orders SET paid = true WHERE id = 1", &[]).await?;
    ///         unit.publish(NewEvent::new("order.paid").object("order:1"))?;
    ///         Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    ///     })
    /// })
    /// .await?;
    /// # Ok(()) }
    /// ```
    pub fn unit_of_work_in<'a, T, R, E>(
        &'a self,
        tx: T,
        work: impl for<'u> FnOnce(&'u mut UnitOfWork<T>) -> Working<'u, R, E> + Send + 'a,
    ) -> Working<'a, R, E>
    where
        T: InUnit + 'a,
        R: Send + 'a,
        E: From<UnitError> + Display + Send + 'a,
    {
        Box::pin(async move {
            let mut unit = self.begin_unit(tx)?;
            match work(&mut unit).await {
                Ok(done) => {
                    unit.commit().await?;
                    Ok(done)
                }
                Err(error) => {
                    unit.fail(&error.to_string()).await;
                    Err(error)
                }
            }
        })
    }

    /// Makes a transaction a unit of work, for who ends it by hand, with [`commit`](UnitOfWork::commit) or
    /// [`rollback`](UnitOfWork::rollback).
    pub fn begin_unit<T: InUnit>(&self, tx: T) -> Result<UnitOfWork<T>, UnitError> {
        self.postgres()?;
        Ok(UnitOfWork::new(self.clone(), tx))
    }
}

impl<T: InUnit> UnitOfWork<T> {
    /// Registers an operation: its `on_register` is called now, the others when their time comes.
    pub async fn register(&mut self, operation: impl Operation) -> Result<(), UnitError> {
        self.view()?.register(operation).await
    }

    /// Does a part of the work that can be taken back alone. If it fails, the unit is as it was before it, with all that is
    /// registered and published; what you do about the error is up to you.
    pub fn nested<'a, R, E>(
        &'a mut self,
        work: impl for<'u> FnOnce(&'u mut UnitOfWork<T>) -> Working<'u, R, E> + Send + 'a,
    ) -> Working<'a, R, E>
    where
        R: Send + 'a,
        E: From<UnitError> + Display + Send + 'a,
    {
        Box::pin(async move {
            let mark = self.begin_nested().await?;
            match work(self).await {
                Ok(done) => {
                    self.end_nested().await?;
                    Ok(done)
                }
                Err(error) => {
                    self.fail_nested(&mark, &error.to_string()).await?;
                    Err(error)
                }
            }
        })
    }

    /// Commits: tells all operations, writes all events, then COMMIT. With an error nothing is stored, unless it is
    /// [`InDoubt`](StoreError::InDoubt).
    pub async fn commit(mut self) -> Result<Committed, UnitError> {
        let mut committed = match self.before_commit().await {
            Ok(committed) => committed,
            Err(error) => {
                self.fail(&error.to_string()).await;
                return Err(error);
            }
        };
        let Some(tx) = self.tx.take() else { return Err(ended()) };
        let mut parts = self.parts.take();
        match tx.commit().await {
            Ok(()) => {
                parts.committed(&mut committed).await;
                Ok(committed)
            }
            Err(refusal) if refusal.is_told() => {
                let error = self.explain(refusal);
                // The server has taken it back.
                parts.taking_back(Some(&error.to_string())).await;
                parts.taken_back().await;
                Err(error)
            }
            Err(refusal) => {
                let error = StoreError::InDoubt(format!(
                    "the connection was lost while a unit of work was committed: {refusal}"
                ));
                parts.in_doubt(&error.to_string()).await;
                Err(Error::Store(error).into())
            }
        }
    }

    /// Takes everything back.
    pub async fn rollback(mut self) -> Result<(), UnitError> {
        self.take_back(None).await
    }

    /// Takes everything back because something has failed.
    async fn fail(mut self, reason: &str) {
        if let Err(error) = self.take_back(Some(reason)).await {
            // The server does it when the connection goes.
            tracing::warn!(%error, "a unit of work that failed could not be rolled back");
        }
    }

    async fn take_back(&mut self, reason: Option<&str>) -> Result<(), UnitError> {
        let Some(tx) = self.tx.take() else { return Err(ended()) };
        let mut parts = self.parts.take();
        parts.taking_back(reason).await;
        let rolled_back = tx.rollback().await.map_err(|refusal| self.explain(refusal));
        parts.taken_back().await;
        rolled_back
    }

    /// Everything but COMMIT.
    async fn before_commit(&mut self) -> Result<Committed, UnitError> {
        if self.depth > 0 {
            let why = "a unit inside of this one was cut off before it ended: nothing is known of its half";
            return Err(Error::Store(StoreError::Conflict(why.into())).into());
        }
        committing(self.view()?).await?;
        let mut committed = Committed::default();
        let calls = self.parts.entries()?;
        if !calls.is_empty() {
            self.bus.establish_bound().await?;
        }
        for call in calls {
            let Self { bus, tx, .. } = self;
            let Some(tx) = tx else { return Err(ended()) };
            let answers = bus.postgres()?.publish_in(tx, call).await.map_err(Error::from)?;
            committed.events.extend(answers);
        }
        if committed.events.is_empty() {
            // A transaction in which something failed is taken back by COMMIT without a word; nothing else would have told so far.
            self.run("SELECT 1").await?;
        }
        Ok(committed)
    }

    async fn begin_nested(&mut self) -> Result<Mark, UnitError> {
        self.run(&format!("SAVEPOINT ensue_unit_{}", self.depth + 1)).await?;
        self.depth += 1;
        Ok(self.parts.mark())
    }

    async fn end_nested(&mut self) -> Result<(), UnitError> {
        self.run(&format!("RELEASE SAVEPOINT ensue_unit_{}", self.depth)).await?;
        self.depth -= 1;
        Ok(())
    }

    async fn fail_nested(&mut self, mark: &Mark, reason: &str) -> Result<(), UnitError> {
        let mut parts = self.parts.since(mark);
        parts.taking_back(Some(reason)).await;
        let name = format!("ensue_unit_{}", self.depth);
        let taken_back = self.run(&format!("ROLLBACK TO SAVEPOINT {name}; RELEASE SAVEPOINT {name}")).await;
        parts.taken_back().await;
        taken_back?;
        self.depth -= 1;
        Ok(())
    }

    async fn run(&mut self, statement: &str) -> Result<(), UnitError> {
        let Some(tx) = &mut self.tx else { return Err(ended()) };
        let ran = tx.run(statement).await;
        ran.map_err(|refusal| self.explain(refusal))
    }

    /// As operations see it.
    fn view(&mut self) -> Result<Unit<'_>, UnitError> {
        let Self { tx, parts, .. } = self;
        let Some(tx) = tx else { return Err(ended()) };
        Ok(Unit::new(tx.lend(), parts))
    }

    fn explain(&self, refusal: Refusal) -> UnitError {
        match self.bus.postgres() {
            Ok(store) => UnitError::Bus(refusal.explain(store.schema()).into()),
            Err(error) => error.into(),
        }
    }
}

fn ended() -> UnitError {
    Error::Store(StoreError::Conflict("the unit of work has ended".into())).into()
}
