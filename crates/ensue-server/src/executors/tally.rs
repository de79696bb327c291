//! How much was done, and is it enough?

use ensue::{HandlerError, Outcome};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// Counts the attempts of a process.
#[derive(Debug, Default)]
pub struct Tally {
    attempts_max: Option<u64>,
    counts: Mutex<Counts>,
    enough: Notify,
}

/// How many attempts there were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// That began.
    pub begun: u64,
    /// That ended well: done, or with nothing to do.
    pub done: u64,
    /// That failed.
    pub failed: u64,
    /// That ended otherwise: put off, or given back because the process stops.
    pub put_off: u64,
}

impl Tally {
    /// At most so many attempts.
    pub fn at_most(attempts_max: u64) -> Self {
        Self { attempts_max: Some(attempts_max), ..Self::default() }
    }

    /// May another attempt begin? Counted if so.
    pub fn begin(&self) -> bool {
        let mut counts = self.lock();
        if self.attempts_max.is_some_and(|max| counts.begun >= max) {
            return false;
        }
        counts.begun += 1;
        true
    }

    /// An attempt has ended.
    pub fn end(&self, answer: &Result<Outcome, HandlerError>) {
        let mut counts = self.lock();
        match answer {
            Ok(Outcome::Done | Outcome::Cancel(_)) => counts.done += 1,
            Ok(Outcome::Retry(_)) | Err(_) => counts.failed += 1,
            Ok(Outcome::Snooze(_)) => counts.put_off += 1,
        }
        if self.is_enough(*counts) {
            self.enough.notify_waiters();
        }
    }

    /// What was counted so far.
    pub fn counts(&self) -> Counts {
        *self.lock()
    }

    /// Comes back when as many attempts have ended as there may be; never if there is no such number.
    pub async fn enough(&self) {
        loop {
            let told = self.enough.notified();
            if self.is_enough(self.counts()) {
                return;
            }
            told.await;
        }
    }

    fn is_enough(&self, counts: Counts) -> bool {
        self.attempts_max.is_some_and(|max| counts.done + counts.failed + counts.put_off >= max)
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
