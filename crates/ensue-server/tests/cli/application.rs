//! Code that is compiled into an application is bound by its name in the config file.

// Its `main` is for people.
#[allow(dead_code)]
#[path = "../../examples/application.rs"]
mod example;

use crate::support::{PATIENCE, Run, Server, without_variables};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

#[tokio::test(flavor = "multi_thread")]
#[ignore = "it is started by the tests below, as a process of its own"]
async fn serve() {
    if let Err(error) = example::run().await {
        panic!("{error:#}");
    }
}

/// The application, with this config file in its folder.
fn start(folder: &Path, handlers: &str) -> Command {
    write(folder, handlers);
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "application::serve", "--ignored", "--nocapture", "--test-threads", "1"]);
    without_variables(&mut command).current_dir(folder);
    command
}

fn write(folder: &Path, handlers: &str) {
    // At once, so that nobody reads half of it.
    std::fs::write(folder.join("new.yaml"), format!("listen: 127.0.0.1:0\nhandlers:\n{handlers}")).unwrap();
    std::fs::rename(folder.join("new.yaml"), folder.join("ensue.yaml")).unwrap();
}

fn until(otherwise: &str, ask: impl Fn() -> bool) {
    let begun = Instant::now();
    while !ask() {
        assert!(begun.elapsed() < PATIENCE, "{otherwise}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn read(folder: &Path, file: &str) -> String {
    std::fs::read_to_string(folder.join(file)).unwrap_or_default()
}

#[test]
fn code_of_an_application_runs_where_the_config_file_names_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let server = Server::start_with(&mut start(path, "  order.paid:\n    - shop.invoice\n"), path);
    let publish = |order: &str, payload: &str| {
        server.run(path, &["publish", "order.paid", "--object", order, "--payload", payload]).good();
    };
    publish("order:7", r#"{"total": 120}"#);
    until("the invoice is written", || read(path, "invoices") == "order:7: 120\n");
    // Under the binding and the last part of its name, as any handler; what nobody names is not bound.
    let list = server.run(path, &["handler", "list"]).good();
    assert!(list.contains("order.paid.invoice") && !list.contains("thank"), "{list}");

    // A file that is read again binds code by its name, too; a name that nobody has registered changes nothing.
    write(path, "  order.paid:\n    - shop.invoice\n    - shop.thanks\n");
    server.signal("HUP");
    until("the name is refused", || read(path, "serve.log").contains("nothing was changed: ensue.yaml:5:7: "));
    write(path, "  order.paid:\n    - shop.invoice\n    - shop.thank\n");
    server.signal("HUP");
    until("the name is taken", || read(path, "serve.log").contains("new: order.paid.thank"));
    publish("order:8", r#"{"total": 5}"#);
    let states = || {
        let deliveries = server.run(path, &["event", "deliveries", "2", "--json"]).json();
        let all = deliveries["deliveries"].as_array().unwrap().iter();
        all.map(|one| format!("{} {}", one["handler"].as_str().unwrap(), one["state"].as_str().unwrap()))
            .collect::<Vec<_>>()
    };
    until("both have run", || states() == ["order.paid.invoice done", "order.paid.thank done"]);
    assert_eq!(read(path, "invoices"), "order:7: 120\norder:8: 5\n");
    assert!(server.terminate().success());
}

#[test]
fn a_name_that_nobody_registered_is_told_with_its_place_and_the_names_there_are() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let wrong = "  order:\n    - shop.thank\n  order.paid:\n    - shop.thank\n    - shop.invioce\n";
    let run = Run::of(&mut start(path, wrong));
    assert_eq!(run.code, Some(101), "{run:?}");
    let told = "ensue.yaml:7:7: `handlers.order.paid[1]` names `shop.invioce`, which no code is registered under: write `shop.invoice` or `shop.thank`, or register it before";
    assert!(run.stderr.contains(told), "{}", run.stderr);
    assert!(!run.stdout.contains("listening on"), "{}", run.stdout);

    // The program itself has no code of its own.
    let run = crate::support::run(path, &["serve"]).bad();
    let told = "ensue.yaml:4:7: `handlers.order[0]` names `shop.thank`, but no code is registered here: ";
    assert!(run.contains(told) && run.contains("run_with"), "{run}");
}
