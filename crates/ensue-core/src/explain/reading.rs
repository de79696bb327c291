//! Why did a group that is read from outside get an event, or not?

use super::{Explanation, Reason, ReasonKind};
use crate::event::Seq;
use crate::positions::{GroupState, SlotState};
use jiff::Timestamp;
use uuid::Uuid;

/// How many subscriptions are told of by name.
const NAMED_MAX: usize = 10;

/// What is known of an event and a group.
#[derive(Debug, Clone, Copy)]
pub struct ReadingFacts<'a> {
    /// The event's place.
    pub seq: Seq,
    /// The group.
    pub group: &'a GroupState,
    /// Its subscriptions, and whether each wants the event or why that has no answer.
    pub wants: &'a [(Uuid, Result<bool, String>)],
    /// The store's clock.
    pub now: Timestamp,
}

/// Why a group has or has not got an event: `not_matched`, `done`, `running` while somebody reads, or `pending`.
pub fn explain_reading(facts: &ReadingFacts<'_>) -> Explanation {
    let ReadingFacts { seq, group, wants, now } = *facts;
    let (name, cursor) = (&group.name, group.cursor());
    let mut because = Vec::new();
    for (id, error) in wants.iter().filter_map(|(id, wants)| Some((id, wants.as_ref().err()?))).take(NAMED_MAX) {
        let detail = format!("the condition of subscription {id} fails on it: {error}");
        because.push(Reason::new(ReasonKind::Condition, Some(id.to_string()), detail).fix("correct the condition"));
    }
    let wanting: Vec<&Uuid> = wants.iter().filter(|(_, wants)| *wants == Ok(true)).map(|(id, _)| id).collect();
    if wanting.is_empty() {
        let detail = match wants.len() {
            0 => format!("`{name}` has no subscription, so it wants nothing"),
            count => format!("it matches none of the {count} subscriptions of `{name}`"),
        };
        because.insert(0, Reason::new(ReasonKind::Condition, Some(name.to_string()), detail));
        return Explanation { verdict: "not_matched".into(), because };
    }
    for id in wanting.into_iter().take(NAMED_MAX) {
        let detail = format!("it matches subscription {id}");
        because.push(Reason::new(ReasonKind::Condition, Some(id.to_string()), detail));
    }
    if seq <= cursor {
        let detail = format!("`{name}` is past it, at {cursor}: it was committed, or the group began later");
        let fix = format!("ensue group seek {name} --to {} reads it again", seq.saturating_sub(1));
        because.insert(0, Reason::new(ReasonKind::State, Some(cursor.to_string()), detail).fix(fix));
        return Explanation { verdict: "done".into(), because };
    }
    let reader = group.slots.iter().find_map(|slot| reader_of(slot, now));
    let verdict = match reader {
        Some((reader, until)) => {
            let detail =
                format!("{reader} reads `{name}` under a lease until {until}, and has committed up to {cursor}");
            because.insert(0, Reason::new(ReasonKind::Lease, Some(reader.to_owned()), detail));
            "running"
        }
        None => {
            let detail = format!("nobody reads `{name}` right now; it is at {cursor}");
            let fix = format!("ensue group read {name}");
            because.insert(0, Reason::new(ReasonKind::Handler, Some(name.to_string()), detail).fix(fix));
            "pending"
        }
    };
    Explanation { verdict: verdict.into(), because }
}

fn reader_of(slot: &SlotState, now: Timestamp) -> Option<(&str, Timestamp)> {
    let owner = slot.owner.as_ref().filter(|owner| owner.lease_until > now)?;
    Some((owner.member.name.as_str(), owner.lease_until))
}
