//! What of a handler can change while it runs?

use ensue_core::Invalid;
use ensue_core::handling::{OnExhausted, Retry};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

/// How many deliveries of one handler run at once, unless told.
const CONCURRENCY: usize = 8;
/// How many may run at once.
const CONCURRENCY_MAX: usize = 10_000;

/// How a handler is run. It can be changed while it is: see [`Rebinding::limits`](crate::Rebinding::limits). What has begun goes on
/// as it has.
#[derive(Debug, Clone)]
pub struct HandlerLimits {
    /// How many run at once in this process; 8 unless told.
    pub concurrency: usize,
    /// An attempt that takes longer is ended and has failed; there is no limit unless told.
    pub timeout: Option<Duration>,
    /// How often it is attempted, and after how long.
    pub retry: Retry,
    /// What is done when its attempts are exhausted.
    pub on_exhausted: OnExhausted,
    /// Keeps the lines of attempts that succeed, too.
    pub logs_always: bool,
    /// Records every delivery.
    pub audit: bool,
}

impl Default for HandlerLimits {
    fn default() -> Self {
        Self {
            concurrency: CONCURRENCY,
            timeout: None,
            retry: Retry::default(),
            on_exhausted: OnExhausted::default(),
            logs_always: false,
            audit: false,
        }
    }
}

impl HandlerLimits {
    /// Can they be?
    pub(crate) fn check(&self) -> Result<(), Invalid> {
        if self.concurrency == 0 || self.concurrency > CONCURRENCY_MAX {
            let reason = format!("is {}; choose between 1 and {CONCURRENCY_MAX}", self.concurrency);
            return Err(Invalid::new("concurrency", reason));
        }
        if self.timeout == Some(Duration::ZERO) {
            let reason = "is zero, so that nothing could ever succeed; leave it out for no limit";
            return Err(Invalid::new("timeout", reason));
        }
        self.retry.check()
    }
}

/// The limits of a handler, as they are now. All clones are the same.
#[derive(Clone)]
pub(crate) struct LimitsNow(Arc<RwLock<Arc<HandlerLimits>>>);

impl LimitsNow {
    pub fn new(limits: HandlerLimits) -> Self {
        Self(Arc::new(RwLock::new(Arc::new(limits))))
    }

    pub fn get(&self) -> Arc<HandlerLimits> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub fn set(&self, limits: HandlerLimits) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(limits);
    }
}
