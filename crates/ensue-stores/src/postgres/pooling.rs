//! Is a session of the server ours alone, or does a pooler give it to others after each transaction (H30)?
//!
//! The URL may say it (`pooler=transaction`, `pooler=none`). Otherwise it is found out before anything is set or prepared: of two
//! connections that are open at the same time each has a session of its own, which stays the same; unless there is a pooler
//! in between, which gives the session that one of them has just used to the other. Other clients of the pooler may take it first. But a
//! pooler has no session for who has not asked anything yet: where there is none under the name of a new connection, it is looked more often.

use super::connection::Connection;
use super::error::Failure;
use tokio_postgres::SimpleQueryMessage;

/// How often is looked where each connection seems to have a session, and where there is certainly a pooler, of one kind or another.
const LOOKS: usize = 2;
const LOOKS_AT_POOLER: usize = 30;

/// What a URL says of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pooler {
    /// It is to be found out.
    Unknown,
    /// There is none, or one that keeps a session for as long as its client is there.
    None,
    /// A session is ours for the length of a transaction.
    Transaction,
}

/// Do these two connections share sessions? The first is known by a name that nobody else has, and has not asked anything.
pub(super) async fn is_shared(one: &Connection, name: &str, other: &Connection) -> Result<bool, Failure> {
    let sessions = format!("SELECT count(*) FROM pg_stat_activity WHERE application_name = '{name}'");
    let looks = match first_value(other, &sessions).await?.as_deref() {
        Some("0") => LOOKS_AT_POOLER,
        Some(_) | None => LOOKS,
    };
    let first = session(one, "").await?;
    for _ in 0..looks {
        if session(other, "BEGIN; ").await? == first {
            other.batch_execute("COMMIT").await?;
            return Ok(true);
        }
        // The other one keeps the session that it has: if the first was given away, this cannot be that one by chance alone.
        let again = session(one, "").await?;
        other.batch_execute("COMMIT").await?;
        if again != first {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The number of the session in which a connection is just now. Nothing is prepared for it.
async fn session(client: &Connection, before: &str) -> Result<Option<String>, Failure> {
    first_value(client, &format!("{before}SELECT pg_backend_pid()")).await
}

/// What a statement answers.
async fn first_value(client: &Connection, sql: &str) -> Result<Option<String>, Failure> {
    let messages = client.simple_query(sql).await?;
    Ok(messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    }))
}
