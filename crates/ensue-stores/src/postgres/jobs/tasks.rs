//! Which tasks were made when, and how far is each job?

use super::super::PostgresStore;
use super::super::read::{place, rows_max};
use super::super::schema::Schema;
use super::super::types::Micros;
use super::row::{job_at, number_of, stamp_of};
use ensue_core::jobs::{Held, Job, JobId, Progress};
use ensue_core::room::Room;
use ensue_core::tasks::TaskQuery;
use ensue_core::{StoreError, Timestamp};
use tokio_postgres::Row;

/// The statements, for one schema.
#[derive(Debug)]
pub(in super::super) struct TasksSql {
    tasks: String,
    report: String,
    progress: String,
}

impl TasksSql {
    pub fn of(schema: &Schema) -> Self {
        let sql = |template: &str| schema.fill(template);
        Self {
            tasks: sql(include_str!("../sql/tasks.sql")),
            // The row is locked: nobody takes the job over while it is written. What was said later stays, and is answered all the same.
            report: sql("INSERT INTO {schema}.job_progress AS p (number, done, total, unit, at) \
                 SELECT j.number, $4, $5, $6, $7 FROM {schema}.jobs j WHERE j.number = $1 AND j.stamp = $2 AND j.fence = $3 \
                 AND coalesce(j.state, '') = 'running' FOR SHARE OF j \
                 ON CONFLICT (number) DO UPDATE SET (done, total, unit, at) = (SELECT n.done, n.total, n.unit, n.at FROM (VALUES \
                 (1, excluded.done, excluded.total, excluded.unit, excluded.at), (0, p.done, p.total, p.unit, p.at)) \
                 n(is_new, done, total, unit, at) ORDER BY n.at DESC, n.is_new DESC LIMIT 1) RETURNING p.number"),
            progress: sql("SELECT p.done, p.total, p.unit, p.at \
                 FROM unnest($1::bigint[], $2::bigint[]) WITH ORDINALITY k(number, stamp, n) \
                 LEFT JOIN {schema}.jobs j ON j.number = k.number AND j.stamp = k.stamp \
                 LEFT JOIN {schema}.job_progress p ON p.number = j.number ORDER BY k.n"),
        }
    }
}

impl PostgresStore {
    pub(super) async fn read_tasks(&self, query: &TaskQuery, limit: usize) -> Result<Vec<Job>, StoreError> {
        let (first, last) = query.handlers();
        let states =
            (!query.states.is_empty()).then(|| query.states.iter().map(|state| state.as_str()).collect::<Vec<_>>());
        let (from, to) = (Micros(query.from), Micros(query.to));
        let (at, number) = query.after.unwrap_or((Timestamp::UNIX_EPOCH, 0));
        // Without a place to go on after, whatever is from the beginning on is after it.
        let (after, number) = if query.after.is_some() { (Micros(at), place(number)) } else { (from, -1) };
        let limit = rows_max(limit);
        let rows = self
            .server
            .query(&self.sql.tasks.tasks, &[&first, &last, &from, &to, &after, &number, &states, &limit])
            .await?;
        let mut room = Room::of_a_page();
        let mut jobs = Vec::with_capacity(rows.len());
        for row in &rows {
            let Some(job) = job_at(row, 0)? else { break };
            if !room.take(job.payload.as_str().len()) {
                break;
            }
            jobs.push(job);
        }
        Ok(jobs)
    }

    /// What is sent again is the same.
    pub(super) async fn write_progress(&self, held: Held, progress: &Progress) -> Result<bool, StoreError> {
        let (number, stamp, fence) = (number_of(held.id), stamp_of(held.id), place(held.fence));
        let (done, total, at) = (place(progress.done), progress.total.map(place), Micros(progress.at));
        let rows = self
            .server
            .query(&self.sql.tasks.report, &[&number, &stamp, &fence, &done, &total, &progress.unit, &at])
            .await?;
        Ok(!rows.is_empty())
    }

    pub(super) async fn read_progress(&self, ids: &[JobId]) -> Result<Vec<Option<Progress>>, StoreError> {
        let numbers: Vec<i64> = ids.iter().map(|id| number_of(*id)).collect();
        let stamps: Vec<i64> = ids.iter().map(|id| stamp_of(*id)).collect();
        let rows = self.server.query(&self.sql.tasks.progress, &[&numbers, &stamps]).await?;
        Ok(rows.iter().map(progress_of).collect())
    }
}

fn progress_of(row: &Row) -> Option<Progress> {
    let done = row.get::<_, Option<i64>>(0)?;
    Some(Progress {
        done: done as u64,
        total: row.get::<_, Option<i64>>(1).map(|total| total as u64),
        unit: row.get(2),
        at: row.get::<_, Micros>(3).0,
    })
}
