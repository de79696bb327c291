//! `ensue serve` with code of an application in it, which its config file binds by name.
//!
//! ```yaml
//! # ensue.yaml
//! handlers:
//!   order.paid:
//!     - shop.invoice
//! ```
//!
//! `cargo run -p ensue-server --example application`, then `ensue publish order.paid --object order:7 --payload '{"total": 120}'`

use ensue::{Context, Ensue, Event, Fact, HandlerError};
use ensue_server::config::{Given, Settings};
use ensue_server::serve;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::PathBuf;

/// The payload of `order.paid`.
#[derive(Serialize, Deserialize)]
struct OrderPaid {
    total: u32,
}

// With the cargo feature `derive` of `ensue` it is `#[derive(Fact)]`.
impl Fact for OrderPaid {
    const TYPE: &str = "order";
    const ACTION: &str = "paid";
}

/// Where invoices are written. Handlers find it by its type.
struct Invoices(PathBuf);

async fn invoice(event: Event<OrderPaid>, cx: Context) -> Result<(), HandlerError> {
    let order = event.object.as_ref().ok_or(HandlerError::permanent("a payment of no order"))?;
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(&cx.state::<Invoices>().0)?;
    writeln!(file, "{order}: {}", event.payload.total)?;
    Ok(())
}

async fn thank(event: Event, cx: Context) -> Result<(), HandlerError> {
    cx.log(format!("thank you for event {}", event.seq));
    Ok(())
}

/// What the config file may name. Nothing of it runs unless it does.
fn prepare(bus: &Ensue) -> anyhow::Result<()> {
    bus.state(Invoices(PathBuf::from("invoices")));
    bus.register("shop.invoice", invoice)?;
    bus.register("shop.thank", thank)?;
    Ok(())
}

/// Serves by the `ensue.yaml` of this folder, until it is told to stop.
pub async fn run() -> anyhow::Result<()> {
    // What the server has to say beside its address.
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    let settings = Settings::resolve(Given::default())?;
    serve::run_with(settings, prepare).await
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    run().await
}
