//! What does an idempotency key promise?

use super::Subject;
use crate::factory::Factory;
use ensue_core::{Appended, NewEvent, StoreError};
use jiff::SignedDuration;

const HOUR_MILLIS: i64 = 3_600_000;

fn keyed(payload: i64, key: &str) -> NewEvent {
    NewEvent::new("t").object("o").payload(&payload).key(key)
}

fn conflict<T>(key: &str) -> Result<T, StoreError> {
    Err(StoreError::KeyConflict { key: key.into() })
}

/// A caller that lost the answer sends again.
pub async fn a_repeated_key_answers_as_it_did_first_and_stores_nothing(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.one(NewEvent::new("t").object("o")).await;
    let first = subject.one(keyed(1, "k")).await;
    assert!(!first.repeated);
    subject.one(NewEvent::new("t").object("o")).await;
    for _ in 0..2 {
        assert_eq!(subject.one(keyed(1, "k")).await, Appended { repeated: true, ..first });
    }
    assert_eq!(subject.log().await.len(), 3);
    assert_eq!(subject.one(keyed(1, "l")).await.seq, Some(4), "another key is another event");
}

/// Another body under the same key, alone and inside a batch; the key still stands for the first.
pub async fn another_event_under_a_used_key_changes_nothing(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let first = subject.one(keyed(1, "k")).await;
    let later = subject.clock.now() + SignedDuration::from_hours(1);
    for other in [
        keyed(2, "k"),
        NewEvent::new("u").object("o").payload(&1).key("k"),
        NewEvent::new("t").object("p").payload(&1).key("k"),
        NewEvent::new("t").payload(&1).key("k"),
        keyed(1, "k").metadata_json(r#"{"a":1}"#),
        keyed(1, "k").not_before(later),
        keyed(1, "k").occurred_at(later),
        keyed(1, "k").to(uuid::Uuid::max()),
    ] {
        assert_eq!(subject.try_append(vec![other.clone()]).await, conflict("k"));
        assert_eq!(subject.try_append(vec![NewEvent::new("t"), other]).await, conflict("k"));
    }
    assert_eq!(subject.log().await.len(), 1);
    assert_eq!(subject.store.pending(10).await.expect("pending"), []);
    assert_eq!(subject.one(keyed(1, "k")).await, Appended { repeated: true, ..first });
}

/// The same event three times in one batch.
pub async fn repeats_within_one_batch_are_stored_once(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let answers = subject.append(vec![keyed(1, "k"), keyed(2, "l"), keyed(1, "k"), keyed(1, "k"), keyed(3, "m")]).await;
    let repeated = Appended { repeated: true, ..answers[0] };
    assert_eq!((answers[2], answers[3]), (repeated, repeated));
    let places: Vec<_> = answers.iter().map(|a| (a.seq, a.prev)).collect();
    assert_eq!(places, [(Some(1), None), (Some(2), Some(1)), (Some(1), None), (Some(1), None), (Some(3), Some(2))]);
    assert_eq!(subject.log().await.len(), 3);
}

/// Two different events share a key in one batch: which one is meant cannot be known.
pub async fn two_events_under_one_key_in_one_batch_are_refused(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let batch = vec![keyed(1, "j"), keyed(1, "k"), keyed(2, "k")];
    assert_eq!(subject.try_append(batch).await, conflict("k"));
    assert_eq!(subject.log().await, []);
    assert!(!subject.one(keyed(2, "k")).await.repeated, "the key was not used up by what was refused");
    assert!(!subject.one(keyed(9, "j")).await.repeated, "nor was its neighbour's");
}

/// The window is 24 hours from the first publish; a repeat does not prolong it. After it the key names a new event.
pub async fn a_key_is_free_again_after_a_day(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let first = subject.one(keyed(1, "k")).await;
    subject.clock.advance_micros(24 * HOUR_MILLIS * 1_000 - 1);
    assert_eq!(subject.one(keyed(1, "k")).await, Appended { repeated: true, ..first });
    assert_eq!(subject.try_append(vec![keyed(2, "k")]).await, conflict("k"));
    subject.clock.advance_micros(1);
    let second = subject.one(keyed(2, "k")).await;
    assert_eq!((second.seq, second.prev, second.repeated), (Some(2), Some(1), false));
    assert_eq!(subject.one(keyed(2, "k")).await, Appended { repeated: true, ..second });
    assert_eq!(subject.try_append(vec![keyed(1, "k")]).await, conflict("k"));
}

/// The first answer to a delayed event had no number; so has every repeat, whatever became of the event.
pub async fn a_repeated_delayed_event_answers_without_a_number_even_when_it_is_logged(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let at = subject.clock.now() + SignedDuration::from_secs(10);
    let event = |key: &str| keyed(1, key).not_before(at);
    let logged = subject.one(event("k")).await;
    assert_eq!((logged.seq, logged.prev), (None, None));
    assert_eq!(subject.one(event("k")).await, Appended { repeated: true, ..logged });
    assert_eq!(subject.store.pending(10).await.expect("pending").len(), 1);
    subject.clock.advance_millis(20_000);
    assert_eq!(subject.store.release_due(10).await.expect("released").count, 1);
    assert_eq!(subject.one(event("k")).await, Appended { repeated: true, ..logged });
    assert_eq!(subject.log().await.len(), 1);
}

/// The event is forgotten, the key is not; neither by a restart.
pub async fn keys_survive_a_reopen_and_a_trim(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    subject.one(NewEvent::new("t")).await;
    let first = subject.one(keyed(1, "k")).await;
    subject.reopen().await;
    assert_eq!(subject.one(keyed(1, "k")).await, Appended { repeated: true, ..first });
    subject.store.trim(3, 10).await.expect("trimmed");
    subject.reopen().await;
    assert_eq!(subject.one(keyed(1, "k")).await, Appended { repeated: true, ..first });
    assert_eq!(subject.try_append(vec![keyed(2, "k")]).await, conflict("k"));
}

/// Old keys go in chunks, young ones stay.
pub async fn purge_forgets_only_keys_whose_window_has_passed(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let purge = async |limit| subject.store.purge_keys(limit).await.expect("purged");
    for n in 0..5 {
        subject.one(keyed(n, &format!("old{n}"))).await;
    }
    subject.clock.advance_millis(20 * HOUR_MILLIS);
    let young = subject.one(keyed(9, "young")).await;
    assert_eq!(purge(100).await, 0);
    subject.clock.advance_millis(4 * HOUR_MILLIS);
    assert_eq!(purge(2).await, 2);
    assert_eq!(purge(100).await, 3);
    assert_eq!(purge(100).await, 0);
    assert_eq!(subject.one(keyed(9, "young")).await, Appended { repeated: true, ..young });
    assert!(!subject.one(keyed(0, "old0")).await.repeated);
}

/// S8: keys that only look alike.
pub async fn keys_are_compared_in_full(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let long = "k".repeat(511);
    let alike = ["k", "K", "k ", " k", "k%", "k_", "'k'", "\"k\"", "k\\", "{k}", "NULL", "k,k", "ḱ", "k\u{301}", &long];
    let longer = format!("{long}2");
    for (n, key) in alike.iter().copied().chain([longer.as_str()]).enumerate() {
        let answer = subject.one(keyed(n as i64, key)).await;
        assert_eq!((answer.seq, answer.repeated), (Some(n as u64 + 1), false), "{key}");
    }
    assert!(subject.one(keyed(14, &long)).await.repeated);
}
