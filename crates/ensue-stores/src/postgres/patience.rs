//! How long, and how often, is a server that is away tried again?

use rand::Rng;
use std::time::{Duration, Instant};

/// The first pause before connecting again, and the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// Pauses that grow, with some chance in them so that many nodes do not come back at once, until a point in time.
pub(super) struct Patience {
    until: Instant,
    pause: Duration,
}

impl Patience {
    pub fn until(until: Instant) -> Self {
        Self { until, pause: PAUSE_FIRST }
    }

    /// The time that is left.
    pub fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Waits a little; false if there is no time left.
    pub async fn pause(&mut self) -> bool {
        let left = self.left();
        if left.is_zero() {
            return false;
        }
        let share = rand::rng().random_range(0.5..1.0);
        tokio::time::sleep(self.pause.mul_f64(share).min(left)).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        true
    }
}
