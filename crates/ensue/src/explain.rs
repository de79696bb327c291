//! Why is this not running?
//!
//! Looks up what is known and lets the core say what it means (`ensue_core::explain`). Events are in `explain/events.rs`.

mod events;

pub use ensue_core::explain::{Explanation, Reason, ReasonKind};
pub use events::{ExplainedDelivery, ExplainedEvent};

use crate::Ensue;
use crate::error::Error;
use crate::jobs::{Around, no_job};
use ensue_core::ObjectKey;
use ensue_core::explain::{ObjectFacts, explain_job, explain_object};
use ensue_core::jobs::{Job, JobId, JobQuery, JobState};
use ensue_core::positions::LaneQuery;

/// How many jobs of an object are explained at once.
const JOBS_MAX: usize = 100;
/// How many handlers that stand at an object are told of.
const LANES_MAX: usize = 100;

/// The states of jobs that are not over, and that of those that wait for somebody.
const OPEN: [JobState; 6] =
    [JobState::Scheduled, JobState::Available, JobState::Running, JobState::Parked, JobState::Retrying, JobState::Dead];

/// Why an object does or does not go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExplainedObject {
    /// Why.
    pub explanation: Explanation,
    /// Its jobs that are not over, and those that died: the first 100.
    pub jobs: Vec<(Job, Explanation)>,
}

impl Ensue {
    /// Why a job does or does not run.
    pub async fn explain_job(&self, id: JobId) -> Result<Explanation, Error> {
        let job = self.job(id).await?.ok_or_else(|| no_job(id))?;
        Ok(Around::new(self).await?.about(&job, explain_job).await?)
    }

    /// What holds a job, in few words; none if nothing does.
    pub async fn job_held_by(&self, job: &Job) -> Result<Option<String>, Error> {
        Ok(Around::new(self).await?.about(job, ensue_core::explain::held_by).await?)
    }

    /// The jobs of an object that are not over, each with what holds it.
    pub async fn explain_jobs_of(&self, object: &ObjectKey) -> Result<Vec<(Job, Explanation)>, Error> {
        let mut query = JobQuery { object: Some(object.clone()), states: OPEN.to_vec(), ..JobQuery::default() };
        let mut around = Around::new(self).await?;
        let mut explained = Vec::new();
        loop {
            let page = self.jobs(query.clone(), JOBS_MAX - explained.len()).await?;
            for job in page.jobs {
                let explanation = around.about(&job, explain_job).await?;
                explained.push((job, explanation));
            }
            match page.next {
                Some(next) if explained.len() < JOBS_MAX => query.after = Some(next),
                Some(_) | None => return Ok(explained),
            }
        }
    }

    /// Why an object does or does not go on: the rule on it, where handlers of events stand at it, and its jobs.
    pub async fn explain_object(&self, object: &ObjectKey) -> Result<ExplainedObject, Error> {
        let store = self.store();
        let (now, rules) = (store.now().await?, store.rules().await?);
        let lanes = store.lanes(LaneQuery::Object(object.clone()), LANES_MAX).await?;
        let jobs = self.explain_jobs_of(object).await?;
        let facts = ObjectFacts { object, rule: rules.holding_object(object, now), lanes: &lanes, jobs: &jobs };
        Ok(ExplainedObject { explanation: explain_object(&facts), jobs })
    }
}
