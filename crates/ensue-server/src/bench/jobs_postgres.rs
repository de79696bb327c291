//! How do jobs on Postgres compare to a bare queue?

use super::database::{connect, drop_schemas, new_schema};
use super::jobs::{BATCH, HANDLER, UNIT, Work, claiming, starting};
use super::report::{Report, Target};
use super::rounds::{self, Rates, SLICE};
use super::sample::{Objects, Sample};
use anyhow::Context;
use ensue::Address;
use std::time::{Duration, Instant};
use tokio_postgres::{Client, Statement};

/// Measures in schemas of its own, which are dropped afterwards, whatever happens.
pub async fn run(address: &Address, seconds: u64, waiting: usize) -> anyhow::Result<Report> {
    let schemas = [new_schema(), new_schema(), new_schema()];
    let raw = connect(&address.without_schema()).await?;
    raw.batch_execute(&format!("CREATE SCHEMA {}_raw", schemas[0])).await.context("cannot make a schema")?;
    let measured = measure(address, &schemas, &raw, seconds, waiting).await;
    drop_schemas(&raw, &[format!("{}_raw", schemas[0])]).await?;
    drop_schemas(&raw, &schemas).await?;
    measured
}

async fn measure(
    address: &Address,
    schemas: &[String; 3],
    client: &Client,
    seconds: u64,
    waiting: usize,
) -> anyhow::Result<Report> {
    let raw = Raw::make(client, &format!("{}_raw", schemas[0])).await?;
    let work = Work::open(&address.with_schema(&schemas[0])).await?;
    // First, while the server is not busy with what the other cases leave behind: checkpoints, vacuum.
    let idle = work.idle(Duration::from_secs((seconds / 4).max(1))).await?;
    let sample = Sample::new(Objects::None);
    let mut rates: [Rates; 4] = Default::default();
    // The first round warms up and is not counted. What was sent in a slice is held by a rule, and then run by itself.
    for round in 0..=rounds::count(seconds, rates.len()) {
        let inserted = raw.insert(client, &sample).await?;
        let taken = raw.take(client).await?;
        work.pause().await?;
        let start = Instant::now();
        let mut count = 0;
        while start.elapsed() < SLICE {
            count += work.send(&sample, BATCH).await?;
        }
        let sent = (count, start.elapsed());
        let start = Instant::now();
        work.resume().await?;
        work.finish().await?;
        let ran = (count, start.elapsed());
        let results = [inserted, sent, taken, ran];
        for (rates, (count, took)) in rates.iter_mut().zip(results).filter(|_| round > 0) {
            rates.add(count, took);
        }
    }
    work.close().await?;
    let mut report = Report::new(format!(
        "Jobs on Postgres: 200-byte payloads, sent in batches of {BATCH}, {} workers, {} rounds of {} ms each",
        ensue::jobs::WORKERS,
        rounds::count(seconds, rates.len()),
        SLICE.as_millis(),
    ));
    let [inserted, sent, taken, ran] = &rates;
    report.raw_rates(format!("plain inserts, batches of {BATCH}"), inserted, UNIT);
    report.rates("sent", sent, UNIT, inserted, Some(Target::AtLeast(0.5)));
    report.raw_rates(format!("a bare SKIP LOCKED loop, {BATCH} claimed and deleted at once"), taken, UNIT);
    report.rates("claimed, run and settled", ran, UNIT, taken, Some(Target::AtLeast(0.4)));
    claiming(&mut report, &address.with_schema(&schemas[1]), &address.with_schema(&schemas[2]), waiting).await?;
    starting(&mut report, &idle, 2.0);
    Ok(report)
}

/// A bare queue.
struct Raw {
    insert: Statement,
    take: Statement,
}

impl Raw {
    async fn make(client: &Client, schema: &str) -> anyhow::Result<Self> {
        let table = format!("{schema}.jobs");
        client
            .batch_execute(&format!(
                "CREATE TABLE {table} (number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, id uuid NOT NULL,
                    handler text COLLATE \"C\" NOT NULL, payload jsonb NOT NULL, priority bigint NOT NULL,
                    state text COLLATE \"C\" NOT NULL, attempts integer NOT NULL, enqueued_at timestamptz NOT NULL)"
            ))
            .await?;
        let insert = client
            .prepare(&format!(
                "INSERT INTO {table} (id, handler, payload, priority, state, attempts, enqueued_at)
                 SELECT gen_random_uuid(), $1, p::jsonb, 0, 'available', 0, now() FROM unnest($2::text[]) p"
            ))
            .await?;
        let take = client
            .prepare(&format!(
                "DELETE FROM {table} WHERE number IN (
                     SELECT number FROM {table} ORDER BY number LIMIT {BATCH} FOR UPDATE SKIP LOCKED
                 ) RETURNING id, payload"
            ))
            .await?;
        Ok(Self { insert, take })
    }

    async fn insert(&self, client: &Client, sample: &Sample) -> anyhow::Result<(u64, Duration)> {
        let start = Instant::now();
        let mut count = 0;
        while start.elapsed() < SLICE {
            let payloads: Vec<String> = (0..BATCH).map(|_| sample.row().1).collect();
            count += client.execute(&self.insert, &[&HANDLER, &payloads]).await?;
        }
        Ok((count, start.elapsed()))
    }

    /// Takes all that was inserted.
    async fn take(&self, client: &Client) -> anyhow::Result<(u64, Duration)> {
        let start = Instant::now();
        let mut count = 0;
        loop {
            let taken = client.query(&self.take, &[]).await?.len() as u64;
            if taken == 0 {
                return Ok((count, start.elapsed()));
            }
            count += taken;
        }
    }
}
