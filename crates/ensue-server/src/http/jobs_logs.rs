//! What does a job say, and how does somebody listen?

use super::App;
use super::groups::Segment;
use super::jobs::{job_id, no_job};
use super::jobs_shapes::{JobLineShape, JobLogsShape};
use super::measure::Counted;
use super::problem::Problem;
use super::query::{self, Query};
use super::responses::{BadRequest, NotFound, StoreProblems};
use super::shapes;
use super::stop::stopped;
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ensue::Ensue;
use ensue::jobs::{JobId, JobState};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// How often is looked for new lines: workers write them to the store, from any process.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How many lines are sent together.
const CHUNK_LINES: usize = 1_000;

/// Shows what a job said
///
/// By line. Go on with `after` set to the answer's `next`, until that is null. With `Accept: text/event-stream` the lines
/// come as they are said, each with its number as `id` and `event: line`; when the job is over, `event: end` says its
/// `state` and the stream ends. Who was cut off comes back with `Last-Event-ID`.
#[utoipa::path(
    get,
    path = "/v1/jobs/{id}/logs",
    operation_id = "job_logs",
    tag = "jobs",
    params(
        ("id" = String, Path, description = "The job's id"),
        ("after" = Option<u64>, Query, description = "After this line; 0 unless told"),
        ("limit" = Option<u64>, Query, minimum = 1, maximum = 1000, description = "At most this many; 100 unless told. A stream has all"),
        ("Last-Event-ID" = Option<u64>, Header, description = "Of a stream: the last line that was received"),
    ),
    responses(
        (status = 200, description = "The lines, in order", content(
            (JobLogsShape = "application/json"),
            (String = "text/event-stream")
        )),
        BadRequest,
        NotFound,
        StoreProblems,
    )
)]
pub(super) async fn logs(
    State(app): State<Arc<App>>,
    path: Segment,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let query = Query::parse(raw.as_deref(), &["after", "limit"])?;
    let (after, limit) = (query.seq("after")?.unwrap_or(0), query.page_limit()?);
    let id = job_id(path)?;
    if app.bus.job(id).await?.is_none() {
        return Err(no_job(id));
    }
    if !wants_stream(&headers) {
        let lines = app.bus.job_lines(id, after, limit).await?;
        return Ok(shapes::json(StatusCode::OK, &JobLogsShape::new(&lines, limit)));
    }
    let resumed = match headers.get("last-event-id").filter(|value| !value.is_empty()) {
        Some(value) => Some(query::seq("Last-Event-ID", &String::from_utf8_lossy(value.as_bytes()))?),
        None => None,
    };
    let listener = Listener {
        bus: app.bus.clone(),
        id,
        after: resumed.unwrap_or(after),
        heartbeat: app.options.heartbeat,
        stop: app.options.stop.clone(),
        over: false,
        _open: Counted::new("ensue_streams"),
    };
    let chunks = futures_util::stream::unfold(listener, Listener::next_chunk);
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((StatusCode::OK, headers, Body::from_stream(chunks)).into_response())
}

fn wants_stream(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(header::ACCEPT).into_iter();
    accepted.map(|value| String::from_utf8_lossy(value.as_bytes())).any(|value| value.contains("text/event-stream"))
}

/// Somebody who listens to a job.
struct Listener {
    bus: Ensue,
    id: JobId,
    after: u64,
    heartbeat: Duration,
    stop: watch::Receiver<bool>,
    over: bool,
    _open: Counted,
}

impl Listener {
    /// What is sent next, or none if the stream has ended.
    async fn next_chunk(mut self) -> Option<(Result<Bytes, std::convert::Infallible>, Self)> {
        if self.over {
            return None;
        }
        let silent_until = Instant::now() + self.heartbeat;
        loop {
            match self.look().await {
                Ok(Some(chunk)) => return Some((Ok(chunk), self)),
                Ok(None) => {}
                Err(error) => {
                    tracing::warn!("a stream of a job's lines ended because the store failed: {error}");
                    self.over = true;
                    return Some((
                        Ok(Bytes::from_static(b": the store failed; come back with Last-Event-ID\n\n")),
                        self,
                    ));
                }
            }
            let mut stop = self.stop.clone();
            tokio::select! {
                biased;
                () = stopped(&mut stop) => return None,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
            if Instant::now() >= silent_until {
                return Some((Ok(Bytes::from_static(b": still here\n\n")), self));
            }
        }
    }

    /// New lines, or the end; none while there is nothing new.
    async fn look(&mut self) -> Result<Option<Bytes>, ensue::Error> {
        // The job first: what it said before its end is there when the end is seen.
        let state = self.bus.job(self.id).await?.map(|job| job.state);
        let lines = self.bus.job_lines(self.id, self.after, CHUNK_LINES).await?;
        let mut chunk = Vec::new();
        for line in &lines {
            self.after = line.line;
            chunk.extend_from_slice(format!("id: {}\nevent: line\ndata: ", line.line).as_bytes());
            let shape = JobLineShape::from(line);
            chunk.extend(serde_json::to_vec(&shape).expect("numbers and texts can always be written as JSON"));
            chunk.extend_from_slice(b"\n\n");
        }
        let is_over = state.is_none_or(JobState::is_final);
        if is_over && lines.len() < CHUNK_LINES {
            let state = state.map_or("forgotten", JobState::as_str);
            chunk.extend_from_slice(format!("event: end\ndata: {{\"state\":\"{state}\"}}\n\n").as_bytes());
            self.over = true;
        }
        Ok((!chunk.is_empty()).then(|| chunk.into()))
    }
}
