//! What is to be written?
//!
//! A worker gathers what it has to write and hands it over in one piece, one at a time. What is written together is atomic
//! for each slot, so a cursor may pass an event in the same change that gives it a row.

use super::lanes::Lanes;
use crate::handlers::done_mark;
use ensue_core::handling::Window;
use ensue_core::jobs::NewJob;
use ensue_core::positions::{AcquiredSlot, Delivery, Lane, LaneChange, LaneKey, LogLine, Lost, SlotChange, SlotNumber};
use ensue_core::{Entry, Event, GroupName, Seq, Timestamp};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use uuid::Uuid;

/// What is to be done once something is written.
#[derive(Debug)]
pub(super) enum After {
    /// The attempt is counted: it may start.
    Start(LaneKey),
}

/// An attempt whose end is written together with what it published. It is a change of its own: if what it publishes is
/// refused, that concerns nobody else.
#[derive(Debug)]
pub(super) struct DoneWith {
    pub slot: SlotNumber,
    pub key: LaneKey,
    pub event: Arc<Event>,
    /// The other events of a batch.
    pub others: Vec<Other>,
    pub attempt: u32,
    pub started_at: Timestamp,
    pub entries: Vec<Entry>,
    pub jobs: Vec<NewJob>,
    /// The row of its lane, if that has one: moved on behind the event.
    pub row: Option<Lane>,
    /// The marks that its own took the place of: they are back if it is refused.
    pub marks_before: Vec<(LaneKey, Option<(SlotNumber, Seq)>)>,
}

/// Another event of a batch.
#[derive(Debug)]
pub(super) struct Other {
    pub slot: SlotNumber,
    pub key: LaneKey,
    pub event: Arc<Event>,
    /// As in [`DoneWith::row`].
    pub row: Option<Lane>,
}

#[derive(Default)]
pub(super) struct Pending {
    lanes: Vec<(SlotNumber, LaneChange)>,
    /// Lanes whose rows in memory are ahead of the stored ones.
    pub dirty: HashSet<LaneKey>,
    pub deliveries: Vec<(SlotNumber, Delivery)>,
    pub lines: Vec<(SlotNumber, LogLine)>,
    /// What Ensue itself publishes about lanes.
    pub notices: Vec<(SlotNumber, Entry)>,
    pub done_with: Vec<DoneWith>,
    pub after: Vec<After>,
    /// Rows that become marks with this change.
    pub marks: Vec<(LaneKey, SlotNumber, Seq)>,
    /// Lanes whose marks in memory are ahead of the stored ones.
    pub marks_ahead: HashSet<LaneKey>,
    pub lost: Option<Lost>,
    /// Somebody waits for it to be written.
    pub urgent: bool,
}

/// What goes to the store.
pub(super) struct Flush {
    /// Those of `done_with` last, in the same order.
    pub changes: Vec<SlotChange>,
    pub done_with: Vec<DoneWith>,
    pub after: Vec<After>,
    /// Lanes whose rows go: nothing of them starts before that is written.
    pub removing: Vec<LaneKey>,
}

/// Whose change it is.
pub(super) struct Owner<'a> {
    pub group: &'a GroupName,
    pub member: Uuid,
    pub slots: &'a [AcquiredSlot],
}

/// What a worker remembers of the rows that only say "done up to here": by lane, the place before which all is done.
pub(super) type Marks = HashMap<LaneKey, (SlotNumber, Seq)>;

/// Moves the mark of a lane behind an event that is done; false if the lane has none, or has it there already.
pub(super) fn mark_done(marks: &mut Marks, key: &LaneKey, seq: Seq) -> bool {
    match marks.get_mut(key) {
        Some((_, position)) if *position <= seq => {
            *position = seq + 1;
            true
        }
        Some(_) | None => false,
    }
}

impl Pending {
    pub fn put(&mut self, slot: SlotNumber, lane: Lane) {
        self.dirty.remove(&lane.key);
        // A row that comes after a mark is more than a mark.
        self.marks.retain(|(key, ..)| *key != lane.key);
        self.lanes.push((slot, LaneChange::Put(lane)));
        self.urgent = true;
    }

    pub fn remove(&mut self, slot: SlotNumber, key: LaneKey) {
        self.dirty.remove(&key);
        self.lanes.push((slot, LaneChange::Remove(key)));
        self.urgent = true;
    }

    /// Is there anything but a cursor to write?
    pub fn is_empty(&self) -> bool {
        self.lanes.is_empty()
            && self.dirty.is_empty()
            && self.deliveries.is_empty()
            && self.lines.is_empty()
            && self.notices.is_empty()
            && self.done_with.is_empty()
            && self.after.is_empty()
            && self.lost.is_none()
    }

    /// Makes one change for each slot that has something to say. The rows of lanes that are dirty are taken from `lanes`.
    pub fn flush(
        self,
        owner: &Owner<'_>,
        window: &mut Window,
        marks: &mut Marks,
        written: &mut Seq,
        lanes: &Lanes,
    ) -> Flush {
        let row_of = |key: &LaneKey| lanes.get(key)?.row.as_ref().map(|row| (row.slot, row.lane.clone()));
        let mut removing = Vec::new();
        let Owner { group, member, slots } = *owner;
        let mut changes: HashMap<SlotNumber, SlotChange> = HashMap::new();
        let fences: HashMap<SlotNumber, u64> = slots.iter().map(|slot| (slot.slot, slot.fence)).collect();
        let mut change = |slot: SlotNumber, write: &mut dyn FnMut(&mut SlotChange)| {
            let fence = fences.get(&slot).copied().unwrap_or_default();
            write(changes.entry(slot).or_insert_with(|| SlotChange::new(group.clone(), slot, member, fence)));
        };
        let cursor = window.cursor();
        for (slot, lane) in self.lanes {
            match &lane {
                LaneChange::Put(lane) => {
                    marks.remove(&lane.key);
                }
                LaneChange::Remove(key) => removing.push(key.clone()),
            }
            change(slot, &mut |change| change.lanes.push(lane.clone()));
        }
        marks.extend(self.marks.into_iter().map(|(key, slot, position)| (key, (slot, position))));
        for (slot, lane) in self.dirty.iter().filter_map(row_of) {
            change(slot, &mut |change| change.lanes.push(LaneChange::Put(lane.clone())));
        }
        marks.retain(|key, (slot, position)| {
            // An attempt that runs may be about to move the mark on: it stays for now.
            let passed = *position <= cursor + 1 && lanes.get(key).is_none_or(|lane| lane.busy.is_none());
            if passed {
                removing.push(key.clone());
                change(*slot, &mut |change| change.lanes.push(LaneChange::Remove(key.clone())));
            }
            !passed
        });
        for (key, (slot, position)) in self.marks_ahead.iter().filter_map(|key| marks.get_key_value(key)) {
            change(*slot, &mut |change| change.lanes.push(LaneChange::Put(done_mark(key.clone(), *position - 1))));
        }
        for (slot, delivery) in self.deliveries {
            change(slot, &mut |change| change.deliveries.push(delivery.clone()));
        }
        for (slot, line) in self.lines {
            change(slot, &mut |change| change.lines.push(line.clone()));
        }
        for (slot, notice) in self.notices {
            change(slot, &mut |change| change.events.push(notice.clone()));
        }
        if let (Some(lost), Some(first)) = (self.lost, slots.first()) {
            change(first.slot, &mut |change| change.lost = Some(lost));
        }
        if cursor > *written {
            *written = cursor;
            slots.iter().for_each(|slot| change(slot.slot, &mut |_| {}));
        }
        let mut others: Vec<SlotChange> = changes.into_values().collect();
        others.sort_by_key(|change| change.slot);
        others.iter_mut().for_each(|change| change.cursor = Some(cursor));

        let mut done_with = self.done_with;
        let mut changes = others;
        for done in &mut done_with {
            let fence = fences.get(&done.slot).copied().unwrap_or_default();
            let mut change = SlotChange::new(group.clone(), done.slot, member, fence);
            (change.events, change.jobs) = (std::mem::take(&mut done.entries), std::mem::take(&mut done.jobs));
            match done.row.take() {
                Some(row) => change.lanes.push(LaneChange::Put(row)),
                // Nothing before it is open: its cursor says it. An older mark of the lane goes with the
                // same change: one that a cursor has passed is read as a lane that fell behind.
                None if window.is_next(done.event.seq) && slots.len() == 1 && done.others.is_empty() => {
                    change.cursor = Some(done.event.seq);
                    if let Some(before) = marks.remove(&done.key) {
                        done.marks_before.push((done.key.clone(), Some(before)));
                        change.lanes.push(LaneChange::Remove(done.key.clone()));
                    }
                }
                None => {
                    let before = marks.insert(done.key.clone(), (done.slot, done.event.seq + 1));
                    done.marks_before.push((done.key.clone(), before));
                    change.lanes.push(LaneChange::Put(done_mark(done.key.clone(), done.event.seq)));
                }
            }
            // What is in other slots cannot be part of this change: it is done when this one is.
            for other in done.others.iter_mut().filter(|other| other.slot == done.slot) {
                let mark = || {
                    let before = marks.insert(other.key.clone(), (other.slot, other.event.seq + 1));
                    done.marks_before.push((other.key.clone(), before));
                    done_mark(other.key.clone(), other.event.seq)
                };
                change.lanes.push(LaneChange::Put(other.row.take().unwrap_or_else(mark)));
            }
            changes.push(change);
        }
        Flush { changes, done_with, after: self.after, removing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::lanes::{Busy, Step};
    use ensue_core::positions::LaneState;
    use ensue_core::{EventId, Json, ObjectKey, Topic};
    use proptest::prelude::*;
    use tokio::time::Instant;

    /// Objects of the log in the random comparison.
    const OBJECTS: usize = 3;

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

    /// One slot of a worker: what [`Life`](super::super::life::Life) does with these parts.
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
        stored: Stored,
        /// Committed with what they published, or in their own transaction.
        once: HashSet<Seq>,
        done: HashSet<Seq>,
    }

    impl Slot {
        fn arrive(&mut self, object: usize) {
            let seq = self.log.len() as Seq + 1;
            self.log.push((seq, key(object)));
            self.window.take(seq);
            assert!(self.lanes.arrive(key(object), event(seq, object)));
        }

        fn start(&mut self, object: usize) {
            let key = key(object);
            if self.removing.contains(&key) {
                return;
            }
            if let Step::Run { event, .. } = self.lanes.step(&key, Timestamp::UNIX_EPOCH) {
                let busy = Busy::Attempt { seq: event.seq, attempt: 1, since: Instant::now() };
                self.lanes.get_mut(&key).unwrap().busy = Some(busy);
            }
        }

        fn end(&mut self, object: usize, end: End) {
            let key = key(object);
            let Some(lane) = self.lanes.get_mut(&key) else { return };
            let (Some(Busy::Attempt { seq, .. }), Some(event)) = (lane.busy, lane.front()) else { return };
            match end {
                End::Plain => self.passed(&key, seq),
                End::OwnTransaction => {
                    let mut change = SlotChange::new(GroupName::stored("h"), 0, Uuid::nil(), 1);
                    change.lanes.push(LaneChange::Put(done_mark(key.clone(), seq)));
                    self.stored.commit(&[change]);
                    self.once.insert(seq);
                    self.marks.insert(key.clone(), (0, seq + 1));
                    self.passed(&key, seq);
                }
                End::Published => {
                    lane.busy = Some(Busy::Writing);
                    let (started_at, row) = (Timestamp::UNIX_EPOCH, None);
                    let (others, entries, jobs, marks_before) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
                    let (slot, attempt) = (0, 1);
                    let done =
                        DoneWith { slot, key, event, others, attempt, started_at, entries, jobs, row, marks_before };
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
            self.flushing = Some(flush);
        }

        /// What was flushed is on disk, and the worker is told.
        fn written(&mut self) {
            let Some(flush) = self.flushing.take() else { return };
            self.stored.commit(&flush.changes);
            self.removing.clear();
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
                if runs && *seq <= self.stored.cursor {
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
}
