//! What does each verb about jobs mean?

use super::work::Work;
use super::{Model, State};
use async_trait::async_trait;
use ensue_core::event::whole_microseconds;
use ensue_core::jobs::job::{CLAIM_HANDLERS_MAX, WORKER_BYTES_MAX};
use ensue_core::jobs::lifecycle::{Notified, notified};
use ensue_core::jobs::{
    Claim, Enqueued, Held, JOB_SCAN_MAX, Job, JobChange, JobCount, JobId, JobLine, JobPage, JobQuery, JobRenewed,
    JobSettled, JobState, NewJob, Outline, Progress, Server, Steer, Steered, Woken, notices,
};
use ensue_core::store::PAGE_BYTES_MAX;
use ensue_core::tasks::TaskQuery;
use ensue_core::tasks::has_task_prefix;
use ensue_core::text::check_text;
use ensue_core::{Appended, GroupName, Invalid, Jobs, StoreError, Timestamp};
use jiff::SignedDuration;

/// A lease may be longer than time.
fn later(now: Timestamp, lease: SignedDuration) -> Timestamp {
    let end = Timestamp::from_second(Timestamp::MAX.as_second()).expect("a second that there is");
    now.checked_add(lease).map_or(end, |until| whole_microseconds(until.min(end)))
}

impl State {
    /// One change: on a copy, so that it is all or nothing. The job has ended before its own jobs are sent.
    fn settle_job(&mut self, change: JobChange, clock: Timestamp) -> JobSettled {
        let now = whole_microseconds(clock);
        let held = self.work.held(change.held);
        let Some(place) = held.filter(|place| change.end.may_end(self.work.jobs[*place].lease_until, now)) else {
            return JobSettled::LeaseLost;
        };
        let mut changed = self.clone();
        match changed.write_job(place, change, clock) {
            Err(error) => JobSettled::Refused(error),
            Ok((events, jobs)) => {
                let state = changed.work.jobs[place].state;
                *self = changed;
                JobSettled::Done { state, events, jobs }
            }
        }
    }

    fn write_job(
        &mut self,
        place: usize,
        change: JobChange,
        clock: Timestamp,
    ) -> Result<(Vec<Appended>, Vec<Enqueued>), StoreError> {
        let (at, now) = (self.time(clock), whole_microseconds(clock));
        let events = change.events.into_iter().map(|entry| self.accept(entry, at)).collect::<Result<_, _>>()?;
        self.work.end(place, &change.end, change.result, now);
        self.work.say(change.held.id.number(), change.lines);
        let jobs = self.work.enqueue(change.jobs, now)?;
        Ok((events, jobs))
    }

    /// Tells of the jobs that are dead and were not before.
    fn tell_of_the_dead(&mut self, before: &[JobId], clock: Timestamp) {
        let at = self.time(clock);
        let died = |job: &&Job| job.state == JobState::Dead && !before.contains(&job.id);
        let notices: Vec<_> = self.work.jobs.iter().filter(died).flat_map(notices::job_ended).collect();
        for notice in notices {
            self.accept(notice, at).expect("a notice has no key");
        }
    }
}

impl Work {
    fn claim(&mut self, claim: &Claim, now: Timestamp) -> Vec<Job> {
        let rules = self.rule_set();
        let mut available: Vec<usize> = (0..self.jobs.len()).collect();
        available.retain(|place| {
            let job = &self.jobs[*place];
            let is_held = rules.holding_handler(&job.handler, now).is_some();
            job.state == JobState::Available && notified(Some(job.glance()), is_held, now) == Notified::Claim
        });
        available.sort_by_key(|place| (std::cmp::Reverse(self.jobs[*place].priority), self.jobs[*place].turn));
        let mut left = claim.handlers.clone();
        let mut taken = Vec::new();
        for place in available {
            let job = &mut self.jobs[place];
            let Some((_, left)) = left.iter_mut().find(|(handler, left)| *handler == job.handler && *left > 0) else {
                continue;
            };
            if taken.len() == claim.limit {
                break;
            }
            *left -= 1;
            job.state = JobState::Running;
            job.attempts += 1;
            job.fence += 1;
            job.locked_at = Some(now);
            job.started_at = job.started_at.or(Some(now));
            job.worker = Some(claim.worker.clone());
            job.lease_until = Some(later(now, claim.lease));
            job.settled = None;
            taken.push(job.clone());
        }
        taken
    }

    fn wake(&mut self, limit: usize, now: Timestamp) -> Woken {
        // A rule does not stop the time: it keeps from being claimed what is available.
        let notified = |job: &Job| notified(Some(job.glance()), false, now);
        let waits_for_time = |job: &Job| matches!(job.state, JobState::Scheduled | JobState::Retrying);
        let time_of = |job: &Job| job.not_before.expect("who waits for a time has one");
        let mut due: Vec<usize> = (0..self.jobs.len()).collect();
        due.retain(|place| waits_for_time(&self.jobs[*place]) && notified(&self.jobs[*place]) == Notified::Claim);
        due.sort_by_key(|place| (time_of(&self.jobs[*place]), self.jobs[*place].id.number()));
        due.truncate(limit);
        due.iter().for_each(|place| self.goes_on(*place, now));
        let has_expired = |job: &&Job| job.state == JobState::Running && notified(job) == Notified::Claim;
        let mut expired: Vec<Job> = self.jobs.iter().filter(has_expired).cloned().collect();
        expired.sort_by_key(|job| (job.lease_until, job.id.number()));
        // Those that are not told of now are to be found at once.
        let untold = expired.split_off(limit.min(expired.len()));
        let times = self.jobs.iter().filter_map(|job| match notified(job) {
            Notified::Requeue { at } => Some(at),
            Notified::Claim if waits_for_time(job) => Some(time_of(job)),
            Notified::Claim | Notified::Drop => None,
        });
        let next_due = times.chain(untold.iter().filter_map(|job| job.lease_until)).min();
        Woken { count: due.len(), expired, next_due }
    }

    fn page(&self, query: &JobQuery, limit: usize) -> JobPage {
        let (mut jobs, mut bytes): (Vec<Job>, usize) = (Vec::new(), 0);
        let begin = query.after.unwrap_or(0);
        let mut looked_at = begin;
        for (index, job) in self.jobs.iter().filter(|job| job.id.number() > begin).enumerate() {
            let is_wanted = query.matches(&Outline::of(job));
            let with_it = bytes + job.payload.as_str().len();
            let is_too_much = is_wanted && !jobs.is_empty() && (jobs.len() == limit || with_it > PAGE_BYTES_MAX);
            if index == JOB_SCAN_MAX || is_too_much {
                return JobPage { jobs, next: Some(looked_at) };
            }
            if is_wanted {
                jobs.push(job.clone());
                bytes = with_it;
            }
            looked_at = job.id.number();
        }
        JobPage { jobs, next: None }
    }

    fn predecessor(&self, job: &Job) -> Option<&Job> {
        let turn = job.turn.filter(|_| job.in_lane() && job.state != JobState::Running)?;
        let lane = || {
            let others = self.jobs.iter().filter(|other| other.in_lane() && other.turn.is_some());
            others.filter(|other| other.handler == job.handler && other.object == job.object)
        };
        let runs = lane().find(|other| other.state == JobState::Running);
        runs.or_else(|| lane().filter(|other| other.turn < Some(turn)).min_by_key(|other| other.turn))
    }

    fn purge(&mut self, are_tasks: bool, before: Timestamp, keep: u64, limit: usize) -> usize {
        let is_over =
            |job: &&Job| job.state.is_final() && job.turn.is_none() && has_task_prefix(&job.handler) == are_tasks;
        let mut oldest_first: Vec<Job> = self.jobs.iter().filter(is_over).cloned().collect();
        oldest_first.sort_by_key(|job| (job.finished_at, job.id.number()));
        // Jobs that died are counted by themselves.
        let is_dead = |job: &Job| !are_tasks && job.state == JobState::Dead;
        let count = |dead: bool| oldest_first.iter().filter(|job| is_dead(job) == dead).count() as u64;
        let mut beyond = [false, true].map(|dead| count(dead).saturating_sub(keep));
        let mut goes = |job: &&Job| {
            let left = &mut beyond[usize::from(is_dead(job))];
            let is_beyond = *left > 0;
            *left = left.saturating_sub(1);
            is_beyond || job.finished_at < Some(before)
        };
        let gone: Vec<JobId> = oldest_first.iter().filter(|job| goes(job)).take(limit).map(|job| job.id).collect();
        gone.iter().for_each(|id| self.forget(*id));
        gone.len()
    }
}

#[async_trait]
impl Jobs for Model {
    async fn enqueue(&self, jobs: Vec<NewJob>) -> Result<Vec<Enqueued>, StoreError> {
        if jobs.is_empty() {
            return Err(Invalid::new("jobs", "is empty").into());
        }
        let (mut state, now) = (self.state()?, self.positions_now());
        let mut changed = state.work.clone();
        let answers = changed.enqueue(jobs, now)?;
        state.work = changed;
        Ok(answers)
    }

    async fn claim(&self, claim: Claim) -> Result<Vec<Job>, StoreError> {
        check_text("worker", &claim.worker, WORKER_BYTES_MAX)?;
        if claim.handlers.len() > CLAIM_HANDLERS_MAX {
            return Err(Invalid::new("handlers", format!("are more than {CLAIM_HANDLERS_MAX}")).into());
        }
        let now = self.positions_now();
        Ok(self.state()?.work.claim(&claim, now))
    }

    async fn renew_jobs(&self, held: &[Held], lease: SignedDuration) -> Result<Vec<Option<JobRenewed>>, StoreError> {
        let (mut state, now) = (self.state()?, self.positions_now());
        let renew = |held: &Held| {
            let place = state.work.held(*held)?;
            let job = &mut state.work.jobs[place];
            let lease_until = later(now, lease);
            job.lease_until = Some(lease_until);
            Some(JobRenewed { lease_until, cancel: job.cancel_asked })
        };
        Ok(held.iter().map(renew).collect())
    }

    async fn settle_jobs(&self, changes: Vec<JobChange>) -> Result<Vec<JobSettled>, StoreError> {
        let (mut state, clock) = (self.state()?, (self.clock)());
        let is_dead = |job: &&Job| job.state == JobState::Dead;
        let before: Vec<JobId> = state.work.jobs.iter().filter(is_dead).map(|job| job.id).collect();
        let answers = changes.into_iter().map(|change| state.settle_job(change, clock)).collect();
        state.tell_of_the_dead(&before, clock);
        Ok(answers)
    }

    async fn say(&self, held: Held, lines: Vec<JobLine>) -> Result<bool, StoreError> {
        let mut state = self.state()?;
        let is_held = state.work.held(held).is_some();
        if is_held {
            state.work.say(held.id.number(), lines);
        }
        Ok(is_held)
    }

    async fn report(&self, held: Held, progress: Progress) -> Result<bool, StoreError> {
        progress.check()?;
        let mut state = self.state()?;
        let is_held = state.work.held(held).is_some();
        if is_held {
            let progress = Progress { at: whole_microseconds(progress.at), ..progress };
            let is_later = |(id, said): &(JobId, Progress)| *id == held.id && said.at > progress.at;
            if !state.work.progress.iter().any(is_later) {
                state.work.progress.retain(|(id, _)| *id != held.id);
                state.work.progress.push((held.id, progress));
            }
        }
        Ok(is_held)
    }

    async fn progress(&self, ids: &[JobId]) -> Result<Vec<Option<Progress>>, StoreError> {
        let state = self.state()?;
        let of = |id: &JobId| state.work.progress.iter().find(|(of, _)| of == id).map(|(_, progress)| progress.clone());
        Ok(ids.iter().map(of).collect())
    }

    async fn tasks(&self, query: TaskQuery, limit: usize) -> Result<Vec<Job>, StoreError> {
        let mut tasks: Vec<Job> = self.state()?.work.jobs.iter().filter(|job| query.matches(job)).cloned().collect();
        tasks.sort_by_key(|job| (job.enqueued_at, job.id.number()));
        tasks.truncate(limit);
        let mut bytes = 0;
        let fit = tasks.iter().enumerate().take_while(|(index, job)| {
            bytes += job.payload.as_str().len();
            *index == 0 || bytes <= PAGE_BYTES_MAX
        });
        let fit = fit.count();
        tasks.truncate(fit);
        Ok(tasks)
    }

    async fn wake_jobs(&self, limit: usize) -> Result<Woken, StoreError> {
        let now = self.positions_now();
        Ok(self.state()?.work.wake(limit, now))
    }

    async fn steer(&self, ids: &[JobId], steer: Steer) -> Result<Vec<Steered>, StoreError> {
        let (mut state, now) = (self.state()?, self.positions_now());
        Ok(ids.iter().map(|id| state.work.steer(*id, steer, now)).collect())
    }

    async fn job(&self, id: JobId) -> Result<Option<Job>, StoreError> {
        let state = self.state()?;
        Ok(state.work.place(id).map(|place| state.work.jobs[place].clone()))
    }

    async fn jobs(&self, query: JobQuery, limit: usize) -> Result<JobPage, StoreError> {
        Ok(self.state()?.work.page(&query, limit))
    }

    async fn predecessor(&self, id: JobId) -> Result<Option<Job>, StoreError> {
        let state = self.state()?;
        let job = state.work.place(id).map(|place| &state.work.jobs[place]);
        Ok(job.and_then(|job| state.work.predecessor(job)).cloned())
    }

    async fn job_lines(&self, id: JobId, after: u64, limit: usize) -> Result<Vec<JobLine>, StoreError> {
        let state = self.state()?;
        if state.work.place(id).is_none() {
            return Ok(Vec::new());
        }
        let said = state.work.lines.iter().filter(|(number, line)| *number == id.number() && line.line > after);
        Ok(said.take(limit).map(|(_, line)| line.clone()).collect())
    }

    async fn job_counts(&self) -> Result<Vec<JobCount>, StoreError> {
        let state = self.state()?;
        let mut counts: Vec<JobCount> = Vec::new();
        for job in state.work.jobs.iter().filter(|job| !job.state.is_final()) {
            match counts.iter_mut().find(|count| count.handler == job.handler && count.state == job.state) {
                Some(known) => known.count += 1,
                None => counts.push(JobCount { handler: job.handler.clone(), state: job.state, count: 1 }),
            }
        }
        counts.sort_by(|one, other| (&one.handler, one.state).cmp(&(&other.handler, other.state)));
        Ok(counts)
    }

    async fn serve_jobs(&self, handlers: &[GroupName], lease: SignedDuration) -> Result<(), StoreError> {
        let (mut state, until) = (self.state()?, later(self.positions_now(), lease));
        for handler in handlers {
            match state.work.servers.iter_mut().find(|server| server.handler == *handler) {
                Some(server) => server.until = server.until.max(until),
                None => state.work.servers.push(Server { handler: handler.clone(), until }),
            }
        }
        Ok(())
    }

    async fn job_servers(&self) -> Result<Vec<Server>, StoreError> {
        let mut servers = self.state()?.work.servers.clone();
        servers.sort_by(|one, other| one.handler.cmp(&other.handler));
        Ok(servers)
    }

    async fn purge_jobs(&self, before: Timestamp, keep: u64, limit: usize) -> Result<usize, StoreError> {
        Ok(self.state()?.work.purge(false, before, keep, limit))
    }

    async fn purge_tasks(&self, before: Timestamp, keep: u64, limit: usize) -> Result<usize, StoreError> {
        Ok(self.state()?.work.purge(true, before, keep, limit))
    }
}
