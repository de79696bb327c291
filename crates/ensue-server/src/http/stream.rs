//! Live reads of the log as server-sent events.
//!
//! A stream reads the log as fast as its client reads the response; a slow client costs one small buffer. A client
//! reconnects with the last `id:` that it received and misses nothing. Heartbeats carry an `id:` too, without data: the
//! position up to which the filter has been evaluated. Without it, a filtered stream that has received no event could
//! not be resumed.

use super::App;
use super::events::start;
use super::measure::Counted;
use super::problem::Problem;
use super::query::{self, Query};
use super::responses::{BadRequest, Invalid, NotFound, StoreProblems};
use super::shapes::EventShape;
use super::stop::stopped;
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ensue::{ConditionError, Delivered, Event, EventStream, GapReason, Seq, Streamed, Subscription};
use futures_util::FutureExt;
use std::collections::VecDeque;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// What is ready is written together up to about this much.
const CHUNK_BYTES: usize = 32 << 10;

/// Payloads of so many bytes are sent from the event itself, which all streams share, and not from a copy for each.
const SHARED_BYTES_MIN: usize = 16 << 10;

/// How a comment about a condition that fails begins.
pub(crate) const CONDITION_FAILED: &str = "the condition failed on event ";

/// Follows the log as server-sent events
///
/// Sends history first, if `after` or `from_time` asks for it, then new events, without gaps or duplicates. Each event
/// has its `seq` as `id`, its topic as `event` and the event as `data`. With `event=message` events have no `event` field,
/// so that `EventSource.onmessage` receives them. `Last-Event-ID` takes precedence over `after` and `from_time`; without
/// any of them the stream starts at the end of the log.
///
/// A comment `: caught up at SEQ` ends the history; comments are also sent as heartbeats. Both come with an `id` and no
/// `data`: the position of the stream, up to which every event was sent or excluded by the filter. Clients that follow
/// the standard remember it without dispatching an event.
///
/// `ensue.gap` reports events that cannot be delivered, with `from`, `to` and `reason`: `forgotten` (deleted by retention;
/// the stream continues after them), `beyond_end` (`Last-Event-ID` or `after` is not in the log; the stream continues at
/// its end) or `went_back` (lost in a failover; the stream continues before them, with other events under the same
/// numbers). It keeps its name with `event=message`.
///
/// With `where`, the stream contains the events for which the condition is true. Events on which it fails are omitted and
/// counted in `ensue_condition_errors_total`; the first is reported in a comment (`: the condition failed on event SEQ:
/// REASON`). The stream ends when the server stops: reconnect with `Last-Event-ID`.
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
        ("include" = Option<String>, Query, description = "`direct`: also direct messages, events that are sent `to` one \
            subscription. Default: without them"),
        ("subscription" = Option<String>, Query, format = "uuid", description = "The id of a subscription as which the \
            stream is addressed: it also gets the events that are sent `to` it, whatever `topic`, `object` and `where` \
            are, and keeps the subscription from expiring"),
        ("limit" = Option<u64>, Query, minimum = 1, description = "End after this many events"),
        ("event" = Option<String>, Query, description = "`message` omits the `event` field, so that `EventSource.onmessage` receives every event. Default: each event is named after its topic"),
        ("Last-Event-ID" = Option<u64>, Header, description = "The last `id` that was received"),
    ),
    responses(
        (status = 200, description = "The stream", body = String, content_type = "text/event-stream"),
        BadRequest,
        NotFound,
        Invalid,
        StoreProblems,
    )
)]
pub(super) async fn stream(
    State(app): State<Arc<App>>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let known =
        ["after", "limit", "topic", "object", "where", "params", "from_time", "event", "include", "subscription"];
    let query = Query::parse(raw.as_deref(), &known)?;
    let named = event_names(&query)?;
    let limit = query.stream_limit()?;
    let subscription = Subscription::wanted(query.wanted().await?);
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
        named,
        heartbeat: app.options.heartbeat,
        stop: app.options.stop.clone(),
        over: false,
        frames: VecDeque::new(),
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

/// Whether events are named after their topics.
fn event_names(query: &Query) -> Result<bool, Problem> {
    match query.text("event") {
        None => Ok(true),
        Some("message") => Ok(false),
        Some(_) => {
            let reason = "must be `message`, which leaves events unnamed; omit it to name each event after its topic";
            Err(Problem::bad_request("event", reason))
        }
    }
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
    /// Whether events are named after their topics.
    named: bool,
    heartbeat: Duration,
    stop: watch::Receiver<bool>,
    over: bool,
    /// To be sent before anything else.
    frames: VecDeque<Bytes>,
    _open: Counted,
}

impl Follower {
    /// What is sent next, or none if the stream has ended.
    async fn next_chunk(mut self) -> Option<(Result<Bytes, std::convert::Infallible>, Self)> {
        if let Some(frame) = self.frames.pop_front() {
            return Some((Ok(frame), self));
        }
        if self.over {
            return None;
        }
        let mut chunk = Vec::new();
        let item = tokio::select! {
            biased;
            () = stopped(&mut self.stop) => {
                self.over = true;
                self.write_position(&mut chunk, "the server stops");
                return Some((Ok(chunk.into()), self));
            }
            item = self.events.next() => item,
            () = tokio::time::sleep(self.heartbeat) => {
                self.write_position(&mut chunk, "still here");
                return Some((Ok(chunk.into()), self));
            }
        };
        self.write(&mut chunk, item);
        while !self.over
            && chunk.len() < CHUNK_BYTES
            && self.frames.is_empty()
            && let Some(item) = self.events.next().now_or_never()
        {
            self.write(&mut chunk, item);
        }
        self.frames.push_back(chunk.into());
        let frame = self.frames.pop_front()?;
        Some((Ok(frame), self))
    }

    /// A comment with the position of the stream. It has no data, so clients dispatch no event.
    fn write_position(&self, chunk: &mut Vec<u8>, comment: &str) {
        put(chunk, format_args!(": {comment}\nid: {}\n\n", self.events.position()));
    }

    fn write(&mut self, chunk: &mut Vec<u8>, item: Option<Result<Streamed, ensue::Error>>) {
        match item {
            Some(Ok(Streamed::Event(delivered))) => {
                self.write_event(chunk, &delivered);
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
            Some(Ok(Streamed::Caught(at))) => put(chunk, format_args!(": caught up at {at}\nid: {at}\n\n")),
            Some(Err(error)) => {
                tracing::warn!("a stream ended because the store failed: {error}");
                self.write_position(chunk, "the store failed; reconnect with Last-Event-ID");
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

impl Follower {
    fn write_event(&mut self, chunk: &mut Vec<u8>, delivered: &Delivered) {
        put(chunk, format_args!("id: {}\n", delivered.event.seq));
        if self.named {
            put(chunk, format_args!("event: {}\n", delivered.event.topic));
        }
        chunk.extend_from_slice(b"data: ");
        // Stored JSON has no blanks and therefore no line breaks: it is one line of data.
        if delivered.event.payload.as_str().len() < SHARED_BYTES_MIN {
            let event = EventShape::from(delivered);
            serde_json::to_writer(&mut *chunk, &event).expect("an event can always be written as JSON");
        } else {
            // In the text of a string the quotes would have backslashes, so this is the field.
            const FIELD: &str = "\"payload\":";
            const EMPTY: &str = "\"payload\":null";
            let event = json(&EventShape::from(delivered).with_payload(&ensue::Json::null()));
            let (before, after) = event.split_once(EMPTY).expect("an event has a payload");
            put(chunk, format_args!("{before}{FIELD}"));
            self.frames.push_back(std::mem::take(chunk).into());
            self.frames.push_back(Bytes::from_owner(Payload(delivered.event.clone())));
            put(chunk, format_args!("{after}"));
        }
        chunk.extend_from_slice(b"\n\n");
    }
}

/// The payload of an event, as bytes.
struct Payload(Arc<Event>);

impl AsRef<[u8]> for Payload {
    fn as_ref(&self) -> &[u8] {
        self.0.payload.as_str().as_bytes()
    }
}

fn json(event: &EventShape<'_>) -> String {
    serde_json::to_string(event).expect("an event can always be written as JSON")
}

fn put(chunk: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    chunk.write_fmt(text).expect("writing to memory does not fail");
}
