//! Many callers send jobs at once.

use crate::support::Log;
use crate::support::groups::{Engine, name, open, until_waiting};
use ensue_core::jobs::{Enqueued, NewJob};
use ensue_core::{Jobs, Json, ObjectKey, StoreError};
use ensue_stores::postgres::PostgresOptions;
use std::collections::HashSet;
use tokio::task::JoinHandle;

fn job(payload: usize) -> NewJob {
    NewJob { payload: Json::of("payload", &payload).unwrap(), ..NewJob::new(name("h")) }
}

fn sending(store: &Engine, jobs: Vec<NewJob>) -> JoinHandle<Result<Vec<Enqueued>, StoreError>> {
    let store = store.clone();
    tokio::spawn(async move { store.enqueue(jobs).await })
}

/// Is each of these the job that was sent with this payload?
async fn assert_are(store: &Engine, sent: &[Enqueued], first: usize) {
    for (one, payload) in sent.iter().zip(first..) {
        let job = store.job(one.id).await.unwrap().expect("it was sent");
        assert_eq!(job.payload.as_str(), payload.to_string());
    }
}

#[tokio::test]
async fn what_comes_while_a_commit_is_under_way_goes_with_the_next_and_each_is_answered_for_its_own() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    log.hold("LOCK TABLE LOG.jobs IN SHARE MODE").await;
    let first = sending(&store, vec![job(0)]);
    until_waiting(&log, 1).await;
    let callers: Vec<_> = (1..=40).map(|n| sending(&store, (0..3).map(|of| job(n * 3 + of)).collect())).collect();
    let alone = sending(&store, vec![NewJob { object: Some(ObjectKey::stored("o")), ..job(1_000) }]);
    // The first is slow, so that the others go beside it, together.
    until_waiting(&log, 3).await;
    // Who was first leaves: what is on its way with it stays there, and so do the others.
    first.abort();
    log.let_go().await;
    for (caller, n) in callers.into_iter().zip(1..) {
        let sent = caller.await.unwrap().unwrap();
        assert_eq!(sent.len(), 3);
        assert_are(&store, &sent, n * 3).await;
    }
    assert_are(&store, &alone.await.unwrap().unwrap(), 1_000).await;
    assert_eq!(log.number("SELECT count(*) FROM LOG.jobs").await, 122);
    assert_eq!(
        log.number("SELECT count(*) FROM LOG.job_calls").await,
        3,
        "the first, the others, and what has an object"
    );
}

/// Two commits, and more only beside those that are slow: what comes then waits for one of them.
#[tokio::test]
async fn what_gathers_to_a_lot_goes_beside_what_is_under_way() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    log.hold("LOCK TABLE LOG.jobs IN SHARE MODE").await;
    let batch = |n: usize| sending(&store, (0..100).map(|of| job(n * 100 + of)).collect());
    let mut callers = vec![batch(0)];
    until_waiting(&log, 1).await;
    callers.extend((1..=2).map(batch));
    until_waiting(&log, 2).await;
    callers.extend((3..=8).map(batch));
    tokio::task::yield_now().await;
    log.let_go().await;
    for (caller, n) in callers.into_iter().zip(0..) {
        assert_are(&store, &caller.await.unwrap().unwrap(), n * 100).await;
    }
    assert_eq!(log.number("SELECT count(*) FROM LOG.jobs").await, 900);
    let calls = log.number("SELECT count(*) FROM LOG.job_calls").await;
    assert!((3..=5).contains(&calls), "{calls} commits for what was sent first, beside it, and then");
}

/// H37.
#[tokio::test]
async fn who_sends_what_the_server_refuses_is_refused_alone() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    log.run(
        "CREATE FUNCTION LOG.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no 7'; END $$;
         CREATE TRIGGER refuse BEFORE INSERT ON LOG.jobs FOR EACH ROW WHEN (NEW.payload = '7') EXECUTE FUNCTION LOG.refuse()",
    )
    .await;
    log.hold("LOCK TABLE LOG.jobs IN SHARE MODE").await;
    let first = sending(&store, vec![job(0)]);
    until_waiting(&log, 1).await;
    let callers: Vec<_> = (5..10).map(|n| sending(&store, vec![job(n)])).collect();
    tokio::task::yield_now().await;
    log.let_go().await;
    first.await.unwrap().unwrap();
    for (caller, n) in callers.into_iter().zip(5..) {
        match (n, caller.await.unwrap()) {
            (7, Err(error)) => assert!(error.to_string().contains("no 7"), "{error}"),
            (7, Ok(sent)) => panic!("{sent:?}"),
            (_, sent) => assert_are(&store, &sent.unwrap(), n).await,
        }
    }
}

/// One turn ends while the next caller comes.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn whoever_comes_when_is_answered() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    let callers: Vec<_> = (0..8)
        .map(|_| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut ids = Vec::new();
                for n in 0..100 {
                    ids.extend(store.enqueue(vec![job(n)]).await.unwrap().iter().map(|sent| sent.id));
                }
                ids
            })
        })
        .collect();
    let mut ids = HashSet::new();
    for caller in callers {
        ids.extend(caller.await.unwrap());
    }
    assert_eq!(ids.len(), 800);
    assert_eq!(log.number("SELECT count(*) FROM LOG.jobs").await, 800);
}
