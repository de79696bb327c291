//! How often is it said that the server is away?
//!
//! Once when a connection is lost, then now and then while it cannot be had again, and once when it is back: every try
//! would be a line otherwise, several a second.

use std::fmt::Display;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The time between two warnings, at least.
const WARN_EVERY: Duration = Duration::from_secs(10);

/// Whether the server can be reached, and what was said of it.
#[derive(Debug, Default)]
pub(super) struct Outage {
    told: Mutex<Told>,
}

#[derive(Debug, Default)]
struct Told {
    /// When the first connection was lost after which none was made.
    lost_at: Option<Instant>,
    /// Was there a warning of this outage?
    warned: bool,
    warned_at: Option<Instant>,
}

impl Told {
    /// A connection was lost, or cannot be made: is it time to say so?
    fn lost(&mut self, now: Instant) -> bool {
        self.lost_at.get_or_insert(now);
        let is_time = self.warned_at.is_none_or(|at| now.saturating_duration_since(at) >= WARN_EVERY);
        if is_time {
            self.warned_at = Some(now);
            self.warned = true;
        }
        is_time
    }

    /// A connection was made: how long was the server away, if that was said?
    fn back(&mut self, now: Instant) -> Option<Duration> {
        let lost_at = self.lost_at.take()?;
        std::mem::take(&mut self.warned).then(|| now.saturating_duration_since(lost_at))
    }
}

impl Outage {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection was lost, or cannot be made.
    pub fn lost(&self, failure: &impl Display, place: &str) {
        if self.told().lost(Instant::now()) {
            tracing::warn!(error = %failure, server = place, "the connection to Postgres is lost; trying again");
        }
    }

    /// A connection was made.
    pub fn back(&self, place: &str) {
        if let Some(away) = self.told().back(Instant::now()) {
            tracing::info!(server = place, "reconnected to Postgres after {:.1} s", away.as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outage_is_told_once_then_every_ten_seconds_and_once_at_its_end() {
        let (mut told, begun) = (Told::default(), Instant::now());
        let at = |millis: u64| begun + Duration::from_millis(millis);
        let warnings: Vec<u64> = (0..25_000).step_by(100).filter(|millis| told.lost(at(*millis))).collect();
        assert_eq!(warnings, [0, 10_000, 20_000]);
        assert_eq!(told.back(at(25_000)), Some(Duration::from_secs(25)));
        assert_eq!(told.back(at(25_001)), None);
    }

    #[test]
    fn a_connection_that_comes_and_goes_is_not_told_more_often() {
        let (mut told, begun) = (Told::default(), Instant::now());
        let mut lines = 0;
        for millis in (0..25_000).step_by(100) {
            lines += usize::from(told.lost(begun + Duration::from_millis(millis)));
            lines += usize::from(told.back(begun + Duration::from_millis(millis + 50)).is_some());
        }
        assert_eq!(lines, 6, "three warnings, and three times that it is back");
    }
}
