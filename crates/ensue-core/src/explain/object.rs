//! Why does an object stand still?

use super::{Explanation, Reason, ReasonKind};
use crate::event::Seq;
use crate::jobs::{Job, JobState};
use crate::key::{GroupName, ObjectKey};
use crate::positions::lane::{LaneRow, LaneState};
use crate::rules::Rule;

/// What is known of an object.
#[derive(Debug, Clone, Copy)]
pub struct ObjectFacts<'a> {
    /// The object.
    pub object: &'a ObjectKey,
    /// The rules that hold it.
    pub rules: &'a [&'a Rule],
    /// Where handlers of events stand at it.
    pub lanes: &'a [LaneRow],
    /// Its events that handlers have not come to.
    pub waiting: &'a [WaitingEvent<'a>],
    /// Its jobs that are not over, and those that died, each with what holds it.
    pub jobs: &'a [(Job, Explanation)],
}

/// The first event of an object that a handler wants and has not come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitingEvent<'a> {
    /// The handler's key.
    pub handler: &'a GroupName,
    /// The event.
    pub seq: Seq,
    /// The rules that hold the handler.
    pub rules: Vec<&'a Rule>,
}

/// Why an object does or does not go on: `held` waits for somebody, `waiting` goes on by itself, `free` has nothing to do.
pub fn explain_object(facts: &ObjectFacts<'_>) -> Explanation {
    let ObjectFacts { object, rules, lanes, waiting, jobs } = *facts;
    let mut because: Vec<Reason> = rules.iter().map(|rule| rule.reason()).collect();
    let (mut is_held, mut is_busy) = (!rules.is_empty(), false);
    for row in lanes {
        match row.lane.state {
            LaneState::Held | LaneState::Dead => is_held = true,
            LaneState::Waiting => is_busy = true,
            LaneState::Done => continue,
        }
        because.push(stands(object, row));
    }
    for WaitingEvent { handler, seq, rules } in waiting {
        let detail = format!("for `{handler}` event {seq} waits");
        let about = Some(seq.to_string());
        match rules.is_empty() {
            true => is_busy = true,
            false => is_held = true,
        }
        because.extend(rules.iter().map(|rule| {
            let Reason { kind, detail: why, fix, .. } = rule.reason();
            Reason { kind, about: about.clone(), detail: format!("{detail}: {why}"), fix }
        }));
        if rules.is_empty() {
            let reason = Reason::new(ReasonKind::Limit, about, format!("{detail} for its turn"));
            because.push(reason.fix(format!("ensue explain event:{seq} --handler {handler}")));
        }
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
        let facts = |rules: &[&Rule], lanes: &[LaneRow]| {
            explain_object(&ObjectFacts { object: &object, rules, lanes, waiting: &[], jobs: &[] })
        };
        assert_eq!(facts(&[], &[]).verdict, "free");
        assert_eq!(facts(&[], &[row(LaneState::Done)]).verdict, "free");
        assert_eq!(facts(&[], &[row(LaneState::Waiting)]).verdict, "waiting");
        let held = facts(&[], &[row(LaneState::Held)]);
        assert_eq!((held.verdict.as_str(), held.because[0].about.as_deref()), ("held", Some("7")));
        assert!(held.because[0].fix.as_ref().unwrap().contains("ensue object retry o --handler h"));
        let scope = Scope::Object(object.clone());
        let rule = NewRule { kind: RuleKind::Pause, scope, reason: None, author: "me".into(), expires_at: None }.over(
            None,
            uuid::Uuid::nil(),
            Timestamp::UNIX_EPOCH,
        );
        let ruled = facts(&[&rule], &[]);
        assert_eq!((ruled.verdict.as_str(), ruled.because[0].kind), ("held", ReasonKind::Rule));
        let handler = GroupName::stored("h");
        for (rules, verdict, kind) in [(vec![], "waiting", ReasonKind::Limit), (vec![&rule], "held", ReasonKind::Rule)]
        {
            let waiting = [WaitingEvent { handler: &handler, seq: 9, rules }];
            let facts = ObjectFacts { object: &object, rules: &[], lanes: &[], waiting: &waiting, jobs: &[] };
            let why = explain_object(&facts);
            assert_eq!((why.verdict.as_str(), why.because[0].kind), (verdict, kind));
            assert_eq!(why.because[0].about.as_deref(), Some("9"));
        }
    }
}
