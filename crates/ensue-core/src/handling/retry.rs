//! When is a failed delivery tried again?

use crate::error::Invalid;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

/// How often a delivery is attempted unless told.
const ATTEMPTS_MAX: u32 = 5;
/// The most attempts there may be.
pub const ATTEMPTS_LIMIT: u32 = 1_000_000;
/// Nothing waits longer than this.
pub const DELAY_MAX: Duration = Duration::from_secs(366 * 24 * 3_600);

/// How often, and after how long.
///
/// Unless told otherwise there are 5 attempts, with delays that double from 1 s up to 5 minutes. What doubles is the most
/// that a delay can be: each is chosen anew between nothing and that ("full jitter"), so that many deliveries that
/// failed together do not come back together.
///
/// ```
/// use ensue_core::handling::Retry;
/// use std::time::Duration;
/// let often = Retry::attempts(10).first(Duration::from_millis(100)).max(Duration::from_secs(60));
/// assert!(often.delay(3, 1.0) == Duration::from_millis(400) && often.delay(3, 0.5) == Duration::from_millis(200));
/// let exactly = Retry::delays([Duration::from_secs(60), Duration::from_secs(300)]);
/// assert_eq!(exactly.attempts_max(), 3);
/// assert_eq!(exactly.delay(2, 0.1), Duration::from_secs(300));
/// ```
#[derive(Clone)]
pub struct Retry {
    attempts_max: u32,
    delays: Delays,
}

#[derive(Clone)]
enum Delays {
    Exponential { first: Duration, max: Duration },
    List(Arc<[Duration]>),
    Function(Arc<dyn Fn(u32) -> Duration + Send + Sync>),
}

/// What delays look like, for those who show or keep them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RetryShape {
    /// They double from the first up to the longest, each chosen by chance between nothing and that.
    Doubling {
        /// The most that the first can be.
        first: Duration,
        /// The most that any can be.
        max: Duration,
    },
    /// These exactly.
    Exactly(Vec<Duration>),
    /// A function says them.
    ByFunction,
}

impl Default for Retry {
    fn default() -> Self {
        Self::attempts(ATTEMPTS_MAX)
    }
}

impl Retry {
    /// So many attempts, the first included; at least one.
    pub fn attempts(attempts_max: u32) -> Self {
        let delays = Delays::Exponential { first: Duration::from_secs(1), max: Duration::from_secs(300) };
        Self { attempts_max: attempts_max.clamp(1, ATTEMPTS_LIMIT), delays }
    }

    /// One attempt and no other.
    pub fn never() -> Self {
        Self::attempts(1)
    }

    /// These delays exactly, one after each failed attempt but the last.
    pub fn delays(delays: impl IntoIterator<Item = Duration>) -> Self {
        let delays: Arc<[Duration]> = delays.into_iter().collect();
        let attempts_max = u32::try_from(delays.len() + 1).unwrap_or(ATTEMPTS_LIMIT).min(ATTEMPTS_LIMIT);
        Self { attempts_max, delays: Delays::List(delays) }
    }

    /// So many attempts, and delays as this function says from the number of the attempt that failed, 1 for the first.
    pub fn with(attempts_max: u32, delay: impl Fn(u32) -> Duration + Send + Sync + 'static) -> Self {
        Self { delays: Delays::Function(Arc::new(delay)), ..Self::attempts(attempts_max) }
    }

    /// The most that the first delay can be.
    pub fn first(self, first: Duration) -> Self {
        let max = match self.delays {
            Delays::Exponential { max, .. } => max,
            Delays::List(_) | Delays::Function(_) => DELAY_MAX,
        };
        Self { delays: Delays::Exponential { first, max }, ..self }
    }

    /// The most that any delay can be.
    pub fn max(self, max: Duration) -> Self {
        let first = match self.delays {
            Delays::Exponential { first, .. } => first,
            Delays::List(_) | Delays::Function(_) => Duration::from_secs(1),
        };
        Self { delays: Delays::Exponential { first, max }, ..self }
    }

    /// The same delays, with so many attempts.
    pub fn limited_to(&self, attempts_max: u32) -> Self {
        Self { attempts_max: attempts_max.clamp(1, ATTEMPTS_LIMIT), ..self.clone() }
    }

    /// How many attempts there are.
    pub fn attempts_max(&self) -> u32 {
        self.attempts_max
    }

    /// What the delays look like.
    pub fn shape(&self) -> RetryShape {
        match &self.delays {
            Delays::Exponential { first, max } => RetryShape::Doubling { first: *first, max: *max },
            Delays::List(delays) => RetryShape::Exactly(delays.to_vec()),
            Delays::Function(_) => RetryShape::ByFunction,
        }
    }

    /// Refuses what cannot be meant.
    pub fn check(&self) -> Result<(), Invalid> {
        if let Delays::Exponential { first, max } = &self.delays
            && first > max
        {
            return Err(Invalid::new("retry.first", format!("is {first:?}, longer than `max` ({max:?}): swap them")));
        }
        Ok(())
    }

    /// How long to wait after this attempt (1 is the first) has failed; `chance` is between 0 and 1.
    pub fn delay(&self, attempt: u32, chance: f64) -> Duration {
        let delay = match &self.delays {
            Delays::Exponential { first, max } => {
                let times = 2_u32.saturating_pow(attempt.saturating_sub(1).min(31));
                first.saturating_mul(times).min(*max).min(DELAY_MAX).mul_f64(chance.clamp(0.0, 1.0))
            }
            Delays::List(delays) => {
                let index = (attempt.max(1) - 1) as usize;
                delays.get(index).or(delays.last()).copied().unwrap_or_default()
            }
            // One that panics must not end who runs the handler: then it is as if nothing had been said.
            Delays::Function(delay) => catch_unwind(AssertUnwindSafe(|| delay(attempt)))
                .unwrap_or_else(|_| Self::default().delay(attempt, chance)),
        };
        delay.min(DELAY_MAX)
    }
}

impl fmt::Debug for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.delays {
            Delays::Exponential { first, max } => write!(f, "{} attempts, {first:?} up to {max:?}", self.attempts_max),
            Delays::List(delays) => write!(f, "{} attempts, {delays:?}", self.attempts_max),
            Delays::Function(_) => write!(f, "{} attempts, by a function", self.attempts_max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_up_to_the_longest_and_never_overflow() {
        let retry = Retry::default();
        let longest: Vec<u64> = (1..=12).map(|attempt| retry.delay(attempt, 1.0).as_secs()).collect();
        assert_eq!(longest, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        assert_eq!(retry.delay(u32::MAX, 1.0), Duration::from_secs(300));
        assert_eq!(Retry::attempts(9).first(Duration::MAX).max(Duration::MAX).delay(9, 1.0), DELAY_MAX);
    }

    /// H26: many that failed together are spread.
    #[test]
    fn chance_spreads_them_over_the_whole_delay() {
        let retry = Retry::default();
        let mut delays: Vec<Duration> = (0..10_000).map(|n| retry.delay(4, f64::from(n) / 10_000.0)).collect();
        delays.sort_unstable();
        delays.dedup();
        assert_eq!(delays.len(), 10_000);
        assert!(delays[0] < Duration::from_millis(1) && delays[9_999] > Duration::from_millis(7_990));
    }

    #[test]
    fn lists_and_functions_are_exact() {
        let list = Retry::delays([Duration::from_secs(60)]);
        assert_eq!(
            (list.attempts_max(), list.delay(1, 0.0), list.delay(7, 0.0)),
            (2, Duration::from_secs(60), Duration::from_secs(60))
        );
        let function = Retry::with(3, |attempt| Duration::from_secs(u64::from(attempt) * 10));
        assert_eq!((function.attempts_max(), function.delay(2, 0.0)), (3, Duration::from_secs(20)));
        assert_eq!(Retry::delays([]).attempts_max(), 1);
        assert!(Retry::attempts(3).first(Duration::from_secs(9)).max(Duration::from_secs(1)).check().is_err());
    }
}
