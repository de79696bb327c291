//! A server that has few file descriptors left.

#![cfg(target_os = "linux")]

use crate::cli_support::{PATIENCE, Server};
use rustix::process::{Pid, Resource, Rlimit, getrlimit, prlimit};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

/// The descriptors that a running server has open.
fn open_files(server: &Server) -> Vec<u64> {
    let folder = std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap();
    let mut open: Vec<u64> =
        folder.map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
    open.sort_unstable();
    open
}

fn limit_files(server: &Server, limit: u64) {
    let process = Pid::from_raw(server.pid().cast_signed());
    // The server has inherited the limit that it cannot exceed.
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = Some(maximum.map_or(limit, |maximum| maximum.min(limit)));
    prlimit(process, Resource::Nofile, Rlimit { current, maximum }).unwrap();
}

/// Leaves a running server so many descriptors.
fn leave_files(server: &Server, count: u64) {
    let open = open_files(server);
    // The lowest free numbers are given out first.
    let free = (0..).filter(|number| open.binary_search(number).is_err());
    limit_files(server, free.take(count as usize).last().map_or(0, |last| last + 1));
}

/// A connection that is kept alive after one answer.
fn kept_alive(server: &Server) -> TcpStream {
    let mut connection = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    connection.set_read_timeout(Some(PATIENCE)).unwrap();
    connection.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = [0; 4_096];
    let length = connection.read(&mut answer).expect("no answer");
    assert!(answer[..length].starts_with(b"HTTP/1.1 200"), "{:?}", String::from_utf8_lossy(&answer[..length]));
    connection
}

/// One idle client used to keep all others waiting, because it held the last descriptor.
#[test]
fn newcomers_are_served_when_idle_connections_hold_the_last_descriptors() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let first = kept_alive(&server);
    leave_files(&server, 2);
    let idle: Vec<TcpStream> = (0..8).map(|_| kept_alive(&server)).collect();
    drop((first, idle));
    limit_files(&server, 65_536);
    assert!(server.terminate().success());
}

/// The limit of connections leaves descriptors to the store.
#[test]
fn server_with_few_descriptors_publishes_and_reads_beside_idle_connections() {
    let folder = tempfile::tempdir().unwrap();
    let serve = ["serve", "--listen", "127.0.0.1:0"];
    let mut limited = Command::new("bash");
    let script = r#"ulimit -n 64; exec "$0" "$@""#;
    limited.args(["-c", script, env!("CARGO_BIN_EXE_ensue")]).args(serve).current_dir(folder.path());
    let server = Server::start_with(&mut limited, folder.path());
    let idle: Vec<TcpStream> = (0..100).map(|_| kept_alive(&server)).collect();
    for _ in 0..10 {
        server.run(folder.path(), &["publish", "a"]).good();
    }
    let events = server.run(folder.path(), &["event", "list", "--json"]).good();
    assert!(!events.is_empty());
    drop(idle);
    assert!(server.terminate().success());
}
