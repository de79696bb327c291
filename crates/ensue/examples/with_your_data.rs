//! Your own tables, what you publish and the note that a delivery is done, in one commit: effects happen once.
//!
//! `cargo run -p ensue --example with_your_data`

use ensue::{Context, Ensue, Event, HandlerError, NewEvent, Retry, TransactionError};
use std::time::Duration;

/// Books a payment, and then fails: which is too late to undo anything.
async fn book(bus: Ensue, event: Event, cx: Context) -> Result<(), HandlerError> {
    let amount: i64 = event.payload.as_str().parse()?;
    let done = cx.clone();
    bus.transaction(move |tx| {
        tx.execute("UPDATE balance SET cents = cents + ?1", [amount])?;
        // Part of this commit: there is no moment at which the money is booked and the delivery is still to be done. If
        // somebody else has taken this work over meanwhile, this is an error, and takes the transaction back.
        done.done_in(tx)
    })
    .await
    .map_err(HandlerError::failed)?;
    Err(HandlerError::failed("the process stumbles after its commit"))
}

/// What this example prints.
pub async fn run() -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let bus = Ensue::memory().await?; // with a path, your tables are in the same file as the log
    bus.transaction(|tx| {
        tx.execute_batch(
            "CREATE TABLE orders (id INTEGER PRIMARY KEY); CREATE TABLE balance (cents INTEGER); INSERT INTO balance VALUES (0)",
        )?;
        Ok(())
    })
    .await?;

    let own = bus.clone();
    let handler = move |event: Event, cx: Context| book(own.clone(), event, cx);
    bus.on("order.paid").named("book").retry(Retry::attempts(5)).handle(handler)?;
    let running = bus.start().await?;

    // The row and the event, or neither.
    let paid = bus
        .transaction(|tx| {
            tx.execute("INSERT INTO orders VALUES (1)", [])?;
            tx.publish(NewEvent::new("order.paid").object("order:1").payload(&120))
        })
        .await?;
    let refused = bus
        .transaction(|tx| {
            tx.execute("INSERT INTO orders VALUES (2)", [])?;
            tx.publish(NewEvent::new("order.paid").object("order:2").payload(&99))?;
            Err::<(), _>(TransactionError::rollback("the card was declined"))
        })
        .await;
    bus.drain().await?;

    let count = |sql: &'static str| bus.transaction(move |tx| Ok(tx.query_row(sql, [], |row| row.get::<_, i64>(0))?));
    let printed = vec![
        format!("published as {:?}", paid.seq),
        format!("refused: {}", refused.expect_err("it was taken back")),
        format!("orders: {}", count("SELECT count(*) FROM orders").await?),
        format!("balance: {}", count("SELECT cents FROM balance").await?),
        format!("events: {}", bus.store().bounds().await?.last),
    ];
    running.shutdown(Duration::from_secs(5)).await?;
    Ok(printed)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    run().await?.iter().for_each(|line| println!("{line}"));
    Ok(())
}
