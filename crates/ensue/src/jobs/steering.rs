//! How are jobs found, called off and brought back?

use crate::Ensue;
use crate::error::Error;
use crate::jobs::Around;
use ensue_core::StoreError;
use ensue_core::jobs::lifecycle::{self, Arrow};
use ensue_core::jobs::{Job, JobId, JobLine, JobNumber, JobPage, JobQuery, JobState, Steer, Steered};

/// How many jobs are steered in one commit.
const BULK_BATCH: usize = 200;

/// Which jobs to steer together.
pub type BulkFilter = JobQuery;

/// What came of steering many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bulk {
    /// How many it was done to, or would be.
    pub matched: u64,
    /// How many were there and in a state that does not allow it.
    pub refused: u64,
}

/// That there is no such job, for whoever asked for it.
pub fn no_job(id: JobId) -> Error {
    Error::NotFound(format!("there is no job {id}; it may have been forgotten after its end"))
}

impl Ensue {
    /// A job.
    pub async fn job(&self, id: JobId) -> Result<Option<Job>, Error> {
        Ok(self.store().job(id).await?)
    }

    /// A page of jobs, by the order in which they were sent.
    pub async fn jobs(&self, query: JobQuery, limit: usize) -> Result<JobPage, Error> {
        Ok(self.store().jobs(query, limit).await?)
    }

    /// What a job said, after this line.
    pub async fn job_lines(&self, id: JobId, after: u64, limit: usize) -> Result<Vec<JobLine>, Error> {
        Ok(self.store().job_lines(id, after, limit).await?)
    }

    /// Calls a job off, brings it back, or lets its lane go on without it.
    pub async fn steer_job(&self, id: JobId, steer: Steer) -> Result<Job, Error> {
        let steered = self.steer_jobs(&[id], steer).await?.pop();
        match steered {
            Some(Steered::Done(job)) => Ok(*job),
            Some(Steered::Refused(_, why)) => Err(Error::Store(StoreError::Conflict(format!("job {id}: {why}")))),
            Some(Steered::Unknown) | None => Err(no_job(id)),
        }
    }

    async fn steer_jobs(&self, ids: &[JobId], steer: Steer) -> Result<Vec<Steered>, Error> {
        let steered = self.store().steer(ids, steer).await?;
        let inner = self.inner();
        for (id, steered) in ids.iter().zip(&steered) {
            if steer == Steer::Cancel && matches!(steered, Steered::Done(job) if job.state == JobState::Running) {
                inner.jobs.running.cancel(*id);
            }
        }
        inner.jobs.ring();
        Ok(steered)
    }

    /// Steers all jobs that a filter matches, in short commits; with `dry_run` only says how many there are.
    pub async fn steer_all(&self, filter: BulkFilter, steer: Steer, dry_run: bool) -> Result<Bulk, Error> {
        let mut bulk = Bulk::default();
        let mut after: Option<JobNumber> = filter.after;
        loop {
            let around = Around::new(self).await?;
            let mut page = self.jobs(JobQuery { after, ..filter.stored() }, BULK_BATCH).await?;
            page.jobs.retain(|job| filter.is_seen(around.state_of(job)));
            if dry_run {
                for job in &page.jobs {
                    match lifecycle::after(job.state, steer.input()) {
                        Arrow::Refused(_) => bulk.refused += 1,
                        // One that holds no lane has nothing to let go.
                        Arrow::LetGo if job.turn.is_none() => bulk.refused += 1,
                        Arrow::To(_) | Arrow::Signal | Arrow::LetGo => bulk.matched += 1,
                    }
                }
            } else if !page.jobs.is_empty() {
                let ids: Vec<JobId> = page.jobs.iter().map(|job| job.id).collect();
                for steered in self.steer_jobs(&ids, steer).await? {
                    match steered {
                        Steered::Done(_) => bulk.matched += 1,
                        Steered::Refused(..) => bulk.refused += 1,
                        Steered::Unknown => {}
                    }
                }
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(bulk),
            }
        }
    }
}
