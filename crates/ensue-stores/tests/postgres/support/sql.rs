//! What the tests of the SQL interface share: a log that is read and written with plain SQL, by whoever logs in.

use super::{Log, connect};
use ensue_conformance::postgres::shared_url;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;
use uuid::Uuid;

/// A new log, and nobody who serves it.
pub async fn log() -> Log {
    let log = Log::new().await;
    log.open().await.close().await;
    log
}

/// A row that was read: place, who wants it, what to commit, and under what.
#[derive(Debug, Clone, PartialEq)]
pub struct Read {
    pub seq: i64,
    pub topic: String,
    pub wanted_by: Vec<Uuid>,
    pub next_cursor: i64,
    pub lease: Option<String>,
}

pub fn seqs(read: &[Read]) -> Vec<i64> {
    read.iter().map(|row| row.seq).collect()
}

/// A refusal: its SQL state, and what it says.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal {
    pub state: SqlState,
    pub text: String,
}

impl Log {
    /// A login with these rights and no others.
    pub async fn login(&self, rights: &[&str]) -> Client {
        let name = format!("{}_login_{:08x}", self.schema, rand_id().as_u128() as u32);
        let roles = rights.iter().map(|right| format!("GRANT LOG_{right} TO {name};")).collect::<String>();
        self.run(&format!("CREATE ROLE {name} login; {roles}")).await;
        connect(&as_user(&name)).await
    }

    /// `read_next_events` with these arguments.
    pub async fn reading(&self, by: &Client, arguments: &str) -> Result<Vec<Read>, Refusal> {
        let sql = format!(
            "SELECT seq, topic, subscription_ids, next_cursor, lease FROM {}.read_next_events({arguments})",
            self.schema
        );
        let rows = by.query(&sql, &[]).await.map_err(|error| refusal(&error))?;
        let read = rows.iter().map(|row| Read {
            seq: row.get(0),
            topic: row.get(1),
            wanted_by: row.get(2),
            next_cursor: row.get(3),
            lease: row.get(4),
        });
        Ok(read.collect())
    }

    pub async fn read(&self, arguments: &str) -> Vec<Read> {
        self.reading(&self.admin, arguments).await.unwrap_or_else(|refusal| panic!("{arguments}: {refusal:?}"))
    }

    /// `set_group_cursor` under this lease.
    pub async fn committing(&self, group: &str, cursor: i64, release: bool, lease: &str) -> Result<i64, Refusal> {
        let sql = format!("SELECT {}.set_group_cursor($1, $2, $3, $4)", self.schema);
        let row = self.admin.query_one(&sql, &[&group, &cursor, &release, &lease]).await;
        row.map(|row| row.get(0)).map_err(|error| refusal(&error))
    }

    /// `subscribe` with these arguments.
    pub async fn subscribing(&self, by: &Client, arguments: &str) -> Result<Uuid, Refusal> {
        let sql = format!("SELECT {}.subscribe({arguments})", self.schema);
        by.query_one(&sql, &[]).await.map(|row| row.get(0)).map_err(|error| refusal(&error))
    }

    pub async fn subscribe(&self, arguments: &str) -> Uuid {
        let made = self.subscribing(&self.admin, arguments).await;
        made.unwrap_or_else(|refusal| panic!("{arguments}: {refusal:?}"))
    }

    /// Puts events into the log, as rows: `select` answers seq, topic and payload.
    pub async fn put(&self, select: &str) {
        self.run(&format!(
            "INSERT INTO LOG.stored_events (seq, topic, payload, recorded_at, id_part) \
             SELECT x.*, clock_timestamp(), overlay(gen_random_uuid()::text PLACING '0' FROM 15 FOR 1)::uuid FROM ({select}) x"
        ))
        .await;
    }

    /// Plants a bug: `wrong` instead of `right` in a function.
    pub async fn plant(&self, function: &str, right: &str, wrong: &str) {
        let sql = format!("SELECT pg_get_functiondef('{}.{function}'::regproc)", self.schema);
        let is: String = self.admin.query_one(&sql, &[]).await.expect("there is such a function").get(0);
        assert!(is.contains(right), "{function} has no {right}");
        self.admin.batch_execute(&is.replace(right, wrong)).await.expect("the bug is planted");
    }

    /// Where a group is.
    pub async fn cursor(&self, group: &str) -> i64 {
        let sql = "SELECT min(s.cursor) FROM LOG.slots s JOIN LOG.groups g ON g.id = s.group_id WHERE g.name = ";
        self.number(&format!("{sql}'{group}'")).await
    }
}

/// The address of the run's server for another user.
pub fn as_user(name: &str) -> String {
    let url = shared_url();
    let (scheme, rest) = url.split_once("://").expect("an address");
    let (_, server) = rest.rsplit_once('@').unwrap_or(("", rest));
    format!("{scheme}://{name}@{server}")
}

pub fn refusal(error: &tokio_postgres::Error) -> Refusal {
    let told = error.as_db_error().unwrap_or_else(|| panic!("the connection: {error}"));
    Refusal { state: told.code().clone(), text: format!("{} {}", told.message(), told.hint().unwrap_or_default()) }
}

pub fn rand_id() -> Uuid {
    Uuid::from_u128(rand::random())
}
