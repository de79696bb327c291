//! Which handlers is this event for?
//!
//! The router listens to the tail and puts each event into the mailbox of every handler that wants it. A mailbox that is
//! full is closed: its handler reads the store by itself, from where the mailbox ended, and opens it again when it has
//! caught up. So a slow handler costs the others nothing, and memory stays bounded.

use super::progress::Progress;
use crate::evaluation::{self, EvaluationClass};
use crate::groups::Answer;
use crate::handlers::Spec;
use crate::tail::{Chunk, Known, Listening, Tail};
use crate::wanted::{Turn, count_failure};
use ensue_core::condition::{Condition, EventView};
use ensue_core::matching::{Found, Index, Subscription, Want};
use ensue_core::{Event, Seq, StoreError};
use futures_util::FutureExt;
use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, broadcast};
use uuid::Uuid;

/// How many events a mailbox holds.
const MAILBOX_EVENTS_MAX: usize = 4_096;
/// How many bytes of events a mailbox holds (but always one event).
const MAILBOX_BYTES_MAX: usize = 2 << 20;
/// Pause of the router after a panic.
const PAUSE_AFTER_PANIC: Duration = Duration::from_millis(100);

/// What is for one handler.
pub(crate) struct Mailbox {
    state: Mutex<MailboxState>,
    /// Rung when there is something new.
    pub wake: Arc<Notify>,
    /// If somebody waits to hear how far this handler is, it is woken for every chunk.
    progress: Arc<Progress>,
    /// Nobody puts anything into it any more.
    is_gone: AtomicBool,
    /// How many mailboxes had been added with this one.
    added: u64,
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
    /// Held while a chunk is routed, and by who opens a mailbox, adds or removes one.
    routing: Mutex<Routes>,
    /// Everything up to here is in the mailboxes that are open.
    routed_to: AtomicU64,
    is_listening: AtomicBool,
    /// Routing panics after the event in this place was put into a mailbox.
    #[cfg(test)]
    panics_at: AtomicU64,
}

/// What is put where.
struct Routes {
    /// Shared with an evaluation that runs without the lock; changed in place while there is none.
    index: Arc<Index>,
    mailboxes: HashMap<Uuid, Arc<Mailbox>>,
    /// Counts the mailboxes that were added: a mailbox with a higher number than an index is not in it.
    added: u64,
    /// How often the log had gone back, as far as the router has heard.
    setbacks: u64,
    always: Arc<Condition>,
}

/// Where routing stopped.
enum RouteEnd {
    Chunk,
    /// Others wait for the processor or the lock.
    Turn,
    Costly(CostlyEvent),
}

/// An event whose conditions take longer than others should wait.
struct CostlyEvent {
    event: Arc<Event>,
    index: Arc<Index>,
    /// How many mailboxes had been added to the index.
    added: u64,
}

impl Router {
    pub fn new(tail: Arc<Tail>) -> Result<Self, StoreError> {
        let always = Arc::new(Condition::parse("true")?);
        let routing =
            Mutex::new(Routes { index: Arc::default(), mailboxes: HashMap::new(), added: 0, setbacks: 0, always });
        Ok(Self {
            tail,
            routing,
            routed_to: AtomicU64::new(0),
            is_listening: AtomicBool::new(false),
            #[cfg(test)]
            panics_at: AtomicU64::new(0),
        })
    }

    /// A mailbox for a handler with this subscription; closed at first.
    pub fn add(&self, spec: &Spec, subscription: Uuid, progress: Arc<Progress>) -> Arc<Mailbox> {
        let state = Mutex::new(MailboxState { closed_at: Some(0), ..MailboxState::default() });
        let mut routes = self.routes();
        routes.added += 1;
        let (wake, is_gone, added) = (Arc::new(Notify::new()), AtomicBool::new(false), routes.added);
        let mailbox = Arc::new(Mailbox { state, wake, progress, is_gone, added });
        let condition = spec.condition.clone().unwrap_or_else(|| routes.always.clone());
        let want = Want { topic: spec.topic.clone(), condition };
        let group: Arc<str> = spec.key.as_str().into();
        let subscribed = Subscription { id: subscription, group, params: spec.params.clone() };
        Arc::make_mut(&mut routes.index).add(&want, subscribed);
        routes.mailboxes.insert(subscription, mailbox.clone());
        mailbox
    }

    /// Nothing more is put into the mailbox of this subscription: its handler reads the store by itself until it has ended.
    pub fn remove(&self, subscription: Uuid) {
        let mut routes = self.routes();
        Arc::make_mut(&mut routes.index).remove(subscription);
        if let Some(mailbox) = routes.mailboxes.remove(&subscription) {
            mailbox.is_gone.store(true, Ordering::SeqCst);
            mailbox.close_at(self.routed_to());
        }
    }

    fn routes(&self) -> MutexGuard<'_, Routes> {
        self.routing.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// What is known of the end of the log.
    pub fn known(&self) -> Known {
        self.tail.known()
    }

    /// Comes back once the log has gone back more often than this.
    pub async fn went_back(&self, setbacks: u64) {
        self.tail.went_back(setbacks).await;
    }

    /// Has it heard how often the log had gone back? Until then it opens no mailbox for who knows more.
    pub fn has_heard_of(&self, setbacks: u64) -> bool {
        self.routes().setbacks == setbacks
    }

    /// Opens a mailbox for a handler that knows everything up to here, of the log as it was after so many setbacks; false
    /// if it is not far enough.
    pub fn open(&self, mailbox: &Mailbox, known_to: Seq, setbacks: u64) -> bool {
        let routes = self.routes();
        if routes.setbacks != setbacks || known_to < self.routed_to() || mailbox.is_gone.load(Ordering::SeqCst) {
            return false;
        }
        *mailbox.lock() = MailboxState { skip_to: known_to, ..MailboxState::default() };
        true
    }

    /// What is in a mailbox, taken out.
    pub fn take(&self, mailbox: &Mailbox) -> Mail {
        // Before the look: what is routed by now is in the mailbox, or was taken out before.
        let routed_to = self.routed_to();
        let mut state = mailbox.lock();
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

    /// Does it listen?
    pub fn is_listening(&self) -> bool {
        self.is_listening.load(Ordering::SeqCst)
    }

    /// Begins to listen. Mailboxes can be opened from then on.
    pub async fn listen(&self) -> Result<Listening, StoreError> {
        let listening = self.tail.listen().await?;
        self.routed_to.store(self.tail.read_to(), Ordering::SeqCst);
        self.is_listening.store(true, Ordering::SeqCst);
        Ok(listening)
    }

    /// Routes until it is dropped. After a panic it goes on with the next chunk, and handlers read the store up to there.
    pub async fn run(self: Arc<Self>, mut listening: Listening) {
        let mut setbacks_seen = listening.setbacks.borrow_and_update().count;
        self.routes().setbacks = setbacks_seen;
        loop {
            let routing = self.route_live(&mut listening, &mut setbacks_seen);
            let Err(_panic) = AssertUnwindSafe(routing).catch_unwind().await;
            tracing::error!(routed_to = self.routed_to(), "router panicked; handlers read the store, and it goes on");
            self.close_all();
            tokio::time::sleep(PAUSE_AFTER_PANIC).await;
        }
    }

    async fn route_live(&self, listening: &mut Listening, setbacks_seen: &mut u64) -> Infallible {
        loop {
            let chunk = tokio::select! {
                biased;
                Ok(()) = listening.setbacks.changed() => {
                    *setbacks_seen = listening.setbacks.borrow_and_update().count;
                    self.go_back(*setbacks_seen);
                    continue;
                }
                chunk = listening.live.recv() => chunk,
            };
            match chunk {
                Ok(chunk) if chunk.setbacks == *setbacks_seen => self.route(&chunk).await,
                // Read before the log went back, or before the router has heard of it.
                Ok(_) => {}
                // The next chunk does not follow the last: then the mailboxes are closed.
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => match self.tail.listen().await {
                    Ok(again) => *listening = again,
                    Err(error) => {
                        tracing::warn!(%error, "the tail cannot read the log; trying again");
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                },
            }
        }
    }

    fn go_back(&self, setbacks: u64) {
        let mut routes = self.routes();
        routes.setbacks = setbacks;
        self.routed_to.store(self.tail.read_to(), Ordering::SeqCst);
        for mailbox in routes.mailboxes.values() {
            *mailbox.lock() = MailboxState { went_back: true, ..MailboxState::default() };
            mailbox.wake.notify_one();
        }
    }

    /// Lets every handler read the store from where its mailbox ends.
    fn close_all(&self) {
        let routes = self.routes();
        let routed_to = self.routed_to();
        routes.mailboxes.values().for_each(|mailbox| mailbox.close_at(routed_to));
        self.routed_to.store(self.tail.read_to(), Ordering::SeqCst);
    }

    /// Puts the events of a chunk where they belong, in turns. An event whose conditions take long is matched on another thread, without the
    /// lock, so that mailboxes can be opened and added meanwhile.
    async fn route(&self, chunk: &Chunk) {
        loop {
            let CostlyEvent { event, index, added } = match self.route_quickly(chunk) {
                RouteEnd::Chunk => return,
                RouteEnd::Turn => {
                    tokio::task::yield_now().await;
                    continue;
                }
                RouteEnd::Costly(event) => event,
            };
            let matching = (index.clone(), event.clone());
            let answer = evaluation::run(EvaluationClass::Delivery, move || Answer::of(&matching.0, &matching.1)).await;
            drop(index);
            match answer {
                Ok(answer) => self.put_costly(&event, &answer, added),
                // The runtime ends, and the router with it.
                Err(error) => {
                    tracing::warn!(%error, seq = event.seq, "routing stopped");
                    return;
                }
            }
        }
    }

    /// Routes up to the end of a chunk or of a turn, or up to an event whose conditions take long.
    fn route_quickly(&self, chunk: &Chunk) -> RouteEnd {
        let routes = self.routes();
        let routed_to = self.routed_to();
        if chunk.next <= routed_to {
            return RouteEnd::Chunk;
        }
        if chunk.after > routed_to {
            routes.mailboxes.values().for_each(|mailbox| mailbox.close_at(routed_to));
        }
        let mut found = Found::default();
        let mut woken: Vec<Uuid> = Vec::new();
        let (mut next, mut end) = (chunk.next, RouteEnd::Chunk);
        let turn = Turn::begin();
        for event in chunk.events.iter().filter(|event| event.seq > routed_to) {
            let view = EventView::quick(event);
            routes.index.matches(&view, &mut found);
            if view.is_exhausted() {
                next = event.seq - 1;
                let (event, index) = (event.clone(), routes.index.clone());
                end = RouteEnd::Costly(CostlyEvent { event, index, added: routes.added });
                break;
            }
            for subscription in &found.matched {
                let id = subscription.id;
                if routes.mailboxes.get(&id).is_some_and(|mailbox| mailbox.put(event)) && woken.last() != Some(&id) {
                    woken.push(id);
                }
            }
            #[cfg(test)]
            assert_ne!(self.panics_at.load(Ordering::SeqCst), event.seq, "planted by a test");
            for (subscription, failure) in &found.failed {
                condition_failed(&subscription.group, event.seq, failure);
            }
            if turn.is_over() && event.seq < chunk.next {
                next = event.seq;
                end = RouteEnd::Turn;
                break;
            }
        }
        self.routed(&routes, next, woken);
        end
    }

    /// Delivers a costly event by an index with `added` mailboxes. Newer mailboxes read the store.
    fn put_costly(&self, event: &Arc<Event>, answer: &Answer, added: u64) {
        let routes = self.routes();
        let routed_to = self.routed_to();
        let is_new = |mailbox: &&Arc<Mailbox>| mailbox.added > added;
        routes.mailboxes.values().filter(is_new).for_each(|mailbox| mailbox.close_at(routed_to));
        let is_put = |id: &&Uuid| routes.mailboxes.get(*id).is_some_and(|mailbox| mailbox.put(event));
        let woken = answer.matched.iter().filter(is_put).copied().collect();
        for (subscription, failure) in &answer.failed {
            if let Some(subscription) = routes.index.get(*subscription) {
                condition_failed(&subscription.group, event.seq, failure);
            }
        }
        self.routed(&routes, event.seq, woken);
    }

    /// Everything up to here is in the mailboxes, of which these have something new.
    fn routed(&self, routes: &Routes, to: Seq, mut woken: Vec<Uuid>) {
        self.routed_to.store(to, Ordering::SeqCst);
        woken.sort_unstable();
        woken.dedup();
        woken.iter().filter_map(|id| routes.mailboxes.get(id)).for_each(|mailbox| mailbox.wake.notify_one());
        let followed = routes.mailboxes.values().filter(|mailbox| mailbox.progress.is_followed());
        followed.for_each(|mailbox| mailbox.wake.notify_one());
    }
}

/// H24: it is told, and concerns nobody else.
pub(crate) fn condition_failed(group: &str, seq: Seq, failure: &ensue_core::condition::Failure) {
    count_failure(group);
    tracing::warn!(group, seq, %failure, "condition failed; event skipped");
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
            // Should routing panic before it has counted this event, the handler does not get it twice.
            state.skip_to = event.seq;
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

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use super::*;
    use crate::Ensue;
    use ensue_core::NewEvent;

    /// A handler that is unbound and has not heard of it yet must not take a mailbox into which nothing is put any more for one
    /// that nothing was meant for: it reads the store from where the mailbox ended.
    #[tokio::test]
    async fn a_mailbox_that_is_removed_ends_where_it_was() {
        let bus = Ensue::memory().await.unwrap();
        bus.on("a").named("h").pull().unwrap();
        let (spec, id) = (bus.inner().handlers.bound().remove(0), Uuid::from_u128(7));
        let router = Router::new(bus.inner().tail.clone()).unwrap();
        let mailbox = router.add(&spec, id, Arc::default());
        assert!(router.open(&mailbox, 0, 0));
        let route = async || {
            let seq = bus.publish(NewEvent::new("a")).await.unwrap().seq.unwrap();
            let event = Arc::new(bus.store().event(seq).await.unwrap().unwrap());
            let chunk = Chunk { after: seq - 1, next: seq, events: [event].into_iter().collect(), setbacks: 0 };
            router.route(&chunk).await;
        };
        route().await;
        assert!(matches!(router.take(&mailbox), Mail::Events(events, 1) if events.len() == 1));
        route().await;
        router.remove(id);
        route().await;
        assert!(matches!(router.take(&mailbox), Mail::Closed(events, 2) if events.len() == 1));
        assert!(!router.open(&mailbox, 3, 0), "nobody would put anything into it");
    }

    /// H27: who does not take its mail reads the log by itself later, and the others get theirs.
    #[tokio::test]
    async fn a_mailbox_that_is_full_holds_up_nobody() {
        let bus = Ensue::memory().await.unwrap();
        bus.on("a").named("stuck").pull().unwrap();
        bus.on("a").named("quick").pull().unwrap();
        let router = Router::new(bus.inner().tail.clone()).unwrap();
        let specs = bus.inner().handlers.bound();
        let add = |n: usize| router.add(&specs[n], Uuid::from_u128(n as u128), Arc::default());
        let (stuck, quick) = (add(0), add(1));
        assert!(router.open(&stuck, 0, 0) && router.open(&quick, 0, 0));
        bus.publish(NewEvent::new("a")).await.unwrap();
        let one = bus.store().event(1).await.unwrap().unwrap();
        let last = MAILBOX_EVENTS_MAX as Seq + 10;
        for seq in 1..=last {
            let events = [Arc::new(Event { seq, ..one.clone() })].into_iter().collect();
            router.route(&Chunk { after: seq - 1, next: seq, events, setbacks: 0 }).await;
            let Mail::Events(events, to) = router.take(&quick) else { panic!("it was closed at {seq}") };
            assert_eq!((events.iter().map(|event| event.seq).collect::<Vec<_>>(), to), (vec![seq], seq));
        }
        let Mail::Closed(events, at) = router.take(&stuck) else { panic!("it has no end") };
        assert_eq!((events.len(), at), (MAILBOX_EVENTS_MAX, MAILBOX_EVENTS_MAX as Seq));
    }

    /// A panic costs nobody an event and gives nobody one twice: handlers read the store from where they are.
    #[tokio::test]
    async fn router_goes_on_after_a_panic() {
        let bus = Ensue::memory().await.unwrap();
        bus.on("a").named("h").pull().unwrap();
        let spec = bus.inner().handlers.bound().remove(0);
        let router = Arc::new(Router::new(bus.inner().tail.clone()).unwrap());
        let mailbox = router.add(&spec, Uuid::from_u128(1), Arc::default());
        router.panics_at.store(2, Ordering::SeqCst);
        let running = tokio::spawn(router.clone().run(router.listen().await.unwrap()));
        let publish = async || bus.publish(NewEvent::new("a")).await.unwrap().seq.unwrap();
        let (mut got, mut known_to) = (Vec::new(), 0);
        let mut is_open = router.open(&mailbox, 0, 0);
        assert!(is_open);
        for _ in 0..4 {
            let seq = publish().await;
            let taken = tokio::time::timeout(std::time::Duration::from_secs(20), async {
                while known_to < seq {
                    if !is_open {
                        // As a handler does that reads the store by itself.
                        let read_to = router.read_to();
                        got.extend(known_to + 1..=read_to);
                        known_to = read_to.max(known_to);
                        is_open = router.open(&mailbox, known_to, 0);
                    }
                    if is_open {
                        match router.take(&mailbox) {
                            Mail::Events(events, to) => {
                                got.extend(events.iter().map(|event| event.seq));
                                known_to = to;
                            }
                            Mail::Closed(events, at) => {
                                got.extend(events.iter().map(|event| event.seq));
                                (known_to, is_open) = (at, false);
                            }
                            Mail::WentBack => panic!("the log did not go back"),
                        }
                    }
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                }
            });
            taken.await.unwrap_or_else(|_| panic!("event {seq} does not come: {got:?}"));
        }
        assert_eq!(got, [1, 2, 3, 4]);
        running.abort();
    }

    /// Other tasks run between the events of a chunk.
    #[tokio::test]
    async fn long_chunk_is_routed_in_turns() {
        let bus = Ensue::memory().await.unwrap();
        for n in 0..300 {
            let params = crate::Json::of("params", &[n]).unwrap();
            bus.on("a").named(format!("h{n}")).when("s.params->0 <> '-1'", params).pull().unwrap();
        }
        let router = Arc::new(Router::new(bus.inner().tail.clone()).unwrap());
        for (n, spec) in (0..).zip(bus.inner().handlers.bound()) {
            assert!(router.open(&router.add(&spec, Uuid::from_u128(n), Arc::default()), 0, 0));
        }
        bus.publish(NewEvent::new("a")).await.unwrap();
        let one = bus.store().event(1).await.unwrap().unwrap();
        let events: Vec<_> = (1..=500).map(|seq| Arc::new(Event { seq, ..one.clone() })).collect();
        let chunk = Chunk { after: 0, next: 500, events: events.into_iter().collect(), setbacks: 0 };
        let turns = AtomicU64::new(0);
        let others = async {
            while router.routed_to() < 500 {
                turns.fetch_add(1, Ordering::SeqCst);
                tokio::task::yield_now().await;
            }
        };
        tokio::join!(router.route(&chunk), others);
        assert!(turns.load(Ordering::SeqCst) >= 5, "{turns:?} turns");
    }
}
