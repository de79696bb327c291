//! What may start now?

use super::attempt::{self, Begun};
use super::lanes::{Busy, LaneMemory, Step};
use super::life::Life;
use super::pending::After;
use super::worker::Parent;
use crate::handlers::{Context, ContextParts, DeliveryWork, LINES_MAX, Work, done_mark};
use ensue_core::handling::Ended;
use ensue_core::positions::{EventAt, Fence, Lane, LaneKey, LaneState, SlotNumber};
use ensue_core::{Event, GroupName, Seq, StoreError, Timestamp};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How many events are started before others have a turn.
const STARTS_IN_A_ROW: usize = 128;
/// How many lanes are read at once.
const FETCHES_MAX: usize = 16;
/// A parent that has not come to an event within this time does not hold its children any longer.
const PARENTS_WAIT_MAX: Duration = Duration::from_secs(10);

impl Life<'_> {
    /// Starts what can start; is there more that could, if others did not have a turn first?
    pub async fn start_ready(&mut self) -> Result<bool, StoreError> {
        let mut started = 0;
        if self.is_paused() {
            return Ok(false);
        }
        let (limits, parents) = (self.worker.spec.limits(), self.worker.parents.now());
        while self.ending.is_none() && self.running.len() < limits.concurrency {
            if started >= STARTS_IN_A_ROW {
                return Ok(self.lanes.has_ready());
            }
            let Some(key) = self.lanes.next_ready() else { break };
            if self.removing.contains(&key) {
                self.after_flush.push(key);
                continue;
            }
            match self.lanes.step(&key, self.now) {
                Step::Nothing => {}
                Step::Run { event, attempts, redriven, has_row, claimed } => {
                    if attempts == 0 && !parents.iter().all(|parent| self.lets_have(parent, event.seq)) {
                        let memory = self.lanes.get_mut(&key);
                        let since = memory
                            .map_or_else(Instant::now, |lane| *lane.parked_since.get_or_insert_with(Instant::now));
                        if since.elapsed() < PARENTS_WAIT_MAX {
                            self.parked.push(key);
                            continue;
                        }
                    }
                    if !self.worker.membership.holds_lease() {
                        let why = "the lease was not renewed in time; the handler begins again when it has one";
                        return Err(StoreError::Unavailable(why.into()));
                    }
                    started += 1;
                    if !claimed && attempts >= limits.retry.attempts_max() {
                        // Each was written down before it started, and none has ended: it ends whoever runs it.
                        let error = "it never ended: every process that ran it was gone before it did".to_owned();
                        let ended = Ended::Failed { error, after: None, permanent: true };
                        self.not_done(key, event, attempts, Timestamp::now(), ended).await?;
                        continue;
                    }
                    let must_claim = self.suspects.is_one(&key, event.seq)
                        || self.suspects.is_counted(&key)
                        || (has_row && attempts > 0);
                    let is_plain = self.lanes.get(&key).is_none_or(LaneMemory::is_plain);
                    let is_last_attempt = attempts + 1 >= limits.retry.attempts_max();
                    if !claimed && !self.suspects.may_start(&key, event.seq, is_last_attempt) {
                        continue;
                    }
                    if claimed {
                        self.start((key, event), Vec::new(), attempts, redriven).await?;
                    } else if must_claim {
                        self.claim(&key, &event, attempts + 1, redriven);
                    } else if !is_plain || self.worker.spec.batch == 1 || self.alone.contains(&event.seq) {
                        self.start((key, event), Vec::new(), attempts + 1, redriven).await?;
                    } else {
                        self.start_batch(key).await?;
                    }
                }
                Step::Fetch { .. } if self.is_object_held(&key) => {
                    self.held_by_rule.insert(key);
                }
                Step::Fetch { .. } if self.fetching.len() >= FETCHES_MAX => self.after_fetch.push(key),
                Step::Fetch { after, to } => self.fetch(key, after, to),
                Step::CaughtUp => self.caught_up(&key),
            }
        }
        Ok(false)
    }

    fn is_object_held(&self, key: &LaneKey) -> bool {
        match key {
            LaneKey::Object(object) => self.worker.gate.rules().holding_object(object, Timestamp::MIN).is_some(),
            LaneKey::Event(_) => false,
        }
    }

    /// Does a rule hold the handler?
    pub fn is_paused(&self) -> bool {
        self.is_paused_key(&self.worker.spec.key)
    }

    /// May the first attempt at an event start, as far as this parent is concerned? One that is paused holds nobody.
    pub fn lets_have(&self, parent: &Parent, seq: Seq) -> bool {
        parent.progress.lets_children_have(seq) || self.is_paused_key(&parent.key)
    }

    fn is_paused_key(&self, key: &GroupName) -> bool {
        self.worker.gate.rules().holding_handler(key, Timestamp::MIN).is_some()
    }

    /// A rule holds what was about to start. Where it holds only the object, the stream goes on without that.
    fn hold_by_rule(&mut self, held: Vec<(LaneKey, Arc<Event>)>) {
        let handler_waits = self.is_paused();
        for (key, event) in held {
            let Some(memory) = self.lanes.get_mut(&key) else { continue };
            memory.busy = None;
            if memory.row.is_some() {
                // What waits may wait for long, and others need the room.
                self.lanes.let_go(&key);
                self.worker.progress.lane_waits(&key);
            } else if !handler_waits {
                let lane = self.waiting(&key, event.seq, 0);
                self.put_row(&key, &event, lane.clone());
                self.pending.put(self.slot_of(&event), lane);
            }
            self.held_by_rule.insert(key);
        }
    }

    /// Rules have changed: what they held looks again.
    pub fn rules_changed(&mut self) {
        for key in std::mem::take(&mut self.held_by_rule) {
            self.lanes.ready(&key);
        }
        self.unpark();
    }

    /// Writes down that an attempt starts before it does: it may be one that ends the process.
    fn claim(&mut self, key: &LaneKey, event: &Arc<Event>, attempt: u32, redriven: bool) {
        let slot = self.slot_of(event);
        if self.lanes.get(key).is_none_or(|memory| memory.row.is_none()) {
            self.put_row(key, event, self.waiting(key, event.seq, 0));
            self.lanes.fetched(key, vec![event.clone()], event.seq);
        }
        let Some(memory) = self.lanes.get_mut(key) else { return };
        memory.busy = Some(Busy::Writing);
        let Some(row) = &mut memory.row else { return };
        (row.lane.position, row.lane.attempts, row.lane.not_before) = (event.seq, attempt, None);
        row.lane.redriven = redriven;
        self.pending.put(slot, row.lane.clone());
        self.pending.after.push(After::Start(key.clone()));
    }

    /// A lane that waits for an event to be run.
    pub fn waiting(&self, key: &LaneKey, seq: Seq, attempts: u32) -> Lane {
        let (state, not_before, error, redriven) = (LaneState::Waiting, None, None, false);
        Lane { key: key.clone(), position: seq, state, attempts, not_before, error, redriven }
    }

    /// Gives a lane a row in memory; who writes it is the caller. What it stands for may be passed by the cursor.
    pub fn put_row(&mut self, key: &LaneKey, event: &Event, lane: Lane) {
        let slot = self.slot_of(event);
        let covered = self.lanes.put_row(key, slot, lane, event.seq);
        covered.into_iter().for_each(|seq| self.cover(seq));
    }

    /// An attempt that takes long gets a row, and the stream goes on without it. In one that is there it is counted.
    pub fn step_aside(&mut self, key: &LaneKey) {
        let Some(memory) = self.lanes.get_mut(key) else { return };
        let (Some(Busy::Attempt { seq, attempt, .. }), Some(event)) = (memory.busy, memory.front()) else { return };
        if event.seq != seq {
            return;
        }
        if let Some(row) = &mut memory.row {
            (row.lane.position, row.lane.attempts) = (seq, attempt);
            self.pending.put(row.slot, row.lane.clone());
            self.worker.progress.lane_waits(key);
            return;
        }
        let lane = self.waiting(key, seq, attempt);
        self.put_row(key, &event, lane.clone());
        self.pending.put(self.slot_of(&event), lane);
    }

    pub async fn start(
        &mut self,
        (key, event): (LaneKey, Arc<Event>),
        others: Vec<(LaneKey, Arc<Event>)>,
        attempt: u32,
        redriven: bool,
    ) -> Result<(), StoreError> {
        let (slot, fence) = self.slot_and_fence(&event);
        let spec = &self.worker.spec;
        let place = |(key, event): &(LaneKey, Arc<Event>)| {
            let (slot, fence) = self.slot_and_fence(event);
            (slot, fence, key.clone(), event.seq)
        };
        let newest = others.iter().map(|(_, event)| event).chain([&event]).max_by_key(|event| event.seq);
        let newest = newest.unwrap_or(&event);
        let context = Context::new(ContextParts {
            group: spec.key.clone(),
            fence,
            seq: event.seq,
            attempt,
            redriven,
            timeout: spec.limits().timeout,
            cancelled: self.cancel.subscribe(),
            called_off: None,
            lines_max: LINES_MAX,
            logs_always: false,
            states: self.worker.states.clone(),
            task: None,
            work: Work::Delivery(DeliveryWork {
                member: self.worker.membership.member.id,
                slot,
                lane: key.clone(),
                others: others.iter().map(place).collect(),
                newest: EventAt::of(newest),
            }),
        });
        let worker = self.worker;
        let inside = worker.gate.enter();
        let is_held = |(_, event): &(LaneKey, Arc<Event>)| inside.held_by(&spec.key, event.object.as_ref()).is_some();
        let first = (key.clone(), event.clone());
        if is_held(&first) || others.iter().any(is_held) {
            drop(inside);
            self.hold_by_rule(std::iter::once(first).chain(others).collect());
            return Ok(());
        }
        // Of each lane the first: those after it run with it.
        let since = Instant::now();
        for (key, event) in others.iter().rev() {
            if let Some(lane) = self.lanes.get_mut(key) {
                lane.busy = Some(Busy::Attempt { seq: event.seq, attempt, since });
            }
        }
        if let Some(lane) = self.lanes.get_mut(&key) {
            lane.busy = Some(Busy::Attempt { seq: event.seq, attempt, since });
            lane.claimed = false;
        }
        let begun = attempt::begin(spec, (key, event), others, attempt, context, &self.prevs).await;
        drop(inside);
        match begun {
            Begun::Finished(finished) => self.conclude(finished).await,
            Begun::Waits(rest) => {
                self.running.spawn(rest);
                Ok(())
            }
        }
    }

    fn slot_and_fence(&self, event: &Event) -> (SlotNumber, Fence) {
        let slot = self.slot_of(event);
        (slot, self.slot_starts[usize::from(slot)].map_or(0, |slot| slot.fence))
    }

    /// A lane has done everything that the stream has passed over: the stream serves it again.
    fn caught_up(&mut self, key: &LaneKey) {
        let Some(row) = self.lanes.get(key).and_then(|lane| lane.row.as_ref()) else { return };
        let (position, slot) = (row.lane.position, row.slot);
        self.lanes.remove_row(key);
        self.worker.progress.lane_waits(key);
        self.removing.insert(key.clone());
        if position > self.window.cursor() + 1 {
            // What is done ahead of the cursor stays known until the cursor has passed it.
            self.pending.put(slot, done_mark(key.clone(), position - 1));
            self.pending.marks.push((key.clone(), slot, position));
            self.marks.insert(key.clone(), (slot, position));
        } else {
            self.pending.remove(slot, key.clone());
        }
        self.lanes.ready(key);
    }
}
