//! How fast does the log take events, beside plain inserts of the same rows?

use super::{append_postgres, append_sqlite};
use crate::cli::output::OutputArgs;
use anyhow::{Context, bail};
use clap::Args;
use ensue::{Address, Place};
use std::path::PathBuf;

/// `ensue bench append`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue bench append                                         # SQLite, in the current folder
  ensue bench append --dir /mnt/data --seconds 30
  ensue bench append --store postgres://me@localhost/test    # in a schema of its own
  ensue bench append --json | jq '.figures[] | {name, ratio}'")]
pub struct AppendArgs {
    /// sqlite, or postgres://… [default: sqlite]
    #[arg(long, value_name = "URL")]
    store: Option<String>,
    /// The folder whose file system is measured (SQLite)
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    dir: PathBuf,
    /// About how long to measure
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    seconds: u64,
    #[command(flatten)]
    output: OutputArgs,
}

/// Measures and prints.
pub async fn run(args: AppendArgs) -> anyhow::Result<()> {
    let report = match args.store.as_deref() {
        None | Some("sqlite") => append_sqlite::run(&args.dir, args.seconds).await?,
        Some(url) => {
            let address: Address = url.parse().context("--store")?;
            match address.place() {
                Place::Postgres => append_postgres::run(&address, args.seconds).await?,
                Place::Memory | Place::File(_) => bail!(
                    "the benchmark makes a SQLite file of its own (choose the folder with --dir) or takes a \
                     postgres://USER@HOST/DATABASE; it will not write into `{address}`"
                ),
            }
        }
    };
    report.print(args.output.json)
}
