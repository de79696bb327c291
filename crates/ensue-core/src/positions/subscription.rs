//! What does a group want?
//!
//! A subscription is a topic, a condition and its params, all of them compared in full when somebody asks for the same
//! again: then it is shared, and the longer expiry wins.

use crate::event::Seq;
use crate::json::Json;
use crate::key::{GroupName, Topic};
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

/// The longest params, in bytes.
pub const PARAMS_BYTES_MAX: usize = 64 << 10;

/// Of how many of a group's versions an engine knows the changes, at least.
pub const CHANGES_KEPT: u64 = 1_000;

/// A subscription to be made, checked by who parsed its condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSubscription {
    /// For this group, which is made as a pull group that begins now if it is not there.
    pub group: GroupName,
    /// This topic and those below it; every topic if there is none.
    pub topic: Option<Topic>,
    /// The condition as it was written; none is always true.
    pub condition: Option<String>,
    /// What it is made with: `s.params`.
    pub params: Json,
    /// Goes when nobody reads the group or touches it for this long; none stays.
    pub expires_in: Option<SignedDuration>,
}

/// A subscription as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionState {
    /// Its identity: `s.id`.
    pub id: Uuid,
    /// For this group.
    pub group: GroupName,
    /// This topic and those below it; every topic if there is none.
    pub topic: Option<Topic>,
    /// The condition as it was written; none is always true.
    pub condition: Option<String>,
    /// What it was made with.
    pub params: Json,
    /// Goes after so long without a touch.
    pub expires_in: Option<SignedDuration>,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last asked for or touched. Reading its group touches it too, see [`expires_at`].
    pub touched_at: Timestamp,
    /// Where the log ended when it was made.
    pub created_after: Seq,
}

/// What has changed of a group's subscriptions since a version that somebody knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SubscriptionChanges {
    /// The group's version now: whoever takes all of this over knows it as well as who reads them all.
    pub version: u64,
    /// Those that were made or got another expiry, as they are now, by id. One may be known before.
    pub there: Vec<SubscriptionState>,
    /// Those that went, by id. One may never have been known.
    pub gone: Vec<Uuid>,
}

/// Do changes at these versions, in their order, lead from one version to another with none missing? What is no longer known,
/// or was of an earlier group of the same name, leaves a hole.
pub fn lead_from(after: u64, to: u64, versions: impl IntoIterator<Item = u64>) -> bool {
    let mut at = after;
    for version in versions {
        if version > at + 1 {
            return false;
        }
        at = at.max(version);
    }
    at == to
}

/// The longer of two expiries; none is the longest.
pub fn longer(one: Option<SignedDuration>, other: Option<SignedDuration>) -> Option<SignedDuration> {
    Some(one?.max(other?))
}

/// When a subscription goes, if nobody touches it or reads its group before: past this time it is gone.
pub fn expires_at(
    expires_in: Option<SignedDuration>,
    touched_at: Timestamp,
    group_served_at: Timestamp,
) -> Option<Timestamp> {
    touched_at.max(group_served_at).checked_add(expires_in?).ok()
}

/// One text for params that mean the same, whatever the order of their fields, spaces and escapes; numbers are the same
/// if they have the same value. Two that differ have different texts: this is their identity, not a hash of it.
pub fn identity_of_params(params: &Json) -> String {
    crate::condition::identity(params)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longer_expiry_wins_and_none_is_the_longest() {
        let (hour, day) = (Some(SignedDuration::from_hours(1)), Some(SignedDuration::from_hours(24)));
        assert_eq!(longer(hour, day), day);
        assert_eq!(longer(day, hour), day);
        assert_eq!(longer(None, day), None);
        assert_eq!(longer(day, None), None);
    }

    #[test]
    fn changes_with_a_hole_lead_nowhere() {
        assert!(lead_from(3, 3, []) && lead_from(3, 5, [4, 4, 5]));
        assert!(!lead_from(3, 5, [5]) && !lead_from(3, 5, [4]) && !lead_from(3, 4, []));
        assert!(!lead_from(5, 3, []), "that version was never");
    }

    #[test]
    fn params_are_the_same_whatever_their_spelling() {
        let identity = |text: &str| identity_of_params(&Json::parse("params", text).unwrap());
        assert_eq!(identity(r#"{"a":1,"b":[1,2.50]}"#), identity(r#" { "b" : [1.0, 25e-1], "\u0061":1.0 } "#));
        assert_ne!(identity(r#"{"a":1}"#), identity(r#"{"a":"1"}"#));
        assert_ne!(identity(r#"[1,2]"#), identity(r#"[2,1]"#));
        assert_ne!(identity(r#"{"a":"b\",\"c"}"#), identity(r#"{"a":"b","c":""}"#));
        assert_ne!(identity("null"), identity(r#""null""#));
        assert_eq!(identity(r#"{"a":1,"a":2}"#), identity(r#"{"a":2}"#));
    }
}
