//! What became of a delivery?
//!
//! A delivery that simply succeeds leaves no row: its group's cursor says it. Rows are written for what was given up,
//! cancelled or skipped, for what somebody should be able to read the log of, and for handlers that are audited.

use crate::event::Seq;
use crate::key::{GroupName, ObjectKey};
use jiff::Timestamp;

/// The longest line of a delivery's log, in bytes; what is longer is cut, and says so.
pub const LINE_BYTES_MAX: usize = 8 << 10;

/// How a delivery ended, or stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DeliveryState {
    /// It succeeded.
    Done,
    /// It succeeded after somebody had brought it back.
    Redriven,
    /// It failed, and is tried again.
    Failed,
    /// Its attempts are exhausted, and it waits for somebody.
    Held,
    /// It was given up: a dead letter.
    Dead,
    /// Its handler said that there is nothing to do about it.
    Cancelled,
    /// Somebody skipped it.
    Skipped,
}

impl DeliveryState {
    const ALL: [Self; 7] =
        [Self::Done, Self::Redriven, Self::Failed, Self::Held, Self::Dead, Self::Cancelled, Self::Skipped];

    /// Its word in stores and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Redriven => "redriven",
            Self::Failed => "failed",
            Self::Held => "held",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
            Self::Skipped => "skipped",
        }
    }

    /// Back from the word that an engine kept.
    pub fn stored(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// What is recorded of the delivery of one event to one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// To whom.
    pub group: GroupName,
    /// Of which event.
    pub seq: Seq,
    /// Of which object.
    pub object: Option<ObjectKey>,
    /// How it ended, or stands.
    pub state: DeliveryState,
    /// How often it was started.
    pub attempts: u32,
    /// What went wrong last.
    pub error: Option<String>,
    /// When it was last started.
    pub started_at: Timestamp,
    /// When it last ended.
    pub finished_at: Timestamp,
}

/// How much a line matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Level {
    /// For who looks for a fault.
    Debug,
    /// What happens.
    Info,
    /// What should not be.
    Warn,
    /// What went wrong.
    Error,
}

impl Level {
    /// Its word in stores and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warn => "warn",
            Self::Error => "error",
        }
    }

    /// Back from the word that an engine kept.
    pub fn stored(word: &str) -> Option<Self> {
        [Self::Debug, Self::Info, Self::Warn, Self::Error].into_iter().find(|level| level.as_str() == word)
    }
}

/// A line that a delivery said. Two that are equal are two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLine {
    /// About which event.
    pub seq: Seq,
    /// In which attempt.
    pub attempt: u32,
    /// When.
    pub at: Timestamp,
    /// How much it matters.
    pub level: Level,
    /// What it said.
    pub message: String,
}
