//! How is something brought back that stands still?

use crate::Ensue;
use crate::error::Error;
use ensue_core::jobs::{Job, JobQuery, JobState, Steer};
use ensue_core::positions::{Ask, GroupKind, LaneKey, LaneQuery, LaneRow, LaneState, StuckPlace};
use ensue_core::{GroupName, ObjectKey, Seq, StoreError, Timestamp};
use std::fmt;

/// How many lanes of one object are looked at: more handlers than anybody has.
const LANES_MAX: usize = 10_000;

/// What stands still.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stuck {
    /// An object: the event that its lane stands at is meant.
    Object(ObjectKey),
    /// One event.
    Event(Seq),
}

impl From<&LaneKey> for Stuck {
    fn from(lane: &LaneKey) -> Self {
        match lane {
            LaneKey::Object(object) => Self::Object(object.clone()),
            LaneKey::Event(seq) => Self::Event(*seq),
        }
    }
}

impl fmt::Display for Stuck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Object(object) => write!(f, "the object `{object}`"),
            Self::Event(seq) => write!(f, "event {seq}"),
        }
    }
}

/// A lane that stands still.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HeldLane {
    /// Of events, at one that its handler failed.
    Events(LaneRow),
    /// Of jobs, at one that failed.
    Jobs {
        /// As it was.
        job: Box<Job>,
        /// What was asked of it, if that was done just now.
        ask: Option<Ask>,
    },
}

impl HeldLane {
    /// The handler that it stands still for.
    pub fn handler(&self) -> &GroupName {
        match self {
            Self::Events(row) => &row.group,
            Self::Jobs { job, .. } => &job.handler,
        }
    }

    /// Its place in the list of what is held.
    pub fn place(&self) -> StuckPlace {
        match self {
            Self::Events(row) => StuckPlace::of(row),
            Self::Jobs { job, .. } => {
                let key = match (&job.object, &job.cause) {
                    (Some(object), _) => LaneKey::Object(object.clone()),
                    (None, cause) => LaneKey::Event(cause.as_ref().map_or(0, |cause| cause.seq)),
                };
                StuckPlace { since: self.since(), key, group: job.handler.clone() }
            }
        }
    }

    /// Since when.
    pub fn since(&self) -> Timestamp {
        match self {
            Self::Events(row) => row.since,
            Self::Jobs { job, .. } => job.finished_at.or(job.locked_at).unwrap_or(job.enqueued_at),
        }
    }

    /// Does it wait for somebody, and not only for its time?
    fn is_held(&self) -> bool {
        match self {
            Self::Events(row) => row.lane.state != LaneState::Waiting,
            Self::Jobs { job, .. } => job.state == JobState::Dead,
        }
    }

    fn of(job: Job) -> Self {
        Self::Jobs { job: Box::new(job), ask: None }
    }
}

impl Ensue {
    /// Lanes of events that wait for somebody, held or dead, the oldest first.
    pub async fn stuck(&self, limit: usize) -> Result<Vec<LaneRow>, Error> {
        Ok(self.store().lanes(LaneQuery::Stuck { group: None }, limit).await?)
    }

    /// Lanes of events and of jobs that wait for somebody, the oldest first: those that come after this place, if one is
    /// given.
    pub async fn held(&self, after: Option<StuckPlace>, limit: usize) -> Result<Vec<HeldLane>, Error> {
        let order = |place: &StuckPlace| (place.since, place.key.to_text(), place.group.to_string());
        let jobs = self.holding_jobs(None, None).await?.into_iter().map(HeldLane::of);
        let mut held: Vec<HeldLane> =
            jobs.filter(|one| after.as_ref().is_none_or(|after| order(&one.place()) > order(after))).collect();
        let query = after.map_or(LaneQuery::Stuck { group: None }, LaneQuery::StuckAfter);
        held.extend(self.store().lanes(query, limit).await?.into_iter().map(HeldLane::Events));
        held.sort_by_cached_key(|one| order(&one.place()));
        held.truncate(limit);
        Ok(held)
    }

    /// Asks a handler to run something again, or to skip it; answers with the lane as it was. Without a handler, the one
    /// that holds it is meant, if it is the only one. What only waits for its time can be asked, too, of a handler by name.
    /// A job is brought back or skipped at once, an event by who runs the handler.
    pub async fn ask_stuck(&self, stuck: &Stuck, handler: Option<&GroupName>, ask: Ask) -> Result<HeldLane, Error> {
        let mut all = self.open_lanes(stuck).await?;
        all.extend(self.open_jobs(stuck, handler).await?.into_iter().map(HeldLane::of));
        let lane = match handler {
            Some(handler) => {
                let found = all.into_iter().find(|lane| lane.handler() == handler);
                found
                    .ok_or_else(|| not_found(format!("nothing of {stuck} stands still for the handler `{handler}`")))?
            }
            None => {
                let mut held: Vec<HeldLane> = all.into_iter().filter(HeldLane::is_held).collect();
                match held.len() {
                    0 => return Err(not_found(format!("nothing of {stuck} is held"))),
                    1 => held.remove(0),
                    _ => {
                        let names: Vec<&str> = held.iter().map(|lane| lane.handler().as_str()).collect();
                        let which = format!("{stuck} is held for several handlers: name one of {}", names.join(", "));
                        return Err(StoreError::Conflict(which).into());
                    }
                }
            }
        };
        match lane {
            HeldLane::Events(row) => {
                let asked = self.ask_lane(&row.group, &row.lane.key, ask).await?;
                // Whoever runs it has brought it on in the meantime.
                asked.map(HeldLane::Events).ok_or_else(|| not_found(format!("{stuck} went on meanwhile")))
            }
            HeldLane::Jobs { job, .. } => {
                let steer = match ask {
                    Ask::Retry => Steer::Retry,
                    Ask::Skip => Steer::Skip,
                };
                self.steer_job(job.id, steer).await?;
                Ok(HeldLane::Jobs { job, ask: Some(ask) })
            }
        }
    }

    /// Asks it of a lane, and lets whoever runs it here hear of it.
    async fn ask_lane(&self, group: &GroupName, key: &LaneKey, ask: Ask) -> Result<Option<LaneRow>, Error> {
        let asked = self.store().ask_lane(group, key, ask).await?;
        if let Some(deliveries) = self.inner().deliveries().as_ref() {
            deliveries.asked();
        }
        Ok(asked)
    }

    /// The lanes of something that are not only marks of what is done.
    async fn open_lanes(&self, stuck: &Stuck) -> Result<Vec<HeldLane>, Error> {
        let store = self.store();
        let mut rows = Vec::new();
        match stuck {
            Stuck::Object(object) => rows = store.lanes(LaneQuery::Object(object.clone()), LANES_MAX).await?,
            Stuck::Event(seq) => {
                for group in store.groups().await?.into_iter().filter(|group| group.kind == GroupKind::Handler) {
                    rows.extend(store.lanes(LaneQuery::One(group.name, LaneKey::Event(*seq)), 1).await?);
                }
                let object = self.event(*seq).await?.and_then(|event| event.object);
                if let Some(object) = object {
                    let of_object = store.lanes(LaneQuery::Object(object), LANES_MAX).await?;
                    rows.extend(of_object.into_iter().filter(|row| row.lane.position == *seq));
                }
            }
        }
        rows.retain(|row| row.lane.state != LaneState::Done);
        Ok(rows.into_iter().map(HeldLane::Events).collect())
    }

    /// The jobs of something that have died, and, of a handler that is named, those that wait for their time: the first of
    /// each lane.
    async fn open_jobs(&self, stuck: &Stuck, handler: Option<&GroupName>) -> Result<Vec<Job>, Error> {
        let mut jobs = match (stuck, handler) {
            (Stuck::Object(object), None) => self.holding_jobs(None, Some(object)).await?,
            (Stuck::Object(object), Some(handler)) => {
                let (object, handler) = (Some(object.clone()), Some(handler.clone()));
                let states = vec![JobState::Dead, JobState::Retrying, JobState::Scheduled];
                let mut jobs = self.all_jobs(JobQuery { states, handler, object, ..JobQuery::default() }).await?;
                jobs.retain(|job| job.ordered && job.turn.is_some());
                jobs
            }
            (Stuck::Event(seq), _) => {
                let object = self.event(*seq).await?.and_then(|event| event.object);
                let jobs = self.jobs_of_event(*seq, object).await?.into_values();
                let is_open =
                    |job: &Job| matches!(job.state, JobState::Dead | JobState::Retrying | JobState::Scheduled);
                jobs.filter(is_open).collect()
            }
        };
        jobs.sort_by(|one, other| (&one.handler, one.turn).cmp(&(&other.handler, other.turn)));
        jobs.dedup_by(|later, first| later.handler == first.handler);
        Ok(jobs)
    }
}

fn not_found(what: String) -> Error {
    Error::NotFound(format!("{what}: look at the list of what is held"))
}
