//! Does a rule hold this?

use super::scope::{RuleKind, Scope};
use super::{NewRule, Rule};
use crate::key::{GroupName, ObjectKey};
use jiff::Timestamp;
use std::collections::HashMap;

/// All rules at one version, found by what they hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RuleSet {
    version: u64,
    by_scope: HashMap<Scope, Vec<Rule>>,
}

impl RuleSet {
    /// These rules, at this version.
    pub fn new(version: u64, rules: impl IntoIterator<Item = Rule>) -> Self {
        let mut by_scope: HashMap<Scope, Vec<Rule>> = HashMap::new();
        for rule in rules {
            by_scope.entry(rule.scope.clone()).or_default().push(rule);
        }
        Self { version, by_scope }
    }

    /// Counts up with every change.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Are there none?
    pub fn is_empty(&self) -> bool {
        self.by_scope.is_empty()
    }

    /// All of them, by scope and kind.
    pub fn rules(&self) -> Vec<&Rule> {
        let mut rules: Vec<&Rule> = self.by_scope.values().flatten().collect();
        rules.sort_by(|a, b| (&a.scope, a.kind).cmp(&(&b.scope, b.kind)));
        rules
    }

    /// The rule of this kind and scope.
    pub fn find(&self, kind: RuleKind, scope: &Scope) -> Option<&Rule> {
        self.by_scope.get(scope)?.iter().find(|rule| rule.kind == kind)
    }

    /// What holds a handler: a rule on its key or on a parent of it.
    pub fn holding_handler(&self, handler: &GroupName, now: Timestamp) -> Option<&Rule> {
        if self.by_scope.is_empty() {
            return None;
        }
        let key = handler.as_str();
        let ends = key.match_indices('.').map(|(at, _)| at).chain([key.len()]);
        ends.filter_map(|end| self.live(&Scope::Handler(GroupName::stored(&key[..end])), now)).next()
    }

    /// What holds an object.
    pub fn holding_object(&self, object: &ObjectKey, now: Timestamp) -> Option<&Rule> {
        if self.by_scope.is_empty() {
            return None;
        }
        self.live(&Scope::Object(object.clone()), now)
    }

    /// What holds a schedule.
    pub fn holding_schedule(&self, name: &GroupName, now: Timestamp) -> Option<&Rule> {
        self.live(&Scope::Schedule(name.clone()), now)
    }

    /// What keeps a handler from running something about an object.
    pub fn holding(&self, handler: &GroupName, object: Option<&ObjectKey>, now: Timestamp) -> Option<&Rule> {
        self.holding_handler(handler, now).or_else(|| self.holding_object(object?, now))
    }

    /// Everything that keeps a handler from running something about an object: to lift one of several changes nothing yet.
    pub fn all_holding(&self, handler: &GroupName, object: Option<&ObjectKey>, now: Timestamp) -> Vec<&Rule> {
        let key = handler.as_str();
        let ends = key.match_indices('.').map(|(at, _)| at).chain([key.len()]);
        let mut all: Vec<&Rule> =
            ends.flat_map(|end| self.all_on(&Scope::Handler(GroupName::stored(&key[..end])), now)).collect();
        all.extend(object.into_iter().flat_map(|object| self.all_holding_object(object, now)));
        all
    }

    /// Everything that holds an object.
    pub fn all_holding_object(&self, object: &ObjectKey, now: Timestamp) -> Vec<&Rule> {
        self.all_on(&Scope::Object(object.clone()), now)
    }

    /// Everything that holds a schedule.
    pub fn all_holding_schedule(&self, name: &GroupName, now: Timestamp) -> Vec<&Rule> {
        self.all_on(&Scope::Schedule(name.clone()), now)
    }

    /// When the next rule lifts itself.
    pub fn next_expiry(&self) -> Option<Timestamp> {
        self.by_scope.values().flatten().filter_map(|rule| rule.expires_at).min()
    }

    /// Those that hold on exactly this scope, by kind.
    fn all_on(&self, scope: &Scope, now: Timestamp) -> Vec<&Rule> {
        let rules = self.by_scope.get(scope).into_iter().flatten();
        let mut live: Vec<&Rule> = rules.filter(|rule| rule.is_live(now)).collect();
        live.sort_by_key(|rule| rule.kind);
        live
    }

    fn live(&self, scope: &Scope, now: Timestamp) -> Option<&Rule> {
        self.by_scope.get(scope)?.iter().find(|rule| rule.is_live(now))
    }
}

impl NewRule {
    /// The rule that this becomes: one that is there keeps its identity and its time.
    pub fn over(self, there: Option<&Rule>, id: uuid::Uuid, now: Timestamp) -> Rule {
        let (id, created_at) = there.map_or((id, now), |rule| (rule.id, rule.created_at));
        let Self { kind, scope, reason, author, expires_at } = self;
        Rule { id, kind, scope, reason, author, created_at, expires_at }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    const NOW: Timestamp = Timestamp::UNIX_EPOCH;

    fn rule(kind: RuleKind, scope: &str, expires_at: Option<Timestamp>) -> Rule {
        let scope = Scope::parse(scope).unwrap();
        NewRule { kind, scope, reason: None, author: "me".into(), expires_at }.over(None, Uuid::nil(), NOW)
    }

    #[test]
    fn a_rule_on_a_parent_an_object_or_the_key_itself_holds() {
        let set =
            RuleSet::new(1, [rule(RuleKind::Pause, "handler:acme", None), rule(RuleKind::Block, "object:o", None)]);
        let (held, free) = (GroupName::stored("acme.mail.send"), GroupName::stored("acmes.mail"));
        let (object, other) = (ObjectKey::stored("o"), ObjectKey::stored("p"));
        assert!(set.holding(&held, None, NOW).is_some());
        assert!(set.holding(&free, Some(&object), NOW).is_some());
        assert!(set.holding(&free, Some(&other), NOW).is_none());
        assert!(set.holding(&free, None, NOW).is_none());
        assert!(set.holding_handler(&GroupName::stored("acme"), NOW).is_some());
    }

    #[test]
    fn all_that_hold_are_named() {
        let at = NOW + std::time::Duration::from_secs(1);
        let rules = [
            rule(RuleKind::Block, "handler:acme", None),
            rule(RuleKind::Pause, "handler:acme", None),
            rule(RuleKind::Pause, "handler:acme.mail", None),
            rule(RuleKind::Pause, "object:o", Some(at)),
            rule(RuleKind::Pause, "handler:acmes", None),
            rule(RuleKind::Pause, "schedule:s", None),
        ];
        let set = RuleSet::new(1, rules.clone());
        let (handler, object) = (GroupName::stored("acme.mail"), ObjectKey::stored("o"));
        let all = set.all_holding(&handler, Some(&object), NOW);
        assert_eq!(all, [&rules[1], &rules[0], &rules[2], &rules[3]]);
        assert_eq!(set.all_holding(&handler, Some(&object), at).len(), 3);
        assert_eq!(set.all_holding_object(&object, NOW), [&rules[3]]);
        assert_eq!(set.all_holding_schedule(&GroupName::stored("s"), NOW), [&rules[5]]);
        assert!(set.all_holding(&GroupName::stored("other"), None, NOW).is_empty());
    }

    #[test]
    fn both_kinds_coexist_and_one_that_expired_holds_nothing() {
        let at = NOW + std::time::Duration::from_secs(1);
        let set =
            RuleSet::new(2, [rule(RuleKind::Pause, "handler:a", Some(at)), rule(RuleKind::Block, "handler:a", None)]);
        let handler = GroupName::stored("a");
        assert_eq!(set.holding_handler(&handler, at).map(|rule| rule.kind), Some(RuleKind::Block));
        let set = RuleSet::new(3, [rule(RuleKind::Pause, "handler:a", Some(at))]);
        assert!(set.holding_handler(&handler, NOW).is_some());
        assert!(set.holding_handler(&handler, at).is_none());
        assert_eq!(set.next_expiry(), Some(at));
    }
}
