//! Does the server begin and end as a user expects?

use crate::support::{Lines, Run, Server, ensue, run};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Stdio;

#[test]
fn a_server_tells_its_address_first_and_keeps_events_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    assert!(server.url.starts_with("http://127.0.0.1:"), "{}", server.url);
    server.run(folder.path(), &["publish", "a.b"]).good();
    assert!(server.terminate().success());
    assert!(folder.path().join("ensue.db").exists());
    let server = Server::start(folder.path());
    assert_eq!(server.run(folder.path(), &["event", "show", "1", "--json"]).json()["topic"], "a.b");
    let log = std::fs::read_to_string(folder.path().join("serve.log")).unwrap();
    assert!(
        log.contains("1 event, seq 1 to 1") && log.contains("(sqlite)") && log.contains("no token needed"),
        "{log}"
    );
}

#[test]
fn sigterm_and_sigint_finish_what_is_under_way_and_exit_with_0() {
    for signal in ["TERM", "INT"] {
        let folder = tempfile::tempdir().unwrap();
        let mut server = Server::start(folder.path());
        let address = server.url.strip_prefix("http://").unwrap().to_string();
        // A request whose body comes in two halves, with the signal between them.
        let body = r#"{"topic":"under.way"}"#;
        let (first, second) = body.split_at(5);
        let mut request = TcpStream::connect(&address).unwrap();
        let head = format!(
            "POST /v1/events HTTP/1.1\r\nhost: {address}\r\nexpect: 100-continue\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        request.write_all(head.as_bytes()).unwrap();
        // The server asks for the body only once it has begun to answer the request.
        let mut go_on = [0; 25];
        request.read_exact(&mut go_on).unwrap();
        assert_eq!(&go_on[..12], b"HTTP/1.1 100");
        request.write_all(first.as_bytes()).unwrap();
        let stream = Lines::of(
            ensue(folder.path(), &["tail", "--from-beginning", "--limit", "1"]).env("ENSUE_URL", &server.url),
        );
        server.run(folder.path(), &["publish", "before"]).good();
        assert!(stream.next().contains("before"));
        server.signal(signal);
        request.write_all(second.as_bytes()).unwrap();
        let mut answer = String::new();
        request.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
        assert_eq!(server.wait().code(), Some(0), "after SIG{signal}");
        let show = ["event", "show", "2", "--json", "--store", "ensue.db"];
        assert_eq!(run(folder.path(), &show).json()["topic"], "under.way");
    }
}

#[test]
fn an_open_stream_does_not_hold_up_the_end() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    server.run(folder.path(), &["publish", "a"]).good();
    let stream = Lines::of(ensue(folder.path(), &["tail", "--from-beginning"]).env("ENSUE_URL", &server.url));
    assert!(stream.next().contains("a"));
    assert!(server.terminate().success());
    // Nothing was waited for, and nothing cut off.
    let log = std::fs::read_to_string(folder.path().join("serve.log")).unwrap();
    assert!(log.contains("stopped") && !log.contains("still under way"), "{log}");
}

/// S5: binding an address that others can reach, without a token.
#[test]
fn an_address_that_others_can_reach_needs_a_token() {
    let folder = tempfile::tempdir().unwrap();
    for address in ["0.0.0.0:0", "[::]:0"] {
        let error = run(folder.path(), &["serve", "--dev", "--listen", address]).bad();
        assert!(error.contains(address) && error.contains("ENSUE_TOKEN") && error.contains("--token-file"), "{error}");
    }
    assert!(!folder.path().join("ensue.db").exists());
    let mut command = ensue(folder.path(), &["serve", "--dev", "--listen", "0.0.0.0:0"]);
    let server =
        Server::start_with(command.env("ENSUE_TOKEN", "canary-token-of-the-test-that-is-long-enough"), folder.path());
    let url = server.url.replace("0.0.0.0", "127.0.0.1");
    let refused = run(folder.path(), &["publish", "a", "--url", &url]).bad();
    assert!(refused.contains("wants a token") && refused.contains("--token, ENSUE_TOKEN"), "{refused}");
    let wrong = run(folder.path(), &["publish", "a", "--url", &url, "--token", "another-canary"]).bad();
    assert!(wrong.contains("does not know this token") && !wrong.contains("canary"), "{wrong}");
    run(folder.path(), &["publish", "a", "--url", &url, "--token", "canary-token-of-the-test-that-is-long-enough"])
        .good();
    // S7: nobody finds the token in what the server wrote.
    let log = std::fs::read_to_string(folder.path().join("serve.log")).unwrap();
    assert!(log.contains("needs a token") && !log.contains("canary"), "{log}");
}

#[test]
fn every_token_of_a_file_opens_the_server() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokens"), "# ours\nfirst-token-of-two-1234\ndeploy second-token-of-two-1234\n")
        .unwrap();
    let mut command = ensue(folder.path(), &["serve", "--dev", "--listen", "127.0.0.1:0", "--token-file", "tokens"]);
    let server = Server::start_with(&mut command, folder.path());
    for token in ["first-token-of-two-1234", "second-token-of-two-1234"] {
        Run::of(ensue(folder.path(), &["publish", "a", "--url", &server.url]).env("ENSUE_TOKEN", token)).good();
    }
    for token in ["deploy", "# ours", "first-token-of-two-123"] {
        run(folder.path(), &["publish", "a", "--url", &server.url, "--token", token]).bad();
    }
}

#[test]
fn dev_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = ensue(folder.path(), &["serve", "--dev", "--listen", "127.0.0.1:0"]);
    let server = Server::start_with(&mut command, folder.path());
    server.run(folder.path(), &["publish", "a"]).good();
    assert!(server.terminate().success());
    let left: Vec<_> = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["serve.log"]);
}

/// H33: a second process that would write the same file.
#[test]
fn a_second_writer_is_told_who_the_first_is() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let first = format!("process {}", server.pid());
    for arguments in [&["serve", "--listen", "127.0.0.1:0"][..], &["publish", "a", "--store", "sqlite:ensue.db"]] {
        let error = run(folder.path(), arguments).bad();
        assert!(error.contains(&first), "{error}");
    }
    // Looking is allowed.
    run(folder.path(), &["verify", "--store", "sqlite:ensue.db"]).good();
}

/// H33: hard links have lock files of their own, and a lock file may be deleted.
#[test]
fn second_server_is_refused_under_every_name_of_the_database() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let server = Server::start(folder.path());
    server.run(folder.path(), &["publish", "a"]).good();
    std::fs::create_dir(at("elsewhere")).unwrap();
    std::fs::hard_link(at("ensue.db"), at("elsewhere/hard.db")).unwrap();
    std::os::unix::fs::symlink(at("ensue.db"), at("soft.db")).unwrap();
    let refused = |store: &str| {
        let error = run(folder.path(), &["serve", "--listen", "127.0.0.1:0", "--store", store]).bad();
        assert!(error.contains("in use by"), "{store}: {error}");
    };
    let names = ["sqlite:elsewhere/hard.db", "sqlite:soft.db", "sqlite:ensue.db"];
    names.into_iter().for_each(refused);
    std::fs::remove_file(at("ensue.db.lock")).unwrap();
    names.into_iter().for_each(refused);
    server.run(folder.path(), &["publish", "a"]).good();
    assert!(server.terminate().success());
    let store = "sqlite:elsewhere/hard.db";
    run(folder.path(), &["publish", "a", "--store", store]).good();
    assert_eq!(run(folder.path(), &["event", "show", "3", "--store", store, "--json"]).json()["topic"], "a");
}

#[test]
fn a_taken_port_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let address = server.url.strip_prefix("http://").unwrap();
    let error = run(folder.path(), &["serve", "--dev", "--listen", address]).bad();
    assert!(error.contains(address) && error.contains("--listen"), "{error}");
    let error = run(folder.path(), &["serve", "--dev", "--listen", "nonsense"]).bad();
    assert!(error.contains("127.0.0.1:4747"), "{error}");
}

#[test]
fn output_that_nobody_reads_any_more_is_no_failure() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    server.run(folder.path(), &["publish", "a"]).good();
    let mut command = ensue(folder.path(), &["tail", "--from-beginning"]);
    let mut child =
        command.env("ENSUE_URL", &server.url).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The reader goes away before the first line can have been written: the next line meets a closed pipe.
    drop(child.stdout.take());
    server.run(folder.path(), &["publish", "b"]).good();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}
