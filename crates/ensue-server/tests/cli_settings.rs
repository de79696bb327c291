//! Do flags, variables and the config file come to what a user expects, for servers and for their clients?

mod cli_support;

use cli_support::{Run, Server, ensue, run};
use serde_json::{Value, json};
use std::path::Path;

/// A port that was free a moment ago.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).unwrap();
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
    assert!(log.contains("younger than 7d") && log.contains("ensue.yaml"), "{log}");

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
fn config_check_shows_what_the_settings_come_to_and_who_said_so() {
    let folder = tempfile::tempdir().unwrap();
    let defaults = run(folder.path(), &["config", "check"]).good();
    assert!(defaults.contains("no ensue.yaml here") && defaults.contains("sqlite:ensue.db  (default)"), "{defaults}");

    write(folder.path(), "tokens", "deploy a-token-that-is-long-enough\n");
    let config = "listen: 127.0.0.1:1\ntoken_file: tokens\nretention: { age: 7d, size: 10GB }\n";
    write(folder.path(), "my.yaml", config);
    let mut command = ensue(folder.path(), &["config", "check", "my.yaml", "--listen", "127.0.0.1:3", "--json"]);
    command.env("ENSUE_STORE", "postgres://u:canary@h/db").env("ENSUE_LISTEN", "127.0.0.1:2");
    let told = Run::of(&mut command).json();
    assert_eq!((&told["ok"], &told["file"], &told["warnings"]), (&json!(true), &json!("my.yaml"), &json!([])));
    let expected = json!({ "store": "postgres://u:…@h/db", "listen": "127.0.0.1:3", "tokens": ["deploy"],
        "retention": { "age": "7d", "size": "10GB" } });
    assert_eq!(told["settings"], expected);
    let said_by = json!({ "store": "flag", "listen": "flag", "tokens": "file", "retention_age": "file", "retention_size": "file" });
    assert_eq!(told["said_by"], said_by);
    let table = run(folder.path(), &["config", "check", "my.yaml"]).good();
    assert!(
        table.starts_with("my.yaml: ok\n") && table.contains("the newest 10GB of what is younger than 7d"),
        "{table}"
    );
    assert!(!table.contains("long-enough"), "{table}");
    assert!(run(folder.path(), &["config", "check", "nowhere.yaml"]).bad().contains("nowhere.yaml"));
    assert!(!folder.path().join("ensue.db").exists());
}

/// What serve would refuse, config check refuses in the same words; doctor lists it.
#[test]
fn config_check_refuses_what_serve_refuses() {
    let folder = tempfile::tempdir().unwrap();
    for (config, told) in [
        ("listen: nonsense\n", "`nonsense` is no address to listen on"),
        ("listen: 0.0.0.0:0\n", "refusing to listen on 0.0.0.0:0 without a token"),
        ("listen: 127.0.0.1:0\nstore: mysql://u:canary@h/db\n", "`store` in ensue.yaml: `mysql:` is not a store"),
        ("listen: 127.0.0.1:0\nstore: postgres://u:canary@h/db?sslmode=maybe\n", "unknown sslmode"),
        ("listen: 127.0.0.1:0\nstore: sqlite:none/a.db\n", "folder none is not there"),
        ("listen: 127.0.0.1:0\ntoken_file: nowhere\n", "nowhere"),
        ("retention: { age: 7 }\n", "ensue.yaml:1:19"),
    ] {
        write(folder.path(), "ensue.yaml", config);
        let (serve, check) = (run(folder.path(), &["serve"]).bad(), run(folder.path(), &["config", "check"]).bad());
        assert!(check.contains(told) && !check.contains("canary"), "{config}: {check}");
        assert_eq!(serve, check);
        let json = run(folder.path(), &["config", "check", "--json"]);
        assert_eq!(json.code, Some(1), "{json:?}");
        let json: Value = serde_json::from_str(&json.stdout).unwrap();
        assert_eq!(json["ok"], false);
        assert!(json["problem"].as_str().unwrap().contains(told), "{json}");
        let doctor = run(folder.path(), &["doctor", "--url", "http://127.0.0.1:1"]);
        assert!(doctor.stdout.contains("PROBLEM  config") && doctor.stdout.contains(told), "{doctor:?}");
    }
}

#[test]
fn clients_find_the_server_of_their_folder_and_its_token() {
    let folder = tempfile::tempdir().unwrap();
    let port = free_port();
    write(folder.path(), "tokens", "# ours\nfirst-token-of-two-1234\ndeploy second-token-of-two-1234\n");
    write(folder.path(), "ensue.yaml", &format!("listen: 127.0.0.1:{port}\ntoken_file: tokens\n"));
    let server = Server::start_with(&mut ensue(folder.path(), &["serve"]), folder.path());
    assert_eq!(server.url, format!("http://127.0.0.1:{port}"));
    let published = run(folder.path(), &["publish", "a", "--object", "o", "--json"]).json();
    let id = published["id"].as_str().unwrap();
    for arguments in
        [&["tail", "--no-follow"][..], &["event", "show", id], &["object", "show", "o"], &["verify"], &["doctor"]]
    {
        run(folder.path(), arguments).good();
    }
    // The same by the server's own variables, from elsewhere.
    let elsewhere = tempfile::tempdir().unwrap();
    let mut command = ensue(elsewhere.path(), &["event", "show", id]);
    Run::of(
        command.env("ENSUE_LISTEN", format!("0.0.0.0:{port}")).env("ENSUE_TOKEN_FILE", folder.path().join("tokens")),
    )
    .good();
    let mut command = ensue(folder.path(), &["event", "show", id, "--token", "neither-of-both-12345"]);
    let wrong = Run::of(&mut command).bad();
    assert!(wrong.contains("does not know this token (--token or ENSUE_TOKEN)"), "{wrong}");
}

/// S7: the token of this folder's config is for this folder's server.
#[test]
fn a_server_that_is_named_is_not_sent_the_token_of_the_config_file() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = ensue(folder.path(), &["serve", "--dev", "--listen", "127.0.0.1:0"]);
    let server = Server::start_with(command.env("ENSUE_TOKEN", "first-token-of-two-1234"), folder.path());
    write(folder.path(), "tokens", "first-token-of-two-1234\n");
    write(folder.path(), "ensue.yaml", "token_file: tokens\n");
    let refused = run(folder.path(), &["publish", "a", "--url", &server.url]).bad();
    assert!(refused.contains("wants a token"), "{refused}");
    run(folder.path(), &["publish", "a", "--url", &server.url, "--token-file", "tokens"]).good();
}

#[test]
fn a_port_that_nobody_knows_and_a_bad_file_are_told_to_clients() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "ensue.yaml", "listen: 127.0.0.1:0\n");
    assert!(run(folder.path(), &["publish", "a"]).bad().contains("--url"));
    write(folder.path(), "ensue.yaml", "lissen: 127.0.0.1:0\n");
    assert!(run(folder.path(), &["publish", "a"]).bad().contains("ensue.yaml:1:1"));
}

/// S7: weak tokens are named, and never shown.
#[test]
fn a_token_that_can_be_guessed_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "tokens", "canary\ndeploy canary-2\nstrong a-token-that-is-long-enough\n");
    let arguments = ["--dev", "--listen", "127.0.0.1:0", "--token-file", "tokens"];
    let server = Server::start_with(&mut ensue(folder.path(), &[&["serve"][..], &arguments].concat()), folder.path());
    assert!(server.terminate().success());
    let log = std::fs::read_to_string(folder.path().join("serve.log")).unwrap();
    let check = run(folder.path(), &[&["config", "check"][..], &arguments].concat()).good();
    for told in [log, check] {
        assert!(told.contains("can be guessed") && told.contains("line 1, deploy;"), "{told}");
        assert!(told.contains("openssl rand -hex 32") && !told.contains("canary"), "{told}");
    }
}

#[test]
fn dev_keeps_the_log_in_memory_whatever_the_file_says_and_goes_with_no_store() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "ensue.yaml", "store: sqlite:file.db\n");
    let dev = run(folder.path(), &["config", "check", "--dev", "--json"]).json();
    assert_eq!(dev["settings"]["store"], "sqlite::memory:");
    for command in [&["serve"][..], &["config", "check"]] {
        let both = run(folder.path(), &[command, &["--dev", "--store", "sqlite:a.db"]].concat()).bad();
        assert!(both.contains("--dev") && both.contains("leave one of them out"), "{both}");
    }
}
