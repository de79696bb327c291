//! Do `verify` and `doctor` find what is wrong, and nothing where nothing is?

use crate::support::{Server, ensue, everywhere, run};
use serde_json::{Value, json};

#[test]
fn verify_finds_a_sound_log_sound() {
    everywhere(|folder, place| {
        for number in 0..5 {
            let object = format!("o:{}", number % 2);
            place.run(folder, &["publish", "a", "--object", &object]).good();
        }
        let verdict = place.run(folder, &["verify"]).good();
        assert!(verdict.starts_with("sound: 5 events (seq 1 to 5)"), "{verdict}");
        let report = place.run(folder, &["verify", "--json"]).json();
        assert_eq!((&report["ok"], &report["events"], &report["objects"]), (&json!(true), &json!(5), &json!(2)));
    });
}

#[test]
fn verify_lists_what_is_broken_and_exits_with_1() {
    let folder = tempfile::tempdir().unwrap();
    let store = ["--store", "sqlite:my.db"];
    for _ in 0..4 {
        run(folder.path(), &[&["publish", "a", "--object", "o", "--create"][..], &store].concat()).good();
    }
    let database = ensue::rusqlite::Connection::open(folder.path().join("my.db")).unwrap();
    database.execute("DELETE FROM ensue_events WHERE seq = 2", []).unwrap();
    database.execute("UPDATE ensue_events SET prev = 1 WHERE seq = 4", []).unwrap();
    drop(database);
    let found = run(folder.path(), &[&["verify"][..], &store].concat());
    assert_eq!(found.code, Some(1), "{found:?}");
    assert!(found.stdout.contains("gap: seq 2 to 2 are missing"), "{found:?}");
    assert!(found.stdout.contains("seq 4 (object \"o\") says prev 1, expected 3"), "{found:?}");
    assert!(found.stdout.contains("NOT SOUND"), "{found:?}");
    let report = run(folder.path(), &[&["verify", "--json"][..], &store].concat());
    assert_eq!(report.code, Some(1));
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    assert_eq!(report["ok"], false);
}

#[test]
fn doctor_finds_a_good_installation_good_and_says_what_to_do_otherwise() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    server.run(folder.path(), &["publish", "a"]).good();
    let report = server.run(folder.path(), &["doctor", "--json"]).json();
    let state = |name: &str| {
        let checks = report["checks"].as_array().unwrap();
        checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("no {name} in {report}"))["state"]
            .clone()
    };
    for name in ["config", "disk", "lock", "store", "engine", "schema", "log", "pending", "clock", "server"] {
        assert_eq!(state(name), "ok", "{name}: {report}");
    }
    let lock = server.run(folder.path(), &["doctor"]).good();
    assert!(lock.contains(&format!("process {}", server.pid())), "{lock}");
    let url = server.url.clone();
    assert!(server.terminate().success());

    let down = run(folder.path(), &["doctor", "--url", &url]);
    assert_eq!(down.code, Some(1));
    assert!(down.stdout.contains("PROBLEM  server") && down.stdout.contains("ensue serve"), "{down:?}");
    std::fs::write(folder.path().join("ensue.yaml"), "nonsense: 1\n").unwrap();
    let config = run(folder.path(), &["doctor", "--url", &url]);
    assert!(config.stdout.contains("PROBLEM  config") && config.stdout.contains("ensue.yaml:1:1"), "{config:?}");
}

/// However large they are: what a page of them may hold is no bound of the count.
#[tokio::test]
async fn doctor_counts_every_delayed_event() {
    let folder = tempfile::tempdir().unwrap();
    let bus = ensue::Ensue::open(folder.path().join("my.db").to_str().unwrap()).await.unwrap();
    let payload = "x".repeat(900_000);
    for _ in 0..10 {
        let event = ensue::NewEvent::new("a").payload(&payload).not_before("2999-01-01T00:00:00Z".parse().unwrap());
        bus.publish(event).await.unwrap();
    }
    bus.close().await;
    let good = run(folder.path(), &["doctor", "--store", "sqlite:my.db"]).good();
    assert!(good.contains("10 delayed events waiting, the first until 2999-01-01"), "{good}");
}

#[test]
fn doctor_looks_at_postgres_too() {
    let folder = tempfile::tempdir().unwrap();
    let server = ensue_conformance::postgres::PrivatePostgres::start().unwrap();
    let url = server.url_with_schema("doctor");
    run(folder.path(), &["publish", "a", "--store", &url, "--create"]).good();
    let good = run(folder.path(), &["doctor", "--store", &url]).good();
    assert!(good.contains("ok       engine    postgres 1") && good.contains("1 event, seq 1 to 1"), "{good}");
    let gone = run(folder.path(), &["doctor", "--store", "postgres://nobody@127.0.0.1:1/none"]);
    assert_eq!(gone.code, Some(1), "{gone:?}");
    assert!(gone.stdout.contains("PROBLEM  store"), "{gone:?}");
}

#[test]
fn doctor_tells_whether_the_token_opens_the_server() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("tokens"), "the-token-of-the-server-that-is-long-enough\n").unwrap();
    std::fs::write(folder.path().join("other"), "the-token-of-another-one\n").unwrap();
    let mut command = ensue(folder.path(), &["serve", "--listen", "127.0.0.1:0", "--token-file", "tokens"]);
    let server = Server::start_with(&mut command, folder.path());
    let good = server.run(folder.path(), &["doctor", "--token-file", "tokens"]).good();
    assert!(good.contains("ok       access"), "{good}");
    server.run(folder.path(), &["doctor", "--token", "the-token-of-the-server-that-is-long-enough"]).good();
    for (arguments, told) in
        [(&["doctor"][..], "wants a token"), (&["doctor", "--token-file", "other"], "does not know")]
    {
        let run = server.run(folder.path(), arguments);
        assert_eq!(run.code, Some(1), "{run:?}");
        assert!(run.stdout.contains("PROBLEM  access") && run.stdout.contains(told), "{run:?}");
    }
}
