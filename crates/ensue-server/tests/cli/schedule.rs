//! Schedules on the command line: from a server and on a store itself, with the same answers.

use crate::support::{Server, ensue, everywhere, run};
use serde_json::json;
use std::time::{Duration, Instant};

#[test]
fn a_schedule_is_set_shown_run_held_and_deleted() {
    everywhere(|folder, place| {
        place.run(folder, &["publish", "first"]).good();
        let cron =
            ["schedule", "set", "nightly", "--cron", "30 2 * * *", "--timezone", "Europe/Berlin", "--topic", "report"];
        let set = place.run(folder, &cron).good();
        assert!(set.contains("At 02:30 (Europe/Berlin)") && set.matches("fires next").count() == 5, "{set}");
        let every = [
            "schedule",
            "set",
            "sweep",
            "--every",
            "5m",
            "--handler",
            "sweep.run",
            "--payload",
            "{\"a\": 1}",
            "--json",
        ];
        let set = place.run(folder, &every).json();
        assert_eq!((&set["overlap"], &set["payload"]["a"]), (&"skip".into(), &1.into()));
        let list = place.run(folder, &["schedule", "list"]).good();
        assert!(list.contains("nightly") && list.contains("Every 5m") && list.contains("sweep.run"), "{list}");
        let run = place.run(folder, &["schedule", "run", "sweep"]).good();
        assert!(run.contains(" job "), "{run}");
        let again = place.run(folder, &["schedule", "run", "sweep"]).good();
        assert!(again.contains("was not over"), "{again}");
        let shown = place.run(folder, &["schedule", "show", "sweep"]).good();
        assert!(shown.contains("overlapped") && shown.contains("  job "), "{shown}");
        let waits = place.run(folder, &["explain", "schedule:nightly"]).good();
        assert!(waits.starts_with("schedule nightly: waiting"), "{waits}");
        place.run(folder, &["pause", "schedule:nightly"]).good();
        assert!(place.run(folder, &["explain", "schedule:nightly"]).good().contains("ensue resume schedule:nightly"));
        assert_eq!(place.run(folder, &["schedule", "run", "nightly"]).code, Some(4));
        let odd = ["schedule", "set", "odd", "--cron", "0/1 * 0 ? * * *", "--topic", "t"];
        assert!(place.run(folder, &odd).good().contains("warning: "));
        let bad = place.run(folder, &["schedule", "set", "bad", "--cron", "99 * * * *", "--topic", "t"]);
        assert!(bad.code == Some(4) && bad.stderr.contains("`99` as its minute"), "{bad:?}");
        place.run(folder, &["schedule", "delete", "odd"]).good();
        assert_eq!(place.run(folder, &["schedule", "show", "odd"]).code, Some(3));
    });
}

/// What the config file declares is made at the start, and goes with its entry; what was made over the API stays.
#[test]
fn schedules_of_the_config_file_come_and_go_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let write = |schedules: &str| {
        let config = format!("store: sqlite:e.db\nlisten: 127.0.0.1:0\nschedules:\n{schedules}");
        std::fs::write(folder.join("ensue.yaml"), config).unwrap();
    };
    write("  a: { every: 1s, topic: tick }\n  b: { cron: '@yearly', topic: t }\n");
    let server = Server::start_with(&mut ensue(folder, &["serve"]), folder);
    server.run(folder, &["schedule", "set", "mine", "--cron", "@yearly", "--topic", "t"]).good();
    let refused = server.run(folder, &["schedule", "delete", "a"]);
    assert!(refused.code == Some(4) && refused.stderr.contains("declared by config"), "{refused:?}");
    let begun = Instant::now();
    while !server.run(folder, &["schedule", "show", "a"]).good().contains("  event ") {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not fire");
    }
    let names = |server: &Server| -> Vec<String> {
        let list = server.run(folder, &["schedule", "list", "--json"]).json();
        list["schedules"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap().to_owned()).collect()
    };
    assert!(server.terminate().success());
    let server = Server::start_with(&mut ensue(folder, &["serve"]), folder);
    assert_eq!(names(&server), ["a", "b", "mine"]);
    write("  c: { cron: '@yearly', topic: t }\n");
    server.signal("HUP");
    let begun = Instant::now();
    while names(&server) != ["c", "mine"] {
        assert!(begun.elapsed() < Duration::from_secs(60), "it is not read again, or what is taken out does not go");
    }
    write("  a: { every: 1s, topic: tick }\n");
    server.signal("HUP");
    let begun = Instant::now();
    while names(&server) != ["a", "mine"] {
        assert!(begun.elapsed() < Duration::from_secs(60), "what is taken out does not go");
    }
    assert!(server.terminate().success());
    write("  a: { cron: 'x', topic: tick }\n");
    let check = crate::support::run(folder, &["config", "check"]);
    assert!(check.code == Some(1) && check.stderr.contains("ensue.yaml:4:6: schedule `a`: `cron`"), "{check:?}");
}

#[test]
fn config_check_shows_when_schedules_fire_and_what_tasks_are_of() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let config = "sources:\n  github:\n    collections:\n    - { name: issues, command: [sh], schedule: '0 0 12 1 1 ? 2999' }\n    \
                  - { name: pulls, command: [sh] }\nschedules:\n  late: { cron: '0 0 0 1 1 ? 2020', topic: t }\n  \
                  nightly: { cron: '30 2 1 1 *', timezone: Europe/Berlin, topic: report }\n";
    std::fs::write(folder.join("ensue.yaml"), config).unwrap();
    let table = run(folder, &["config", "check"]).good();
    for told in [
        "github.issues: At 12:00, on day 1, in January, in 2999 (UTC), next 2999-01-01 12:00:00 UTC: job for task.github.issues",
        "nightly: At 02:30, on day 1, in January (Europe/Berlin), next 20",
        "-01-01 02:30:00 CET: event report  (ensue.yaml)",
        "late: At 00:00, on day 1, in January, in 2020 (UTC), never again: event t",
    ] {
        assert!(table.contains(told), "{told} is not in\n{table}");
    }
    let settings = &run(folder, &["config", "check", "--json"]).json()["settings"];
    assert_eq!(settings["sources"], json!([{ "name": "github", "collections": ["issues", "pulls"] }]));
    let issues = &settings["schedules"][2];
    assert_eq!((&issues["name"], &issues["next"]), (&json!("github.issues"), &json!("2999-01-01T12:00:00Z")));
    assert_eq!((&issues["handler"], &issues["topic"]), (&json!("task.github.issues"), &json!(null)));
}

/// Without a server the schedules of the file are declared, too, and what is due by then fires before it ends.
#[test]
fn work_declares_and_fires_the_schedules_of_its_config_file() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let config = "store: sqlite:e.db\nschedules:\n  tick: { every: 1s, topic: tick }\n";
    std::fs::write(folder.join("ensue.yaml"), config).unwrap();
    run(folder, &["work", "--drain"]).good();
    let list = run(folder, &["schedule", "list", "--store", "e.db"]).good();
    assert!(list.contains("tick") && list.contains("Every 1s"), "{list}");
    let begun = Instant::now();
    while !run(folder, &["schedule", "show", "tick", "--store", "e.db"]).good().contains("  event ") {
        assert!(begun.elapsed() < Duration::from_secs(60), "it does not fire");
        run(folder, &["work", "--drain"]).good();
    }
}
