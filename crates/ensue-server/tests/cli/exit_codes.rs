//! Exit codes and JSON errors are the same through a server and on a store itself.

use crate::support::{Place, Run, Server, everywhere, run};
use serde_json::Value;
use std::path::Path;

const ID: &str = "0190a5a0-0000-7000-8000-000000000001";

/// The error that a command with `--json` reports.
fn error(run: &Run) -> Value {
    assert_eq!(run.stdout, "", "{run:?}");
    let error: Value = serde_json::from_str(run.stderr.trim_end()).unwrap_or_else(|error| panic!("{error}: {run:?}"));
    assert!(error["error"]["title"].is_string() && error["error"]["detail"].is_string(), "{error}");
    error["error"].clone()
}

/// A command fails with a code, in words and as JSON.
fn fails(place: &Place<'_>, folder: &Path, arguments: &[&str], code: i32) -> Value {
    let words = place.run(folder, arguments);
    assert_eq!(words.code, Some(code), "{arguments:?}: {words:?}");
    assert!(words.stderr.starts_with("error: "), "{words:?}");
    let json = place.run(folder, &[arguments, &["--json"]].concat());
    assert_eq!(json.code, Some(code), "{arguments:?}: {json:?}");
    error(&json)
}

#[test]
fn exit_codes_distinguish_not_found_and_refused() {
    everywhere(|folder, place| {
        place.run(folder, &["publish", "order", "--key", "k"]).good();
        let not_found: &[&[&str]] = &[
            &["event", "show", "99"],
            &["event", "show", ID],
            &["event", "cancel", ID],
            &["event", "deliveries", "99"],
            &["event", "deliveries", "1", "--logs", "none"],
            &["job", "show", ID],
            &["job", "logs", ID],
            &["job", "cancel", ID],
            &["group", "show", "none"],
            &["group", "read", "none"],
            &["group", "delete", "none"],
            &["handler", "show", "none"],
            &["handler", "delete", "none"],
            &["schedule", "show", "none"],
            &["schedule", "run", "none"],
            &["schedule", "delete", "none"],
            &["task", "show", "none"],
            &["object", "retry", "none"],
            &["explain", "schedule:none"],
            &["explain", "event:99"],
        ];
        for arguments in not_found {
            assert_eq!(fails(&place, folder, arguments, 3)["status"], 404, "{arguments:?}");
        }
        let refused: &[(&[&str], u16)] = &[
            (&["publish", "order..paid"], 422),
            (&["publish", "other", "--key", "k"], 409),
            (&["event", "list", "--after", "99"], 422),
            (&["event", "list", "--where", "e.none"], 422),
            (&["handler", "set", "h", "--on", "a..b"], 422),
            (&["schedule", "set", "s", "--cron", "99 * * * *", "--topic", "t"], 422),
        ];
        for (arguments, status) in refused {
            let error = fails(&place, folder, arguments, 4);
            assert_eq!(error["status"], *status, "{arguments:?}: {error}");
        }
        // Over HTTP the name is a part of the path, which cannot be read.
        let status = fails(&place, folder, &["group", "create", "a..b"], 4)["status"].as_u64().unwrap();
        assert!(matches!(status, 400 | 422), "{status}");
        let usage = place.run(folder, &["event", "show", "--json", "--none"]);
        assert_eq!(usage.code, Some(2), "{usage:?}");
        assert!(error(&usage)["detail"].as_str().unwrap().contains("--none"));
    });
}

#[test]
fn a_wrong_token_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let secret = "a-token-that-is-long-enough-for-any-rule-0123456789";
    let mut command = crate::support::ensue(folder, &["serve", "--listen", "127.0.0.1:0"]);
    let server = Server::start_with(command.env("ENSUE_TOKEN", secret), folder);
    let refused = error(&server.run(folder, &["event", "list", "--json"]));
    assert_eq!(refused["status"], 401);
    assert_eq!(server.run(folder, &["event", "list"]).code, Some(4));
}

#[test]
fn unanswered_address_exits_with_5() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    let places = [
        ["--url".to_owned(), format!("http://{address}")],
        ["--store".to_owned(), "sqlite:none.db".to_owned()],
        ["--store".to_owned(), format!("postgres://nobody@{address}/none")],
    ];
    for [flag, place] in places {
        for command in [&["event", "list"][..], &["publish", "order"]] {
            let arguments = [command, &[&flag, &place]].concat();
            let words = run(folder, &arguments);
            assert_eq!(words.code, Some(5), "{arguments:?}: {words:?}");
            let json = run(folder, &[&arguments[..], &["--json"]].concat());
            assert_eq!(json.code, Some(5), "{json:?}");
            error(&json);
        }
    }
}
