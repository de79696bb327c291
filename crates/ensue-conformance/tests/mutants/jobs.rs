//! What is wrong with how a mutant keeps jobs and rules?
//!
//! Most reach into the model: what they leave behind is what an engine with that fault would have on its disk.

use super::{Fault, Mutant};
use async_trait::async_trait;
use ensue_core::jobs::{
    Cause, Claim, Enqueued, Held, Job, JobChange, JobCount, JobEnd, JobId, JobLine, JobPage, JobQuery, JobRenewed,
    JobSettled, JobState, Jobs, NewJob, Progress, Server, Steer, Steered, Woken, notices,
};
use ensue_core::positions::Member;
use ensue_core::rules::{NewRule, Rule, RuleKind, RuleSet, Rules, Scope};
use ensue_core::tasks::TaskQuery;
use ensue_core::{EventId, GroupName, StoreError, Timestamp, Topic};
use jiff::SignedDuration;
use uuid::Uuid;

/// The jobs of each lane, the first in front.
fn lanes(jobs: &mut [Job]) -> Vec<Vec<&mut Job>> {
    let mut lanes: Vec<Vec<&mut Job>> = Vec::new();
    for job in jobs.iter_mut().filter(|job| job.in_lane() && job.turn.is_some()) {
        match lanes.iter_mut().find(|lane| lane[0].handler == job.handler && lane[0].object == job.object) {
            Some(lane) => lane.push(job),
            None => lanes.push(vec![job]),
        }
    }
    lanes.iter_mut().for_each(|lane| lane.sort_by_key(|job| job.turn));
    lanes
}

/// Lets the job at this place of every lane go in which nobody is at work, if the first is in such a state.
fn free(jobs: &mut [Job], place: usize, first_is: JobState) {
    for mut lane in lanes(jobs) {
        let at_work = lane.iter().any(|job| job.state == JobState::Running);
        if !at_work && lane[0].state == first_is && lane.get(place).is_some_and(|job| job.state == JobState::Parked) {
            lane[place].state = JobState::Available;
        }
    }
}

impl Mutant {
    fn after_settling(&self) {
        match self.fault {
            Fault::FreesTwoOfALane => self.model.tamper(|jobs, _| free(jobs, 1, JobState::Available)),
            Fault::GoesOnDuringARetry => self.model.tamper(|jobs, _| free(jobs, 1, JobState::Retrying)),
            Fault::DeadHoldNothing => self.model.tamper(|jobs, _| {
                free(jobs, 1, JobState::Dead);
                jobs.iter_mut().filter(|job| job.state == JobState::Dead).for_each(|job| job.turn = None);
            }),
            _ => {}
        }
    }

    /// What becomes of a change before it is settled, or what it is answered instead.
    async fn before_settling(&self, mut change: JobChange) -> Result<Result<JobChange, JobSettled>, StoreError> {
        let job = self.inner.job(change.held.id).await?;
        if let (Fault::SettlesUnderAnyFence, Some(job)) = (self.fault, &job) {
            change.held.fence = job.fence;
        }
        let is_late = job.is_some_and(|job| job.state == JobState::Cancelled && job.fence == change.held.fence);
        if self.fault == Fault::FinishesWhatIsCancelled && is_late {
            let is_it = |job: &&mut Job| job.id == change.held.id;
            self.model.tamper(|jobs, _| {
                jobs.iter_mut().filter(is_it).for_each(|job| job.state = JobState::Succeeded);
            });
            let (state, events, jobs) = (JobState::Succeeded, Vec::new(), Vec::new());
            return Ok(Err(JobSettled::Done { state, events, jobs }));
        }
        if self.fault == Fault::TakesWhatWasRenewed
            && let JobEnd::Lapsed { at, error } = change.end.clone()
        {
            change.end = match at {
                Some(at) => JobEnd::Retry { at, error },
                None => JobEnd::Dead { error },
            };
        }
        Ok(Ok(change))
    }

    async fn settle_all(&self, changes: Vec<JobChange>) -> Result<Vec<JobSettled>, StoreError> {
        if self.fault != Fault::TellsOfNoDeath {
            return self.inner.settle_jobs(changes).await;
        }
        // What follows from an event of Ensue's own is not told of.
        let own = || Cause { seq: 1, prev: None, id: EventId(Uuid::nil()), topic: Topic::stored("ensue") };
        let mut causes = Vec::new();
        self.model.tamper(|jobs, _| causes = jobs.iter_mut().map(|job| job.cause.replace(own())).collect());
        let settled = self.inner.settle_jobs(changes).await;
        self.model.tamper(|jobs, _| jobs.iter_mut().zip(causes).for_each(|(job, cause)| job.cause = cause));
        settled
    }

    async fn after_one(&self, change: JobChange, settled: &JobSettled) -> Result<(), StoreError> {
        let uses_none = matches!(change.end, JobEnd::Snoozed { .. } | JobEnd::GivenBack);
        match (settled, self.fault) {
            (JobSettled::LeaseLost, Fault::PublishesWithoutTheJob) if !change.events.is_empty() => {
                drop(self.inner.append(change.events).await);
            }
            (JobSettled::Refused(_), Fault::EndsWhatIsRefused) => {
                self.inner.settle_jobs(vec![JobChange::new(change.held, change.end)]).await?;
            }
            (JobSettled::Done { state: JobState::Cancelled, .. }, Fault::TellsOfTheCancelled) => {
                let job = self.inner.job(change.held.id).await?;
                let notice = job.and_then(|job| notices::job_dead(&Job { state: JobState::Dead, ..job }));
                self.inner.append(notice.into_iter().collect()).await?;
            }
            (JobSettled::Done { .. }, Fault::UsesAttemptsForNothing) if uses_none => self.model.tamper(|jobs, _| {
                jobs.iter_mut().filter(|job| job.id == change.held.id).for_each(|job| job.attempts += 1);
            }),
            _ => {}
        }
        Ok(())
    }
}

#[async_trait]
impl Jobs for Mutant {
    async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>, StoreError> {
        if let (Fault::NeverFreesAKey, [NewJob { handler, unique_key: Some(key), .. }]) = (self.fault, &jobs[..]) {
            let all = self.inner.jobs(JobQuery::default(), usize::MAX).await?.jobs;
            let is_it = |job: &&Job| job.handler == *handler && job.unique_key.as_ref() == Some(key);
            if let Some(there) = all.iter().find(is_it) {
                return Ok(vec![Enqueued { id: there.id, is_new: false, state: there.state }]);
            }
        }
        self.inner.enqueue(jobs).await
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<Job>, StoreError> {
        let (mut rules, mut priorities) = (Vec::new(), Vec::new());
        match self.fault {
            Fault::IgnoresRulesAtClaim => self.model.tamper(|_, there| rules = std::mem::take(there)),
            Fault::RoundsPriorities => self.model.tamper(|jobs, _| {
                priorities = jobs.iter().map(|job| job.priority).collect();
                jobs.iter_mut().for_each(|job| job.priority = (job.priority as f64) as u64);
            }),
            Fault::TakesTheNewestFirst => self.model.tamper(|jobs, _| {
                let is_free = |job: &&mut Job| job.state == JobState::Available && !job.in_lane();
                let mut free: Vec<&mut Job> = jobs.iter_mut().filter(is_free).collect();
                let turns: Vec<_> = free.iter().map(|job| job.turn).rev().collect();
                free.iter_mut().zip(turns).for_each(|(job, turn)| job.turn = turn);
            }),
            _ => {}
        }
        let mut taken = self.inner.claim(claim).await?;
        match self.fault {
            Fault::IgnoresRulesAtClaim => self.model.tamper(|_, there| *there = rules),
            Fault::RoundsPriorities => self.model.tamper(|jobs, _| {
                jobs.iter_mut().zip(&priorities).for_each(|(job, priority)| job.priority = *priority);
                for job in &mut taken {
                    job.priority = jobs.iter().find(|one| one.id == job.id).map_or(0, |one| one.priority);
                }
            }),
            Fault::CountsNoAttempts => {
                taken.iter_mut().for_each(|job| job.attempts -= 1);
                let is_taken = |job: &&mut Job| taken.iter().any(|one| one.id == job.id);
                self.model.tamper(|jobs, _| jobs.iter_mut().filter(is_taken).for_each(|job| job.attempts -= 1));
            }
            _ => {}
        }
        Ok(taken)
    }

    async fn renew_jobs(&self, held: &[Held], lease: SignedDuration) -> Result<Vec<Option<JobRenewed>>, StoreError> {
        let mut renewed = self.inner.renew_jobs(held, lease).await?;
        if self.fault == Fault::TellsNobodyToStop {
            renewed.iter_mut().flatten().for_each(|renewed| renewed.cancel = false);
        }
        Ok(renewed)
    }

    async fn settle_jobs(&self, changes: Vec<JobChange>) -> Result<Vec<JobSettled>, StoreError> {
        let (mut todo, mut answers) = (Vec::new(), Vec::new());
        for change in changes {
            match self.before_settling(change).await? {
                Ok(change) => todo.push((answers.len(), change)),
                Err(answer) => {
                    answers.push(answer);
                    continue;
                }
            }
            answers.push(JobSettled::LeaseLost);
        }
        let settled = self.settle_all(todo.iter().map(|(_, change)| change.clone()).collect()).await?;
        for ((place, change), settled) in todo.into_iter().zip(settled) {
            self.after_one(change, &settled).await?;
            answers[place] = settled;
        }
        self.after_settling();
        Ok(answers)
    }

    async fn say(&self, held: Held, lines: Vec<JobLine>) -> Result<bool, StoreError> {
        self.inner.say(held, lines).await
    }

    async fn report(&self, mut held: Held, progress: Progress) -> Result<bool, StoreError> {
        if let (Fault::ReportsUnderAnyFence, Some(job)) = (self.fault, self.inner.job(held.id).await?) {
            held.fence = job.fence;
        }
        self.inner.report(held, progress).await
    }

    async fn progress(&self, ids: &[JobId]) -> Result<Vec<Option<Progress>>, StoreError> {
        self.inner.progress(ids).await
    }

    async fn tasks(&self, query: TaskQuery, limit: usize) -> Result<Vec<Job>, StoreError> {
        let mut tasks = self.inner.tasks(query, limit).await?;
        if self.fault == Fault::ListsTasksAsTheyWereSent {
            tasks.sort_by_key(|job| job.id.number());
        }
        Ok(tasks)
    }

    async fn wake_jobs(&self, limit: usize) -> Result<Woken, StoreError> {
        if self.fault == Fault::KeepsTheOldPlaceOfTheDelayed {
            let has_none = |job: &&mut Job| job.state == JobState::Scheduled && job.turn.is_none();
            let now = self.inner.now().await?;
            self.model.tamper(|jobs, _| {
                let due = jobs.iter_mut().filter(has_none).filter(|job| job.not_before <= Some(now));
                due.for_each(|job| job.turn = Some(job.id.number()));
            });
        }
        let mut woken = self.inner.wake_jobs(limit).await?;
        if self.fault == Fault::FindsNoExpired {
            woken.expired.clear();
        }
        Ok(woken)
    }

    async fn steer(&self, ids: &[JobId], steer: Steer) -> Result<Vec<Steered>, StoreError> {
        let mut answers = Vec::new();
        for id in ids {
            let was_dead = self.inner.job(*id).await?.is_some_and(|job| job.state == JobState::Dead);
            let mut answer = self.inner.steer(&[*id], steer).await?;
            if self.fault == Fault::RedrivesAtTheEnd && was_dead && steer == Steer::Retry {
                self.model.tamper(|jobs, _| {
                    let last = jobs.iter().filter_map(|job| job.turn).max();
                    let Some(job) = jobs.iter_mut().find(|job| job.id == *id && job.state == JobState::Available)
                    else {
                        return;
                    };
                    job.turn = last.map(|last| last + 1);
                    if job.in_lane() {
                        job.state = JobState::Parked;
                        free(jobs, 0, JobState::Parked);
                    }
                });
                let job = self.inner.job(*id).await?;
                if let (Some(Steered::Done(told)), Some(job)) = (answer.first_mut(), job) {
                    **told = job;
                }
            }
            answers.append(&mut answer);
        }
        Ok(answers)
    }

    async fn job(&self, id: JobId) -> Result<Option<Job>, StoreError> {
        self.inner.job(id).await
    }

    async fn jobs(&self, query: JobQuery, limit: usize) -> Result<JobPage, StoreError> {
        self.inner.jobs(query, limit).await
    }

    async fn predecessor(&self, id: JobId) -> Result<Option<Job>, StoreError> {
        self.inner.predecessor(id).await
    }

    async fn job_lines(&self, id: JobId, after: u64, limit: usize) -> Result<Vec<JobLine>, StoreError> {
        let mut lines = self.inner.job_lines(id, after, limit).await?;
        if self.fault == Fault::CollapsesEqualLinesOfJobs {
            lines.dedup_by(|one, other| one.message == other.message);
        }
        Ok(lines)
    }

    async fn job_counts(&self) -> Result<Vec<JobCount>, StoreError> {
        self.inner.job_counts().await
    }

    async fn serve_jobs(&self, handlers: &[GroupName], lease: SignedDuration) -> Result<(), StoreError> {
        self.inner.serve_jobs(handlers, lease).await
    }

    async fn job_servers(&self) -> Result<Vec<Server>, StoreError> {
        self.inner.job_servers().await
    }

    async fn purge_tasks(&self, before: Timestamp, keep: u64, limit: usize) -> Result<usize, StoreError> {
        self.inner.purge_tasks(before, keep, limit).await
    }

    async fn purge_jobs(&self, before: Timestamp, keep: u64, limit: usize) -> Result<usize, StoreError> {
        if self.fault == Fault::PurgesWhatHoldsALane {
            let is_dead = |job: &&mut Job| job.state == JobState::Dead;
            self.model.tamper(|jobs, _| jobs.iter_mut().filter(is_dead).for_each(|job| job.turn = None));
        }
        self.inner.purge_jobs(before, keep, limit).await
    }
}

#[async_trait]
impl Rules for Mutant {
    async fn set_rule(&self, rule: NewRule) -> Result<(Rule, bool), StoreError> {
        let before = self.model_states();
        let answer = self.inner.set_rule(rule).await?;
        if self.fault == Fault::ParksNothingForARule {
            self.model.tamper(|jobs, _| {
                let was_free =
                    |id: JobId| before.iter().any(|(one, state)| *one == id && *state == JobState::Available);
                jobs.iter_mut().filter(|job| was_free(job.id)).for_each(|job| job.state = JobState::Available);
            });
        }
        Ok(answer)
    }

    async fn lift_rule(&self, kind: RuleKind, scope: &Scope, by: &str) -> Result<Option<Rule>, StoreError> {
        let before = self.model_states();
        let lifted = self.inner.lift_rule(kind, scope, by).await?;
        if self.fault == Fault::StrandsWhatWaited {
            self.model.tamper(|jobs, _| {
                let was_held = |id: JobId| before.iter().any(|(one, state)| *one == id && *state == JobState::Parked);
                let freed = jobs.iter_mut().filter(|job| job.state == JobState::Available && was_held(job.id));
                freed.skip(1).for_each(|job| job.state = JobState::Parked);
            });
        }
        Ok(lifted)
    }

    async fn expire_rules(&self) -> Result<Vec<Rule>, StoreError> {
        self.inner.expire_rules().await
    }

    async fn rules(&self) -> Result<RuleSet, StoreError> {
        self.inner.rules().await
    }

    async fn rules_version(&self) -> Result<u64, StoreError> {
        self.inner.rules_version().await
    }

    async fn report_rules(&self, member: Uuid, version: u64) -> Result<(), StoreError> {
        self.inner.report_rules(member, version).await
    }

    async fn rules_awaited(&self, version: u64) -> Result<Vec<Member>, StoreError> {
        if self.fault == Fault::AwaitsNobody {
            return Ok(Vec::new());
        }
        self.inner.rules_awaited(version).await
    }
}

impl Mutant {
    fn model_states(&self) -> Vec<(JobId, JobState)> {
        let mut states = Vec::new();
        self.model.tamper(|jobs, _| states = jobs.iter().map(|job| (job.id, job.state)).collect());
        states
    }
}
