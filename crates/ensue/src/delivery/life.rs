//! What does one handler do next?
//!
//! A life takes events while it has room, starts what may start, writes down what is done, and waits for whichever of
//! these can go on. It ends when the worker is to stop, or has to begin again with what the store remembers.

use super::attempt::Finished;
use super::checkpoint::CHECKPOINT_EVERY;
use super::fetch::Fetched;
use super::intake::WantedPage;
use super::lanes::Lanes;
use super::member::View;
use super::pending::{Flush, Marks, Pending};
use super::prevs::Prevs;
use super::settler::SettledAll;
use super::suspects::Suspects;
use super::worker::{Halt, Idle, Worker, halted};
use crate::pages::Pages;
use ensue_core::handling::Window;
use ensue_core::positions::{AcquiredSlot, LaneKey, LaneQuery, LaneRow, LaneState, Replay, Settled, SlotNumber};
use ensue_core::{Event, Seq, StoreError, Timestamp};
use std::collections::{HashMap, HashSet, VecDeque};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How many lanes are loaded at once.
const LOAD_LANES: usize = 1_000;

/// Something that comes back when the store has answered.
pub(super) type Answer<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Why a life ended.
pub(super) enum End {
    Stopped,
    Again,
    /// The store refused a write, because the log has lost what this life has read: up to `seen_to`, after so many
    /// setbacks.
    WentBack {
        setbacks: u64,
        seen_to: Seq,
    },
}

/// Why a life is about to end: nothing new is begun, and what is under way is finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    Stop,
    Unbound,
    HandOver,
}

/// Where events come from.
pub(super) enum Source {
    /// The store, page by page.
    Store,
    /// The mailbox.
    Mailbox,
}

/// One life of a worker: from what the store remembers to the loss of a slot.
pub(super) struct Life<'w> {
    pub worker: &'w Worker,
    /// How often the log had gone back when it began.
    pub setbacks: u64,
    pub slots: Vec<AcquiredSlot>,
    /// By number: where each begins, if it is this worker's.
    pub slot_starts: Vec<Option<AcquiredSlot>>,
    /// By number: what each runs again, and what it passes over then.
    pub replays: Vec<Option<Replay>>,
    pub source: Source,
    pub reading: Option<Answer<Result<WantedPage, StoreError>>>,
    pub pages: Pages,
    /// Taken from the mailbox, and not yet arrived in a lane.
    pub taken: VecDeque<Arc<Event>>,
    /// Once they have arrived, everything up to here was looked at.
    pub taken_to: Seq,
    /// The event that has waited once for its full lane.
    pub waited_at: Option<Seq>,
    /// It waits for what starts next, and for nothing else.
    pub looks_again: bool,
    pub window: Window,
    pub lanes: Lanes,
    pub pending: Pending,
    pub marks: Marks,
    /// The cursor that is stored, or on its way.
    pub written: Seq,
    /// Something has arrived since the last checkpoint.
    pub moved: bool,
    pub flushing: Option<(Flush, Answer<SettledAll>)>,
    pub running: JoinSet<Finished>,
    pub fetching: JoinSet<Fetched>,
    /// Lanes whose rows go with what is being written, or will be: they start nothing until it is.
    pub removing: HashSet<LaneKey>,
    pub removing_now: HashSet<LaneKey>,
    /// Lanes that look again when that is written.
    pub after_flush: Vec<LaneKey>,
    /// Lanes that wait for their turn to read.
    pub after_fetch: Vec<LaneKey>,
    /// More was asked of lanes than was looked at.
    pub asked_more: bool,
    /// What was last heard of the members and of what was asked.
    pub view: View,
    pub slots_looked: Instant,
    pub ending_since: Instant,
    /// When it is time to look at clocks and slow attempts again.
    pub tick_at: Instant,
    /// Events of a batch that failed: each is run alone.
    pub alone: HashSet<Seq>,
    /// Of events that were brought back: how often each was started before that.
    pub started_before: HashMap<Seq, u32>,
    /// Lanes whose next event a rule holds.
    pub held_by_rule: HashSet<LaneKey>,
    /// Lanes whose next event waits for its parents.
    pub parked: Vec<LaneKey>,
    /// What may have ended the owners before.
    pub suspects: Suspects,
    /// What the handler got before.
    pub prevs: Arc<Prevs>,
    pub cancel: watch::Sender<bool>,
    pub checkpointed: Instant,
    /// How often it is done.
    pub checkpoint_every: Duration,
    pub slow_looked: Instant,
    /// The time by the store's clock, as it was last looked at.
    pub now: Timestamp,
    pub ending: Option<Ending>,
    pub look: u64,
}

impl<'w> Life<'w> {
    /// The setbacks are those from before the slots were taken: what is stored is never older than they tell.
    pub async fn begin(
        worker: &'w Worker,
        setbacks: u64,
        slots: Vec<AcquiredSlot>,
        view: View,
    ) -> Result<Self, StoreError> {
        let mut slot_starts = vec![None; usize::from(worker.slots_total)];
        for slot in &slots {
            if let Some(start) = slot_starts.get_mut(usize::from(slot.slot)) {
                *start = Some(*slot);
            }
        }
        let cursor = slots.iter().map(|slot| slot.cursor).min().unwrap_or(0);
        let mut life = Self {
            worker,
            setbacks,
            slot_starts,
            replays: worker.replays().await?,
            source: Source::Store,
            reading: None,
            pages: Pages::of_stream(),
            taken: VecDeque::new(),
            taken_to: 0,
            waited_at: None,
            looks_again: false,
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
            view,
            slots_looked: Instant::now(),
            ending_since: Instant::now(),
            tick_at: Instant::now(),
            alone: HashSet::new(),
            started_before: HashMap::new(),
            held_by_rule: HashSet::new(),
            parked: Vec::new(),
            suspects: Suspects::of(&slots, cursor, worker.read_ahead.load(Ordering::Relaxed)),
            prevs: Arc::new(Prevs::of(worker)),
            slots,
            cancel: watch::Sender::new(false),
            checkpointed: Instant::now(),
            checkpoint_every: CHECKPOINT_EVERY,
            slow_looked: Instant::now(),
            now: worker.membership.now().await?,
            ending: None,
            look: *worker.look.borrow(),
        };
        life.load_lanes().await?;
        worker.progress.begin(cursor);
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
        let mut rules = self.worker.gate.watch();
        look.mark_changed();
        loop {
            self.take_events()?;
            let more = self.start_ready().await? || self.looks_again;
            self.flush_if_due()?;
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
            let heard = self.heard();
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
                halt = halted(&mut stop, heard), if self.ending != Some(Ending::Stop) => self.halt(halt),
                Ok(()) = view.changed() => {
                    if self.ownership_changed(view).await? {
                        return Ok(End::Again);
                    }
                }
                Ok(()) = look.changed() => {
                    self.look = *look.borrow_and_update();
                    self.tick().await?;
                }
                () = self.worker.mailbox.wake.notified() => self.unpark(),
                Ok(()) = rules.changed() => self.rules_changed(),
                // Others have a turn.
                () = tokio::task::yield_now(), if more => {}
                () = tokio::time::sleep_until(self.tick_at), if !more => {}
            }
        }
    }

    /// What it was told, as far as it has done anything about it.
    fn heard(&self) -> Halt {
        match self.ending {
            Some(Ending::Stop) => Halt::Stop,
            Some(Ending::Unbound) => Halt::Unbound,
            Some(Ending::HandOver) | None => Halt::Not,
        }
    }

    fn halt(&mut self, halt: Halt) {
        let ending = match halt {
            Halt::Not => return,
            Halt::Unbound => Ending::Unbound,
            Halt::Stop => {
                self.cancel.send_replace(true);
                Ending::Stop
            }
        };
        (self.ending, self.ending_since) = (Some(ending), Instant::now());
    }

    /// Writes what is left and gives back what is another's.
    async fn end(&mut self, ending: Ending) -> Result<End, StoreError> {
        // What was counted and has not started does not count.
        for (slot, lane) in self.lanes.unclaim() {
            self.pending.put(slot, lane);
        }
        let Flush { changes, .. } = self.make_flush()?;
        if !changes.is_empty() {
            let settled = self.worker.settler.settle(changes).await?;
            if settled.contains(&Settled::WentBack) {
                return Ok(self.refused_as_lost());
            }
        }
        match ending {
            Ending::Stop | Ending::Unbound => Ok(End::Stopped),
            Ending::HandOver => {
                let wanted = self.worker.wanted();
                let owned = self.slots.iter().map(|slot| slot.slot);
                let others: Vec<SlotNumber> = owned.filter(|slot| !wanted.contains(slot)).collect();
                let (member, group) = (self.worker.membership.member.id, &self.worker.spec.key);
                self.worker.store.release(member, group, &others).await?;
                Ok(End::Again)
            }
        }
    }

    /// The store refused a write, because the log has lost what it relies on.
    pub fn refused_as_lost(&self) -> End {
        End::WentBack { setbacks: self.setbacks, seen_to: self.window.seen_to() }
    }

    /// Says when there is nothing to do.
    fn tell_idle(&self, more: bool) {
        let has_work = self.is_at_work() || (!self.is_paused() && (more || self.has_more()));
        // One that is paused has nothing to do, however much waits for it.
        let seen_to = if self.is_paused() { Seq::MAX } else { self.window.seen_to() };
        let idle = (!has_work).then_some(Idle { seen_to, look: self.look });
        self.worker.idle.send_if_modified(|known| {
            let changed = *known != idle;
            *known = idle;
            changed
        });
    }

    fn is_at_work(&self) -> bool {
        !self.running.is_empty() || !self.fetching.is_empty() || self.flushing.is_some() || !self.pending.is_empty()
    }

    fn has_more(&self) -> bool {
        self.lanes.queued_beside(&self.held_by_rule) > 0
            || self.reading.is_some()
            || !self.taken.is_empty()
            || self.lanes.has_ready()
            || !matches!(self.source, Source::Mailbox)
            || (self.held_by_rule.is_empty() && self.window.cursor() < self.window.seen_to())
    }
}

/// Comes back with the answer, if one is waited for.
async fn answer<T>(waiting: Option<&mut Answer<T>>) -> T {
    match waiting {
        Some(waiting) => waiting.await,
        None => std::future::pending().await,
    }
}
