//! Which events of which object are next?
//!
//! A lane in memory is a queue of what came by the stream. A lane with a *row* stands apart from the stream: what the
//! stream brings of it is left in the log, and read from there when the lane has come so far. It has caught up when it
//! has done everything that the stream has passed over; then its row goes and the stream serves it again.

use super::read_ahead::ReadAhead;
use ensue_core::positions::{Ask, Lane, LaneKey, LaneState, SlotNumber};
use ensue_core::{Event, Seq, Timestamp};
use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use tokio::time::Instant;

/// All lanes of one handler that are not simply done.
#[derive(Default)]
pub(super) struct Lanes {
    lanes: HashMap<LaneKey, LaneMemory>,
    /// Lanes that may have something to start, each once, in turn.
    ready: VecDeque<LaneKey>,
    /// Lanes with a row that wait for their time.
    due: BTreeSet<(Timestamp, LaneKey)>,
    /// How many events are in queues, and their bytes.
    queued: usize,
    bytes: usize,
}

/// What is known of a lane.
#[derive(Default)]
pub(super) struct LaneMemory {
    queue: VecDeque<Arc<Event>>,
    /// Those of the queue.
    bytes: usize,
    /// What it is busy with; nothing else of it starts meanwhile.
    pub busy: Option<Busy>,
    pub row: Option<Row>,
    /// The attempt at its next event is written down and may start.
    pub claimed: bool,
    /// What somebody asked while it was busy.
    pub ask: Option<Ask>,
    /// Since when its next event waits for its parents.
    pub parked_since: Option<Instant>,
    is_ready: bool,
}

impl LaneMemory {
    /// The next event, if it is in memory.
    pub fn front(&self) -> Option<Arc<Event>> {
        self.queue.front().cloned()
    }

    /// Is this event in memory?
    pub fn holds(&self, seq: Seq) -> bool {
        self.queue.binary_search_by_key(&seq, |event| event.seq).is_ok()
    }

    /// Is its next event one like any other, which may go with others into a batch?
    pub fn is_plain(&self) -> bool {
        self.row.as_ref().is_none_or(|Row { lane, .. }| {
            let is_waiting = matches!(lane.state, LaneState::Waiting | LaneState::Done);
            is_waiting && lane.attempts == 0 && lane.not_before.is_none() && !lane.redriven
        })
    }

    /// Is there more of it, in memory or in the log?
    pub fn has_more(&self) -> bool {
        !self.queue.is_empty() || self.row.as_ref().is_some_and(|row| row.fetched_to < row.need_to)
    }

    /// Forgets what is in memory; answers which those were.
    fn clear(&mut self) -> Vec<Seq> {
        self.bytes = 0;
        self.queue.drain(..).map(|event| event.seq).collect()
    }

    /// The events that are in memory, in order.
    pub fn queued(&self) -> impl Iterator<Item = &Arc<Event>> {
        self.queue.iter()
    }
}

/// What a lane is busy with.
#[derive(Debug, Clone, Copy)]
pub(super) enum Busy {
    /// An attempt at this event.
    Attempt { seq: Seq, attempt: u32, since: Instant },
    /// Something that must be written first.
    Writing,
    /// Reading what is next.
    Fetching,
}

/// A lane that stands apart from the stream.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub slot: SlotNumber,
    /// As it is to be written.
    pub lane: Lane,
    /// The stream has passed over events of this lane up to here.
    pub need_to: Seq,
    /// The queue has everything from the position up to here.
    pub fetched_to: Seq,
    /// It is there because the lane was full, and nothing of it has failed since.
    pub is_overflow: bool,
}

/// What a lane can do next.
#[derive(Debug)]
pub(super) enum Step {
    /// Nothing, or nothing yet.
    Nothing,
    /// Run this event; so many attempts at it were made.
    Run { event: Arc<Event>, attempts: u32, redriven: bool, has_row: bool, claimed: bool },
    /// Read on after this place, up to that one.
    Fetch { after: Seq, to: Seq },
    /// Its row can go.
    CaughtUp,
}

impl Lanes {
    pub fn get(&self, key: &LaneKey) -> Option<&LaneMemory> {
        self.lanes.get(key)
    }

    pub fn get_mut(&mut self, key: &LaneKey) -> Option<&mut LaneMemory> {
        self.lanes.get_mut(key)
    }

    /// How many events are held in memory.
    pub fn queued(&self) -> usize {
        self.queued
    }

    /// How many of them are not in these lanes.
    pub fn queued_beside(&self, lanes: &HashSet<LaneKey>) -> usize {
        let in_them: usize = lanes.iter().filter_map(|key| self.lanes.get(key)).map(|lane| lane.queue.len()).sum();
        self.queued.saturating_sub(in_them)
    }

    /// How many bytes they have.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn iter(&self) -> impl Iterator<Item = (&LaneKey, &LaneMemory)> {
        self.lanes.iter()
    }

    /// An event came by the stream. False if its lane has a row: then it stays in the log.
    pub fn arrive(&mut self, key: LaneKey, event: Arc<Event>) -> bool {
        let lane = self.lanes.entry(key.clone()).or_default();
        if let Some(row) = &mut lane.row {
            if event.seq >= row.lane.position {
                row.need_to = row.need_to.max(event.seq);
                self.ready(&key);
            }
            return false;
        }
        self.bytes += event.bytes();
        lane.bytes += event.bytes();
        lane.queue.push_back(event);
        self.queued += 1;
        self.ready(&key);
        true
    }

    /// Does a lane that the stream serves hold as much as one object may?
    pub fn is_full(&self, key: &LaneKey, bounds: &ReadAhead) -> bool {
        self.lanes.get(key).is_some_and(|lane| {
            let has_room = lane.queue.len() < bounds.lane_events_max && lane.bytes < bounds.lane_bytes_max;
            lane.row.is_none() && !lane.queue.is_empty() && !has_room
        })
    }

    /// Is the end of its attempt being written?
    pub fn is_writing(&self, key: &LaneKey) -> bool {
        self.lanes.get(key).is_some_and(|lane| matches!(lane.busy, Some(Busy::Writing)))
    }

    /// Has it a row because it was full?
    pub fn is_overflow(&self, key: &LaneKey) -> bool {
        self.lanes.get(key).and_then(|lane| lane.row.as_ref()).is_some_and(|row| row.is_overflow)
    }

    /// Gives a lane that is full a row at its first event. It keeps what it holds: those are the places that the row
    /// stands for from now on.
    pub fn overflow(&mut self, key: &LaneKey, slot: SlotNumber, lane: Lane) -> Vec<Seq> {
        let Some(memory) = self.lanes.get_mut(key) else { return Vec::new() };
        let held: Vec<Seq> = memory.queue.iter().map(|event| event.seq).collect();
        let last = held.last().copied().unwrap_or(lane.position);
        memory.row = Some(Row { slot, lane, need_to: last, fetched_to: last, is_overflow: true });
        held
    }

    /// Takes a lane over as it was stored; the stream begins after `cursor`.
    pub fn load(&mut self, slot: SlotNumber, lane: Lane, cursor: Seq) {
        let key = lane.key.clone();
        let fetched_to = lane.position - 1;
        let need_to = if lane.state == LaneState::Done { cursor } else { cursor.max(lane.position) };
        let row = Row { slot, lane, need_to, fetched_to, is_overflow: false };
        self.lanes.insert(key.clone(), LaneMemory { row: Some(row), ..LaneMemory::default() });
        self.ready(&key);
    }

    /// Marks a lane as one to look at.
    pub fn ready(&mut self, key: &LaneKey) {
        if let Some(lane) = self.lanes.get_mut(key)
            && lane.busy.is_none()
            && !lane.is_ready
        {
            lane.is_ready = true;
            self.ready.push_back(key.clone());
        }
    }

    /// The next lane to look at.
    pub fn next_ready(&mut self) -> Option<LaneKey> {
        let key = self.ready.pop_front()?;
        if let Some(lane) = self.lanes.get_mut(&key) {
            lane.is_ready = false;
        }
        Some(key)
    }

    /// The next lane whose events can go into a batch at once; others keep their turn.
    /// Those of `removing` wait until their rows are gone: a mark that is written meanwhile would go
    /// with the row.
    pub fn next_simple(&mut self, removing: &HashSet<LaneKey>) -> Option<LaneKey> {
        for _ in 0..self.ready.len() {
            let key = self.ready.pop_front()?;
            let Some(lane) = self.lanes.get_mut(&key) else { continue };
            let is_free = lane.busy.is_none() && !removing.contains(&key);
            if is_free && lane.is_plain() && !lane.queue.is_empty() {
                lane.is_ready = false;
                return Some(key);
            }
            self.ready.push_back(key);
        }
        None
    }

    pub fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    /// What the lane can do now. A lane that has nothing left to do is forgotten.
    pub fn step(&mut self, key: &LaneKey, now: Timestamp) -> Step {
        let Some(lane) = self.lanes.get(key) else { return Step::Nothing };
        if lane.busy.is_some() {
            return Step::Nothing;
        }
        let Some(row) = &lane.row else {
            return match lane.queue.front() {
                Some(event) => {
                    let (attempts, redriven, has_row, claimed) = (0, false, false, false);
                    Step::Run { event: event.clone(), attempts, redriven, has_row, claimed }
                }
                None => {
                    self.lanes.remove(key);
                    Step::Nothing
                }
            };
        };
        match (row.lane.state, row.lane.not_before) {
            (LaneState::Held | LaneState::Dead, _) => return Step::Nothing,
            (LaneState::Waiting | LaneState::Done, Some(at)) if at > now => {
                self.due.insert((at, key.clone()));
                return Step::Nothing;
            }
            (LaneState::Waiting | LaneState::Done, _) => {}
        }
        match lane.queue.front() {
            Some(event) if event.seq == row.lane.position => Step::Run {
                event: event.clone(),
                attempts: row.lane.attempts,
                redriven: row.lane.redriven,
                has_row: true,
                claimed: lane.claimed,
            },
            // What was at its position is gone, or no longer wanted: attempts at it do not count for another.
            Some(event) => {
                let (attempts, redriven, has_row, claimed) = (0, false, true, false);
                Step::Run { event: event.clone(), attempts, redriven, has_row, claimed }
            }
            None if row.fetched_to < row.need_to => Step::Fetch { after: row.fetched_to, to: row.need_to },
            None => Step::CaughtUp,
        }
    }

    /// What was read for a lane: these events, and no others up to this place.
    pub fn fetched(&mut self, key: &LaneKey, events: Vec<Arc<Event>>, to: Seq) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        lane.busy = None;
        if let Some(row) = &mut lane.row {
            row.fetched_to = row.fetched_to.max(to);
            self.queued += events.len();
            let bytes = events.iter().map(|event| event.bytes()).sum::<usize>();
            self.bytes += bytes;
            lane.bytes += bytes;
            lane.queue.extend(events);
        }
        self.ready(key);
    }

    /// The event at the front is done with: the lane goes on.
    pub fn pass(&mut self, key: &LaneKey, seq: Seq) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        (lane.busy, lane.parked_since, lane.ask) = (None, None, None);
        let bytes = lane.queue.front().map_or(0, |event| event.bytes());
        if lane.queue.front().is_some_and(|event| event.seq == seq) {
            lane.queue.pop_front();
            self.queued -= 1;
            self.bytes -= bytes;
            lane.bytes -= bytes;
        }
        if let Some(row) = &mut lane.row {
            row.lane.position = row.lane.position.max(seq + 1);
            row.fetched_to = row.fetched_to.max(seq);
            row.lane.state = LaneState::Waiting;
            (row.lane.attempts, row.lane.not_before, row.lane.error) = (0, None, None);
            row.lane.redriven = false;
        }
        self.ready(key);
    }

    /// Gives a lane a row, or changes the one it has. What is in memory of it is let go: these are the places that the row
    /// stands for from now on.
    pub fn put_row(&mut self, key: &LaneKey, slot: SlotNumber, lane: Lane, event: Seq) -> Vec<Seq> {
        let memory = self.lanes.entry(key.clone()).or_default();
        let had_row = memory.row.is_some();
        self.bytes -= memory.bytes;
        let dropped = memory.clear();
        self.queued -= dropped.len();
        let last = dropped.last().copied().unwrap_or(event);
        let need_to = memory.row.as_ref().map_or(last, |row| row.need_to.max(last));
        let fetched_to = lane.position - 1;
        memory.row = Some(Row { slot, lane, need_to, fetched_to, is_overflow: false });
        // Those of a lane that had a row already were never the stream's.
        let covered = if had_row { Vec::new() } else { dropped };
        self.ready(key);
        covered
    }

    /// Lets go of what was read for a lane with a row; it is read again when the lane goes on.
    pub fn let_go(&mut self, key: &LaneKey) {
        let Some(lane) = self.lanes.get_mut(key) else { return };
        let Some(row) = &mut lane.row else { return };
        row.fetched_to = row.lane.position - 1;
        row.is_overflow = false;
        self.bytes -= lane.bytes;
        self.queued -= lane.clear().len();
    }

    /// A lane has caught up: the stream serves it again.
    pub fn remove_row(&mut self, key: &LaneKey) {
        if let Some(lane) = self.lanes.get_mut(key) {
            lane.row = None;
            if lane.queue.is_empty() && lane.busy.is_none() && !lane.is_ready {
                self.lanes.remove(key);
            }
        }
    }

    /// Takes back attempts that were counted and have not started: the rows to write.
    pub fn unclaim(&mut self) -> Vec<(SlotNumber, Lane)> {
        let claimed = self.lanes.values_mut().filter(|lane| lane.claimed);
        let rows = claimed.filter_map(|lane| {
            lane.claimed = false;
            let row = lane.row.as_mut()?;
            row.lane.attempts = row.lane.attempts.saturating_sub(1);
            Some((row.slot, row.lane.clone()))
        });
        rows.collect()
    }

    /// When the next lane is due, if one waits.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Marks the lanes whose time has come.
    pub fn wake_due(&mut self, now: Timestamp) {
        while self.due.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = self.due.pop_first() else { return };
            self.ready(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensue_core::{EventId, Json, ObjectKey, Topic};

    fn event(seq: Seq) -> Arc<Event> {
        let at = Timestamp::UNIX_EPOCH;
        Arc::new(Event {
            seq,
            prev: None,
            id: EventId::new(at, [0; 10]),
            topic: Topic::stored("t"),
            object: Some(ObjectKey::stored("o")),
            payload: Json::null(),
            metadata: Json::empty_object(),
            occurred_at: at,
            recorded_at: at,
            to: None,
        })
    }

    /// H27: an object with much to do has its turn, and then the others have theirs.
    #[test]
    fn a_busy_object_goes_behind_the_others_after_each_of_its_events() {
        let (mut lanes, now) = (Lanes::default(), Timestamp::UNIX_EPOCH);
        let key = |object: &str| LaneKey::Object(ObjectKey::stored(object));
        for (object, seq) in [("hot", 1), ("hot", 2), ("hot", 3), ("a", 4), ("b", 5)] {
            lanes.arrive(key(object), event(seq));
        }
        let mut turns = Vec::new();
        while let Some(next) = lanes.next_ready() {
            if let Step::Run { event, .. } = lanes.step(&next, now) {
                turns.push(event.seq);
                lanes.pass(&next, event.seq);
            }
        }
        assert_eq!(turns, [1, 4, 5, 2, 3]);
    }

    /// H39: a full lane keeps what it holds, leaves the rest in the log, and reads it in order.
    #[test]
    fn full_lane_reads_the_rest_from_the_log() {
        let (mut lanes, key) = (Lanes::default(), LaneKey::Object(ObjectKey::stored("o")));
        let (state, now, bounds) = (LaneState::Waiting, Timestamp::UNIX_EPOCH, ReadAhead::of(32, 1));
        (1..=2).for_each(|seq| assert!(lanes.arrive(key.clone(), event(seq))));
        assert!(lanes.is_full(&key, &bounds));
        let row =
            Lane { key: key.clone(), position: 1, state, attempts: 0, not_before: None, error: None, redriven: false };
        assert_eq!(lanes.overflow(&key, 0, row), [1, 2]);
        assert!((3..=9).all(|seq| !lanes.arrive(key.clone(), event(seq))));
        assert!(!lanes.is_full(&key, &bounds) && lanes.queued() == 2);
        for seq in 1..=2 {
            assert!(matches!(lanes.step(&key, now), Step::Run { event, attempts: 0, .. } if event.seq == seq));
            lanes.pass(&key, seq);
        }
        assert!(matches!(lanes.step(&key, now), Step::Fetch { after: 2, to: 9 }));
        lanes.fetched(&key, (3..=9).map(event).collect(), 9);
        (3..=9).for_each(|seq| lanes.pass(&key, seq));
        assert!(matches!(lanes.step(&key, now), Step::CaughtUp));
        assert_eq!((lanes.queued(), lanes.bytes()), (0, 0));
    }

    /// What waits for a rule takes nobody's room: it is read again when its lane goes on.
    #[test]
    fn what_was_read_for_a_lane_that_has_to_wait_is_let_go_and_read_again() {
        let (mut lanes, key) = (Lanes::default(), LaneKey::Object(ObjectKey::stored("o")));
        let (state, now) = (LaneState::Waiting, Timestamp::UNIX_EPOCH);
        let row =
            Lane { key: key.clone(), position: 5, state, attempts: 0, not_before: None, error: None, redriven: false };
        lanes.load(0, row, 9);
        assert!(matches!(lanes.step(&key, now), Step::Fetch { after: 4, to: 9 }));
        lanes.fetched(&key, (5..=9).map(event).collect(), 9);
        assert_eq!(lanes.queued(), 5);
        assert!(matches!(lanes.step(&key, now), Step::Run { event, .. } if event.seq == 5));
        lanes.let_go(&key);
        assert_eq!((lanes.queued(), lanes.bytes()), (0, 0));
        assert!(matches!(lanes.step(&key, now), Step::Fetch { after: 4, to: 9 }));
    }
}
