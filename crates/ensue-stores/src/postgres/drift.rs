//! Is everything in the schema as this program has it?
//!
//! A function that somebody has replaced, or an index that is gone or was never finished, changes what the engine does without
//! changing its version. Functions are compared by their text, indexes by their names, their tables and whether they are in use.

use super::PostgresStore;
use super::migrate::newest;
use super::migrations::{FUNCTIONS, TABLES};
use super::schema::Schema;
use ensue_core::StoreError;
use std::collections::{BTreeMap, BTreeSet};

/// What stands before a function in the templates.
const FUNCTION: &str = "FUNCTION {schema}.";

/// The functions that a template makes: their names, and their texts for this schema.
fn functions<'t>(template: &'t str, schema: &Schema) -> Vec<(&'t str, String)> {
    let made = |part: &'t str| {
        let (name, _) = part.split_once('(')?;
        let body = part.split("$body$").nth(1)?;
        Some((name, schema.fill(body)))
    };
    template.split(&format!("CREATE OR REPLACE {FUNCTION}")).skip(1).filter_map(made).collect()
}

/// The indexes that a template makes: the name and the table of each.
fn indexes(template: &str) -> Vec<(&str, &str)> {
    let made = |line| {
        let line: &str = line;
        let rest = line.strip_prefix("CREATE INDEX ").or_else(|| line.strip_prefix("CREATE UNIQUE INDEX "))?;
        let (name, rest) = rest.split_once(" ON {schema}.")?;
        Some((name, rest.split([' ', '(']).next()?))
    };
    template.lines().filter_map(made).collect()
}

impl PostgresStore {
    /// What differs from what this program has made or would make; nothing of a schema that a newer program has upgraded.
    pub async fn drift(&self) -> Result<Vec<String>, StoreError> {
        let schema = Schema::new(self.schema.clone());
        let sql = schema.fill("SELECT coalesce(max(version), 0) FROM {schema}.schema_version");
        if self.server.query_one(&sql, &[]).await?.get::<_, i32>(0) > newest() {
            return Ok(Vec::new());
        }
        let mut drift = self.functions_that_differ(&schema).await?;
        drift.extend(self.indexes_that_differ().await?);
        Ok(drift)
    }

    async fn functions_that_differ(&self, schema: &Schema) -> Result<Vec<String>, StoreError> {
        let ask = "SELECT p.proname::text, p.prosrc FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace \
                   WHERE n.nspname = $1";
        let mut there: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for row in self.server.query(ask, &[&self.schema]).await? {
            there.entry(row.get(0)).or_default().insert(row.get(1));
        }
        let mut drift = Vec::new();
        for (name, body) in FUNCTIONS.iter().flat_map(|template| functions(template, schema)) {
            match there.get(name) {
                None => drift.push(format!("the function {name} is missing")),
                Some(bodies) if !bodies.contains(&body) => {
                    drift.push(format!("the function {name} is not this program's"));
                }
                Some(_) => {}
            }
        }
        Ok(drift)
    }

    async fn indexes_that_differ(&self) -> Result<Vec<String>, StoreError> {
        let ask = "SELECT i.relname::text, t.relname::text, x.indisvalid FROM pg_index x \
                   JOIN pg_class i ON i.oid = x.indexrelid JOIN pg_class t ON t.oid = x.indrelid \
                   JOIN pg_namespace n ON n.oid = i.relnamespace WHERE n.nspname = $1";
        let mut there: BTreeMap<String, (String, bool)> = BTreeMap::new();
        for row in self.server.query(ask, &[&self.schema]).await? {
            there.insert(row.get(0), (row.get(1), row.get(2)));
        }
        let mut drift = Vec::new();
        for (name, table) in TABLES.iter().flat_map(|template| indexes(template)) {
            match there.get(name) {
                None => drift.push(format!("the index {name} of {table} is missing")),
                Some((on, _)) if on != table => drift.push(format!("the index {name} is of {on}, not of {table}")),
                Some((_, false)) => drift.push(format!("the index {name} of {table} is not valid")),
                Some((_, true)) => {}
            }
        }
        Ok(drift)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_and_every_index_is_found_in_the_templates() {
        let schema = Schema::new("log".into());
        let found: Vec<_> = FUNCTIONS.iter().flat_map(|template| functions(template, &schema)).collect();
        let written: usize = FUNCTIONS.iter().map(|template| template.matches(FUNCTION).count()).sum();
        assert!(found.len() == written && found.len() > 60, "{} of {written}", found.len());
        let append = &found.iter().find(|(name, _)| *name == "append").unwrap().1;
        assert!(
            append.starts_with("\nDECLARE") && append.ends_with("END\n") && append.contains("\"log\".events"),
            "{append}"
        );
        let indexes: Vec<_> = TABLES.iter().flat_map(|template| indexes(template)).collect();
        let count = |template: &&str| template.matches(" INDEX ").count() - template.matches("DROP INDEX ").count();
        let written: usize = TABLES.iter().map(count).sum();
        assert!(
            indexes.contains(&("outbox_key", "outbox")) && indexes.contains(&("jobs_available", "jobs")),
            "{indexes:?}"
        );
        assert_eq!(indexes.len(), written, "{indexes:?}");
    }
}
