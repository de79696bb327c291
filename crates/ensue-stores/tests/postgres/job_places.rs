//! Jobs that have only succeeded are written where their claims have left them, if they are still there.

use crate::support::groups::{Engine, LEASE, name, open};
use crate::support::{Log, on};
use ensue_core::jobs::{Claim, Held, Job, JobChange, JobEnd, JobId, JobSettled, JobState, NewJob, Progress, Steer};
use ensue_core::rules::{NewRule, RuleKind, Scope};
use ensue_core::{Jobs, Json, ObjectKey, Rules, Store, StoreError, Timestamp};
use ensue_stores::postgres::PostgresOptions;

async fn claimed(store: &Engine, count: usize) -> Vec<Job> {
    store.enqueue(vec![NewJob::new(name("h")); count]).await.unwrap();
    claim(store, count).await
}

async fn claim(store: &Engine, limit: usize) -> Vec<Job> {
    let handlers = vec![(name("h"), limit)];
    let claim = Claim { handlers, limit, lease: LEASE, worker: "w".into(), ends_with_store: false };
    store.claim(claim).await.unwrap()
}

fn success(job: &Job) -> JobChange {
    JobChange::new(Held { id: job.id, fence: job.fence }, JobEnd::Succeeded)
}

async fn state(store: &Engine, id: JobId) -> JobState {
    store.job(id).await.unwrap().unwrap().state
}

fn are_done(settled: &[JobSettled], count: usize) {
    let is_done = |one: &JobSettled| matches!(one, JobSettled::Done { state: JobState::Succeeded, .. });
    assert!(settled.len() == count && settled.iter().all(is_done), "{settled:?}");
}

#[tokio::test]
async fn a_success_needs_no_search() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    let jobs = claimed(&store, 100).await;
    log.run("ALTER FUNCTION LOG.jobs_settle RENAME TO nobody_needs_it").await;
    are_done(&store.settle_jobs(jobs.iter().rev().map(success).collect()).await.unwrap(), 100);
    assert_eq!(log.number("SELECT count(*) FROM LOG.jobs WHERE state = 'succeeded' AND turn IS NULL").await, 100);
}

/// Whatever was written to a job since has moved it.
#[tokio::test]
async fn a_job_that_has_moved_is_found() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    let jobs = claimed(&store, 4).await;
    store.renew_jobs(&[Held { id: jobs[0].id, fence: jobs[0].fence }], LEASE).await.unwrap();
    store.steer(&[jobs[1].id], Steer::Cancel).await.unwrap();
    log.run("UPDATE LOG.jobs SET worker = 'x'").await;
    // The place of the first is not even remembered.
    are_done(&store.settle_jobs(jobs[..1].iter().map(success).collect()).await.unwrap(), 1);
    are_done(&store.settle_jobs(jobs[1..].iter().map(success).collect()).await.unwrap(), 3);
    assert_eq!(store.settle_jobs(vec![success(&jobs[2])]).await.unwrap(), [JobSettled::LeaseLost], "once");
}

#[tokio::test]
async fn only_those_that_were_lost_are_lost() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    let jobs = claimed(&store, 3).await;
    log.run(&format!("UPDATE LOG.jobs SET fence = fence + 1 WHERE number = {}", jobs[1].id.number())).await;
    let settled = store.settle_jobs(jobs.iter().map(success).collect()).await.unwrap();
    are_done(&[settled[0].clone(), settled[2].clone()], 2);
    assert_eq!((&settled[1], state(&store, jobs[1].id).await), (&JobSettled::LeaseLost, JobState::Running));
}

/// What was at its place is done, though the rest cannot be.
#[tokio::test]
async fn what_is_settled_in_part_is_in_doubt() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    let jobs = claimed(&store, 2).await;
    log.run(&format!("UPDATE LOG.jobs SET worker = 'x' WHERE number = {}", jobs[1].id.number())).await;
    log.run("ALTER FUNCTION LOG.jobs_settle RENAME TO away").await;
    let error = store.settle_jobs(jobs.iter().map(success).collect()).await.unwrap_err();
    assert!(matches!(error, StoreError::InDoubt(_)), "{error}");
    let states = [state(&store, jobs[0].id).await, state(&store, jobs[1].id).await];
    assert_eq!(states, [JobState::Succeeded, JobState::Running]);
}

/// Its row is gone, and another job is where it was, under the same fence; or the job itself, claimed by somebody else since.
#[tokio::test]
async fn a_place_may_be_of_another_job_by_now() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    let jobs = claimed(&store, 2).await;
    let succeed = |at: &Job, as_if: &Job| {
        format!(
            "SELECT LOG.jobs_succeed(NULL, gen_random_uuid(), ARRAY[p.ctid], ARRAY[j.number], ARRAY[j.stamp], ARRAY[j.fence])
             FROM LOG.jobs p CROSS JOIN LOG.jobs j WHERE p.number = {} AND j.number = {} AND p.fence = j.fence",
            at.id.number(),
            as_if.id.number()
        )
    };
    assert_eq!(log.number(&succeed(&jobs[0], &jobs[1])).await, 0);
    assert_eq!([state(&store, jobs[0].id).await, state(&store, jobs[1].id).await], [JobState::Running; 2]);
    let taken_over = succeed(&jobs[0], &jobs[0]).replace("ARRAY[j.fence]", "ARRAY[j.fence - 1]");
    assert_eq!(log.number(&taken_over).await, 0);
    assert_eq!(log.number(&succeed(&jobs[0], &jobs[0])).await, 1);
    assert_eq!(log.number(&succeed(&jobs[0], &jobs[0])).await, 0, "it runs no more");
}

/// What is more than a success, or has a successor that waits, is written as ever.
#[tokio::test]
async fn the_rest_is_looked_for() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    let jobs = claimed(&store, 3).await;
    let result = JobChange { result: Some(Json::of("result", &7).unwrap()), ..success(&jobs[0]) };
    let publishes = JobChange { events: on("o"), ..success(&jobs[1]) };
    let changes = vec![result, publishes, success(&jobs[2])];
    are_done(&store.settle_jobs(changes).await.unwrap(), 3);
    assert_eq!(store.job(jobs[0].id).await.unwrap().unwrap().result.unwrap().as_str(), "7");
    assert_eq!(store.bounds().await.unwrap().last, 1);

    let laned = NewJob { object: Some(ObjectKey::stored("o")), ..NewJob::new(name("h")) };
    store.enqueue(vec![laned.clone(), laned]).await.unwrap();
    for _ in 0..2 {
        let jobs = claim(&store, 2).await;
        assert_eq!(jobs.len(), 1, "its successor waits");
        are_done(&store.settle_jobs(jobs.iter().map(success).collect()).await.unwrap(), 1);
    }
}

/// What was said of a job goes with it.
#[tokio::test]
async fn progress_is_forgotten_with_its_job() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    let jobs = claimed(&store, 2).await;
    for job in &jobs {
        let progress = Progress { done: 1, total: None, unit: None, at: Timestamp::UNIX_EPOCH };
        assert!(store.report(Held { id: job.id, fence: job.fence }, progress).await.unwrap());
    }
    store.settle_jobs(vec![success(&jobs[0])]).await.unwrap();
    assert_eq!(store.purge_jobs(Timestamp::MAX, 0, 100).await.unwrap(), 1);
    assert_eq!(log.number("SELECT count(*) FROM LOG.job_progress").await, 1, "the other one runs");
}

/// A claim that goes by what it remembers takes nothing that a rule holds, also at the very first place.
#[tokio::test]
async fn nothing_is_taken_at_a_place_that_a_rule_holds() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    store.enqueue(vec![NewJob { priority: u64::MAX, ..NewJob::new(name("h")) }]).await.unwrap();
    let take = "SELECT count(t.number) FROM LOG.jobs j CROSS JOIN LATERAL LOG.jobs_take(NULL, gen_random_uuid(), false, '{h}', '{10}', '{handler:h}', '{1}', \
        10, 1000000, 'w', '{1,1}', ARRAY[j.rank, j.rank], ARRAY[j.turn, j.turn], ARRAY[j.rank, 9223372036854775807], ARRAY[j.turn, NULL]) t";
    let rule = NewRule {
        kind: RuleKind::Pause,
        scope: Scope::parse("handler:h").unwrap(),
        reason: None,
        author: "ada".into(),
        expires_at: None,
    };
    let (rule, _) = store.set_rule(rule).await.unwrap();
    assert_eq!(log.number(take).await, 0);
    store.lift_rule(RuleKind::Pause, &rule.scope, "ada").await.unwrap();
    assert_eq!(log.number(take).await, 1);
}
