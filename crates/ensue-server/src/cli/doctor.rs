//! What is wrong with this installation, and what should one do about it?
//!
//! Looks at everything and changes nothing. Each check says what it found; one that found a problem says what to do.

use super::Outcome;
use super::output::{self, OutputArgs};
use super::remote::Remote;
use super::server::ServerArgs;
use super::target::open_to_read;
use crate::config::tokens::{GOOD_TOKEN, TOKEN_BYTES_MIN};
use crate::config::units::human_bytes;
use crate::config::{Given, Settings};
use clap::Args;
use ensue::{
    Address, Ensue, Place, PostgresOptions, PostgresStore, ServerSettings, SqliteStore, StoreError, Timestamp, rusqlite,
};
use jiff::SignedDuration;
use reqwest::StatusCode;
use serde::Serialize;
use std::path::Path;
use std::time::Duration;

/// How long a store may take to open before it counts as unreachable.
const OPEN_MAX: Duration = Duration::from_secs(15);
/// How far two clocks may differ.
const CLOCK_SKEW_MAX: SignedDuration = SignedDuration::from_secs(5);
/// How long a delayed event may be overdue while somebody releases them.
const OVERDUE_MAX: SignedDuration = SignedDuration::from_secs(10);
/// Less room than this on the disk is a problem.
const FREE_BYTES_MIN: u64 = 500_000_000;
/// How many pending events are counted.
const PENDING_COUNTED_MAX: usize = 1_000;

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
    if let Some(address) = address(args.store, &args.server, &mut checks).await {
        store(&address, &mut checks).await;
    }
    match args.server.remote() {
        Ok(remote) => server(&remote, store_named, &mut checks).await,
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
async fn address(named: Option<String>, server: &ServerArgs, checks: &mut Checks) -> Option<Address> {
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
            Some(settings.store)
        }
        Err(error) => {
            checks.problem("config", format!("{error:#}"), "correct it; `ensue serve` would refuse it too");
            named
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
    let weak: Vec<&str> =
        settings.tokens.iter().filter(|token| token.is_weak()).map(|token| token.name.as_str()).collect();
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

async fn store(address: &Address, checks: &mut Checks) {
    match address.place() {
        Place::Memory => return checks.ok("store", "in memory: there is nothing to look at from outside"),
        Place::File(path) => {
            disk(Path::new(path), checks);
            match SqliteStore::lock_holder(path) {
                Ok(Some(holder)) => checks.ok("lock", format!("{holder} writes to it; others may read")),
                Ok(None) => checks.ok("lock", "nobody writes to it right now"),
                Err(error) => checks.problem("lock", error.to_string(), "check the path and its permissions"),
            }
            if !Path::new(path).exists() {
                return checks.note("store", format!("{address} is not there yet"), "`ensue serve` makes it");
            }
        }
        Place::Postgres => {}
    }
    let bus = match tokio::time::timeout(OPEN_MAX, open_to_read(address)).await {
        Ok(Ok(bus)) => bus,
        Ok(Err(error)) => {
            return checks.problem(
                "store",
                format!("{error:#}"),
                "check the address, and that the store's server runs",
            );
        }
        Err(_late) => {
            let found = format!("{address} did not answer within {} s", OPEN_MAX.as_secs());
            return checks.problem("store", found, "check that its server runs and can be reached from here");
        }
    };
    checks.ok("store", format!("{address} answers"));
    engine(&bus, address, checks).await;
    log(&bus, checks).await;
    bus.close().await;
}

async fn engine(bus: &Ensue, address: &Address, checks: &mut Checks) {
    match bus.store().engine() {
        "sqlite" => checks.ok("engine", format!("sqlite {}", rusqlite::version())),
        "postgres" => match postgres_settings(address).await {
            Ok(settings) if settings.fsync => {
                checks.ok("engine", format!("postgres {}", settings.version));
            }
            Ok(settings) => checks.problem(
                "engine",
                format!("postgres {} may lose what it has acknowledged: fsync is off", settings.version),
                "set fsync = on in postgresql.conf, and reload",
            ),
            Err(error) => checks.note(
                "engine",
                format!("postgres; its settings cannot be seen ({error})"),
                "look at them with psql",
            ),
        },
        other => checks.ok("engine", other),
    }
    // A store with a schema from another program or a newer version does not open.
    checks.ok("schema", "as this program knows it");
}

/// What the server is set to, over a connection like those of `serve`, TLS and all.
async fn postgres_settings(address: &Address) -> Result<ServerSettings, StoreError> {
    let options = PostgresOptions { read_only: true, ..PostgresOptions::default() };
    PostgresStore::open(address.as_str(), options).await?.settings().await
}

async fn log(bus: &Ensue, checks: &mut Checks) {
    let store = bus.store();
    let here = Timestamp::now();
    let (bounds, now, pending) = match tokio::try_join!(store.bounds(), store.now(), store.pending(PENDING_COUNTED_MAX))
    {
        Ok(looked) => looked,
        Err(error) => return checks.problem("log", error.to_string(), "run `ensue verify`"),
    };
    let newest = match store.event(bounds.last).await {
        Ok(newest) => newest,
        Err(error) => return checks.problem("log", error.to_string(), "run `ensue verify`"),
    };
    match bounds.count() {
        0 => checks.ok("log", format!("empty; the next event is seq {}", bounds.last + 1)),
        count => {
            let found = format!("{}, seq {} to {}", output::events(count), bounds.first, bounds.last);
            checks.ok("log", found);
        }
    }
    match pending.first() {
        None => checks.ok("pending", "no delayed event waits"),
        Some(first) if now.duration_since(first.not_before) > OVERDUE_MAX => checks.problem(
            "pending",
            format!("delayed events are overdue, the first since {}", first.not_before),
            "start `ensue serve` on this store: it lets them into the log",
        ),
        Some(first) => {
            let more = if pending.len() == PENDING_COUNTED_MAX { " or more" } else { "" };
            let wait = output::counted(pending.len() as u64, "delayed event");
            checks.ok("pending", format!("{wait}{more} waiting, the first until {}", first.not_before));
        }
    }
    let skew = now.duration_since(here).abs();
    let ahead = newest.map_or(SignedDuration::ZERO, |newest| newest.recorded_at.duration_since(now));
    if skew > CLOCK_SKEW_MAX {
        let found = format!("the store's clock and this machine's differ by {skew:#}");
        checks.problem("clock", found, "synchronise both (NTP)");
    } else if ahead > CLOCK_SKEW_MAX {
        let found = format!("the newest event was recorded {ahead:#} after the present time: the clock was set back");
        checks.problem(
            "clock",
            found,
            "check the clock; recorded_at stands still until it has caught up, and order is kept",
        );
    } else {
        checks.ok("clock", "the store's clock and this machine's agree");
    }
}

fn disk(path: &Path, checks: &mut Checks) {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        Some(_) | None => Path::new("."),
    };
    match rustix::fs::statvfs(folder) {
        Ok(room) => {
            let free = room.f_bavail * room.f_frsize;
            let found = format!("{} free in {}", human_bytes(free), folder.display());
            if free < FREE_BYTES_MIN {
                checks.problem("disk", found, "free some space, or set retention so that the log stays small");
            } else {
                checks.ok("disk", found);
            }
        }
        Err(error) => {
            let found = format!("cannot look at {}: {error}", folder.display());
            checks.problem("disk", found, "make the folder, or choose another path for the store");
        }
    }
}

async fn server(remote: &Remote, store_named: bool, checks: &mut Checks) {
    let answers = match (remote.about("health").await, remote.about("ready").await) {
        (Ok((health, _, _)), Ok((ready, _, detail))) => (health.is_success(), ready.is_success(), detail),
        // Who names a store asks about the store.
        (Err(error), _) | (_, Err(error)) if store_named => {
            return checks.note("server", format!("{error:#}"), "nothing to do if only the store matters here");
        }
        (Err(error), _) | (_, Err(error)) => {
            return checks.problem("server", format!("{error:#}"), "start it, or give its address with --url");
        }
    };
    match answers {
        (true, true, _) => {
            checks.ok("server", format!("{} answers, and its store does", remote.url()));
            access(remote, checks).await;
        }
        (true, false, detail) => {
            let found = format!("{} runs, but its store does not answer: {detail}", remote.url());
            checks.problem("server", found, "look after the store; the server goes on by itself when it is back");
        }
        (false, _, _) => {
            let found = format!("what answers at {} is not a healthy Ensue server", remote.url());
            checks.problem("server", found, "check --url, and what else listens on that port");
        }
    }
}

/// Does the token open the server? Health and readiness are told without one.
async fn access(remote: &Remote, checks: &mut Checks) {
    match remote.about("openapi.json").await {
        Ok((StatusCode::UNAUTHORIZED, _, _)) => {
            let fix = "by --token-file, ENSUE_TOKEN or --token";
            checks.problem("access", remote.unauthorized().to_string(), fix);
        }
        Ok(_) => checks.ok("access", "requests from here are let in"),
        Err(error) => checks.problem("access", format!("{error:#}"), "try again"),
    }
}
