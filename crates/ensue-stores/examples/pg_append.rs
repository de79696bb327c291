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
use tokio_postgres::{Client, NoTls, Statement};

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
    // In turns, batch by batch and round by round, so that a machine that slows down slows down all alike.
    let [raw_plain, plain, raw_objects, objects] = batches(&raw, &store, time * ROUNDS as u32).await?;
    let (mut raw_single, mut callers) = (0.0, 0.0);
    for _ in 0..ROUNDS {
        raw_single += raw_singles(&url, 32, time).await? / ROUNDS as f64;
        callers += our_singles(&store, 64, time).await? / ROUNDS as f64;
    }
    println!("plain INSERT, batches of {BATCH}, no objects    {raw_plain:>9.0} events/s");
    println!("ours                                      {plain:>9.0} events/s  {:.2} (target 0.9)", plain / raw_plain);
    println!("plain INSERT, batches of {BATCH}, {OBJECTS} objects {raw_objects:>8.0} events/s");
    println!(
        "ours                                      {objects:>9.0} events/s  {:.2} (target 0.6)",
        objects / raw_objects
    );
    println!("32 clients, single-row INSERTs         {raw_single:>9.0} events/s");
    println!(
        "ours, 64 callers of one event          {callers:>9.0} events/s  {:.2} (target 2.5)",
        callers / raw_single
    );
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

/// Events per second of a plain INSERT and of ours, without objects and with them.
async fn batches(client: &Client, store: &PostgresStore, time: Duration) -> Result<[f64; 4], Failure> {
    let insert = client
        .prepare(
            "INSERT INTO raw_events (seq, prev, recorded_at, id, topic, object, payload)
             SELECT b.seq, b.prev, clock_timestamp(), b.id, b.topic, b.object, b.payload::jsonb
             FROM unnest($1::bigint[], $2::bigint[], $3::uuid[], $4::text[], $5::text[], $6::text[])
                b(seq, prev, id, topic, object, payload)",
        )
        .await?;
    let entries: Vec<Vec<Entry>> = [0, OBJECTS].map(|count| (0..OBJECTS).map(|n| entry(n, count)).collect()).into();
    let begun = Instant::now();
    let mut took: [Vec<Duration>; 4] = Default::default();
    let mut turns = 0;
    while begun.elapsed() < time {
        let from = turns * BATCH % OBJECTS;
        for (kind, entries) in entries.iter().enumerate() {
            let batch = &entries[from..from + BATCH];
            let turn = Instant::now();
            let first = ((2 * turns + kind) * BATCH) as i64;
            raw_batch(client, &insert, first, batch).await?;
            took[2 * kind].push(turn.elapsed());
            let batch = batch.to_vec();
            let turn = Instant::now();
            store.append(batch).await?;
            took[2 * kind + 1].push(turn.elapsed());
        }
        turns += 1;
    }
    // The median batch: a checkpoint or a neighbour stalls whoever's turn it is.
    Ok(took.map(|mut took| {
        took.sort();
        BATCH as f64 / took[took.len() / 2].as_secs_f64()
    }))
}

/// The same rows by a plain multi-row INSERT.
async fn raw_batch(client: &Client, insert: &Statement, first: i64, batch: &[Entry]) -> Result<(), Failure> {
    let seqs: Vec<i64> = (first..first + batch.len() as i64).collect();
    let ids: Vec<uuid::Uuid> = batch.iter().map(|_| uuid::Uuid::from_bytes(rand::random())).collect();
    let topics: Vec<&str> = batch.iter().map(|entry| entry.topic.as_str()).collect();
    let payloads: Vec<&str> = batch.iter().map(|entry| entry.payload.as_str()).collect();
    let has_objects = batch[0].object.is_some();
    let objects: Option<Vec<&str>> = batch.iter().map(|entry| entry.object.as_ref().map(|o| o.as_str())).collect();
    let prevs: Option<Vec<i64>> = has_objects.then(|| seqs.iter().map(|seq| seq - OBJECTS as i64).collect());
    client.execute(insert, &[&seqs, &prevs, &ids, &topics, &objects, &payloads]).await?;
    Ok(())
}

fn entry(n: usize, objects: usize) -> Entry {
    let event = NewEvent::new("order.paid").payload_json(&payload(n));
    let event = if objects > 0 { event.object(format!("object:{}", n * 7919 % objects)) } else { event };
    event.check().expect("a sound event")
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
