//! Who writes, and how do many callers share one commit?
//!
//! One thread owns the one connection that writes. While it waits for the disk, calls gather in its queue; then it
//! takes all that are there into one transaction, commits once, and answers every caller. So an idle store answers one
//! call after one fsync, and a busy one hundreds. Whatever else changes the store waits its turn in the same queue.

use super::append::{self, LogWriter, SqliteKnown};
use super::heads::Heads;
use super::lock::Lock;
use super::objects::{self, Unindexed};
use super::queue::{Batch, Caller, Command, gather};
use super::replier::{Answer, Replier};
use super::wal::WalWatch;
use super::{commit, error, read};
use crate::clock::Clock;
use crate::room::Room;
use ensue_core::{Appended, Entry, StoreError, Timestamp};
use rusqlite::Connection;
use std::collections::VecDeque;
use std::sync::{Arc, OnceLock, mpsc};
use std::thread::JoinHandle;
use std::time::Instant;
use tokio::sync::oneshot;

/// Set when the store is closed, or the disk failed in a way after which nothing can be promised: from then on, nothing
/// is written.
type Stopped = Arc<OnceLock<StoreError>>;

/// When a change is to be on disk.
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

/// The way to the writer thread.
pub(super) struct Writer {
    queue: mpsc::Sender<Command>,
    thread: JoinHandle<()>,
    /// For the appends in the queue.
    room: Room,
    stopped: Stopped,
    /// What of the log is not indexed yet, for readers.
    pub unindexed: Arc<Unindexed>,
}

impl Writer {
    pub fn start(
        connection: Connection,
        clock: Clock,
        window_events: u64,
        lock: Option<Lock>,
        wal: Option<WalWatch>,
    ) -> Result<Self, StoreError> {
        let (queue, commands) = mpsc::channel();
        let unindexed =
            Arc::new(Unindexed::after(objects::indexed_to(&connection).map_err(error::of_write)?, window_events));
        let heads = Heads::new(unindexed.clone());
        let stopped = Stopped::default();
        let mut writing = Writing {
            connection,
            clock,
            heads,
            unindexed: unindexed.clone(),
            stopped: stopped.clone(),
            wal,
            replier: Replier::start(),
            _lock: lock,
        };
        writing.take_in()?;
        let thread = std::thread::Builder::new()
            .name("ensue-writer".into())
            .spawn(move || run(writing, &commands))
            .map_err(|error| StoreError::Engine(format!("cannot start the writer thread: {error}")))?;
        Ok(Self { queue, thread, room: Room::default(), stopped, unindexed })
    }

    pub async fn append(&self, entries: Vec<Entry>) -> Answer {
        let taken = self.room.take(&entries).await;
        let (reply, answer) = oneshot::channel();
        let batch = Batch::new(entries, taken);
        self.send(Command::Append(Caller { batch, reply }))?;
        answer.await.map_err(|_| self.unanswered())?
    }

    /// Runs work on the writer's connection.
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

    /// Would it write? Asks nothing of the disk, and waits for nobody's turn.
    pub fn ready(&self) -> Result<(), StoreError> {
        match self.stopped.get() {
            Some(stopped) => Err(stopped.clone()),
            None if self.thread.is_finished() => Err(StoreError::Closed),
            None => Ok(()),
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
    /// None for a store in memory.
    wal: Option<WalWatch>,
    replier: Replier,
    /// Held until the connection is closed.
    _lock: Option<Lock>,
}

fn run(mut writing: Writing, commands: &mpsc::Receiver<Command>) {
    let mut waiting: VecDeque<Command> = VecDeque::new();
    loop {
        if waiting.is_empty() {
            match commands.recv() {
                Ok(command) => waiting.push_back(command),
                Err(_every_handle_is_gone) => return,
            }
        }
        waiting.extend(commands.try_iter());
        match waiting.pop_front() {
            Some(Command::Append(caller)) => {
                let gathered = gather(caller, &mut waiting);
                if !gathered.is_empty() {
                    writing.append(gathered);
                }
            }
            Some(Command::Run(work)) => work(&mut writing),
            Some(Command::Turn { granted, over }) => {
                stand_aside(granted, &over);
                if let Err(error) = writing.take_in() {
                    tracing::warn!(%error, "what was written on another connection is seen with the next append");
                }
            }
            Some(Command::Close(reply)) => {
                // Before the answer: nobody finds it ready after that.
                let _stopped_before = writing.stopped.set(StoreError::Closed);
                drop(writing);
                let _waiting = reply.send(());
                return;
            }
            None => {}
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

    /// One commit for all callers. If it fails, nothing of it is stored, and where one caller may be the cause each
    /// is tried alone.
    fn append(&mut self, callers: Vec<Caller>) {
        let began = Instant::now();
        let (batches, replies): (Vec<_>, Vec<_>) = callers.into_iter().map(|c| (c.batch, c.reply)).unzip();
        let answers = match self.commit(&batches) {
            Ok(answers) => answers,
            Err(StoreError::Engine(_)) if batches.len() > 1 => {
                let alone = |batch| self.commit(std::slice::from_ref(batch)).and_then(|mut answers| answers.remove(0));
                batches.iter().map(alone).collect()
            }
            Err(error) => vec![Err(error); replies.len()],
        };
        let is_logged = |answer: &&Appended| answer.seq.is_some() && !answer.repeated;
        let events = answers.iter().flatten().flatten().filter(is_logged).count();
        metrics::counter!("ensue_append_events_total", "engine" => "sqlite").increment(events as u64);
        metrics::histogram!("ensue_append_batch_events", "engine" => "sqlite").record(events as f64);
        metrics::histogram!("ensue_append_seconds", "engine" => "sqlite").record(began.elapsed().as_secs_f64());
        self.replier.reply(replies.into_iter().zip(answers).collect());
    }

    /// Appends the callers' batches in one transaction. An error of one plan is that caller's; an error of the
    /// transaction is everybody's.
    fn commit(&mut self, batches: &[Batch]) -> Result<Vec<Answer>, StoreError> {
        self.change(|changing| {
            let (first, mut tail) = changing.sql(read::ends)?;
            let clock = changing.clock();
            let mut answers = Vec::with_capacity(batches.len());
            for Batch { entries, .. } in batches {
                let Changing { writing } = changing;
                match append::append_at(&writing.connection, &mut writing.heads, clock, first, tail, entries) {
                    Ok((appended, moved)) => {
                        tail = moved;
                        answers.push(Ok(appended));
                    }
                    Err(error) if append::is_refusal(&error) => answers.push(Err(error)),
                    Err(error) => return Err(error),
                }
            }
            Ok(answers)
        })
    }

    /// Makes a change as [`Self::change`] does, and says when it is to be on disk.
    pub fn change_with<T>(
        &mut self,
        sync: Sync,
        work: impl FnOnce(&mut Changing<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match sync {
            Sync::Now => self.change(work),
            Sync::Later => {
                self.set_sync("NORMAL")?;
                let result = self.change(work);
                // Without it nothing could be promised any more.
                self.set_sync("FULL").inspect_err(|error| self.stop(error.clone()))?;
                result
            }
        }
    }

    fn set_sync(&self, word: &str) -> Result<(), StoreError> {
        self.connection.pragma_update(None, "synchronous", word).map_err(error::of_write)
    }

    /// Makes a change in one transaction: all of it on disk, or nothing.
    pub fn change<T>(
        &mut self,
        work: impl FnOnce(&mut Changing<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if let Some(stopped) = self.stopped.get() {
            return Err(stopped.clone());
        }
        let result = self.in_transaction(work);
        if let Err(error) = &result {
            self.roll_back();
            if let StoreError::Stopped(_) = error {
                self.stop(error.clone());
            }
        }
        result
    }

    fn in_transaction<T>(
        &mut self,
        work: impl FnOnce(&mut Changing<'_>) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.begin()?;
        let value = work(&mut Changing { writing: self })?;
        commit::commit(&self.connection)?;
        self.heads.committed();
        if let Some(wal) = &mut self.wal {
            wal.committed();
        }
        Ok(value)
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
        let written =
            self.change(|changing| changing.sql(|connection| chunk.write(connection, read::bounds(connection)?.first)));
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
}
