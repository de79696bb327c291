//! How does somebody bring a schema up to date by hand, or look at what would be done?
//!
//! A store that is opened does it by itself (`migrate`). Who may not, or wants to see it first, has the SQL.

use super::PostgresStore;
use super::connection::within;
use super::error::{Failure, explain};
use super::migrate::{check_compatible, check_server, migrate, newest, script, version};
use super::options::PostgresOptions;
use super::schema::Schema;
use super::server::Server;
use super::url;
use ensue_core::StoreError;

/// What a schema is, and what it is to become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upgrade {
    /// The name of the schema.
    pub schema: String,
    /// Its version; 0 if there is none yet.
    pub from: i32,
    /// The version that this program knows, or that of the schema if that is newer and lets this program run beside it.
    pub to: i32,
    /// What leads from one to the other; nothing if nothing is to be done, but for a comment where a newer Ensue has upgraded the schema.
    pub script: String,
}

/// What is said before a script. To be run whole, or not at all.
fn header(what: &str) -> String {
    format!("-- {what}\n-- Run it in one transaction: psql -1 -f FILE\n\n")
}

/// Has psql stop at the first error, and say so with its exit code. Other programs do not know this line.
const FOR_PSQL: &str = "\\set ON_ERROR_STOP on\n";

/// What is made by a store that is opened, and by nobody who only runs the script: the first partitions of the log.
fn first_partitions(schema: &Schema) -> String {
    schema.fill(
        "\n-- The first partitions of the log.\n\
         DO $body$ BEGIN PERFORM {schema}.ensure_partitions(s.o_rows, s.o_ahead) FROM {schema}.partitions_set() s; END $body$;\n",
    )
}

impl Upgrade {
    /// The whole script for a new schema.
    pub fn install(schema: &str) -> String {
        let schema = Schema::new(schema.to_owned());
        let what = format!("Ensue, version {} of its schema, in the schema {}.", newest(), schema.quoted());
        header(&what) + &script(&schema, 0) + &first_partitions(&schema)
    }

    /// A script as psql is to run it: it stops at the first error.
    pub fn for_psql(script: &str) -> String {
        FOR_PSQL.to_owned() + script
    }

    /// The schema that a URL names.
    pub fn schema_of(url: &str) -> Result<String, StoreError> {
        Ok(url::parse(url, PostgresOptions::default().unavailable_after)?.schema)
    }

    /// What would be done at this URL. Changes nothing.
    pub async fn look(url: &str) -> Result<Self, StoreError> {
        let target = url::parse(url, PostgresOptions::default().unavailable_after)?;
        let options = PostgresOptions { read_only: true, ..PostgresOptions::default() };
        let server = Server::reach(&target, &options).await?;
        let schema = Schema::new(target.schema);
        let told = |failure: Failure| explain(&failure, &server.place);
        let client = server.connect(server.unavailable_after).await.map_err(told)?;
        check_server(&server, &client).await?;
        let from = within(server.statement_time_max, version(&client, &schema)).await.map_err(told)?;
        let script = match from {
            0 => Self::install(&schema.name),
            from if from < newest() => {
                let what = format!("The schema {} from version {from} to {}.", schema.quoted(), newest());
                header(&what) + &script(&schema, from)
            }
            from if from > newest() => {
                check_compatible(&server, &client, &schema, from).await?;
                format!(
                    "-- A newer Ensue has brought the schema {} to version {from}; this program knows {}, and may run beside it: \
                     there is nothing to do.\n",
                    schema.quoted(),
                    newest()
                )
            }
            _ => String::new(),
        };
        Ok(Self { schema: schema.name, from, to: newest().max(from), script })
    }

    /// Brings the schema at this URL up to date, and says what it was.
    pub async fn carry_out(url: &str) -> Result<Self, StoreError> {
        let upgrade = Self::look(url).await?;
        let options = PostgresOptions::default();
        let target = url::parse(url, options.unavailable_after)?;
        let server = Server::reach(&target, &options).await?;
        // A newer schema is looked at too: does it let this program run?
        migrate(&server, &Schema::new(target.schema), false).await?;
        if upgrade.from == 0 {
            // The store makes its first partitions when it is opened.
            let store = PostgresStore::open(url, options).await?;
            ensue_core::Store::close(&store).await;
        }
        Ok(upgrade)
    }
}
