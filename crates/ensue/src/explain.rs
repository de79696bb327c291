//! Why is this not running?
//!
//! Looks up what is known and lets the core say what it means (`ensue_core::explain`). Events are in `explain/events.rs`.

mod events;

pub use ensue_core::explain::{Explanation, Reason, ReasonKind, claim_jobs_of};
pub use events::{ExplainedDelivery, ExplainedEvent};

use crate::Ensue;
use crate::delivery::{done_to, is_wanted};
use crate::error::Error;
use crate::jobs::{Around, no_job};
use ensue_core::explain::{ObjectFacts, WaitingEvent, explain_job, explain_object};
use ensue_core::jobs::{Job, JobId, JobQuery, JobState};
use ensue_core::positions::{GroupKind, LaneQuery, LaneRow, LaneState, slot_of};
use ensue_core::store::Read;
use ensue_core::{Event, Filter, GroupName, ObjectKey, Seq};
use std::sync::Arc;

/// How many jobs of an object are explained at once.
const JOBS_MAX: usize = 100;
/// How many events of an object are looked at for those that handlers have not come to.
const EVENTS_MAX: usize = 1_000;
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

    /// The first event of an object that each handler wants and has not come to; of handlers that stand at it apart from
    /// the others, `lanes` tells.
    async fn not_come_to(&self, object: &ObjectKey, lanes: &[LaneRow]) -> Result<Vec<(GroupName, Seq)>, Error> {
        let (store, last) = (self.store(), self.store().bounds().await?.last);
        let mut behind = Vec::new();
        for group in store.groups().await?.into_iter().filter(|group| group.kind == GroupKind::Handler) {
            let slots = u16::try_from(group.slots.len()).unwrap_or(1);
            let slot = group.slots.iter().find(|state| state.slot == slot_of(Some(object), 0, slots));
            let Some(done_to) = slot.map(|slot| done_to(slot, slot.cursor + 1)).filter(|done_to| *done_to < last)
            else {
                continue;
            };
            if !lanes.iter().any(|row| row.group == group.name && row.lane.state != LaneState::Done) {
                behind.push((group.name, done_to));
            }
        }
        let Some(from) = behind.iter().map(|(_, done_to)| *done_to).min() else { return Ok(Vec::new()) };
        let filter = Filter { object: Some(object.clone()), ..Filter::default() };
        let events = store.read(Read { after: from, limit: EVENTS_MAX, filter }).await?.events;
        let events: Vec<Arc<Event>> = events.into_iter().map(Arc::new).collect();
        let mut missed = Vec::new();
        for (handler, done_to) in behind.into_iter().filter(|_| !events.is_empty()) {
            let subscription = store.subscriptions(&handler, None, 1).await?.into_iter().next();
            for event in events.iter().filter(|event| event.seq > done_to) {
                if is_wanted(event, subscription.as_ref()).await? == Ok(true) {
                    missed.push((handler, event.seq));
                    break;
                }
            }
        }
        Ok(missed)
    }

    /// Why an object does or does not go on: the rules on it, where handlers of events stand at it, its events that they have
    /// not come to, and its jobs.
    pub async fn explain_object(&self, object: &ObjectKey) -> Result<ExplainedObject, Error> {
        let store = self.store();
        let (now, rules) = (store.now().await?, store.rules().await?);
        let lanes = store.lanes(LaneQuery::Object(object.clone()), LANES_MAX).await?;
        let jobs = self.explain_jobs_of(object).await?;
        let missed = self.not_come_to(object, &lanes).await?;
        let waiting: Vec<WaitingEvent<'_>> = missed
            .iter()
            .map(|(handler, seq)| WaitingEvent { handler, seq: *seq, rules: rules.all_holding(handler, None, now) })
            .collect();
        let held_by = rules.all_holding_object(object, now);
        let facts = ObjectFacts { object, rules: &held_by, lanes: &lanes, waiting: &waiting, jobs: &jobs };
        Ok(ExplainedObject { explanation: explain_object(&facts), jobs })
    }
}
