//! What the tests of the Postgres engine share: a schema each, and an eye on what the server does.

#![allow(dead_code, reason = "each test file uses its part")]

pub mod groups;
pub mod load;
pub mod session;
pub mod sql;
pub mod wire;

use ensue_conformance::postgres::{fresh_schema, shared_url};
use ensue_conformance::suite;
use ensue_core::chain::Audit;
use ensue_core::store::SharedStore;
use ensue_core::{Entry, Event, Filter, NewEvent};
use ensue_stores::postgres::{PostgresOptions, PostgresStore};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls};

/// How long a condition may take to come true.
pub const WAIT_MAX: Duration = Duration::from_secs(120);

/// A schema of its own. Sessions are known by its name.
pub struct Log {
    pub url: String,
    pub schema: String,
    pub admin: Client,
    /// Holds locks: a transaction does not see how others go on, so it is not the one that looks.
    holder: Client,
}

impl Log {
    /// On the server of the run.
    pub async fn new() -> Self {
        Self::in_database(&shared_url()).await
    }

    /// In this database.
    pub async fn in_database(database: &str) -> Self {
        let (_, schema) = fresh_schema("engine");
        let url = format!("{database}?schema={schema}&application_name={schema}");
        Self { url, schema, admin: connect(database).await, holder: connect(database).await }
    }

    /// One that is there, by the name of its schema as SQL has it.
    pub async fn in_schema(schema: String) -> Self {
        let database = shared_url();
        Self { url: String::new(), schema, admin: connect(&database).await, holder: connect(&database).await }
    }

    pub async fn open(&self) -> SharedStore {
        self.open_with(PostgresOptions::default()).await
    }

    pub async fn open_with(&self, options: PostgresOptions) -> SharedStore {
        Arc::new(PostgresStore::open(&self.url, options).await.expect("the store opens"))
    }

    /// The same with little patience, on a log that is there before.
    pub async fn open_hasty(&self, options: PostgresOptions) -> SharedStore {
        self.open().await.close().await;
        self.open_with(options).await
    }

    /// A statement of ours; `LOG` stands for the schema.
    pub async fn run(&self, sql: &str) {
        self.admin.batch_execute(&sql.replace("LOG", &self.schema)).await.expect("a statement of the test");
    }

    /// Takes a lock and keeps it; `LOG` stands for the schema.
    pub async fn hold(&self, sql: &str) {
        let sql = format!("BEGIN; {}", sql.replace("LOG", &self.schema));
        self.holder.batch_execute(&sql).await.expect("a lock of the test");
    }

    /// Lets it go.
    pub async fn let_go(&self) {
        self.holder.batch_execute("COMMIT").await.expect("the end of a lock of the test");
    }

    /// A number that the server knows; `LOG` stands for the schema.
    pub async fn number(&self, sql: &str) -> i64 {
        self.admin.query_one(&sql.replace("LOG", &self.schema), &[]).await.expect("a query of the test").get(0)
    }

    /// Waits until the query answers this number.
    pub async fn until(&self, sql: &str, expected: i64) {
        let begun = Instant::now();
        while self.number(sql).await != expected {
            assert!(begun.elapsed() < WAIT_MAX, "never came true: {expected} = {sql}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until so many appends stand in line for the log.
    pub async fn until_waiting(&self, count: i64) {
        self.until(
            "SELECT count(*) FROM pg_stat_activity a JOIN pg_locks l ON l.pid = a.pid WHERE a.application_name = 'LOG' \
             AND NOT l.granted AND (l.locktype = 'advisory' OR l.relation = to_regclass('LOG.log_lock'))",
            count,
        )
        .await;
    }

    /// Ends all sessions of the stores; says how many there were.
    pub async fn end_sessions(&self) -> i64 {
        self.number("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = 'LOG'")
            .await
    }
}

/// A store whose statements pass through the wire. The log is there before: to make it takes longer than some of these
/// options give to a statement.
pub async fn open_over(wire: &wire::Wire, log: &Log, options: PostgresOptions) -> SharedStore {
    log.open().await.close().await;
    let url = format!("{}?schema={1}&application_name={1}&sslmode=disable", wire.url, log.schema);
    Arc::new(PostgresStore::open(&url, options).await.expect("the store opens"))
}

/// A connection of the test itself.
pub async fn connect(database: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(database, NoTls).await.expect("the test's own connection");
    tokio::spawn(connection);
    client
}

/// One event on an object.
pub fn on(object: &str) -> Vec<Entry> {
    suite::checked(vec![NewEvent::new("t").object(object)])
}

/// The whole log, audited.
pub async fn whole_log(store: &SharedStore) -> Vec<Event> {
    let log = suite::read_all(store, Filter::default(), 0, 1_000).await;
    let bounds = store.bounds().await.expect("bounds");
    let (mut audit, mut faults) = (Audit::from(bounds.first), Vec::new());
    log.iter().for_each(|event| audit.see(event, &mut faults));
    audit.end(bounds.last, &mut faults);
    assert_eq!(faults, []);
    log
}

/// (seq, prev) of each.
pub fn places(log: &[Event]) -> Vec<(u64, Option<u64>)> {
    log.iter().map(|event| (event.seq, event.prev)).collect()
}
