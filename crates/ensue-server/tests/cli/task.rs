//! Tasks from the command line, and what is left of them when a server is killed.

use crate::support::{Lines, PATIENCE, Server, ensue, run};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// A server with the source `s`, whose collections run these scripts.
fn server(folder: &Path, collections: &[(&str, &str, &str)]) -> Server {
    let mut text = "sources:\n  s:\n    collections:\n".to_owned();
    for (name, script, more) in collections {
        std::fs::write(folder.join(format!("{name}.sh")), script).unwrap();
        text.push_str(&format!("    - {{ name: {name}, command: [sh, ./{name}.sh], {more} }}\n"));
    }
    std::fs::write(folder.join("ensue.yaml"), text).unwrap();
    Server::start(folder)
}

fn until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "it never came about: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn show(server: &Server, folder: &Path, id: &str) -> Value {
    server.run(folder, &["task", "show", id, "--json"]).json()
}

#[test]
fn a_task_is_run_and_followed_to_its_end_and_its_status_is_the_exit_code() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let good = "echo begun\necho ::progress 40 of 100 rows\nwhile ! [ -e go ]; do sleep 0.05; done\necho done";
    let server = server(folder, &[("good", good, ""), ("bad", "echo oh >&2; exit 3", "")]);
    let following = Lines::of(ensue(folder, &["task", "run", "s", "good"]).env("ENSUE_URL", &server.url));
    // While it runs.
    assert!(following.next().ends_with("  info   begun"), "it is followed live");
    let listed = server.run(folder, &["task", "list", "s", "--status", "RUNNING", "--json"]).json();
    let id = listed["tasks"][0]["id"].as_str().unwrap().to_owned();
    let table = until("progress", || {
        Some(server.run(folder, &["task", "list", "s", "--collection", "good"]).good())
            .filter(|table| table.contains("40 of 100 rows"))
    });
    assert!(table.contains(&id) && table.contains("RUNNING"), "{table}");
    let again = server.run(folder, &["task", "run", "s", "good", "--detach"]).good();
    assert_eq!(again.trim(), id, "one at a time");
    std::fs::write(folder.join("go"), "").unwrap();
    assert!(following.next().ends_with("  info   done"));
    until("its end", || Some(show(&server, folder, &id)).filter(|task| task["status"] == "SUCCESS"));

    let followed = server.run(folder, &["task", "run", "s", "good", "--json"]);
    assert_eq!(followed.code, Some(0), "{followed:?}");
    let lines: Vec<Value> = followed.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!((&lines[0]["message"], &lines[0]["level"]), (&json!("begun"), &json!("info")));
    assert_eq!((lines.len(), &lines[2]["status"]), (3, &json!("SUCCESS")));
    let failed = server.run(folder, &["task", "run", "s", "bad"]);
    assert_eq!(failed.code, Some(1), "{failed:?}");
    assert!(failed.stdout.contains("  error  oh") && failed.stdout.contains("exit code 3"), "{failed:?}");
    assert!(failed.stderr.contains("is FAILED"), "{failed:?}");

    let shown = server.run(folder, &["task", "show", &id]).good();
    assert!(shown.contains("SUCCESS") && shown.contains("40 of 100 rows"), "{shown}");
    let said = server.run(folder, &["task", "logs", &id, "--follow"]).good();
    assert_eq!(said.lines().count(), 2, "{said}");
    let later = server.run(folder, &["task", "logs", &id, "--start", "2999-01-01T00:00:00Z"]).good();
    assert_eq!(later, "");
    // Without a server, too.
    let failed =
        run(folder, &["task", "list", "s", "--status", "FAILED", "--json", "--store", "sqlite:ensue.db"]).json();
    let bad = failed["tasks"][0]["id"].as_str().unwrap();
    assert!(run(folder, &["task", "show", bad, "--store", "sqlite:ensue.db"]).good().contains("exit code 3: oh"));
    for (arguments, told) in [
        (&["task", "run", "x", "good"][..], "no source \"x\""),
        (&["task", "run", "s", "x"], "it has: good, bad"),
        (&["task", "run", "s", "good", "--store", "sqlite:ensue.db"], "run by a server"),
        (&["task", "show", "s_good_x"], "there is no task"),
        (&["task", "logs", "x"], "there is no task"),
        (&["task", "cancel", &id], "succeeded already"),
        (&["task", "list", "x"], "no source \"x\""),
    ] {
        let refused = server.run(folder, arguments).bad();
        assert!(refused.contains(told), "{arguments:?}: {refused}");
    }
}

#[test]
fn a_task_that_runs_is_called_off() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let server = server(folder, &[("long", "echo begun\nsleep 600", "")]);
    let mut following = ensue(folder, &["task", "run", "s", "long"]);
    let following = std::thread::spawn({
        following.env("ENSUE_URL", &server.url);
        move || following.output().unwrap()
    });
    let id = until("it runs", || {
        let listed = server.run(folder, &["task", "list", "s", "--status", "RUNNING", "--json"]);
        serde_json::from_str::<Value>(&listed.stdout).ok()?["tasks"][0]["id"].as_str().map(str::to_owned)
    });
    server.run(folder, &["task", "cancel", &id]).good();
    let followed = following.join().unwrap();
    assert_eq!(followed.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&followed.stderr).contains("is CANCELED"), "{followed:?}");
    assert_eq!(show(&server, folder, &id)["status"], "CANCELED");
    // Its log says why it ended, below what it had said.
    let log = server.run(folder, &["task", "logs", &id]).good();
    let lines: Vec<&str> = log.lines().collect();
    assert!(lines.len() == 2 && lines[0].contains("begun") && lines[1].contains("called off"), "{log}");
}

/// What is written into the config file while the server runs is taken over; what runs goes on as it was begun.
#[test]
fn collections_come_and_go_while_the_server_runs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let waits = "echo old\nwhile ! [ -e go ]; do sleep 0.05; done";
    let server = server(folder, &[("a", waits, "")]);
    let id = server.run(folder, &["task", "run", "s", "a", "--detach"]).good().trim().to_owned();
    until("it runs", || Some(show(&server, folder, &id)).filter(|task| task["status"] == "RUNNING"));
    let text = "sources:\n  s:\n    collections:\n    - { name: b, command: [echo, new], priority: 7 }\n";
    std::fs::write(folder.join("ensue.yaml"), text).unwrap();
    server.signal("HUP");
    until("it is read", || {
        std::fs::read_to_string(folder.join("serve.log")).unwrap().contains("tasks of 1 collection").then_some(())
    });
    assert!(server.run(folder, &["task", "run", "s", "a"]).bad().contains("it has: b"));
    let followed = server.run(folder, &["task", "run", "s", "b", "--json"]).good();
    let last: Value = serde_json::from_str(followed.lines().last().unwrap()).unwrap();
    assert_eq!((&last["status"], &last["priority"]), (&json!("SUCCESS"), &json!(1_007)));
    std::fs::write(folder.join("go"), "").unwrap();
    until("it ends", || Some(show(&server, folder, &id)).filter(|task| task["status"] == "SUCCESS"));
}

/// The most memory that a process has had, in KiB.
fn memory_of(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// A million lines: memory stays bounded, what is kept too, and the log says what was cut.
#[test]
fn a_task_that_says_a_million_lines_is_cut_and_costs_no_memory() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let much = "yes 'a line of some length, as programs say them when they are asked to say much' | head -n 1000000";
    let server = server(folder, &[("small", "echo x", ""), ("much", much, "")]);
    server.run(folder, &["task", "run", "s", "small"]).good();
    let (before, begun) = (memory_of(server.pid()), Instant::now());
    server.run(folder, &["task", "run", "s", "much", "--json"]).good();
    let (grown, took) = (memory_of(server.pid()) - before, begun.elapsed());
    assert!(grown < 64 << 10, "{grown} KiB more than the {before} before");
    let listed = server.run(folder, &["task", "list", "s", "--collection", "much", "--json"]).json();
    let id = listed["tasks"][0]["id"].as_str().unwrap();
    let said = server.run(folder, &["task", "logs", id]).good();
    let (count, last) = (said.lines().count(), said.lines().last().unwrap());
    assert!((5_000..=10_000).contains(&count), "{count}: {last}");
    let cut = last.split_once(" more lines were dropped").and_then(|(before, _)| before.split(' ').next_back());
    assert_eq!(cut.map(str::parse), Some(Ok(1_000_000 + 1 - count)), "{last}");
    println!("1,000,000 lines in {took:?}: {before} KiB of memory, then {grown} more; {count} lines are kept");
}

/// H11: a server that is killed leaves its tasks to be found: one has failed, the other is tried again, and both logs say why.
#[test]
fn a_task_whose_server_is_killed_is_found_when_its_lease_has_passed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = "echo begun $ENSUE_ATTEMPT\n[ $ENSUE_ATTEMPT = 2 ] || sleep 600";
    let collections = [("once", script, ""), ("twice", script, "retry: { delays: [0s] }")];
    let first = server(folder, &collections);
    let id = |name: &str| first.run(folder, &["task", "run", "s", name, "--detach"]).good().trim().to_owned();
    let (once, twice) = (id("once"), id("twice"));
    for id in [&once, &twice] {
        until("it says so", || {
            Some(first.run(folder, &["task", "logs", id]).good()).filter(|said| said.contains("begun 1"))
        });
    }
    first.kill9();
    let second = server(folder, &collections);
    until("one has failed", || Some(show(&second, folder, &once)).filter(|task| task["status"] == "FAILED"));
    until("one is done", || Some(show(&second, folder, &twice)).filter(|task| task["status"] == "SUCCESS"));
    for (id, lines) in [(&once, 2), (&twice, 3)] {
        let said = second.run(folder, &["task", "logs", id]).good();
        assert_eq!(said.lines().count(), lines, "{said}");
        assert!(said.lines().nth(1).unwrap().contains("was not heard of before its lease had passed"), "{said}");
    }
    assert_eq!(show(&second, folder, &twice)["attempts"], 2);
}

/// Seed 004: its schedule makes a collection's tasks, one at a time, beside those that somebody asks for.
#[test]
fn a_collection_with_a_schedule_is_brought_up_to_date_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = "while ! [ -e go ]; do sleep 0.05; done";
    let server = server(folder, &[("often", script, "schedule: '* * * * * *', timezone: Europe/Berlin")]);
    let tasks = || server.run(folder, &["task", "list", "s", "--json"]).json()["tasks"].as_array().unwrap().clone();
    let first = until("a task", || tasks().first().cloned());
    assert_eq!(first["priority"], json!(100));
    let id = first["id"].as_str().unwrap();
    let asked = server.run(folder, &["task", "run", "s", "often", "--detach"]).good();
    assert_eq!(asked.trim(), id, "the one that is live is answered");
    let runs = || server.run(folder, &["schedule", "show", "s.often", "--json"]).good();
    until("a time at which one runs still", || runs().contains("overlap").then_some(()));
    assert_eq!(tasks().len(), 1, "one at a time");
    std::fs::write(folder.join("go"), "").unwrap();
    until("the next", || (tasks().len() > 1).then_some(()));
    until("its end", || Some(show(&server, folder, id)).filter(|task| task["status"] == "SUCCESS"));
}

/// H21: a task that is sent straight to a store is one of its collection's, as one that is sent through a server.
#[test]
fn a_job_for_a_collection_that_is_sent_to_a_store_has_the_collections_key() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let text = "sources:\n  s:\n    collections:\n    - { name: c, command: [echo, hi], retry: { attempts_max: 3 } }\n";
    std::fs::write(folder.join("other.yaml"), text).unwrap();
    run(folder, &["publish", "first", "--store", "e.db", "--create"]).good();
    let emit = ["emit", "task.s.c", "--store", "e.db", "--config", "other.yaml"];
    let sent = run(folder, &emit);
    assert!(sent.code == Some(0) && sent.stderr.is_empty(), "{sent:?}");
    assert!(run(folder, &emit).good().starts_with("already there"), "one at a time");
    let every = ["schedule", "set", "mine", "--every", "1h", "--handler", "task.s.c", "--store", "e.db"];
    run(folder, &every).good();
    let fired = run(folder, &["schedule", "run", "mine", "--store", "e.db", "--config", "other.yaml"]).good();
    assert!(fired.contains("was not over"), "{fired}");
    let listed = run(folder, &["job", "list", "--store", "e.db", "--json"]).json();
    assert_eq!((listed["jobs"].as_array().unwrap().len(), &listed["jobs"][0]["attempts_max"]), (1, &json!(3)));
    // Without a file that has it nobody knows, and that is said.
    let unknown = run(folder, &["emit", "task.s.c", "--store", "e.db"]);
    assert!(unknown.code == Some(0) && unknown.stderr.contains("no config file here"), "{unknown:?}");
    assert!(unknown.stderr.contains("--config") && unknown.stdout.starts_with("already there"), "{unknown:?}");
    assert_eq!(run(folder, &["emit", "mail.send", "--store", "e.db"]).stderr, "", "others are not meant");
}
