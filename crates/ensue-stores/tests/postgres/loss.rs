//! The way to the server breaks: nothing is lost, nothing is doubled.

use crate::support::wire::Wire;
use crate::support::{Log, on, open_over, places, whole_log};
use ensue_conformance::history::{Answer, Call, Outcome, Seen, check};
use ensue_conformance::postgres::PrivatePostgres;
use ensue_conformance::suite::checked;
use ensue_core::store::SharedStore;
use ensue_core::{NewEvent, StoreError};
use ensue_stores::postgres::{PostgresOptions, PostgresStore};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

const CLIENTS: usize = 16;
const OBJECTS: usize = 4;

/// Appends one event after another until told to stop, and notes each call.
async fn client(store: SharedStore, number: usize, since: Instant, stop: Arc<AtomicBool>) -> Vec<Call> {
    let mut calls = Vec::new();
    while !stop.load(Ordering::SeqCst) {
        let token = format!("{number}-{}", calls.len());
        let event = NewEvent::new("t").object(format!("o{}", (number + calls.len()) % OBJECTS)).payload(&token);
        let began = since.elapsed();
        let outcome = match store.append(checked(vec![event])).await {
            Ok(told) => Outcome::Acknowledged(
                told.iter().map(|a| Answer { id: a.id, seq: a.seq.expect("not delayed"), prev: a.prev }).collect(),
            ),
            Err(_) => Outcome::Unknown,
        };
        calls.push(Call { began, ended: since.elapsed(), tokens: vec![token], outcome });
    }
    calls
}

/// Runs clients while `trouble` happens; then looks whether history and log agree.
async fn under_load(store: &SharedStore, trouble: impl Future<Output = ()>) {
    let since = Instant::now();
    let stop = Arc::new(AtomicBool::new(false));
    let mut clients = JoinSet::new();
    for number in 0..CLIENTS {
        clients.spawn(client(store.clone(), number, since, stop.clone()));
    }
    trouble.await;
    stop.store(true, Ordering::SeqCst);
    let calls: Vec<Call> = clients.join_all().await.into_iter().flatten().collect();
    assert!(calls.iter().all(|call| matches!(call.outcome, Outcome::Acknowledged(_))), "no call was given up");
    let log = whole_log(store).await;
    let seen: Vec<Seen> = log
        .iter()
        .map(|event| Seen {
            id: event.id,
            seq: event.seq,
            prev: event.prev,
            object: event.object.clone(),
            token: event.payload.as_str().trim_matches('"').to_string(),
        })
        .collect();
    assert_eq!(check(&calls, &seen, 1), []);
    assert_eq!(seen.len(), calls.len(), "every call once");
}

/// Waits until the log has grown by `more`.
async fn until_grown(store: &SharedStore, more: u64) {
    let before = store.bounds().await.unwrap().last;
    while store.bounds().await.unwrap().last < before + more {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_ended_in_the_middle_of_load_lose_and_double_nothing() {
    let log = Log::new().await;
    let store = log.open().await;
    under_load(&store, async {
        for _ in 0..15 {
            until_grown(&store, 50).await;
            assert!(log.end_sessions().await > 0);
        }
        until_grown(&store, 50).await;
    })
    .await;
}

/// The whole server is killed with -9 and started again, under load.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_of_the_database_loses_and_doubles_nothing() {
    let mut server = PrivatePostgres::start().unwrap();
    let options = PostgresOptions { unavailable_after: Duration::from_secs(60), ..PostgresOptions::default() };
    let store: SharedStore = Arc::new(PostgresStore::open(&server.url_with_schema("crash"), options).await.unwrap());
    under_load(&store, async {
        for _ in 0..3 {
            until_grown(&store, 100).await;
            tokio::task::block_in_place(|| {
                server.kill9().unwrap();
                server.restart().unwrap();
            });
        }
        until_grown(&store, 100).await;
    })
    .await;
    store.close().await;
}

/// The session is ended while the append stands in line for the log: nothing was stored, so it is sent again.
#[tokio::test]
async fn an_append_whose_session_ends_before_it_wrote_is_stored_once() {
    let log = Log::new().await;
    let store = log.open().await;
    store.append(on("o")).await.unwrap();
    log.hold("SELECT LOG.lock_log()").await;
    let append = tokio::spawn({
        let store = store.clone();
        async move { store.append(on("o")).await }
    });
    log.until_waiting(1).await;
    log.end_sessions().await;
    log.until_waiting(1).await;
    log.let_go().await;
    let answer = append.await.unwrap().unwrap()[0];
    assert_eq!((answer.seq, answer.prev), (Some(2), Some(1)));
    assert_eq!(places(&whole_log(&store).await), [(1, None), (2, Some(1))]);
}

/// The server stored the batch, and its answer never came. Sent again it would be stored twice; the store finds out, and
/// gives the answer that was lost: to new events, to a repeated key and to a delayed event.
#[tokio::test]
async fn an_append_whose_answer_is_lost_is_stored_once_and_answered_as_it_was_stored() {
    let wire = Wire::new().await;
    let log = Log::new().await;
    let store = open_over(&wire, &log, PostgresOptions::default()).await;
    let known = store.append(checked(vec![NewEvent::new("t").key("known")])).await.unwrap()[0];
    let due = store.now().await.unwrap() + jiff::SignedDuration::from_hours(1);

    wire.cut_next_answer.store(true, Ordering::SeqCst);
    let batch = vec![
        NewEvent::new("t").object("o"),
        NewEvent::new("t").key("known"),
        NewEvent::new("t").object("o").key("new"),
        NewEvent::new("t").object("o").not_before(due),
    ];
    let answers = store.append(checked(batch)).await.unwrap();
    assert!(!wire.cut_next_answer.load(Ordering::SeqCst), "the answer was swallowed");
    let told: Vec<_> = answers.iter().map(|a| (a.seq, a.prev, a.repeated)).collect();
    assert_eq!(told, [(Some(2), None, false), (Some(1), None, true), (Some(3), Some(2), false), (None, None, false)]);
    assert_eq!(answers[1].id, known.id);
    let log_now = whole_log(&store).await;
    assert_eq!(places(&log_now), [(1, None), (2, None), (3, Some(2))]);
    assert_eq!(log_now[1].id, answers[0].id);
    assert_eq!(store.pending(10).await.unwrap().iter().map(|p| p.id).collect::<Vec<_>>(), [answers[3].id]);

    // A batch that is refused whole: its answer is lost too, and comes again.
    wire.cut_next_answer.store(true, Ordering::SeqCst);
    let conflict = store.append(checked(vec![NewEvent::new("other").key("known")])).await.unwrap_err();
    assert_eq!(conflict, StoreError::KeyConflict { key: "known".into() });
    assert_eq!(whole_log(&store).await.len(), 3);
}

/// The batch is stored, its answer is lost, and the next connection is refused for a reason of its own. To take that for a
/// refusal of the batch would answer "not stored", or send it again.
#[tokio::test]
async fn an_open_doubt_outlasts_a_refused_connection() {
    let wire = Wire::new().await;
    let log = Log::new().await;
    let store = open_over(&wire, &log, PostgresOptions::default()).await;
    store.append(on("o")).await.unwrap();
    wire.refuse_next_connection.store(true, Ordering::SeqCst);
    wire.cut_next_answer.store(true, Ordering::SeqCst);
    let answer = store.append(on("o")).await.unwrap()[0];
    assert!(!wire.refuse_next_connection.load(Ordering::SeqCst), "a connection was refused");
    assert_eq!((answer.seq, answer.prev), (Some(2), Some(1)));
    assert_eq!(places(&whole_log(&store).await), [(1, None), (2, Some(1))]);
}

/// The server is away for longer than a call waits.
#[tokio::test]
async fn a_server_that_stays_away_makes_calls_unavailable_and_comes_back_by_itself() {
    let mut server = PrivatePostgres::start().unwrap();
    let options = PostgresOptions { unavailable_after: Duration::from_millis(300), ..PostgresOptions::default() };
    let store: SharedStore = Arc::new(PostgresStore::open(&server.url_with_schema("away"), options).await.unwrap());
    store.append(on("o")).await.unwrap();
    server.kill9().unwrap();
    let begun = Instant::now();
    let mut callers = JoinSet::new();
    for _ in 0..200 {
        let store = store.clone();
        callers.spawn(async move { store.append(on("o")).await });
    }
    for answer in callers.join_all().await {
        // In doubt is what was sent before it was noticed that nobody is there.
        assert!(matches!(answer, Err(StoreError::Unavailable(_) | StoreError::InDoubt(_))), "{answer:?}");
    }
    assert!(matches!(store.append(on("o")).await, Err(StoreError::Unavailable(_))));
    assert!(matches!(store.bounds().await, Err(StoreError::Unavailable(_))));
    assert!(begun.elapsed() < Duration::from_secs(30), "they do not wait one after another");
    server.restart().unwrap();
    let answer = store.append(on("o")).await.unwrap()[0];
    assert_eq!(answer.prev, answer.seq.map(|seq| seq - 1));
    whole_log(&store).await;
    store.close().await;
}
