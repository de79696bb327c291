//! A bus on an engine of one's own: here the model that says what every verb of the port means, which keeps all it has in
//! vectors. How to write an engine is in `docs/write-an-engine.md`.
//!
//! `cargo run -p ensue --example own_engine`

use ensue::{Context, Ensue, Event, HandlerError, NewEvent, Subscription};
use ensue_conformance::ManualClock;
use ensue_conformance::model::Model;
use std::time::Duration;

/// What a handler publishes commits with the note that it is done: the port has one verb for both.
async fn ship(event: Event, cx: Context) -> Result<(), HandlerError> {
    let order = event.object.as_ref().ok_or(HandlerError::permanent("about no order"))?;
    cx.publish(NewEvent::new("order.shipped").object(order.as_str()))?;
    Ok(())
}

/// What this example prints.
pub async fn run() -> Result<Vec<String>, Box<dyn std::error::Error>> {
    // Whatever implements `ensue::Store` will do. Everything but transactions on your own tables works on it.
    let engine = Model::new(ManualClock::at_noon().clock());
    let bus = Ensue::with_store(engine);
    bus.on("order.paid").named("ship").handle(ship)?;
    let running = bus.start().await?;
    bus.publish(NewEvent::new("order.paid").object("order:1")).await?;
    bus.drain().await?;

    let mut printed = vec![format!("on the engine `{}`", bus.store().engine())];
    let mut stream = bus.stream(Subscription::all().object("order:1").after(0)).await?;
    for _ in 0..2 {
        let delivered = stream.next_event().await?;
        let event = &delivered.event;
        printed.push(format!("{}: {}, prev {:?}", event.seq, event.topic, event.prev));
    }
    running.shutdown(Duration::from_secs(5)).await?;
    Ok(printed)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    run().await?.iter().for_each(|line| println!("{line}"));
    Ok(())
}
