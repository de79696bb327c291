//! Sending jobs in a transaction of the application.
//!
//! It is the public function `enqueue`, once for each job: no lock is taken that others wait for,
//! and a job gets its place in the lane of its object after the commit (`sql/fn_sql_enqueue.sql`).

use super::super::PostgresStore;
use super::super::types::Micros;
use super::driver::{Param, PostgresTransaction};
use super::refusal::Refusal;
use ensue_core::StoreError;
use ensue_core::jobs::{JobId, NewJob};
use tokio_postgres::types::{ToSql, Type};

impl PostgresStore {
    /// Sends jobs in a transaction of the application: they are there when it has committed, and
    /// never if it does not. Returns their ids in the same order; for a `unique_key` of a live job,
    /// the id of that job. After an error the transaction can only be rolled back.
    pub async fn enqueue_in(
        &self,
        transaction: &mut dyn PostgresTransaction,
        jobs: &[NewJob],
    ) -> Result<Vec<JobId>, StoreError> {
        self.check_writable()?;
        super::super::jobs::check_new(jobs)?;
        let explained = |refusal: Refusal| refusal.explain(&self.schema);
        let params = self.send_params(jobs).map_err(explained)?;
        let sql = if self.clock.is_some() { &self.sql.jobs.send_in_at } else { &self.sql.jobs.send_in };
        let ids = transaction.ask(sql, params, !self.server.way.is_pooled()).await.map_err(explained)?;
        let id = |id: Option<String>| id.as_deref().and_then(JobId::parse);
        let ids: Option<Vec<JobId>> = ids.into_iter().map(id).collect();
        let ids = ids.filter(|ids| ids.len() == jobs.len());
        ids.ok_or_else(|| StoreError::Engine("a job that was sent has no id".into()))
    }

    fn send_params(&self, jobs: &[NewJob]) -> Result<Vec<Param>, Refusal> {
        let handlers: Vec<&str> = jobs.iter().map(|job| job.handler.as_str()).collect();
        let payloads: Vec<&str> = jobs.iter().map(|job| job.payload.as_str()).collect();
        let objects: Vec<Option<&str>> =
            jobs.iter().map(|job| job.object.as_ref().map(|object| object.as_str())).collect();
        let priorities: Vec<String> = jobs.iter().map(|job| job.priority.to_string()).collect();
        let not_before: Vec<Option<Micros>> = jobs.iter().map(|job| job.not_before.map(Micros)).collect();
        let keys: Vec<Option<&str>> = jobs.iter().map(|job| job.unique_key.as_deref()).collect();
        let attempts_max: Vec<i32> =
            jobs.iter().map(|job| i32::try_from(job.attempts_max).unwrap_or(i32::MAX)).collect();
        let metadata: Vec<&str> = jobs.iter().map(|job| job.metadata.as_str()).collect();
        let ordered: Vec<bool> = jobs.iter().map(|job| job.ordered).collect();
        let exhausted: Vec<&str> = jobs.iter().map(|job| job.on_exhausted.as_str()).collect();
        let now = self.clock_time();
        let clock: Option<(&(dyn ToSql + Sync), Type)> = now.as_ref().map(|now| (now as _, Type::TIMESTAMPTZ));
        let columns: [(&(dyn ToSql + Sync), Type); 10] = [
            (&handlers, Type::TEXT_ARRAY),
            (&payloads, Type::TEXT_ARRAY),
            (&objects, Type::TEXT_ARRAY),
            (&priorities, Type::TEXT_ARRAY),
            (&not_before, Type::TIMESTAMPTZ_ARRAY),
            (&keys, Type::TEXT_ARRAY),
            (&attempts_max, Type::INT4_ARRAY),
            (&metadata, Type::TEXT_ARRAY),
            (&ordered, Type::BOOL_ARRAY),
            (&exhausted, Type::TEXT_ARRAY),
        ];
        Param::all(columns.into_iter().chain(clock))
    }
}
