//! What may be said to `ensue serve`?

use super::Outcome;
use crate::config::units::{Size, Span};
use crate::config::{Given, Settings};
use anyhow::bail;
use clap::Args;
use clap::builder::FalseyValueParser;
use std::env::VarError;
use std::path::PathBuf;

/// `ensue serve`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue serve                                                # ./ensue.db, http://127.0.0.1:4747, no token
  ensue serve --dev                                          # in memory: gone when it ends
  ensue serve --store postgres://ensue@db/app?schema=ensue
  ENSUE_TOKEN=$(openssl rand -hex 32) ensue serve --listen 0.0.0.0:4747
  ensue serve --retention-age 7d --retention-size 10GB

A flag wins over its ENSUE_… variable, that over the config file (./ensue.yaml if it is there).
The first line on stdout is `listening on http://ADDR:PORT`; port 0 picks a free one.
SIGTERM or Ctrl-C: finishes the requests under way (at most 10 s), then exits with 0.")]
pub struct ServeArgs {
    /// Where the log lives: sqlite:PATH, sqlite::memory: or postgres://… [default: sqlite:ensue.db]
    #[arg(long, env = "ENSUE_STORE", value_name = "URL", hide_env_values = true)]
    store: Option<String>,
    /// The address to listen on [default: 127.0.0.1:4747]
    #[arg(long, env = "ENSUE_LISTEN", value_name = "ADDR")]
    listen: Option<String>,
    /// The config file [default: ./ensue.yaml if it is there]
    #[arg(long, env = "ENSUE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// A file with one token per line, or a name and a token (or ENSUE_TOKEN for a single one)
    #[arg(long, env = "ENSUE_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Forget events older than this, such as 7d [default: keep everything]
    #[arg(long, env = "ENSUE_RETENTION_AGE", value_name = "SPAN")]
    retention_age: Option<Span>,
    /// Forget the oldest events beyond this, such as 10GB [default: keep everything]
    #[arg(long, env = "ENSUE_RETENTION_SIZE", value_name = "SIZE")]
    retention_size: Option<Size>,
    /// Store in memory, for trying things out
    #[arg(long, env = "ENSUE_DEV", value_parser = FalseyValueParser::new())]
    dev: bool,
}

/// The token in the environment. It has no flag here: everybody on the machine can read the arguments of a process.
pub fn token_variable() -> anyhow::Result<Option<String>> {
    match std::env::var("ENSUE_TOKEN") {
        Ok(token) => Ok(Some(token)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => bail!("ENSUE_TOKEN is not text: use letters and digits"),
    }
}

/// Runs a server until it is told to stop.
pub async fn run(args: ServeArgs) -> anyhow::Result<Outcome> {
    if args.dev && args.store.is_some() {
        anyhow::bail!("--dev keeps everything in memory and --store names a store: leave one of them out");
    }
    let given = Given {
        store: args.store,
        listen: args.listen,
        config: args.config,
        token_file: args.token_file,
        token: token_variable()?,
        retention_age: args.retention_age,
        retention_size: args.retention_size,
        dev: args.dev,
    };
    crate::serve::run(Settings::resolve(given)?).await?;
    Ok(Outcome::Done)
}
