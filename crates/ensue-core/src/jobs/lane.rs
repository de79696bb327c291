//! Which job of a lane is next?
//!
//! A lane is the jobs of one handler and object that have a turn. At most one of them is available or running; the
//! others are parked, or wait for a time of their own.

use super::job::JobNumber;
use super::lifecycle::JobState;

/// A job of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waiting {
    /// Which.
    pub number: JobNumber,
    /// Where it stands.
    pub state: JobState,
}

/// What is to be changed in a lane so that its next job, and only that one, may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Turned {
    /// Becomes available.
    pub freed: Option<JobNumber>,
    /// Is parked: another goes before it, or a rule holds the object.
    pub parked: Option<JobNumber>,
}

/// Who is next? `first` is the job with the smallest turn, `at_work` one that runs, `ready` one that is available.
pub fn turn(first: Option<Waiting>, at_work: bool, ready: Option<JobNumber>, is_held_by_rule: bool) -> Turned {
    let next = match first {
        Some(first) if !at_work && !is_held_by_rule => match first.state {
            JobState::Parked | JobState::Available => Some(first.number),
            // It waits for its time, or for somebody; so does its lane.
            JobState::Scheduled | JobState::Retrying | JobState::Dead => None,
            JobState::Running | JobState::Succeeded | JobState::Cancelled => None,
        },
        _ => None,
    };
    Turned { freed: next.filter(|next| ready != Some(*next)), parked: ready.filter(|ready| next != Some(*ready)) }
}

/// What is noted of a job that dies because one before it of its lane did, of this.
pub fn died_with(error: &str) -> String {
    format!("{DIED_WITH}{error}")
}

/// How that begins.
pub const DIED_WITH: &str = "a job before it of its object died: ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_lane_runs_and_no_other() {
        let first = |state| Some(Waiting { number: 1, state });
        let (nothing, frees) = (Turned::default(), Turned { freed: Some(1), parked: None });
        let parks = |number| Turned { freed: None, parked: Some(number) };
        let table = [
            ("an empty lane", turn(None, false, None, false), nothing),
            ("the first waits", turn(first(JobState::Parked), false, None, false), frees),
            ("it is available already", turn(first(JobState::Available), false, Some(1), false), nothing),
            ("one is at work", turn(first(JobState::Parked), true, None, false), nothing),
            ("H5: it is retried", turn(first(JobState::Retrying), false, None, false), nothing),
            ("it is snoozed", turn(first(JobState::Scheduled), false, None, false), nothing),
            ("it is dead, and holds its lane", turn(first(JobState::Dead), false, None, false), nothing),
            ("a rule holds its object", turn(first(JobState::Parked), false, None, true), nothing),
            ("a rule comes", turn(first(JobState::Available), false, Some(1), true), parks(1)),
            (
                "one was brought back before it",
                turn(first(JobState::Parked), false, Some(2), false),
                Turned { freed: Some(1), parked: Some(2) },
            ),
            (
                "one that is retried was brought back before it",
                turn(first(JobState::Retrying), false, Some(2), false),
                parks(2),
            ),
        ];
        for (name, found, expected) in table {
            assert_eq!(found, expected, "{name}");
        }
    }
}
