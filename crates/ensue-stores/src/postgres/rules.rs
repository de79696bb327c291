//! Who may not run now?
//!
//! What is told of a change is made here, from the rule as it is: so it is looked at first, and if somebody changes it
//! meanwhile it is looked at again. From the commit on nothing that a rule holds is claimed (`sql/fn_rule_set.sql`).

use super::PostgresStore;
use super::groups::{known, member_at};
use super::jobs::Call;
use super::read::place;
use super::settle_columns::Events;
use super::settle_events::Publishing;
use super::types::Micros;
use async_trait::async_trait;
use ensue_core::event::whole_microseconds;
use ensue_core::jobs::notices;
use ensue_core::positions::Member;
use ensue_core::rules::{NewRule, RULES_MAX, Rule, RuleKind, RuleSet, Rules, Scope};
use ensue_core::text::plain;
use ensue_core::{Entry, EventId, Invalid, ObjectKey, Store, StoreError};
use rand::RngCore;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

/// Who lifts a rule that has expired.
const EXPIRY: &str = "expiry";

/// A rule, and the call that set it last.
struct Known {
    rule: Rule,
    set_by: Uuid,
}

fn known_at(row: &Row) -> Result<Option<Known>, StoreError> {
    let Some(kind) = row.get::<_, Option<&str>>(1) else { return Ok(None) };
    let rule = Rule {
        kind: known(kind, RuleKind::parse)?,
        scope: known(row.get(2), Scope::stored)?,
        id: row.get(3),
        reason: row.get(4),
        author: row.get(5),
        created_at: row.get::<_, Micros>(6).0,
        expires_at: row.get::<_, Option<Micros>>(7).map(|at| at.0),
    };
    Ok(Some(Known { rule, set_by: row.get(8) }))
}

fn object_of(scope: &Scope) -> Option<&ObjectKey> {
    match scope {
        Scope::Object(object) => Some(object),
        Scope::Handler(_) | Scope::Schedule(_) => None,
    }
}

impl PostgresStore {
    async fn known_rules(&self) -> Result<(u64, Vec<Known>), StoreError> {
        let rows = self.server.query(&self.sql.jobs.rules, &[]).await?;
        let rules = rows.iter().filter_map(|row| known_at(row).transpose()).collect::<Result<_, _>>()?;
        Ok((self.server.one(rows)?.get::<_, i64>(0) as u64, rules))
    }

    async fn known_rule(&self, kind: RuleKind, scope: &Scope) -> Result<Option<Known>, StoreError> {
        let (_, rules) = self.known_rules().await?;
        Ok(rules.into_iter().find(|known| known.rule.kind == kind && known.rule.scope == *scope))
    }

    async fn put_rule(&self, mut new: NewRule) -> Result<(Rule, bool), StoreError> {
        new.expires_at = new.expires_at.map(whole_microseconds);
        let now = self.now().await?;
        new.check(now)?;
        let mut call = Call::new("a rule was set");
        loop {
            let there = self.known_rule(new.kind, &new.scope).await?.map(|known| known.rule);
            let mut random = [0; 10];
            rand::rng().fill_bytes(&mut random);
            let rule = new.clone().over(there.as_ref(), EventId::new(now, random).0, now);
            let (expected, kind, scope) = (there.map(|rule| rule.id), rule.kind.as_str(), rule.scope.to_string());
            let object = object_of(&rule.scope).map(ObjectKey::as_str);
            let publishing = Publishing::of(self, [&mut vec![notices::rule_set(&rule)]].into_iter()).await?;
            let told = Events::of(&publishing);
            let (clock, hint, id, expires_at) = (self.clock_time(), self.hint(), call.id, rule.expires_at.map(Micros));
            let ring = self.bell.has_others();
            let params: [&(dyn ToSql + Sync); 16] = [
                &clock,
                &hint,
                &id,
                &expected,
                &rule.id,
                &kind,
                &scope,
                &object,
                &rule.reason,
                &rule.author,
                &expires_at,
                told.id_parts(),
                told.topics(),
                told.payloads(),
                told.objects(),
                &ring,
            ];
            let rows = call.until_answered(&self.moving, &self.sql.jobs.rule_set, &params, None).await?;
            let row = self.server.one(rows)?;
            self.moving.log_grew(&row, row.get(3));
            match row.get::<_, &str>(0) {
                "done" => return Ok((Rule { created_at: row.get::<_, Micros>(2).0, ..rule }, row.get(1))),
                "full" => {
                    let reason = format!("would be one rule more than the {RULES_MAX} there may be: lift some first");
                    return Err(Invalid::new("scope", reason).into());
                }
                // Somebody else has set or lifted it at this moment.
                _ => {}
            }
        }
    }

    /// Lifts these rules, unless somebody else has changed them; says which were.
    async fn lift_rules(&self, rules: &[Known], by: &str, call: &mut Call) -> Result<Vec<usize>, StoreError> {
        let by = plain(by);
        let kinds: Vec<&str> = rules.iter().map(|known| known.rule.kind.as_str()).collect();
        let scopes: Vec<String> = rules.iter().map(|known| known.rule.scope.to_string()).collect();
        let set_by: Vec<Uuid> = rules.iter().map(|known| known.set_by).collect();
        let objects: Vec<Option<&str>> =
            rules.iter().map(|known| object_of(&known.rule.scope).map(ObjectKey::as_str)).collect();
        let mut notices: Vec<Vec<Entry>> =
            rules.iter().map(|known| vec![notices::rule_lifted(&known.rule, &by)]).collect();
        let publishing = Publishing::of(self, notices.iter_mut()).await?;
        let told = Events::of(&publishing);
        let (now, hint, ring) = (self.clock_time(), self.hint(), self.bell.has_others());
        let params: [&(dyn ToSql + Sync); 11] = [
            &now,
            &hint,
            &kinds,
            &scopes,
            &set_by,
            &objects,
            told.id_parts(),
            told.topics(),
            told.payloads(),
            told.objects(),
            &ring,
        ];
        let rows = call.until_answered(&self.moving, &self.sql.jobs.rules_lift, &params, None).await?;
        let row = self.server.one(rows)?;
        self.moving.log_grew(&row, row.get(1));
        self.looks.demand_full();
        let lifted = row.get::<_, Option<Vec<i32>>>(0).unwrap_or_default();
        Ok(lifted.into_iter().map(|number| number as usize - 1).collect())
    }
}

#[async_trait]
impl Rules for PostgresStore {
    async fn set_rule(&self, rule: NewRule) -> Result<(Rule, bool), StoreError> {
        self.check_writable()?;
        self.put_rule(rule).await
    }

    async fn lift_rule(&self, kind: RuleKind, scope: &Scope, by: &str) -> Result<Option<Rule>, StoreError> {
        self.check_writable()?;
        loop {
            let Some(there) = self.known_rule(kind, scope).await? else { return Ok(None) };
            let mut call = Call::new("a rule was lifted");
            let lifted = self.lift_rules(std::slice::from_ref(&there), by, &mut call).await?;
            // If an answer was lost, and it is gone as it was seen, it was lifted by that call.
            if !lifted.is_empty() || call.answer_was_lost() {
                return Ok(Some(there.rule));
            }
        }
    }

    async fn expire_rules(&self) -> Result<Vec<Rule>, StoreError> {
        self.check_writable()?;
        let (_, rules) = self.known_rules().await?;
        if rules.iter().all(|known| known.rule.expires_at.is_none()) {
            return Ok(Vec::new());
        }
        let now = self.now().await?;
        let mut expired: Vec<Known> = rules.into_iter().filter(|known| !known.rule.is_live(now)).collect();
        if expired.is_empty() {
            return Ok(Vec::new());
        }
        expired.sort_by(|a, b| (&a.rule.scope, a.rule.kind).cmp(&(&b.rule.scope, b.rule.kind)));
        let mut call = Call::new("rules were lifted");
        let lifted = self.lift_rules(&expired, EXPIRY, &mut call).await?;
        Ok(lifted.into_iter().map(|index| expired[index].rule.clone()).collect())
    }

    async fn rules(&self) -> Result<RuleSet, StoreError> {
        let (version, rules) = self.known_rules().await?;
        Ok(RuleSet::new(version, rules.into_iter().map(|known| known.rule)))
    }

    async fn rules_version(&self) -> Result<u64, StoreError> {
        Ok(self.server.query_one(&self.sql.jobs.rules_version, &[]).await?.get::<_, i64>(0) as u64)
    }

    async fn report_rules(&self, member: Uuid, version: u64) -> Result<(), StoreError> {
        self.check_writable()?;
        self.server.query(&self.sql.jobs.rules_report, &[&member, &place(version)]).await.map(drop)
    }

    async fn rules_awaited(&self, version: u64) -> Result<Vec<Member>, StoreError> {
        let rows = self.server.query(&self.sql.jobs.rules_awaited, &[&self.clock_time(), &place(version)]).await?;
        rows.iter().filter_map(|row| member_at(row, 0).transpose()).collect()
    }
}
