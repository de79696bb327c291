//! The connection was lost while a batch was under way: was it stored?
//!
//! First the lost session is ended, if the server still has it: it may be waiting in line for the log, and would store
//! the batch after we looked. Then, under the lock of the log, the batch's ids are looked for. A commit is all or
//! nothing, except for callers that it left out whole. What is found is answered once it is as safe as any commit: where
//! there is a synchronous standby, there too. All this on a server that can be written to: a standby knows neither the
//! session nor what it may still store, and no connection is made to one (`asking::pins`).
//!
//! Behind a pooler nobody knows which session has the batch, or whether one has it already. So there it has a time by which it must have
//! begun, and a lock while it is under way: once the time has passed and the lock is free, nothing of it comes any more.

use super::asking::Way;
use super::batch::Call;
use super::error::Failure;
use super::id_parts;
use super::schema::Sql;
use super::silence::SessionState;
use super::types::Micros;
use ensue_core::{Appended, EventId, Seq, Timestamp};
use futures_util::future;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, Error};
use uuid::Uuid;

/// How long the server is given to end a session, each time it is asked to.
const END_MAX_MILLIS: i64 = 1_000;

/// The code of the error that says that a batch came too late, behind a pooler.
pub(super) const TOO_LATE: &str = "EN002";
/// How long a batch may wait behind a pooler before it begins. Who lost a connection waits as long.
const BEGINS_WITHIN: Duration = Duration::from_secs(3);

/// By what is known whether a batch is still under way.
#[derive(Debug, Clone, Copy)]
pub(super) enum Trace {
    /// The session that it was sent on.
    Session(SessionId),
    /// Behind a pooler: a lock of its own, and the time on the server's clock by which it must have it.
    Lock { key: i64, until: Timestamp },
}

/// How the batches of one connection are traced.
#[derive(Debug, Clone, Copy)]
pub(super) enum Tracing {
    Session(SessionId),
    /// What the server's clock said, and when that was.
    Clock {
        server: Timestamp,
        here: Instant,
    },
}

impl Tracing {
    pub async fn of(client: &Client, way: &Way) -> Result<Self, Failure> {
        if !way.is_pooled() {
            return Ok(Self::Session(SessionId::of(client).await?));
        }
        let here = Instant::now();
        Ok(Self::Clock { server: server_clock(client, way).await?, here })
    }

    /// For the next batch, and what is to be done first in its transaction.
    pub fn next(&self) -> (Trace, String) {
        match *self {
            Self::Session(session) => (Trace::Session(session), String::new()),
            Self::Clock { server, here } => {
                let key = rand::random::<i64>();
                let until = server.saturating_add(here.elapsed() + BEGINS_WITHIN).unwrap_or(Timestamp::MAX);
                // The lock first: who waits for it after that time knows that this one has it, or is refused.
                let first = format!(
                    "DO $$ BEGIN PERFORM pg_advisory_xact_lock({key}); IF clock_timestamp() > '{until}' THEN \
                     RAISE SQLSTATE '{TOO_LATE}' USING MESSAGE = 'the pooler has kept it for too long'; END IF; END $$"
                );
                (Trace::Lock { key, until }, first)
            }
        }
    }
}

impl Trace {
    /// The session that it was sent on, if that is known.
    pub fn session(&self) -> Option<SessionId> {
        match self {
            Self::Session(session) => Some(*session),
            Self::Lock { .. } => None,
        }
    }

    /// Returns when nothing of the batch is under way any more.
    async fn end(&self, client: &Client, way: &Way) -> Result<(), Failure> {
        let (key, until) = match self {
            Self::Session(session) => return session.end(client).await,
            Self::Lock { key, until } => (key, until),
        };
        loop {
            let now = server_clock(client, way).await?;
            if now > *until {
                break;
            }
            let left = Duration::try_from(until.duration_since(now)).unwrap_or_default();
            tokio::time::sleep(left + Duration::from_millis(1)).await;
        }
        let wait = format!("SET LOCAL lock_timeout = {END_MAX_MILLIS}; SELECT pg_advisory_xact_lock({key})");
        match way.together(client, &wait, future::ready(Ok(()))).await {
            Err(Failure::Told(error)) if error.code() == Some(&SqlState::LOCK_NOT_AVAILABLE) => {
                Err(Failure::SessionLives)
            }
            ended => ended,
        }
    }
}

/// What the server's clock says.
async fn server_clock(client: &Client, way: &Way) -> Result<Timestamp, Failure> {
    let rows = way.query(client, "SELECT clock_timestamp()", &[]).await?;
    let row = rows.first().ok_or(Failure::Nothing)?;
    Ok(row.try_get::<_, Micros>(0)?.0)
}

/// A session of the server. A process id alone may mean another session after a while.
#[derive(Debug, Clone, Copy)]
pub(super) struct SessionId {
    process: i32,
    started: Micros,
}

impl SessionId {
    async fn of(client: &Client) -> Result<Self, Error> {
        let own = "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()";
        let row = client.query_one(own, &[]).await?;
        Ok(Self { process: row.try_get(0)?, started: row.try_get(1)? })
    }

    /// What this session does, as another one is told.
    pub async fn state(&self, client: &Client) -> Result<SessionState, Error> {
        let state = "SELECT state = 'active' AND wait_event_type IS DISTINCT FROM 'Client' FROM pg_stat_activity \
                     WHERE pid = $1 AND backend_start = $2";
        let row = client.query_opt(state, &[&self.process, &self.started]).await?;
        Ok(match row.map(|row| row.try_get::<_, Option<bool>>(0)).transpose()? {
            Some(Some(true)) => SessionState::AtWork,
            Some(Some(false)) => SessionState::AtRest,
            // It belongs to another login, whose sessions are not shown.
            Some(None) => SessionState::AtWork,
            None => SessionState::Gone,
        })
    }

    /// Ends this session if it still lives, and waits until it has.
    async fn end(&self, client: &Client) -> Result<(), Failure> {
        let end = "SELECT pg_terminate_backend(pid, $3) FROM pg_stat_activity WHERE pid = $1 AND backend_start = $2";
        for row in client.query(end, &[&self.process, &self.started, &END_MAX_MILLIS]).await? {
            if !row.try_get::<_, bool>(0)? {
                return Err(Failure::SessionLives);
            }
        }
        Ok(())
    }
}

/// A batch that may or may not be stored.
#[derive(Debug)]
pub(super) struct Doubt {
    /// By which it is known whether it is still under way.
    pub trace: Trace,
    /// The end of the log that its sender knew, and its time: it can only be after that.
    pub after: Seq,
    pub since: Timestamp,
}

/// An entry of the batch that is stored.
struct Stored {
    id: EventId,
    seq: Option<Seq>,
    prev: Option<Seq>,
}

impl Doubt {
    /// Answers the calls that are stored and leaves the others; says how many events were found in the log.
    pub async fn settle(&self, client: &Client, way: &Way, sql: &Sql, calls: &mut Vec<Call>) -> Result<u64, Failure> {
        self.trace.end(client, way).await?;
        let stored = self.find(client, way, sql, calls).await?;
        let logged = stored.values().filter(|stored| stored.seq.is_some()).count() as u64;
        if stored.is_empty() {
            return Ok(0);
        }
        let first_answers = first_answers(client, way, sql, calls).await?;
        let mut left = Vec::new();
        for call in calls.drain(..) {
            // None of its entries: it was left out for a conflict, or all it sent was known already. Sending it again
            // gives the same answer.
            if !call.outgoing.iter().any(|outgoing| stored.contains_key(&outgoing.id_part())) {
                left.push(call);
                continue;
            }
            let answer = |outgoing: &super::batch::Outgoing| {
                let new = stored.get(&outgoing.id_part()).map(|found| (found, false));
                // Stored with the rest of the call, yet not under its own id: its key was known already.
                let known = || outgoing.entry.key.as_ref().and_then(|key| first_answers.get(key.as_str()));
                let (found, repeated) = new.or_else(|| known().map(|found| (found, true)))?;
                Some(Appended { id: found.id, seq: found.seq, prev: found.prev, repeated })
            };
            match call.outgoing.iter().map(answer).collect::<Option<Vec<_>>>() {
                Some(answers) => call.answer(Ok(answers)),
                None => left.push(call),
            }
        }
        *calls = left;
        Ok(logged)
    }

    async fn find(
        &self,
        client: &Client,
        way: &Way,
        sql: &Sql,
        calls: &[Call],
    ) -> Result<HashMap<Uuid, Stored>, Failure> {
        let id_parts: Vec<Uuid> = calls.iter().flat_map(|call| &call.outgoing).map(|o| o.id_part()).collect();
        let after = self.after as i64;
        let mut stored = HashMap::new();
        for row in way.query(client, &sql.stored, &[&after, &Micros(self.since), &id_parts]).await? {
            let id = EventId(row.try_get(0)?);
            let (seq, prev): (Option<i64>, Option<i64>) = (row.try_get(1)?, row.try_get(2)?);
            let found = Stored { id, seq: seq.map(|seq| seq as Seq), prev: prev.map(|prev| prev as Seq) };
            stored.insert(id_parts::part(id), found);
        }
        Ok(stored)
    }
}

/// What was answered first under the keys of these calls.
async fn first_answers(
    client: &Client,
    way: &Way,
    sql: &Sql,
    calls: &[Call],
) -> Result<HashMap<String, Stored>, Failure> {
    let outgoing = calls.iter().flat_map(|call| &call.outgoing);
    let keys: Vec<&str> = outgoing.filter_map(|o| o.entry.key.as_ref().map(|key| key.as_str())).collect();
    let mut answers = HashMap::new();
    if keys.is_empty() {
        return Ok(answers);
    }
    for row in way.query(client, &sql.keys, &[&keys]).await? {
        let (seq, prev): (Option<i64>, Option<i64>) = (row.try_get(2)?, row.try_get(3)?);
        let id = id_parts::whole(row.try_get(1)?, row.try_get::<_, Micros>(4)?.0);
        let stored = Stored { id, seq: seq.map(|seq| seq as Seq), prev: prev.map(|prev| prev as Seq) };
        answers.insert(row.try_get(0)?, stored);
    }
    Ok(answers)
}
