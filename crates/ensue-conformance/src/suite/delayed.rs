//! What does `not_before` promise?

use super::{Subject, seqs};
use crate::factory::Factory;
use crate::meaning::Meaning;
use ensue_core::store::{Cancelled, PAGE_BYTES_MAX, Released};
use ensue_core::{Appended, Event, EventId, Found, NewEvent, Pending, Seq, Timestamp};
use jiff::SignedDuration;
use uuid::Uuid;

impl Subject {
    /// A time so many seconds from now.
    fn in_seconds(&self, seconds: i64) -> Timestamp {
        self.clock.now() + SignedDuration::from_secs(seconds)
    }

    async fn release(&self, limit: usize) -> Released {
        self.store.release_due(limit).await.expect("released")
    }

    async fn pending(&self) -> Vec<Pending> {
        let pending = self.store.pending(usize::MAX).await.expect("pending");
        // What fits on a page is all there is, in these tests.
        assert_eq!(self.store.pending_count().await.expect("pending_count"), pending.len() as u64);
        pending
    }

    async fn cancel(&self, id: EventId) -> Cancelled {
        self.store.cancel(id).await.expect("cancel")
    }

    async fn find(&self, id: EventId) -> Option<Found> {
        self.store.find(id).await.expect("find")
    }
}

fn topics(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.topic.as_str()).collect()
}

/// Accepted in one order, due in another; those due at the same time enter as they were accepted, also across batches
/// and although their ids sort otherwise.
pub async fn delayed_events_enter_by_due_time_then_acceptance(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let at = |seconds| subject.in_seconds(seconds);
    let (five, ten, twenty) = (at(5), at(10), at(20));
    let delayed = |topic: &str, time| NewEvent::new(topic).not_before(time);
    subject.append(vec![delayed("c1", twenty), delayed("a1", five), delayed("b1", ten), delayed("b2", ten)]).await;
    subject.append((3..40).map(|n| delayed(&format!("b{n}"), ten)).collect()).await;
    subject.one(delayed("a2", five)).await;
    let mut expected = vec!["a1".to_string(), "a2".into()];
    expected.extend((1..40).map(|n| format!("b{n}")));
    expected.push("c1".into());

    let waiting: Vec<String> = subject.pending().await.iter().map(|pending| pending.topic.to_string()).collect();
    assert_eq!(waiting, expected);
    let first_three = subject.store.pending(3).await.expect("pending");
    assert_eq!(first_three.iter().map(|pending| pending.topic.as_str()).collect::<Vec<_>>(), ["a1", "a2", "b1"]);

    subject.clock.advance_millis(30_000);
    let released = subject.release(1_000).await;
    assert_eq!(released, Released { count: 42, last: 42, next_due: None });
    assert_eq!(topics(&subject.log().await), expected);
    subject.audit().await;
}

/// One microsecond early it waits, at its time it enters.
pub async fn a_delayed_event_enters_at_its_time_and_not_before(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let due = subject.in_seconds(10);
    subject.one(NewEvent::new("t").not_before(due)).await;
    assert_eq!(subject.release(10).await, Released { count: 0, last: 0, next_due: Some(due) });
    subject.clock.advance_micros(9_999_999);
    assert_eq!(subject.release(10).await, Released { count: 0, last: 0, next_due: Some(due) });
    subject.clock.advance_micros(1);
    assert_eq!(subject.release(10).await, Released { count: 1, last: 1, next_due: None });
    assert_eq!(subject.release(10).await, Released { count: 0, last: 1, next_due: None });
    assert_eq!(subject.log().await[0].recorded_at, due);
}

/// A time in the past, and the present moment: logged at once.
pub async fn an_event_whose_time_has_come_is_not_delayed(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let (past, now) = (subject.in_seconds(-10), subject.clock.now());
    let answers = subject.append(vec![NewEvent::new("t").not_before(past), NewEvent::new("t").not_before(now)]).await;
    assert_eq!(answers.iter().map(|answer| answer.seq).collect::<Vec<_>>(), [Some(1), Some(2)]);
    assert_eq!(subject.pending().await, []);
    assert_eq!(subject.release(10).await.count, 0);
}

/// Two at a time; the answer tells a timer when to come again.
pub async fn a_release_is_bounded_and_tells_when_the_next_is_due(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let due: Vec<Timestamp> = (1..=5).map(|n| subject.in_seconds(n)).collect();
    subject.one(NewEvent::new("first")).await;
    subject.append(due.iter().map(|at| NewEvent::new("t").not_before(*at)).collect()).await;
    subject.clock.advance_millis(4_000);
    assert_eq!(subject.release(2).await, Released { count: 2, last: 3, next_due: Some(due[2]) });
    assert_eq!(subject.release(2).await, Released { count: 2, last: 5, next_due: Some(due[4]) });
    assert_eq!(subject.release(2).await, Released { count: 0, last: 5, next_due: Some(due[4]) });
    subject.clock.advance_millis(1_000);
    assert_eq!(subject.release(2).await, Released { count: 1, last: 6, next_due: None });
}

/// Text that no engine can store in less room than it takes: letters and digits in no order.
fn incompressible(bytes: usize) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz012345";
    let mut state: u64 = 0x9e37_79b9_7f4a_7c15;
    let letter = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(ALPHABET[(state >> 32) as usize % ALPHABET.len()])
    };
    std::iter::repeat_with(letter).take(bytes).collect()
}

/// Large events enter a page at a time, so that no commit keeps the appends waiting for long; the rest follows with the
/// next, in order, and small ones fill up what the large ones leave.
pub async fn a_release_is_bounded_in_bytes(factory: &dyn Factory) {
    const PAYLOAD_BYTES: usize = 900_000;
    const LARGE: usize = 10;
    const A_PAGE: usize = PAGE_BYTES_MAX / PAYLOAD_BYTES;
    let subject = Subject::new(factory).await;
    let due = subject.in_seconds(10);
    let payload = incompressible(PAYLOAD_BYTES);
    for n in 0..LARGE {
        subject.one(NewEvent::new(format!("t{n}")).payload(&payload).not_before(due)).await;
    }
    subject.append((LARGE..LARGE + 20).map(|n| NewEvent::new(format!("t{n}")).not_before(due)).collect()).await;
    subject.clock.advance_millis(10_000);

    let mut counts = Vec::new();
    for last in [A_PAGE, 2 * A_PAGE, LARGE + 20] {
        let released = subject.release(1_000).await;
        counts.push(released.count);
        let next_due = (last < LARGE + 20).then_some(due);
        assert_eq!((released.last, released.next_due), (last as Seq, next_due), "after {counts:?}");
    }
    assert_eq!(counts, [A_PAGE, A_PAGE, LARGE - 2 * A_PAGE + 20]);
    assert_eq!(topics(&subject.log().await), (0..LARGE + 20).map(|n| format!("t{n}")).collect::<Vec<_>>());
    subject.audit().await;
}

/// The process restarts while they wait, in every stage of their way; their order stays.
pub async fn delayed_events_survive_a_reopen(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let (ten, twenty) = (subject.in_seconds(10), subject.in_seconds(20));
    let batch =
        |time, from: usize| (from..from + 10).map(|n| NewEvent::new(format!("t{n}")).not_before(time)).collect();
    let mut answers = subject.append(batch(ten, 0)).await;
    subject.reopen().await;
    answers.extend(subject.append(batch(ten, 10)).await);
    answers.extend(subject.append(batch(twenty, 20)).await);
    let before = subject.pending().await;
    subject.reopen().await;
    assert_eq!(subject.pending().await, before);
    subject.clock.advance_millis(15_000);
    assert_eq!(subject.release(5).await, Released { count: 5, last: 5, next_due: Some(ten) });
    subject.reopen().await;
    assert_eq!(subject.release(100).await, Released { count: 15, last: 20, next_due: Some(twenty) });
    subject.clock.advance_millis(15_000);
    subject.reopen().await;
    assert_eq!(subject.release(100).await.count, 10);
    let log = subject.log().await;
    assert_eq!(log.iter().map(|e| e.id).collect::<Vec<_>>(), answers.iter().map(|a| a.id).collect::<Vec<_>>());
    assert_eq!(topics(&log), (0..30).map(|n| format!("t{n}")).collect::<Vec<_>>());
}

/// Cancelled while it waits: gone from everywhere, for good, and its neighbours stay.
pub async fn a_cancelled_event_never_enters_the_log(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let due = subject.in_seconds(10);
    let answers = subject.append((0..3).map(|n| NewEvent::new(format!("t{n}")).not_before(due)).collect()).await;
    let id = answers[1].id;
    assert_eq!(subject.cancel(id).await, Cancelled::Gone);
    assert_eq!(subject.cancel(id).await, Cancelled::Unknown);
    assert_eq!(subject.find(id).await, None);
    subject.reopen().await;
    assert_eq!(subject.find(id).await, None);
    subject.clock.advance_millis(20_000);
    assert_eq!(subject.release(10).await.count, 2);
    assert_eq!(topics(&subject.log().await), ["t0", "t2"]);
    assert_eq!(subject.cancel(id).await, Cancelled::Unknown);
    assert_eq!(subject.find(id).await, None);
}

/// A cancelled event is as if it had never been sent: sent again under the same key it is not taken for a repetition.
pub async fn a_cancelled_event_frees_its_key(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let due = subject.in_seconds(10);
    let keyed = || NewEvent::new("t").key("k").not_before(due);
    let first = subject.one(keyed()).await;
    assert_eq!(subject.cancel(first.id).await, Cancelled::Gone);
    subject.reopen().await;
    let again = subject.one(keyed()).await;
    assert!(!again.repeated && again.id != first.id, "{again:?} repeats what was cancelled");
    assert_eq!(subject.one(keyed()).await, Appended { repeated: true, ..again });
    subject.clock.advance_millis(20_000);
    assert_eq!(subject.release(10).await.count, 1);
}

/// Cancelling comes too late, or means an event that never waited, or none at all.
pub async fn what_is_logged_cannot_be_cancelled(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let due = subject.in_seconds(10);
    let at_once = subject.one(NewEvent::new("t")).await.id;
    let delayed = subject.one(NewEvent::new("t").not_before(due)).await.id;
    subject.clock.advance_millis(10_000);
    subject.release(10).await;
    assert_eq!(subject.cancel(at_once).await, Cancelled::AlreadyLogged(1));
    assert_eq!(subject.cancel(delayed).await, Cancelled::AlreadyLogged(2));
    assert_eq!(subject.cancel(EventId::new(due, [9; 10])).await, Cancelled::Unknown);
    assert_eq!(subject.cancel(EventId(Uuid::from_u128(4))).await, Cancelled::Unknown);
    assert_eq!(seqs(&subject.log().await), [1, 2]);
}

/// One id, all its life; every field comes through.
pub async fn a_delayed_event_is_found_pending_and_then_logged_under_the_same_id(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let accepted = subject.clock.now();
    let due = subject.in_seconds(100);
    let sent = NewEvent::new("a.b").object("o").payload_json(r#"{"x":[1]}"#).metadata_json(r#"{"m":2}"#);
    let id = subject.one(sent.to(Uuid::from_u128(5)).not_before(due)).await.id;
    assert_eq!(id.time().map(|time| time.as_millisecond()), Some(accepted.as_millisecond()));
    let Some(Found::Pending(pending)) = subject.find(id).await else { panic!("not pending") };
    assert_eq!((pending.id, pending.not_before, pending.occurred_at), (id, due, accepted));
    assert_eq!(vec![pending.clone()], subject.pending().await);

    subject.clock.advance_millis(250_000);
    subject.fill("other", None, 10).await;
    assert_eq!(subject.release(10).await.count, 1);
    subject.fill("other", None, 10).await;
    for _ in 0..2 {
        let Some(Found::Logged(event)) = subject.find(id).await else { panic!("not logged") };
        assert_eq!((event.seq, event.prev, event.id), (11, None, id));
        assert_eq!((event.occurred_at, event.recorded_at), (accepted, subject.clock.now()));
        assert_eq!((event.topic, event.object, event.to), (pending.topic.clone(), pending.object.clone(), pending.to));
        assert_eq!(Meaning::of(&event.payload), Meaning::of(&pending.payload));
        assert_eq!(Meaning::of(&event.metadata), Meaning::of(&pending.metadata));
        subject.reopen().await;
    }
    assert_eq!(pending.to, Some(Uuid::from_u128(5)));
}

/// While it waits it holds no place in its object's order; when it enters, it follows what came before.
pub async fn a_delayed_event_takes_its_place_in_the_chain_when_it_enters(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let due = subject.in_seconds(10);
    let on = |object: &str| NewEvent::new("t").object(object);
    let answers = subject.append(vec![on("o"), on("o").not_before(due), on("o"), on("p").not_before(due)]).await;
    assert_eq!(answers[2].prev, Some(1));
    subject.append(vec![on("o").not_before(due), on("o")]).await;
    subject.clock.advance_millis(10_000);
    assert_eq!(subject.release(10).await.count, 3);
    assert_eq!(subject.one(on("o")).await.prev, Some(6));
    let log = subject.log().await;
    let chain: Vec<_> = log.iter().map(|event| (event.object.as_ref().map(|o| o.as_str()), event.prev)).collect();
    assert_eq!(
        chain,
        [
            (Some("o"), None),
            (Some("o"), Some(1)),
            (Some("o"), Some(2)),
            (Some("o"), Some(3)),
            (Some("p"), None),
            (Some("o"), Some(4)),
            (Some("o"), Some(6)),
        ]
    );
    subject.audit().await;
}

/// H2: accepted at one time, released after the clock went forward and back.
pub async fn released_events_are_recorded_when_they_enter_even_if_the_clock_steps_back(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let due = subject.in_seconds(10);
    subject.one(NewEvent::new("delayed").not_before(due)).await;
    subject.clock.advance_millis(60_000);
    let high = subject.clock.now();
    subject.one(NewEvent::new("t")).await;
    subject.clock.advance_millis(-30_000);
    subject.reopen().await;
    assert_eq!(subject.release(10).await.count, 1);
    let log = subject.log().await;
    assert_eq!(topics(&log), ["t", "delayed"]);
    assert_eq!(log[1].recorded_at, high);
    subject.audit().await;
}
