//! What do the behaviours about jobs and rules have in common?

use super::Subject;
use super::positions::{LEASE, name};
use ensue_core::handling::OnExhausted;
use ensue_core::jobs::{
    Claim, Enqueued, Held, Job, JobChange, JobEnd, JobId, JobLine, JobQuery, JobSettled, JobState, NewJob, Outline,
    Steer, Steered, Woken,
};
use ensue_core::positions::Level;
use ensue_core::rules::{NewRule, Rule, RuleKind, Scope};
use ensue_core::{Json, ObjectKey, Timestamp};
use jiff::SignedDuration;

/// More than there ever are.
pub const MANY: usize = 100_000;

/// A job for a handler.
pub fn job(handler: &str) -> NewJob {
    NewJob::new(name(handler))
}

/// A job of a lane.
pub fn about(handler: &str, object: &str) -> NewJob {
    NewJob { object: Some(ObjectKey::stored(object)), ..job(handler) }
}

/// A job about an object that is in no lane.
pub fn apart(handler: &str, object: &str) -> NewJob {
    NewJob { ordered: false, ..about(handler, object) }
}

/// A JSON text.
pub fn json(text: &str) -> Json {
    Json::parse("payload", text).expect("JSON")
}

/// A claim of these handlers.
pub fn wants_jobs(handlers: &[&str], limit: usize) -> Claim {
    let handlers = handlers.iter().map(|handler| (name(handler), limit)).collect();
    Claim { handlers, limit, lease: LEASE, worker: "worker 1".into(), ends_with_store: false }
}

/// Under the fence of this claim.
pub fn held(job: &Job) -> Held {
    Held { id: job.id, fence: job.fence }
}

/// It failed, and is tried again then.
pub fn retry_at(at: Timestamp) -> JobEnd {
    JobEnd::Retry { at, error: "no route".into() }
}

/// It failed for good.
pub fn dies() -> JobEnd {
    JobEnd::Dead { error: "no route".into() }
}

/// A line; the store numbers it.
pub fn says(attempt: u32, at: Timestamp, message: &str) -> JobLine {
    JobLine { line: 0, attempt, at, level: Level::Info, message: message.into() }
}

/// A rule without an end.
pub fn rule(kind: RuleKind, scope: &str) -> NewRule {
    let (scope, reason) = (Scope::parse(scope).expect("a scope"), Some("too hot".into()));
    NewRule { kind, scope, reason, author: "ada".into(), expires_at: None }
}

/// What must have been done.
pub fn done(steered: &Steered) -> &Job {
    match steered {
        Steered::Done(job) => job,
        Steered::Refused(..) | Steered::Unknown => panic!("{steered:?}"),
    }
}

impl Subject {
    /// Sends jobs that must be new; their ids.
    pub async fn send(&self, jobs: Vec<NewJob>) -> Vec<JobId> {
        let count = jobs.len();
        let sent = self.store.enqueue(jobs).await.expect("jobs that must be taken");
        assert_eq!(sent.len(), count);
        assert!(sent.iter().all(|one| one.is_new), "{sent:?}");
        sent.into_iter().map(|one| one.id).collect()
    }

    /// Sends one job that must be new.
    pub async fn send_one(&self, job: NewJob) -> JobId {
        self.send(vec![job]).await[0]
    }

    /// Sends one job that may be there.
    pub async fn try_send(&self, job: NewJob) -> Enqueued {
        self.store.enqueue(vec![job]).await.expect("a job that must be taken")[0]
    }

    /// Sends any number of jobs that must be new.
    pub async fn send_many(&self, jobs: Vec<NewJob>) -> Vec<JobId> {
        let mut ids = Vec::new();
        for part in jobs.chunks(ensue_core::jobs::job::JOBS_MAX) {
            ids.extend(self.send(part.to_vec()).await);
        }
        ids
    }

    /// Claims up to so many jobs of handlers.
    pub async fn take_jobs(&self, handlers: &[&str], limit: usize) -> Vec<Job> {
        self.store.claim(wants_jobs(handlers, limit)).await.expect("a claim")
    }

    /// Claims the next job of a handler; it must be this one.
    pub async fn take_this(&self, handler: &str, id: JobId) -> Job {
        let mut taken = self.take_jobs(&[handler], 1).await;
        assert_eq!(ids(&taken), [id], "{:?}", self.job_now(id).await);
        taken.remove(0)
    }

    /// Writes something about a job.
    pub async fn settle_job(&self, change: JobChange) -> JobSettled {
        self.store.settle_jobs(vec![change]).await.expect("settled").remove(0)
    }

    /// Ends an attempt that must be held; where the job stands then.
    pub async fn end(&self, job: &Job, end: JobEnd) -> JobState {
        match self.settle_job(JobChange::new(held(job), end)).await {
            JobSettled::Done { state, events, jobs } => {
                assert!(events.is_empty() && jobs.is_empty());
                state
            }
            other => panic!("{other:?}"),
        }
    }

    /// Takes this job, which must be the next, and ends it so.
    pub async fn run(&self, id: JobId, end: JobEnd) -> JobState {
        let handler = self.job_now(id).await.handler;
        let job = self.take_this(handler.as_str(), id).await;
        self.end(&job, end).await
    }

    /// Takes and does one job after another until there is none.
    pub async fn run_all(&self, handler: &str) -> Vec<JobId> {
        let mut ran = Vec::new();
        while let Some(job) = self.take_jobs(&[handler], 1).await.pop() {
            ran.push(job.id);
            assert_eq!(self.end(&job, JobEnd::Succeeded).await, JobState::Succeeded);
        }
        ran
    }

    /// A job that must be there.
    pub async fn job_now(&self, id: JobId) -> Job {
        self.store.job(id).await.expect("a look at a job").expect("the job is there")
    }

    /// Where jobs stand.
    pub async fn states(&self, ids: &[JobId]) -> Vec<JobState> {
        let mut states = Vec::new();
        for id in ids {
            states.push(self.job_now(*id).await.state);
        }
        states
    }

    /// All jobs, page by page; checks what every page promises.
    pub async fn jobs_of(&self, query: JobQuery, limit: usize) -> Vec<Job> {
        let mut found: Vec<Job> = Vec::new();
        let mut after = query.after;
        loop {
            let page = self.store.jobs(JobQuery { after, ..query.clone() }, limit).await.expect("a page of jobs");
            assert!(page.jobs.len() <= limit, "{} jobs on a page of {limit}", page.jobs.len());
            for job in &page.jobs {
                let number = job.id.number();
                assert!(query.matches(&Outline::of(job)), "not wanted: {job:?}");
                assert!(Some(number) > after, "{number} is not after {after:?}");
                assert!(found.last().is_none_or(|before| before.id.number() < number), "{number} is out of order");
                assert!(page.next.is_none_or(|next| next >= number), "{:?} is before {number}", page.next);
                found.push(job.clone());
            }
            let Some(next) = page.next else { return found };
            assert!(Some(next) > after, "a page after {after:?} goes on at {next}");
            after = Some(next);
        }
    }

    /// Every job there is.
    pub async fn all_jobs(&self) -> Vec<Job> {
        self.jobs_of(JobQuery::default(), 1_000).await
    }

    /// Lets everything go on whose time has come.
    pub async fn wake(&self) -> Woken {
        self.store.wake_jobs(MANY).await.expect("a look at the time")
    }

    /// Does to a job what is wanted.
    pub async fn steer(&self, id: JobId, steer: Steer) -> Steered {
        self.store.steer(&[id], steer).await.expect("steered").remove(0)
    }

    /// Does to a job what is wanted, which must be allowed.
    pub async fn steer_done(&self, id: JobId, steer: Steer) -> Job {
        done(&self.steer(id, steer).await).clone()
    }

    /// Sets a rule.
    pub async fn hold(&self, kind: RuleKind, scope: &str) -> Rule {
        self.store.set_rule(rule(kind, scope)).await.expect("a rule that must be taken").0
    }

    /// Lifts a rule that must be there.
    pub async fn lift(&self, kind: RuleKind, scope: &str) -> Rule {
        let scope = Scope::parse(scope).expect("a scope");
        self.store.lift_rule(kind, &scope, "bob").await.expect("lifted").expect("the rule was there")
    }

    /// What a job said.
    pub async fn said(&self, id: JobId) -> Vec<String> {
        let lines = self.store.job_lines(id, 0, MANY).await.expect("lines");
        assert!(lines.iter().map(|line| line.line).eq(1..=lines.len() as u64), "numbered from one: {lines:?}");
        lines.into_iter().map(|line| line.message).collect()
    }

    /// So many seconds from now.
    pub fn in_secs(&self, seconds: i64) -> Timestamp {
        self.clock.now() + SignedDuration::from_secs(seconds)
    }

    /// A job that died, with this to follow from it.
    pub async fn a_dead_one(&self, new: NewJob, on_exhausted: OnExhausted) -> JobId {
        let id = self.send_one(NewJob { on_exhausted, ..new }).await;
        assert_eq!(self.run(id, dies()).await, JobState::Dead);
        id
    }
}

/// Their ids, in order.
pub fn ids(jobs: &[Job]) -> Vec<JobId> {
    jobs.iter().map(|job| job.id).collect()
}

/// The same job, by its number, as nobody was told.
pub fn forged(id: JobId) -> JobId {
    let mut bytes = *id.0.as_bytes();
    bytes[7] ^= 1;
    JobId(uuid::Uuid::from_bytes(bytes))
}
