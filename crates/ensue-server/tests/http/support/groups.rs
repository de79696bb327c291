//! What must groups do over HTTP, on any engine?

use super::{Answer, PATIENCE, Server};
use ensue::positions::{GroupKind, NewGroup, NewSubscription, Start};
use ensue::testing::ManualClock;
use ensue::{Context, Event, GroupName, HandlerError, Json, Retry};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

impl Server {
    /// Sends JSON to a path below `/v1/groups/`.
    pub async fn group(&self, method: &str, path: &str, body: Value) -> Answer {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let target = format!("/v1/groups/{path}");
        self.request(method, &target, &["Content-Type: application/json"], body.as_bytes()).await
    }

    /// The same, which must be answered with this status.
    #[track_caller]
    pub fn group_ok<'a>(
        &'a self,
        method: &'a str,
        path: &'a str,
        body: Value,
        status: u16,
    ) -> impl Future<Output = Value> + 'a {
        let caller = std::panic::Location::caller();
        async move {
            let answer = self.group(method, path, body).await;
            assert_eq!(answer.status, status, "{method} {path} at {caller}: {}", answer.text());
            answer.json()
        }
    }

    pub async fn publish_event(&self, event: Value) -> u64 {
        let answer = self.post(&event.to_string()).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        answer.json()["events"][0]["seq"].as_u64().unwrap()
    }

    /// Asks until the answer is a good one.
    pub async fn until_ok(&self, path: &str, body: Value) -> Value {
        let asked = async {
            loop {
                let answer = self.group("POST", path, body.clone()).await;
                if answer.status == 200 {
                    return answer.json();
                }
                answer.problem(409);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, asked).await.expect("it is never answered well")
    }
}

fn seqs(read: &Value) -> Vec<u64> {
    read["events"].as_array().unwrap().iter().map(|event| event["seq"].as_u64().unwrap()).collect()
}

/// Subscribe, publish, read, commit: each event once, with the ids of those who want it.
pub async fn a_group_reads_what_its_subscriptions_want_and_goes_on_where_it_committed(server: &Server) {
    let made = server.group_ok("PUT", "g", json!({"start": "beginning"}), 201).await;
    assert_eq!((&made["kind"], &made["cursor"], &made["lag"]), (&json!("pull"), &json!(0), &json!(0)));
    let large = json!({"where": "(e.payload->>'total')::int > (s.params->>'min')::int", "params": {"min": 100}});
    let large = server.group_ok("POST", "g/subscriptions", large, 201).await["id"].clone();
    let orders = server.group_ok("POST", "g/subscriptions", json!({"topic": "order"}), 201).await["id"].clone();
    for (topic, total) in [("order.paid", 50), ("stock", 70), ("order.paid", 150), ("refund", 500), ("orders", 1)] {
        server.publish_event(json!({"topic": topic, "payload": {"total": total}})).await;
    }
    let read = server.group_ok("POST", "g/read", json!({"limit": 2}), 200).await;
    assert_eq!((seqs(&read), &read["cursor"]), (vec![1, 3], &json!(3)));
    assert_eq!(read["events"][0]["subscriptions"], json!([orders]));
    let both: BTreeSet<_> = read["events"][1]["subscriptions"].as_array().unwrap().iter().map(Value::as_str).collect();
    assert_eq!(both, BTreeSet::from([orders.as_str(), large.as_str()]));
    assert_eq!(read["events"][0]["payload"]["total"], 50);
    // Under the lease the next read goes on, and nothing is committed by that.
    let lease = read["lease"].clone();
    let more = server.group_ok("POST", "g/read", json!({"lease": lease}), 200).await;
    assert_eq!((seqs(&more), &more["cursor"]), (vec![4], &json!(5)));
    assert_eq!(server.group_ok("GET", "g", Value::Null, 200).await["cursor"], 0);
    let body = json!({"cursor": 4, "lease": more["lease"], "release": true});
    assert_eq!(server.group_ok("POST", "g/commit", body, 200).await, json!({"cursor": 4, "released": true}));
    let group = server.group_ok("GET", "g", Value::Null, 200).await;
    assert_eq!((&group["cursor"], &group["lag"], &group["subscriptions"]), (&json!(4), &json!(1), &json!(2)));
    // Somebody else reads at once; nothing comes twice.
    let next = server.group_ok("POST", "g/read", Value::Null, 200).await;
    assert_eq!((seqs(&next), &next["cursor"]), (vec![], &json!(5)));
    let list = server.get("/v1/groups").await.json();
    assert_eq!(list["groups"][0]["name"], "g");
    assert_eq!(list["groups"][0]["slots"][0]["owner"], "over HTTP");
}

/// H16: what a reader whose lease has run out still wants to write changes nothing.
pub async fn one_reads_at_a_time_and_a_lost_lease_changes_nothing(server: &Server) {
    server.group_ok("POST", "g/subscriptions", json!({"where": "true"}), 201).await;
    server.publish_event(json!({"topic": "a"})).await;
    server.publish_event(json!({"topic": "b"})).await;
    let long = server.group_ok("POST", "g/read", json!({"lease_ms": 3_600_000}), 200).await;
    let refusal = server.group("POST", "g/read", json!({})).await.problem(409);
    assert!(refusal.contains("until 20") && refusal.contains("over HTTP"), "{refusal}");
    // A look needs no lease, and takes none.
    let peek = server.group_ok("POST", "g/read", json!({"peek": true}), 200).await;
    assert_eq!((seqs(&peek), &peek["cursor"], &peek["lease"]), (vec![1, 2], &json!(2), &Value::Null));
    // Who goes on says anew how long for.
    let brief = json!({"lease": long["lease"], "lease_ms": 100});
    let first = server.group_ok("POST", "g/read", brief, 200).await;
    let second = server.until_ok("g/read", json!({"limit": 1, "lease_ms": 3_600_000})).await;
    assert_eq!(seqs(&second), [1], "what was not committed comes again");
    for cursor in [1, 2] {
        let body = json!({"cursor": cursor, "lease": first["lease"], "release": true});
        assert!(server.group("POST", "g/commit", body).await.problem(409).contains("lease"));
    }
    server.group("POST", "g/read", json!({"lease": first["lease"]})).await.problem(409);
    assert_eq!(server.group_ok("GET", "g", Value::Null, 200).await["cursor"], 0);
    server.group_ok("POST", "g/commit", json!({"cursor": 1, "lease": second["lease"]}), 200).await;
    // A lease that nobody took over has run out all the same.
    let short = server.group_ok("POST", "g/read", json!({"lease": second["lease"], "lease_ms": 100}), 200).await;
    assert_eq!(seqs(&short), [2]);
    let mut last = 1;
    let ended = async {
        loop {
            // As long as it holds, a commit of where the group is changes nothing.
            let answer = server.group("POST", "g/commit", json!({"cursor": last, "lease": short["lease"]})).await;
            if answer.status == 409 {
                return;
            }
            last = answer.json()["cursor"].as_u64().unwrap();
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, ended).await.expect("the lease never ends");
    server.group("POST", "g/commit", json!({"cursor": 2, "lease": short["lease"]})).await.problem(409);
    assert_eq!(server.group_ok("GET", "g", Value::Null, 200).await["cursor"], 1);
    // Moved by somebody: the lease is lost with it.
    let read = server.until_ok("g/read", json!({})).await;
    server.group_ok("POST", "g/seek", json!({"to": "beginning"}), 200).await;
    server.group("POST", "g/commit", json!({"cursor": 2, "lease": read["lease"]})).await.problem(409);
    assert_eq!(seqs(&server.group_ok("POST", "g/read", json!({}), 200).await), [1, 2]);
}

/// Every place outside of what can be read or was read is refused with what can.
pub async fn cursors_outside_of_their_bounds_are_refused_with_the_bounds(server: &Server) {
    server.group_ok("POST", "g/subscriptions", json!({"where": "true"}), 201).await;
    for topic in ["a", "b", "c"] {
        server.publish_event(json!({"topic": topic})).await;
    }
    let read = server.group_ok("POST", "g/read", json!({"limit": 2}), 200).await;
    let commit = |cursor: u64| json!({"cursor": cursor, "lease": read["lease"]});
    let beyond = server.group("POST", "g/commit", commit(3)).await.problem(422);
    assert!(beyond.starts_with("`cursor` is 3") && beyond.contains("up to 2"), "{beyond}");
    server.group_ok("POST", "g/commit", commit(2), 200).await;
    let back = server.group("POST", "g/commit", commit(1)).await.problem(422);
    assert!(back.starts_with("`cursor` is 1") && back.contains("at 2"), "{back}");
    let lease = &read["lease"];
    for body in
        [json!({"cursor": 1, "lease": lease}), json!({"cursor": 4, "lease": lease}), json!({"cursor": 4, "peek": true})]
    {
        let outside = server.group("POST", "g/read", body).await.problem(422);
        assert!(outside.contains("after 2") && outside.contains("to 3"), "{outside}");
    }
    // To look at what is done moves nothing.
    assert_eq!(seqs(&server.group_ok("POST", "g/read", json!({"cursor": 1, "peek": true}), 200).await), [2, 3]);
    assert_eq!(seqs(&server.group_ok("POST", "g/read", json!({"cursor": 2, "lease": read["lease"]}), 200).await), [3]);
    for to in [json!(4), json!("soon"), json!(-1), Value::Null] {
        assert!(server.group("POST", "g/seek", json!({"to": to})).await.problem(422).starts_with("`to`"));
    }
    assert!(server.group("PUT", "h", json!({"start": 4})).await.problem(422).contains("newest event is 3"));
    server.group("GET", "h", Value::Null).await.problem(404);
    let sought = server.group_ok("POST", "g/seek", json!({"to": 1}), 200).await;
    assert_eq!((&sought["cursor"], &sought["lag"]), (&json!(1), &json!(2)));
    assert_eq!(server.group_ok("POST", "g/seek", json!({"to": "now"}), 200).await["cursor"], 3);
}

/// H13: whoever waits is woken by what comes, and not by what it does not want.
pub async fn a_long_poll_is_woken_by_what_the_group_wants(server: &Server) {
    server.group_ok("POST", "g/subscriptions", json!({"topic": "wanted"}), 201).await;
    let began = Instant::now();
    let empty = server.group_ok("POST", "g/read", json!({"wait_ms": 300, "lease_ms": 100}), 200).await;
    assert_eq!(seqs(&empty), [] as [u64; 0]);
    assert!(began.elapsed() >= Duration::from_millis(300));
    // The lease was as long as was asked for, however long the wait was, and has run out soon.
    let held = async || {
        let group = server.group_ok("GET", "g", Value::Null, 200).await;
        group["slots"][0]["lease_until"].as_str().map(str::to_string)
    };
    let before = held().await;
    let publish = async {
        // Until the reader is there: it has a lease of its own then.
        while held().await <= before {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        server.publish_event(json!({"topic": "unwanted"})).await;
        server.publish_event(json!({"topic": "wanted"})).await;
        Instant::now()
    };
    let read = server.until_ok("g/read", json!({"wait_ms": 30_000, "lease_ms": 3_600_000}));
    let (woken, published) = tokio::join!(read, publish);
    assert_eq!((seqs(&woken), &woken["cursor"]), (vec![2], &json!(2)));
    assert!(published.elapsed() < Duration::from_secs(20), "it has waited to the end");
    server.group_ok("POST", "g/commit", json!({"cursor": 2, "lease": woken["lease"], "release": true}), 200).await;
}

/// H24: one condition that fails on an event is told; everybody else gets the event.
pub async fn a_condition_that_fails_is_told_with_its_subscription(server: &Server) {
    let poison = json!({"where": "(e.payload->>'n')::int > 5"});
    let poison = server.group_ok("POST", "g/subscriptions", poison, 201).await["id"].clone();
    let all = server.group_ok("POST", "g/subscriptions", json!({"where": "true"}), 201).await["id"].clone();
    for n in ["seven", "9"] {
        server.publish_event(json!({"topic": "t", "payload": {"n": n}})).await;
    }
    let read = server.group_ok("POST", "g/read", json!({}), 200).await;
    assert_eq!(seqs(&read), [1, 2]);
    assert_eq!(read["events"][0]["subscriptions"], json!([all]));
    assert_eq!(read["events"][1]["subscriptions"].as_array().unwrap().len(), 2);
    let errors = read["errors"].as_array().unwrap();
    assert_eq!((errors.len(), &errors[0]["subscription"], &errors[0]["seq"]), (1, &poison, &json!(1)));
    assert!(errors[0]["detail"].as_str().unwrap().contains("seven"), "{errors:?}");
    let figures = server.get("/metrics").await.text();
    assert!(figures.contains("ensue_condition_errors_total{group=\"g\"}"), "{figures}");
}

/// An event that is sent to a subscription is for that one alone, whatever the others want.
pub async fn an_event_to_a_subscription_is_for_it_alone(server: &Server) {
    let one = server.group_ok("POST", "g/subscriptions", json!({"topic": "never"}), 201).await["id"].clone();
    server.group_ok("POST", "g/subscriptions", json!({"where": "true"}), 201).await;
    server.group_ok("POST", "h/subscriptions", json!({"where": "true"}), 201).await;
    server.publish_event(json!({"topic": "t", "to": one})).await;
    let read = server.group_ok("POST", "g/read", json!({}), 200).await;
    assert_eq!(read["events"][0]["subscriptions"], json!([one]));
    let other = server.group_ok("POST", "h/read", json!({}), 200).await;
    assert_eq!((seqs(&other), &other["cursor"]), (vec![], &json!(1)));
}

/// Pages, chains and streams leave direct messages out, unless they are asked for or addressed; no
/// `prev` points to one.
pub async fn direct_messages_reach_their_subscription_only(server: &Server) {
    let id = server.group_ok("POST", "g/subscriptions", json!({"topic": "never"}), 201).await["id"].clone();
    let id = id.as_str().unwrap();
    let events = json!([
        {"topic": "t", "object": "o"},
        {"topic": "d", "object": "o", "to": id},
        {"topic": "t", "object": "o"},
        {"topic": "u", "object": "o"},
    ]);
    assert_eq!(server.post(&events.to_string()).await.status, 201);
    let pages = [
        ("/v1/events", vec![1, 3, 4]),
        ("/v1/events?limit=2", vec![1, 3]),
        ("/v1/events?object=o", vec![1, 3, 4]),
        ("/v1/events?where=true", vec![1, 3, 4]),
        ("/v1/events?order=desc", vec![4, 3, 1]),
        ("/v1/events?order=desc&object=o&where=true", vec![4, 3, 1]),
        ("/v1/objects/o/events", vec![4, 3, 1]),
        ("/v1/events?include=direct", vec![1, 2, 3, 4]),
        ("/v1/events?include=direct&object=o&topic=d", vec![2]),
        ("/v1/events?include=direct&order=desc", vec![4, 3, 2, 1]),
        ("/v1/objects/o/events?include=direct", vec![4, 3, 2, 1]),
    ];
    for (path, expected) in pages {
        let page = server.get(path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.text());
        assert_eq!(seqs(&page.json()), expected, "{path}");
    }
    let log = server.get("/v1/events").await.json();
    let prevs: Vec<&Value> = log["events"].as_array().unwrap().iter().map(|event| &event["prev"]).collect();
    assert_eq!(prevs, [&Value::Null, &json!(1), &json!(3)], "no prev points to what the reader does not get");

    let streams = [
        ("?after=0&limit=3".to_string(), vec![(1, None), (3, Some(1)), (4, Some(3))]),
        ("?after=0&limit=2&topic=t".to_string(), vec![(1, None), (3, Some(1))]),
        ("?after=0&limit=4&include=direct".to_string(), vec![(1, None), (2, Some(1)), (3, Some(1)), (4, Some(3))]),
        (format!("?after=0&limit=2&topic=u&subscription={id}"), vec![(2, None), (4, None)]),
        (format!("?after=0&limit=2&where=e.topic%3D'u'&subscription={id}"), vec![(2, None), (4, None)]),
    ];
    for (query, expected) in streams {
        let mut stream = server.stream(&query, &[]).await;
        let mut got = Vec::new();
        while let Some(event) = stream.event().await {
            got.push((event.id.unwrap(), event.data["prev"].as_u64()));
        }
        assert_eq!(got, expected, "{query}");
    }
    // Live, too.
    let mut addressed = server.stream(&format!("?topic=never&subscription={id}"), &[]).await;
    let mut plain = server.stream("", &[]).await;
    let direct = server.publish_event(json!({"topic": "d", "object": "o", "to": id})).await;
    let open = server.publish_event(json!({"topic": "t", "object": "o"})).await;
    assert_eq!(addressed.event().await.unwrap().id, Some(direct));
    let event = plain.event().await.unwrap();
    assert_eq!((event.id, &event.data["prev"]), (Some(open), &json!(4)));

    let unknown = "01900000-0000-7000-8000-000000000007";
    let refused = server.post(&json!({"topic": "d", "to": unknown}).to_string()).await.problem(422);
    assert!(refused.starts_with("`to` is 01900000") && refused.contains("subscribing to a group"), "{refused}");
    server.get(&format!("/v1/events/stream?subscription={unknown}")).await.problem(404);
    server.get("/v1/events/stream?subscription=me").await.problem(400);
    server.get("/v1/events?include=all").await.problem(400);
}

/// H4: a receiver that keeps the order by `prev` never waits for what the group does not get.
pub async fn prev_of_a_read_is_the_previous_event_that_the_group_gets(server: &Server) {
    let publish = async |topics: &[&str]| {
        let events: Vec<Value> = topics.iter().map(|topic| json!({"topic": topic, "object": "o"})).collect();
        assert_eq!(server.post(&json!(events).to_string()).await.status, 201);
    };
    publish(&["t", "u"]).await;
    server.group_ok("POST", "g/subscriptions", json!({"topic": "t"}), 201).await;
    publish(&["u", "t", "u", "t", "u", "t"]).await;
    let prevs = async |body: Value| {
        let read = server.group_ok("POST", "g/read", body, 200).await;
        let events = read["events"].as_array().unwrap().iter();
        let prevs: Vec<_> = events.map(|e| (e["seq"].as_u64(), e["prev"].as_u64(), e["prev_since"].as_u64())).collect();
        (prevs, read["lease"].clone())
    };
    let (first, lease) = prevs(json!({"limit": 2})).await;
    assert_eq!(first, [(Some(4), None, Some(3)), (Some(6), Some(4), None)]);
    let (next, _) = prevs(json!({"limit": 2, "lease": lease})).await;
    assert_eq!(next, [(Some(8), None, Some(7))]);
}

/// A subscription goes when nobody reads or touches it; asking for the same again is the same.
pub async fn subscriptions_are_shared_touched_listed_deleted_and_expire(server: &Server, clock: &ManualClock) {
    let wants = json!({"where": "e.payload @> s.params", "params": {"a": 1, "b": [1.50]}});
    let first = server.group_ok("POST", "g/subscriptions", wants, 201).await;
    let same = json!({"where": "e.payload @> s.params", "params": {"b": [1.5], "a": 1.0}});
    assert_eq!(server.group_ok("POST", "g/subscriptions", same, 200).await["id"], first["id"]);
    // They are listed in the order of their ids, which is that of their times.
    clock.advance(Duration::from_millis(10));
    let brief = json!({"topic": "brief", "expires_in": "2s"});
    let brief = server.group_ok("POST", "g/subscriptions", brief, 201).await;
    assert_eq!((&brief["expires_in"], &brief["topic"], &brief["where"]), (&json!("2s"), &json!("brief"), &Value::Null));
    let id = brief["id"].as_str().unwrap();
    let page = server.get("/v1/groups/g/subscriptions?limit=1").await.json();
    assert_eq!((page["subscriptions"].as_array().unwrap().len(), &page["next"]), (1, &first["id"]));
    let rest = server.get(&format!("/v1/groups/g/subscriptions?after={}", page["next"].as_str().unwrap())).await.json();
    assert_eq!((&rest["subscriptions"][0]["id"], &rest["next"]), (&brief["id"], &Value::Null));
    // As long as somebody touches it, it stays, for longer than it would by itself.
    let mut touched_at = brief["touched_at"].as_str().unwrap().to_string();
    for _ in 0..3 {
        clock.advance(Duration::from_millis(1_500));
        let touched = server.group_ok("POST", &format!("g/subscriptions/{id}/touch"), Value::Null, 200).await;
        let now = touched["touched_at"].as_str().unwrap().to_string();
        assert!(now > touched_at, "{now} is not after {touched_at}");
        touched_at = now;
    }
    clock.advance(Duration::from_millis(1_900));
    assert_eq!(server.group_ok("GET", "g", Value::Null, 200).await["subscriptions"], 2);
    clock.advance(Duration::from_millis(200));
    assert_eq!(server.group_ok("GET", "g", Value::Null, 200).await["subscriptions"], 1);
    server.group("POST", &format!("g/subscriptions/{id}/touch"), Value::Null).await.problem(404);
    // To read the group does not bring it back.
    server.publish_event(json!({"topic": "brief"})).await;
    let read = server.group_ok("POST", "g/read", json!({}), 200).await;
    assert_eq!((seqs(&read), &read["cursor"]), (vec![], &json!(1)));
    server.group("DELETE", &format!("g/subscriptions/{id}"), Value::Null).await.problem(404);
    let id = first["id"].as_str().unwrap();
    server.group_ok("DELETE", &format!("g/subscriptions/{id}"), Value::Null, 200).await;
    server.group("DELETE", &format!("g/subscriptions/{id}"), Value::Null).await.problem(404);
    server.group_ok("DELETE", "g", Value::Null, 200).await;
    server.group("DELETE", "g", Value::Null).await.problem(404);
}

/// A handler's group is shown and moved; nobody else reads it or says what it wants.
pub async fn a_handlers_group_is_read_by_its_handler_alone(server: &Server) {
    let name = GroupName::parse("group", "order.index").unwrap();
    let slots = server.bus.store().handler_slots();
    let new = NewGroup { name, kind: GroupKind::Handler, start: Start::Now, slots };
    server.bus.store().create_group(new).await.unwrap();
    server.publish_event(json!({"topic": "t"})).await;
    let lease = "00".to_string() + &"00".repeat(88);
    for (method, path, body) in [
        ("POST", "order.index/subscriptions", json!({"where": "true"})),
        ("POST", "order.index/read", json!({})),
        ("POST", "order.index/read", json!({"peek": true})),
        ("DELETE", "order.index/subscriptions/0190a5a0-0000-7000-8000-000000000001", Value::Null),
        ("POST", "order.index/subscriptions/0190a5a0-0000-7000-8000-000000000001/touch", Value::Null),
    ] {
        assert!(server.group(method, path, body).await.problem(409).contains("handler"), "{method} {path}");
    }
    let body = json!({"cursor": 1, "lease": lease.replacen("00", "03", 1)});
    assert!(server.group("POST", "order.index/commit", body).await.problem(409).contains("handler"));
    server.group("PUT", "order.index", json!({})).await.problem(409);
    assert_eq!(server.group_ok("GET", "order.index", Value::Null, 200).await["kind"], "handler");
    assert_eq!(server.group_ok("POST", "order.index/seek", json!({"to": "now"}), 200).await["cursor"], 1);
    assert_eq!(server.group_ok("DELETE", "order.index", Value::Null, 200).await["state"], "deleted");
}

/// What retention took is told exactly, to who reads and to who looks; and remembered when it is passed.
pub async fn what_retention_took_is_told(server: &Server) {
    server.group_ok("POST", "g/subscriptions", json!({"where": "true"}), 201).await;
    for _ in 0..10 {
        server.publish_event(json!({"topic": "t"})).await;
    }
    server.bus.store().trim(5, 100).await.unwrap();
    let first = server.bounds().await.first;
    assert_eq!(first, 5);
    let lost = json!({"from": 1, "to": 4});
    assert_eq!(server.group_ok("GET", "g", Value::Null, 200).await["lost"], lost);
    let read = server.group_ok("POST", "g/read", json!({}), 200).await;
    assert_eq!((seqs(&read), &read["lost"]), ((5..=10).collect(), &lost));
    server.group_ok("POST", "g/commit", json!({"cursor": 7, "lease": read["lease"]}), 200).await;
    let group = server.group_ok("GET", "g", Value::Null, 200).await;
    assert_eq!((&group["lost"], &group["cursor"]), (&lost, &json!(7)));
    let more = server.group_ok("POST", "g/read", json!({"cursor": 7, "lease": read["lease"]}), 200).await;
    assert_eq!((seqs(&more), more.get("lost")), (vec![8, 9, 10], None));
}

/// H28: subscriptions that differ stay apart, however many there are; the wanted one alone gets its event.
pub async fn many_subscriptions_of_one_group_stay_distinct(server: &Server, count: u64) {
    let store = server.bus.store();
    let group = GroupName::parse("group", "g").unwrap();
    let mut ids = Vec::new();
    for n in 0..count {
        let new = NewSubscription {
            group: group.clone(),
            topic: None,
            condition: Some("e.payload @> s.params".into()),
            params: Json::of("params", &json!({"client": n})).unwrap(),
            expires_in: None,
        };
        let (made, is_new) = store.subscribe(new).await.unwrap();
        assert!(is_new, "{n} was taken for another");
        ids.push(made.id);
    }
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len() as u64, count);
    assert_eq!(server.group_ok("GET", "g", Value::Null, 200).await["subscriptions"], count);
    let picked = [0, 1, count / 3, count / 2, count - 1];
    for n in picked {
        server.publish_event(json!({"topic": "t", "payload": {"client": n}})).await;
    }
    let (mut events, mut under) = (Vec::new(), json!({}));
    // A read may end early where the machine is slow: the next one continues.
    while events.len() < picked.len() {
        let read = server.group_ok("POST", "g/read", under, 200).await;
        events.extend(read["events"].as_array().unwrap().iter().cloned());
        under = json!({"lease": read["lease"]});
    }
    assert_eq!(events.len(), picked.len());
    for (event, n) in events.iter().zip(picked) {
        assert_eq!(event["subscriptions"], json!([ids[n as usize]]));
    }
}

/// A handler's group runs a part of the log again, in order, and goes on where it was; what cannot be is refused and changes
/// nothing.
pub async fn a_handlers_group_runs_a_range_again(server: &Server) {
    let (seen, refuses) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
    let (noted, told) = (seen.clone(), refuses.clone());
    let handler = move |event: Event, _cx: Context| {
        let is_refused = told.load(Ordering::SeqCst);
        if !is_refused {
            noted.lock().unwrap().push(event.seq);
        }
        async move { if is_refused { Err(HandlerError::failed("not today")) } else { Ok(()) } }
    };
    server.bus.on("t").named("h").retry(Retry::never()).handle(handler).unwrap();
    let running = server.bus.start().await.unwrap();
    let publish = async || server.publish_event(json!({"topic": "t.x", "object": "o"})).await;
    let through = async |expected: &[u64]| {
        let looked = async {
            loop {
                let group = server.group_ok("GET", "t.h", Value::Null, 200).await;
                if *seen.lock().unwrap() == expected && group["lag"] == 0 && group["lanes"] == 0 {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, looked).await.is_err() {
            panic!("{:?} and not {expected:?} were run", seen.lock().unwrap());
        }
    };
    for _ in 0..6 {
        publish().await;
    }
    through(&[1, 2, 3, 4, 5, 6]).await;
    let moved = server.group_ok("POST", "t.h/replay", json!({"from": 2, "to": 4}), 200).await;
    assert_eq!((&moved["name"], &moved["kind"]), (&json!("t.h"), &json!("handler")));
    through(&[1, 2, 3, 4, 5, 6, 2, 3, 4]).await;
    publish().await;
    through(&[1, 2, 3, 4, 5, 6, 2, 3, 4, 7]).await;

    server.group_ok("PUT", "reader", json!({}), 201).await;
    let before = server.group_ok("GET", "t.h", Value::Null, 200).await["cursor"].clone();
    for (body, named) in [
        (json!({"from": 1}), "`to`"),
        (json!({"to": 1}), "`from`"),
        (json!({"from": 0, "to": 1}), "`from`"),
        (json!({"from": 3, "to": 2}), "`to`"),
        (json!({"from": 1, "to": 8}), "`to`"),
        (json!({"from": "1", "to": 2}), "`from`"),
        (json!({"from": 1, "to": 2, "again": true}), "`again`"),
    ] {
        let detail = server.group("POST", "t.h/replay", body).await.problem(422);
        assert!(detail.starts_with(named), "{detail}");
    }
    server.group("POST", "none/replay", json!({"from": 1, "to": 2})).await.problem(404);
    let detail = server.group("POST", "reader/replay", json!({"from": 1, "to": 2})).await.problem(409);
    assert!(detail.contains("peek"), "{detail}");
    // An object that is held: how far it has come is one place.
    refuses.store(true, Ordering::SeqCst);
    publish().await;
    let held = async {
        while server.group_ok("GET", "t.h", Value::Null, 200).await["lanes"] != 1 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, held).await.expect("it is never held");
    server.group("POST", "t.h/replay", json!({"from": 1, "to": 2})).await.problem(409);
    assert!(server.group_ok("GET", "t.h", Value::Null, 200).await["cursor"].as_u64() >= before.as_u64());
    assert_eq!(seen.lock().unwrap().len(), 10, "nothing of all this was run");
    running.shutdown(PATIENCE).await.unwrap();
}
