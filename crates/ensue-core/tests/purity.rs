//! The core decides; it does not act. These tests keep runtimes, drivers and clocks out of it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Crates by whose presence the core would be able to do I/O, wait, or tell the time.
const FORBIDDEN_CRATES: [&str; 12] = [
    "tokio",
    "async-std",
    "smol",
    "mio",
    "rusqlite",
    "libsqlite3-sys",
    "tokio-postgres",
    "postgres-types",
    "sqlx-core",
    "redis",
    "hyper",
    "chrono",
];

/// Ways of reading a clock or doing I/O with the standard library or jiff alone.
const FORBIDDEN_TEXT: [&str; 8] =
    ["Timestamp::now", "Zoned::now", "SystemTime", "Instant::", "std::fs", "std::net", "std::thread", "std::process"];

fn crate_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn no_runtime_and_no_driver_comes_in_with_a_dependency_of_the_core() {
    let tree = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--package",
            "ensue-core",
            "--edges",
            "normal",
            "--prefix",
            "none",
            "--format",
            "{p}",
            "--offline",
        ])
        .current_dir(crate_folder())
        .output()
        .expect("cargo runs");
    assert!(tree.status.success(), "{}", String::from_utf8_lossy(&tree.stderr));
    let tree = String::from_utf8(tree.stdout).expect("cargo prints UTF-8");
    assert!(tree.contains("serde_json"), "the tree was not read: {tree}");
    for line in tree.lines() {
        let name = line.split(' ').next().unwrap_or_default();
        assert!(!FORBIDDEN_CRATES.contains(&name), "ensue-core must not depend on {name}: it would no longer be pure");
    }
}

#[test]
fn the_core_reads_no_clock_and_does_no_io() {
    let mut files = 0;
    for path in rust_files(&crate_folder().join("src")) {
        let text = std::fs::read_to_string(&path).expect("a source file");
        files += 1;
        for forbidden in FORBIDDEN_TEXT {
            assert!(!text.contains(forbidden), "{} mentions {forbidden}: take it as an argument", path.display());
        }
    }
    assert!(files > 5, "the sources were not found");
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
    entries
        .flat_map(|path| if path.is_dir() { rust_files(&path) } else { vec![path] })
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .collect()
}

/// The crates depend on each other in one direction only: server, library, stores, core.
#[test]
fn the_crates_point_in_one_direction() {
    let allowed: [(&str, &[&str]); 6] = [
        ("ensue-core", &[]),
        ("ensue-stores", &["ensue-core"]),
        ("ensue-conformance", &["ensue-core"]),
        ("ensue-derive", &[]),
        ("ensue", &["ensue-core", "ensue-derive", "ensue-stores"]),
        ("ensue-server", &["ensue"]),
    ];
    for (name, may_use) in allowed {
        let manifest = crate_folder().parent().expect("crates/").join(name).join("Cargo.toml");
        let text = std::fs::read_to_string(&manifest).expect("a manifest");
        let dependencies = text.split("[dependencies]").nth(1).expect("dependencies");
        let dependencies = dependencies.split("\n[").next().expect("a section");
        for line in dependencies.lines() {
            let used = line.split(['.', ' ', '=']).next().unwrap_or_default();
            let is_ours = used == "ensue" || used.starts_with("ensue-");
            assert!(!is_ours || may_use.contains(&used), "{name} must not depend on {used}");
        }
    }
}
