//! What do answers look like?

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use ensue::{
    Appended, ChainPage, ConditionErrors, Delivered, Event, EventId, Json, NewestPage, ObjectKey, Pending, Selection,
    Seq, SyncReport, Timestamp, Topic,
};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// Where an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum EventState {
    /// In the log.
    Logged,
    /// Delayed: waits for its `not_before`.
    Pending,
    /// Was delayed, and will never enter the log.
    Cancelled,
}

/// An event.
#[derive(Serialize, ToSchema)]
#[schema(as = Event)]
pub(crate) struct EventShape<'a> {
    /// Its place in the log: gapless, the one order everybody sees. Null while it is pending.
    #[schema(value_type = Option<u64>, required = true)]
    seq: Option<Seq>,
    /// The place of the preceding event of the same object; null if there is none. In a stream: the preceding one that
    /// the stream's filter matches and its condition holds for.
    #[schema(value_type = Option<u64>, required = true)]
    prev: Option<Seq>,
    /// Only in a filtered stream, where `prev` could not be decided: of what came before this place nothing is claimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u64>, nullable = false)]
    prev_since: Option<Seq>,
    /// Its identity, a UUIDv7.
    #[schema(value_type = String, format = "uuid")]
    id: EventId,
    /// What kind of thing happened, in dotted segments.
    #[schema(value_type = String)]
    topic: &'a Topic,
    /// What it is about.
    #[schema(value_type = Option<String>, required = true)]
    object: Option<&'a ObjectKey>,
    /// The content: any JSON.
    #[schema(value_type = serde_json::Value)]
    payload: &'a Json,
    /// What is said about the event rather than by it.
    #[schema(value_type = std::collections::HashMap<String, serde_json::Value>)]
    metadata: &'a Json,
    /// When it happened.
    #[schema(value_type = String, format = DateTime)]
    occurred_at: Timestamp,
    /// When it entered the log, by the store's clock; never decreases along the log. Null while it is pending.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    recorded_at: Option<Timestamp>,
    /// Only while it is pending: when it may enter the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime, nullable = false)]
    not_before: Option<Timestamp>,
    /// The one subscription it is sent to, if it is a direct message.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = "uuid", nullable = false)]
    to: Option<Uuid>,
    /// Where it is.
    state: EventState,
}

impl<'a> EventShape<'a> {
    /// The same event as a handler gets it.
    pub fn with_prev_since(self, prev_since: Option<Seq>) -> Self {
        Self { prev_since, ..self }
    }

    /// The same event with another payload.
    pub fn with_payload(self, payload: &'a Json) -> Self {
        Self { payload, ..self }
    }
}

impl<'a> From<&'a Event> for EventShape<'a> {
    fn from(event: &'a Event) -> Self {
        Self {
            seq: Some(event.seq),
            prev: event.prev,
            prev_since: None,
            id: event.id,
            topic: &event.topic,
            object: event.object.as_ref(),
            payload: &event.payload,
            metadata: &event.metadata,
            occurred_at: event.occurred_at,
            recorded_at: Some(event.recorded_at),
            not_before: None,
            to: event.to,
            state: EventState::Logged,
        }
    }
}

impl<'a> From<&'a Pending> for EventShape<'a> {
    fn from(pending: &'a Pending) -> Self {
        Self {
            seq: None,
            prev: None,
            prev_since: None,
            id: pending.id,
            topic: &pending.topic,
            object: pending.object.as_ref(),
            payload: &pending.payload,
            metadata: &pending.metadata,
            occurred_at: pending.occurred_at,
            recorded_at: None,
            not_before: Some(pending.not_before),
            to: pending.to,
            state: EventState::Pending,
        }
    }
}

impl<'a> From<&'a Delivered> for EventShape<'a> {
    fn from(delivered: &'a Delivered) -> Self {
        Self { prev: delivered.prev, prev_since: delivered.prev_since, ..EventShape::from(&*delivered.event) }
    }
}

/// A page of events.
#[derive(Serialize, ToSchema)]
#[schema(as = EventPage)]
pub(crate) struct PageShape<'a> {
    pub events: Vec<EventShape<'a>>,
    /// Where to go on: the `after` of the next page. With `order=desc`, and in an object's chain, it is the `before` of the
    /// next page. A page of the log in ascending order always has one, even an empty page; else it is null where nothing
    /// more can follow.
    #[schema(value_type = Option<u64>, required = true)]
    pub next: Option<Seq>,
    /// The oldest place of the log (only on pages of the log). If it is beyond the place after `after`, what was
    /// between is forgotten and cannot be read any more.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<Seq>,
    /// Only if the condition in `where` failed on events that this page passed over: they are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub condition_errors: Option<ConditionErrorsShape<'a>>,
}

/// How often a condition failed.
#[derive(Serialize, ToSchema)]
#[schema(as = ConditionErrors)]
pub(crate) struct ConditionErrorsShape<'a> {
    /// On how many events.
    count: u64,
    /// The first of them.
    first: ConditionErrorShape<'a>,
}

/// An event on which a condition failed.
#[derive(Serialize, ToSchema)]
#[schema(as = ConditionError)]
pub(crate) struct ConditionErrorShape<'a> {
    /// The event.
    seq: Seq,
    /// What went wrong, and what to write instead.
    detail: &'a str,
}

impl<'a> From<&'a ConditionErrors> for ConditionErrorsShape<'a> {
    fn from(errors: &'a ConditionErrors) -> Self {
        let ConditionErrors { count, first } = errors;
        Self { count: *count, first: ConditionErrorShape { seq: first.seq, detail: &first.detail } }
    }
}

impl<'a> From<&'a Selection> for PageShape<'a> {
    fn from(Selection { page, condition_errors }: &'a Selection) -> Self {
        Self {
            events: page.events.iter().map(EventShape::from).collect(),
            next: Some(page.next),
            first: Some(page.first),
            condition_errors: condition_errors.as_ref().map(ConditionErrorsShape::from),
        }
    }
}

impl<'a> From<&'a NewestPage> for PageShape<'a> {
    fn from(NewestPage { events, next, first, condition_errors }: &'a NewestPage) -> Self {
        Self {
            events: events.iter().map(EventShape::from).collect(),
            next: *next,
            first: Some(*first),
            condition_errors: condition_errors.as_ref().map(ConditionErrorsShape::from),
        }
    }
}

impl<'a> PageShape<'a> {
    /// A page of an object's chain, newest first.
    pub fn of_chain(page: &'a ChainPage) -> Self {
        let events = page.events.iter().map(EventShape::from).collect();
        Self { events, next: page.next, first: None, condition_errors: None }
    }

    /// Delayed events, which no page follows.
    pub fn of_pending(pending: &'a [Pending]) -> Self {
        let events = pending.iter().map(EventShape::from).collect();
        Self { events, next: None, first: None, condition_errors: None }
    }
}

/// What became of published events, in the order they were sent. It is on disk.
#[derive(Serialize, ToSchema)]
#[schema(as = Published)]
pub(super) struct PublishedShape<'a> {
    #[schema(value_type = Vec<AppendedShape>)]
    pub events: &'a [Appended],
    /// Only with `wait=sync`: the first of `failed`, `blocked` and `pending` that a handler has, else `done`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, nullable = false)]
    pub sync: Option<&'static str>,
    /// Only with `wait=sync`: each sync handler that wants one of the events, by key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub handlers: Option<Vec<SyncHandlerShape<'a>>>,
}

/// How far a sync handler is with the events.
#[derive(Serialize, ToSchema)]
#[schema(as = SyncHandler)]
pub(super) struct SyncHandlerShape<'a> {
    /// Its key.
    handler: &'a str,
    /// `done`; `failed`: it has given an event up; `blocked`: it waits until a person acts; `pending`: it continues
    /// durably. Of several events the first of `failed`, `blocked`, `pending` that one has.
    state: &'static str,
    /// The event that the state is about; null if all are done.
    #[schema(value_type = Option<u64>, required = true)]
    seq: Option<Seq>,
    /// What went wrong, or what blocks it.
    #[schema(required = true)]
    error: Option<&'a str>,
}

impl<'a> From<&'a SyncReport> for SyncHandlerShape<'a> {
    fn from(report: &'a SyncReport) -> Self {
        let SyncReport { handler, outcome, seq } = report;
        Self { handler: handler.as_str(), state: outcome.as_str(), seq: *seq, error: outcome.error() }
    }
}

/// What became of one published event.
#[derive(Serialize, ToSchema)]
#[schema(as = Appended)]
pub(super) struct AppendedShape {
    /// Its identity, a UUIDv7.
    #[schema(value_type = String, format = "uuid")]
    id: EventId,
    /// Its place in the log; null while it is delayed.
    #[schema(value_type = Option<u64>, required = true)]
    seq: Option<Seq>,
    /// The place of the preceding event of the same object that is not a direct message.
    #[schema(value_type = Option<u64>, required = true)]
    prev: Option<Seq>,
}

/// A delayed event that was cancelled.
#[derive(Serialize, ToSchema)]
#[schema(as = Cancelled)]
pub(crate) struct CancelledShape {
    /// Its identity.
    #[schema(value_type = String, format = "uuid")]
    pub id: EventId,
    /// `cancelled`.
    pub state: EventState,
}

/// An event to publish. Other fields are refused.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewEvent)]
#[expect(dead_code, reason = "describes what `body.rs` reads by hand")]
pub(super) struct NewEventShape {
    /// What kind of thing happened: dotted segments of letters, digits and `_ - : / @ + ~ = $`, at most 255 bytes.
    /// `ensue.` is reserved.
    #[schema(example = "order.paid", max_length = 255)]
    topic: String,
    /// What it is about, at most 512 bytes without control, bidirectional or zero-width characters. Events of one object are
    /// chained by `prev` and handled in order.
    #[schema(example = "order:17", max_length = 512)]
    object: Option<String>,
    /// The content: any JSON, nested at most 64 levels deep; null if left out. Numbers that would take much more room
    /// written out (`1e300`) are refused where there are many of them.
    payload: Option<serde_json::Value>,
    /// What is said about the event rather than by it: a JSON object.
    metadata: Option<std::collections::HashMap<String, serde_json::Value>>,
    /// When it happened; when it was recorded, if left out.
    #[schema(format = DateTime)]
    occurred_at: Option<String>,
    /// Enters the log no earlier than this. Until then it is pending and can be cancelled.
    #[schema(format = DateTime)]
    not_before: Option<String>,
    /// Your own name for this publish: sent again within 24 hours it is stored once, and answered as the first time.
    #[schema(max_length = 512)]
    key: Option<String>,
    /// The one subscription it is sent to: a direct message. Of all groups, handlers and streams
    /// only that one gets it, whatever its condition; reads of the log leave it out unless
    /// `include=direct` asks for it. 422 if no subscription has this id.
    #[schema(format = "uuid")]
    to: Option<String>,
}

/// One event, or several that are stored together or not at all.
#[derive(Deserialize, ToSchema)]
#[serde(untagged)]
#[schema(as = OneOrBatch)]
#[expect(dead_code, reason = "describes what `body.rs` reads by hand")]
pub(super) enum OneOrBatchShape {
    One(NewEventShape),
    Batch(Vec<NewEventShape>),
}

/// A CloudEvent 1.0 in the JSON format. Extensions may stand beside these attributes.
#[derive(ToSchema)]
#[schema(as = CloudEvent)]
#[expect(dead_code, reason = "describes what `cloudevents.rs` reads by hand")]
pub(super) struct CloudEventShape {
    /// `1.0`.
    specversion: String,
    /// With `source` the idempotency key.
    id: String,
    source: String,
    /// The topic.
    r#type: String,
    /// The object.
    subject: Option<String>,
    /// When it happened.
    #[schema(format = DateTime)]
    time: Option<String>,
    datacontenttype: Option<String>,
    dataschema: Option<String>,
    /// The payload.
    data: Option<serde_json::Value>,
    /// The payload as padded base64; kept so, and marked in `metadata.data_encoding`.
    data_base64: Option<String>,
}

/// Something is well.
#[derive(Serialize, ToSchema)]
#[schema(as = Status)]
pub(super) struct StatusShape {
    /// `ok`.
    #[schema(value_type = String)]
    pub status: &'static str,
}

/// A JSON answer, ended by a newline.
pub(super) fn json(status: StatusCode, shape: &impl Serialize) -> Response {
    json_as(status, "application/json", shape)
}

/// A JSON answer of this media type, ended by a newline.
pub(super) fn json_as(status: StatusCode, media_type: &'static str, shape: &(impl Serialize + ?Sized)) -> Response {
    let mut body = serde_json::to_vec(shape).expect("answers are made of text, numbers and checked JSON");
    body.push(b'\n');
    (status, [(header::CONTENT_TYPE, media_type)], body).into_response()
}
