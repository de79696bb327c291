//! How is a job asked of a server, or of a store?
//!
//! Both answer with the same JSON: a server sends it, and for a store it is made here by the same shapes. It stays a text, so
//! that numbers in it keep their digits.

use super::output::as_json;
use super::target::Target;
use crate::http::jobs_shapes::{BulkShape, JobLogsShape, JobShape, JobsShape};
use anyhow::{Context, anyhow};
use ensue::jobs::{JobId, JobQuery, JobState, Steer, no_job};
use ensue::{Ensue, GroupName, ObjectKey};
use reqwest::Method;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// The most that a page has.
const PAGE_MAX: usize = 1_000;

/// A page of jobs, each as it was written.
#[derive(Debug, Serialize, Deserialize)]
pub struct JobTexts {
    /// The jobs.
    pub jobs: Vec<Box<RawValue>>,
    /// The `--after` of the next page.
    pub next: Option<String>,
}

/// Which jobs are meant.
#[derive(Debug)]
pub struct JobFilter(JobQuery);

impl JobFilter {
    pub fn new(states: Vec<JobState>, handler: Option<&str>, object: Option<&str>) -> anyhow::Result<Self> {
        Ok(Self(JobQuery {
            states,
            handler: handler.map(|handler| GroupName::parse("handler", handler)).transpose()?,
            object: object.map(ObjectKey::parse_filter).transpose()?,
            ..JobQuery::default()
        }))
    }

    pub fn is_empty(&self) -> bool {
        self.0 == JobQuery::default()
    }

    fn pairs(&self) -> Vec<(&'static str, String)> {
        let JobQuery { states, handler, object, .. } = &self.0;
        let states =
            (!states.is_empty()).then(|| states.iter().map(|state| state.as_str()).collect::<Vec<_>>().join(","));
        let pairs = [
            ("state", states),
            ("handler", handler.as_ref().map(ToString::to_string)),
            ("object", object.as_ref().map(ToString::to_string)),
        ];
        pairs.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
    }
}

fn as_text(shape: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string(shape)?)
}

fn not_ours(error: serde_json::Error) -> anyhow::Error {
    anyhow::Error::new(error).context("this is not an answer of an Ensue server; check --url")
}

/// Jobs, page after page, until there are enough.
pub async fn list(target: &Target, filter: &JobFilter, after: Option<JobId>, limit: usize) -> anyhow::Result<JobTexts> {
    let mut all = JobTexts { jobs: Vec::new(), next: after.map(|id| id.to_string()) };
    loop {
        let page_limit = (limit - all.jobs.len()).min(PAGE_MAX);
        let text = match target {
            Target::Server(remote) => {
                let mut query = filter.pairs();
                query.push(("limit", page_limit.to_string()));
                query.extend(all.next.clone().map(|after| ("after", after)));
                remote.get_text(&["v1", "jobs"], &query).await?
            }
            Target::Store(bus) => {
                let after = all.next.as_deref().and_then(JobId::parse).map(JobId::number);
                as_text(&JobsShape::from(&bus.seen_jobs(&JobQuery { after, ..filter.0.clone() }, page_limit).await?))?
            }
        };
        let page: JobTexts = serde_json::from_str(&text).map_err(not_ours)?;
        all.jobs.extend(page.jobs);
        all.next = page.next;
        if all.next.is_none() || all.jobs.len() >= limit {
            return Ok(all);
        }
    }
}

/// One job.
pub async fn show(target: &Target, id: JobId) -> anyhow::Result<String> {
    match target {
        Target::Server(remote) => remote.get_text(&["v1", "jobs", &id.to_string()], &[]).await,
        Target::Store(bus) => {
            let job = bus.seen_job(id).await?.ok_or_else(|| no_job(id))?;
            as_text(&JobShape::from(&job))
        }
    }
}

/// Has a job ended?
pub async fn is_over(target: &Target, id: JobId) -> anyhow::Result<bool> {
    let job: Value = serde_json::from_str(&show(target, id).await?).map_err(not_ours)?;
    let state = job["state"].as_str().and_then(JobState::parse).context("the answer has no state; check --url")?;
    Ok(state.is_final())
}

/// What a job said after a line: the next of them.
pub async fn lines(target: &Target, id: JobId, after: u64) -> anyhow::Result<Vec<Value>> {
    let mut answer = match target {
        Target::Server(remote) => {
            let query = [("after", after.to_string()), ("limit", PAGE_MAX.to_string())];
            remote.get_json(&["v1", "jobs", &id.to_string(), "logs"], &query).await?
        }
        Target::Store(bus) => {
            bus.job(id).await?.ok_or_else(|| no_job(id))?;
            as_json(&JobLogsShape::new(&bus.job_lines(id, after, PAGE_MAX).await?, PAGE_MAX))?
        }
    };
    match answer["logs"].take() {
        Value::Array(lines) => Ok(lines),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            Err(anyhow!("the answer has no lines; check --url"))
        }
    }
}

fn verb(steer: Steer) -> &'static str {
    match steer {
        Steer::Cancel => "cancel",
        Steer::Retry => "retry",
        Steer::Skip => "skip",
    }
}

/// Steers one job; answers the job as it is then.
pub async fn steer(target: &Target, id: JobId, steer: Steer) -> anyhow::Result<String> {
    match target {
        Target::Server(remote) => {
            remote.ask_text(Method::POST, &["v1", "jobs", &id.to_string(), verb(steer)], &Value::Null).await
        }
        Target::Store(bus) => {
            let job = bus.steer_job(id, steer).await?;
            as_text(&JobShape::from(&bus.tell_job(job).await?))
        }
    }
}

/// Steers many jobs.
pub async fn steer_all(target: &Target, filter: &JobFilter, steer: Steer, dry_run: bool) -> anyhow::Result<Value> {
    match target {
        Target::Server(remote) => {
            let fields = filter.pairs().into_iter().map(|(name, value)| (name.to_owned(), Value::String(value)));
            let filter: serde_json::Map<String, Value> = fields.collect();
            let body = json!({ "action": verb(steer), "filter": filter, "dry_run": dry_run });
            remote.post_json(&["v1", "jobs", "bulk"], &body).await
        }
        Target::Store(bus) => as_json(&BulkShape::new(steered(bus, filter, steer, dry_run).await?, dry_run)),
    }
}

async fn steered(bus: &Ensue, filter: &JobFilter, steer: Steer, dry_run: bool) -> anyhow::Result<ensue::jobs::Bulk> {
    let mut query = filter.0.clone();
    if query.states.is_empty() {
        query.states = crate::http::could_be(steer);
    }
    Ok(bus.steer_all(query, steer, dry_run).await?)
}
