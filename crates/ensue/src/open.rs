//! Which engine does an address mean?

use crate::error::Error;
use ensue_core::retention::Retention;
use ensue_core::store::SharedStore;
#[cfg(feature = "sqlite")]
use ensue_stores::sqlite::{SqliteOptions, SqliteStore};
#[cfg(any(feature = "sqlite", feature = "postgres"))]
use std::sync::Arc;
use std::time::Duration;

/// How to open a store and look after it.
#[derive(Debug, Clone)]
pub struct Options {
    /// What to forget; nothing unless told.
    pub retention: Retention,
    /// How often retention is looked after.
    pub retention_interval: Duration,
    /// Only look: leaves the store as it is, and works beside the process that writes to it.
    pub read_only: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { retention: Retention::default(), retention_interval: Duration::from_secs(30), read_only: false }
    }
}

/// An opened store, with what only one engine offers.
pub(crate) struct Opened {
    pub store: SharedStore,
    #[cfg(feature = "sqlite")]
    pub sqlite: Option<Arc<SqliteStore>>,
}

/// The kinds of address.
enum Address<'a> {
    Sqlite(&'a str),
    Postgres,
}

fn parse(url: &str) -> Result<Address<'_>, Error> {
    match url.split_once(':') {
        Some(("postgres" | "postgresql", _)) => Ok(Address::Postgres),
        Some(("sqlite", path)) => Ok(Address::Sqlite(path.strip_prefix("//").unwrap_or(path))),
        Some((scheme, rest)) if rest.starts_with("//") => Err(Error::Address(format!(
            "there is no engine for `{scheme}://`; use sqlite:PATH, sqlite::memory: or postgres://USER@HOST/DATABASE"
        ))),
        _ => Ok(Address::Sqlite(url)),
    }
}

pub(crate) async fn open(url: &str, options: &Options) -> Result<Opened, Error> {
    match parse(url)? {
        Address::Sqlite("") => {
            Err(Error::Address("the store's path is empty; write sqlite:PATH, such as sqlite:ensue.db".into()))
        }
        #[cfg(feature = "sqlite")]
        Address::Sqlite(path) => {
            let options = SqliteOptions { read_only: options.read_only, ..SqliteOptions::default() };
            let store = Arc::new(SqliteStore::open(path, options).await?);
            Ok(Opened { store: store.clone(), sqlite: Some(store) })
        }
        #[cfg(not(feature = "sqlite"))]
        Address::Sqlite(_) => {
            Err(Error::Address("the embedded engine is not compiled in; add the feature `sqlite`".into()))
        }
        #[cfg(feature = "postgres")]
        Address::Postgres => {
            use ensue_stores::postgres::{PostgresOptions, PostgresStore};
            let options = PostgresOptions { read_only: options.read_only, ..PostgresOptions::default() };
            let store = Arc::new(PostgresStore::open(url, options).await?);
            Ok(Opened {
                store,
                #[cfg(feature = "sqlite")]
                sqlite: None,
            })
        }
        #[cfg(not(feature = "postgres"))]
        Address::Postgres => {
            Err(Error::Address("the Postgres engine is not compiled in; add the feature `postgres`".into()))
        }
    }
}
