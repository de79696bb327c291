//! When the attempts are exhausted an object waits for somebody, who finds it in a list and brings it back.
//!
//! `cargo run -p ensue --example held_and_redriven`

use ensue::positions::Ask;
use ensue::{Context, Ensue, Event, HandlerError, NewEvent, OnExhausted, Retry, Stuck};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The other side, which somebody has to repair.
#[derive(Clone, Default)]
struct Printer {
    is_repaired: Arc<AtomicBool>,
    labels: Arc<Mutex<Vec<String>>>,
}

async fn print_label(event: Event, cx: Context) -> Result<(), HandlerError> {
    let printer = cx.state::<Printer>();
    let order = event.object.as_ref().ok_or(HandlerError::permanent("about no order"))?;
    if order.as_str() == "order:1" && !printer.is_repaired.load(Ordering::SeqCst) {
        return Err(HandlerError::failed("the printer is on fire"));
    }
    let again = if cx.redriven() { ", brought back" } else { "" };
    let label = format!("label of {order} for event {}{again}", event.seq);
    printer.labels.lock().expect("nobody panics with it").push(label);
    Ok(())
}

/// What this example prints.
pub async fn run() -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let bus = Ensue::memory().await?;
    let printer = Printer::default();
    bus.state(printer.clone());
    let say = |line: String| printer.labels.lock().expect("nobody panics with it").push(line);

    // To hold is what happens unless told otherwise: nothing is lost, and nothing of the object happens out of turn. `Skip`
    // goes on without the event, `DeadLetterObject` gives up the object with all that follows.
    bus.on("order.packed")
        .named("label")
        .retry(Retry::never())
        .on_exhausted(OnExhausted::Hold)
        .concurrency(1)
        .handle(print_label)?;
    let running = bus.start().await?;
    for order in ["order:1", "order:2", "order:1"] {
        bus.publish(NewEvent::new("order.packed").object(order)).await?;
    }
    bus.drain().await?;

    // What waits for somebody, the oldest first.
    let stuck = bus.stuck(100).await?;
    for row in &stuck {
        let (key, error) = (row.lane.key.to_text(), row.lane.error.as_deref().unwrap_or_default());
        say(format!("{} holds {key} at event {}: {error}", row.group, row.lane.position));
    }

    // Repaired: run it again. `Ask::Skip` would go on without it.
    printer.is_repaired.store(true, Ordering::SeqCst);
    for row in stuck {
        bus.ask_stuck(&Stuck::from(&row.lane.key), Some(&row.group), Ask::Retry).await?;
    }
    bus.drain().await?;
    let left = bus.stuck(100).await?.len();
    say(format!("{left} held"));

    running.shutdown(Duration::from_secs(5)).await?;
    Ok(printer.labels.lock().expect("nobody panics with it").clone())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    run().await?.iter().for_each(|line| println!("{line}"));
    Ok(())
}
