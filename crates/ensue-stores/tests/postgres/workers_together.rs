//! Many workers claim and settle at once: what goes in one commit, and that each gets its own.

use crate::support::Log;
use crate::support::groups::{Engine, LEASE, name, open, until_waiting};
use crate::support::session::Session;
use crate::support::wire::Wire;
use ensue_core::handling::OnExhausted;
use ensue_core::jobs::{Cause, Claim, Held, Job, JobChange, JobEnd, JobSettled, JobState, NewJob, Steer};
use ensue_core::{EventId, Jobs, Json, ObjectKey, StoreError, Topic};
use ensue_stores::postgres::PostgresOptions;
use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinHandle;
use uuid::Uuid;

type Answer<T> = JoinHandle<Result<Vec<T>, StoreError>>;

/// How many commits of a kind are under way at once when they are slow.
const AT_ONCE: i64 = 4;

/// How long is waited for what is to happen at once.
const SOON: Duration = Duration::from_secs(30);

fn wants(handler: &str, limit: usize, worker: &str) -> Claim {
    let handlers = vec![(name(handler), limit)];
    Claim { handlers, limit, lease: LEASE, worker: worker.into(), ends_with_store: false }
}

fn claiming(store: &Engine, claim: Claim) -> Answer<Job> {
    let store = store.clone();
    tokio::spawn(async move { store.claim(claim).await })
}

fn succeeding(store: &Engine, jobs: &[Job]) -> Answer<JobSettled> {
    let success = |job: &Job| JobChange::new(Held { id: job.id, fence: job.fence }, JobEnd::Succeeded);
    let (store, changes) = (store.clone(), jobs.iter().map(success).collect());
    tokio::spawn(async move { store.settle_jobs(changes).await })
}

async fn answer<T>(answer: Answer<T>) -> Vec<T> {
    tokio::time::timeout(SOON, answer).await.expect("answered soon").unwrap().unwrap()
}

async fn assert_done(answered: Answer<JobSettled>, count: usize) {
    let settled = answer(answered).await;
    let is_done = |one: &JobSettled| matches!(one, JobSettled::Done { state: JobState::Succeeded, .. });
    assert!(settled.len() == count && settled.iter().all(is_done), "{settled:?}");
}

async fn claimed(store: &Engine, count: usize) -> Vec<Job> {
    store.enqueue(vec![NewJob::new(name("h")); count]).await.unwrap();
    store.claim(wants("h", count, "w")).await.unwrap()
}

/// In how many commits jobs were written last.
async fn commits(log: &Log) -> i64 {
    log.number("SELECT count(DISTINCT call) FROM LOG.jobs WHERE call IS NOT NULL").await
}

#[tokio::test]
async fn who_claims_while_a_claim_is_under_way_claims_with_the_others_and_each_gets_its_own() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    store.enqueue(vec![NewJob::new(name("h")); 100]).await.unwrap();
    store.enqueue(vec![NewJob::new(name("other")); 2]).await.unwrap();
    log.hold("LOCK TABLE LOG.jobs IN EXCLUSIVE MODE").await;
    let mut first = Vec::new();
    for count in 1..=AT_ONCE {
        first.push(claiming(&store, wants("h", 2, "first")));
        until_waiting(&log, count).await;
    }
    let left = claiming(&store, wants("h", 5, "left"));
    // Some have the same name, and one wants another handler's.
    let name_of = |n: usize| ["a", "b", "c"][n % 3];
    let callers: Vec<_> = (0..10).map(|n| claiming(&store, wants("h", 3, name_of(n)))).collect();
    let other = claiming(&store, wants("other", 10, "a"));
    tokio::task::yield_now().await;
    left.abort();
    until_waiting(&log, AT_ONCE + 1).await;
    log.let_go().await;

    let mut seen = HashSet::new();
    let wanted = first.iter().map(|_| (2, "first")).chain((0..10).map(|n| (3, name_of(n)))).collect::<Vec<_>>();
    for (caller, (count, worker)) in first.into_iter().chain(callers).zip(wanted) {
        let jobs = answer(caller).await;
        assert_eq!(jobs.len(), count, "{worker}");
        for job in &jobs {
            assert!(seen.insert(job.id), "{worker} has what another has");
            assert_eq!((job.worker.as_deref(), job.handler.as_str()), (Some(worker), "h"));
            assert_eq!(store.job(job.id).await.unwrap().as_ref(), Some(job), "as it is kept");
        }
        assert!(jobs.is_sorted_by_key(|job| job.turn));
    }
    assert_eq!(answer(other).await.len(), 2);
    let running = log.number("SELECT count(*) FROM LOG.jobs WHERE state = 'running'").await;
    assert_eq!(running, AT_ONCE * 2 + 30 + 2, "nothing for who has left");
    assert_eq!(commits(&log).await, AT_ONCE + 2, "the first, the others, and those of the other handler");
    assert_eq!(seen.iter().map(|id| id.number()).max(), Some(38), "the first of all, none passed over");
}

/// Who comes first is served first where there is not enough for all.
#[tokio::test]
async fn what_is_not_enough_for_all_is_shared_once() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    store.enqueue(vec![NewJob::new(name("h")); 5]).await.unwrap();
    let callers: Vec<_> = (0..4).map(|n| claiming(&store, wants("h", 2, &format!("w{n}")))).collect();
    let mut counts = Vec::new();
    for caller in callers {
        counts.push(answer(caller).await.len());
    }
    assert_eq!((counts, commits(&log).await), (vec![2, 2, 1, 0], 1));
}

/// Whoever changes such jobs waits at a gate, which is no lock, until it is open.
fn gate_for(which: &str) -> String {
    format!(
        "CREATE TABLE LOG.gate (); INSERT INTO LOG.gate DEFAULT VALUES;
         CREATE FUNCTION LOG.pass() RETURNS trigger LANGUAGE plpgsql AS
             $$ BEGIN WHILE EXISTS (SELECT FROM LOG.gate) LOOP PERFORM pg_sleep(0.005); END LOOP; RETURN NEW; END $$;
         CREATE TRIGGER pass BEFORE UPDATE ON LOG.jobs FOR EACH ROW WHEN ({which}) EXECUTE FUNCTION LOG.pass()"
    )
}

const OPEN_GATE: &str = "DELETE FROM LOG.gate";
const AT_GATE: &str = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'LOG' AND wait_event = 'PgSleep'";

#[tokio::test]
async fn successes_of_many_callers_go_in_one_commit() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    let jobs = claimed(&store, 61).await;
    log.run(&gate_for("true")).await;
    let first = succeeding(&store, &jobs[..1]);
    log.until(AT_GATE, 1).await;
    let callers: Vec<_> = jobs[1..].chunks(3).map(|jobs| succeeding(&store, jobs)).collect();
    tokio::task::yield_now().await;
    log.run(OPEN_GATE).await;
    assert_done(first, 1).await;
    for caller in callers {
        assert_done(caller, 3).await;
    }
    // Another commit may go beside the first.
    let commits = commits(&log).await;
    assert!((2..=3).contains(&commits), "{commits} commits for 21 callers");
}

/// Two commits are under way, and do not end; whoever comes then is not to wait for them.
#[tokio::test]
async fn nobody_stands_behind_commits_that_are_slow() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    let jobs = claimed(&store, 4).await;
    log.run(&gate_for(&format!("OLD.number <= {}", jobs[1].id.number()))).await;
    let mut stand = Vec::new();
    for (job, count) in jobs[..2].chunks(1).zip(1..) {
        stand.push(succeeding(&store, job));
        log.until(AT_GATE, count).await;
    }
    for job in jobs[2..].chunks(1) {
        assert_done(succeeding(&store, job), 1).await;
    }
    assert!(stand.iter().all(|one| !one.is_finished()));
    log.run(OPEN_GATE).await;
    for one in stand {
        assert_done(one, 1).await;
    }
}

/// Somebody's open transaction stops nobody else.
#[tokio::test]
async fn nobody_waits_for_what_another_waits_for() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    let jobs = claimed(&store, 3).await;
    log.hold(&format!("SELECT FROM LOG.jobs WHERE number = {} FOR UPDATE", jobs[0].id.number())).await;
    let callers: Vec<_> = jobs.chunks(1).map(|jobs| succeeding(&store, jobs)).collect();
    let mut callers = callers.into_iter();
    let stands = callers.next().unwrap();
    for caller in callers {
        assert_done(caller, 1).await;
    }
    assert!(!stands.is_finished(), "somebody has its row");
    log.let_go().await;
    assert_done(stands, 1).await;
}

#[tokio::test]
async fn a_lease_that_is_lost_is_lost_to_its_caller_alone() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    let jobs = claimed(&store, 4).await;
    log.run(&format!("UPDATE LOG.jobs SET fence = fence + 1 WHERE number = {}", jobs[2].id.number())).await;
    // Whose successes are written needs no more than that: here the others wait.
    log.hold(&format!("SELECT FROM LOG.jobs WHERE number = {} FOR UPDATE", jobs[2].id.number())).await;
    let callers: Vec<_> = jobs.chunks(2).map(|jobs| succeeding(&store, jobs)).collect();
    let [one, other] = callers.try_into().unwrap();
    assert_done(one, 2).await;
    log.let_go().await;
    let settled = answer(other).await;
    assert_eq!(settled[0], JobSettled::LeaseLost);
    assert!(matches!(settled[1], JobSettled::Done { state: JobState::Succeeded, .. }), "{settled:?}");
}

/// The server has done it, and its answer never comes: it is not done again, and each is answered for its own.
#[tokio::test]
async fn what_was_answered_to_nobody_is_answered_to_each() {
    let (wire, log) = (Wire::new().await, Log::new().await);
    let url = format!("{}?schema={1}&application_name={1}&sslmode=disable", wire.url, log.schema);
    let store = open(&url, PostgresOptions::default()).await;
    // So that statements are prepared, and the next answer is that of the call.
    let warm = claimed(&store, 1).await;
    assert_done(succeeding(&store, &warm), 1).await;
    store.enqueue(vec![NewJob::new(name("h")); 9]).await.unwrap();

    wire.cut_next_answer.store(true, Ordering::SeqCst);
    let callers: Vec<_> = (0..3).map(|n| claiming(&store, wants("h", 3, &format!("w{n}")))).collect();
    let mut jobs = Vec::new();
    for (caller, n) in callers.into_iter().zip(0..) {
        let own = answer(caller).await;
        assert!(own.len() == 3 && own.iter().all(|job| job.worker == Some(format!("w{n}"))), "{own:?}");
        assert!(own.iter().all(|job| job.fence == 1), "claimed once");
        jobs.push(own);
    }
    assert!(!wire.cut_next_answer.load(Ordering::SeqCst), "the answer was swallowed");

    wire.cut_next_answer.store(true, Ordering::SeqCst);
    let callers: Vec<_> = jobs.iter().map(|jobs| succeeding(&store, jobs)).collect();
    for caller in callers {
        assert_done(caller, 3).await;
    }
    assert!(!wire.cut_next_answer.load(Ordering::SeqCst), "the answer was swallowed");
}

/// The first try is still under way: who sends the claim again waits for it, and takes nothing else.
#[tokio::test]
async fn a_claim_that_is_sent_again_waits_for_the_first() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    store.enqueue(vec![NewJob::new(name("h")); 4]).await.unwrap();
    let fetch = |again: bool| {
        format!(
            "SELECT count(number) FROM LOG.jobs_fetch(NULL, '00000000-0000-0000-0000-000000000007', 7, {again}, '{{h}}', '{{2}}', '{{handler:h}}', '{{1}}', \
             2, 1000000, '{{w}}', NULL, NULL, NULL, NULL, NULL, NULL)"
        )
    };
    log.hold(&fetch(false)).await;
    let session = Session::of(&log).await;
    let again = tokio::spawn(async move { session.rows(&fetch(true)).await.unwrap()[0].get::<_, i64>(0) });
    log.until("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 7 AND NOT granted", 1).await;
    log.let_go().await;
    assert_eq!(again.await.unwrap(), 2, "those of the first");
    assert_eq!(log.number("SELECT count(*) FROM LOG.jobs WHERE state = 'running'").await, 2);
}

/// What a claim leaves out, because its caller knows it or because it is so of most, is as the store keeps it, of jobs of all kinds.
#[tokio::test]
async fn a_claimed_job_is_as_it_is_kept() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    let job = || NewJob::new(name("h"));
    let cause = Cause { seq: 7, prev: Some(3), id: EventId(Uuid::from_u128(1 << 100)), topic: Topic::stored("a.b") };
    let kinds = vec![
        job(),
        NewJob { ordered: false, object: Some(ObjectKey::stored("o")), ..job() },
        NewJob { object: Some(ObjectKey::stored("p")), priority: u64::MAX, ..job() },
        NewJob { on_exhausted: OnExhausted::Skip, attempts_max: 1, unique_key: Some("k".into()), ..job() },
        NewJob { metadata: Json::stored(r#"{"a":1}"#), cause: Some(cause), ..job() },
    ];
    let count = kinds.len();
    store.enqueue(kinds.clone()).await.unwrap();
    let first = store.claim(wants("h", 100, "w")).await.unwrap();
    assert_eq!(first.len(), count);
    // Again, so that there is a start before this claim, an error, and one that was brought back.
    for job in &first {
        let end = JobEnd::Dead { error: "no".into() };
        store.settle_jobs(vec![JobChange::new(Held { id: job.id, fence: job.fence }, end)]).await.unwrap();
    }
    store.steer(&first.iter().map(|job| job.id).collect::<Vec<_>>(), Steer::Retry).await.unwrap();
    let again = store.claim(wants("h", 100, "v")).await.unwrap();
    assert_eq!(again.len(), count);
    for job in &again {
        assert_eq!(store.job(job.id).await.unwrap().as_ref(), Some(job));
        assert!(job.started_at < job.locked_at && job.redriven && !job.errors.is_empty(), "{job:?}");
    }

    // Several handlers at once, and what is sent and claimed in one commit.
    store.enqueue(kinds.iter().map(|kind| NewJob { handler: name("i"), ..kind.clone() }).collect()).await.unwrap();
    let both = Claim { handlers: vec![(name("h"), 9), (name("i"), 9)], ..wants("h", 18, "u") };
    let sent = vec![NewJob { priority: 1, ..job() }];
    let (_, taken) = store.enqueue_and_claim(sent, both).await.unwrap();
    assert_eq!(taken.len(), count + 1);
    for job in &taken {
        assert_eq!(store.job(job.id).await.unwrap().as_ref(), Some(job));
    }
}

/// Those who know of nothing that is left out.
#[tokio::test]
async fn programs_of_before_are_answered_everything() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    let claims = [("jobs_take", "'{o_seen,o_micros,o_held,o_place}'"), ("jobs_claim", "'{o_seen,o_micros,o_held}'")];
    for (function, found) in claims {
        store
            .enqueue(vec![NewJob::new(name("j")), NewJob { on_exhausted: OnExhausted::Skip, ..NewJob::new(name("j")) }])
            .await
            .unwrap();
        log.run(&format!(
            "DROP TABLE IF EXISTS LOG.answer; CREATE TABLE LOG.answer AS SELECT * FROM LOG.{function}(NULL, gen_random_uuid(), false, '{{j}}', '{{9}}', '{{handler:j}}', '{{1}}', \
             p_worker => 'w', p_lease => 1000000, p_limit => 100, p_of => NULL, p_after_rank => NULL, p_after_turn => NULL, p_to_rank => NULL, p_at_turn => NULL)"
        ))
        .await;
        let same = format!(
            "SELECT count(*) FROM LOG.answer a JOIN LOG.jobs j USING (number) WHERE to_jsonb(j) @> to_jsonb(a) - {found}::text[] AND a.state = 'running'"
        );
        assert_eq!(log.number(&same).await, 2, "{function}");
    }
}
