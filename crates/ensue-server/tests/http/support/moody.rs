//! How does a server behave when its store does not?

#[path = "moody_jobs.rs"]
mod jobs;
#[path = "moody_positions.rs"]
mod positions;

use async_trait::async_trait;
use ensue::{
    Appended, Bounds, Cancelled, Event, EventId, Found, ObjectKey, Page, Pending, Read, Seq, SharedStore, Store,
    StoreError, Timestamp, Work,
};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// What happens to calls of the store.
#[derive(Clone, Default)]
pub enum Mood {
    #[default]
    Well,
    Fails(StoreError),
    /// Only calls of one kind of work fail.
    WorkFails(Work, StoreError),
    Panics,
    Hangs,
}

/// A store that fails when told to, and counts what is read of it.
pub struct Moody {
    store: SharedStore,
    mood: Arc<Mutex<Mood>>,
    /// How many events were read.
    pub events_read: Arc<AtomicUsize>,
}

impl Moody {
    pub fn new(store: SharedStore, mood: Arc<Mutex<Mood>>) -> Self {
        Self { store, mood, events_read: Arc::default() }
    }

    async fn store_for(&self, work: Work) -> Result<&SharedStore, StoreError> {
        match self.mood.lock().unwrap().clone() {
            Mood::WorkFails(failing, error) if failing == work => return Err(error),
            _ => {}
        }
        self.store().await
    }

    async fn store(&self) -> Result<&SharedStore, StoreError> {
        let mood = self.mood.lock().unwrap().clone();
        match mood {
            Mood::Well | Mood::WorkFails(..) => Ok(&self.store),
            Mood::Fails(error) => Err(error),
            Mood::Panics => panic!("told to panic"),
            Mood::Hangs => std::future::pending().await,
        }
    }
}

#[async_trait]
impl Store for Moody {
    fn engine(&self) -> &'static str {
        "moody"
    }
    async fn store_key(&self) -> Result<ensue::store_key::StoreKey, StoreError> {
        self.store().await?.store_key().await
    }
    async fn append(&self, batch: Vec<ensue::event::Entry>) -> Result<Vec<Appended>, StoreError> {
        self.store_for(Work::Publish).await?.append(batch).await
    }
    async fn release_due(&self, limit: usize) -> Result<ensue::store::Released, StoreError> {
        self.store_for(Work::Release).await?.release_due(limit).await
    }
    async fn read(&self, read: Read) -> Result<Page, StoreError> {
        let page = self.store_for(Work::Read).await?.read(read).await?;
        self.events_read.fetch_add(page.events.len(), Ordering::Relaxed);
        Ok(page)
    }
    async fn chain(&self, object: &ObjectKey, before: Option<Seq>, limit: usize) -> Result<Vec<Event>, StoreError> {
        self.store().await?.chain(object, before, limit).await
    }
    async fn event(&self, seq: Seq) -> Result<Option<Event>, StoreError> {
        self.store().await?.event(seq).await
    }
    async fn find(&self, id: EventId) -> Result<Option<Found>, StoreError> {
        self.store().await?.find(id).await
    }
    async fn pending(&self, limit: usize) -> Result<Vec<Pending>, StoreError> {
        self.store().await?.pending(limit).await
    }
    async fn pending_count(&self) -> Result<u64, StoreError> {
        self.store().await?.pending_count().await
    }
    async fn cancel(&self, id: EventId) -> Result<Cancelled, StoreError> {
        self.store().await?.cancel(id).await
    }
    async fn bounds(&self) -> Result<Bounds, StoreError> {
        self.store().await?.bounds().await
    }
    async fn seq_before(&self, time: Timestamp) -> Result<Seq, StoreError> {
        self.store().await?.seq_before(time).await
    }
    async fn bytes(&self) -> Result<u64, StoreError> {
        self.store().await?.bytes().await
    }
    async fn trim(&self, keep_from: Seq, limit: usize) -> Result<Bounds, StoreError> {
        self.store().await?.trim(keep_from, limit).await
    }
    async fn purge_keys(&self, limit: usize) -> Result<usize, StoreError> {
        self.store().await?.purge_keys(limit).await
    }
    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.store().await?.now().await
    }
    async fn ready(&self) -> Result<(), StoreError> {
        self.store().await?.ready().await
    }
    async fn close(&self) {
        self.store.close().await;
    }
}
