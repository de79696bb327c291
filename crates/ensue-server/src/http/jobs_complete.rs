//! Completion of many claimed jobs in one request.

use super::App;
use super::fields_body::{BodyFields, FieldsBody};
use super::jobs_body;
use super::jobs_claim::{claim_of, refused};
use super::jobs_requests::CompleteManyShape;
use super::problem::{Problem, ProblemBody};
use super::query::NoQuery;
use super::responses::BodyProblems;
use super::shapes;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::response::Response;
use ensue::jobs::{Completion, JobId, JobState};
use serde::Serialize;
use serde_json::value::RawValue;
use std::sync::Arc;
use utoipa::ToSchema;

/// The most jobs that one request completes.
const COUNT_MAX: usize = 1_000;

/// The outcomes, one for each job, in the order of the request.
#[derive(Serialize, ToSchema)]
#[schema(as = CompletedJobs)]
pub(crate) struct CompletedJobsShape {
    jobs: Vec<CompletedShape>,
}

/// The outcome of one job.
#[derive(Serialize, ToSchema)]
#[schema(as = CompletedJob)]
pub(crate) struct CompletedShape {
    id: String,
    /// The status that `POST /v1/jobs/{id}/complete` would answer: 200, or that of `problem`.
    #[schema(example = 200)]
    status: u16,
    /// The state of the job; only with status 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false, example = "succeeded")]
    state: Option<&'static str>,
    /// Why nothing of this job was written; absent with status 200.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<ProblemBody>, nullable = false)]
    problem: Option<Box<RawValue>>,
}

impl CompletedShape {
    fn of(id: JobId, outcome: Result<JobState, Problem>) -> Self {
        let id = id.to_string();
        match outcome {
            Ok(state) => Self { id, status: StatusCode::OK.as_u16(), state: Some(state.as_str()), problem: None },
            Err(problem) => {
                let (status, body) = problem.into_parts();
                let body = String::from_utf8(body).ok().and_then(|body| RawValue::from_string(body).ok());
                Self { id, status: status.as_u16(), state: None, problem: body }
            }
        }
    }
}

/// Completes many jobs
///
/// In one commit, with one outcome for each job: a refused job does not affect the others. A completion
/// may be repeated under its claim, also after the answer was lost: it answers 200 again, and publishes and sends
/// nothing again. All together send at most 10,000 jobs. A body that cannot be read, or names a job twice, is refused whole.
#[utoipa::path(
    post,
    path = "/v1/jobs/complete",
    operation_id = "complete_jobs",
    tag = "jobs",
    request_body = CompleteManyShape,
    responses(
        (status = 200, description = "On disk; one outcome for each job, in the same order", body = CompletedJobsShape),
        BodyProblems,
    )
)]
pub(super) async fn complete_many(
    State(app): State<Arc<App>>,
    _: NoQuery,
    request: Request,
) -> Result<Response, Problem> {
    let body = FieldsBody::take(request, &app.options, &["jobs"]).await?;
    let completions = completions(&body.fields()?)?;
    let ids: Vec<JobId> = completions.iter().map(|completion| completion.claim.job()).collect();
    let states = app.bus.complete_claims(completions).await?;
    let mut jobs = Vec::with_capacity(ids.len());
    for (id, state) in ids.into_iter().zip(states) {
        let outcome = match state {
            Ok(state) => Ok(state),
            Err(error) => Err(refused(&app, id, error).await),
        };
        jobs.push(CompletedShape::of(id, outcome));
    }
    Ok(shapes::json(StatusCode::OK, &CompletedJobsShape { jobs }))
}

fn completions(fields: &BodyFields<'_>) -> Result<Vec<Completion>, Problem> {
    let elements = fields.objects("jobs", &["id", "claim", "result", "events", "jobs"], COUNT_MAX)?;
    let Some(elements) = elements.filter(|elements| !elements.is_empty()) else {
        return Err(Problem::invalid("jobs", "is missing or empty; send the claimed jobs that are done"));
    };
    let mut completions: Vec<Completion> = Vec::with_capacity(elements.len());
    for (index, element) in elements.iter().enumerate() {
        let completion = completion(element).map_err(|problem| problem.within(&format!("jobs[{index}]")))?;
        let is_same = |other: &Completion| other.claim.job() == completion.claim.job();
        if completions.iter().any(is_same) {
            return Err(Problem::invalid(format!("jobs[{index}].id"), "names a job a second time; send it once"));
        }
        completions.push(completion);
    }
    Ok(completions)
}

fn completion(fields: &BodyFields<'_>) -> Result<Completion, Problem> {
    let Some(id) = fields.text("id")?.as_deref().and_then(JobId::parse) else {
        return Err(Problem::invalid("id", "is not the id of a job; send the one that came with the claimed job"));
    };
    Ok(Completion {
        claim: claim_of(id, fields)?,
        result: fields.json("result")?,
        events: jobs_body::events(fields)?,
        jobs: jobs_body::sent(fields)?,
    })
}
