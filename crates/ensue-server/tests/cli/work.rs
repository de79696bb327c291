//! `ensue work` where several processes share a store: what one has left undone, another does before it says that nothing is left.

use crate::support::{PATIENCE, Place, Server, ensue, run};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

const CONFIG: &str = "\
handlers:
  order:
  - { name: note, command: [sh, -c, 'sleep 0.05; echo $ENSUE_EVENT_SEQ >> done'], start: beginning }
";

fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ensue.yaml"), CONFIG).unwrap();
    folder
}

/// The events that were handled, each once: who is killed may not have written down what it has done.
fn done(folder: &Path) -> Vec<u64> {
    let text = std::fs::read_to_string(folder.join("done")).unwrap_or_default();
    let mut seqs: Vec<u64> = text.lines().map(|line| line.parse().unwrap()).collect();
    seqs.sort_unstable();
    seqs.dedup();
    seqs
}

#[test]
fn workers_that_drain_at_once_leave_nothing() {
    let folder = folder();
    let path = folder.path();
    let (url, _) = ensue_conformance::postgres::fresh_schema("work");
    let place = Place::Store(url.clone());
    run(path, &["work", "--store", &url, "--drain"]).good();
    for round in 1..=4_u64 {
        for object in 0..6 {
            place.run(path, &["publish", "order", "--object", &format!("o:{object}")]).good();
        }
        let start = || {
            let mut command = ensue(path, &["work", "--store", &url, "--drain"]);
            command.stdout(Stdio::piped()).spawn().unwrap()
        };
        for mut worker in [start(), start()] {
            assert!(worker.wait().unwrap().success());
        }
        assert_eq!(done(path), (1..=6 * round).collect::<Vec<u64>>());
    }
}

#[test]
fn a_worker_that_drains_does_what_a_killed_server_had() {
    let folder = folder();
    let path = folder.path();
    let (url, _) = ensue_conformance::postgres::fresh_schema("work");
    let place = Place::Store(url.clone());
    let server = Server::start_with(&mut ensue(path, &["serve", "--listen", "127.0.0.1:0", "--store", &url]), path);
    place.run(path, &["publish", "order", "--object", "o"]).good();
    let begun = Instant::now();
    while done(path) != [1] {
        assert!(begun.elapsed() < PATIENCE, "the server does not handle it");
        std::thread::sleep(Duration::from_millis(10));
    }
    server.kill9();
    for object in ["a", "b", "c"] {
        place.run(path, &["publish", "order", "--object", object]).good();
    }
    run(path, &["work", "--store", &url, "--drain"]).good();
    assert_eq!(done(path), [1, 2, 3, 4]);
}

#[test]
fn so_many_at_most_is_an_end_when_there_are_fewer() {
    let folder = folder();
    let path = folder.path();
    run(path, &["publish", "order", "--store", "ensue.db", "--create"]).good();
    let text = run(path, &["work", "--max-events", "1000", "--ttl", "300s"]).good();
    assert!(text.contains("1 done, 0 failed: nothing is left to do now"), "{text}");
}
