//! What is wrong with this installation, and what should one do about it?
//!
//! Looks at everything and changes nothing. Each check says what it found; one that found a problem says what to do.
//! The settings are looked at here, the store in `store.rs`, the groups in `groups.rs`, the jobs in `jobs.rs`, what
//! waits for somebody in `held.rs`, the server in `server.rs`.

mod groups;
mod held;
mod jobs;
mod server;
mod store;

use super::Outcome;
use super::output::{self, OutputArgs};
use super::server::ServerArgs;
use crate::config::tokens::{GOOD_TOKEN, TOKEN_BYTES_MIN};
use crate::config::{Given, Settings};
use clap::Args;
use ensue::{Address, Retention};
use serde::Serialize;

/// `ensue doctor`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue doctor                                               # what is used and runs here
  ensue doctor --store postgres://ensue@db/app
  ensue doctor --url http://10.0.0.5:4747 --token-file tokens.txt
  ensue doctor --json | jq '.checks[] | select(.state == \"problem\")'

Looks at everything and changes nothing.
Exit code 0: no problem; 1: each problem is listed with what to do.")]
pub struct DoctorArgs {
    /// The store to look at [default: the one that `ensue serve` would use here]
    #[arg(long, env = "ENSUE_STORE", value_name = "URL", hide_env_values = true)]
    store: Option<String>,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// How a check came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Ok,
    Note,
    Problem,
}

/// One thing that was looked at.
#[derive(Debug, Clone, Serialize)]
struct Check {
    name: &'static str,
    state: State,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    fix: Option<String>,
}

#[derive(Debug, Default, Serialize)]
struct Checks {
    checks: Vec<Check>,
}

impl Checks {
    fn ok(&mut self, name: &'static str, found: impl Into<String>) {
        self.checks.push(Check { name, state: State::Ok, found: found.into(), fix: None });
    }

    fn note(&mut self, name: &'static str, found: impl Into<String>, fix: impl Into<String>) {
        self.checks.push(Check { name, state: State::Note, found: found.into(), fix: Some(fix.into()) });
    }

    fn problem(&mut self, name: &'static str, found: impl Into<String>, fix: impl Into<String>) {
        self.checks.push(Check { name, state: State::Problem, found: found.into(), fix: Some(fix.into()) });
    }
}

/// Looks at everything and gives the verdict.
pub async fn run(args: DoctorArgs) -> anyhow::Result<Outcome> {
    let mut checks = Checks::default();
    let store_named = args.store.is_some();
    if let Some((address, retention)) = address(args.store, &args.server, &mut checks).await {
        store::look(&address, &retention, &mut checks).await;
    }
    match args.server.remote() {
        Ok(remote) => server::look(&remote, store_named, &mut checks).await,
        // What is wrong with the settings was told above.
        Err(_) if checks.checks.iter().any(|check| check.name == "config" && check.state == State::Problem) => {}
        Err(error) => checks.problem("server", format!("{error:#}"), "correct it, or give --url and --token"),
    }

    let problems = checks.checks.iter().filter(|check| check.state == State::Problem).count();
    if args.output.json {
        output::json(&checks)?;
    } else {
        for check in &checks.checks {
            let mark = match check.state {
                State::Ok => "ok     ",
                State::Note => "note   ",
                State::Problem => "PROBLEM",
            };
            output::line(format_args!("{mark}  {:8}  {}", check.name, check.found))?;
            if let Some(fix) = &check.fix {
                output::line(format_args!("                   → {fix}"))?;
            }
        }
        match problems {
            0 => output::line("no problem found")?,
            1 => output::line("1 problem found")?,
            count => output::line(format_args!("{count} problems found"))?,
        }
    }
    Ok(if problems == 0 { Outcome::Done } else { Outcome::ProblemsFound })
}

/// The store that is named, or the one that `ensue serve` would use here; what is wrong with the settings is told.
async fn address(named: Option<String>, server: &ServerArgs, checks: &mut Checks) -> Option<(Address, Retention)> {
    let named = match named.as_deref().map(str::parse::<Address>).transpose() {
        Ok(named) => named,
        Err(error) => {
            checks.problem("store", error.to_string(), "correct --store or ENSUE_STORE");
            return None;
        }
    };
    let given = Given {
        store: named.as_ref().map(|address| address.as_str().to_string()),
        listen: std::env::var("ENSUE_LISTEN").ok(),
        config: server.config.clone(),
        token_file: server.token_file.clone(),
        token: server.token.clone(),
        ..Given::default()
    };
    match Settings::resolve(given) {
        Ok(settings) => {
            config(&settings, checks).await;
            Some((settings.store, settings.retention))
        }
        Err(error) => {
            checks.problem("config", format!("{error:#}"), "correct it; `ensue serve` would refuse it too");
            named.map(|address| (address, Retention::default()))
        }
    }
}

async fn config(settings: &Settings, checks: &mut Checks) {
    match (settings.check().await, &settings.file) {
        (Err(error), _) => {
            checks.problem("config", format!("{error:#}"), "correct it; `ensue serve` would refuse it too");
        }
        (Ok(_), Some(file)) => checks.ok("config", format!("{} is well-formed", file.display())),
        (Ok(_), None) => checks.ok("config", "no ensue.yaml here: flags, variables and defaults hold"),
    }
    let weak = settings.weak_tokens();
    if !weak.is_empty() {
        checks.problem(
            "tokens",
            format!("can be guessed, with fewer than {TOKEN_BYTES_MIN} characters: {}", weak.join(", ")),
            format!("replace them, with the output of `{GOOD_TOKEN}` for example"),
        );
    } else if !settings.tokens.is_empty() {
        checks.ok("tokens", format!("{} set", settings.tokens.len()));
    }
}
