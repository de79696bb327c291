//! How is the server reached, again and again?
//!
//! One connection writes (see `writer`), a pool of others reads and does what a process needs for itself: the tail, leases, what is due. Calls that may have to wait for a
//! transaction of somebody's own (to send, claim and settle jobs, to set rules, to read and commit a group) have a pool for them alone: however many wait, the process goes
//! on. And none keeps its connection while it waits for long: a lock that is not to be had soon is asked for again after a pause.
//!
//! Every connection is pinned to what the engine needs (`asking`),
//! whatever the database's defaults are. A call that finds its connection dead takes another, until the server has been
//! out of reach for `unavailable_after`.

use super::asking::Way;
use super::beside::Beside;
use super::carrier::Carrier;
use super::connection::{Connection, Reader, within};
use super::error::{Failure, Trouble, explain};
use super::options::{PostgresOptions, calls_max, readers_within};
use super::outage::Outage;
use super::patience::Patience;
use super::pooling::{self, Pooler};
use super::schema::LOG_LOCK_TIME_MAX;
use super::tls;
use super::url::{self, Target};
use deadpool_postgres::{Hook, HookError, Manager, ManagerConfig, Pool, PoolError, QueueMode, RecyclingMethod};
use ensue_core::StoreError;
use std::future::poll_fn;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Client, Config, Error, Row};
use tokio_postgres_rustls::MakeRustlsConnect;

/// What a query is given.
pub(super) type Params<'a> = &'a [&'a (dyn ToSql + Sync)];

/// The same, one by one, as a query that streams its rows takes them.
pub(super) fn each<'a>(params: Params<'a>) -> impl ExactSizeIterator<Item = &'a dyn ToSql> {
    params.iter().map(|param| *param as &dyn ToSql)
}

/// How long a call waits for a lock before its connection is free for another.
const LOCK_TIME_MAX: Duration = Duration::from_secs(2);

/// A session that holds one of our locks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockHolder {
    /// Its process id, and its transaction.
    pub transaction: (i32, String),
    /// A description with process id, user and application.
    pub who: String,
    /// How many sessions wait for the lock.
    pub waiting: u64,
}

/// A Postgres server, or whichever of several answers.
pub(super) struct Server {
    config: Config,
    tls: MakeRustlsConnect,
    pool: Pool,
    /// For calls that may have to wait for somebody's transaction.
    calls: Pool,
    /// Closes connections of the pools that rest.
    closing_idle: AbortHandle,
    /// May this program run beside the schema?
    pub beside: Arc<Beside>,
    /// Asks who holds our locks, once the schema is known.
    pub lock_holders: OnceLock<String>,
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
        let beside = Arc::new(Beside::default());
        let of_pool = Arc::new((way.clone(), outage.clone(), place.clone(), beside.clone()));
        let pool_of = |connections_max: usize, lock_time_max: Option<Duration>| {
            let manager_config = ManagerConfig { recycling_method: RecyclingMethod::Fast };
            let manager = Manager::from_config(config.clone(), tls.clone(), manager_config);
            let of_pool = of_pool.clone();
            let made = Hook::async_fn(move |client, _| {
                let of_pool = of_pool.clone();
                Box::pin(async move {
                    let (way, outage, place, beside) = &*of_pool;
                    way.pin(client, lock_time_max).await.map_err(HookError::Backend)?;
                    beside.look(client, place).await.map_err(HookError::Backend)?;
                    outage.back(place);
                    Ok(())
                })
            });
            // The connection that was used last has everything at hand, here and on the server. One that rests is found out by its keepalives if it dies.
            let pool =
                Pool::builder(manager).max_size(connections_max).queue_mode(QueueMode::Lifo).post_create(made).build();
            pool.map_err(|error| StoreError::Engine(format!("no pool of connections: {error}")))
        };
        let readers_max = match target.connections {
            Some(connections_max) => readers_within(connections_max)?,
            None => options.readers_max.max(1),
        };
        let pool = pool_of(readers_max, None)?;
        let calls = pool_of(calls_max(readers_max), Some(LOCK_TIME_MAX))?;
        let closing_idle = tokio::spawn(close_idle([pool.clone(), calls.clone()], options.idle_max)).abort_handle();
        let PostgresOptions { unavailable_after, statement_time_max, .. } = *options;
        let lock_holders = OnceLock::new();
        Ok(Self {
            config,
            tls,
            pool,
            calls,
            closing_idle,
            beside,
            lock_holders,
            outage,
            way,
            place,
            unavailable_after,
            statement_time_max,
        })
    }

    /// A connection outside the pool, within this time.
    pub async fn connect(&self, limit: Duration) -> Result<Connection, Failure> {
        self.connect_with(limit, None, |_| {}).await.map(by_task)
    }

    /// The same, with what is rung on the channels that it listens to. They end with the connection.
    pub async fn connect_listening(
        &self,
        limit: Duration,
    ) -> Result<(Connection, mpsc::UnboundedReceiver<String>), Failure> {
        let (rings, heard) = mpsc::unbounded_channel();
        let connected = self.connect_with(limit, None, move |ring| {
            // Nobody may listen any more.
            let _ = rings.send(ring);
        });
        Ok((by_task(connected.await?), heard))
    }

    /// A connection outside the pool that is carried only while its owner waits. It waits for a lock no longer than for the log's.
    pub async fn connect_carried(&self, limit: Duration) -> Result<(Client, Carrier), Failure> {
        self.connect_with(limit, Some(LOG_LOCK_TIME_MAX), |_| {}).await
    }

    /// Connects, pins, and looks whether this program may run beside the schema.
    async fn connect_with(
        &self,
        limit: Duration,
        lock_time_max: Option<Duration>,
        rung: impl Fn(String) + Send + 'static,
    ) -> Result<(Client, Carrier), Failure> {
        let connecting = async {
            let (client, mut carrier) = connect_bare(&self.config, &self.tls, rung).await?;
            let asking = async {
                self.way.pin(&client, lock_time_max).await?;
                self.beside.look(&client, &self.place).await
            };
            carrier.until(asking).await?;
            Ok::<_, Error>((client, carrier))
        };
        let connection = within(limit, connecting).await?;
        self.outage.back(&self.place);
        match self.beside.refusal() {
            Some(why) => Err(Failure::Outdated(why)),
            None => Ok(connection),
        }
    }

    /// A connection of the pool.
    pub async fn reader(&self) -> Result<Reader, StoreError> {
        self.taken_from(&self.pool, None).await
    }

    /// A connection for a call that may have to wait for somebody's transaction.
    pub async fn reader_of_call(&self) -> Result<Reader, StoreError> {
        self.taken_from(&self.calls, Some(LOCK_TIME_MAX)).await
    }

    async fn taken_from(&self, pool: &Pool, lock_time_max: Option<Duration>) -> Result<Reader, StoreError> {
        let mut patience = self.patience();
        loop {
            let failure = match tokio::time::timeout(patience.left(), pool.get()).await {
                Ok(Ok(client)) => {
                    self.beside.check()?;
                    return Ok(Reader::new(client, self.way.clone(), self.statement_time_max, lock_time_max));
                }
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
            // The connection is free again before the pause.
            let answer = self.reader().await?.query(sql, params).await;
            match answer {
                Ok(rows) => return Ok(rows),
                Err(failure) => self.again_after(failure, &mut patience).await?,
            }
        }
    }

    /// The same for a call that may have to wait for somebody's transaction.
    pub async fn query_of_call(&self, sql: &str, params: Params<'_>) -> Result<Vec<Row>, StoreError> {
        let mut patience = self.patience();
        loop {
            let answer = self.reader_of_call().await?.query(sql, params).await;
            match answer {
                Ok(rows) => return Ok(rows),
                Err(failure) => self.again_after(failure, &mut patience).await?,
            }
        }
    }

    /// The one row of a statement that always has one.
    pub async fn query_one(&self, sql: &str, params: Params<'_>) -> Result<Row, StoreError> {
        self.one(self.query(sql, params).await?)
    }

    /// The same for a call that may have to wait for somebody's transaction.
    pub async fn query_one_of_call(&self, sql: &str, params: Params<'_>) -> Result<Row, StoreError> {
        self.one(self.query_of_call(sql, params).await?)
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
        if again { Ok(()) } else { Err(Box::pin(self.explain(&failure)).await) }
    }

    /// The failure as a caller sees it. On a lock timeout it names the holders of Ensue's locks.
    pub async fn explain(&self, failure: &Failure) -> StoreError {
        let error = explain(failure, &self.place);
        if !failure.is_lock_timeout() {
            return error;
        }
        match self.lock_holders().await {
            Ok(holders) if !holders.is_empty() => {
                let held_by = holders.iter().map(|holder| holder.who.as_str()).collect::<Vec<_>>().join(", ");
                StoreError::Unavailable(format!(
                    "Postgres at {}: a lock was not free in time; it is held by {held_by}: end that transaction",
                    self.place
                ))
            }
            Ok(_) | Err(_) => error,
        }
    }

    /// Who holds our locks now, those first for whom most wait.
    pub async fn lock_holders(&self) -> Result<Vec<LockHolder>, StoreError> {
        let Some(sql) = self.lock_holders.get() else { return Ok(Vec::new()) };
        let rows = self.reader().await?.query(sql, &[]).await.map_err(|failure| explain(&failure, &self.place))?;
        let holder = |row: &Row| LockHolder {
            transaction: (row.get(0), row.get(1)),
            who: row.get(2),
            waiting: row.get::<_, i64>(3) as u64,
        };
        Ok(rows.iter().map(holder).collect())
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
        self.calls.close();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.closing_idle.abort();
    }
}

/// Closes connections that were not used for this long, until the pools are closed. The pools lend the one that was used
/// last, so the others rest.
async fn close_idle(pools: [Pool; 2], idle_max: Duration) {
    while !pools.iter().all(Pool::is_closed) {
        tokio::time::sleep(idle_max / 2).await;
        for pool in &pools {
            pool.retain(|_, metrics| metrics.last_used() < idle_max);
        }
    }
}

/// Has a task carry it.
fn by_task((client, carrier): (Client, Carrier)) -> Connection {
    Connection::new(client, carrier.spawn())
}

/// A connection as it comes.
async fn connect_bare(
    config: &Config,
    tls: &MakeRustlsConnect,
    rung: impl Fn(String) + Send + 'static,
) -> Result<(Client, Carrier), Error> {
    let (client, mut connection) = config.connect(tls.clone()).await?;
    let carrier = Carrier::new(async move {
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
    Ok((client, carrier))
}

/// Is there a pooler in between that gives sessions to others?
async fn find_out(config: &Config, tls: &MakeRustlsConnect, limit: Duration) -> Result<bool, Failure> {
    let looking = async {
        let name = format!("ensue_{:032x}", rand::random::<u128>());
        let one = by_task(connect_bare(config.clone().application_name(&name), tls, |_| {}).await?);
        let other = by_task(connect_bare(config, tls, |_| {}).await?);
        pooling::is_shared(&one, &name, &other).await
    };
    within(limit, looking).await
}
