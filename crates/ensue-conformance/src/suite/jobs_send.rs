//! What does it mean to send a job?

use super::Subject;
use super::jobs::{about, dies, forged, held, job, json};
use super::positions::name;
use crate::factory::Factory;
use crate::meaning::Meaning;
use ensue_core::event::EVENT_BYTES_MAX;
use ensue_core::handling::OnExhausted;
use ensue_core::jobs::job::{JOBS_MAX, UNIQUE_KEY_BYTES_MAX};
use ensue_core::jobs::{Cause, Held, JobChange, JobEnd, JobSettled, JobState, NewJob, Steer, Steered};
use ensue_core::{EventId, Json, StoreError, Topic};
use jiff::SignedDuration;

/// Every field, at its largest or oddest.
pub async fn a_job_comes_back_as_it_was_sent(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let cause = Cause {
        seq: u64::from(u32::MAX) + 7,
        prev: Some(3),
        id: EventId(uuid::Uuid::from_u128(0xABCD)),
        topic: Topic::stored("order.paid"),
    };
    let full = NewJob {
        ordered: false,
        payload: json(r#"{"total": 12.50, "who": "Zoë \"q\" 🦀", "list": [1, null, {}]}"#),
        metadata: json(r#"{"trace": "a'b"}"#),
        priority: u64::MAX,
        not_before: Some(subject.in_secs(60) + SignedDuration::from_micros(7)),
        unique_key: Some("ключ; DROP TABLE jobs".into()),
        attempts_max: 1_000,
        on_exhausted: OnExhausted::DeadLetterObject,
        cause: Some(cause),
        ..about("mail.send", "user:ü'1")
    };
    let bare = job("b");
    let sent = subject.send(vec![full.clone(), bare.clone()]).await;
    for _ in 0..2 {
        for (new, id) in [&full, &bare].into_iter().zip(&sent) {
            let there = subject.job_now(*id).await;
            assert_eq!(there.id, *id);
            assert_eq!((&there.handler, &there.object, there.ordered), (&new.handler, &new.object, new.ordered));
            assert_eq!(Meaning::of(&there.payload), Meaning::of(&new.payload));
            assert_eq!(Meaning::of(&there.metadata), Meaning::of(&new.metadata));
            assert_eq!((there.priority, there.not_before), (new.priority, new.not_before));
            assert_eq!((&there.unique_key, &there.cause), (&new.unique_key, &new.cause));
            assert_eq!((there.attempts_max, there.on_exhausted), (new.attempts_max, new.on_exhausted));
            assert_eq!((there.attempts, there.fence, there.worker), (0, 0, None));
            assert_eq!(there.enqueued_at, subject.clock.now());
            assert_eq!((there.locked_at, there.started_at, there.finished_at), (None, None, None));
            assert_eq!((there.lease_until, there.errors, there.result), (None, vec![], None));
            assert!(!there.cancel_asked && !there.redriven);
            let waits = new.not_before.is_some();
            let expected = if waits { JobState::Scheduled } else { JobState::Available };
            assert_eq!((there.state, there.turn), (expected, (!waits).then(|| id.number())));
        }
        subject.reopen().await;
    }
}

/// The numbers of one call are in its order; one that cannot be kept leaves none of them.
pub async fn a_call_sends_all_in_their_order_or_none(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    assert!(matches!(subject.store.enqueue(vec![]).await, Err(StoreError::Invalid(_))));
    let sent = subject.send(vec![job("a"), job("b"), job("a"), about("a", "o")]).await;
    assert!(sent.is_sorted_by_key(|id| id.number()), "{sent:?}");
    let bad = [
        NewJob { attempts_max: 0, ..job("a") },
        NewJob { unique_key: Some(String::new()), ..job("a") },
        NewJob { unique_key: Some("k".repeat(UNIQUE_KEY_BYTES_MAX + 1)), ..job("a") },
        NewJob { metadata: Json::null(), ..job("a") },
    ];
    for bad in bad {
        let keyed = NewJob { unique_key: Some("free".into()), ..job("a") };
        let answer = subject.store.enqueue(vec![keyed, bad.clone(), job("a")]).await;
        assert!(matches!(answer, Err(StoreError::Invalid(_))), "{bad:?}: {answer:?}");
    }
    let too_many = subject.store.enqueue(vec![job("a"); JOBS_MAX + 1]).await;
    assert!(matches!(too_many, Err(StoreError::Invalid(_))), "{too_many:?}");
    assert_eq!(subject.all_jobs().await.len(), 4);
    assert!(subject.try_send(NewJob { unique_key: Some("free".into()), ..job("a") }).await.is_new);
    subject.send(vec![job("a"); JOBS_MAX]).await;
}

/// A payload as large as it may be comes back whole.
pub async fn the_largest_payload_is_taken(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let text = format!("\"{}\"", "x".repeat(EVENT_BYTES_MAX - 4));
    let id = subject.send_one(NewJob { payload: json(&text), ..job("a") }).await;
    assert_eq!(subject.job_now(id).await.payload.as_str(), text);
    let over = NewJob { payload: json(&format!("\"{}\"", "x".repeat(EVENT_BYTES_MAX))), ..job("a") };
    assert!(matches!(subject.store.enqueue(vec![over]).await, Err(StoreError::Invalid(_))));
}

/// Also when all were forgotten, and after a restart: an id leads to one job for ever.
pub async fn numbers_are_never_given_twice(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let mut newest = 0;
    for _ in 0..3 {
        let later = NewJob { not_before: Some(subject.in_secs(1)), ..job("a") };
        let sent = subject.send(vec![job("a"), later, job("a")]).await;
        assert!(sent[0].number() > newest, "{sent:?} after {newest}");
        subject.clock.advance_millis(1_000);
        subject.wake().await;
        let turns = subject.all_jobs().await.into_iter().filter_map(|job| job.turn);
        newest = turns.chain(sent.iter().map(|id| id.number())).max().expect("some");
        assert_eq!(subject.run_all("a").await, [sent[0], sent[2], sent[1]]);
        assert_eq!(subject.store.purge_jobs(subject.in_secs(1), 0, 100).await, Ok(3));
        assert_eq!(subject.all_jobs().await, []);
        subject.reopen().await;
    }
}

/// The number leads to the row, but who guesses it has not the job.
pub async fn an_id_is_compared_in_full(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let sent = subject.send(vec![about("a", "o"), about("a", "o")]).await;
    let taken = subject.take_this("a", sent[0]).await;
    let before = subject.all_jobs().await;
    for id in [forged(sent[0]), forged(sent[1])] {
        assert_eq!(subject.store.job(id).await, Ok(None));
        assert_eq!(subject.store.predecessor(id).await, Ok(None));
        assert_eq!(subject.store.job_lines(id, 0, 10).await, Ok(vec![]));
        for steer in [Steer::Cancel, Steer::Retry, Steer::Skip] {
            assert_eq!(subject.steer(id, steer).await, Steered::Unknown);
        }
        let held = Held { id, fence: taken.fence };
        assert_eq!(subject.store.renew_jobs(&[held], SignedDuration::from_secs(1)).await, Ok(vec![None]));
        assert_eq!(subject.store.say(held, vec![]).await, Ok(false));
        let settled = subject.settle_job(JobChange::new(held, JobEnd::Succeeded)).await;
        assert_eq!(settled, JobSettled::LeaseLost);
    }
    assert_eq!(subject.all_jobs().await, before);
    assert_eq!(subject.end(&taken, JobEnd::Succeeded).await, JobState::Succeeded);
}

/// While a job with the key waits, is retried or runs, sending it again answers that one.
pub async fn a_unique_key_is_one_live_job_of_its_handler(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let keyed = |handler: &str| NewJob { unique_key: Some("k".into()), ..about(handler, "o") };
    let blocker = subject.send_one(about("a", "o")).await;
    let first = subject.try_send(keyed("a")).await;
    assert_eq!((first.is_new, first.state), (true, JobState::Parked));
    let again = |state| ensue_core::jobs::Enqueued { is_new: false, state, ..first };
    assert_eq!(subject.try_send(keyed("a")).await, again(JobState::Parked));
    assert!(subject.try_send(keyed("a.b")).await.is_new, "another handler's");
    assert!(subject.try_send(NewJob { unique_key: Some("K".into()), ..job("a") }).await.is_new, "another key");
    subject.steer_done(blocker, Steer::Cancel).await;
    assert_eq!(subject.try_send(keyed("a")).await, again(JobState::Available));
    let taken = subject.take_this("a", first.id).await;
    assert_eq!(subject.try_send(keyed("a")).await, again(JobState::Running));
    subject.end(&taken, JobEnd::Snoozed { at: subject.in_secs(5) }).await;
    assert_eq!(subject.try_send(keyed("a")).await, again(JobState::Scheduled));
    subject.reopen().await;
    subject.steer_done(first.id, Steer::Retry).await;
    let taken = subject.take_this("a", first.id).await;
    subject.end(&taken, super::jobs::retry_at(subject.in_secs(5))).await;
    assert_eq!(subject.try_send(keyed("a")).await, again(JobState::Retrying));
    // The job that is there is not changed by what was sent again.
    let other = NewJob { payload: json("7"), priority: 9, not_before: Some(subject.in_secs(9)), ..keyed("a") };
    let before = subject.job_now(first.id).await;
    assert_eq!(subject.try_send(other).await, again(JobState::Retrying));
    assert_eq!(subject.job_now(first.id).await, before);
}

/// Twice in one call is once.
pub async fn a_unique_key_within_one_call_is_one_job(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let keyed =
        |handler: &str, payload: &str| NewJob { unique_key: Some("k".into()), payload: json(payload), ..job(handler) };
    let call = vec![keyed("a", "1"), job("a"), keyed("a", "2"), keyed("b", "3"), keyed("a", "4")];
    let sent = subject.store.enqueue(call).await.expect("taken");
    assert_eq!(sent.iter().map(|one| one.is_new).collect::<Vec<_>>(), [true, true, false, true, false]);
    assert_eq!((sent[2].id, sent[4].id), (sent[0].id, sent[0].id));
    assert!(sent.iter().all(|one| one.state == JobState::Available));
    assert_eq!(subject.all_jobs().await.len(), 3);
    assert_eq!(subject.job_now(sent[0].id).await.payload.as_str(), "1");
}

/// Done, dead, dead and holding its lane, cancelled: the key is free.
pub async fn a_unique_key_is_free_when_its_job_is_over(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let keyed = NewJob { unique_key: Some("k".into()), ..job("a") };
    let held_lane = NewJob { unique_key: Some("k".into()), ..about("a", "o") };
    let mut before = subject.send_one(keyed.clone()).await;
    let ends =
        [JobEnd::Succeeded, dies(), JobEnd::CalledOff { why: "no need".into() }, JobEnd::Succeeded, JobEnd::Succeeded];
    for (index, end) in ends.into_iter().enumerate() {
        let over = subject.run(before, end).await;
        assert!(over.is_final());
        before = subject.send_one(if index == 3 { held_lane.clone() } else { keyed.clone() }).await;
    }
    subject.steer_done(before, Steer::Cancel).await;
    before = subject.send_one(held_lane).await;
    assert_eq!(subject.run(before, dies()).await, JobState::Dead);
    assert!(subject.job_now(before).await.turn.is_some(), "it holds its lane");
    let last = subject.try_send(keyed).await;
    assert!(last.is_new && last.id != before);
    assert_eq!(subject.job_now(before).await.unique_key.as_deref(), Some("k"), "it is told still");
}

/// H28: keys that differ in their last byte are two.
pub async fn unique_keys_are_compared_in_full(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let long = "k".repeat(UNIQUE_KEY_BYTES_MAX - 1);
    let keyed = |end: &str| NewJob { unique_key: Some(format!("{long}{end}")), ..job("a") };
    let sent = subject.send(vec![keyed("a"), keyed("b"), keyed("A")]).await;
    assert_eq!(subject.try_send(keyed("b")).await.id, sent[1]);
    // What is joined from parts is not taken for other parts.
    let split = |handler: &str, key: &str| NewJob { unique_key: Some(key.into()), ..job(handler) };
    subject.send(vec![split("a.b", "c"), split("a", "b.c"), split("a.b", "c:d"), split("a", "b:c:d")]).await;
}

/// A time that is now, or has passed, is no delay.
pub async fn a_job_whose_time_has_come_waits_for_nothing(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    for seconds in [0, -5, -100_000] {
        let at = subject.in_secs(seconds);
        let sent = subject.try_send(NewJob { not_before: Some(at), ..job("a") }).await;
        assert_eq!(sent.state, JobState::Available);
        let there = subject.take_this("a", sent.id).await;
        assert_eq!((there.not_before, there.turn), (Some(at), Some(sent.id.number())));
    }
    let later = subject.in_secs(0) + SignedDuration::from_micros(1);
    let sent = subject.try_send(NewJob { not_before: Some(later), ..job("a") }).await;
    assert_eq!(sent.state, JobState::Scheduled);
    assert_eq!(subject.take_jobs(&["a"], 10).await, []);
}

/// A job for a handler that nobody has registered stays available, and uses no attempts.
pub async fn a_job_waits_for_a_handler_that_nobody_runs(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let id = subject.send_one(job("nobody.runs.this")).await;
    assert_eq!(subject.take_jobs(&["nobody", "nobody.runs", "nobody.runs.this.one"], 10).await, []);
    subject.clock.advance_millis(1_000_000);
    subject.wake().await;
    let there = subject.job_now(id).await;
    assert_eq!((there.state, there.attempts, there.handler), (JobState::Available, 0, name("nobody.runs.this")));
    let taken = subject.take_this("nobody.runs.this", id).await;
    assert_eq!(held(&taken).fence, 1);
}
