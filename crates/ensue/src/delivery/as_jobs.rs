//! How do the jobs stand that deliveries became, and which of them hold their object?

use super::report::DeliveryReport;
use crate::Ensue;
use crate::error::Error;
use crate::handlers::info;
use ensue_core::handling::{Standing, verdict_of_job};
use ensue_core::jobs::{Job, JobQuery, JobState};
use ensue_core::{GroupName, ObjectKey, Seq, StoreError};
use std::collections::HashMap;

/// How many jobs are asked for at once.
const PAGE: usize = 1_000;

impl Ensue {
    /// Tells of deliveries that became jobs what became of those. One whose job is forgotten stays done.
    pub(super) async fn add_jobs(&self, seq: Seq, reports: &mut [DeliveryReport]) -> Result<(), Error> {
        if !reports.iter().any(|report| self.may_be_job(report)) {
            return Ok(());
        }
        let object = self.event(seq).await?.and_then(|event| event.object);
        let mut jobs = self.jobs_of_event(seq, object).await?;
        for report in reports.iter_mut().filter(|report| self.may_be_job(report)) {
            let Some(job) = jobs.remove(&report.handler) else { continue };
            let before = match job.state {
                JobState::Parked => self.store().predecessor(job.id).await?,
                _ => None,
            };
            report.verdict = verdict_of_job(&job, before.as_ref());
            report.note = Some(format!("it became job {}", job.id));
            report.job = Some(Box::new(job));
        }
        Ok(())
    }

    /// Is the handler done with it in that it may have made a job of it? A handler that others run may be any.
    fn may_be_job(&self, report: &DeliveryReport) -> bool {
        matches!(report.verdict.standing, Standing::Done | Standing::Passed)
            && self.inner().handlers.find(&report.handler).is_none_or(|spec| info(&spec).pull)
    }

    /// The jobs that an event became, by handler; the newest where a part of the log was run again. There is no index for
    /// it: all jobs are looked through, or those of its object where the engine can.
    pub(super) async fn jobs_of_event(
        &self,
        seq: Seq,
        object: Option<ObjectKey>,
    ) -> Result<HashMap<GroupName, Job>, StoreError> {
        let jobs = self.all_jobs(JobQuery { cause: Some(seq), object, ..JobQuery::default() }).await?;
        // Newer ones come later, and take the place of those before them.
        Ok(jobs.into_iter().map(|job| (job.handler.clone(), job)).collect())
    }

    /// The jobs that have died and keep the others of their object waiting: of a handler, or of all; of an object, or of all.
    pub(super) async fn holding_jobs(
        &self,
        handler: Option<&GroupName>,
        object: Option<&ObjectKey>,
    ) -> Result<Vec<Job>, StoreError> {
        let query =
            JobQuery { handler: handler.cloned(), object: object.cloned(), holding: true, ..JobQuery::default() };
        let mut jobs = self.all_jobs(query).await?;
        // Those of handlers below it are others'.
        jobs.retain(|job| handler.is_none_or(|handler| job.handler == *handler));
        Ok(jobs)
    }

    /// All jobs that a query finds, page by page to the end.
    pub(super) async fn all_jobs(&self, mut query: JobQuery) -> Result<Vec<Job>, StoreError> {
        let mut jobs = Vec::new();
        loop {
            let page = self.store().jobs(query.clone(), PAGE).await?;
            jobs.extend(page.jobs);
            match page.next {
                Some(next) => query.after = Some(next),
                None => return Ok(jobs),
            }
        }
    }
}
