//! How do my own SQLite statements and a publish become one commit?

use crate::Ensue;
use crate::error::Error;
use ensue_core::StoreError;
use ensue_stores::sqlite::{SqliteStore, Transaction, TransactionError, WriteTicket};
use std::sync::Arc;

impl Ensue {
    /// Runs your statements, on your tables in the same file, and your publishes as one commit on the writer. The
    /// closure runs on the writer's thread, so keep it short; an error or a panic rolls everything back.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use ensue::{Ensue, NewEvent, TransactionError};
    ///
    /// let bus = Ensue::memory().await?;
    /// let placed = bus
    ///     .transaction(|tx| {
    ///         tx.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY, total INTEGER)", [])?;
    ///         tx.execute("INSERT INTO orders VALUES (1, 120)", [])?;
    ///         tx.publish(NewEvent::new("order.placed").object("order:1"))
    ///     })
    ///     .await?;
    /// assert_eq!(placed.seq, Some(1));
    ///
    /// let undone: Result<(), _> = bus
    ///     .transaction(|tx| {
    ///         tx.publish(NewEvent::new("order.placed").object("order:2"))?;
    ///         Err(TransactionError::rollback("changed my mind"))
    ///     })
    ///     .await;
    /// assert!(undone.is_err());
    /// assert_eq!(bus.store().bounds().await?.last, 1);
    /// # Ok(()) }
    /// ```
    pub async fn transaction<T, F>(&self, work: F) -> Result<T, TransactionError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Transaction<'_>) -> Result<T, TransactionError> + Send + 'static,
    {
        let store = self.sqlite()?;
        self.establish_bound().await.map_err(into_store_error)?;
        let (value, answers) = store.transaction(work).await?;
        self.inner().announce(&answers);
        Ok(value)
    }

    /// A turn at the write lock, for those who need a connection of their own: granted in the order of asking, among
    /// all other writes of this process, which wait until it is dropped. See [`WriteTicket::begin`].
    pub async fn write_ticket(&self) -> Result<WriteTicket, Error> {
        let bus = self.clone();
        let store = self.sqlite()?;
        self.establish_bound().await?;
        let ticket = store.write_ticket().await?;
        Ok(ticket.on_drop(move |answers| bus.inner().announce(answers)))
    }

    fn sqlite(&self) -> Result<&Arc<SqliteStore>, StoreError> {
        self.inner().opened.sqlite.as_ref().ok_or_else(|| {
            StoreError::Unsupported(
                "transactions on the writer are for the embedded engine; this bus is on another store".into(),
            )
        })
    }
}

/// The error of a transaction that did not begin.
fn into_store_error(error: Error) -> StoreError {
    match error {
        Error::Invalid(invalid) => invalid.into(),
        Error::Store(error) => error,
        Error::NotFound(why) | Error::Address(why) => StoreError::Engine(why),
    }
}
