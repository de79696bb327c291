//! What is `prev` for somebody who sees a part of the log?
//!
//! A receiver of a subset detects a gap by comparing `prev` with what it saw last of the object. So `prev` must be the
//! previous event of that object *that its filter matches*: remembered from the stream itself, else found by walking
//! back the object's chain a bounded way. What cannot be decided is said: `prev` is none, and `prev_since` tells from
//! which `seq` on nothing was skipped.

use ensue_core::recent::Recent;
use ensue_core::store::SharedStore;
use ensue_core::{Event, Filter, ObjectKey, Seq, StoreError};

/// How many objects a stream remembers.
const OBJECTS_REMEMBERED: usize = 4_096;
/// How far back one event's chain is walked.
const WALK_MAX: usize = 100;

pub(crate) struct FilteredPrev {
    filter: Filter,
    seen: Recent<ObjectKey, Seq>,
}

/// The answer: `since` is set only if `prev` could not be decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Prev {
    pub prev: Option<Seq>,
    pub since: Option<Seq>,
}

impl FilteredPrev {
    pub fn new(filter: Filter) -> Self {
        Self { filter, seen: Recent::new(OBJECTS_REMEMBERED) }
    }

    /// The `prev` of an event that the filter matches. To be asked for every matching event, in order.
    pub async fn of(&mut self, event: &Event, store: &SharedStore) -> Result<Prev, StoreError> {
        let decided = |prev| Prev { prev, since: None };
        // Without a topic filter the log's own chain is the filter's chain.
        let (Some(_), Some(object)) = (&self.filter.topic, &event.object) else {
            return Ok(decided(event.prev));
        };
        let answer = match self.seen.get(object) {
            Some(seq) => decided(Some(seq)),
            None if event.prev.is_none() => decided(None),
            None => {
                let walked = store.chain(object, Some(event.seq), WALK_MAX).await?;
                match walked.iter().find(|earlier| self.filter.matches(earlier)) {
                    Some(earlier) => decided(Some(earlier.seq)),
                    None if walked.last().is_some_and(|oldest| oldest.prev.is_none()) => decided(None),
                    None => Prev { prev: None, since: Some(walked.last().map_or(event.seq, |oldest| oldest.seq)) },
                }
            }
        };
        self.seen.insert(object.clone(), event.seq);
        Ok(answer)
    }
}
