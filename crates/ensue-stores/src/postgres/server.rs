//! How is the server reached, again and again?
//!
//! One connection writes (see `writer`), a pool of others reads. Every connection is pinned to what the engine needs,
//! whatever the database's defaults are. A call that finds its connection dead takes another, until the server has been
//! out of reach for `unavailable_after`.

use super::error::{Trouble, explain};
use super::options::PostgresOptions;
use super::tls;
use super::url::{self, Target};
use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, Object, Pool, PoolError, RecyclingMethod};
use ensue_core::StoreError;
use rand::Rng;
use std::time::{Duration, Instant};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Config, Error, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

/// What a query is given.
pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The same, one by one, as a query that streams its rows takes them.
pub(super) fn each<'a>(params: Params<'a>) -> impl ExactSizeIterator<Item = &'a dyn ToSql> {
    params.iter().map(|param| *param as &dyn ToSql)
}

/// The first pause before connecting again, and the longest.
const PAUSE_FIRST: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);

/// A Postgres server, or whichever of several answers.
pub(super) struct Server {
    config: Config,
    tls: MakeRustlsConnect,
    pins: String,
    pool: Pool,
    /// For messages: without user and password.
    pub place: String,
    pub unavailable_after: Duration,
}

impl Server {
    pub fn new(target: &Target, options: &PostgresOptions) -> Result<Self, StoreError> {
        let config = target.config.clone();
        let tls = tls::connector(target)?;
        let pins = pins(options.read_only);
        let manager_config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(config.clone(), tls.clone(), manager_config);
        let pins_of_pool = pins.clone();
        let pool = Pool::builder(manager)
            .max_size(options.readers_max.max(1))
            .post_create(Hook::async_fn(move |client, _| {
                let pins = pins_of_pool.clone();
                Box::pin(async move { client.batch_execute(&pins).await.map_err(HookError::Backend) })
            }))
            .build()
            .map_err(|error| StoreError::Engine(format!("no pool of connections: {error}")))?;
        let place = url::place(&config);
        Ok(Self { config, tls, pins, pool, place, unavailable_after: options.unavailable_after })
    }

    /// A connection outside the pool.
    pub async fn connect(&self) -> Result<Client, Error> {
        let (client, connection) = self.config.connect(self.tls.clone()).await?;
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to Postgres has ended");
            }
        });
        client.batch_execute(&self.pins).await?;
        // Waiting in line for the log is no runaway statement.
        client.batch_execute("SET statement_timeout = 0").await?;
        Ok(client)
    }

    /// A connection of the pool.
    pub async fn reader(&self) -> Result<Object, StoreError> {
        let mut patience = Patience::until(Instant::now() + self.unavailable_after);
        loop {
            match self.pool.get().await {
                Ok(client) => return Ok(client),
                Err(PoolError::Backend(error)) => {
                    if Trouble::of(&error) != Trouble::Lost || !patience.pause().await {
                        return Err(explain(&error, &self.place));
                    }
                }
                Err(PoolError::Closed) => return Err(closed()),
                Err(PoolError::PostCreateHook(HookError::Backend(error))) => {
                    if Trouble::of(&error) != Trouble::Lost || !patience.pause().await {
                        return Err(explain(&error, &self.place));
                    }
                }
                Err(error @ (PoolError::Timeout(_) | PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_))) => {
                    return Err(StoreError::Engine(format!("no connection from the pool: {error}")));
                }
            }
        }
    }

    /// Runs a statement that may be run twice, on as many connections as it takes.
    pub async fn query(&self, sql: &str, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        let mut patience = Patience::until(Instant::now() + self.unavailable_after);
        loop {
            let client = self.reader().await?;
            let result = match client.prepare_cached(sql).await {
                Ok(statement) => client.query(&statement, params).await,
                Err(error) => Err(error),
            };
            match result {
                Ok(rows) => return Ok(rows),
                Err(error) => self.again_after(error, &mut patience).await?,
            }
        }
    }

    /// The one row of a statement that always has one.
    pub async fn query_one(&self, sql: &str, params: Params<'_>) -> Result<Row, StoreError> {
        let row = self.query(sql, params).await?.into_iter().next();
        row.ok_or_else(|| StoreError::Engine(format!("Postgres at {}: a statement answered nothing", self.place)))
    }

    /// Pauses if the statement is worth another try; else says what is wrong.
    pub async fn again_after(&self, error: Error, patience: &mut Patience) -> Result<(), StoreError> {
        let again = match Trouble::of(&error) {
            Trouble::Lost | Trouble::Busy => patience.pause().await,
            Trouble::NoPartition | Trouble::Refused => false,
        };
        if again { Ok(()) } else { Err(explain(&error, &self.place)) }
    }

    /// No more reads.
    pub fn close(&self) {
        self.pool.close();
    }
}

/// What every connection is told: reading after a lock needs read committed, acknowledged means on disk, and plans
/// that were made for a small table must still be right for a large one.
fn pins(read_only: bool) -> String {
    let read_only = if read_only { "on" } else { "off" };
    format!(
        "SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = {read_only}; \
         SET synchronous_commit = on; SET jit = off; SET enable_seqscan = off; SET enable_bitmapscan = off"
    )
}

/// What a store answers that was closed.
pub(super) fn closed() -> StoreError {
    StoreError::Unavailable("the store is closed".into())
}

/// Pauses that grow, with some chance in them so that many nodes do not come back at once, until a point in time.
pub(super) struct Patience {
    until: Instant,
    pause: Duration,
}

impl Patience {
    pub fn until(until: Instant) -> Self {
        Self { until, pause: PAUSE_FIRST }
    }

    /// Waits a little; false if there is no time left.
    pub async fn pause(&mut self) -> bool {
        let left = self.until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return false;
        }
        let share = rand::rng().random_range(0.5..1.0);
        tokio::time::sleep(self.pause.mul_f64(share).min(left)).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        true
    }
}
