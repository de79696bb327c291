//! What may be said to a server before it starts?
//!
//! The same flags for `ensue serve`, which does it, and `ensue config check`, which only tells.

use crate::config::tokens::VARIABLE;
use crate::config::units::{Size, Span};
use crate::config::{Given, Settings};
use anyhow::bail;
use clap::builder::FalseyValueParser;
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command, FromArgMatches};
use std::env::VarError;
use std::fmt;
use std::path::{Path, PathBuf};

/// The settings of a server.
#[derive(Debug, Args)]
pub struct SettingsArgs {
    // Before the others, which take themselves out of what was parsed.
    #[command(flatten)]
    by_variable: ByVariable,
    #[command(flatten)]
    token: TokenVariable,
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
    /// Keep what a group has not read for so long after somebody last served it [default: 30d]
    #[arg(long, env = "ENSUE_RETENTION_HOLD_MAX", value_name = "SPAN")]
    retention_hold_max: Option<Span>,
    /// How long to wait for handlers that run when told to stop [default: 30s]
    #[arg(long, env = "ENSUE_DRAIN_MAX", value_name = "SPAN")]
    drain_max: Option<Span>,
    /// How many jobs run at once [default: 16]
    #[arg(long, env = "ENSUE_WORKERS", value_name = "N")]
    workers: Option<usize>,
    /// How many events each handler holds in memory that are not done [default: 1024]
    #[arg(long, env = "ENSUE_READ_AHEAD", value_name = "N")]
    read_ahead: Option<usize>,
    /// For trying things out: the log in memory (gone when the server ends), webhooks to this machine, the config file read
    /// again when it changes
    #[arg(long, env = "ENSUE_DEV", value_parser = FalseyValueParser::new())]
    dev: bool,
}

/// Which settings are said by their variable, by the names of their fields.
#[derive(Debug, Default)]
struct ByVariable(Vec<&'static str>);

impl ByVariable {
    const SETTINGS: [&str; 11] = [
        "store",
        "listen",
        "config",
        "token_file",
        "retention_age",
        "retention_size",
        "retention_hold_max",
        "drain_max",
        "workers",
        "read_ahead",
        "dev",
    ];
}

impl Args for ByVariable {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl FromArgMatches for ByVariable {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let said = |name: &&str| matches.value_source(name) == Some(ValueSource::EnvVariable);
        Ok(Self(Self::SETTINGS.into_iter().filter(said).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// The token in the environment, read while the command line is parsed: afterwards it is removed
/// ([`hide`](super::variables::hide)). It has no flag here: everybody on the machine can read the arguments of a process.
struct TokenVariable(Result<String, VarError>);

impl Args for TokenVariable {
    fn augment_args(command: Command) -> Command {
        command
    }

    fn augment_args_for_update(command: Command) -> Command {
        command
    }
}

impl FromArgMatches for TokenVariable {
    fn from_arg_matches(_: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self(std::env::var(VARIABLE)))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl fmt::Debug for TokenVariable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenVariable")
    }
}

impl TokenVariable {
    fn given(self) -> anyhow::Result<Option<String>> {
        match self.0 {
            Ok(token) => Ok(Some(token)),
            Err(VarError::NotPresent) => Ok(None),
            Err(VarError::NotUnicode(_)) => bail!("{VARIABLE} is not text: use letters and digits"),
        }
    }
}

impl SettingsArgs {
    /// The config file, if a flag names it.
    pub fn config_flag(&self) -> Option<&Path> {
        self.config.as_deref().filter(|_| !self.by_variable.0.contains(&"config"))
    }

    /// Adds what the config file and the defaults say.
    pub fn resolve(self) -> anyhow::Result<Settings> {
        Settings::resolve(Given {
            store: self.store,
            listen: self.listen,
            config: self.config,
            token_file: self.token_file,
            token: self.token.given()?,
            retention_age: self.retention_age,
            retention_size: self.retention_size,
            retention_hold_max: self.retention_hold_max,
            drain_max: self.drain_max,
            workers: self.workers,
            read_ahead: self.read_ahead,
            dev: self.dev,
            by_variable: self.by_variable.0,
        })
    }
}
