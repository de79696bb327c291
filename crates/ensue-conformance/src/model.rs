//! What does each verb of the port mean?
//!
//! A store that is as plain as can be: everything in vectors behind one mutex, searched from one end to the other. It is
//! slow and forgets all at the end of the process, and it is easy to see that it is right. Engines are held to it by
//! [`crate::random`]. It shares no decision with them: it does not use `ensue_core::plan`.
//!
//! This file has the log; what is kept of groups is in `known`, the verbs about them in `positions`; what is kept of
//! jobs and rules is in `work`, the verbs about them in `jobs` and `rules`; handlers that are kept are in `definitions`, schedules in `schedules`.

mod definitions;
mod jobs;
mod known;
mod parked;
mod positions;
mod rules;
mod schedules;
mod work;

use crate::factory::{Factory, Place};
use async_trait::async_trait;
use ensue_core::clock::Clock;
use ensue_core::event::whole_microseconds;
use ensue_core::jobs::Job;
use ensue_core::positions::EventAt;
use ensue_core::retention::Bounds;
use ensue_core::rules::Rule;
use ensue_core::store::{Cancelled, PAGE_BYTES_MAX, Page, Read, Released, SCAN_MAX, SharedStore};
use ensue_core::store_key::{STORE_KEY_BYTES, StoreKey};
use ensue_core::{
    Appended, Entry, Event, EventId, Filter, Found, Invalid, ObjectKey, Pending, Seq, Store, StoreError, Timestamp,
};
use jiff::SignedDuration;
use known::Known;
use schedules::Planned;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use work::Work;

/// How long a key is remembered.
const KEY_WINDOW: SignedDuration = SignedDuration::from_hours(24);

/// All that a store knows.
#[derive(Debug, Clone)]
struct State {
    /// The events that were not forgotten, in order.
    log: Vec<Event>,
    /// The newest number and the newest time ever given out.
    last: Seq,
    recorded_at: Timestamp,
    /// The delayed events, in the order in which they were accepted.
    pending: Vec<Pending>,
    keys: Vec<Key>,
    /// How many ids were made.
    ids: u64,
    known: Known,
    work: Work,
    planned: Planned,
}

/// What is remembered of a key.
#[derive(Debug, Clone)]
struct Key {
    /// The whole entry, the key included.
    entry: Entry,
    answer: Appended,
    recorded_at: Timestamp,
}

impl State {
    const EMPTY: State = State {
        log: Vec::new(),
        last: 0,
        recorded_at: Timestamp::MIN,
        pending: Vec::new(),
        keys: Vec::new(),
        ids: 0,
        known: Known::EMPTY,
        work: Work::EMPTY,
        planned: Planned::EMPTY,
    };

    /// The time to record at.
    fn time(&self, clock: Timestamp) -> Timestamp {
        whole_microseconds(clock).max(self.recorded_at)
    }

    fn first(&self) -> Seq {
        self.last + 1 - self.log.len() as Seq
    }

    /// Does the log hold this event? What is forgotten counts as held.
    fn has(&self, event: EventAt) -> bool {
        let stored = self.log.iter().find(|stored| stored.seq == event.seq).map(|stored| stored.id);
        event.is_held(stored, self.first())
    }

    fn bounds(&self) -> Bounds {
        Bounds { first: self.first(), last: self.last }
    }

    fn new_id(&mut self, at: Timestamp) -> EventId {
        self.ids += 1;
        let mut not_random = [0; 10];
        not_random[2..].copy_from_slice(&self.ids.to_be_bytes());
        EventId::new(at, not_random)
    }

    /// Accepts one entry at a time that is already decided.
    fn accept(&mut self, entry: Entry, at: Timestamp) -> Result<Appended, StoreError> {
        if let Some(key) = &entry.key {
            let live = |known: &&Key| known.entry.key.as_ref() == Some(key) && at < known.recorded_at + KEY_WINDOW;
            if let Some(known) = self.keys.iter().find(live) {
                if known.entry != entry {
                    return Err(StoreError::KeyConflict { key: key.to_string() });
                }
                return Ok(Appended { repeated: true, ..known.answer });
            }
        }
        let pending = Pending {
            id: self.new_id(at),
            topic: entry.topic.clone(),
            object: entry.object.clone(),
            payload: entry.payload.clone(),
            metadata: entry.metadata.clone(),
            occurred_at: entry.occurred_at.unwrap_or(at),
            not_before: entry.not_before.unwrap_or(at),
            to: entry.to,
        };
        let id = pending.id;
        let answer = if pending.not_before > at {
            self.pending.push(pending);
            Appended { id, seq: None, prev: None, repeated: false }
        } else {
            let event = self.log_now(pending, at);
            Appended { id, seq: Some(event.seq), prev: event.prev, repeated: false }
        };
        if entry.key.is_some() {
            self.keys.retain(|known| known.entry.key != entry.key);
            self.keys.push(Key { entry, answer, recorded_at: at });
        }
        Ok(answer)
    }

    /// Gives an event its place at the end of the log.
    fn log_now(&mut self, pending: Pending, at: Timestamp) -> &Event {
        let is_predecessor =
            |event: &&Event| pending.object.is_some() && event.object == pending.object && event.to.is_none();
        let prev = self.log.iter().rev().find(is_predecessor).map(|event| event.seq);
        self.last += 1;
        self.recorded_at = at;
        self.log.push(Event {
            seq: self.last,
            prev,
            id: pending.id,
            topic: pending.topic,
            object: pending.object,
            payload: pending.payload,
            metadata: pending.metadata,
            occurred_at: pending.occurred_at,
            recorded_at: at,
            to: pending.to,
        });
        self.log.last().expect("it was pushed just now")
    }

    /// The delayed events in the order in which they will enter the log. The sort keeps the order of acceptance among
    /// those that are due at the same time.
    fn in_due_order(&self) -> Vec<Pending> {
        let mut pending = self.pending.clone();
        pending.sort_by_key(|pending| pending.not_before);
        pending
    }

    /// A page of everything, or of topics: looks at [`SCAN_MAX`] places.
    fn read_places(&self, after: Seq, limit: usize, filter: &Filter) -> Page {
        let begin = after.max(self.first() - 1);
        let end = begin.saturating_add(SCAN_MAX).min(self.last);
        let looked_at = self.log.iter().filter(|event| event.seq > begin && event.seq <= end);
        let (events, stopped) = take_page(looked_at.filter(|event| filter.matches(event)), limit);
        let next = match events.last() {
            Some(event) if stopped => event.seq,
            Some(_) | None => end.max(after),
        };
        Page { events, next, first: self.first() }
    }

    /// A page of one object: looks at [`SCAN_MAX`] of its events.
    fn read_object(&self, after: Seq, limit: usize, object: &ObjectKey, filter: &Filter) -> Page {
        let rows = self.log.iter().filter(|event| event.seq > after && event.object.as_ref() == Some(object));
        let looked_at: Vec<&Event> = rows.clone().take(SCAN_MAX as usize).collect();
        let (events, stopped) = take_page(looked_at.iter().copied().filter(|event| filter.matches(event)), limit);
        let next = match (events.last(), looked_at.last()) {
            (Some(event), _) if stopped => event.seq,
            (_, Some(event)) if rows.count() > looked_at.len() => event.seq,
            _ => self.last.max(after),
        };
        Page { events, next, first: self.first() }
    }
}

/// What fits on a page, and whether it ended before the events did: by count once it is full, or by bytes.
fn take_page<'a>(events: impl Iterator<Item = &'a Event>, limit: usize) -> (Vec<Event>, bool) {
    let mut page: Vec<Event> = Vec::new();
    let mut bytes = 0;
    for event in events {
        bytes += event.bytes();
        if !page.is_empty() && bytes > PAGE_BYTES_MAX {
            return (page, true);
        }
        page.push(event.clone());
        if page.len() == limit {
            return (page, true);
        }
    }
    (page, false)
}

/// The first of them, as many as fit on a page.
fn up_to_a_page(mut pending: Vec<Pending>) -> Vec<Pending> {
    let bytes_to = |count: usize| pending[..count].iter().map(Pending::bytes).sum::<usize>();
    let fits = (1..=pending.len()).take_while(|count| *count == 1 || bytes_to(*count) <= PAGE_BYTES_MAX).count();
    pending.truncate(fits);
    pending
}

/// The model, as a store. Clones are the same store.
#[derive(Clone)]
pub struct Model {
    state: Arc<Mutex<State>>,
    clock: Clock,
    closed: Arc<AtomicBool>,
}

impl Model {
    /// An empty one.
    pub fn new(clock: Clock) -> Self {
        Self { state: Arc::new(Mutex::new(State::EMPTY)), clock, closed: Arc::default() }
    }

    /// The same store, opened again with another clock.
    pub fn reopened(&self, clock: Clock) -> Self {
        Self { state: self.state.clone(), clock, closed: Arc::default() }
    }

    /// Reaches into what is kept of jobs and rules, to make a model that is wrong.
    pub fn tamper(&self, change: impl FnOnce(&mut Vec<Job>, &mut Vec<Rule>)) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Work { jobs, rules, .. } = &mut state.work;
        change(jobs, rules);
    }

    /// What a failover to a replica that lags behind does: the last `count` events never happened, and their numbers
    /// are given out again. Ids are not.
    pub fn fail_over(&self, count: usize) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = state.log.len().saturating_sub(count);
        state.last -= (state.log.len() - kept) as Seq;
        state.log.truncate(kept);
        state.recorded_at = state.log.last().map_or(Timestamp::MIN, |event| event.recorded_at);
        let last = state.last;
        state.keys.retain(|key| key.answer.seq.is_none_or(|seq| seq <= last));
        state.known.go_back(last);
    }

    /// The state, while the store is open.
    fn state(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        if self.closed.load(Ordering::SeqCst) {
            return Err(StoreError::Closed);
        }
        Ok(self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[async_trait]
impl Store for Model {
    fn engine(&self) -> &'static str {
        "model"
    }

    async fn store_key(&self) -> Result<StoreKey, StoreError> {
        // Not secret: nobody but tests uses a model.
        Ok(StoreKey::new([7; STORE_KEY_BYTES]))
    }

    async fn append(&self, batch: Vec<Entry>) -> Result<Vec<Appended>, StoreError> {
        if batch.is_empty() {
            return Err(Invalid::new("events", "is empty").into());
        }
        let mut state = self.state()?;
        // All or nothing: the batch is carried out on a copy.
        let mut changed = state.clone();
        let at = changed.time((self.clock)());
        let answers = batch.into_iter().map(|entry| changed.accept(entry, at)).collect::<Result<_, _>>()?;
        *state = changed;
        Ok(answers)
    }

    async fn release_due(&self, limit: usize) -> Result<Released, StoreError> {
        let mut state = self.state()?;
        let at = state.time((self.clock)());
        let due = state.in_due_order().into_iter().filter(|pending| pending.not_before <= at);
        let due = up_to_a_page(due.take(limit).collect());
        let count = due.len();
        for pending in due {
            state.pending.retain(|other| other.id != pending.id);
            state.log_now(pending, at);
        }
        let next_due = state.in_due_order().first().map(|pending| pending.not_before);
        Ok(Released { count, last: state.last, next_due })
    }

    async fn read(&self, read: Read) -> Result<Page, StoreError> {
        let state = self.state()?;
        Ok(match &read.filter.object {
            None => state.read_places(read.after, read.limit, &read.filter),
            Some(object) => state.read_object(read.after, read.limit, object, &read.filter),
        })
    }

    async fn chain(&self, object: &ObjectKey, before: Option<Seq>, limit: usize) -> Result<Vec<Event>, StoreError> {
        let state = self.state()?;
        let wanted = |event: &&Event| event.object.as_ref() == Some(object) && before.is_none_or(|b| event.seq < b);
        Ok(take_page(state.log.iter().rev().filter(wanted).take(limit), limit).0)
    }

    async fn event(&self, seq: Seq) -> Result<Option<Event>, StoreError> {
        Ok(self.state()?.log.iter().find(|event| event.seq == seq).cloned())
    }

    async fn find(&self, id: EventId) -> Result<Option<Found>, StoreError> {
        let state = self.state()?;
        let logged = state.log.iter().find(|event| event.id == id).cloned().map(Found::Logged);
        let pending = || state.pending.iter().find(|pending| pending.id == id).cloned().map(Found::Pending);
        Ok(logged.or_else(pending))
    }

    async fn pending(&self, limit: usize) -> Result<Vec<Pending>, StoreError> {
        Ok(up_to_a_page(self.state()?.in_due_order().into_iter().take(limit).collect()))
    }

    async fn pending_count(&self) -> Result<u64, StoreError> {
        Ok(self.state()?.pending.len() as u64)
    }

    async fn cancel(&self, id: EventId) -> Result<Cancelled, StoreError> {
        let mut state = self.state()?;
        if let Some(place) = state.pending.iter().position(|pending| pending.id == id) {
            state.pending.remove(place);
            state.keys.retain(|key| key.answer.id != id);
            return Ok(Cancelled::Gone);
        }
        let logged = state.log.iter().find(|event| event.id == id);
        Ok(logged.map_or(Cancelled::Unknown, |event| Cancelled::AlreadyLogged(event.seq)))
    }

    async fn bounds(&self) -> Result<Bounds, StoreError> {
        Ok(self.state()?.bounds())
    }

    async fn seq_before(&self, time: Timestamp) -> Result<Seq, StoreError> {
        let state = self.state()?;
        let before = state.log.iter().rev().find(|event| event.recorded_at < time);
        Ok(before.map_or(state.first() - 1, |event| event.seq))
    }

    async fn bytes(&self) -> Result<u64, StoreError> {
        Ok(self.state()?.log.iter().map(|event| event.bytes() as u64).sum())
    }

    async fn trim(&self, keep_from: Seq, limit: usize) -> Result<Bounds, StoreError> {
        let mut state = self.state()?;
        let old = state.log.iter().take_while(|event| event.seq < keep_from).take(limit).count();
        state.log.drain(..old);
        Ok(state.bounds())
    }

    async fn purge_keys(&self, limit: usize) -> Result<usize, StoreError> {
        let mut state = self.state()?;
        let at = state.time((self.clock)());
        let mut purged = 0;
        state.keys.retain(|key| {
            let passed = key.recorded_at + KEY_WINDOW <= at && purged < limit;
            purged += usize::from(passed);
            !passed
        });
        Ok(purged)
    }

    async fn now(&self) -> Result<Timestamp, StoreError> {
        drop(self.state()?);
        Ok(whole_microseconds((self.clock)()))
    }

    async fn ready(&self) -> Result<(), StoreError> {
        self.state().map(|_| ())
    }

    async fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }
}

/// Makes models, so that the suite can be tried on the model itself.
pub struct ModelFactory;

struct ModelPlace(Arc<Mutex<State>>);

#[async_trait]
impl Factory for ModelFactory {
    async fn make(&self) -> Box<dyn Place> {
        Box::new(ModelPlace(Arc::new(Mutex::new(State::EMPTY))))
    }
}

#[async_trait]
impl Place for ModelPlace {
    async fn open(&self, clock: Clock) -> SharedStore {
        Arc::new(Model { state: self.0.clone(), clock, closed: Arc::default() })
    }
}
