//! What is bound to `record` goes before what is bound to `record.published`; and a publish can wait for what must have
//! happened when it is answered.
//!
//! `cargo run -p ensue --example parents_and_sync`

use ensue::{Context, Ensue, Event, HandlerError, NewEvent};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

fn note(cx: &Context, event: &Event) {
    let line = format!("{} had event {}", cx.handler(), event.seq);
    cx.state::<Seen>().0.lock().expect("nobody panics with it").push(line);
}

/// Bound to everything about records: the parent.
async fn audit(event: Event, cx: Context) -> Result<(), HandlerError> {
    note(&cx, &event);
    Ok(())
}

/// Bound to what is below that: a child. Its first attempt starts when the first attempt of each parent has ended, also if
/// that has failed: children rely on the order, not on the success.
async fn index(event: Event, cx: Context) -> Result<(), HandlerError> {
    note(&cx, &event);
    Ok(())
}

/// What this example prints.
pub async fn run() -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let bus = Ensue::memory().await?;
    let seen = Seen::default();
    bus.state(seen.clone());
    // In which order they are bound does not matter: what counts is the dots.
    bus.on("record.published").named("index").sync().handle(index)?;
    bus.on("record").named("audit").handle(audit)?;
    let running = bus.start().await?;

    // `publish` is answered when the event is on disk. This also waits for the handlers that are `sync`, at most so long.
    // The event is published either way: the answer has the outcome of each, done, failed, blocked or pending.
    let published = NewEvent::new("record.published").object("record:1");
    let waited = bus.publish_and_wait(published, Duration::from_secs(30)).await?;
    let mut printed = seen.0.lock().expect("nobody panics with it").clone();
    printed.extend(waited.handlers.iter().map(|one| format!("{} is {}", one.handler, one.outcome.as_str())));
    running.shutdown(Duration::from_secs(5)).await?;
    Ok(printed)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    run().await?.iter().for_each(|line| println!("{line}"));
    Ok(())
}
