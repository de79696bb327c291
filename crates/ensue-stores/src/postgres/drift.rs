//! Comparison of a schema with the one that this program installs.
//!
//! An object that was replaced, dropped or added by hand changes what the engine does, or runs code with the rights of
//! its functions, without changing the version. The bodies of functions are compared with the templates. Their other
//! properties, and all other objects, are compared with `sql/facts.txt`: the catalog of a new schema, written by a
//! test. Owners and rights are compared with those of `apply_grants()`.

use super::PostgresStore;
use super::migrate::newest;
use super::migrations::FUNCTIONS;
use super::schema::Schema;
use ensue_core::StoreError;
use std::collections::{BTreeMap, BTreeSet};

/// What stands before a function in the templates.
const FUNCTION: &str = "FUNCTION {schema}.";
/// What a schema of this version has.
const FACTS: &str = include_str!("sql/facts.txt");

/// Something that is not as this program has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// What it is.
    pub found: String,
    /// What to do about it.
    pub fix: String,
    /// Does everything work all the same, only with fewer guards?
    pub is_harmless: bool,
}

impl Drift {
    fn new(found: String, fix: &str) -> Self {
        Self { found, fix: fix.to_owned(), is_harmless: false }
    }
}

/// The functions that a template makes: their names, and their texts for this schema.
fn functions<'t>(template: &'t str, schema: &Schema) -> Vec<(&'t str, String)> {
    let made = |part: &'t str| {
        let (name, _) = part.split_once('(')?;
        let body = part.split("$body$").nth(1)?;
        Some((name, schema.fill(body)))
    };
    template.split(&format!("CREATE OR REPLACE {FUNCTION}")).skip(1).filter_map(made).collect()
}

/// What is like what: the kind and the name of each thing, and what is said of it.
type Facts = BTreeMap<(String, String), String>;

fn facts(lines: &str) -> Facts {
    let fact = |line: &str| {
        let mut words = line.splitn(3, '\t').map(str::to_owned);
        Some(((words.next()?, words.next()?), words.next()?))
    };
    lines.lines().filter_map(fact).collect()
}

/// What of the first is missing in the second, or something else there. What belongs to a table that is missing is not told of.
fn missing(expected: &Facts, there: &Facts) -> Vec<String> {
    let is_there =
        |name: &str| ["table", "view", "type"].iter().any(|kind| there.contains_key(&((*kind).into(), name.into())));
    let mut found = Vec::new();
    for ((kind, name), detail) in expected {
        match there.get(&(kind.clone(), name.clone())) {
            None if name.split_once(" of ").is_some_and(|(_, table)| !is_there(table)) => {}
            None => found.push(format!("the {kind} {name} is missing")),
            Some(other) if other != detail => {
                found.push(format!("the {kind} {name} is {other}; it should be {detail}"))
            }
            Some(_) => {}
        }
    }
    found
}

/// Kinds of objects that run code, or that code depends on. Tables, sequences and indexes of others are left alone.
const KINDS_OF_CODE: [&str; 11] =
    ["cast", "column", "constraint", "domain", "function", "operator", "policy", "rule", "trigger", "type", "view"];

/// Objects of the second that are not in the first. The columns and constraints of a table that is not in the first
/// are not Ensue's.
fn added(expected: &Facts, there: &Facts) -> Vec<String> {
    let is_ours =
        |name: &str| ["table", "view", "type"].iter().any(|kind| expected.contains_key(&((*kind).into(), name.into())));
    let is_added = |(kind, name): &&(String, String)| {
        KINDS_OF_CODE.contains(&kind.as_str())
            && !expected.contains_key(&(kind.clone(), name.clone()))
            && name.split_once(" of ").is_none_or(|(_, table)| is_ours(table))
    };
    there.keys().filter(is_added).map(|(kind, name)| format!("the {kind} {name} is not part of Ensue")).collect()
}

impl PostgresStore {
    /// What differs from what this program has made or would make; nothing of a schema that a newer program has upgraded.
    pub async fn drift(&self) -> Result<Vec<Drift>, StoreError> {
        let schema = Schema::new(self.schema.clone());
        let sql = schema.fill("SELECT coalesce(max(version), 0) FROM {schema}.schema_version");
        if self.server.query_one(&sql, &[]).await?.get::<_, i32>(0) > newest() {
            return Ok(Vec::new());
        }
        let (expected, there) = (facts(FACTS), facts(&self.facts().await?));
        let mut found = missing(&expected, &there);
        found.extend(self.functions_that_differ(&schema).await?);
        // What is needed to look further may be gone.
        let is_whole = |word: &str| !found.iter().any(|found| found.contains(word));
        let (are_partitions_known, are_rights_known) =
            (is_whole("partitions"), is_whole("grants") && is_whole("role_name") && is_whole("rights_not_listed"));
        let anew = "make it anew from the output of `ensue migrate --sql`";
        let mut drift: Vec<_> = found.into_iter().map(|found| Drift::new(found, anew)).collect();
        let drop = "find out who created it and drop it: it may run with the rights of Ensue's functions";
        drift.extend(added(&expected, &there).into_iter().map(|found| Drift::new(found, drop)));
        if are_partitions_known {
            drift.extend(self.partitions_gone(&schema).await?);
        }
        if are_rights_known {
            drift.extend(self.rights_that_differ(&schema).await?);
        }
        Ok(drift)
    }

    /// What the catalog says of this schema, a line for each thing, as it is kept in `sql/facts.txt`.
    pub async fn facts(&self) -> Result<String, StoreError> {
        let rows = self.server.query(include_str!("sql/facts.sql"), &[&self.schema]).await?;
        let line = |row: &tokio_postgres::Row| [0, 1, 2].map(|column| row.get::<_, &str>(column)).join("\t") + "\n";
        Ok(rows.iter().map(line).collect())
    }

    async fn functions_that_differ(&self, schema: &Schema) -> Result<Vec<String>, StoreError> {
        let ask = "SELECT p.proname::text, p.prosrc FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace \
                   WHERE n.nspname = $1";
        let mut there: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for row in self.server.query(ask, &[&self.schema]).await? {
            there.entry(row.get(0)).or_default().insert(row.get(1));
        }
        let written = FUNCTIONS.iter().flat_map(|template| functions(template, schema));
        let differs = |(name, body): &(&str, String)| there.get(*name).is_some_and(|bodies| !bodies.contains(body));
        Ok(written.filter(differs).map(|(name, _)| format!("the function {name} is not this program's")).collect())
    }

    /// The log stops where one is missing that is yet to come; where it has passed, events are lost.
    async fn partitions_gone(&self, schema: &Schema) -> Result<Vec<Drift>, StoreError> {
        let gone = |row: &tokio_postgres::Row| {
            let (from, to): (i64, i64) = (row.get(0), row.get(1));
            let what = if row.get(2) { "is no part of it any more" } else { "is missing" };
            let found = format!("the partition events_p{from} of the log, for the events {from} to {}, {what}", to - 1);
            let fix = schema.fill(
                "SELECT * FROM {schema}.maintain() puts one there, as does `ensue serve` when it needs it; what was in one that was dropped is \
                 only in your backup: run `ensue verify`",
            );
            Drift::new(found, &fix)
        };
        let ask = schema.fill("SELECT from_seq, to_seq, is_there FROM {schema}.partitions_gone()");
        Ok(self.server.query(&ask, &[]).await?.iter().map(gone).collect())
    }

    async fn rights_that_differ(&self, schema: &Schema) -> Result<Vec<Drift>, StoreError> {
        let fix = schema.fill("SELECT * FROM {schema}.apply_grants(), as a superuser or as the owner of the schema");
        let differs = |row: &tokio_postgres::Row| Drift { is_harmless: row.get(0), ..Drift::new(row.get(1), &fix) };
        let rows = self.server.query(&schema.fill(include_str!("sql/rights.sql")), &[]).await?;
        Ok(rows.iter().map(differs).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::super::migrations::TABLES;
    use super::super::schema::Sql;
    use super::*;

    #[test]
    fn every_function_is_found_in_the_templates() {
        let schema = Schema::new("log".into());
        let found: Vec<_> = FUNCTIONS.iter().flat_map(|template| functions(template, &schema)).collect();
        let written: usize = FUNCTIONS.iter().map(|template| template.matches(FUNCTION).count()).sum();
        assert!(found.len() == written && found.len() > 60, "{} of {written}", found.len());
        let append = &found.iter().find(|(name, _)| *name == "append").unwrap().1;
        assert!(
            append.starts_with("\nDECLARE") && append.ends_with("END\n") && append.contains("\"log\".stored_events"),
            "{append}"
        );
    }

    /// The role of a node has no function and no table that its statements, and those of `doctor`, do not reach.
    #[test]
    fn a_node_is_granted_no_more_than_it_uses() {
        let schema = Schema::new("log".into());
        let templates = || FUNCTIONS.iter().chain(TABLES);
        let all: Vec<_> = templates().flat_map(|template| functions(template, &schema)).collect();
        let mut reached = format!("{:?}", Sql::of(&schema)).replace("\\\"", "\"");
        reached += &schema.fill(include_str!("sql/rights.sql"));
        reached += &schema.fill("SELECT version FROM {schema}.schema_version, {schema}.partitions_gone()");
        let triggers = ["definition_gone", "parked_passed", "schedule_rule_changed"];
        reached.extend(all.iter().filter(|(name, _)| triggers.contains(name)).map(|(_, body)| body.as_str()));
        let mut seen = BTreeSet::new();
        while let Some((name, _)) =
            all.iter().find(|(name, _)| !seen.contains(name) && reached.contains(&format!("\"log\".{name}(")))
        {
            seen.insert(*name);
            reached.extend(all.iter().filter(|(other, _)| other == name).map(|(_, body)| body.as_str()));
        }
        let grants = FUNCTIONS.iter().find(|template| template.contains("FUNCTION {schema}.grants()")).unwrap();
        let granted = grants.split("'{serve}'::text[] FROM unnest('{").nth(1).unwrap().split("}'").next().unwrap();
        let granted: Vec<_> = granted.split(',').map(str::trim).collect();
        assert!(granted.len() > 80, "{granted:?}");
        let unused: Vec<_> = granted.into_iter().filter(|name| !seen.contains(name)).collect();
        assert_eq!(unused, [""; 0], "granted to `serve` in fn_grants.sql, and not called by a node");

        let tables = grants.split("'{serve}'::text[] FROM (VALUES").nth(1).unwrap().split(") v(rights").next().unwrap();
        let mut unused = Vec::new();
        for line in tables.split("('").skip(1) {
            let (rights, names) = line.split_once("', '{").unwrap();
            for name in names.split('}').next().unwrap().split(',').map(str::trim) {
                let verbs = [("INSERT", "INSERT INTO"), ("DELETE", "DELETE FROM"), ("SELECT", "")];
                for (_, verb) in verbs.iter().filter(|(right, _)| rights.contains(right)) {
                    let statement = format!("{verb} \"log\".{name}");
                    if !reached.contains(statement.trim_start()) {
                        unused.push(statement);
                    }
                }
            }
        }
        assert_eq!(unused, [""; 0], "granted to `serve` in fn_grants.sql, and not done by a node");
    }

    #[test]
    fn what_belongs_to_a_missing_table_is_not_told_of() {
        let expected = facts("column\ta of t\ttext\nindex\ti of t\tvalid\ntable\tt\tplain\nview\tv\tplain\n");
        assert_eq!(missing(&expected, &facts("view\tv\tplain\n")), ["the table t is missing"]);
        let there = facts("index\ti of t\tnot valid\ntable\tt\tplain\nview\tv\tplain\ntable\tu\tplain\n");
        assert_eq!(
            missing(&expected, &there),
            ["the column a of t is missing", "the index i of t is not valid; it should be valid"]
        );
    }
}
