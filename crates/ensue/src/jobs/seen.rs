//! What is told of a job to whoever looks at it?
//!
//! Where it stands, and what holds it in few words. What many jobs have in common (the rules, who serves their handlers, the
//! job that a whole lane waits for) is asked once for a page of them.

use crate::Ensue;
use crate::error::Error;
use crate::handlers::info;
use ensue_core::explain::{JobFacts, held_by};
use ensue_core::jobs::{Enqueued, Job, JobCount, JobId, JobNumber, JobQuery, JobState, Progress, Server, seen};
use ensue_core::positions::GroupKind;
use ensue_core::rules::RuleSet;
use ensue_core::{GroupName, ObjectKey, StoreError, Timestamp};
use std::collections::HashMap;

/// A job with what is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenJob {
    /// The job as it is stored.
    pub job: Job,
    /// Where it stands: one that could run but for a rule is parked.
    pub state: JobState,
    /// What holds it, in few words.
    pub held_by: Option<String>,
    /// How far it is, or was when it ended.
    pub progress: Option<Progress>,
}

/// A page of jobs with what is told of each.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeenPage {
    /// In the order in which they were sent. May be empty although more would follow.
    pub jobs: Vec<SeenJob>,
    /// The `after` of the next page; none if there is nothing behind this one.
    pub next: Option<JobNumber>,
}

/// What is around a job: looked up when it is needed, and once.
pub(crate) struct Around<'a> {
    bus: &'a Ensue,
    pub now: Timestamp,
    pub rules: RuleSet,
    servers: Option<Vec<Server>>,
    counts: Option<Vec<JobCount>>,
    /// What the jobs of a lane wait for: the one that runs, or the first.
    first: HashMap<(GroupName, ObjectKey), Job>,
    pulls: HashMap<GroupName, bool>,
}

impl<'a> Around<'a> {
    pub async fn new(bus: &'a Ensue) -> Result<Self, StoreError> {
        let (now, rules) = (bus.store().now().await?, bus.store().rules().await?);
        Ok(Self { bus, now, rules, servers: None, counts: None, first: HashMap::new(), pulls: HashMap::new() })
    }

    /// Where a job stands.
    pub fn state_of(&self, job: &Job) -> JobState {
        seen(job.state, self.rules.holding(&job.handler, job.object.as_ref(), self.now).is_some())
    }

    /// What becomes of the facts about a job.
    pub async fn about<T>(&mut self, job: &Job, told: impl FnOnce(&JobFacts<'_>) -> T) -> Result<T, StoreError> {
        let predecessor = match job.state {
            JobState::Parked => self.predecessor(job).await?,
            _ => None,
        };
        let waits = job.state == JobState::Available;
        let (served_until, running) = if waits { self.workers(&job.handler).await? } else { (None, 0) };
        let is_pull = waits && served_until.is_none() && self.is_pull(&job.handler).await?;
        let rules = self.rules.all_holding(&job.handler, job.object.as_ref(), self.now);
        let facts = JobFacts {
            job,
            predecessor: predecessor.as_ref(),
            rules: &rules,
            served_until,
            is_pull,
            running,
            now: self.now,
        };
        Ok(told(&facts))
    }

    /// The job that goes before this one. All that wait in a lane wait for the same one.
    async fn predecessor(&mut self, job: &Job) -> Result<Option<Job>, StoreError> {
        let lane = job.object.clone().filter(|_| job.ordered).map(|object| (job.handler.clone(), object));
        if let Some(first) = lane.as_ref().and_then(|lane| self.first.get(lane)).filter(|first| first.id != job.id) {
            return Ok(Some(first.clone()));
        }
        let first = self.bus.store().predecessor(job.id).await?;
        if let (Some(lane), Some(first)) = (lane, &first) {
            self.first.insert(lane, first.clone());
        }
        Ok(first)
    }

    /// Until when somebody was said to run a handler's jobs, and how many run.
    async fn workers(&mut self, handler: &GroupName) -> Result<(Option<Timestamp>, u64), StoreError> {
        let servers = match self.servers.take() {
            Some(servers) => servers,
            None => self.bus.store().job_servers().await?,
        };
        let until = servers.iter().find(|server| server.handler == *handler).map(|server| server.until);
        self.servers = Some(servers);
        if until.is_none_or(|until| until <= self.now) {
            // Nobody serves it: how many run is of no interest, and to count is the dearest question of all.
            return Ok((until, 0));
        }
        let counts = match self.counts.take() {
            Some(counts) => counts,
            None => self.bus.store().job_counts().await?,
        };
        let is_running = |count: &&JobCount| count.handler == *handler && count.state == JobState::Running;
        let running = counts.iter().find(is_running).map_or(0, |count| count.count);
        self.counts = Some(counts);
        Ok((until, running))
    }

    /// Is it a handler of events whose deliveries become jobs? No other handler has both a group and jobs.
    async fn is_pull(&mut self, handler: &GroupName) -> Result<bool, StoreError> {
        if let Some(known) = self.pulls.get(handler) {
            return Ok(*known);
        }
        let group = self.bus.store().group(handler).await?;
        let is_pull = group.is_some_and(|group| group.kind == GroupKind::Handler)
            || self.bus.inner().handlers.find(handler).is_some_and(|spec| info(&spec).pull)
            || self.bus.inner().handlers.is_pulled_collection(handler);
        self.pulls.insert(handler.clone(), is_pull);
        Ok(is_pull)
    }

    async fn tell(&mut self, job: Job) -> Result<SeenJob, StoreError> {
        let state = self.state_of(&job);
        let held_by = self.about(&job, held_by).await?;
        Ok(SeenJob { job, state, held_by, progress: None })
    }

    /// How far each of them is: asked once for all that have begun.
    async fn add_progress(&self, jobs: &mut [SeenJob]) -> Result<(), StoreError> {
        let mut begun: Vec<&mut SeenJob> = jobs.iter_mut().filter(|seen| seen.job.started_at.is_some()).collect();
        if begun.is_empty() {
            return Ok(());
        }
        let ids: Vec<JobId> = begun.iter().map(|seen| seen.job.id).collect();
        let progress = self.bus.store().progress(&ids).await?;
        begun.iter_mut().zip(progress).for_each(|(seen, progress)| seen.progress = progress);
        Ok(())
    }
}

impl Ensue {
    /// A job, with where it stands and what holds it.
    pub async fn seen_job(&self, id: JobId) -> Result<Option<SeenJob>, Error> {
        match self.job(id).await? {
            Some(job) => Ok(Some(self.tell_job(job).await?)),
            None => Ok(None),
        }
    }

    /// Where jobs that were sent stand for whoever looks: one that only a rule keeps from running is parked. Nothing is looked
    /// up where there are no rules.
    pub async fn seen_states(&self, sent: &[Enqueued]) -> Result<Vec<JobState>, Error> {
        let around = Around::new(self).await?;
        let mut states: Vec<JobState> = sent.iter().map(|job| job.state).collect();
        if around.rules.is_empty() {
            return Ok(states);
        }
        for (state, sent) in states.iter_mut().zip(sent).filter(|(state, _)| **state == JobState::Available) {
            if let Some(job) = self.job(sent.id).await? {
                let rule = around.rules.holding(&job.handler, job.object.as_ref(), around.now);
                *state = seen(*state, rule.is_some());
            }
        }
        Ok(states)
    }

    /// What is told of a job that was looked up before.
    pub async fn tell_job(&self, job: Job) -> Result<SeenJob, Error> {
        let mut around = Around::new(self).await?;
        let mut seen = around.tell(job).await?;
        around.add_progress(std::slice::from_mut(&mut seen)).await?;
        Ok(seen)
    }

    /// A page of jobs, in the order in which they were sent, by where they stand for whoever looks.
    pub async fn seen_jobs(&self, query: &JobQuery, limit: usize) -> Result<SeenPage, Error> {
        let mut around = Around::new(self).await?;
        let page = self.store().jobs(query.stored(), limit).await?;
        let mut jobs = Vec::with_capacity(page.jobs.len());
        for job in page.jobs {
            if query.is_seen(around.state_of(&job)) {
                jobs.push(around.tell(job).await?);
            }
        }
        around.add_progress(&mut jobs).await?;
        Ok(SeenPage { jobs, next: page.next })
    }
}
