//! The Postgres engine does what every engine must do, over a login that owns nothing.

use crate::support::connect;
use crate::support::sql::as_user;
use async_trait::async_trait;
use ensue_conformance::postgres::{fresh_schema, shared_url};
use ensue_conformance::{Clock, Factory, Place, random, random_jobs, random_positions, random_schedules};
use ensue_core::store::SharedStore;
use ensue_stores::postgres::{PostgresOptions, PostgresStore};
use std::sync::Arc;

/// Makes a schema for each store, on the server of the run.
struct OnPostgres {
    partition_rows: u64,
}

/// Partitions that the large behaviours cross, and the others do not.
const ORDINARY: OnPostgres = OnPostgres { partition_rows: 5_000 };
/// Partitions that are made, passed and forgotten all the time. (H38: everything is forgotten, the newest one is empty.)
const TINY: OnPostgres = OnPostgres { partition_rows: 7 };

struct InSchema {
    url: String,
    partition_rows: u64,
}

#[async_trait]
impl Factory for OnPostgres {
    async fn make(&self) -> Box<dyn Place> {
        let (installed, schema) = fresh_schema("conformance");
        let store = PostgresStore::open(&installed, PostgresOptions::default()).await.expect("the schema is installed");
        ensue_core::Store::close(&store).await;
        // `operate` lets it trim: the clock of these tests is not that of the server.
        let login = format!("CREATE ROLE {schema}_node login; GRANT {schema}_serve, {schema}_operate TO {schema}_node");
        connect(&shared_url()).await.batch_execute(&login).await.expect("a login for the node");
        let url = format!("{}?schema={schema}", as_user(&format!("{schema}_node")));
        Box::new(InSchema { url, partition_rows: self.partition_rows })
    }
}

#[async_trait]
impl Place for InSchema {
    async fn open(&self, clock: Clock) -> SharedStore {
        let partition_rows = Some(self.partition_rows);
        let options = PostgresOptions { clock: Some(clock), partition_rows, ..PostgresOptions::default() };
        Arc::new(PostgresStore::open(&self.url, options).await.expect("the store opens"))
    }
}

ensue_conformance::conformance_tests!(ORDINARY);

#[test]
fn random_calls_have_the_answers_of_the_model() {
    random::compare(&ORDINARY, 24);
}

#[test]
fn random_calls_across_partitions_have_the_answers_of_the_model() {
    random::compare(&TINY, 24);
}

/// The same about groups: leases pass, owners take over from each other, subscriptions expire.
#[test]
fn random_calls_about_groups_have_the_answers_of_the_model() {
    random_positions::compare(&ORDINARY, 24);
}

/// The same about jobs: workers vanish and come back late, jobs are retried, cancelled and brought back, rules come and go.
#[test]
fn random_calls_about_jobs_have_the_answers_of_the_model() {
    random_jobs::compare(&ORDINARY, 24);
}

#[test]
fn random_calls_about_schedules_have_the_answers_of_the_model() {
    random_schedules::compare(&ORDINARY, 24);
}
