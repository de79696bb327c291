//! The embedded engine: one SQLite file, one writer thread, nothing else to run.
//!
//! | question | file |
//! |---|---|
//! | Who writes? | `writer.rs` |
//! | How do many calls share one commit? | `change.rs` |
//! | What waits for the writer, and how much of it goes into one commit? | `queue.rs` |
//! | How do the callers of one commit get their answers? | `replier.rs` |
//! | How is a planned append carried out? | `append.rs` |
//! | Which event of an object is the newest? | `heads.rs` |
//! | What becomes of a commit that SQLite could not finish? | `commit.rs` |
//! | How do user statements and publishes become one commit? | `transaction.rs` |
//! | How is the log read without holding up the writer? | `read.rs`, `readers.rs` |
//! | Which events does an object have? | `objects.rs` |
//! | Where do delayed events wait? | `delayed.rs` |
//! | How is the old end of the log forgotten? | `trim.rs` |
//! | How does the embedded store keep positions? | `positions.rs` |
//! | Which groups are there, and where do they stand? | `groups.rs` |
//! | What do the groups want? | `subscriptions.rs` |
//! | Who has which slot? | `slots.rs` |
//! | How do owners write what is done? | `settle.rs` |
//! | Which objects stand still? | `lanes.rs` |
//! | Which events live on for them when the log forgets? | `parked.rs` |
//! | What became of deliveries, and what did they say? | `deliveries.rs` |
//! | Which handlers does the store itself keep? | `definitions.rs` |
//! | How does the embedded store keep jobs? | `jobs/` |
//! | Who may not run now? | `rules.rs` |
//! | Which schedules are there, and what became of their occurrences? | `schedules.rs` |
//! | How is the file opened? | `connect.rs` |
//! | What do the tables look like? | `schema.rs` |
//! | Which process may write to the file? | `lock.rs`, `identity.rs` |
//! | How does the write-ahead log get into the database? | `wal.rs` |
//! | What does the disk refuse now? | `disk_faults.rs` |
//! | What does an error of SQLite mean for us? | `error.rs` |

mod append;
mod change;
mod commit;
mod connect;
mod definitions;
mod delayed;
mod deliveries;
mod disk_faults;
mod error;
mod groups;
mod heads;
#[cfg(unix)]
mod identity;
mod jobs;
mod lanes;
mod lock;
mod objects;
mod parked;
mod positions;
mod queue;
mod read;
mod readers;
mod replier;
mod rules;
mod schedules;
mod schema;
mod serving;
mod settle;
mod slots;
mod subscriptions;
mod transaction;
mod trim;
mod wal;
mod writer;

pub use rusqlite;
pub use transaction::{OwnTransaction, Transaction, TransactionError, WriteTicket};

use crate::clock::{self, Clock};
use async_trait::async_trait;
use ensue_core::retention::Bounds;
use ensue_core::store::{Cancelled, Page, Read, Released};
use ensue_core::{
    Appended, Entry, Event, EventId, Found, ObjectKey, Pending, Seq, Store, StoreError, StoreKey, Timestamp,
};
use objects::Recent;
use readers::Readers;
use std::path::{Path, PathBuf};
use tokio::sync::OnceCell;
use writer::{DatabaseFile, Writer};

/// How to open the embedded store.
#[derive(Clone, Default)]
pub struct SqliteOptions {
    /// Where to read the time; the machine's clock unless told.
    pub clock: Option<Clock>,
    /// Only look: takes no lock, changes nothing, works beside the process that writes.
    pub read_only: bool,
    /// How many events the index of objects may lag behind; 65,536 unless told.
    pub index_window_events: Option<u64>,
}

/// The embedded store.
pub struct SqliteStore {
    /// None for a store in memory.
    path: Option<PathBuf>,
    clock: Clock,
    /// None when opened to look only.
    writer: Option<Writer>,
    /// None for a store in memory, which is read on its writer's connection.
    readers: Option<Readers>,
    /// Read once.
    key: OnceCell<StoreKey>,
}

impl SqliteStore {
    /// Opens the store in this file, making it if it is not there; `:memory:` for one that lives as long as the
    /// process.
    pub async fn open(path: &str, options: SqliteOptions) -> Result<Self, StoreError> {
        let path = path.to_owned();
        tokio::task::spawn_blocking(move || Self::open_blocking(&path, options))
            .await
            .map_err(|error| StoreError::Engine(format!("opening the store was interrupted: {error}")))?
    }

    fn open_blocking(path: &str, options: SqliteOptions) -> Result<Self, StoreError> {
        connect::check_library_version()?;
        let clock = options.clock.unwrap_or_else(clock::system);
        let window_events = options.index_window_events.unwrap_or(objects::WINDOW_EVENTS);
        if path == ":memory:" {
            if options.read_only {
                return Err(StoreError::Unsupported("a store in memory cannot be opened to look only".into()));
            }
            let mut connection = connect::connect_memory()?;
            schema::migrate(&mut connection)?;
            let writer = Writer::start(connection, clock.clone(), window_events, None)?;
            return Ok(Self { path: None, clock, writer: Some(writer), readers: None, key: OnceCell::new() });
        }
        let path = lock::absolute(Path::new(path))?;
        let writer = if options.read_only {
            schema::check_readable(&path)?;
            None
        } else {
            let lock = lock::Lock::take(&path)?;
            let mut connection = connect::connect_writer(&path)?;
            schema::migrate(&mut connection)?;
            let file = DatabaseFile { path: path.clone(), lock };
            Some(Writer::start(connection, clock.clone(), window_events, Some(file))?)
        };
        let readers = Some(Readers::new(path.clone()));
        Ok(Self { path: Some(path), clock, writer, readers, key: OnceCell::new() })
    }

    /// The process that has the file open for writing, if any: for `doctor`.
    pub fn lock_holder(path: &str) -> Result<Option<String>, StoreError> {
        lock::holder(&lock::absolute(Path::new(path))?)
    }

    /// The version of the schema in this file (0 if there is none), that of this program, and the SQL that leads from one to the
    /// other. Changes nothing: a store that is opened for writing runs it by itself.
    pub fn pending_upgrade(path: &str) -> Result<(usize, usize, String), StoreError> {
        schema::pending(&lock::absolute(Path::new(path))?)
    }

    /// Runs your statements and publishes as one commit on the writer's thread.
    pub async fn transaction<T, F>(&self, work: F) -> Result<(T, Vec<Appended>), TransactionError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Transaction<'_>) -> Result<T, TransactionError> + Send + 'static,
    {
        self.writer()?.run(move |writing| transaction::run(writing, work)).await?
    }

    /// A turn at the write lock for a connection of your own.
    pub async fn write_ticket(&self) -> Result<WriteTicket, StoreError> {
        let path = self.path.clone().ok_or_else(|| {
            StoreError::Unsupported("a store in memory has one connection only; use `transaction` instead".into())
        })?;
        let turn = self.writer()?.turn().await?;
        Ok(WriteTicket::new(turn, path, self.clock.clone(), self.writer()?.unindexed.clone()))
    }

    fn writer(&self) -> Result<&Writer, StoreError> {
        self.writer.as_ref().ok_or_else(|| {
            StoreError::Unsupported("the store was opened to look only; open it for writing to change it".into())
        })
    }

    /// What is not indexed of an object, as the writer knows it. To be taken before the look.
    fn recent(&self, object: &ObjectKey) -> Option<Recent> {
        self.writer.as_ref().map(|writer| writer.unindexed.of(object))
    }

    /// Looks at one snapshot of the store.
    async fn look<T, F>(&self, look: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&rusqlite::Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        match &self.readers {
            Some(readers) => readers.look(look).await,
            None => self.writer()?.run(move |writing| look(writing.connection()).map_err(error::of_read)).await?,
        }
    }
}

#[async_trait]
impl Store for SqliteStore {
    fn engine(&self) -> &'static str {
        "sqlite"
    }

    async fn store_key(&self) -> Result<StoreKey, StoreError> {
        let read = async || {
            let bytes: Vec<u8> = self
                .look(|connection| connection.query_row("SELECT key FROM ensue_store_key", [], |row| row.get(0)))
                .await?;
            StoreKey::stored(&bytes).ok_or_else(|| StoreError::Schema("the store's key is damaged".into()))
        };
        self.key.get_or_try_init(read).await.cloned()
    }

    async fn append(&self, batch: Vec<Entry>) -> Result<Vec<Appended>, StoreError> {
        ensue_core::plan::check_not_empty(&batch)?;
        self.writer()?.append(batch).await
    }

    async fn release_due(&self, limit: usize) -> Result<Released, StoreError> {
        let now = (self.clock)();
        // Looked at from a reader first: an idle system takes no write lock.
        let idle = self.look(move |connection| delayed::nothing_due(connection, now)).await?;
        match idle {
            Some(released) => Ok(released),
            None => self.change_alone(move |changing| delayed::release(changing, limit)).await,
        }
    }

    async fn read(&self, read: Read) -> Result<Page, StoreError> {
        let recent = read.filter.object.as_ref().and_then(|object| self.recent(object));
        let known_to = self.writer.as_ref().map_or(Seq::MAX, |writer| writer.unindexed.known_to());
        self.look(move |connection| read::page(connection, &read, recent, known_to)).await
    }

    async fn chain(&self, object: &ObjectKey, before: Option<Seq>, limit: usize) -> Result<Vec<Event>, StoreError> {
        let (recent, object) = (self.recent(object), object.clone());
        self.look(move |connection| read::chain(connection, &object, before, limit, recent)).await
    }

    async fn event(&self, seq: Seq) -> Result<Option<Event>, StoreError> {
        self.look(move |connection| read::event(connection, seq)).await
    }

    async fn find(&self, id: EventId) -> Result<Option<Found>, StoreError> {
        self.look(move |connection| read::find(connection, id)).await
    }

    async fn pending(&self, limit: usize) -> Result<Vec<Pending>, StoreError> {
        self.look(move |connection| delayed::pending(connection, limit)).await
    }

    async fn pending_count(&self) -> Result<u64, StoreError> {
        self.look(delayed::count).await
    }

    async fn cancel(&self, id: EventId) -> Result<Cancelled, StoreError> {
        self.change(move |changing| delayed::cancel(changing, id)).await
    }

    async fn bounds(&self) -> Result<Bounds, StoreError> {
        self.look(read::bounds).await
    }

    async fn seq_before(&self, time: Timestamp) -> Result<Seq, StoreError> {
        self.look(move |connection| read::seq_before(connection, time)).await
    }

    async fn bytes(&self) -> Result<u64, StoreError> {
        self.look(read::bytes).await
    }

    async fn trim(&self, keep_from: Seq, limit: usize) -> Result<Bounds, StoreError> {
        self.change_alone(move |changing| trim::trim(changing, keep_from, limit)).await
    }

    async fn purge_keys(&self, limit: usize) -> Result<usize, StoreError> {
        self.change_alone(move |changing| trim::purge_keys(changing, limit)).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        Ok((self.clock)())
    }

    async fn ready(&self) -> Result<(), StoreError> {
        self.writer.as_ref().map_or(Ok(()), Writer::ready)?;
        match &self.readers {
            Some(readers) => readers.look(read::bounds).await.map(|_| ()),
            None => Ok(()),
        }
    }

    async fn close(&self) {
        if let Some(readers) = &self.readers {
            readers.close();
        }
        if let Some(writer) = &self.writer {
            writer.close().await;
        }
    }
}
