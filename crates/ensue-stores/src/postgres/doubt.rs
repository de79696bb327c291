//! The connection was lost while a batch was under way: was it stored?
//!
//! First the lost session is ended, if the server still has it: it may be waiting in line for the log, and would store
//! the batch after we looked. Then, under the lock of the log, the batch's ids are looked for. A commit is all or
//! nothing, except for callers that it left out whole. What is found is answered once it is as safe as any commit: where
//! there is a synchronous standby, there too. All this on a server that can be written to: a standby knows neither the
//! session nor what it may still store, and no connection is made to one (`server::pins`).

use super::batch::Call;
use super::error::Failure;
use super::id_parts;
use super::schema::Sql;
use super::types::Micros;
use ensue_core::{Appended, EventId, Seq, Timestamp};
use std::collections::HashMap;
use tokio_postgres::{Client, Error};
use uuid::Uuid;

/// How long the server is given to end a session, each time it is asked to.
const END_MAX_MILLIS: i64 = 1_000;

/// A session of the server. A process id alone may mean another session after a while.
#[derive(Debug, Clone, Copy)]
pub(super) struct SessionId {
    process: i32,
    started: Micros,
}

impl SessionId {
    pub async fn of(client: &Client) -> Result<Self, Error> {
        let own = "SELECT pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()";
        let row = client.query_one(own, &[]).await?;
        Ok(Self { process: row.try_get(0)?, started: row.try_get(1)? })
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
    /// On which it was sent.
    pub session: SessionId,
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
    pub async fn settle(&self, client: &Client, sql: &Sql, calls: &mut Vec<Call>) -> Result<u64, Failure> {
        self.session.end(client).await?;
        let stored = self.find(client, sql, calls).await?;
        let logged = stored.values().filter(|stored| stored.seq.is_some()).count() as u64;
        if stored.is_empty() {
            return Ok(0);
        }
        let first_answers = first_answers(client, sql, calls).await?;
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

    async fn find(&self, client: &Client, sql: &Sql, calls: &[Call]) -> Result<HashMap<Uuid, Stored>, Error> {
        let id_parts: Vec<Uuid> = calls.iter().flat_map(|call| &call.outgoing).map(|o| o.id_part()).collect();
        let after = self.after as i64;
        let mut stored = HashMap::new();
        for row in client.query(&sql.stored, &[&after, &Micros(self.since), &id_parts]).await? {
            let id = EventId(row.try_get(0)?);
            let (seq, prev): (Option<i64>, Option<i64>) = (row.try_get(1)?, row.try_get(2)?);
            let found = Stored { id, seq: seq.map(|seq| seq as Seq), prev: prev.map(|prev| prev as Seq) };
            stored.insert(id_parts::part(id), found);
        }
        Ok(stored)
    }
}

/// What was answered first under the keys of these calls.
async fn first_answers(client: &Client, sql: &Sql, calls: &[Call]) -> Result<HashMap<String, Stored>, Error> {
    let outgoing = calls.iter().flat_map(|call| &call.outgoing);
    let keys: Vec<&str> = outgoing.filter_map(|o| o.entry.key.as_ref().map(|key| key.as_str())).collect();
    let mut answers = HashMap::new();
    if keys.is_empty() {
        return Ok(answers);
    }
    for row in client.query(&sql.keys, &[&keys]).await? {
        let (seq, prev): (Option<i64>, Option<i64>) = (row.try_get(2)?, row.try_get(3)?);
        let id = id_parts::whole(row.try_get(1)?, row.try_get::<_, Micros>(4)?.0);
        let stored = Stored { id, seq: seq.map(|seq| seq as Seq), prev: prev.map(|prev| prev as Seq) };
        answers.insert(row.try_get(0)?, stored);
    }
    Ok(answers)
}
