//! What becomes of a file that an older program has made?
//!
//! A version's tables are those that its program made, word for word, whatever has become of them since. When a version is in use, it gets its
//! name here and its tables in `old/tables.sql`: a copy of what is new.

use ensue_conformance::upgraded::{self, Knew};
use ensue_core::store::SharedStore;
use ensue_stores::sqlite::{SqliteOptions, SqliteStore, rusqlite};
use rusqlite::Connection;
use std::path::Path;
use std::sync::Arc;

const TABLES: &str = include_str!("old/tables.sql");
const DATA: &str = include_str!("old/data.sql");

/// The versions that were, and what they knew of.
const OLD: &[(usize, Knew)] = &[
    (1, Knew::Log),
    (2, Knew::Positions),
    (6, Knew::Jobs),
    (7, Knew::Definitions),
    (9, Knew::Schedules),
    (10, Knew::Schedules),
    (11, Knew::Schedules),
];

/// What of a fixture is of this version.
fn part(fixture: &str, version: usize) -> String {
    let sections = fixture.split("\n-- in: ").skip(1).filter_map(|section| section.split_once('\n'));
    let version = version.to_string();
    sections.filter(|(of, _)| of.split(' ').any(|name| name == version)).map(|(_, sql)| sql).collect()
}

/// The data with its short words as SQL has them: `@at(3)` is a time, `@id(3, 4)` the id of event 4 made at that time, `@u(5)` a process and `@v(6)` what
/// is known by a UUIDv7.
fn spelt_out(data: &str) -> String {
    let mut parts = data.split('@');
    let mut sql = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (word, rest) = part.split_once(')').unwrap();
        let (word, numbers) = word.split_once('(').unwrap();
        let numbers: Vec<i64> = numbers.split(", ").map(|number| number.parse().unwrap()).collect();
        let blob = |high: i64, low: i64| format!("X'{high:016x}{low:016x}'");
        let noon = 1_794_744_000;
        sql += &match (word, &numbers[..]) {
            ("at", [second]) => ((noon + second) * 1_000_000).to_string(),
            ("id", [second, n]) => format!("X'{:012x}7{n:03x}8{n:015x}'", (noon + second) * 1_000),
            ("u", [n]) => blob(0, *n),
            ("v", [n]) => format!("X'{:016x}8{n:015x}'", 0x7000),
            other => panic!("{other:?}"),
        };
        sql += rest;
    }
    sql
}

/// Makes the file, as it was, with everything that its program knew.
fn make(path: &Path, version: usize) {
    let connection = Connection::open(path).unwrap();
    connection.pragma_update(None, "journal_mode", "wal").unwrap();
    let versions = format!(
        "CREATE TABLE ensue_schema (version INTEGER NOT NULL) STRICT; INSERT INTO ensue_schema VALUES ({version});"
    );
    connection.execute_batch(&(versions + &part(TABLES, version) + &spelt_out(&part(DATA, version)))).unwrap();
}

/// Everything that the file is made of, in no order; spaces count for nothing.
fn shape(path: &Path) -> Vec<String> {
    let connection = Connection::open(path).unwrap();
    let lines = |sql: &str| -> Vec<String> {
        let mut statement = connection.prepare(sql).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().collect::<rusqlite::Result<_>>().unwrap()
    };
    let mut shape = lines(
        "SELECT 'column ' || t.name || ' ' || c.name || ' ' || c.type || ' ' || c.\"notnull\" || ' ' || c.pk \
         FROM sqlite_schema t, pragma_table_xinfo(t.name) c WHERE t.type = 'table'",
    );
    let made = lines("SELECT type || ' ' || name || ' ' || coalesce(sql, '') FROM sqlite_schema WHERE type <> 'table'");
    let without_comments =
        |sql: &String| sql.lines().map(|line| line.split("--").next().unwrap().trim()).collect::<Vec<_>>().join(" ");
    shape.extend(made.iter().map(without_comments));
    shape.sort_unstable();
    shape
}

async fn open(path: &Path, read_only: bool) -> (SharedStore, ensue_conformance::ManualClock) {
    let clock = upgraded::clock();
    let options = SqliteOptions { clock: Some(clock.clock()), read_only, ..SqliteOptions::default() };
    (Arc::new(SqliteStore::open(path.to_str().unwrap(), options).await.unwrap()), clock)
}

/// Whatever older program made the file, everything that it knew is there, is used as before, and nothing of its tables differs from one that
/// is made today.
#[tokio::test]
async fn every_version_that_was_is_brought_up_to_date_with_all_that_it_knew() {
    let folder = tempfile::tempdir().unwrap();
    let fresh = folder.path().join("fresh.db");
    open(&fresh, false).await.0.close().await;
    for (version, knew) in OLD {
        eprintln!("the file of version {version}");
        let path = folder.path().join(format!("{version}.db"));
        make(&path, *version);
        let (looked_at, _) = open(&path, true).await;
        upgraded::log_is_read(&looked_at).await;
        looked_at.close().await;
        let (found, newest, _) = SqliteStore::pending_upgrade(path.to_str().unwrap()).unwrap();
        assert_eq!(found, *version, "who only looks changes nothing");

        let (store, clock) = open(&path, false).await;
        assert_eq!(SqliteStore::pending_upgrade(path.to_str().unwrap()).unwrap(), (newest, newest, String::new()));
        let (is, should_be) = (shape(&path), shape(&fresh));
        let missing: Vec<_> = should_be.iter().filter(|line| !is.contains(line)).collect();
        let beside: Vec<_> = is.iter().filter(|line| !should_be.contains(line)).collect();
        assert!(missing.is_empty() && beside.is_empty(), "missing: {missing:#?}\nbeside: {beside:#?}");
        upgraded::check(&store, &clock, *knew).await;
        store.close().await;
    }
}
