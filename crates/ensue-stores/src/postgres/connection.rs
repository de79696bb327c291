//! How long do we wait for an answer, and what becomes of a connection that gives none?
//!
//! A server may hang without hanging up: it is stopped, its disk is, or the network swallows every packet. So each
//! statement has a limit, and a connection that broke it is closed and never used again, as nobody knows what will
//! still come over it. The server has a shorter limit of its own (`asking::pins`): one that is only busy says so itself
//! before we give up, and what we left behind does not stand in line for the log for ever.

use super::asking::{Ready, Way};
use super::error::{Failure, Trouble};
use super::server::Params;
use deadpool_postgres::Object;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Error, Row};

/// Waits for an answer, but no longer than this.
pub(super) async fn within<T, E: Into<Failure>>(
    limit: Duration,
    answer: impl Future<Output = Result<T, E>>,
) -> Result<T, Failure> {
    match tokio::time::timeout(limit, answer).await {
        Ok(answer) => answer.map_err(Into::into),
        Err(_) => Err(Failure::Silence(limit)),
    }
}

/// A connection outside the pool. Dropped, it is closed at once, even if the server owes an answer.
pub(super) struct Connection {
    client: Client,
    /// Carries the bytes.
    task: JoinHandle<()>,
}

impl Connection {
    pub fn new(client: Client, task: JoinHandle<()>) -> Self {
        Self { client, task }
    }
}

impl Deref for Connection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A connection of the pool. It goes back there when it is dropped, unless the server owes it an answer: because the
/// limit has passed, or because whoever asked is gone. Nor does one go back that is lost.
pub(super) struct Reader {
    client: Option<Object>,
    way: Arc<Way>,
    limit: Duration,
    is_owed: AtomicBool,
    /// How long it waits for a lock, if that is not as long as for an answer.
    lock_time_max: Option<Duration>,
}

impl Reader {
    pub fn new(client: Object, way: Arc<Way>, limit: Duration, lock_time_max: Option<Duration>) -> Self {
        Self { client: Some(client), way, limit, lock_time_max, is_owed: AtomicBool::new(false) }
    }

    /// Runs statements on this connection, within the limit.
    pub async fn run<T, E: Into<Failure>>(&self, statements: impl Future<Output = Result<T, E>>) -> Result<T, Failure> {
        self.is_owed.store(true, Ordering::Relaxed);
        let result = within(self.limit, statements).await;
        let is_lost = result.as_ref().is_err_and(|failure| Trouble::of(failure) == Trouble::Lost);
        self.is_owed.store(is_lost, Ordering::Relaxed);
        result
    }

    /// Makes a statement ready; it stays so for as long as this connection lives.
    pub async fn ready(&self, sql: &str) -> Result<Ready, Failure> {
        match &*self.way {
            Way::Session { .. } => Ok(Ready::Named(self.prepare_cached(sql).await?)),
            Way::Pooled(_) => self.way.ready(self, sql).await,
        }
    }

    /// Asks statements that are ready, all at once.
    pub async fn together<T>(&self, asked: impl Future<Output = Result<T, Error>>) -> Result<T, Failure> {
        let first = self.lock_time_max.map(|limit| format!("SET LOCAL lock_timeout = {}", limit.as_millis()));
        self.way.together(self, &first.unwrap_or_default(), asked).await
    }

    /// Runs one statement.
    pub async fn query(&self, sql: &str, params: Params<'_>) -> Result<Vec<Row>, Failure> {
        let asking = async {
            let ready = self.ready(sql).await?;
            self.together(ready.all(self, params)).await
        };
        self.run(asking).await
    }
}

impl Deref for Reader {
    type Target = Object;

    fn deref(&self) -> &Object {
        self.client.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if let (true, Some(client)) = (self.is_owed.load(Ordering::Relaxed), self.client.take()) {
            // The pool makes another; dropped outside of it, this one is closed.
            drop(Object::take(client));
        }
    }
}
