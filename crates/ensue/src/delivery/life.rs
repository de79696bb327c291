//! What does one handler do next?
//!
//! A life takes events while it has room, starts what may start, writes down what is done, and waits for whichever of
//! these can go on. It ends when the worker is to stop, or has to begin again with what the store remembers.

use super::attempt::Finished;
use super::lanes::{Busy, Lanes};
use super::member::View;
use super::pending::{After, Flush, Marks, Owner, Pending};
use super::settler::SettledAll;
use super::suspects::Suspects;
use super::worker::{Idle, Worker, stopped};
use crate::pages::Pages;
use ensue_core::handling::Window;
use ensue_core::positions::{AcquiredSlot, Ask, LaneKey, LaneQuery, LaneRow, LaneState, Settled, SlotNumber};
use ensue_core::store::Page;
use ensue_core::{Event, Seq, StoreError, Timestamp};
use std::collections::{HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How many events a worker holds that are not done.
pub(super) const READ_AHEAD_MAX: usize = 1_024;
/// How often cursors are written.
const CHECKPOINT_EVERY: Duration = Duration::from_millis(200);
/// How often they are written where nothing matched.
const CHECKPOINT_LAZILY: Duration = Duration::from_secs(10);
/// An attempt that takes longer gets a row, so that the cursor can pass it.
const SLOW_AFTER: Duration = Duration::from_secs(2);
/// How often attempts are looked at for that.
const SLOW_LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long to wait before something is written again that could not be.
const WRITE_AGAIN_AFTER: Duration = Duration::from_millis(500);
/// How long slots that are to be given back wait for what runs.
const HAND_OVER_MAX: Duration = Duration::from_secs(5);
/// How often slots are looked for that should be this worker's.
const SLOTS_LOOK_EVERY: Duration = Duration::from_secs(1);
/// How many lanes are loaded at once.
const LOAD_LANES: usize = 1_000;
/// How long lanes that wait sleep at most before the store's clock is looked at again.
const CLOCK_LOOK_EVERY: Duration = Duration::from_secs(1);

/// Something that comes back when the store has answered.
pub(super) type Answer<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Why a life ended.
pub(super) enum End {
    Stopped,
    Again,
}

/// Why a life is about to end: nothing new is begun, and what is under way is finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Stop,
    HandOver,
}

/// Where events come from.
pub(super) enum Source {
    /// The store, page by page.
    Store,
    /// The mailbox.
    Mailbox,
}

/// What was read for a lane.
pub(super) struct Fetched {
    pub key: LaneKey,
    pub after: Seq,
    pub to: Seq,
    /// The oldest event that could be read.
    pub first: Seq,
    pub events: Result<Vec<Event>, StoreError>,
}

/// One life of a worker: from what the store remembers to the loss of a slot.
pub(super) struct Life<'w> {
    pub worker: &'w Worker,
    pub slots: Vec<AcquiredSlot>,
    /// By number: where each begins, if it is this worker's.
    pub slot_starts: Vec<Option<AcquiredSlot>>,
    pub source: Source,
    pub reading: Option<Answer<Result<Page, StoreError>>>,
    pub pages: Pages,
    /// Taken from the mailbox, and not yet arrived in a lane.
    pub taken: VecDeque<Arc<Event>>,
    pub window: Window,
    pub lanes: Lanes,
    pub pending: Pending,
    pub marks: Marks,
    /// The cursor that is stored, or on its way.
    written: Seq,
    /// Something has arrived since the last checkpoint.
    pub moved: bool,
    flushing: Option<(Flush, Answer<SettledAll>)>,
    pub running: JoinSet<Finished>,
    pub fetching: JoinSet<Fetched>,
    /// Lanes whose rows go with what is being written, or will be: they start nothing until it is.
    pub removing: HashSet<LaneKey>,
    removing_now: HashSet<LaneKey>,
    /// Lanes that look again when that is written.
    pub after_flush: Vec<LaneKey>,
    /// Lanes that wait for their turn to read.
    pub after_fetch: Vec<LaneKey>,
    /// More was asked of lanes than was looked at.
    asked_more: bool,
    slots_looked: Instant,
    ending_since: Instant,
    /// When it is time to look at clocks and slow attempts again.
    tick_at: Instant,
    /// Events of a batch that failed: each is run alone.
    pub alone: HashSet<Seq>,
    /// Lanes whose next event waits for its parents.
    pub parked: Vec<LaneKey>,
    /// What may have ended the owners before.
    pub suspects: Suspects,
    pub cancel: watch::Sender<bool>,
    checkpointed: Instant,
    slow_looked: Instant,
    /// The time by the store's clock, as it was last looked at.
    pub now: Timestamp,
    pub ending: Option<Ending>,
    look: u64,
}

impl<'w> Life<'w> {
    pub async fn begin(worker: &'w Worker, slots: Vec<AcquiredSlot>) -> Result<Self, StoreError> {
        let mut slot_starts = vec![None; usize::from(worker.slots_total)];
        for slot in &slots {
            if let Some(start) = slot_starts.get_mut(usize::from(slot.slot)) {
                *start = Some(*slot);
            }
        }
        let cursor = slots.iter().map(|slot| slot.cursor).min().unwrap_or(0);
        let mut life = Self {
            worker,
            slot_starts,
            source: Source::Store,
            reading: None,
            pages: Pages::new(),
            taken: VecDeque::new(),
            window: Window::after(cursor),
            lanes: Lanes::default(),
            pending: Pending::default(),
            marks: Marks::new(),
            written: cursor,
            moved: false,
            flushing: None,
            running: JoinSet::new(),
            fetching: JoinSet::new(),
            removing: HashSet::new(),
            removing_now: HashSet::new(),
            after_flush: Vec::new(),
            after_fetch: Vec::new(),
            asked_more: false,
            slots_looked: Instant::now(),
            ending_since: Instant::now(),
            tick_at: Instant::now(),
            alone: HashSet::new(),
            parked: Vec::new(),
            suspects: Suspects::of(&slots, cursor),
            slots,
            cancel: watch::Sender::new(false),
            checkpointed: Instant::now(),
            slow_looked: Instant::now(),
            now: worker.membership.now().await?,
            ending: None,
            look: *worker.look.borrow(),
        };
        life.load_lanes().await?;
        if let Some(progress) = &worker.progress {
            progress.begin(cursor);
        }
        Ok(life)
    }

    async fn load_lanes(&mut self) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let slots = self.slots.iter().map(|slot| slot.slot).collect();
            let query = LaneQuery::Slots { group: self.worker.spec.key.clone(), slots, after: after.take() };
            let rows = self.worker.store.lanes(query, LOAD_LANES).await?;
            let last = rows.last().map(|row| row.lane.key.clone());
            let is_all = rows.len() < LOAD_LANES;
            rows.into_iter().for_each(|row| self.load_lane(row));
            match last {
                Some(last) if !is_all => after = Some(last),
                Some(_) | None => return Ok(()),
            }
        }
    }

    fn load_lane(&mut self, row: LaneRow) {
        let LaneRow { slot, lane, ask, .. } = row;
        let cursor = self.slot_starts.get(usize::from(slot)).copied().flatten().map_or(0, |slot| slot.cursor);
        if lane.state == LaneState::Done && lane.position > cursor {
            // It only says what is done ahead of the cursor.
            self.marks.insert(lane.key, (slot, lane.position));
            return;
        }
        let key = lane.key.clone();
        self.suspects.loaded(&lane);
        self.lanes.load(slot, lane, cursor);
        if let Some(ask) = ask {
            self.answer(&key, ask);
        }
    }

    /// Works until it is told to stop, or has to begin again.
    pub async fn work(&mut self, view: &mut watch::Receiver<View>) -> Result<End, StoreError> {
        let (mut stop, mut look) = (self.worker.stop.clone(), self.worker.look.clone());
        look.mark_changed();
        loop {
            self.take_events()?;
            let more = self.start_ready().await?;
            self.flush_if_due();
            if let Some(ending) = self.ending
                && self.running.is_empty()
                && self.flushing.is_none()
            {
                return self.end(ending).await;
            }
            self.tell_idle(more);
            // Never later than it was: whatever else happens, its time comes.
            self.tick_at = self.tick_at.min(self.sleep_until());
            if Instant::now() >= self.tick_at {
                self.tick().await?;
                self.tick_at = self.sleep_until();
                continue;
            }
            tokio::select! {
                biased;
                Some(finished) = self.running.join_next() => {
                    // An attempt catches its own panics; one that was aborted is nobody's any more.
                    if let Ok(finished) = finished {
                        self.conclude(finished).await?;
                    }
                }
                Some(fetched) = self.fetching.join_next() => {
                    if let Ok(fetched) = fetched {
                        self.fetched(fetched)?;
                    }
                }
                settled = answer(self.flushing.as_mut().map(|(_, answer)| answer)) => {
                    if let Some(end) = self.flushed(settled).await? {
                        return Ok(end);
                    }
                }
                page = answer(self.reading.as_mut()) => {
                    self.reading = None;
                    self.take_page(page?);
                }
                () = stopped(&mut stop), if self.ending != Some(Ending::Stop) => {
                    (self.ending, self.ending_since) = (Some(Ending::Stop), Instant::now());
                    self.cancel.send_replace(true);
                }
                Ok(()) = view.changed() => {
                    if self.ownership_changed(view).await? {
                        return Ok(End::Again);
                    }
                }
                Ok(()) = look.changed() => {
                    self.look = *look.borrow_and_update();
                    self.tick().await?;
                }
                () = self.worker.wake.notified() => self.unpark(),
                // Others have a turn.
                () = tokio::task::yield_now(), if more => {}
                () = tokio::time::sleep_until(self.tick_at), if !more => {}
            }
        }
    }

    /// Writes what is left and gives back what is another's.
    async fn end(&mut self, ending: Ending) -> Result<End, StoreError> {
        // What was counted and has not started does not count.
        for (slot, lane) in self.lanes.unclaim() {
            self.pending.put(slot, lane);
        }
        let Flush { changes, .. } = self.make_flush();
        if !changes.is_empty() {
            self.worker.settler.settle(changes).await?;
        }
        match ending {
            Ending::Stop => Ok(End::Stopped),
            Ending::HandOver => {
                let wanted = self.worker.membership.wanted(self.worker.slots_total);
                let owned = self.slots.iter().map(|slot| slot.slot);
                let others: Vec<SlotNumber> = owned.filter(|slot| !wanted.contains(slot)).collect();
                let (member, group) = (self.worker.membership.member.id, &self.worker.spec.key);
                self.worker.store.release(member, group, &others).await?;
                Ok(End::Again)
            }
        }
    }

    fn flush_if_due(&mut self) {
        if self.flushing.is_some() {
            return;
        }
        let since = self.checkpointed.elapsed();
        let due = self.pending.urgent
            || (since >= CHECKPOINT_EVERY && (self.moved || !self.pending.is_empty()))
            || (since >= CHECKPOINT_LAZILY && self.window.cursor() > self.written);
        if !due {
            return;
        }
        let flush = self.make_flush();
        self.checkpointed = Instant::now();
        self.moved = !self.window.is_empty();
        if flush.changes.is_empty() {
            flush.after.into_iter().for_each(|after| self.after(after));
            return;
        }
        self.send(flush);
    }

    fn make_flush(&mut self) -> Flush {
        let Self { worker, slots, window, marks, written, lanes, pending, .. } = self;
        let pending = std::mem::take(pending);
        let owner = Owner { group: &worker.spec.key, member: worker.membership.member.id, slots };
        let flush = pending.flush(&owner, window, marks, written, lanes);
        self.removing_now = flush.removing.iter().cloned().collect();
        self.removing.extend(flush.removing.iter().cloned());
        flush
    }

    fn send(&mut self, flush: Flush) {
        let (settler, changes) = (self.worker.settler.clone(), flush.changes.clone());
        self.flushing = Some((flush, Box::pin(async move { settler.settle(changes).await })));
    }

    /// What was handed over is written, or not.
    async fn flushed(&mut self, settled: SettledAll) -> Result<Option<End>, StoreError> {
        let Some((flush, _)) = self.flushing.take() else { return Ok(None) };
        let settled = match settled {
            Ok(settled) => settled,
            // Whether it is stored is not known, and what the store remembers will tell.
            Err(error @ (StoreError::InDoubt(_) | StoreError::Closed | StoreError::Stopped(_))) => return Err(error),
            Err(error) => {
                tracing::warn!(handler = %self.worker.spec.key, %error, "what is done cannot be written; trying again");
                let (settler, changes) = (self.worker.settler.clone(), flush.changes.clone());
                let again = async move {
                    tokio::time::sleep(WRITE_AGAIN_AFTER).await;
                    settler.settle(changes).await
                };
                self.flushing = Some((flush, Box::pin(again)));
                return Ok(None);
            }
        };
        if settled.iter().any(|settled| matches!(settled, Settled::FenceLost)) {
            tracing::info!(handler = %self.worker.spec.key, "another process has taken slots over");
            return Ok(Some(End::Again));
        }
        let Flush { done_with, after, .. } = flush;
        for key in std::mem::take(&mut self.removing_now) {
            self.removing.remove(&key);
        }
        for key in std::mem::take(&mut self.after_flush) {
            self.lanes.ready(&key);
        }
        let others = settled.len() - done_with.len();
        for (done, settled) in done_with.into_iter().zip(&settled[others..]) {
            match settled {
                Settled::Refused(error) => self.refused(done, error).await?,
                Settled::Done(_) | Settled::FenceLost => {
                    self.passed(&done.key, done.event.seq);
                    for other in done.others {
                        self.passed(&other.key, other.event.seq);
                        // A row that could not be part of the change is written with the next.
                        if other.row.is_some() {
                            self.pending.dirty.insert(other.key);
                        }
                    }
                }
            }
        }
        after.into_iter().for_each(|after| self.after(after));
        Ok(None)
    }

    fn after(&mut self, after: After) {
        match after {
            After::Start(key) => {
                if let Some(lane) = self.lanes.get_mut(&key) {
                    lane.busy = None;
                    lane.claimed = true;
                }
                self.lanes.ready(&key);
            }
        }
    }

    fn sleep_until(&self) -> Instant {
        let now = Instant::now();
        let lazily = self.checkpointed + CHECKPOINT_LAZILY;
        let checkpoint = self.checkpointed + CHECKPOINT_EVERY;
        let is_moving = self.flushing.is_none() && (self.moved || !self.pending.is_empty());
        let mut until = if is_moving { checkpoint } else { lazily.max(now + CLOCK_LOOK_EVERY) };
        if !self.running.is_empty() || !self.parked.is_empty() || self.asked_more {
            until = until.min(now + SLOW_LOOK_EVERY);
        }
        if self.slots.len() < usize::from(self.worker.slots_total) {
            until = until.min(now + SLOTS_LOOK_EVERY);
        }
        if let Some(due) = self.lanes.next_due() {
            let wait = Duration::try_from(due.duration_since(self.now)).unwrap_or_default();
            until = until.min(now + wait.clamp(Duration::from_millis(1), CLOCK_LOOK_EVERY));
        }
        until
    }

    /// Looks at the clock, at lanes that are due and at attempts that take long.
    async fn tick(&mut self) -> Result<(), StoreError> {
        if self.lanes.next_due().is_some() {
            self.now = self.worker.membership.now().await?;
            self.lanes.wake_due(self.now);
        }
        if self.slow_looked.elapsed() >= SLOW_LOOK_EVERY {
            self.slow_looked = Instant::now();
            let is_slow = |busy: Option<Busy>| match busy {
                Some(Busy::Attempt { since, .. }) => since.elapsed() >= SLOW_AFTER,
                Some(Busy::Writing | Busy::Fetching) | None => false,
            };
            let slow: Vec<LaneKey> = (self.lanes.iter())
                .filter(|(_, lane)| lane.row.is_none() && is_slow(lane.busy))
                .map(|(key, _)| key.clone())
                .collect();
            slow.into_iter().for_each(|key| self.step_aside(&key));
        }
        if self.asked_more {
            self.answer_asked().await?;
        }
        self.look_for_slots().await?;
        for key in self.suspects.outlived(SLOW_AFTER) {
            self.lanes.ready(&key);
        }
        if self.ending == Some(Ending::HandOver) && self.ending_since.elapsed() >= HAND_OVER_MAX {
            // Who takes over runs them again.
            self.running.abort_all();
        }
        self.unpark();
        Ok(())
    }

    /// Lets those that wait for their parents look again.
    fn unpark(&mut self) {
        for key in std::mem::take(&mut self.parked) {
            self.lanes.ready(&key);
        }
    }

    /// Something happened to the members, to this one's slots or to a lane. Must the worker begin again?
    async fn ownership_changed(&mut self, view: &mut watch::Receiver<View>) -> Result<bool, StoreError> {
        view.borrow_and_update();
        let owned: Vec<SlotNumber> = self.slots.iter().map(|slot| slot.slot).collect();
        let has = self.worker.acquire(&owned).await?;
        let fences = |slots: &[AcquiredSlot]| slots.iter().map(|slot| (slot.slot, slot.fence)).collect::<Vec<_>>();
        if fences(&has) != fences(&self.slots) {
            return Ok(true);
        }
        self.answer_asked().await?;
        let wanted = self.worker.membership.wanted(self.worker.slots_total);
        if self.ending.is_none() && owned.iter().any(|slot| !wanted.contains(slot)) {
            (self.ending, self.ending_since) = (Some(Ending::HandOver), Instant::now());
        }
        Ok(false)
    }

    /// Looks for slots that should be this worker's and were not free.
    async fn look_for_slots(&mut self) -> Result<(), StoreError> {
        if self.ending.is_some() || self.slots_looked.elapsed() < SLOTS_LOOK_EVERY {
            return Ok(());
        }
        self.slots_looked = Instant::now();
        let wanted = self.worker.membership.wanted(self.worker.slots_total);
        let is_owned = |slot: &SlotNumber| self.slots.iter().any(|owned| owned.slot == *slot);
        let missing: Vec<SlotNumber> = wanted.into_iter().filter(|slot| !is_owned(slot)).collect();
        if !missing.is_empty() && !self.worker.acquire(&missing).await?.is_empty() {
            // They are taken in with a new life; what runs is finished first.
            (self.ending, self.ending_since) = (Some(Ending::HandOver), Instant::now());
        }
        Ok(())
    }

    /// Does what was asked of lanes since.
    async fn answer_asked(&mut self) -> Result<(), StoreError> {
        let asked = self.worker.store.lanes(LaneQuery::Asked(self.worker.membership.member.id), LOAD_LANES).await?;
        // Those of other handlers are answered by them; then this one looks again.
        self.asked_more = asked.len() >= LOAD_LANES;
        for row in asked {
            if row.group == self.worker.spec.key
                && let Some(ask) = row.ask
            {
                self.answer(&row.lane.key, ask);
            }
        }
        Ok(())
    }

    /// Says when there is nothing to do.
    fn tell_idle(&self, more: bool) {
        let has_work = more
            || self.lanes.queued() > 0
            || !self.running.is_empty()
            || !self.fetching.is_empty()
            || self.flushing.is_some()
            || !self.pending.is_empty()
            || self.reading.is_some()
            || self.lanes.has_ready()
            || !matches!(self.source, Source::Mailbox)
            || self.window.cursor() < self.window.seen_to();
        let idle = (!has_work).then_some(Idle { seen_to: self.window.seen_to(), look: self.look });
        self.worker.idle.send_if_modified(|known| {
            let changed = *known != idle;
            *known = idle;
            changed
        });
    }

    /// Does what somebody asked of a lane.
    pub fn answer(&mut self, key: &LaneKey, ask: Ask) {
        let Some(memory) = self.lanes.get_mut(key) else { return };
        // What runs is finished first.
        if memory.busy.is_some() {
            memory.ask = Some(ask);
            return;
        }
        let Some(row) = &mut memory.row else { return };
        let (slot, seq) = (row.slot, row.lane.position);
        match ask {
            Ask::Retry => {
                (row.lane.state, row.lane.attempts, row.lane.not_before) = (LaneState::Waiting, 0, None);
                row.lane.redriven = true;
            }
            Ask::Skip => {
                let (attempts, error) = (row.lane.attempts, row.lane.error.clone());
                self.record_skipped(slot, key, seq, attempts, error);
                self.lanes.pass(key, seq);
            }
        }
        if let Some(row) = self.lanes.get(key).and_then(|memory| memory.row.clone()) {
            self.pending.put(row.slot, row.lane);
        }
        self.lanes.ready(key);
    }
}

/// Comes back with the answer, if one is waited for.
async fn answer<T>(waiting: Option<&mut Answer<T>>) -> T {
    match waiting {
        Some(waiting) => waiting.await,
        None => std::future::pending().await,
    }
}
