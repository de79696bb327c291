//! A server reads its config file again when it is told to: limits and handlers change, what runs goes on.

use crate::support::{PATIENCE, Server, ensue, everywhere};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// Notes each beginning and end, and waits in between until there is a file `go`.
const SLOW: &str =
    "echo b$ENSUE_EVENT_SEQ >> said; until [ -e go ]; do sleep 0.05; done; echo e$ENSUE_EVENT_SEQ >> said";

fn write(folder: &Path, text: &str) {
    // At once, so that nobody reads half of it.
    std::fs::write(folder.join("new.yaml"), text).unwrap();
    std::fs::rename(folder.join("new.yaml"), folder.join("ensue.yaml")).unwrap();
}

fn until(otherwise: &str, ask: impl Fn() -> bool) {
    let begun = Instant::now();
    while !ask() {
        assert!(begun.elapsed() < PATIENCE, "{otherwise}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn log(folder: &Path) -> String {
    std::fs::read_to_string(folder.join("serve.log")).unwrap_or_default()
}

fn said(folder: &Path, what: &str) -> usize {
    let said = std::fs::read_to_string(folder.join("said")).unwrap_or_default();
    said.lines().filter(|line| line.starts_with(what)).count()
}

/// Tells the server to read its file, and waits until it has said this about it so often.
fn reload(server: &Server, folder: &Path, told: &str, times: usize) {
    server.signal("HUP");
    until(&format!("it says `{told}` {times} times"), || log(folder).matches(told).count() == times);
}

fn shown(server: &Server, folder: &Path, key: &str) -> Value {
    server.run(folder, &["handler", "show", key, "--json"]).json()
}

#[test]
fn sighup_takes_over_limits_and_handlers_and_leaves_alone_what_runs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let slow = |concurrency: u32, more: &str| {
        format!(
            "handlers:\n  order:\n    - {{ name: slow, command: [sh, -c, '{SLOW}'], concurrency: {concurrency}{more} }}\n"
        )
    };
    write(path, &slow(1, ""));
    let server = Server::start(path);
    for n in 0..3 {
        server.run(path, &["publish", "order.paid", "--object", &format!("order:{n}")]).good();
    }
    until("one runs", || said(path, "b") == 1);

    write(
        path,
        &format!("{}workers: 3\nretention: {{ age: 7d }}\n", slow(2, ", retry: { attempts_max: 9 }, timeout: 1h")),
    );
    reload(&server, path, "was read again: limits of 1 handler", 1);
    until("two run", || said(path, "b") == 2);
    assert!(log(path).contains("`retention` of the config file has changed: restart the server"), "{}", log(path));
    let now = shown(&server, path, "order.slow");
    assert_eq!(
        (&now["concurrency"], &now["retry"]["attempts_max"], &now["timeout"]),
        (&json!(2), &json!(9), &json!("1h"))
    );

    // A mistake is told with its place, and changes nothing.
    write(path, &format!("{}workers: many\n", slow(3, "")));
    reload(&server, path, "nothing was changed: ensue.yaml:4:10:", 1);
    assert_eq!(shown(&server, path, "order.slow")["concurrency"], 2);

    // Another handler comes, and this one goes when what runs has come to its end.
    write(path, "handlers:\n  order:\n    - { name: quick, command: [sh, -c, 'echo q$ENSUE_EVENT_SEQ >> said'] }\n");
    reload(&server, path, "new: order.quick; no longer run here: order.slow", 1);
    server.run(path, &["publish", "order.paid", "--object", "order:0"]).good();
    until("the new one runs", || said(path, "q4") == 1);
    assert_eq!((said(path, "b"), said(path, "e")), (2, 0), "nothing new begins, and what runs was not ended");
    std::fs::write(path.join("go"), "").unwrap();
    until("what ran has ended", || said(path, "e") == 2);
    until("nobody runs it", || shown(&server, path, "order.slow")["orphaned"] == true);
    assert_eq!(shown(&server, path, "order.slow")["lag"].as_u64().map(|lag| lag > 0), Some(true));

    // Back again, it goes on where it was.
    write(path, &slow(2, ""));
    reload(&server, path, "new: order.slow; no longer run here: order.quick", 1);
    until("it does what is left", || said(path, "e") == 4);
    assert_eq!(said(path, "b"), 4, "nothing was done twice");
    assert!(server.terminate().success());
}

/// With --dev nobody has to be told.
#[test]
fn a_server_for_trying_things_out_sees_that_its_file_has_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let server = Server::start_with(&mut ensue(path, &["serve", "--dev", "--listen", "127.0.0.1:0"]), path);
    let handler =
        |word: &str| format!("handlers:\n  a:\n    - {{ name: h, command: [sh, -c, 'echo {word} >> said'] }}\n");
    for (times, word) in ["one", "two"].into_iter().enumerate() {
        write(path, &handler(word));
        until("it is read", || log(path).matches("the config file was read again").count() == times + 1);
        server.run(path, &["publish", "a"]).good();
        until("it runs as it is written now", || said(path, word) == 1);
    }
    std::fs::remove_file(path.join("ensue.yaml")).unwrap();
    until("that it is gone is told", || log(path).contains("the config file ensue.yaml is gone"));
    server.run(path, &["publish", "a"]).good();
    until("and it goes on", || said(path, "two") == 2);
    assert!(server.terminate().success());
}

/// `ensue handler set`, `show` and `delete`, through a server and on a store itself.
#[test]
fn a_handler_is_set_shown_and_deleted() {
    everywhere(|folder, place| {
        place.run(folder, &["publish", "order.paid", "--object", "order:1"]).good();
        let set = ["handler", "set", "order.paid.remote", "--on", "order.paid", "--start", "beginning", "--unordered"];
        let more = ["--retry", r#"{"attempts_max": 2}"#, "--timeout", "5m", "--on-exhausted", "skip", "--json"];
        let made = place.run(folder, &[&set[..], &more].concat()).json();
        assert_eq!(
            (&made["on"], &made["ordered"], &made["start"]),
            (&json!("order.paid"), &json!(false), &json!("beginning"))
        );
        let shown = place.run(folder, &["handler", "show", "order.paid.remote", "--json"]).json();
        assert_eq!((&shown["retry"]["attempts_max"], &shown["timeout"]), (&json!(2), &json!("5m")));
        assert_eq!((&shown["on_exhausted"], &shown["defined"]), (&json!("skip"), &json!(true)));
        let table = place.run(folder, &["handler", "show", "order.paid.remote"]).good();
        assert!(table.contains("order.paid.remote") && table.contains("5m"), "{table}");
        let refused = place.run(folder, &["handler", "set", "x", "--on", "a", "--where", "nonsense"]).bad();
        assert!(refused.contains("`where`"), "{refused}");
        assert_eq!(
            place.run(folder, &["handler", "delete", "order.paid.remote"]).good().trim(),
            "deleted: order.paid.remote"
        );
        assert!(place.run(folder, &["handler", "show", "order.paid.remote"]).bad().contains("there is no handler"));
    });
}
