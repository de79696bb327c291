//! The events of one object are handled in order, whatever fails; and what fails holds nobody else.
//!
//! `cargo run -p ensue --example order_and_retry`

use ensue::testing::{ManualClock, memory_at};
use ensue::{Context, Event, HandlerError, NewEvent, Retry};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<String>>>);

/// Fails at the first attempt of anything about `order:1`, as if the other side were away for a moment.
async fn ship(event: Event, cx: Context) -> Result<(), HandlerError> {
    let order = event.object.as_ref().ok_or(HandlerError::permanent("about no order"))?;
    let is_away = order.as_str() == "order:1" && event.topic.as_str() == "order.placed" && cx.attempt() == 1;
    let said = if is_away { "failed" } else { "done" };
    let line = format!("{} {order}, attempt {}: {said}", event.topic, cx.attempt());
    cx.state::<Seen>().0.lock().expect("nobody panics with it").push(line);
    if is_away { Err(HandlerError::failed("the carrier is away")) } else { Ok(()) }
}

/// What this example prints.
pub async fn run() -> Result<Vec<String>, Box<dyn std::error::Error>> {
    // A clock that moves when told to: nothing here waits for real time.
    let clock = ManualClock::at_noon();
    let bus = memory_at(&clock).await?;
    let seen = Seen::default();
    bus.state(seen.clone());
    let say = |line: &str| seen.0.lock().expect("nobody panics with it").push(line.into());

    // Unless told otherwise there are 5 attempts, after delays that double from a second up to five minutes.
    let retry = Retry::delays([Duration::from_secs(60)]);
    // One at a time, so that what this prints is always the same. Events of one object never run side by side.
    bus.on("order").named("ship").retry(retry).concurrency(1).handle(ship)?;
    let running = bus.start().await?;

    for (topic, order) in
        [("order.placed", "order:1"), ("order.placed", "order:2"), ("order.paid", "order:1"), ("order.paid", "order:2")]
    {
        bus.publish(NewEvent::new(topic).object(order)).await?;
    }
    // `order:2` is served to the end. `order:1` waits, with all that follows of it.
    bus.drain().await?;
    say("a minute later");
    clock.advance(Duration::from_secs(60));
    // Now the second attempt, and only then what comes after it.
    bus.drain().await?;

    running.shutdown(Duration::from_secs(5)).await?;
    Ok(seen.0.lock().expect("nobody panics with it").clone())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    run().await?.iter().for_each(|line| println!("{line}"));
    Ok(())
}
