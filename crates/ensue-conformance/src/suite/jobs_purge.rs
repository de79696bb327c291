//! What is forgotten of jobs, and what never?

use super::Subject;
use super::jobs::{about, dies, held, ids, job, retry_at, says};
use crate::factory::Factory;
use ensue_core::Timestamp;
use ensue_core::handling::OnExhausted;
use ensue_core::jobs::{JobEnd, JobId, JobState, NewJob, Steer};

/// So many jobs that were done a second after each other.
async fn history(subject: &Subject, count: usize) -> Vec<JobId> {
    let sent = subject.send(vec![job("done"); count]).await;
    for id in &sent {
        let taken = subject.take_this("done", *id).await;
        subject.store.say(held(&taken), vec![says(1, subject.clock.now(), "said")]).await.expect("said");
        subject.clock.advance_millis(1_000);
        subject.end(&taken, JobEnd::Succeeded).await;
    }
    sent
}

/// Those that ended before a time, with what they said.
pub async fn purging_by_age_forgets_what_ended_before(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let start = subject.clock.now();
    let sent = history(&subject, 5).await;
    let at = |seconds| start + jiff::SignedDuration::from_secs(seconds);
    assert_eq!(subject.store.purge_jobs(start, 100, 100).await, Ok(0));
    assert_eq!(subject.store.purge_jobs(at(3), 100, 100).await, Ok(2), "those of the seconds 1 and 2");
    subject.reopen().await;
    assert_eq!(ids(&subject.all_jobs().await), sent[2..]);
    assert_eq!((subject.store.job(sent[0]).await, subject.said(sent[0]).await), (Ok(None), vec![]));
    assert_eq!(subject.said(sent[2]).await, ["said"]);
    // Bounded, with the oldest first.
    assert_eq!(subject.store.purge_jobs(at(100), 100, 2).await, Ok(2));
    assert_eq!(ids(&subject.all_jobs().await), [sent[4]]);
}

/// The oldest beyond the number that is kept; of those that ended at one time, the first that was sent.
pub async fn purging_by_count_keeps_the_youngest(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let sent = history(&subject, 4).await;
    let twins = subject.send(vec![job("done"), job("done")]).await;
    assert_eq!(subject.run_all("done").await, twins);
    assert_eq!(subject.store.purge_jobs(Timestamp::MIN, 6, 100).await, Ok(0));
    assert_eq!(subject.store.purge_jobs(Timestamp::MIN, 4, 1).await, Ok(1));
    assert_eq!(ids(&subject.all_jobs().await)[..3], sent[1..]);
    assert_eq!(subject.store.purge_jobs(Timestamp::MIN, 1, 100).await, Ok(4));
    assert_eq!(ids(&subject.all_jobs().await), [twins[1]]);
    // By age and by count together: whoever is one of them goes.
    assert_eq!(subject.store.purge_jobs(subject.in_secs(60), 100, 100).await, Ok(1));
}

/// However much succeeds or is called off, one that died is kept as long as its own kind is not too many.
pub async fn those_that_died_are_counted_by_themselves(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let mut dead = Vec::new();
    for _ in 0..3 {
        dead.push(subject.a_dead_one(job("e"), OnExhausted::Hold).await);
        subject.clock.advance_millis(1_000);
    }
    let start = subject.clock.now();
    let sent = history(&subject, 4).await;
    let off = subject.send_one(job("d")).await;
    subject.steer_done(off, Steer::Cancel).await;
    assert_eq!(subject.store.purge_jobs(Timestamp::MIN, 5, 100).await, Ok(0));
    assert_eq!(subject.store.purge_jobs(Timestamp::MIN, 3, 100).await, Ok(2));
    assert_eq!(ids(&subject.all_jobs().await), [&dead[..], &sent[2..], &[off]].concat());
    // The oldest of both kinds first.
    assert_eq!(subject.store.purge_jobs(Timestamp::MIN, 1, 3).await, Ok(3));
    assert_eq!(ids(&subject.all_jobs().await), [dead[2], sent[3], off]);
    assert_eq!(subject.store.purge_jobs(Timestamp::MIN, 1, 3).await, Ok(1));
    // Age holds for all.
    assert_eq!(subject.store.purge_jobs(start, 100, 100).await, Ok(1));
    assert_eq!(ids(&subject.all_jobs().await), [off]);
}

/// Neither age nor count takes what is live, or what holds its lane.
pub async fn purging_never_takes_what_is_live_or_holds_a_lane(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let later = subject.in_secs(600);
    let holds = subject.a_dead_one(about("a", "o"), OnExhausted::Hold).await;
    let skipped = subject.a_dead_one(about("a", "p"), OnExhausted::Skip).await;
    let parked = subject.send_one(about("a", "o")).await;
    let sent = subject.send(vec![job("b"), job("b"), job("c"), job("d"), job("d")]).await;
    subject.run(sent[0], retry_at(later)).await;
    subject.take_this("b", sent[1]).await;
    let scheduled = subject.send_one(NewJob { not_before: Some(later), ..job("b") }).await;
    subject.run(sent[3], JobEnd::CalledOff { why: "no".into() }).await;
    subject.steer_done(sent[4], Steer::Cancel).await;
    subject.clock.advance_millis(500_000);
    // Those that hold a lane or live do not count among those that are kept.
    assert_eq!(subject.store.purge_jobs(Timestamp::MIN, 3, 100).await, Ok(0));
    assert_eq!(subject.store.purge_jobs(subject.clock.now(), 0, 100).await, Ok(3));
    assert_eq!(subject.store.job(skipped).await, Ok(None));
    let left = [holds, parked, sent[0], sent[1], sent[2], scheduled];
    assert_eq!(ids(&subject.all_jobs().await), left);
    // When it lets its lane go, it may be forgotten.
    subject.steer_done(holds, Steer::Skip).await;
    assert_eq!(subject.store.purge_jobs(subject.clock.now(), 0, 100).await, Ok(1));
    assert_eq!(subject.job_now(parked).await.state, JobState::Available);
    assert_eq!(subject.run_all("a").await, [parked]);
    // One that was brought back lives.
    let back = subject.a_dead_one(job("e"), OnExhausted::Hold).await;
    subject.steer_done(back, Steer::Retry).await;
    assert_eq!(subject.store.purge_jobs(subject.in_secs(60), 0, 100).await, Ok(1), "the one that ran above");
    assert_eq!(subject.run(back, dies()).await, JobState::Dead);
}

/// Neither pushes the other out, and each is forgotten by its own age.
pub async fn tasks_are_forgotten_apart_from_other_jobs(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let start = subject.clock.now();
    let mut tasks = Vec::new();
    for _ in 0..3 {
        let id = subject.send_one(job("task.s.c")).await;
        subject.run_all("task.s.c").await;
        subject.clock.advance_millis(1_000);
        tasks.push(id);
    }
    tasks.push(subject.a_dead_one(job("task.s.c"), OnExhausted::Skip).await);
    let others = history(&subject, 3).await;
    let live = subject.send_one(job("task.s.c")).await;
    subject.reopen().await;
    assert_eq!(subject.store.purge_jobs(Timestamp::MAX, 1, 2).await, Ok(2), "bounded");
    assert_eq!(subject.store.purge_jobs(Timestamp::MAX, 1, 100).await, Ok(1));
    assert_eq!(ids(&subject.all_jobs().await), [&tasks[..], &[live]].concat());
    let at = |seconds| start + jiff::SignedDuration::from_secs(seconds);
    assert_eq!(subject.store.purge_tasks(at(1), 100, 100).await, Ok(1), "by age");
    assert_eq!(subject.store.purge_tasks(Timestamp::MIN, 1, 1).await, Ok(1), "the oldest first");
    assert_eq!(subject.store.purge_tasks(Timestamp::MIN, 1, 100).await, Ok(1), "by count, also those that died");
    assert_eq!(ids(&subject.all_jobs().await), [tasks[3], live]);
    let other = history(&subject, 1).await;
    assert_eq!(subject.store.purge_tasks(Timestamp::MAX, 0, 100).await, Ok(1), "never one that lives");
    assert_eq!(ids(&subject.all_jobs().await), [live, other[0]]);
    assert_eq!(others.len(), 3);
}
