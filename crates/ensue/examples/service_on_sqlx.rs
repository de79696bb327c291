//! A service on sqlx: orders in its own tables, and what follows from them, in one commit. The
//! guide is `docs/rust-service.md`.
//!
//! `DATABASE_URL=postgres://… cargo run -p ensue --features sqlx --example service_on_sqlx`

use ensue::postgres::sqlx::{self, PgPool};
use ensue::{Context, Emit, Ensue, Event, Fact, HandlerError, JobArgs, NewEvent, Retry};
use serde::{Deserialize, Serialize};
use std::time::Duration;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Serialize, Deserialize, Fact)]
#[fact(type = "order", action = "placed")]
struct OrderPlaced {
    order: i64,
    cents: i64,
}

#[derive(Serialize, Deserialize, JobArgs)]
#[job(handler = "mail.receipt")]
struct SendReceipt {
    order: i64,
}

async fn place_order(pool: &PgPool, bus: &Ensue, cents: i64) -> Result<i64, Failure> {
    let mut tx = pool.begin().await?;
    let insert = "INSERT INTO orders (cents) VALUES ($1) RETURNING id";
    let order: i64 = sqlx::query_scalar(insert).bind(cents).fetch_one(&mut *tx).await?;
    let placed = NewEvent::fact(&OrderPlaced { order, cents }).object(format!("order:{order}"));
    bus.publish_in(&mut tx, placed).await?;
    bus.emit_in(&mut tx, Emit::job(&SendReceipt { order })).await?;
    tx.commit().await?;
    Ok(order)
}

async fn book(event: Event<OrderPlaced>, cx: Context) -> Result<(), HandlerError> {
    let mut tx = cx.state::<PgPool>().begin().await?;
    let update = "UPDATE revenue SET cents = cents + $1";
    sqlx::query(update).bind(event.payload.cents).execute(&mut *tx).await?;
    cx.done_in(&mut tx).await?;
    tx.commit().await?;
    Ok(())
}

async fn send_receipt(job: Event<SendReceipt>, cx: Context) -> Result<(), HandlerError> {
    cx.log(format!("receipt of order {}", job.payload.order)); // here it calls the mail server
    Ok(())
}

fn bind_handlers(bus: &Ensue, pool: &PgPool) -> Result<(), ensue::Error> {
    bus.state(pool.clone());
    bus.on("order.placed").named("book").retry(Retry::attempts(5)).handle(book)?;
    bus.register_job(send_receipt)
}

async fn make_tables(pool: &PgPool) -> Result<(), Failure> {
    let tables = "CREATE TABLE IF NOT EXISTS orders (id bigserial PRIMARY KEY, cents bigint NOT NULL);
        CREATE TABLE IF NOT EXISTS revenue (cents bigint NOT NULL);
        INSERT INTO revenue SELECT 0 WHERE NOT EXISTS (SELECT FROM revenue)";
    sqlx::raw_sql(tables).execute(pool).await?;
    Ok(())
}

async fn serve(database_url: &str) -> Result<i64, Failure> {
    let pool = PgPool::connect(database_url).await?;
    make_tables(&pool).await?;
    let bus = Ensue::open(database_url).await?;
    bind_handlers(&bus, &pool)?;
    let running = bus.start().await?;

    let order = place_order(&pool, &bus, 120).await?; // here it serves HTTP until it is to stop

    running.shutdown(Duration::from_secs(30)).await?;
    bus.close().await;
    Ok(order)
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let order = serve(&std::env::var("DATABASE_URL")?).await?;
    println!("placed order {order}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensue::testing::{Expected, ManualClock, assert_emitted, assert_published, open_at};
    use ensue_conformance::postgres::{fresh_schema, shared_url};
    use sqlx::postgres::PgConnectOptions;

    struct Shop {
        bus: Ensue,
        pool: PgPool,
        clock: ManualClock,
    }

    /// Each test has a schema of its own, for the bus and for the tables.
    async fn shop() -> Result<Shop, Failure> {
        let (bus_url, schema) = fresh_schema("shop");
        let options: PgConnectOptions = shared_url().parse()?;
        let pool = PgPool::connect_with(options.options([("search_path", &schema)])).await?;
        let clock = ManualClock::at_noon();
        let bus = open_at(&bus_url, &clock).await?;
        make_tables(&pool).await?;
        bind_handlers(&bus, &pool)?;
        Ok(Shop { bus, pool, clock })
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_order_is_booked_once_and_its_receipt_sent() -> Result<(), Failure> {
        let Shop { bus, pool, clock } = shop().await?;
        let running = bus.start().await?;
        let order = place_order(&pool, &bus, 120).await?;
        let placed = assert_published!(bus, Expected::fact(&OrderPlaced { order, cents: 120 }));
        assert_eq!(placed.recorded_at, clock.now());
        let receipt = assert_emitted!(bus, Expected::job(&SendReceipt { order }));

        bus.drain().await?; // all that is due is done
        let revenue: i64 = sqlx::query_scalar("SELECT cents FROM revenue").fetch_one(&pool).await?;
        assert_eq!(revenue, 120);
        assert_eq!(bus.job(receipt.id).await?.map(|job| job.state.as_str()), Some("succeeded"));
        running.shutdown(Duration::from_secs(30)).await?;
        Ok(())
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn an_order_before_the_start_is_booked_too() -> Result<(), Failure> {
        let Shop { bus, pool, .. } = shop().await?;
        place_order(&pool, &bus, 80).await?;
        let running = bus.start().await?;
        bus.drain().await?;
        let revenue: i64 = sqlx::query_scalar("SELECT cents FROM revenue").fetch_one(&pool).await?;
        assert_eq!(revenue, 80);
        running.shutdown(Duration::from_secs(30)).await?;
        Ok(())
    }
}
