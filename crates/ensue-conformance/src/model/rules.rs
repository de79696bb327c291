//! What does each verb about rules mean?

use super::{Model, State};
use async_trait::async_trait;
use ensue_core::event::whole_microseconds;
use ensue_core::jobs::notices::{rule_lifted, rule_set};
use ensue_core::positions::Member;
use ensue_core::rules::{NewRule, RULES_MAX, Rule, RuleKind, RuleSet, Scope};
use ensue_core::{Entry, Invalid, Rules, StoreError, Timestamp};
use uuid::Uuid;

impl State {
    /// A rule has changed: everybody is told, and what it is about is looked at anew.
    fn rule_changed(&mut self, scope: &Scope, notice: Entry, clock: Timestamp) -> Result<(), StoreError> {
        self.work.version += 1;
        let at = self.time(clock);
        self.accept(notice, at)?;
        if let Scope::Object(object) = scope {
            self.work.arrange_object(object, whole_microseconds(clock));
        }
        Ok(())
    }

    fn set(&mut self, new: NewRule, clock: Timestamp) -> Result<(Rule, bool), StoreError> {
        let now = whole_microseconds(clock);
        new.check(now)?;
        let there = self.work.rules.iter().position(|rule| rule.kind == new.kind && rule.scope == new.scope);
        if there.is_none() && self.work.rules.len() == RULES_MAX {
            return Err(Invalid::new("scope", format!("would be more than {RULES_MAX}: lift some first")).into());
        }
        self.work.rule_ids += 1;
        let rule = new.over(there.map(|place| &self.work.rules[place]), Uuid::from_u128(self.work.rule_ids), now);
        match there {
            Some(place) => self.work.rules[place] = rule.clone(),
            None => self.work.rules.push(rule.clone()),
        }
        self.rule_changed(&rule.scope, rule_set(&rule), clock)?;
        Ok((rule, there.is_none()))
    }

    fn lift(&mut self, place: usize, by: &str, clock: Timestamp) -> Result<Rule, StoreError> {
        let rule = self.work.rules.remove(place);
        self.rule_changed(&rule.scope, rule_lifted(&rule, by), clock)?;
        Ok(rule)
    }
}

#[async_trait]
impl Rules for Model {
    async fn set_rule(&self, rule: NewRule) -> Result<(Rule, bool), StoreError> {
        self.state()?.set(rule, (self.clock)())
    }

    async fn lift_rule(&self, kind: RuleKind, scope: &Scope, by: &str) -> Result<Option<Rule>, StoreError> {
        let mut state = self.state()?;
        let place = state.work.rules.iter().position(|rule| rule.kind == kind && rule.scope == *scope);
        place.map(|place| state.lift(place, by, (self.clock)())).transpose()
    }

    async fn expire_rules(&self) -> Result<Vec<Rule>, StoreError> {
        let (mut state, now) = (self.state()?, self.positions_now());
        let rules = state.work.rule_set();
        let expired: Vec<&Rule> = rules.rules().into_iter().filter(|rule| !rule.is_live(now)).collect();
        let mut lifted = Vec::new();
        for gone in expired {
            let place = state.work.rules.iter().position(|rule| rule.id == gone.id).expect("it is there still");
            lifted.push(state.lift(place, "expiry", (self.clock)())?);
        }
        Ok(lifted)
    }

    async fn rules(&self) -> Result<RuleSet, StoreError> {
        Ok(self.state()?.work.rule_set())
    }

    async fn rules_version(&self) -> Result<u64, StoreError> {
        Ok(self.state()?.work.version)
    }

    async fn report_rules(&self, member: Uuid, version: u64) -> Result<(), StoreError> {
        let mut state = self.state()?;
        match state.work.reports.iter_mut().find(|(known, _)| *known == member) {
            Some((_, reported)) => *reported = version.max(*reported),
            None => state.work.reports.push((member, version)),
        }
        Ok(())
    }

    async fn rules_awaited(&self, version: u64) -> Result<Vec<Member>, StoreError> {
        let (state, now) = (self.state()?, self.positions_now());
        let has_seen = |member: Uuid| state.work.reports.iter().any(|(id, seen)| *id == member && *seen >= version);
        let live = state.known.serving(now).into_iter().map(|serving| serving.member);
        Ok(live.filter(|member| !has_seen(member.id)).collect())
    }
}
