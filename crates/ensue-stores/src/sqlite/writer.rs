//! Who writes, and how do many callers share one commit?
//!
//! One thread owns the one connection that writes. While it waits for the disk, calls gather in its queue; then it
//! takes all that are there into one transaction (`change.rs`), commits once, and answers every caller. So an idle store
//! answers one call after one fsync, and a busy one hundreds. What takes long, and what is the user's own, waits in the
//! same queue for a commit of its own.

use super::append::{self, LogWriter, SqliteKnown};
use super::change;
use super::disk_faults::DiskFaults;
use super::heads::Heads;
use super::lock::Lock;
use super::objects::{self, Unindexed};
use super::queue::{Batch, Caller, Command, Queue};
use super::replier::{Answer, Replier};
use super::wal::Wal;
use super::{commit, error, positions, read};
use crate::clock::Clock;
use crate::room::Room;
use ensue_core::plan::Tail;
use ensue_core::{Appended, Entry, Seq, StoreError, Timestamp};
use rusqlite::Connection;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;
use tokio::sync::oneshot;

/// Set when the store is closed, or the disk failed in a way after which nothing can be promised: from then on, nothing
/// is written.
type Stopped = Arc<OnceLock<StoreError>>;

/// When a change is to be on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sync {
    /// Before it is answered.
    Now,
    /// With the next change that is. It survives the end of the process, but not that of the machine.
    Later,
}

/// A turn at the write lock: the writer stands aside until it is dropped.
pub(super) struct Turn {
    _over: mpsc::SyncSender<()>,
}

/// The file of a store that is not in memory.
pub(super) struct DatabaseFile {
    pub path: PathBuf,
    /// The right to write to it.
    pub lock: Lock,
}

/// The way to the writer thread.
pub(super) struct Writer {
    queue: mpsc::Sender<Command>,
    thread: JoinHandle<()>,
    /// For the appends in the queue.
    room: Room,
    stopped: Stopped,
    faults: Arc<DiskFaults>,
    /// What of the log is not indexed yet, for readers.
    pub unindexed: Arc<Unindexed>,
}

impl Writer {
    pub fn start(
        connection: Connection,
        clock: Clock,
        window_events: u64,
        file: Option<DatabaseFile>,
    ) -> Result<Self, StoreError> {
        let (queue, commands) = mpsc::channel();
        let unindexed =
            Arc::new(Unindexed::after(objects::indexed_to(&connection).map_err(error::of_write)?, window_events));
        let heads = Heads::new(unindexed.clone());
        let (stopped, faults) = (Stopped::default(), Arc::<DiskFaults>::default());
        let (wal, lock) = match file {
            Some(DatabaseFile { path, lock }) => (Some(Wal::of(&path, faults.clone())), Some(lock)),
            None => (None, None),
        };
        let mut writing = Writing {
            connection,
            clock,
            heads,
            unindexed: unindexed.clone(),
            stopped: stopped.clone(),
            faults: faults.clone(),
            wal,
            replier: Replier::start(),
            sync: Sync::Now,
            is_taken_over: lock.is_none(),
            _lock: lock,
        };
        writing.take_in()?;
        match writing.change(|_| Ok(())) {
            // It can be read; the first change that finds room takes it over.
            Ok(()) | Err(StoreError::Full(_)) => {}
            Err(error) => return Err(error),
        }
        let thread = std::thread::Builder::new()
            .name("ensue-writer".into())
            .spawn(move || run(writing, Queue::new(commands)))
            .map_err(|error| StoreError::Engine(format!("cannot start the writer thread: {error}")))?;
        Ok(Self { queue, thread, room: Room::default(), stopped, faults, unindexed })
    }

    pub async fn append(&self, entries: Vec<Entry>) -> Answer {
        let taken = self.room.take(&entries).await;
        let (reply, answer) = oneshot::channel();
        let batch = Batch::new(entries, taken);
        self.send(Command::Append(Caller { batch, reply, alone: false }))?;
        answer.await.map_err(|_| self.unanswered())?
    }

    /// Makes a change of about so many rows, in one commit with others that wait.
    pub async fn change<T, F>(&self, rows: usize, sync: Sync, work: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Changing<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        let (change, answer) = change::asked(work);
        self.send(Command::Change { change, rows, sync })?;
        answer.await.map_err(|_| self.unanswered())?
    }

    /// Runs work on the writer's connection, alone.
    pub async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Writing) -> T + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, answer) = oneshot::channel();
        self.send(Command::Run(Box::new(move |writing| {
            // Nobody may wait for it any more; it is done all the same.
            let _waiting = reply.send(work(writing));
        })))?;
        answer.await.map_err(|_| self.unanswered())
    }

    /// Waits for a turn at the write lock.
    pub async fn turn(&self) -> Result<Turn, StoreError> {
        let (granted, grant) = oneshot::channel();
        let (over_sender, over) = mpsc::sync_channel(0);
        self.send(Command::Turn { granted, over })?;
        grant.await.map_err(|_| StoreError::Closed)?;
        Ok(Turn { _over: over_sender })
    }

    /// Would it write? Waits for nobody's turn. While the disk has a fault, it is tried again.
    pub fn ready(&self) -> Result<(), StoreError> {
        if let Some(stopped) = self.stopped.get() {
            return Err(stopped.clone());
        }
        if self.thread.is_finished() {
            return Err(StoreError::Closed);
        }
        match self.faults.current() {
            None => Ok(()),
            Some(fault) => {
                if self.faults.is_probe_due() {
                    self.send(Command::Run(Box::new(Writing::probe)))?;
                }
                Err(fault)
            }
        }
    }

    /// Finishes what was accepted, then lets go of the file.
    pub async fn close(&self) {
        let (reply, done) = oneshot::channel();
        if self.queue.send(Command::Close(reply)).is_ok() {
            let _closed_either_way = done.await;
        }
    }

    fn send(&self, command: Command) -> Result<(), StoreError> {
        self.queue.send(command).map_err(|_| StoreError::Closed)
    }

    /// The thread has ended with a call that it had been given: before it was looked at, if the store was closed.
    fn unanswered(&self) -> StoreError {
        let panicked = || StoreError::InDoubt("the writer thread has panicked; open the store again".into());
        self.stopped.get().cloned().unwrap_or_else(panicked)
    }
}

/// The writer's own state, on its thread.
pub(super) struct Writing {
    connection: Connection,
    clock: Clock,
    heads: Heads,
    unindexed: Arc<Unindexed>,
    stopped: Stopped,
    faults: Arc<DiskFaults>,
    /// None for a store in memory.
    wal: Option<Wal>,
    replier: Replier,
    /// How the connection commits now.
    sync: Sync,
    /// Whether what another process has left is in order.
    is_taken_over: bool,
    /// Held until the connection is closed.
    _lock: Option<Lock>,
}

fn run(mut writing: Writing, mut queue: Queue) {
    while let Some(command) = queue.next() {
        match command {
            shared @ (Command::Append(_) | Command::Change { .. }) => {
                queue.put_back(shared);
                writing.share(&mut queue);
            }
            Command::Run(work) => work(&mut writing),
            Command::Turn { granted, over } => {
                stand_aside(granted, &over);
                if let Err(error) = writing.take_in() {
                    tracing::warn!(%error, "what was written on another connection is seen with the next append");
                }
            }
            Command::Close(reply) => {
                // Before the answer: nobody finds it ready after that.
                let _stopped_before = writing.stopped.set(StoreError::Closed);
                drop(writing);
                let _waiting = reply.send(());
                return;
            }
        }
        writing.index_a_chunk();
    }
}

/// Lets somebody else have the write lock until they drop their end.
fn stand_aside(granted: oneshot::Sender<()>, over: &mpsc::Receiver<()>) {
    if granted.send(()).is_ok() {
        let _dropped = over.recv();
    }
}

impl Writing {
    pub fn connection(&self) -> &Connection {
        &self.connection
    }

    pub fn connection_mut(&mut self) -> &mut Connection {
        &mut self.connection
    }

    pub fn replier(&self) -> &Replier {
        &self.replier
    }

    /// Makes a change in one transaction: all of it on disk, or nothing.
    pub fn change<T>(
        &mut self,
        work: impl FnOnce(&mut Changing<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.change_with(Sync::Now, work)
    }

    /// The same, and says when it is to be on disk.
    pub fn change_with<T>(
        &mut self,
        sync: Sync,
        work: impl FnOnce(&mut Changing<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if let Some(stopped) = self.stopped.get() {
            return Err(stopped.clone());
        }
        self.set_sync(sync)?;
        let result = self.in_transaction(work);
        self.faults.note_commit(result.as_ref().err());
        if let Err(error) = &result {
            self.roll_back();
            if let StoreError::Stopped(_) = error {
                self.stop(error.clone());
            }
        }
        result
    }

    /// Says how the next transaction is committed. SQLite takes it only between transactions.
    fn set_sync(&mut self, sync: Sync) -> Result<(), StoreError> {
        if self.sync != sync {
            let word = match sync {
                Sync::Now => "FULL",
                Sync::Later => "NORMAL",
            };
            self.connection.pragma_update(None, "synchronous", word).map_err(error::of_write)?;
            self.sync = sync;
        }
        Ok(())
    }

    fn in_transaction<T>(
        &mut self,
        work: impl FnOnce(&mut Changing<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.begin()?;
        if !self.is_taken_over {
            positions::take_over(&self.connection, (self.clock)())?;
        }
        let value = work(&mut Changing { writing: self })?;
        commit::commit(&self.connection).map_err(|error| self.stopped_by(error))?;
        self.is_taken_over = true;
        self.heads.committed();
        if let Some(wal) = &mut self.wal {
            wal.committed(&self.connection);
        }
        Ok(value)
    }

    /// Commits without a change. What comes of it is noted as for any commit.
    fn probe(&mut self) {
        let _noted =
            self.change(|changing| changing.sql(|connection| connection.execute_batch(commit::CHANGE_NOTHING)));
    }

    /// Takes in what is in the log and was not written here: at the start, and after somebody else's turn.
    fn take_in(&mut self) -> Result<(), StoreError> {
        let (_, tail) = read::ends(&self.connection).map_err(error::of_write)?;
        self.heads.trust_only_at(tail.seq, &self.connection).map_err(error::of_write)?;
        self.heads.committed();
        Ok(())
    }

    /// Moves the index of objects on, if it is time. What fails is tried again after the next command.
    fn index_a_chunk(&mut self) {
        let Some(chunk) = self.unindexed.next_chunk() else { return };
        // Nobody waits for it: after a power cut it is written again.
        let written = self.change_with(Sync::Later, |changing| {
            changing.sql(|connection| chunk.write(connection, read::bounds(connection)?.first))
        });
        match written {
            Ok(()) => self.unindexed.indexed(&chunk),
            Err(error) => tracing::warn!(%error, "the index of objects lags behind"),
        }
    }

    fn begin(&self) -> Result<(), StoreError> {
        let begun = self.connection.prepare_cached("BEGIN IMMEDIATE").and_then(|mut begin| begin.execute([]));
        begun.map(|_| ()).map_err(error::of_write)
    }

    fn roll_back(&mut self) {
        // What was noted of the rolled-back events is wrong now.
        self.heads.rolled_back();
        if let Err(error) = commit::roll_back(&self.connection) {
            self.stop(StoreError::Stopped(format!("a rollback failed: {error}")));
        }
    }

    /// A failed commit may be on the disk all the same, and show after a restart. Nothing of later calls will.
    fn stopped_by(&self, error: StoreError) -> StoreError {
        if !matches!(error, StoreError::Stopped(_)) {
            return error;
        }
        self.stop(error.clone());
        error.in_doubt(
            "the disk failed while this was committed, and the store has stopped: check the disk, then restart",
        )
    }

    fn stop(&self, why: StoreError) {
        tracing::error!(error = %why, "the writer has stopped");
        // The first reason stays.
        let _stopped_before = self.stopped.set(why);
    }
}

/// An open write transaction on the writer.
pub(super) struct Changing<'w> {
    pub writing: &'w mut Writing,
}

impl Changing<'_> {
    pub fn clock(&self) -> Timestamp {
        (self.writing.clock)()
    }

    pub fn sql<T>(&self, run: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        run(&self.writing.connection).map_err(error::of_write)
    }

    pub fn known(&mut self) -> Result<SqliteKnown<'_>, StoreError> {
        let (first, tail) = self.sql(read::ends)?;
        let now = tail.record_time(self.clock());
        let writing = &mut *self.writing;
        writing.heads.trust_only_at(tail.seq, &writing.connection).map_err(error::of_write)?;
        Ok(SqliteKnown { connection: &writing.connection, heads: &mut writing.heads, first, now })
    }

    /// Where does the log end, for those who cannot know whether it still ends where they last wrote?
    pub fn look_again(&mut self) -> Result<(), StoreError> {
        let (_, tail) = self.sql(read::ends)?;
        let writing = &mut *self.writing;
        writing.heads.trust_only_at(tail.seq, &writing.connection).map_err(error::of_write)
    }

    /// Writes planned rows at the end of the log.
    pub fn log(&mut self, write: impl FnOnce(&mut LogWriter<'_>) -> rusqlite::Result<()>) -> Result<(), StoreError> {
        let writing = &mut *self.writing;
        LogWriter::new(&writing.connection, &mut writing.heads)
            .and_then(|mut log| write(&mut log))
            .map_err(error::of_write)
    }

    pub fn append(&mut self, batch: &[Entry]) -> Answer {
        let clock = self.clock();
        append::append(&self.writing.connection, &mut self.writing.heads, clock, batch)
    }

    /// The same for who knows where the log begins and ends; answers where it ends now.
    pub fn append_at(
        &mut self,
        clock: Timestamp,
        first: Seq,
        tail: Tail,
        batch: &[Entry],
    ) -> Result<(Vec<Appended>, Tail), StoreError> {
        append::append_at(&self.writing.connection, &mut self.writing.heads, clock, first, tail, batch)
    }

    /// Does a part of the transaction that may fail alone: then nothing of it is there, and what was done before stays.
    /// The outer error is that of the whole transaction: one of another kind, or one with which SQLite has ended it.
    pub fn apart<T>(
        &mut self,
        fails_alone: impl FnOnce(&StoreError) -> bool,
        work: impl FnOnce(&mut Self) -> Result<T, StoreError>,
    ) -> Result<Result<T, StoreError>, StoreError> {
        self.execute("SAVEPOINT ensue_part")?;
        let done = work(self);
        if let Err(error) = &done {
            if self.writing.connection.is_autocommit() {
                return Err(error.clone());
            }
            self.execute("ROLLBACK TO ensue_part")?;
            if !fails_alone(error) {
                // Not left open: a part around this one has the same name, and would be undone only as far as here.
                self.execute("RELEASE ensue_part")?;
                return Err(error.clone());
            }
            // What was noted of its events is wrong now.
            self.look_again()?;
        }
        self.execute("RELEASE ensue_part")?;
        Ok(done)
    }

    fn execute(&self, statement: &str) -> Result<(), StoreError> {
        self.sql(|connection| connection.prepare_cached(statement)?.execute([]).map(|_| ()))
    }
}
