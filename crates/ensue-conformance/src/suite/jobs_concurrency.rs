//! What holds when many send, take, end and stop jobs at once?

use super::Subject;
use super::jobs::{about, apart, held, job, rule, wants_jobs};
use super::positions::{LEASE, PAST_THE_LEASE_MILLIS};
use crate::factory::Factory;
use ensue_core::jobs::lifecycle::expired;
use ensue_core::jobs::{JobChange, JobEnd, JobId, JobSettled, JobState, NewJob, Steer, Steered};
use ensue_core::rules::{RuleKind, Scope};
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::task::JoinSet;

/// Many workers, many jobs: nobody has what another has, and none is left.
pub async fn each_job_is_taken_once(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let sent = subject.send(vec![job("a"); 300]).await;
    let mut tasks = JoinSet::new();
    for _ in 0..8 {
        let store = subject.store.clone();
        tasks.spawn(async move {
            let mut mine: Vec<JobId> = Vec::new();
            loop {
                let taken = store.claim(wants_jobs(&["a"], 7)).await.expect("a claim");
                if taken.is_empty() {
                    return mine;
                }
                mine.extend(taken.iter().map(|job| job.id));
                let ends = taken.iter().map(|job| JobChange::new(held(job), JobEnd::Succeeded)).collect();
                let answers = store.settle_jobs(ends).await.expect("settled");
                assert!(answers.iter().all(|one| matches!(one, JobSettled::Done { .. })), "{answers:?}");
            }
        });
    }
    let taken: Vec<JobId> = tasks.join_all().await.into_iter().flatten().collect();
    assert_eq!(taken.len(), 300);
    assert_eq!(taken.into_iter().collect::<HashSet<_>>(), sent.into_iter().collect::<HashSet<_>>());
}

/// One key from many callers at once is one job.
pub async fn one_unique_key_from_many_is_one_job(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let mut tasks = JoinSet::new();
    for n in 0..16 {
        let store = subject.store.clone();
        let keyed = |key: u8| NewJob { unique_key: Some(format!("k{key}")), ..job("a") };
        // In two orders, so that whoever waits for another would wait for ever.
        let jobs = if n % 2 == 0 { vec![keyed(1), keyed(2)] } else { vec![keyed(2), keyed(1)] };
        tasks.spawn(async move { store.enqueue(jobs).await.expect("sent") });
    }
    let answers = tasks.join_all().await;
    assert_eq!(answers.iter().flatten().filter(|one| one.is_new).count(), 2);
    assert_eq!(answers.iter().flatten().map(|one| one.id).collect::<HashSet<_>>().len(), 2);
    assert_eq!(subject.all_jobs().await.len(), 2);
}

/// H5: many workers on few lanes, while more jobs come: every lane runs in order, and never two of it at once.
pub async fn a_lane_never_has_two_at_work(factory: &dyn Factory) {
    const EACH: usize = 25;
    let subject = Subject::new(factory).await;
    let mut senders = JoinSet::new();
    for lane in 0..4 {
        let store = subject.store.clone();
        senders.spawn(async move {
            for _ in 0..EACH / 5 {
                store.enqueue(vec![about("a", &format!("o{lane}")); 5]).await.expect("sent");
            }
        });
    }
    let are_all_sent = Arc::new(AtomicBool::new(false));
    let mut workers = JoinSet::new();
    for n in 0..6 {
        let (store, are_all_sent) = (subject.store.clone(), are_all_sent.clone());
        workers.spawn(async move {
            let mut ran: Vec<JobId> = Vec::new();
            loop {
                let is_last_look = are_all_sent.load(Ordering::SeqCst);
                let taken = store.claim(wants_jobs(&["a"], 3)).await.expect("a claim");
                let lanes: HashSet<_> = taken.iter().map(|job| job.object.clone()).collect();
                assert_eq!(lanes.len(), taken.len(), "two of a lane at once");
                for job in &taken {
                    let before = store.predecessor(job.id).await.expect("a look");
                    assert_eq!(before, None, "nothing goes before who runs");
                    let end = if n == 0 && job.fence < 3 { JobEnd::GivenBack } else { JobEnd::Succeeded };
                    if end == JobEnd::Succeeded {
                        ran.push(job.id);
                    }
                    let settled = store.settle_jobs(vec![JobChange::new(held(job), end)]).await.expect("settled");
                    assert!(matches!(settled[0], JobSettled::Done { .. }), "{settled:?}");
                }
                let counts = store.job_counts().await.expect("counts");
                if taken.is_empty() && is_last_look && counts.is_empty() {
                    return ran;
                }
                tokio::task::yield_now().await;
            }
        });
    }
    while senders.join_next().await.transpose().expect("a sender").is_some() {}
    are_all_sent.store(true, Ordering::SeqCst);
    let ran: Vec<JobId> = workers.join_all().await.into_iter().flatten().collect();
    assert_eq!(ran.len(), 4 * EACH);
    assert_eq!(ran.iter().collect::<HashSet<_>>().len(), 4 * EACH, "each once");
    let mut fences: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for one in subject.all_jobs().await {
        assert_eq!(one.state, JobState::Succeeded);
        fences.entry(one.object.expect("an object").to_string()).or_default().push(one.fence);
    }
    assert!(fences.values().all(|lane| lane.len() == EACH), "{fences:?}");
}

/// H17: workers claim as fast as they can while rules come and go. What is claimed after a rule was set is not what it
/// holds.
pub async fn nothing_is_taken_after_a_rule_was_set(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    subject.send(vec![job("a.b"); 300]).await;
    subject.send(vec![apart("c", "o"); 300]).await;
    for (round, text) in ["handler:a", "object:o"].into_iter().cycle().take(12).enumerate() {
        let handler = if round % 2 == 0 { "a.b" } else { "c" };
        let is_set = Arc::new(AtomicBool::new(false));
        let mut workers = JoinSet::new();
        for _ in 0..3 {
            let (store, is_set) = (subject.store.clone(), is_set.clone());
            workers.spawn(async move {
                for _ in 0..1_000 {
                    let was_set = is_set.load(Ordering::SeqCst);
                    let taken = store.claim(wants_jobs(&[handler], 1)).await.expect("a claim");
                    assert!(!was_set || taken.is_empty(), "taken under a rule: {taken:?}");
                    if was_set {
                        return;
                    }
                }
            });
        }
        let kind = if round % 3 == 0 { RuleKind::Block } else { RuleKind::Pause };
        subject.store.set_rule(rule(kind, text)).await.expect("set");
        is_set.store(true, Ordering::SeqCst);
        workers.join_all().await;
        // Two lift it at once: one of them did.
        let scope = Scope::parse(text).expect("a scope");
        let lifts =
            tokio::join!(subject.store.lift_rule(kind, &scope, "x"), subject.store.lift_rule(kind, &scope, "y"));
        let lifted = [lifts.0.expect("lifted"), lifts.1.expect("lifted")];
        assert_eq!(lifted.iter().filter(|one| one.is_some()).count(), 1);
    }
    let counts = subject.store.job_counts().await.expect("counts");
    assert!(counts.iter().all(|one| one.state != JobState::Parked), "nothing is stranded: {counts:?}");
    subject.audit().await;
}

/// H21: an end and a cancellation at once: whichever was first is final.
pub async fn an_end_and_a_cancellation_agree(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    for _ in 0..20 {
        let id = subject.send_one(job("a")).await;
        let taken = subject.take_this("a", id).await;
        let ids = [id];
        let end = subject.store.settle_jobs(vec![JobChange::new(held(&taken), JobEnd::GivenBack)]);
        let (settled, steered) = tokio::join!(end, subject.store.steer(&ids, Steer::Cancel));
        let (settled, steered) = (settled.expect("settled"), steered.expect("steered"));
        assert!(matches!(&settled[0], JobSettled::Done { .. }), "{settled:?}");
        assert!(matches!(&steered[0], Steered::Done(_)), "{steered:?}");
        assert_eq!(subject.job_now(id).await.state, JobState::Cancelled);
    }
}

/// H16: a worker renews its lease at the moment at which somebody takes it for vanished: either it has the job still, or it is
/// told that it has lost it.
pub async fn a_renewal_and_an_expiry_agree(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    for round in 0..40 {
        let new = if round % 2 == 0 { job("a") } else { about("a", "o") };
        let id = subject.send_one(new).await;
        let taken = subject.take_this("a", id).await;
        subject.clock.advance_millis(PAST_THE_LEASE_MILLIS);
        let (now, mine) = (subject.clock.now(), [held(&taken)]);
        let renew = subject.store.renew_jobs(&mine, LEASE);
        let expire = subject.store.settle_jobs(vec![JobChange::new(held(&taken), expired(1, 5, "w", now))]);
        let (renewed, settled) = match round % 4 {
            0 | 1 => tokio::join!(renew, expire),
            _ => {
                let (settled, renewed) = tokio::join!(expire, renew);
                (renewed, settled)
            }
        };
        let (renewed, settled) = (renewed.expect("an answer").remove(0), settled.expect("an answer").remove(0));
        let there = subject.job_now(id).await;
        match renewed {
            Some(renewed) => {
                assert_eq!(settled, JobSettled::LeaseLost, "it was renewed, and taken all the same");
                assert_eq!((there.state, there.lease_until), (JobState::Running, Some(renewed.lease_until)));
                assert!(subject.end(&there, JobEnd::Succeeded).await == JobState::Succeeded);
            }
            None => {
                assert!(matches!(settled, JobSettled::Done { state: JobState::Retrying, .. }), "{settled:?}");
                assert_eq!(there.state, JobState::Retrying);
                subject.steer_done(id, Steer::Cancel).await;
            }
        }
    }
}
