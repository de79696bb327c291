//! Lists of groups, handlers and held objects come in pages: the pages are the list, and each is bounded.

use crate::handlers_support::until;
use crate::support::{Server, encoded};
use ensue::{Context, Ensue, Event, HandlerError, NewEvent, Retry, Start};
use ensue_server::HttpOptions;
use serde_json::Value;

/// The values of a field in all pages of a list, and how many pages it took.
async fn pages(server: &Server, target: &str, list: &str, field: &str) -> (Vec<String>, usize) {
    let (mut all, mut count, mut after) = (Vec::new(), 0, String::new());
    loop {
        let answer = server.get(&format!("{target}limit=2{after}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let page = answer.json();
        let items = page[list].as_array().unwrap();
        assert!(items.len() <= 2, "{page}");
        all.extend(items.iter().map(|item| item[field].as_str().unwrap().to_string()));
        count += 1;
        match &page["next"] {
            Value::Null => return (all, count),
            Value::String(next) => after = format!("&after={}", encoded(next)),
            other => panic!("{other}"),
        }
    }
}

#[tokio::test]
async fn groups_come_in_pages() {
    let server = Server::start().await;
    for group in ["c", "a", "e", "b", "d"] {
        server.bus.groups().create(group, Start::Now).await.unwrap();
    }
    let all = ["a", "b", "c", "d", "e"].map(String::from).to_vec();
    assert_eq!(pages(&server, "/v1/groups?", "groups", "name").await, (all, 3));
    let whole = server.get("/v1/groups").await.json();
    assert_eq!((whole["groups"].as_array().unwrap().len(), &whole["next"]), (5, &Value::Null));
    // A full page that is the last one says so.
    assert_eq!(server.get("/v1/groups?limit=5").await.json()["next"], Value::Null);
    assert!(server.get("/v1/groups?after=%00").await.problem(400).contains("after"));
    assert!(server.get("/v1/groups?limit=0").await.problem(400).contains("limit"));
}

#[tokio::test]
async fn handlers_and_what_they_hold_come_in_pages() {
    let bus = Ensue::memory().await.unwrap();
    let refuse = |_event: Event, _cx: Context| async { Err::<(), _>(HandlerError::failed("never")) };
    for handler in ["c", "a", "b"] {
        bus.on("t").named(handler).retry(Retry::attempts(1)).handle(refuse).unwrap();
    }
    let running = bus.start().await.unwrap();
    // One that has not begun is in its place, too.
    let server = Server::serve(bus, HttpOptions::default()).await;
    let keys = ["t.a", "t.b", "t.c"].map(String::from).to_vec();
    assert_eq!(pages(&server, "/v1/handlers?", "handlers", "key").await, (keys, 2));
    let events = ["x", "y", "z/ü:1"].map(|object| NewEvent::new("t").object(object));
    server.bus.publish_all(events.to_vec()).await.unwrap();
    until(async || (server.bus.stuck(100).await.unwrap().len() == 9).then_some(())).await;
    let (held, count) = pages(&server, "/v1/objects?held=true&", "objects", "object").await;
    assert_eq!((held.len(), count), (9, 5));
    let expected: Vec<String> = server.bus.stuck(100).await.unwrap().iter().map(|row| row.lane.key.to_text()).collect();
    assert!(held.iter().map(|object| format!("o:{object}")).eq(expected), "{held:?}");
    assert!(server.get("/v1/objects?held=true&after=x").await.problem(400).contains("`next` of a page"));
    assert!(server.get("/v1/handlers?after=%00").await.problem(400).contains("after"));
    running.shutdown(crate::support::PATIENCE).await.unwrap();
}
