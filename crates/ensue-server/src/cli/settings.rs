//! What may be said to a server before it starts?
//!
//! The same flags for `ensue serve`, which does it, and `ensue config check`, which only tells.

use crate::config::units::{Size, Span};
use crate::config::{Given, Settings};
use anyhow::bail;
use clap::Args;
use clap::builder::FalseyValueParser;
use std::env::VarError;
use std::path::PathBuf;

/// The settings of a server.
#[derive(Debug, Args)]
pub struct SettingsArgs {
    /// Where the log lives: sqlite:PATH or postgres://USER@HOST/DATABASE?schema=ensue [default: sqlite:ensue.db]
    #[arg(long, env = "ENSUE_STORE", value_name = "URL", hide_env_values = true)]
    store: Option<String>,
    /// The address to listen on [default: 127.0.0.1:4747]
    #[arg(long, env = "ENSUE_LISTEN", value_name = "ADDR")]
    listen: Option<String>,
    /// The config file [default: ./ensue.yaml if it is there]
    #[arg(long, env = "ENSUE_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// A file with one token per line, or a name and a token (or ENSUE_TOKEN for a single one)
    #[arg(long, env = "ENSUE_TOKEN_FILE", value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Forget events older than this, such as 7d [default: keep everything]
    #[arg(long, env = "ENSUE_RETENTION_AGE", value_name = "SPAN")]
    retention_age: Option<Span>,
    /// Forget the oldest events beyond this, such as 10GB [default: keep everything]
    #[arg(long, env = "ENSUE_RETENTION_SIZE", value_name = "SIZE")]
    retention_size: Option<Size>,
    /// Keep the log in memory, whatever the config file says of the store: gone when the server ends
    #[arg(long, env = "ENSUE_DEV", value_parser = FalseyValueParser::new())]
    dev: bool,
}

/// The token in the environment. It has no flag here: everybody on the machine can read the arguments of a process.
fn token_variable() -> anyhow::Result<Option<String>> {
    match std::env::var("ENSUE_TOKEN") {
        Ok(token) => Ok(Some(token)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => bail!("ENSUE_TOKEN is not text: use letters and digits"),
    }
}

impl SettingsArgs {
    /// Adds what the config file and the defaults say.
    pub fn resolve(self) -> anyhow::Result<Settings> {
        Settings::resolve(Given {
            store: self.store,
            listen: self.listen,
            config: self.config,
            token_file: self.token_file,
            token: token_variable()?,
            retention_age: self.retention_age,
            retention_size: self.retention_size,
            dev: self.dev,
        })
    }
}
