//! Many callers who wait for one transaction of somebody's own: they are answered soon, and the process goes on beside them (H23).

use crate::support::groups::{Engine, LEASE, name, open, wish};
use crate::support::session::Session;
use crate::support::{Log, on};
use ensue_core::jobs::{Claim, Held, JobChange, JobEnd, NewJob};
use ensue_core::positions::{GroupKind, Member};
use ensue_core::store::Read;
use ensue_core::{Filter, Jobs, Positions, Store};
use ensue_stores::postgres::PostgresOptions;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use uuid::Uuid;

/// More than a process has connections.
const CROWD: usize = 14;
/// Sooner than anything that waits for the transaction is given up, even where the machine is busy.
const SOON: Duration = Duration::from_secs(5);

async fn started() -> (Log, Engine, Session) {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    let session = Session::of(&log).await;
    (log, store, session)
}

fn reader(n: usize) -> Member {
    Member { id: Uuid::from_u128(100 + n as u128), name: format!("reader {n}"), kind: GroupKind::Pull }
}

fn wants(handler: &str) -> Claim {
    Claim { handlers: vec![(name(handler), 1)], limit: 1, lease: LEASE, worker: "w".into(), ends_with_store: false }
}

/// All of these are answered soon.
async fn answered_soon<T: 'static>(mut crowd: JoinSet<T>, of: &str) -> Vec<T> {
    let (until, mut answers) = (Instant::now() + SOON, Vec::new());
    while !crowd.is_empty() {
        match tokio::time::timeout_at(until.into(), crowd.join_next()).await {
            Ok(answer) => answers.extend(answer.map(|answer| answer.expect("no panic"))),
            Err(_) => panic!("{of}: {} of {CROWD} still wait", crowd.len()),
        }
    }
    answers
}

/// What a process does by itself is done soon.
async fn the_process_goes_on(store: &Engine) {
    let begun = Instant::now();
    for _ in 0..3 {
        let going_on = async {
            store.pulse(None).await.expect("a pulse");
            store.read(Read { after: 0, limit: 10, filter: Filter::default() }).await.expect("a read of the tail");
            store.append(on("o")).await.expect("an append");
        };
        tokio::time::timeout(SOON, going_on).await.expect("the process goes on");
    }
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
}

/// A group that is read in an open transaction over SQL is somebody's: other readers hear it at once, and nobody who reads another group waits.
#[tokio::test]
async fn readers_of_a_group_that_a_transaction_reads_are_told_so_soon() {
    let (_log, store, session) = started().await;
    session.run("SELECT LOG.subscribe('g', NULL); SELECT LOG.subscribe('other', NULL)").await.unwrap();
    store.append(on("o")).await.unwrap();
    session.run("BEGIN; SELECT * FROM LOG.read_next_events('g')").await.unwrap();
    let mut crowd = JoinSet::new();
    for n in 0..CROWD {
        let store: Arc<_> = store.clone();
        crowd.spawn(async move { store.acquire(wish("g", reader(n))).await.unwrap().expect("there is such a group") });
    }
    the_process_goes_on(&store).await;
    let other = tokio::time::timeout(SOON, store.acquire(wish("other", reader(99)))).await.expect("soon");
    assert_eq!(other.unwrap().unwrap().slots.len(), 1);
    for answer in answered_soon(crowd, "reads").await {
        assert!(answer.slots.is_empty());
        assert!(answer.held_by.is_some_and(|owner| owner.member.name.contains("transaction")), "it says who has it");
    }
    session.run("ROLLBACK").await.unwrap();
    assert_eq!(store.acquire(wish("g", reader(1))).await.unwrap().unwrap().slots.len(), 1);
}

/// A rule that is being set in an open transaction has claims find nothing for now, and nothing is forgotten for that.
#[tokio::test]
async fn claims_beside_a_rule_that_is_being_set_find_nothing_soon() {
    let (_log, store, session) = started().await;
    store.enqueue(vec![NewJob::new(name("a"))]).await.unwrap();
    let heard = store.pulse(None).await.unwrap().jobs_sent;
    session.run("BEGIN; SELECT LOG.pause('handler:elsewhere')").await.unwrap();
    let mut crowd = JoinSet::new();
    for _ in 0..CROWD {
        let store: Arc<_> = store.clone();
        crowd.spawn(async move { store.claim(wants("a")).await.unwrap() });
    }
    the_process_goes_on(&store).await;
    assert!(answered_soon(crowd, "claims").await.into_iter().all(|jobs| jobs.is_empty()));
    session.run("ROLLBACK").await.unwrap();
    assert!(store.pulse(None).await.unwrap().jobs_sent > heard, "somebody is to look again");
    assert_eq!(store.claim(wants("a")).await.unwrap().len(), 1);
}

/// However many settle what an open transaction has locked: they wait for it, and the process does not.
#[tokio::test]
async fn calls_that_wait_leave_connections_to_the_process() {
    let (_log, store, session) = started().await;
    store.enqueue(vec![NewJob::new(name("a"))]).await.unwrap();
    let job = store.claim(wants("a")).await.unwrap().remove(0);
    session.run("BEGIN; SELECT number FROM LOG.jobs FOR UPDATE").await.unwrap();
    let mut crowd = JoinSet::new();
    for _ in 0..CROWD {
        let (store, held): (Arc<_>, _) = (store.clone(), Held { id: job.id, fence: job.fence });
        crowd.spawn(async move { store.settle_jobs(vec![JobChange::new(held, JobEnd::Succeeded)]).await });
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    the_process_goes_on(&store).await;
    session.run("ROLLBACK").await.unwrap();
    let done = answered_soon(crowd, "settlements").await;
    assert_eq!(done.into_iter().filter(Result::is_ok).count(), CROWD);
}
