//! Is the config file one that a server would take?

use super::Outcome;
use super::output::{self, OutputArgs};
use crate::config::file::{ConfigFile, DEFAULT_FILE};
use crate::config::tokens;
use clap::{Args, Subcommand};
use serde_json::json;
use std::path::PathBuf;

/// `ensue config …`
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check a config file without starting anything
    Check(CheckArgs),
}

/// `ensue config check`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue config check
  ensue config check /etc/ensue.yaml

All keys of the file, each of them optional:
  store: sqlite:ensue.db                # or postgres://user@host/database
  listen: 127.0.0.1:4747
  token_file: tokens.txt                # one token per line, or a name and a token
  retention: { age: 7d, size: 10GB }")]
pub struct CheckArgs {
    /// The file
    #[arg(value_name = "FILE", default_value = DEFAULT_FILE)]
    file: PathBuf,
    #[command(flatten)]
    output: OutputArgs,
}

/// Carries out `ensue config …`.
pub fn run(command: ConfigCommand) -> anyhow::Result<Outcome> {
    let ConfigCommand::Check(args) = command;
    let config = ConfigFile::read(&args.file)?;
    let tokens = config.token_file.as_deref().map(tokens::read).transpose()?;
    if args.output.json {
        output::json(&json!({ "file": args.file, "ok": true }))?;
    } else {
        let tokens = tokens.map_or(String::new(), |tokens| format!(", {} tokens", tokens.len()));
        output::line(format_args!("{}: ok{tokens}", args.file.display()))?;
    }
    Ok(Outcome::Done)
}
