//! How should the log be kept on this server?

use crate::clock::Clock;
use ensue_core::Invalid;
use std::fmt;
use std::time::Duration;

/// Choices of whoever opens a log on Postgres.
#[derive(Clone)]
pub struct PostgresOptions {
    /// The clock to record by, in tests. None: the server's own, which all nodes share.
    pub clock: Option<Clock>,
    /// Only look: nothing is created or changed, and verbs that would are refused.
    pub read_only: bool,
    /// How many events a new partition holds. Retention drops whole partitions. None: what the
    /// URL says (`partition_rows`), else what `ensue.config` says when it is made.
    pub partition_rows: Option<u64>,
    /// How long a call waits for a server that cannot be reached before it answers `Unavailable`.
    pub unavailable_after: Duration,
    /// How long the server may take to answer one statement before its connection is given up, which is how a server
    /// that hangs is noticed. An append that this happens to is looked for on a new connection before it is answered.
    /// The connection that writes is given up sooner if the server says that its session is not at work (`silence`).
    /// The server itself ends a statement after four fifths of it, so that one that is only busy can still say so.
    pub statement_time_max: Duration,
    /// How many connections may read at once, at most. One more writes, and three quarters as many are for calls that may have to wait for
    /// transactions of others: to send, claim and settle jobs, to set rules, to read and commit groups.
    pub readers_max: usize,
    /// How long a connection of the pools may rest before it is closed. A process that has nothing to do keeps three.
    pub idle_max: Duration,
}

/// Connections of a process beside its pools: one writes, one listens.
const BESIDE_POOLS: usize = 2;
/// The fewest connections with which a process works.
pub const CONNECTIONS_MIN: usize = 4;

/// The number of connections for calls that may wait for others, beside so many that read.
pub(super) fn calls_max(readers_max: usize) -> usize {
    (readers_max * 3 / 4).max(1)
}

/// The number of connections that may read if a process may have so many in all.
pub(super) fn readers_within(connections_max: usize) -> Result<usize, Invalid> {
    if connections_max < CONNECTIONS_MIN {
        let reason = format!("has `connections={connections_max}`; a process needs at least {CONNECTIONS_MIN}");
        return Err(Invalid::new("store", reason));
    }
    let fits = |readers: &usize| readers + calls_max(*readers) + BESIDE_POOLS <= connections_max;
    Ok((1..connections_max).rev().find(fits).unwrap_or(1))
}

impl PostgresOptions {
    /// The same options with at most so many connections in all.
    pub fn connections_max(self, connections_max: usize) -> Result<Self, Invalid> {
        Ok(Self { readers_max: readers_within(connections_max)?, ..self })
    }
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
            idle_max: Duration::from_secs(30),
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
            .field("idle_max", &self.idle_max)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_stay_within_the_connections_of_a_process() {
        for connections_max in CONNECTIONS_MIN..100 {
            let readers = readers_within(connections_max).unwrap();
            let total = readers + calls_max(readers) + BESIDE_POOLS;
            assert!(readers >= 1 && total <= connections_max, "{connections_max}: {readers} of {total}");
            assert!(connections_max - total <= 1, "{connections_max}: {total} used");
        }
        assert_eq!(readers_within(16), Ok(PostgresOptions::default().readers_max));
        assert!(readers_within(CONNECTIONS_MIN - 1).is_err());
    }
}
