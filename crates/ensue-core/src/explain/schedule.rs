//! Why does a schedule not fire?

use super::{Explanation, Reason, ReasonKind};
use crate::rules::Rule;
use crate::schedules::{Kept, Run, RunOutcome, firing};
use jiff::{SignedDuration, Timestamp};

/// After so long somebody should have fired what is due.
const PATIENCE: SignedDuration = SignedDuration::from_secs(10);

/// What is known of a schedule.
#[derive(Debug, Clone, Copy)]
pub struct ScheduleFacts<'a> {
    /// As it is kept.
    pub kept: &'a Kept,
    /// Why it cannot be read by this program, if it cannot.
    pub unreadable: Option<&'a str>,
    /// The rules that hold it.
    pub rules: &'a [&'a Rule],
    /// What became of the last occurrence.
    pub last: Option<&'a Run>,
    /// The store's clock.
    pub now: Timestamp,
}

/// Why a schedule does or does not fire.
pub fn explain_schedule(facts: &ScheduleFacts<'_>) -> Explanation {
    let ScheduleFacts { kept, unreadable, rules, last, now } = *facts;
    let mut because = Vec::new();
    let verdict = if !rules.is_empty() {
        because.extend(rules.iter().map(|rule| rule.reason()));
        "held"
    } else if let Some(error) = unreadable {
        let fix = "put it anew, or run the version of Ensue that made it";
        because.push(Reason::new(ReasonKind::Error, None, error).fix(fix));
        "failing"
    } else {
        match kept.due {
            None => {
                because.push(Reason::new(ReasonKind::State, None, "it has no time to come any more"));
                "over"
            }
            Some(due) if firing::is_ahead(kept.watermark, now) => {
                let detail =
                    format!("it was fired up to {} by a clock that was ahead, and fires next at {due}", kept.watermark);
                let fix = "put it anew, or start the server that declares it again: it goes on from now";
                because.push(Reason::new(ReasonKind::Delay, None, detail).fix(fix));
                "waiting"
            }
            Some(due) if due > now => {
                because.push(Reason::new(ReasonKind::Delay, None, format!("it fires next at {due}")));
                "waiting"
            }
            Some(due) if now.duration_since(due) <= PATIENCE => {
                because.push(Reason::new(ReasonKind::Delay, None, format!("it is due since {due}, and fires now")));
                "due"
            }
            Some(due) => {
                let detail = format!("it is due since {due}, and nobody has fired it");
                let fix = "start a process that runs the bus, such as `ensue serve`, and look at its log";
                because.push(Reason::new(ReasonKind::Handler, None, detail).fix(fix));
                "overdue"
            }
        }
    };
    because.extend(last.map(of_last));
    Explanation { verdict: verdict.into(), because }
}

fn of_last(run: &Run) -> Reason {
    let occurrence = run.occurrence;
    match &run.outcome {
        RunOutcome::Event(seq) => {
            Reason::new(ReasonKind::State, Some(seq.to_string()), format!("{occurrence} was published as event {seq}"))
        }
        RunOutcome::Job(job) => {
            let fix = format!("ensue explain job:{job}");
            Reason::new(ReasonKind::State, Some(job.to_string()), format!("{occurrence} was sent as job {job}"))
                .fix(fix)
        }
        RunOutcome::Overlapped(job) => {
            let detail = format!("{occurrence} was left out, because job {job} of an earlier one was not over");
            Reason::new(ReasonKind::Predecessor, Some(job.to_string()), detail).fix(format!("ensue explain job:{job}"))
        }
        RunOutcome::Skipped(reason) => {
            Reason::new(ReasonKind::Delay, None, format!("{occurrence} was left out: {reason}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::Json;
    use crate::key::GroupName;

    #[test]
    fn a_schedule_says_why_it_does_not_fire() {
        let now = Timestamp::UNIX_EPOCH;
        let kept = |due: Option<i64>| Kept {
            name: GroupName::stored("s"),
            definition: Json::empty_object(),
            managed_by: None,
            version: 1,
            watermark: now,
            due: due.map(|secs| now + SignedDuration::from_secs(secs)),
            held: false,
            created_at: now,
            updated_at: now,
        };
        let verdict = |due, unreadable| {
            let facts = ScheduleFacts { kept: &kept(due), unreadable, rules: &[], last: None, now };
            explain_schedule(&facts).verdict
        };
        assert_eq!(verdict(Some(5), None), "waiting");
        assert_eq!(verdict(Some(-5), None), "due");
        assert_eq!(verdict(Some(-50), None), "overdue");
        assert_eq!(verdict(None, None), "over");
        assert_eq!(verdict(Some(5), Some("no such zone")), "failing");
    }
}
