//! Do flags, variables and the config file come to what a user expects, for servers and for their clients?

use crate::support::{Run, Server, ensue, run};
use serde_json::{Value, json};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// A port that was free a moment ago.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).unwrap();
    std::fs::set_permissions(folder.join(name), Permissions::from_mode(0o600)).unwrap();
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

    write(folder.path(), "tokens", "deploy a-token-that-is-long-enough-for-anybody\n");
    let config = "listen: 127.0.0.1:1\ntoken_file: tokens\nretention: { age: 7d, size: 10GB }\n";
    write(folder.path(), "my.yaml", config);
    let mut command = ensue(folder.path(), &["config", "check", "my.yaml", "--listen", "127.0.0.1:3", "--json"]);
    command.env("ENSUE_STORE", "postgres://u:canary@h/db").env("ENSUE_LISTEN", "127.0.0.1:2");
    let told = Run::of(&mut command).json();
    assert_eq!((&told["ok"], &told["file"], &told["warnings"]), (&json!(true), &json!("my.yaml"), &json!([])));
    let expected = json!({ "store": "postgres://u:…@h/db", "listen": "127.0.0.1:3", "tokens": ["deploy"],
        "retention": { "age": "7d", "size": "10GB", "hold_max": "30d" }, "drain_max": "30s",
        "workers": 16, "read_ahead": 1024, "handlers": [], "collections": [],
        "sources": [], "schedules": [],
        "history": { "count": 100_000, "age": "7d", "tasks": null } });
    assert_eq!(told["settings"], expected);
    let said_by = json!({ "store": "variable", "listen": "flag", "tokens": "file", "retention_age": "file",
        "retention_size": "file", "retention_hold_max": "default", "drain_max": "default", "workers": "default",
        "read_ahead": "default" });
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

#[test]
fn config_check_tells_a_flag_from_a_variable() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "tokens", "deploy a-token-that-is-long-enough-for-anybody\n");
    let check = |arguments: &[&str], variables: &[(&str, &str)]| {
        let mut command = ensue(folder.path(), &[&["config", "check"], arguments].concat());
        Run::of(command.envs(variables.iter().copied())).good()
    };
    let token = ("ENSUE_TOKEN", "another-token-that-is-long-enough");
    let flags = ["--store", "a.db", "--listen", "127.0.0.1:1", "--token-file", "tokens", "--retention-age", "7d"];
    let by_flag = check(&flags, &[("ENSUE_STORE", "a.db"), ("ENSUE_LISTEN", "127.0.0.1:2")]);
    for told in ["a.db  (--store)", "127.0.0.1:1  (--listen)", "`deploy`  (--token-file)", "7d  (--retention-age)"] {
        assert!(by_flag.contains(told), "{told} is not in\n{by_flag}");
    }
    let variables = [("ENSUE_STORE", "a.db"), ("ENSUE_LISTEN", "127.0.0.1:2"), ("ENSUE_RETENTION_SIZE", "1GB"), token];
    let by_variable = check(&["--retention-age", "7d"], &variables);
    for told in ["(ENSUE_STORE)", "(ENSUE_LISTEN)", "(ENSUE_TOKEN)", "(ENSUE_RETENTION_SIZE; --retention-age)"] {
        assert!(by_variable.contains(told), "{told} is not in\n{by_variable}");
    }
    let files = [("ENSUE_TOKEN_FILE", "tokens"), token];
    assert!(check(&[], &files).contains("deploy, ENSUE_TOKEN  (ENSUE_TOKEN_FILE; ENSUE_TOKEN)"));
    assert!(check(&["--workers", "3"], &[("ENSUE_WORKERS", "4")]).contains("at most 3  (--workers)"));
    assert!(check(&[], &[("ENSUE_WORKERS", "4")]).contains("at most 4  (ENSUE_WORKERS)"));
    let read_ahead = check(&["--read-ahead", "64"], &[("ENSUE_READ_AHEAD", "32")]);
    assert!(read_ahead.contains("at most 64 events ahead for each handler  (--read-ahead)"), "{read_ahead}");
    assert!(check(&["--dev"], &[]).contains("(--dev)"));
    assert!(check(&[], &[("ENSUE_DEV", "1")]).contains("(ENSUE_DEV)"));
}

#[test]
fn two_config_files_are_one_too_many() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "a.yaml", "listen: 127.0.0.1:1\n");
    write(folder.path(), "b.yaml", "listen: 127.0.0.1:2\n");
    let both = ["config", "check", "a.yaml", "--config", "b.yaml"];
    let refused = run(folder.path(), &both).bad();
    assert!(refused.contains("a.yaml and --config b.yaml name two config files: use one"), "{refused}");
    let json = run(folder.path(), &[&both[..], &["--json"]].concat());
    assert!(json.code == Some(1) && json.stdout.contains("use one"), "{json:?}");
    // A variable is there for every command; what is written out is meant.
    let mut command = ensue(folder.path(), &["config", "check", "a.yaml"]);
    assert!(Run::of(command.env("ENSUE_CONFIG", "b.yaml")).good().starts_with("a.yaml: ok"));
    let mut command = ensue(folder.path(), &both);
    assert!(Run::of(command.env("ENSUE_CONFIG", "b.yaml")).bad().contains("two config files"));
}

#[test]
fn two_tokens_of_one_name_are_refused_with_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "tokens", "# ours\ndeploy canary-long-enough-1\n\ndeploy canary-long-enough-2\n");
    for command in [&["config", "check"][..], &["serve"]] {
        let refused = run(folder.path(), &[command, &["--token-file", "tokens"]].concat()).bad();
        assert!(refused.contains("tokens:4: line 2 has a token named `deploy` too"), "{refused}");
        assert!(!refused.contains("canary"), "{refused}");
    }
}

/// A mistyped variable would otherwise leave a server with other settings than its owner believes.
#[test]
fn a_variable_that_nobody_reads_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = ensue(folder.path(), &["config", "check", "--json"]);
    let run = Run::of(command.env("ENSUE_LISEN", "127.0.0.1:1").env("ENSUE_TEST_SEED", "1").env("ENSUE_LOG", "warn"));
    let told = "warning: ENSUE_LISEN is not a variable of ensue and is passed over: did you mean ENSUE_LISTEN?\n";
    assert_eq!(run.stderr, told);
    assert_eq!(run.json()["settings"]["listen"], "127.0.0.1:4747");
}

/// What serve would refuse, config check refuses in the same words; doctor lists it.
#[test]
fn config_check_refuses_what_serve_refuses() {
    let folder = tempfile::tempdir().unwrap();
    for (config, told) in [
        ("store: sqlite:a.db\nlisten: nonsense\n", "ensue.yaml:2:9: `nonsense` is no address to listen on"),
        ("listen: 0.0.0.0:0\n", "ensue.yaml:1:9: refusing to listen on 0.0.0.0:0 without a token"),
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
    write(
        folder.path(),
        "tokens",
        "# ours\nfirst-token-of-two-that-are-long-enough\ndeploy second-token-of-two-that-are-long-enough\n",
    );
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
    write(folder.path(), "ensue.yaml", "# ours\nlisten: nonsense\n");
    let error = run(folder.path(), &["publish", "a"]).bad();
    assert!(error.contains("ensue.yaml:2:9: `nonsense` is no address"), "{error}");
    let error = Run::of(ensue(folder.path(), &["publish", "a"]).env("ENSUE_LISTEN", "none")).bad();
    assert!(error.contains("ENSUE_LISTEN: `none` is no address"), "{error}");
    write(folder.path(), "ensue.yaml", "lissen: 127.0.0.1:0\n");
    assert!(run(folder.path(), &["publish", "a"]).bad().contains("ensue.yaml:1:1"));
}

/// S7: weak tokens are named, and never shown.
#[test]
fn a_token_that_can_be_guessed_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), "tokens", "canary\ndeploy canary-2\nstrong a-token-that-is-long-enough-for-anybody\n");
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
