//! How far is a handler, for those who wait for it?
//!
//! Children wait for the first attempts of their parents, and a publish may wait for a handler to be done. Both ask here;
//! of a handler that nobody waits for only its beginnings and ends are recorded.

use ensue_core::handling::SyncOutcome;
use ensue_core::positions::LaneKey;
use ensue_core::recent::Recent;
use ensue_core::{ObjectKey, Seq};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, oneshot};

/// How many finished events are remembered for those who ask late.
const RECENT_MAX: usize = 8_192;
/// How many events that failed or are blocked are remembered for the same reason.
const NOT_DONE_MAX: usize = 256;
/// How many events children wait for at most: what is left in the log beyond this holds nobody.
const OPEN_MAX: usize = 65_536;

/// How far one handler is.
#[derive(Default)]
pub(crate) struct Progress {
    /// Does anybody wait for it? What it had taken before anybody did, nobody waits for.
    is_followed: AtomicBool,
    state: Mutex<State>,
    /// Rung when first attempts have ended.
    children: Mutex<Vec<Arc<Notify>>>,
}

struct State {
    running: bool,
    seen_to: Seq,
    /// Taken, and their first attempts have not ended.
    open: BTreeSet<Seq>,
    /// Those of them that full lanes have left in the log.
    left_in_log: HashMap<LaneKey, Vec<Seq>>,
    done: Recent<Seq, ()>,
    not_done: BTreeMap<Seq, SyncOutcome>,
    waiting: HashMap<Seq, Vec<Waiter>>,
}

/// A publish that waits for an event.
struct Waiter {
    object: Option<ObjectKey>,
    sender: oneshot::Sender<SyncOutcome>,
}

impl Default for State {
    fn default() -> Self {
        let (open, left_in_log) = (BTreeSet::new(), HashMap::new());
        let (not_done, waiting) = (BTreeMap::new(), HashMap::new());
        // Until it has begun, or is known not to run here, nobody knows how far it is: children wait.
        Self { running: true, seen_to: 0, open, left_in_log, done: Recent::new(RECENT_MAX), not_done, waiting }
    }
}

impl State {
    fn forget(&mut self) {
        self.open.clear();
        self.left_in_log.clear();
    }
}

impl Progress {
    /// The handler begins, or begins again, after this place.
    pub fn begin(&self, seen_to: Seq) {
        let mut state = self.lock();
        (state.running, state.seen_to) = (true, seen_to);
        state.forget();
        drop(state);
        self.ring();
    }

    /// The handler begins again at once, nobody knows where yet: children wait.
    pub fn begin_again(&self) {
        let mut state = self.lock();
        (state.running, state.seen_to) = (true, 0);
        state.forget();
    }

    /// The handler runs no longer in this process: nobody waits for it.
    pub fn end(&self) {
        let mut state = self.lock();
        state.running = false;
        state.forget();
        drop(state);
        self.ring();
    }

    /// An event was taken.
    pub fn take(&self, seq: Seq) {
        if !self.is_followed() {
            return;
        }
        let mut state = self.lock();
        state.seen_to = state.seen_to.max(seq);
        state.open.insert(seq);
    }

    /// Everything up to here was looked at.
    pub fn see(&self, to: Seq) {
        if !self.is_followed() {
            return;
        }
        let mut state = self.lock();
        if to > state.seen_to {
            state.seen_to = to;
            drop(state);
            self.ring();
        }
    }

    /// The first attempt has ended, or waits behind another event's failure.
    pub fn tried(&self, seq: Seq) {
        if self.is_followed() && self.lock().open.remove(&seq) {
            self.ring();
        }
    }

    /// A full lane has left an event in the log: its first attempt is still to come.
    pub fn left_in_log(&self, lane: &LaneKey, seq: Seq) {
        if !self.is_followed() {
            return;
        }
        let mut state = self.lock();
        if state.open.len() <= OPEN_MAX {
            state.left_in_log.entry(lane.clone()).or_default().push(seq);
        } else if state.open.remove(&seq) {
            drop(state);
            self.ring();
        }
    }

    /// What a full lane has left in the log waits behind a failure or a rule, or is done: it holds nobody any longer.
    pub fn lane_waits(&self, lane: &LaneKey) {
        if !self.is_followed() {
            return;
        }
        let mut state = self.lock();
        let left = state.left_in_log.remove(lane).unwrap_or_default();
        if !left.is_empty() {
            left.iter().for_each(|seq| {
                state.open.remove(seq);
            });
            drop(state);
            self.ring();
        }
    }

    /// It is done, has failed for good, or waits for a person.
    pub fn ended(&self, seq: Seq, outcome: SyncOutcome) {
        if !self.is_followed() {
            return;
        }
        let mut state = self.lock();
        state.open.remove(&seq);
        state.tell(seq, &outcome);
        state.not_done.remove(&seq);
        if outcome == SyncOutcome::Done {
            state.done.insert(seq, ());
        } else {
            state.not_done.insert(seq, outcome);
        }
        if state.not_done.len() > NOT_DONE_MAX {
            state.not_done.pop_first();
        }
        drop(state);
        self.ring();
    }

    /// The same for every later event of an object for which a publish waits.
    pub fn ended_behind(&self, object: &ObjectKey, seq: Seq, outcome: &SyncOutcome) {
        if !self.is_followed() {
            return;
        }
        let mut state = self.lock();
        let is_behind = |(at, waiting): &(&Seq, &Vec<Waiter>)| {
            **at > seq && waiting.iter().any(|waiter| waiter.object.as_ref() == Some(object))
        };
        let behind: Vec<Seq> = state.waiting.iter().filter(is_behind).map(|(at, _)| *at).collect();
        behind.into_iter().for_each(|at| state.tell(at, outcome));
    }

    /// A person has brought it back.
    pub fn reopen(&self, seq: Seq) {
        if self.is_followed() {
            self.lock().not_done.remove(&seq);
        }
    }

    /// May a child of this handler start the event?
    pub fn lets_children_have(&self, seq: Seq) -> bool {
        let state = self.lock();
        !state.running || (seq <= state.seen_to && !state.open.contains(&seq))
    }

    /// Comes back when the event is done, has failed for good or waits for a person. Of an event that was published before,
    /// only that it is done counts from memory: what failed here may have been brought back elsewhere since.
    pub fn when_ended(&self, seq: Seq, object: Option<ObjectKey>, is_repeated: bool) -> oneshot::Receiver<SyncOutcome> {
        let (sender, wait) = oneshot::channel();
        let mut state = self.lock();
        let known = match state.done.get(&seq) {
            Some(()) => Some(SyncOutcome::Done),
            None => state.not_done.get(&seq).filter(|_| !is_repeated).cloned(),
        };
        match known {
            Some(outcome) => {
                // It is there before it is waited for.
                let _received = sender.send(outcome);
            }
            None => state.waiting.entry(seq).or_default().push(Waiter { object, sender }),
        }
        wait
    }

    /// Nobody waits for this event any more.
    pub fn forget(&self, seq: Seq) {
        let mut state = self.lock();
        if let Some(waiting) = state.waiting.get_mut(&seq) {
            waiting.retain(|waiter| !waiter.sender.is_closed());
            if waiting.is_empty() {
                state.waiting.remove(&seq);
            }
        }
    }

    /// Does anybody wait for it?
    pub fn is_followed(&self) -> bool {
        self.is_followed.load(Ordering::Relaxed)
    }

    /// From now on these bells are rung when first attempts have ended; and it is followed if there are any, or for itself.
    pub fn follow(&self, children: Vec<Arc<Notify>>, for_itself: bool) {
        self.is_followed.store(for_itself || !children.is_empty(), Ordering::Relaxed);
        *self.children.lock().unwrap_or_else(PoisonError::into_inner) = children;
    }

    fn ring(&self) {
        self.children.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|child| child.notify_one());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Tells those who wait for an event.
    fn tell(&mut self, seq: Seq, outcome: &SyncOutcome) {
        for waiter in self.waiting.remove(&seq).into_iter().flatten() {
            // It may have stopped waiting.
            let _waits = waiter.sender.send(outcome.clone());
        }
    }
}
