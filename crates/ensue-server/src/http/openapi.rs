//! Parts of the OpenAPI description that hold for many operations.
//!
//! Each route describes itself by annotations. Added here: enumerations, `additionalProperties: false` in request bodies,
//! optional bodies, refusals that precede routing, servers, and the order of media types.

use axum::body::Bytes;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// An enumeration: its schema, its values, and the properties (schema, property) that hold it.
type Enumeration = (&'static str, &'static [&'static str], &'static [(&'static str, &'static str)]);

const ENUMERATIONS: &[Enumeration] = &[
    (
        "JobState",
        &["scheduled", "available", "running", "parked", "retrying", "succeeded", "dead", "cancelled"],
        &[("Job", "state"), ("SentJob", "state"), ("CompletedJob", "state")],
    ),
    (
        "DeliveryState",
        &[
            "done",
            "pending",
            "running",
            "waiting",
            "retrying",
            "held",
            "dead",
            "cancelled",
            "skipped",
            "not_matched",
            "before_start",
            "passed",
        ],
        &[("Delivery", "state")],
    ),
    ("LaneState", &["waiting", "held", "dead", "done"], &[("Lane", "state")]),
    ("LaneRequest", &["retry", "skip"], &[("Lane", "asked")]),
    (
        "OnExhausted",
        &["hold", "skip", "dead_letter_object"],
        &[
            ("Job", "on_exhausted"),
            ("NewJob", "on_exhausted"),
            ("Handler", "on_exhausted"),
            ("DefineHandler", "on_exhausted"),
        ],
    ),
    ("HandlerMode", &["sync", "async"], &[("Handler", "mode")]),
    (
        "LogLevel",
        &["debug", "info", "warn", "error"],
        &[("JobLine", "level"), ("LogLine", "level"), ("SayLine", "level"), ("TaskLine", "level")],
    ),
    ("GroupKind", &["pull", "handler"], &[("Group", "kind")]),
    ("RuleKind", &["pause", "block"], &[("Rule", "kind")]),
    ("BulkAction", &["cancel", "retry", "skip"], &[("BulkRequest", "action")]),
    ("Misfire", &["skip", "once", "all"], &[("PutSchedule", "misfire"), ("Schedule", "misfire")]),
    ("Overlap", &["skip", "queue", "allow"], &[("PutSchedule", "overlap"), ("Schedule", "overlap")]),
    ("RunOutcome", &["event", "job", "overlapped", "skipped"], &[("Run", "outcome")]),
    ("TaskStatus", &["SCHEDULED", "RUNNING", "FAILED", "SUCCESS", "CANCELED"], &[("Task", "status")]),
    ("SyncState", &["done", "failed", "blocked", "pending"], &[("Published", "sync"), ("SyncHandler", "state")]),
    (
        "ReasonKind",
        &["condition", "predecessor", "rule", "lease", "limit", "delay", "handler", "error", "state"],
        &[("Reason", "kind")],
    ),
    (
        "DeletedState",
        &["deleted"],
        &[
            ("DeletedGroup", "state"),
            ("DeletedHandler", "state"),
            ("DeletedSchedule", "state"),
            ("DeletedSubscription", "state"),
        ],
    ),
];

/// Parameters that take one of a few values: path, method, parameter, values.
const PARAMETERS: &[(&str, &str, &str, &[&str])] = &[
    ("/v1/events", "get", "state", &["logged", "pending"]),
    ("/v1/events", "get", "include", &["direct"]),
    ("/v1/events/stream", "get", "include", &["direct"]),
    ("/v1/objects/{object}/events", "get", "include", &["direct"]),
    ("/v1/events", "post", "wait", &["sync"]),
    ("/v1/events/stream", "get", "event", &["message"]),
    ("/v1/rules/{kind}/{scope}", "put", "kind", &["pause", "block"]),
    ("/v1/rules/{kind}/{scope}", "delete", "kind", &["pause", "block"]),
    ("/tasks", "get", "status", &["SCHEDULED", "RUNNING", "FAILED", "SUCCESS", "CANCELED"]),
];

/// Refusals before a request reaches its route: status, component, description.
pub(super) const BEFORE_ROUTES: [(u16, &str, &str); 3] = [
    (405, "MethodNotAllowed", "The path does not take this method; the header `allow` lists those that it takes"),
    (414, "UriTooLong", "The path with its query is longer than 64 KiB"),
    (431, "HeadersTooLarge", "The headers are too large or too many"),
];

/// Keys that come first in their object. Generators take the first media type of a body.
const FIRST: [&str; 4] = ["openapi", "info", "servers", "application/json"];

/// Completes the description and writes it.
pub(super) fn complete(description: &utoipa::openapi::OpenApi) -> Bytes {
    let mut document = serde_json::to_value(description).expect("a description of constants can be written as JSON");
    document["servers"] = json!([
        {"url": "/", "description": "The server that this description comes from"},
        {"url": "http://127.0.0.1:4747", "description": "The default address of `ensue serve`"}
    ]);
    inline_integers(&mut document);
    enumerate(&mut document);
    for operation in operations(&mut document) {
        refuse_before_routes(operation);
        allow_empty_body(operation);
        describe_json_parameters(operation);
    }
    close_request_bodies(&mut document);
    show_cloud_events(&mut document);
    let mut text = serde_json::to_vec(&Ordered(&document)).expect("JSON can be written");
    text.push(b'\n');
    text.into()
}

fn operations(document: &mut Value) -> impl Iterator<Item = &mut Value> {
    let paths = document["paths"].as_object_mut().into_iter().flat_map(Map::values_mut);
    paths.filter_map(Value::as_object_mut).flat_map(Map::values_mut)
}

/// Replaces references to the schema of an integer by the schema itself.
fn inline_integers(document: &mut Value) {
    let Some(integer) = document["components"]["schemas"].as_object_mut().and_then(|schemas| schemas.remove("u64"))
    else {
        return;
    };
    visit(document, &mut |fields| {
        if fields.get("$ref").is_some_and(|reference| reference == "#/components/schemas/u64") {
            fields.remove("$ref");
            fields.extend(integer.as_object().cloned().unwrap_or_default());
        }
    });
}

/// Calls this for every object of a value, the outer ones first.
fn visit(value: &mut Value, change: &mut impl FnMut(&mut Map<String, Value>)) {
    match value {
        Value::Object(fields) => {
            change(fields);
            fields.values_mut().for_each(|value| visit(value, change));
        }
        Value::Array(values) => values.iter_mut().for_each(|value| visit(value, change)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn enumerate(document: &mut Value) {
    let schemas = &mut document["components"]["schemas"];
    for (name, values, holders) in ENUMERATIONS {
        schemas[*name] = json!({"type": "string", "enum": values});
        for (schema, property) in *holders {
            visit(&mut schemas[*schema], &mut |fields| {
                if let Some(held) = fields.get_mut("properties").and_then(|properties| properties.get_mut(*property)) {
                    refer(held, name);
                }
            });
        }
    }
    for (path, method, name, values) in PARAMETERS {
        let parameters = document["paths"][*path][*method]["parameters"].as_array_mut();
        for parameter in parameters.into_iter().flatten().filter(|parameter| parameter["name"] == *name) {
            parameter["schema"] = json!({"type": "string", "enum": values});
        }
    }
}

/// Makes a text a reference to an enumeration; what may be null may still be.
fn refer(property: &mut Value, name: &str) {
    let reference = json!({"$ref": format!("#/components/schemas/{name}")});
    let is_nullable = property["type"].as_array().is_some_and(|types| types.contains(&json!("null")));
    let description = property["description"].take();
    *property = if is_nullable { json!({"oneOf": [reference, {"type": "null"}]}) } else { reference };
    if !description.is_null() {
        property["description"] = description;
    }
}

fn refuse_before_routes(operation: &mut Value) {
    for (status, name, _) in BEFORE_ROUTES {
        operation["responses"][status.to_string()] = json!({"$ref": format!("#/components/responses/{name}")});
    }
}

/// `params` in a query is a JSON document.
fn describe_json_parameters(operation: &mut Value) {
    let parameters = operation.get_mut("parameters").and_then(Value::as_array_mut);
    for parameter in parameters.into_iter().flatten().filter_map(Value::as_object_mut) {
        if parameter["name"] == "params" {
            parameter.remove("schema");
            parameter.insert("content".into(), json!({"application/json": {"schema": {}}}));
        }
    }
}

/// A body that may be left out says so in its description.
fn allow_empty_body(operation: &mut Value) {
    let body = &mut operation["requestBody"];
    if body["description"].as_str().is_some_and(|text| text.starts_with("May be left out")) {
        body["required"] = json!(false);
    } else if body.is_null() {
        // To look at a missing field has made it null.
        operation.as_object_mut().and_then(|fields| fields.remove("requestBody"));
    }
}

/// Bodies in our own form refuse unknown fields, in nested objects too.
fn close_request_bodies(document: &mut Value) {
    let mut pending: Vec<String> = Vec::new();
    let collect = |value: &Value, pending: &mut Vec<String>| {
        visit(&mut value.clone(), &mut |fields| {
            let reference = fields.get("$ref").and_then(Value::as_str);
            pending.extend(reference.and_then(|text| text.strip_prefix("#/components/schemas/")).map(str::to_owned));
        });
    };
    for operation in operations(document) {
        if let Some(json) = operation.pointer("/requestBody/content/application~1json") {
            collect(json, &mut pending);
        }
    }
    let (schemas, mut seen) = (&mut document["components"]["schemas"], BTreeSet::new());
    while let Some(name) = pending.pop() {
        if seen.insert(name.clone()) {
            let schema = &mut schemas[&name];
            collect(schema, &mut pending);
            if schema["properties"].is_object() {
                schema["additionalProperties"] = json!(false);
            }
        }
    }
}

/// CloudEvents that are published are shown by example. A schema beside that of JSON makes openapi-python-client generate
/// code that fails: it tells bodies apart with `isinstance(body, list[…])`.
fn show_cloud_events(document: &mut Value) {
    let event = json!({"specversion": "1.0", "id": "A1", "source": "https://example.com/shop", "type": "order.paid",
        "subject": "order:17", "data": {"total": 120}});
    let content = &mut document["paths"]["/v1/events"]["post"]["requestBody"]["content"];
    content["application/cloudevents+json"] = json!({"example": event});
    content["application/cloudevents-batch+json"] = json!({"example": [event]});
}

/// Writes some keys before the others, which stay sorted.
struct Ordered<'a>(&'a Value);

impl Serialize for Ordered<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Object(fields) => {
                let mut map = serializer.serialize_map(Some(fields.len()))?;
                let first = FIRST.iter().filter_map(|key| fields.get_key_value(*key));
                let rest = fields.iter().filter(|(key, _)| !FIRST.contains(&key.as_str()));
                for (key, value) in first.chain(rest) {
                    map.serialize_entry(key, &Ordered(value))?;
                }
                map.end()
            }
            Value::Array(values) => serializer.collect_seq(values.iter().map(Ordered)),
            other => other.serialize(serializer),
        }
    }
}
