//! What is wrong with this installation, and what should one do about it?
//!
//! Looks at everything and changes nothing. Each check says what it found; one that found a problem says what to do.

use super::Outcome;
use super::output::{self, OutputArgs};
use super::remote::Remote;
use super::serve::token_variable;
use super::target::open_to_read;
use crate::config::units::human_bytes;
use crate::config::{Given, Settings, without_password};
use clap::Args;
use ensue::{Ensue, PostgresOptions, PostgresStore, ServerSettings, SqliteStore, StoreError, Timestamp, rusqlite};
use jiff::SignedDuration;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long a store may take to open before it counts as unreachable.
const OPEN_MAX: Duration = Duration::from_secs(15);
/// How far two clocks may differ.
const CLOCK_SKEW_MAX: SignedDuration = SignedDuration::from_secs(5);
/// How long a delayed event may be overdue while somebody releases them.
const OVERDUE_MAX: SignedDuration = SignedDuration::from_secs(10);
/// Less room than this on the disk is a problem.
const FREE_BYTES_MIN: u64 = 500_000_000;
/// A token shorter than this can be guessed.
const TOKEN_BYTES_MIN: usize = 16;
/// How many pending events are counted.
const PENDING_COUNTED_MAX: usize = 1_000;

/// `ensue doctor`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue doctor                                               # what `ensue serve` would use here, and the running server
  ensue doctor --store postgres://ensue@db/app
  ensue doctor --url http://10.0.0.5:4747

Exit code 0: no problem; 1: each problem is listed with what to do.")]
pub struct DoctorArgs {
    /// The store to look at [default: the one that `ensue serve` would use here]
    #[arg(long, env = "ENSUE_STORE", value_name = "URL", hide_env_values = true)]
    store: Option<String>,
    /// The config file [default: ./ensue.yaml if it is there]
    #[arg(long, env = "ENSUE_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    /// The server that should be running
    #[arg(long, env = "ENSUE_URL", value_name = "URL", default_value = "http://127.0.0.1:4747")]
    url: String,
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
    let token = token_variable()?;
    let given = Given { store: args.store.clone(), config: args.config, token: token.clone(), ..Given::default() };
    let url = match Settings::resolve(given) {
        Ok(settings) => {
            config(&settings, &mut checks);
            Some(settings.store)
        }
        Err(error) => {
            checks.problem("config", format!("{error:#}"), "correct it; `ensue serve` would refuse it too");
            args.store
        }
    };
    if let Some(url) = url {
        store(&url, &mut checks).await;
    }
    server(&args.url, token, store_named, &mut checks).await;

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

fn config(settings: &Settings, checks: &mut Checks) {
    match &settings.file {
        Some(file) => checks.ok("config", format!("{} is well-formed", file.display())),
        None => checks.ok("config", "no ensue.yaml here: flags, variables and defaults hold"),
    }
    let short: Vec<&str> = settings
        .tokens
        .iter()
        .filter(|token| token.secret.len() < TOKEN_BYTES_MIN)
        .map(|token| token.name.as_str())
        .collect();
    if !short.is_empty() {
        checks.problem(
            "tokens",
            format!("can be guessed, with fewer than {TOKEN_BYTES_MIN} characters: {}", short.join(", ")),
            "replace them, with the output of `openssl rand -hex 32` for example",
        );
    } else if !settings.tokens.is_empty() {
        checks.ok("tokens", format!("{} set", settings.tokens.len()));
    }
}

/// The path of an embedded store, if the address means one on disk.
fn sqlite_path(url: &str) -> Option<&str> {
    match url.split_once(':') {
        Some(("postgres" | "postgresql", _)) => None,
        Some(("sqlite", path)) => Some(path.strip_prefix("//").unwrap_or(path)).filter(|path| *path != ":memory:"),
        Some(_) | None => Some(url),
    }
}

async fn store(url: &str, checks: &mut Checks) {
    let shown = without_password(url);
    if let Some(path) = sqlite_path(url) {
        disk(Path::new(path), checks);
        match SqliteStore::lock_holder(path) {
            Ok(Some(holder)) => checks.ok("lock", format!("{holder} writes to it; others may read")),
            Ok(None) => checks.ok("lock", "nobody writes to it right now"),
            Err(error) => checks.problem("lock", error.to_string(), "check the path and its permissions"),
        }
        if !Path::new(path).exists() {
            checks.note("store", format!("{shown} is not there yet"), "`ensue serve` makes it");
            return;
        }
    }
    let bus = match tokio::time::timeout(OPEN_MAX, open_to_read(url)).await {
        Ok(Ok(bus)) => bus,
        Ok(Err(error)) => {
            return checks.problem(
                "store",
                format!("{error:#}"),
                "check the address, and that the store's server runs",
            );
        }
        Err(_late) => {
            let found = format!("{shown} did not answer within {} s", OPEN_MAX.as_secs());
            return checks.problem("store", found, "check that its server runs and can be reached from here");
        }
    };
    checks.ok("store", format!("{shown} answers"));
    engine(&bus, url, checks).await;
    log(&bus, checks).await;
    bus.close().await;
}

async fn engine(bus: &Ensue, url: &str, checks: &mut Checks) {
    match bus.store().engine() {
        "sqlite" => checks.ok("engine", format!("sqlite {}", rusqlite::version())),
        "postgres" => match postgres_settings(url).await {
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
async fn postgres_settings(url: &str) -> Result<ServerSettings, StoreError> {
    let options = PostgresOptions { read_only: true, ..PostgresOptions::default() };
    PostgresStore::open(url, options).await?.settings().await
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
            let found = format!("{} events, seq {} to {}", output::grouped(count), bounds.first, bounds.last);
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
            checks.ok("pending", format!("{}{more} wait, the first until {}", pending.len(), first.not_before));
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

async fn server(url: &str, token: Option<String>, store_named: bool, checks: &mut Checks) {
    let remote = match Remote::new(url, token) {
        Ok(remote) => remote,
        Err(error) => return checks.problem("server", format!("{error:#}"), "correct --url or ENSUE_URL"),
    };
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
        (true, true, _) => checks.ok("server", format!("{} answers, and its store does", remote.url())),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_file_has_a_lock_and_a_disk() {
        assert_eq!(sqlite_path("sqlite:a.db"), Some("a.db"));
        assert_eq!(sqlite_path("sqlite:///var/a.db"), Some("/var/a.db"));
        assert_eq!(sqlite_path("a.db"), Some("a.db"));
        assert_eq!(sqlite_path("sqlite::memory:"), None);
        assert_eq!(sqlite_path("postgres://h/db"), None);
    }
}
