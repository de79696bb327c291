//! How is the server reached, again and again?
//!
//! One connection writes (see `writer`), a pool of others reads. Every connection is pinned to what the engine needs (`asking`),
//! whatever the database's defaults are. A call that finds its connection dead takes another, until the server has been
//! out of reach for `unavailable_after`.

use super::asking::Way;
use super::connection::{Connection, Reader, within};
use super::error::{Failure, Trouble, explain};
use super::options::PostgresOptions;
use super::outage::Outage;
use super::patience::Patience;
use super::pooling::{self, Pooler};
use super::tls;
use super::url::{self, Target};
use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, Pool, PoolError, RecyclingMethod};
use ensue_core::StoreError;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Config, Error, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

/// What a query is given.
pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The same, one by one, as a query that streams its rows takes them.
pub(super) fn each<'a>(params: Params<'a>) -> impl ExactSizeIterator<Item = &'a dyn ToSql> {
    params.iter().map(|param| *param as &dyn ToSql)
}

/// A Postgres server, or whichever of several answers.
pub(super) struct Server {
    config: Config,
    tls: MakeRustlsConnect,
    pool: Pool,
    outage: Arc<Outage>,
    /// How statements are asked.
    pub way: Arc<Way>,
    /// For messages: without user and password.
    pub place: String,
    pub unavailable_after: Duration,
    pub statement_time_max: Duration,
}

impl Server {
    /// Finds out how statements are asked there, unless the target says it.
    pub async fn reach(target: &Target, options: &PostgresOptions) -> Result<Self, StoreError> {
        let mut config = target.config.clone();
        if config.get_hosts().len() > 1 && !options.read_only && !target.chooses_server {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        let tls = tls::connector(target)?;
        let place = url::place(&config);
        let told = |failure: Failure| explain(&failure, &place);
        let is_pooled = match target.pooler {
            Pooler::None => false,
            Pooler::Transaction => true,
            Pooler::Unknown => find_out(&config, &tls, options.unavailable_after).await.map_err(told)?,
        };
        let way = Arc::new(if is_pooled { Way::pooled(options) } else { Way::session(options) });
        let outage = Arc::new(Outage::default());
        let manager_config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
        let manager = Manager::from_config(config.clone(), tls.clone(), manager_config);
        let of_pool = Arc::new((way.clone(), outage.clone(), place.clone()));
        let pool = Pool::builder(manager)
            .max_size(options.readers_max.max(1))
            .post_create(Hook::async_fn(move |client, _| {
                let of_pool = of_pool.clone();
                Box::pin(async move {
                    let (way, outage, place) = &*of_pool;
                    way.pin(client).await.map_err(HookError::Backend)?;
                    outage.back(place);
                    Ok(())
                })
            }))
            .build()
            .map_err(|error| StoreError::Engine(format!("no pool of connections: {error}")))?;
        let PostgresOptions { unavailable_after, statement_time_max, .. } = *options;
        Ok(Self { config, tls, pool, outage, way, place, unavailable_after, statement_time_max })
    }

    /// A connection outside the pool, within this time.
    pub async fn connect(&self, limit: Duration) -> Result<Connection, Failure> {
        self.connect_with(limit, |_| {}).await
    }

    /// The same, with what is rung on the channels that it listens to. They end with the connection.
    pub async fn connect_listening(
        &self,
        limit: Duration,
    ) -> Result<(Connection, mpsc::UnboundedReceiver<String>), Failure> {
        let (rings, heard) = mpsc::unbounded_channel();
        let connection = self.connect_with(limit, move |ring| {
            // Nobody may listen any more.
            let _ = rings.send(ring);
        });
        Ok((connection.await?, heard))
    }

    async fn connect_with(
        &self,
        limit: Duration,
        rung: impl Fn(String) + Send + 'static,
    ) -> Result<Connection, Failure> {
        let connecting = async {
            let connection = connect_bare(&self.config, &self.tls, rung).await?;
            self.way.pin(&connection).await?;
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
                Ok(Ok(client)) => return Ok(Reader::new(client, self.way.clone(), self.statement_time_max)),
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
            Trouble::Busy | Trouble::Backlog => patience.pause().await,
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

/// A connection as it comes.
async fn connect_bare(
    config: &Config,
    tls: &MakeRustlsConnect,
    rung: impl Fn(String) + Send + 'static,
) -> Result<Connection, Error> {
    let (client, mut connection) = config.connect(tls.clone()).await?;
    let task = tokio::spawn(async move {
        while let Some(message) = poll_fn(|cx| connection.poll_message(cx)).await {
            match message {
                Ok(AsyncMessage::Notification(ring)) => rung(ring.payload().to_owned()),
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(%error, "a connection to Postgres has ended");
                    return;
                }
            }
        }
    });
    Ok(Connection::new(client, task))
}

/// Is there a pooler in between that gives sessions to others?
async fn find_out(config: &Config, tls: &MakeRustlsConnect, limit: Duration) -> Result<bool, Failure> {
    let looking = async {
        let name = format!("ensue_{:032x}", rand::random::<u128>());
        let one = connect_bare(config.clone().application_name(&name), tls, |_| {}).await?;
        let other = connect_bare(config, tls, |_| {}).await?;
        pooling::is_shared(&one, &name, &other).await
    };
    within(limit, looking).await
}
