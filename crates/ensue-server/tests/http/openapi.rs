//! The description at /openapi.json is exact: every path, method and status in it happens, and no other does, except what
//! is refused before a request has reached its route, which the description says once for all paths.

use crate::support::Server;
use crate::support::moody::{Mood, Moody};
use ensue::positions::{
    Acquire, GroupKind, Lane, LaneChange, LaneKey, LaneState, Member, NewGroup, Settled, SlotChange, Start,
};
use ensue::tasks::{CollectionHandler, CollectionOptions};
use ensue::{Ensue, GroupName, ObjectKey, StoreError};
use ensue_server::{HttpOptions, Tokens};
use jiff::SignedDuration;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use uuid::Uuid;

async fn moody(tokens: Tokens) -> (Server, Arc<Mutex<Mood>>) {
    let memory = Ensue::open("sqlite::memory:").await.unwrap();
    let mood = Arc::new(Mutex::new(Mood::Well));
    let bus = Ensue::with_store(Moody::new(memory.store().clone(), mood.clone()));
    let code = async |_: ensue::Event, _: ensue::Context| Ok::<_, ensue::HandlerError>(());
    let collection = CollectionHandler::new("s", "c", CollectionOptions::default(), code).unwrap();
    bus.set_collections(vec![collection]).await.unwrap();
    let options = HttpOptions { tokens, body_silence_max: Duration::from_millis(500), ..HttpOptions::default() };
    (Server::serve(bus, options).await, mood)
}

pub const TOKEN: &str = "Authorization: Bearer t";
pub const JSON: &str = "Content-Type: application/json";

async fn description(server: &Server) -> Value {
    let answer = server.request("GET", "/openapi.json", &[TOKEN], b"").await;
    assert_eq!((answer.status, answer.headers["content-type"].as_str()), (200, "application/json"));
    answer.json()
}

/// (method, path, status) of everything described, except the refusals before routing, which all operations share.
fn described(description: &Value) -> BTreeSet<(String, String, u16)> {
    let mut all = BTreeSet::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            for status in operation["responses"].as_object().unwrap().keys() {
                if ["405", "414", "431"].contains(&status.as_str()) {
                    continue;
                }
                all.insert((method.to_uppercase(), path.clone(), status.parse().unwrap()));
            }
        }
    }
    all
}

/// A path with its parameters filled in such that the request of this method succeeds.
fn filled_for(method: &str, path: &str) -> String {
    match (method, path) {
        ("POST", "/tasks") => "/tasks?source=s&collection=c".into(),
        (_, "/tasks") => "/tasks?source=s&start=2020-01-01T00:00:00Z&end=2999-01-01T00:00:00Z".into(),
        (_, path) => filled(path),
    }
}

/// A path with its parameters filled in such that the request succeeds.
fn filled(path: &str) -> String {
    if path.starts_with("/tasks/") {
        return path.replace("{id}", &format!("s_c_{NO_ID}"));
    }
    if path == "/v1/objects" {
        return "/v1/objects?held=true".into();
    }
    if path == "/v1/explain" {
        return "/v1/explain?object=o".into();
    }
    path.replace("{place}", "1")
        .replace("{kind}/{scope}", "pause/object:a/b")
        .replace("{object}", "o")
        .replace("{group}", "g")
        .replace("{id}", NO_ID)
        .replace("{handler}", "h.one")
        .replace("{key}", "h.kept")
        .replace("{name}", "x")
}

/// The id of nothing.
pub const NO_ID: &str = "0190a5a0-0000-7000-8000-000000000001";

/// A body that an operation can read, so that it comes as far as to the store.
fn fitting(path: &str) -> &'static [u8] {
    match path {
        "/v1/groups/{group}/subscriptions" => br#"{"where":"true"}"#,
        "/v1/groups/{group}/seek" => br#"{"to":"now"}"#,
        "/v1/groups/{group}/replay" => br#"{"from":1,"to":1}"#,
        "/v1/groups/{group}/commit" => {
            br#"{"cursor":0,"lease":"0300000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"}"#
        }
        "/v1/handlers/{key}" => br#"{"on":"a"}"#,
        "/v1/schedules/{name}" => br#"{"cron":"@daily","topic":"t"}"#,
        "/v1/jobs" => br#"{"handler":"h"}"#,
        "/v1/jobs/claim" => br#"{"handlers":["h"]}"#,
        "/v1/jobs/complete" => {
            br#"{"jobs":[{"id":"0190a5a0-0000-7000-8000-000000000001","claim":"claim-1-0190a5a0-0000-7000-8000-000000000001-00000000000000000000000000000000"}]}"#
        }
        "/v1/jobs/bulk" => br#"{"action":"retry","filter":{"handler":"h"}}"#,
        "/v1/jobs/{id}/fail" => br#"{"claim":"claim-1-0190a5a0-0000-7000-8000-000000000001-00000000000000000000000000000000","error":"x"}"#,
        "/v1/jobs/{id}/snooze" => br#"{"claim":"claim-1-0190a5a0-0000-7000-8000-000000000001-00000000000000000000000000000000","for_ms":1}"#,
        "/v1/jobs/{id}/progress" => br#"{"claim":"claim-1-0190a5a0-0000-7000-8000-000000000001-00000000000000000000000000000000","done":1}"#,
        "/v1/jobs/{id}/log" => {
            br#"{"claim":"claim-1-0190a5a0-0000-7000-8000-000000000001-00000000000000000000000000000000","lines":[{"message":"x"}]}"#
        }
        "/v1/jobs/{id}/renew" | "/v1/jobs/{id}/complete" => {
            br#"{"claim":"claim-1-0190a5a0-0000-7000-8000-000000000001-00000000000000000000000000000000"}"#
        }
        path if path.starts_with("/v1/rules") || path.starts_with("/v1/jobs") => b"{}",
        path if path.starts_with("/v1/groups/{group}") => b"{}",
        path if path.ends_with("/retry") || path.ends_with("/skip") || path.starts_with("/tasks") => b"{}",
        _ => br#"{"topic":"a"}"#,
    }
}

/// What each operation on handlers answers by itself. Object `o` is held at its first event, for two handlers.
async fn handlers_answer(server: &Server, seen: &mut BTreeSet<(String, String, u16)>) {
    let store = server.bus.store();
    let key = LaneKey::Object(ObjectKey::parse("o").unwrap());
    for name in ["h.one", "h.two"] {
        let group = GroupName::parse("group", name).unwrap();
        let (kind, start) = (GroupKind::Handler, Start::Beginning);
        store.create_group(NewGroup { name: group.clone(), kind, start, slots: 1 }).await.unwrap();
        let member = Member { id: Uuid::from_u128(7), name: "test".into(), kind };
        let lease = SignedDuration::from_secs(60);
        let acquire = Acquire { group: group.clone(), member, lease, slots: Vec::new(), go_on: None };
        let fence = store.acquire(acquire).await.unwrap().unwrap().slots[0].fence;
        let mut change = SlotChange::new(group, 0, Uuid::from_u128(7), fence);
        let (state, error) = (LaneState::Held, Some("no".into()));
        let lane = Lane { key: key.clone(), position: 1, state, attempts: 1, not_before: None, error, redriven: false };
        change.lanes.push(LaneChange::Put(lane));
        assert_eq!(store.settle(vec![change]).await.unwrap(), [Settled::Done(Vec::new())]);
    }
    let one = GroupName::parse("group", "h.one").unwrap();
    let server_of_it = Member { id: Uuid::from_u128(7), name: "test".into(), kind: GroupKind::Handler };
    store.serve(server_of_it, SignedDuration::from_secs(60), vec![one]).await.unwrap();
    let mut ask = async |method: &str, path: &str, target: &str, body: &str| {
        let answer = server.request(method, target, &[TOKEN, JSON], body.as_bytes()).await;
        seen.insert((method.to_string(), path.to_string(), answer.status));
    };
    ask("DELETE", "/v1/groups/{group}", "/v1/groups/h.one", "").await;
    for target in ["/v1/handlers", "/v1/handlers?x=1"] {
        ask("GET", "/v1/handlers", target, "").await;
    }
    let one = "/v1/handlers/{key}";
    for (key, body) in [
        ("h.kept", r#"{"on":"a"}"#),
        ("h.kept", r#"{"on":"a"}"#),
        ("h.one", r#"{"on":"a"}"#),
        ("h.kept", "{}"),
        ("a..b", "{}"),
    ] {
        ask("PUT", one, &format!("/v1/handlers/{key}"), body).await;
    }
    for key in ["h.kept", "none", "a..b"] {
        ask("GET", one, &format!("/v1/handlers/{key}"), "").await;
    }
    for key in ["h.kept", "h.kept", "h.one", "a..b"] {
        ask("DELETE", one, &format!("/v1/handlers/{key}"), "").await;
    }
    for target in ["/v1/objects?held=true", "/v1/objects"] {
        ask("GET", "/v1/objects", target, "").await;
    }
    for place in ["1", "99", "x"] {
        ask("GET", "/v1/events/{place}/deliveries", &format!("/v1/events/{place}/deliveries"), "").await;
        let logs = format!("/v1/events/{place}/deliveries/h.one/logs");
        ask("GET", "/v1/events/{place}/deliveries/{handler}/logs", &logs, "").await;
    }
    for (path, good, unknown, bad) in
        [("/v1/objects/{object}", "o", "none", "%00"), ("/v1/events/{place}", "1", "99", "x")]
    {
        let target = |named: &str| path.replace("{object}", named).replace("{place}", named);
        for verb in ["retry", "skip"] {
            let path = format!("{path}/{verb}");
            for (named, body) in
                [(good, r#"{"handler":"h.one"}"#), (good, "{}"), (good, r#"{"x":1}"#), (unknown, "{}"), (bad, "{}")]
            {
                ask("POST", &path, &format!("{}/{verb}", target(named)), body).await;
            }
        }
    }
}

/// A stream that cannot be addressed.
const UNKNOWN_SUBSCRIPTION: &str = "/v1/events/stream?subscription=01900000-0000-7000-8000-000000000007";

/// What each operation on groups answers by itself.
async fn groups_answer(server: &Server, seen: &mut BTreeSet<(String, String, u16)>) {
    let new = |name: &str| NewGroup {
        name: GroupName::parse("group", name).unwrap(),
        kind: GroupKind::Handler,
        start: Start::Now,
        slots: 1,
    };
    server.bus.store().create_group(new("handler")).await.unwrap();
    let mut ask = async |method: &str, path: &str, target: &str, body: &str| {
        let answer = server.request(method, &format!("/v1/groups{target}"), &[TOKEN, JSON], body.as_bytes()).await;
        seen.insert((method.to_string(), format!("/v1/groups{path}"), answer.status));
        answer
    };
    let (group, subscriptions) = ("/{group}", "/{group}/subscriptions");
    let (one, touch) = ("/{group}/subscriptions/{id}", "/{group}/subscriptions/{id}/touch");
    for target in ["/g", "/g", "/handler", "/a..b"] {
        ask("PUT", group, target, "{}").await;
    }
    ask("PUT", group, "/g", r#"{"start":"soon"}"#).await;
    ask("GET", "", "", "").await;
    ask("GET", "", "?x=1", "").await;
    for target in ["/g", "/none", "/a..b"] {
        ask("GET", group, target, "").await;
        ask("GET", subscriptions, &format!("{target}/subscriptions"), "").await;
        ask("POST", "/{group}/seek", &format!("{target}/seek"), r#"{"to":"now"}"#).await;
        ask("POST", "/{group}/replay", &format!("{target}/replay"), r#"{"from":1,"to":1}"#).await;
    }
    ask("POST", "/{group}/seek", "/g/seek", "{}").await;
    ask("POST", "/{group}/replay", "/g/replay", "{}").await;
    ask("POST", "/{group}/replay", "/handler/replay", r#"{"from":1,"to":1}"#).await;
    let all = r#"{"where":"true"}"#;
    let subscription = ask("POST", subscriptions, "/g/subscriptions", all).await.json();
    for (target, body) in [("/g", all), ("/g", r#"{"where":"x"}"#), ("/g", "{}"), ("/handler", all), ("/a..b", all)] {
        ask("POST", subscriptions, &format!("{target}/subscriptions"), body).await;
    }
    let id = subscription["id"].as_str().unwrap();
    for target in [format!("/g/subscriptions/{id}"), format!("/g/subscriptions/{NO_ID}"), "/g/subscriptions/x".into()] {
        ask("POST", touch, &format!("{target}/touch"), "").await;
        ask("DELETE", one, &target, "").await;
    }
    ask("POST", touch, &format!("/handler/subscriptions/{NO_ID}/touch"), "").await;
    ask("DELETE", one, &format!("/handler/subscriptions/{NO_ID}"), "").await;
    let (read, commit) = ("/{group}/read", "/{group}/commit");
    let lease = ask("POST", read, "/g/read", "{}").await.json()["lease"].as_str().unwrap().to_string();
    for (target, body) in [("/g", "{}"), ("/none", "{}"), ("/a..b", "{}"), ("/g", r#"{"limit":0}"#)] {
        ask("POST", read, &format!("{target}/read"), body).await;
    }
    let body = format!(r#"{{"lease":"{lease}","release":true}}"#);
    for target in ["/g", "/g", "/none", "/a..b"] {
        ask("POST", commit, &format!("{target}/commit"), &body).await;
    }
    ask("POST", commit, "/g/commit", "{}").await;
    for target in ["/g", "/g", "/a..b"] {
        ask("DELETE", group, target, "").await;
    }
}

#[tokio::test]
async fn every_described_status_happens_and_no_other() {
    let (server, mood) = moody(Tokens::of(["t"])).await;
    let described = described(&description(&server).await);
    let mut seen = BTreeSet::new();
    let delayed = r#"{"topic":"a","not_before":"2999-01-01T00:00:00Z"}"#;
    let delayed = server.request("POST", "/v1/events", &[TOKEN, JSON], delayed.as_bytes()).await.json();
    let delayed = format!("/v1/events/{}", delayed["events"][0]["id"].as_str().unwrap());
    let large = vec![b' '; (1 << 20) + 1];

    // Every operation with its own answers.
    let post = ("POST", "/v1/events");
    let show = ("GET", "/v1/events/{place}");
    let cancel = ("DELETE", "/v1/events/{place}");
    let kind = [TOKEN, JSON];
    // Operation, target, headers, body.
    type Request<'a> = ((&'a str, &'a str), &'a str, &'a [&'a str], &'a [u8]);
    let requests: Vec<Request<'_>> = vec![
        (post, "/v1/events", &kind, br#"{"topic":"a","object":"o","key":"k"}"#),
        (post, "/v1/events", &kind, br#"{"topic":"a","object":"o","key":"k"}"#),
        (post, "/v1/events", &kind, br#"{"topic":"b","key":"k"}"#),
        (post, "/v1/events", &kind, b"{"),
        (post, "/v1/events", &kind, b"{}"),
        (("GET", "/v1/events"), "/v1/events", &kind, b""),
        (("GET", "/v1/events"), "/v1/events?limit=0", &kind, b""),
        (("GET", "/v1/events"), "/v1/events?where=x", &kind, b""),
        (("GET", "/v1/events/stream"), "/v1/events/stream?after=x", &kind, b""),
        (("GET", "/v1/events/stream"), "/v1/events/stream?where=x", &kind, b""),
        (("GET", "/v1/events/stream"), UNKNOWN_SUBSCRIPTION, &kind, b""),
        (show, "/v1/events/1", &kind, b""),
        (show, "/v1/events/x", &kind, b""),
        (show, "/v1/events/99", &kind, b""),
        (cancel, &delayed, &kind, b""),
        (cancel, "/v1/events/x", &kind, b""),
        (cancel, "/v1/events/99", &kind, b""),
        (cancel, "/v1/events/1", &kind, b""),
        (("GET", "/v1/objects/{object}/events"), "/v1/objects/o/events", &kind, b""),
        (("GET", "/v1/objects/{object}/events"), "/v1/objects/o/events?limit=0", &kind, b""),
        (("GET", "/v1/log"), "/v1/log", &kind, b""),
        (("GET", "/v1/log"), "/v1/log?x=1", &kind, b""),
        (("GET", "/health"), "/health", &[], b""),
        (("GET", "/ready"), "/ready", &[], b""),
        (("GET", "/metrics"), "/metrics", &kind, b""),
        (("GET", "/openapi.json"), "/openapi.json", &kind, b""),
    ];
    for ((method, path), target, headers, body) in requests {
        let status = server.request(method, target, headers, body).await.status;
        seen.insert((method.to_string(), path.to_string(), status));
    }
    groups_answer(&server, &mut seen).await;
    crate::openapi_jobs::answer(&server, &mut seen).await;
    crate::openapi_schedules::answer(&server, &mut seen).await;
    crate::openapi_tasks::answer(&server, &mut seen).await;
    handlers_answer(&server, &mut seen).await;
    for (method, path, status) in &described {
        let target = filled_for(method, path);
        let answer = match status {
            // A body that is announced and does not come.
            408 => {
                let head = format!("{method} {target} HTTP/1.1\r\nHost: test\r\n{TOKEN}\r\n{JSON}");
                server.send(format!("{head}\r\nContent-Length: 5\r\n\r\n").as_bytes()).await
            }
            413 => server.request(method, &target, &kind, &large).await,
            415 => server.request(method, &target, &[TOKEN], b"{}").await,
            507 => {
                *mood.lock().unwrap() = Mood::Fails(StoreError::Full("x".into()));
                let answer = server.request(method, &target, &kind, fitting(path)).await;
                *mood.lock().unwrap() = Mood::Well;
                answer
            }
            _ => continue,
        };
        seen.insert((method.clone(), path.clone(), answer.status));
    }
    server.stream("", &[TOKEN]).await;
    seen.insert(("GET".into(), "/v1/events/stream".into(), 200));

    // Every operation without a token, and with a store that fails in each way.
    let operations: BTreeSet<(&str, &str)> = described.iter().map(|(method, path, _)| (&**method, &**path)).collect();
    let text = || "x".to_string();
    let faults = [None, Some(StoreError::Engine(text())), Some(StoreError::Unavailable(text()))];
    for (method, path) in &operations {
        // A stream that is well does not end, and was opened above.
        for fault in &faults {
            let headers = if fault.is_some() { &kind[..] } else { &[] };
            *mood.lock().unwrap() = fault.clone().map_or(Mood::Well, Mood::Fails);
            let status = server.request(method, &filled_for(method, path), headers, fitting(path)).await.status;
            seen.insert((method.to_string(), path.to_string(), status));
        }
    }

    let missing: Vec<_> = described.difference(&seen).collect();
    let undescribed: Vec<_> = seen.difference(&described).collect();
    assert!(missing.is_empty() && undescribed.is_empty(), "never happens: {missing:?}; not described: {undescribed:?}");
}

#[tokio::test]
async fn a_method_that_is_not_described_is_refused_with_those_that_are() {
    let (server, _) = moody(Tokens::of(["t"])).await;
    let description = description(&server).await;
    for (path, item) in description["paths"].as_object().unwrap() {
        let known: BTreeSet<String> = item.as_object().unwrap().keys().map(|method| method.to_uppercase()).collect();
        for method in ["GET", "POST", "PUT", "PATCH", "DELETE"] {
            if known.contains(method) {
                continue;
            }
            let answer = server.request(method, &filled(path), &[TOKEN, JSON], b"").await;
            assert!(answer.problem(405).contains(method));
            let allowed: BTreeSet<String> = answer.headers["allow"].split(',').map(str::to_string).collect();
            let without_head: BTreeSet<_> = allowed.into_iter().filter(|method| method != "HEAD").collect();
            assert_eq!(without_head, known, "{path}");
        }
    }
}

/// 408 needs a server without patience: `http_slow.rs` has one.
#[tokio::test]
async fn what_is_refused_before_its_route_is_described_for_all_paths() {
    let (server, _) = moody(Tokens::of(["t"])).await;
    let description = description(&server).await;
    let general = description["info"]["description"].as_str().unwrap();
    let headers: String = (0..200).map(|index| format!("x-{index}: y\r\n")).collect();
    let long = "a".repeat(70_000);
    for path in description["paths"].as_object().unwrap().keys().map(|path| filled(path)) {
        for (status, request) in [
            (400, format!("GET {path} HTTP/1.1\r\nbroken header\r\n\r\n")),
            (405, format!("BREW {path} HTTP/1.1\r\nHost: test\r\n{TOKEN}\r\nConnection: close\r\n\r\n")),
            (414, format!("GET {path}?{long} HTTP/1.1\r\nHost: test\r\n\r\n")),
            (431, format!("GET {path} HTTP/1.1\r\nHost: test\r\n{headers}\r\n")),
        ] {
            server.send(request.as_bytes()).await.problem(status);
            assert!(general.contains(&format!("{status} (")), "{status} is not in {general:?}");
        }
    }
    assert!(general.contains("408 (the head"), "{general:?}");
    for operation in operations(&description) {
        for status in ["405", "414", "431"] {
            assert!(operation["responses"][status]["$ref"].is_string(), "{status}: {operation}");
        }
    }
}

fn operations(description: &Value) -> impl Iterator<Item = &Value> {
    description["paths"].as_object().unwrap().values().flat_map(|item| item.as_object().unwrap().values())
}

/// Generators take the first media type that they know.
#[tokio::test]
async fn json_is_the_first_media_type_of_every_body() {
    let server = Server::start().await;
    let text = server.get("/openapi.json").await.text();
    let publish = text.split("\"requestBody\":").find(|body| body.contains("application/x-ndjson")).unwrap();
    let content = publish.split_once("\"content\":{").unwrap().1;
    assert!(content.starts_with("\"application/json\""), "{}", &content[..200]);
    let description: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(description["servers"][0]["url"], "/");
}

/// A body with an unknown field is refused, and the description says so; a body that may be left out is not required.
#[tokio::test]
async fn request_bodies_are_closed_and_optional_where_they_may_be_empty() {
    let server = Server::start().await;
    server.publish("a", Some("o")).await;
    let description = server.get("/openapi.json").await.json();
    let mut closed = 0;
    for (path, item) in description["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            let Some(body) = operation.get("requestBody") else { continue };
            let reference = body["content"]["application/json"]["schema"]["$ref"].as_str().unwrap();
            let schema = description.pointer(reference.trim_start_matches('#')).unwrap();
            let schema = match schema["oneOf"][0]["$ref"].as_str() {
                Some(one) => description.pointer(one.trim_start_matches('#')).unwrap(),
                None => schema,
            };
            assert_eq!(schema["additionalProperties"], false, "{method} {path}");
            let method = method.to_uppercase();
            let target = filled_for(&method, path);
            let answer = server.request(&method, &target, &[JSON], br#"{"unknown":1}"#).await;
            assert!(answer.problem(422).starts_with("`unknown` is not a field"), "{method} {path}: {}", answer.text());
            closed += 1;
            if body["required"] == false {
                let status = server.request(&method, &target, &[JSON], b"").await.status;
                assert!(status != 400 && status != 422, "{method} {path} needs a body: {status}");
            }
        }
    }
    assert!(closed > 20, "{closed}");
    let subscribe = "/v1/groups/g/subscriptions";
    for body in ["", "{}", r#"{"params":{}}"#] {
        let refused = server.request("POST", subscribe, &[JSON], body.as_bytes()).await.problem(422);
        assert!(refused.starts_with("`where` is missing"), "{refused}");
    }
    assert_eq!(server.request("POST", subscribe, &[JSON], br#"{"where":"true"}"#).await.status, 201);
}

/// Every word that a state or kind can be is in its enumeration.
#[tokio::test]
async fn states_and_kinds_are_enumerated() {
    use ensue::jobs::JobState;
    let server = Server::start().await;
    let schemas = server.get("/openapi.json").await.json()["components"]["schemas"].clone();
    let values = |name: &str| -> BTreeSet<String> {
        schemas[name]["enum"].as_array().unwrap().iter().map(|value| value.as_str().unwrap().to_owned()).collect()
    };
    assert_eq!(values("JobState"), JobState::ALL.iter().map(|state| state.as_str().to_owned()).collect());
    assert_eq!(schemas["Job"]["properties"]["state"]["$ref"], "#/components/schemas/JobState");
    let free = ["Explanation", "ExplainedHandler", "ExplainedJob", "Problem", "Status", "Said"];
    for (name, schema) in schemas.as_object().unwrap().iter().filter(|(name, _)| !free.contains(&name.as_str())) {
        for (property, held) in schema["properties"].as_object().into_iter().flatten() {
            let is_word = ["state", "kind", "status", "outcome", "level", "misfire", "overlap", "mode", "action"]
                .contains(&property.as_str());
            let is_list = (name.as_str(), property.as_str()) == ("BulkFilter", "state");
            let is_text = !held["type"].is_null() && held["type"] != "integer";
            assert!(!is_word || is_list || !is_text, "{name}.{property} is any text: {held}");
        }
    }
}

#[tokio::test]
async fn an_unknown_path_is_a_problem_too() {
    let server = Server::start().await;
    for target in ["/", "/v1", "/v1/event", "/v1/event/", "/v1/events/1/x", "/v1/objects/a/b/events"] {
        assert!(server.get(target).await.problem(404).contains("/openapi.json"));
    }
}

/// What is described of an event is what is sent.
#[tokio::test]
async fn an_events_fields_are_those_described() {
    let (server, _) = moody(Tokens::of(["t"])).await;
    let schema = description(&server).await["components"]["schemas"]["Event"].clone();
    let described: BTreeSet<&String> = schema["properties"].as_object().unwrap().keys().collect();
    let required: BTreeSet<&str> = schema["required"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let mut sent = BTreeSet::new();
    let subscriptions = "/v1/groups/g/subscriptions";
    let made = server.request("POST", subscriptions, &[TOKEN, JSON], br#"{"topic":"a"}"#).await.json();
    let direct = json!({"topic": "a", "to": made["id"]}).to_string();
    for body in [&*direct, r#"{"topic":"a","not_before":"2999-01-01T00:00:00Z"}"#] {
        let answer = server.request("POST", "/v1/events", &[TOKEN, JSON], body.as_bytes()).await.json();
        let target = format!("/v1/events/{}", answer["events"][0]["id"].as_str().unwrap());
        let event = server.request("GET", &target, &[TOKEN], b"").await.json();
        let fields: BTreeSet<String> = event.as_object().unwrap().keys().cloned().collect();
        for field in &required {
            assert!(fields.contains(*field), "{field} is required and not sent: {event}");
        }
        sent.extend(fields);
    }
    // Only a filtered stream says this one.
    sent.insert("prev_since".into());
    assert_eq!(sent.iter().collect::<BTreeSet<_>>(), described);
}

#[tokio::test]
async fn every_reference_of_the_description_leads_somewhere() {
    fn references(value: &Value, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                if let Some(Value::String(reference)) = fields.get("$ref") {
                    found.push(reference.clone());
                }
                fields.values().for_each(|value| references(value, found));
            }
            Value::Array(values) => values.iter().for_each(|value| references(value, found)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let (server, _) = moody(Tokens::of(["t"])).await;
    let description = description(&server).await;
    let mut found = Vec::new();
    references(&description, &mut found);
    assert!(found.len() > 20);
    for reference in found {
        assert!(description.pointer(reference.trim_start_matches('#')).is_some(), "{reference}");
    }
}

/// A refusal is described once, however many operations can be answered with it.
#[tokio::test]
async fn refusals_are_described_once_and_referred_to() {
    let (server, _) = moody(Tokens::of(["t"])).await;
    let description = description(&server).await;
    let mut referred = BTreeSet::new();
    for (path, item) in description["paths"].as_object().unwrap() {
        for (status, response) in item.as_object().unwrap().values().flat_map(|op| op["responses"].as_object().unwrap())
        {
            let reference = response["$ref"].as_str().and_then(|text| text.strip_prefix("#/components/responses/"));
            assert_eq!(reference.is_some(), status.parse::<u16>().unwrap() >= 400, "{path} {status}: {response}");
            referred.extend(reference);
        }
    }
    let components = description["components"]["responses"].as_object().unwrap();
    assert_eq!(referred, components.keys().map(String::as_str).collect());
    for (name, component) in components {
        assert!(component["description"].as_str().is_some_and(|text| !text.is_empty()), "{name}");
        let schema = &component["content"]["application/problem+json"]["schema"]["$ref"];
        assert_eq!(schema, "#/components/schemas/Problem", "{name}");
    }
}

#[tokio::test]
async fn a_handler_that_panics_answers_with_a_problem_and_the_server_goes_on() {
    let (server, mood) = moody(Tokens::default()).await;
    *mood.lock().unwrap() = Mood::Panics;
    let detail = server.post(r#"{"topic":"a"}"#).await.problem(500);
    assert!(!detail.contains("told to panic"), "{detail}");
    *mood.lock().unwrap() = Mood::Well;
    assert_eq!(server.post(r#"{"topic":"a"}"#).await.status, 201);
}

#[tokio::test]
async fn a_store_that_cannot_be_reached_is_worth_another_try() {
    let (server, mood) = moody(Tokens::default()).await;
    *mood.lock().unwrap() = Mood::Fails(StoreError::Unavailable("no route".into()));
    let answer = server.post(r#"{"topic":"a"}"#).await;
    assert!(answer.problem(503).contains("again"));
    assert_eq!(answer.headers["retry-after"], "1");
}

#[tokio::test]
async fn the_server_is_healthy_while_its_store_hangs_and_not_ready() {
    let (server, mood) = moody(Tokens::default()).await;
    assert_eq!(server.get("/ready").await.status, 200);
    *mood.lock().unwrap() = Mood::Hangs;
    assert_eq!(server.get("/health").await.json(), serde_json::json!({"status": "ok"}));
    assert!(server.get("/ready").await.problem(503).contains("2 s"));
}

#[tokio::test]
async fn requests_are_counted_by_method_template_and_status() {
    let (server, _) = moody(Tokens::default()).await;
    server.get("/v1/objects/some-object-of-mine/events").await;
    server.get("/some-path-of-mine").await;
    server.request("BREW", "/v1/events", &[], b"").await;
    let figures = server.get("/metrics").await;
    assert!(figures.headers["content-type"].starts_with("text/plain"));
    let figures = figures.text();
    for line in [
        r#"ensue_http_requests_total{method="GET",path="/v1/objects/{object}/events",status="200"}"#,
        r#"ensue_http_requests_total{method="GET",path="unknown",status="404"}"#,
        r#"ensue_http_requests_total{method="OTHER",path="/v1/events",status="405"}"#,
        r#"ensue_http_seconds_bucket{method="GET",path="/v1/objects/{object}/events",le="0.001"}"#,
    ] {
        assert!(figures.contains(line), "{line} is not in\n{figures}");
    }
    assert!(!figures.contains("of-mine"));
}
