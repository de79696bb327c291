//! What is an event, before and after it is logged?
//!
//! A [`NewEvent`] is what somebody wants to publish, unchecked. [`NewEvent::check`] makes it an [`Entry`], which every
//! engine can store. In the log it is an [`Event`]; while it waits for its `not_before` it is [`Pending`].

use crate::error::Invalid;
use crate::id::EventId;
use crate::json::Json;
use crate::key::{IdempotencyKey, ObjectKey, Topic};
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use uuid::Uuid;

/// A position in the log: 1 for the first event ever, then without a gap. 0 is before everything.
pub type Seq = u64;

/// The largest event: payload and metadata together, in bytes.
pub const EVENT_BYTES_MAX: usize = 1 << 20;
/// The most events that one publish takes.
pub const BATCH_MAX: usize = 1_000;

/// A typed payload that knows its topic: `TYPE.ACTION`. With the crate `ensue` it can be derived.
///
/// ```
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct RecordPublished { recid: String }
/// impl ensue_core::Fact for RecordPublished {
///     const TYPE: &str = "record";
///     const ACTION: &str = "published";
/// }
/// let event = ensue_core::NewEvent::fact(&RecordPublished { recid: "1".into() }).object("record:1");
/// assert_eq!(event.check().unwrap().topic.as_str(), "record.published");
/// ```
pub trait Fact: Serialize + DeserializeOwned {
    /// The kind of thing the fact is about: the topic's parent.
    const TYPE: &str;
    /// What happened to it: the topic's last segment.
    const ACTION: &str;
}

/// An event somebody wants to publish. Building one never fails: the first fault is kept until [`NewEvent::check`].
#[derive(Debug, Clone)]
pub struct NewEvent {
    entry: Entry,
    fault: Option<Box<Invalid>>,
}

impl NewEvent {
    /// An event on a topic, with `null` as its payload.
    pub fn new(topic: impl AsRef<str>) -> Self {
        let entry = Entry {
            topic: Topic::unset(),
            object: None,
            payload: Json::null(),
            metadata: Json::empty_object(),
            occurred_at: None,
            not_before: None,
            key: None,
            to: None,
        };
        let event = Self { entry, fault: None };
        event.with(Topic::parse(topic.as_ref()), |entry, topic| entry.topic = topic)
    }

    /// A typed event: topic and payload come from the fact.
    pub fn fact<F: Fact>(fact: &F) -> Self {
        Self::new(format!("{}.{}", F::TYPE, F::ACTION)).payload(fact)
    }

    /// What the event is about. Events of one object are chained and handled in order.
    pub fn object(self, object: impl AsRef<str>) -> Self {
        self.with(ObjectKey::parse(object.as_ref()), |entry, object| entry.object = Some(object))
    }

    /// The content, from any value that can be written as JSON.
    pub fn payload(self, payload: &impl Serialize) -> Self {
        self.with(Json::of("payload", payload), |entry, payload| entry.payload = payload)
    }

    /// The content, as JSON text.
    pub fn payload_json<'a>(self, text: impl Into<Cow<'a, str>>) -> Self {
        self.with(Json::parse("payload", text), |entry, payload| entry.payload = payload)
    }

    /// What is said about the event rather than by it: a JSON object.
    pub fn metadata(self, metadata: &impl Serialize) -> Self {
        self.with(Json::of("metadata", metadata), |entry, metadata| entry.metadata = metadata)
    }

    /// The metadata, as JSON text.
    pub fn metadata_json<'a>(self, text: impl Into<Cow<'a, str>>) -> Self {
        self.with(Json::parse("metadata", text), |entry, metadata| entry.metadata = metadata)
    }

    /// What is said about the event by its surroundings, such as the request that it comes from: fields of a JSON object that its own
    /// metadata does not have.
    pub fn metadata_over(self, context: &Json) -> Self {
        let metadata = match self.entry.metadata.is_object() {
            true => self.entry.metadata.over(context),
            // Refused for what it is.
            false => Ok(self.entry.metadata.clone()),
        };
        self.with(metadata, |entry, metadata| entry.metadata = metadata)
    }

    /// When it happened; when it was recorded, unless told.
    pub fn occurred_at(self, at: Timestamp) -> Self {
        self.with(check_time("occurred_at", at), |entry, at| entry.occurred_at = Some(at))
    }

    /// Enters the log no earlier than this. Until then it is pending, and has no place in its object's order.
    pub fn not_before(self, at: Timestamp) -> Self {
        self.with(check_time("not_before", at), |entry, at| entry.not_before = Some(at))
    }

    /// The caller's own name for this publish: sent again within 24 hours it is stored once.
    pub fn key(self, key: impl AsRef<str>) -> Self {
        self.with(IdempotencyKey::parse(key.as_ref()), |entry, key| entry.key = Some(key))
    }

    /// A name in two parts: who sends, and its own name for this publish. Never the same as a name in one piece.
    pub fn key_of_parts(self, sender: &str, name: &str) -> Self {
        self.with(IdempotencyKey::of_parts(sender, name), |entry, key| entry.key = Some(key))
    }

    /// Sends it to one subscription only, as a direct message. The subscription must be there.
    pub fn to(self, subscription: Uuid) -> Self {
        self.with(Ok(subscription), |entry, to| entry.to = Some(to))
    }

    /// Sets a field, or keeps the fault if it is the first.
    fn with<T>(mut self, value: Result<T, Invalid>, set: impl FnOnce(&mut Entry, T)) -> Self {
        match value {
            Ok(value) => set(&mut self.entry, value),
            Err(invalid) => {
                self.fault.get_or_insert_with(|| Box::new(invalid));
            }
        }
        self
    }

    /// Makes it an entry that every engine can store, or says which field to change and how.
    pub fn check(self) -> Result<Entry, Invalid> {
        if let Some(fault) = self.fault {
            return Err(*fault);
        }
        let Entry { payload, metadata, .. } = &self.entry;
        if !metadata.is_object() {
            return Err(Invalid::new("metadata", "must be a JSON object, such as {\"trace\":\"abc\"}"));
        }
        let bytes = payload.as_str().len() + metadata.as_str().len();
        if bytes > EVENT_BYTES_MAX {
            let reason = format!(
                "has {bytes} bytes together with `metadata`; at most {EVENT_BYTES_MAX} are allowed: store the content elsewhere and send a reference"
            );
            return Err(Invalid::new("payload", reason));
        }
        Ok(self.entry)
    }

    /// Checks a batch: all of it is fit for the log, or the first fault is named with its place.
    pub fn check_all(batch: Vec<NewEvent>) -> Result<Vec<Entry>, Invalid> {
        crate::plan::check_not_empty(&batch)?;
        if batch.len() > BATCH_MAX {
            let reason =
                format!("has {} events; at most {BATCH_MAX} are allowed in one call: split the batch", batch.len());
            return Err(Invalid::new("events", reason));
        }
        let check = |(index, event): (usize, NewEvent)| event.check().map_err(|invalid| invalid.in_batch(index));
        batch.into_iter().enumerate().map(check).collect()
    }
}

impl Entry {
    /// The subscriptions that direct messages among these entries are sent to.
    pub fn recipients(entries: &[Entry]) -> Vec<Uuid> {
        let mut ids: Vec<Uuid> = entries.iter().filter_map(|entry| entry.to).collect();
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Refuses a direct message to a subscription that is not there.
    pub fn check_recipients(entries: &[Entry], is_there: impl Fn(Uuid) -> bool) -> Result<(), Invalid> {
        for (index, entry) in entries.iter().enumerate() {
            if let Some(id) = entry.to.filter(|id| !is_there(*id)) {
                let reason = format!(
                    "is {id}, and no subscription has this id; use one that subscribing to a group answered and that \
                     has not expired, or leave it out"
                );
                let invalid = Invalid::new("to", reason);
                return Err(if entries.len() > 1 { invalid.in_batch(index) } else { invalid });
            }
        }
        Ok(())
    }
}

/// About how much room an event takes.
fn bytes_of(topic: &Topic, object: Option<&ObjectKey>, payload: &Json, metadata: &Json) -> usize {
    let object = object.map_or(0, |object| object.as_str().len());
    topic.as_str().len() + object + payload.as_str().len() + metadata.as_str().len()
}

/// Engines keep microseconds, and years that RFC 3339 can write.
fn check_time(field: &str, at: Timestamp) -> Result<Timestamp, Invalid> {
    let year_one = Timestamp::from_second(-62_135_596_800).expect("a constant in range");
    if at < year_one {
        return Err(Invalid::new(field, "is before the year 1; write a time such as 2026-11-15T12:00:00Z"));
    }
    if at.as_second() >= 253_402_128_000 {
        return Err(Invalid::new(field, "is at the end of the year 9999 or beyond; write an earlier time"));
    }
    Ok(whole_microseconds(at))
}

/// The time without what engines do not keep.
pub fn whole_microseconds(at: Timestamp) -> Timestamp {
    // The last second of all time has no parts that can be made again.
    let seconds = |_| Timestamp::from_second(at.as_second());
    Timestamp::from_microsecond(at.as_microsecond()).or_else(seconds).unwrap_or(at)
}

/// An event that was checked and that every engine can store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What kind of thing happened.
    pub topic: Topic,
    /// What it is about.
    pub object: Option<ObjectKey>,
    /// The content.
    pub payload: Json,
    /// What is said about it: a JSON object.
    pub metadata: Json,
    /// When it happened, if the caller said so.
    pub occurred_at: Option<Timestamp>,
    /// Enters the log no earlier than this.
    pub not_before: Option<Timestamp>,
    /// The caller's own name for this publish.
    pub key: Option<IdempotencyKey>,
    /// Meant for one subscription only.
    pub to: Option<Uuid>,
}

impl Entry {
    /// What tells whether two publishes under one key are the same: a digest of everything but the key.
    pub fn fingerprint(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        let mut part = |bytes: Option<&[u8]>| {
            // Each part is led by its length, so that moving a byte from one field to the next changes the digest.
            digest.update(bytes.map_or(u64::MAX, |b| b.len() as u64).to_be_bytes());
            digest.update(bytes.unwrap_or_default());
        };
        let micros = |at: &Timestamp| at.as_microsecond().to_be_bytes();
        part(Some(self.topic.as_str().as_bytes()));
        part(self.object.as_ref().map(|object| object.as_str().as_bytes()));
        part(Some(self.payload.as_str().as_bytes()));
        part(Some(self.metadata.as_str().as_bytes()));
        part(self.occurred_at.as_ref().map(micros).as_ref().map(|bytes| &bytes[..]));
        part(self.not_before.as_ref().map(micros).as_ref().map(|bytes| &bytes[..]));
        part(self.to.as_ref().map(|to| &to.as_bytes()[..]));
        digest.finalize().into()
    }

    /// About how much room it takes.
    pub fn bytes(&self) -> usize {
        bytes_of(&self.topic, self.object.as_ref(), &self.payload, &self.metadata)
    }
}

/// What publishing one event answers. `seq` is none while the event is delayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Appended {
    /// The event's identity.
    pub id: EventId,
    /// Its place in the log.
    pub seq: Option<Seq>,
    /// The place of the preceding event of the same object.
    pub prev: Option<Seq>,
    /// Was it stored before, under the same key?
    #[serde(skip)]
    pub repeated: bool,
}

/// An event in the log; with its content as JSON text, or as what a handler reads it as.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event<P = Json> {
    /// Its place in the log: the one order everybody sees.
    pub seq: Seq,
    /// The place of the preceding event of the same object, always smaller; none for the first one in the log.
    pub prev: Option<Seq>,
    /// Its public identity.
    pub id: EventId,
    /// What kind of thing happened.
    pub topic: Topic,
    /// What it is about.
    pub object: Option<ObjectKey>,
    /// The content.
    pub payload: P,
    /// What is said about it: a JSON object.
    pub metadata: Json,
    /// When it happened.
    pub occurred_at: Timestamp,
    /// When it entered the log, by the store's clock; never decreases along the log.
    pub recorded_at: Timestamp,
    /// Meant for one subscription only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Uuid>,
}

impl Event {
    /// The event that an entry has become.
    pub fn of(entry: Entry, id: EventId, seq: Seq, prev: Option<Seq>, recorded_at: Timestamp) -> Self {
        let Entry { topic, object, payload, metadata, occurred_at, to, not_before: _, key: _ } = entry;
        let occurred_at = occurred_at.unwrap_or(recorded_at);
        Self { seq, prev, id, topic, object, payload, metadata, occurred_at, recorded_at, to }
    }

    /// About how much room it takes.
    pub fn bytes(&self) -> usize {
        bytes_of(&self.topic, self.object.as_ref(), &self.payload, &self.metadata)
    }

    /// The event with its content as a handler reads it, or what is wrong with the content.
    pub fn read_as<P: Payload>(&self) -> Result<Event<P>, String> {
        Ok(self.with_payload(P::read(&self.payload)?))
    }

    /// The event with another form of its content.
    pub fn with_payload<P>(&self, payload: P) -> Event<P> {
        Event {
            seq: self.seq,
            prev: self.prev,
            id: self.id,
            topic: self.topic.clone(),
            object: self.object.clone(),
            payload,
            metadata: self.metadata.clone(),
            occurred_at: self.occurred_at,
            recorded_at: self.recorded_at,
            to: self.to,
        }
    }
}

/// What the content of an event can be read as: JSON as it is, or a [`Fact`].
pub trait Payload: Sized + Send + 'static {
    /// Reads it, or says what is wrong.
    fn read(json: &Json) -> Result<Self, String>;

    /// The topic of the events that have such a payload; none if events of any topic can be read as it.
    fn topic() -> Option<String> {
        None
    }
}

impl Payload for Json {
    fn read(json: &Json) -> Result<Self, String> {
        Ok(json.clone())
    }
}

impl Payload for serde_json::Value {
    fn read(json: &Json) -> Result<Self, String> {
        serde_json::from_str(json.as_str()).map_err(|error| error.to_string())
    }
}

impl<F: Fact + Send + 'static> Payload for F {
    fn read(json: &Json) -> Result<Self, String> {
        serde_json::from_str(json.as_str())
            .map_err(|error| format!("the payload cannot be read as {}.{}: {error}", F::TYPE, F::ACTION))
    }

    fn topic() -> Option<String> {
        Some(format!("{}.{}", F::TYPE, F::ACTION))
    }
}

/// A delayed event that waits for its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Pending {
    /// Its public identity, kept when it enters the log.
    pub id: EventId,
    /// What kind of thing happened.
    pub topic: Topic,
    /// What it is about.
    pub object: Option<ObjectKey>,
    /// The content.
    pub payload: Json,
    /// What is said about it: a JSON object.
    pub metadata: Json,
    /// When it happened.
    pub occurred_at: Timestamp,
    /// Enters the log no earlier than this.
    pub not_before: Timestamp,
    /// Meant for one subscription only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Uuid>,
}

impl Pending {
    /// About how much room it takes.
    pub fn bytes(&self) -> usize {
        bytes_of(&self.topic, self.object.as_ref(), &self.payload, &self.metadata)
    }
}

/// An event, wherever it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// It is in the log.
    Logged(Event),
    /// It waits for its time.
    Pending(Pending),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field_refused(event: NewEvent) -> String {
        event.check().unwrap_err().field
    }

    #[test]
    fn a_refusal_names_the_field() {
        assert_eq!(field_refused(NewEvent::new("")), "topic");
        assert_eq!(field_refused(NewEvent::new("a").object("")), "object");
        assert_eq!(field_refused(NewEvent::new("a").payload_json("{")), "payload");
        assert_eq!(field_refused(NewEvent::new("a").metadata_json("[]")), "metadata");
        assert_eq!(field_refused(NewEvent::new("a").key("")), "key");
        let long = format!("\"{}\"", "x".repeat(EVENT_BYTES_MAX));
        assert_eq!(field_refused(NewEvent::new("a").payload_json(&long)), "payload");
        assert_eq!(field_refused(NewEvent::new("a").occurred_at(Timestamp::MIN)), "occurred_at");
        assert_eq!(field_refused(NewEvent::new("a").not_before(Timestamp::MAX)), "not_before");
    }

    #[test]
    fn an_event_says_more_than_its_surroundings() {
        let context = Json::parse("context", r#"{"request":"r-1","user":"ann"}"#).unwrap();
        let event = NewEvent::new("a").metadata_json(r#"{"user":"bob","n":1.50}"#).metadata_over(&context);
        assert_eq!(event.check().unwrap().metadata.as_str(), r#"{"n":1.50,"request":"r-1","user":"bob"}"#);
        assert_eq!(field_refused(NewEvent::new("a").metadata_json("[]").metadata_over(&context)), "metadata");
    }

    #[test]
    fn a_fault_in_a_batch_is_named_with_its_place() {
        let batch = vec![NewEvent::new("a"), NewEvent::new("b..c")];
        assert_eq!(NewEvent::check_all(batch).unwrap_err().field, "events[1].topic");
        let batch = vec![NewEvent::new("a"); BATCH_MAX + 1];
        assert_eq!(NewEvent::check_all(batch).unwrap_err().field, "events");
    }

    #[test]
    fn a_fingerprint_ignores_the_key_and_blanks_and_sees_everything_else() {
        let base = NewEvent::new("a").payload_json("{\"x\":1}");
        let print = |event: NewEvent| event.check().unwrap().fingerprint();
        assert_eq!(print(base.clone().key("k")), print(base.clone().payload_json(" { \"x\": 1 } ")));
        let at = Timestamp::from_second(1).unwrap();
        for other in [
            base.clone().object("o"),
            base.clone().payload_json("{\"x\":2}"),
            base.clone().metadata_json("{\"x\":1}"),
            base.clone().occurred_at(at),
            base.clone().not_before(at),
            base.clone().to(Uuid::max()),
            NewEvent::new("b").payload_json("{\"x\":1}"),
        ] {
            assert_ne!(print(base.clone()), print(other));
        }
    }
}
