//! Newest event of an object, direct messages left out.
//!
//! Asked for every event that has an object, so the answer is remembered, and trusted only while the log still ends
//! where it did when it was noted: somebody else may have had a turn at the file, or a transaction may be undone.

use super::objects::{self, ByObject, Unindexed};
use ensue_core::recent::Recent;
use ensue_core::{ObjectKey, Seq};
use rusqlite::Connection;
use std::sync::Arc;

/// How many objects' newest events are remembered. Measured over 10,000 objects: a look into the index costs about as
/// much as the insert itself.
const HEADS_REMEMBERED: usize = 65_536;

/// The newest event of objects used lately.
pub(super) struct Heads {
    known: Recent<ObjectKey, Seq>,
    /// The events with an object after `unindexed.known_to()`: written, and not committed yet or not taken in yet.
    placed: ByObject,
    at: Seq,
    /// Where the log ended after the last commit, once that is known.
    committed_to: Option<Seq>,
    unindexed: Arc<Unindexed>,
}

impl Heads {
    pub fn new(unindexed: Arc<Unindexed>) -> Self {
        // No log ends there: the first use looks for itself.
        let known = Recent::new(HEADS_REMEMBERED);
        Self { known, placed: ByObject::new(), at: Seq::MAX, committed_to: None, unindexed }
    }

    /// Looks again if somebody else has appended, or what was noted was rolled back.
    pub fn trust_only_at(&mut self, tail: Seq, connection: &Connection) -> rusqlite::Result<()> {
        if self.at != tail {
            self.known.clear();
            self.placed = objects::scan(connection, self.unindexed.known_to())?;
            self.at = tail;
        }
        Ok(())
    }

    /// An event was written at the end of the log.
    pub fn placed(&mut self, object: Option<&ObjectKey>, seq: Seq, is_direct: bool) {
        if let Some(object) = object {
            if !is_direct {
                self.known.insert(object.clone(), seq);
            }
            self.placed.entry(object.clone()).or_default().push(seq);
        }
        self.at = seq;
    }

    /// What was placed is committed: readers may know of it. Every event that enters the log passes here once, whether it
    /// was published, settled, released or written in the user's own transaction; here they are counted.
    pub fn committed(&mut self) {
        if self.at != Seq::MAX {
            let before = self.committed_to.replace(self.at).unwrap_or(self.at);
            if self.at > before {
                metrics::counter!("ensue_append_events_total", "engine" => "sqlite").increment(self.at - before);
            }
            self.unindexed.add(std::mem::take(&mut self.placed), self.at);
        }
    }

    /// What was placed is undone.
    pub fn rolled_back(&mut self) {
        self.placed.clear();
        self.at = Seq::MAX;
    }

    pub fn newest(&mut self, object: &ObjectKey, connection: &Connection) -> rusqlite::Result<Option<Seq>> {
        if let Some(seq) = self.known.get(object) {
            return Ok(Some(seq));
        }
        for seq in self.placed.get(object).into_iter().flatten().rev() {
            if !objects::is_direct(connection, *seq)? {
                return Ok(Some(*seq));
            }
        }
        let mut before = Seq::MAX;
        while let Some(seq) = self.unindexed.newest(object, before) {
            if !objects::is_direct(connection, seq)? {
                return Ok(Some(seq));
            }
            before = seq;
        }
        objects::newest_indexed(connection, object)
    }
}
