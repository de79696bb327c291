//! Handlers of a config file as people meet them: served, stopped, worked off, held and brought back.

use crate::support::{PATIENCE, Place, Run, Server, ensue, run};
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// A handler that keeps what it is given, and refuses it while there is a file `refuse`.
const SCRIPT: &str = r#"#!/bin/sh
cat >> given
echo >> given
if [ -e refuse ]; then echo not today >&2; exit 1; fi
"#;

const CONFIG: &str = "\
handlers:
  order.paid:
    - name: invoice
      command: [./invoice.sh]
      retry: { attempts_max: 1 }
  order:
    - { name: slow, command: [sh, -c, 'echo begun > begun; sleep 1; echo done > done'], where: \"e.topic = 'order.slow'\" }
";

fn folder(config: &str) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ensue.yaml"), config).unwrap();
    let script = folder.path().join("invoice.sh");
    std::fs::write(&script, SCRIPT).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

fn until<T>(ask: impl Fn() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begun.elapsed() < PATIENCE, "what was waited for did not happen");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn given(folder: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(folder.join("given")).unwrap_or_default();
    text.lines().filter(|line| !line.is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn state(place: &Place<'_>, folder: &Path, seq: &str, handler: &str) -> String {
    let deliveries = place.run(folder, &["event", "deliveries", seq, "--json"]).json();
    let found = deliveries["deliveries"].as_array().unwrap().iter().find(|delivery| delivery["handler"] == handler);
    found.map_or(String::new(), |delivery| delivery["state"].as_str().unwrap().to_string())
}

#[test]
fn a_server_runs_the_handlers_of_its_config_file() {
    let folder = folder(CONFIG);
    let server = Server::start(folder.path());
    let place = Place::Server(&server);
    server.run(folder.path(), &["publish", "order.paid", "--object", "order:1", "--payload", "7"]).good();
    until(|| (state(&place, folder.path(), "1", "order.paid.invoice") == "done").then_some(()));
    let given = given(folder.path());
    assert_eq!((given.len(), &given[0]["payload"], &given[0]["object"]), (1, &7.into(), &"order:1".into()));
    let list = server.run(folder.path(), &["handler", "list"]).good();
    assert!(list.contains("order.paid.invoice") && list.contains("order.slow") && list.contains("here"), "{list}");
    let table = server.run(folder.path(), &["event", "deliveries", "1"]).good();
    assert!(table.contains("order.paid.invoice") && table.contains("not_matched"), "{table}");
    let log = std::fs::read_to_string(folder.path().join("serve.log")).unwrap();
    assert!(log.contains("2 handlers"), "{log}");
}

/// "The error names file, line and field": also of what only the store knows.
#[test]
fn what_the_store_does_not_let_be_is_told_with_its_place() {
    let folder = folder("handlers:\n  a: []\n");
    let path = folder.path();
    run(path, &["publish", "other", "--create", "--store", "ensue.db"]).good();
    run(path, &["group", "create", "a.read", "--store", "ensue.db"]).good();
    run(path, &["handler", "set", "a.kept", "--on", "a", "--store", "ensue.db"]).good();
    let refused = |entry: &str, told: &str| {
        std::fs::write(path.join("ensue.yaml"), format!("handlers:\n  a:\n    - {{ {entry}, command: [cat] }}\n"))
            .unwrap();
        for command in [vec!["serve", "--listen", "127.0.0.1:0"], vec!["work", "--drain"]] {
            let stderr = run(path, &command).bad();
            assert!(stderr.contains(told), "{stderr}");
        }
    };
    refused("name: late, start: 99999", "ensue.yaml:3:7: `handlers.a[0].start` is 99999, but the newest event is 1");
    refused(
        "name: read",
        "ensue.yaml:3:7: `handlers.a[0].name` makes the key `a.read`, which a group that is read has",
    );
    refused(
        "name: kept",
        "ensue.yaml:3:7: `handlers.a[0].name` makes the key `a.kept`, which a handler in the store has",
    );
    let groups = run(path, &["group", "list", "--json", "--store", "ensue.db"]).json();
    assert_eq!(groups["groups"].as_array().unwrap().len(), 2, "nothing was made: {groups}");
}

#[test]
fn what_is_held_is_listed_retried_and_skipped() {
    let folder = folder(CONFIG);
    let path = folder.path();
    std::fs::write(path.join("refuse"), "").unwrap();
    let server = Server::start(path);
    let place = Place::Server(&server);
    // Between them the log has what Ensue itself says of objects that are held.
    let publish = |object: &str| {
        server.run(path, &["publish", "order.paid", "--object", object, "--json"]).json()["seq"].to_string()
    };
    let [_, second, third, fourth] = ["order:1", "order:1", "order:2", "order:2"].map(publish);
    until(|| {
        let held = server.run(path, &["object", "list", "--held", "--json"]).json();
        (held["objects"].as_array().unwrap().len() == 2).then_some(())
    });
    let table = server.run(path, &["object", "list", "--held"]).good();
    assert!(table.contains("order:2") && table.contains("not today"), "{table}");
    let logs = server.run(path, &["event", "deliveries", "1", "--logs", "order.paid.invoice"]).good();
    assert!(logs.contains("error  not today"), "{logs}");
    std::fs::remove_file(path.join("refuse")).unwrap();
    let told = server.run(path, &["object", "retry", "order:1"]).good();
    assert!(told.contains("order.paid.invoice runs event 1 again"), "{told}");
    until(|| (state(&place, path, &second, "order.paid.invoice") == "done").then_some(()));
    server.run(path, &["event", "skip", &third, "--handler", "order.paid.invoice", "--json"]).json();
    until(|| (state(&place, path, &fourth, "order.paid.invoice") == "done").then_some(()));
    assert_eq!(state(&place, path, &third, "order.paid.invoice"), "skipped");
    assert!(server.run(path, &["object", "list", "--held"]).good().contains("nothing is held"));
    assert!(server.run(path, &["object", "skip", "order:2"]).bad().contains("nothing of"));
}

/// A range is run again by the server, or by whoever works next on a store that was told so.
#[test]
fn a_handler_runs_a_part_of_the_log_again() {
    let folder = folder(CONFIG);
    let path = folder.path();
    let server = Server::start(path);
    for _ in 0..3 {
        server.run(path, &["publish", "order.paid", "--object", "order:1"]).good();
    }
    let seqs = || given(path).iter().map(|event| event["seq"].as_u64().unwrap()).collect::<Vec<_>>();
    let through = |expected: &[u64]| {
        until(|| {
            let group = server.run(path, &["group", "show", "order.paid.invoice", "--json"]).json();
            (seqs() == expected && group["lag"] == 0 && group["lanes"] == 0).then_some(())
        });
    };
    through(&[1, 2, 3]);
    let replay = |more: &[&str]| server.run(path, &[&["group", "replay", "order.paid.invoice"], more].concat());
    let told = replay(&["--from", "1", "--to", "2"]).good();
    assert!(told.contains("order.paid.invoice runs seq 1 to 2 again"), "{told}");
    through(&[1, 2, 3, 1, 2]);
    // To the newest, unless told.
    assert_eq!(replay(&["--from", "3", "--json"]).json()["kind"], "handler");
    through(&[1, 2, 3, 1, 2, 3]);
    assert!(replay(&["--from", "3", "--to", "9"]).bad().contains("newest"));
    assert!(server.terminate().success());

    let store = Place::Store("sqlite:ensue.db".into());
    store.run(path, &["group", "replay", "order.paid.invoice", "--from", "2", "--to", "2"]).good();
    run(path, &["work", "--drain", "--store", "sqlite:ensue.db"]).good();
    assert_eq!(seqs(), [1, 2, 3, 1, 2, 3, 2]);
}

/// What runs is waited for, what has not begun is done by the next server, and nothing is done twice.
#[test]
fn a_server_that_stops_lets_handlers_finish_and_loses_nothing() {
    let folder = folder(CONFIG);
    let path = folder.path();
    let mut server = Server::start(path);
    server.run(path, &["publish", "order.slow", "--object", "order:1"]).good();
    until(|| path.join("begun").exists().then_some(()));
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    assert!(path.join("done").exists());
    for name in ["begun", "done"] {
        std::fs::remove_file(path.join(name)).unwrap();
    }
    let store = ["--store", "ensue.db"];
    let show = |arguments: &[&str]| run(path, &[arguments, &store].concat());
    let place = Place::Store("ensue.db".into());
    assert_eq!(state(&place, path, "1", "order.slow"), "done");
    assert!(show(&["handler", "list"]).good().contains("orphaned"));
    show(&["publish", "order.paid", "--object", "order:1"]).good();
    assert_eq!(state(&place, path, "2", "order.paid.invoice"), "pending");
    let server = Server::start(path);
    until(|| (given(path).len() == 1).then_some(()));
    assert!(server.terminate().success());
    assert!(!path.join("begun").exists(), "it was done already");
    assert_eq!(given(path)[0]["seq"], 2);
}

#[test]
fn what_does_not_finish_in_time_is_ended_and_run_again() {
    let config =
        "drain_max: 1s\nhandlers:\n  t:\n  - { name: h, command: [sh, -c, 'echo $$ >> begun; exec sleep 600'] }\n";
    let folder = folder(config);
    let path = folder.path();
    let mut server = Server::start(path);
    server.run(path, &["publish", "t.x"]).good();
    let pid = until(|| std::fs::read_to_string(path.join("begun")).ok().filter(|text| text.ends_with('\n')));
    server.signal("TERM");
    assert_eq!(server.wait().code(), Some(0));
    assert!(!Path::new(&format!("/proc/{}", pid.trim())).exists(), "{pid} is still there");
    let held = run(path, &["object", "list", "--held", "--json", "--store", "ensue.db"]).json();
    assert_eq!(held["objects"], serde_json::json!([]), "no attempt was used up");
    let _server = Server::start(path);
    until(|| (std::fs::read_to_string(path.join("begun")).unwrap().lines().count() == 2).then_some(()));
}

#[test]
fn work_handles_what_there_is_and_ends() {
    let folder = folder(CONFIG);
    let path = folder.path();
    let publish =
        |topic: &str| run(path, &["publish", topic, "--object", "o", "--store", "ensue.db", "--create"]).good();
    // The handlers begin when they are first run.
    let none = run(path, &["work", "--drain", "--json"]).json();
    assert_eq!((&none["done"], &none["failed"]), (&0.into(), &0.into()));
    (0..5).for_each(|_| drop(publish("order.paid")));
    let some = run(path, &["work", "--max-events", "2", "--json"]).json();
    assert_eq!((&some["done"], given(path).len()), (&2.into(), 2), "{some}");
    let rest = run(path, &["work", "--drain"]).good();
    assert!(rest.contains("3 done, 0 failed"), "{rest}");
    let seqs: Vec<u64> = given(path).iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seqs, [1, 2, 3, 4, 5]);
    let begun = Instant::now();
    assert!(run(path, &["work", "--ttl", "300ms"]).good().contains("its time is up"));
    assert!(begun.elapsed() >= Duration::from_millis(300));
}

/// On Postgres a handler has many slots, and several processes may work beside each other.
#[test]
fn the_same_on_postgres() {
    let folder = folder(CONFIG);
    let path = folder.path();
    let (url, _) = ensue_conformance::postgres::fresh_schema("cli");
    let place = Place::Store(url.clone());
    let work = |arguments: &[&str]| run(path, &[&["work", "--store", &url, "--json"], arguments].concat()).json();
    assert_eq!(work(&["--drain"])["done"], 0);
    for object in ["a", "b", "c"] {
        place.run(path, &["publish", "order.paid", "--object", object]).good();
        place.run(path, &["publish", "order.paid"]).good();
    }
    assert_eq!(state(&place, path, "1", "order.paid.invoice"), "pending");
    assert_eq!(work(&["--drain"])["done"], 6);
    for seq in ["1", "2", "6"] {
        assert_eq!(state(&place, path, seq, "order.paid.invoice"), "done");
    }
    std::fs::write(path.join("refuse"), "").unwrap();
    place.run(path, &["publish", "order.paid", "--object", "a"]).good();
    place.run(path, &["publish", "order.paid"]).good();
    let failed = work(&["--drain"]);
    assert_eq!((&failed["done"], &failed["failed"]), (&0.into(), &2.into()));
    let held = place.run(path, &["object", "list", "--held", "--json"]).json();
    let mut seqs: Vec<u64> =
        held["objects"].as_array().unwrap().iter().filter_map(|lane| lane["seq"].as_u64()).collect();
    seqs.sort_unstable();
    assert_eq!(seqs, [7, 8]);
    assert_eq!(state(&place, path, "7", "order.paid.invoice"), "held");
    std::fs::remove_file(path.join("refuse")).unwrap();
    place.run(path, &["object", "retry", "a"]).good();
    place.run(path, &["event", "skip", "8"]).good();
    assert_eq!(work(&["--drain"])["done"], 1);
    assert_eq!(state(&place, path, "7", "order.paid.invoice"), "done");
    assert_eq!(state(&place, path, "8", "order.paid.invoice"), "skipped");
    let listed = place.run(path, &["handler", "list", "--json"]).json();
    assert_eq!(
        (&listed["handlers"][0]["key"], &listed["handlers"][0]["lag"]),
        (&"order.paid.invoice".into(), &0.into())
    );
}

#[test]
fn a_second_worker_on_sqlite_is_told_who_has_the_file() {
    let folder = folder(CONFIG);
    let server = Server::start(folder.path());
    let told = run(folder.path(), &["work", "--drain"]).bad();
    assert!(told.contains(&format!("process {}", server.pid())), "{told}");
}

#[test]
fn work_ends_when_it_is_told_to() {
    let folder = folder(CONFIG);
    let path = folder.path();
    run(path, &["work", "--drain"]).good();
    run(path, &["publish", "order.slow", "--store", "ensue.db"]).good();
    let mut command = ensue(path, &["work"]);
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    until(|| path.join("begun").exists().then_some(()));
    ensue_conformance::postgres::signal("TERM", child.id());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert!(path.join("done").exists());
}

#[test]
fn config_check_finds_what_serve_would_refuse() {
    let folder = folder(CONFIG);
    let path = folder.path();
    let table = run(path, &["config", "check"]).good();
    assert!(table.contains("order.paid.invoice: command ./invoice.sh"), "{table}");
    let merged = run(path, &["config", "check", "--json"]).json();
    assert_eq!(merged["settings"]["handlers"], serde_json::json!(["order.paid.invoice", "order.slow"]));
    assert_eq!(merged["settings"]["drain_max"], "30s");
    for (text, told) in [
        ("handlers:\n  a:\n  - { name: b, comand: [x] }\n", "bad.yaml:3:16: unknown field `comand`"),
        ("handlers:\n  a:\n  - in_rust\n", "bad.yaml:3:5: `handlers.a[0]"),
        ("handlers:\n  a:\n  - { name: b, command: [x], where: 1 + }\n", "bad.yaml:3:37: `handlers.a[0].where`"),
        (
            "handlers:\n  a:\n  - { name: b, pull: true, command: [x] }\n",
            "bad.yaml:3:22: `handlers.a[0].pull` stands beside a `command`",
        ),
        ("workers: 0\n", "bad.yaml:1:10: `workers` is 0"),
        ("webhooks: { allow_private: [here] }\n", "bad.yaml:1:29"),
        ("history: { count: many }\n", "bad.yaml:1:19"),
    ] {
        std::fs::write(path.join("bad.yaml"), text).unwrap();
        let refusal = run(path, &["config", "check", "bad.yaml"]).bad();
        assert!(refusal.contains(told), "{text}: {refusal}");
        let served = Run::of(&mut ensue(path, &["serve", "--config", "bad.yaml", "--listen", "127.0.0.1:0"])).bad();
        assert!(served.contains(told), "{text}: {served}");
    }
}

/// `ensue publish --wait` tells the outcome of each sync handler, and fails unless all are done.
#[test]
fn publish_waits_for_sync_handlers_and_tells_the_outcome_of_each() {
    let config = "\
handlers:
  order.paid:
    - { name: invoice, command: [./invoice.sh], mode: sync, retry: { attempts_max: 1 } }
";
    let folder = folder(config);
    let server = Server::start(folder.path());
    let publish = |object: &str| {
        let args = ["publish", "order.paid", "--object", object, "--payload", "7", "--wait", "55s"];
        server.run(folder.path(), &args)
    };
    let done = publish("order:1").good();
    assert!(done.contains("order.paid.invoice: done"), "{done}");
    std::fs::write(folder.path().join("refuse"), "").unwrap();
    let blocked = publish("order:2");
    assert_eq!(blocked.code, Some(1));
    assert!(blocked.stdout.contains("order.paid.invoice: blocked (event 2): "), "{}", blocked.stdout);
    assert!(blocked.stdout.contains("not today"), "{}", blocked.stdout);
}
