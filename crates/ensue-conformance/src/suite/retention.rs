//! What does forgetting leave behind?

use super::{Subject, object, seqs, topic};
use crate::factory::Factory;
use ensue_core::retention::Bounds;
use ensue_core::store::Cancelled;
use ensue_core::{Filter, NewEvent, ObjectKey, Seq};
use jiff::SignedDuration;

impl Subject {
    async fn trim(&self, keep_from: Seq, limit: usize) -> (Seq, Seq) {
        let Bounds { first, last } = self.store.trim(keep_from, limit).await.expect("trimmed");
        assert_eq!(self.bounds().await, Bounds { first, last }, "what a trim answers is what is left");
        (first, last)
    }

    async fn bytes(&self) -> u64 {
        self.store.bytes().await.expect("bytes")
    }
}

/// Nothing was ever there.
pub async fn an_empty_log_has_bounds_too(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    assert_eq!(subject.bounds().await, Bounds { first: 1, last: 0 });
    assert_eq!(subject.trim(100, 100).await, (1, 0));
    assert_eq!(subject.bytes().await, 0);
    subject.reopen().await;
    assert_eq!(subject.bounds().await, Bounds { first: 1, last: 0 });
    subject.fill("t", None, 3).await;
    assert_eq!(subject.bounds().await, Bounds { first: 1, last: 3 });
}

/// Chunk by chunk, the oldest first, never more than asked for.
pub async fn a_trim_is_bounded_and_goes_on(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    subject.fill("t", Some("o"), 100).await;
    assert_eq!(subject.trim(51, 20).await, (21, 100));
    assert_eq!(seqs(&subject.log().await), (21..=100).collect::<Vec<_>>());
    assert_eq!(subject.trim(51, 20).await, (41, 100));
    subject.reopen().await;
    assert_eq!(subject.trim(51, 20).await, (51, 100));
    assert_eq!(subject.trim(51, 20).await, (51, 100));
    assert_eq!(seqs(&subject.log().await), (51..=100).collect::<Vec<_>>());
    subject.audit().await;
}

/// H38: everything is forgotten, the process restarts, the clock stands earlier: numbers and times go on all the same.
pub async fn numbers_and_times_go_on_after_everything_was_forgotten(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    for round in 0..3 {
        let high = subject.clock.now();
        subject.fill("t", Some("o"), 7).await;
        let last = 8 * (round + 1) - 1;
        assert_eq!(subject.trim(last + 1, 1_000).await, (last + 1, last));
        assert_eq!(subject.log().await, []);
        assert_eq!(subject.store.now().await.expect("now"), high);
        subject.clock.advance_millis(-5_000);
        subject.reopen().await;
        assert_eq!(subject.bounds().await, Bounds { first: last + 1, last });
        let next = subject.one(NewEvent::new("t").object("o")).await;
        assert_eq!((next.seq, next.prev), (Some(last + 1), None));
        let event = subject.store.event(last + 1).await.expect("read").expect("there");
        assert_eq!(event.recorded_at, high, "time does not go back either");
        subject.clock.advance_millis(10_000);
    }
}

/// Below the first there is nothing, whoever asks and however.
pub async fn what_is_forgotten_is_invisible_to_every_verb(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let due = subject.clock.now() + SignedDuration::from_secs(1);
    let delayed = subject.one(NewEvent::new("t").object("o").not_before(due)).await.id;
    subject.clock.advance_millis(2_000);
    subject.store.release_due(1).await.expect("released");
    let mut ids = vec![delayed];
    let batch = vec![NewEvent::new("t").object("o"); 9];
    ids.extend(subject.append(batch).await.iter().map(|answer| answer.id));
    subject.trim(6, 100).await;
    for _ in 0..2 {
        for (seq, id) in (1..).zip(&ids) {
            let there = seq >= 6;
            assert_eq!(subject.store.event(seq).await.expect("read").is_some(), there, "seq {seq}");
            assert_eq!(subject.store.find(*id).await.expect("find").is_some(), there, "id of seq {seq}");
            let cancelled = if there { Cancelled::AlreadyLogged(seq) } else { Cancelled::Unknown };
            assert_eq!(subject.store.cancel(*id).await.expect("cancel"), cancelled, "cancel seq {seq}");
        }
        for filter in [Filter::default(), topic("t"), object("o")] {
            assert_eq!(seqs(&subject.read_all(filter, 0, 3).await), [6, 7, 8, 9, 10]);
        }
        let chain = subject.store.chain(&ObjectKey::stored("o"), None, 100).await.expect("a chain");
        assert_eq!(seqs(&chain), [10, 9, 8, 7, 6]);
        assert_eq!(subject.store.seq_before(due).await.expect("a place"), 5);
        subject.reopen().await;
    }
    subject.audit().await;
}

/// H4: the predecessor was forgotten. A new event has none; the oldest that is left may still name it.
pub async fn prev_never_points_to_what_is_forgotten(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let on = |object: &str| NewEvent::new("t").object(object);
    subject.append(vec![on("a"), on("b"), on("c"), on("a"), on("b")]).await;
    // The heads are warm in whatever an engine remembers of them.
    subject.append(vec![on("a"), on("b")]).await;
    subject.trim(7, 100).await;
    let answers = subject.append(vec![on("a"), on("b"), on("c"), on("a")]).await;
    assert_eq!(answers.iter().map(|answer| answer.prev).collect::<Vec<_>>(), [None, Some(7), None, Some(8)]);
    subject.trim(11, 100).await;
    subject.reopen().await;
    let answers = subject.append(vec![on("c"), on("b"), on("a")]).await;
    assert_eq!(answers.iter().map(|answer| answer.prev).collect::<Vec<_>>(), [None, None, Some(11)]);
    subject.audit().await;
}

/// Asked for less than is already forgotten, for nothing, or for more than there is.
pub async fn a_trim_never_goes_back_or_beyond_the_end(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.fill("t", None, 10).await;
    assert_eq!(subject.trim(5, 100).await, (5, 10));
    assert_eq!(subject.trim(0, 100).await, (5, 10));
    assert_eq!(subject.trim(3, 100).await, (5, 10));
    assert_eq!(subject.trim(5, 100).await, (5, 10));
    assert_eq!(subject.trim(Seq::MAX, 2).await, (7, 10));
    assert_eq!(subject.trim(Seq::MAX, usize::MAX).await, (11, 10));
    assert_eq!(subject.trim(Seq::MAX, usize::MAX).await, (11, 10));
    assert_eq!(subject.one(NewEvent::new("t")).await.seq, Some(11));
    assert_eq!(subject.bounds().await, Bounds { first: 11, last: 11 });
}

/// What waits is not in the log yet, so no trim reaches it.
pub async fn a_trim_leaves_delayed_events_alone(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let due = subject.clock.now() + SignedDuration::from_secs(1);
    let id = subject.one(NewEvent::new("delayed").object("o").not_before(due)).await.id;
    subject.fill("t", Some("o"), 5).await;
    subject.trim(Seq::MAX, 100).await;
    assert_eq!(subject.store.pending(10).await.expect("pending").len(), 1);
    subject.clock.advance_millis(1_000);
    let released = subject.store.release_due(10).await.expect("released");
    assert_eq!((released.count, released.last), (1, 6));
    let event = subject.store.event(6).await.expect("read").expect("there");
    assert_eq!((event.id, event.prev), (id, None));
}

/// An estimate, from a sample: within a factor of two, as the log grows and shrinks, with events of mixed sizes.
pub async fn bytes_are_about_right(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    for round in 0..5 {
        let size = |n: usize| 200 + (n * 7_919 + round) % 1_600;
        let batch = (0..400).map(|n| NewEvent::new("t").object("o").payload(&"x".repeat(size(n))));
        subject.append(batch.collect()).await;
    }
    for keep_from in [1, 501, 1_401, 1_991, 2_001] {
        subject.trim(keep_from, 10_000).await;
        let exact: u64 = subject.log().await.iter().map(|event| event.bytes() as u64).sum();
        let told = subject.bytes().await;
        let about = exact / 2..=exact * 2;
        assert!(about.contains(&told), "{told} bytes told, {exact} there, from seq {keep_from}");
    }
}
