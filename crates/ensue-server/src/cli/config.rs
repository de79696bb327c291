//! What would a server do here, and would it start?

use super::Outcome;
use super::output::{self, Block, OutputArgs};
use super::settings::SettingsArgs;
use crate::config::file::DEFAULT_FILE;
use crate::config::tokens::VARIABLE;
use crate::config::units::{Size, Span};
use crate::config::{Settings, Source};
use anyhow::bail;
use clap::{Args, Subcommand};
use ensue::schedules::{Schedule, Target};
use ensue::{Ensue, Timestamp};
use jiff::SignedDuration;
use serde_json::{Value, json};
use std::path::PathBuf;

/// `ensue config …`
#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Check the settings and show what they come to, without starting anything
    Check(CheckArgs),
}

/// `ensue config check`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  ensue config check                                         # what `ensue serve` would do here
  ensue config check /etc/ensue.yaml --json
  ENSUE_LISTEN=0.0.0.0:4747 ensue config check               # refused without a token

All keys of the file, each of them optional:
  store: sqlite:ensue.db                # or postgres://user@host/database
  listen: 127.0.0.1:4747
  token_file: tokens.txt                # one token per line, or a name and a token
  retention: { age: 7d, size: 10GB, hold_max: 30d }
  drain_max: 30s                        # how long a server that stops waits for handlers
  handlers:                             # what follows from events of this key; docs/handlers.md
    order.paid:
      - { name: invoice, command: [./invoice.sh], timeout: 30s }
      - { name: tell, webhook: https://example.com/hook, mode: sync }
      - { name: remote, pull: true }    # claimed over HTTP by workers elsewhere; docs/jobs.md
  sources:                              # docs/tasks.md
    github: { collections: [{ name: issues, command: [./sync.sh] }] }
  schedules:                            # docs/schedules.md
    nightly: { cron: '30 2 * * *', timezone: Europe/Berlin, topic: report.nightly }
  workers: 16                           # how many jobs run at once
  read_ahead: 1024                      # how many events each handler holds in memory
  webhooks: { allow_private: [10.1.2.3], ca_file: ca.pem }   # authorities beside the system's
  history: { count: 100000, age: 7d }   # what is kept of failed and audited deliveries

Takes the flags and variables of `ensue serve` and makes its checks, but opens no store and no port.
Of each schedule it shows what its times mean and when it fires next.
Tokens and passwords are never shown. Exit code 0: serve would take it; 1: it would not, and why.")]
pub struct CheckArgs {
    /// The config file, as --config
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    settings: SettingsArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// Carries out `ensue config …`.
pub async fn run(command: ConfigCommand) -> anyhow::Result<Outcome> {
    let ConfigCommand::Check(args) = command;
    match (checked(args.file, args.settings).await, args.output.json) {
        (Ok(settings), true) => output::json(&merged(&settings))?,
        (Ok(settings), false) => output::block(table(&settings))?,
        (Err(problem), true) => {
            output::json(&json!({ "ok": false, "problem": format!("{problem:#}") }))?;
            return Ok(Outcome::ProblemsFound);
        }
        (Err(problem), false) => return Err(problem),
    }
    Ok(Outcome::Done)
}

async fn checked(file: Option<PathBuf>, mut args: SettingsArgs) -> anyhow::Result<Settings> {
    if let (Some(file), Some(flag)) = (&file, args.config_flag()) {
        bail!(
            "{} and --config {} name two config files: use one of them, and check the other by itself",
            file.display(),
            flag.display()
        );
    }
    // The variable may be there for other commands; the argument is meant.
    args.config = file.or(args.config);
    let settings = args.resolve()?;
    settings.check().await?;
    // Bound to a log in memory, as a server would to its own: the same mistakes are found.
    let bus = Ensue::memory().await?;
    settings.executors().bind(&bus, &settings.handlers)?;
    bus.set_collections(settings.executors().collections(&settings.collections, bus.collections())?).await?;
    bus.close().await;
    Ok(settings)
}

fn merged(settings: &Settings) -> Value {
    let tokens: Vec<&str> = settings.tokens.iter().map(|token| token.name.as_str()).collect();
    let (said_by, now) = (settings.said_by, Timestamp::now());
    json!({
        "ok": true,
        "file": settings.file,
        "settings": {
            "store": settings.store.to_string(),
            "listen": settings.listen,
            "tokens": tokens,
            "retention": {
                "age": settings.retention.age.map(|age| Span(age).to_string()),
                "size": settings.retention.bytes.map(|bytes| Size(bytes).to_string()),
                "hold_max": settings.retention.hold_max.map(|hold_max| Span(hold_max).to_string()),
            },
            "drain_max": SignedDuration::try_from(settings.drain_max).map(|span| Span(span).to_string()).ok(),
            "workers": settings.workers,
            "read_ahead": settings.read_ahead,
            "handlers": settings.handlers.iter().map(|handler| handler.key.as_str()).collect::<Vec<_>>(),
            "collections": settings.collections.iter().map(|one| one.collection.dotted()).collect::<Vec<_>>(),
            "sources": sources(settings),
            "schedules": settings.schedules.iter().map(|one| scheduled(one, now)).collect::<Vec<_>>(),
            "history": {
                "count": settings.history.count,
                "age": Span(settings.history.age).to_string(),
                "tasks": settings.history.tasks.map(|age| Span(age).to_string()),
            },
        },
        "said_by": said_by,
        "warnings": settings.warnings(),
    })
}

/// The sources that tasks are of, each with its collections, in the order of the file.
fn sources(settings: &Settings) -> Value {
    let mut sources: Vec<(&str, Vec<&str>)> = Vec::new();
    for one in &settings.collections {
        let (source, name) = (one.collection.source(), one.collection.name());
        match sources.iter_mut().find(|(known, _)| *known == source) {
            Some((_, names)) => names.push(name),
            None => sources.push((source, vec![name])),
        }
    }
    let shown = |(source, names): (&str, Vec<&str>)| json!({ "name": source, "collections": names });
    sources.into_iter().map(shown).collect()
}

/// A schedule of the file: what it means, when it fires next by this machine's clock, and what follows.
fn scheduled(schedule: &Schedule, now: Timestamp) -> Value {
    let (topic, handler) = match &schedule.target {
        Target::Topic(topic) => (Some(topic.as_str()), None),
        Target::Handler(handler) => (None, Some(handler.as_str())),
    };
    json!({
        "name": schedule.name.as_str(),
        "description": schedule.timing.in_words(),
        "next": schedule.timing.next_after(now),
        "topic": topic,
        "handler": handler,
    })
}

/// The same for people.
fn scheduled_in_words(schedule: &Schedule, now: Timestamp) -> String {
    let follows = match &schedule.target {
        Target::Topic(topic) => format!("event {topic}"),
        Target::Handler(handler) => format!("job for {handler}"),
    };
    let next = match schedule.timing.next_after(now) {
        Some(next) => {
            format!("next {}", next.to_zoned(schedule.timing.zone().clone()).strftime("%Y-%m-%d %H:%M:%S %Z"))
        }
        None => "never again".into(),
    };
    format!("{}: {}, {next}: {follows}", schedule.name, schedule.timing.in_words())
}

fn table(settings: &Settings) -> Block {
    let file = settings.file.as_ref().map(|file| file.display().to_string());
    let by = |source: Source, flag: &str, variable: &str| match source {
        Source::Flag => flag.to_string(),
        Source::Variable => variable.to_string(),
        Source::File => file.clone().unwrap_or_else(|| DEFAULT_FILE.into()),
        Source::Default => "default".to_string(),
    };
    let said_by = settings.said_by;
    let age_by = by(said_by.retention_age, "--retention-age", "ENSUE_RETENTION_AGE");
    let size_by = by(said_by.retention_size, "--retention-size", "ENSUE_RETENTION_SIZE");
    let kept_by = match (said_by.retention_age, said_by.retention_size) {
        (Source::Default, _) => size_by,
        (_, Source::Default) => age_by,
        (_, _) if age_by == size_by => age_by,
        (_, _) => format!("{size_by}; {age_by}"),
    };
    let store_by = match settings.dev {
        true => by(said_by.store, "--dev", "ENSUE_DEV"),
        false => by(said_by.store, "--store", "ENSUE_STORE"),
    };
    let token_file_by = by(said_by.token_file, "--token-file", "ENSUE_TOKEN_FILE");
    let access_by = match (said_by.token_file, settings.tokens.iter().any(|token| token.name == VARIABLE)) {
        (_, false) => token_file_by,
        (Source::Default, true) => VARIABLE.to_string(),
        (Source::Flag | Source::Variable | Source::File, true) => format!("{token_file_by}; {VARIABLE}"),
    };
    let names: Vec<&str> = settings.tokens.iter().map(|token| token.name.as_str()).collect();
    let access = match names[..] {
        [] => "no token needed".to_string(),
        [name] => format!("the token `{name}`"),
        [..] => format!("{} tokens: {}", names.len(), names.join(", ")),
    };
    let reads = format!("at most {} events ahead for each handler", settings.read_ahead);
    let rows = [
        ("store", settings.store.to_string(), store_by),
        ("listen", settings.listen.clone(), by(said_by.listen, "--listen", "ENSUE_LISTEN")),
        ("access", access, access_by),
        ("keeps", settings.keeps(), kept_by),
        ("jobs", format!("at most {}", settings.workers), by(said_by.workers, "--workers", "ENSUE_WORKERS")),
        ("reads", reads, by(said_by.read_ahead, "--read-ahead", "ENSUE_READ_AHEAD")),
    ];
    let verdict = match &file {
        Some(file) => format!("{file}: ok"),
        None => format!("ok: no {DEFAULT_FILE} here, flags, variables and defaults hold"),
    };
    let mut lines = vec![verdict];
    let runs = settings
        .handlers
        .iter()
        .map(|handler| ("runs", format!("{}: {}", handler.key, handler.runs.shown()), handler.place.clone()));
    let tasks = settings
        .collections
        .iter()
        .map(|one| ("tasks", format!("{}: {}", one.collection.dotted(), one.runs.shown()), one.place.clone()));
    let (now, in_file) = (Timestamp::now(), by(Source::File, "", ""));
    let fires = settings.schedules.iter().map(|one| ("fires", scheduled_in_words(one, now), in_file.clone()));
    let hold_by = by(said_by.retention_hold_max, "--retention-hold-max", "ENSUE_RETENTION_HOLD_MAX");
    let holds = settings.retention.forgets().then(|| ("holds", settings.holds(), hold_by));
    let rows = rows.into_iter().chain(holds).chain(runs).chain(tasks).chain(fires);
    lines.extend(rows.map(|(name, value, by)| format!("  {name:6}  {value}  ({by})")));
    lines.extend(settings.warnings().into_iter().map(|warning| format!("  warning: {warning}")));
    Block::lines(lines)
}
