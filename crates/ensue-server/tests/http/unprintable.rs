//! Identifiers with control, bidirectional or zero-width characters are refused; stored ones stay readable.

use crate::support::{Server, encoded};
use ensue::event::Entry;
use ensue::text::is_unprintable;
use ensue::{NewEvent, ObjectKey};
use serde_json::json;

const CHARS: [char; 9] =
    ['\u{1b}', '\u{7f}', '\u{9b}', '\u{202e}', '\u{200d}', '\u{e0041}', '\u{115f}', '\u{fff9}', '\u{2800}'];

#[tokio::test]
async fn new_identifiers_have_no_unprintable_character() {
    let server = Server::start().await;
    for c in CHARS {
        let bad = format!("a{c}b");
        let path = encoded(&bad);
        let rule = json!({ "reason": bad });
        let schedule = json!({ "every": "1h", "topic": "tick" });
        for (method, target, body) in [
            ("POST", "/v1/events".into(), json!({ "topic": bad })),
            ("POST", "/v1/events".into(), json!({ "topic": "a", "object": bad })),
            ("POST", "/v1/events".into(), json!({ "topic": "a", "key": bad })),
            ("POST", "/v1/jobs".into(), json!({ "handler": bad })),
            ("POST", "/v1/jobs".into(), json!({ "handler": "h", "object": bad })),
            ("POST", "/v1/jobs".into(), json!({ "handler": "h", "unique_key": bad })),
            ("POST", "/v1/jobs/claim".into(), json!({ "handlers": ["h"], "worker": bad })),
            ("PUT", format!("/v1/groups/{path}"), json!({})),
            ("PUT", format!("/v1/handlers/{path}"), json!({ "on": "a" })),
            ("PUT", "/v1/handlers/h".into(), json!({ "on": bad })),
            ("PUT", format!("/v1/schedules/{path}"), schedule.clone()),
            ("PUT", "/v1/rules/pause/object:a".into(), rule.clone()),
            ("PUT", format!("/v1/rules/pause/object:{path}"), json!({})),
            ("PUT", format!("/v1/rules/block/handler:{path}"), json!({})),
            ("POST", format!("/tasks/?source={path}&collection=b"), json!(null)),
        ] {
            let body = body.to_string();
            let answer = server.request(method, &target, &["content-type: application/json"], body.as_bytes()).await;
            assert!(matches!(answer.status, 400 | 422), "{method} {target} {body}: {}", answer.text());
            assert!(!answer.text().trim_end().contains(is_unprintable), "{}", answer.text());
        }
    }
    assert_eq!(server.bounds().await.last, 0);
}

#[tokio::test]
async fn stored_objects_with_unprintable_characters_stay_readable() {
    let server = Server::start().await;
    let object = "order\u{202e}:1";
    let entry = Entry { object: Some(ObjectKey::stored(object)), ..NewEvent::new("order").check().unwrap() };
    server.bus.store().append(vec![entry]).await.unwrap();
    let path = encoded(object);
    for target in [format!("/v1/objects/{path}/events"), format!("/v1/events?object={path}"), "/v1/events".into()] {
        let answer = server.get(&target).await;
        assert_eq!(answer.status, 200, "{target}: {}", answer.text());
        assert_eq!(answer.json()["events"][0]["object"], object, "{target}");
    }
    assert_eq!(server.get(&format!("/v1/explain?object={path}")).await.status, 200);
}
