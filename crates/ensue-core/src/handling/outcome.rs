//! What follows from how an attempt ended?

use super::retry::Retry;
use jiff::Timestamp;
use std::time::Duration;

/// What to do with a delivery whose attempts are exhausted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum OnExhausted {
    /// Its object waits until somebody retries or skips it.
    #[default]
    Hold,
    /// The event is a dead letter; its object goes on.
    Skip,
    /// The event and every later one of its object are dead letters, until somebody retries.
    DeadLetterObject,
}

impl OnExhausted {
    /// Its word in config and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hold => "hold",
            Self::Skip => "skip",
            Self::DeadLetterObject => "dead_letter_object",
        }
    }

    /// From its word.
    pub fn parse(word: &str) -> Option<Self> {
        [Self::Hold, Self::Skip, Self::DeadLetterObject].into_iter().find(|policy| policy.as_str() == word)
    }
}

/// How an attempt ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// It is done.
    Done,
    /// It failed; the handler may say after how long to try again.
    Failed {
        /// What went wrong.
        error: String,
        /// After how long to try again; by the retry policy if it does not say.
        after: Option<Duration>,
        /// Would it fail again whatever is tried?
        permanent: bool,
    },
    /// Its content could not be read, for this reason, which may quote the content. It fails again whatever is tried.
    Unreadable(String),
    /// Not now: run it again later. No attempt is used up.
    Snoozed(Duration),
    /// There is nothing to do about it, for this reason.
    Cancelled(String),
}

/// What became of the transactions in which a handler settled by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum OwnCommit {
    /// It settled in none.
    #[default]
    Unused,
    /// It settled, and no transaction with that has committed.
    Missing,
    /// One has committed.
    Committed,
}

impl Ended {
    /// How an attempt ended, given what became of its own transactions. What has committed is done, whatever came after.
    /// An attempt that settled in a transaction which did not commit has failed, also if it says that it is done: its
    /// effects are gone.
    pub fn with_own_commit(self, own: OwnCommit) -> Self {
        match (own, self) {
            (OwnCommit::Committed, _) => Self::Done,
            (OwnCommit::Missing, Self::Done) => Self::Failed {
                error: "the transaction in which it settled with `done_in` did not commit; commit it before the \
                        handler returns `Ok`"
                    .into(),
                after: None,
                permanent: false,
            },
            (OwnCommit::Unused | OwnCommit::Missing, ended) => ended,
        }
    }
}

/// What follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// Nothing: the next event of the object may start.
    Done,
    /// Nothing, for a reason that is recorded; the next event of the object may start.
    Cancelled(String),
    /// It is run again at this time; so many attempts are used up.
    Wait {
        /// By the store's clock.
        at: Timestamp,
        /// Attempts used up so far.
        attempts: u32,
        /// What went wrong, if something did.
        error: Option<String>,
    },
    /// Its attempts are exhausted.
    Exhausted {
        /// What to do with it.
        policy: OnExhausted,
        /// What went wrong last.
        error: String,
    },
}

/// What follows from the end of the attempt with this number, 1 for the first.
pub fn after_attempt(
    ended: Ended,
    attempt: u32,
    retry: &Retry,
    on_exhausted: OnExhausted,
    now: Timestamp,
    chance: f64,
) -> Next {
    let at = |wait: Duration| now.checked_add(wait.min(super::retry::DELAY_MAX)).unwrap_or(Timestamp::MAX);
    match ended {
        Ended::Done => Next::Done,
        Ended::Cancelled(why) => Next::Cancelled(why),
        Ended::Snoozed(wait) => Next::Wait { at: at(wait), attempts: attempt - 1, error: None },
        Ended::Unreadable(error) => Next::Exhausted { policy: on_exhausted, error },
        Ended::Failed { error, permanent, .. } if permanent || attempt >= retry.attempts_max() => {
            Next::Exhausted { policy: on_exhausted, error }
        }
        Ended::Failed { error, after, .. } => {
            let wait = after.unwrap_or_else(|| retry.delay(attempt, chance));
            Next::Wait { at: at(wait), attempts: attempt, error: Some(error) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn failed(after: Option<Duration>, permanent: bool) -> Ended {
        Ended::Failed { error: "no".into(), after, permanent }
    }

    fn next(ended: Ended, attempt: u32) -> Next {
        after_attempt(ended, attempt, &Retry::attempts(3), OnExhausted::Hold, NOW, 1.0)
    }

    #[test]
    fn every_end_has_one_consequence() {
        let second = Duration::from_secs(1);
        let wait = |wait: Duration, attempts, error: Option<&str>| Next::Wait {
            at: NOW + wait,
            attempts,
            error: error.map(str::to_owned),
        };
        let exhausted = Next::Exhausted { policy: OnExhausted::Hold, error: "no".into() };
        let table = [
            (Ended::Done, 1, Next::Done),
            (Ended::Cancelled("late".into()), 2, Next::Cancelled("late".into())),
            (failed(None, false), 1, wait(second, 1, Some("no"))),
            (failed(None, false), 2, wait(2 * second, 2, Some("no"))),
            (failed(Some(9 * second), false), 2, wait(9 * second, 2, Some("no"))),
            (failed(None, false), 3, exhausted.clone()),
            (failed(Some(second), false), 3, exhausted.clone()),
            (failed(None, true), 1, exhausted.clone()),
            (Ended::Unreadable("no".into()), 1, exhausted),
            (Ended::Snoozed(second), 1, wait(second, 0, None)),
            (Ended::Snoozed(second), 3, wait(second, 2, None)),
        ];
        for (ended, attempt, expected) in table {
            assert_eq!(next(ended.clone(), attempt), expected, "{ended:?} in attempt {attempt}");
        }
    }

    #[test]
    fn done_counts_only_with_the_commit_of_its_own_transaction() {
        let all = || [Ended::Done, failed(None, true), Ended::Snoozed(Duration::ZERO), Ended::Cancelled("no".into())];
        for ended in all() {
            assert_eq!(ended.clone().with_own_commit(OwnCommit::Unused), ended);
            assert_eq!(ended.with_own_commit(OwnCommit::Committed), Ended::Done);
        }
        for ended in all().into_iter().filter(|ended| *ended != Ended::Done) {
            assert_eq!(ended.clone().with_own_commit(OwnCommit::Missing), ended);
        }
        let ended = Ended::Done.with_own_commit(OwnCommit::Missing);
        let Ended::Failed { error, after: None, permanent: false } = ended else { panic!("{ended:?}") };
        assert!(error.contains("did not commit"), "{error}");
    }

    #[test]
    fn a_wait_beyond_all_time_is_bounded() {
        let Next::Wait { at, .. } = next(Ended::Snoozed(Duration::MAX), 1) else { panic!("it waits") };
        assert_eq!(at, NOW + super::super::retry::DELAY_MAX);
    }
}
