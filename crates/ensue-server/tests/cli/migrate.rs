//! Does `migrate` make a store, bring it up to date, and tell how without doing it?

use crate::support::{Server, ensue, run};
use ensue_conformance::postgres::fresh_schema;
use std::io::Write;
use std::process::{Command, Stdio};

#[test]
fn the_script_is_printed_without_a_database() {
    let folder = tempfile::tempdir().unwrap();
    let script = run(folder.path(), &["migrate", "--sql"]).good();
    assert!(script.contains("CREATE TABLE \"ensue\".events"), "{}", &script[..1000]);
    let other =
        run(folder.path(), &["migrate", "--sql", "--store", "postgres://nobody@nowhere/db?schema=Other"]).good();
    assert!(other.contains("CREATE TABLE \"Other\".events") && !other.contains("\"ensue\".events"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is made");
}

#[test]
fn an_embedded_store_is_made_and_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let store = ["--store", "sqlite:my.db"];
    let dry = run(folder.path(), &[&["migrate", "--dry-run"][..], &store].concat()).good();
    assert!(dry.contains("CREATE TABLE ensue_events"), "{dry}");
    assert!(!folder.path().join("my.db").exists(), "a dry run makes nothing");
    let made = run(folder.path(), &[&["migrate"][..], &store].concat()).good();
    assert!(made.contains("was made, with version"), "{made}");
    assert_eq!(run(folder.path(), &[&["migrate", "--dry-run"][..], &store].concat()).good(), "");
    let again = run(folder.path(), &[&["migrate", "--json"][..], &store].concat()).json();
    assert_eq!(again["from"], again["to"]);
    assert!(run(folder.path(), &[&["migrate"][..], &store].concat()).good().contains("is up to date"));
    run(folder.path(), &[&["publish", "a"][..], &store].concat()).good();
    let memory = run(folder.path(), &["migrate", "--store", "sqlite::memory:"]).bad();
    assert!(memory.contains("nothing to migrate"), "{memory}");
}

/// `psql -1 -f` is enough; `ensue serve` runs on what it has made.
#[test]
fn a_schema_that_psql_has_made_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let (url, schema) = fresh_schema("cli");
    let dry = run(folder.path(), &["migrate", "--dry-run", "--store", &url]).good();
    assert!(dry.contains(&format!("CREATE TABLE \"{schema}\".events")), "{dry}");
    let database = url.split_once('?').unwrap().0;
    let mut psql = Command::new("psql")
        .args(["-X", "-q", "-1", "-f", "-", database])
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("psql is there where Postgres is");
    psql.stdin.take().unwrap().write_all(dry.as_bytes()).unwrap();
    assert!(psql.wait().unwrap().success());
    // Said twice it stops at once, and says so.
    std::fs::write(folder.path().join("again.sql"), &dry).unwrap();
    let again = Command::new("psql")
        .args(["-X", "-q", "-1", "-f", "again.sql", database])
        .current_dir(folder.path())
        .output()
        .expect("psql runs");
    let told = String::from_utf8_lossy(&again.stderr);
    assert_eq!(again.status.code(), Some(3), "{told}");
    assert!(told.contains("is installed in the schema") && !told.contains("current transaction is aborted"), "{told}");
    assert_eq!(run(folder.path(), &["migrate", "--dry-run", "--store", &url]).good(), "");
    let server = Server::start_with(
        &mut ensue(folder.path(), &["serve", "--listen", "127.0.0.1:0", "--store", &url]),
        folder.path(),
    );
    server.run(folder.path(), &["publish", "a"]).good();
    assert!(server.terminate().success());
    let found = run(folder.path(), &["doctor", "--store", &url, "--json"]);
    assert!(found.stdout.contains("as this program knows it"), "{found:?}");
}
