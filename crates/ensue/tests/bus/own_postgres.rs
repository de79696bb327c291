//! What a process appends comes to its own streams without being read back: it must be what the log has.

#![cfg(feature = "postgres")]

use crate::failover_postgres::{Server, publish, until};
use ensue::{Ensue, Event, GapReason, NewEvent, Streamed, Subscription};
use ensue_conformance::postgres::fresh_schema;
use ensue_core::store::Read;
use ensue_core::{Filter, Timestamp};

/// Everything that an event can have, in batches of several sizes, while another process writes too. The JSON is written as the
/// server would: it keeps neither blanks nor the order of keys.
#[tokio::test]
async fn what_a_stream_is_given_is_what_the_log_has() {
    let (url, _) = fresh_schema("own");
    let (bus, other) = (Ensue::open(&url).await.unwrap(), Ensue::open(&url).await.unwrap());
    let mut stream = bus.stream(Subscription::all().after(0)).await.unwrap();
    let mut last = 0;
    for round in 0..40_u64 {
        let plain = NewEvent::new("a.b").payload_json(format!(r#"{{"a":[1.50,"x"],"b":{round}}}"#));
        let object = NewEvent::new("a").object(format!("o:{}", round % 3)).metadata_json(r#"{"who":"me"}"#);
        let dated = object.clone().occurred_at("2020-01-02T03:04:05.678901Z".parse::<Timestamp>().unwrap());
        let keyed = object.clone().key(format!("k{}", round / 2));
        let batch = [plain, object, dated, keyed];
        let by = if round % 5 == 4 { &other } else { &bus };
        let answers = by.publish_all(batch[..=round as usize % 4].to_vec()).await.unwrap();
        last = answers.iter().filter_map(|answer| answer.seq).max().unwrap().max(last);
    }
    let mut given = Vec::new();
    while given.last().is_none_or(|event: &Event| event.seq < last) {
        given.push((*stream.next_event().await.unwrap().event).clone());
    }
    let read = Read { after: 0, limit: 1_000, filter: Filter::default() };
    let stored = bus.store().read(read).await.unwrap().events;
    assert_eq!(given, stored);
}

/// The end of the log is lost, and another fills it up to where it was before we append again (H35).
#[tokio::test]
async fn a_log_that_has_become_another_is_noticed_although_the_next_place_fits() {
    let (server, bus) = Server::open().await;
    let other = Ensue::open(&server.url).await.unwrap();
    let mut stream = bus.stream(Subscription::all().after(0)).await.unwrap();
    publish(&bus, "kept", 15).await;
    publish(&bus, "lost", 5).await;
    until(&mut stream, 20).await;
    server.fail_over(16).await;
    publish(&other, "instead", 5).await;
    publish(&bus, "next", 1).await;
    let gap = loop {
        match stream.next().await.unwrap() {
            Ok(Streamed::Event(delivered)) => panic!("{delivered:?} without a word before it"),
            Ok(Streamed::Gap { from, reason, .. }) => break (from, reason),
            Ok(Streamed::Caught(_) | Streamed::ConditionFailed(_)) => {}
            Err(error) => eprintln!("{error}"),
        }
    };
    assert_eq!(gap, (16, GapReason::WentBack));
    for seq in 16..=21 {
        assert_eq!(stream.next_event().await.unwrap().event.seq, seq);
    }
}
