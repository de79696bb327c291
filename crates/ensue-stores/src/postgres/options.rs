//! How should the log be kept on this server?

use crate::clock::Clock;
use std::fmt;
use std::time::Duration;

/// Choices of whoever opens a log on Postgres.
#[derive(Clone)]
pub struct PostgresOptions {
    /// The clock to record by, in tests. None: the server's own, which all nodes share.
    pub clock: Option<Clock>,
    /// Only look: nothing is created or changed, and verbs that would are refused.
    pub read_only: bool,
    /// How many events a new partition holds. Retention drops whole partitions. None: as `ensue.config` says when it is made.
    pub partition_rows: Option<u64>,
    /// How long a call waits for a server that cannot be reached before it answers `Unavailable`.
    pub unavailable_after: Duration,
    /// How long the server may take to answer one statement before its connection is given up, which is how a server
    /// that hangs is noticed. An append that this happens to is looked for on a new connection before it is answered.
    /// The server itself ends a statement after four fifths of it, so that one that is only busy can still say so.
    pub statement_time_max: Duration,
    /// How many connections may read at once, at most. One more writes, and three quarters as many are for calls that may have to wait for
    /// transactions of others: to send, claim and settle jobs, to set rules, to read and commit groups.
    pub readers_max: usize,
}

impl Default for PostgresOptions {
    fn default() -> Self {
        Self {
            clock: None,
            read_only: false,
            partition_rows: None,
            unavailable_after: Duration::from_secs(10),
            statement_time_max: Duration::from_secs(30),
            readers_max: 8,
        }
    }
}

impl fmt::Debug for PostgresOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresOptions")
            .field("clock", &self.clock.as_ref().map(|_| "injected"))
            .field("read_only", &self.read_only)
            .field("partition_rows", &self.partition_rows)
            .field("unavailable_after", &self.unavailable_after)
            .field("statement_time_max", &self.statement_time_max)
            .field("readers_max", &self.readers_max)
            .finish()
    }
}
