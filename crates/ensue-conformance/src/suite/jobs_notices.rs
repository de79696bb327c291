//! Which deaths are told of in the log?

use super::Subject;
use super::jobs::{about, dies, held, job, retry_at};
use super::positions::{PAST_THE_LEASE_MILLIS, entries};
use crate::factory::Factory;
use crate::meaning::Meaning;
use ensue_core::handling::OnExhausted;
use ensue_core::jobs::lifecycle::expired;
use ensue_core::jobs::notices::{JOB_DEAD, OBJECT_HELD, job_dead, job_ended};
use ensue_core::jobs::{Cause, JobChange, JobEnd, JobId, JobSettled, JobState, NewJob, Steer};
use ensue_core::{Event, EventId, NewEvent, Topic};

/// The events that tell of these deaths, and of no others, are the last of the log.
async fn assert_told(subject: &Subject, dead: &[JobId]) {
    let log = subject.log().await;
    let told: Vec<&Event> = log.iter().filter(|event| event.topic.as_str() == JOB_DEAD).collect();
    assert_eq!(told.len(), dead.len(), "{told:?}");
    for (event, id) in told.iter().zip(dead) {
        let job = subject.job_now(*id).await;
        let notice = job_dead(&job).expect("a death that is told");
        assert_eq!((&event.topic, &event.object), (&notice.topic, &notice.object));
        assert_eq!(Meaning::of(&event.payload), Meaning::of(&notice.payload));
        assert_eq!(Meaning::of(&event.metadata), Meaning::of(&notice.metadata));
    }
    subject.audit().await;
}

/// One notice for each, in the commit in which it dies, behind what is published otherwise, with what the job tells of itself.
pub async fn a_death_is_told_with_its_reason(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    subject.fill("t", Some("o"), 1).await;
    let cause =
        Cause { seq: 1, prev: None, id: EventId(uuid::Uuid::from_u128(7 << 76 | 1 << 63)), topic: Topic::stored("t") };
    let sent = subject
        .send(vec![about("a", "o"), job("a"), NewJob { cause: Some(cause), ..job("a") }, job("a"), job("a")])
        .await;
    let taken = subject.take_jobs(&["a"], 9).await;
    let made = |topic: &str| entries(vec![NewEvent::new(topic).object("o")]);
    let odd = JobEnd::Dead { error: "no \"route\"\n\0 größe \u{1f}".into() };
    let changes = vec![
        JobChange { events: made("x"), ..JobChange::new(held(&taken[2]), odd) },
        JobChange::new(held(&taken[0]), dies()),
        JobChange { events: made("y"), ..JobChange::new(held(&taken[1]), JobEnd::Succeeded) },
        JobChange::new(held(&taken[3]), retry_at(subject.in_secs(5))),
        JobChange::new(held(&taken[4]), JobEnd::CalledOff { why: "no".into() }),
    ];
    subject.store.settle_jobs(changes).await.expect("settled");
    subject.reopen().await;
    assert_told(&subject, &[sent[0], sent[2]]).await;
    let topics: Vec<String> = subject.log().await.iter().map(|event| event.topic.to_string()).collect();
    assert_eq!(topics, ["t", "x", "y", JOB_DEAD, JOB_DEAD]);
    let chain: Vec<_> = subject.log().await.iter().map(|event| event.prev).collect();
    assert_eq!(chain, [None, Some(1), Some(2), None, None], "what is told is not in the chain of `o`");
    // Brought back it may die again, which is told again.
    subject.steer_done(sent[2], Steer::Retry).await;
    subject.run(sent[2], dies()).await;
    assert_eq!(subject.bounds().await.last, 6);
}

/// One that was an event for a handler and holds its lane: the object waits for somebody, as that of any handler would.
pub async fn an_object_of_a_handler_of_events_is_told_to_be_held(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    subject.fill("t", Some("o"), 1).await;
    let caused = |new: NewJob| {
        let cause = Cause { seq: 1, prev: None, id: EventId(uuid::Uuid::nil()), topic: Topic::stored("t") };
        NewJob { cause: Some(cause), ..new }
    };
    let goes_on = NewJob { on_exhausted: OnExhausted::Skip, ..about("b", "o") };
    let sent = subject
        .send(vec![
            caused(about("a", "o")),
            caused(goes_on),
            caused(job("a")),
            about("c", "o"),
            caused(about("d", "p")),
        ])
        .await;
    let taken = subject.take_jobs(&["a", "b", "c", "d"], 9).await;
    let odd = JobEnd::Dead { error: "no \"route\"\n\0 größe \u{1f}".into() };
    let ends = taken.iter().map(|one| JobChange::new(held(one), odd.clone())).collect();
    subject.store.settle_jobs(ends).await.expect("settled");
    subject.reopen().await;
    assert_told(&subject, &sent).await;
    let log = subject.log().await;
    let topics: Vec<&str> = log.iter().map(|event| event.topic.as_str()).collect();
    assert_eq!(topics, ["t", JOB_DEAD, OBJECT_HELD, JOB_DEAD, JOB_DEAD, JOB_DEAD, JOB_DEAD, OBJECT_HELD]);
    for (place, id) in [(2, sent[0]), (7, sent[4])] {
        let job = subject.job_now(id).await;
        let notice = job_ended(&job).nth(1).expect("an object that is held");
        assert_eq!((&log[place].topic, &log[place].object), (&notice.topic, &notice.object));
        assert_eq!(Meaning::of(&log[place].payload), Meaning::of(&notice.payload));
    }
}

/// All that wait in the lane die, and each is told of.
pub async fn who_dies_with_the_one_before_is_told_of(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let fate = |new: NewJob| NewJob { on_exhausted: OnExhausted::DeadLetterObject, ..new };
    let sent = subject.send(vec![about("a", "p"), fate(about("a", "o")), about("a", "o"), about("a", "o")]).await;
    let later = NewJob { not_before: Some(subject.in_secs(60)), ..about("a", "o") };
    let scheduled = subject.send_one(later).await;
    let taken = subject.take_jobs(&["a"], 9).await;
    assert_eq!(taken.len(), 2);
    subject.end(&taken[1], dies()).await;
    assert_told(&subject, &sent[1..]).await;
    assert!(subject.job_now(sent[3]).await.errors[0].error.ends_with("died: no route"));
    let left = [JobState::Running, JobState::Scheduled];
    assert_eq!(subject.states(&[sent[0], scheduled]).await, left, "another lane, and what has no place yet");
}

/// Its cancellation was asked for: it is cancelled, however its attempt ended, and takes no other with it.
pub async fn a_cancelled_job_is_not_told_to_have_died(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let fate = NewJob { on_exhausted: OnExhausted::DeadLetterObject, ..about("a", "o") };
    let sent = subject.send(vec![fate, about("a", "o"), job("a")]).await;
    let taken = subject.take_jobs(&["a"], 9).await;
    for one in &taken {
        subject.steer_done(one.id, Steer::Cancel).await;
    }
    assert_eq!(subject.end(&taken[0], dies()).await, JobState::Cancelled);
    subject.clock.advance_millis(PAST_THE_LEASE_MILLIS);
    let end = expired(1, 1, "worker 1", subject.clock.now());
    assert_eq!(subject.end(&taken[1], end).await, JobState::Cancelled);
    // Who skips a job, and who cancels one that waits, knows.
    let next = subject.take_this("a", sent[1]).await;
    subject.end(&next, retry_at(subject.in_secs(60))).await;
    assert_eq!(subject.steer_done(sent[1], Steer::Skip).await.state, JobState::Dead);
    assert_eq!(subject.bounds().await.last, 0);
}

/// H25: one whose workers vanish dies when it has no attempts left, and that is told, too.
pub async fn the_death_of_who_vanished_with_its_worker_is_told(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let sent = subject.send(vec![NewJob { attempts_max: 1, ..about("a", "o") }, job("a")]).await;
    let taken = subject.take_jobs(&["a"], 9).await;
    subject.clock.advance_millis(PAST_THE_LEASE_MILLIS);
    let now = subject.clock.now();
    let ends = taken.iter().map(|one| JobChange::new(held(one), expired(1, one.attempts_max, "w", now)));
    let settled = subject.store.settle_jobs(ends.collect()).await.expect("settled");
    assert!(settled.iter().all(|one| matches!(one, JobSettled::Done { .. })), "{settled:?}");
    assert_eq!(subject.states(&sent).await, [JobState::Dead, JobState::Retrying]);
    assert_told(&subject, &sent[..1]).await;
}

/// An alert that fails makes no new alert.
pub async fn what_follows_from_a_notice_is_not_told_of(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let caused_by = |topic: &str| {
        let cause = Cause { seq: 1, prev: None, id: EventId(uuid::Uuid::nil()), topic: Topic::stored(topic) };
        NewJob { cause: Some(cause), ..about("a", topic) }
    };
    let sent = subject.send([JOB_DEAD, OBJECT_HELD, "ensue", "ensues.own"].map(caused_by).to_vec()).await;
    let taken = subject.take_jobs(&["a"], 9).await;
    let ends = taken.iter().map(|one| JobChange::new(held(one), dies())).collect();
    subject.store.settle_jobs(ends).await.expect("settled");
    assert_told(&subject, &sent[3..]).await;
}

/// What is refused ends nothing, and is not told of; nor is what comes under a fence that was lost.
pub async fn who_does_not_die_is_not_told_of(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.one(NewEvent::new("t").key("k")).await;
    let id = subject.send_one(job("a")).await;
    let taken = subject.take_this("a", id).await;
    let events = entries(vec![NewEvent::new("other").key("k")]);
    let refused = subject.settle_job(JobChange { events, ..JobChange::new(held(&taken), dies()) }).await;
    assert!(matches!(refused, JobSettled::Refused(_)), "{refused:?}");
    let jobs = vec![NewJob { attempts_max: 0, ..job("b") }];
    let refused = subject.settle_job(JobChange { jobs, ..JobChange::new(held(&taken), dies()) }).await;
    assert!(matches!(refused, JobSettled::Refused(_)), "{refused:?}");
    assert_eq!(subject.bounds().await.last, 1);
    subject.end(&taken, dies()).await;
    assert_eq!(subject.settle_job(JobChange::new(held(&taken), dies())).await, JobSettled::LeaseLost);
    assert_told(&subject, &[id]).await;
}
