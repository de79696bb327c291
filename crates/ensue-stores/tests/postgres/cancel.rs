//! A cancellation whose answer is lost is answered rightly all the same.

use crate::support::wire::{Still, Wire};
use crate::support::{Log, on, open_over};
use ensue_conformance::suite::checked;
use ensue_core::store::{Cancelled, SharedStore};
use ensue_core::{EventId, NewEvent, StoreError};
use ensue_stores::postgres::PostgresOptions;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinHandle;

/// An event that is due in an hour.
async fn delayed(store: &SharedStore) -> EventId {
    let due = store.now().await.unwrap() + jiff::SignedDuration::from_hours(1);
    store.append(checked(vec![NewEvent::new("t").not_before(due)])).await.unwrap()[0].id
}

/// Begins a cancellation, and stops it where it stands in line for the log.
async fn cancel_in_line(log: &Log, store: &SharedStore, id: EventId) -> JoinHandle<Result<Cancelled, StoreError>> {
    log.hold("SELECT LOG.lock_log()").await;
    let store = store.clone();
    let cancel = tokio::spawn(async move { store.cancel(id).await });
    log.until_waiting(1).await;
    cancel
}

/// The server has done it, and its answer never comes. The next try finds nothing to cancel, which is success.
#[tokio::test]
async fn a_cancellation_that_was_done_is_not_called_unknown_because_its_answer_was_lost() {
    let (wire, log) = (Wire::new().await, Log::new().await);
    let store = open_over(&wire, &log, PostgresOptions::default()).await;
    let id = delayed(&store).await;
    let cancel = cancel_in_line(&log, &store, id).await;
    wire.cut_next_answer.store(true, Ordering::SeqCst);
    log.let_go().await;
    assert_eq!(cancel.await.unwrap(), Ok(Cancelled::Gone));
    assert!(!wire.cut_next_answer.load(Ordering::SeqCst), "the answer was swallowed");
    assert_eq!(store.pending(10).await.unwrap(), []);
    assert_eq!(store.cancel(id).await, Ok(Cancelled::Unknown), "who comes later is told that there is no such event");
}

/// The server has done it, its answer never comes, and there is no time left for another try.
#[tokio::test]
async fn a_cancellation_into_a_hang_without_end_says_that_its_fate_is_not_known() {
    let (wire, log) = (Wire::new().await, Log::new().await);
    let (statement_time_max, unavailable_after) = (Duration::from_secs(3), Duration::from_millis(500));
    let options = PostgresOptions { statement_time_max, unavailable_after, ..PostgresOptions::default() };
    let store = open_over(&wire, &log, options).await;
    let id = delayed(&store).await;
    let cancel = cancel_in_line(&log, &store, id).await;
    wire.stand(Still::Answers);
    log.let_go().await;
    log.until("SELECT count(*) FROM LOG.delayed", 0).await;
    let answer = cancel.await.unwrap();
    assert!(matches!(answer, Err(StoreError::InDoubt(_))), "{answer:?}");
}

/// The session ends before it has cancelled anything, and the event enters the log meanwhile.
#[tokio::test]
async fn an_event_that_was_released_before_the_second_try_is_logged_and_not_cancelled() {
    let (wire, log) = (Wire::new().await, Log::new().await);
    let (store, other) = (open_over(&wire, &log, PostgresOptions::default()).await, log.open().await);
    let id = delayed(&store).await;
    release_meanwhile(&wire, &log, &store, &other, id, false).await;
}

/// The same, and retention forgets it before the second try: nobody knows any more what became of it, and that is said.
#[tokio::test]
async fn an_event_that_may_have_been_logged_and_forgotten_is_not_called_cancelled() {
    let (wire, log) = (Wire::new().await, Log::new().await);
    let (store, other) = (open_over(&wire, &log, PostgresOptions::default()).await, log.open().await);
    store.append(on("o")).await.unwrap();
    let id = delayed(&store).await;
    release_meanwhile(&wire, &log, &store, &other, id, true).await;
}

async fn release_meanwhile(
    wire: &Wire,
    log: &Log,
    store: &SharedStore,
    other: &SharedStore,
    id: EventId,
    forget: bool,
) {
    let cancel = cancel_in_line(log, store, id).await;
    wire.stand(Still::BothWays);
    let in_line = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
                   WHERE application_name = 'LOG' AND wait_event = 'relation'";
    assert_eq!(log.number(in_line).await, 1);
    log.until_waiting(0).await;
    log.let_go().await;
    log.run("UPDATE LOG.delayed SET not_before = clock_timestamp()").await;
    let released = other.release_due(10).await.unwrap();
    assert_eq!(released.count, 1);
    if forget {
        other.trim(released.last + 1, 10).await.unwrap();
    }
    wire.stand(Still::Nothing);
    match (cancel.await.unwrap(), forget) {
        (Ok(Cancelled::AlreadyLogged(seq)), false) => assert_eq!(seq, released.last),
        (Err(StoreError::InDoubt(_)), true) => {}
        (other, _) => panic!("{other:?}"),
    }
}
