//! How are events published in my own Postgres transaction?

use crate::Ensue;
use crate::error::Error;
use ensue_core::{Appended, NewEvent, StoreError};
use ensue_stores::postgres::PostgresStore;
use ensue_stores::postgres::own::PostgresTransaction;
use std::sync::Arc;

impl Ensue {
    /// Publishes in your own transaction, on the database of the bus: the event is in the log soon after you commit, and nowhere if you
    /// do not. It takes no lock, and nobody waits for your transaction. The answer has no `seq` yet.
    ///
    /// Publish after you have locked what the event is about, as the UPDATE of its row does: two transactions about one object are then in the
    /// log in the order in which they had it. A [`UnitOfWork`](crate::UnitOfWork) sees to that by itself.
    ///
    /// With an error the transaction has failed: roll it back.
    ///
    /// ```no_run
    /// # async fn example(bus: ensue::Ensue, mut client: ensue::postgres::tokio_postgres::Client) -> Result<(), Box<dyn std::error::Error>> {
    /// use ensue::NewEvent;
    ///
    /// let mut tx = client.transaction().await?;
    /// tx.execute("UPDATE orders SET paid = true WHERE id = 1", &[]).await?;
    /// bus.publish_in(&mut tx, NewEvent::new("order.paid").object("order:1")).await?;
    /// tx.commit().await?;
    /// # Ok(()) }
    /// ```
    pub async fn publish_in<T: PostgresTransaction>(&self, tx: &mut T, event: NewEvent) -> Result<Appended, Error> {
        let store = self.postgres()?;
        let entry = event.check()?;
        self.establish_bound().await?;
        Ok(store.publish_in(tx, vec![entry]).await?[0])
    }

    /// Publishes several events in your own transaction, with consecutive places in the log. See [`publish_in`](Self::publish_in).
    pub async fn publish_all_in<T: PostgresTransaction>(
        &self,
        tx: &mut T,
        events: Vec<NewEvent>,
    ) -> Result<Vec<Appended>, Error> {
        let store = self.postgres()?;
        let entries = NewEvent::check_all(events)?;
        self.establish_bound().await?;
        Ok(store.publish_in(tx, entries).await?)
    }

    pub(crate) fn postgres(&self) -> Result<&Arc<PostgresStore>, Error> {
        self.inner().opened.postgres.as_ref().ok_or_else(|| {
            Error::Store(StoreError::Unsupported(
                "the bus is not on Postgres: on the embedded engine publish with `bus.transaction(|tx| …)`".into(),
            ))
        })
    }
}
