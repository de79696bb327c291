//! Is an event found by its object, its place, its id and its time?

use super::{Subject, seqs};
use crate::factory::Factory;
use ensue_core::{EventId, Found, NewEvent, ObjectKey, Seq, Timestamp};
use jiff::SignedDuration;
use uuid::Uuid;

impl Subject {
    async fn chain(&self, object: &str, before: Option<Seq>, limit: usize) -> Vec<Seq> {
        let object = ObjectKey::stored(object);
        seqs(&self.store.chain(&object, before, limit).await.expect("a chain"))
    }

    /// Where the event of an id is in the log.
    async fn place_of(&self, id: EventId) -> Option<Seq> {
        match self.store.find(id).await.expect("find") {
            Some(Found::Logged(event)) => {
                assert_eq!(event.id, id);
                Some(event.seq)
            }
            Some(Found::Pending(pending)) => panic!("{} is pending", pending.id),
            None => None,
        }
    }

    async fn seq_before(&self, time: Timestamp) -> Seq {
        self.store.seq_before(time).await.expect("a place")
    }
}

/// Page after page of one object, back to its first event.
pub async fn a_chain_comes_newest_first_and_goes_on_before_a_place(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let batch = (0..30).map(|n| match n % 3 {
        0 => NewEvent::new("t").object("o"),
        1 => NewEvent::new("t").object("p"),
        _ => NewEvent::new("t"),
    });
    subject.append(batch.collect()).await;
    assert_eq!(subject.chain("o", None, 4).await, [28, 25, 22, 19]);
    assert_eq!(subject.chain("o", Some(19), 4).await, [16, 13, 10, 7]);
    assert_eq!(subject.chain("o", Some(7), 4).await, [4, 1]);
    assert_eq!(subject.chain("o", Some(1), 4).await, [0; 0]);
    assert_eq!(subject.chain("o", Some(20), 1).await, [19], "before a place of another object");
    assert_eq!(subject.chain("p", Some(Seq::MAX), usize::MAX).await.len(), 10);
    assert_eq!(subject.chain("p", Some(0), 4).await, [0; 0]);
    assert_eq!(subject.chain("unknown", None, 4).await, [0; 0]);
    let newest = subject.store.chain(&ObjectKey::stored("p"), None, 1).await.expect("a chain");
    assert_eq!(Some(newest[0].clone()), subject.store.event(29).await.expect("read"));
}

/// H4: a direct message follows the chain of its object, in one batch and across batches, also as a
/// delayed one and after a restart; what comes after it points past it.
pub async fn no_prev_points_to_a_direct_message(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let direct = || NewEvent::new("d").object("o").to(Uuid::from_u128(1));
    let open = || NewEvent::new("t").object("o");
    let prevs = async |subject: &Subject, batch| {
        let appended = subject.append(batch).await;
        appended.iter().map(|one| one.prev).collect::<Vec<Option<Seq>>>()
    };
    assert_eq!(prevs(&subject, vec![direct(), open(), direct(), open()]).await, [None, None, Some(2), Some(2)]);
    assert_eq!(prevs(&subject, vec![direct()]).await, [Some(4)]);
    subject.reopen().await;
    assert_eq!(prevs(&subject, vec![open()]).await, [Some(4)], "it was not remembered");
    let keyed = vec![direct().key("a"), open().key("b"), direct(), open()];
    assert_eq!(prevs(&subject, keyed).await, [Some(6), Some(6), Some(8), Some(8)]);
    assert_eq!(prevs(&subject, vec![direct(), open()]).await, [Some(10), Some(10)]);
    let due = subject.clock.now() + SignedDuration::from_secs(1);
    subject.append(vec![direct().not_before(due), open().not_before(due), open().not_before(due)]).await;
    subject.clock.advance_millis(1_000);
    subject.store.release_due(10).await.expect("released");
    let released: Vec<Option<Seq>> = subject.log().await.iter().skip(12).map(|event| event.prev).collect();
    assert_eq!(released, [Some(12), Some(12), Some(14)]);
    assert_eq!(subject.chain("o", None, 3).await, [15, 14, 13], "it is read with its object");
}

/// By its number; not 0, not the next one, not one beyond all bounds.
pub async fn an_event_is_found_at_its_place_and_nowhere_else(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    for empty in [0, 1, Seq::MAX] {
        assert_eq!(subject.store.event(empty).await.expect("read"), None);
    }
    subject.append((0..5).map(|n| NewEvent::new("t").payload(&n)).collect()).await;
    let log = subject.log().await;
    for event in &log {
        assert_eq!(subject.store.event(event.seq).await.expect("read").as_ref(), Some(event));
    }
    for none in [0, 6, Seq::MAX, i64::MAX as Seq] {
        assert_eq!(subject.store.event(none).await.expect("read"), None);
    }
}

/// Thousands of events recorded in one millisecond, between events of other times: every one is found.
pub async fn every_id_is_found_among_many_of_one_millisecond(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let mut ids = Vec::new();
    for (batch, step_micros) in [(3, 1_000), (1_000, 0), (1_000, 100), (400, 900), (1, 1), (2, 5_000_000), (1, 0)] {
        let answers = subject.append(vec![NewEvent::new("t"); batch]).await;
        ids.extend(answers.iter().map(|answer| answer.id));
        subject.clock.advance_micros(step_micros);
    }
    for _ in 0..2 {
        let all = 1..=ids.len() as Seq;
        for (seq, id) in all.zip(&ids).filter(|(seq, _)| seq % 97 == 0 || *seq < 6 || *seq > 2_395) {
            assert_eq!(subject.place_of(*id).await, Some(seq));
        }
        subject.reopen().await;
    }
}

/// Ids of the same millisecond, of times before, between and after, and ids that are no UUIDv7.
pub async fn ids_that_nobody_was_given_are_not_found(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let noon = subject.clock.now();
    assert_eq!(subject.place_of(EventId::new(noon, [3; 10])).await, None, "in an empty log");
    for _ in 0..3 {
        subject.fill("t", None, 5).await;
        subject.clock.advance_millis(10);
    }
    for millis in [-86_400_000, -1, 0, 1, 10, 15, 20, 21, 86_400_000] {
        let id = EventId::new(noon + SignedDuration::from_millis(millis), [3; 10]);
        assert_eq!(subject.place_of(id).await, None, "{millis} ms from noon");
    }
    let given = subject.log().await[0].id.0.as_u128();
    let version_4 = (given & !(0xF << 76)) | (0x4 << 76);
    for odd in [Uuid::nil(), Uuid::max(), Uuid::from_u128(1), Uuid::from_u128(version_4), Uuid::from_u128(given ^ 1)] {
        assert_eq!(subject.place_of(EventId(odd)).await, None, "{odd}");
    }
    // A UUIDv7 whose time is beyond what any clock shows.
    assert_eq!(subject.place_of(EventId(Uuid::from_u128(u128::MAX >> 80 << 80 | 0x7000_8000 << 48))).await, None);
}

/// H2: the clock steps back and forth; ids tell the recorded time, not the clock's.
pub async fn ids_are_found_across_steps_of_the_clock(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let mut ids = Vec::new();
    for step_millis in [0, 5_000, -30_000, 1, 20_000, -1, 10_000, -100_000, 0, 95_000] {
        subject.clock.advance_millis(step_millis);
        ids.extend(subject.append(vec![NewEvent::new("t"); 3]).await.iter().map(|answer| answer.id));
    }
    for (seq, id) in (1..).zip(&ids) {
        assert_eq!(subject.place_of(*id).await, Some(seq));
    }
    for event in subject.log().await {
        let millis = event.id.time().expect("a UUIDv7").as_millisecond();
        assert_eq!(millis, event.recorded_at.as_millisecond());
    }
}

/// A delayed event's id tells when it was accepted, far before its place in the log.
pub async fn delayed_events_are_found_long_after_they_were_accepted(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let noon = subject.clock.now();
    let mut ids = Vec::new();
    for n in 0..10 {
        subject.fill("t", None, 3).await;
        let due = noon + SignedDuration::from_hours(10 - n);
        ids.push(subject.one(NewEvent::new("delayed").not_before(due)).await.id);
        subject.clock.advance_millis(500);
    }
    subject.clock.advance_millis(86_400_000);
    assert_eq!(subject.store.release_due(4).await.expect("released").count, 4);
    subject.fill("t", None, 5).await;
    assert_eq!(subject.store.release_due(40).await.expect("released").count, 6);
    for (n, id) in ids.iter().enumerate() {
        // Due in the opposite order: the last accepted is the first that entered.
        let entered = 9 - n as Seq;
        let seq = 31 + entered + if entered < 4 { 0 } else { 5 };
        assert_eq!(subject.place_of(*id).await, Some(seq));
    }
}

/// The place to read after, for events at a time, between two times, before all and after all.
pub async fn reading_from_a_time_begins_with_the_first_event_at_it(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let noon = subject.clock.now();
    let at = |micros| noon + SignedDuration::from_micros(micros);
    for time in [Timestamp::MIN, noon, Timestamp::MAX] {
        assert_eq!(subject.seq_before(time).await, 0, "of an empty log");
    }
    // 1 to 5 at noon, 6 to 10 a second later, 11 to 15 after two.
    for _ in 0..3 {
        subject.fill("t", None, 5).await;
        subject.clock.advance_millis(1_000);
    }
    let expected = [
        (-1, 0),
        (0, 0),
        (1, 5),
        (999_999, 5),
        (1_000_000, 5),
        (1_000_001, 10),
        (2_000_000, 10),
        (2_000_001, 15),
        (9_000_000, 15),
    ];
    for (micros, place) in expected {
        assert_eq!(subject.seq_before(at(micros)).await, place, "{micros} µs from noon");
    }
    assert_eq!(subject.seq_before(Timestamp::MIN).await, 0);
    assert_eq!(subject.seq_before(Timestamp::MAX).await, 15);
    subject.store.trim(8, 100).await.expect("trimmed");
    assert_eq!(subject.seq_before(at(500_000)).await, 7, "what is forgotten does not count");
    assert_eq!(subject.seq_before(at(1_000_001)).await, 10);
}
