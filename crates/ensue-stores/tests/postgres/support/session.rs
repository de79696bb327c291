//! Somebody who speaks plain SQL.

use super::{Log, connect};
use ensue_conformance::postgres::shared_url;
use tokio_postgres::{Client, Error, Row};

/// A session of somebody's own; `LOG` in a statement stands for the schema.
pub struct Session {
    client: Client,
    schema: String,
}

impl Session {
    pub async fn of(log: &Log) -> Self {
        Self { client: connect(&shared_url()).await, schema: log.schema.clone() }
    }

    pub async fn run(&self, sql: &str) -> Result<(), Error> {
        self.client.batch_execute(&sql.replace("LOG", &self.schema)).await
    }

    pub async fn rows(&self, sql: &str) -> Result<Vec<Row>, Error> {
        self.client.query(&sql.replace("LOG", &self.schema), &[]).await
    }

    /// The first column of the first row, as text.
    pub async fn text(&self, sql: &str) -> String {
        let rows = self
            .rows(&format!("SELECT x::text FROM ({sql}) q(x)"))
            .await
            .unwrap_or_else(|error| panic!("{sql}: {error:?}"));
        rows[0].get::<_, Option<String>>(0).unwrap_or_else(|| "null".into())
    }

    /// What the server says of a statement that it refuses: the code and the message.
    pub async fn refusal(&self, sql: &str) -> (String, String) {
        let error = self.rows(sql).await.expect_err(sql);
        let error = error.as_db_error().expect("the server refuses it");
        (error.code().code().to_owned(), error.message().to_owned())
    }
}
