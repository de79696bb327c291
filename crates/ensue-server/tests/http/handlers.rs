//! What people see of deliveries over HTTP: what became of an event, what stands still, and how it is brought back.

use crate::handlers_support::until;
use crate::support::{Answer, Server};
use ensue::positions::{GroupKind, NewGroup};
use ensue::{
    Context, Ensue, Event, GroupName, HandlerError, NewEvent, OnExhausted, Outcome, Retry, Running, Start, Timestamp,
};
use ensue_server::HttpOptions;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Which payloads are refused right now.
#[derive(Clone, Default)]
struct Refused(Arc<Mutex<HashSet<String>>>);

impl Refused {
    fn now(&self, payloads: &[&str]) {
        *self.0.lock().unwrap() = payloads.iter().map(|text| format!("{text:?}")).collect();
    }

    fn judge(&self, event: &Event, cx: &Context) -> Result<Outcome, HandlerError> {
        cx.log(format!("looked at {}", event.payload.as_str()));
        match event.payload.as_str() {
            "\"cancel\"" => Ok(Outcome::Cancel("nothing to do".into())),
            "\"snooze\"" => Ok(Outcome::Snooze(Duration::from_secs(3_600))),
            "\"later\"" => Ok(Outcome::Retry(Duration::from_secs(3_600))),
            text if self.0.lock().unwrap().contains(text) => Err(HandlerError::failed("not today")),
            _ => Ok(Outcome::Done),
        }
    }
}

struct Flow {
    server: Server,
    refused: Refused,
    _running: Running,
}

impl Flow {
    /// With the handlers `t.first` and `t.second`, `u.alone` (unordered) and `v.dead`.
    async fn start() -> Self {
        let bus = Ensue::memory().await.unwrap();
        let refused = Refused::default();
        bus.publish(NewEvent::new("t.early").object("early")).await.unwrap();
        let code = || {
            let refused = refused.clone();
            move |event: Event, cx: Context| {
                let answer = refused.judge(&event, &cx);
                async move { answer }
            }
        };
        let once = || Retry::attempts(1);
        bus.on("t")
            .named("first")
            .retry(Retry::attempts(2).first(Duration::ZERO).max(Duration::ZERO))
            .handle(code())
            .unwrap();
        bus.on("t")
            .named("second")
            .when("e.payload = '\"both\"'", ensue::Json::empty_object())
            .retry(once())
            .handle(code())
            .unwrap();
        bus.on("u").named("alone").unordered().retry(once()).handle(code()).unwrap();
        bus.on("v").named("dead").on_exhausted(OnExhausted::DeadLetterObject).retry(once()).handle(code()).unwrap();
        let _running = bus.start().await.unwrap();
        Self { server: Server::serve(bus, HttpOptions::default()).await, refused, _running }
    }

    async fn publish(&self, topic: &str, object: Option<&str>, payload: &str) -> u64 {
        let event = NewEvent::new(topic).payload(&payload);
        let event = match object {
            Some(object) => event.object(object),
            None => event,
        };
        self.server.bus.publish(event).await.unwrap().seq.unwrap()
    }

    async fn delivery(&self, seq: u64, handler: &str) -> Value {
        let answer = self.server.get(&format!("/v1/events/{seq}/deliveries")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let all = answer.json()["deliveries"].as_array().unwrap().clone();
        assert_eq!(all.len(), 4, "one for each handler");
        all.into_iter().find(|delivery| delivery["handler"] == handler).unwrap()
    }

    async fn becomes(&self, seq: u64, handler: &str, state: &str) -> Value {
        until(async || Some(self.delivery(seq, handler).await).filter(|delivery| delivery["state"] == state)).await
    }

    async fn ask(&self, target: &str, body: Value) -> Answer {
        let json = ["Content-Type: application/json"];
        self.server.request("POST", target, &json, body.to_string().as_bytes()).await
    }

    async fn held(&self) -> Vec<Value> {
        self.server.get("/v1/objects?held=true").await.json()["objects"].as_array().unwrap().clone()
    }
}

#[tokio::test]
async fn what_became_of_an_event_is_told_for_every_handler() {
    let flow = Flow::start().await;
    assert_eq!(flow.delivery(1, "t.first").await["state"], "before_start");
    let good = flow.publish("t.x", Some("good"), "fine").await;
    let done = flow.becomes(good, "t.first", "done").await;
    assert_eq!((&done["attempts"], &done["error"]), (&json!(1), &Value::Null));
    assert_eq!(flow.delivery(good, "t.second").await["state"], "not_matched");
    assert_eq!(flow.delivery(good, "u.alone").await["state"], "not_matched");

    flow.refused.now(&["bad"]);
    let bad = flow.publish("t.x", Some("bad"), "bad").await;
    let behind = flow.publish("t.x", Some("bad"), "fine").await;
    let held = flow.becomes(bad, "t.first", "held").await;
    assert_eq!((&held["attempts"], &held["error"]), (&json!(2), &json!("not today")));
    assert!(held["when"].is_string());
    let waits = flow.delivery(behind, "t.first").await;
    assert_eq!((&waits["state"], &waits["behind"]), (&json!("pending"), &json!(bad)));
    assert!(waits["note"].as_str().unwrap().contains(&format!("event {bad}")));

    for (payload, state) in [("cancel", "cancelled"), ("snooze", "waiting"), ("later", "retrying")] {
        let seq = flow.publish("t.x", Some(payload), payload).await;
        let found = flow.becomes(seq, "t.first", state).await;
        assert_eq!(found["retry_at"].is_string(), state != "cancelled", "{found}");
    }
    let dead = flow.publish("v.x", Some("bad"), "bad").await;
    let after = flow.publish("v.x", Some("bad"), "fine").await;
    flow.becomes(dead, "v.dead", "dead").await;
    let after = flow.becomes(after, "v.dead", "dead").await;
    assert_eq!(after["behind"], json!(dead));

    let id = flow.server.bus.store().event(good).await.unwrap().unwrap().id;
    assert_eq!(flow.server.get(&format!("/v1/events/{id}/deliveries")).await.json()["deliveries"][0]["state"], "done");
    flow.server.get("/v1/events/999/deliveries").await.problem(404);
    let later = r#"{"topic":"t.x","not_before":"2999-01-01T00:00:00Z"}"#;
    let id = flow.server.post(later).await.json()["events"][0]["id"].as_str().unwrap().to_string();
    assert_eq!(flow.server.get(&format!("/v1/events/{id}/deliveries")).await.json(), json!({"deliveries": []}));
}

/// A handler that runs would be dead without its group, and nobody would see it.
#[tokio::test]
async fn the_group_of_a_handler_that_runs_cannot_be_deleted() {
    let flow = Flow::start().await;
    let detail = flow.server.group("DELETE", "t.first", Value::Null).await.problem(409);
    assert!(detail.contains("the handler `t.first` runs") && detail.contains("take it out"), "{detail}");
    let good = flow.publish("t.x", Some("good"), "fine").await;
    flow.becomes(good, "t.first", "done").await;
}

/// One process alone writes to the embedded store: what it has, it has until it ends, and no time is made up for that.
#[tokio::test]
async fn a_handler_that_runs_is_served_now_and_no_year_ahead() {
    let flow = Flow::start().await;
    let group = until(async || {
        let group = flow.server.group_ok("GET", "t.first", Value::Null, 200).await;
        (!group["slots"][0]["owner"].is_null()).then_some(group)
    })
    .await;
    assert_eq!(group["slots"][0]["lease_until"], Value::Null);
    let served_at: Timestamp = group["served_at"].as_str().unwrap().parse().unwrap();
    assert!(served_at <= flow.server.bus.store().now().await.unwrap(), "{group}");
    let listed = flow.server.get("/v1/groups").await.json();
    assert!(listed["groups"][0]["served_at"].as_str().unwrap().parse::<Timestamp>().unwrap() <= Timestamp::now());
}

#[tokio::test]
async fn what_a_failed_delivery_said_can_be_read() {
    let flow = Flow::start().await;
    flow.refused.now(&["bad"]);
    let seq = flow.publish("t.x", Some("o"), "bad").await;
    flow.becomes(seq, "t.first", "held").await;
    let logs = format!("/v1/events/{seq}/deliveries/t.first/logs");
    let all = flow.server.get(&logs).await.json();
    let attempts: Vec<&Value> = all["logs"].as_array().unwrap().iter().map(|line| &line["attempt"]).collect();
    assert_eq!((attempts, &all["next"]), (vec![&json!(1), &json!(2)], &Value::Null));
    assert_eq!(all["logs"][0]["message"], "looked at \"bad\"");
    assert_eq!(all["logs"][0]["level"], "info");
    let page = flow.server.get(&format!("{logs}?skip=1&limit=1")).await.json();
    assert_eq!((&page["logs"][0]["attempt"], &page["next"]), (&json!(2), &json!(2)));
    flow.server.get(&format!("/v1/events/{seq}/deliveries/nobody/logs")).await.problem(404);
    flow.server.get("/v1/events/999/deliveries/t.first/logs").await.problem(404);
}

#[tokio::test]
async fn what_is_held_is_listed_and_brought_back() {
    let flow = Flow::start().await;
    assert!(flow.held().await.is_empty());
    flow.refused.now(&["bad"]);
    let first = flow.publish("t.x", Some("a/b"), "bad").await;
    let next = flow.publish("t.x", Some("a/b"), "fine").await;
    flow.becomes(first, "t.first", "held").await;
    let second = flow.publish("t.x", Some("other"), "bad").await;
    flow.becomes(second, "t.first", "held").await;
    flow.server.until_figures(|figures| figures.contains("ensue_held{handler=\"t.first\"} 2\n")).await;
    let held = flow.held().await;
    let brief: Vec<(&Value, &Value)> = held.iter().map(|lane| (&lane["object"], &lane["seq"])).collect();
    assert_eq!(brief, [(&json!("a/b"), &json!(first)), (&json!("other"), &json!(second))], "the oldest first");
    let lane = &held[0];
    assert_eq!((&lane["handler"], &lane["state"], &lane["attempts"]), (&json!("t.first"), &json!("held"), &json!(2)));
    assert!(lane["error"] == "not today" && lane["since"].is_string(), "{lane}");

    flow.refused.now(&[]);
    let asked = flow.ask("/v1/objects/a%2Fb/retry", json!({})).await;
    assert_eq!((asked.status, &asked.json()["seq"]), (200, &json!(first)), "{}", asked.text());
    flow.becomes(next, "t.first", "done").await;
    let done = flow.delivery(first, "t.first").await;
    assert_eq!((&done["state"], &done["attempts"], &done["redriven"]), (&json!("done"), &json!(3), &json!(true)));
    assert_eq!(flow.delivery(next, "t.first").await["redriven"], false);

    // Held again, it is listed as one that somebody has brought back.
    flow.refused.now(&["bad"]);
    assert_eq!(flow.held().await[0]["redriven"], false);
    assert_eq!(flow.ask("/v1/objects/other/retry", json!({})).await.status, 200);
    until(async || {
        flow.held().await.first().filter(|lane| lane["redriven"] == true && lane["asked"].is_null()).cloned()
    })
    .await;
    flow.becomes(second, "t.first", "held").await;
    assert_eq!(flow.delivery(second, "t.first").await["redriven"], true);

    let asked = flow.ask("/v1/objects/other/skip", json!({"handler": "t.first"})).await;
    assert_eq!(asked.status, 200, "{}", asked.text());
    flow.becomes(second, "t.first", "skipped").await;
    assert!(flow.held().await.is_empty());
    flow.server.until_figures(|figures| !figures.contains("ensue_held{")).await;
    let detail = flow.ask("/v1/objects/other/skip", json!({})).await.problem(404);
    assert!(detail.contains("held=true"), "{detail}");
    flow.ask("/v1/objects/other/skip", json!({"handler": "t.nobody"})).await.problem(404);
    flow.ask("/v1/objects/other/skip", json!({"handlr": "t.first"})).await.problem(422);
    flow.server.get("/v1/objects").await.problem(400);
}

#[tokio::test]
async fn who_is_meant_must_be_clear() {
    let flow = Flow::start().await;
    flow.refused.now(&["both"]);
    let seq = flow.publish("t.x", Some("o"), "both").await;
    flow.becomes(seq, "t.first", "held").await;
    flow.becomes(seq, "t.second", "held").await;
    let detail = flow.ask("/v1/objects/o/skip", json!({})).await.problem(409);
    assert!(detail.contains("t.first") && detail.contains("t.second"), "{detail}");
    flow.refused.now(&[]);
    assert_eq!(flow.ask("/v1/objects/o/skip", json!({"handler": "t.first"})).await.status, 200);
    flow.becomes(seq, "t.first", "skipped").await;
    assert_eq!(flow.ask(&format!("/v1/events/{seq}/retry"), json!({})).await.status, 200);
    flow.becomes(seq, "t.second", "done").await;
}

#[tokio::test]
async fn an_event_alone_is_brought_back_by_its_place() {
    let flow = Flow::start().await;
    flow.refused.now(&["bad"]);
    let first = flow.publish("u.x", Some("o"), "bad").await;
    let second = flow.publish("u.x", None, "bad").await;
    for seq in [first, second] {
        flow.becomes(seq, "u.alone", "held").await;
    }
    assert!(flow.held().await.iter().all(|lane| lane["object"].is_null()));
    flow.ask("/v1/objects/o/retry", json!({})).await.problem(404);
    flow.refused.now(&[]);
    assert_eq!(flow.ask(&format!("/v1/events/{first}/retry"), json!({})).await.status, 200);
    flow.becomes(first, "u.alone", "done").await;
    assert_eq!(flow.ask(&format!("/v1/events/{second}/skip"), json!({"handler": "u.alone"})).await.status, 200);
    flow.becomes(second, "u.alone", "skipped").await;
    flow.ask(&format!("/v1/events/{second}/skip"), json!({})).await.problem(404);
    flow.ask("/v1/events/999/skip", json!({})).await.problem(404);
    let later = r#"{"topic":"u.x","not_before":"2999-01-01T00:00:00Z"}"#;
    let id = flow.server.post(later).await.json()["events"][0]["id"].as_str().unwrap().to_string();
    flow.ask(&format!("/v1/events/{id}/retry"), json!({})).await.problem(409);
}

#[tokio::test]
async fn handlers_are_listed_with_how_far_they_are() {
    let flow = Flow::start().await;
    flow.refused.now(&["bad"]);
    let seq = flow.publish("t.x", Some("o"), "bad").await;
    flow.becomes(seq, "t.first", "held").await;
    let name = GroupName::parse("name", "x.orphan").unwrap();
    let orphan = NewGroup { name, kind: GroupKind::Handler, start: Start::Now, slots: 1 };
    flow.server.bus.store().create_group(orphan).await.unwrap();
    let reader = NewGroup {
        name: GroupName::parse("name", "reader").unwrap(),
        kind: GroupKind::Pull,
        start: Start::Now,
        slots: 1,
    };
    flow.server.bus.store().create_group(reader).await.unwrap();
    let handlers = until(async || {
        let handlers = flow.server.get("/v1/handlers").await.json()["handlers"].as_array().unwrap().clone();
        // The lane that is held.
        (handlers[0]["lag"] == 1).then_some(handlers)
    })
    .await;
    let keys: Vec<&str> = handlers.iter().map(|handler| handler["key"].as_str().unwrap()).collect();
    assert_eq!(keys, ["t.first", "t.second", "u.alone", "v.dead", "x.orphan"]);
    let first = &handlers[0];
    assert_eq!((&first["on"], &first["mode"], &first["held"]), (&json!("t"), &json!("async"), &json!(1)));
    // Behind the event stands what Ensue itself says of the object.
    let last = flow.server.bounds().await.last;
    assert_eq!((&first["cursor"], &first["concurrency"], &first["orphaned"]), (&json!(last), &json!(8), &json!(false)));
    assert!(handlers[1]["where"].as_str().unwrap().contains("e.payload"));
    assert_eq!((&handlers[2]["ordered"], &handlers[3]["on_exhausted"]), (&json!(false), &json!("dead_letter_object")));
    assert_eq!((&handlers[4]["orphaned"], &handlers[4]["here"]), (&json!(true), &json!(false)));
}

#[tokio::test]
async fn a_publish_waits_for_sync_handlers_within_bounds() {
    let bus = Ensue::memory().await.unwrap();
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let open = gate.clone();
    bus.on("t")
        .named("slow")
        .sync()
        .handle(move |_event: Event, _cx: Context| {
            let gate = gate.clone();
            async move {
                gate.acquire().await.map_err(HandlerError::failed)?.forget();
                Ok(())
            }
        })
        .unwrap();
    bus.on("t").named("other").handle(async |_event: Event, _cx: Context| Ok(())).unwrap();
    let _running = bus.start().await.unwrap();
    let server = Server::serve(bus, HttpOptions::default()).await;
    let post = async |query: &str, body: &str| {
        server
            .request("POST", &format!("/v1/events{query}"), &["Content-Type: application/json"], body.as_bytes())
            .await
    };
    let late = post("?wait=sync&wait_ms=100", r#"{"topic":"t.x","key":"k"}"#).await;
    assert_eq!((late.status, &late.json()["sync"]), (201, &json!("pending")));
    let slow = |state: &str, seq: Value| json!([{"handler": "t.slow", "state": state, "seq": seq, "error": null}]);
    assert_eq!(late.json()["handlers"], slow("pending", json!(1)));
    let again = post("?wait=sync&wait_ms=100", r#"{"topic":"t.x","key":"k"}"#).await;
    assert_eq!(
        (again.status, &again.json()["sync"]),
        (200, &json!("pending")),
        "it is not done because it is repeated"
    );
    open.add_permits(3);
    let done = post("?wait=sync&wait_ms=60000", r#"[{"topic":"t.x"},{"topic":"t.y"}]"#).await;
    assert_eq!((done.status, &done.json()["sync"]), (201, &json!("done")));
    assert_eq!(done.json()["handlers"], slow("done", Value::Null));
    let again = post("?wait=sync&wait_ms=60000", r#"{"topic":"t.x","key":"k"}"#).await;
    assert_eq!((again.status, &again.json()["sync"]), (200, &json!("done")));
    assert_eq!(post("?wait=sync", r#"{"topic":"u.x"}"#).await.json()["sync"], "done", "nobody wants it");
    let plain = post("", r#"{"topic":"t.x"}"#).await.json();
    assert!(plain.get("sync").is_none() && plain.get("handlers").is_none(), "{plain}");
    for bad in ["?wait=async", "?wait_ms=5", "?wait=sync&wait_ms=0", "?wait=sync&wait_ms=60001", "?wait=sync&wait_ms=x"]
    {
        post(bad, r#"{"topic":"t.x"}"#).await.problem(400);
    }
}

/// The answer says what failed for good and what waits for a person, at once.
#[tokio::test]
async fn a_publish_that_waits_is_answered_per_handler() {
    let bus = Ensue::memory().await.unwrap();
    for (key, policy) in [("holds", OnExhausted::Hold), ("skips", OnExhausted::Skip)] {
        let fail = |_event: Event, _cx: Context| async { Err::<(), _>(HandlerError::failed("no paper")) };
        bus.on("t").named(key).sync().retry(Retry::attempts(1)).on_exhausted(policy).handle(fail).unwrap();
    }
    bus.on("t").named("well").sync().handle(async |_event: Event, _cx: Context| Ok(())).unwrap();
    let _running = bus.start().await.unwrap();
    let server = Server::serve(bus, HttpOptions::default()).await;
    let path = "/v1/events?wait=sync&wait_ms=60000";
    let answer = server.request("POST", path, &["Content-Type: application/json"], br#"{"topic":"t.x"}"#).await;
    assert_eq!((answer.status, &answer.json()["sync"]), (201, &json!("failed")));
    assert_eq!(
        answer.json()["handlers"],
        json!([
            {"handler": "t.holds", "state": "blocked", "seq": 1, "error": "no paper"},
            {"handler": "t.skips", "state": "failed", "seq": 1, "error": "no paper"},
            {"handler": "t.well", "state": "done", "seq": null, "error": null},
        ])
    );
}
