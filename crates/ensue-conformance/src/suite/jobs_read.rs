//! What can be seen of jobs?

use super::Subject;
use super::jobs::{about, dies, ids, job, json, retry_at};
use super::positions::{LEASE, name};
use crate::factory::Factory;
use ensue_core::handling::OnExhausted;
use ensue_core::jobs::{Cause, JOB_SCAN_MAX, JobCount, JobEnd, JobQuery, JobState, NewJob, Outline, Server, Steer};
use ensue_core::store::PAGE_BYTES_MAX;
use ensue_core::{EventId, ObjectKey, StoreError, Topic};
use jiff::SignedDuration;

/// By number, of the states, handlers and objects that are wanted, on pages of any size.
pub async fn jobs_come_by_number_page_by_page(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let kinds = [("a", "o"), ("a.b", "p"), ("ab", "o"), ("b", "O"), ("A", "o")];
    let jobs = (0..60).map(|n| about(kinds[n % 5].0, kinds[n % 5].1)).collect();
    let sent = subject.send(jobs).await;
    for (n, id) in sent.iter().enumerate().take(10) {
        let end = if n % 2 == 0 { JobEnd::Succeeded } else { retry_at(subject.in_secs(5)) };
        if n < 5 {
            subject.run(*id, end).await;
        }
    }
    let all = subject.all_jobs().await;
    assert_eq!(ids(&all), sent);
    let states = [vec![], vec![JobState::Parked], vec![JobState::Succeeded, JobState::Retrying]];
    let handlers = [None, Some("a"), Some("a.b"), Some("c")];
    let objects = [None, Some("o"), Some("x")];
    for (states, handler) in states.iter().flat_map(|states| handlers.iter().map(move |one| (states, one))) {
        for object in objects {
            let query = JobQuery {
                states: states.clone(),
                handler: handler.map(name),
                object: object.map(ObjectKey::stored),
                ..JobQuery::default()
            };
            let wanted = |job: &&ensue_core::jobs::Job| query.matches(&Outline::of(job));
            let expected: Vec<_> = all.iter().filter(wanted).cloned().collect();
            for limit in [1, 7, 1_000] {
                assert_eq!(subject.jobs_of(query.clone(), limit).await, expected, "{query:?} by {limit}");
            }
            let after = Some(sent[20].number());
            let rest = subject.jobs_of(JobQuery { after, ..query.clone() }, 5).await;
            let expected: Vec<_> = expected.into_iter().filter(|job| Some(job.id.number()) > after).collect();
            assert_eq!(rest, expected);
        }
    }
    let beyond = JobQuery { after: Some(u64::MAX >> 2), ..JobQuery::default() };
    assert_eq!(subject.jobs_of(beyond, 10).await, []);
}

/// A page that takes all there is says that nothing follows.
pub async fn the_last_page_says_so(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let page = async |limit| subject.store.jobs(JobQuery::default(), limit).await.expect("a page");
    assert_eq!((page(10).await.jobs, page(10).await.next), (vec![], None));
    let sent = subject.send(vec![job("a"); 3]).await;
    assert_eq!(page(4).await.next, None);
    assert_eq!(page(3).await.next, None);
    let first = page(2).await;
    assert_eq!((ids(&first.jobs), first.next), (sent[..2].to_vec(), Some(sent[1].number())));
}

/// A page of large payloads has fewer jobs, but always one.
pub async fn a_page_is_bounded_in_bytes(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let large = json(&format!("\"{}\"", "x".repeat(1_000_000)));
    let jobs: Vec<NewJob> = vec![NewJob { payload: large, ..job("a") }; 9];
    let mut sent = Vec::new();
    for part in jobs.chunks(3) {
        sent.extend(subject.send(part.to_vec()).await);
    }
    let page = subject.store.jobs(JobQuery::default(), 100).await.expect("a page");
    let bytes: usize = page.jobs.iter().map(|job| job.payload.as_str().len()).sum();
    assert!(!page.jobs.is_empty() && bytes <= PAGE_BYTES_MAX, "{} jobs, {bytes} bytes", page.jobs.len());
    assert!(page.next.is_some());
    assert_eq!(ids(&subject.jobs_of(JobQuery::default(), 100).await), sent);
}

/// Who looks for few among many gets an answer, and goes on.
pub async fn a_scan_is_bounded_and_goes_on(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let first = subject.send_one(about("rare", "o")).await;
    subject.send_many(vec![job("common"); JOB_SCAN_MAX + 500]).await;
    let last = subject.send_one(about("rare.too", "p")).await;
    let by_handler = JobQuery { handler: Some(name("rare")), ..JobQuery::default() };
    assert_eq!(ids(&subject.jobs_of(by_handler.clone(), 10).await), [first, last]);
    let by_object = JobQuery { object: Some(ObjectKey::stored("p")), ..by_handler };
    assert_eq!(ids(&subject.jobs_of(by_object, 10).await), [last]);
}

/// The jobs that an event became, wherever they stand, also behind many others.
pub async fn jobs_are_found_by_the_event_they_follow_from(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let of = |seq, new: NewJob| {
        let cause = Cause { seq, prev: None, id: EventId(uuid::Uuid::nil()), topic: Topic::stored("t") };
        NewJob { cause: Some(cause), ..new }
    };
    let first = subject.send(vec![of(7, about("a", "o")), of(8, about("a", "o")), of(7, job("b"))]).await;
    subject.run(first[0], JobEnd::Succeeded).await;
    subject.send_many(vec![job("common"); JOB_SCAN_MAX + 500]).await;
    let last = subject.send_one(of(7, about("a", "p"))).await;
    let by_event = JobQuery { cause: Some(7), ..JobQuery::default() };
    assert_eq!(ids(&subject.jobs_of(by_event.clone(), 10).await), [first[0], first[2], last]);
    assert_eq!(ids(&subject.jobs_of(by_event.clone(), 1).await), [first[0], first[2], last]);
    let by_object = JobQuery { object: Some(ObjectKey::stored("o")), ..by_event };
    assert_eq!(ids(&subject.jobs_of(by_object, 10).await), [first[0]]);
}

/// Those that have died and keep the others of their object waiting, until somebody brings them back or skips them.
pub async fn jobs_that_hold_their_lane_are_found(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    let holding = JobQuery { holding: true, ..JobQuery::default() };
    assert_eq!(subject.jobs_of(holding.clone(), 10).await, []);
    let mut holds = Vec::new();
    for object in ["o", "p", "q", "r"] {
        holds.push(subject.a_dead_one(about("a.b", object), OnExhausted::Hold).await);
        subject.send_one(about("a.b", object)).await;
    }
    subject.a_dead_one(about("a.b", "s"), OnExhausted::Skip).await;
    subject.a_dead_one(job("a.b"), OnExhausted::Hold).await;
    holds.push(subject.a_dead_one(about("c", "o"), OnExhausted::Hold).await);
    subject.reopen().await;
    for limit in [1, 2, 10] {
        assert_eq!(ids(&subject.jobs_of(holding.clone(), limit).await), holds, "by {limit}");
    }
    let page = subject.store.jobs(holding.clone(), 2).await.expect("a page");
    assert_eq!((ids(&page.jobs), page.next.is_some()), (holds[..2].to_vec(), true));
    let by_handler = JobQuery { handler: Some(name("a")), ..holding.clone() };
    assert_eq!(ids(&subject.jobs_of(by_handler, 10).await), holds[..4]);
    let by_object = JobQuery { object: Some(ObjectKey::stored("o")), ..holding.clone() };
    assert_eq!(ids(&subject.jobs_of(by_object, 10).await), [holds[0], holds[4]]);
    subject.steer_done(holds[0], Steer::Skip).await;
    subject.steer_done(holds[1], Steer::Retry).await;
    assert_eq!(ids(&subject.jobs_of(holding, 10).await), holds[2..]);
}

/// By handler and state; what is over is not counted.
pub async fn counts_are_of_what_is_not_over(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    assert_eq!(subject.store.job_counts().await, Ok(vec![]));
    let sent =
        subject.send(vec![about("b", "o"), about("b", "o"), about("b", "o"), job("a"), job("a"), job("B")]).await;
    subject.send_one(NewJob { not_before: Some(subject.in_secs(5)), ..job("a") }).await;
    subject.take_this("b", sent[0]).await;
    subject.run(sent[3], retry_at(subject.in_secs(5))).await;
    subject.run(sent[4], dies()).await;
    subject.run(sent[5], JobEnd::Succeeded).await;
    let mut counts = subject.store.job_counts().await.expect("counts");
    counts.sort_by(|one, other| (&one.handler, one.state).cmp(&(&other.handler, other.state)));
    let count = |handler: &str, state, count| JobCount { handler: name(handler), state, count };
    let expected = [
        count("a", JobState::Scheduled, 1),
        count("a", JobState::Retrying, 1),
        count("b", JobState::Running, 1),
        count("b", JobState::Parked, 2),
    ];
    assert_eq!(counts, expected);
}

/// By handler; the longest that was said counts, and who is gone is told still.
pub async fn who_runs_jobs_is_known_by_handler(factory: &dyn Factory) {
    let mut subject = Subject::new(factory).await;
    assert_eq!(subject.store.job_servers().await, Ok(vec![]));
    let long = subject.clock.now() + LEASE;
    subject.store.serve_jobs(&[name("b"), name("a.b"), name("B")], LEASE).await.expect("noted");
    subject.store.serve_jobs(&[name("b"), name("c")], SignedDuration::from_secs(1)).await.expect("noted");
    subject.store.serve_jobs(&[], LEASE).await.expect("noted");
    let server = |handler: &str, until| Server { handler: name(handler), until };
    let expected = [server("B", long), server("a.b", long), server("b", long), server("c", subject.in_secs(1))];
    assert_eq!(subject.store.job_servers().await.expect("servers"), expected);
    subject.clock.advance_millis(100_000);
    subject.store.serve_jobs(&[name("b")], LEASE).await.expect("noted");
    subject.reopen().await;
    let there = subject.store.job_servers().await.expect("servers");
    assert_eq!(there.iter().find(|one| one.handler == name("b")), Some(&server("b", subject.clock.now() + LEASE)));
    assert_eq!(there.iter().find(|one| one.handler == name("c")), Some(&expected[3]));
}

/// Closed is closed, for jobs and rules too.
pub async fn a_closed_store_refuses_what_is_asked_about_jobs(factory: &dyn Factory) {
    let subject = Subject::new(factory).await;
    let id = subject.send_one(job("a")).await;
    subject.store.close().await;
    let closed = Some(StoreError::Closed);
    assert_eq!(subject.store.enqueue(vec![job("a")]).await.err(), closed);
    assert_eq!(subject.store.job(id).await.err(), closed);
    assert_eq!(subject.store.claim(super::jobs::wants_jobs(&["a"], 1)).await.err(), closed);
    assert_eq!(subject.store.wake_jobs(1).await.err(), closed);
    assert_eq!(subject.store.rules().await.err(), closed);
    let rule = super::jobs::rule(ensue_core::rules::RuleKind::Pause, "handler:a");
    assert_eq!(subject.store.set_rule(rule).await.err(), closed);
}
