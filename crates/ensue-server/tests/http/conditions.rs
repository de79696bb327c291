//! Pages and streams with a condition have the events for which it holds.

use crate::support::{PATIENCE, Server, condition};
use ensue::NewEvent;
use serde_json::{Value, json};
use std::sync::Arc;

async fn publish(server: &Server, topic: &str, object: &str, payload: Value) -> u64 {
    let event = NewEvent::new(topic).object(object).payload(&payload);
    server.bus.publish(event).await.unwrap().seq.unwrap()
}

fn seqs(page: &Value) -> Vec<u64> {
    page["events"].as_array().unwrap().iter().map(|event| event["seq"].as_u64().unwrap()).collect()
}

#[tokio::test]
async fn a_page_has_what_the_condition_holds_for() {
    let server = Server::start().await;
    for (topic, total) in [("order.paid", 120), ("order.paid", 80), ("order.placed", 500), ("orders", 500)] {
        publish(&server, topic, "o", json!({"total": total})).await;
    }
    let get = async |query: String| {
        let answer = server.get(&format!("/v1/events?{query}")).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.json()
    };
    let page = get(condition("e.topic = 'order.paid' AND (e.payload->>'total')::numeric > 100", None)).await;
    assert_eq!((seqs(&page), &page["next"], &page["first"]), (vec![1], &json!(4), &json!(1)));
    // An event is as it is in the log, and nothing is said of errors where there are none.
    assert_eq!(page["events"][0], server.get("/v1/events/1").await.json());
    assert_eq!(page.get("condition_errors"), None);
    let larger = "(e.payload->>'total')::numeric > (s.params->>'min')::numeric";
    assert_eq!(seqs(&get(condition(larger, Some(r#"{"min": 100}"#))).await), [1, 3, 4]);
    assert_eq!(seqs(&get(condition(larger, Some(r#"{"min":"499.5"}"#))).await), [3, 4]);
    assert_eq!(seqs(&get(condition(larger, None)).await), [0; 0], "without params there is nothing to compare with");
    assert_eq!(seqs(&get(condition("s.params = '5'", Some("5")) + "&limit=2").await), [1, 2]);
    // The other filters hold beside it.
    assert_eq!(seqs(&get(condition(larger, Some(r#"{"min":100}"#)) + "&topic=order&after=1").await), [3]);
    assert_eq!(seqs(&get(condition("true", None) + "&object=nobody").await), [0; 0]);
}

#[tokio::test]
async fn a_page_says_where_the_condition_fails() {
    let server = Server::start().await;
    for text in ["7", "seven", "eight", "9"] {
        publish(&server, "t", "o", json!({"n": text})).await;
    }
    let page = server.get(&format!("/v1/events?{}", condition("(e.payload->>'n')::int > 5", None))).await.json();
    assert_eq!((seqs(&page), &page["next"]), (vec![1, 4], &json!(4)));
    let errors = &page["condition_errors"];
    assert_eq!((&errors["count"], &errors["first"]["seq"]), (&json!(2), &json!(2)));
    assert!(errors["first"]["detail"].as_str().unwrap().contains("CASE"), "{errors}");
    let figures = server.get("/metrics").await.text();
    let counted = figures.lines().find_map(|line| line.strip_prefix("ensue_condition_errors_total{group=\"\"} "));
    // Other tests of this process count there, too.
    assert!(counted.unwrap_or_else(|| panic!("{figures}")).parse::<u64>().unwrap() >= 2);
    // What is described is what is sent.
    let description = server.get("/openapi.json").await.json();
    let schemas = &description["components"]["schemas"];
    assert!(schemas["EventPage"]["properties"]["condition_errors"].is_object(), "{schemas}");
    for (schema, sent) in [("ConditionErrors", errors), ("ConditionError", &errors["first"])] {
        let fields = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(fields(&schemas[schema]["properties"]), fields(sent));
    }
    for path in ["/v1/events", "/v1/events/stream"] {
        let parameters = description["paths"][path]["get"]["parameters"].as_array().unwrap();
        for name in ["where", "params"] {
            assert!(parameters.iter().any(|parameter| parameter["name"] == name), "{path} {name}");
        }
    }
}

/// A read looks at a bounded part of the log.
#[tokio::test]
async fn a_page_may_be_empty_with_a_next() {
    let server = Server::start().await;
    for _ in 0..11 {
        server.bus.publish_all(vec![NewEvent::new("t"); 1_000]).await.unwrap();
    }
    let last = publish(&server, "rare", "o", json!(1)).await;
    let rare = condition("e.topic = 'rare'", None);
    let (mut after, mut empty) = (0, 0);
    loop {
        let page = server.get(&format!("/v1/events?{rare}&after={after}")).await.json();
        let next = page["next"].as_u64().unwrap();
        assert!(next > after, "{page}");
        after = next;
        match seqs(&page)[..] {
            [] => empty += 1,
            ref found => {
                assert_eq!(found, [last]);
                break;
            }
        }
    }
    assert!(empty >= 1);
    let end = server.get(&format!("/v1/events?{rare}&after={last}")).await.json();
    assert_eq!((seqs(&end), &end["next"]), (vec![], &json!(last)));
    let beyond = server.get(&format!("/v1/events?{rare}&after={}", last + 1)).await;
    assert!(beyond.problem(422).contains("beyond the end"));
}

/// H4: what the condition does not hold for was left out; `prev` is the one before it that the client gets.
#[tokio::test]
async fn a_stream_has_what_the_condition_holds_for_with_its_own_prev() {
    let server = Server::start().await;
    for n in [1, 5, 1, 7] {
        publish(&server, "t", "o", json!({ "n": n })).await;
    }
    let larger = condition("e.payload->'n' > s.params->'min'", Some(r#"{"min": 3}"#));
    let mut stream = server.stream(&format!("?after=0&{larger}"), &[]).await;
    let (first, second) = (stream.event().await.unwrap(), stream.event().await.unwrap());
    assert_eq!((first.id, &first.data["prev"]), (Some(2), &Value::Null));
    assert_eq!((second.id, &second.data["prev"]), (Some(4), &json!(2)));
    for n in [2, 9] {
        publish(&server, "t", "o", json!({ "n": n })).await;
    }
    let live = stream.event().await.unwrap();
    assert_eq!((live.id, &live.data["prev"]), (Some(6), &json!(4)));
    let mut resumed = server.stream(&format!("?{larger}"), &["Last-Event-ID: 4"]).await;
    let again = resumed.event().await.unwrap();
    assert_eq!((again.id, &again.data["prev"]), (Some(6), &json!(4)));
}

#[tokio::test]
async fn a_stream_tells_of_the_first_event_on_which_its_condition_fails_and_goes_on() {
    let server = Server::start().await;
    let query = condition("(e.payload->>'n')::int > 5", None);
    let mut stream = server.stream(&format!("?after=0&{query}&limit=2"), &[]).await;
    for text in ["seven\nor eight", "eight", "9", "ten", "11"] {
        publish(&server, "t", "o", json!({"n": text})).await;
    }
    let (mut told, mut seen) = (Vec::new(), Vec::new());
    while let Some(block) = stream.block().await {
        match block.id {
            Some(seq) if block.comment.is_empty() => seen.push(seq),
            None if block.comment.contains("condition") => told.push(block.comment),
            Some(_) | None => {}
        }
    }
    assert_eq!(seen, [3, 5]);
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with("the condition failed on event 1: \"seven"), "{told:?}");
}

/// Many clients with one condition and params of their own: each gets exactly what it matches, in order and once, whether
/// it came before, while or after the events were published.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_hundred_streams_with_params_of_their_own_get_exactly_what_they_match() {
    const STREAMS: u64 = 200;
    const EVENTS_EACH: u64 = 5;
    let server = Arc::new(Server::start().await);
    let follow = |client: u64| {
        let server = server.clone();
        let params = json!({ "client": client }).to_string();
        tokio::spawn(async move {
            let query = condition("e.payload @> s.params", Some(&params));
            let mut stream = server.stream(&format!("?after=0&{query}&limit={EVENTS_EACH}"), &[]).await;
            let mut seen = Vec::new();
            while let Some(event) = stream.event().await {
                assert_eq!(event.data["payload"]["client"], client);
                seen.push((event.id.unwrap(), event.data["prev"].as_u64()));
            }
            (client, seen)
        })
    };
    let mut clients: Vec<_> = (0..STREAMS / 2).map(follow).collect();
    // A client's events are spread over the log, among those of the others, of the same objects too.
    for round in 0..EVENTS_EACH {
        for client in 0..STREAMS {
            publish(&server, "t", &format!("o:{}", client % 10), json!({ "client": client, "round": round })).await;
        }
        if round == 2 {
            clients.extend((STREAMS / 2..STREAMS * 3 / 4).map(follow));
        }
    }
    clients.extend((STREAMS * 3 / 4..STREAMS).map(follow));
    for task in clients {
        let (client, seen) = tokio::time::timeout(PATIENCE * 3, task).await.expect("every stream ends").unwrap();
        let seq = |round: u64| round * STREAMS + client + 1;
        let expected: Vec<_> = (0..EVENTS_EACH).map(|round| (seq(round), round.checked_sub(1).map(seq))).collect();
        assert_eq!(seen, expected, "client {client}");
    }
}
