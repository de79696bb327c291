//! Can groups be made, read, moved and deleted from the command line, with a server and without?

use crate::support::everywhere;
use serde_json::{Value, json};

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn seqs(text: &str) -> Vec<u64> {
    lines(text).iter().map(|event| event["seq"].as_u64().unwrap()).collect()
}

#[test]
fn a_group_is_made_subscribed_read_replayed_moved_and_deleted() {
    everywhere(|folder, place| {
        let group = |more: &[&str]| place.run(folder, &[&["group"], more].concat());
        let publish = |topic: &str, payload: &str| {
            place.run(folder, &["publish", topic, "--payload", payload]).good();
        };
        publish("order.placed", "{\"total\": 50}");
        assert!(group(&["list"]).good().contains("there is no group"));
        assert!(group(&["show", "billing"]).bad().contains("no group `billing`"));
        let made = group(&["create", "billing", "--start", "beginning", "--json"]).json();
        assert_eq!((&made["cursor"], &made["lag"], &made["kind"]), (&json!(0), &json!(1), &json!("pull")));
        let condition = "(e.payload->>'total')::numeric > (s.params->>'min')::int";
        let large = ["subscribe", "billing", "--where", condition, "--params", "{\"min\": 100}", "--json"];
        let id = group(&large).json()["id"].clone();
        assert_eq!(group(&large).json()["id"], id);
        assert!(group(&["subscribe", "billing", "--where", "e.tpoic = 'a'"]).bad().contains("tpoic"));
        assert!(
            group(&["subscribe", "billing", "--topic", "order", "--expires-in", "1ms"]).bad().contains("expires_in")
        );
        for total in ["200.50", "70", "300"] {
            publish("order.paid", &format!("{{\"total\": {total}}}"));
        }
        let table = group(&["list"]).good();
        assert!(table.contains("billing") && table.contains("lag"), "{table}");

        // A look leaves it where it is; to read moves it on and leaves nobody in the way.
        assert_eq!(seqs(&group(&["read", "billing", "--peek", "--json"]).good()), [2, 4]);
        let first = group(&["read", "billing", "--limit", "1", "--json"]).good();
        assert_eq!((seqs(&first), &lines(&first)[0]["subscriptions"]), (vec![2], &json!([id])));
        // Numbers keep their digits.
        assert!(first.contains("\"total\":200.50"), "{first}");
        let rest = group(&["read", "billing"]).good();
        assert!(rest.starts_with("4  ") && rest.contains("order.paid") && rest.contains("300"), "{rest}");
        let nothing = group(&["read", "billing"]);
        assert!(nothing.stderr.contains("nothing that `billing` wants after seq 4"), "{nothing:?}");
        assert_eq!(nothing.good(), "");
        assert_eq!(group(&["show", "billing", "--json"]).json()["cursor"], 4);

        assert_eq!(seqs(&group(&["replay", "billing", "--from", "1", "--to", "3", "--json"]).good()), [2]);
        assert_eq!(seqs(&group(&["replay", "billing", "--from", "2", "--json"]).good()), [2, 4]);
        assert!(group(&["replay", "billing", "--from", "3", "--to", "2"]).bad().contains("--from"));
        assert!(group(&["replay", "billing", "--from", "99"]).bad().contains("newest event"));
        assert_eq!(group(&["show", "billing", "--json"]).json()["cursor"], 4);

        let moved = group(&["seek", "billing", "--to", "2", "--json"]).json();
        assert_eq!((&moved["cursor"], &moved["lag"]), (&json!(2), &json!(2)));
        assert!(group(&["seek", "billing", "--to", "9"]).bad().contains("newest event is 4"));
        assert_eq!(seqs(&group(&["read", "billing", "--json"]).good()), [4]);
        assert!(group(&["show", "billing"]).good().contains("cursor"));
        assert!(group(&["delete", "billing"]).good().contains("deleted"));
        assert!(group(&["delete", "billing"]).bad().contains("no group `billing`"));
    });
}

#[test]
fn first_read_of_a_new_group_tells_why_there_is_nothing() {
    everywhere(|folder, place| {
        place.run(folder, &["publish", "order.paid"]).good();
        let group = |more: &[&str]| place.run(folder, &[&["group"], more].concat());
        group(&["create", "billing"]).good();
        let read = || group(&["read", "billing"]);
        assert!(read().stderr.contains("no subscription") && read().stderr.contains("group subscribe billing"));
        group(&["subscribe", "billing", "--topic", "order"]).good();
        let nothing = read();
        assert!(nothing.stderr.contains("after seq 1") && nothing.stderr.contains("--to beginning"), "{nothing:?}");
        assert_eq!(nothing.good(), "");
        group(&["seek", "billing", "--to", "beginning"]).good();
        assert!(read().good().contains("order.paid"));
    });
}

#[test]
fn what_a_condition_fails_on_is_told_on_stderr() {
    everywhere(|folder, place| {
        place.run(folder, &["publish", "start"]).good();
        let group = |more: &[&str]| place.run(folder, &[&["group"], more].concat());
        group(&["subscribe", "g", "--where", "(e.payload->>'n')::int > 5"]).good();
        for n in ["\"seven\"", "\"9\""] {
            place.run(folder, &["publish", "t", "--payload", &format!("{{\"n\": {n}}}")]).good();
        }
        let read = group(&["read", "g", "--json"]);
        assert!(read.stderr.contains("failed on event 2") && read.stderr.contains("seven"), "{read:?}");
        assert_eq!(seqs(&read.good()), [3]);
    });
}

/// However many pages a server's list has, the command shows them all; or as many as it is asked for.
#[test]
fn a_list_has_all_pages_unless_it_is_limited() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("ensue.db");
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let bus = ensue::Ensue::open(store.to_str().unwrap()).await.unwrap();
        let create = (0..1_203).map(|n| {
            let bus = bus.clone();
            async move { bus.groups().create(&format!("g{n:04}"), ensue::Start::Now).await.unwrap() }
        });
        futures_util::future::join_all(create).await;
        bus.close().await;
    });
    let names = |run: crate::support::Run| -> Vec<String> {
        run.json()["groups"].as_array().unwrap().iter().map(|group| group["name"].as_str().unwrap().into()).collect()
    };
    let all: Vec<String> = (0..1_203).map(|n| format!("g{n:04}")).collect();
    let server = crate::support::Server::start(folder.path());
    for more in [&["--json"][..], &["--json", "--store", store.to_str().unwrap()]] {
        let list = |arguments: &[&str]| {
            let arguments = [&["group", "list"], arguments, more].concat();
            if more.len() == 1 {
                server.run(folder.path(), &arguments)
            } else {
                crate::support::run(folder.path(), &arguments)
            }
        };
        assert_eq!(names(list(&[])), all);
        assert_eq!(names(list(&["--limit", "1001"])), all[..1_001]);
        assert_eq!(names(list(&["--limit", "3"])), all[..3]);
    }
    server.terminate();
}
