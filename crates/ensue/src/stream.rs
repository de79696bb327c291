//! How does a reader go from history to live without a gap or a double?
//!
//! It listens to the tail first, then reads the store as far as the tail has come, then takes what the tail hands out,
//! by the numbers: what it already has is passed over, and where numbers are missing (it was too slow) it reads the
//! store again. When the tail notices that the log went back, the stream goes back with it.

use crate::Error;
use crate::direct::Address;
use crate::evaluation::EvaluationClass;
use crate::filtered_prev::{FilteredPrev, Prev};
use crate::pages::Pages;
use crate::subscription::Start;
use crate::tail::{Chunk, Listening, Setbacks, Tail};
use crate::wanted::{ConditionError, Turn, Wanted, Where};
use ensue_core::condition::Failure;
use ensue_core::store::{Read, SharedStore};
use ensue_core::{Event, Seq, StoreError};
use futures_util::Stream;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::watch;

/// How long to wait for the tail before the store is asked again.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// An event as a stream delivers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivered {
    /// The event as it is in the log.
    pub event: Arc<Event>,
    /// The previous event of the same object that this stream wants, by its filter and its condition.
    pub prev: Option<Seq>,
    /// Set when `prev` could not be decided: of what came before this place nothing is claimed.
    pub prev_since: Option<Seq>,
}

/// What a stream yields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Streamed {
    /// The next event.
    Event(Delivered),
    /// These places cannot be delivered, or are no longer what they were.
    Gap {
        /// The first of them.
        from: Seq,
        /// The last of them.
        to: Seq,
        /// Why, and so where the stream goes on.
        reason: GapReason,
    },
    /// The stream's condition failed on this event, which is therefore not delivered. Told of the first one only; the
    /// others are counted with it in the figure `ensue_condition_errors_total`.
    ConditionFailed(ConditionError),
    /// Everything that was in the log has been delivered up to this place; what follows is live. Once per stream.
    Caught(Seq),
}

/// What happened to the places of a gap.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GapReason {
    /// Retention forgot them before the stream came to them. It goes on behind them.
    Forgotten,
    /// The stream was to begin behind them, but the log ends before them. It goes on at the end of the log.
    BeyondEnd,
    /// The log went back, as after a failover to a replica that lagged behind: what the stream passed there never
    /// happened. It goes on before them, with what has their numbers now: other events, with other ids. Some of them
    /// may have come already, if they were read before the loss was noticed.
    WentBack,
}

impl GapReason {
    /// The word for it in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            GapReason::Forgotten => "forgotten",
            GapReason::BeyondEnd => "beyond_end",
            GapReason::WentBack => "went_back",
        }
    }
}

/// The events of a subscription, in `seq` order; goes back only after a [gap](GapReason::WentBack) that says so. Never
/// ends by itself.
pub struct EventStream {
    inner: Pin<Box<dyn Stream<Item = Result<Streamed, Error>> + Send>>,
    position: Arc<AtomicU64>,
}

impl Stream for EventStream {
    type Item = Result<Streamed, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.inner.as_mut().poll_next(cx)
    }
}

impl EventStream {
    /// The next thing, or an error of the store; the stream may be polled on after an error.
    pub async fn next(&mut self) -> Option<Result<Streamed, Error>> {
        std::future::poll_fn(|cx| self.inner.as_mut().poll_next(cx)).await
    }

    /// The `seq` up to which every event was either yielded or rejected by the filter and the condition. A stream that
    /// resumes after it misses nothing.
    pub fn position(&self) -> Seq {
        self.position.load(Ordering::Acquire)
    }

    /// The next event, past everything else.
    pub async fn next_event(&mut self) -> Result<Delivered, Error> {
        loop {
            match self.next().await {
                Some(Ok(Streamed::Event(delivered))) => return Ok(delivered),
                Some(Ok(Streamed::Gap { .. } | Streamed::ConditionFailed(_) | Streamed::Caught(_))) => {}
                Some(Err(error)) => return Err(error),
                None => unreachable!("an event stream does not end"),
            }
        }
    }
}

/// Where the stream takes its next events from.
enum Source {
    /// From the store, a page at a time.
    Store,
    /// From the tail.
    Live,
}

struct Reader {
    store: SharedStore,
    tail: Arc<Tail>,
    live: broadcast::Receiver<Arc<Chunk>>,
    setbacks: watch::Receiver<Setbacks>,
    /// How often the log had gone back when `at` was right.
    setbacks_seen: u64,
    wanted: Wanted,
    address: Option<Address>,
    prevs: FilteredPrev,
    pages: Pages,
    /// Everything up to here was looked at. Never ahead of the tail.
    at: Seq,
    /// Nothing up to here is wanted.
    begin_after: Seq,
    source: Source,
    caught_up_once: bool,
    /// Has it been told that its condition fails?
    failure_told: bool,
    /// What the filter matches, in the order in which the condition will look at it.
    read: VecDeque<Arc<Event>>,
    /// Wanted, and to be delivered next. All of it is before what was read.
    waiting: VecDeque<Arc<Event>>,
    /// To be yielded before anything else.
    told: VecDeque<Streamed>,
    /// Shared with the [`EventStream`], which reads it while the reader waits.
    position: Arc<AtomicU64>,
}

pub(crate) async fn open(
    store: SharedStore,
    tail: Arc<Tail>,
    wanted: Wanted,
    address: Option<Address>,
    start: Start,
) -> Result<EventStream, StoreError> {
    let Listening { live, mut setbacks } = tail.listen().await?;
    let setbacks_seen = setbacks.borrow_and_update().count;
    let bounds = store.bounds().await?;
    let (begin_after, gap) = match start {
        Start::Now => (bounds.last, None),
        Start::Time(time) => (store.seq_before(time).await?, None),
        // From the beginning means: whatever there is.
        Start::After(0) => (bounds.first - 1, None),
        // The place does not exist (any more): the log was replaced, or the reader is mistaken. It is told.
        Start::After(after) if after > bounds.last => {
            (bounds.last, Some(Streamed::Gap { from: bounds.last + 1, to: after, reason: GapReason::BeyondEnd }))
        }
        Start::After(after) => (after, None),
    };
    let read_to = tail.read_to();
    if bounds.last > read_to {
        tail.look_now();
    }
    let prevs = FilteredPrev::new(wanted.clone());
    let position = Arc::new(AtomicU64::new(begin_after));
    let reader = Reader {
        store,
        tail,
        live,
        setbacks,
        setbacks_seen,
        wanted,
        address,
        prevs,
        pages: Pages::of_stream(),
        at: begin_after.min(read_to),
        begin_after,
        source: Source::Store,
        caught_up_once: false,
        failure_told: false,
        read: VecDeque::new(),
        waiting: VecDeque::new(),
        told: gap.into_iter().collect(),
        position: position.clone(),
    };
    let items = futures_util::stream::unfold(reader, |mut reader| async move {
        let item = reader.next().await.map_err(Error::from);
        Some((item, reader))
    });
    Ok(EventStream { inner: Box::pin(items), position })
}

impl Reader {
    async fn next(&mut self) -> Result<Streamed, StoreError> {
        loop {
            self.go_back_with_the_log();
            self.touch_if_due().await;
            if let Some(told) = self.told.pop_front() {
                return Ok(told);
            }
            self.position.store(self.passed(), Ordering::Release);
            if let Some(event) = self.waiting.front() {
                let Prev { prev, since } = self.prevs.of(event, &self.store).await?;
                let event = self.waiting.pop_front().expect("it was just looked at");
                return Ok(Streamed::Event(Delivered { event, prev, prev_since: since }));
            }
            if !self.read.is_empty() {
                let mut turn = Turn::begin();
                if let Some(costly) = self.sift(&turn) {
                    self.sift_costly(costly).await?;
                }
                turn.pass_on().await;
                continue;
            }
            match self.source {
                Source::Store => self.read_page().await?,
                Source::Live => self.take_chunk().await?,
            }
        }
    }

    /// The `seq` before the first event that is neither yielded nor rejected yet.
    fn passed(&self) -> Seq {
        let held = self.waiting.front().or(self.read.front());
        held.map_or(self.at, |event| event.seq - 1).max(self.begin_after)
    }

    /// Looks for what is wanted among what was read, for one turn or up to an event that takes longer. That one stays where it
    /// is until its answer is known: a stream that is dropped or goes back meanwhile has not passed it.
    fn sift(&mut self, turn: &Turn) -> Option<(Where, Arc<Event>)> {
        let Some(condition) = self.wanted.condition.clone() else {
            self.waiting.append(&mut self.read);
            return None;
        };
        let subscription = condition.subscription();
        while let Some(event) = self.read.front() {
            if self.wanted.condition_for(event).is_none() {
                self.sifted(Ok(true));
                continue;
            }
            match condition.evaluate_quick(event, &subscription) {
                Some(answer) => self.sifted(answer),
                None => {
                    let event = event.clone();
                    drop(subscription);
                    return Some((condition, event));
                }
            }
            if turn.is_over() {
                break;
            }
        }
        None
    }

    /// Evaluates the condition for the first event among what was read.
    async fn sift_costly(&mut self, (condition, event): (Where, Arc<Event>)) -> Result<(), StoreError> {
        let answer = condition.evaluate_full(EvaluationClass::Stream, &event).await?;
        self.sifted(answer);
        Ok(())
    }

    /// Takes the first event out of what was read.
    fn sifted(&mut self, answer: Result<bool, Failure>) {
        let Some(event) = self.read.pop_front() else { return };
        match answer {
            Ok(true) => self.waiting.push_back(event),
            Ok(false) => {}
            Err(failure) => {
                let error = ConditionError::counted(&event, &failure);
                if !std::mem::replace(&mut self.failure_told, true) {
                    self.told.push_back(Streamed::ConditionFailed(error));
                }
            }
        }
    }

    /// If the log went back behind this stream's place, says so and goes on after the last event that is still there.
    fn go_back_with_the_log(&mut self) {
        if !self.setbacks.has_changed().unwrap_or(false) {
            return;
        }
        let setbacks = self.setbacks.borrow_and_update();
        let Some(kept_to) = setbacks.kept_since(self.setbacks_seen) else { return };
        self.setbacks_seen = setbacks.count;
        drop(setbacks);
        // What was read and not delivered is read again: nobody knows which log it is from.
        let at = self.passed();
        self.waiting.clear();
        self.read.clear();
        self.source = Source::Store;
        self.at = at.min(kept_to);
        self.begin_after = self.at;
        if at > kept_to {
            self.told.push_back(Streamed::Gap { from: kept_to + 1, to: at, reason: GapReason::WentBack });
            // What was seen last of an object may never have happened.
            self.prevs = FilteredPrev::new(self.wanted.clone());
        }
    }

    /// Reads on in the store; goes live where the tail is.
    async fn read_page(&mut self) -> Result<(), StoreError> {
        if self.at >= self.tail.read_to() {
            self.source = Source::Live;
            if !self.caught_up_once {
                self.caught_up_once = true;
                self.told.push_back(Streamed::Caught(self.at.max(self.begin_after)));
            }
            return Ok(());
        }
        let read = Read { after: self.at, limit: self.pages.limit(), filter: self.wanted.store_filter() };
        let page = self.store.read(read).await?;
        let passed = self.at.max(self.begin_after);
        if page.first > passed + 1 {
            let (from, to) = (passed + 1, page.first - 1);
            self.told.push_back(Streamed::Gap { from, to, reason: GapReason::Forgotten });
            self.at = to;
            // What was seen before the gap may have had successors in it.
            self.prevs = FilteredPrev::new(self.wanted.clone());
        }
        let (events, next) = self.pages.take(page);
        let read_to = self.tail.read_to();
        let (begin_after, wanted) = (self.begin_after, &self.wanted);
        let wanted = |event: &Arc<Event>| event.seq <= read_to && event.seq > begin_after && wanted.passes(event);
        self.read.extend(events.into_iter().filter(wanted));
        let next = next.min(read_to);
        if next <= self.at {
            self.await_the_tail().await;
        }
        self.at = self.at.max(next);
        Ok(())
    }

    /// Keeps the subscription that the stream is addressed as from expiring.
    async fn touch_if_due(&mut self) {
        if let Some(address) = &mut self.address
            && address.is_due()
        {
            address.touch(&self.store).await;
        }
    }

    /// There is less in the log than the tail has seen: it went back, and the tail will say to where.
    async fn await_the_tail(&mut self) {
        self.tail.look_now();
        if let Ok(Ok(())) = tokio::time::timeout(LOOK_AGAIN, self.setbacks.changed()).await {
            self.setbacks.mark_changed();
        }
    }

    /// Takes what the tail hands out next, or goes back to the store if some of it was missed.
    async fn take_chunk(&mut self) -> Result<(), StoreError> {
        let handed = tokio::select! {
            biased;
            Ok(()) = self.setbacks.changed() => {
                self.setbacks.mark_changed();
                return Ok(());
            }
            () = Address::due(&self.address) => return Ok(()),
            handed = self.live.recv() => handed,
        };
        match handed {
            // Read before the log went back, or before this stream has heard of it.
            Ok(chunk) if chunk.setbacks != self.setbacks_seen => {}
            Ok(chunk) if chunk.next <= self.at => {}
            Ok(chunk) if chunk.after <= self.at => {
                let from = self.at.max(self.begin_after);
                let new = chunk.events.iter().filter(|event| event.seq > from && self.wanted.passes(event));
                self.read.extend(new.cloned());
                self.at = chunk.next;
            }
            Ok(_) | Err(RecvError::Lagged(_)) => self.source = Source::Store,
            // The runtime that the tail ran in has ended: it begins again in this one.
            Err(RecvError::Closed) => {
                self.live = self.tail.listen().await?.live;
                self.source = Source::Store;
            }
        }
        Ok(())
    }
}
