//! Who may not run now?

use super::SqliteStore;
use super::groups::{place, unknown_word};
use super::jobs::lane;
use super::read::{time_of, uuid_of};
use super::schedules;
use super::slots::member_at;
use super::writer::Changing;
use async_trait::async_trait;
use ensue_core::event::whole_microseconds;
use ensue_core::jobs::notices;
use ensue_core::positions::Member;
use ensue_core::rules::{NewRule, RULES_MAX, Rule, RuleKind, RuleSet, Rules, Scope};
use ensue_core::{EventId, Invalid, ObjectKey, StoreError, Timestamp};
use rand::RngCore;
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

fn rule_of(row: &Row<'_>) -> rusqlite::Result<Rule> {
    let (kind, scope) = (row.get_ref(0)?.as_str()?, row.get_ref(1)?.as_str()?);
    Ok(Rule {
        kind: RuleKind::parse(kind).ok_or_else(|| unknown_word(0, kind))?,
        scope: Scope::stored(scope).ok_or_else(|| unknown_word(1, scope))?,
        id: uuid_of(row, 2)?,
        reason: row.get(3)?,
        author: row.get(4)?,
        created_at: time_of(row.get(5)?),
        expires_at: row.get::<_, Option<i64>>(6)?.map(time_of),
    })
}

fn version(connection: &Connection) -> rusqlite::Result<u64> {
    connection
        .prepare_cached("SELECT rules_version FROM ensue_jobs_state")?
        .query_row([], |row| row.get::<_, i64>(0))
        .map(|version| version as u64)
}

/// All rules.
pub(super) fn all(connection: &Connection) -> rusqlite::Result<RuleSet> {
    let rules = connection
        .prepare_cached("SELECT kind, scope, id, reason, author, created_at, expires_at FROM ensue_rules")?
        .query_map([], rule_of)?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(RuleSet::new(version(connection)?, rules))
}

fn find(connection: &Connection, kind: RuleKind, scope: &Scope) -> rusqlite::Result<Option<Rule>> {
    connection
        .prepare_cached(
            "SELECT kind, scope, id, reason, author, created_at, expires_at FROM ensue_rules
             WHERE kind = ?1 AND scope = ?2",
        )?
        .query_row([kind.as_str(), &scope.to_string()], rule_of)
        .optional()
}

/// The rule that holds an object at this time.
pub(super) fn holds_object(
    connection: &Connection,
    object: &ObjectKey,
    now: Timestamp,
) -> rusqlite::Result<Option<()>> {
    connection
        .prepare_cached(
            "SELECT 1 FROM ensue_rules WHERE kind IN ('pause', 'block') AND scope = 'object:' || ?1
             AND (expires_at IS NULL OR expires_at > ?2)",
        )?
        .query_row(params![object.as_str(), now.as_microsecond()], |_| Ok(()))
        .optional()
}

/// Rules have changed; so has what this one's object may do.
fn changed(connection: &Connection, scope: &Scope, now: Timestamp) -> rusqlite::Result<()> {
    connection.prepare_cached("UPDATE ensue_jobs_state SET rules_version = rules_version + 1")?.execute([])?;
    match scope {
        Scope::Object(object) => lane::turn_object(connection, object, now),
        Scope::Schedule(name) => schedules::rule_changed(connection, name),
        Scope::Handler(_) => Ok(()),
    }
}

fn set(changing: &mut Changing<'_>, new: NewRule) -> Result<(Rule, bool), StoreError> {
    let now = changing.now();
    new.check(now)?;
    let there = changing.sql(|connection| find(connection, new.kind, &new.scope))?;
    let mut random = [0; 10];
    rand::rng().fill_bytes(&mut random);
    let rule = new.over(there.as_ref(), EventId::new(now, random).0, now);
    changing
        .sql(|connection| {
            if there.is_none() {
                let count: i64 =
                    connection.prepare_cached("SELECT count(*) FROM ensue_rules")?.query_row([], |row| row.get(0))?;
                if count as usize >= RULES_MAX {
                    return Ok(false);
                }
            }
            put(connection, &rule)?;
            changed(connection, &rule.scope, now)?;
            Ok(true)
        })?
        .then_some(())
        .ok_or_else(|| {
            Invalid::new("scope", format!("would be one rule more than the {RULES_MAX} there may be: lift some first"))
        })?;
    changing.append(&[notices::rule_set(&rule)])?;
    Ok((rule, there.is_none()))
}

fn put(connection: &Connection, rule: &Rule) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO ensue_rules (kind, scope, id, reason, author, created_at, expires_at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)
             ON CONFLICT (kind, scope) DO UPDATE SET reason = ?4, author = ?5, expires_at = ?7",
        )?
        .execute(params![
            rule.kind.as_str(),
            rule.scope.to_string(),
            rule.id.as_bytes(),
            rule.reason,
            rule.author,
            rule.created_at.as_microsecond(),
            rule.expires_at.map(Timestamp::as_microsecond),
        ])?;
    Ok(())
}

fn lift(changing: &mut Changing<'_>, rule: Rule, by: &str) -> Result<Rule, StoreError> {
    let now = changing.now();
    changing.sql(|connection| {
        connection
            .prepare_cached("DELETE FROM ensue_rules WHERE kind = ?1 AND scope = ?2")?
            .execute([rule.kind.as_str(), &rule.scope.to_string()])?;
        changed(connection, &rule.scope, now)
    })?;
    changing.append(&[notices::rule_lifted(&rule, by)])?;
    Ok(rule)
}

fn expire(changing: &mut Changing<'_>) -> Result<Vec<Rule>, StoreError> {
    let expired = expired(changing)?;
    expired.into_iter().map(|rule| lift(changing, rule, "expiry")).collect()
}

fn expired(changing: &Changing<'_>) -> Result<Vec<Rule>, StoreError> {
    let now = changing.now();
    let all = changing.sql(all)?;
    Ok(all.rules().into_iter().filter(|rule| !rule.is_live(now)).cloned().collect())
}

fn awaited(connection: &Connection, version: u64, now: Timestamp) -> rusqlite::Result<Vec<Member>> {
    connection
        .prepare_cached(
            "SELECT m.id, m.name, m.kind FROM ensue_members m LEFT JOIN ensue_rule_reports r ON r.member = m.id
             WHERE m.kind = 'handler' AND m.lease_until >= ?1 AND coalesce(r.version, -1) < ?2 ORDER BY m.id",
        )?
        .query_map(params![now.as_microsecond(), place(version)], |row| member_at(row, 0))?
        .collect()
}

fn report(connection: &Connection, member: Uuid, version: u64) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "INSERT INTO ensue_rule_reports (member, version) VALUES (?1, ?2)
             ON CONFLICT (member) DO UPDATE SET version = max(version, ?2)",
        )?
        .execute(params![member.as_bytes(), place(version)])?;
    // Who is no member any more has nothing to report.
    connection
        .prepare_cached(
            "DELETE FROM ensue_rule_reports WHERE member <> ?1 AND member NOT IN (SELECT id FROM ensue_members)",
        )?
        .execute([member.as_bytes()])?;
    Ok(())
}

#[async_trait]
impl Rules for SqliteStore {
    async fn set_rule(&self, mut rule: NewRule) -> Result<(Rule, bool), StoreError> {
        rule.expires_at = rule.expires_at.map(whole_microseconds);
        self.change(move |changing| set(changing, rule)).await
    }

    async fn lift_rule(&self, kind: RuleKind, scope: &Scope, by: &str) -> Result<Option<Rule>, StoreError> {
        let (scope, by) = (scope.clone(), by.to_owned());
        self.change(move |changing| match changing.sql(|connection| find(connection, kind, &scope))? {
            Some(rule) => lift(changing, rule, &by).map(Some),
            None => Ok(None),
        })
        .await
    }

    async fn expire_rules(&self) -> Result<Vec<Rule>, StoreError> {
        let now = self.positions_now();
        // Looked at from a reader first: an idle system takes no write lock.
        let rules = self.look_at_positions(all).await?;
        if rules.rules().into_iter().all(|rule| rule.is_live(now)) {
            return Ok(Vec::new());
        }
        self.change(expire).await
    }

    async fn rules(&self) -> Result<RuleSet, StoreError> {
        self.look_at_positions(all).await
    }

    async fn rules_version(&self) -> Result<u64, StoreError> {
        self.look_at_positions(version).await
    }

    async fn report_rules(&self, member: Uuid, version: u64) -> Result<(), StoreError> {
        self.change(move |changing| changing.sql(|connection| report(connection, member, version))).await
    }

    async fn rules_awaited(&self, version: u64) -> Result<Vec<Member>, StoreError> {
        let now = self.positions_now();
        self.look_at_positions(move |connection| awaited(connection, version, now)).await
    }
}
