//! How does one reader serve every stream?
//!
//! However many streams a process serves, the log is read once: a task reads page after page and hands each page to
//! all streams. It runs only while somebody listens. A stream that cannot keep up loses its place in the hand-out and
//! reads the store itself until it has caught up.
//!
//! It is also the one that notices when the log goes back (H35): every page it reads begins with the event it already
//! has, which must still be the same one. That costs a row a page and no query, and needs no word from the engine about
//! its connections. If it is another event, the tail looks for the last one that still holds, goes on there, and tells
//! every stream by its [`Setbacks`]. Streams never go ahead of the tail, so what it has not seen nobody was given.
//!
//! What this process appended itself may come to it without being read (`own.rs`), as long as the store's session stays the one
//! of its last look: then the log cannot have gone back in between.
//!
//! Without a ring it looks once a second, unless it hears where the log ends from who asks anyway (`delivery/pulse.rs`).

use crate::health::{Health, Work};
use crate::marks::Marks;
use crate::own::Own;
use crate::pages::Pages;
use ensue_core::event::EVENT_BYTES_MAX;
use ensue_core::positions::EventAt;
use ensue_core::store::{PAGE_BYTES_MAX, Read, SharedStore};
use ensue_core::{Event, EventId, Filter, Seq, StoreError};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Mutex as AsyncMutex, Notify, broadcast, watch};
use tokio::time::Instant;

/// How many pages a stream may lag behind before it has to read the store itself.
const PAGES_BEHIND_MAX: usize = 16;
/// How often the log is looked at without a ring: other processes may write to it.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// For how long who said where the log ends is taken to say it again: they ask as often as the tail would.
const HEARD_FOR: Duration = Duration::from_secs(2);
/// How many times of going back are kept apart.
const SETBACKS_MAX: usize = 16;

// A page that begins with an event that is known still has room for the next.
const _: () = assert!(3 * EVENT_BYTES_MAX < PAGE_BYTES_MAX);

/// Consecutive events: all that the log has after `after` up to `next`.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// How often the log had gone back before these were read.
    pub setbacks: u64,
    pub after: Seq,
    pub events: Vec<Arc<Event>>,
    pub next: Seq,
}

/// How often the log went back, and to where.
#[derive(Debug, Default)]
pub(crate) struct Setbacks {
    pub count: u64,
    /// The last place that stayed what it was, for each of the latest; the oldest stands for all before it too.
    kept_to: VecDeque<Seq>,
}

impl Setbacks {
    fn add(&mut self, kept_to: Seq) {
        self.count += 1;
        self.kept_to.push_back(kept_to);
        if self.kept_to.len() > SETBACKS_MAX {
            let oldest = self.kept_to.pop_front().expect("there are several");
            self.kept_to[0] = self.kept_to[0].min(oldest);
        }
    }

    /// Up to where is everything what it was when `seen` setbacks had been?
    pub fn kept_since(&self, seen: u64) -> Option<Seq> {
        let new = (self.count - seen).min(SETBACKS_MAX as u64) as usize;
        self.kept_to.iter().rev().take(new).min().copied()
    }
}

pub(crate) struct Tail {
    store: SharedStore,
    own: Arc<Own>,
    health: Arc<Health>,
    bell: watch::Receiver<Seq>,
    /// Rung by who has seen that the log has more than the tail.
    behind: Notify,
    /// Where the log ends, as somebody else has asked.
    heard: watch::Sender<Option<Heard>>,
    /// Up to here the log was read. Always set before a chunk is handed out: who listens first and then looks here
    /// gets the rest from the hand-out.
    read_to: AtomicU64,
    setbacks: watch::Sender<Setbacks>,
    /// Never behind what was handed out or may be read: see [`Known`].
    known: Mutex<Known>,
    /// The hand-out of the running task, which alone keeps it open; none while nobody listens. The task ends by itself
    /// only under this lock, so a listener that finds it here is served; if it ends with its runtime, listeners find
    /// the hand-out closed and begin another.
    running: AsyncMutex<Option<broadcast::WeakSender<Arc<Chunk>>>>,
}

/// What the tail knows of the end of the log. What a reader was given after as many setbacks comes from a log that holds
/// the newest event, and is not behind it. So if the log holds that event, all that the reader has seen is in it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Known {
    /// How often the log had gone back.
    pub setbacks: u64,
    /// The newest event that was read; none while there is none.
    pub newest: Option<EventAt>,
}

/// Where the log ends, and when somebody said so.
#[derive(Debug, Clone, Copy)]
struct Heard {
    at: Instant,
    last: Seq,
    newest: Option<EventId>,
}

/// What a listener gets.
pub(crate) struct Listening {
    pub live: broadcast::Receiver<Arc<Chunk>>,
    pub setbacks: watch::Receiver<Setbacks>,
}

/// What a look at the log finds.
enum Look {
    Nothing,
    /// With what was there when it was read, if it is all of it.
    More {
        chunk: Chunk,
        is_all: bool,
    },
    /// It is what it was up to here, and not beyond.
    WentBack(Seq),
}

/// Where the tail is, and what it has seen.
struct Position {
    at: Seq,
    /// The store's session when it last looked at the log.
    session: u64,
    marks: Marks,
    pages: Pages,
}

impl Position {
    /// Is that not where it is? Also when the log has gone back there, and another event is in the last one's place.
    fn is_news(&self, heard: &Heard) -> bool {
        heard.last != self.at || heard.newest.is_some_and(|id| !self.marks.agree(self.at, id))
    }
}

impl Tail {
    pub fn new(store: SharedStore, bell: watch::Receiver<Seq>, health: Arc<Health>) -> Self {
        let (behind, read_to) = (Notify::new(), AtomicU64::new(0));
        let (heard, setbacks, running) = (watch::Sender::new(None), watch::Sender::default(), AsyncMutex::new(None));
        let own = Arc::new(Own::default());
        store.follow(own.clone());
        let known = Mutex::default();
        Self { store, own, health, bell, behind, heard, read_to, setbacks, known, running }
    }

    /// Listens to everything that enters the log from now on. What was there before the call is the caller's to read
    /// from the store, after the call: then nothing falls between.
    pub async fn listen(self: &Arc<Self>) -> Result<Listening, StoreError> {
        let mut running = self.running.lock().await;
        if let Some(handout) = running.as_ref().and_then(broadcast::WeakSender::upgrade) {
            return Ok(Listening { live: handout.subscribe(), setbacks: self.setbacks.subscribe() });
        }
        let bell = self.bell.clone();
        let session = self.store.session();
        let at = self.store.bounds().await?.last;
        let marks = Marks::at_end(&self.store, at).await?;
        // It may have gone back while nobody listened.
        let setbacks = self.known().setbacks;
        let is_another = match self.known().newest {
            Some(before) => !self.holds(before).await?,
            None => false,
        };
        self.set_known(setbacks + u64::from(is_another), marks.at(at));
        if is_another {
            self.setbacks.send_modify(|setbacks| setbacks.add(0));
        }
        let position = Position { at, session, marks, pages: Pages::of_tail() };
        self.own.listen(true);
        self.read_to.store(at, Ordering::SeqCst);
        let (handout, live) = broadcast::channel(PAGES_BEHIND_MAX);
        *running = Some(handout.downgrade());
        tokio::spawn(self.clone().run(position, bell, handout));
        Ok(Listening { live, setbacks: self.setbacks.subscribe() })
    }

    /// Up to where the log was read: no stream may go further by itself.
    pub fn read_to(&self) -> Seq {
        self.read_to.load(Ordering::SeqCst)
    }

    /// What is known of the end of the log.
    pub fn known(&self) -> Known {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_known(&self, setbacks: u64, newest: Option<EventAt>) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Known { setbacks, newest };
    }

    /// Does the log hold this event? What is forgotten counts as held.
    async fn holds(&self, event: EventAt) -> Result<bool, StoreError> {
        let stored = self.store.event(event.seq).await?.map(|stored| stored.id);
        Ok(event.is_held(stored, self.store.bounds().await?.first))
    }

    /// Comes back once the log has gone back more often than this.
    pub async fn went_back(&self, setbacks: u64) {
        // The tail has this sender, so it does not go away meanwhile.
        let mut known = self.setbacks.subscribe();
        let _more = known.wait_for(|known| known.count > setbacks).await;
    }

    /// Lets the tail look at the log now.
    pub fn look_now(&self) {
        self.behind.notify_one();
    }

    /// Tells where the log ends and with which event, for who asks that for many: unless it is news, the tail need not look. Has
    /// the log grown since somebody told so last?
    pub fn hear(&self, last: Seq, newest: Option<EventId>) -> bool {
        let before = self.heard.send_replace(Some(Heard { at: Instant::now(), last, newest }));
        before.is_some_and(|before| before.last < last)
    }

    async fn run(
        self: Arc<Self>,
        mut position: Position,
        mut bell: watch::Receiver<Seq>,
        handout: broadcast::Sender<Arc<Chunk>>,
    ) {
        let mut heard = self.heard.subscribe();
        // Did anything but the bell call for a look?
        let mut look_anyway = true;
        let mut look_at_latest = None;
        loop {
            if handout.receiver_count() == 0 {
                let mut running = self.running.lock().await;
                if handout.receiver_count() == 0 {
                    self.own.listen(false);
                    *running = None;
                    return;
                }
            }
            // Marked as seen before the read: a ring during the read is not lost.
            let rung_to = *bell.borrow_and_update();
            // What was heard before is no news any more: what was appended here since lies behind it.
            let is_new = heard.has_changed().unwrap_or(false);
            let told = *heard.borrow_and_update();
            look_anyway |= is_new && told.is_some_and(|heard| position.is_news(&heard));
            let own = self.own.after(position.at, position.session);
            let own_given = own.is_some();
            let look = match own {
                Some(events) => Ok(Look::More { chunk: self.chunk_of_own(position.at, events), is_all: false }),
                None if !look_anyway && position.at >= rung_to && position.session == self.store.session() => {
                    Ok(Look::Nothing)
                }
                None => {
                    look_anyway = true;
                    self.health.watch(Work::Read, self.look(&mut position)).await
                }
            };
            if look_anyway || own_given {
                look_at_latest = told.map(|heard| heard.at + HEARD_FOR).max(Some(Instant::now() + POLL_INTERVAL));
            }
            match look {
                Ok(Look::More { chunk, is_all }) => {
                    // What came after it was read is rung for, and heard of.
                    look_anyway &= !is_all;
                    chunk.events.iter().for_each(|event| position.marks.push(event));
                    position.at = chunk.next;
                    self.set_known(chunk.setbacks, position.marks.at(position.at));
                    self.read_to.store(position.at, Ordering::SeqCst);
                    let _nobody_listens = handout.send(Arc::new(chunk));
                    continue;
                }
                Ok(Look::WentBack(kept_to)) => {
                    let (from, to) = (kept_to + 1, position.at);
                    tracing::warn!(from, to, "the log went back: these places are no longer what they were");
                    position.marks.forget_after(kept_to);
                    self.own.forget();
                    position.at = kept_to;
                    // Before the setback is told: who hears of it does not go further than this.
                    self.read_to.store(kept_to, Ordering::SeqCst);
                    self.set_known(self.known().setbacks + 1, position.marks.at(kept_to));
                    self.setbacks.send_modify(|setbacks| setbacks.add(kept_to));
                    continue;
                }
                Ok(Look::Nothing) => look_anyway = false,
                // For good: listeners find the hand-out closed, and are told why when they ask for another.
                Err(StoreError::Closed) => {
                    *self.running.lock().await = None;
                    return;
                }
                Err(error) => tracing::warn!(%error, "the tail cannot read the log; it tries again"),
            }
            // A ring that brought nothing puts the next look off by nothing.
            let mut look_at = look_at_latest;
            while let Some(time) = look_at.take() {
                tokio::select! {
                    () = tokio::time::sleep_until(time) => look_anyway = true,
                    () = rung(&mut bell) => {}
                    () = self.behind.notified() => look_anyway = true,
                    Ok(()) = heard.changed() => {
                        let same = heard.borrow_and_update().filter(|heard| !position.is_news(heard));
                        look_at = same.map(|heard| heard.at + HEARD_FOR);
                        look_anyway |= look_at.is_none();
                    }
                }
            }
        }
    }

    /// What was appended here since, handed on without a look.
    fn chunk_of_own(&self, after: Seq, events: Vec<Arc<Event>>) -> Chunk {
        let next = events.last().map_or(after, |event| event.seq);
        Chunk { setbacks: self.setbacks.borrow().count, after, events, next }
    }

    /// Reads what follows, and with it the last event that is known: is it still there?
    async fn look(&self, Position { at, session, marks, pages }: &mut Position) -> Result<Look, StoreError> {
        let at = *at;
        // Before the look: what is appended in this session from now on comes after what it finds.
        let session_now = self.store.session();
        let read = Read { after: at.saturating_sub(1), limit: pages.limit() + 1, filter: Filter::default() };
        let mut page = self.store.read(read).await?;
        let is_known = |event: &Event| event.seq == at && marks.agree_with(event);
        // What retention took cannot be compared.
        if at >= page.first && !page.events.first().is_some_and(is_known) {
            let kept_to = marks.last_common(&self.store).await?;
            return Ok(if kept_to < at { Look::WentBack(kept_to) } else { Look::Nothing });
        }
        *session = session_now;
        if page.next <= at {
            return Ok(Look::Nothing);
        }
        let is_all = pages.is_all(&page);
        page.events.retain(|event| event.seq > at);
        // What was forgotten before it could be read is not claimed: streams find out for themselves.
        let after = at.max(page.first - 1);
        let (events, next) = pages.take(page);
        Ok(Look::More { chunk: Chunk { setbacks: self.setbacks.borrow().count, after, events, next }, is_all })
    }
}

/// Comes back with the next ring; never once the bus is gone, with which nobody rings any more.
async fn rung(bell: &mut watch::Receiver<Seq>) {
    if bell.changed().await.is_err() {
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_outlives_its_bus_polls_and_does_not_spin() {
        let (ringer, mut bell) = watch::channel(0);
        ringer.send_replace(1);
        rung(&mut bell).await;
        drop(ringer);
        assert!(tokio::time::timeout(POLL_INTERVAL, rung(&mut bell)).await.is_err());
    }

    #[cfg(feature = "sqlite")]
    #[tokio::test]
    async fn a_closed_store_ends_the_tail() {
        let bus = crate::Ensue::memory().await.unwrap();
        let tail = bus.inner().tail.clone();
        let mut listening = tail.listen().await.unwrap();
        bus.close().await;
        let ended = tokio::time::timeout(Duration::from_secs(30), listening.live.recv()).await;
        assert_eq!(ended.expect("the tail goes on").unwrap_err(), broadcast::error::RecvError::Closed);
        assert!(matches!(tail.listen().await, Err(StoreError::Closed)));
    }

    #[test]
    fn who_saw_some_setbacks_goes_back_to_the_lowest_of_the_others() {
        let mut setbacks = Setbacks::default();
        assert_eq!(setbacks.kept_since(0), None);
        setbacks.add(50);
        setbacks.add(80);
        assert_eq!(setbacks.kept_since(0), Some(50));
        assert_eq!(setbacks.kept_since(1), Some(80));
        assert_eq!(setbacks.kept_since(2), None);
        // However many there are, those of long ago still count for who has not heard of them.
        (0..1_000).for_each(|_| setbacks.add(90));
        assert_eq!(setbacks.kept_since(0), Some(50));
        assert_eq!(setbacks.kept_since(1_001), Some(90));
        assert_eq!(setbacks.kept_to.len(), SETBACKS_MAX);
    }
}
