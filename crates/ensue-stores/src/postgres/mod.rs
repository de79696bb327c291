//! The log on Postgres 14 or newer: many processes and machines may share it.
//!
//! | question | file |
//! |---|---|
//! | How should the log be kept? | [`options`] |
//! | What does a URL ask for? | `url` |
//! | Is the server who it says it is? | `tls` |
//! | How is the server reached, again and again? | `server` |
//! | Is a session ours alone, or does a pooler give it to others? | `pooling` |
//! | How is a statement asked, in a session of ours and behind a pooler? | `asking` |
//! | How long, and how often, is a server that is away tried again? | `patience` |
//! | How long do we wait for an answer? | `connection` |
//! | Is the server still at work on a statement? | `silence` |
//! | Who carries a connection's bytes? | `carrier` |
//! | How often is it said that the server is away? | `outage` |
//! | How does what we store become part of somebody's own transaction? | [`own`] |
//! | What does a failure mean to the caller? | `error` |
//! | Is the schema the one this program knows? | `migrate` |
//! | Another program has changed it: may this one go on? | `beside` |
//! | How is it brought up to date by hand? | `upgrade` |
//! | Is everything in it as this program has it? | `drift` |
//! | Which SQL runs in this schema? | `schema`, and `sql/` with one statement or function a file |
//! | Which bounds and words of the core does the SQL have in it? | `words` |
//! | How do our values travel? | `types` |
//! | What of an id is stored? | `id_parts` |
//! | Who writes the log? | `writer` |
//! | What do many callers' entries look like to the append function? | `batch` |
//! | Which key is it that refuses a batch? | `keys` |
//! | Which event of an object came last, as far as we have seen? | `heads` |
//! | The connection was lost: was the batch stored? | `doubt` |
//! | Who wants to see what we append? | `following` |
//! | Is there room for the next events, and what can go? | `partitions` |
//! | What waits is to come into the log: who moves it? | `moving` |
//! | What is in the log? | `read` |
//! | What is due, and what may be forgotten? | `upkeep` |
//! | Who has done what? | `positions`, with its SQL in `positions_sql` |
//! | Which groups are there, and where do they stand? | `groups` |
//! | What do the groups want? | `subscriptions` |
//! | Who has which slot? | `slots` |
//! | What do owners write about their slots? | `settle`; its arrays are in `settle_columns`, its events in `settle_events` |
//! | What is kept of objects that stand still? | `lanes` |
//! | Which events live on for them when the log forgets? | `parked` |
//! | What became of deliveries, and what did they say? | `deliveries` |
//! | Which handlers does the store itself keep? | `definitions` |
//! | How are jobs kept? | `jobs` |
//! | Who may not run now? | `rules` |
//! | Which schedules are there, and what became of their occurrences? | `schedules` |
//! | From where on is looked for schedules that are due? | `schedules_from` |
//!
//! The way of an append: [`Store::append`] → `batch::Call` → `writer` (gathers) → `batch::Columns` → `sql/fn_append.sql`
//! (numbers, chains, stores) → `batch::Outcome` → the caller.

mod asking;
mod batch;
mod bell;
mod beside;
mod carrier;
mod connection;
mod definitions;
mod deliveries;
mod doubt;
mod drift;
mod error;
mod following;
mod groups;
mod heads;
mod id_parts;
mod jobs;
mod keys;
mod lanes;
mod migrate;
mod migrations;
mod moving;
pub mod options;
mod outage;
pub mod own;
mod parked;
mod partitions;
mod patience;
mod pooling;
mod positions;
mod positions_sql;
mod read;
mod rules;
mod schedules;
mod schedules_from;
mod schema;
mod server;
mod settle;
mod settle_columns;
mod settle_events;
mod silence;
mod slots;
mod subscriptions;
mod tls;
mod types;
mod upgrade;
mod upkeep;
mod url;
mod words;
mod writer;

pub use drift::Drift;
pub use options::{CONNECTIONS_MIN, PostgresOptions};
pub use own::PostgresTransaction;
pub use server::LockHolder;
#[cfg(feature = "sqlx")]
pub use sqlx;
pub use upgrade::Upgrade;
pub use {deadpool_postgres, tokio_postgres};

use crate::clock::Clock;
use crate::room::Room;
use async_trait::async_trait;
use batch::Call;
use bell::Bell;
use ensue_core::event::whole_microseconds;
use ensue_core::follow::Follower;
use ensue_core::retention::Bounds;
use ensue_core::store::{Cancelled, Page, Pulse, Read, Released, Wake};
use ensue_core::{
    Appended, Entry, Event, EventId, Found, ObjectKey, Pending, Seq, Store, StoreError, StoreKey, Timestamp, plan,
};
use following::Following;
use jiff::SignedDuration;
use moving::Moving;
use partitions::Partitions;
use schedules_from::SchedulesFrom;
use schema::{Schema, Sql};
use server::Server;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tokio::sync::{OnceCell, mpsc};
use tokio::task::JoinHandle;
use types::Micros;
use uuid::Uuid;
use writer::{QUEUE_MAX, Writer};

/// A log in a schema of a Postgres database.
pub struct PostgresStore {
    server: Arc<Server>,
    /// Its name.
    schema: String,
    sql: Arc<Sql>,
    clock: Option<Clock>,
    /// Read once.
    key: OnceCell<StoreKey>,
    read_only: bool,
    partitions: Arc<Partitions>,
    moving: Arc<Moving>,
    /// The newest place that anybody here has seen: only a hint, which saves looking into old partitions.
    last: Arc<AtomicU64>,
    following: Arc<Following>,
    /// For the calls in the writer's queue.
    room: Room,
    bell: Arc<Bell>,
    /// From where on claims look for jobs.
    looks: Arc<jobs::Looks>,
    /// Where the rows of jobs are that were claimed.
    places: Arc<jobs::Places>,
    /// What is sent to handlers, many callers' in one commit.
    sending: Arc<jobs::Together<jobs::Sending>>,
    /// What is claimed, many callers' in one commit.
    claiming: Arc<jobs::Together<jobs::Claiming>>,
    /// What has succeeded, many callers' in one commit.
    succeeding: Arc<jobs::Together<jobs::Succeeding>>,
    /// From where on is looked for schedules that are due.
    schedules_from: SchedulesFrom,
    writer: Mutex<Option<WriterTask>>,
}

/// The task that writes, and the way to it.
struct WriterTask {
    queue: mpsc::Sender<Call>,
    task: JoinHandle<()>,
}

/// Is this a URL that [`PostgresStore::open`] would try? Nothing is connected to.
pub fn check_url(url: &str) -> Result<(), StoreError> {
    url::parse(url, PostgresOptions::default().unavailable_after).map(drop)
}

impl PostgresStore {
    /// Opens the log at `postgres://USER:PASSWORD@HOST:PORT/DATABASE[?schema=ensue]`. The schema and all in it are made
    /// if they are not there, unless it is opened `read_only`. A pooler in transaction mode in between is noticed; `pooler=transaction`
    /// or `pooler=none` says it instead.
    pub async fn open(url: &str, options: PostgresOptions) -> Result<Self, StoreError> {
        let target = url::parse(url, options.unavailable_after)?;
        let server = Arc::new(Server::reach(&target, &options).await?);
        let schema = Schema::new(target.schema);
        migrate::migrate(&server, &schema, options.read_only).await?;
        server.beside.watch(&schema);
        let sql = Arc::new(Sql::of(&schema));
        let _set_once = server.lock_holders.set(sql.lock_holders.clone());
        let rows = options.partition_rows.or(target.partition_rows);
        let partitions = Arc::new(Partitions::new(server.clone(), sql.clone(), rows));
        let bell = Arc::new(Bell::new(server.clone(), &schema));
        let (last, following) = (Arc::new(AtomicU64::new(0)), Arc::new(Following::default()));
        let (read_only, clock) = (options.read_only, options.clock);
        let moving = Arc::new(Moving {
            server: server.clone(),
            sql: sql.clone(),
            clock: clock.clone(),
            partitions: partitions.clone(),
            last: last.clone(),
        });
        let writer = if read_only {
            None
        } else {
            partitions.ensure().await?;
            let writer = Writer::new(moving.clone(), following.clone(), bell.clone());
            let (queue, calls) = mpsc::channel(QUEUE_MAX);
            Some(WriterTask { queue, task: tokio::spawn(writer.run(calls)) })
        };
        let (room, looks, places) =
            (Room::default(), Arc::new(jobs::Looks::default()), Arc::new(jobs::Places::default()));
        let sending = jobs::Together::new(jobs::Sending { moving: moving.clone(), bell: bell.clone() });
        let claiming = jobs::Claiming { moving: moving.clone(), looks: looks.clone(), places: places.clone() };
        let claiming = jobs::Together::new(claiming);
        let succeeding = jobs::Together::new(jobs::Succeeding { moving: moving.clone() });
        let writer = Mutex::new(writer);
        let (schema, schedules_from) = (schema.name, SchedulesFrom::default());
        Ok(Self {
            server,
            schema,
            sql,
            clock,
            key: OnceCell::new(),
            read_only,
            partitions,
            moving,
            last,
            following,
            room,
            bell,
            looks,
            places,
            sending,
            claiming,
            succeeding,
            schedules_from,
            writer,
        })
    }

    /// What the server says of itself, over a connection like all others: for `doctor`.
    pub async fn settings(&self) -> Result<ServerSettings, StoreError> {
        let ask = "SELECT current_setting('server_version'), current_setting('fsync') = 'on'";
        let row = self.server.query_one(ask, &[]).await?;
        Ok(ServerSettings { version: row.get(0), fsync: row.get(1) })
    }

    /// Holders of Ensue's locks, those with most waiting sessions first.
    pub async fn lock_holders(&self) -> Result<Vec<LockHolder>, StoreError> {
        self.server.lock_holders().await
    }

    /// The name of its schema.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// The time of the injected clock; the server's own is null.
    fn clock_time(&self) -> Option<Micros> {
        self.moving.clock_time()
    }

    /// May this store be changed by us?
    fn check_writable(&self) -> Result<(), StoreError> {
        self.server.beside.check()?;
        if self.read_only {
            return Err(StoreError::Unsupported("the store was opened to be read only; open it for writing".into()));
        }
        Ok(())
    }

    fn queue(&self) -> Result<mpsc::Sender<Call>, StoreError> {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        writer.as_ref().map(|writer| writer.queue.clone()).ok_or(StoreError::Closed)
    }

    /// A row that does not have what it should have.
    fn misread(&self, error: tokio_postgres::Error) -> StoreError {
        error::explain(&error.into(), &self.server.place)
    }
}

/// What a Postgres server says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSettings {
    /// Such as `15.18`.
    pub version: String,
    /// Without it a crash of the server's machine may lose what was acknowledged.
    pub fsync: bool,
}

#[async_trait]
impl Store for PostgresStore {
    fn wake(&self) -> Option<Arc<dyn Wake>> {
        Some(self.bell.clone())
    }

    fn engine(&self) -> &'static str {
        "postgres"
    }

    async fn store_key(&self) -> Result<StoreKey, StoreError> {
        let read = async || {
            let row = self.server.query_one(&self.sql.store_key, &[]).await?;
            let damaged = || StoreError::Schema(format!("the key of the schema {} is damaged", self.schema));
            StoreKey::stored(row.get::<_, &[u8]>(0)).ok_or_else(damaged)
        };
        self.key.get_or_try_init(read).await.cloned()
    }

    async fn append(&self, batch: Vec<Entry>) -> Result<Vec<Appended>, StoreError> {
        plan::check_not_empty(&batch)?;
        self.check_writable()?;
        let queue = self.queue()?;
        if plan::check_keys_within(&batch).is_err() {
            return Err(self.first_conflict(&batch).await?);
        }
        let queued_at = Instant::now();
        let taken = self.room.take(&batch).await;
        let (call, reply) = Call::new(batch, queued_at, taken);
        queue.send(call).await.map_err(|_| StoreError::Closed)?;
        drop(queue);
        // A store that is closed still answers all that entered the queue.
        let panicked = |_| Err(StoreError::InDoubt("the task that writes has ended; open the store again".into()));
        reply.await.unwrap_or_else(panicked)
    }

    async fn release_due(&self, limit: usize) -> Result<Released, StoreError> {
        self.check_writable()?;
        self.release(limit).await
    }

    async fn read(&self, read: Read) -> Result<Page, StoreError> {
        self.read_page(read).await
    }

    async fn chain(&self, object: &ObjectKey, before: Option<Seq>, limit: usize) -> Result<Vec<Event>, StoreError> {
        self.read_chain(object, before, limit).await
    }

    async fn event(&self, seq: Seq) -> Result<Option<Event>, StoreError> {
        self.read_event(seq).await
    }

    async fn find(&self, id: EventId) -> Result<Option<Found>, StoreError> {
        self.find_event(id).await
    }

    async fn pending(&self, limit: usize) -> Result<Vec<Pending>, StoreError> {
        self.read_pending(limit).await
    }

    async fn pending_count(&self) -> Result<u64, StoreError> {
        self.count_pending().await
    }

    async fn outbox_rejected(&self) -> Result<u64, StoreError> {
        let row = self.server.query_one(&self.sql.outbox_rejected, &[]).await?;
        Ok(row.get::<_, i64>(0) as u64)
    }

    async fn cancel(&self, id: EventId) -> Result<Cancelled, StoreError> {
        self.check_writable()?;
        self.cancel_delayed(id).await
    }

    async fn bounds(&self) -> Result<Bounds, StoreError> {
        self.bounds_now().await
    }

    async fn seq_before(&self, time: Timestamp) -> Result<Seq, StoreError> {
        self.find_seq_before(time).await
    }

    async fn bytes(&self) -> Result<u64, StoreError> {
        self.estimate_bytes().await
    }

    async fn retention_age(&self) -> Result<Option<SignedDuration>, StoreError> {
        self.age_set().await
    }

    async fn trim(&self, keep_from: Seq, limit: usize) -> Result<Bounds, StoreError> {
        self.check_writable()?;
        self.forget(keep_from, limit).await
    }

    async fn maintain(&self, forgets: bool) -> Result<(), StoreError> {
        self.check_writable()?;
        self.partitions.maintain(forgets).await
    }

    async fn purge_keys(&self, limit: usize) -> Result<usize, StoreError> {
        self.check_writable()?;
        self.forget_keys(limit).await
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        match &self.clock {
            Some(clock) => Ok(whole_microseconds(clock())),
            None => Ok(self.server.query_one("SELECT clock_timestamp()", &[]).await?.get::<_, Micros>(0).0),
        }
    }

    fn follow(&self, follower: Arc<dyn Follower>) {
        self.following.set(follower);
    }

    fn session(&self) -> u64 {
        self.following.session()
    }

    async fn pulse(&self, lease: Option<(Uuid, SignedDuration)>) -> Result<Pulse, StoreError> {
        if lease.is_some() {
            self.check_writable()?;
        }
        self.feel_pulse(lease).await
    }

    async fn ready(&self) -> Result<(), StoreError> {
        if !self.read_only && self.queue()?.is_closed() {
            return Err(StoreError::Closed);
        }
        self.bounds_now().await.map(|_| ())
    }

    async fn close(&self) {
        let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(WriterTask { queue, task }) = writer {
            drop(queue);
            if let Err(error) = task.await {
                tracing::error!(%error, "the task that writes to Postgres has failed");
            }
        }
        self.server.close();
    }
}
