//! What should this server do, and who says so?
//!
//! A flag wins over its `ENSUE_…` variable, that over the config file, that over the default. The first two are
//! `clap`'s; [`Settings::resolve`] adds the others. It reads files but opens no store and no socket.

pub mod file;
pub mod tokens;
pub mod units;

use crate::config::file::ConfigFile;
use crate::config::units::{Size, Span};
use ensue::Retention;
use std::path::PathBuf;

/// Where the log lives unless told.
pub const DEFAULT_STORE: &str = "sqlite:ensue.db";
/// Where the server listens unless told.
pub const DEFAULT_LISTEN: &str = "127.0.0.1:4747";
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
    /// A store in memory, for trying things out.
    pub dev: bool,
}

/// All that a server needs to know.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The store's URL.
    pub store: String,
    /// The address to listen on, as it was written.
    pub listen: String,
    /// Who may use the server; nobody is asked if it is empty.
    pub tokens: Vec<tokens::NamedToken>,
    /// What to keep of the log.
    pub retention: Retention,
    /// A store in memory, for trying things out.
    pub dev: bool,
    /// The config file that was read.
    pub file: Option<PathBuf>,
}

impl Settings {
    /// Adds what the config file says to what flags and variables say, and the defaults to that.
    pub fn resolve(given: Given) -> anyhow::Result<Self> {
        let (config, file) = ConfigFile::find(given.config.as_deref())?;
        let section = config.retention.unwrap_or_default();
        let token_file = given.token_file.or(config.token_file);
        let mut tokens = match &token_file {
            Some(path) => tokens::read(path)?,
            None => Vec::new(),
        };
        if let Some(token) = given.token {
            tokens.push(tokens::NamedToken::new("ENSUE_TOKEN", &token)?);
        }
        let store_default = if given.dev { MEMORY_STORE } else { DEFAULT_STORE };
        // `--dev` asks for a store that leaves nothing behind; only a store named beside it says otherwise.
        let store_in_file = if given.dev { None } else { config.store };
        Ok(Self {
            store: given.store.or(store_in_file).unwrap_or_else(|| store_default.into()),
            listen: given.listen.or(config.listen).unwrap_or_else(|| DEFAULT_LISTEN.into()),
            tokens,
            retention: Retention {
                age: given.retention_age.or(section.age).map(|span| span.0),
                bytes: given.retention_size.or(section.size).map(|size| size.0),
            },
            dev: given.dev,
            file,
        })
    }
}

/// A store's URL without the password that may be in it, for messages.
pub fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_string() };
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let authority = match authority.rsplit_once('@') {
        Some((user, host)) => match user.split_once(':') {
            Some((name, _)) => format!("{name}:…@{host}"),
            None => authority.to_string(),
        },
        None => authority.to_string(),
    };
    let path = match path.split_once('?') {
        Some((path, query)) => {
            let hide = |pair: &str| match pair.split_once('=') {
                Some((name, _)) if name.eq_ignore_ascii_case("password") => format!("{name}=…"),
                Some(_) | None => pair.to_string(),
            };
            format!("{path}?{}", query.split('&').map(hide).collect::<Vec<_>>().join("&"))
        }
        None => path.to_string(),
    };
    format!("{scheme}://{authority}{path}")
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
        assert_eq!(settings.store, "sqlite:file.db");
        assert_eq!(settings.listen, "127.0.0.1:1");
        assert_eq!(settings.retention.age, Some(SignedDuration::from_hours(168)));
        assert_eq!(settings.retention.bytes, None);
        let flag = Given { store: Some("other.db".into()), ..given.clone() };
        assert_eq!(Settings::resolve(flag).unwrap().store, "other.db");
        let dev = Given { dev: true, ..given };
        assert_eq!(Settings::resolve(dev).unwrap().store, MEMORY_STORE);
    }

    /// S7: a password in a URL is a secret.
    #[test]
    fn a_password_in_a_url_is_not_shown() {
        assert_eq!(without_password("postgres://u:pass@h:1/db?a=b"), "postgres://u:…@h:1/db?a=b");
        assert_eq!(without_password("postgres://u:p@ss@h/db"), "postgres://u:…@h/db");
        assert_eq!(without_password("postgres://u@h/db?password=x&b=c"), "postgres://u@h/db?password=…&b=c");
        assert_eq!(without_password("sqlite:a.db"), "sqlite:a.db");
    }
}
