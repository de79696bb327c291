//! Outcome of a sync handler, as a publish that waits for it answers.

use super::verdict::{Standing, Verdict};
use crate::event::Seq;

/// How far a sync handler is with an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncOutcome {
    /// It has handled the event.
    Done,
    /// It has given the event up; it is not run again unless a person retries it.
    Failed {
        /// What went wrong.
        error: String,
    },
    /// It does not run the event before a person acts: the object is held, or a rule holds it.
    Blocked {
        /// What went wrong, or which rule holds it.
        error: String,
    },
    /// It has not finished; it continues durably.
    Pending,
}

impl SyncOutcome {
    /// The outcome of what is stored about an event and a handler. `is_repeated`: the event was
    /// published before, and the handler may be newer than it.
    pub fn of(verdict: &Verdict, is_repeated: bool) -> Self {
        let error = || verdict.error.clone();
        match verdict.standing {
            Standing::Done | Standing::Cancelled => Self::Done,
            Standing::Dead => match (error(), verdict.behind) {
                (Some(error), _) => Self::Failed { error },
                (None, Some(seq)) => Self::given_up_behind(seq),
                (None, None) => Self::Failed { error: "it was given up".into() },
            },
            Standing::Skipped => Self::skipped(error()),
            Standing::Held => Self::Blocked { error: error().unwrap_or_else(|| "its object is held".into()) },
            Standing::Pending => match verdict.behind.filter(|_| verdict.is_behind_held) {
                Some(seq) => Self::held_behind(seq),
                None => Self::Pending,
            },
            Standing::Running | Standing::Waiting | Standing::Retrying => Self::Pending,
            // A handler that was made or changed meanwhile has not run what was just published.
            Standing::NotMatched | Standing::BeforeStart | Standing::Passed if is_repeated => Self::Done,
            Standing::NotMatched | Standing::BeforeStart | Standing::Passed => Self::Pending,
        }
    }

    /// The event waits for another of its object, which is held.
    pub fn held_behind(seq: Seq) -> Self {
        Self::Blocked { error: format!("it waits for event {seq} of the same object, which is held") }
    }

    /// The object was given up at another event.
    pub fn given_up_behind(seq: Seq) -> Self {
        Self::Failed { error: format!("its object was given up at event {seq}") }
    }

    /// An operator skipped the event.
    pub fn skipped(error: Option<String>) -> Self {
        let after = error.map(|error| format!(": {error}")).unwrap_or_default();
        Self::Failed { error: format!("it was skipped{after}") }
    }

    /// Its word in answers.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed { .. } => "failed",
            Self::Blocked { .. } => "blocked",
            Self::Pending => "pending",
        }
    }

    /// The error of a failure or a block.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Failed { error } | Self::Blocked { error } => Some(error),
            Self::Done | Self::Pending => None,
        }
    }

    /// Of several outcomes the most severe is answered: `failed`, `blocked`, `pending`,
    /// then `done`.
    pub fn severity(&self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Pending => 1,
            Self::Blocked { .. } => 2,
            Self::Failed { .. } => 3,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(standing: Standing) -> Verdict {
        Verdict {
            standing,
            attempts: 1,
            at: None,
            next_at: None,
            error: None,
            behind: None,
            is_behind_held: false,
            redriven: false,
        }
    }

    #[test]
    fn every_standing_has_one_outcome() {
        use Standing as S;
        let table = [
            (S::Done, "done", "done"),
            (S::Cancelled, "done", "done"),
            (S::Dead, "failed", "failed"),
            (S::Skipped, "failed", "failed"),
            (S::Held, "blocked", "blocked"),
            (S::Pending, "pending", "pending"),
            (S::Running, "pending", "pending"),
            (S::Waiting, "pending", "pending"),
            (S::Retrying, "pending", "pending"),
            (S::NotMatched, "pending", "done"),
            (S::BeforeStart, "pending", "done"),
            (S::Passed, "pending", "done"),
        ];
        for (standing, new, repeated) in table {
            let of = |is_repeated| SyncOutcome::of(&verdict(standing), is_repeated);
            assert_eq!((of(false).as_str(), of(true).as_str()), (new, repeated), "{standing:?}");
        }
    }

    #[test]
    fn an_event_behind_a_held_one_is_blocked_and_behind_a_dead_one_failed() {
        let behind = |standing, is_behind_held| {
            let verdict = Verdict { behind: Some(7), is_behind_held, ..verdict(standing) };
            SyncOutcome::of(&verdict, false)
        };
        assert_eq!(behind(Standing::Pending, true), SyncOutcome::held_behind(7));
        assert_eq!(behind(Standing::Pending, false), SyncOutcome::Pending);
        assert_eq!(behind(Standing::Dead, false), SyncOutcome::given_up_behind(7));
        let failed = Verdict { error: Some("no".into()), ..verdict(Standing::Dead) };
        assert_eq!(SyncOutcome::of(&failed, false).error(), Some("no"));
    }
}
