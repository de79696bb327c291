//! How do I open, publish and stream?

use crate::error::Error;
use crate::open::{self, Opened, Options};
use crate::stream::{self, EventStream};
use crate::subscription::Subscription;
use crate::tail::Tail;
use crate::upkeep::Running;
use ensue_core::store::SharedStore;
use ensue_core::{Appended, NewEvent, Seq, Store};
use std::sync::Arc;
use tokio::sync::{Notify, watch};

/// A log of events and everything that follows from it. Cheap to clone: all clones are the same bus.
#[derive(Clone)]
pub struct Ensue {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub opened: Opened,
    pub options: Options,
    /// The newest `seq` this process has written: a doorbell for the tail. A lost ring costs latency, never an event.
    pub bell: watch::Sender<Seq>,
    /// Rung when an event was delayed, which may be due before the one the timer waits for.
    pub delayed: Notify,
    pub tail: Arc<Tail>,
}

impl Ensue {
    /// Opens a store by its address: a path or `sqlite:PATH`, `sqlite::memory:`, or `postgres://…[?schema=ensue]`
    /// (feature `postgres`). It is made if it is not there.
    pub async fn open(url: &str) -> Result<Self, Error> {
        Self::open_with(url, Options::default()).await
    }

    /// Opens a store with options.
    pub async fn open_with(url: &str, options: Options) -> Result<Self, Error> {
        Ok(Self::new(open::open(url, &options).await?, options))
    }

    /// A bus whose events live as long as the process.
    #[cfg(feature = "sqlite")]
    pub async fn memory() -> Result<Self, Error> {
        Self::open("sqlite::memory:").await
    }

    /// A bus on an engine of one's own.
    pub fn with_store(store: impl Store) -> Self {
        let opened = Opened {
            store: Arc::new(store),
            #[cfg(feature = "sqlite")]
            sqlite: None,
        };
        Self::new(opened, Options::default())
    }

    /// A bus on the embedded engine, transactions included.
    #[cfg(feature = "sqlite")]
    pub(crate) fn with_sqlite(store: ensue_stores::sqlite::SqliteStore) -> Self {
        let store = Arc::new(store);
        Self::new(Opened { store: store.clone(), sqlite: Some(store) }, Options::default())
    }

    fn new(opened: Opened, options: Options) -> Self {
        let bell = watch::Sender::new(0);
        let tail = Arc::new(Tail::new(opened.store.clone(), bell.subscribe()));
        Self { inner: Arc::new(Inner { opened, options, bell, delayed: Notify::new(), tail }) }
    }

    /// Publishes one event: answered when it is on disk.
    pub async fn publish(&self, event: NewEvent) -> Result<Appended, Error> {
        let entry = event.check()?;
        Ok(self.append(vec![entry]).await?[0])
    }

    /// Publishes several events at once, all or none, with consecutive `seq`s.
    pub async fn publish_all(&self, events: Vec<NewEvent>) -> Result<Vec<Appended>, Error> {
        self.append(NewEvent::check_all(events)?).await
    }

    async fn append(&self, entries: Vec<ensue_core::Entry>) -> Result<Vec<Appended>, Error> {
        let answers = self.inner.opened.store.append(entries).await?;
        self.inner.announce(&answers);
        Ok(answers)
    }

    /// The engine, with every verb of the port: reading, finding, cancelling, trimming.
    pub fn store(&self) -> &SharedStore {
        &self.inner.opened.store
    }

    /// Follows the log: history first if asked for, then live, without a gap or a double. Fire and forget: nothing
    /// is remembered of who has read what.
    pub async fn stream(&self, subscription: Subscription) -> Result<EventStream, Error> {
        let (filter, start) = subscription.check()?;
        Ok(stream::open(self.store().clone(), self.inner.tail.clone(), filter, start).await?)
    }

    /// Starts the loops that let delayed events in when they are due and old ones go. One process that serves a store
    /// runs them; a process that only publishes or reads need not.
    pub async fn start(&self) -> Result<Running, Error> {
        self.store().bounds().await?;
        Ok(Running::start(self.clone()))
    }

    /// Finishes what was accepted and lets go of the store.
    pub async fn close(&self) {
        self.store().close().await;
    }

    pub(crate) fn inner(&self) -> &Inner {
        &self.inner
    }
}

impl Inner {
    /// Wakes who waits for these events.
    pub fn announce(&self, answers: &[Appended]) {
        if let Some(last) = answers.iter().filter_map(|answer| answer.seq).max() {
            self.ring(last);
        }
        if answers.iter().any(|answer| answer.seq.is_none()) {
            self.delayed.notify_one();
        }
    }

    /// Wakes the tail.
    pub fn ring(&self, last: Seq) {
        self.bell.send_replace(last);
    }
}
