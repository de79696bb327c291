//! How fast is an append on Postgres, beside what the server can do at all?
//!
//! `cargo run --release -p ensue-stores --features postgres --example pg_append -- postgres://…`
//!
//! Everything in one run on one server: plain multi-row INSERTs into a table with the same columns and primary key, ours
//! in batches of 1,000 with and without objects; 32 clients that insert single rows, ours with 64 callers of one event.

use ensue_core::{Entry, NewEvent, Store};
use ensue_stores::postgres::{PostgresOptions, PostgresStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls};

const BATCH: usize = 1_000;
const OBJECTS: usize = 10_000;
const ROUNDS: usize = 5;

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let url = std::env::args().nth(1).or_else(|| std::env::var("ENSUE_TEST_POSTGRES").ok());
    let url = url.ok_or("give the address of a Postgres you can spare")?;
    let seconds: u64 = std::env::args().nth(2).map_or(Ok(3), |text| text.parse())?;
    let time = Duration::from_secs(seconds);
    let raw = connect(&url).await?;
    raw.batch_execute(RAW_TABLES).await?;
    let schema = format!("bench_append_{}", std::process::id());
    let store = Arc::new(PostgresStore::open(&format!("{url}?schema={schema}"), PostgresOptions::default()).await?);
    let mut rates: [Vec<f64>; 5] = Default::default();
    // In turns, so that a machine that slows down slows down all alike.
    for _ in 0..ROUNDS {
        rates[0].push(raw_batches(&raw, time).await?);
        rates[1].push(our_batches(&store, 0, time).await?);
        rates[2].push(our_batches(&store, OBJECTS, time).await?);
        rates[3].push(raw_singles(&url, 32, time).await?);
        rates[4].push(our_singles(&store, 64, time).await?);
    }
    let median = |rates: &mut Vec<f64>| {
        rates.sort_by(f64::total_cmp);
        rates[rates.len() / 2]
    };
    let [raw_batch, plain, objects, raw_single, callers] = rates.each_mut().map(median);
    println!("plain INSERT, batches of {BATCH}          {raw_batch:>9.0} events/s");
    println!("ours, batches of {BATCH}, no objects      {plain:>9.0} events/s  {:.2} (target 0.9)", plain / raw_batch);
    println!("ours, batches of {BATCH}, {OBJECTS} objects {objects:>8.0} events/s  {:.2} (target 0.6)", objects / raw_batch);
    println!("32 clients, single-row INSERTs         {raw_single:>9.0} events/s");
    println!("ours, 64 callers of one event          {callers:>9.0} events/s  {:.2} (target 2.5)", callers / raw_single);
    store.close().await;
    raw.batch_execute(&format!("DROP SCHEMA {schema} CASCADE; DROP TABLE raw_events; DROP TABLE raw_singles")).await?;
    Ok(())
}

const RAW_TABLES: &str = "
    DROP TABLE IF EXISTS raw_events; DROP TABLE IF EXISTS raw_singles;
    CREATE TABLE raw_events (
        seq bigint PRIMARY KEY, prev bigint, recorded_at timestamptz NOT NULL, occurred_at timestamptz,
        id uuid NOT NULL, to_subscription uuid, topic text COLLATE \"C\" NOT NULL, object text COLLATE \"C\",
        payload jsonb NOT NULL, metadata jsonb);
    CREATE TABLE raw_singles (LIKE raw_events INCLUDING ALL);
    CREATE SEQUENCE IF NOT EXISTS raw_seq";

/// 200 bytes of JSON.
fn payload(n: usize) -> String {
    format!("{{\"number\":{n:>10},\"name\":\"somebody\",\"text\":\"{}\"}}", "x".repeat(148))
}

async fn connect(url: &str) -> Result<Client, Failure> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    Ok(client)
}

async fn raw_batches(client: &Client, time: Duration) -> Result<f64, Failure> {
    let insert = client
        .prepare(
            "INSERT INTO raw_events (seq, recorded_at, id, topic, payload)
             SELECT b.seq, clock_timestamp(), b.id, b.topic, b.payload::jsonb
             FROM unnest($1::bigint[], $2::uuid[], $3::text[], $4::text[]) b(seq, id, topic, payload)",
        )
        .await?;
    let first: i64 = client.query_one("SELECT coalesce(max(seq), 0) + 1 FROM raw_events", &[]).await?.get(0);
    let ready: Vec<String> = (0..OBJECTS).map(payload).collect();
    let begun = Instant::now();
    let mut seq = first;
    for payloads in ready.chunks(BATCH).cycle() {
        if begun.elapsed() >= time {
            break;
        }
        let seqs: Vec<i64> = (seq..seq + BATCH as i64).collect();
        let ids: Vec<uuid::Uuid> = seqs.iter().map(|_| uuid::Uuid::from_bytes(rand::random())).collect();
        let topics = vec!["order.paid"; BATCH];
        client.execute(&insert, &[&seqs, &ids, &topics, &payloads]).await?;
        seq += BATCH as i64;
    }
    Ok((seq - first) as f64 / begun.elapsed().as_secs_f64())
}

fn entry(n: usize, objects: usize) -> Entry {
    let event = NewEvent::new("order.paid").payload_json(&payload(n));
    let event = if objects > 0 { event.object(format!("object:{}", n * 7919 % objects)) } else { event };
    event.check().expect("a sound event")
}

async fn our_batches(store: &PostgresStore, objects: usize, time: Duration) -> Result<f64, Failure> {
    let entries: Vec<Entry> = (0..OBJECTS).map(|n| entry(n, objects)).collect();
    let begun = Instant::now();
    let mut count = 0;
    for batch in entries.chunks(BATCH).cycle() {
        if begun.elapsed() >= time {
            break;
        }
        store.append(batch.to_vec()).await?;
        count += BATCH;
    }
    Ok(count as f64 / begun.elapsed().as_secs_f64())
}

async fn raw_singles(url: &str, clients: usize, time: Duration) -> Result<f64, Failure> {
    let mut all = Vec::new();
    for _ in 0..clients {
        all.push(connect(url).await?);
    }
    let count = Arc::new(AtomicU64::new(0));
    let begun = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for client in all {
        let count = count.clone();
        tasks.spawn(async move {
            let insert = client
                .prepare(
                    "INSERT INTO raw_singles (seq, recorded_at, id, topic, payload)
                     VALUES (nextval('raw_seq'), clock_timestamp(), $1, $2, $3::text::jsonb)",
                )
                .await?;
            while begun.elapsed() < time {
                let id = uuid::Uuid::from_bytes(rand::random());
                let number = count.fetch_add(1, Ordering::Relaxed) as usize;
                client.execute(&insert, &[&id, &"order.paid", &payload(number)]).await?;
            }
            Ok::<(), Failure>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(count.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64())
}

async fn our_singles(store: &Arc<PostgresStore>, callers: usize, time: Duration) -> Result<f64, Failure> {
    let count = Arc::new(AtomicU64::new(0));
    let begun = Instant::now();
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..callers {
        let (store, count) = (store.clone(), count.clone());
        tasks.spawn(async move {
            while begun.elapsed() < time {
                let number = count.fetch_add(1, Ordering::Relaxed) as usize;
                store.append(vec![entry(number, 0)]).await?;
            }
            Ok::<(), Failure>(())
        });
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(count.load(Ordering::Relaxed) as f64 / begun.elapsed().as_secs_f64())
}
