//! Does each command do what its help says, against a server and against a store?

use crate::support::{Run, Server, ensue, everywhere, run, run_with_stdin};
use serde_json::{Value, json};

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
        assert_eq!((&chain["events"][0], &chain["next"]), (&by_seq, &Value::Null));
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
    run(folder.path(), &[&["publish", "a", "--payload", "@body.json", "--create"][..], &store].concat()).good();
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
        assert_eq!(shown.get("recorded_at"), Some(&Value::Null));
        let cancelled = place.run(folder, &["event", "cancel", id, "--json"]).json();
        assert_eq!(cancelled, json!({ "id": id, "state": "cancelled" }));
        assert!(place.run(folder, &["event", "show", id]).bad().contains(id));
        assert!(place.run(folder, &["event", "cancel", id]).bad().contains(id));
        let logged = place.run(folder, &["publish", "now", "--json"]).json();
        let refused = place.run(folder, &["event", "cancel", logged["id"].as_str().unwrap()]).bad();
        assert!(refused.contains("event 1 is in the log"), "{refused}");
    });
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
            &["tail", "--after", "first"],
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

/// A mistyped path must not make a second log that nobody looks at.
#[test]
fn a_store_that_is_not_there_is_made_only_where_it_is_asked_for() {
    let folder = tempfile::tempdir().unwrap();
    let (postgres, _) = ensue_conformance::postgres::fresh_schema("create");
    for store in ["sqlite:typo.db", &postgres] {
        let id = "01890a5d-ac96-774b-bcce-b302099a8057";
        for arguments in [&["publish", "a"][..], &["event", "cancel", id]] {
            let refused = run(folder.path(), &[arguments, &["--store", store]].concat()).bad();
            assert!(refused.contains("there is no") && refused.contains("--create"), "{refused}");
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        run(folder.path(), &["event", "show", "1", "--store", store]).bad();
        run(folder.path(), &["publish", "a", "--store", store, "--create"]).good();
        let second = run(folder.path(), &["publish", "a", "--store", store, "--json"]).json();
        assert_eq!(second["seq"], 2);
        for file in std::fs::read_dir(folder.path()).unwrap() {
            std::fs::remove_file(file.unwrap().path()).unwrap();
        }
    }
    // A server makes its store by itself.
    assert_eq!(run(folder.path(), &["publish", "a", "--create"]).code, Some(2));
}

#[test]
fn a_length_of_time_does_not_go_with_a_key_and_the_time_itself_does() {
    everywhere(|folder, place| {
        let refused = place.run(folder, &["publish", "a", "--key", "k", "--not-before", "+1h"]).bad();
        let (_, time) = refused.trim().rsplit_once(' ').unwrap();
        let publish = || place.run(folder, &["publish", "a", "--key", "k", "--not-before", time, "--json"]).json();
        let (first, again) = (publish(), publish());
        assert_eq!((&first["id"], &again["repeated"]), (&again["id"], &json!(true)));
    });
}

#[test]
fn what_is_no_store_is_named_as_such() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in
        [&["publish", "a"][..], &["tail"], &["verify"], &["serve"], &["config", "check"], &["bench", "append"]]
    {
        let error = run(folder.path(), &[arguments, &["--store", "mysql://u:canary@h/db"]].concat()).bad();
        let told =
            error.contains("--store") && error.contains("`mysql:` is not a store") && error.contains("sqlite:PATH");
        assert!(told && !error.contains("canary"), "{error}");
    }
    let doctor = run(folder.path(), &["doctor", "--store", "mysql://u:canary@h/db"]);
    assert_eq!(doctor.code, Some(1));
    assert!(doctor.stdout.contains("PROBLEM  store     `mysql:` is not a store"), "{doctor:?}");
    assert!(!doctor.stdout.contains("canary"), "{doctor:?}");
}

/// What is published there would be gone at once.
#[test]
fn a_store_in_memory_is_for_servers() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [&["publish", "a", "--create"][..], &["verify"], &["tail"]] {
        let refused = run(folder.path(), &[arguments, &["--store", "sqlite::memory:"]].concat()).bad();
        assert!(refused.contains("ensue serve --dev"), "{refused}");
    }
}

/// Somebody else's 404 says nothing about an event.
#[test]
fn what_is_no_ensue_server_is_not_believed() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let id = "01890a5d-ac96-774b-bcce-b302099a8057";
    for arguments in [&["event", "show", "1"][..], &["event", "cancel", id], &["object", "show", "o"], &["tail"]] {
        let other = format!("{}/elsewhere", server.url);
        let refused = run(folder.path(), &[arguments, &["--url", &other]].concat()).bad();
        assert!(!refused.contains("no event"), "{refused}");
    }
}

#[test]
fn a_mistake_in_what_to_log_is_told_and_keeps_nothing_from_working() {
    let folder = tempfile::tempdir().unwrap();
    let told = Run::of(ensue(folder.path(), &["config", "check"]).env("ENSUE_LOG", "=["));
    assert_eq!(told.code, Some(0), "{told:?}");
    assert!(told.stderr.contains("ENSUE_LOG is not understood"), "{told:?}");
}
