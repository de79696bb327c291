//! What can be seen of jobs and rules?

use super::carry_out::{SeenRule, Side, rule_as_seen};
use crate::meaning::Meaning;
use ensue_core::handling::OnExhausted;
use ensue_core::jobs::notices::JOB_DEAD;
use ensue_core::jobs::{
    Job, JobCount, JobError, JobId, JobLine, JobQuery, JobState, Outline, Progress, Server, Settlement,
};
use ensue_core::retention::Bounds;
use ensue_core::store::Read;
use ensue_core::tasks::TaskQuery;
use ensue_core::{Filter, Seq, StoreError, Timestamp};
use uuid::Uuid;

/// A job, told by the order in which it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SeenJob {
    nth: Option<usize>,
    state: JobState,
    has_turn: bool,
    kind: (String, Option<String>, bool, u64, Option<String>),
    payload: Meaning,
    attempts: (u32, u32, OnExhausted),
    /// Before which, sent, locked, started, finished, leased.
    times: [Option<Timestamp>; 6],
    worker: Option<String>,
    fence: u64,
    errors: Vec<JobError>,
    marks: (bool, bool),
    result: Option<Meaning>,
    settled: Option<Settlement>,
}

impl SeenJob {
    pub fn of(job: &Job, nth: Option<usize>) -> Self {
        let text = |text: &dyn std::fmt::Display| text.to_string();
        Self {
            nth,
            state: job.state,
            has_turn: job.turn.is_some(),
            kind: (
                text(&job.handler),
                job.object.as_ref().map(|object| text(object)),
                job.ordered,
                job.priority,
                job.unique_key.clone(),
            ),
            payload: Meaning::of(&job.payload),
            attempts: (job.attempts, job.attempts_max, job.on_exhausted),
            times: [
                job.not_before,
                Some(job.enqueued_at),
                job.locked_at,
                job.started_at,
                job.finished_at,
                job.lease_until,
            ],
            worker: job.worker.clone(),
            fence: job.fence,
            errors: job.errors.clone(),
            marks: (job.cancel_asked, job.redriven),
            result: job.result.as_ref().map(Meaning::of),
            settled: job.settled,
        }
    }
}

/// Everything at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    /// Each with the rank of its turn.
    jobs: Vec<(SeenJob, Option<usize>)>,
    counts: Vec<JobCount>,
    servers: Vec<Server>,
    rules: Vec<SeenRule>,
    have_rules_changed: bool,
    /// Of the newest version, and of the one before.
    awaited: Vec<Vec<Uuid>>,
    bounds: Bounds,
    log: Vec<(Seq, Option<Seq>, String, Option<String>)>,
    /// What is told of the dead, each told by the order in which it was sent.
    dead: Vec<String>,
    predecessors: Vec<Option<usize>>,
    lines: Vec<Vec<JobLine>>,
    progress: Vec<Option<Progress>>,
    tasks: Vec<Option<usize>>,
}

impl Side {
    /// Looks at all there is; closely also at what goes before each job, what it said, and the log.
    pub async fn look(&mut self, closely: bool) -> Result<Seen, StoreError> {
        let all = self.store.jobs(JobQuery::default(), 1_000).await?;
        assert_eq!(all.next, None, "all are on one page");
        let jobs = all.jobs;
        let mut turns: Vec<u64> = jobs.iter().filter_map(|job| job.turn).collect();
        turns.sort_unstable();
        assert!(turns.windows(2).all(|pair| pair[0] < pair[1]), "two have one turn: {turns:?}");
        let rank = |job: &Job| job.turn.map(|turn| turns.iter().position(|one| *one == turn).unwrap_or_default());
        let mut counts = self.store.job_counts().await?;
        counts.sort_by(|one, other| (&one.handler, one.state).cmp(&(&other.handler, other.state)));
        let rules = self.store.rules().await?;
        assert_eq!(self.store.rules_version().await?, rules.version());
        let have_rules_changed = self.versions.last().is_some_and(|before| *before < rules.version());
        assert!(self.versions.last() <= Some(&rules.version()), "a version went back");
        if self.versions.last() != Some(&rules.version()) {
            self.versions.push(rules.version());
        }
        let mut seen = Seen {
            jobs: jobs.iter().map(|job| (SeenJob::of(job, self.nth(job.id)), rank(job))).collect(),
            counts,
            servers: self.store.job_servers().await?,
            rules: rules.rules().into_iter().map(rule_as_seen).collect(),
            have_rules_changed,
            awaited: Vec::new(),
            bounds: self.store.bounds().await?,
            log: Vec::new(),
            dead: Vec::new(),
            predecessors: Vec::new(),
            lines: Vec::new(),
            progress: Vec::new(),
            tasks: Vec::new(),
        };
        for version in self.versions.iter().rev().take(2) {
            let mut awaited: Vec<Uuid> =
                self.store.rules_awaited(*version).await?.into_iter().map(|member| member.id).collect();
            awaited.sort_unstable();
            seen.awaited.push(awaited);
        }
        if closely {
            self.look_closely(&jobs, &mut seen).await?;
        }
        Ok(seen)
    }

    /// What is told of a death, with the job as it is told elsewhere: ids are each engine's own.
    fn death(&self, payload: &str) -> String {
        let mut told: serde_json::Value = serde_json::from_str(payload).expect("JSON");
        let id = told["job"].as_str().and_then(JobId::parse).expect("the id of a job");
        told["job"] = self.nth(id).into();
        told.to_string()
    }

    async fn look_closely(&self, jobs: &[Job], seen: &mut Seen) -> Result<(), StoreError> {
        for job in jobs {
            assert_eq!(self.store.job(job.id).await?.as_ref(), Some(job), "a job is the same on a page and alone");
            let before = self.store.predecessor(job.id).await?;
            seen.predecessors.push(before.and_then(|before| self.nth(before.id)));
            seen.lines.push(self.store.job_lines(job.id, 0, 1_000).await?);
        }
        let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
        seen.progress = self.store.progress(&ids).await?;
        let query = TaskQuery {
            source: "s".into(),
            collection: None,
            states: Vec::new(),
            from: Timestamp::UNIX_EPOCH,
            to: Timestamp::MAX,
            after: None,
        };
        seen.tasks = self.store.tasks(query, 1_000).await?.iter().map(|task| self.nth(task.id)).collect();
        let query = |job: &Job| JobQuery {
            states: vec![job.state],
            handler: Some(job.handler.clone()),
            object: job.object.clone(),
            cause: job.cause.as_ref().map(|cause| cause.seq),
            holding: job.holds_lane(),
            after: None,
        };
        for job in jobs.iter().take(3) {
            let query = query(job);
            let expected = jobs.iter().filter(|one| query.matches(&Outline::of(one)));
            let page = self.store.jobs(query.clone(), 1_000).await?;
            assert!(page.jobs.iter().eq(expected) && page.next.is_none(), "{query:?}: {page:?}");
        }
        let page = self.store.read(Read { after: 0, limit: 1_000, filter: Filter::default() }).await?;
        let deaths = page.events.iter().filter(|event| event.topic.as_str() == JOB_DEAD);
        seen.dead = deaths.map(|event| self.death(event.payload.as_str())).collect();
        seen.log = page
            .events
            .into_iter()
            .map(|event| {
                let object = event.object.map(|object| object.to_string());
                (event.seq, event.prev, event.topic.to_string(), object)
            })
            .collect();
        Ok(())
    }
}
