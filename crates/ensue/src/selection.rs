//! What does a page of the log hold for somebody with a condition?
//!
//! The store knows nothing of conditions, so its pages are read and sifted here until there is enough. As a read of the
//! store does, this looks at a bounded part of the log, and for a bounded time: a page may be empty although more would
//! follow, and its `next` says where to go on.

use crate::evaluation::EvaluationClass;
use crate::wanted::{ConditionError, Turn, Wanted, Where};
use ensue_core::room::Room;
use ensue_core::store::{Page, Read, SCAN_MAX, SharedStore};
use ensue_core::{Seq, StoreError};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How many events are read from the store at once, to be sifted.
const SIFTED_MAX: usize = 256;
/// After how long a page is answered with what it has. Every page looks at one event at least.
pub(crate) const TIME_MAX: Duration = Duration::from_millis(250);

/// A page of the events that somebody wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    /// The page.
    pub page: Page,
    /// Said if the condition failed on events that the page passed over.
    pub condition_errors: Option<ConditionErrors>,
}

/// How often a condition failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionErrors {
    /// On how many events.
    pub count: u64,
    /// The first of them.
    pub first: ConditionError,
}

impl ConditionErrors {
    /// These and those of a later page.
    pub fn and(earlier: Option<Self>, later: Option<Self>) -> Option<Self> {
        match (earlier, later) {
            (Some(earlier), Some(later)) => Some(Self { count: earlier.count + later.count, ..earlier }),
            (only, None) | (None, only) => only,
        }
    }
}

/// Reads at most `limit` events after `after`.
pub(crate) async fn read(
    store: &SharedStore,
    after: Seq,
    limit: usize,
    wanted: &Wanted,
) -> Result<Selection, StoreError> {
    let filter = wanted.store_filter();
    if wanted.condition.is_none() {
        let page = store.read(Read { after, limit, filter: filter.clone() }).await?;
        if page.events.iter().all(|event| wanted.passes(event)) {
            return Ok(Selection { page, condition_errors: None });
        }
    }
    let read = |after: Seq| store.read(Read { after, limit: SIFTED_MAX, filter: filter.clone() });
    let mut raw = read(after).await?;
    let scan_to = after.max(raw.first - 1).saturating_add(SCAN_MAX);
    let page = Page { events: Vec::new(), next: after, first: raw.first };
    let mut sieve = Sieve { wanted, limit, page, errors: None, room: Room::of_a_page(), began: Instant::now() };
    loop {
        let raw_next = raw.next;
        if sieve.sift(raw).await? == Sifted::Enough || raw_next >= scan_to {
            break;
        }
        raw = read(raw_next).await?;
        // The end of the log; or retention came between, which the next page will tell.
        if raw.next == raw_next || raw.first > raw_next + 1 {
            break;
        }
    }
    Ok(Selection { page: sieve.page, condition_errors: sieve.errors })
}

/// Go on, or stop?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sifted {
    More,
    Enough,
}

/// Keeps what is wanted.
pub(crate) struct Sieve<'a> {
    pub wanted: &'a Wanted,
    pub limit: usize,
    /// What was kept, and up to where was looked.
    pub page: Page,
    pub errors: Option<ConditionErrors>,
    pub room: Room,
    pub began: Instant,
}

impl Sieve<'_> {
    /// Takes what is wanted of a page of the store.
    pub async fn sift(&mut self, raw: Page) -> Result<Sifted, StoreError> {
        let wanted = self.wanted;
        let (subscription, mut turn) = (wanted.condition.as_ref().map(Where::subscription), Turn::begin());
        for event in raw.events {
            let (seq, bytes, event) = (event.seq, event.bytes(), Arc::new(event));
            let answer = match (wanted.condition_for(&event), &subscription) {
                _ if !wanted.passes(&event) => Ok(false),
                (Some(condition), Some(subscription)) => match condition.evaluate_quick(&event, subscription) {
                    Some(answer) => answer,
                    None => condition.evaluate_full(EvaluationClass::Request, &event).await?,
                },
                (Some(_), None) | (None, _) => Ok(true),
            };
            match answer {
                Ok(true) if !self.room.take(bytes) => return Ok(Sifted::Enough),
                Ok(true) => self.page.events.push(Arc::unwrap_or_clone(event)),
                Ok(false) => {}
                Err(failure) => {
                    let first = ConditionError::counted(&event, &failure);
                    self.errors = ConditionErrors::and(self.errors.take(), Some(ConditionErrors { count: 1, first }));
                }
            }
            self.page.next = seq;
            if self.page.events.len() == self.limit || self.began.elapsed() >= TIME_MAX {
                return Ok(Sifted::Enough);
            }
            turn.pass_on().await;
        }
        self.page.next = raw.next;
        Ok(Sifted::More)
    }
}
