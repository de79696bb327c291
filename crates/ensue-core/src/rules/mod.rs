//! Who may not run now?
//!
//! A rule is a `pause` (a user's) or a `block` (an operator's) on a dotted prefix of handler keys, on an object or on a
//! schedule. The two coexist, and lift separately. Every change raises the version of all rules; a process that says
//! that it has seen a version starts nothing any more that it forbids, so a change can be answered when everybody has.

mod scope;
mod set;

pub use scope::{RuleKind, Scope};
pub use set::RuleSet;

use crate::error::{Invalid, StoreError};
use crate::key::OBJECT_BYTES_MAX;
use crate::positions::Member;
use crate::text::check_text;
use async_trait::async_trait;
use jiff::Timestamp;
use uuid::Uuid;

/// The longest reason, in bytes.
pub const REASON_BYTES_MAX: usize = 4_096;
/// The longest author, in bytes.
pub const AUTHOR_BYTES_MAX: usize = 255;
/// The most rules there may be at once.
pub const RULES_MAX: usize = 10_000;

/// A rule that somebody sets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRule {
    /// Whose.
    pub kind: RuleKind,
    /// What it holds.
    pub scope: Scope,
    /// Why.
    pub reason: Option<String>,
    /// Who sets it.
    pub author: String,
    /// When it lifts itself.
    pub expires_at: Option<Timestamp>,
}

impl NewRule {
    /// Refuses what cannot be meant at this time.
    pub fn check(&self, now: Timestamp) -> Result<(), Invalid> {
        if let Scope::Object(object) = &self.scope {
            check_text("scope", object.as_str(), OBJECT_BYTES_MAX)?;
        }
        if let Some(reason) = &self.reason {
            check_text("reason", reason, REASON_BYTES_MAX)?;
        }
        check_text("author", &self.author, AUTHOR_BYTES_MAX)?;
        match self.expires_at.filter(|at| *at <= now) {
            Some(at) => Err(Invalid::new("expires_at", format!("is {at}, which has passed: choose a later time"))),
            None => Ok(()),
        }
    }
}

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its identity.
    pub id: Uuid,
    /// Whose.
    pub kind: RuleKind,
    /// What it holds.
    pub scope: Scope,
    /// Why.
    pub reason: Option<String>,
    /// Who set it.
    pub author: String,
    /// When it was set.
    pub created_at: Timestamp,
    /// When it lifts itself.
    pub expires_at: Option<Timestamp>,
}

impl Rule {
    /// Does it hold anything at this time?
    pub fn is_live(&self, now: Timestamp) -> bool {
        self.expires_at.is_none_or(|at| at > now)
    }

    /// What it is, in words: for `held_by` and explanations.
    pub fn in_words(&self) -> String {
        let verb = match self.kind {
            RuleKind::Pause => "paused",
            RuleKind::Block => "blocked",
        };
        let because = self.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        format!("{} is {verb} by {}{because}", self.scope, self.author)
    }
}

/// Rules, durably.
#[async_trait]
pub trait Rules: Send + Sync + 'static {
    /// Sets a rule, or sets the one of the same kind and scope anew (its id and `created_at` stay), and says whether it is
    /// new. Publishes [`notices::rule_set`](crate::jobs::notices::rule_set) in the same commit. From this commit on nothing
    /// that it holds is claimed; jobs of a held object are parked.
    async fn set_rule(&self, rule: NewRule) -> Result<(Rule, bool), StoreError>;

    /// Lifts a rule; none if there is no such rule. Publishes
    /// [`notices::rule_lifted`](crate::jobs::notices::rule_lifted) in the same commit, which also lets go whatever waited for
    /// it, however much that is.
    async fn lift_rule(&self, kind: RuleKind, scope: &Scope, by: &str) -> Result<Option<Rule>, StoreError>;

    /// Lifts the rules that have expired, as by `expiry`; answers which.
    async fn expire_rules(&self) -> Result<Vec<Rule>, StoreError>;

    /// All rules, also those that have expired and were not lifted yet, with their version.
    async fn rules(&self) -> Result<RuleSet, StoreError>;

    /// The version alone.
    async fn rules_version(&self) -> Result<u64, StoreError>;

    /// A process says that it starts nothing any more that this version forbids.
    async fn report_rules(&self, member: Uuid, version: u64) -> Result<(), StoreError>;

    /// Processes whose leases have not passed and who have not reported this version, nor a later one.
    async fn rules_awaited(&self, version: u64) -> Result<Vec<Member>, StoreError>;
}
