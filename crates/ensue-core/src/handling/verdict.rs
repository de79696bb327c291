//! What became of an event, for one handler?
//!
//! A delivery that simply succeeds leaves no row, so this is derived: from what is recorded, from the lane that the event is
//! in, and else from the cursor of its slot.

use crate::event::Seq;
use crate::jobs::{Job, JobState};
use crate::positions::{Delivery, DeliveryState, Lane, LaneState};
use jiff::Timestamp;

/// How a handler stands to an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Standing {
    /// It is handled.
    Done,
    /// It waits for its turn, or is being handled since a moment ago.
    Pending,
    /// It is being handled, and that takes a while.
    Running,
    /// Its handler has put it off.
    Waiting,
    /// It failed, and is tried again.
    Retrying,
    /// Its attempts are exhausted, and it waits for somebody.
    Held,
    /// It was given up: a dead letter.
    Dead,
    /// Its handler said that there is nothing to do about it.
    Cancelled,
    /// Somebody skipped it.
    Skipped,
    /// The handler does not want it.
    NotMatched,
    /// It was in the log before the handler began.
    BeforeStart,
    /// The handler is past it, and has got another condition since: whether it ran then is not known.
    Passed,
}

impl Standing {
    /// May something still follow, with or without somebody's help?
    pub fn is_open(self) -> bool {
        match self {
            Self::Pending | Self::Running | Self::Waiting | Self::Retrying | Self::Held => true,
            Self::Done | Self::Dead | Self::Cancelled | Self::Skipped => false,
            Self::NotMatched | Self::BeforeStart | Self::Passed => false,
        }
    }

    /// Its word in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::Retrying => "retrying",
            Self::Held => "held",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
            Self::Skipped => "skipped",
            Self::NotMatched => "not_matched",
            Self::BeforeStart => "before_start",
            Self::Passed => "passed",
        }
    }
}

/// What is stored about an event and a handler.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The event.
    pub seq: Seq,
    /// Does the handler want it, as it is now?
    pub is_wanted: bool,
    /// Was it in the log before the handler began?
    pub is_before_start: bool,
    /// Was it in the log before the handler got the condition that it has now?
    pub is_before_change: bool,
    /// How far the slot of the event is.
    pub cursor: Seq,
    /// The lane of its object, or of the event alone.
    pub lane: Option<&'a Lane>,
    /// What is recorded of it.
    pub recorded: Option<&'a Delivery>,
}

/// What became of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// How the handler stands to it.
    pub standing: Standing,
    /// How often it was started, as far as that is known.
    pub attempts: u32,
    /// When it last ended, where that is recorded.
    pub at: Option<Timestamp>,
    /// When it is tried again.
    pub next_at: Option<Timestamp>,
    /// What went wrong last.
    pub error: Option<String>,
    /// The event of the same object that it waits for.
    pub behind: Option<Seq>,
    /// Is that event held, until a person retries or skips it?
    pub is_behind_held: bool,
    /// Has somebody brought it back? Then it is to run for that, has failed again or is done.
    pub redriven: bool,
}

impl Verdict {
    fn of(standing: Standing) -> Self {
        let is_behind_held = false;
        let (attempts, at, next_at, error, behind) = (0, None, None, None, None);
        Self { standing, attempts, at, next_at, error, behind, is_behind_held, redriven: false }
    }
}

/// What became of an event, for one handler.
pub fn verdict(facts: &Facts<'_>) -> Verdict {
    let Facts { seq, is_wanted, is_before_start, is_before_change, cursor, lane, recorded } = *facts;
    // A lane that only says what is done ahead of the cursor knows nothing of what comes after.
    let open_lane = lane.filter(|lane| lane.state != LaneState::Done);
    if let Some(lane) = open_lane.filter(|lane| lane.position == seq) {
        return at_its_turn(lane, recorded);
    }
    let is_passed = match lane {
        Some(lane) if seq < lane.position => true,
        Some(lane) if lane.state != LaneState::Done => false,
        Some(_) | None => seq <= cursor,
    };
    if let Some(recorded) = recorded
        && let Some(standing) = ended(recorded.state, is_passed)
    {
        let error = recorded.error.clone().filter(|_| standing != Standing::Done);
        let (attempts, at) = (recorded.attempts, Some(recorded.finished_at));
        let redriven = recorded.state == DeliveryState::Redriven;
        return Verdict { attempts, at, error, redriven, ..Verdict::of(standing) };
    }
    match open_lane {
        _ if is_passed && is_before_change && !is_before_start => Verdict::of(Standing::Passed),
        _ if is_passed && is_before_change => Verdict::of(Standing::BeforeStart),
        _ if !is_wanted => Verdict::of(Standing::NotMatched),
        _ if is_before_start && is_passed => Verdict::of(Standing::BeforeStart),
        _ if is_passed => Verdict { attempts: 1, ..Verdict::of(Standing::Done) },
        Some(lane) if lane.state == LaneState::Dead => {
            Verdict { behind: Some(lane.position), ..Verdict::of(Standing::Dead) }
        }
        Some(lane) => {
            let is_behind_held = lane.state == LaneState::Held;
            Verdict { behind: Some(lane.position), is_behind_held, ..Verdict::of(Standing::Pending) }
        }
        None => Verdict::of(Standing::Pending),
    }
}

/// What became of an event that has become a job, for workers elsewhere: that is up to the job. `before` goes before it in its
/// lane.
pub fn verdict_of_job(job: &Job, before: Option<&Job>) -> Verdict {
    let standing = match job.state {
        JobState::Available | JobState::Parked => Standing::Pending,
        JobState::Scheduled => Standing::Waiting,
        JobState::Running => Standing::Running,
        JobState::Retrying => Standing::Retrying,
        JobState::Succeeded => Standing::Done,
        JobState::Dead if job.holds_lane() => Standing::Held,
        JobState::Dead => Standing::Dead,
        JobState::Cancelled => Standing::Cancelled,
    };
    let failed = job.errors.last().filter(|_| standing != Standing::Done);
    Verdict {
        standing,
        attempts: job.attempts,
        at: job.finished_at.or(failed.map(|error| error.at)),
        next_at: job.not_before.filter(|_| matches!(standing, Standing::Waiting | Standing::Retrying)),
        error: failed.map(|error| error.error.clone()),
        behind: before.and_then(|before| before.cause.as_ref()).map(|cause| cause.seq),
        is_behind_held: before.is_some_and(Job::holds_lane),
        redriven: job.redriven,
    }
}

/// The event is the one that its lane stands at.
fn at_its_turn(lane: &Lane, recorded: Option<&Delivery>) -> Verdict {
    let standing = match (lane.state, lane.not_before, &lane.error) {
        (LaneState::Held, ..) => Standing::Held,
        (LaneState::Dead, ..) => Standing::Dead,
        (LaneState::Waiting | LaneState::Done, None, _) if lane.attempts == 0 => Standing::Pending,
        (LaneState::Waiting | LaneState::Done, None, _) => Standing::Running,
        (LaneState::Waiting | LaneState::Done, Some(_), Some(_)) => Standing::Retrying,
        (LaneState::Waiting | LaneState::Done, Some(_), None) => Standing::Waiting,
    };
    // Brought back, it counts anew; its record counts on.
    let before = recorded.filter(|_| lane.redriven).map_or(0, |recorded| recorded.attempts);
    Verdict {
        attempts: lane.attempts.max(before),
        at: recorded.map(|recorded| recorded.finished_at),
        next_at: lane.not_before,
        error: lane.error.clone(),
        redriven: lane.redriven,
        ..Verdict::of(standing)
    }
}

/// What a record says of an event that no lane stands at.
fn ended(state: DeliveryState, is_passed: bool) -> Option<Standing> {
    match state {
        DeliveryState::Done | DeliveryState::Redriven => Some(Standing::Done),
        DeliveryState::Dead => Some(Standing::Dead),
        DeliveryState::Cancelled => Some(Standing::Cancelled),
        DeliveryState::Skipped => Some(Standing::Skipped),
        // What was tried again and worked leaves the record of how it failed.
        DeliveryState::Failed | DeliveryState::Held => is_passed.then_some(Standing::Done),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::{GroupName, ObjectKey};
    use crate::positions::LaneKey;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn lane(position: Seq, state: LaneState, attempts: u32, not_before: bool, error: bool) -> Lane {
        Lane {
            key: LaneKey::Object(ObjectKey::stored("o")),
            position,
            state,
            attempts,
            not_before: not_before.then_some(NOW),
            error: error.then(|| "no".into()),
            redriven: false,
        }
    }

    fn recorded(state: DeliveryState) -> Delivery {
        Delivery {
            group: GroupName::stored("g"),
            seq: 10,
            object: None,
            state,
            attempts: 3,
            error: Some("earlier".into()),
            started_at: NOW,
            finished_at: NOW,
        }
    }

    #[test]
    fn what_is_stored_tells_what_became_of_an_event() {
        use DeliveryState as D;
        use LaneState as L;
        use Standing as S;
        let row = |state| Some(recorded(state));
        // The event is 10. Lane, recorded, cursor; then what became of it, and what it waits behind.
        let table = [
            (None, None, 9, S::Pending, None),
            (None, None, 10, S::Done, None),
            (None, row(D::Done), 10, S::Done, None),
            (None, row(D::Redriven), 10, S::Done, None),
            (None, row(D::Dead), 12, S::Dead, None),
            (None, row(D::Cancelled), 12, S::Cancelled, None),
            (None, row(D::Skipped), 12, S::Skipped, None),
            (None, row(D::Held), 12, S::Done, None),
            (None, row(D::Failed), 12, S::Done, None),
            (None, row(D::Failed), 9, S::Pending, None),
            (Some(lane(10, L::Waiting, 0, false, false)), None, 12, S::Pending, None),
            (Some(lane(10, L::Waiting, 1, false, false)), None, 12, S::Running, None),
            (Some(lane(10, L::Waiting, 2, false, true)), None, 12, S::Running, None),
            (Some(lane(10, L::Waiting, 0, true, false)), None, 12, S::Waiting, None),
            (Some(lane(10, L::Waiting, 2, true, true)), row(D::Failed), 12, S::Retrying, None),
            (Some(lane(10, L::Held, 5, false, true)), row(D::Held), 12, S::Held, None),
            (Some(lane(10, L::Dead, 5, false, true)), row(D::Dead), 12, S::Dead, None),
            // It was brought back.
            (Some(lane(10, L::Waiting, 0, false, false)), row(D::Dead), 12, S::Pending, None),
            (Some(lane(8, L::Held, 5, false, true)), None, 12, S::Pending, Some(8)),
            (Some(lane(8, L::Dead, 5, false, true)), None, 12, S::Dead, Some(8)),
            (Some(lane(8, L::Waiting, 1, true, true)), None, 12, S::Pending, Some(8)),
            (Some(lane(11, L::Held, 5, false, true)), None, 9, S::Done, None),
            (Some(lane(11, L::Held, 5, false, true)), row(D::Held), 12, S::Done, None),
            // Only what is done ahead of the cursor.
            (Some(lane(11, L::Done, 0, false, false)), None, 5, S::Done, None),
            (Some(lane(10, L::Done, 0, false, false)), None, 9, S::Pending, None),
            (Some(lane(8, L::Done, 0, false, false)), None, 10, S::Done, None),
        ];
        for (lane, recorded, cursor, standing, behind) in table {
            let facts = Facts {
                seq: 10,
                is_wanted: true,
                is_before_start: false,
                is_before_change: false,
                cursor,
                lane: lane.as_ref(),
                recorded: recorded.as_ref(),
            };
            let found = verdict(&facts);
            assert_eq!((found.standing, found.behind), (standing, behind), "{facts:?}");
        }
    }

    #[test]
    fn what_is_not_wanted_or_came_before_is_said_unless_something_is_known_of_it() {
        let facts = Facts {
            seq: 10,
            is_wanted: false,
            is_before_start: true,
            is_before_change: false,
            cursor: 20,
            lane: None,
            recorded: None,
        };
        assert_eq!(verdict(&facts).standing, Standing::NotMatched);
        assert_eq!(verdict(&Facts { is_wanted: true, ..facts }).standing, Standing::BeforeStart);
        // Somebody has set the cursor back.
        assert_eq!(verdict(&Facts { is_wanted: true, cursor: 5, ..facts }).standing, Standing::Pending);
        let recorded = recorded(DeliveryState::Dead);
        let known = verdict(&Facts { recorded: Some(&recorded), ..facts });
        assert_eq!((known.standing, known.attempts, known.error.as_deref()), (Standing::Dead, 3, Some("earlier")));
        assert_eq!((known.at, known.next_at), (Some(NOW), None));
    }

    /// What the handler wanted then, nobody knows any more: neither that it ran nor that it did not is claimed.
    #[test]
    fn what_was_passed_under_another_condition_is_not_guessed() {
        let lane = lane(8, LaneState::Held, 5, false, true);
        let recorded = recorded(DeliveryState::Done);
        for is_wanted in [false, true] {
            let facts = Facts {
                seq: 10,
                is_wanted,
                is_before_start: false,
                is_before_change: true,
                cursor: 20,
                lane: None,
                recorded: None,
            };
            let found = verdict(&facts);
            assert_eq!((found.standing, found.attempts), (Standing::Passed, 0));
            assert_eq!(verdict(&Facts { is_before_start: true, ..facts }).standing, Standing::BeforeStart);
            // A record is known, and what has not been passed goes by the condition as it is now.
            assert_eq!(verdict(&Facts { recorded: Some(&recorded), ..facts }).standing, Standing::Done);
            let open = if is_wanted { Standing::Pending } else { Standing::NotMatched };
            assert_eq!(verdict(&Facts { cursor: 9, ..facts }).standing, open);
            assert_eq!(verdict(&Facts { lane: Some(&lane), ..facts }).standing, open);
        }
    }
}
