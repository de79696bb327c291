//! Does the server begin and end as a user expects?

mod cli_support;

use cli_support::{Lines, Run, Server, ensue, run};
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
        log.contains("1 events, seq 1 to 1") && log.contains("(sqlite)") && log.contains("no token needed"),
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
    let begun = std::time::Instant::now();
    assert!(server.terminate().success());
    assert!(begun.elapsed().as_secs() < 5, "{:?}", begun.elapsed());
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
    let server = Server::start_with(command.env("ENSUE_TOKEN", "canary-token-of-the-test"), folder.path());
    let url = server.url.replace("0.0.0.0", "127.0.0.1");
    let refused = run(folder.path(), &["publish", "a", "--url", &url]).bad();
    assert!(refused.contains("--token or ENSUE_TOKEN"), "{refused}");
    run(folder.path(), &["publish", "a", "--url", &url, "--token", "canary-token-of-the-test"]).good();
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
fn a_flag_wins_over_a_variable_and_that_over_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let config = "store: sqlite:file.db\nlisten: 127.0.0.1:0\nretention: { age: 7d }\n";
    std::fs::write(folder.path().join("ensue.yaml"), config).unwrap();
    let made = |name: &str| folder.path().join(name).exists();

    let server = Server::start_with(&mut ensue(folder.path(), &["serve"]), folder.path());
    assert!(server.terminate().success());
    assert!(made("file.db"));
    let log = std::fs::read_to_string(folder.path().join("serve.log")).unwrap();
    assert!(log.contains("168h") && log.contains("ensue.yaml"), "{log}");

    let mut by_variable = ensue(folder.path(), &["serve"]);
    let server = Server::start_with(by_variable.env("ENSUE_STORE", "sqlite:variable.db"), folder.path());
    assert!(server.terminate().success());
    assert!(made("variable.db"));

    let mut by_flag = ensue(folder.path(), &["serve", "--store", "sqlite:flag.db"]);
    let server = Server::start_with(by_flag.env("ENSUE_STORE", "sqlite:variable.db"), folder.path());
    assert!(server.terminate().success());
    assert!(made("flag.db"));
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

#[test]
fn a_config_with_an_unknown_field_is_refused_with_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("ensue.yaml"), "store: sqlite:a.db\nlissen: 127.0.0.1:0\n").unwrap();
    for arguments in [&["serve"][..], &["config", "check"]] {
        let error = run(folder.path(), arguments).bad();
        assert!(error.contains("ensue.yaml:2:1") && error.contains("unknown field `lissen`"), "{error}");
        assert!(error.contains("ensue config check ensue.yaml"), "{error}");
    }
    assert!(!folder.path().join("a.db").exists());
}

#[test]
fn config_check_says_whether_a_file_is_good() {
    let folder = tempfile::tempdir().unwrap();
    let missing = run(folder.path(), &["config", "check"]).bad();
    assert!(missing.contains("ensue.yaml"), "{missing}");
    std::fs::write(folder.path().join("my.yaml"), "retention: { age: 7d, size: 10GB }\n").unwrap();
    assert_eq!(run(folder.path(), &["config", "check", "my.yaml"]).good(), "my.yaml: ok\n");
    assert_eq!(run(folder.path(), &["config", "check", "my.yaml", "--json"]).json()["ok"], true);
    std::fs::write(folder.path().join("my.yaml"), "token_file: nowhere\n").unwrap();
    assert!(run(folder.path(), &["config", "check", "my.yaml"]).bad().contains("nowhere"));
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
