//! Is the schema the one this program knows?
//!
//! Migrations are numbered and never edited once released: a change of a table or a function is a new one. Each is a
//! transaction under an advisory lock, so that any number of nodes may start at once: the first does it, the others find
//! it done.

use super::connection::within;
use super::definitions;
use super::error::{Failure, explain};
use super::jobs;
use super::parked;
use super::positions_sql;
use super::schedules;
use super::schema::Schema;
use super::server::Server;
use ensue_core::StoreError;
use tokio_postgres::Client;

/// The oldest server that has what we use: Postgres 14.
const SERVER_VERSION_MIN: i32 = 140_000;

/// What leads from one version to the next, in order; the first leads from nothing to version 1.
const MIGRATIONS: &[&[&str]] = &[
    LOG,
    positions_sql::MIGRATION,
    parked::MIGRATION,
    positions_sql::SERVING,
    jobs::sql::MIGRATION,
    definitions::MIGRATION,
    jobs::tasks::MIGRATION,
    schedules::MIGRATION,
];

/// The log itself.
const LOG: &[&str] = &[
    include_str!("sql/tables.sql"),
    include_str!("sql/fn_lock_log.sql"),
    include_str!("sql/fn_log_tail.sql"),
    include_str!("sql/fn_recording_time.sql"),
    include_str!("sql/fn_event_id.sql"),
    include_str!("sql/fn_append.sql"),
    include_str!("sql/fn_stored.sql"),
    include_str!("sql/fn_release_due.sql"),
    include_str!("sql/fn_seq_before.sql"),
    include_str!("sql/fn_find_seq.sql"),
    include_str!("sql/fn_cancel.sql"),
    include_str!("sql/fn_trim.sql"),
    include_str!("sql/fn_ensure_partitions.sql"),
    include_str!("sql/fn_detach_trimmed.sql"),
    include_str!("sql/fn_drop_detached.sql"),
    include_str!("sql/fn_log_bytes.sql"),
    include_str!("sql/fn_purge_keys.sql"),
];

/// The version that this program knows.
fn newest() -> i32 {
    MIGRATIONS.len() as i32
}

/// Brings the schema to this program's version, or says why that cannot be.
pub(super) async fn migrate(server: &Server, schema: &Schema, read_only: bool) -> Result<(), StoreError> {
    let told = |failure: Failure| explain(&failure, &server.place);
    let mut client = server.connect(server.unavailable_after).await.map_err(told)?;
    let number = "SELECT current_setting('server_version_num')::int";
    let row = within(server.statement_time_max, client.query_one(number, &[])).await.map_err(told)?;
    check_version(row.get(0), &server.place)?;
    loop {
        let found = within(server.statement_time_max, version(&client, schema)).await.map_err(told)?;
        if found > newest() {
            return Err(StoreError::Schema(format!(
                "the schema {} at {} has version {found}, this program knows {}: use the newer Ensue that made it",
                schema.quoted(),
                server.place,
                newest()
            )));
        }
        if found == newest() {
            return Ok(());
        }
        if read_only {
            return Err(StoreError::Schema(format!(
                "there is no log of this version in the schema {} at {}: start `ensue serve` on it once, which makes it",
                schema.quoted(),
                server.place
            )));
        }
        step(&mut client, schema, found).await.map_err(|error| told(error.into()))?;
    }
}

/// Has this server what we use? `found` is its `server_version_num`.
fn check_version(found: i32, place: &str) -> Result<(), StoreError> {
    if found < SERVER_VERSION_MIN {
        return Err(StoreError::Schema(format!(
            "Postgres at {place} has version {}; Ensue needs 14 or newer: upgrade the server",
            found / 10_000
        )));
    }
    Ok(())
}

/// The version of the schema; 0 if there is none yet.
async fn version(client: &Client, schema: &Schema) -> Result<i32, tokio_postgres::Error> {
    let table = "SELECT count(*) FROM pg_tables WHERE schemaname = $1 AND tablename = 'schema_version'";
    let tables: i64 = client.query_one(table, &[&schema.name]).await?.get(0);
    if tables == 0 {
        return Ok(0);
    }
    let newest = schema.fill("SELECT coalesce(max(version), 0) FROM {schema}.schema_version");
    Ok(client.query_one(&newest, &[]).await?.get(0))
}

/// Does the migration after `from`, unless another node has done it meanwhile. It may take as long as it takes: a large
/// table may have to be written anew, or another node is at it.
async fn step(client: &mut Client, schema: &Schema, from: i32) -> Result<(), tokio_postgres::Error> {
    client.batch_execute("SET statement_timeout = 0").await?;
    let transaction = client.transaction().await?;
    transaction.execute("SELECT pg_advisory_xact_lock($1)", &[&schema.lock_key("migrations")]).await?;
    if version(transaction.client(), schema).await? == from {
        if from == 0 {
            make_schema(transaction.client(), schema).await?;
        }
        for part in MIGRATIONS[from as usize] {
            transaction.batch_execute(&schema.fill(part)).await?;
        }
        let done = schema.fill("INSERT INTO {schema}.schema_version (version) VALUES ($1)");
        transaction.execute(&done, &[&(from + 1)]).await?;
        tracing::info!(schema = schema.name, version = from + 1, "the schema was brought up to date");
    }
    transaction.commit().await
}

/// Makes the schema, unless somebody with more rights has made it for us, and the table of its version.
async fn make_schema(client: &Client, schema: &Schema) -> Result<(), tokio_postgres::Error> {
    let there: i64 =
        client.query_one("SELECT count(*) FROM pg_namespace WHERE nspname = $1", &[&schema.name]).await?.get(0);
    if there == 0 {
        client.batch_execute(&schema.fill("CREATE SCHEMA {schema}")).await?;
    }
    let table = "CREATE TABLE {schema}.schema_version \
                 (version int PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT clock_timestamp())";
    client.batch_execute(&schema.fill(table)).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_older_than_14_is_refused_and_told_to_be_upgraded() {
        for (number, version) in [(90_624, "9"), (130_023, "13"), (139_999, "13")] {
            match check_version(number, "host/db") {
                Err(StoreError::Schema(text)) => {
                    assert!(text.contains(&format!("host/db has version {version};")), "{text}");
                    assert!(text.contains("14 or newer: upgrade"), "{text}");
                }
                other => panic!("{number}: {other:?}"),
            }
        }
        for number in [140_000, 150_018, 180_000] {
            assert_eq!(check_version(number, "host/db"), Ok(()));
        }
    }
}
