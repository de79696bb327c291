//! Which events go together to a handler of batches?
//!
//! What is ready when a batch starts: of every lane as many events as there are, in order, up to the most that the handler
//! takes. When a batch fails, each of its events is run alone: one of them may be the cause, and the others go on.

use super::life::Life;
use crate::handlers::SplitBy;
use ensue_core::positions::LaneKey;
use ensue_core::{Event, StoreError};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

type Batch = Vec<(LaneKey, Arc<Event>)>;

impl Life<'_> {
    /// Starts a batch that begins with what is next in this lane.
    pub async fn start_batch(&mut self, first: LaneKey) -> Result<(), StoreError> {
        let most = self.worker.spec.batch;
        let (mut batch, mut left) = (Batch::new(), Vec::new());
        let mut next = Some(first);
        while let Some(key) = next {
            let before = batch.len();
            self.gather(&key, most, &mut batch);
            if batch.len() == before {
                left.push(key);
            }
            next = if batch.len() < most { self.lanes.next_simple(&self.removing) } else { None };
        }
        // Those that could not join keep their turn.
        left.iter().for_each(|key| self.lanes.ready(key));
        batch.sort_by_key(|(_, event)| event.seq);
        let parts = match &self.worker.spec.split_by {
            Some(key_of) => divide(batch, |event| part_of(key_of, event)),
            None => vec![batch],
        };
        for part in parts {
            let mut events = part.into_iter();
            if let Some(first) = events.next() {
                self.start(first, events.collect(), 1, false).await?;
            }
        }
        Ok(())
    }

    /// Takes what a lane has, as far as it may start.
    fn gather(&self, key: &LaneKey, most: usize, batch: &mut Batch) {
        let Some(lane) = self.lanes.get(key) else { return };
        let (mut part, parents) = (None, self.worker.parents.now());
        for event in lane.queued().take(most - batch.len()) {
            let may_start = !self.alone.contains(&event.seq)
                && !self.suspects.is_one(key, event.seq)
                && parents.iter().all(|parent| self.lets_have(parent, event.seq));
            // What is divided runs in parallel: of one lane only what goes into one part.
            let its_part = self.worker.spec.split_by.as_ref().map(|key_of| part_of(key_of, event));
            let is_in_part = part.get_or_insert_with(|| its_part.clone()) == &its_part;
            if !may_start || !is_in_part {
                break;
            }
            batch.push((key.clone(), event.clone()));
        }
    }
}

/// The key of an event; one for which the function panics is in a part of its own.
fn part_of(key_of: &SplitBy, event: &Event) -> String {
    let key = catch_unwind(AssertUnwindSafe(|| key_of(event)));
    key.unwrap_or_else(|_| format!("the key of {} cannot be told", event.seq))
}

/// Those with the same key together, in order, in the order of their first.
fn divide(batch: Batch, key_of: impl Fn(&Event) -> String) -> Vec<Batch> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut parts: Vec<Batch> = Vec::new();
    for (lane, event) in batch {
        let place = *places.entry(key_of(&event)).or_insert(parts.len());
        if place == parts.len() {
            parts.push(Batch::new());
        }
        parts[place].push((lane, event));
    }
    parts
}
