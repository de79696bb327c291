//! Sending jobs in a transaction of the application.
//!
//! The jobs become part of its commit. On SQLite the transaction runs on the writer, so the answer
//! comes at once; on Postgres it is awaited.

use super::Emit;
use crate::Ensue;
use ensue_core::Invalid;
use ensue_core::jobs::{JobId, NewJob};

/// A transaction in which jobs can be sent: [`Transaction`](crate::Transaction) of the embedded
/// engine, and on Postgres any `PostgresTransaction`.
pub trait EmitsIn: sealed::Sealed {
    /// A result, or on Postgres a future of one.
    type Answer<'a, T>
    where
        Self: 'a,
        T: Send + 'a;

    /// Sends the jobs, and answers what `pick` makes of their ids.
    #[doc(hidden)]
    fn emit<'a, T: Send + 'a>(
        &'a mut self,
        bus: &'a Ensue,
        jobs: Jobs,
        pick: fn(Vec<JobId>) -> T,
    ) -> Self::Answer<'a, T>;
}

type Jobs = Result<Vec<NewJob>, Invalid>;

mod sealed {
    /// Ours alone: how jobs are sent may change.
    pub trait Sealed {}
}

impl Ensue {
    /// Sends a job in your own transaction: it is there when you have committed, and never if you
    /// do not. Answers its id; while a job with the same `unique_key` is live, the id of that job.
    ///
    /// On the embedded engine inside [`Ensue::transaction`](crate::Ensue::transaction):
    /// `bus.emit_in(tx, job)?`. On Postgres in any transaction on the database of the bus:
    /// `bus.emit_in(&mut tx, job).await?`. After an error there, roll the transaction back.
    pub fn emit_in<'a, T: EmitsIn>(&'a self, tx: &'a mut T, job: Emit) -> T::Answer<'a, JobId> {
        let jobs = self.checked_job(job).map(|job| vec![job]);
        tx.emit(self, jobs, |ids| ids[0])
    }

    /// Sends jobs in your own transaction, in this order. See [`emit_in`](Self::emit_in).
    pub fn emit_all_in<'a, T: EmitsIn>(&'a self, tx: &'a mut T, jobs: Vec<Emit>) -> T::Answer<'a, Vec<JobId>> {
        let jobs = jobs.into_iter().map(|job| self.checked_job(job)).collect();
        tx.emit(self, jobs, |ids| ids)
    }
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use super::*;
    use ensue_stores::sqlite::{Transaction, TransactionError};

    impl sealed::Sealed for Transaction<'_> {}

    impl EmitsIn for Transaction<'_> {
        type Answer<'a, T>
            = Result<T, TransactionError>
        where
            Self: 'a,
            T: Send + 'a;

        fn emit<'a, T: Send + 'a>(
            &'a mut self,
            bus: &'a Ensue,
            jobs: Jobs,
            pick: fn(Vec<JobId>) -> T,
        ) -> Result<T, TransactionError> {
            let sent = self.enqueue(&jobs?)?;
            let ids = sent.iter().map(|job| job.id).collect();
            let inner = bus.shared();
            self.on_commit(move || inner.jobs_sent(&sent));
            Ok(pick(ids))
        }
    }
}

#[cfg(feature = "postgres")]
mod postgres {
    use super::*;
    use crate::Error;
    use std::future::Future;
    use std::pin::Pin;

    macro_rules! emits_in {
        ($($transaction:ty),+) => {
            $(
                impl sealed::Sealed for $transaction {}

                impl EmitsIn for $transaction {
                    type Answer<'a, T>
                        = Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>
                    where
                        Self: 'a,
                        T: Send + 'a;

                    fn emit<'a, T: Send + 'a>(
                        &'a mut self,
                        bus: &'a Ensue,
                        jobs: Jobs,
                        pick: fn(Vec<JobId>) -> T,
                    ) -> Self::Answer<'a, T> {
                        Box::pin(async move {
                            let (store, jobs) = (bus.postgres()?, jobs?);
                            Ok(pick(store.enqueue_in(self, &jobs).await?))
                        })
                    }
                }
            )+
        };
    }

    emits_in!(
        ensue_stores::postgres::tokio_postgres::Transaction<'_>,
        ensue_stores::postgres::deadpool_postgres::Transaction<'_>
    );
    #[cfg(feature = "sqlx")]
    emits_in!(
        ensue_stores::postgres::sqlx::Transaction<'_, ensue_stores::postgres::sqlx::Postgres>,
        ensue_stores::postgres::sqlx::PgConnection
    );
}
