//! Failed attempts are in the log of the process, with handler, object, attempt and error, and
//! without payloads.

use crate::support::{LONG, event};
use ensue::{Context, Emit, Ensue, Event, Fact, HandlerError, JobOptions, Retry};
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Metadata, Subscriber};

/// Keeps what is logged at `warn` or above, one line each.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Lines {
    /// The lines with this text.
    fn with(&self, text: &str) -> Vec<String> {
        self.0.lock().unwrap().iter().filter(|line| line.contains(text)).cloned().collect()
    }
}

struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::WARN
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = Line(event.metadata().level().to_string());
        event.record(&mut line);
        self.0.lock().unwrap().push(line.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(serde::Serialize, serde::Deserialize, Fact)]
#[fact(type = "parcel", action = "sent")]
struct ParcelSent {
    grams: u32,
}

const SECRET: &str = "canary-4711";

#[tokio::test]
async fn failed_and_dead_attempts_are_logged() {
    let lines = Lines::default();
    let _default = tracing::subscriber::set_default(lines.clone());
    // With two subscribers, what one thread wants to hear is no longer decided by the thread that
    // logs first.
    let _second = tracing::Dispatch::new(Lines::default());
    let bus = Ensue::memory().await.unwrap();
    let fails = async |_: Event, _: Context| Err::<(), _>(HandlerError::failed("no\n\u{1b}[2J"));
    let retry = Retry::delays([Duration::ZERO]);
    bus.on("order").named("fails").retry(retry.clone()).handle(fails).unwrap();
    bus.on("parcel.sent").named("reads").handle(async |_: Event<ParcelSent>, _: Context| Ok(())).unwrap();
    bus.register_with("work", JobOptions { retry, ..JobOptions::default() }, fails).unwrap();
    let running = bus.start().await.unwrap();
    bus.publish(event("order", "order:1").payload(&SECRET)).await.unwrap();
    bus.emit(Emit::to("work").object("order:2").payload(&SECRET)).await.unwrap();
    bus.publish(event("parcel.sent", "parcel:1").payload(&serde_json::json!({ "grams": SECRET }))).await.unwrap();
    bus.drain().await.unwrap();
    assert_eq!(lines.with("ERROR").len(), 3, "{:#?}", lines.with(""));
    running.shutdown(LONG).await.unwrap();

    for (handler, object) in [("order.fails", "order:1"), ("work", "order:2")] {
        let of_handler = lines.with(&format!("handler={handler}"));
        assert_eq!(of_handler.len(), 2, "{of_handler:?}");
        for (line, (level, attempt)) in of_handler.iter().zip([("WARN", 1), ("ERROR", 2)]) {
            assert!(line.starts_with(level), "{line}");
            for part in [object, &format!("attempt={attempt}"), "error=no\\n\\u{1b}[2J"] {
                assert!(line.contains(part), "no {part:?} in {line}");
            }
        }
    }
    assert_eq!(lines.with("handler=parcel.sent.reads").len(), 1);
    assert_eq!(lines.with(SECRET), Vec::<String>::new(), "a payload is logged");
}
