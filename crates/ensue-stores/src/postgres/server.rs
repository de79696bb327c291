//! How is the server reached, again and again?
//!
//! One connection writes (see `writer`), a pool of others reads. Every connection is pinned to what the engine needs,
//! whatever the database's defaults are. A call that finds its connection dead takes another, until the server has been
//! out of reach for `unavailable_after`.

use super::connection::{Connection, Reader, within};
use super::error::{Failure, Trouble, explain};
use super::options::PostgresOptions;
use super::outage::Outage;
use super::patience::Patience;
use super::tls;
use super::url::{self, Target};
use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, Pool, PoolError, RecyclingMethod};
use ensue_core::StoreError;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Config, Error, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

/// What a query is given.
pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The same, one by one, as a query that streams its rows takes them.
pub(super) fn each<'a>(params: Params<'a>) -> impl ExactSizeIterator<Item = &'a dyn ToSql> {
    params.iter().map(|param| *param as &dyn ToSql)
}

/// How often the server looks whether the client of a running statement is still there.
const CLIENT_LOOKED_FOR_EVERY: Duration = Duration::from_secs(1);

/// A Postgres server, or whichever of several answers.
pub(super) struct Server {
    config: Config,
    tls: MakeRustlsConnect,
    pins: String,
    pool: Pool,
    outage: Arc<Outage>,
    /// For messages: without user and password.
    pub place: String,
    pub unavailable_after: Duration,
    pub statement_time_max: Duration,
}

impl Server {
    pub fn new(target: &Target, options: &PostgresOptions) -> Result<Self, StoreError> {
        let mut config = target.config.clone();
        if config.get_hosts().len() > 1 && !options.read_only && !target.chooses_server {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        let tls = tls::connector(target)?;
        let pins = pins(options);
        let place = url::place(&config);
        let outage = Arc::new(Outage::default());
        let manager_config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(config.clone(), tls.clone(), manager_config);
        let of_pool = Arc::new((pins.clone(), outage.clone(), place.clone()));
        let pool = Pool::builder(manager)
            .max_size(options.readers_max.max(1))
            .post_create(Hook::async_fn(move |client, _| {
                let of_pool = of_pool.clone();
                Box::pin(async move {
                    let (pins, outage, place) = &*of_pool;
                    client.batch_execute(pins).await.map_err(HookError::Backend)?;
                    outage.back(place);
                    Ok(())
                })
            }))
            .build()
            .map_err(|error| StoreError::Engine(format!("no pool of connections: {error}")))?;
        let PostgresOptions { unavailable_after, statement_time_max, .. } = *options;
        Ok(Self { config, tls, pins, pool, outage, place, unavailable_after, statement_time_max })
    }

    /// A connection outside the pool, within this time.
    pub async fn connect(&self, limit: Duration) -> Result<Connection, Failure> {
        let connecting = async {
            let (client, connection) = self.config.connect(self.tls.clone()).await?;
            let task = tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection to Postgres has ended");
                }
            });
            let connection = Connection::new(client, task);
            connection.batch_execute(&self.pins).await?;
            Ok::<_, Error>(connection)
        };
        let connection = within(limit, connecting).await?;
        self.outage.back(&self.place);
        Ok(connection)
    }

    /// A connection of the pool.
    pub async fn reader(&self) -> Result<Reader, StoreError> {
        let mut patience = self.patience();
        loop {
            let failure = match tokio::time::timeout(patience.left(), self.pool.get()).await {
                Ok(Ok(client)) => return Ok(Reader::new(client, self.statement_time_max)),
                Ok(Err(PoolError::Backend(error) | PoolError::PostCreateHook(HookError::Backend(error)))) => {
                    Failure::Told(error)
                }
                Ok(Err(PoolError::Closed)) => return Err(StoreError::Closed),
                Ok(Err(
                    error @ (PoolError::Timeout(_) | PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_)),
                )) => {
                    return Err(StoreError::Engine(format!("no connection from the pool: {error}")));
                }
                Err(_) => Failure::Silence(self.unavailable_after),
            };
            self.again_after(failure, &mut patience).await?;
        }
    }

    /// Runs a statement that may be run twice, on as many connections as it takes.
    pub async fn query(&self, sql: &str, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        let mut patience = self.patience();
        loop {
            match self.reader().await?.query(sql, params).await {
                Ok(rows) => return Ok(rows),
                Err(failure) => self.again_after(failure, &mut patience).await?,
            }
        }
    }

    /// The one row of a statement that always has one.
    pub async fn query_one(&self, sql: &str, params: Params<'_>) -> Result<Row, StoreError> {
        self.one(self.query(sql, params).await?)
    }

    /// The one row that a statement answered.
    pub fn one(&self, rows: Vec<Row>) -> Result<Row, StoreError> {
        let row = rows.into_iter().next();
        row.ok_or_else(|| StoreError::Engine(format!("Postgres at {}: a statement answered nothing", self.place)))
    }

    /// Pauses if the statement is worth another try; else says what is wrong.
    pub async fn again_after(&self, failure: Failure, patience: &mut Patience) -> Result<(), StoreError> {
        let again = match Trouble::of(&failure) {
            Trouble::Lost => {
                self.lost(&failure);
                patience.pause().await
            }
            Trouble::Busy => patience.pause().await,
            Trouble::NoPartition | Trouble::Refused => false,
        };
        if again { Ok(()) } else { Err(explain(&failure, &self.place)) }
    }

    /// A connection was lost, or cannot be made.
    pub fn lost(&self, failure: &Failure) {
        self.outage.lost(failure, &self.place);
    }

    /// The patience of a call that begins now, or finds the server away now.
    pub fn patience(&self) -> Patience {
        Patience::until(Instant::now() + self.unavailable_after)
    }

    /// No more reads.
    pub fn close(&self) {
        self.pool.close();
    }
}

/// What every connection is told: reading after a lock needs read committed, acknowledged means on disk, plans that
/// were made for a small table must still be right for a large one, and what nobody waits for any more comes to an end.
/// A standby is refused, as if it were away: what it has not heard of yet may have happened.
fn pins(options: &PostgresOptions) -> String {
    let read_only = if options.read_only { "on" } else { "off" };
    let limit_millis = (options.statement_time_max.as_millis() * 4 / 5).clamp(1, i32::MAX as u128);
    let look_millis = CLIENT_LOOKED_FOR_EVERY.as_millis();
    let primary_only = match options.read_only {
        true => "",
        false => {
            "DO $$ BEGIN IF pg_is_in_recovery() THEN RAISE read_only_sql_transaction \
             USING MESSAGE = 'the server is in recovery'; END IF; END $$; "
        }
    };
    // Not every system that Postgres runs on can look for the client: then the limit alone must do.
    format!(
        "{primary_only}SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = {read_only}; \
         SET synchronous_commit = on; SET jit = off; SET enable_seqscan = off; SET enable_bitmapscan = off; \
         SET statement_timeout = {limit_millis}; SET idle_in_transaction_session_timeout = {limit_millis}; \
         DO $$ BEGIN PERFORM set_config('client_connection_check_interval', '{look_millis}', false); \
         EXCEPTION WHEN invalid_parameter_value THEN NULL; END $$"
    )
}
