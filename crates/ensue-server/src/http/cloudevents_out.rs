//! Events as CloudEvents 1.0 in the JSON format, for readers that ask for them and for webhooks.
//!
//! | Ensue | CloudEvents |
//! |---|---|
//! | `topic` | `type` |
//! | `object` | `subject` |
//! | `occurred_at` | `time` |
//! | `id` | `id`, with the source `/ensue` |
//! | `payload` | `data` with `datacontenttype` `application/json`; no `data` for null |
//! | `seq`, `prev`, `recorded_at` | extensions `seq`, `prev`, `recordedtime`, as strings |
//! | `not_before` of a pending event | extension `notbefore` |
//! | `metadata` entries that are valid extensions | extensions |
//! | other `metadata` | extension `ensuemetadata`, a JSON object as a string |
//!
//! An event that came as a CloudEvent has `source` and `id` in its metadata, and possibly `datacontenttype`, `dataschema`
//! and `data_encoding`: they become the attributes again. Integers of CloudEvents have 32 bits, so `seq` is a string.

use super::shapes::json_as;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use ensue::{ConditionErrors, Event, Json, NewestPage, Pending, Selection, Seq};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;
use serde_json::value::RawValue;
use std::collections::BTreeMap;

/// Media type of one event.
pub(crate) const ONE: &str = "application/cloudevents+json";
/// Media type of an array of events.
pub(crate) const BATCH: &str = "application/cloudevents-batch+json";
/// The `source` of events that did not come as CloudEvents.
const SOURCE: &str = "/ensue";
/// The extension that holds metadata that cannot be extensions.
const REST: &str = "ensuemetadata";
/// Attributes and extensions with a meaning of their own: metadata never replaces them.
const RESERVED: [&str; 14] = [
    "specversion",
    "id",
    "source",
    "type",
    "subject",
    "time",
    "datacontenttype",
    "dataschema",
    "data",
    "seq",
    "prev",
    "recordedtime",
    "notbefore",
    REST,
];

/// The form of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Json,
    One,
    Batch,
}

impl Form {
    /// The form that the client prefers; JSON unless a type of CloudEvents comes first.
    pub fn accepted(headers: &HeaderMap) -> Self {
        let mut best = (Self::Json, 0.0);
        let values = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
        for range in values.flat_map(|value| value.split(',')) {
            let mut parts = range.split(';').map(str::trim);
            let form = match parts.next().unwrap_or_default().to_ascii_lowercase().as_str() {
                ONE => Self::One,
                BATCH => Self::Batch,
                "application/json" | "application/*" | "*/*" => Self::Json,
                _ => continue,
            };
            let quality = parts.find_map(|part| part.strip_prefix("q=")?.trim().parse::<f32>().ok()).unwrap_or(1.0);
            if quality > best.1 {
                best = (form, quality);
            }
        }
        best.0
    }
}

/// An event as a CloudEvent. The payload stays the text that it is, so that numbers keep their digits.
pub(crate) struct CloudEvent<'a> {
    attributes: BTreeMap<String, Value>,
    data: Option<(&'static str, &'a Json)>,
}

impl Serialize for CloudEvent<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in &self.attributes {
            map.serialize_entry(name, value)?;
        }
        if let Some((name, data)) = self.data {
            map.serialize_entry(name, data)?;
        }
        map.end()
    }
}

/// One event as a response; an array of one if the client prefers a batch.
pub(super) fn one(form: Form, event: CloudEvent<'_>) -> Response {
    match form {
        Form::Json | Form::One => json_as(StatusCode::OK, ONE, &event),
        Form::Batch => json_as(StatusCode::OK, BATCH, &[event]),
    }
}

/// A page of the log as a batch. A batch has events only: the other fields of a page are headers.
pub(super) fn page(Selection { page, condition_errors }: &Selection) -> Response {
    page_of(&page.events, Some(page.next), page.first, condition_errors.as_ref())
}

/// The same for a page that is read newest first.
pub(super) fn newest(NewestPage { events, next, first, condition_errors }: &NewestPage) -> Response {
    page_of(events, *next, *first, condition_errors.as_ref())
}

fn page_of(events: &[Event], next: Option<Seq>, first: Seq, errors: Option<&ConditionErrors>) -> Response {
    let mut response = batch(events.iter().map(CloudEvent::from));
    let next = next.map(|next| ("ensue-next", next));
    let failed = errors.map(|errors| ("ensue-condition-errors", errors.count));
    for (name, value) in [("ensue-first", first)].into_iter().chain(next).chain(failed) {
        response.headers_mut().insert(name, HeaderValue::from(value));
    }
    response
}

/// Pending events as a batch.
pub(super) fn pending(events: &[Pending]) -> Response {
    batch(events.iter().map(CloudEvent::from))
}

fn batch<'a>(events: impl Iterator<Item = CloudEvent<'a>>) -> Response {
    json_as(StatusCode::OK, BATCH, &events.collect::<Vec<_>>())
}

impl<'a> From<&'a Event> for CloudEvent<'a> {
    fn from(event: &'a Event) -> Self {
        let mut made = Self::new(&event.payload, &event.metadata);
        made.put("id", Some(event.id));
        made.put("type", Some(&event.topic));
        made.put("subject", event.object.as_ref());
        made.put("time", Some(event.occurred_at));
        made.put("seq", Some(event.seq));
        made.put("prev", event.prev);
        made.put("recordedtime", Some(event.recorded_at));
        made
    }
}

impl<'a> From<&'a Pending> for CloudEvent<'a> {
    fn from(pending: &'a Pending) -> Self {
        let mut made = Self::new(&pending.payload, &pending.metadata);
        made.put("id", Some(pending.id));
        made.put("type", Some(&pending.topic));
        made.put("subject", pending.object.as_ref());
        made.put("time", Some(pending.occurred_at));
        made.put("notbefore", Some(pending.not_before));
        made
    }
}

impl<'a> CloudEvent<'a> {
    /// Adds an attribute that is not there yet: an `id` from metadata stays.
    fn put<T: ToString>(&mut self, name: &str, value: Option<T>) {
        if let Some(value) = value {
            self.attributes.entry(name.into()).or_insert_with(|| value.to_string().into());
        }
    }

    fn new(payload: &'a Json, metadata: &Json) -> Self {
        let mut metadata: BTreeMap<String, &RawValue> = serde_json::from_str(metadata.as_str()).unwrap_or_default();
        let text = |name: &str, metadata: &BTreeMap<String, &RawValue>| {
            let text = metadata.get(name).and_then(|value| serde_json::from_str::<String>(value.get()).ok());
            text.filter(|text| !text.is_empty())
        };
        let mut made = Self { attributes: BTreeMap::new(), data: None };
        made.put("specversion", Some("1.0"));
        if let (Some(source), Some(id)) = (text("source", &metadata), text("id", &metadata)) {
            made.put("source", Some(source));
            made.put("id", Some(id));
            metadata.remove("source");
            metadata.remove("id");
        }
        made.put("source", Some(SOURCE));
        for name in ["datacontenttype", "dataschema"] {
            if let Some(value) = text(name, &metadata) {
                made.put(name, Some(value));
                metadata.remove(name);
            }
        }
        let is_encoded =
            payload.as_str().starts_with('"') && text("data_encoding", &metadata).as_deref() == Some("base64");
        if is_encoded {
            metadata.remove("data_encoding");
            made.data = Some(("data_base64", payload));
        } else if payload.as_str() != "null" {
            made.put("datacontenttype", Some("application/json"));
            made.data = Some(("data", payload));
        }
        let mut rest: BTreeMap<&str, &RawValue> = BTreeMap::new();
        for (name, raw) in &metadata {
            match serde_json::from_str(raw.get()) {
                Ok(value) if is_extension(name, &value) => drop(made.attributes.insert(name.clone(), value)),
                Ok(_) | Err(_) => drop(rest.insert(name, raw)),
            }
        }
        if !rest.is_empty() {
            made.put(REST, serde_json::to_string(&rest).ok());
        }
        made
    }
}

/// CloudEvents names extensions with lower-case letters and digits. Their values are strings without control characters,
/// booleans and integers of 32 bits.
fn is_extension(name: &str, value: &Value) -> bool {
    let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    let is_value = match value {
        Value::Bool(_) => true,
        Value::Number(number) => number.as_i64().is_some_and(|number| i32::try_from(number).is_ok()),
        Value::String(text) => !text.is_empty() && !text.contains(char::is_control),
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    };
    is_name && is_value && !RESERVED.contains(&name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn form(accept: &'static str) -> Form {
        Form::accepted(&HeaderMap::from_iter([(header::ACCEPT, HeaderValue::from_static(accept))]))
    }

    #[test]
    fn clients_get_cloudevents_only_where_they_prefer_them() {
        assert_eq!(Form::accepted(&HeaderMap::new()), Form::Json);
        for accept in ["*/*", "application/json", "text/html", "application/json, application/cloudevents+json"] {
            assert_eq!(form(accept), Form::Json, "{accept}");
        }
        for accept in [ONE, "application/cloudevents+json; charset=utf-8", "*/*;q=0.1, application/cloudevents+json"] {
            assert_eq!(form(accept), Form::One, "{accept}");
        }
        assert_eq!(form("application/json;q=0.5, application/cloudevents-batch+json"), Form::Batch);
        assert_eq!(form("application/cloudevents+json;q=0"), Form::Json);
    }

    #[test]
    fn metadata_that_cannot_be_extensions_stays_together() {
        let metadata = json!({"tenant": "a", "ok": true, "n": 7, "large": 3_000_000_000_u64, "Upper": "x",
            "deep": {"a": 1}, "none": null, "seq": "mine", "half": 0.5, "line": "a\nb"});
        let metadata = Json::of("metadata", &metadata).unwrap();
        let payload = Json::of("payload", &json!(null)).unwrap();
        let event = serde_json::to_value(CloudEvent::new(&payload, &metadata)).unwrap();
        assert_eq!((&event["tenant"], &event["ok"], &event["n"]), (&json!("a"), &json!(true), &json!(7)));
        let rest: Value = serde_json::from_str(event["ensuemetadata"].as_str().unwrap()).unwrap();
        let expected = json!({"large": 3_000_000_000_u64, "Upper": "x", "deep": {"a": 1}, "none": null, "seq": "mine",
            "half": 0.5, "line": "a\nb"});
        assert_eq!(rest, expected);
        assert_eq!((event.get("data"), event.get("datacontenttype"), &event["source"]), (None, None, &json!("/ensue")));
    }
}
