//! Does the private Postgres do what its users rely on?

use ensue_conformance::postgres::{PrivatePostgres, signal};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

/// Opens a connection as a client does (protocol 3.0, trust) and returns what the server answers first: `R` is a
/// welcome, `E` a refusal.
fn answer_to_a_client(url: &str) -> std::io::Result<u8> {
    let address = url.split(['@', '/']).nth(3).expect("postgres://user@address/database");
    let mut connection = TcpStream::connect(address)?;
    let mut message = vec![0, 0, 0, 0, 0, 3, 0, 0];
    message.extend(b"user\0ensue\0database\0postgres\0\0");
    let length = u32::try_from(message.len()).expect("short");
    message[..4].copy_from_slice(&length.to_be_bytes());
    connection.write_all(&message)?;
    let mut kind = [0];
    connection.read_exact(&mut kind)?;
    Ok(kind[0])
}

/// The process id that the lock file in a server's folder names.
fn locked_by(server: &PrivatePostgres) -> Option<u32> {
    fs::read_to_string(server.folder().join("data/postmaster.pid")).ok()?.lines().next()?.parse().ok()
}

/// Killed in the middle of its life with a client connected, the server comes back on the same port and data.
#[test]
fn a_killed_server_comes_back_on_its_port() {
    let mut server = PrivatePostgres::start().unwrap();
    let url = server.url();
    assert_eq!(answer_to_a_client(&url).unwrap(), b'R');
    let before = server.pid().unwrap();
    assert_eq!(locked_by(&server), Some(before), "the postmaster is our own child, so that it can be killed by its id");

    server.kill9().unwrap();
    assert!(answer_to_a_client(&url).is_err(), "a killed server answers nobody");
    assert!(server.folder().join("data/postmaster.pid").exists(), "killed, not shut down");

    server.restart().unwrap();
    assert_eq!(server.url(), url);
    assert_ne!(server.pid().unwrap(), before);
    assert_eq!(answer_to_a_client(&url).unwrap(), b'R');

    server.stop().unwrap();
    assert!(answer_to_a_client(&url).is_err(), "a stopped server answers nobody");
    assert!(!server.folder().join("data/postmaster.pid").exists(), "shut down, not killed");
    server.restart().unwrap();
    assert_eq!(answer_to_a_client(&url).unwrap(), b'R');
}

/// Several test binaries start their servers at the same moment: each gets a port of its own.
#[test]
fn servers_started_at_once_do_not_meet() {
    let starts: Vec<_> = (0..3).map(|_| std::thread::spawn(PrivatePostgres::start)).collect();
    let servers: Vec<_> = starts.into_iter().map(|start| start.join().unwrap().unwrap()).collect();
    let mut urls: Vec<_> = servers.iter().map(PrivatePostgres::url).collect();
    assert!(urls.iter().all(|url| answer_to_a_client(url).unwrap() == b'R'));
    urls.sort();
    urls.dedup();
    assert_eq!(urls.len(), 3);
    let folders: Vec<_> = servers.iter().map(|server| server.folder().to_path_buf()).collect();
    drop(servers);
    assert!(folders.iter().all(|folder| !folder.exists()), "nothing is left behind");
}

/// A command run by `with-postgres` sees the address, and its exit code is handed on.
#[test]
fn with_postgres_runs_a_command_and_hands_its_code_on() {
    let run = |script: &str| {
        let program = env!("CARGO_BIN_EXE_with-postgres");
        Command::new(program).args(["sh", "-c", script]).output().unwrap()
    };
    let output = run("echo $ENSUE_TEST_POSTGRES; exit 7");
    assert_eq!(output.status.code(), Some(7));
    let url = String::from_utf8(output.stdout).unwrap();
    assert!(url.starts_with("postgres://ensue@127.0.0.1:"), "{url}");
    assert!(answer_to_a_client(url.trim()).is_err(), "the server is gone with the command");
}

/// The run is interrupted: the command is told, and the server does not outlive it.
#[test]
fn with_postgres_stops_the_server_when_it_is_told_to_end() {
    let mut run = Command::new(env!("CARGO_BIN_EXE_with-postgres"))
        .args(["sh", "-c", "echo $ENSUE_TEST_POSTGRES; exec sleep 600"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut url = String::new();
    BufReader::new(run.stdout.take().unwrap()).read_line(&mut url).unwrap();
    assert_eq!(answer_to_a_client(url.trim()).unwrap(), b'R');
    signal("TERM", run.id());
    assert_eq!(run.wait().unwrap().code(), Some(128 + 15), "as a shell tells it");
    assert!(answer_to_a_client(url.trim()).is_err(), "the server is gone with the command");
}
