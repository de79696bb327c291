//! How does a benchmark use a Postgres database, and leave it as it was?
//!
//! Everything it writes is in schemas of its own, whose names nobody else has and which it drops at the end.

use anyhow::Context;
use tokio_postgres::{Client, NoTls};

/// A name for a schema that nobody else has.
pub fn new_schema() -> String {
    format!("ensue_bench_{:08x}", rand::random::<u32>())
}

/// Connects beside the engine.
pub async fn connect(url: &str) -> anyhow::Result<Client> {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .context("the benchmark cannot connect (without TLS): check the address, and that the server runs")?;
    tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::warn!(%error, "a connection of the benchmark broke");
        }
    });
    Ok(client)
}

/// The roles that a schema brings with it: they belong to the whole server and do not go with it.
const ROLES: [&str; 5] = ["publish", "consume", "operate", "owner", "evaluate"];

/// Drops schemas with all that is in them and their roles, whether they were made or not.
pub async fn drop_schemas(client: &Client, schemas: &[String]) -> anyhow::Result<()> {
    for schema in schemas {
        let dropped = client.batch_execute(&format!("DROP SCHEMA IF EXISTS {schema} CASCADE")).await;
        dropped.with_context(|| format!("cannot drop the schema {schema}: drop it by hand"))?;
        for role in ROLES.map(|role| format!("{schema}_{role}")) {
            if client.query_opt("SELECT 1 FROM pg_roles WHERE rolname = $1", &[&role]).await?.is_some() {
                let dropped = client.batch_execute(&format!("DROP OWNED BY {role}; DROP ROLE {role}")).await;
                dropped.with_context(|| format!("cannot drop the role {role}: drop it by hand"))?;
            }
        }
    }
    Ok(())
}
