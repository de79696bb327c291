//! What does a moody store say about jobs and rules? What its store does, when it is well.

use super::Moody;
use async_trait::async_trait;
use ensue::definitions::{Definition, Definitions, NewDefinition};
use ensue::jobs::{
    Claim, Enqueued, Held, Job, JobChange, JobCount, JobId, JobLine, JobPage, JobQuery, JobRenewed, JobSettled, Jobs,
    NewJob, Progress, Server, Steer, Steered, Woken,
};
use ensue::positions::Member;
use ensue::rules::{NewRule, Rule, RuleKind, RuleSet, Rules, Scope};
use ensue::schedules::{Declared, Declarer, Fired, Firing, Kept, PutSchedule, Run, Schedules};
use ensue::tasks::TaskQuery;
use ensue::{GroupName, StoreError, Timestamp};
use jiff::SignedDuration;
use uuid::Uuid;

#[async_trait]
impl Jobs for Moody {
    async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>, StoreError> {
        self.store().await?.enqueue(jobs).await
    }
    async fn claim(&self, claim: Claim) -> Result<Vec<Job>, StoreError> {
        self.store().await?.claim(claim).await
    }
    async fn renew_jobs(&self, held: &[Held], lease: SignedDuration) -> Result<Vec<Option<JobRenewed>>, StoreError> {
        self.store().await?.renew_jobs(held, lease).await
    }
    async fn settle_jobs(&self, changes: Vec<JobChange>) -> Result<Vec<JobSettled>, StoreError> {
        self.store().await?.settle_jobs(changes).await
    }
    async fn say(&self, held: Held, lines: Vec<JobLine>) -> Result<bool, StoreError> {
        self.store().await?.say(held, lines).await
    }
    async fn report(&self, held: Held, progress: Progress) -> Result<bool, StoreError> {
        self.store().await?.report(held, progress).await
    }

    async fn progress(&self, ids: &[JobId]) -> Result<Vec<Option<Progress>>, StoreError> {
        self.store().await?.progress(ids).await
    }

    async fn tasks(&self, query: TaskQuery, limit: usize) -> Result<Vec<Job>, StoreError> {
        self.store().await?.tasks(query, limit).await
    }

    async fn wake_jobs(&self, limit: usize) -> Result<Woken, StoreError> {
        self.store().await?.wake_jobs(limit).await
    }
    async fn steer(&self, ids: &[JobId], steer: Steer) -> Result<Vec<Steered>, StoreError> {
        self.store().await?.steer(ids, steer).await
    }
    async fn job(&self, id: JobId) -> Result<Option<Job>, StoreError> {
        self.store().await?.job(id).await
    }
    async fn jobs(&self, query: JobQuery, limit: usize) -> Result<JobPage, StoreError> {
        self.store().await?.jobs(query, limit).await
    }
    async fn predecessor(&self, id: JobId) -> Result<Option<Job>, StoreError> {
        self.store().await?.predecessor(id).await
    }
    async fn job_lines(&self, id: JobId, after: u64, limit: usize) -> Result<Vec<JobLine>, StoreError> {
        self.store().await?.job_lines(id, after, limit).await
    }
    async fn job_counts(&self) -> Result<Vec<JobCount>, StoreError> {
        self.store().await?.job_counts().await
    }
    async fn serve_jobs(&self, handlers: &[GroupName], lease: SignedDuration) -> Result<(), StoreError> {
        self.store().await?.serve_jobs(handlers, lease).await
    }
    async fn job_servers(&self) -> Result<Vec<Server>, StoreError> {
        self.store().await?.job_servers().await
    }
    async fn purge_tasks(&self, before: Timestamp, keep: u64, limit: usize) -> Result<usize, StoreError> {
        self.store().await?.purge_tasks(before, keep, limit).await
    }

    async fn purge_jobs(&self, before: Timestamp, keep: u64, limit: usize) -> Result<usize, StoreError> {
        self.store().await?.purge_jobs(before, keep, limit).await
    }
}

#[async_trait]
impl Rules for Moody {
    async fn set_rule(&self, rule: NewRule) -> Result<(Rule, bool), StoreError> {
        self.store().await?.set_rule(rule).await
    }
    async fn lift_rule(&self, kind: RuleKind, scope: &Scope, by: &str) -> Result<Option<Rule>, StoreError> {
        self.store().await?.lift_rule(kind, scope, by).await
    }
    async fn expire_rules(&self) -> Result<Vec<Rule>, StoreError> {
        self.store().await?.expire_rules().await
    }
    async fn rules(&self) -> Result<RuleSet, StoreError> {
        self.store().await?.rules().await
    }
    async fn rules_version(&self) -> Result<u64, StoreError> {
        self.store().await?.rules_version().await
    }
    async fn report_rules(&self, member: Uuid, version: u64) -> Result<(), StoreError> {
        self.store().await?.report_rules(member, version).await
    }
    async fn rules_awaited(&self, version: u64) -> Result<Vec<Member>, StoreError> {
        self.store().await?.rules_awaited(version).await
    }
}

#[async_trait]
impl Definitions for Moody {
    async fn define(&self, new: NewDefinition) -> Result<(Definition, bool), StoreError> {
        self.store().await?.define(new).await
    }
    async fn definitions(&self) -> Result<(u64, Vec<Definition>), StoreError> {
        self.store().await?.definitions().await
    }
    async fn definitions_version(&self) -> Result<u64, StoreError> {
        self.store().await?.definitions_version().await
    }
    async fn undefine(&self, key: &GroupName) -> Result<bool, StoreError> {
        self.store().await?.undefine(key).await
    }
}

#[async_trait]
impl Schedules for Moody {
    async fn put_schedule(&self, put: PutSchedule) -> Result<Option<Kept>, StoreError> {
        self.store().await?.put_schedule(put).await
    }
    async fn schedule(&self, name: &GroupName) -> Result<Option<Kept>, StoreError> {
        self.store().await?.schedule(name).await
    }
    async fn schedules(&self, after: Option<&GroupName>, limit: usize) -> Result<Vec<Kept>, StoreError> {
        self.store().await?.schedules(after, limit).await
    }
    async fn delete_schedule(&self, name: &GroupName) -> Result<bool, StoreError> {
        self.store().await?.delete_schedule(name).await
    }
    async fn due_schedules(&self, now: Timestamp, limit: usize) -> Result<Vec<Kept>, StoreError> {
        self.store().await?.due_schedules(now, limit).await
    }
    async fn next_schedule(&self) -> Result<Option<Timestamp>, StoreError> {
        self.store().await?.next_schedule().await
    }
    async fn fire(&self, firings: Vec<Firing>) -> Result<Vec<Fired>, StoreError> {
        self.store().await?.fire(firings).await
    }
    async fn schedule_runs(&self, name: &GroupName, before: Option<u64>, limit: usize) -> Result<Vec<Run>, StoreError> {
        self.store().await?.schedule_runs(name, before, limit).await
    }
    async fn declare_schedules(
        &self,
        process: Uuid,
        names: &[GroupName],
        lease: SignedDuration,
    ) -> Result<Declared, StoreError> {
        self.store().await?.declare_schedules(process, names, lease).await
    }
    async fn declarers(&self, name: Option<&GroupName>) -> Result<Vec<Declarer>, StoreError> {
        self.store().await?.declarers(name).await
    }
    async fn undeclare_schedules(&self, process: Uuid) -> Result<(), StoreError> {
        self.store().await?.undeclare_schedules(process).await
    }
}
