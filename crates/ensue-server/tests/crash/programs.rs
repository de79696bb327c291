//! Programs that handle events: they end with the server that runs them, and wait for resources.

#![cfg(target_os = "linux")]

use crate::cli_support::{PATIENCE, Server, ensue};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use std::path::Path;
use std::time::{Duration, Instant};

/// Waits for what somebody is to write into a file: whole lines.
fn lines_of(file: &Path, count: usize) -> Vec<String> {
    let begun = Instant::now();
    loop {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let lines: Vec<String> =
            text.split_inclusive('\n').filter(|line| line.ends_with('\n')).map(String::from).collect();
        if lines.len() >= count {
            return lines;
        }
        assert!(begun.elapsed() < PATIENCE, "{} has {} of {count} lines", file.display(), lines.len());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Is there a process with this id that is not only waiting to be buried?
fn is_alive(pid: &str) -> bool {
    let status = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    let state = status.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
    !matches!(state, None | Some("Z" | "X"))
}

/// kill -9 of the server in the middle of an attempt: the program is gone, although it has nothing to do with its stdin and
/// ignores what can be ignored. The next attempt finds nobody beside it.
#[test]
fn a_program_ends_with_a_server_that_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let script =
        "trap '' TERM HUP INT PIPE\necho $$ >> started\nexec <&- >/dev/null 2>&1\nwhile :; do sleep 0.1; done\n";
    std::fs::write(folder.path().join("script.sh"), script).unwrap();
    let config =
        "store: sqlite:e.db\nlisten: 127.0.0.1:0\nhandlers:\n  t:\n  - { name: h, command: [sh, script.sh] }\n";
    std::fs::write(folder.path().join("ensue.yaml"), config).unwrap();
    let started = folder.path().join("started");
    let mut former: Option<String> = None;
    for life in 1..=3 {
        let server = Server::start_with(&mut ensue(folder.path(), &["serve"]), folder.path());
        if life == 1 {
            server.run(folder.path(), &["publish", "t.x", "--object", "o"]).good();
        }
        let pid = lines_of(&started, life)[life - 1].clone();
        assert!(former.is_none_or(|former| !is_alive(&former)), "it runs beside the attempt before");
        assert!(is_alive(&pid));
        server.kill9();
        let begun = Instant::now();
        while is_alive(&pid) {
            assert!(begun.elapsed() < PATIENCE, "the program goes on without its server");
            std::thread::sleep(Duration::from_millis(5));
        }
        former = Some(pid);
    }
}

/// H19: too few descriptors for a program are contention. No attempt is used up, and it runs once there are some.
#[test]
fn program_without_descriptors_uses_no_attempt() {
    let folder = tempfile::tempdir().unwrap();
    let script = "echo $ENSUE_ATTEMPT >> started\n";
    std::fs::write(folder.path().join("script.sh"), script).unwrap();
    let config = "store: sqlite:e.db\nlisten: 127.0.0.1:0\nhandlers:\n  t:\n  - { name: h, command: [sh, script.sh], \
                  retry: { attempts_max: 1 } }\nschedules:\n  tick: { every: 1s, topic: t.x }\n";
    std::fs::write(folder.path().join("ensue.yaml"), config).unwrap();
    let started = folder.path().join("started");
    let server = Server::start_with(&mut ensue(folder.path(), &["serve"]), folder.path());
    lines_of(&started, 1);
    let pid = Pid::from_raw(server.pid().cast_signed());
    let none = Rlimit { current: Some(3), ..getrlimit(Resource::Nofile) };
    let before = prlimit(pid, Resource::Nofile, none).unwrap();
    let log = || std::fs::read_to_string(folder.path().join("serve.log")).unwrap();
    let begun = Instant::now();
    while log().matches("lack of resources").count() < 3 {
        assert!(begun.elapsed() < PATIENCE, "no start failed: {}", log());
        std::thread::sleep(Duration::from_millis(5));
    }
    prlimit(pid, Resource::Nofile, before).unwrap();
    let so_far = std::fs::read_to_string(&started).unwrap().lines().count();
    let lines = lines_of(&started, so_far + 3);
    assert!(lines.iter().all(|line| line == "1\n"), "{lines:?}");
    assert!(!log().contains("attempt failed"), "{}", log());
}
