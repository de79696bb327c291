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

/// Seed 002's `queue_name`: a worker serves a part of the handlers, and leaves the others to other workers.
#[test]
fn worker_runs_only_the_handlers_that_it_is_started_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let config = "handlers:\n  order:\n  - { name: a, command: [sh, -c, 'echo a >> done'], start: beginning }\n  order.paid:\n  - { name: b, command: [sh, -c, 'echo b >> done'], start: beginning }\n";
    std::fs::write(path.join("ensue.yaml"), config).unwrap();
    run(path, &["publish", "order.paid", "--store", "ensue.db", "--create"]).good();
    let unknown = run(path, &["work", "--drain", "--handlers", "order.b"]).bad();
    assert!(unknown.contains("`order.b`") && unknown.contains("order.a, order.paid.b"), "{unknown}");
    let ran = || std::fs::read_to_string(path.join("done")).unwrap_or_default();
    run(path, &["work", "--drain", "--handlers", "order.paid"]).good();
    assert_eq!(ran(), "b\n");
    run(path, &["work", "--drain", "--handlers", "order.a,order.paid.b"]).good();
    assert_eq!(ran(), "b\na\n");
}

/// Seed 002's `spawn_new`: none of these programs ends before six of them run, and there are two workers to begin with.
#[test]
fn workers_grow_up_to_the_scale_while_much_waits() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    std::fs::create_dir(path.join("began")).unwrap();
    let script = "touch began/$ENSUE_EVENT_SEQ; while [ $(ls began | wc -l) -lt 6 ]; do sleep 0.05; done";
    let config = format!(
        "workers: 2\nhandlers:\n  order:\n  - {{ name: h, command: [sh, -c, '{script}'], concurrency: 2, start: beginning }}\n"
    );
    std::fs::write(path.join("ensue.yaml"), config).unwrap();
    for object in 0..12 {
        run(path, &["publish", "order", "--object", &format!("o:{object}"), "--store", "ensue.db", "--create"]).good();
    }
    let text = run(path, &["work", "--drain", "--scale", "8", "--ttl", "100s"]).good();
    assert!(text.contains("12 done, 0 failed: nothing is left to do now"), "{text}");
    let fewer = run(path, &["work", "--drain", "--scale", "1"]).bad();
    assert!(fewer.contains("--scale 1 is fewer than the 2 workers"), "{fewer}");
}
