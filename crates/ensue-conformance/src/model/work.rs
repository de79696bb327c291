//! What does the model know of jobs and rules, and what follows from what happens to them?
//!
//! Plain vectors again. Who of a lane may run is worked out from scratch whenever something happened in it.

use ensue_core::event::whole_microseconds;
use ensue_core::handling::OnExhausted;
use ensue_core::jobs::job::{ERRORS_MAX, JOB_LINES_MAX, JOBS_MAX};
use ensue_core::jobs::lane::died_with;
use ensue_core::jobs::lifecycle::{Arrow, after, holds_lane};
use ensue_core::jobs::{
    Enqueued, Held, Job, JobEnd, JobError, JobId, JobLine, JobNumber, JobState, NewJob, Progress, Server, Steer,
    Steered,
};
use ensue_core::rules::{Rule, RuleSet};
use ensue_core::tasks::called_off_line;
use ensue_core::{GroupName, Invalid, Json, ObjectKey, StoreError, Timestamp};
use uuid::Uuid;

/// Said of a job that is to be brought back while another has its key.
const KEY_IS_TAKEN: &str = "a live job has its unique_key: cancel that one, or wait for its end";
const HOLDS_NOTHING: &str = "it holds nothing back: nothing is left to skip";

/// All that is known of jobs and rules.
#[derive(Debug, Clone)]
pub(super) struct Work {
    /// By number, those that are over included.
    pub jobs: Vec<Job>,
    /// The newest number or turn ever given out.
    pub last: u64,
    /// In the order in which they were said.
    pub lines: Vec<(JobNumber, JobLine)>,
    /// The newest of each job.
    pub progress: Vec<(JobId, Progress)>,
    pub servers: Vec<Server>,
    pub rules: Vec<Rule>,
    pub version: u64,
    /// How many ids of rules were made.
    pub rule_ids: u128,
    /// Which version each process has seen.
    pub reports: Vec<(Uuid, u64)>,
}

impl Work {
    pub const EMPTY: Work = Work {
        jobs: Vec::new(),
        last: 0,
        lines: Vec::new(),
        progress: Vec::new(),
        servers: Vec::new(),
        rules: Vec::new(),
        version: 0,
        rule_ids: 0,
        reports: Vec::new(),
    };

    fn draw(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub fn place(&self, id: JobId) -> Option<usize> {
        self.jobs.iter().position(|job| job.id == id)
    }

    /// Where the job is that is run under this fence.
    pub fn held(&self, held: Held) -> Option<usize> {
        let is_it = |job: &Job| job.id == held.id && job.fence == held.fence && job.state == JobState::Running;
        self.jobs.iter().position(is_it)
    }

    pub fn rule_set(&self) -> RuleSet {
        RuleSet::new(self.version, self.rules.iter().cloned())
    }

    fn is_object_held(&self, object: Option<&ObjectKey>, now: Timestamp) -> bool {
        object.is_some_and(|object| self.rule_set().holding_object(object, now).is_some())
    }

    /// The live job of a handler with this key.
    fn with_key(&self, handler: &GroupName, key: Option<&String>) -> Option<&Job> {
        let key = key?;
        self.jobs
            .iter()
            .find(|job| !job.state.is_final() && job.handler == *handler && job.unique_key.as_ref() == Some(key))
    }

    /// Takes jobs in. Whoever calls drops all of it if one of them cannot be taken.
    pub fn enqueue(&mut self, new: Vec<NewJob>, now: Timestamp) -> Result<Vec<Enqueued>, StoreError> {
        if new.len() > JOBS_MAX {
            return Err(Invalid::new("jobs", format!("are {}; send 1 to {JOBS_MAX} at once", new.len())).into());
        }
        new.into_iter().map(|job| self.enqueue_one(job, now)).collect()
    }

    fn enqueue_one(&mut self, new: NewJob, now: Timestamp) -> Result<Enqueued, StoreError> {
        new.check()?;
        if let Some(there) = self.with_key(&new.handler, new.unique_key.as_ref()) {
            return Ok(Enqueued { id: there.id, is_new: false, state: there.state });
        }
        let number = self.draw();
        let id = JobId::new(now, 0, number);
        let waits = new.not_before.is_some_and(|at| at > now);
        self.jobs.push(Job {
            id,
            handler: new.handler,
            object: new.object,
            ordered: new.ordered,
            payload: new.payload,
            metadata: new.metadata,
            priority: new.priority,
            state: JobState::Scheduled,
            turn: if waits { None } else { Some(number) },
            attempts: 0,
            attempts_max: new.attempts_max,
            on_exhausted: new.on_exhausted,
            not_before: new.not_before,
            enqueued_at: now,
            locked_at: None,
            started_at: None,
            finished_at: None,
            worker: None,
            fence: 0,
            lease_until: None,
            errors: Vec::new(),
            unique_key: new.unique_key,
            cause: new.cause,
            cancel_asked: false,
            redriven: false,
            result: None,
            settled: None,
        });
        let place = self.jobs.len() - 1;
        if !waits {
            self.goes_on(place, now);
        }
        Ok(Enqueued { id, is_new: true, state: self.jobs[place].state })
    }

    /// A job that waits for no time takes its place.
    pub fn goes_on(&mut self, place: usize, now: Timestamp) {
        if self.jobs[place].turn.is_none() {
            self.jobs[place].turn = Some(self.draw());
        }
        self.jobs[place].state = JobState::Parked;
        self.arrange(place, now);
    }

    /// Works out who may run in the lane of a job, or whether that one may, if it is in none.
    fn arrange(&mut self, place: usize, now: Timestamp) {
        let is_held = self.is_object_held(self.jobs[place].object.as_ref(), now);
        let waits = |job: &Job| matches!(job.state, JobState::Available | JobState::Parked);
        let either = |may_run: bool| if may_run { JobState::Available } else { JobState::Parked };
        if !self.jobs[place].in_lane() {
            if waits(&self.jobs[place]) {
                self.jobs[place].state = either(!is_held);
            }
            return;
        }
        let (handler, object) = (self.jobs[place].handler.clone(), self.jobs[place].object.clone());
        let of_lane = |job: &&mut Job| job.in_lane() && job.handler == handler && job.object == object;
        let mut lane: Vec<&mut Job> = self.jobs.iter_mut().filter(of_lane).filter(|job| job.turn.is_some()).collect();
        lane.sort_by_key(|job| job.turn);
        let at_work = lane.iter().any(|job| job.state == JobState::Running);
        for (index, job) in lane.into_iter().enumerate() {
            if waits(job) {
                job.state = either(index == 0 && !at_work && !is_held);
            }
        }
    }

    /// Something changed about an object: works out who may run of all that is about it.
    pub fn arrange_object(&mut self, object: &ObjectKey, now: Timestamp) {
        let is_of_it = |place: &usize| self.jobs[*place].object.as_ref() == Some(object);
        let places: Vec<usize> = (0..self.jobs.len()).filter(is_of_it).collect();
        let mut done: Vec<GroupName> = Vec::new();
        for place in places {
            let job = &self.jobs[place];
            if job.turn.is_none() || (job.in_lane() && done.contains(&job.handler)) {
                continue;
            }
            if job.in_lane() {
                done.push(job.handler.clone());
            }
            self.arrange(place, now);
        }
    }

    fn note_error(&mut self, place: usize, error: String, now: Timestamp) {
        let job = &mut self.jobs[place];
        job.errors.push(JobError { attempt: job.attempts, at: now, error });
        let beyond = job.errors.len().saturating_sub(ERRORS_MAX);
        job.errors.drain(..beyond);
    }

    /// A job is over: it leaves its lane, unless it keeps it waiting.
    fn is_over(&mut self, place: usize, state: JobState, keeps_its_lane: bool, now: Timestamp) {
        let job = &mut self.jobs[place];
        (job.state, job.finished_at) = (state, Some(now));
        (job.lease_until, job.cancel_asked) = (None, false);
        if !keeps_its_lane {
            job.turn = None;
        }
        self.arrange(place, now);
    }

    /// An attempt ended.
    pub fn end(&mut self, place: usize, end: &JobEnd, result: Option<Json>, now: Timestamp) {
        let job = &self.jobs[place];
        let Arrow::To(state) = after(job.state, end.input(job.cancel_asked)) else {
            unreachable!("every end of a running job leads somewhere")
        };
        let (on_exhausted, in_lane) = (job.on_exhausted, job.in_lane());
        if let Some(error) = end.error() {
            self.note_error(place, error.into(), now);
        }
        let job = &mut self.jobs[place];
        job.attempts -= u32::from(!end.uses_attempt());
        job.lease_until = None;
        job.settled = end.settlement();
        match state {
            JobState::Succeeded => {
                job.result = result;
                self.is_over(place, state, false, now);
            }
            JobState::Cancelled => self.is_over(place, state, false, now),
            JobState::Dead => {
                if on_exhausted == OnExhausted::DeadLetterObject && in_lane {
                    self.dies_with_it(place, end.error().unwrap_or_default(), now);
                }
                self.is_over(place, state, holds_lane(on_exhausted, in_lane), now);
            }
            JobState::Retrying | JobState::Scheduled => {
                (job.state, job.not_before) = (state, end.not_before());
                self.arrange(place, now);
            }
            JobState::Available => self.goes_on(place, now),
            JobState::Running | JobState::Parked => unreachable!("no attempt ends so"),
        }
    }

    /// All that wait in the lane of a job die with it.
    fn dies_with_it(&mut self, place: usize, error: &str, now: Timestamp) {
        let (handler, object) = (self.jobs[place].handler.clone(), self.jobs[place].object.clone());
        let waits = |job: &Job| match job.state {
            JobState::Parked | JobState::Scheduled | JobState::Retrying | JobState::Available => job.turn.is_some(),
            JobState::Running | JobState::Succeeded | JobState::Dead | JobState::Cancelled => false,
        };
        for other in 0..self.jobs.len() {
            let job = &self.jobs[other];
            if waits(job) && job.in_lane() && job.handler == handler && job.object == object {
                self.note_error(other, died_with(error), now);
                let job = &mut self.jobs[other];
                (job.state, job.finished_at, job.turn) = (JobState::Dead, Some(now), None);
            }
        }
    }

    /// Does to a job what somebody wants.
    pub fn steer(&mut self, id: JobId, steer: Steer, now: Timestamp) -> Steered {
        let Some(place) = self.place(id) else { return Steered::Unknown };
        let job = &self.jobs[place];
        let refused = |job: &Job, why| Steered::Refused(Box::new(job.clone()), why);
        match after(job.state, steer.input()) {
            Arrow::Refused(why) => return refused(job, why),
            Arrow::Signal => self.jobs[place].cancel_asked = true,
            Arrow::LetGo if job.turn.is_none() => return refused(job, HOLDS_NOTHING),
            Arrow::LetGo => self.is_let_go(place, now),
            Arrow::To(JobState::Available) if job.state == JobState::Dead => {
                if self.with_key(&job.handler, job.unique_key.as_ref()).is_some() {
                    return refused(job, KEY_IS_TAKEN);
                }
                let job = &mut self.jobs[place];
                (job.attempts, job.redriven, job.finished_at) = (0, true, None);
                job.turn = Some(id.number());
                job.not_before = None;
                self.goes_on(place, now);
            }
            Arrow::To(JobState::Available) => {
                self.jobs[place].not_before = None;
                self.goes_on(place, now);
            }
            Arrow::To(state) => {
                if state == JobState::Dead {
                    self.note_error(place, "skipped".into(), now);
                }
                if state == JobState::Cancelled {
                    let last = called_off_line(&self.jobs[place], whole_microseconds(now));
                    self.say(id.number(), last.into_iter().collect());
                }
                self.is_over(place, state, false, now);
            }
        }
        Steered::Done(Box::new(self.jobs[place].clone()))
    }

    fn is_let_go(&mut self, place: usize, now: Timestamp) {
        self.jobs[place].turn = None;
        self.arrange(place, now);
    }

    /// The first lines of a job are kept.
    pub fn say(&mut self, number: JobNumber, lines: Vec<JobLine>) {
        let before = self.lines.iter().filter(|(of, _)| *of == number).count() as u64;
        let numbered = lines.into_iter().zip(before + 1..=JOB_LINES_MAX);
        self.lines.extend(numbered.map(|(line, at)| (number, JobLine { line: at, ..line })));
    }

    pub fn forget(&mut self, id: JobId) {
        self.jobs.retain(|job| job.id != id);
        self.lines.retain(|(number, _)| *number != id.number());
        self.progress.retain(|(of, _)| *of != id);
    }
}
