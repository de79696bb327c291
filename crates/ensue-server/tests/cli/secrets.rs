//! Credentials that are written where they do not belong are in no error, no log line and no warning.

use crate::support::{Run, Server, ensue, run, without_variables};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Long enough for a server that others can reach.
const TOKEN: &str = "canary-0123456789abcdef0123456789abcdef";

fn write(folder: &Path, name: &str, text: &str) {
    std::fs::write(folder.join(name), text).unwrap();
    std::fs::set_permissions(folder.join(name), Permissions::from_mode(0o600)).unwrap();
}

/// What `config check` and `doctor` print, in words and as JSON.
fn told(folder: &Path, arguments: &[&str]) -> String {
    let check = run(folder, &[&["config", "check"], arguments].concat());
    let json = run(folder, &[&["config", "check", "--json"], arguments].concat());
    let doctor = run(folder, &["doctor", "--url", "http://127.0.0.1:1"]);
    [check, json, doctor].map(|run| run.stdout + &run.stderr).concat()
}

#[test]
fn token_in_the_place_of_an_address_is_not_echoed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for arguments in [
        &["serve", "--listen", TOKEN][..],
        &["serve", TOKEN],
        &["event", "list", "--url", TOKEN],
        &["event", "list", TOKEN],
        &["event", TOKEN],
    ] {
        for json in [&["--json"][..], &[]] {
            let told = run(folder, &[arguments, json].concat());
            assert!(told.code != Some(0) && !(told.stdout + &told.stderr).contains("canary"), "{arguments:?}");
        }
    }
    let listen = ensue(folder, &["serve"]).env("ENSUE_LISTEN", TOKEN).output().unwrap();
    assert!(!String::from_utf8_lossy(&listen.stderr).contains("canary"));
}

#[test]
fn misplaced_credential_in_the_config_file_is_not_echoed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for credential in ["postgres://u:canary@h/db", "postgres://u:p@can:canary @h/db", "redis://:canary@h"] {
        for config in [
            "stroe: VALUE",
            "store: [VALUE]",
            "store: { url: VALUE }",
            "workers: VALUE",
            "drain_max: VALUE",
            "retention: VALUE",
            "retention: { age: VALUE }",
            "retention: { size: VALUE }",
            "listen: VALUE",
            "listen: [VALUE]",
            "token: VALUE",
            "token_file: VALUE",
            "history: { count: VALUE }",
            "VALUE",
            "VALUE: store",
            "? VALUE\n: store",
            "stroe:\n  VALUE",
            "stroe: >\n  VALUE",
            "handlers: { VALUE: { command: x } }",
            "handlers: { a.b: { command: x, secret: VALUE } }",
            "handlers: { a.b: { webhook: VALUE } }",
            "webhooks: { ca_file: VALUE }",
            "webhooks: { allow_private: [VALUE] }",
            "schedules: { a: { cron: VALUE, topic: t } }",
            "schedules: { a: { every: VALUE, topic: t } }",
            "sources: { a: { collections: [{ name: VALUE, command: [x] }] } }",
            "store: VALUE\nlisten: nonsense\n",
        ] {
            write(folder, "ensue.yaml", &config.replace("VALUE", &format!("\"{credential}\"")));
            let told = told(folder, &[]);
            assert!(!told.contains("canary"), "{config}: {told}");
        }
    }
    for config in [format!("token: {TOKEN}"), format!("token_file: {TOKEN}"), format!("drain_max: {TOKEN}")] {
        write(folder, "ensue.yaml", &config);
        let told = told(folder, &[]);
        assert!(!told.contains("canary"), "{config}: {told}");
    }
}

#[test]
fn store_in_another_form_is_refused_and_not_echoed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for store in [
        "host=h password=canary",
        "host=h password=canary:x",
        "host = h password = 'can ary canary'",
        "dbname=d passfile=canary",
        "Server=h;Password=canary",
        "u:canary@h/db",
        "u.x:canary@h/db",
        "sqlite:postgres://u:canary@h/db",
        " postgres://u:canary@h/db",
        "postgres:u:canary@h/db",
        "jdbc:postgresql://h/db?password=canary",
    ] {
        write(folder, "ensue.yaml", &format!("store: \"{store}\"\n"));
        let refused = run(folder, &["config", "check"]).bad();
        assert!(refused.contains("postgres://USER@HOST/DATABASE"), "{store}: {refused}");
        let by_flag = run(folder, &["event", "list", "--store", store]).bad();
        let by_variable = Run::of(ensue(folder, &["serve"]).env("ENSUE_STORE", store)).bad();
        let all = refused + &by_flag + &by_variable + &told(folder, &[]);
        assert!(!all.contains("canary"), "{store}: {all}");
        let made = std::fs::read_dir(folder).unwrap().count();
        assert_eq!(made, 1, "{store} is no file");
    }
}

#[test]
fn misplaced_credential_on_the_command_line_is_not_echoed() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [
        &["serve", "postgres://u:canary@h/db"][..],
        &["serve", "--stroe=postgres://u:canary@h/db"],
        &["serve", "--workers", "postgres://u:canary@h/db"],
        &["serve", "--drain-max", "postgres://u:canary@h/db"],
        &["event", "list", "--limit", "postgres://u:canary@h/db"],
        &["event", "list", "--url", "http://u:canary@127.0.0.1:1/"],
        &["event", "list", "--url", "postgres://u:canary@h/db"],
        &["serve", "--token-file", TOKEN],
    ] {
        let run = run(folder.path(), arguments);
        assert!(run.code != Some(0) && !run.stderr.contains("canary"), "{arguments:?}: {run:?}");
    }
}

#[test]
fn token_before_its_name_is_refused_and_not_echoed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    for line in [
        format!("{TOKEN} deploy"),
        format!("{TOKEN} {TOKEN}x y"),
        format!("deploy\u{200b} {TOKEN}"),
        format!("{TOKEN}\u{a0}deploy"),
        "deploy: canary-with-a-colon-that-is-long-enough".to_owned(),
    ] {
        write(folder, "tokens", &format!("# ours\n{line}\n"));
        for command in [&["config", "check"][..], &["serve", "--dev", "--listen", "127.0.0.1:0"]] {
            let refused = run(folder, &[command, &["--token-file", "tokens"]].concat()).bad();
            assert!(refused.contains("tokens:2") && !refused.contains("canary"), "{line}: {refused}");
        }
    }
}

/// A byte order mark is no part of the first line, be it a comment or a token.
#[test]
fn byte_order_mark_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(folder, "tokens", &format!("\u{feff}# tokens\r\ndeploy {TOKEN}\r\n"));
    let arguments = ["serve", "--dev", "--listen", "127.0.0.1:0", "--token-file", "tokens"];
    let server = Server::start_with(&mut ensue(folder, &arguments), folder);
    server.run(folder, &["publish", "a", "--token", TOKEN]).good();
    server.run(folder, &["publish", "a", "--token", "tokens"]).bad();
    write(folder, "tokens", &format!("\u{feff}{TOKEN}\n"));
    server.run(folder, &["publish", "a", "--token-file", "tokens"]).good();
}

#[test]
fn short_token_is_refused_where_others_can_reach_the_server() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(folder, "tokens", &format!("strong {TOKEN}\nshort canary-of-31-characters-xxxxxxx\n"));
    for command in [&["config", "check"][..], &["serve", "--dev"]] {
        let arguments = ["--listen", "0.0.0.0:0", "--token-file", "tokens"];
        let refused = run(folder, &[command, &arguments].concat()).bad();
        assert!(refused.contains("0.0.0.0:0") && refused.contains("short") && refused.contains("32"), "{refused}");
        assert!(refused.contains("openssl rand -hex 32") && !refused.contains("canary"), "{refused}");
    }
    let by_variable =
        Run::of(ensue(folder, &["serve", "--dev", "--listen", "[::]:0"]).env("ENSUE_TOKEN", "canary")).bad();
    assert!(by_variable.contains("ENSUE_TOKEN") && !by_variable.contains("canary"), "{by_variable}");
    let warned = run(folder, &["config", "check", "--listen", "127.0.0.1:0", "--token-file", "tokens"]).good();
    assert!(warned.contains("warning: ") && warned.contains("short"), "{warned}");
}

#[test]
fn token_file_that_others_can_read_is_warned_of() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    write(folder, "tokens", &format!("{TOKEN}\n"));
    let check = || run(folder, &["config", "check", "--token-file", "tokens"]).good();
    assert!(!check().contains("warning"));
    for (mode, shown) in [(0o644, "644"), (0o640, "640"), (0o604, "604")] {
        std::fs::set_permissions(folder.join("tokens"), Permissions::from_mode(mode)).unwrap();
        let told = check();
        assert!(told.contains("warning: ") && told.contains(shown) && told.contains("chmod 600 tokens"), "{told}");
    }
}

/// Programs run as the server's user, and could read the environment that it was started with.
#[test]
fn program_cannot_read_the_servers_secrets_from_an_environment() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let script = "env > env.txt; tr '\\0' '\\n' < /proc/$PPID/environ > parent.txt; echo end >> parent.txt\n";
    write(folder, "script.sh", script);
    write(folder, "ensue.yaml", "handlers:\n  t:\n  - { name: h, command: [sh, ./script.sh] }\n");
    let mut command = ensue(folder, &["serve", "--listen", "127.0.0.1:0"]);
    command.env("ENSUE_TOKEN", TOKEN).env("ENSUE_STORE", "sqlite:canary.db").env("ENSUE_LOG", "info");
    let server = Server::start_with(&mut command, folder);
    server.run(folder, &["publish", "t", "--token", TOKEN]).good();
    let begun = std::time::Instant::now();
    let parent = loop {
        let parent = std::fs::read_to_string(folder.join("parent.txt")).unwrap_or_default();
        if parent.ends_with("end\n") {
            break parent;
        }
        assert!(begun.elapsed() < crate::support::PATIENCE, "the program has not run");
        std::thread::sleep(std::time::Duration::from_millis(20));
    };
    let own = std::fs::read_to_string(folder.join("env.txt")).unwrap();
    assert!(parent.contains("ENSUE_LOG=info") && own.contains("ENSUE_HANDLER=t.h"), "{parent}\n{own}");
    assert!(!parent.contains("canary") && !own.contains("canary"), "{parent}\n{own}");
    assert!(folder.join("canary.db").exists(), "the settings hold all the same");
}

/// Whatever the umask: the log may hold anything.
#[test]
fn new_store_is_readable_by_its_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let mut command = Command::new("sh");
    let script = "umask 000; exec \"$0\" serve --listen 127.0.0.1:0";
    without_variables(command.args(["-c", script, env!("CARGO_BIN_EXE_ensue")]).current_dir(folder));
    let mode = |name: &str| std::fs::metadata(folder.join(name)).unwrap().permissions().mode() & 0o777;
    let server = Server::start_with(&mut command, folder);
    server.run(folder, &["publish", "a"]).good();
    for name in ["ensue.db", "ensue.db-wal", "ensue.db-shm", "ensue.db.lock"] {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    let doctor = || run(folder, &["doctor", "--store", "sqlite:ensue.db", "--url", "http://127.0.0.1:1"]).stdout;
    assert!(!doctor().contains("chmod"), "{}", doctor());
    assert!(server.terminate().success());
    // One that is there keeps its mode, and the files beside it have the same.
    std::fs::set_permissions(folder.join("ensue.db"), Permissions::from_mode(0o640)).unwrap();
    let server = Server::start_with(&mut command, folder);
    server.run(folder, &["publish", "a"]).good();
    assert_eq!((mode("ensue.db"), mode("ensue.db-wal")), (0o640, 0o640));
    let told = doctor();
    assert!(told.contains("mode 640") && told.contains("chmod 600 ensue.db"), "{told}");
}
