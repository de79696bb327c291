//! Who gets which job?

use super::Subject;
use super::jobs::{about, held, ids, job, retry_at, wants_jobs};
use super::positions::{LEASE, PAST_THE_LEASE_MILLIS, name};
use crate::factory::Factory;
use ensue_core::StoreError;
use ensue_core::jobs::job::{CLAIM_HANDLERS_MAX, WORKER_BYTES_MAX};
use ensue_core::jobs::{Claim, Held, Job, JobEnd, JobRenewed, JobState, NewJob, Steer};
use ensue_core::rules::RuleKind;
use jiff::SignedDuration;

/// H29: exact for any u64, over all handlers that are asked for.
pub async fn the_highest_priority_goes_first_and_first_come_inside_it(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let priorities =
        [0, 1, 1 << 53, (1 << 53) + 1, (1 << 63) - 1, 1 << 63, (1 << 63) + 1, u64::MAX - 1, u64::MAX, 9_007, 100];
    let mut sent: Vec<(u64, u64, ensue_core::jobs::JobId)> = Vec::new();
    for round in 0..3 {
        let handler = ["a", "b", "a"][round];
        let jobs = priorities.map(|priority| NewJob { priority, ..job(handler) });
        for (id, priority) in subject.send(jobs.to_vec()).await.into_iter().zip(priorities) {
            sent.push((u64::MAX - priority, id.number(), id));
        }
        subject.clock.advance_millis(-7_000);
    }
    sent.sort();
    let expected: Vec<_> = sent.iter().map(|(.., id)| *id).collect();
    subject.reopen().await;
    let mut taken = ids(&subject.take_jobs(&["b", "a"], 7).await);
    taken.extend(ids(&subject.take_jobs(&["a", "b"], 100).await));
    assert_eq!(taken, expected);
}

/// So many of each handler, so many in all; what is not asked for stays.
pub async fn a_claim_takes_no_more_than_it_wants(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let sent =
        subject.send(["a", "a", "b", "a", "b", "b", "c", "a", "a.b"].iter().map(|name| job(name)).collect()).await;
    let claim = |of_a, of_b, limit| {
        let handlers = vec![(name("a"), of_a), (name("b"), of_b)];
        subject.store.claim(Claim { handlers, ..wants_jobs(&[], limit) })
    };
    assert_eq!(ids(&claim(0, 0, 10).await.expect("none")), []);
    assert_eq!(ids(&claim(3, 3, 0).await.expect("none")), []);
    assert_eq!(ids(&subject.take_jobs(&[], 10).await), []);
    assert_eq!(ids(&claim(1, 2, 10).await.expect("three")), [sent[0], sent[2], sent[4]]);
    assert_eq!(ids(&claim(10, 10, 2).await.expect("two")), [sent[1], sent[3]]);
    assert_eq!(ids(&claim(10, 10, 10).await.expect("the rest")), [sent[5], sent[7]]);
    assert_eq!(subject.states(&[sent[6], sent[8]]).await, [JobState::Available; 2]);
}

/// H25: whatever the worker does then, the attempt was counted.
pub async fn a_claim_counts_the_attempt_and_raises_the_fence(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let sent_at = subject.clock.now();
    let id = subject.send_one(about("a", "o")).await;
    for attempt in 1..=3u32 {
        subject.clock.advance_millis(1_000);
        let now = subject.clock.now();
        let claim = Claim { worker: format!("worker {attempt} ü"), ..wants_jobs(&["a"], 5) };
        let taken = subject.store.claim(claim).await.expect("a claim").remove(0);
        assert_eq!((taken.id, taken.state, taken.attempts), (id, JobState::Running, attempt));
        assert_eq!(taken.fence, u64::from(attempt));
        assert_eq!((taken.locked_at, taken.lease_until), (Some(now), Some(now + LEASE)));
        assert_eq!(taken.started_at, Some(sent_at + SignedDuration::from_secs(1)), "of the first claim");
        assert_eq!(taken.worker, Some(format!("worker {attempt} ü")));
        subject.reopen().await;
        assert_eq!(subject.job_now(id).await, taken, "a claim tells the job as it is");
        assert_eq!(subject.end(&taken, retry_at(now)).await, JobState::Retrying);
        subject.wake().await;
    }
}

/// Scheduled, parked, running, retrying, over: only what is available is taken.
pub async fn only_what_is_available_is_taken(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let later = Some(subject.in_secs(60));
    let sent = subject.send(vec![job("a"), job("a"), job("a"), about("a", "o"), about("a", "o"), job("a")]).await;
    subject.run(sent[0], JobEnd::Succeeded).await;
    subject.run(sent[1], super::jobs::dies()).await;
    subject.run(sent[2], retry_at(subject.in_secs(60))).await;
    subject.take_this("a", sent[3]).await;
    subject.steer_done(sent[5], Steer::Cancel).await;
    subject.send_one(NewJob { not_before: later, ..job("a") }).await;
    let before = subject.all_jobs().await;
    assert_eq!(subject.take_jobs(&["a"], 100).await, []);
    assert_eq!(subject.all_jobs().await, before);
}

/// A renewal lasts from now on; under another fence, or when the job is over, there is nothing to renew.
pub async fn a_claim_is_renewed_under_its_fence_only(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let sent = subject.send(vec![job("a"), job("a"), job("a")]).await;
    let taken = subject.take_jobs(&["a"], 2).await;
    subject.end(&taken[1], JobEnd::Succeeded).await;
    subject.clock.advance_millis(10_000);
    let lease = SignedDuration::from_secs(7);
    let wrong = Held { fence: taken[0].fence + 1, ..held(&taken[0]) };
    let early = Held { fence: taken[0].fence - 1, ..held(&taken[0]) };
    let waits = Held { id: sent[2], fence: 0 };
    let all = [wrong, held(&taken[0]), held(&taken[1]), early, waits];
    let until = subject.in_secs(7);
    let renewed = Some(JobRenewed { lease_until: until, cancel: false });
    let answers = subject.store.renew_jobs(&all, lease).await.expect("renewed");
    assert_eq!(answers, [None, renewed, None, None, None]);
    let there = subject.job_now(taken[0].id).await;
    assert_eq!(there, Job { lease_until: Some(until), ..taken[0].clone() });
    assert_eq!(subject.states(&sent).await, [JobState::Running, JobState::Succeeded, JobState::Available]);
    assert_eq!(subject.store.renew_jobs(&[], lease).await, Ok(vec![]));
}

/// A worker was slow, but nobody has looked: what it has done counts.
pub async fn a_late_worker_keeps_what_nobody_took(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.send(vec![job("a"), job("a")]).await;
    let taken = subject.take_jobs(&["a"], 2).await;
    subject.clock.advance_millis(100 * PAST_THE_LEASE_MILLIS);
    let renewed = subject.store.renew_jobs(&[held(&taken[0])], LEASE).await.expect("renewed");
    assert_eq!(renewed, [Some(JobRenewed { lease_until: subject.clock.now() + LEASE, cancel: false })]);
    assert_eq!(subject.end(&taken[1], JobEnd::Succeeded).await, JobState::Succeeded);
    assert_eq!(subject.wake().await.expired, []);
}

/// A worker without a name, more handlers than can be asked for: nothing is taken. A lease may be longer than time.
pub async fn a_claim_that_cannot_be_meant_takes_nothing(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let id = subject.send_one(job("a")).await;
    let many = (0..CLAIM_HANDLERS_MAX).map(|n| (name(&format!("h{n}")), 1)).chain([(name("a"), 1)]).collect();
    let bad = [
        Claim { worker: String::new(), ..wants_jobs(&["a"], 1) },
        Claim { worker: "w".repeat(WORKER_BYTES_MAX + 1), ..wants_jobs(&["a"], 1) },
        Claim { handlers: many, ..wants_jobs(&["a"], 1) },
    ];
    for bad in bad {
        let answer = subject.store.claim(bad).await;
        assert!(matches!(answer, Err(StoreError::Invalid(_))), "{answer:?}");
    }
    assert_eq!(subject.job_now(id).await.state, JobState::Available);
    let endless = Claim { lease: SignedDuration::MAX, ..wants_jobs(&["a"], 1) };
    let taken = subject.store.claim(endless).await.expect("a claim").remove(0);
    assert!(taken.lease_until > Some(subject.in_secs(1_000_000_000)), "{:?}", taken.lease_until);
    let most = (0..CLAIM_HANDLERS_MAX).map(|n| (name(&format!("h{n}")), 1)).collect();
    subject.send_one(job("h199")).await;
    let all = subject.store.claim(Claim { handlers: most, ..wants_jobs(&[], 5) }).await.expect("a claim");
    assert_eq!(all.len(), 1);
}

/// Sending and claiming at once is one after the other: the claim sees what was sent, and takes what any claim would.
pub async fn what_is_sent_can_be_claimed_with_it(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let older = subject.send_one(job("a")).await;
    let later = Some(subject.in_secs(60));
    let urgent = NewJob { priority: u64::MAX, ..job("a") };
    let jobs = vec![urgent, job("b"), about("a", "o"), about("a", "o"), NewJob { not_before: later, ..job("a") }];
    let (sent, taken) =
        subject.store.enqueue_and_claim(jobs, wants_jobs(&["a"], 10)).await.expect("jobs, and some of them");
    let sent: Vec<_> = sent.iter().map(|sent| sent.id).collect();
    assert_eq!(ids(&taken), [sent[0], older, sent[2]]);
    subject.reopen().await;
    for job in taken {
        assert_eq!((job.state, job.attempts, job.fence), (JobState::Running, 1, 1));
        assert_eq!(subject.job_now(job.id).await, job, "a claim tells the job as it is");
    }
    assert_eq!(
        subject.states(&[sent[1], sent[3], sent[4]]).await,
        [JobState::Available, JobState::Parked, JobState::Scheduled]
    );

    // What a rule holds is sent, and waits.
    subject.hold(RuleKind::Pause, "handler:a").await;
    let (sent, taken) = subject.store.enqueue_and_claim(vec![job("a")], wants_jobs(&["a"], 10)).await.expect("a job");
    assert_eq!((taken, subject.states(&[sent[0].id]).await), (Vec::new(), vec![JobState::Available]));
    // One that is live already is not made again, and is nobody's twice.
    let keyed = || NewJob { unique_key: Some("k".into()), ..job("b") };
    let (first, taken) = subject.store.enqueue_and_claim(vec![keyed()], wants_jobs(&["b"], 10)).await.expect("a job");
    assert!(first[0].is_new && ids(&taken).contains(&first[0].id));
    let (again, taken) = subject.store.enqueue_and_claim(vec![keyed()], wants_jobs(&["b"], 10)).await.expect("no job");
    assert_eq!((again[0].id, again[0].is_new, taken), (first[0].id, false, Vec::new()));
}
