//! How does the server's JSON become our types again?

use super::publish::SyncAnswer;
use anyhow::{Context, bail};
use ensue::{
    ChainPage, ConditionError, ConditionErrors, Delivered, Event, EventId, Found, GapReason, Json, NewestPage,
    ObjectKey, Page, Pending, Selection, Seq, Streamed, Timestamp, Topic,
};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::sync::Arc;
use uuid::Uuid;

/// An event as the server shows it, logged or pending. Fields we do not know come from a newer server and are ignored.
#[derive(Debug, Deserialize)]
pub struct WireEvent {
    seq: Option<Seq>,
    prev: Option<Seq>,
    id: EventId,
    topic: String,
    object: Option<String>,
    payload: Box<RawValue>,
    metadata: Box<RawValue>,
    occurred_at: Timestamp,
    recorded_at: Option<Timestamp>,
    not_before: Option<Timestamp>,
    to: Option<Uuid>,
    prev_since: Option<Seq>,
}

impl WireEvent {
    /// The event, wherever it is.
    pub fn found(self) -> anyhow::Result<Found> {
        let id = self.id;
        let topic = Topic::stored(&self.topic);
        let object = self.object.as_deref().map(ObjectKey::stored);
        let payload = Json::stored(self.payload.get());
        let metadata = Json::stored(self.metadata.get());
        let (occurred_at, to) = (self.occurred_at, self.to);
        match (self.seq, self.recorded_at, self.not_before) {
            (Some(seq), Some(recorded_at), _) => {
                let prev = self.prev;
                Ok(Found::Logged(Event {
                    seq,
                    prev,
                    id,
                    topic,
                    object,
                    payload,
                    metadata,
                    occurred_at,
                    recorded_at,
                    to,
                }))
            }
            (None, _, Some(not_before)) => {
                Ok(Found::Pending(Pending { id, topic, object, payload, metadata, occurred_at, not_before, to }))
            }
            (Some(_), None, _) | (None, _, None) => {
                bail!("the server's answer has an event that is neither logged nor pending")
            }
        }
    }

    /// The event as a stream delivers it, with the `prev` of the stream's filter.
    pub fn delivered(self) -> anyhow::Result<Delivered> {
        let prev_since = self.prev_since;
        let event = self.logged()?;
        Ok(Delivered { prev: event.prev, event: Arc::new(event), prev_since })
    }

    /// The event, which must be in the log.
    pub fn logged(self) -> anyhow::Result<Event> {
        match self.found()? {
            Found::Logged(event) => Ok(event),
            Found::Pending(pending) => bail!("the server's answer has the pending event {} in the log", pending.id),
        }
    }
}

/// The gap of a stream.
#[derive(Deserialize)]
struct WireGap {
    from: Seq,
    to: Seq,
    reason: String,
}

#[derive(Deserialize)]
struct WirePage {
    events: Vec<WireEvent>,
    next: Option<Seq>,
    first: Seq,
    condition_errors: Option<WireErrors>,
}

#[derive(Deserialize)]
struct WireErrors {
    count: u64,
    first: WireError,
}

#[derive(Deserialize)]
struct WireError {
    seq: Seq,
    detail: String,
}

#[derive(Deserialize)]
struct WireEvents {
    events: Vec<WireEvent>,
    next: Option<Seq>,
}

/// The answer to a publish.
#[derive(Debug, Deserialize)]
pub struct WireAppended {
    /// The event's identity.
    pub id: EventId,
    /// Its place in the log; none while it is delayed.
    pub seq: Option<Seq>,
    /// The place of the preceding event of the same object.
    pub prev: Option<Seq>,
}

#[derive(Deserialize)]
struct WirePublished {
    events: Vec<WireAppended>,
}

/// One event.
pub fn event(text: &str) -> anyhow::Result<WireEvent> {
    parse(text)
}

/// Any answer.
pub fn json(text: &str) -> anyhow::Result<serde_json::Value> {
    parse(text)
}

/// The gap of a stream.
pub fn gap(text: &str) -> anyhow::Result<Streamed> {
    let WireGap { from, to, reason } = parse(text)?;
    let known = [GapReason::Forgotten, GapReason::BeyondEnd, GapReason::WentBack];
    let reason = known.into_iter().find(|known| known.as_str() == reason).with_context(|| {
        format!("the server tells of a gap of a kind that this program does not know (`{reason}`): use a newer `ensue`")
    })?;
    Ok(Streamed::Gap { from, to, reason })
}

/// A page of the log.
pub fn selection(text: &str) -> anyhow::Result<Selection> {
    let NewestPage { events, next, first, condition_errors } = newest(text)?;
    let next = next.context("the server's answer does not say where the next page begins")?;
    Ok(Selection { page: Page { events, next, first }, condition_errors })
}

/// A page of the log, newest first.
pub fn newest(text: &str) -> anyhow::Result<NewestPage> {
    let WirePage { events, next, first, condition_errors } = parse(text)?;
    let events = events.into_iter().map(WireEvent::logged).collect::<anyhow::Result<_>>()?;
    let condition_errors = condition_errors.map(|WireErrors { count, first: WireError { seq, detail } }| {
        ConditionErrors { count, first: ConditionError { seq, detail } }
    });
    Ok(NewestPage { events, next, first, condition_errors })
}

/// A page of an object's chain.
pub fn chain(text: &str) -> anyhow::Result<ChainPage> {
    let WireEvents { events, next } = parse(text)?;
    Ok(ChainPage { events: events.into_iter().map(WireEvent::logged).collect::<anyhow::Result<_>>()?, next })
}

/// A list of delayed events.
pub fn pending(text: &str) -> anyhow::Result<Vec<Pending>> {
    let pending = |event: WireEvent| match event.found()? {
        Found::Pending(pending) => Ok(pending),
        Found::Logged(event) => bail!("the server's answer has event {} of the log among the pending ones", event.seq),
    };
    parse::<WireEvents>(text)?.events.into_iter().map(pending).collect()
}

/// The answer to the publish of one event.
pub fn published(text: &str) -> anyhow::Result<WireAppended> {
    parse::<WirePublished>(text)?.events.into_iter().next().context("the server answered without an event")
}

/// What the sync handlers of a publish answered.
pub fn sync_answer(text: &str) -> anyhow::Result<SyncAnswer> {
    parse(text)
}

fn parse<'a, T: Deserialize<'a>>(text: &'a str) -> anyhow::Result<T> {
    serde_json::from_str(text).with_context(|| {
        let start: String = text.chars().take(200).collect();
        format!("this is not an answer of an Ensue server; check --url ({start:?})")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_comes_back_as_it_was_sent() {
        let text = r#"{"seq":3,"prev":1,"id":"01890a5d-ac96-774b-bcce-b302099a8057","topic":"a.b","object":"o","payload":{"x":1.50},"metadata":{},"occurred_at":"2026-11-15T12:00:00Z","recorded_at":"2026-11-15T12:00:00.000001Z"}"#;
        let event = event(text).unwrap().logged().unwrap();
        assert_eq!(event.payload.as_str(), "{\"x\":1.50}");
        assert_eq!(serde_json::to_string(&event).unwrap(), text);
    }

    #[test]
    fn an_answer_of_something_else_is_named_as_such() {
        let error = format!("{:#}", selection("<html>").unwrap_err());
        assert!(error.contains("check --url") && error.contains("<html>"), "{error}");
    }
}
