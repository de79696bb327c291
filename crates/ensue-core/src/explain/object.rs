//! Why does an object stand still?

use super::{Explanation, Reason, ReasonKind};
use crate::jobs::{Job, JobState};
use crate::key::ObjectKey;
use crate::positions::lane::{LaneRow, LaneState};
use crate::rules::Rule;

/// What is known of an object.
#[derive(Debug, Clone, Copy)]
pub struct ObjectFacts<'a> {
    /// The object.
    pub object: &'a ObjectKey,
    /// The rule that holds it.
    pub rule: Option<&'a Rule>,
    /// Where handlers of events stand at it.
    pub lanes: &'a [LaneRow],
    /// Its jobs that are not over, and those that died, each with what holds it.
    pub jobs: &'a [(Job, Explanation)],
}

/// Why an object does or does not go on: `held` waits for somebody, `waiting` goes on by itself, `free` has nothing to do.
pub fn explain_object(facts: &ObjectFacts<'_>) -> Explanation {
    let ObjectFacts { object, rule, lanes, jobs } = *facts;
    let mut because: Vec<Reason> = rule.map(Rule::reason).into_iter().collect();
    let (mut is_held, mut is_busy) = (rule.is_some(), false);
    for row in lanes {
        match row.lane.state {
            LaneState::Held | LaneState::Dead => is_held = true,
            LaneState::Waiting => is_busy = true,
            LaneState::Done => continue,
        }
        because.push(stands(object, row));
    }
    for (job, explanation) in jobs {
        let first = explanation.because.first();
        let is_dead = job.state == JobState::Dead;
        if is_dead && job.turn.is_none() {
            // It holds nothing.
            continue;
        }
        match is_dead || first.is_some_and(|reason| reason.kind == ReasonKind::Rule) {
            true => is_held = true,
            false => is_busy = true,
        }
        let why = first.map(|reason| format!(": {}", reason.detail)).unwrap_or_default();
        let kind = first.map_or(ReasonKind::State, |reason| reason.kind);
        let about = first.and_then(|reason| reason.about.clone()).unwrap_or_else(|| job.id.to_string());
        let detail = format!("job {} of `{}` is {}{why}", job.id, job.handler, explanation.verdict);
        let reason = Reason::new(kind, Some(about), detail);
        because.push(match first.and_then(|reason| reason.fix.clone()) {
            Some(fix) => reason.fix(fix),
            None => reason,
        });
    }
    if because.is_empty() {
        because.push(Reason::new(ReasonKind::State, None, format!("nothing of {object} waits")));
    }
    let verdict = match (is_held, is_busy) {
        (true, _) => "held",
        (false, true) => "waiting",
        (false, false) => "free",
    };
    Explanation { verdict: verdict.to_owned(), because }
}

fn stands(object: &ObjectKey, row: &LaneRow) -> Reason {
    let (handler, seq) = (&row.group, row.lane.position);
    let why = row.lane.error.as_ref().map(|error| format!(": {error}")).unwrap_or_default();
    let (kind, stands) = match row.lane.state {
        LaneState::Held => (ReasonKind::Error, "is held at".to_owned()),
        LaneState::Dead => (ReasonKind::Error, "was given up at".to_owned()),
        LaneState::Waiting | LaneState::Done => match row.lane.not_before {
            Some(at) => (ReasonKind::Delay, format!("waits until {at} at")),
            None => (ReasonKind::Lease, "is at".to_owned()),
        },
    };
    let detail = format!("for `{handler}` it {stands} event {seq} after {} attempts{why}", row.lane.attempts);
    let reason = Reason::new(kind, Some(seq.to_string()), detail);
    match row.lane.state {
        LaneState::Held | LaneState::Dead => {
            reason.fix(format!("ensue object retry {object} --handler {handler}, or skip instead of retry"))
        }
        LaneState::Waiting | LaneState::Done => reason.fix(format!("ensue explain event:{seq} --handler {handler}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::GroupName;
    use crate::positions::lane::{Lane, LaneKey};
    use crate::rules::{NewRule, RuleKind, Scope};
    use jiff::Timestamp;

    fn row(state: LaneState) -> LaneRow {
        let key = LaneKey::Object(ObjectKey::stored("o"));
        let error = Some("no".to_owned());
        LaneRow {
            group: GroupName::stored("h"),
            slot: 0,
            lane: Lane { key, position: 7, state, attempts: 2, not_before: None, error, redriven: false },
            since: Timestamp::UNIX_EPOCH,
            ask: None,
            parked_to: None,
        }
    }

    #[test]
    fn an_object_is_held_waiting_or_free_and_each_reason_says_what_to_do() {
        let object = ObjectKey::stored("o");
        let facts = |rule: Option<&Rule>, lanes: &[LaneRow]| {
            explain_object(&ObjectFacts { object: &object, rule, lanes, jobs: &[] })
        };
        assert_eq!(facts(None, &[]).verdict, "free");
        assert_eq!(facts(None, &[row(LaneState::Done)]).verdict, "free");
        assert_eq!(facts(None, &[row(LaneState::Waiting)]).verdict, "waiting");
        let held = facts(None, &[row(LaneState::Held)]);
        assert_eq!((held.verdict.as_str(), held.because[0].about.as_deref()), ("held", Some("7")));
        assert!(held.because[0].fix.as_ref().unwrap().contains("ensue object retry o --handler h"));
        let scope = Scope::Object(object.clone());
        let rule = NewRule { kind: RuleKind::Pause, scope, reason: None, author: "me".into(), expires_at: None }.over(
            None,
            uuid::Uuid::nil(),
            Timestamp::UNIX_EPOCH,
        );
        let ruled = facts(Some(&rule), &[]);
        assert_eq!((ruled.verdict.as_str(), ruled.because[0].kind), ("held", ReasonKind::Rule));
    }
}
