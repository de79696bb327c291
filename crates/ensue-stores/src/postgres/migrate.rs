//! Is the schema the one this program knows?
//!
//! An upgrade is one transaction under an advisory lock, so that any number of nodes may start at once: the first does it,
//! the others find it done.

use super::connection::within;
use super::error::{Failure, Trouble, explain};
use super::migrations::{FUNCTIONS, TABLES};
use super::schema::Schema;
use super::server::Server;
use ensue_core::StoreError;
use std::time::Duration;
use tokio_postgres::{Client, SimpleQueryMessage};

/// The oldest server that has what we use: Postgres 14.
const SERVER_VERSION_MIN: i32 = 140_000;

/// The oldest version of the schema whose programs may run beside this one's.
const COMPATIBLE_FROM: i32 = 21;

/// How long an upgrade waits for a table that is in use, and after how long it is tried again.
const LOCK_WAIT: Duration = Duration::from_secs(2);
const LOCK_PAUSE: Duration = Duration::from_millis(500);

/// The version of a schema that is there. Two programs called theirs version 6: the earlier one's had no definitions, which are all
/// that version 5 lacks.
const VERSION: &str = "SELECT coalesce(max(v.version), 0) - CASE WHEN max(v.version) = 6 AND \
    to_regclass(quote_ident({schema_text}) || '.definitions') IS NULL THEN 1 ELSE 0 END FROM {schema}.schema_version v";

/// The version that this program knows.
pub(super) fn newest() -> i32 {
    TABLES.len() as i32
}

/// Brings the schema to this program's version, or says why that cannot be.
pub(super) async fn migrate(server: &Server, schema: &Schema, read_only: bool) -> Result<(), StoreError> {
    let told = |failure: Failure| explain(&failure, &server.place);
    let client = server.connect(server.unavailable_after).await.map_err(told)?;
    check_server(server, &client).await?;
    loop {
        let found = within(server.statement_time_max, version(&client, schema)).await.map_err(told)?;
        if found > newest() {
            check_compatible(server, &client, schema, found).await?;
            tracing::info!(schema = schema.name, version = found, "a newer Ensue has upgraded the schema");
            return Ok(());
        }
        if found == newest() {
            return Ok(());
        }
        if read_only {
            return Err(StoreError::Schema(too_old(found, &schema.quoted(), &server.place)));
        }
        let Err(error) = upgrade(&client, server.way.begin(), schema, found).await else { continue };
        let failure = Failure::from(error);
        if Trouble::of(&failure) != Trouble::Busy {
            return Err(told(failure));
        }
        client.batch_execute("ROLLBACK").await.map_err(|error| told(error.into()))?;
        let held_by = holders(&client, schema).await.unwrap_or_default();
        tracing::warn!(schema = schema.name, held_by, "the schema is in use and cannot be upgraded yet: {failure}");
        tokio::time::sleep(LOCK_PAUSE).await;
    }
}

/// Has this server what we use? To be asked before anything else: whatever an older one lacks is an error of its own.
pub(super) async fn check_server(server: &Server, client: &Client) -> Result<(), StoreError> {
    let ask = "SELECT current_setting('server_version_num')::int";
    let answer = server.way.query_one(client, server.statement_time_max, ask, &[]).await;
    check_version(answer.map_err(|failure| explain(&failure, &server.place))?.get(0), &server.place)
}

/// May this program run beside a schema of this version, which is newer than what it knows?
pub(super) async fn check_compatible(
    server: &Server,
    client: &Client,
    schema: &Schema,
    found: i32,
) -> Result<(), StoreError> {
    let sql = schema.fill("SELECT compatible_from FROM {schema}.schema_version ORDER BY version DESC LIMIT 1");
    let row = server.way.query_one(client, server.statement_time_max, &sql, &[]).await;
    if row.map_err(|failure| explain(&failure, &server.place))?.get::<_, i32>(0) <= newest() {
        return Ok(());
    }
    Err(StoreError::Schema(format!(
        "the schema {} at {} has version {found}, this program knows {}: use the newer Ensue that made it",
        schema.quoted(),
        server.place,
        newest()
    )))
}

/// What is said of a schema that has to be made or upgraded, to who only looks.
fn too_old(found: i32, schema: &str, place: &str) -> String {
    let how = "run `ensue migrate` on it, or start `ensue serve` there once";
    match found {
        0 => format!("there is no Ensue in the schema {schema} at {place}: {how}, which makes it"),
        found => format!(
            "the schema {schema} at {place} has version {found}, this program knows {}: {how}, which brings it up to date",
            newest()
        ),
    }
}

/// `found` is a server's `server_version_num`.
fn check_version(found: i32, place: &str) -> Result<(), StoreError> {
    if found < SERVER_VERSION_MIN {
        return Err(StoreError::Schema(format!(
            "Postgres at {place} has version {}; Ensue needs 14 or newer: upgrade the server",
            found / 10_000
        )));
    }
    Ok(())
}

/// The version of the schema; 0 if there is none yet. Nothing is prepared for it, so that it can be asked in any transaction.
pub(super) async fn version(client: &Client, schema: &Schema) -> Result<i32, tokio_postgres::Error> {
    let tables = "SELECT count(*) FROM pg_tables WHERE schemaname = {schema_text} AND tablename = 'schema_version'";
    if number(client, &schema.fill(tables)).await? == 0 {
        return Ok(0);
    }
    number(client, &schema.fill(VERSION)).await
}

/// Who holds our locks, as text.
async fn holders(client: &Client, schema: &Schema) -> Result<String, tokio_postgres::Error> {
    let messages = client.simple_query(&schema.fill(include_str!("sql/lock_holders.sql"))).await?;
    let who = messages.iter().filter_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(2),
        _ => None,
    });
    Ok(who.collect::<Vec<_>>().join(", "))
}

/// The number that a statement answers.
async fn number(client: &Client, sql: &str) -> Result<i32, tokio_postgres::Error> {
    let messages = client.simple_query(sql).await?;
    let number = messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
        _ => None,
    });
    Ok(number.unwrap_or(0))
}

/// Brings the schema from the version `from` to the newest, unless another node has done it meanwhile. It may take as long as
/// it takes: a large table may have to be written anew, or another node is at it. But it does not wait long for a table: whoever
/// comes after would wait behind it, also for a transaction of somebody else that never ends. After an error nothing is done, and the
/// transaction is to be ended.
async fn upgrade(client: &Client, begin: &str, schema: &Schema, from: i32) -> Result<(), tokio_postgres::Error> {
    let lock = schema.lock_key("migrations");
    let lock_wait = LOCK_WAIT.as_millis();
    let begin = format!(
        "{begin}; SET LOCAL statement_timeout = 0; SET LOCAL lock_timeout = {lock_wait}; SELECT pg_advisory_xact_lock({lock})"
    );
    client.batch_execute(&begin).await?;
    if version(client, schema).await? == from {
        client.batch_execute(&script(schema, from)).await?;
        tracing::info!(schema = schema.name, version = newest(), "the schema was brought up to date");
    }
    client.batch_execute("COMMIT").await
}

/// What brings the schema from the version `from` to the newest; from nothing if it is 0.
pub(super) fn script(schema: &Schema, from: i32) -> String {
    let begin = if from == 0 { include_str!("sql/begin.sql") } else { include_str!("sql/go_on.sql") };
    let tables = TABLES[from as usize..].iter().copied();
    let parts = [begin].into_iter().chain(mends(from)).chain(tables).chain(FUNCTIONS.iter().copied());
    let script = parts.chain([include_str!("sql/end.sql")]).collect::<Vec<_>>().join("\n");
    let numbers = [("{from}", from), ("{newest}", newest()), ("{compatible_from}", COMPATIBLE_FROM)];
    let script = numbers.iter().fold(script, |script, (name, number)| script.replace(name, &number.to_string()));
    schema.fill(&script.replace("{version}", VERSION))
}

/// What makes a schema that says it has this version the one that the migrations up to there make: the first of them were changed
/// while programs used them.
fn mends(from: i32) -> impl Iterator<Item = &'static str> {
    let mends = [
        (1..=1, include_str!("sql/mend_log.sql")),
        (2..=5, include_str!("sql/mend_positions.sql")),
        (1..=8, include_str!("sql/mend_functions.sql")),
    ];
    mends.into_iter().filter(move |(of, _)| of.contains(&from)).map(|(_, sql)| sql)
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
