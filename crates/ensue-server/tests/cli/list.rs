//! Does `ensue event list` show what is in the log and what waits, and are hints given in the way that was used?

use crate::support::{Server, ensue, everywhere, run};
use serde_json::{Value, json};

fn column(page: &Value, field: &str) -> Vec<Value> {
    page["events"].as_array().unwrap().iter().map(|event| event[field].clone()).collect()
}

#[test]
fn the_log_is_listed_by_place_topic_and_object() {
    everywhere(|folder, place| {
        let list = |more: &[&str]| place.run(folder, &[&["event", "list"], more].concat());
        for (topic, object) in
            [("order.placed", "o:1"), ("orders", "o:1"), ("order.paid", "o:2"), ("order.paid", "o:1")]
        {
            place.run(folder, &["publish", topic, "--object", object]).good();
        }
        let all = list(&["--json"]).json();
        assert_eq!(
            (column(&all, "seq"), &all["next"], &all["first"]),
            (vec![json!(1), json!(2), json!(3), json!(4)], &json!(4), &json!(1))
        );
        assert_eq!(all["events"][3], place.run(folder, &["event", "show", "4", "--json"]).json());
        assert_eq!(column(&list(&["--after", "1", "--limit", "2", "--json"]).json(), "seq"), [2, 3]);
        assert_eq!(column(&list(&["--topic", "order", "--json"]).json(), "seq"), [1, 3, 4]);
        assert_eq!(
            column(&list(&["--topic", "order", "--object", "o:1", "--after", "1", "--json"]).json(), "seq"),
            [4]
        );

        let page = list(&["--limit", "2"]);
        assert!(page.stderr.contains("--after 2"), "{page:?}");
        let table = page.good();
        assert!(table.contains("order.placed") && table.contains("o:1") && !table.contains("o:2"), "{table}");
        let whole = list(&[]);
        assert!(whole.stdout.contains("o:2") && whole.stderr.is_empty(), "{whole:?}");
        assert!(list(&["--topic", "none"]).good().contains("no such event"));
        assert!(list(&["--topic", "a..b"]).bad().contains("`topic`"));
        let beyond = list(&["--after", "5"]).bad();
        assert!(beyond.contains("`after` is 5, beyond the end of the log: the newest event is 4"), "{beyond}");
    });
}

#[test]
fn the_newest_events_are_listed_first() {
    everywhere(|folder, place| {
        let list = |more: &[&str]| place.run(folder, &[&["event", "list", "--newest"], more].concat());
        for topic in ["order.placed", "mail", "order.paid"] {
            place.run(folder, &["publish", topic]).good();
        }
        let page = list(&["--limit", "2", "--json"]).json();
        assert_eq!((column(&page, "seq"), &page["next"]), (vec![json!(3), json!(2)], &json!(2)));
        let page = list(&["--before", "2", "--json"]).json();
        assert_eq!((column(&page, "seq"), &page["next"]), (vec![json!(1)], &json!(null)));
        assert_eq!(column(&list(&["--topic", "order", "--json"]).json(), "seq"), [3, 1]);
        assert_eq!(column(&list(&["--after", "1", "--json"]).json(), "seq"), [3, 2]);
        let table = list(&["--limit", "1"]);
        assert!(table.stdout.contains("order.paid") && table.stderr.contains("--newest --before 3"), "{table:?}");
    });
}

#[test]
fn what_waits_is_listed_in_the_order_in_which_it_will_enter() {
    everywhere(|folder, place| {
        // A log that is there and empty.
        let now = place.run(folder, &["publish", "now", "--not-before", "2020-01-01T00:00:00Z", "--json"]).json();
        assert_eq!(now["seq"], 1);
        let list = |more: &[&str]| place.run(folder, &[&["event", "list", "--pending"], more].concat());
        assert!(list(&[]).good().contains("no event is pending"));
        let publish = |topic: &str, at: &str| {
            let arguments = ["publish", topic, "--object", "o:1", "--not-before", at, "--json"];
            place.run(folder, &arguments).json()["id"].clone()
        };
        let (late, soon) = (publish("late", "2999-01-02T00:00:00Z"), publish("soon", "2999-01-01T00:00:00Z"));
        let pending = list(&["--json"]).json();
        assert_eq!(column(&pending, "id"), [soon.clone(), late]);
        assert_eq!(
            pending["events"][0],
            place.run(folder, &["event", "show", soon.as_str().unwrap(), "--json"]).json()
        );
        assert_eq!((&pending["next"], column(&pending, "state")[0].clone()), (&Value::Null, json!("pending")));
        let table = list(&[]).good();
        for shown in [soon.as_str().unwrap(), "2999-01-01T00:00:00Z", "soon", "late", "o:1"] {
            assert!(table.contains(shown), "{shown} is not in\n{table}");
        }
        let one = list(&["--limit", "1"]);
        assert!(one.stderr.contains("may be more") && !one.stdout.contains("late"), "{one:?}");
        let both = list(&["--after", "1"]);
        assert!(both.code == Some(2) && both.stderr.contains("--after"), "{both:?}");
    });
}

#[test]
fn a_log_that_was_trimmed_says_where_it_begins() {
    let folder = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        run(folder.path(), &["publish", "a", "--store", "sqlite:ensue.db", "--create"]).good();
    }
    let trimming = ["serve", "--listen", "127.0.0.1:0", "--retention-age", "1ms"];
    let server = Server::start_with(&mut ensue(folder.path(), &trimming), folder.path());
    let list = |more: &[&str]| server.run(folder.path(), &[&["event", "list"], more].concat());
    let begun = std::time::Instant::now();
    while list(&["--json"]).json()["first"] != 4 {
        assert!(begun.elapsed() < crate::support::PATIENCE, "nothing was trimmed");
    }
    let trimmed = list(&[]);
    assert!(trimmed.stderr.contains("retention has forgotten seq 1 to 3"), "{trimmed:?}");
    assert!(list(&["--after", "3"]).stderr.is_empty());
}

/// The command between the backquotes of a hint, as a shell takes it apart where nothing is quoted.
fn hinted(text: &str) -> Vec<String> {
    let command = text.split('`').nth(1).unwrap_or_else(|| panic!("no command in {text}"));
    command.strip_prefix("ensue ").unwrap().split(' ').map(str::to_string).collect()
}

#[test]
fn the_hint_after_a_delayed_publish_works_as_it_stands() {
    let folder = tempfile::tempdir().unwrap();
    let server =
        Server::start_with(&mut ensue(folder.path(), &["serve", "--dev", "--listen", "127.0.0.1:0"]), folder.path());
    let delayed = ["publish", "later", "--not-before", "1h"];
    let follow = |told: &str| {
        let command = hinted(told);
        let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
        assert!(run(folder.path(), &arguments).good().contains("will not enter the log"), "{told}");
    };
    let by_url = run(folder.path(), &[&delayed[..], &["--url", &server.url]].concat()).good();
    assert!(!by_url.contains("a server serves"), "{by_url}");
    follow(&by_url);
    let by_store = run(folder.path(), &[&delayed[..], &["--store", "sqlite:my.db", "--create"]].concat()).good();
    assert!(by_store.contains("until it is due and a server serves this store"), "{by_store}");
    follow(&by_store);
    // What the surroundings say need not be said again.
    let by_variable = server.run(folder.path(), &delayed).good();
    assert!(!by_variable.contains("--url"), "{by_variable}");
    let command = hinted(&by_variable);
    let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
    server.run(folder.path(), &arguments).good();
}
