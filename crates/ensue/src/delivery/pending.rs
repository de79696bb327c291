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
    /// The end of a counted attempt is written: the next may start.
    Ready(LaneKey),
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
mod tests;
