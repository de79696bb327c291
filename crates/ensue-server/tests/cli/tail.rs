//! Does `ensue tail` show what happened and what happens, whatever becomes of the server?

use crate::support::{Lines, Run, Server, ensue, everywhere, run};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::Stdio;

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
fn tail_and_list_show_what_a_condition_holds_for() {
    everywhere(|folder, place| {
        for payload in [r#"{"n":"7"}"#, r#"{"n":"seven"}"#, r#"{"n":"3"}"#, r#"{"n":"9"}"#] {
            place.run(folder, &["publish", "t", "--object", "o", "--payload", payload]).good();
        }
        let larger = "(e.payload->>'n')::int > (s.params->>'min')::int";
        let tail = ["tail", "--no-follow", "--json", "--where", larger, "--params", r#"{"min": 5}"#];
        let tailed = place.run(folder, &tail);
        assert!(tailed.stderr.contains("the condition failed on event 2: \"seven\""), "{tailed:?}");
        let events: Vec<Value> = tailed.good().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let places: Vec<_> = events.iter().map(|event| (event["seq"].clone(), event["prev"].clone())).collect();
        assert_eq!(places, [(json!(1), Value::Null), (json!(4), json!(1))]);

        std::fs::write(folder.join("params.json"), r#"{"min": 8}"#).unwrap();
        let list = ["event", "list", "--where", larger, "--params", "@params.json"];
        let listed = place.run(folder, &[&list[..], &["--json"]].concat()).json();
        assert_eq!((&listed["events"][0]["seq"], listed["events"].as_array().unwrap().len()), (&json!(4), 1));
        assert_eq!((&listed["next"], &listed["condition_errors"]["count"]), (&json!(4), &json!(1)));
        let table = place.run(folder, &list);
        assert!(table.stderr.contains("the condition failed on event 2: \"seven\""), "{table:?}");
        assert!(table.good().contains(r#"{"n":"9"}"#));
        assert!(place.run(folder, &["event", "list", "--where", "e.topic = 'none'"]).good().contains("no such event"));
    });
}

#[test]
fn a_bad_condition_is_refused_before_anything_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    for command in [&["tail"][..], &["event", "list"]] {
        let refused = |more: &[&str]| run(folder.path(), &[command, more, &["--store", "sqlite:no.db"]].concat());
        let unknown = refused(&["--where", "e.tpoic = 'a'"]).bad();
        assert!(unknown.contains("`where`") && unknown.contains("e.tpoic"), "{unknown}");
        let parentheses = format!("{}true{}", "(".repeat(5_000), ")".repeat(5_000));
        assert!(refused(&["--where", &parentheses]).bad().contains("at most 4000"));
        let params = refused(&["--where", "true", "--params", "{n:1}"]).bad();
        assert!(params.contains("`params` is not JSON"), "{params}");
        let alone = refused(&["--params", "{}"]);
        assert!(alone.code == Some(2) && alone.stderr.contains("--where"), "{alone:?}");
    }
    let pending = run(folder.path(), &["event", "list", "--pending", "--where", "true"]);
    assert!(pending.code == Some(2) && pending.stderr.contains("--where"), "{pending:?}");
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
fn tail_ends_when_nobody_reads_it_any_more_although_nothing_happens() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), &["publish", "only", "--store", "sqlite:ensue.db", "--create"]).good();
    let mut command = ensue(folder.path(), &["tail", "--from-beginning", "--store", "sqlite:ensue.db"]);
    let mut tail = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(tail.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.contains("only"), "{line}");
    // The pipe is closed now, as by `head -1`.
    assert!(tail.wait().unwrap().success());
}

#[test]
fn two_logs_at_once_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let both = ["publish", "a", "--create", "--store", "sqlite:new.db", "--url", "http://127.0.0.1:1"];
    assert!(run(folder.path(), &both).bad().contains("--store and --url name two logs"));
    assert!(!folder.path().join("new.db").exists());
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
fn without_following_it_shows_what_is_there_and_stops() {
    everywhere(|folder, place| {
        for topic in ["order.placed", "other", "order.paid"] {
            place.run(folder, &["publish", topic, "--object", "o:1"]).good();
        }
        let seqs = |arguments: &[&str]| -> Vec<Value> {
            let text = place.run(folder, &[&["tail", "--no-follow", "--json"][..], arguments].concat()).good();
            text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["seq"].clone()).collect()
        };
        assert_eq!(seqs(&[]), [1, 2, 3]);
        assert_eq!(seqs(&["--after", "2"]), [3]);
        assert_eq!(seqs(&["--topic", "order"]), [1, 3]);
        assert_eq!(seqs(&["--limit", "1"]), [1]);
        assert_eq!(seqs(&["--object", "nobody"]), [0; 0]);
    });
}

/// `--json` has the shape of HTTP, through a server and on a store alike.
#[test]
fn a_line_of_json_is_the_event_as_http_shows_it() {
    everywhere(|folder, place| {
        place.run(folder, &["publish", "a"]).good();
        let tail = place.run(folder, &["tail", "--no-follow", "--json"]).json();
        let shown = place.run(folder, &["event", "show", "1", "--json"]).json();
        assert_eq!(tail, shown);
        assert_eq!(
            (&tail["state"], tail.get("prev"), tail.get("object")),
            (&json!("logged"), Some(&Value::Null), Some(&Value::Null))
        );
    });
}

#[test]
fn a_place_beyond_the_end_is_told_as_such() {
    everywhere(|folder, place| {
        place.run(folder, &["publish", "a"]).good();
        let told = place.run(folder, &["tail", "--after", "9", "--no-follow"]);
        assert_eq!((told.code, told.stdout.as_str()), (Some(0), ""), "{told:?}");
        assert!(told.stderr.contains("the log ends at seq 1, and seq 9 is not in it"), "{told:?}");
        let gap = place.run(folder, &["tail", "--after", "9", "--no-follow", "--json"]).json();
        assert_eq!(gap, json!({ "gap": { "from": 2, "to": 9, "reason": "beyond_end" } }));
    });
}

#[test]
fn a_lost_connection_is_told_on_stderr_and_so_is_the_next_one() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let (url, address) = (server.url.clone(), server.url.strip_prefix("http://").unwrap().to_string());
    server.run(folder.path(), &["publish", "first"]).good();
    let mut command = ensue(folder.path(), &["tail", "--from-beginning", "--limit", "2"]);
    let log = std::fs::File::create(folder.path().join("tail.log")).unwrap();
    let tail = Lines::with_stderr(command.env("ENSUE_URL", &url), log);
    assert!(tail.next().contains("first"));
    assert!(server.terminate().success());
    let server = Server::start_with(&mut ensue(folder.path(), &["serve", "--listen", &address]), folder.path());
    server.run(folder.path(), &["publish", "second"]).good();
    assert!(tail.next().contains("second"));
    let told = std::fs::read_to_string(folder.path().join("tail.log")).unwrap();
    assert_eq!(told, format!("the stream from {url} ended; opening it again\nconnected again to {url}\n"));
}

/// A token that the server does not know (any more) is not tried for ever.
#[test]
fn a_token_that_is_refused_ends_it() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = ensue(folder.path(), &["serve", "--dev", "--listen", "127.0.0.1:0"]);
    let server = Server::start_with(command.env("ENSUE_TOKEN", "canary-token-of-the-test"), folder.path());
    let refused =
        Run::of(ensue(folder.path(), &["tail", "--url", &server.url]).env("ENSUE_TOKEN", "wrong-canary")).bad();
    assert!(refused.contains("does not know this token") && !refused.contains("canary"), "{refused}");
    let refused = run(folder.path(), &["tail", "--url", &server.url]).bad();
    assert!(refused.contains("wants a token"), "{refused}");
}
