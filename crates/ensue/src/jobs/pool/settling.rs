//! How is written what became of attempts?
//!
//! All that ended while something was being written goes with the next commit; meanwhile others are claimed and run.

use super::{MANY, Pool};
use ensue_core::StoreError;
use ensue_core::jobs::job::JOBS_MAX;
use ensue_core::jobs::{JobChange, JobEnd, JobSettled};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Ends on their way to the store.
pub(super) struct Settling {
    /// Kept until the answer is there: what could not be written is written again, under its fence.
    changes: Vec<JobChange>,
    /// May something have become available with it?
    frees: bool,
    answer: JoinHandle<Result<Vec<JobSettled>, StoreError>>,
}

/// Comes back with the answer, if one is waited for.
pub(super) async fn answered(settling: &mut Option<Settling>) -> Result<Vec<JobSettled>, StoreError> {
    match settling {
        Some(settling) => {
            let ended = |_| Err(StoreError::InDoubt("the task that settled jobs was ended".into()));
            (&mut settling.answer).await.unwrap_or_else(ended)
        }
        None => std::future::pending().await,
    }
}

impl Pool {
    pub(super) fn is_written(&self) -> bool {
        self.unwritten() == 0
    }

    /// How many attempts have ended whose end is not written.
    pub(super) fn unwritten(&self) -> usize {
        self.finished.len() + self.to_write.len() + self.settling.as_ref().map_or(0, |settling| settling.changes.len())
    }

    /// Begins to write what has ended, in one commit, unless something is being written already, or little is to be written and nobody waits for it.
    pub(super) async fn begin_settling(&mut self, stopping: bool) -> Result<(), StoreError> {
        if !self.finished.is_empty() {
            let now = self.deliveries.now().await?;
            for over in self.finished.drain(..) {
                let frees = over.frees();
                match over.change(now) {
                    Some(change) => {
                        self.frees |= frees;
                        self.to_write.push_back(change);
                    }
                    // It has settled by itself, or is somebody else's.
                    None => self.maybe_more |= frees,
                }
            }
        }
        let may_be_put_off = !self.frees && !stopping && self.to_write.len() < MANY;
        let has_some = self.settling.is_none() && !self.to_write.is_empty();
        if has_some && !(may_be_put_off && self.put_off.paced(self.settled_at, Instant::now())) {
            self.settled_at = Some(Instant::now());
            let count = self.to_write.len().min(JOBS_MAX);
            let changes: Vec<JobChange> = self.to_write.drain(..count).collect();
            let (bus, sent) = (self.bus.clone(), changes.clone());
            // A task of its own: it goes on while others are claimed.
            let answer = tokio::spawn(async move { bus.settle_jobs(sent).await });
            // What is not in it goes with the next.
            let frees = if self.to_write.is_empty() { std::mem::take(&mut self.frees) } else { self.frees };
            self.settling = Some(Settling { changes, frees, answer });
        }
        Ok(())
    }

    pub(super) fn settled(&mut self, answers: Result<Vec<JobSettled>, StoreError>) -> Result<(), StoreError> {
        let Some(Settling { changes, frees, .. }) = self.settling.take() else { return Ok(()) };
        let answers = match answers {
            Ok(answers) => answers,
            Err(error) => {
                self.frees |= frees;
                changes.into_iter().rev().for_each(|change| self.to_write.push_front(change));
                return Err(error);
            }
        };
        for (change, answer) in changes.into_iter().zip(answers) {
            if let JobSettled::Refused(error) = answer {
                // What it wanted to publish or send is not taken: that is a failure of the attempt.
                let error = format!("what it published or sent was refused: {error}");
                self.to_write.push_back(JobChange::new(change.held, JobEnd::Dead { error }));
            }
        }
        self.maybe_more |= frees;
        Ok(())
    }
}
