//! Which jobs are there, and what did they say?

use super::super::PostgresStore;
use super::super::groups::known;
use super::super::read::{place, rows_max};
use super::super::slots::micros_of;
use super::super::types::Micros;
use super::row::{job_at, number_of, stamp_of, state_of};
use ensue_core::jobs::{JOB_SCAN_MAX, Job, JobCount, JobId, JobLine, JobNumber, JobPage, JobQuery, Server};
use ensue_core::positions::Level;
use ensue_core::room::Room;
use ensue_core::{GroupName, ObjectKey, StoreError, Timestamp};
use jiff::SignedDuration;
use tokio_postgres::Row;

impl PostgresStore {
    pub(super) async fn read_job(&self, id: JobId) -> Result<Option<Job>, StoreError> {
        self.one_job(&self.sql.jobs.job, id).await
    }

    pub(super) async fn job_before(&self, id: JobId) -> Result<Option<Job>, StoreError> {
        self.one_job(&self.sql.jobs.predecessor, id).await
    }

    async fn one_job(&self, sql: &str, id: JobId) -> Result<Option<Job>, StoreError> {
        let rows = self.server.query(sql, &[&number_of(id), &stamp_of(id)]).await?;
        rows.first().map_or(Ok(None), |row| job_at(row, 0))
    }

    pub(super) async fn page_of_jobs(&self, query: &JobQuery, limit: usize) -> Result<JobPage, StoreError> {
        let states =
            (!query.states.is_empty()).then(|| query.states.iter().map(|state| state.as_str()).collect::<Vec<_>>());
        let (handler, object) =
            (query.handler.as_ref().map(GroupName::as_str), query.object.as_ref().map(ObjectKey::as_str));
        let (after, limit) = (place(query.after.unwrap_or(0)), rows_max(limit).max(1));
        let page = match (query.holding, object) {
            (true, _) => &self.sql.jobs.jobs_holding,
            (false, Some(_)) => &self.sql.jobs.jobs_of_object,
            (false, None) => &self.sql.jobs.jobs,
        };
        let (scanned, cause) = (JOB_SCAN_MAX as i64, query.cause.map(place));
        let rows = self.server.query(page, &[&after, &scanned, &limit, &states, &handler, &object, &cause]).await?;
        let mut room = Room::of_a_page();
        let mut jobs: Vec<Job> = Vec::new();
        for row in &rows {
            let Some(job) = job_at(row, 3)? else { break };
            if jobs.len() as i64 == limit || !room.take(job.payload.as_str().len()) {
                let before = row.get::<_, Option<i64>>(2).unwrap_or(after);
                return Ok(JobPage { jobs, next: Some(before as JobNumber) });
            }
            jobs.push(job);
        }
        // All that was looked at is told; is there more?
        let next = rows.first().filter(|row| row.get::<_, Option<i64>>(1).is_some());
        let next = next.and_then(|row| row.get::<_, Option<i64>>(0));
        Ok(JobPage { jobs, next: next.map(|last| last as JobNumber) })
    }

    pub(super) async fn lines_of_job(&self, id: JobId, after: u64, limit: usize) -> Result<Vec<JobLine>, StoreError> {
        let params = (number_of(id), stamp_of(id), place(after), rows_max(limit));
        let rows = self.server.query(&self.sql.jobs.lines, &[&params.0, &params.1, &params.2, &params.3]).await?;
        rows.iter().map(line).collect()
    }

    pub(super) async fn count_jobs(&self) -> Result<Vec<JobCount>, StoreError> {
        let rows = self.server.query(&self.sql.jobs.counts, &[]).await?;
        let count = |row: &Row| {
            let (handler, count) = (GroupName::stored(row.get(0)), row.get::<_, i64>(2) as u64);
            Ok(JobCount { handler, state: state_of(row.get(1))?, count })
        };
        let mut counts = rows.iter().map(count).collect::<Result<Vec<_>, StoreError>>()?;
        counts.sort_by(|one, other| (&one.handler, one.state).cmp(&(&other.handler, other.state)));
        Ok(counts)
    }

    pub(super) async fn note_servers(&self, handlers: &[GroupName], lease: SignedDuration) -> Result<(), StoreError> {
        let handlers: Vec<&str> = handlers.iter().map(GroupName::as_str).collect();
        let (now, lease) = (self.clock_time(), micros_of(lease));
        self.server.query(&self.sql.jobs.serve, &[&now, &lease, &handlers]).await.map(drop)
    }

    pub(super) async fn read_servers(&self) -> Result<Vec<Server>, StoreError> {
        let rows = self.server.query(&self.sql.jobs.servers, &[]).await?;
        let server = |row: &Row| Server { handler: GroupName::stored(row.get(0)), until: row.get::<_, Micros>(1).0 };
        Ok(rows.iter().map(server).collect())
    }

    /// What a lost try has forgotten is not counted again.
    pub(super) async fn forget_jobs(
        &self,
        are_tasks: bool,
        before: Timestamp,
        keep: u64,
        limit: usize,
    ) -> Result<usize, StoreError> {
        let params = (Micros(before), place(keep), rows_max(limit));
        let row = self.server.query_one(&self.sql.jobs.purge, &[&are_tasks, &params.0, &params.1, &params.2]).await?;
        Ok(row.get::<_, i64>(0) as usize)
    }
}

fn line(row: &Row) -> Result<JobLine, StoreError> {
    Ok(JobLine {
        line: row.get::<_, i64>(0) as u64,
        attempt: row.get::<_, i32>(1) as u32,
        at: row.get::<_, Micros>(2).0,
        level: known(row.get(3), Level::stored)?,
        message: row.get(4),
    })
}
