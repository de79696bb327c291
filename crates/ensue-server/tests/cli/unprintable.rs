//! Control, bidirectional and zero-width characters in stored data never reach a terminal or the log as they are.

use crate::support::{PATIENCE, Place, Run, Server, ensue, run};
use ensue::event::Entry;
use ensue::text::is_unprintable;
use ensue::{Ensue, Json, NewEvent, ObjectKey};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// The handler prints the characters on stdout and stderr, then fails with them.
const CONFIG: &str = "\
handlers:
  order.paid:
    - name: print
      command: [sh, -c, 'cat chars; cat chars >&2; exit 1']
      retry: { attempts_max: 1 }
";

/// Every unprintable character but NUL and the line breaks, between two letters.
fn unprintable() -> String {
    let chars = ('\u{1}'..=char::MAX).filter(|c| is_unprintable(*c) && !matches!(c, '\n' | '\r'));
    format!("a{}b", chars.collect::<String>())
}

/// An object with some of them, as an earlier version stored it.
const OBJECT: &str = "order\u{1b}[2J\u{202e}\u{200b}\u{7f}\u{9b}:1";

fn assert_printable(what: &str, text: &str) {
    if let Some(c) = text.chars().find(|c| is_unprintable(*c) && *c != '\n') {
        panic!("{what} printed {c:?}: {text:?}");
    }
}

async fn store_old_event(folder: &Path) {
    let bus = Ensue::open(folder.join("ensue.db").to_str().unwrap()).await.unwrap();
    let chars = unprintable();
    let entry = Entry {
        object: Some(ObjectKey::stored(OBJECT)),
        payload: Json::of("payload", &json!({ "text": chars })).unwrap(),
        metadata: Json::of("metadata", &json!({ "text": chars })).unwrap(),
        ..NewEvent::new("order.paid").check().unwrap()
    };
    bus.store().append(vec![entry]).await.unwrap();
    bus.close().await;
}

/// A job whose payload, log and error contain the characters; answers its id.
async fn fail_job(url: &str) -> String {
    rustls::crypto::ring::default_provider().install_default().ok();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let post = async |path: &str, body: Value| -> Value {
        let request = client.post(format!("{url}{path}")).header("content-type", "application/json");
        let answer = request.body(body.to_string()).send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert!(status.is_success(), "{path}: {text}");
        serde_json::from_str(&text).unwrap()
    };
    let chars = unprintable();
    post("/v1/jobs", json!({ "handler": "mail.send", "payload": { "text": chars }, "attempts_max": 1 })).await;
    let claimed = post("/v1/jobs/claim", json!({ "handlers": ["mail.send"] })).await;
    let (id, claim) = (claimed["jobs"][0]["id"].as_str().unwrap(), &claimed["jobs"][0]["claim"]);
    let lines = json!([{ "message": chars }, { "message": format!("x\nforged\r{chars}") }]);
    post(&format!("/v1/jobs/{id}/log"), json!({ "claim": claim, "lines": lines })).await;
    post(&format!("/v1/jobs/{id}/fail"), json!({ "claim": claim, "error": chars })).await;
    id.to_owned()
}

fn held(server: &Server, folder: &Path) -> bool {
    let deliveries = server.run(folder, &["event", "deliveries", "1", "--json"]).json();
    deliveries["deliveries"].as_array().unwrap().iter().any(|one| !one["error"].is_null())
}

#[test]
fn no_command_and_no_log_prints_unprintable_characters() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    std::fs::write(folder.join("ensue.yaml"), CONFIG).unwrap();
    std::fs::write(folder.join("chars"), unprintable()).unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(store_old_event(folder));
    run(folder, &["group", "create", "g", "--start", "beginning", "--store", "sqlite:ensue.db"]).good();
    run(folder, &["group", "subscribe", "g", "--topic", "order", "--store", "sqlite:ensue.db"]).good();
    let replayed = ["group", "replay", "order.paid.print", "--from", "1"];

    let mut command = ensue(folder, &["serve", "--listen", "127.0.0.1:0"]);
    let server = Server::start_with(command.env("ENSUE_LOG", "debug"), folder);
    server.run(folder, &replayed).good();
    let begun = Instant::now();
    while !held(&server, folder) {
        assert!(begun.elapsed() < PATIENCE, "the handler did not fail");
        std::thread::sleep(Duration::from_millis(10));
    }
    let job = runtime.block_on(fail_job(&server.url));
    let explained = format!("object:{OBJECT}");
    let commands: &[&[&str]] = &[
        &["event", "show", "1"],
        &["event", "list"],
        &["event", "list", "--object", OBJECT],
        &["event", "deliveries", "1"],
        &["event", "deliveries", "1", "--logs", "order.paid.print"],
        &["object", "show", OBJECT],
        &["object", "list"],
        &["tail", "--no-follow"],
        &["job", "list"],
        &["job", "show", &job],
        &["job", "logs", &job],
        &["group", "list"],
        &["group", "show", "g"],
        &["group", "read", "g", "--peek"],
        &["handler", "list"],
        &["handler", "show", "order.paid.print"],
        &["rule", "list"],
        &["schedule", "list"],
        &["task", "list"],
        &["explain", "event:1"],
        &["explain", &explained],
        &["verify"],
        &["doctor"],
        // These are refused, and the refusal repeats the argument.
        &["object", "retry", "none\u{1b}[2J\u{202e}"],
        &["publish", "order\u{1b}[2J\u{202e}"],
        &["publish", "order", "--object", OBJECT],
        &["tail", "--no-follow", "--where", "e.\u{1b}[2J\u{202e}"],
        &["explain", "job:\u{1b}[2J\u{202e}"],
        &["pause", "nothing:\u{1b}[2J\u{202e}"],
        &["\u{1b}[2J\u{202e}"],
    ];
    let show = |place: &Place<'_>| {
        for arguments in commands {
            for json in [false, true] {
                let flag: &[&str] = if json { &["--json"] } else { &[] };
                let Run { code, stdout, stderr } = place.run(folder, &[*arguments, flag].concat());
                assert_printable(&format!("stdout of {arguments:?}"), &stdout);
                assert_printable(&format!("stderr of {arguments:?}"), &stderr);
                assert!(!stdout.lines().any(|line| line.starts_with("forged")), "{stdout}");
                if json && code == Some(0) {
                    for line in stdout.lines() {
                        serde_json::from_str::<Value>(line)
                            .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {line}"));
                    }
                }
            }
        }
    };
    show(&Place::Server(&server));
    let event = server.run(folder, &["event", "show", "1", "--json"]).json();
    assert_eq!((&event["object"], &event["payload"]["text"]), (&json!(OBJECT), &json!(unprintable())));
    assert!(server.run(folder, &["object", "show", OBJECT]).good().contains("order.paid"));
    let logs = server.run(folder, &["event", "deliveries", "1", "--logs", "order.paid.print"]).good();
    assert!(logs.contains(r"\u{1b}") && logs.contains(r"\u{202e}") && logs.contains(r"\t"), "{logs}");
    server.terminate();
    show(&Place::Store("sqlite:ensue.db".into()));
    assert_printable("the log", &std::fs::read_to_string(folder.join("serve.log")).unwrap());
}
