//! What follows when an attempt has ended?

use super::attempt::Finished;
use super::lanes::{Busy, LaneMemory};
use super::life::Life;
use super::pending::{After, DoneWith, Other, mark_done};
use crate::attempted::Attempted;
use crate::handlers::Settlement;
use ensue_core::handling::{Ended, Next, OnExhausted, OwnCommit, SyncOutcome};
use ensue_core::jobs::notices;
use ensue_core::positions::{Delivery, DeliveryState, Lane, LaneKey, LaneState, LogLine, SlotNumber};
use ensue_core::{Event, Seq, StoreError, Timestamp};
use std::collections::HashSet;
use std::sync::Arc;

impl Life<'_> {
    /// Does what follows from the end of an attempt.
    pub async fn conclude(&mut self, finished: Finished) -> Result<(), StoreError> {
        let Finished { key, event, others, attempt, started_at, context, ended } = finished;
        let mut said = context.take();
        if context.redriven() {
            self.look_how_often_before(event.seq, attempt).await?;
        }
        self.suspects.ended(&key).into_iter().for_each(|key| self.lanes.ready(&key));
        self.alone.remove(&event.seq);
        let ended = ended.with_own_commit(said.own_commit);
        let has_failed = !matches!(ended, Ended::Done);
        self.count(&ended, 1 + others.len());
        let limits = self.worker.spec.limits();
        let keeps_lines = has_failed || (limits.logs_always && !said.lines.is_empty());
        if keeps_lines {
            self.keep_lines(&event, std::mem::take(&mut said.lines));
        }
        if has_failed {
            return self.all_not_done((key, event), others, attempt, started_at, ended).await;
        }
        let all = std::iter::once((key, event)).chain(others);
        if limits.audit || attempt > 1 || keeps_lines || context.redriven() {
            let state = if context.redriven() { DeliveryState::Redriven } else { DeliveryState::Done };
            let all: Vec<(LaneKey, Arc<Event>)> = all.collect();
            for (_, event) in &all {
                self.record(event, state, attempt, None, started_at);
            }
            self.all_done(all.into_iter(), said, attempt, started_at);
        } else {
            self.all_done(all, said, attempt, started_at);
        }
        Ok(())
    }

    /// These are done, with what they published.
    fn all_done(
        &mut self,
        mut all: impl Iterator<Item = (LaneKey, Arc<Event>)>,
        said: Settlement,
        attempt: u32,
        started_at: Timestamp,
    ) {
        let Settlement { events: entries, jobs, own_commit, .. } = said;
        let settled = own_commit == OwnCommit::Committed;
        if settled || (entries.is_empty() && jobs.is_empty()) {
            let mut counted = HashSet::new();
            for (key, event) in all {
                let row = self.lanes.get(&key).and_then(|memory| memory.row.as_ref());
                if row.is_some_and(|row| row.lane.attempts > 0) && !self.suspects.is_counted(&key) {
                    counted.insert(key.clone());
                }
                let has_row = row.is_some();
                match (settled, has_row) {
                    (true, false) => {
                        self.marks.insert(key.clone(), (self.slot_of(&event), event.seq + 1));
                    }
                    // Also if it settled itself: its note says that the lane is done, and what the stream has passed over is not.
                    (true | false, true) => {
                        self.pending.dirty.insert(key.clone());
                    }
                    (false, false) => {}
                }
                self.passed(&key, event.seq);
            }
            counted.iter().for_each(|key| self.write_before_next(key));
            return;
        }
        let Some((key, event)) = all.next() else { return };
        let (slot, row) = (self.slot_of(&event), self.row_behind(&key, event.seq));
        let others: Vec<Other> = all
            .map(|(key, event)| Other { slot: self.slot_of(&event), row: self.row_behind(&key, event.seq), key, event })
            .collect();
        for key in others.iter().map(|other| &other.key).chain([&key]) {
            if let Some(memory) = self.lanes.get_mut(key) {
                memory.busy = Some(Busy::Writing);
            }
        }
        self.pending.done_with.push(DoneWith {
            slot,
            key,
            event,
            others,
            attempt,
            started_at,
            entries,
            jobs,
            row,
            marks_before: Vec::new(),
        });
        self.pending.urgent = true;
    }

    /// The next of a lane whose attempt was counted starts when the end of that is written: if it ends the process, the
    /// count must not be that of the one before.
    fn write_before_next(&mut self, key: &LaneKey) {
        let Some(memory) = self.lanes.get_mut(key) else { return };
        let Some(row) = memory.row.as_ref().filter(|_| memory.has_more()) else { return };
        memory.busy = Some(Busy::Writing);
        self.pending.put(row.slot, row.lane.clone());
        self.pending.after.push(After::Ready(key.clone()));
    }

    /// The row of a lane, moved on behind an event; none if it has none.
    fn row_behind(&self, key: &LaneKey, seq: Seq) -> Option<Lane> {
        self.lanes.get(key)?.row.as_ref()?;
        Some(self.waiting(key, seq + 1, 0))
    }

    /// An attempt at these has not succeeded.
    async fn all_not_done(
        &mut self,
        (key, event): (LaneKey, Arc<Event>),
        others: Vec<(LaneKey, Arc<Event>)>,
        attempt: u32,
        started_at: Timestamp,
        ended: Ended,
    ) -> Result<(), StoreError> {
        if others.is_empty() {
            return self.not_done(key, event, attempt, started_at, ended).await;
        }
        let runs_alone = matches!(ended, Ended::Failed { after: None, .. } | Ended::Unreadable(_));
        let mut lanes_told = HashSet::new();
        for (key, event) in std::iter::once((key, event)).chain(others) {
            // A lane that has stepped aside since goes on from its row, one event at a time.
            let memory = self.lanes.get_mut(&key).filter(|memory| runs_alone && memory.holds(event.seq));
            if let Some(memory) = memory {
                self.alone.insert(event.seq);
                memory.busy = None;
                if let Some(row) = &mut memory.row {
                    row.lane.attempts = 0;
                }
                self.lanes.ready(&key);
            } else if lanes_told.insert(key.clone()) {
                // What comes after it in its lane waits behind it.
                self.not_done(key, event, attempt, started_at, ended.clone()).await?;
            }
        }
        Ok(())
    }

    /// An event is done: the cursor and its lane go on.
    pub fn passed(&mut self, key: &LaneKey, seq: Seq) {
        self.passed_as(key, seq, SyncOutcome::Done);
    }

    /// The same for an event that may have been given up.
    fn passed_as(&mut self, key: &LaneKey, seq: Seq, outcome: SyncOutcome) {
        self.window.done(seq);
        self.started_before.remove(&seq);
        self.lanes.pass(key, seq);
        if mark_done(&mut self.marks, key, seq) {
            self.pending.marks_ahead.insert(key.clone());
        }
        if outcome == SyncOutcome::Done {
            self.prevs.done(key, seq);
        }
        self.worker.progress.ended(seq, outcome);
    }

    /// What a successful attempt wanted to publish was refused: it has failed, for good.
    pub async fn refused(&mut self, done: DoneWith, error: &StoreError) -> Result<(), StoreError> {
        let others: Vec<(LaneKey, Arc<Event>)> =
            done.others.into_iter().map(|other| (other.key, other.event)).collect();
        for (key, before) in done.marks_before.into_iter().rev() {
            match before {
                Some(before) => self.marks.insert(key, before),
                None => self.marks.remove(&key),
            };
        }
        let error = format!("what it published was refused: {error}");
        let ended = Ended::Failed { error, after: None, permanent: true };
        self.all_not_done((done.key, done.event), others, done.attempt, done.started_at, ended).await
    }

    pub async fn not_done(
        &mut self,
        key: LaneKey,
        event: Arc<Event>,
        attempt: u32,
        started_at: Timestamp,
        ended: Ended,
    ) -> Result<(), StoreError> {
        self.now = self.worker.membership.now().await?;
        let spec = self.worker.spec.clone();
        let limits = spec.limits();
        let attempted = Attempted::delivery(&spec.key, &event, attempt);
        match attempted.after(ended, &limits.retry, limits.on_exhausted, self.now) {
            Next::Done => self.passed(&key, event.seq),
            Next::Cancelled(why) => {
                self.record(&event, DeliveryState::Cancelled, attempt, Some(why), started_at);
                self.give_up(&key, event.seq, SyncOutcome::Done);
            }
            Next::Wait { at, attempts, error } => {
                let mut lane = self.waiting(&key, event.seq, attempts);
                if error.is_some() {
                    self.record(&event, DeliveryState::Failed, attempt, error.clone(), started_at);
                }
                (lane.not_before, lane.error) = (Some(at), error);
                self.stand_apart(&key, &event, lane);
            }
            Next::Exhausted { policy, error } => {
                let handler = &spec.key;
                let is_single = matches!(key, LaneKey::Event(_));
                let state = match policy {
                    OnExhausted::Hold => LaneState::Held,
                    OnExhausted::DeadLetterObject if !is_single => LaneState::Dead,
                    OnExhausted::DeadLetterObject | OnExhausted::Skip => {
                        self.record(&event, DeliveryState::Dead, attempt, Some(error.clone()), started_at);
                        self.give_up(&key, event.seq, SyncOutcome::Failed { error });
                        return Ok(());
                    }
                };
                let recorded = if state == LaneState::Held { DeliveryState::Held } else { DeliveryState::Dead };
                self.record(&event, recorded, attempt, Some(error.clone()), started_at);
                if state == LaneState::Held {
                    let failed = (event.seq, &event.topic);
                    let notice = notices::object_held(handler, event.object.as_ref(), failed, attempt, &error);
                    let slot = self.slot_of(&event);
                    self.pending.notices.extend(notice.map(|notice| (slot, notice)));
                }
                let mut lane = self.waiting(&key, event.seq, attempt);
                (lane.state, lane.error) = (state, Some(error));
                self.tell_stuck(&key, &lane);
                self.stand_apart(&key, &event, lane);
            }
        }
        Ok(())
    }

    /// A lane comes to stand still: tells those who wait for its events.
    fn tell_stuck(&self, key: &LaneKey, lane: &Lane) {
        let progress = &self.worker.progress;
        let error = lane.error.clone().unwrap_or_default();
        let is_held = lane.state == LaneState::Held;
        let outcome = if is_held { SyncOutcome::Blocked { error } } else { SyncOutcome::Failed { error } };
        progress.ended(lane.position, outcome);
        let Some(behind) = behind_stuck(lane) else { return };
        let queued = self.lanes.get(key).into_iter().flat_map(LaneMemory::queued);
        for event in queued.filter(|event| event.seq > lane.position) {
            progress.ended(event.seq, behind.clone());
        }
        if let LaneKey::Object(object) = key {
            progress.ended_behind(object, lane.position, &behind);
        }
    }

    /// The lane gets a row, and the stream goes on without it.
    fn stand_apart(&mut self, key: &LaneKey, event: &Arc<Event>, mut lane: Lane) {
        let ask = self.lanes.get_mut(key).and_then(|memory| memory.ask.take());
        if let Some(memory) = self.lanes.get_mut(key) {
            memory.busy = None;
            lane.redriven = memory.row.as_ref().is_some_and(|row| row.lane.redriven);
        }
        self.put_row(key, event, lane.clone());
        self.pending.put(self.slot_of(event), lane);
        self.worker.progress.tried(event.seq);
        self.worker.progress.lane_waits(key);
        if let Some(ask) = ask {
            self.answer(key, ask);
        }
    }

    /// The event is passed over, and that is written.
    fn give_up(&mut self, key: &LaneKey, seq: Seq, outcome: SyncOutcome) {
        if self.lanes.get(key).is_some_and(|memory| memory.row.is_some()) {
            self.pending.dirty.insert(key.clone());
        }
        self.passed_as(key, seq, outcome);
        self.pending.urgent = true;
    }

    fn count(&self, ended: &Ended, events: usize) {
        let outcome = match ended {
            Ended::Done => &self.worker.counters.done,
            Ended::Failed { .. } | Ended::Unreadable(_) => &self.worker.counters.failed,
            Ended::Snoozed(_) => &self.worker.counters.snoozed,
            Ended::Cancelled(_) => &self.worker.counters.cancelled,
        };
        outcome.increment(events as u64);
    }

    fn keep_lines(&mut self, event: &Event, lines: Vec<LogLine>) {
        let slot = self.slot_of(event);
        self.pending.lines.extend(lines.into_iter().map(|line| (slot, line)));
    }

    /// An event that was brought back counts its attempts anew; its record goes on counting, as each attempt that fails has one.
    async fn look_how_often_before(&mut self, seq: Seq, attempt: u32) -> Result<(), StoreError> {
        if !self.started_before.contains_key(&seq) {
            let recorded = self.worker.store.deliveries(seq).await?;
            let own = recorded.iter().find(|delivery| delivery.group == self.worker.spec.key);
            let before = own.map_or(0, |delivery| (delivery.attempts + 1).saturating_sub(attempt));
            self.started_before.insert(seq, before);
        }
        Ok(())
    }

    fn record(
        &mut self,
        event: &Event,
        state: DeliveryState,
        attempts: u32,
        error: Option<String>,
        started_at: Timestamp,
    ) {
        let delivery = Delivery {
            group: self.worker.spec.key.clone(),
            seq: event.seq,
            object: event.object.clone(),
            state,
            attempts: attempts + self.started_before.get(&event.seq).copied().unwrap_or(0),
            error,
            started_at,
            finished_at: Timestamp::now(),
        };
        self.pending.deliveries.push((self.slot_of(event), delivery));
    }

    /// Somebody skipped the event at which a lane was held.
    pub fn record_skipped(&mut self, slot: SlotNumber, key: &LaneKey, seq: Seq, attempts: u32, error: Option<String>) {
        let object = match key {
            LaneKey::Object(object) => Some(object.clone()),
            LaneKey::Event(_) => None,
        };
        let at = Timestamp::now();
        let (group, state) = (self.worker.spec.key.clone(), DeliveryState::Skipped);
        let delivery = Delivery { group, seq, object, state, attempts, error, started_at: at, finished_at: at };
        self.pending.deliveries.push((slot, delivery));
    }
}

/// What becomes of the later events of a lane that stands still; none if it does not.
pub(super) fn behind_stuck(lane: &Lane) -> Option<SyncOutcome> {
    match lane.state {
        LaneState::Held => Some(SyncOutcome::held_behind(lane.position)),
        LaneState::Dead => Some(SyncOutcome::given_up_behind(lane.position)),
        LaneState::Waiting | LaneState::Done => None,
    }
}
