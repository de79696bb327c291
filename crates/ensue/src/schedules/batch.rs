//! How much is fired in one commit?
//!
//! So many runs and so many bytes, about: what is due at once may be much, and others wait for the commit. One schedule alone may
//! fire more; it is fired by itself.

use super::Firing;
use ensue_core::room::Room;
use ensue_core::schedules::port::FIRINGS_MAX;

/// How many bytes one commit fires, about, unless one schedule alone fires more.
const BATCH_BYTES: usize = 1_048_576;

/// What is fired together.
pub(super) struct Batch {
    firings: Vec<Firing>,
    runs: usize,
    room: Room,
}

impl Batch {
    pub fn new() -> Self {
        Self { firings: Vec::new(), runs: 0, room: Room::of(BATCH_BYTES) }
    }

    /// Takes one more. Where it does not fit beside the others, they are handed out, to be fired before.
    pub fn push(&mut self, firing: Firing) -> Option<Vec<Firing>> {
        let (bytes, runs) = (firing.bytes(), firing.runs.len());
        let full = self.runs + runs > FIRINGS_MAX || !self.room.take(bytes);
        let before = full.then(|| std::mem::replace(self, Self::new()).firings);
        if full {
            self.room.take(bytes);
        }
        self.runs += runs;
        self.firings.push(firing);
        before
    }

    /// What is left.
    pub fn rest(self) -> Vec<Firing> {
        self.firings
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedules::NewRun;
    use ensue_core::schedules::{Makes, What};
    use ensue_core::{GroupName, NewEvent, Timestamp};

    /// A firing of so many runs with so many bytes each.
    fn firing(name: usize, runs: usize, bytes: usize) -> Firing {
        let event = NewEvent::new("t").payload(&"x".repeat(bytes)).check().unwrap();
        let run = NewRun { occurrence: Timestamp::UNIX_EPOCH, manual: false, what: What::Fires(Makes::Event(event)) };
        Firing { name: GroupName::stored(&format!("s{name}")), version: 1, moves: None, runs: vec![run; runs] }
    }

    fn batches(firings: &[Firing]) -> Vec<Vec<Firing>> {
        let (mut batch, mut all) = (Batch::new(), Vec::new());
        for firing in firings {
            all.extend(batch.push(firing.clone()));
        }
        all.push(batch.rest());
        all
    }

    /// Nothing is lost, doubled or put before another, and no batch is larger than it may be.
    fn check(firings: &[Firing]) -> Vec<usize> {
        let batches = batches(firings);
        assert_eq!(batches.concat(), firings);
        for batch in &batches {
            let bytes: usize = batch.iter().map(Firing::bytes).sum();
            let runs: usize = batch.iter().map(|firing| firing.runs.len()).sum();
            assert!(batch.len() == 1 || (bytes <= BATCH_BYTES && runs <= FIRINGS_MAX), "{bytes} bytes, {runs} runs");
        }
        batches.iter().map(Vec::len).collect()
    }

    #[test]
    fn a_batch_is_cut_by_bytes() {
        let each: Vec<Firing> = (0..50).map(|n| firing(n, 1, 65_000)).collect();
        assert_eq!(check(&each), [16, 16, 16, 2]);
        // One alone may be larger than a batch, wherever it stands.
        let large = |n| firing(n, 100, 65_000);
        assert_eq!(
            check(&[large(0), firing(1, 1, 10), large(2), large(3), firing(4, 1, 10), firing(5, 1, 10)]),
            [1, 1, 1, 1, 2]
        );
        assert_eq!(check(&[firing(0, 1, 10)]), [1]);
    }

    #[test]
    fn a_batch_is_cut_by_runs() {
        let each: Vec<Firing> = (0..25).map(|n| firing(n, 100, 1)).collect();
        assert_eq!(check(&each), [10, 10, 5]);
    }
}
