//! Random comparison: what a crash at any commit repeats or leaves out.

use super::*;
use crate::delivery::lanes::{Busy, Step};
use crate::delivery::read_ahead::ReadAhead;
use ensue_core::positions::LaneState;
use ensue_core::{EventId, Json, ObjectKey, Topic};
use proptest::prelude::*;
use tokio::time::Instant;

/// Objects of the log in the random comparison.
const OBJECTS: usize = 3;
/// One of them holds at most three events.
const READ_AHEAD: usize = 48;

fn key(object: usize) -> LaneKey {
    LaneKey::Object(ObjectKey::stored(&format!("o{object}")))
}

fn event(seq: Seq, object: usize) -> Arc<Event> {
    let at = Timestamp::UNIX_EPOCH;
    Arc::new(Event {
        seq,
        prev: None,
        id: EventId::new(at, [0; 10]),
        topic: Topic::stored("t"),
        object: Some(ObjectKey::stored(&format!("o{object}"))),
        payload: Json::null(),
        metadata: Json::empty_object(),
        occurred_at: at,
        recorded_at: at,
        to: None,
    })
}

fn waiting(key: &LaneKey, position: Seq) -> Lane {
    let (state, not_before, error) = (LaneState::Waiting, None, None);
    Lane { key: key.clone(), position, state, attempts: 0, not_before, error, redriven: false }
}

/// The store of one slot, as far as a worker reads it when it starts.
#[derive(Default)]
struct Stored {
    cursor: Seq,
    lanes: HashMap<LaneKey, Lane>,
}

impl Stored {
    fn commit(&mut self, changes: &[SlotChange]) {
        for change in changes {
            self.cursor = self.cursor.max(change.cursor.unwrap_or(0));
            for lane in &change.lanes {
                match lane {
                    LaneChange::Put(lane) => {
                        if self.lanes.get(&lane.key).is_none_or(|stored| stored.position <= lane.position) {
                            self.lanes.insert(lane.key.clone(), lane.clone());
                        }
                    }
                    LaneChange::Remove(key) => {
                        self.lanes.remove(key);
                    }
                }
            }
        }
    }

    /// Does the next start run this event?
    fn runs(&self, seq: Seq, key: &LaneKey) -> bool {
        match self.lanes.get(key) {
            Some(lane) if lane.state == LaneState::Done && lane.position > self.cursor => {
                seq > self.cursor && seq >= lane.position
            }
            Some(lane) => seq >= lane.position,
            None => seq > self.cursor,
        }
    }
}

/// How an attempt ends that succeeds.
#[derive(Debug, Clone, Copy)]
enum End {
    Plain,
    /// With something that it published.
    Published,
    /// In the transaction of the handler.
    OwnTransaction,
}

/// One slot of a worker: what [`Life`](crate::delivery::life::Life) does with these parts.
#[derive(Default)]
struct Slot {
    log: Vec<(Seq, LaneKey)>,
    window: Window,
    lanes: Lanes,
    pending: Pending,
    marks: Marks,
    written: Seq,
    flushing: Option<Flush>,
    removing: HashSet<LaneKey>,
    removing_now: HashSet<LaneKey>,
    stored: Stored,
    /// Committed with what they published, or in their own transaction.
    once: HashSet<Seq>,
    done: HashSet<Seq>,
}

impl Slot {
    fn arrive(&mut self, object: usize) {
        let (seq, bounds) = (self.log.len() as Seq + 1, ReadAhead::of(READ_AHEAD, 1));
        let key = key(object);
        if self.lanes.is_full(&key, &bounds) && self.lanes.is_writing(&key) {
            return;
        }
        self.log.push((seq, key.clone()));
        self.window.take(seq);
        if self.lanes.is_full(&key, &bounds) {
            let first = self.lanes.get(&key).and_then(|lane| lane.front()).unwrap();
            let row = waiting(&key, first.seq);
            self.lanes.overflow(&key, 0, row.clone()).into_iter().for_each(|seq| self.window.done(seq));
            self.pending.put(0, row);
        }
        if !self.lanes.arrive(key, event(seq, object)) {
            self.window.done(seq);
        }
    }

    fn start(&mut self, object: usize) {
        let key = key(object);
        if self.removing.contains(&key) {
            return;
        }
        match self.lanes.step(&key, Timestamp::UNIX_EPOCH) {
            Step::Nothing => {}
            Step::Run { event, .. } => {
                let busy = Busy::Attempt { seq: event.seq, attempt: 1, since: Instant::now() };
                self.lanes.get_mut(&key).unwrap().busy = Some(busy);
            }
            Step::Fetch { after, to } => {
                let is_next = |(seq, of): &&(Seq, LaneKey)| *of == key && *seq > after && *seq <= to;
                let next = self.log.iter().find(is_next).map(|(seq, _)| event(*seq, object));
                let to = next.as_ref().map_or(to, |event| event.seq);
                self.lanes.fetched(&key, next.into_iter().collect(), to);
            }
            Step::CaughtUp => self.caught_up(&key),
        }
    }

    fn caught_up(&mut self, key: &LaneKey) {
        let position = self.lanes.get(key).and_then(|lane| lane.row.as_ref()).unwrap().lane.position;
        self.lanes.remove_row(key);
        self.removing.insert(key.clone());
        if position > self.window.cursor() + 1 {
            self.pending.put(0, done_mark(key.clone(), position - 1));
            self.pending.marks.push((key.clone(), 0, position));
            self.marks.insert(key.clone(), (0, position));
        } else {
            self.pending.remove(0, key.clone());
        }
    }

    fn end(&mut self, object: usize, end: End) {
        let key = key(object);
        let Some(lane) = self.lanes.get_mut(&key) else { return };
        let (Some(Busy::Attempt { seq, .. }), Some(event)) = (lane.busy, lane.front()) else { return };
        let has_row = lane.row.is_some();
        match end {
            End::Plain => {
                if has_row {
                    self.pending.dirty.insert(key.clone());
                }
                self.passed(&key, seq);
            }
            End::OwnTransaction => {
                let mut change = SlotChange::new(GroupName::stored("h"), 0, Uuid::nil(), 1);
                change.lanes.push(LaneChange::Put(done_mark(key.clone(), seq)));
                self.stored.commit(&[change]);
                self.once.insert(seq);
                if has_row {
                    self.pending.dirty.insert(key.clone());
                } else {
                    self.marks.insert(key.clone(), (0, seq + 1));
                }
                self.passed(&key, seq);
            }
            End::Published => {
                lane.busy = Some(Busy::Writing);
                let started_at = Timestamp::UNIX_EPOCH;
                let row = has_row.then(|| waiting(&key, seq + 1));
                let (others, entries, jobs, marks_before) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
                let (slot, attempt) = (0, 1);
                let done = DoneWith { slot, key, event, others, attempt, started_at, entries, jobs, row, marks_before };
                self.pending.done_with.push(done);
            }
        }
    }

    fn passed(&mut self, key: &LaneKey, seq: Seq) {
        self.done.insert(seq);
        self.window.done(seq);
        self.lanes.pass(key, seq);
        if mark_done(&mut self.marks, key, seq) {
            self.pending.marks_ahead.insert(key.clone());
        }
    }

    fn flush(&mut self) {
        if self.flushing.is_some() {
            return;
        }
        let slot = AcquiredSlot { slot: 0, fence: 1, cursor: 0, vanished: 0 };
        let group = GroupName::stored("h");
        let owner = Owner { group: &group, member: Uuid::nil(), slots: &[slot] };
        let pending = std::mem::take(&mut self.pending);
        let flush = pending.flush(&owner, &mut self.window, &mut self.marks, &mut self.written, &self.lanes);
        self.removing.extend(flush.removing.iter().cloned());
        self.removing_now = self.removing.clone();
        self.flushing = Some(flush);
    }

    /// The flush is on disk, and the worker learns of it.
    fn written(&mut self) {
        let Some(flush) = self.flushing.take() else { return };
        self.stored.commit(&flush.changes);
        let removed = std::mem::take(&mut self.removing_now);
        self.removing.retain(|key| !removed.contains(key));
        for done in flush.done_with {
            self.once.insert(done.event.seq);
            self.passed(&done.key, done.event.seq);
        }
    }

    /// What a crash at this moment would do again, or leave out.
    fn check(&self) -> Result<(), String> {
        for (seq, key) in &self.log {
            let runs = self.stored.runs(*seq, key);
            if runs && self.once.contains(seq) {
                return Err(format!("{seq} is committed with what it published, and would run again"));
            }
            // What a row stands for may run again until the row has moved on.
            let has_row = self.removing.contains(key) || self.lanes.get(key).is_some_and(|lane| lane.row.is_some());
            if runs && *seq <= self.stored.cursor && !has_row && self.done.contains(seq) {
                return Err(format!("the cursor {} has passed {seq}, which would run again", self.stored.cursor));
            }
            if !runs && !self.done.contains(seq) && !self.once.contains(seq) {
                return Err(format!("{seq} was never done, and would not run"));
            }
        }
        Ok(())
    }
}

/// H45: the cursor passes an event of a lane that has an older mark, in the change that has what
/// the event published.
#[test]
fn mark_that_the_cursor_passes_goes_in_the_same_commit() {
    let mut slot = Slot::default();
    let (slow, object) = (0, 1);
    [slow, object, object].into_iter().for_each(|of| slot.arrive(of));
    slot.start(slow);
    // Ahead of the cursor, so that it is marked.
    slot.start(object);
    slot.end(object, End::Published);
    slot.flush();
    slot.written();
    assert_eq!((slot.stored.cursor, slot.stored.lanes[&key(object)].position), (0, 3));
    slot.start(object);
    slot.end(slow, End::Plain);
    slot.end(object, End::Published);
    slot.flush();
    slot.written();
    assert_eq!(slot.check(), Ok(()));
    assert_eq!((slot.stored.cursor, slot.stored.lanes.len()), (3, 0));
}

/// H45: the cursor passes an event that published nothing, of a lane with a mark that is at work on
/// its next one.
#[test]
fn mark_of_a_busy_lane_moves_on_with_the_cursor() {
    let mut slot = Slot::default();
    let (slow, object) = (0, 1);
    [slow, object, object, object].into_iter().for_each(|of| slot.arrive(of));
    slot.start(slow);
    slot.start(object);
    slot.end(object, End::Published);
    slot.flush();
    slot.written();
    slot.start(object);
    slot.end(object, End::Plain);
    slot.start(object);
    slot.end(slow, End::Plain);
    slot.flush();
    slot.written();
    assert_eq!(slot.stored.cursor, 3);
    assert_eq!(slot.check(), Ok(()));
}

fn end() -> impl Strategy<Value = End> {
    prop::sample::select(vec![End::Plain, End::Published, End::OwnTransaction])
}

proptest! {
    /// Whenever the process ends, the next one repeats nothing that was committed with what it
    /// published and nothing that the stored cursor has passed, and leaves nothing out.
    #[test]
    fn crash_at_any_commit_repeats_nothing_that_is_settled(
        steps in prop::collection::vec((0..OBJECTS, 0..5_u8, end()), 1..80),
    ) {
        let mut slot = Slot::default();
        for (object, step, end) in steps {
            match step {
                0 => slot.arrive(object),
                1 => slot.start(object),
                2 => slot.end(object, end),
                3 => slot.flush(),
                _ => slot.written(),
            }
            prop_assert_eq!(slot.check(), Ok(()));
        }
    }
}
