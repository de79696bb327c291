//! What happens when a job's time has come, or its worker's time has passed?

use super::Subject;
use super::jobs::{about, held, ids, job, retry_at, says};
use super::positions::{LEASE, PAST_THE_LEASE_MILLIS, entries};
use crate::factory::Factory;
use ensue_core::NewEvent;
use ensue_core::jobs::lifecycle::expired;
use ensue_core::jobs::{JobChange, JobEnd, JobSettled, JobState, NewJob, Steer, Woken};
use jiff::SignedDuration;

/// The earliest first, and those of one time as they were sent; no more than are asked for.
pub async fn due_jobs_go_on_by_their_time_then_as_they_were_sent(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let at = |seconds| NewJob { not_before: Some(subject.in_secs(seconds)), ..job("a") };
    let sent = subject.send(vec![at(3), at(1), at(2), at(1), at(9), at(3)]).await;
    subject.clock.advance_millis(5_000);
    subject.reopen().await;
    for (limit, count) in [(2, 2), (1, 1), (100, 2), (100, 0)] {
        let woken = subject.store.wake_jobs(limit).await.expect("a look");
        assert_eq!(woken.count, count);
    }
    assert_eq!(subject.run_all("a").await, [sent[1], sent[3], sent[2], sent[0], sent[5]]);
    assert_eq!(subject.job_now(sent[4]).await.state, JobState::Scheduled);
}

/// To the microsecond; its time is told still.
pub async fn a_job_goes_on_at_its_time_and_not_before(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let at = subject.in_secs(1);
    let id = subject.send_one(NewJob { not_before: Some(at), ..job("a") }).await;
    subject.clock.advance_micros(999_999);
    assert_eq!(subject.wake().await, Woken { count: 0, expired: vec![], next_due: Some(at) });
    assert_eq!(subject.job_now(id).await.turn, None);
    subject.clock.advance_micros(1);
    assert_eq!(subject.wake().await, Woken { count: 1, expired: vec![], next_due: None });
    let there = subject.job_now(id).await;
    assert_eq!((there.state, there.not_before), (JobState::Available, Some(at)));
    assert!(there.turn > Some(id.number()));
}

/// A job that is scheduled or retried, a lease that passes: whichever is next.
pub async fn a_look_tells_when_to_look_again(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    assert_eq!(subject.wake().await, Woken { count: 0, expired: vec![], next_due: None });
    let sent = subject.send(vec![job("a"), job("b")]).await;
    assert_eq!(subject.wake().await.next_due, None, "who is available waits for no time");
    let first = subject.take_this("a", sent[0]).await;
    assert_eq!(subject.wake().await.next_due, first.lease_until);
    let second = subject.take_this("b", sent[1]).await;
    let at = subject.in_secs(10);
    subject.end(&second, retry_at(at)).await;
    assert_eq!(subject.wake().await.next_due, Some(at));
    let early = subject.in_secs(5);
    let third = subject.send_one(NewJob { not_before: Some(early), ..about("b", "o") }).await;
    assert_eq!(subject.wake().await.next_due, Some(early));
    subject.steer_done(third, Steer::Cancel).await;
    assert_eq!(subject.wake().await.next_due, Some(at));
    // What is due but was not let go on is to be looked at at once.
    subject.send_one(NewJob { not_before: Some(early), ..job("c") }).await;
    subject.clock.advance_millis(11_000);
    let woken = subject.store.wake_jobs(1).await.expect("a look");
    assert_eq!((woken.count, woken.next_due), (1, Some(at)));
    subject.store.renew_jobs(&[held(&first)], LEASE).await.expect("renewed");
    assert_eq!(subject.wake().await.next_due, Some(subject.clock.now() + LEASE));
    subject.end(&first, JobEnd::Succeeded).await;
    assert_eq!(subject.wake().await.next_due, None);
}

/// H6, H16: a worker vanished; its job is found at the end of its lease, and another takes it, under a new fence.
pub async fn a_job_is_taken_over_when_its_lease_has_passed(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let sent = subject.send(vec![about("a", "o"), about("a", "o")]).await;
    let taken = subject.take_this("a", sent[0]).await;
    subject.clock.advance_millis(PAST_THE_LEASE_MILLIS - 2);
    assert_eq!(subject.wake().await.expired, []);
    assert_eq!(subject.take_jobs(&["a"], 10).await, []);
    subject.reopen().await;
    subject.clock.advance_millis(1);
    for _ in 0..2 {
        assert_eq!(subject.wake().await.expired, std::slice::from_ref(&taken), "looking alone changes nothing");
    }
    let now = subject.clock.now();
    let end = expired(taken.attempts, taken.attempts_max, "worker 1", now);
    assert_eq!(subject.end(&taken, end).await, JobState::Retrying);
    assert_eq!(subject.take_jobs(&["a"], 10).await, []);
    let woken = subject.wake().await;
    assert_eq!((woken.count, woken.expired), (1, vec![]));
    let again = subject.take_this("a", sent[0]).await;
    assert_eq!((again.attempts, again.fence), (2, taken.fence + 1));
    assert!(again.errors[0].error.contains("worker 1"), "{:?}", again.errors);
    assert_eq!(subject.states(&sent).await, [JobState::Running, JobState::Parked]);
    // The lease is the store's, not that of who looked.
    assert_eq!(again.lease_until, Some(now + LEASE));
}

/// H25: one that ends every process that runs it dies, for its attempts were counted.
pub async fn a_job_that_ends_its_workers_dies(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let id = subject.send_one(NewJob { attempts_max: 3, ..job("a") }).await;
    for attempt in 1..=3 {
        assert_eq!(subject.take_this("a", id).await.attempts, attempt);
        subject.clock.advance_millis(PAST_THE_LEASE_MILLIS);
        let late = subject.wake().await.expired.remove(0);
        let end = expired(late.attempts, late.attempts_max, "worker 1", subject.clock.now());
        let state = subject.end(&late, end).await;
        assert_eq!(state, if attempt < 3 { JobState::Retrying } else { JobState::Dead });
        subject.wake().await;
    }
    assert_eq!(subject.job_now(id).await.errors.len(), 3);
    assert_eq!(subject.take_jobs(&["a"], 10).await, []);
}

/// H16: it was found with a lease that had passed, and its worker renewed it before that was written: it has the job still.
pub async fn a_lease_that_was_renewed_meanwhile_is_not_taken(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    for new in [job("a"), about("b", "o"), NewJob { attempts_max: 1, ..about("c", "o") }] {
        let id = subject.send_one(new.clone()).await;
        let taken = subject.take_this(new.handler.as_str(), id).await;
        subject.clock.advance_millis(PAST_THE_LEASE_MILLIS);
        let late = subject.wake().await.expired.remove(0);
        let end = |subject: &Subject| expired(late.attempts, late.attempts_max, "worker 1", subject.clock.now());
        let found = end(&subject);
        let renewed = subject.store.renew_jobs(&[held(&taken)], LEASE).await.expect("renewed");
        assert!(renewed[0].is_some());
        let before = subject.job_now(id).await;
        subject.reopen().await;
        let say = JobChange {
            lines: vec![says(1, subject.clock.now(), "gone")],
            events: entries(vec![NewEvent::new("t")]),
            jobs: vec![job("other")],
            ..JobChange::new(held(&late), found.clone())
        };
        for change in [JobChange::new(held(&late), found), say] {
            assert_eq!(subject.settle_job(change).await, JobSettled::LeaseLost);
        }
        assert_eq!(subject.job_now(id).await, before, "nothing was written of it");
        assert_eq!((subject.said(id).await.len(), subject.bounds().await.last), (0, 0));
        subject.clock.advance_millis(PAST_THE_LEASE_MILLIS - 2);
        assert_eq!(subject.settle_job(JobChange::new(held(&late), end(&subject))).await, JobSettled::LeaseLost);
        subject.clock.advance_millis(1);
        let state = if late.attempts_max == 1 { JobState::Dead } else { JobState::Retrying };
        assert_eq!(subject.end(&late, end(&subject)).await, state, "now it has passed");
        subject.clock.advance_millis(1);
    }
}

/// Those that passed first, no more than are asked for; a renewed one is not among them.
pub async fn leases_that_passed_are_found_with_the_earliest_first(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let sent = subject.send(vec![job("a"); 5]).await;
    let mut taken = Vec::new();
    for id in &sent {
        taken.push(subject.take_this("a", *id).await);
        subject.clock.advance_millis(1_000);
    }
    let lease = SignedDuration::from_secs(20);
    subject.store.renew_jobs(&[held(&taken[2]), held(&taken[0])], lease).await.expect("renewed");
    assert_eq!(subject.wake().await.expired, []);
    subject.clock.advance_millis(27_000);
    let found = subject.store.wake_jobs(2).await.expect("a look");
    assert_eq!(ids(&found.expired), [sent[0], sent[2]], "both were shortened to the same time");
    let all = subject.wake().await;
    assert_eq!(ids(&all.expired), [sent[0], sent[2], sent[1]]);
    assert_eq!((all.count, all.next_due), (0, taken[3].lease_until));
    subject.end(&taken[1], JobEnd::Succeeded).await;
    assert_eq!(ids(&subject.wake().await.expired), [sent[0], sent[2]]);
}

/// H2: the store's clock decides, wherever it goes.
pub async fn times_follow_the_stores_clock_when_it_steps(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let sent = subject.send(vec![job("a"), NewJob { not_before: Some(subject.in_secs(5)), ..job("a") }]).await;
    let taken = subject.take_this("a", sent[0]).await;
    subject.clock.advance_millis(-3_600_000);
    let woken = subject.wake().await;
    assert_eq!((woken.count, woken.expired.len()), (0, 0));
    let renewed = subject.store.renew_jobs(&[held(&taken)], LEASE).await.expect("renewed").remove(0);
    assert_eq!(renewed.map(|renewed| renewed.lease_until), Some(subject.clock.now() + LEASE), "shorter than before");
    subject.clock.advance_millis(PAST_THE_LEASE_MILLIS);
    assert_eq!(ids(&subject.wake().await.expired), [sent[0]]);
    let early = subject.send_one(job("a")).await;
    assert!(early.number() > sent[1].number(), "numbers do not come from the clock");
    subject.clock.advance_millis(3_600_000);
    assert_eq!(subject.wake().await.count, 1);
    assert_eq!(subject.run_all("a").await, [early, sent[1]]);
}
