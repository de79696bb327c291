//! Which engine opens an address?

use crate::address::{Address, Place};
use crate::delivery::{READ_AHEAD, check_read_ahead};
use crate::error::Error;
use crate::history::History;
use ensue_core::clock::ManualClock;
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
    /// What to keep of what became of deliveries.
    pub history: History,
    /// How often retention and history are looked after.
    pub retention_interval: Duration,
    /// How many events each handler holds in memory that are not done. [`Ensue::set_read_ahead`](crate::Ensue::set_read_ahead)
    /// changes it later.
    pub read_ahead: usize,
    /// Only look: leaves the store as it is, and works beside the process that writes to it.
    pub read_only: bool,
    /// The clock of a test, by which everything is recorded and due; none for the store's own. On Postgres all nodes of a
    /// store need the same.
    pub clock: Option<ManualClock>,
    /// The most connections to Postgres in all; none for the store's default, which is 16. Those that rest for 30 s are
    /// closed.
    pub connections_max: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            retention: Retention::default(),
            history: History::default(),
            retention_interval: Duration::from_secs(30),
            read_ahead: READ_AHEAD,
            read_only: false,
            clock: None,
            connections_max: None,
        }
    }
}

/// An opened store, with what only one engine offers.
pub(crate) struct Opened {
    pub store: SharedStore,
    #[cfg(feature = "sqlite")]
    pub sqlite: Option<Arc<SqliteStore>>,
    #[cfg(feature = "postgres")]
    pub postgres: Option<Arc<ensue_stores::postgres::PostgresStore>>,
}

pub(crate) async fn open(url: &str, options: &Options) -> Result<Opened, Error> {
    let address: Address = url.parse()?;
    check_read_ahead(options.read_ahead)?;
    match address.place() {
        #[cfg(feature = "sqlite")]
        Place::Memory => open_sqlite(":memory:", options).await,
        #[cfg(feature = "sqlite")]
        Place::File(path) => open_sqlite(path, options).await,
        #[cfg(not(feature = "sqlite"))]
        Place::Memory | Place::File(_) => {
            Err(Error::Address("the embedded engine is not compiled in; add the feature `sqlite`".into()))
        }
        #[cfg(feature = "postgres")]
        Place::Postgres => {
            use ensue_stores::postgres::{PostgresOptions, PostgresStore};
            let (read_only, connections_max) = (options.read_only, options.connections_max);
            let clock = options.clock.as_ref().map(ManualClock::clock);
            let mut options = PostgresOptions { read_only, clock, ..PostgresOptions::default() };
            if let Some(connections_max) = connections_max {
                options = options.connections_max(connections_max)?;
            }
            let store = Arc::new(PostgresStore::open(url, options).await?);
            Ok(Opened {
                store: store.clone(),
                #[cfg(feature = "sqlite")]
                sqlite: None,
                postgres: Some(store),
            })
        }
        #[cfg(not(feature = "postgres"))]
        Place::Postgres => {
            Err(Error::Address("the Postgres engine is not compiled in; add the feature `postgres`".into()))
        }
    }
}

#[cfg(feature = "sqlite")]
async fn open_sqlite(path: &str, options: &Options) -> Result<Opened, Error> {
    let clock = options.clock.as_ref().map(ManualClock::clock);
    let options = SqliteOptions { read_only: options.read_only, clock, ..SqliteOptions::default() };
    let store = Arc::new(SqliteStore::open(path, options).await?);
    Ok(Opened {
        store: store.clone(),
        sqlite: Some(store),
        #[cfg(feature = "postgres")]
        postgres: None,
    })
}
