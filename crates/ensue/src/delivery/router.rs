//! Which handlers is this event for?
//!
//! The router listens to the tail and puts each event into the mailbox of every handler that wants it. A mailbox that is
//! full is closed: its handler reads the store by itself, from where the mailbox ended, and opens it again when it has
//! caught up. So a slow handler costs the others nothing, and memory stays bounded.

use crate::handlers::Spec;
use crate::tail::{Chunk, Listening, Tail};
use crate::wanted::count_failure;
use ensue_core::condition::{Condition, EventView};
use ensue_core::matching::{Found, Index, Subscription, Want};
use ensue_core::{Event, Seq, StoreError};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, broadcast};
use uuid::Uuid;

/// How many events a mailbox holds.
const MAILBOX_EVENTS_MAX: usize = 2_048;
/// How many bytes of events a mailbox holds (but always one event).
const MAILBOX_BYTES_MAX: usize = 1 << 20;

/// What is for one handler.
pub(crate) struct Mailbox {
    state: Mutex<MailboxState>,
    /// Rung when there is something new.
    pub wake: Arc<Notify>,
    /// Rung for every chunk: somebody waits to hear how far this handler is.
    always_wake: bool,
}

#[derive(Default)]
struct MailboxState {
    /// Events up to here are known to the handler already.
    skip_to: Seq,
    events: VecDeque<Arc<Event>>,
    bytes: usize,
    /// Where it ended if it is closed: everything after this place is not in it.
    closed_at: Option<Seq>,
    /// The log went back: what was known of it may not be true any more.
    went_back: bool,
}

/// What a handler finds in its mailbox.
pub(crate) enum Mail {
    /// These events, and nothing else up to this place.
    Events(VecDeque<Arc<Event>>, Seq),
    /// These events; from this place on the handler reads the store.
    Closed(VecDeque<Arc<Event>>, Seq),
    /// Begin again with what the store remembers.
    WentBack,
}

pub(crate) struct Router {
    tail: Arc<Tail>,
    /// Held while a chunk is routed, and by who opens a mailbox.
    routing: Mutex<()>,
    /// Everything up to here is in the mailboxes that are open.
    routed_to: AtomicU64,
    index: Index,
    by_subscription: HashMap<Uuid, usize>,
    pub mailboxes: Vec<Arc<Mailbox>>,
}

impl Router {
    /// For handlers with the ids of their subscriptions. All mailboxes are closed at first.
    pub fn new(tail: Arc<Tail>, handlers: &[(Arc<Spec>, Uuid)], always_wake: &[bool]) -> Result<Self, StoreError> {
        let mut index = Index::new();
        let mut by_subscription = HashMap::new();
        let always = Arc::new(Condition::parse("true")?);
        for (at, (spec, id)) in handlers.iter().enumerate() {
            let condition = spec.condition.clone().unwrap_or_else(|| always.clone());
            let want = Want { topic: spec.topic.clone(), condition };
            let group: Arc<str> = spec.key.as_str().into();
            index.add(&want, Subscription { id: *id, group, params: spec.params.clone() });
            by_subscription.insert(*id, at);
        }
        let mailbox = |always_wake: &bool| {
            let state = Mutex::new(MailboxState { closed_at: Some(0), ..MailboxState::default() });
            Arc::new(Mailbox { state, wake: Arc::new(Notify::new()), always_wake: *always_wake })
        };
        let mailboxes = always_wake.iter().map(mailbox).collect();
        Ok(Self { tail, routing: Mutex::new(()), routed_to: AtomicU64::new(0), index, by_subscription, mailboxes })
    }

    /// Everything up to here is in the mailboxes that are open.
    pub fn routed_to(&self) -> Seq {
        self.routed_to.load(Ordering::SeqCst)
    }

    /// No handler may read further than this by itself.
    pub fn read_to(&self) -> Seq {
        self.tail.read_to()
    }

    /// Lets the tail look at the log now.
    pub fn look_now(&self) {
        self.tail.look_now();
    }

    /// Opens a mailbox for a handler that knows everything up to here; false if it is not far enough.
    pub fn open(&self, at: usize, known_to: Seq) -> bool {
        let _routing = self.routing.lock().unwrap_or_else(PoisonError::into_inner);
        if known_to < self.routed_to() {
            return false;
        }
        *self.mailboxes[at].lock() = MailboxState { skip_to: known_to, ..MailboxState::default() };
        true
    }

    /// What is in a mailbox, taken out.
    pub fn take(&self, at: usize) -> Mail {
        // Before the look: what is routed by now is in the mailbox, or was taken out before.
        let routed_to = self.routed_to();
        let mut state = self.mailboxes[at].lock();
        if state.went_back {
            return Mail::WentBack;
        }
        state.bytes = 0;
        let events = std::mem::take(&mut state.events);
        match state.closed_at {
            Some(closed_at) => Mail::Closed(events, closed_at),
            None => Mail::Events(events, routed_to.max(state.skip_to)),
        }
    }

    /// Begins to listen. Mailboxes can be opened from then on.
    pub async fn listen(&self) -> Result<Listening, StoreError> {
        let listening = self.tail.listen().await?;
        self.routed_to.store(self.tail.read_to(), Ordering::SeqCst);
        Ok(listening)
    }

    /// Routes until it is dropped.
    pub async fn run(self: Arc<Self>, mut listening: Listening) {
        let mut setbacks_seen = listening.setbacks.borrow_and_update().count;
        loop {
            let chunk = tokio::select! {
                biased;
                Ok(()) = listening.setbacks.changed() => {
                    setbacks_seen = listening.setbacks.borrow_and_update().count;
                    self.go_back();
                    continue;
                }
                chunk = listening.live.recv() => chunk,
            };
            match chunk {
                Ok(chunk) if chunk.setbacks == setbacks_seen => self.route(&chunk),
                // Read before the log went back, or before the router has heard of it.
                Ok(_) => {}
                // The next chunk does not follow the last: then the mailboxes are closed.
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => match self.tail.listen().await {
                    Ok(again) => listening = again,
                    Err(error) => {
                        tracing::warn!(%error, "the tail cannot read the log; trying again");
                        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
                    }
                },
            }
        }
    }

    fn go_back(&self) {
        let _routing = self.routing.lock().unwrap_or_else(PoisonError::into_inner);
        self.routed_to.store(self.tail.read_to(), Ordering::SeqCst);
        for mailbox in &self.mailboxes {
            *mailbox.lock() = MailboxState { went_back: true, ..MailboxState::default() };
            mailbox.wake.notify_one();
        }
    }

    /// Puts the events of a chunk where they belong.
    fn route(&self, chunk: &Chunk) {
        let _routing = self.routing.lock().unwrap_or_else(PoisonError::into_inner);
        let routed_to = self.routed_to();
        if chunk.next <= routed_to {
            return;
        }
        if chunk.after > routed_to {
            self.mailboxes.iter().for_each(|mailbox| mailbox.close_at(routed_to));
        }
        let mut found = Found::default();
        let mut woken: Vec<usize> = Vec::new();
        for event in chunk.events.iter().filter(|event| event.seq > routed_to) {
            self.index.matches(&EventView::new(event), &mut found);
            for subscription in &found.matched {
                let at = self.by_subscription[&subscription.id];
                if self.mailboxes[at].put(event) && woken.last() != Some(&at) {
                    woken.push(at);
                }
            }
            for (subscription, failure) in &found.failed {
                condition_failed(&subscription.group, event.seq, failure);
            }
        }
        self.routed_to.store(chunk.next, Ordering::SeqCst);
        woken.sort_unstable();
        woken.dedup();
        woken.iter().for_each(|at| self.mailboxes[*at].wake.notify_one());
        self.mailboxes.iter().filter(|mailbox| mailbox.always_wake).for_each(|mailbox| mailbox.wake.notify_one());
    }
}

/// H24: it is told, and concerns nobody else.
pub(crate) fn condition_failed(group: &str, seq: Seq, failure: &ensue_core::condition::Failure) {
    count_failure(group);
    tracing::warn!(group, seq, %failure, "a condition has no answer for an event, which its group does not get");
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, MailboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event, or closes if there is no room. Is there something for its handler to look at?
    fn put(&self, event: &Arc<Event>) -> bool {
        let mut state = self.lock();
        if state.closed_at.is_some() || state.went_back || event.seq <= state.skip_to {
            return false;
        }
        let bytes = event.bytes();
        let full = state.events.len() >= MAILBOX_EVENTS_MAX || state.bytes + bytes > MAILBOX_BYTES_MAX;
        if full && !state.events.is_empty() {
            state.closed_at = Some(event.seq - 1);
        } else {
            state.bytes += bytes;
            state.events.push_back(event.clone());
        }
        true
    }

    fn close_at(&self, seq: Seq) {
        let mut state = self.lock();
        if state.closed_at.is_none() && !state.went_back {
            state.closed_at = Some(seq.max(state.skip_to));
            self.wake.notify_one();
        }
    }
}
