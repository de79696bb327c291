//! How is a store made, or brought to the version of this program?

use super::Outcome;
use super::output::{self, Block, OutputArgs};
use crate::config::{Given, Settings};
use anyhow::{Context, bail};
use clap::Args;
use ensue::{Address, Ensue, Place, SqliteStore, Upgrade};
use serde_json::json;
use std::path::PathBuf;

/// The schema of the script when no store says another.
const SCHEMA_DEFAULT: &str = "ensue";

/// `ensue migrate`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue migrate --store postgres://ensue@db/app              # makes it, or brings it up to date
  ensue migrate --store postgres://ensue@db/app --dry-run    # only prints the SQL
  ensue migrate --sql > ensue.sql && psql -1 -f ensue.sql    # for who may not connect as its owner

`ensue serve` does the same when it starts; servers that run meanwhile go on.
--dry-run prints nothing if nothing is to be done. --sql needs no database.")]
pub struct MigrateArgs {
    /// The store [default: the one that `ensue serve` would use here]
    #[arg(long, env = "ENSUE_STORE", value_name = "URL", hide_env_values = true)]
    store: Option<String>,
    /// The config file that names the store
    #[arg(long, env = "ENSUE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// Print the SQL that would be run, and change nothing
    #[arg(long, conflicts_with = "sql")]
    dry_run: bool,
    /// Print the whole script for a new Postgres schema; no database is asked
    #[arg(long)]
    sql: bool,
    #[command(flatten)]
    output: OutputArgs,
}

/// A store on its way from one version to another.
struct Change {
    from: i64,
    to: i64,
    script: String,
}

impl Change {
    fn is_needed(&self) -> bool {
        self.from < self.to
    }

    fn in_words(&self, address: &Address) -> String {
        match self {
            Self { from: 0, to, .. } => format!("{address} was made, with version {to} of the schema"),
            Self { from, to, .. } if self.is_needed() => format!("{address} was brought from version {from} to {to}"),
            Self { script, .. } if !script.is_empty() => script.trim_start_matches("-- ").trim_end().to_owned(),
            Self { to, .. } => format!("{address} is up to date, with version {to}"),
        }
    }

    /// The SQL, for the program that it is meant for.
    fn printed(&self, address: &Address) -> String {
        match address.place() {
            Place::Postgres if self.is_needed() => Upgrade::for_psql(&self.script),
            Place::Postgres | Place::Memory | Place::File(_) => self.script.clone(),
        }
    }
}

/// Brings the store up to date, or prints how.
pub async fn run(args: MigrateArgs) -> anyhow::Result<Outcome> {
    let given = Given { store: args.store, config: args.config, ..Given::default() };
    if args.sql {
        return print_script(given.store.as_deref());
    }
    let address = Settings::resolve(given)?.store;
    let change = look(&address).await?;
    if args.dry_run {
        return match args.output.json {
            true => output::answer(&told(&change, Some(&change.script)), args.output, String::new),
            false if change.script.is_empty() => Ok(Outcome::Done),
            false => script(&change.printed(&address)),
        };
    }
    carry_out(&address).await.with_context(|| format!("cannot bring {address} up to date"))?;
    output::answer(&told(&change, None), args.output, || change.in_words(&address))
}

fn told(change: &Change, script: Option<&str>) -> serde_json::Value {
    match script {
        Some(script) => json!({ "from": change.from, "to": change.to, "sql": script }),
        None => json!({ "from": change.from, "to": change.to }),
    }
}

/// The script for a new schema: the one that the store names, if it is on Postgres.
fn print_script(store: Option<&str>) -> anyhow::Result<Outcome> {
    let schema = match store.map(str::parse::<Address>).transpose()? {
        Some(address) if address.place() == Place::Postgres => Upgrade::schema_of(address.as_str())?,
        Some(_) | None => SCHEMA_DEFAULT.to_owned(),
    };
    script(&Upgrade::for_psql(&Upgrade::install(&schema)))
}

fn script(sql: &str) -> anyhow::Result<Outcome> {
    output::block(Block::lines(sql.trim_end().lines()))?;
    Ok(Outcome::Done)
}

async fn look(address: &Address) -> anyhow::Result<Change> {
    match address.place() {
        Place::Memory => bail!("a store in memory is made anew by each program: there is nothing to migrate"),
        Place::File(path) => {
            let (from, to, script) = SqliteStore::pending_upgrade(path)?;
            Ok(Change { from: from as i64, to: to as i64, script })
        }
        Place::Postgres => {
            let Upgrade { from, to, script, .. } =
                Upgrade::look(address.as_str()).await.with_context(|| format!("cannot look at {address}"))?;
            Ok(Change { from: from.into(), to: to.into(), script })
        }
    }
}

async fn carry_out(address: &Address) -> anyhow::Result<()> {
    match address.place() {
        // Whoever opens it for writing brings it up to date.
        Place::Memory | Place::File(_) => Ensue::open(address.as_str()).await?.close().await,
        Place::Postgres => drop(Upgrade::carry_out(address.as_str()).await?),
    }
    Ok(())
}
