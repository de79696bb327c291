//! How fast does the log take events, beside plain inserts of the same rows?

use super::args::{DirArgs, Engine, EngineArgs, SecondsArgs};
use super::{append_postgres, append_sqlite};
use crate::cli::output::OutputArgs;
use clap::Args;

/// `ensue bench append`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue bench append                                         # SQLite, in the current folder
  ensue bench append --dir /mnt/data --seconds 30
  ensue bench append --store postgres://me@localhost/test    # in a schema of its own
  ensue bench append --json | jq '.figures[] | {name, ratio}'")]
pub struct AppendArgs {
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    dir: DirArgs,
    #[command(flatten)]
    time: SecondsArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Measures and prints.
pub async fn run(args: AppendArgs) -> anyhow::Result<()> {
    let report = match args.engine.engine()? {
        Engine::Sqlite => append_sqlite::run(&args.dir, args.time.seconds).await?,
        Engine::Postgres(address) => append_postgres::run(&address, args.time.seconds).await?,
    };
    report.print(args.output.json)
}
