//! How is a job called off, brought back, or passed over?
//!
//! The arrows of `lifecycle::after` are sent along, so that the server only follows them (`sql/fn_jobs_steer.sql`).

use super::super::PostgresStore;
use super::super::words::word;
use super::call::Call;
use super::row::{job_at, number_of, stamp_of};
use ensue_core::StoreError;
use ensue_core::jobs::lifecycle::{Arrow, after};
use ensue_core::jobs::{JobId, JobState, Steer, Steered};
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// Said of a job that is to be brought back while another has its key.
const KEY_IS_TAKEN: &str = "a live job has its unique_key: cancel that one, or wait for its end";
/// Said of a dead job that is to be skipped.
const HOLDS_NOTHING: &str = "it holds nothing back: nothing is left to skip";

impl PostgresStore {
    pub(super) async fn steer_jobs(&self, ids: &[JobId], steer: Steer) -> Result<Vec<Steered>, StoreError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let numbers: Vec<i64> = ids.iter().map(|id| number_of(*id)).collect();
        let stamps: Vec<i64> = ids.iter().map(|id| stamp_of(*id)).collect();
        let from = JobState::ALL.map(JobState::as_str);
        let to = JobState::ALL.map(|state| word(after(state, steer.input())));
        let (from, to) = (from.as_slice(), to.as_slice());
        let (mut call, now) = (Call::new("jobs were steered"), self.clock_time());
        let (id, ring) = (call.id, self.bell.has_others());
        let params: [&(dyn ToSql + Sync); 8] = [&now, &id, &false, &numbers, &stamps, &from, &to, &ring];
        let rows = call.until_answered(&self.moving, &self.sql.jobs.steer, &params, Some(2)).await?;
        self.looks.demand_full();
        rows.iter().map(|row| steered(row, steer)).collect()
    }
}

fn steered(row: &Row, steer: Steer) -> Result<Steered, StoreError> {
    let Some(job) = job_at(row, 1)? else { return Ok(Steered::Unknown) };
    let why = match row.get::<_, &str>(0) {
        "done" => return Ok(Steered::Done(Box::new(job))),
        "unknown" => return Ok(Steered::Unknown),
        "key" => KEY_IS_TAKEN,
        "nothing" => HOLDS_NOTHING,
        other => match after(job.state, steer.input()) {
            Arrow::Refused(why) => why,
            Arrow::To(_) | Arrow::Signal | Arrow::LetGo => {
                return Err(StoreError::Engine(format!("a job was steered with the answer `{other}`")));
            }
        },
    };
    Ok(Steered::Refused(Box::new(job), why))
}
