//! What does an append promise?

use super::{Subject, checked, meanings, seqs};
use crate::factory::Factory;
use crate::meaning::Meaning;
use ensue_core::event::{BATCH_MAX, EVENT_BYTES_MAX};
use ensue_core::{Appended, EventId, Json, NewEvent, Seq, StoreError, Timestamp};
use std::collections::HashSet;
use std::sync::Arc;
use uuid::Uuid;

fn places(answers: &[Appended]) -> Vec<Option<Seq>> {
    answers.iter().map(|answer| answer.seq).collect()
}

/// The first event ever is 1; batch follows batch without a gap.
pub async fn numbers_begin_at_one_and_a_batch_takes_consecutive_ones(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let mut next: Seq = 1;
    for size in [1, 3, 1, 100, 2] {
        let answers = subject.append(vec![NewEvent::new("a"); size]).await;
        assert_eq!(places(&answers), (next..next + size as Seq).map(Some).collect::<Vec<_>>());
        assert!(answers.iter().all(|answer| !answer.repeated));
        next += size as Seq;
    }
    assert_eq!(seqs(&subject.log().await), (1..next).collect::<Vec<_>>());
}

/// An empty batch is a mistake of its sender, and is told so.
pub async fn an_empty_batch_is_refused(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let answer = subject.store.append(Vec::new()).await;
    assert!(matches!(&answer, Err(StoreError::Invalid(invalid)) if invalid.field == "events"), "{answer:?}");
    assert_eq!(subject.one(NewEvent::new("t")).await.seq, Some(1));
}

/// A batch of events that enter, events that wait and repeats: each answer is that of its entry.
pub async fn answers_come_in_the_order_of_the_entries(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let later = subject.clock.now() + jiff::SignedDuration::from_hours(1);
    let first = subject.one(NewEvent::new("kept").key("k")).await;
    let answers = subject
        .append(vec![
            NewEvent::new("t0"),
            NewEvent::new("t1").not_before(later),
            NewEvent::new("kept").key("k"),
            NewEvent::new("t3"),
            NewEvent::new("t4").not_before(later),
            NewEvent::new("t5"),
        ])
        .await;
    assert_eq!(places(&answers), [Some(2), None, Some(1), Some(3), None, Some(4)]);
    assert_eq!(answers[2], Appended { repeated: true, ..first });
    let log = subject.log().await;
    for (place, entry, topic) in [(1, 0, "t0"), (2, 3, "t3"), (3, 5, "t5")] {
        assert_eq!((log[place].id, log[place].topic.as_str()), (answers[entry].id, topic));
    }
    let pending = subject.store.pending(10).await.expect("pending");
    let waiting: Vec<(EventId, &str)> = pending.iter().map(|pending| (pending.id, pending.topic.as_str())).collect();
    assert_eq!(waiting, [(answers[1].id, "t1"), (answers[4].id, "t4")]);
}

/// Chained within a batch, across batches, and apart for each object; none without an object.
pub async fn prev_is_the_preceding_event_of_the_object_within_and_across_batches(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let on = |object: &str| NewEvent::new("t").object(object);
    let prevs = |answers: Vec<Appended>| answers.iter().map(|answer| answer.prev).collect::<Vec<_>>();
    let first = subject.append(vec![on("a"), NewEvent::new("t"), on("b"), on("a"), NewEvent::new("t")]).await;
    assert_eq!(prevs(first), [None, None, None, Some(1), None]);
    let second = subject.append(vec![on("b"), on("a"), on("c"), on("b")]).await;
    assert_eq!(prevs(second), [Some(3), Some(4), None, Some(6)]);
    subject.reopen().await;
    let third = subject.append(vec![on("c"), on("a"), on("A")]).await;
    assert_eq!(prevs(third), [Some(8), Some(7), None]);
    let logged: Vec<_> = subject.log().await.iter().map(|event| event.prev).collect();
    assert_eq!(logged[..9], [None, None, None, Some(1), None, Some(3), Some(4), None, Some(6)]);
    subject.audit().await;
}

/// Every field, those that were given and those that were not.
pub async fn an_event_comes_back_as_it_was_sent(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let occurred_at = Timestamp::from_microsecond(-1_234_567).expect("in range");
    let to = Uuid::from_u128(7);
    let full = NewEvent::new("a.b")
        .object("o")
        .payload_json(r#"{"n":[1,null,"x"]}"#)
        .metadata_json(r#"{"trace":"t"}"#)
        .occurred_at(occurred_at)
        .to(to);
    let answers = subject.append(vec![full, NewEvent::new("bare")]).await;
    let log = meanings(&subject.log().await);
    let meaning = |text: &str| Meaning::of(&Json::stored(text));

    assert_eq!((log[0].seq, log[0].prev, log[0].id), (1, None, answers[0].id));
    assert_eq!((log[0].topic.as_str(), log[0].object.as_ref().map(|o| o.as_str())), ("a.b", Some("o")));
    assert_eq!(log[0].payload, meaning(r#"{"n":[1,null,"x"]}"#));
    assert_eq!(log[0].metadata, meaning(r#"{"trace":"t"}"#));
    assert_eq!((log[0].occurred_at, log[0].recorded_at, log[0].to), (occurred_at, subject.clock.now(), Some(to)));

    assert_eq!((log[1].object.as_ref(), log[1].to), (None, None));
    assert_eq!((&log[1].payload, &log[1].metadata), (&meaning("null"), &meaning("{}")));
    assert_eq!(log[1].occurred_at, log[1].recorded_at);
    for event in &log {
        let id_time = event.id.time().expect("ids are UUIDv7");
        assert_eq!(id_time.as_millisecond(), event.recorded_at.as_millisecond());
    }
    assert_eq!(subject.store.now().await.expect("now"), subject.clock.now());
}

/// The last entry of a batch is refused: nothing of what stands before it stays, and no number is used up.
pub async fn a_refused_batch_changes_nothing(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let later = subject.clock.now() + jiff::SignedDuration::from_hours(1);
    subject.append(vec![NewEvent::new("t").object("o"), NewEvent::new("t").key("used")]).await;
    let refused = subject
        .try_append(vec![
            NewEvent::new("t").object("o"),
            NewEvent::new("t").not_before(later),
            NewEvent::new("t").key("unused"),
            NewEvent::new("another").key("used"),
        ])
        .await;
    assert_eq!(refused, Err(StoreError::KeyConflict { key: "used".into() }));
    assert_eq!(subject.log().await.len(), 2);
    assert_eq!(subject.store.pending(10).await.expect("pending"), []);
    let after = subject.append(vec![NewEvent::new("t").object("o"), NewEvent::new("other").key("unused")]).await;
    assert_eq!(
        after.iter().map(|a| (a.seq, a.prev, a.repeated)).collect::<Vec<_>>(),
        [(Some(3), Some(1), false), (Some(4), None, false),]
    );
}

/// H2: the clock steps back 5 s between two publishes, and again over a restart.
pub async fn recorded_at_never_decreases_when_the_clock_steps_back(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let high = subject.clock.now();
    subject.one(NewEvent::new("t")).await;
    subject.clock.advance_millis(-5_000);
    subject.one(NewEvent::new("t")).await;
    subject.reopen().await;
    let third = subject.one(NewEvent::new("t")).await;
    subject.clock.advance_millis(5_001);
    subject.one(NewEvent::new("t")).await;
    let log = subject.log().await;
    let recorded: Vec<Timestamp> = log.iter().map(|event| event.recorded_at).collect();
    assert_eq!(recorded, [high, high, high, high + jiff::SignedDuration::from_millis(1)]);
    assert_eq!(third.id.time().map(|time| time.as_millisecond()), Some(high.as_millisecond()));
    subject.audit().await;
}

/// A clock with nanoseconds: what is told and what is kept are the same time.
pub async fn times_are_whole_microseconds(factory: &dyn Factory) {
    let place = factory.make().await;
    let odd = Timestamp::from_nanosecond(1_794_744_000_123_456_789).expect("in range");
    let store = place.open(Arc::new(move || odd)).await;
    let event = NewEvent::new("t").occurred_at(odd);
    let answers = store.append(checked(vec![event, NewEvent::new("t")])).await.expect("taken");
    let whole = Timestamp::from_microsecond(1_794_744_000_123_456).expect("in range");
    for seq in [1, 2] {
        let event = store.event(seq).await.expect("read").expect("there");
        assert_eq!((event.recorded_at, event.occurred_at), (whole, whole));
    }
    assert_eq!(answers[0].id.time().map(|time| time.as_millisecond()), Some(whole.as_millisecond()));
    store.close().await;
}

/// 1,000 events in one step, then one of 1 MiB.
pub async fn the_largest_batch_and_the_largest_event_are_taken(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let answers = subject.append((0..BATCH_MAX).map(|n| NewEvent::new("t").payload(&n).object("o")).collect()).await;
    assert_eq!(places(&answers), (1..=BATCH_MAX as Seq).map(Some).collect::<Vec<_>>());
    let ids: HashSet<EventId> = answers.iter().map(|answer| answer.id).collect();
    assert_eq!(ids.len(), BATCH_MAX, "ids are unique");
    let text = format!("\"{}\"", "é".repeat((EVENT_BYTES_MAX - 4) / 2));
    let large = subject.one(NewEvent::new("t").payload_json(&text).object("o")).await;
    assert_eq!((large.seq, large.prev), (Some(BATCH_MAX as Seq + 1), Some(BATCH_MAX as Seq)));
    let event = subject.store.event(BATCH_MAX as Seq + 1).await.expect("read").expect("there");
    assert_eq!(event.payload.as_str(), text);
    let log = subject.log().await;
    assert!((0..BATCH_MAX).all(|n| log[n].payload.as_str() == n.to_string() && log[n].id == answers[n].id));
    subject.audit().await;
}

/// Closed and opened again, the log is the same and goes on.
pub async fn what_was_acknowledged_survives_a_reopen(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    for n in 0..20 {
        subject.one(NewEvent::new("t").payload(&n).object(format!("o{}", n % 3))).await;
    }
    let before = subject.log().await;
    for _ in 0..3 {
        subject.reopen().await;
        assert_eq!(subject.log().await, before);
    }
    assert_eq!(subject.one(NewEvent::new("t")).await.seq, Some(21));
}

/// After `close` nothing is taken, and nothing of what is refused then appears later.
pub async fn a_closed_store_refuses_and_a_reopened_one_goes_on(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    subject.one(NewEvent::new("t").object("o")).await;
    subject.store.close().await;
    let refused = subject.try_append(vec![NewEvent::new("t").object("o")]).await;
    assert_eq!(refused, Err(StoreError::Closed));
    subject.reopen().await;
    assert_eq!(subject.log().await.len(), 1);
    let next = subject.one(NewEvent::new("t").object("o")).await;
    assert_eq!((next.seq, next.prev), (Some(2), Some(1)));
}
