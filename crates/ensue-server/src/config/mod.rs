//! What should this server do, and who says so?
//!
//! A flag wins over its `ENSUE_…` variable, that over the config file, that over the default. The first two are
//! `clap`'s; [`Settings::resolve`] adds the others, and [`Settings::check`] finds what a server would refuse at its
//! start. Both read files but open no store and no socket.
//!
//! | question | file |
//! |---|---|
//! | What does the config file say? | `file.rs` |
//! | How is a program written in it? | `command_line.rs` |
//! | What does it say about handlers, and can that be? | `handlers.rs`, `handlers_check.rs` |
//! | Can these handlers be on the store that was opened? | `handlers_on_store.rs` |
//! | What does it say about sources and their collections, and can that be? | `sources.rs` |
//! | What is said about a schedule, and can that be? | `schedules.rs` |
//! | Where may the server listen, and where do clients find it? | `listen.rs` |
//! | Who may use the server? | `tokens.rs` |
//! | Which parts of an error are not shown? | `redact.rs` |
//! | Is a number within its bounds? | `counts.rs` |
//! | How long, and how large, as people write it? | `units.rs` |

pub mod command_line;
mod counts;
pub mod file;
pub mod handlers;
pub mod handlers_check;
pub mod handlers_on_store;
pub mod listen;
pub mod redact;
pub mod schedules;
pub mod sources;
pub mod tokens;
pub mod units;

use crate::config::file::ConfigFile;
use crate::config::handlers_check::HandlerConfig;
use crate::config::sources::CollectionConfig;
use crate::config::tokens::{GOOD_TOKEN, NamedToken, TOKEN_BYTES_MIN};
use crate::config::units::{Size, Span};
use crate::executors::{Authorities, Executors, Guard};
use anyhow::{Context, anyhow, bail};
use ensue::jobs::WORKERS;
use ensue::schedules::Schedule;
use ensue::{Address, History, Place, READ_AHEAD, READ_AHEAD_MAX, Retention, Timestamp};
use jiff::SignedDuration;
use serde::Serialize;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the log lives unless told.
pub const DEFAULT_STORE: &str = "sqlite:ensue.db";
/// Where the server listens unless told.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:4747";
/// How long a server that is told to stop waits for handlers that run, unless told.
pub const DEFAULT_DRAIN_MAX: Duration = Duration::from_secs(30);
/// How long the log waits for a group that nobody serves, unless told.
pub const DEFAULT_HOLD_MAX: SignedDuration = SignedDuration::from_hours(30 * 24);
/// The most jobs that may run at once.
pub const WORKERS_MAX: usize = 10_000;
/// What `--dev` stores in.
pub const MEMORY_STORE: &str = "sqlite::memory:";

/// What flags and variables say; `None` where they are silent.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// The store's URL.
    pub store: Option<String>,
    /// The address to listen on.
    pub listen: Option<String>,
    /// The config file.
    pub config: Option<PathBuf>,
    /// A file with one token per line.
    pub token_file: Option<PathBuf>,
    /// A token by itself, from `ENSUE_TOKEN`.
    pub token: Option<String>,
    /// Forget what is older.
    pub retention_age: Option<Span>,
    /// Forget the oldest beyond this.
    pub retention_size: Option<Size>,
    /// Keep what a group still needs for so long after it was last served.
    pub retention_hold_max: Option<Span>,
    /// How long to wait for handlers that run.
    pub drain_max: Option<Span>,
    /// How many jobs run at once.
    pub workers: Option<usize>,
    /// How many events each handler holds in memory.
    pub read_ahead: Option<usize>,
    /// A store in memory, for trying things out.
    pub dev: bool,
    /// Which of these are said by their variable and not by a flag, by the names they have here.
    pub by_variable: Vec<&'static str>,
}

impl Given {
    /// Who says it, where it is said.
    fn source(&self, name: &str) -> Source {
        if self.by_variable.contains(&name) { Source::Variable } else { Source::Flag }
    }
}

/// All that a server needs to know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where the log lives.
    pub store: Address,
    /// The address to listen on, as it was written.
    pub listen: String,
    /// Where it was written, if that was in the config file: `ensue.yaml:2:9`.
    listen_place: Option<String>,
    /// Who may use the server; nobody is asked if it is empty.
    pub tokens: Vec<NamedToken>,
    /// The file that some of them are from.
    token_file: Option<PathBuf>,
    /// What to keep of the log.
    pub retention: Retention,
    /// What follows from which events.
    pub handlers: Vec<HandlerConfig>,
    /// What is brought up to date, one task at a time.
    pub collections: Vec<CollectionConfig>,
    /// What happens at a time.
    pub schedules: Vec<Schedule>,
    /// Where webhooks may be sent.
    pub guard: Guard,
    /// Whom webhooks trust beside the system's authorities.
    pub authorities: Authorities,
    /// What to keep of what became of deliveries.
    pub history: History,
    /// How long a server that is told to stop waits for handlers that run.
    pub drain_max: Duration,
    /// How many jobs run at once.
    pub workers: usize,
    /// How many events each handler holds in memory.
    pub read_ahead: usize,
    /// The config file that was read.
    pub file: Option<PathBuf>,
    /// Is it for trying things out?
    pub dev: bool,
    /// Who said so.
    pub said_by: SaidBy,
    /// What to read again.
    again: Again,
}

/// What flags and variables said, to be asked again. Never shown: a token may be in it.
#[derive(Clone)]
struct Again(Given);

impl fmt::Debug for Again {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Again")
    }
}

/// Who decides a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
    /// A flag.
    Flag,
    /// An `ENSUE_…` variable.
    Variable,
    /// The config file.
    File,
    /// Nobody did.
    Default,
}

/// Who decides each setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SaidBy {
    /// The store's address.
    pub store: Source,
    /// The address to listen on.
    pub listen: Source,
    /// The tokens.
    pub tokens: Source,
    /// The token file alone, beside which a variable may have a token too.
    #[serde(skip)]
    pub token_file: Source,
    /// What is too old.
    pub retention_age: Source,
    /// What is too much.
    pub retention_size: Source,
    /// How long the log waits for a group.
    pub retention_hold_max: Source,
    /// How long is waited for handlers.
    pub drain_max: Source,
    /// How many jobs run at once.
    pub workers: Source,
    /// How many events each handler holds in memory.
    pub read_ahead: Source,
}

/// The first that is said, and by whom.
fn first<T>(by: Source, given: Option<T>, file: Option<T>) -> (Option<T>, Source) {
    match (given, file) {
        (Some(value), _) => (Some(value), by),
        (None, Some(value)) => (Some(value), Source::File),
        (None, None) => (None, Source::Default),
    }
}

impl Settings {
    /// Adds what the config file says to what flags and variables say, and the defaults to that. An error shows no
    /// credentials.
    pub fn resolve(given: Given) -> anyhow::Result<Self> {
        Self::resolve_shown(given).map_err(redacted)
    }

    fn resolve_shown(given: Given) -> anyhow::Result<Self> {
        if given.dev && given.store.is_some() {
            bail!("--dev keeps the log in memory and --store (or ENSUE_STORE) names a store: leave one of them out");
        }
        let (config, file) = ConfigFile::find(given.config.as_deref())?;
        // `--dev` is a flag that names a store.
        let source = |name| given.source(name);
        let store_by = source(if given.dev { "dev" } else { "store" });
        let store_given = given.store.clone().or(given.dev.then(|| MEMORY_STORE.into()));
        let (store, store_by) = first(store_by, store_given, config.store);
        let store = store.as_deref().unwrap_or(DEFAULT_STORE).parse().with_context(|| match store_by {
            Source::Flag | Source::Variable | Source::Default => "--store (or ENSUE_STORE)".to_string(),
            Source::File => format!("`store` in {}", shown(file.as_deref())),
        })?;
        let listen_place = match (&given.listen, &config.listen, &file) {
            (None, Some(listen), Some(file)) => Some(file::place(file, listen)),
            (Some(_), _, _) | (None, None, _) | (None, Some(_), None) => None,
        };
        let listen_in_file = config.listen.map(|listen| listen.value);
        let (listen, listen_by) = first(source("listen"), given.listen.clone(), listen_in_file);
        let (token_file, token_file_by) = first(source("token_file"), given.token_file.clone(), config.token_file);
        let mut tokens_by = token_file_by;
        let mut tokens = match &token_file {
            Some(path) => tokens::read(path)?,
            None => Vec::new(),
        };
        if let Some(token) = &given.token {
            tokens.push(NamedToken::new(tokens::VARIABLE, token)?);
            tokens_by = Source::Variable;
        }
        let section = config.retention.unwrap_or_default();
        let (age, age_by) = first(source("retention_age"), given.retention_age, section.age);
        let (size, size_by) = first(source("retention_size"), given.retention_size, section.size);
        let (hold_max, hold_by) = first(source("retention_hold_max"), given.retention_hold_max, section.hold_max);
        let (drain_max, drain_by) = first(source("drain_max"), given.drain_max, config.drain_max);
        let webhooks = config.webhooks.unwrap_or_default();
        let guard = Guard::new(webhooks.allow_private, given.dev);
        let authorities = match (&webhooks.ca_file, &file) {
            (Some(ca_file), Some(file)) => Authorities::read(&ca_file.value)
                .map_err(|why| anyhow!("{}: `webhooks.ca_file` {why}", file::place(file, ca_file)))?,
            (Some(_) | None, _) => Authorities::default(),
        };
        let handlers = match (config.handlers, &file) {
            (Some(section), Some(file)) => handlers_check::check(section, file, &guard)?,
            (Some(_) | None, _) => Vec::new(),
        };
        let collections = match (config.sources, &file) {
            (Some(section), Some(file)) => sources::check(section, file, &guard)?,
            (Some(_) | None, _) => Vec::new(),
        };
        let mut schedules = match (&config.schedules, &file) {
            (Some(section), Some(file)) => schedules::check(section, file)?,
            (Some(_) | None, _) => Vec::new(),
        };
        for (collection, schedule) in collections.iter().filter_map(|one| Some((one, one.schedule.as_ref()?))) {
            if schedules.iter().any(|other| other.name == schedule.name) {
                let reason = format!("makes the schedule `{}`, which is under `schedules`, too", schedule.name);
                return Err(collection.refusal("schedule", &reason));
            }
            schedules.push(schedule.clone());
        }
        let count = |name, given, in_file, bounds| counts::resolve(name, source(name), given, in_file, &file, bounds);
        let (workers, workers_by) = count("workers", given.workers, config.workers, (WORKERS, WORKERS_MAX))?;
        let bounds = (READ_AHEAD, READ_AHEAD_MAX);
        let (read_ahead, read_ahead_by) = count("read_ahead", given.read_ahead, config.read_ahead, bounds)?;
        let kept = config.history.unwrap_or_default();
        let history = History {
            count: kept.count.unwrap_or(History::default().count),
            age: kept.age.map_or(History::default().age, |age| age.0),
            tasks: kept.tasks.map(|age| age.0),
        };
        Ok(Self {
            store,
            handlers,
            collections,
            schedules,
            guard,
            authorities,
            history,
            workers,
            read_ahead,
            drain_max: drain_max.map_or(DEFAULT_DRAIN_MAX, |span| Duration::try_from(span.0).unwrap_or_default()),
            listen: listen.unwrap_or_else(|| DEFAULT_LISTEN.into()),
            listen_place,
            tokens,
            token_file,
            retention: Retention {
                age: age.map(|span| span.0),
                bytes: size.map(|size| size.0),
                hold_max: Some(hold_max.map_or(DEFAULT_HOLD_MAX, |span| span.0)),
                ..Retention::default()
            },
            file,
            again: Again(given.clone()),
            dev: given.dev,
            said_by: SaidBy {
                store: store_by,
                listen: listen_by,
                tokens: tokens_by,
                token_file: token_file_by,
                retention_age: age_by,
                retention_size: size_by,
                retention_hold_max: hold_by,
                drain_max: drain_by,
                workers: workers_by,
                read_ahead: read_ahead_by,
            },
        })
    }

    /// What runs the handlers of the config file.
    pub fn executors(&self) -> Executors {
        Executors::new(self.guard.clone(), self.drain_max).with_authorities(self.authorities.clone())
    }

    /// The same settings with what the config file says now. A file that was there must be there still.
    pub fn again(&self) -> anyhow::Result<Self> {
        let again = Self::resolve(self.again.0.clone())?;
        match (&self.file, &again.file) {
            (Some(file), None) => bail!("the config file {} is gone: put it back, or stop the server", file.display()),
            (Some(_) | None, _) => Ok(again),
        }
    }

    /// Finds what a server would refuse at its start, and answers with the addresses that it would listen on.
    pub async fn check(&self) -> anyhow::Result<Vec<SocketAddr>> {
        match self.store.place() {
            Place::File(path) => check_path(Path::new(path))?,
            Place::Memory | Place::Postgres => {}
        }
        let addresses = listen::addresses(&self.listen, &self.tokens).await;
        let addresses = match &self.listen_place {
            Some(place) => addresses.with_context(|| place.clone()),
            None => addresses,
        };
        addresses.map_err(redacted)
    }

    /// The names of the tokens that can be guessed.
    pub fn weak_tokens(&self) -> Vec<&str> {
        self.tokens.iter().filter(|token| token.is_weak()).map(|token| token.name.as_str()).collect()
    }

    /// What is allowed, and yet not wise.
    pub fn warnings(&self) -> Vec<String> {
        let weak = self.weak_tokens();
        let mut warnings = match weak[..] {
            [] => Vec::new(),
            _ => vec![format!(
                "tokens that can be guessed, with fewer than {TOKEN_BYTES_MIN} characters: {}; replace each with the \
                 output of `{GOOD_TOKEN}`",
                weak.join(", ")
            )],
        };
        warnings.extend(self.token_file.as_deref().and_then(tokens::mode_warning));
        let now = Timestamp::now();
        let odd = |one: &Schedule| Some(format!("schedule `{}`: {}", one.name, one.warning(now)?));
        warnings.extend(self.schedules.iter().filter_map(odd));
        warnings
    }

    /// What is kept of the log, in words.
    pub fn keeps(&self) -> String {
        let (age, size) = (self.retention.age.map(Span), self.retention.bytes.map(Size));
        match (age, size) {
            (None, None) => "everything".into(),
            (Some(age), None) => format!("what is younger than {age}"),
            (None, Some(size)) => format!("the newest {size}"),
            (Some(age), Some(size)) => format!("the newest {size} of what is younger than {age}"),
        }
    }

    /// How long what is too old or too much is kept for who has not read it, in words.
    pub fn holds(&self) -> String {
        match self.retention.hold_max {
            Some(hold_max) => {
                format!("also what a group has not read, for {} after somebody served it", Span(hold_max))
            }
            None => "also what a group has not read".into(),
        }
    }
}

/// The error as one text without credentials.
fn redacted(error: anyhow::Error) -> anyhow::Error {
    anyhow!(redact::redact(&format!("{error:#}")))
}

/// A config file's name, for messages.
fn shown(file: Option<&Path>) -> String {
    file.unwrap_or(Path::new(file::DEFAULT_FILE)).display().to_string()
}

/// Can there be a store at this path? Its folder is not made for it.
fn check_path(path: &Path) -> anyhow::Result<()> {
    if path.is_dir() {
        bail!("the store {} is a folder: name a file, such as {}", path.display(), path.join("ensue.db").display());
    }
    match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() && !folder.is_dir() => {
            bail!("the store's folder {} is not there: make it, or choose another path", folder.display())
        }
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;

    #[test]
    fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("my.yaml");
        std::fs::write(&config, "store: sqlite:file.db\nretention: { age: 7d }\n").unwrap();
        let given = Given { config: Some(config), listen: Some("127.0.0.1:1".into()), ..Given::default() };
        let settings = Settings::resolve(given.clone()).unwrap();
        assert_eq!(settings.store.as_str(), "sqlite:file.db");
        assert_eq!(settings.listen, "127.0.0.1:1");
        assert_eq!(settings.retention.age, Some(SignedDuration::from_hours(168)));
        assert_eq!(settings.retention.bytes, None);
        let flag = Given { store: Some("other.db".into()), ..given.clone() };
        assert_eq!(Settings::resolve(flag).unwrap().store.as_str(), "other.db");
        let dev = Given { dev: true, ..given };
        assert_eq!(Settings::resolve(dev).unwrap().store.as_str(), MEMORY_STORE);
    }

    #[test]
    fn it_is_known_who_said_what() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("my.yaml");
        std::fs::write(&config, "listen: 127.0.0.1:1\nretention: { age: 7d }\n").unwrap();
        let given = Given { config: Some(config), retention_size: Some(Size(1)), dev: true, ..Given::default() };
        let said_by = Settings::resolve(given).unwrap().said_by;
        assert_eq!((said_by.store, said_by.listen, said_by.tokens), (Source::Flag, Source::File, Source::Default));
        assert_eq!((said_by.retention_age, said_by.retention_size), (Source::File, Source::Flag));
    }

    #[test]
    fn what_is_kept_is_said_as_it_was_written() {
        let folder = tempfile::tempdir().unwrap();
        let config = folder.path().join("my.yaml");
        std::fs::write(&config, "retention: { age: 7d, size: 10GB }\n").unwrap();
        let settings = Settings::resolve(Given { config: Some(config), ..Given::default() }).unwrap();
        assert_eq!(settings.keeps(), "the newest 10GB of what is younger than 7d");
    }

    #[tokio::test]
    async fn a_store_without_a_folder_is_found_before_anything_is_opened() {
        let folder = tempfile::tempdir().unwrap();
        let checked = async |path: PathBuf| {
            let given = Given { store: Some(path.display().to_string()), ..Given::default() };
            Settings::resolve(given).unwrap().check().await
        };
        assert!(checked(folder.path().join("a.db")).await.is_ok());
        assert!(checked(folder.path().join("none/a.db")).await.unwrap_err().to_string().contains("is not there"));
        assert!(checked(folder.path().into()).await.unwrap_err().to_string().contains("is a folder"));
    }
}
