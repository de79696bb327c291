//! How do user statements and publishes become one commit?
//!
//! In SQLite the holder of the write lock numbers events directly: no outbox. [`run`] does it on the writer's thread;
//! a [`WriteTicket`] lends the turn to a connection of the user's own.

use super::append;
use super::heads::Heads;
use super::jobs;
use super::lanes;
use super::objects::Unindexed;
use super::settle;
use super::subscriptions;
use super::writer::{Changing, Turn, Writing};
use crate::clock::Clock;
use ensue_core::jobs::{Enqueued, JobChange, JobSettled, NewJob};
use ensue_core::positions::{LaneKey, Settled, SlotChange};
use ensue_core::{Appended, Entry, Invalid, NewEvent, Seq, StoreError};
use rusqlite::{Connection, TransactionState};
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

/// Why a transaction was rolled back. Nothing of it is stored, unless the store's error says that this is not known.
#[derive(Debug, thiserror::Error)]
pub enum TransactionError {
    /// A statement failed.
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
    /// The store refused an event, or failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The closure asked for it.
    #[error("{0}")]
    RolledBack(String),
    /// The closure panicked.
    #[error("the transaction's closure panicked: {0}")]
    Panicked(String),
}

impl TransactionError {
    /// Rolls the transaction back for a reason of the application's own.
    pub fn rollback(reason: impl std::fmt::Display) -> Self {
        Self::RolledBack(reason.to_string())
    }
}

impl From<Invalid> for TransactionError {
    fn from(invalid: Invalid) -> Self {
        Self::Store(invalid.into())
    }
}

/// An open transaction on the writer: a [`Connection`] for your statements, and [`publish`](Transaction::publish).
pub struct Transaction<'w> {
    changing: Changing<'w>,
    answers: Vec<Appended>,
    /// Set when a publish failed half-way, or a settle at all: such a transaction cannot be committed.
    failed: Option<StoreError>,
    on_commit: Vec<OnCommit>,
}

type OnCommit = Box<dyn FnOnce() + Send>;

impl Transaction<'_> {
    /// Publishes with the commit. The answer holds once the transaction has committed.
    pub fn publish(&mut self, event: NewEvent) -> Result<Appended, TransactionError> {
        Ok(self.append(&[event.check()?])?[0])
    }

    /// Publishes several events, with consecutive `seq`s.
    pub fn publish_all(&mut self, events: Vec<NewEvent>) -> Result<Vec<Appended>, TransactionError> {
        Ok(self.append(&NewEvent::check_all(events)?)?)
    }

    /// Publishes what was checked.
    #[doc(hidden)]
    pub fn publish_checked(&mut self, batch: &[Entry]) -> Result<Vec<Appended>, TransactionError> {
        Ok(self.append(batch)?)
    }

    /// Sends jobs with the commit. The answer holds once the transaction has committed.
    pub fn enqueue(&mut self, jobs: &[NewJob]) -> Result<Vec<Enqueued>, TransactionError> {
        jobs::send::check(jobs)?;
        jobs::send::enqueue(&mut self.changing, jobs).map_err(|error| {
            // Some of them may be there.
            self.failed = Some(error.clone());
            error.into()
        })
    }

    /// Settles a delivery with the commit, so that your statements count exactly once: they are stored together with the
    /// moved position, or neither is. With an error the transaction cannot be committed any more: the slot may be
    /// somebody else's by now, and then so is the work.
    pub fn settle(&mut self, change: &SlotChange) -> Result<Vec<Appended>, TransactionError> {
        let settled = settle::settle(&mut self.changing, std::slice::from_ref(change));
        let error = match settled.map(|mut answers| answers.remove(0)) {
            Ok(Settled::Done(appended)) => {
                self.answers.extend(&appended);
                return Ok(appended);
            }
            Ok(Settled::FenceLost) => fence_lost(change),
            Ok(Settled::WentBack) => StoreError::Conflict(format!(
                "the log does not hold the event that was delivered to `{}`: nothing of this transaction is stored; \
                 drop the work",
                change.group
            )),
            Ok(Settled::Refused(error)) | Err(error) => error,
        };
        self.failed = Some(error.clone());
        Err(error.into())
    }

    /// Settles a job with the commit, so that your statements count exactly once. With an error the transaction cannot be
    /// committed any more: the job may be somebody else's by now.
    pub fn settle_job(&mut self, change: &JobChange) -> Result<(), TransactionError> {
        let settled = jobs::settle::settle(&mut self.changing, std::slice::from_ref(change));
        let error = match settled.map(|mut answers| answers.remove(0)) {
            Ok(JobSettled::Done { events, .. }) => {
                self.answers.extend(&events);
                return Ok(());
            }
            Ok(JobSettled::LeaseLost) => StoreError::Conflict(format!(
                "job {} goes on elsewhere, or is over: nothing of this transaction is stored; drop the work",
                change.held.id
            )),
            Ok(JobSettled::Refused(error)) | Err(error) => error,
        };
        self.failed = Some(error.clone());
        Err(error.into())
    }

    /// Is an event done already, by what is stored: is its lane or its slot's cursor beyond it?
    #[doc(hidden)]
    pub fn is_done(&self, change: &SlotChange, key: &LaneKey, seq: Seq) -> Result<bool, TransactionError> {
        Ok(lanes::is_done(self, &change.group, change.slot, key, seq)?)
    }

    /// Calls this once the transaction is on disk, on the writer's thread: keep it short.
    pub fn on_commit(&mut self, call: impl FnOnce() + Send + 'static) {
        self.on_commit.push(Box::new(call));
    }

    /// The connection, for one at a time.
    #[doc(hidden)]
    pub fn connection_mut(&mut self) -> &mut Connection {
        self.changing.writing.connection_mut()
    }

    fn append(&mut self, batch: &[Entry]) -> Result<Vec<Appended>, StoreError> {
        let (now, connection) = (self.changing.now(), self.changing.writing.connection());
        let checked = subscriptions::check_recipients(connection, batch, now);
        let appended = checked.and_then(|()| self.changing.append(batch));
        match &appended {
            Ok(answers) => self.answers.extend(answers),
            Err(error) if append::is_refusal(error) => {}
            Err(error) => self.failed = Some(error.clone()),
        }
        appended
    }
}

fn fence_lost(change: &SlotChange) -> StoreError {
    StoreError::Conflict(format!(
        "the group `{}` goes on elsewhere: its slot {} is not held under fence {} any more, because it was taken over, moved or \
         deleted, or its reader's lease has passed. Nothing of this transaction is stored: drop the work, whoever has the \
         slot now does it",
        change.group, change.slot, change.fence
    ))
}

impl Deref for Transaction<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.changing.writing.connection()
    }
}

/// Runs a user's transaction on the writer's thread.
pub(super) fn run<T>(
    writing: &mut Writing,
    work: impl FnOnce(&mut Transaction<'_>) -> Result<T, TransactionError>,
) -> Result<(T, Vec<Appended>), TransactionError> {
    let mut why_not = None;
    let mut calls = Vec::new();
    let result = writing.change(|changing| {
        let changing_mine = Changing { writing: changing.writing };
        let (answers, on_commit) = (Vec::new(), Vec::new());
        let mut transaction = Transaction { changing: changing_mine, answers, failed: None, on_commit };
        let worked = catch_unwind(AssertUnwindSafe(|| work(&mut transaction)));
        let Transaction { answers, failed, on_commit, .. } = transaction;
        calls = on_commit;
        let outcome = match (worked, &failed) {
            (Ok(Ok(_)), Some(error)) => Err(TransactionError::Store(error.clone())),
            (Ok(Ok(_)), None) if changing.writing.connection().is_autocommit() => Err(TransactionError::RolledBack(
                "the closure ended the transaction itself (COMMIT or ROLLBACK); leave that to `transaction`, which commits when the closure returns Ok".into(),
            )),
            (Ok(worked), _) => worked.map(|value| (value, answers)),
            (Err(panic), _) => Err(TransactionError::Panicked(panic_text(&*panic))),
        };
        match outcome {
            Ok(done) => {
                // A savepoint may have been taken back, with what was published since.
                changing.look_again()?;
                Ok(done)
            }
            Err(error) => {
                why_not = Some(error);
                // Any error rolls back; why is handed out below. Only a failure of our own may stop the writer.
                Err(failed.unwrap_or_else(|| StoreError::Engine("rolled back".into())))
            }
        }
    });
    match (result, why_not) {
        (Ok(done), _) => {
            calls.into_iter().for_each(|call| call());
            Ok(done)
        }
        (Err(_), Some(error)) => Err(error),
        (Err(error), None) => Err(TransactionError::Store(error)),
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    match (panic.downcast_ref::<&str>(), panic.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_string(),
        (None, Some(text)) => text.clone(),
        (None, None) => "no message".to_string(),
    }
}

/// What was published under a ticket.
struct Published {
    answers: Vec<Appended>,
    heads: Heads,
}

type OnDone = Box<dyn FnOnce(&[Appended]) + Send + Sync>;

/// A turn at the write lock for a connection of your own. All other writes of this process wait until it is dropped,
/// so hold it no longer than the transaction. Turns are granted in the order of asking.
pub struct WriteTicket {
    path: PathBuf,
    clock: Clock,
    published: Mutex<Published>,
    on_done: Option<OnDone>,
    _turn: Turn,
}

impl WriteTicket {
    pub(super) fn new(turn: Turn, path: PathBuf, clock: Clock, unindexed: Arc<Unindexed>) -> Self {
        let published = Published { answers: Vec::new(), heads: Heads::new(unindexed) };
        Self { path, clock, published: Mutex::new(published), on_done: None, _turn: turn }
    }

    /// Called with what was published, committed or not, when the ticket is dropped.
    #[doc(hidden)]
    pub fn on_drop(self, call: impl FnOnce(&[Appended]) + Send + Sync + 'static) -> Self {
        // `self` has a destructor, so it is changed in place.
        let mut ticket = self;
        ticket.on_done = Some(Box::new(call));
        ticket
    }

    /// Begins a transaction (BEGIN IMMEDIATE) on your own connection to the same file.
    pub fn begin<'t>(&'t self, connection: &'t mut Connection) -> Result<OwnTransaction<'t>, TransactionError> {
        connection.execute_batch("BEGIN IMMEDIATE")?;
        let transaction = OwnTransaction { ticket: self, connection, done: false };
        self.check_is_ours(transaction.connection)?;
        Ok(transaction)
    }

    /// Publishes inside a transaction that you began yourself with BEGIN IMMEDIATE on your own connection.
    pub fn publish_in(&self, connection: &Connection, event: NewEvent) -> Result<Appended, TransactionError> {
        self.check_is_ours(connection)?;
        let entry = event.check()?;
        if connection.transaction_state(Some("main"))? != TransactionState::Write {
            return Err(TransactionError::Store(StoreError::Unsupported(
                "publishing needs a write transaction: begin it with BEGIN IMMEDIATE. A deferred one that has only read so \
                 far fails at once beside another writer, because its snapshot is old by the time it wants to write"
                    .into(),
            )));
        }
        let mut published = self.published.lock().expect("nobody panics while publishing");
        let (entries, now) = ([entry], (self.clock)());
        subscriptions::check_recipients(connection, &entries, now)?;
        let answers = append::append(connection, &mut published.heads, now, &entries)?;
        published.answers.extend(&answers);
        Ok(answers[0])
    }

    fn check_is_ours(&self, connection: &Connection) -> Result<(), TransactionError> {
        let path = connection.path().map(PathBuf::from).and_then(|path| path.canonicalize().ok());
        if path.as_ref() != Some(&self.path) {
            return Err(TransactionError::Store(StoreError::Unsupported(format!(
                "the connection is to another file than the store {}; open it on the same file",
                self.path.display()
            ))));
        }
        Ok(())
    }
}

impl Drop for WriteTicket {
    fn drop(&mut self) {
        if let Some(on_done) = self.on_done.take() {
            // Rung even if the transaction was rolled back: a needless ring costs one empty read.
            on_done(&self.published.get_mut().expect("nobody panics while publishing").answers);
        }
    }
}

/// A transaction on your own connection, under a [`WriteTicket`]. Dropped without [`commit`](Self::commit), it is
/// rolled back.
pub struct OwnTransaction<'t> {
    ticket: &'t WriteTicket,
    connection: &'t mut Connection,
    done: bool,
}

impl OwnTransaction<'_> {
    /// Publishes with the commit.
    pub fn publish(&self, event: NewEvent) -> Result<Appended, TransactionError> {
        self.ticket.publish_in(self.connection, event)
    }

    /// Commits your statements and the published events together.
    pub fn commit(mut self) -> Result<(), TransactionError> {
        self.connection.execute_batch("COMMIT")?;
        self.done = true;
        Ok(())
    }
}

impl Deref for OwnTransaction<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection
    }
}

impl Drop for OwnTransaction<'_> {
    fn drop(&mut self) {
        if !self.done && !self.connection.is_autocommit() {
            // The connection is the user's; if it cannot roll back, closing it does.
            let _rolled_back_or_broken = self.connection.execute_batch("ROLLBACK");
        }
    }
}
