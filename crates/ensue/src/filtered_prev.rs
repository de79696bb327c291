//! What is `prev` for somebody who sees a part of the log?
//!
//! A receiver of a subset detects a gap by comparing `prev` with what it saw last of the object. So `prev` must be the
//! previous event of that object *that it wants*, by its filter and its condition: remembered from the stream itself, else
//! found by walking back the object's chain a bounded way. What cannot be decided is said: `prev` is none, and `prev_since` tells from
//! which `seq` on nothing was skipped.

use crate::wanted::{Turn, Wanted};
use ensue_core::recent::Recent;
use ensue_core::store::SharedStore;
use ensue_core::{Event, ObjectKey, Seq, StoreError};
use std::sync::Arc;

/// How many objects a stream remembers.
const OBJECTS_REMEMBERED: usize = 4_096;
/// How far back one event's chain is walked.
const WALK_MAX: usize = 100;

pub(crate) struct FilteredPrev {
    wanted: Wanted,
    seen: Recent<ObjectKey, Seq>,
}

/// The answer: `since` is set only if `prev` could not be decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Prev {
    pub prev: Option<Seq>,
    pub since: Option<Seq>,
}

impl FilteredPrev {
    pub fn new(wanted: Wanted) -> Self {
        Self { wanted, seen: Recent::new(OBJECTS_REMEMBERED) }
    }

    /// The `prev` of an event that is wanted. To be asked for every such event, in order.
    pub async fn of(&mut self, event: &Event, store: &SharedStore) -> Result<Prev, StoreError> {
        let object = match &event.object {
            Some(object) if !self.wanted.is_whole_objects() => object,
            // The log's own chain is the reader's chain.
            Some(_) | None => return Ok(decided(event.prev)),
        };
        let answer = match self.seen.get(object) {
            Some(seq) => decided(Some(seq)),
            None if event.prev.is_none() => decided(None),
            None => self.walk_back(object, event.seq, store).await?,
        };
        // A direct message is not part of the chain.
        if event.to.is_none() {
            self.seen.insert(object.clone(), event.seq);
        }
        Ok(answer)
    }

    async fn walk_back(&self, object: &ObjectKey, from: Seq, store: &SharedStore) -> Result<Prev, StoreError> {
        let walked = store.chain(object, Some(from), WALK_MAX).await?;
        let mut turn = Turn::begin();
        let oldest = walked.last().map(|oldest| (oldest.seq, oldest.prev));
        for earlier in walked {
            let earlier = Arc::new(earlier);
            if earlier.to.is_none() && self.wanted.includes(&earlier).await? {
                return Ok(decided(Some(earlier.seq)));
            }
            turn.pass_on().await;
        }
        match oldest {
            Some((_, None)) => Ok(decided(None)),
            oldest => Ok(Prev { prev: None, since: Some(oldest.map_or(from, |(seq, _)| seq)) }),
        }
    }
}

fn decided(prev: Option<Seq>) -> Prev {
    Prev { prev, since: None }
}
