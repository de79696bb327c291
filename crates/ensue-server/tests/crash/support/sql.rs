//! Clients that publish in plain SQL transactions of their own, beside a row of theirs.

use super::Load;
use ensue::EventId;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

/// How many publish at once: so many that about half of all events are theirs.
const CLIENTS: usize = 4;

/// A transaction as its client saw it.
pub struct Committed {
    pub began: Duration,
    pub ended: Duration,
    pub token: String,
    /// None if nobody knows what became of it.
    pub id: Option<EventId>,
}

/// What they all know.
#[derive(Clone)]
pub struct SqlLoad {
    database: String,
    schema: String,
    begun: Instant,
    stop: Arc<AtomicBool>,
    answered: Arc<AtomicU64>,
    pub committed: Arc<Mutex<Vec<Committed>>>,
}

async fn connect(database: &str) -> Option<Client> {
    let (client, connection) = tokio_postgres::connect(database, NoTls).await.ok()?;
    tokio::spawn(connection);
    Some(client)
}

impl SqlLoad {
    /// Begins; they stop with the load beside which they run.
    pub async fn start(load: &mut Load, database: String, schema: &str) -> Self {
        let client = connect(&database).await.expect("the database is there");
        client.batch_execute("CREATE TABLE mine (token text PRIMARY KEY)").await.unwrap();
        let sql = Self {
            database,
            schema: schema.to_owned(),
            begun: load.begun,
            stop: load.stop.clone(),
            answered: Arc::default(),
            committed: Arc::default(),
        };
        load.clients.extend((0..CLIENTS).map(|name| tokio::spawn(sql.clone().run(name))));
        sql
    }

    /// Waits until one more is committed.
    pub async fn answered_one_more(&self) {
        let before = self.answered.load(Ordering::SeqCst);
        let begun = Instant::now();
        while self.answered.load(Ordering::SeqCst) == before {
            assert!(begun.elapsed() < super::PATIENCE, "nothing is committed any more");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn run(self, name: usize) {
        let mut client = None;
        for number in 0.. {
            if self.stop.load(Ordering::SeqCst) {
                return;
            }
            if client.is_none() {
                client = connect(&self.database).await;
            }
            let Some(open) = &client else {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            };
            let (token, began) = (format!("sql-{name}-{number}"), self.begun.elapsed());
            let id = self.transaction(open, &token).await;
            match id {
                Some(_) => _ = self.answered.fetch_add(1, Ordering::SeqCst),
                None => client = None,
            }
            let ended = self.begun.elapsed();
            self.committed.lock().unwrap().push(Committed { began, ended, token, id });
        }
    }

    /// A row and an event in one transaction; the event's id if it is committed.
    async fn transaction(&self, client: &Client, token: &str) -> Option<EventId> {
        let object = rand::random::<u32>() as usize % super::OBJECTS;
        let sql = format!(
            "BEGIN; INSERT INTO mine VALUES ('{token}'); SELECT \"{}\".publish('crash.test', '{{\"token\":\"{token}\"}}', \
             object => 'object:{object}'); COMMIT",
            self.schema
        );
        let id = client.simple_query(&sql).await.ok()?.into_iter().find_map(|message| match message {
            SimpleQueryMessage::Row(row) => row.get(0)?.parse().ok(),
            _ => None,
        });
        Some(EventId(id.expect("publish answers an id")))
    }

    /// The rows that were committed.
    pub async fn rows(&self) -> BTreeSet<String> {
        let client = connect(&self.database).await.expect("the database is there");
        client.query("SELECT token FROM mine", &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
    }
}
