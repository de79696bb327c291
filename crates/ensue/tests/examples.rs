//! Each example prints what it teaches.

#![cfg(feature = "sqlite")]
// Each has a `main` that prints what `run` answers.
#![allow(dead_code)]

#[path = "../examples/held_and_redriven.rs"]
mod held_and_redriven;
#[path = "../examples/jobs_and_rules.rs"]
mod jobs_and_rules;
#[path = "../examples/order_and_retry.rs"]
mod order_and_retry;
#[path = "../examples/own_engine.rs"]
mod own_engine;
#[path = "../examples/parents_and_sync.rs"]
mod parents_and_sync;
#[path = "../examples/publish_and_handle.rs"]
mod publish_and_handle;
#[cfg(feature = "sqlx")]
#[path = "../examples/service_on_sqlx.rs"]
mod service_on_sqlx;
#[path = "../examples/stream_and_conditions.rs"]
mod stream_and_conditions;
#[path = "../examples/unit_of_work.rs"]
mod unit_of_work;
#[path = "../examples/with_your_data.rs"]
mod with_your_data;

/// Makes a test of each example.
macro_rules! examples_print {
    ($($name:ident { $($line:literal)+ })+) => {
        const NAMES: &[&str] = &[$(stringify!($name)),+];
        $(
            mod $name {
                #[tokio::test]
                async fn prints_what_it_teaches() {
                    let printed = crate::$name::run().await.expect("the example runs");
                    assert_eq!(printed, [$($line),+]);
                }
            }
        )+
    };
}

mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    examples_print! {
        publish_and_handle {
            "order:7 paid 120"
            "info: attempt 1 at order:7"
        }
        order_and_retry {
            "order.placed order:1, attempt 1: failed"
            "order.placed order:2, attempt 1: done"
            "order.paid order:2, attempt 1: done"
            "a minute later"
            "order.placed order:1, attempt 2: done"
            "order.paid order:1, attempt 1: done"
        }
        jobs_and_rules {
            "why not? handler:acme is paused by ann: the relay is down"
            "user:2: \"urgent\""
            "user:1: \"hello\""
            "user:1: \"again\""
        }
        with_your_data {
            "published as Some(1)"
            "refused: the card was declined"
            "orders: 1"
            "balance: 120"
            "events: 1"
        }
        unit_of_work {
            "record 1: registered"
            "record 1: about to commit"
            "record 1: committed"
            "record 2: registered"
            "record 2: failed: record 2 has no title"
            "record 2: taken back"
            "record.published record:1 {\"request\":\"r-1\"}"
            "records: 1"
        }
        parents_and_sync {
            "record.audit had event 1"
            "record.published.index had event 1"
            "record.published.index is done"
        }
        stream_and_conditions {
            "2: order.placed {\"total\":500}, prev None"
            "4: order.changed {\"total\":700}, prev Some(2)"
            "caught up with 5"
            "6: order.paid {\"total\":700}, prev Some(4)"
        }
        held_and_redriven {
            "label of order:2 for event 2"
            "order.packed.label holds o:order:1 at event 1: the printer is on fire"
            "label of order:1 for event 1, brought back"
            "label of order:1 for event 3"
            "0 held"
        }
        own_engine {
            "on the engine `model`"
            "1: order.paid, prev None"
            "2: order.shipped, prev Some(1)"
        }
    }

    /// A file that nobody listed here would be an example that nobody runs.
    #[test]
    fn every_example_is_tested() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
        let files = std::fs::read_dir(folder).expect("the folder of examples");
        let stem = |entry: std::io::Result<std::fs::DirEntry>| {
            let path = entry.expect("an entry").path();
            path.file_stem().expect("a name").to_string_lossy().into_owned()
        };
        let found: BTreeSet<String> = files.map(stem).collect();
        // It needs a database, and has tests of its own.
        let service = "service_on_sqlx".to_owned();
        assert_eq!(found, NAMES.iter().map(|name| name.to_string()).chain([service]).collect());
    }

    /// The code of the guide is that of the example, which is compiled and run.
    #[test]
    fn the_guide_shows_the_service_that_is_tested() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let without_indent = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
        let example = std::fs::read_to_string(root.join("examples/service_on_sqlx.rs")).expect("the example");
        let guide = std::fs::read_to_string(root.join("../../docs/rust-service.md")).expect("the guide");
        let blocks: Vec<&str> =
            guide.split("```rust,ignore\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect();
        assert_eq!(blocks.len(), 6);
        for block in blocks {
            assert!(without_indent(&example).contains(without_indent(block).trim()), "not in the example:\n{block}");
        }
    }
}
