//! Does each command do what its help says, against a server and against a store?

mod cli_support;

use cli_support::{Lines, Run, Server, ensue, run, run_with_stdin};
use serde_json::{Value, json};
use std::path::Path;

/// Where the commands of a test go.
enum Place<'a> {
    Server(&'a Server),
    Store(String),
}

impl Place<'_> {
    fn command(&self, folder: &Path, arguments: &[&str]) -> std::process::Command {
        let mut command = ensue(folder, arguments);
        match self {
            Place::Server(server) => command.env("ENSUE_URL", &server.url),
            Place::Store(url) => command.args(["--store", url]),
        };
        command
    }

    fn run(&self, folder: &Path, arguments: &[&str]) -> Run {
        Run::of(&mut self.command(folder, arguments))
    }
}

/// The same scenario through a server, on SQLite itself and on Postgres itself.
fn everywhere(scenario: impl Fn(&Path, Place<'_>)) {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    scenario(folder.path(), Place::Server(&server));
    let folder = tempfile::tempdir().unwrap();
    scenario(folder.path(), Place::Store("sqlite:my.db".into()));
    let folder = tempfile::tempdir().unwrap();
    let (url, _) = ensue_conformance::postgres::fresh_schema("cli");
    scenario(folder.path(), Place::Store(url));
}

#[test]
fn what_is_published_is_shown() {
    everywhere(|folder, place| {
        let first = place.run(folder, &["publish", "order.placed", "--object", "order:1"]).good();
        assert!(first.starts_with("published: seq 1, id "), "{first}");
        let paid = ["publish", "order.paid", "--object", "order:1", "--payload", "{\"total\": 1.50}"];
        let second = place.run(folder, &[&paid[..], &["--metadata", "{\"by\":\"me\"}", "--json"]].concat()).json();
        assert_eq!((&second["seq"], &second["prev"]), (&json!(2), &json!(1)));

        let by_seq = place.run(folder, &["event", "show", "2", "--json"]).json();
        let by_id = place.run(folder, &["event", "show", second["id"].as_str().unwrap(), "--json"]).json();
        assert_eq!(by_seq, by_id);
        assert_eq!(by_seq["payload"], json!({ "total": 1.5 }));
        assert_eq!(by_seq["metadata"], json!({ "by": "me" }));
        assert_eq!((&by_seq["state"], &by_seq["prev"]), (&json!("logged"), &json!(1)));
        let for_people = place.run(folder, &["event", "show", "2"]).good();
        assert!(for_people.contains("topic        order.paid"), "{for_people}");

        let chain = place.run(folder, &["object", "show", "order:1", "--json"]).json();
        let seqs: Vec<_> = chain["events"].as_array().unwrap().iter().map(|event| event["seq"].clone()).collect();
        assert_eq!(seqs, [2, 1]);
        let table = place.run(folder, &["object", "show", "order:1", "--limit", "1"]).good();
        assert!(table.contains("order.paid") && !table.contains("order.placed"), "{table}");
        let none = place.run(folder, &["object", "show", "order/2 ü?"]).good();
        assert!(none.contains("no event"), "{none}");
    });
}

#[test]
fn a_payload_comes_from_a_file_or_stdin() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("body.json"), "{\"from\": \"file\"}").unwrap();
    let store = ["--store", "sqlite:my.db"];
    run(folder.path(), &[&["publish", "a", "--payload", "@body.json"][..], &store].concat()).good();
    run_with_stdin(folder.path(), &[&["event", "publish", "a", "--payload", "-"][..], &store].concat(), "[1, 2]\n")
        .good();
    let payload = |seq: &str| {
        run(folder.path(), &[&["event", "show", seq, "--json"][..], &store].concat()).json()["payload"].clone()
    };
    assert_eq!(payload("1"), json!({ "from": "file" }));
    assert_eq!(payload("2"), json!([1, 2]));
    let missing = run(folder.path(), &[&["publish", "a", "--payload", "@nowhere"][..], &store].concat()).bad();
    assert!(missing.contains("nowhere"), "{missing}");
}

#[test]
fn a_key_stores_once_and_another_event_under_it_is_refused() {
    everywhere(|folder, place| {
        let publish =
            |payload: &str| place.run(folder, &["publish", "a", "--key", "k", "--payload", payload, "--json"]);
        let (first, again) = (publish("1").json(), publish("1").json());
        assert_eq!((&first["id"], &first["repeated"]), (&again["id"], &json!(false)));
        assert_eq!(again["repeated"], true);
        let refused = publish("2").bad();
        assert!(refused.contains("`k`"), "{refused}");
    });
}

#[test]
fn a_delayed_event_is_shown_and_cancelled() {
    everywhere(|folder, place| {
        let event = place.run(folder, &["publish", "later", "--not-before", "1h", "--json"]).json();
        assert_eq!(event["seq"], Value::Null);
        let id = event["id"].as_str().unwrap();
        let shown = place.run(folder, &["event", "show", id, "--json"]).json();
        assert_eq!((&shown["state"], &shown["seq"]), (&json!("pending"), &Value::Null));
        place.run(folder, &["event", "cancel", id]).good();
        assert!(place.run(folder, &["event", "show", id]).bad().contains(id));
        assert!(place.run(folder, &["event", "cancel", id]).bad().contains(id));
        let logged = place.run(folder, &["publish", "now", "--json"]).json();
        let refused = place.run(folder, &["event", "cancel", logged["id"].as_str().unwrap()]).bad();
        assert!(refused.contains("in the log") && refused.contains("seq 1"), "{refused}");
    });
}

#[test]
fn tail_shows_history_by_filter_and_stops_at_its_limit() {
    everywhere(|folder, place| {
        for (topic, object) in
            [("order.placed", "o:1"), ("orders", "o:1"), ("order.paid", "o:1"), ("order.paid", "o:2")]
        {
            place.run(folder, &["publish", topic, "--object", object]).good();
        }
        let tail = |arguments: &[&str]| -> Vec<Value> {
            let text = place.run(folder, &[&["tail", "--json"][..], arguments].concat()).good();
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
        };
        let seqs = |events: &[Value]| events.iter().map(|event| event["seq"].as_u64().unwrap()).collect::<Vec<_>>();
        assert_eq!(seqs(&tail(&["--from-beginning", "--limit", "4"])), [1, 2, 3, 4]);
        assert_eq!(seqs(&tail(&["--after", "2", "--limit", "2"])), [3, 4]);
        let orders = tail(&["--from-beginning", "--topic", "order", "--limit", "3"]);
        assert_eq!(seqs(&orders), [1, 3, 4]);
        // `prev` is the previous event of the object that the filter matches.
        assert_eq!(orders[1]["prev"], 1);
        assert_eq!(seqs(&tail(&["--from-beginning", "--object", "o:2", "--limit", "1"])), [4]);
        let line = place.run(folder, &["tail", "--from-beginning", "--limit", "1"]).good();
        assert!(line.starts_with("1  ") && line.contains("  order.placed  o:1  null"), "{line}");
    });
}

#[test]
fn tail_follows_live_over_a_restart_of_the_server_without_a_gap_or_a_double() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let address = server.url.strip_prefix("http://").unwrap().to_string();
    server.run(folder.path(), &["publish", "first"]).good();
    let tail = Lines::of(ensue(folder.path(), &["tail", "--from-beginning"]).env("ENSUE_URL", &server.url));
    assert!(tail.next().starts_with("1  "));
    server.run(folder.path(), &["publish", "second"]).good();
    assert!(tail.next().starts_with("2  "));
    server.kill9();
    let server = Server::start_with(&mut ensue(folder.path(), &["serve", "--listen", &address]), folder.path());
    server.run(folder.path(), &["publish", "third"]).good();
    assert!(tail.next().starts_with("3  "));
}

#[test]
fn tail_beside_a_writer_sees_what_the_writer_adds() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    server.run(folder.path(), &["publish", "first"]).good();
    let tail = Lines::of(&mut ensue(folder.path(), &["tail", "--from-beginning", "--store", "sqlite:ensue.db"]));
    assert!(tail.next().contains("first"));
    server.run(folder.path(), &["publish", "second"]).good();
    assert!(tail.next().contains("second"));
}

#[test]
fn bad_input_is_refused_with_the_field_and_changes_nothing() {
    everywhere(|folder, place| {
        for (arguments, field) in [
            (&["publish", "a..b"][..], "`topic`"),
            (&["publish", "ensue.mine"], "`topic`"),
            (&["publish", "a", "--object", ""], "`object`"),
            (&["publish", "a", "--payload", "{"], "`payload`"),
            (&["publish", "a", "--metadata", "[]"], "`metadata`"),
            (&["tail", "--topic", "a..b"], "`topic`"),
            (&["object", "show", ""], "`object`"),
        ] {
            let error = place.run(folder, arguments).bad();
            assert!(error.contains(field), "{arguments:?}: {error}");
        }
        for arguments in [
            &["event", "show", "order.paid"][..],
            &["event", "cancel", "12"],
            &["publish", "a", "--not-before", "soon"],
            &["publish"],
            &["tail", "--limit", "0"],
        ] {
            // Mistakes in the command itself have the exit code of their own.
            assert_eq!(place.run(folder, arguments).code, Some(2), "{arguments:?}");
        }
        // Makes the store where there was none: refused input does not.
        place.run(folder, &["publish", "good"]).good();
        assert_eq!(place.run(folder, &["event", "show", "1", "--json"]).json()["topic"], "good");
    });
}

#[test]
fn an_unknown_event_is_an_error() {
    everywhere(|folder, place| {
        place.run(folder, &["publish", "a"]).good();
        assert!(place.run(folder, &["event", "show", "99"]).bad().contains("99"));
        let id = "01890a5d-ac96-774b-bcce-b302099a8057";
        assert!(place.run(folder, &["event", "show", id]).bad().contains(id));
        assert!(place.run(folder, &["event", "cancel", id]).bad().contains(id));
    });
}

#[test]
fn without_a_server_every_command_says_how_to_start_one() {
    let folder = tempfile::tempdir().unwrap();
    // A port that was free a moment ago: nobody listens there.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}");
    for arguments in [&["publish", "a"][..], &["tail"], &["event", "show", "1"], &["object", "show", "o"], &["verify"]]
    {
        let error = run(folder.path(), &[arguments, &["--url", &url]].concat()).bad();
        assert!(error.contains("ensue serve") && error.contains(&url), "{error}");
    }
    let nowhere = run(folder.path(), &["verify", "--store", "sqlite:nowhere.db"]).bad();
    assert!(nowhere.contains("nowhere.db"), "{nowhere}");
    assert!(!folder.path().join("nowhere.db").exists());
}

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
        run(folder.path(), &[&["publish", "a", "--object", "o"][..], &store].concat()).good();
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

#[test]
fn doctor_looks_at_postgres_too() {
    let folder = tempfile::tempdir().unwrap();
    let (url, _) = ensue_conformance::postgres::fresh_schema("doctor");
    run(folder.path(), &["publish", "a", "--store", &url]).good();
    let good = run(folder.path(), &["doctor", "--store", &url]).good();
    assert!(good.contains("ok       engine    postgres 1") && good.contains("1 events, seq 1 to 1"), "{good}");
    let gone = run(folder.path(), &["doctor", "--store", "postgres://nobody@127.0.0.1:1/none"]);
    assert_eq!(gone.code, Some(1), "{gone:?}");
    assert!(gone.stdout.contains("PROBLEM  store"), "{gone:?}");
}
