//! What does the body say?
//!
//! Objects are taken apart one level deep and nothing is built but the fields' own text, borrowed from the body: the
//! payload is not parsed into a tree, so neither its size nor its nesting costs more than a scan. Unknown and doubled
//! fields are refused, because what is silently dropped cannot be found again.

use super::problem::{Kind, Problem};
use super::text;
use ensue::event::BATCH_MAX;
use ensue::{Json, NewEvent};
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::fmt;

/// What a body holds. One event alone is told from a batch of one, so that faults are named as their sender sees them.
#[derive(Debug, Clone)]
pub(super) enum Published {
    One(NewEvent),
    Batch(Vec<NewEvent>),
}

/// Where an event stands in the body.
#[derive(Debug, Clone, Copy)]
pub(super) enum Place {
    Alone,
    InBatch(usize),
}

impl Place {
    /// The name of a field at this place.
    pub fn name(self, field: &str) -> String {
        match self {
            Place::Alone => field.to_string(),
            Place::InBatch(index) => format!("events[{index}].{field}"),
        }
    }

    /// The name of the place itself.
    fn own_name(self) -> String {
        match self {
            Place::Alone => "body".to_string(),
            Place::InBatch(index) => format!("events[{index}]"),
        }
    }
}

/// How one event is read from its fields.
pub(super) type ReadEvent = fn(Place, Fields<'_>) -> Result<NewEvent, Problem>;

/// One JSON object or an array of them.
pub(super) fn one_or_batch(body: &str, read: ReadEvent) -> Result<Published, Problem> {
    match body.trim_start().as_bytes().first() {
        Some(b'[') => batch(body, read),
        _ => Ok(Published::One(read(Place::Alone, fields(Place::Alone, body)?)?)),
    }
}

/// An array of JSON objects.
pub(super) fn batch(body: &str, read: ReadEvent) -> Result<Published, Problem> {
    let elements: Vec<&RawValue> = serde_json::from_str(body).map_err(|error| not_json("body", &error))?;
    many(elements.len(), elements.iter().map(|element| element.get()), read)
}

/// An array of JSON objects, possibly empty, as CloudEvents allows it.
pub(super) fn batch_or_empty(body: &str, read: ReadEvent) -> Result<Published, Problem> {
    match serde_json::from_str::<[&RawValue; 0]>(body) {
        Ok([]) => Ok(Published::Batch(Vec::new())),
        Err(_) => batch(body, read),
    }
}

/// One JSON object a line; blank lines are passed over.
pub(super) fn lines(body: &str, read: ReadEvent) -> Result<Published, Problem> {
    let lines = || body.lines().filter(|line| !line.trim().is_empty());
    many(lines().count(), lines(), read)
}

fn many<'a>(count: usize, texts: impl Iterator<Item = &'a str>, read: ReadEvent) -> Result<Published, Problem> {
    if count == 0 {
        return Err(Problem::invalid("events", "is empty; send at least one event"));
    }
    if count > BATCH_MAX {
        let reason = format!("has {count} events; at most {BATCH_MAX} are allowed in one call, so send several");
        return Err(Problem::invalid("events", reason));
    }
    let mut events = Vec::with_capacity(count);
    for (index, text) in texts.enumerate() {
        let place = Place::InBatch(index);
        events.push(read(place, fields(place, text)?)?);
    }
    Ok(Published::Batch(events))
}

/// The fields of one JSON object, in the order they stand; each value is its text.
pub(super) struct Fields<'a>(pub Vec<(Cow<'a, str>, &'a RawValue)>);

fn fields(place: Place, text: &str) -> Result<Fields<'_>, Problem> {
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text).map_err(|error| not_json(place.own_name(), &error));
    }
    // Something else than an object: JSON of another kind, or no JSON at all.
    let raw: &RawValue = serde_json::from_str(text).map_err(|error| not_json(place.own_name(), &error))?;
    Json::parse(&place.own_name(), raw.get())?;
    let reason = "must be a JSON object with at least a `topic`, such as {\"topic\":\"order.paid\",\"payload\":{}}";
    Err(Problem::invalid(place.own_name(), reason))
}

fn not_json(name: impl Into<String>, error: &serde_json::Error) -> Problem {
    Problem::field(Kind::NotJson, name, format!("is not JSON: {error}; check what is sent there"))
}

impl<'de> Deserialize<'de> for Fields<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FieldsVisitor;

        #[derive(Deserialize)]
        struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

        impl<'de> Visitor<'de> for FieldsVisitor {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut fields = Vec::with_capacity(8);
                while let Some((Name(name), value)) = map.next_entry()? {
                    fields.push((name, value));
                }
                Ok(Fields(fields))
            }
        }

        deserializer.deserialize_map(FieldsVisitor)
    }
}

/// Reads an event in Ensue's own form.
pub(super) fn event(place: Place, fields: Fields<'_>) -> Result<NewEvent, Problem> {
    let (mut topic, mut object, mut payload, mut metadata) = (None, None, None, None);
    let (mut occurred_at, mut not_before, mut key, mut to) = (None, None, None, None);
    for (name, value) in fields.0 {
        let slot = match &*name {
            "topic" => &mut topic,
            "object" => &mut object,
            "payload" => &mut payload,
            "metadata" => &mut metadata,
            "occurred_at" => &mut occurred_at,
            "not_before" => &mut not_before,
            "key" => &mut key,
            "to" => &mut to,
            _ => return Err(unknown(place, &name, value)),
        };
        set_once(place, &name, slot, value)?;
    }
    let Some(topic) = topic else {
        return Err(Problem::invalid(
            place.name("topic"),
            "is missing; say what kind of thing happened, as in `order.paid`",
        ));
    };
    let mut event = NewEvent::new(string(place, "topic", topic)?);
    if let Some(object) = given(object) {
        event = event.object(string(place, "object", object)?);
    }
    if let Some(payload) = payload {
        event = event.payload_json(payload.get());
    }
    if let Some(metadata) = given(metadata) {
        event = event.metadata_json(metadata.get());
    }
    if let Some(at) = given(occurred_at) {
        event = event.occurred_at(time(place, "occurred_at", at)?);
    }
    if let Some(at) = given(not_before) {
        event = event.not_before(time(place, "not_before", at)?);
    }
    if let Some(key) = given(key) {
        event = event.key(string(place, "key", key)?);
    }
    if let Some(to) = given(to) {
        let id = string(place, "to", to)?.parse();
        let id = id.map_err(|_| Problem::invalid(place.name("to"), "is not a UUID; write the id of a subscription"))?;
        event = event.to(id);
    }
    Ok(event)
}

/// Fills a slot, unless the field stood there before.
pub(super) fn set_once<'a>(
    place: Place,
    name: &str,
    slot: &mut Option<&'a RawValue>,
    value: &'a RawValue,
) -> Result<(), Problem> {
    match slot.replace(value) {
        None => Ok(()),
        Some(_) => Err(twice(place, name)),
    }
}

pub(super) fn twice(place: Place, name: &str) -> Problem {
    Problem::invalid(place.name(name), "stands twice in one event; send it once")
}

fn unknown(place: Place, name: &str, value: &RawValue) -> Problem {
    let shown: String = name.chars().take(80).collect();
    // The name alone would not help who sent something that is nested without end.
    if let Err(invalid) = Json::parse(&place.name(&shown), value.get()) {
        return invalid.into();
    }
    let reason = "is not a field of an event; those are topic, object, payload, metadata, occurred_at, not_before, key \
                  and to. Put your own fields into `payload` or `metadata`";
    Problem::invalid(place.name(&shown), reason)
}

/// A field that says `null` is a field that is not there.
pub(super) fn given(value: Option<&RawValue>) -> Option<&RawValue> {
    value.filter(|value| value.get() != "null")
}

/// A field that must be a string.
pub(super) fn string<'a>(place: Place, name: &str, value: &'a RawValue) -> Result<Cow<'a, str>, Problem> {
    let text = value.get();
    match text.strip_prefix('"').and_then(|text| text.strip_suffix('"')) {
        None => {
            let kind = match text.as_bytes().first() {
                Some(b'{') => "an object",
                Some(b'[') => "an array",
                Some(b't' | b'f') => "a boolean",
                Some(b'n') => "null",
                _ => "a number",
            };
            Err(Problem::invalid(place.name(name), format!("must be a string, and is {kind}; put it in quotes")))
        }
        // The text of a string without escapes is its value.
        Some(plain) if !plain.contains('\\') => Ok(Cow::Borrowed(plain)),
        Some(_) => serde_json::from_str(text)
            .map(Cow::Owned)
            .map_err(|error| Problem::invalid(place.name(name), format!("is not a valid JSON string: {error}"))),
    }
}

/// A field that must be a time.
pub(super) fn time(place: Place, name: &str, value: &RawValue) -> Result<ensue::Timestamp, Problem> {
    text::time(Kind::Invalid, place.name(name), &string(place, name, value)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(body: &str) -> String {
        one_or_batch(body, event).unwrap_err().detail().to_string()
    }

    #[test]
    fn every_fault_names_the_field_and_its_place() {
        for (body, named) in [
            ("{}", "`topic` is missing"),
            (r#"{"topic":5}"#, "`topic` must be a string, and is a number"),
            (r#"{"topic":null}"#, "`topic` must be a string, and is null"),
            (r#"{"topic":"a","topic":"b"}"#, "`topic` stands twice"),
            (r#"{"topic":"a","tpoic":"b"}"#, "`tpoic` is not a field"),
            (r#"{"topic":"a","occurred_at":"soon"}"#, "`occurred_at` is not a time"),
            (r#"{"topic":"a","not_before":5}"#, "`not_before` must be a string"),
            (r#"{"topic":"a","to":"me"}"#, "`to` is not a UUID"),
            (r#"{"topic":"\ud800"}"#, "`topic` is not a valid JSON string"),
            (r#"[{"topic":"a"},{"topic":1}]"#, "`events[1].topic` must be"),
            (r#"[{"topic":"a"},7]"#, "`events[1]` must be a JSON object"),
            ("[]", "`events` is empty"),
            ("7", "`body` must be a JSON object"),
            ("", "`body` is not JSON"),
            ("{\"topic\":", "`body` is not JSON"),
            ("topic=a", "`body` is not JSON"),
        ] {
            assert!(refusal(body).starts_with(named), "{body}: {}", refusal(body));
        }
    }

    #[test]
    fn deep_nesting_is_named_wherever_it_stands() {
        let deep = format!("{}{}", "[".repeat(3_000), "]".repeat(3_000));
        for body in [deep.clone(), format!("{{\"x\":{deep}}}"), format!("[{deep}]")] {
            assert!(refusal(&body).contains("nested"), "{}", refusal(&body));
        }
        let payload = format!("{{\"topic\":\"a\",\"payload\":{deep}}}");
        let Published::One(event) = one_or_batch(&payload, event).unwrap() else { panic!("one event is not a batch") };
        assert!(event.check().unwrap_err().to_string().starts_with("`payload` is nested"));
    }

    #[test]
    fn null_is_the_same_as_nothing_but_for_the_payload() {
        let body =
            r#"{"topic":"a","object":null,"payload":null,"metadata":null,"key":null,"to":null,"not_before":null}"#;
        let Published::One(event) = one_or_batch(body, event).unwrap() else { panic!("one event is not a batch") };
        let entry = event.check().unwrap();
        assert_eq!((entry.object, entry.key, entry.to, entry.not_before), (None, None, None, None));
        assert_eq!((entry.payload.as_str(), entry.metadata.as_str()), ("null", "{}"));
    }

    #[test]
    fn lines_are_one_batch_and_blank_ones_do_not_count() {
        let Published::Batch(events) = lines("{\"topic\":\"a\"}\n\n  \r\n{\"topic\":\"b\"}\r\n", event).unwrap() else {
            panic!("lines are a batch")
        };
        assert_eq!(events.len(), 2);
        let error = lines("{\"topic\":\"a\"}\n\n{", event).unwrap_err();
        assert!(error.detail().starts_with("`events[1]` is not JSON"), "{}", error.detail());
    }
}
