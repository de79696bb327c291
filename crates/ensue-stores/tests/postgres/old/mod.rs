//! Stores as they were at the versions that programs of were in use, with everything that those knew.
//!
//! A version's tables are those that its program made, word for word, whatever has become of them since; so what is changed in a migration after
//! it was in use is found. When a version is in use, it gets its name here, and its tables, functions and statements: copies
//! of what is new.

use crate::support::Log;
use ensue_conformance::upgraded::Knew;

const TABLES: &str = include_str!("tables.sql");
const FUNCTIONS: &str = include_str!("functions.sql");
const DATA: &str = include_str!("data.sql");
const STATEMENTS: &str = include_str!("statements.sql");

/// A version that was.
#[derive(Debug, Clone, Copy)]
pub struct Old {
    /// As the fixtures call it.
    pub name: &'static str,
    /// What its schema says.
    pub version: i32,
    /// From where it is brought up to date.
    pub from: i32,
    pub knew: Knew,
}

/// All of them. Two programs called their schemas version 6.
pub const OLD: &[Old] = &[
    Old { name: "1", version: 1, from: 1, knew: Knew::Log },
    Old { name: "2", version: 2, from: 2, knew: Knew::Positions },
    Old { name: "6_jobs", version: 6, from: 5, knew: Knew::Jobs },
    Old { name: "6", version: 6, from: 6, knew: Knew::Definitions },
    Old { name: "8", version: 8, from: 8, knew: Knew::Schedules },
    Old { name: "13", version: 13, from: 13, knew: Knew::Outbox },
    Old { name: "14", version: 14, from: 14, knew: Knew::Outbox },
    Old { name: "17", version: 17, from: 17, knew: Knew::Outbox },
    Old { name: "18", version: 18, from: 18, knew: Knew::Outbox },
];

impl Old {
    /// What of a fixture is of this version.
    fn part(self, fixture: &str) -> String {
        let sections = fixture.split("\n-- in: ").skip(1).filter_map(|section| section.split_once('\n'));
        sections.filter(|(of, _)| of.split(' ').any(|name| name == self.name)).map(|(_, sql)| sql).collect()
    }

    /// Makes the schema, as it was.
    pub async fn make(self, log: &Log) {
        let version = self.version;
        let compatible = if version < 9 { "" } else { "UPDATE LOG.schema_version SET compatible_from = 13;" };
        log.run(&format!(
            "BEGIN; SET LOCAL check_function_bodies = off; CREATE SCHEMA LOG; \
             CREATE TABLE LOG.schema_version (version int PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT clock_timestamp()); \
             INSERT INTO LOG.schema_version SELECT generate_series(1, {version}); {} {compatible} {} COMMIT",
            self.part(TABLES),
            self.part(FUNCTIONS)
        ))
        .await;
    }

    /// Fills it with everything that it knew of.
    pub async fn fill(self, log: &Log) {
        log.run(&format!("BEGIN; {} DROP FUNCTION pg_temp.at, pg_temp.id, pg_temp.part; COMMIT", self.part(DATA)))
            .await;
    }

    /// What its program says to the server; nothing of programs that may not run beside newer ones.
    pub fn statements(self, log: &Log) -> Vec<String> {
        self.part(STATEMENTS)
            .lines()
            .filter(|line| !line.is_empty())
            .map(|line| line.replace("LOG", &log.schema))
            .collect()
    }
}
