//! Publish a fact, and let something follow from it.
//!
//! `cargo run -p ensue --example publish_and_handle`

use ensue::{Context, Ensue, Event, Fact, GroupName, HandlerError, NewEvent};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A fact is a type of your own. Its topic follows from it: `order.paid`.
#[derive(Serialize, Deserialize, Fact)]
#[fact(type = "order", action = "paid")]
struct OrderPaid {
    total: u32,
}

/// What handlers share. They find it by its type, so that a handler can be a plain function.
#[derive(Clone, Default)]
struct Books(Arc<Mutex<Vec<String>>>);

/// A handler is any async function of an event and its context. What it returns says what becomes of the delivery: `Ok` is
/// done, an error is tried again. Every error becomes a `HandlerError` with `?`.
async fn book(event: Event<OrderPaid>, cx: Context) -> Result<(), HandlerError> {
    let order = event.object.as_ref().ok_or(HandlerError::permanent("a payment of no order"))?;
    // Lines belong to this delivery. They are kept when an attempt fails, or always if the handler asks for that.
    cx.log(format!("attempt {} at {order}", cx.attempt()));
    let books = cx.state::<Books>();
    books.0.lock().expect("nobody panics with it").push(format!("{order} paid {}", event.payload.total));
    Ok(())
}

/// What this example prints.
pub async fn run() -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let bus = Ensue::memory().await?; // or Ensue::open("shop.db"), or Ensue::open("postgres://…")
    let books = Books::default();
    bus.state(books.clone());

    // Bound to `order.paid` and everything below it. Under its key, `order.paid.book`, the store remembers how far it has
    // come: after a restart it goes on there.
    bus.on("order.paid").named("book").logs_always().handle(book)?;
    let running = bus.start().await?;

    // Answered when it is on disk. The object is what the event is about: its events are handled in order.
    let paid = bus.publish(NewEvent::fact(&OrderPaid { total: 120 }).object("order:7")).await?;
    bus.publish(NewEvent::new("order.cancelled").object("order:8")).await?;
    // For tests: waits until every handler has done all there is to do now.
    bus.drain().await?;

    let mut printed = books.0.lock().expect("nobody panics with it").clone();
    let handler = GroupName::parse("handler", "order.paid.book")?;
    for line in bus.store().lines(&handler, paid.seq.expect("it is not delayed"), 0, 10).await? {
        printed.push(format!("{}: {}", line.level.as_str(), line.message));
    }
    running.shutdown(Duration::from_secs(5)).await?;
    Ok(printed)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    run().await?.iter().for_each(|line| println!("{line}"));
    Ok(())
}
