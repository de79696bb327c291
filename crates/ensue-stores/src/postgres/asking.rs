//! How is a statement asked, when the connection is ours alone, and when it is not?
//!
//! On a session of ours every connection is pinned once to what the engine needs, and statements are prepared once. Behind a pooler
//! that gives the server's session to somebody else after each transaction (`pooling`) neither stays, and what we set would
//! be left to strangers. There each call is a transaction of its own, which begins with the same pins, for its own
//! length, and holds statements without a name. Beginning, statement and end are sent together: one round trip.
//!
//! A statement without a name must be sent with the types of its values. The server tells them once.

use super::connection::within;
use super::error::Failure;
use super::options::PostgresOptions;
use super::server::{Params, each};
use futures_util::{TryStreamExt, future};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, Row, RowStream, SimpleQueryMessage};

/// How often the server looks whether the client of a running statement is still there.
const CLIENT_LOOKED_FOR_EVERY: Duration = Duration::from_secs(1);

/// Which statements a connection can have.
pub(super) enum Way {
    /// The session is ours alone. It is told this when it begins.
    Session { pins: String },
    /// Each transaction may be in another session.
    Pooled(Pooled),
}

/// What is known of statements behind a pooler.
pub(super) struct Pooled {
    /// Begins a transaction.
    begin: String,
    ready: Mutex<HashMap<Arc<str>, Ready>>,
}

/// A statement that is ready to be asked.
#[derive(Clone)]
pub(super) enum Ready {
    /// Known to this session by a name.
    Named(tokio_postgres::Statement),
    /// Sent whole each time, with the types of its values.
    Whole { sql: Arc<str>, types: Arc<[Type]> },
}

impl Ready {
    /// The rows, as they come.
    pub async fn rows(&self, client: &Client, params: Params<'_>) -> Result<RowStream, Error> {
        match self {
            Self::Named(statement) => client.query_raw(statement, each(params)).await,
            Self::Whole { sql, types } => {
                client.query_typed_raw(sql, params.iter().copied().zip(types.iter().cloned())).await
            }
        }
    }

    /// The one row of a statement that always has one.
    pub async fn one(&self, client: &Client, params: Params<'_>) -> Result<Row, Error> {
        match self {
            Self::Named(statement) => client.query_one(statement, params).await,
            Self::Whole { sql, types } => {
                let typed: Vec<_> = params.iter().copied().zip(types.iter().cloned()).collect();
                client.query_typed_one(sql, &typed).await
            }
        }
    }

    /// All rows.
    pub async fn all(&self, client: &Client, params: Params<'_>) -> Result<Vec<Row>, Error> {
        self.rows(client, params).await?.try_collect().await
    }
}

impl Way {
    pub fn session(options: &PostgresOptions) -> Self {
        Self::Session { pins: pins(options) }
    }

    pub fn pooled(options: &PostgresOptions) -> Self {
        Self::Pooled(Pooled { begin: begin(options), ready: Mutex::default() })
    }

    pub fn is_pooled(&self) -> bool {
        matches!(self, Self::Pooled(_))
    }

    /// What a new connection is told, with how long it is to wait for a lock if that has a limit of its own.
    pub async fn pin(&self, client: &Client, lock_time_max: Option<Duration>) -> Result<(), Error> {
        match (self, lock_time_max) {
            (Self::Session { pins }, None) => client.batch_execute(pins).await,
            (Self::Session { pins }, Some(limit)) => {
                client.batch_execute(&format!("{pins}; SET lock_timeout = {}", limit.as_millis())).await
            }
            (Self::Pooled(_), _) => Ok(()),
        }
    }

    /// What begins a transaction of several statements.
    pub fn begin(&self) -> &str {
        match self {
            Self::Session { .. } => "BEGIN",
            Self::Pooled(pooled) => &pooled.begin,
        }
    }

    /// Makes a statement ready on this connection.
    pub async fn ready(&self, client: &Client, sql: &str) -> Result<Ready, Failure> {
        match self {
            Self::Session { .. } => Ok(Ready::Named(client.prepare(sql).await?)),
            Self::Pooled(pooled) => pooled.ready(client, sql).await,
        }
    }

    /// Asks statements that are ready, all at once: behind a pooler in a transaction of their own, which first does `first`.
    pub async fn together<T>(
        &self,
        client: &Client,
        first: &str,
        asked: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Failure> {
        let Self::Pooled(Pooled { begin, .. }) = self else { return Ok(asked.await?) };
        let begin = format!("{begin}; {first}");
        // Polled in this order, they are sent in this order. If it does not begin, nothing of it is done.
        let (begun, asked, committed) =
            future::join3(client.batch_execute(&begin), asked, client.batch_execute("COMMIT")).await;
        begun?;
        let answer = asked?;
        committed?;
        Ok(answer)
    }

    /// Asks one statement, which need not be ready.
    pub async fn query(&self, client: &Client, sql: &str, params: Params<'_>) -> Result<Vec<Row>, Failure> {
        let ready = self.ready(client, sql).await?;
        self.together(client, "", ready.all(client, params)).await
    }

    /// The one row of a statement that always has one, within this time.
    pub async fn query_one(
        &self,
        client: &Client,
        limit: Duration,
        sql: &str,
        params: Params<'_>,
    ) -> Result<Row, Failure> {
        let rows = within(limit, self.query(client, sql, params)).await?;
        rows.into_iter().next().ok_or(Failure::Nothing)
    }
}

impl Pooled {
    /// Finds out the types of a statement's values. Preparing it, looking and forgetting it are one message, so one transaction.
    async fn ready(&self, client: &Client, sql: &str) -> Result<Ready, Failure> {
        if let Some(ready) = self.known().get(sql) {
            return Ok(ready.clone());
        }
        let name = format!("ensue_{:032x}", rand::random::<u128>());
        let ask = format!(
            "PREPARE {name} AS {sql}\n; SELECT array_to_string(parameter_types::oid[], ' ') \
             FROM pg_prepared_statements WHERE name = '{name}'; DEALLOCATE {name}"
        );
        let mut types = Vec::new();
        for message in client.simple_query(&ask).await? {
            let SimpleQueryMessage::Row(row) = message else { continue };
            for number in row.get(0).unwrap_or_default().split_whitespace() {
                types.push(number.parse().ok().and_then(Type::from_oid).ok_or(Failure::Nothing)?);
            }
        }
        let sql: Arc<str> = sql.into();
        let ready = Ready::Whole { sql: sql.clone(), types: types.into() };
        self.known().insert(sql, ready.clone());
        Ok(ready)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, HashMap<Arc<str>, Ready>> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How long the server itself lets a statement run, in milliseconds.
fn limit_millis(options: &PostgresOptions) -> u128 {
    (options.statement_time_max.as_millis() * 4 / 5).clamp(1, i32::MAX as u128)
}

/// What every session of ours is told: reading after a lock needs read committed, acknowledged means on disk, plans that
/// were made for a small table must still be right for a large one, and what nobody waits for any more comes to an end.
/// A standby is refused, as if it were away: what it has not heard of yet may have happened.
/// The search path is pinned, because a function or an operator in a schema that others write to would be preferred
/// wherever it fits the types of the arguments better than that of Postgres.
fn pins(options: &PostgresOptions) -> String {
    let read_only = if options.read_only { "on" } else { "off" };
    let (limit_millis, look_millis) = (limit_millis(options), CLIENT_LOOKED_FOR_EVERY.as_millis());
    let primary_only = match options.read_only {
        true => "",
        false => {
            "DO $$ BEGIN IF pg_is_in_recovery() THEN RAISE read_only_sql_transaction \
             USING MESSAGE = 'the server is in recovery'; END IF; END $$; "
        }
    };
    // Not every system that Postgres runs on can look for the client: then the limit alone must do. A server that does not know
    // the setting is too old: that is said once its version was asked for, over this connection (`migrate`).
    format!(
        "SET search_path = pg_catalog, pg_temp; {primary_only}\
         SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = {read_only}; \
         SET synchronous_commit = on; SET jit = off; SET enable_seqscan = off; SET enable_bitmapscan = off; \
         SET statement_timeout = {limit_millis}; SET idle_in_transaction_session_timeout = {limit_millis}; \
         DO $$ BEGIN PERFORM set_config('client_connection_check_interval', '{look_millis}', false); \
         EXCEPTION WHEN invalid_parameter_value OR undefined_object THEN NULL; END $$"
    )
}

/// The same for one transaction. A standby refuses to begin one that may write.
fn begin(options: &PostgresOptions) -> String {
    let access = if options.read_only { "READ ONLY" } else { "READ WRITE" };
    let limit_millis = limit_millis(options);
    format!(
        "BEGIN ISOLATION LEVEL READ COMMITTED {access}; SET LOCAL search_path = pg_catalog, pg_temp; \
         SET LOCAL synchronous_commit = on; SET LOCAL jit = off; \
         SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; SET LOCAL statement_timeout = {limit_millis}; \
         SET LOCAL idle_in_transaction_session_timeout = {limit_millis}"
    )
}
