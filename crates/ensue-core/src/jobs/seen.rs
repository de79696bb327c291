//! Where does a job stand for whoever looks?
//!
//! A rule on a handler is one row, however many jobs wait for it: engines leave those jobs as they are and do not hand them
//! out. Who looks at such a job is told that it is parked, as it is, and finds it among the parked ones.

use super::lifecycle::JobState;
use super::{JobCount, JobQuery};
use crate::rules::RuleSet;
use jiff::Timestamp;
use std::collections::BTreeMap;

/// The state that is shown of a job.
pub fn seen(state: JobState, is_held_by_rule: bool) -> JobState {
    match state {
        JobState::Available if is_held_by_rule => JobState::Parked,
        // Its time holds it before any rule does; the others run or are over.
        JobState::Scheduled
        | JobState::Available
        | JobState::Running
        | JobState::Parked
        | JobState::Retrying
        | JobState::Succeeded
        | JobState::Dead
        | JobState::Cancelled => state,
    }
}

/// The counts by the state that is shown: jobs that a rule on their handler holds are parked. Jobs of a
/// held object are parked in the store already.
pub fn seen_counts(counts: Vec<JobCount>, rules: &RuleSet, now: Timestamp) -> Vec<JobCount> {
    let mut sums: BTreeMap<(String, &str), JobCount> = BTreeMap::new();
    for JobCount { handler, state, count } in counts {
        let state = seen(state, rules.holding_handler(&handler, now).is_some());
        let key = (handler.to_string(), state.as_str());
        sums.entry(key).or_insert(JobCount { handler, state, count: 0 }).count += count;
    }
    sums.into_values().collect()
}

impl JobQuery {
    /// The query to ask an engine for jobs that are *seen* in the states of this one: what it finds beside them is left out
    /// with [`is_seen`](Self::is_seen).
    pub fn stored(&self) -> Self {
        let mut stored = self.clone();
        if stored.states.contains(&JobState::Parked) && !stored.states.contains(&JobState::Available) {
            stored.states.push(JobState::Available);
        }
        stored
    }

    /// Does it ask for jobs that are shown in this state?
    pub fn is_seen(&self, seen: JobState) -> bool {
        self.states.is_empty() || self.states.contains(&seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::GroupName;
    use crate::rules::{NewRule, RuleKind, Scope};

    #[test]
    fn a_job_that_could_run_but_for_a_rule_is_parked_and_no_other_is() {
        for state in JobState::ALL {
            assert_eq!(seen(state, false), state);
            let held = if state == JobState::Available { JobState::Parked } else { state };
            assert_eq!(seen(state, true), held);
        }
    }

    #[test]
    fn counts_show_jobs_of_a_paused_handler_as_parked() {
        let count = |handler: &str, state, count| JobCount { handler: GroupName::stored(handler), state, count };
        let pause = NewRule {
            kind: RuleKind::Pause,
            scope: Scope::Handler(GroupName::stored("mail")),
            reason: None,
            author: "me".into(),
            expires_at: None,
        };
        let rules = RuleSet::new(1, [pause.over(None, uuid::Uuid::nil(), Timestamp::UNIX_EPOCH)]);
        let stored = vec![
            count("mail.send", JobState::Available, 3),
            count("mail.send", JobState::Parked, 2),
            count("mail.send", JobState::Running, 1),
            count("other", JobState::Available, 4),
        ];
        let shown = [
            count("mail.send", JobState::Parked, 5),
            count("mail.send", JobState::Running, 1),
            count("other", JobState::Available, 4),
        ];
        assert_eq!(seen_counts(stored, &rules, Timestamp::UNIX_EPOCH), shown);
    }

    #[test]
    fn parked_finds_those_and_available_does_not() {
        let asking = |states: &[JobState]| JobQuery { states: states.to_vec(), ..JobQuery::default() };
        let parked = asking(&[JobState::Parked]);
        assert_eq!(parked.stored().states, [JobState::Parked, JobState::Available]);
        assert!(parked.is_seen(seen(JobState::Available, true)) && !parked.is_seen(seen(JobState::Available, false)));
        let available = asking(&[JobState::Available]);
        assert_eq!(available.stored().states, [JobState::Available]);
        assert!(!available.is_seen(seen(JobState::Available, true)));
        assert!(asking(&[]).stored().states.is_empty() && asking(&[]).is_seen(JobState::Dead));
    }
}
