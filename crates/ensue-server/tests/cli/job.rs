//! Jobs from the command line.

use crate::support::{Lines, PATIENCE, Place, Server, ensue, everywhere, run};
use serde_json::{Value, json};
use std::time::Instant;

fn id_of(sent: &Value) -> String {
    sent["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_job_is_sent_listed_shown_and_steered_everywhere() {
    everywhere(|folder, place| {
        // Makes the store.
        place.run(folder, &["publish", "t"]).good();
        let emit = |more: &[&str]| {
            let all = [&["emit", "mail.send", "--json"], more].concat();
            place.run(folder, &all).json()
        };
        let payload = r#"{"digits": 1234567890.12345678901234567890}"#;
        let priority = u64::MAX.to_string();
        let first = emit(&["--payload", payload, "--object", "u:1", "--priority", &priority, "--attempts-max", "3"]);
        assert_eq!((&first["state"], &first["existing"]), (&json!("available"), &json!(false)));
        let first = id_of(&first);
        let second = id_of(&emit(&["--object", "u:1"]));
        let later = emit(&["--delay", "1h", "--unique-key", "k"]);
        assert_eq!(later["state"], "scheduled");
        let again = emit(&["--unique-key", "k"]);
        assert_eq!((&again["id"], &again["existing"]), (&later["id"], &json!(true)));

        let listed = place.run(folder, &["job", "list", "--json"]).json();
        assert_eq!((listed["jobs"].as_array().unwrap().len(), &listed["next"]), (3, &Value::Null));
        let parked =
            place.run(folder, &["job", "list", "--state", "parked,dead", "--handler", "mail", "--json"]).json();
        assert_eq!(parked["jobs"][0]["id"], *second);
        let table = place.run(folder, &["job", "list", "--limit", "1"]);
        assert!(table.stdout.contains(&first) && table.stderr.contains("--after"), "{table:?}");
        let after = place.run(folder, &["job", "list", "--after", &first, "--limit", "1", "--json"]).json();
        assert_eq!(after["jobs"][0]["id"], *second);

        let shown = place.run(folder, &["job", "show", &first, "--json"]).good();
        assert!(shown.contains("1234567890.12345678901234567890"), "numbers keep their digits: {shown}");
        assert!(shown.contains(&priority), "{shown}");
        let text = place.run(folder, &["job", "show", &first]).good();
        assert!(text.contains("1234567890.12345678901234567890") && text.contains("0 of 3"), "{text}");
        assert!(place.run(folder, &["job", "logs", &first]).good().is_empty());

        let told = place.run(folder, &["job", "cancel", &first]).good();
        assert_eq!(told.trim(), format!("job {first} is cancelled"));
        let refused = place.run(folder, &["job", "cancel", &first]).bad();
        assert!(refused.contains("cancelled already"), "{refused}");
        let dry = place.run(folder, &["job", "cancel", "--handler", "mail", "--dry-run"]).good();
        assert_eq!(dry.trim(), "2 jobs would be cancelled, 0 refused");
        let later = id_of(&later);
        let now = place.run(folder, &["job", "retry", &later, "--json"]).json();
        assert_eq!(now["state"], "available");
        let all = place.run(folder, &["job", "cancel", "--state", "available", "--json"]).json();
        assert_eq!(all, json!({"matched": 2, "refused": 0, "dry_run": false}));
        place.run(folder, &["job", "cancel"]).bad();
        place.run(folder, &["job", "cancel", &later, "--state", "dead"]).bad();
        let unknown = "0190a5a0-0000-7000-8000-000000000001";
        for command in ["show", "logs", "retry", "skip", "cancel"] {
            let refused = place.run(folder, &["job", command, unknown]).bad();
            assert!(refused.contains("there is no job"), "{command}: {refused}");
        }
        assert_eq!(place.run(folder, &["job", "show", "7"]).code, Some(2));
    });
}

#[test]
fn something_is_paused_explained_and_resumed_everywhere() {
    everywhere(|folder, place| {
        let published = place.run(folder, &["publish", "t", "--object", "o/1", "--json"]).json();
        let seq = published["seq"].to_string();
        let job = id_of(&place.run(folder, &["emit", "mail.send", "--object", "o/1", "--json"]).json());
        let told = place.run(folder, &["pause", "mail", "--reason", "the relay is down", "--for", "10m"]).good();
        assert!(told.starts_with("paused: nothing of handler:mail starts any more until "), "{told}");
        let rules = place.run(folder, &["rule", "list", "--json"]).json();
        let rule = &rules["rules"][0];
        assert_eq!(
            (&rule["kind"], &rule["scope"], &rule["reason"]),
            (&json!("pause"), &json!("handler:mail"), &json!("the relay is down"))
        );
        assert_eq!(rule["author"], "local");
        let shown = place.run(folder, &["job", "show", &job, "--json"]).json();
        assert_eq!(shown["state"], "parked");

        let why = place.run(folder, &["explain", &format!("job:{job}"), "--json"]).json();
        assert_eq!(
            (&why["verdict"], &why["because"][0]["kind"], &why["because"][0]["ref"]),
            (&json!("parked"), &json!("rule"), &rule["id"])
        );
        let text = place.run(folder, &["explain", &format!("job:{job}")]).good();
        assert!(text.contains("the relay is down") && text.contains("→ ensue resume handler:mail"), "{text}");
        let object = place.run(folder, &["explain", "object:o/1", "--json"]).json();
        assert_eq!((&object["verdict"], &object["jobs"][0]["id"]), (&json!("held"), &json!(job)));
        let event = place.run(folder, &["explain", &format!("event:{seq}"), "--json"]).json();
        assert_eq!((&event["verdict"], &event["handlers"]), (&json!("not_matched"), &json!([])));
        let none = place.run(folder, &["explain", &format!("event:{seq}"), "--handler", "none"]).bad();
        assert!(none.contains("there is no handler `none`"), "{none}");
        place.run(folder, &["explain", &format!("job:{job}"), "--handler", "none"]).bad();
        assert_eq!(place.run(folder, &["explain", "schedule:nightly"]).code, Some(3));

        let told = place.run(folder, &["resume", "mail"]).good();
        assert!(told.starts_with("resumed: handler:mail goes on"), "{told}");
        let again = place.run(folder, &["resume", "mail"]).good();
        assert!(again.starts_with("nothing to lift: handler:mail is not paused"), "{again}");
        let mistyped = place.run(folder, &["pause", "mial"]);
        assert!(mistyped.stderr.contains("note: no handler or job has this key"), "{mistyped:?}");
        place.run(folder, &["resume", "mial"]).good();
        let blocked = place.run(folder, &["block", "object:o/1", "--until", "2999-01-01T00:00:00Z", "--json"]).json();
        assert_eq!((&blocked["kind"], &blocked["scope"]), (&json!("block"), &json!("object:o/1")));
        place.run(folder, &["unblock", "object:o/1"]).good();
        let past = place.run(folder, &["block", "mail", "--until", "2020-01-01T00:00:00Z"]).bad();
        assert!(past.contains("which has passed"), "{past}");
        assert_eq!(place.run(folder, &["pause", "queue:x"]).code, Some(2));
        assert_eq!(place.run(folder, &["rule", "list"]).good().trim(), "nothing is paused or blocked");
    });
}

/// `pull: true` in the config file: workers elsewhere claim the deliveries, and what they say can be followed.
#[test]
fn a_pull_handler_of_the_config_file_is_served_over_http() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let config =
        "workers: 3\nhandlers:\n  order.paid:\n    - { name: remote, pull: true, retry: { attempts_max: 7 } }\n";
    std::fs::write(folder.join("ensue.yaml"), config).unwrap();
    let server = Server::start(folder);
    server.run(folder, &["publish", "order.paid", "--object", "o"]).good();
    let found = |state: &str| {
        let begun = Instant::now();
        loop {
            let listed = server.run(folder, &["job", "list", "--state", state, "--json"]).json();
            match listed["jobs"].as_array().unwrap().first() {
                Some(job) => return job.clone(),
                None => assert!(begun.elapsed() < PATIENCE, "no job is {state}"),
            }
        }
    };
    let job = found("available");
    assert_eq!(
        (&job["handler"], &job["event"]["seq"], &job["attempts_max"]),
        (&json!("order.paid.remote"), &json!(1), &json!(7))
    );
    let id = id_of(&job);
    let why = server.run(folder, &["explain", "event:1", "--handler", "order.paid.remote"]).good();
    assert!(why.contains(&format!("it became job {id}")), "{why}");

    let post = |path: &str, body: Value| -> Value {
        let answer = std::process::Command::new("curl")
            .args(["-sS", "--fail-with-body", "-H", "content-type: application/json", "-d", &body.to_string()])
            .arg(format!("{}/v1/jobs/{path}", server.url))
            .output()
            .unwrap();
        serde_json::from_slice(&answer.stdout).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
    };
    let claimed = post("claim", json!({"handlers": ["order.paid.remote"], "lease_ms": 60_000, "worker": "curl"}));
    let claim = &claimed["jobs"][0]["claim"];
    let mut follow = ensue(folder, &["job", "logs", &id, "--follow"]);
    let lines = Lines::of(follow.env("ENSUE_URL", &server.url));
    post(&format!("{id}/log"), json!({"claim": claim, "lines": [{"message": "at work"}]}));
    assert!(lines.next().ends_with("at work"));
    let done = post(&format!("{id}/complete"), json!({"claim": claim, "result": 7}));
    assert_eq!((&done["state"], &done["result"]), (&json!("succeeded"), &json!(7)));
    assert!(server.terminate().success());
}

/// `doctor` names handlers whose jobs wait for nobody.
#[test]
fn doctor_lists_handlers_that_nobody_serves() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let place = Place::Store("sqlite:ensue.db".into());
    place.run(folder, &["publish", "t"]).good();
    place.run(folder, &["emit", "mial.send"]).good();
    place.run(folder, &["pause", "mail"]).good();
    let told = run(folder, &["doctor", "--store", "sqlite:ensue.db"]).stdout;
    assert!(told.contains("1 job waits for the handler `mial.send`: nobody has registered it"), "{told}");
    assert!(told.contains("handler:mail is paused by local") && told.contains("ensue resume handler:mail"), "{told}");
}
