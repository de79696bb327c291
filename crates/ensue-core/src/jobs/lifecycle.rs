//! What can become of a job?
//!
//! Every state, every input and every arrow between them, as pure functions with time as an argument. [`after`] is the
//! one table; [`diagram`] draws it, and `docs/jobs.md` shows what it draws.

use crate::handling::{Next, OnExhausted};
use crate::positions::Fence;
use jiff::Timestamp;
use std::fmt::Write;

/// Where a job stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum JobState {
    /// Its time has not come.
    Scheduled,
    /// A worker may take it.
    Available,
    /// A worker has it, under a lease.
    Running,
    /// Something other than time holds it: the job before it in its lane, or a rule on its object.
    Parked,
    /// It failed, and is tried again when its time has come.
    Retrying,
    /// It is done.
    Succeeded,
    /// Its attempts are exhausted, or another would not help.
    Dead,
    /// Somebody, or its own handler, called it off.
    Cancelled,
}

impl JobState {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Scheduled,
        Self::Available,
        Self::Running,
        Self::Parked,
        Self::Retrying,
        Self::Succeeded,
        Self::Dead,
        Self::Cancelled,
    ];

    /// Its word in stores and answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Available => "available",
            Self::Running => "running",
            Self::Parked => "parked",
            Self::Retrying => "retrying",
            Self::Succeeded => "succeeded",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
        }
    }

    /// From its word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }

    /// Is it over? A dead job may be brought back; the others stay as they are.
    pub fn is_final(self) -> bool {
        match self {
            Self::Succeeded | Self::Dead | Self::Cancelled => true,
            Self::Scheduled | Self::Available | Self::Running | Self::Parked | Self::Retrying => false,
        }
    }
}

/// What can happen to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Input {
    /// Its time has come.
    Due,
    /// What held it does so no longer.
    Freed,
    /// Something holds it: a rule on its object, or a job that goes before it.
    Held,
    /// A worker takes it.
    Claim,
    /// The worker gives it back without having started it.
    GiveBack,
    /// The worker is done.
    Succeed,
    /// The attempt failed, and there is another one.
    FailForNow,
    /// The attempt failed, and there is no other.
    FailForGood,
    /// The worker wants it again later.
    Snooze,
    /// The handler says that there is nothing to do.
    CallOff,
    /// Somebody wants it not to run.
    Cancel,
    /// Somebody wants it to run now.
    Retry,
    /// Somebody wants its lane to go on without it.
    Skip,
}

impl Input {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Due,
        Self::Freed,
        Self::Held,
        Self::Claim,
        Self::GiveBack,
        Self::Succeed,
        Self::FailForNow,
        Self::FailForGood,
        Self::Snooze,
        Self::CallOff,
        Self::Cancel,
        Self::Retry,
        Self::Skip,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Due => "due",
            Self::Freed => "freed",
            Self::Held => "held",
            Self::Claim => "claim",
            Self::GiveBack => "give back",
            Self::Succeed => "succeed",
            Self::FailForNow => "fail, attempts left",
            Self::FailForGood => "fail, no attempts left",
            Self::Snooze => "snooze",
            Self::CallOff => "call off",
            Self::Cancel => "cancel",
            Self::Retry => "retry",
            Self::Skip => "skip",
        }
    }
}

/// What an input leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrow {
    /// To this state.
    To(JobState),
    /// It stays where it is, and its worker is told to stop: it is final when the worker is heard of next.
    Signal,
    /// Its lane goes on without it; the job stays dead.
    LetGo,
    /// It cannot happen in this state; this says what to do instead.
    Refused(&'static str),
}

/// What follows from an input in a state.
pub fn after(state: JobState, input: Input) -> Arrow {
    use JobState::{Available, Cancelled, Dead, Parked, Retrying, Running, Scheduled, Succeeded};
    match (state, input) {
        (Scheduled | Retrying, Input::Due) => Arrow::To(Available),
        (Parked, Input::Freed) => Arrow::To(Available),
        (Scheduled | Available | Retrying, Input::Held) => Arrow::To(Parked),
        (Available, Input::Claim) => Arrow::To(Running),
        (Running, Input::GiveBack) => Arrow::To(Available),
        (Running, Input::Succeed) => Arrow::To(Succeeded),
        (Running, Input::FailForNow) => Arrow::To(Retrying),
        (Running, Input::FailForGood) => Arrow::To(Dead),
        (Running, Input::Snooze) => Arrow::To(Scheduled),
        (Running, Input::CallOff) => Arrow::To(Cancelled),
        (Scheduled | Available | Parked | Retrying, Input::Cancel) => Arrow::To(Cancelled),
        (Running, Input::Cancel) => Arrow::Signal,
        (Scheduled | Retrying | Dead, Input::Retry) => Arrow::To(Available),
        (Retrying, Input::Skip) => Arrow::To(Dead),
        (Dead, Input::Skip) => Arrow::LetGo,

        (Succeeded, Input::Cancel) => Arrow::Refused("it has succeeded already: nothing is left to cancel"),
        (Dead, Input::Cancel) => Arrow::Refused("it is dead already: retry it, or skip it so that its object goes on"),
        (Cancelled, Input::Cancel) => Arrow::Refused("it was cancelled already"),
        (Available | Parked, Input::Retry) => Arrow::Refused("it waits to run already; GET /v1/explain says what for"),
        (Running, Input::Retry) => Arrow::Refused("it is running: wait for its end, or cancel it"),
        (Succeeded, Input::Retry) => Arrow::Refused("it has succeeded: send a new job to do it again"),
        (Cancelled, Input::Retry) => Arrow::Refused("it was cancelled, which is final: send a new job"),
        (Scheduled | Available | Parked, Input::Skip) => Arrow::Refused("it has not failed: cancel it instead"),
        (Running, Input::Skip) => Arrow::Refused("it is running: cancel it instead"),
        (Succeeded | Cancelled, Input::Skip) => Arrow::Refused("it is over: nothing is left to skip"),

        (_, Input::Due) => Arrow::Refused("it does not wait for a time"),
        (_, Input::Freed) => Arrow::Refused("it is not parked"),
        (_, Input::Held) => Arrow::Refused("it is not about to run"),
        (_, Input::Claim) => Arrow::Refused("it is not there to be taken"),
        (
            _,
            Input::GiveBack | Input::Succeed | Input::FailForNow | Input::FailForGood | Input::Snooze | Input::CallOff,
        ) => Arrow::Refused("nobody has it: the lease was lost"),
    }
}

/// How an attempt at a job ended, as its worker or who looks after leases tells the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobEnd {
    /// It is done.
    Succeeded,
    /// It failed, and is tried again at this time.
    Retry {
        /// By the store's clock.
        at: Timestamp,
        /// What went wrong.
        error: String,
    },
    /// It failed, and is not tried again.
    Dead {
        /// What went wrong.
        error: String,
    },
    /// It wants to run again at this time. No attempt is used up.
    Snoozed {
        /// By the store's clock.
        at: Timestamp,
    },
    /// There is nothing to do, for this reason.
    CalledOff {
        /// The reason.
        why: String,
    },
    /// It was not started. No attempt is used up.
    GivenBack,
    /// Its worker was not heard of. Told by who looks after leases, and written only if the lease has passed when it is
    /// written: who has renewed it meanwhile keeps the job.
    Lapsed {
        /// It is tried again at this time, by the store's clock; if there is none it is dead.
        at: Option<Timestamp>,
        /// What went wrong.
        error: String,
    },
}

/// The verb with which a worker settled its claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Settlement {
    /// The job is done.
    Complete,
    /// The attempt failed.
    Fail,
    /// The job is to run again later.
    Snooze,
}

impl Settlement {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Complete, Self::Fail, Self::Snooze];

    /// Its word in stores.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Complete => "complete",
            Self::Fail => "fail",
            Self::Snooze => "snooze",
        }
    }

    /// The settlement of a job, from its state and the word that its engine keeps. A success needs no word. A running job
    /// has no settlement, whatever word an earlier attempt left.
    pub fn stored(state: JobState, word: Option<&str>) -> Option<Self> {
        match state {
            JobState::Succeeded => Some(Self::Complete),
            JobState::Running => None,
            JobState::Scheduled
            | JobState::Available
            | JobState::Parked
            | JobState::Retrying
            | JobState::Dead
            | JobState::Cancelled => Self::ALL.into_iter().find(|settlement| Some(settlement.as_str()) == word),
        }
    }
}

/// What follows from a settlement under a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimUse {
    /// The claim holds: the settlement is written.
    Settle,
    /// The same claim was settled in the same way before: the answer is the job, and nothing is written.
    Repeat,
    /// The claim is stale, or was settled in another way: nothing is written.
    Lost,
}

/// Decides whether a settlement under a claim with this fence is applied, repeated or refused. The job has this state; its
/// last claim has `job_fence` and the settlement `settled`.
pub fn use_claim(
    state: JobState,
    job_fence: Fence,
    settled: Option<Settlement>,
    fence: Fence,
    settlement: Settlement,
) -> ClaimUse {
    match (fence == job_fence, state == JobState::Running) {
        (true, true) => ClaimUse::Settle,
        (true, false) if settled == Some(settlement) => ClaimUse::Repeat,
        (true | false, _) => ClaimUse::Lost,
    }
}

impl JobEnd {
    /// The verb of its worker; none if no worker ended the attempt under its claim, or a handler called the job off.
    pub fn settlement(&self) -> Option<Settlement> {
        match self {
            Self::Succeeded => Some(Settlement::Complete),
            Self::Retry { .. } | Self::Dead { .. } => Some(Settlement::Fail),
            Self::Snoozed { .. } => Some(Settlement::Snooze),
            Self::CalledOff { .. } | Self::GivenBack | Self::Lapsed { .. } => None,
        }
    }

    /// The input that it is. One whose cancellation was asked for is over however it ended, unless it is done.
    pub fn input(&self, cancel_asked: bool) -> Input {
        match self {
            Self::Succeeded => Input::Succeed,
            Self::Retry { .. } | Self::Dead { .. } | Self::Snoozed { .. } | Self::GivenBack | Self::Lapsed { .. }
                if cancel_asked =>
            {
                Input::CallOff
            }
            Self::Retry { .. } | Self::Lapsed { at: Some(_), .. } => Input::FailForNow,
            Self::Dead { .. } | Self::Lapsed { at: None, .. } => Input::FailForGood,
            Self::Snoozed { .. } => Input::Snooze,
            Self::CalledOff { .. } => Input::CallOff,
            Self::GivenBack => Input::GiveBack,
        }
    }

    /// What follows from an attempt, as a worker tells it to the store.
    pub fn of(next: Next) -> Self {
        match next {
            Next::Done => Self::Succeeded,
            Next::Cancelled(why) => Self::CalledOff { why },
            Next::Wait { at, error: Some(error), .. } => Self::Retry { at, error },
            Next::Wait { at, error: None, .. } => Self::Snoozed { at },
            Next::Exhausted { error, .. } => Self::Dead { error },
        }
    }

    /// What went wrong, or why it was called off.
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Retry { error, .. } | Self::Dead { error } | Self::Lapsed { error, .. } => Some(error),
            Self::CalledOff { why } => Some(why),
            Self::Succeeded | Self::Snoozed { .. } | Self::GivenBack => None,
        }
    }

    /// When it may run again.
    pub fn not_before(&self) -> Option<Timestamp> {
        match self {
            Self::Retry { at, .. } | Self::Snoozed { at } => Some(*at),
            Self::Lapsed { at, .. } => *at,
            Self::Succeeded | Self::Dead { .. } | Self::CalledOff { .. } | Self::GivenBack => None,
        }
    }

    /// Does it use up the attempt that was counted when the job was claimed?
    pub fn uses_attempt(&self) -> bool {
        match self {
            Self::Succeeded | Self::Retry { .. } | Self::Dead { .. } | Self::CalledOff { .. } | Self::Lapsed { .. } => {
                true
            }
            Self::Snoozed { .. } | Self::GivenBack => false,
        }
    }

    /// May it be written of a job whose lease ends then, at this time by the store's clock? What its worker tells may be as
    /// late as it likes while nobody else has the job; what is told of its worker is true only once the lease has passed.
    pub fn may_end(&self, lease_until: Option<Timestamp>, now: Timestamp) -> bool {
        match self {
            Self::Lapsed { .. } => lease_until.is_none_or(|until| until <= now),
            Self::Succeeded
            | Self::Retry { .. }
            | Self::Dead { .. }
            | Self::Snoozed { .. }
            | Self::CalledOff { .. }
            | Self::GivenBack => true,
        }
    }
}

/// Does a job that has died keep the others of its object waiting?
pub fn holds_lane(on_exhausted: OnExhausted, in_lane: bool) -> bool {
    match on_exhausted {
        OnExhausted::Hold => in_lane,
        OnExhausted::Skip | OnExhausted::DeadLetterObject => false,
    }
}

/// What follows from a lease that has passed: its worker has vanished, and the attempt that was counted is used up.
pub fn expired(attempts: u32, attempts_max: u32, worker: &str, now: Timestamp) -> JobEnd {
    let error = format!("its worker {worker:?} was not heard of before its lease had passed (attempt {attempts})");
    JobEnd::Lapsed { at: (attempts < attempts_max).then_some(now), error }
}

/// A job as somebody finds it who was told that it may be there to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Glance {
    /// Where it stands.
    pub state: JobState,
    /// When its time comes.
    pub not_before: Option<Timestamp>,
    /// Until when somebody has it.
    pub lease_until: Option<Timestamp>,
}

/// What to do with a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notified {
    /// Nothing: the job is over, or whoever lets it go on will say so again.
    Drop,
    /// Look again then.
    Requeue {
        /// By the store's clock.
        at: Timestamp,
    },
    /// Try to claim it. Who loses the race looks again: `Requeue` at once.
    Claim,
}

/// What to do about a job that somebody was notified of: load, rule check, delay check, lock check, in this order.
///
/// Engines ask this of all jobs at once, with a statement each for what may be claimed and for whose time has come, and the
/// model that they are compared with asks it of each. Whoever finds that a worker has vanished asks it of that one job.
pub fn notified(job: Option<Glance>, is_held_by_rule: bool, now: Timestamp) -> Notified {
    let Some(job) = job else { return Notified::Drop };
    if job.state.is_final() || is_held_by_rule {
        return Notified::Drop;
    }
    let waits_until = match job.state {
        JobState::Scheduled | JobState::Retrying => job.not_before,
        JobState::Running => job.lease_until,
        // Its time has come, also if the clock was set back since.
        JobState::Available => None,
        JobState::Parked | JobState::Succeeded | JobState::Dead | JobState::Cancelled => return Notified::Drop,
    };
    match waits_until.filter(|at| *at > now) {
        Some(at) => Notified::Requeue { at },
        None => Notified::Claim,
    }
}

/// The lifecycle as a Mermaid diagram, drawn from [`after`].
pub fn diagram() -> String {
    let mut text = String::from("stateDiagram-v2\n    [*] --> scheduled: with a time\n    [*] --> available\n");
    text.push_str("    [*] --> parked: behind another of its object\n");
    for state in JobState::ALL {
        for input in Input::ALL {
            let (to, note) = match after(state, input) {
                Arrow::To(to) => (to, ""),
                Arrow::Signal => (state, ": its worker is told"),
                Arrow::LetGo => (state, ": its lane goes on"),
                Arrow::Refused(_) => continue,
            };
            // Writing to a string cannot fail.
            let _infallible = writeln!(text, "    {} --> {}: {}{note}", state.as_str(), to.as_str(), input.as_str());
        }
    }
    for state in [JobState::Succeeded, JobState::Cancelled] {
        let _infallible = writeln!(text, "    {} --> [*]", state.as_str());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use JobState::{Available, Cancelled, Dead, Parked, Retrying, Running, Scheduled, Succeeded};

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    /// Every state with every input: `-` is refused, `!` signals, `~` lets go.
    #[test]
    fn every_state_and_input_has_its_arrow() {
        const S: &str = "scheduled";
        let table: [(Input, [&str; 8]); 13] = [
            // from:             scheduled    available    running      parked       retrying     succ  dead   cancelled
            (Input::Due, ["available", "-", "-", "-", "available", "-", "-", "-"]),
            (Input::Freed, ["-", "-", "-", "available", "-", "-", "-", "-"]),
            (Input::Held, ["parked", "parked", "-", "-", "parked", "-", "-", "-"]),
            (Input::Claim, ["-", "running", "-", "-", "-", "-", "-", "-"]),
            (Input::GiveBack, ["-", "-", "available", "-", "-", "-", "-", "-"]),
            (Input::Succeed, ["-", "-", "succeeded", "-", "-", "-", "-", "-"]),
            (Input::FailForNow, ["-", "-", "retrying", "-", "-", "-", "-", "-"]),
            (Input::FailForGood, ["-", "-", "dead", "-", "-", "-", "-", "-"]),
            (Input::Snooze, ["-", "-", S, "-", "-", "-", "-", "-"]),
            (Input::CallOff, ["-", "-", "cancelled", "-", "-", "-", "-", "-"]),
            (Input::Cancel, ["cancelled", "cancelled", "!", "cancelled", "cancelled", "-", "-", "-"]),
            (Input::Retry, ["available", "-", "-", "-", "available", "-", "available", "-"]),
            (Input::Skip, ["-", "-", "-", "-", "dead", "-", "~", "-"]),
        ];
        assert!(Input::ALL.iter().all(|input| table.iter().any(|(of, _)| of == input)));
        for (input, row) in table {
            for (state, expected) in JobState::ALL.into_iter().zip(row) {
                let found = match after(state, input) {
                    Arrow::To(to) => to.as_str(),
                    Arrow::Signal => "!",
                    Arrow::LetGo => "~",
                    Arrow::Refused(why) => {
                        assert!(!why.is_empty());
                        "-"
                    }
                };
                assert_eq!(found, expected, "{state:?} on {input:?}");
            }
        }
    }

    #[test]
    fn what_is_over_stays_over_except_a_dead_job_that_is_brought_back() {
        for state in JobState::ALL.into_iter().filter(|state| state.is_final()) {
            for input in Input::ALL {
                match after(state, input) {
                    Arrow::Refused(_) => {}
                    Arrow::To(Available) => assert_eq!((state, input), (Dead, Input::Retry)),
                    Arrow::LetGo => assert_eq!((state, input), (Dead, Input::Skip)),
                    other => panic!("{state:?} on {input:?}: {other:?}"),
                }
            }
        }
    }

    #[test]
    fn a_word_leads_back_to_its_state() {
        for state in JobState::ALL {
            assert_eq!(JobState::parse(state.as_str()), Some(state));
        }
        assert_eq!(JobState::parse("Available"), None);
    }

    /// A cancellation that was asked for is final when the worker is heard of, unless it is done.
    #[test]
    fn a_job_that_was_told_to_stop_is_called_off_however_it_ends_unless_it_is_done() {
        let ends = [
            JobEnd::Retry { at: NOW, error: "e".into() },
            JobEnd::Dead { error: "e".into() },
            JobEnd::Snoozed { at: NOW },
            JobEnd::CalledOff { why: "w".into() },
            JobEnd::GivenBack,
            JobEnd::Lapsed { at: Some(NOW), error: "e".into() },
            JobEnd::Lapsed { at: None, error: "e".into() },
        ];
        for end in ends {
            assert_eq!(after(Running, end.input(true)), Arrow::To(Cancelled), "{end:?}");
        }
        assert_eq!(after(Running, JobEnd::Succeeded.input(true)), Arrow::To(Succeeded));
    }

    /// H25: attempts are counted when a job is claimed, so that one that ends every process that runs it dies.
    #[test]
    fn a_lease_that_passed_uses_up_its_attempt() {
        assert_eq!((expired(1, 3, "w", NOW).not_before(), expired(3, 3, "w", NOW).not_before()), (Some(NOW), None));
        let state = |end: JobEnd| after(Running, end.input(false));
        assert_eq!(state(expired(1, 3, "w", NOW)), Arrow::To(Retrying));
        assert_eq!(state(expired(3, 3, "w", NOW)), Arrow::To(Dead));
        assert!(expired(3, 3, "w", NOW).uses_attempt());
    }

    /// It was found, and renewed before that was written: it is its worker's.
    #[test]
    fn a_lease_that_was_renewed_is_not_taken() {
        let (before, later) = (NOW - std::time::Duration::from_micros(1), NOW + std::time::Duration::from_micros(1));
        for (until, may) in [(Some(before), true), (Some(NOW), true), (Some(later), false), (None, true)] {
            assert_eq!(expired(1, 3, "w", NOW).may_end(until, NOW), may, "{until:?}");
            assert!(JobEnd::Succeeded.may_end(until, NOW) && JobEnd::GivenBack.may_end(until, NOW));
        }
    }

    #[test]
    fn settlement_can_be_repeated_under_the_same_claim_and_no_other() {
        for state in JobState::ALL {
            for settled in [None, Some(Settlement::Complete), Some(Settlement::Fail), Some(Settlement::Snooze)] {
                for settlement in Settlement::ALL {
                    let used = |fence| use_claim(state, 7, settled, fence, settlement);
                    assert_eq!((used(6), used(8)), (ClaimUse::Lost, ClaimUse::Lost));
                    let expected = match state {
                        Running => ClaimUse::Settle,
                        _ if settled == Some(settlement) => ClaimUse::Repeat,
                        _ => ClaimUse::Lost,
                    };
                    assert_eq!(used(7), expected, "{state:?} {settled:?} {settlement:?}");
                }
            }
        }
        // Words of an earlier attempt mean nothing while the job runs, or once it has succeeded.
        for word in [None, Some("fail"), Some("snooze")] {
            assert_eq!(Settlement::stored(Running, word), None);
            assert_eq!(Settlement::stored(Succeeded, word), Some(Settlement::Complete));
        }
        assert_eq!(Settlement::stored(Available, Some("fail")), Some(Settlement::Fail));
        assert_eq!(expired(1, 3, "w", NOW).settlement(), None, "a rescue is no worker's settlement");
    }

    /// H19: who was too early or came second uses up nothing.
    #[test]
    fn a_snoozed_job_and_one_given_back_use_up_no_attempt() {
        assert!(!JobEnd::Snoozed { at: NOW }.uses_attempt());
        assert!(!JobEnd::GivenBack.uses_attempt());
    }

    #[test]
    fn a_notification_takes_the_way_of_the_diagram() {
        let later = NOW + std::time::Duration::from_secs(1);
        let job = |state| Glance { state, not_before: None, lease_until: None };
        let delayed = Glance { not_before: Some(later), ..job(Scheduled) };
        let locked = Glance { lease_until: Some(later), ..job(Running) };
        let table = [
            ("EventMissing", None, false, Notified::Drop),
            ("Paused or Blocked", Some(job(Available)), true, Notified::Drop),
            ("Paused before DelayCheck", Some(delayed), true, Notified::Drop),
            ("DelayNotYet", Some(delayed), false, Notified::Requeue { at: later }),
            ("IsLocked", Some(locked), false, Notified::Requeue { at: later }),
            ("LockExpired", Some(Glance { lease_until: Some(NOW), ..locked }), false, Notified::Claim),
            ("LockNone", Some(job(Available)), false, Notified::Claim),
            ("DelayNone", Some(Glance { not_before: Some(NOW), ..job(Retrying) }), false, Notified::Claim),
            ("DelayNone, once and for all", Some(Glance { state: Available, ..delayed }), false, Notified::Claim),
            ("behind another", Some(job(Parked)), false, Notified::Drop),
            ("over", Some(job(Dead)), false, Notified::Drop),
        ];
        for (name, job, held, expected) in table {
            assert_eq!(notified(job, held, NOW), expected, "{name}");
        }
    }

    #[test]
    fn only_a_job_with_a_lane_can_hold_it() {
        assert!(holds_lane(OnExhausted::Hold, true));
        assert!(!holds_lane(OnExhausted::Hold, false));
        assert!(!holds_lane(OnExhausted::Skip, true));
        let _every_state_is_used = [Parked, Retrying];
    }
}
