//! How does a reader go from history to live without a gap or a double?
//!
//! It listens to the tail first, then reads the store until nothing is left there, then takes what the tail hands out,
//! by the numbers: what it already has is passed over, and where numbers are missing (it was too slow, or the tail
//! began later) it reads the store again.

use crate::Error;
use crate::filtered_prev::{FilteredPrev, Prev};
use crate::subscription::Start;
use crate::tail::{Chunk, Tail};
use ensue_core::store::{Read, SharedStore};
use ensue_core::{Event, Filter, Seq, StoreError};
use futures_util::Stream;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::broadcast::{self, error::RecvError};

/// How many events a stream reads from the store at once.
const PAGE_EVENTS: usize = 256;

/// An event as a stream delivers it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivered {
    /// The event as it is in the log.
    pub event: Arc<Event>,
    /// The previous event of the same object that this stream's filter matches.
    pub prev: Option<Seq>,
    /// Set when `prev` could not be decided: of what came before this place nothing is claimed.
    pub prev_since: Option<Seq>,
}

/// What a stream yields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Streamed {
    /// The next event.
    Event(Delivered),
    /// These places cannot be delivered: they were forgotten before the stream came to them, or it was to begin beyond
    /// the end of the log.
    Gap {
        /// The first place that is missing.
        from: Seq,
        /// The last place that is missing.
        to: Seq,
    },
    /// Everything that was in the log has been delivered up to this place; what follows is live. Once per stream.
    Caught(Seq),
}

/// The events of a subscription, in `seq` order; never ends by itself.
pub struct EventStream {
    inner: Pin<Box<dyn Stream<Item = Result<Streamed, Error>> + Send>>,
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

    /// The next event, past everything else.
    pub async fn next_event(&mut self) -> Result<Delivered, Error> {
        loop {
            match self.next().await {
                Some(Ok(Streamed::Event(delivered))) => return Ok(delivered),
                Some(Ok(Streamed::Gap { .. } | Streamed::Caught(_))) => {}
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
    live: broadcast::Receiver<Arc<Chunk>>,
    filter: Filter,
    prevs: FilteredPrev,
    /// Everything up to here was delivered or does not match.
    at: Seq,
    source: Source,
    caught_up_once: bool,
    /// Read, and to be looked at next.
    waiting: VecDeque<Arc<Event>>,
    /// To be yielded before anything else.
    told: VecDeque<Streamed>,
}

pub(crate) async fn open(
    store: SharedStore,
    tail: Arc<Tail>,
    filter: Filter,
    start: Start,
) -> Result<EventStream, StoreError> {
    let live = tail.listen().await?;
    let bounds = store.bounds().await?;
    let (at, gap) = match start {
        Start::Now => (bounds.last, None),
        Start::Time(time) => (store.seq_before(time).await?, None),
        // From the beginning means: whatever there is.
        Start::After(0) => (bounds.first - 1, None),
        // The place does not exist (any more): the log was replaced, or the reader is mistaken. It is told.
        Start::After(after) if after > bounds.last => {
            (bounds.last, Some(Streamed::Gap { from: bounds.last + 1, to: after }))
        }
        Start::After(after) => (after, None),
    };
    let prevs = FilteredPrev::new(filter.clone());
    let reader = Reader {
        store,
        live,
        filter,
        prevs,
        at,
        source: Source::Store,
        caught_up_once: false,
        waiting: VecDeque::new(),
        told: gap.into_iter().collect(),
    };
    let items = futures_util::stream::unfold(reader, |mut reader| async move {
        let item = reader.next().await.map_err(Error::from);
        Some((item, reader))
    });
    Ok(EventStream { inner: Box::pin(items) })
}

impl Reader {
    async fn next(&mut self) -> Result<Streamed, StoreError> {
        loop {
            if let Some(told) = self.told.pop_front() {
                return Ok(told);
            }
            if let Some(event) = self.waiting.front() {
                let Prev { prev, since } = self.prevs.of(event, &self.store).await?;
                let event = self.waiting.pop_front().expect("it was just looked at");
                return Ok(Streamed::Event(Delivered { event, prev, prev_since: since }));
            }
            match self.source {
                Source::Store => self.read_page().await?,
                Source::Live => self.take_chunk().await,
            }
        }
    }

    /// Reads on in the store; goes live if there is nothing left.
    async fn read_page(&mut self) -> Result<(), StoreError> {
        let read = Read { after: self.at, limit: PAGE_EVENTS, filter: self.filter.clone() };
        let page = self.store.read(read).await?;
        if page.first > self.at + 1 {
            self.told.push_back(Streamed::Gap { from: self.at + 1, to: page.first - 1 });
            self.at = page.first - 1;
            // What was seen before the gap may have had successors in it.
            self.prevs = FilteredPrev::new(self.filter.clone());
        }
        if page.next <= self.at {
            self.source = Source::Live;
            if !self.caught_up_once {
                self.caught_up_once = true;
                self.told.push_back(Streamed::Caught(self.at));
            }
            return Ok(());
        }
        self.at = page.next;
        self.waiting.extend(page.events.into_iter().map(Arc::new));
        Ok(())
    }

    /// Takes what the tail hands out next, or goes back to the store if some of it was missed.
    async fn take_chunk(&mut self) {
        match self.live.recv().await {
            Ok(chunk) if chunk.next <= self.at => {}
            Ok(chunk) if chunk.after <= self.at => {
                let new = chunk.events.iter().filter(|event| event.seq > self.at && self.filter.matches(event));
                self.waiting.extend(new.cloned());
                self.at = chunk.next;
            }
            Ok(_) | Err(RecvError::Lagged(_)) => self.source = Source::Store,
            // The tail keeps its end open while somebody listens, and we do; reading the store is right all the same.
            Err(RecvError::Closed) => self.source = Source::Store,
        }
    }
}
