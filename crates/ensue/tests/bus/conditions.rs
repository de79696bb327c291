//! Streams and pages with a condition hold what it holds for, `prev` included, and a condition that fails costs nobody else
//! anything.

use ensue::{ConditionError, Ensue, Error, Json, NewEvent, Seq, Streamed, Subscription, Wanted, Where};
use std::time::Duration;

/// Longer than anything here takes, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(180);

fn params(text: &str) -> Json {
    Json::parse("params", text).unwrap()
}

fn none() -> Json {
    Json::empty_object()
}

fn wanted(condition: &str, params: Json) -> Wanted {
    Wanted { condition: Some(Where::parse(condition, params).unwrap()), ..Wanted::default() }
}

async fn publish(bus: &Ensue, topic: &str, object: &str, payload: &str) -> Seq {
    let event = NewEvent::new(topic).object(object).payload_json(payload);
    bus.publish(event).await.unwrap().seq.unwrap()
}

/// (seq, prev, prev_since) of the next event.
async fn next(stream: &mut ensue::EventStream) -> (Seq, Option<Seq>, Option<Seq>) {
    let delivered = tokio::time::timeout(PATIENCE, stream.next_event()).await.expect("an event").unwrap();
    (delivered.event.seq, delivered.prev, delivered.prev_since)
}

#[tokio::test]
async fn a_stream_gets_what_its_condition_holds_for_history_and_live() {
    let bus = Ensue::memory().await.unwrap();
    for total in [50, 150, 100, 200] {
        publish(&bus, "order.paid", "o", &format!(r#"{{"total":{total}}}"#)).await;
    }
    let larger = "(e.payload->>'total')::numeric > (s.params->>'min')::numeric";
    let mut stream = bus.stream(Subscription::when(larger, params(r#"{"min":100}"#)).after(0)).await.unwrap();
    assert_eq!(next(&mut stream).await.0, 2);
    assert_eq!(next(&mut stream).await.0, 4);
    assert_eq!(stream.next().await, Some(Ok(Streamed::Caught(4))));
    for total in [99, 101] {
        publish(&bus, "order.paid", "o", &format!(r#"{{"total":{total}}}"#)).await;
    }
    assert_eq!(next(&mut stream).await, (6, Some(4), None));
}

#[tokio::test]
async fn a_condition_narrows_a_topic_and_an_object() {
    let bus = Ensue::memory().await.unwrap();
    for (topic, object, payload) in [
        ("order", "a", "1"),
        ("orders", "a", "1"),
        ("order.paid", "b", "1"),
        ("order", "a", "2"),
        ("order.x", "a", "1"),
    ] {
        publish(&bus, topic, object, payload).await;
    }
    let subscription = Subscription::topic("order").and_when("e.payload = '1'", none()).object("a").after(0);
    let mut stream = bus.stream(subscription).await.unwrap();
    assert_eq!(next(&mut stream).await, (1, None, None));
    assert_eq!(next(&mut stream).await, (5, Some(1), None));
}

/// A receiver of a subset must be able to detect a gap, so `prev` is the previous event it was to get.
#[tokio::test]
async fn prev_is_the_previous_event_that_the_condition_holds_for() {
    let bus = Ensue::memory().await.unwrap();
    for payload in ["1", "0", "\"text\"", "1", "0", "1"] {
        publish(&bus, "t", "o", payload).await;
    }
    publish(&bus, "t", "other", "0").await;
    publish(&bus, "t", "other", "1").await;
    // Fails on the third event, which is then nobody's `prev`.
    let positive = "(e.payload)::numeric > 0";
    let mut all = bus.stream(Subscription::when(positive, none()).after(0)).await.unwrap();
    for expected in [(1, None, None), (4, Some(1), None), (6, Some(4), None), (8, None, None)] {
        assert_eq!(next(&mut all).await, expected);
    }
    // Who comes later has not seen them, and is told the same.
    for (after, expected) in [(1, (4, Some(1), None)), (4, (6, Some(4), None)), (6, (8, None, None))] {
        let mut late = bus.stream(Subscription::when(positive, none()).after(after)).await.unwrap();
        assert_eq!(next(&mut late).await, expected);
    }
}

#[tokio::test]
async fn what_cannot_be_decided_about_prev_is_said() {
    let bus = Ensue::memory().await.unwrap();
    publish(&bus, "t", "o", "1").await;
    for _ in 0..150 {
        publish(&bus, "t", "o", "0").await;
    }
    let last = publish(&bus, "t", "o", "1").await;
    let mut stream = bus.stream(Subscription::when("e.payload = '1'", none()).after(last - 1)).await.unwrap();
    assert_eq!(next(&mut stream).await, (last, None, Some(last - 100)));
}

#[tokio::test]
async fn a_condition_that_fails_on_events_is_told_once_and_the_stream_goes_on() {
    let bus = Ensue::memory().await.unwrap();
    for payload in ["\"7\"", "\"seven\"", "\"eight\"", "\"9\""] {
        publish(&bus, "t", "o", payload).await;
    }
    let cast = "(e.payload #>> '{}')::int > 5";
    let mut stream = bus.stream(Subscription::when(cast, none()).after(0)).await.unwrap();
    let (mut seqs, mut failed) = (Vec::new(), Vec::new());
    loop {
        match stream.next().await.unwrap().unwrap() {
            Streamed::Event(delivered) => seqs.push(delivered.event.seq),
            Streamed::ConditionFailed(error) => failed.push(error),
            Streamed::Gap { .. } => panic!("there is no gap"),
            Streamed::Caught(_) => break,
        }
    }
    assert_eq!(seqs, [1, 4]);
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert!(failed[0].seq == 2 && failed[0].detail.contains("\"seven\""), "{failed:?}");
    publish(&bus, "t", "o", "\"ten\"").await;
    publish(&bus, "t", "o", "\"11\"").await;
    assert_eq!(next(&mut stream).await, (6, Some(4), None));
}

/// Nobody has subscribed: `s.id` and `s.group_id` are there and say so.
#[tokio::test]
async fn without_a_group_the_subscription_is_nil() {
    let bus = Ensue::memory().await.unwrap();
    publish(&bus, "t", "o", "1").await;
    let nil = "s.id = '00000000-0000-0000-0000-000000000000' AND s.group_id = '' AND s.params = '{}'";
    let mut stream = bus.stream(Subscription::when(nil, none()).after(0)).await.unwrap();
    assert_eq!(next(&mut stream).await.0, 1);
    assert_eq!(bus.read(0, 10, &wanted(nil, none())).await.unwrap().page.events.len(), 1);
}

#[tokio::test]
async fn a_mistake_is_told_where_the_subscription_is_used() {
    let bus = Ensue::memory().await.unwrap();
    let refusal = async |subscription: Subscription| match bus.stream(subscription).await {
        Err(Error::Invalid(invalid)) => invalid,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it was taken"),
    };
    let unknown = refusal(Subscription::when("e.tpoic = 'a'", none())).await;
    assert!(unknown.field == "where" && unknown.reason.contains("e.tpoic"), "{unknown}");
    let twice = refusal(Subscription::when("true", none()).and_when("true", none())).await;
    assert!(twice.field == "where" && twice.reason.contains("AND"), "{twice}");
    let long = params(&format!("\"{}\"", "x".repeat(64 << 10)));
    let large = refusal(Subscription::topic("t").and_when("true", long)).await;
    assert!(large.field == "params" && large.reason.contains("65536"), "{large}");
    // The first mistake is the one that is told.
    assert_eq!(refusal(Subscription::topic("a..b").and_when("x", none())).await.field, "topic");
}

/// Every event exactly once, in pages of any size, whatever lies between them.
#[tokio::test]
async fn pages_have_what_the_condition_holds_for_and_lead_on() {
    let bus = Ensue::memory().await.unwrap();
    for start in (0..3_000).step_by(1_000) {
        let batch = (start..start + 1_000).map(|n| NewEvent::new("t").payload(&n)).collect();
        bus.publish_all(batch).await.unwrap();
    }
    let wanted = wanted("(e.payload)::int % 7 = (s.params->>'rest')::int", params(r#"{"rest":3}"#));
    let expected: Vec<Seq> = (0..3_000).filter(|n| n % 7 == 3).map(|n| n + 1).collect();
    for limit in [1, 10, 300, 1_000] {
        let (mut after, mut seen) = (0, Vec::new());
        loop {
            let page = bus.read(after, limit, &wanted).await.unwrap().page;
            assert!(page.events.len() <= limit && page.next >= after);
            seen.extend(page.events.iter().map(|event| event.seq));
            if page.next == after {
                break;
            }
            after = page.next;
        }
        assert_eq!((&seen, after), (&expected, 3_000), "in pages of {limit}");
    }
}

/// A read looks so far and no further: the page is empty and says where to go on.
#[tokio::test]
async fn a_page_is_empty_with_a_next_where_nothing_is_wanted_for_long() {
    let bus = Ensue::memory().await.unwrap();
    for _ in 0..25 {
        bus.publish_all(vec![NewEvent::new("t"); 1_000]).await.unwrap();
    }
    publish(&bus, "rare", "o", "1").await;
    let wanted = wanted("e.topic = 'rare'", none());
    let (mut after, mut pages) = (0, 0);
    let found = loop {
        let page = bus.read(after, 10, &wanted).await.unwrap().page;
        pages += 1;
        match page.events.first() {
            Some(event) => break event.seq,
            None => assert!(page.next > after && page.next <= after + 10_000 + 256, "{after} {}", page.next),
        }
        after = page.next;
    };
    assert_eq!(found, 25_001);
    assert!(pages >= 3, "{pages}");
}

#[tokio::test]
async fn a_page_counts_where_the_condition_fails_and_holds_a_bounded_amount() {
    let bus = Ensue::memory().await.unwrap();
    for payload in ["\"7\"", "\"seven\"", "\"eight\"", "\"9\""] {
        publish(&bus, "t", "o", payload).await;
    }
    let selection = bus.read(0, 10, &wanted("(e.payload #>> '{}')::int > 5", none())).await.unwrap();
    assert_eq!(selection.page.events.iter().map(|event| event.seq).collect::<Vec<_>>(), [1, 4]);
    let errors = selection.condition_errors.unwrap();
    let ConditionError { seq, detail } = errors.first;
    assert!((errors.count, seq) == (2, 2) && detail.contains("\"seven\""), "{detail}");
    assert_eq!(bus.read(0, 10, &wanted("e.seq > 0", none())).await.unwrap().condition_errors, None);

    let large = "x".repeat(900_000);
    for _ in 0..10 {
        bus.publish(NewEvent::new("large").payload(&large)).await.unwrap();
    }
    let wanted = wanted("e.topic = 'large'", none());
    let first = bus.read(0, 100, &wanted).await.unwrap().page;
    assert_eq!((first.events.len(), first.next), (4, 8));
    assert_eq!(bus.read(first.next, 100, &wanted).await.unwrap().page.events[0].seq, 9);
}

/// S1: one reader's costly condition does not keep the thread from everybody else's work: it takes many turns.
#[tokio::test]
async fn a_costly_condition_lets_others_work() {
    let bus = Ensue::memory().await.unwrap();
    // All of it in one page.
    bus.publish_all(vec![NewEvent::new("t").payload(&"ab".repeat(400)); 200]).await.unwrap();
    bus.publish(NewEvent::new("end")).await.unwrap();
    let part = |n: usize| format!("(e.payload #>> '{{}}') LIKE '%aa{n}%'");
    let costly = (0..80).map(part).collect::<Vec<_>>().join(" OR ");
    let mut stream =
        bus.stream(Subscription::when(&format!("e.topic = 'end' OR {costly}"), none()).after(0)).await.unwrap();
    // Not how long the longest of them takes: the machine may take the thread away meanwhile.
    let (mut whole, mut turns) = (Duration::ZERO, 0_u32);
    let mut next = std::pin::pin!(stream.next_event());
    let delivered = std::future::poll_fn(|cx| {
        let began = std::time::Instant::now();
        let polled = next.as_mut().poll(cx);
        whole += began.elapsed();
        turns += 1;
        polled
    });
    assert_eq!(delivered.await.unwrap().event.seq, 201);
    println!("{turns} turns in {whole:?}");
    assert!(turns >= 8, "{whole:?} were taken in {turns} turns");
}
