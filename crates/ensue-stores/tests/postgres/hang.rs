//! The server hangs: it neither answers nor hangs up. Nobody waits for ever, nothing is lost, nothing is doubled.

use crate::support::wire::{Still, Wire};
use crate::support::{Log, WAIT_MAX, on, open_over, places, whole_log};
use ensue_conformance::postgres::{PrivatePostgres, signal};
use ensue_conformance::suite::checked;
use ensue_core::store::{Read, SharedStore};
use ensue_core::{EventId, Filter, NewEvent, ObjectKey, StoreError, Timestamp};
use ensue_stores::postgres::PostgresOptions;
use std::collections::HashSet;
use std::time::Duration;
use tokio::task::JoinSet;

/// Long enough for any statement here on a slow machine, and short enough to wait for.
const STATEMENT_TIME_MAX: Duration = Duration::from_millis(1_000);

/// The process of the session that appended last.
const WRITER: &str =
    "SELECT pid::bigint FROM pg_stat_activity WHERE application_name = 'LOG' AND query LIKE '%.append(%'";

/// Gives up soon.
fn impatient() -> PostgresOptions {
    let unavailable_after = Duration::from_millis(1_000);
    PostgresOptions {
        statement_time_max: STATEMENT_TIME_MAX,
        unavailable_after,
        readers_max: 2,
        ..PostgresOptions::default()
    }
}

/// Notices soon that a connection hangs, and goes on trying.
fn persistent() -> PostgresOptions {
    PostgresOptions { unavailable_after: Duration::from_secs(60), ..impatient() }
}

fn unavailable<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    assert!(matches!(answer, Err(StoreError::Unavailable(_))), "{answer:?}");
}

fn in_doubt<T: std::fmt::Debug>(answer: Result<T, StoreError>) {
    assert!(matches!(answer, Err(StoreError::InDoubt(_))), "{answer:?}");
}

/// Appends in the background.
fn append(store: &SharedStore) -> tokio::task::JoinHandle<Result<Vec<ensue_core::Appended>, StoreError>> {
    let store = store.clone();
    tokio::spawn(async move { store.append(on("o")).await })
}

#[tokio::test]
async fn every_call_to_a_server_that_hangs_ends_and_works_again_when_it_goes_on() {
    let (wire, log) = (Wire::new().await, Log::new().await);
    let store = open_over(&wire, &log, impatient()).await;
    store.append(on("o")).await.unwrap();
    let read = || store.read(Read { after: 0, limit: 10, filter: Filter::default() });
    read().await.unwrap();

    wire.stand(Still::BothWays);
    let nobody = EventId(uuid::Uuid::nil());
    unavailable(read().await);
    let object = ObjectKey::stored("o");
    let of_object = Filter { object: Some(object.clone()), ..Filter::default() };
    unavailable(store.read(Read { after: 0, limit: 10, filter: of_object.clone() }).await);
    unavailable(store.chain(&object, None, 10).await);
    unavailable(store.event(1).await);
    unavailable(store.find(nobody).await);
    unavailable(store.pending(10).await);
    unavailable(store.bounds().await);
    unavailable(store.seq_before(Timestamp::UNIX_EPOCH).await);
    unavailable(store.bytes().await);
    unavailable(store.now().await);
    unavailable(store.ready().await);
    unavailable(store.release_due(10).await);
    unavailable(store.cancel(nobody).await);
    unavailable(store.trim(1, 10).await);
    unavailable(store.purge_keys(10).await);
    in_doubt(store.append(on("o")).await);
    // More at once than there are connections.
    let mut readers = JoinSet::new();
    for _ in 0..20 {
        let store = store.clone();
        readers.spawn(async move { store.bounds().await });
    }
    readers.join_all().await.into_iter().for_each(unavailable);

    wire.stand(Still::Nothing);
    let last = store.append(on("o")).await.unwrap()[0];
    let events = whole_log(&store).await;
    assert!((2..=3).contains(&events.len()), "the one whose fate was open is there once, or not at all: {events:?}");
    assert_eq!(Some(events[events.len() - 1].seq), last.seq);
    store.close().await;
}

/// A statement may take an hour, and only the connection that writes is silent: what was sent on it is found, or sent again,
/// on another one.
#[tokio::test]
async fn one_silent_connection_does_not_stall_publishing() {
    for still in [Still::BothWays, Still::Answers] {
        let (wire, log) = (Wire::new().await, Log::new().await);
        let statement_time_max = Duration::from_secs(3_600);
        let store = open_over(&wire, &log, PostgresOptions { statement_time_max, ..PostgresOptions::default() }).await;
        store.append(on("o")).await.unwrap();
        wire.stand_where_open(still);
        let answer = tokio::time::timeout(WAIT_MAX, store.append(on("o"))).await.expect("it is answered soon");
        assert_eq!(answer.unwrap()[0].seq, Some(2));
        assert_eq!(store.append(on("o")).await.unwrap()[0].seq, Some(3));
        wire.stand(Still::Nothing);
        assert_eq!(places(&whole_log(&store).await), [(1, None), (2, Some(1)), (3, Some(2))]);
    }
}

/// A server that answers on no connection: a publish fails soon, whatever the statement limit is.
#[tokio::test]
async fn server_that_answers_on_no_connection_is_taken_to_be_away() {
    let (wire, log) = (Wire::new().await, Log::new().await);
    let statement_time_max = Duration::from_secs(3_600);
    let store = open_over(&wire, &log, PostgresOptions { statement_time_max, ..impatient() }).await;
    store.append(on("o")).await.unwrap();
    wire.stand(Still::BothWays);
    in_doubt(tokio::time::timeout(WAIT_MAX, store.append(on("o"))).await.expect("it is answered soon"));
}

/// A session that is at work is waited for, however long that takes.
#[tokio::test]
async fn session_at_work_is_waited_for() {
    let log = Log::new().await;
    let store = log.open_with(PostgresOptions::default()).await;
    store.append(on("o")).await.unwrap();
    let process = log.number(WRITER).await;
    log.run(
        "CREATE FUNCTION LOG.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(4); RETURN NULL; END $$; \
         CREATE TRIGGER slow AFTER INSERT ON LOG.stored_events EXECUTE FUNCTION LOG.slow()",
    )
    .await;
    assert_eq!(store.append(on("o")).await.unwrap()[0].seq, Some(2));
    assert_eq!(log.number(WRITER).await, process, "its connection was given up");
}

/// Those who wait in the queue have waited long enough when it is known that the server is away: each of them would
/// otherwise try anew, one after another.
#[tokio::test]
async fn who_stands_in_line_while_the_server_hangs_does_not_wait_for_each_before_him() {
    let (wire, log) = (Wire::new().await, Log::new().await);
    let store = open_over(&wire, &log, impatient()).await;
    store.append(on("o")).await.unwrap();
    wire.stand(Still::BothWays);
    let opened = wire.opened();
    let mut in_line = JoinSet::new();
    for _ in 0..10 {
        let store = store.clone();
        // The same key: each is a commit of its own.
        in_line.spawn(async move { store.append(checked(vec![NewEvent::new("t").key("k")])).await });
    }
    let answers = in_line.join_all().await;
    let (sent, waited): (Vec<_>, Vec<_>) = answers.into_iter().partition(|a| matches!(a, Err(StoreError::InDoubt(_))));
    assert_eq!((sent.len(), waited.len()), (1, 9));
    waited.into_iter().for_each(unavailable);
    let tried = wire.opened() - opened;
    assert!(tried < 5, "ten commits have tried to connect {tried} times");
}

/// The append of which nobody heard any more is answered, and says what is not known.
#[tokio::test]
async fn an_append_into_a_hang_without_end_says_that_its_fate_is_not_known() {
    for still in [Still::Answers, Still::BothWays] {
        let (wire, log) = (Wire::new().await, Log::new().await);
        let store = open_over(&wire, &log, impatient()).await;
        store.append(on("o")).await.unwrap();
        wire.stand(still);
        in_doubt(store.append(on("o")).await);
        // Nothing of it is tried again behind the caller's back.
        wire.stand(Still::Nothing);
        let last = store.append(on("o")).await.unwrap()[0].seq;
        let events = whole_log(&store).await;
        assert_eq!(events.last().map(|event| event.seq), last);
        assert!(events.len() <= 3, "{events:?}");
        if still == Still::Answers {
            assert_eq!(events.len(), 3, "the server had it");
        }
    }
}

/// The hang ends after the store has given its connection up: what was on its way reaches the server then, beside the
/// new connection on which the store looks for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_append_into_a_hang_that_ends_is_stored_once() {
    let (wire, log) = (Wire::new().await, Log::new().await);
    let store = open_over(&wire, &log, persistent()).await;
    store.append(on("o")).await.unwrap();
    for round in 0..6 {
        wire.stand(if round % 2 == 0 { Still::BothWays } else { Still::Answers });
        let closed = wire.closed();
        let append = append(&store);
        wire.until_closed_more_than(closed).await;
        wire.stand(Still::Nothing);
        let answer = append.await.unwrap().unwrap()[0];
        assert_eq!((answer.seq, answer.prev), (Some(round + 2), Some(round + 1)));
        assert_eq!(whole_log(&store).await.len() as u64, round + 2, "round {round}");
    }
}

/// The network delivers what was sent long after the store has sent it again on another connection. The session at its
/// end is gone by then.
#[tokio::test]
async fn what_arrives_late_on_a_connection_that_was_given_up_is_not_stored_again() {
    let (wire, log) = (Wire::new().await, Log::new().await);
    let store = open_over(&wire, &log, persistent()).await;
    store.append(on("o")).await.unwrap();
    let process = log.number(WRITER).await;
    wire.stand_where_open(Still::BothWays);
    let answer = store.append(on("o")).await.unwrap()[0];
    assert_eq!((answer.seq, answer.prev), (Some(2), Some(1)));
    wire.stand(Still::Nothing);
    log.until(&format!("SELECT count(*) FROM pg_stat_activity WHERE pid = {process}"), 0).await;
    assert_eq!(places(&whole_log(&store).await), [(1, None), (2, Some(1))]);
}

/// The time to find out what became of an append begins when its connection is given up, however long it was waited for.
#[tokio::test]
async fn an_append_that_took_all_its_time_is_still_looked_for() {
    let (wire, log) = (Wire::new().await, Log::new().await);
    let (statement_time_max, unavailable_after) = (Duration::from_secs(6), Duration::from_secs(5));
    let store = open_over(&wire, &log, PostgresOptions { statement_time_max, unavailable_after, ..impatient() }).await;
    store.append(on("o")).await.unwrap();
    wire.stand(Still::Answers);
    let closed = wire.closed();
    let append = append(&store);
    wire.until_closed_more_than(closed).await;
    wire.stand(Still::Nothing);
    assert_eq!(append.await.unwrap().unwrap()[0].seq, Some(2));
    assert_eq!(whole_log(&store).await.len(), 2);
}

/// The process of the session that writes is stopped. It may still store what it was sent, so nothing is sent again
/// before it is gone.
#[tokio::test]
async fn an_append_to_a_stopped_session_waits_until_that_session_is_gone() {
    let server = PrivatePostgres::start().unwrap();
    let log = Log::in_database(&server.url()).await;
    let options = PostgresOptions { statement_time_max: Duration::from_secs(3), ..persistent() };
    let store = log.open_with(options).await;
    store.append(on("o")).await.unwrap();
    let process = log.number(WRITER).await as u32;
    signal("STOP", process);
    let append = append(&store);
    let sessions = "SELECT pid FROM pg_stat_activity WHERE application_name = $1 AND query LIKE '%terminate_backend%'";
    let mut tries = HashSet::new();
    while tries.len() < 2 {
        assert!(!append.is_finished(), "answered while the stopped session is there");
        let rows = log.admin.query(sessions, &[&log.schema]).await.unwrap();
        tries.extend(rows.iter().map(|row| row.get::<_, i32>(0)));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    signal("CONT", process);
    let answer = append.await.unwrap().unwrap()[0];
    assert_eq!((answer.seq, answer.prev), (Some(2), Some(1)));
    assert_eq!(places(&whole_log(&store).await), [(1, None), (2, Some(1))]);
    store.close().await;
}

/// The server is well, but somebody holds the log for longer than a statement may take: the server says so itself, and
/// that nothing was stored is known.
#[tokio::test]
async fn a_statement_that_stands_in_line_for_too_long_is_ended_by_the_server() {
    let log = Log::new().await;
    // The server has four fifths of the time: the rest must be enough for its word to come, also on a busy machine.
    let options = PostgresOptions { statement_time_max: Duration::from_secs(6), ..impatient() };
    let store = log.open_hasty(options).await;
    store.append(on("o")).await.unwrap();
    log.hold("SELECT LOG.lock_log()").await;
    let told = |error: StoreError| {
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
        assert!(error.to_string().contains("57014"), "{error}");
    };
    told(store.append(on("o")).await.unwrap_err());
    told(store.trim(1, 10).await.unwrap_err());
    log.until_waiting(0).await;
    log.let_go().await;
    assert_eq!(store.append(on("o")).await.unwrap()[0].seq, Some(2), "nothing was stored after all");
}

/// Callers who go away leave statements behind that stand in line for the log. They do not take the pool with them, nor
/// the server's connections.
#[tokio::test]
async fn statements_that_nobody_waits_for_any_more_leave_the_pool_and_the_server() {
    let log = Log::new().await;
    let statement_time_max = Duration::from_secs(3_600);
    let store =
        log.open_with(PostgresOptions { readers_max: 2, statement_time_max, ..PostgresOptions::default() }).await;
    store.append(on("o")).await.unwrap();
    log.hold("SELECT LOG.lock_log()").await;
    for _ in 0..3 {
        let mut callers = JoinSet::new();
        for _ in 0..2 {
            let store = store.clone();
            callers.spawn(async move { store.trim(1, 10).await });
        }
        log.until_waiting(2).await;
        callers.shutdown().await;
        let bounds = tokio::time::timeout(WAIT_MAX, store.bounds()).await.expect("reads go on");
        assert_eq!(bounds.unwrap().last, 1);
        log.until_waiting(0).await;
    }
    log.let_go().await;
    assert_eq!(whole_log(&store).await.len(), 1);
}
