//! How does a CloudEvent become an event of ours?
//!
//! | CloudEvents 1.0 | Ensue |
//! |---|---|
//! | `type` | `topic` |
//! | `subject` | `object` |
//! | `time` | `occurred_at` |
//! | `source` and `id` | `key`: sent again within its window, it is stored once; also in `metadata` |
//! | `datacontenttype`, `dataschema`, extensions | `metadata`, under their own names |
//! | `data` that is JSON | `payload` |
//! | data of another kind that is text | `payload`: a JSON string |
//! | other data, `data_base64` | `payload`: a JSON string of padded base64; `metadata.data_encoding` is `base64` |
//!
//! `data_encoding` has an underscore, so no extension can have its name. Faults are named as CloudEvents calls the
//! attribute (`type`, not `topic`), in binary mode by the header.

use super::body::{Fields, Place, given, set_once, string, time, twice};
use super::problem::{Kind, Problem};
use super::text;
use axum::http::{HeaderMap, header};
use ensue::{IdempotencyKey, NewEvent};
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use std::borrow::Cow;

/// The header that says that a request is a CloudEvent in binary mode.
pub(super) const BINARY_MARK: &str = "ce-specversion";
const PREFIX: &str = "ce-";

/// The attributes that every mode has in common, read but not yet put together.
#[derive(Default)]
struct Attributes {
    metadata: Map<String, Value>,
    source: Option<String>,
    id: Option<String>,
}

impl Attributes {
    fn event(self, place: Place, kind: Option<String>, name: fn(&str) -> String) -> Result<NewEvent, Problem> {
        let missing = |attribute: &str| {
            Problem::invalid(place.name(&name(attribute)), "is missing or empty; every CloudEvent 1.0 must have it")
        };
        let filled = |value: Option<String>| value.filter(|value| !value.is_empty());
        let kind = filled(kind).ok_or_else(|| missing("type"))?;
        let source = filled(self.source).ok_or_else(|| missing("source"))?;
        let id = filled(self.id).ok_or_else(|| missing("id"))?;
        // Refused here rather than later, where nobody knows what the parts are called.
        IdempotencyKey::of_parts(&source, &id).map_err(|invalid| {
            let reason = format!("and `{}` make the event's key, which {}", name("source"), invalid.reason);
            Problem::invalid(place.name(&name("id")), reason)
        })?;
        let event = NewEvent::new(kind).key_of_parts(&source, &id);
        let mut metadata = self.metadata;
        metadata.insert("source".into(), source.into());
        metadata.insert("id".into(), id.into());
        Ok(event.metadata(&metadata))
    }
}

/// Is this an extension's name? CloudEvents allows lower-case letters and digits.
fn is_extension(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

fn refuse_name(place: Place, name: &str) -> Problem {
    let shown: String = name.chars().take(80).collect();
    Problem::invalid(place.name(&shown), "is not an attribute of CloudEvents; names have lower-case letters and digits")
}

fn refuse_version(place: Place, name: &str) -> Problem {
    Problem::invalid(place.name(name), "must be \"1.0\"; other versions of CloudEvents are not understood")
}

/// Reads a CloudEvent in the JSON format: structured mode, or one of a batch.
pub(super) fn structured(place: Place, fields: Fields<'_>) -> Result<NewEvent, Problem> {
    let mut attributes = Attributes::default();
    let (mut version, mut id, mut source, mut kind, mut subject) = (None, None, None, None, None);
    let (mut at, mut content_type, mut schema, mut data, mut data_base64) = (None, None, None, None, None);
    for (name, value) in fields.0 {
        let slot = match &*name {
            "specversion" => &mut version,
            "id" => &mut id,
            "source" => &mut source,
            "type" => &mut kind,
            "subject" => &mut subject,
            "time" => &mut at,
            "datacontenttype" => &mut content_type,
            "dataschema" => &mut schema,
            "data" => &mut data,
            "data_base64" => &mut data_base64,
            extension if is_extension(extension) => {
                if let Some(value) = extension_value(place, extension, value)?
                    && attributes.metadata.insert(extension.into(), value).is_some()
                {
                    return Err(twice(place, extension));
                }
                continue;
            }
            other => return Err(refuse_name(place, other)),
        };
        set_once(place, &name, slot, value)?;
    }
    let text = |name: &str, value: Option<&RawValue>| {
        given(value).map(|value| string(place, name, value).map(Cow::into_owned)).transpose()
    };
    if text("specversion", version)?.as_deref() != Some("1.0") {
        return Err(refuse_version(place, "specversion"));
    }
    for (name, value) in [("datacontenttype", content_type), ("dataschema", schema)] {
        if let Some(value) = text(name, value)? {
            attributes.metadata.insert(name.into(), value.into());
        }
    }
    attributes.id = text("id", id)?;
    attributes.source = text("source", source)?;
    let encoded = text("data_base64", data_base64)?;
    if encoded.is_some() {
        attributes.metadata.insert("data_encoding".into(), "base64".into());
    }
    let mut event = attributes.event(place, text("type", kind)?, str::to_string)?;
    if let Some(subject) = text("subject", subject)? {
        event = event.object(subject);
    }
    if let Some(at) = given(at) {
        event = event.occurred_at(time(place, "time", at)?);
    }
    match (data, encoded) {
        (None, None) => Ok(event),
        (Some(data), None) => Ok(event.payload_json(data.get())),
        (None, Some(encoded)) if text::is_base64(&encoded) => Ok(event.payload(&encoded)),
        (None, Some(_)) => Err(Problem::invalid(place.name("data_base64"), "is not base64; encode it with padding")),
        (Some(_), Some(_)) => {
            Err(Problem::invalid(place.name("data_base64"), "stands beside `data`; send one of the two"))
        }
    }
}

/// An extension is a string, a boolean or a whole number; `null` is not there.
fn extension_value(place: Place, name: &str, raw: &RawValue) -> Result<Option<Value>, Problem> {
    let refusal = || {
        let reason =
            "must be a string, a boolean or a whole number, as every CloudEvents extension; put the rest in `data`";
        Problem::invalid(place.name(name), reason)
    };
    if raw.get() == "null" {
        return Ok(None);
    }
    if raw.get().starts_with(['{', '[']) {
        return Err(refusal());
    }
    match serde_json::from_str(raw.get()) {
        Ok(Value::Number(number)) if number.is_f64() => Err(refusal()),
        Ok(value) => Ok(Some(value)),
        Err(_) => Err(refusal()),
    }
}

/// How structured mode calls what the core calls otherwise.
pub(super) fn structured_name(field: &str) -> Cow<'static, str> {
    match field {
        "topic" => "type".into(),
        "object" => "subject".into(),
        "occurred_at" => "time".into(),
        "payload" => "data".into(),
        "key" => "id".into(),
        other => other.to_string().into(),
    }
}

/// How binary mode calls what the core calls otherwise.
pub(super) fn binary_name(field: &str) -> Cow<'static, str> {
    match field {
        "topic" => "ce-type".into(),
        "object" => "ce-subject".into(),
        "occurred_at" => "ce-time".into(),
        "payload" => "body".into(),
        "key" => "ce-id".into(),
        other => other.to_string().into(),
    }
}

/// Reads a CloudEvent in binary mode: attributes in headers, data in the body.
pub(super) fn binary(headers: &HeaderMap, body: &[u8]) -> Result<NewEvent, Problem> {
    let place = Place::Alone;
    let mut attributes = Attributes::default();
    let (mut version, mut kind, mut subject, mut at) = (None, None, None, None);
    for name in headers.keys() {
        let Some(attribute) = name.as_str().strip_prefix(PREFIX) else { continue };
        let value = Some(header_text(headers, name.as_str())?);
        match attribute {
            "specversion" => version = value,
            "id" => attributes.id = value,
            "source" => attributes.source = value,
            "type" => kind = value,
            "subject" => subject = value,
            "time" => at = value,
            "dataschema" => drop(attributes.metadata.insert(attribute.into(), value.into())),
            "datacontenttype" | "data" => {
                let reason = "is not a header of binary mode; the body is the data, `content-type` says what it is";
                return Err(Problem::invalid(name.as_str(), reason));
            }
            extension if is_extension(extension) => drop(attributes.metadata.insert(extension.into(), value.into())),
            _ => return Err(refuse_name(place, name.as_str())),
        }
    }
    if version.as_deref() != Some("1.0") {
        return Err(refuse_version(place, BINARY_MARK));
    }
    let content_type = match headers.contains_key(header::CONTENT_TYPE) {
        true => Some(header_text(headers, header::CONTENT_TYPE.as_str())?),
        false => None,
    };
    let data = Data::read(content_type.as_deref(), body)?;
    if let Some(content_type) = content_type {
        attributes.metadata.insert("datacontenttype".into(), content_type.into());
    }
    if let Data::Bytes(_) = data {
        attributes.metadata.insert("data_encoding".into(), "base64".into());
    }
    let mut event = attributes.event(place, kind, |attribute| format!("{PREFIX}{attribute}"))?;
    if let Some(subject) = subject {
        event = event.object(subject);
    }
    if let Some(at) = at {
        event = event.occurred_at(text::time(Kind::Invalid, "ce-time", &at)?);
    }
    Ok(match data {
        Data::None => event,
        Data::Json(text) => event.payload_json(text),
        Data::Text(text) => event.payload(&text),
        Data::Bytes(bytes) => event.payload(&text::base64(bytes)),
    })
}

/// The body of binary mode, by its content type.
enum Data<'a> {
    None,
    Json(&'a str),
    Text(&'a str),
    Bytes(&'a [u8]),
}

impl<'a> Data<'a> {
    fn read(content_type: Option<&str>, body: &'a [u8]) -> Result<Self, Problem> {
        let media = content_type.map(|full| full.split(';').next().unwrap_or_default().trim().to_ascii_lowercase());
        let media = media.as_deref();
        let is_json = media.is_none_or(|media| media == "application/json" || media.ends_with("+json"));
        let is_text = media
            .is_some_and(|media| media.starts_with("text/") || media == "application/xml" || media.ends_with("+xml"));
        match std::str::from_utf8(body) {
            _ if body.is_empty() => Ok(Data::None),
            Ok(text) if is_json => match serde_json::from_str::<&RawValue>(text) {
                Ok(_) => Ok(Data::Json(text)),
                Err(error) => {
                    let reason = format!("is not JSON: {error}; if it is something else, say so in `content-type`");
                    Err(Problem::field(Kind::NotJson, "body", reason))
                }
            },
            Err(_) if is_json => Err(Problem::field(Kind::NotJson, "body", "is not JSON: it is not UTF-8")),
            Ok(text) if is_text => Ok(Data::Text(text)),
            Ok(_) | Err(_) => Ok(Data::Bytes(body)),
        }
    }
}

/// A header's value as the CloudEvents HTTP binding decodes it: without quotes, percent-escapes undone.
fn header_text(headers: &HeaderMap, name: &str) -> Result<String, Problem> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().map(|value| value.as_bytes()).unwrap_or_default();
    if values.next().is_some() {
        return Err(Problem::bad_request(name, "stands twice in the request; send it once"));
    }
    let unquoted = match value {
        [b'"', inner @ .., b'"'] => {
            let mut plain = Vec::with_capacity(inner.len());
            let mut bytes = inner.iter();
            while let Some(byte) = bytes.next() {
                plain.push(if *byte == b'\\' { *bytes.next().unwrap_or(byte) } else { *byte });
            }
            Cow::Owned(plain)
        }
        plain => Cow::Borrowed(plain),
    };
    // A content type has quotes and percent signs of its own.
    let decoded = match name == header::CONTENT_TYPE.as_str() {
        true => String::from_utf8(value.to_vec()).ok(),
        false => text::percent_decode(&unquoted, false),
    };
    decoded.ok_or_else(|| Problem::bad_request(name, "is not UTF-8; percent-encode it as UTF-8"))
}

#[cfg(test)]
mod tests {
    use super::super::body::{Published, one_or_batch};
    use super::*;

    fn refusal(body: &str) -> String {
        one_or_batch(body, structured).unwrap_err().detail().to_string()
    }

    #[test]
    fn every_fault_is_named_as_cloudevents_names_it() {
        let with = |more: &str| format!(r#"{{"specversion":"1.0","id":"1","source":"/s","type":"a.b"{more}}}"#);
        for (body, named) in [
            (r#"{"id":"1","source":"/s","type":"a"}"#.to_string(), "`specversion` must be"),
            (r#"{"specversion":"0.3","id":"1","source":"/s","type":"a"}"#.into(), "`specversion` must be"),
            (r#"{"specversion":"1.0","source":"/s","type":"a"}"#.into(), "`id` is missing"),
            (r#"{"specversion":"1.0","id":"1","source":"","type":"a"}"#.into(), "`source` is missing or empty"),
            (r#"{"specversion":"1.0","id":"1","source":"/s"}"#.into(), "`type` is missing"),
            (with(r#","time":"noon""#), "`time` is not a time"),
            (with(r#","data":1,"data_base64":"Zg==""#), "`data_base64` stands beside"),
            (with(r#","data_base64":"%""#), "`data_base64` is not base64"),
            (with(r#","myExt":"x""#), "`myExt` is not an attribute"),
            (with(r#","ext":{}"#), "`ext` must be a string"),
            (with(r#","ext":1.5"#), "`ext` must be a string"),
            (with(r#","ext":1,"ext":2"#), "`ext` stands twice"),
            (with(r#","type":"x""#), "`type` stands twice"),
        ] {
            assert!(refusal(&body).starts_with(named), "{body}: {}", refusal(&body));
        }
    }

    #[test]
    fn data_in_base64_stays_so_and_is_marked() {
        let body = r#"{"specversion":"1.0","id":"1","source":"/s","type":"a","data_base64":"//4="}"#;
        let Published::One(event) = one_or_batch(body, structured).unwrap() else { panic!("one event is not a batch") };
        let entry = event.check().unwrap();
        assert_eq!(entry.payload.as_str(), r#""//4=""#);
        assert!(entry.metadata.as_str().contains(r#""data_encoding":"base64""#));
    }
}
