//! Where is the row of a job that was claimed here?
//!
//! A claim answers it, and who settles soon after need not look for the job by its number. It is a hint and no more. Whatever is written to a job moves it, and its place may become another job's: who goes there
//! compares, and looks by the number if it is not the one.

use super::super::types::Place;
use ensue_core::jobs::{Held, Job, JobId};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How many are remembered. More than that were claimed to be settled elsewhere.
const ROWS_MAX: usize = 65_536;

/// The places of jobs that were claimed and not settled since, with the fence of the claim.
#[derive(Debug, Default)]
pub(in super::super) struct Places(Mutex<HashMap<JobId, (u64, Place)>>);

impl Places {
    /// Remembers where a claim has left its jobs. Those of lanes are looked for when they end, with those who wait for them.
    pub fn remember<'a>(&self, claimed: impl Iterator<Item = (&'a Job, Place)>) {
        let mut known = self.known();
        for (job, place) in claimed.filter(|(job, _)| !job.in_lane()) {
            if known.len() >= ROWS_MAX {
                known.clear();
            }
            known.insert(job.id, (job.fence, place));
        }
    }

    /// Forgets these, and answers where they are, if that is known of all of them.
    pub fn take(&self, held: impl Iterator<Item = Held>) -> Option<Vec<Place>> {
        let mut known = self.known();
        let places: Vec<Option<Place>> = held
            .map(|held| known.remove(&held.id).filter(|(fence, _)| *fence == held.fence).map(|(_, place)| place))
            .collect();
        places.into_iter().collect()
    }

    /// These are not there any more.
    pub fn forget(&self, held: &[Held]) {
        let mut known = self.known();
        for held in held {
            known.remove(&held.id);
        }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<JobId, (u64, Place)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
