//! How does one reader serve every stream?
//!
//! However many streams a process serves, the log is read once: a task reads page after page and hands each page to
//! all streams. It runs only while somebody listens. A stream that cannot keep up loses its place in the hand-out and
//! reads the store itself until it has caught up.

use ensue_core::store::{Read, SharedStore};
use ensue_core::{Event, Filter, Seq, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, broadcast, watch};

/// How many events the tail reads at once.
const PAGE_EVENTS: usize = 256;
/// How many pages a stream may lag behind before it has to read the store itself.
const PAGES_BEHIND_MAX: usize = 16;
/// How often the log is looked at without a ring: other processes may write to it.
const POLL: Duration = Duration::from_secs(1);

/// Consecutive events: all that the log has after `after` up to `next`.
#[derive(Debug)]
pub(crate) struct Chunk {
    pub after: Seq,
    pub events: Vec<Arc<Event>>,
    pub next: Seq,
}

pub(crate) struct Tail {
    store: SharedStore,
    bell: watch::Receiver<Seq>,
    /// The hand-out of the running task; none while nobody listens. The task ends only under this lock, so a
    /// listener that finds it here is served.
    running: Mutex<Option<broadcast::Sender<Arc<Chunk>>>>,
}

impl Tail {
    pub fn new(store: SharedStore, bell: watch::Receiver<Seq>) -> Self {
        Self { store, bell, running: Mutex::new(None) }
    }

    /// Listens to everything that enters the log from now on. What was there before the call is the caller's to read
    /// from the store, after the call: then nothing falls between.
    pub async fn listen(self: &Arc<Self>) -> Result<broadcast::Receiver<Arc<Chunk>>, StoreError> {
        let mut running = self.running.lock().await;
        if let Some(handout) = &*running {
            return Ok(handout.subscribe());
        }
        let bell = self.bell.clone();
        let from = self.store.bounds().await?.last;
        let (handout, receiver) = broadcast::channel(PAGES_BEHIND_MAX);
        *running = Some(handout.clone());
        tokio::spawn(self.clone().run(from, bell, handout));
        Ok(receiver)
    }

    async fn run(self: Arc<Self>, mut at: Seq, mut bell: watch::Receiver<Seq>, handout: broadcast::Sender<Arc<Chunk>>) {
        loop {
            if handout.receiver_count() == 0 {
                let mut running = self.running.lock().await;
                if handout.receiver_count() == 0 {
                    *running = None;
                    return;
                }
            }
            // Marked as seen before the read: a ring during the read is not lost.
            bell.borrow_and_update();
            let read = Read { after: at, limit: PAGE_EVENTS, filter: Filter::default() };
            match self.store.read(read).await {
                Ok(page) if page.next > at => {
                    let events = page.events.into_iter().map(Arc::new).collect();
                    // What was forgotten before it could be read is not claimed: streams find out for themselves.
                    let after = at.max(page.first - 1);
                    let _nobody_listens = handout.send(Arc::new(Chunk { after, events, next: page.next }));
                    at = page.next;
                    continue;
                }
                Ok(_) => {}
                Err(error) => tracing::warn!(%error, "the tail cannot read the log; it tries again"),
            }
            let _rung_or_not = tokio::time::timeout(POLL, bell.changed()).await;
        }
    }
}
