//! How does the Postgres engine compare to plain inserts?
//!
//! Raw: a plain table with our columns, its key as the only index; multi-row inserts (`unnest`) on one connection, and
//! single rows from 32 connections. Both sides live in a schema of their own, which is dropped afterwards.

use super::callers::{batches, singles};
use super::database::{connect, drop_schemas, new_schema};
use super::report::{Report, Target};
use super::rounds::{self, Rates, SLICE, slice};
use super::sample::{Objects, Sample, TOPIC};
use anyhow::Context;
use ensue::{Address, Ensue};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, Statement};
use uuid::Uuid;

/// How many events a batch has.
const BATCH: usize = 1_000;
/// How many callers publish one event at a time.
const CALLERS: usize = 64;
/// How many connections insert one row at a time.
const CLIENTS: usize = 32;

const UNIT: &str = "events/s";

/// Measures in two new schemas, which are dropped afterwards, whatever happens.
pub async fn run(address: &Address, seconds: u64) -> anyhow::Result<Report> {
    let schema = new_schema();
    let raw = connect(&address.without_schema()).await?;
    raw.batch_execute(&format!("CREATE SCHEMA {schema}_raw"))
        .await
        .context("cannot make a schema for the benchmark")?;
    let measured = measure(address, &schema, &raw, seconds).await;
    drop_schemas(&raw, &[format!("{schema}_raw"), schema]).await?;
    measured
}

/// Makes the plain table; answers its name and the statement that inserts many rows.
pub async fn raw_table(raw: &Client, schema: &str) -> anyhow::Result<(String, Statement)> {
    let table = format!("{schema}_raw.events");
    raw.batch_execute(&format!(
        "CREATE TABLE {table} (seq bigint PRIMARY KEY, prev bigint, recorded_at timestamptz NOT NULL,
            occurred_at timestamptz, id uuid NOT NULL, to_subscription uuid, topic text COLLATE \"C\" NOT NULL,
            object text COLLATE \"C\", payload jsonb NOT NULL, metadata jsonb)"
    ))
    .await?;
    let many = raw
        .prepare(&format!(
            "INSERT INTO {table} (seq, prev, recorded_at, id, topic, object, payload)
             SELECT b.seq, b.prev, now(), b.id, b.topic, b.object, b.payload::jsonb
             FROM unnest($1::bigint[], $2::bigint[], $3::uuid[], $4::text[], $5::text[], $6::text[])
                AS b(seq, prev, id, topic, object, payload)"
        ))
        .await?;
    Ok((table, many))
}

async fn measure(address: &Address, schema: &str, raw: &Client, seconds: u64) -> anyhow::Result<Report> {
    let (table, many) = raw_table(raw, schema).await?;
    let mut clients = Vec::new();
    for _ in 0..CLIENTS {
        let client = connect(&address.without_schema()).await?;
        let insert = format!(
            "INSERT INTO {table} (seq, recorded_at, id, topic, payload) VALUES ($1, now(), $2, $3, $4::text::jsonb)"
        );
        let one = client.prepare(&insert).await?;
        clients.push((client, one));
    }
    let clients = Arc::new(clients);
    let bus = Ensue::open(&address.with_schema(schema)).await?;
    let plain = Arc::new(Sample::new(Objects::None));
    let all = Arc::new(Sample::new(Objects::All));
    let seq = Arc::new(AtomicI64::new(0));

    let mut rates: [Rates; 8] = Default::default();
    // The first round warms up and is not counted.
    for round in 0..=rounds::count(seconds, rates.len()) {
        let results = [
            raw_batches(raw, &many, &plain, &seq, BATCH).await?,
            batches(&bus, &plain, 1, BATCH).await?,
            batches(&bus, &plain, 2, BATCH).await?,
            raw_batches(raw, &many, &all, &seq, BATCH).await?,
            batches(&bus, &all, 1, BATCH).await?,
            batches(&bus, &all, 2, BATCH).await?,
            raw_singles(&clients, &plain, &seq).await?,
            singles(&bus, &plain, CALLERS).await?,
        ];
        for (rates, (count, took)) in rates.iter_mut().zip(results).filter(|_| round > 0) {
            rates.add(count, took);
        }
    }
    bus.close().await;

    let version: String = raw.query_one("SHOW server_version", &[]).await?.get(0);
    let mut report = Report::new(format!(
        "Appending on Postgres {version}: 200-byte payloads, {} rounds of {} ms each",
        rounds::count(seconds, rates.len()),
        SLICE.as_millis(),
    ));
    let [raw_none, ours_none, two_none, raw_all, ours_all, two_all, raw_one, ours_one] = &rates;
    let at_least = |bound| Some(Target::AtLeast(bound));
    report.raw_rates(format!("plain inserts, batches of {BATCH}, no objects"), raw_none, UNIT);
    let name = format!("ensue, batches of {BATCH}, no objects, one caller");
    report.rates(name, ours_none, UNIT, raw_none, at_least(0.9));
    // One makes its next batch while the other's is stored, on the same connection.
    report.rates(format!("ensue, batches of {BATCH}, no objects, 2 callers"), two_none, UNIT, raw_none, None);
    report.raw_rates(format!("plain inserts, batches of {BATCH}, 10,000 objects"), raw_all, UNIT);
    let name = format!("ensue, batches of {BATCH}, 10,000 objects, one caller");
    report.rates(name, ours_all, UNIT, raw_all, at_least(0.6));
    report.rates(format!("ensue, batches of {BATCH}, 10,000 objects, 2 callers"), two_all, UNIT, raw_all, None);
    report.raw_rates(format!("plain inserts of one row, {CLIENTS} connections"), raw_one, UNIT);
    report.rates(format!("ensue, {CALLERS} callers of one event"), ours_one, UNIT, raw_one, at_least(2.5));
    Ok(report)
}

/// Inserts batch after batch: how many rows were stored, and how long it took.
pub async fn raw_batches(
    client: &Client,
    insert: &Statement,
    sample: &Sample,
    seq: &AtomicI64,
    batch: usize,
) -> anyhow::Result<(u64, Duration)> {
    let start = Instant::now();
    let mut count = 0;
    while start.elapsed() < SLICE {
        let (objects, payloads): (Vec<Option<String>>, Vec<String>) = (0..batch).map(|_| sample.row()).unzip();
        let first = seq.fetch_add(batch as i64, Ordering::Relaxed) + 1;
        let seqs: Vec<i64> = (first..).take(batch).collect();
        let prevs: Vec<Option<i64>> =
            seqs.iter().zip(&objects).map(|(seq, object)| object.as_ref().map(|_| seq - 1)).collect();
        let ids: Vec<Uuid> = seqs.iter().map(|_| Uuid::from_u128(rand::random())).collect();
        let topics = vec![TOPIC; batch];
        client.execute(insert, &[&seqs, &prevs, &ids, &topics, &objects, &payloads]).await?;
        count += batch as u64;
    }
    Ok((count, start.elapsed()))
}

async fn raw_singles(
    clients: &Arc<Vec<(Client, Statement)>>,
    sample: &Arc<Sample>,
    seq: &Arc<AtomicI64>,
) -> anyhow::Result<(u64, Duration)> {
    let (clients, sample, seq) = (clients.clone(), sample.clone(), seq.clone());
    slice(CLIENTS, move |caller| {
        let (clients, sample, seq) = (clients.clone(), sample.clone(), seq.clone());
        async move {
            let (client, insert) = &clients[caller];
            let (_, payload) = sample.row();
            let number = seq.fetch_add(1, Ordering::Relaxed) + 1;
            client.execute(insert, &[&number, &Uuid::from_u128(rand::random()), &TOPIC, &payload]).await?;
            Ok(1)
        }
    })
    .await
}
