//! How does a client follow the log?
//!
//! Server-sent events, pulled from the log as fast as the client takes them: a slow client has one small buffer here
//! and reads on from the store. Whatever ends the connection, the client comes back with the `Last-Event-ID` it saw and
//! goes on there; if that is no longer in the log, it is told what it missed.

use super::App;
use super::events::start;
use super::measure::Counted;
use super::problem::Problem;
use super::query::{self, Query};
use super::responses::{BadRequest, Invalid, StoreProblems};
use super::shapes::EventShape;
use super::stop::stopped;
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ensue::{ConditionError, Delivered, EventStream, GapReason, Seq, Streamed, Subscription};
use futures_util::FutureExt;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What is ready is written together up to about this much.
const CHUNK_BYTES: usize = 32 << 10;

/// How a comment about a condition that fails begins.
pub(crate) const CONDITION_FAILED: &str = "the condition failed on event ";

/// Follows the log as server-sent events
///
/// History first if asked for, then live, without a gap or a double. Each event has its `seq` as `id`, its topic as
/// `event` and itself as `data`. `Last-Event-ID` wins over `after` and `from_time`; without any of them the stream
/// begins now. `ensue.gap` says, whenever it is so, that places cannot be delivered or are no longer what they were, with
/// `from`, `to` and the `reason`: `forgotten` (by retention; the stream goes on behind them), `beyond_end` (the place to
/// resume at is not in the log; it goes on at the end) or `went_back` (a failover lost them; it goes on before them, with
/// other events under the same numbers). With a condition in `where`, only events for which it holds come; the first on
/// which it fails is told in a comment (`: the condition failed on event SEQ: WHY`), and that one and all others on which it
/// fails are left out and counted at `/metrics`. Comments come as heartbeats, too. Ends when the server stops: come back with
/// `Last-Event-ID`.
#[utoipa::path(
    get,
    path = "/v1/events/stream",
    operation_id = "stream_events",
    tag = "events",
    params(
        ("after" = Option<u64>, Query, description = "Begin after this place; 0 for the beginning of the log"),
        ("from_time" = Option<String>, Query, format = DateTime, description = "Begin with events recorded at or after this time"),
        ("topic" = Option<String>, Query, description = "This topic and those below it"),
        ("object" = Option<String>, Query, description = "Events of this object alone"),
        ("where" = Option<String>, Query, max_length = 16384, description = "Only events for which this condition holds: an SQL expression over `e`, the event (`topic, object, payload, metadata, seq, id, occurred_at, recorded_at`), and `s.params`, such as `(e.payload->>'total')::numeric > 100`. `s.id` is the nil UUID and `s.group_id` is empty here"),
        ("params" = Option<String>, Query, description = "JSON that the condition reads as `s.params`; `{}` unless told. Only with `where`"),
        ("limit" = Option<u64>, Query, minimum = 1, description = "End after so many events"),
        ("Last-Event-ID" = Option<u64>, Header, description = "The `seq` of the last event that was received"),
    ),
    responses(
        (status = 200, description = "The stream", body = String, content_type = "text/event-stream"),
        BadRequest,
        Invalid,
        StoreProblems,
    )
)]
pub(super) async fn stream(
    State(app): State<Arc<App>>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let known = ["after", "limit", "topic", "object", "where", "params", "from_time"];
    let query = Query::parse(raw.as_deref(), &known)?;
    let limit = query.stream_limit()?;
    let subscription = Subscription::wanted(query.wanted()?);
    let asked = start(&app.bus, &query).await?;
    let resumed = last_event_id(&headers)?;
    let after = resumed.or(asked);
    let subscription = match after {
        Some(after) => subscription.after(after),
        None => subscription,
    };
    let follower = Follower {
        events: app.bus.stream(subscription).await?,
        left: limit,
        heartbeat: app.options.heartbeat,
        stop: app.options.stop.clone(),
        over: false,
        _open: Counted::new("ensue_streams"),
    };
    let chunks = futures_util::stream::unfold(follower, Follower::next_chunk);
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
        // Tells reverse proxies of the nginx kind not to hold events back.
        (header::HeaderName::from_static("x-accel-buffering"), "no"),
    ];
    Ok((StatusCode::OK, headers, Body::from_stream(chunks)).into_response())
}

/// The place where the client wants to go on. Browsers send an empty one where they have none.
fn last_event_id(headers: &HeaderMap) -> Result<Option<Seq>, Problem> {
    match headers.get("last-event-id") {
        None => Ok(None),
        Some(value) if value.is_empty() => Ok(None),
        Some(value) => query::seq("Last-Event-ID", &String::from_utf8_lossy(value.as_bytes())).map(Some),
    }
}

/// One client's way along the log.
struct Follower {
    events: EventStream,
    /// How many events may still come, if there is a limit.
    left: Option<u64>,
    heartbeat: Duration,
    stop: watch::Receiver<bool>,
    over: bool,
    _open: Counted,
}

impl Follower {
    /// What is sent next, or none if the stream has ended.
    async fn next_chunk(mut self) -> Option<(Result<Bytes, std::convert::Infallible>, Self)> {
        if self.over {
            return None;
        }
        let mut chunk = Vec::new();
        let item = tokio::select! {
            biased;
            () = stopped(&mut self.stop) => return None,
            item = self.events.next() => item,
            () = tokio::time::sleep(self.heartbeat) => return Some((Ok(Bytes::from_static(b": still here\n\n")), self)),
        };
        self.write(&mut chunk, item);
        while !self.over
            && chunk.len() < CHUNK_BYTES
            && let Some(item) = self.events.next().now_or_never()
        {
            self.write(&mut chunk, item);
        }
        Some((Ok(chunk.into()), self))
    }

    fn write(&mut self, chunk: &mut Vec<u8>, item: Option<Result<Streamed, ensue::Error>>) {
        match item {
            Some(Ok(Streamed::Event(delivered))) => {
                write_event(chunk, &delivered);
                self.left = self.left.map(|left| left - 1);
                self.over = self.left == Some(0);
            }
            Some(Ok(Streamed::Gap { from, to, reason })) => {
                // Where the client goes on if it has to come back now.
                let at = match reason {
                    GapReason::Forgotten => to,
                    GapReason::BeyondEnd | GapReason::WentBack => from - 1,
                };
                let reason = reason.as_str();
                put(
                    chunk,
                    format_args!(
                        "id: {at}\nevent: ensue.gap\ndata: {{\"from\":{from},\"to\":{to},\"reason\":\"{reason}\"}}\n\n"
                    ),
                );
            }
            Some(Ok(Streamed::ConditionFailed(error))) => {
                put(chunk, format_args!(": {}\n\n", condition_failed(&error)))
            }
            Some(Ok(Streamed::Caught(at))) => put(chunk, format_args!(": caught up at {at}\n\n")),
            Some(Err(error)) => {
                tracing::warn!("a stream ended because the store failed: {error}");
                put(chunk, format_args!(": the store failed; come back with Last-Event-ID\n\n"));
                self.over = true;
            }
            None => self.over = true,
        }
    }
}

/// What a stream says of a condition that fails, on one line.
pub(crate) fn condition_failed(ConditionError { seq, detail }: &ConditionError) -> String {
    format!("{CONDITION_FAILED}{seq}: {detail}").replace(char::is_control, " ")
}

fn write_event(chunk: &mut Vec<u8>, delivered: &Delivered) {
    put(chunk, format_args!("id: {}\nevent: {}\ndata: ", delivered.event.seq, delivered.event.topic));
    // Stored JSON has no blanks and therefore no line breaks: it is one line of data.
    serde_json::to_writer(&mut *chunk, &EventShape::from(delivered)).expect("an event can always be written as JSON");
    chunk.extend_from_slice(b"\n\n");
}

fn put(chunk: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    chunk.write_fmt(text).expect("writing to memory does not fail");
}
