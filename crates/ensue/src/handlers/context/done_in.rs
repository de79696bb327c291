//! How does a handler settle in its own transaction?
//!
//! On SQLite the note that it is done is written at once, by the one who writes everything, who also says when it is on disk. On
//! Postgres it is carried out while the transaction commits, and nobody tells us of that: it is asked for when the attempt has ended.

use super::Context;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use super::{ContextParts, DeliveryWork, Work};
use ensue_core::Seq;
#[cfg(feature = "postgres")]
use ensue_core::StoreError;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use ensue_core::jobs::{Held, JobLine};
use ensue_core::positions::{Lane, LaneKey, LaneState};
#[cfg(feature = "postgres")]
use ensue_stores::postgres::PostgresStore;
#[cfg(feature = "postgres")]
use std::sync::Arc;

/// A transaction in which a handler can settle: [`Transaction`](crate::Transaction) of the embedded engine, and on Postgres whatever is a
/// `PostgresTransaction`.
pub trait Settles: sealed::Sealed {
    /// What is answered: a result, or on Postgres one to be awaited.
    type Answer<'a>
    where
        Self: 'a;

    /// Settles the attempt in it.
    #[doc(hidden)]
    fn settle<'a>(&'a mut self, cx: &'a Context) -> Self::Answer<'a>;
}

mod sealed {
    /// Ours alone: how an attempt is settled may change.
    pub trait Sealed {}
}

impl Context {
    /// Settles in your own transaction: what this attempt published and the note that it is done become part of your
    /// commit, so that your effects happen once. The error is for you to return: it takes back your transaction when
    /// somebody else has taken this work over.
    ///
    /// Commit, then return `Ok`. If the attempt fails after your transaction has committed, it counts as done. If your
    /// transaction does not commit, the attempt has failed, also if it returns `Ok`.
    ///
    /// On the embedded engine inside [`Ensue::transaction`](crate::Ensue::transaction): `cx.done_in(tx)?`. On Postgres in a transaction
    /// of your own that is `READ COMMITTED`, the default: `cx.done_in(&mut tx).await?`, then `tx.commit().await?`. There the note is
    /// carried out with the commit, which fails if the work was taken over since.
    pub fn done_in<'a, T: Settles>(&'a self, tx: &'a mut T) -> T::Answer<'a> {
        self.said().settles_itself = true;
        tx.settle(self)
    }

    /// What is still to be written of what a job said, if it is to be.
    #[cfg(any(feature = "sqlite", feature = "postgres"))]
    fn lines_to_write(&self) -> Vec<JobLine> {
        let said = self.said();
        if !said.written && !self.0.parts.logs_always {
            return Vec::new();
        }
        let lines = said.lines.iter().cloned().chain(self.dropped_note(said.dropped_lines));
        lines.map(|line| crate::jobs::line_of(self.attempt(), line)).collect()
    }
}

/// Everything of a lane up to this event is done, although the group's cursor may not have come so far.
pub(crate) fn done_mark(key: LaneKey, seq: Seq) -> Lane {
    Lane { key, position: seq + 1, state: LaneState::Done, attempts: 0, not_before: None, error: None, redriven: false }
}

#[cfg(feature = "sqlite")]
mod sqlite {
    use super::*;
    use ensue_core::jobs::{JobChange, JobEnd};
    use ensue_core::positions::{LaneChange, SlotChange};
    use ensue_stores::sqlite::{Transaction, TransactionError};
    use std::sync::PoisonError;

    impl sealed::Sealed for Transaction<'_> {}

    impl Settles for Transaction<'_> {
        type Answer<'a>
            = Result<(), TransactionError>
        where
            Self: 'a;

        fn settle<'a>(&'a mut self, cx: &'a Context) -> Result<(), TransactionError> {
            match &cx.0.parts.work {
                Work::Delivery(delivery) => cx.delivery_done_in(self, delivery),
                Work::Job(held) => cx.job_done_in(self, *held),
            }
        }
    }

    impl Context {
        fn delivery_done_in(&self, tx: &mut Transaction<'_>, delivery: &DeliveryWork) -> Result<(), TransactionError> {
            let changes = self.done_changes(delivery);
            if tx.is_done(&changes[0], &delivery.lane, self.0.parts.seq)? {
                // Another attempt at it was cut off while its transaction was on its way, which has committed since.
                self.said().settled = true;
                return Err(TransactionError::rollback("this event is done already: nothing is to be done again"));
            }
            for change in changes {
                tx.settle(&change)?;
            }
            self.settled_on_commit(tx);
            Ok(())
        }

        fn job_done_in(&self, tx: &mut Transaction<'_>, held: Held) -> Result<(), TransactionError> {
            let mut change = JobChange::new(held, JobEnd::Succeeded);
            change.lines = self.lines_to_write();
            {
                let said = self.said();
                (change.events, change.jobs) = (said.events.clone(), said.jobs.clone());
            }
            tx.settle_job(&change)?;
            self.settled_on_commit(tx);
            Ok(())
        }

        fn settled_on_commit(&self, tx: &mut Transaction<'_>) {
            let said = self.0.clone();
            tx.on_commit(move || said.said.lock().unwrap_or_else(PoisonError::into_inner).settled = true);
        }

        /// What settles this attempt, wherever its group's cursor is: one change for each slot.
        fn done_changes(&self, delivery: &DeliveryWork) -> Vec<SlotChange> {
            let ContextParts { group, fence, seq, .. } = &self.0.parts;
            let DeliveryWork { member, slot, lane, others, newest } = delivery;
            let mut first = SlotChange::new(group.clone(), *slot, *member, *fence);
            {
                let said = self.said();
                (first.events, first.jobs) = (said.events.clone(), said.jobs.clone());
            }
            first.lanes.push(LaneChange::Put(done_mark(lane.clone(), *seq)));
            let mut changes = vec![first];
            for (slot, fence, lane, seq) in others {
                let mark = LaneChange::Put(done_mark(lane.clone(), *seq));
                match changes.iter_mut().find(|change| change.slot == *slot) {
                    Some(change) => change.lanes.push(mark),
                    None => {
                        let mut change = SlotChange::new(group.clone(), *slot, *member, *fence);
                        change.lanes.push(mark);
                        changes.push(change);
                    }
                }
            }
            changes.iter_mut().for_each(|change| change.relies_on = Some(*newest));
            changes
        }
    }
}

/// The store that this process is on, as a value that all attempts share.
#[cfg(feature = "postgres")]
pub(crate) struct StoreHere(pub Arc<PostgresStore>);

#[cfg(feature = "postgres")]
mod postgres {
    use super::*;
    use crate::Error;
    use ensue_stores::postgres::own::{OwnSettlement, OwnWork, PostgresTransaction};
    use std::future::Future;
    use std::pin::Pin;
    use std::time::Duration;
    use uuid::Uuid;

    /// How long until it is asked again whether a transaction has committed, while the server is away.
    const ASK_AGAIN_AFTER: Duration = Duration::from_millis(200);

    macro_rules! settles {
        ($($transaction:ty),+) => {
            $(
                impl sealed::Sealed for $transaction {}

                impl Settles for $transaction {
                    type Answer<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>> where Self: 'a;

                    fn settle<'a>(&'a mut self, cx: &'a Context) -> Self::Answer<'a> {
                        Box::pin(cx.done_in_postgres(self))
                    }
                }
            )+
        };
    }

    settles!(
        ensue_stores::postgres::tokio_postgres::Transaction<'_>,
        ensue_stores::postgres::deadpool_postgres::Transaction<'_>
    );
    #[cfg(feature = "sqlx")]
    settles!(
        ensue_stores::postgres::sqlx::Transaction<'_, ensue_stores::postgres::sqlx::Postgres>,
        ensue_stores::postgres::sqlx::PgConnection
    );

    impl Context {
        async fn done_in_postgres(&self, tx: &mut dyn PostgresTransaction) -> Result<(), Error> {
            let Some(here) = self.0.parts.states.get::<StoreHere>() else {
                return Err(Error::Store(StoreError::Unsupported(
                    "the bus is not on Postgres: on the embedded engine settle inside `bus.transaction(|tx| …)`".into(),
                )));
            };
            let settlement = self.own_settlement();
            // Before it is sent: what becomes of it is asked for in any case.
            self.said().calls.push(settlement.call);
            match here.0.settle_in(tx, &settlement).await {
                Ok(()) => Ok(()),
                Err((error, is_done)) => {
                    // Another attempt at it was cut off while its transaction was on its way, which has committed since.
                    self.said().settled |= is_done;
                    Err(error.into())
                }
            }
        }

        fn own_settlement(&self) -> OwnSettlement {
            let ContextParts { group, fence, seq, work, .. } = &self.0.parts;
            let work = match work {
                Work::Delivery(DeliveryWork { member, slot, lane, others, newest }) => {
                    let first = (*slot, *fence, lane.clone(), *seq);
                    let events = std::iter::once(first).chain(others.iter().cloned()).collect();
                    OwnWork::Delivery { group: group.clone(), member: *member, events, newest: *newest }
                }
                Work::Job(held) => OwnWork::Job { held: *held, lines: self.lines_to_write() },
            };
            let said = self.said();
            let call = Uuid::from_u128(rand::random());
            OwnSettlement { call, work, events: said.events.clone(), jobs: said.jobs.clone() }
        }

        /// Has it settled in a transaction of whose end nobody has told us?
        pub(crate) fn has_own_transaction(&self) -> bool {
            !self.said().calls.is_empty()
        }

        /// Finds out whether the handler's own transaction has committed, if there was one. Until that is known the attempt is not
        /// over: to settle again would publish again.
        pub(crate) async fn look_for_commit(&self) {
            let calls = std::mem::take(&mut self.said().calls);
            let Some(here) = self.0.parts.states.get::<StoreHere>().filter(|_| !calls.is_empty()) else { return };
            let held: Option<Held> = match &self.0.parts.work {
                Work::Delivery(_) => None,
                Work::Job(held) => Some(*held),
            };
            loop {
                match here.0.was_settled(&calls, held).await {
                    Ok(committed) => {
                        self.said().settled |= committed;
                        return;
                    }
                    // Nothing is written any more.
                    Err(StoreError::Closed) => return,
                    Err(error) => {
                        let handler = self.handler();
                        tracing::warn!(handler, %error, "whether a handler's own transaction has committed is not known yet");
                        tokio::time::sleep(ASK_AGAIN_AFTER).await;
                    }
                }
            }
        }
    }
}

/// Without Postgres everybody who commits tells us.
#[cfg(not(feature = "postgres"))]
impl Context {
    pub(crate) fn has_own_transaction(&self) -> bool {
        false
    }

    pub(crate) async fn look_for_commit(&self) {}
}
