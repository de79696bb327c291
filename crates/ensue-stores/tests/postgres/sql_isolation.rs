//! What one login does stops neither publishing, reading nor jobs of others.

use crate::support::session::Session;
use crate::support::sql::{log, refusal};
use crate::support::{Log, on, whole_log};
use std::time::Duration;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

const WAIT_MAX: Duration = Duration::from_secs(60);

/// 12 kB of `jsonb` that are 16 MB of text: readers get the text.
const BOMB: &str = "(SELECT jsonb_agg('1e16000'::numeric) FROM generate_series(1, 1000))";

async fn run(log: &Log, client: &Client, sql: &str) -> Result<(), tokio_postgres::Error> {
    client.batch_execute(&sql.replace("LOG", &log.schema)).await
}

async fn topics(log: &Log) -> Vec<String> {
    let store = log.open().await;
    while store.release_due(1_000).await.unwrap().count > 0 {}
    let topics = whole_log(&store).await.iter().map(|event| event.topic.to_string()).collect();
    store.close().await;
    topics
}

/// S4: `jsonb` keeps a number with an exponent in a few bytes and writes all of its digits.
#[tokio::test]
async fn payload_that_grows_when_it_is_written_is_refused() {
    let log = log().await;
    let login = log.login(&["publish", "consume", "operate"]).await;
    let event = format!("jsonb_build_array(jsonb_build_object('topic', 't', 'payload', {BOMB}))");
    let text = "ARRAY['[' || repeat('1e16000,', 1000) || '1]']";
    for call in [
        format!("publish('t', {BOMB})"),
        format!("publish('t', '{{}}', metadata => jsonb_build_object('n', {BOMB}))"),
        format!("publish_many({event})"),
        format!("outbox_put(ARRAY['t'], {text}, NULL, NULL, NULL, NULL, NULL, NULL, NULL)"),
        format!("enqueue('h', {BOMB})"),
    ] {
        let refused = run(&log, &login, &format!("SELECT LOG.{call}")).await.expect_err(&call);
        let told = refusal(&refused);
        assert!(told.text.contains("1048576 are allowed"), "{call}: {}", told.text);
    }
    // A number that is as long as its text stays.
    run(&log, &login, "SELECT LOG.publish('kept', '[1e5, 2.5e-3]')").await.unwrap();
    assert_eq!(topics(&log).await, ["kept"]);
}

/// The text that `jsonb` writes has blanks which the text of the caller has not. They do not count.
#[tokio::test]
async fn largest_payload_of_the_library_enters_the_log() {
    let log = log().await;
    let text = "ARRAY['[' || repeat('1,', 520000) || '1]']";
    let put = format!("SELECT LOG.outbox_put(ARRAY['t'], {text}, NULL, NULL, NULL, NULL, NULL, NULL, NULL)");
    log.run(&put).await;
    assert_eq!(topics(&log).await, ["t"]);
    log.run(&format!("{put}; UPDATE LOG.outbox SET occurred_at = 'infinity'")).await;
    assert_eq!(topics(&log).await, ["t"]);
    log.run("SELECT LOG.requeue_rejected(number, occurred_at => now()) FROM LOG.outbox_rejected").await;
    assert_eq!(topics(&log).await, ["t", "t"]);
}

#[tokio::test]
async fn row_of_a_watched_table_that_grows_when_it_is_written_is_refused() {
    let log = log().await;
    let session = Session::of(&log).await;
    session.run("CREATE TABLE LOG_t (id int PRIMARY KEY, n numeric[])").await.unwrap();
    session.run("SELECT LOG.push_table_mutations('LOG_t')").await.unwrap();
    let (_, refused) = session
        .refusal("INSERT INTO LOG_t SELECT 1, array_agg('1e16000'::numeric) FROM generate_series(1, 1000)")
        .await;
    assert!(refused.contains("1048576 are allowed"), "{refused}");
    session.run("INSERT INTO LOG_t VALUES (2, '{1e5}'); DROP TABLE LOG_t").await.unwrap();
    assert_eq!(topics(&log).await.len(), 1);
}

/// A result and an error of a job are as bounded as over HTTP.
#[tokio::test]
async fn worker_stores_no_unbounded_text() {
    let log = log().await;
    let worker = log.login(&["consume", "publish"]).await;
    run(&log, &worker, "SELECT LOG.enqueue('h'); SELECT LOG.enqueue('h')").await.unwrap();
    let claims = format!("SELECT id, claim FROM {}.claim_jobs(ARRAY['h'], 2)", log.schema);
    let claims = worker.query(&claims, &[]).await.unwrap();
    let claim = |n: usize| format!("'{}', '{}'", claims[n].get::<_, String>(0), claims[n].get::<_, String>(1));
    let complete = format!("SELECT LOG.complete_job({}, to_jsonb(repeat('x', 2000000)))", claim(0));
    let refused = refusal(&run(&log, &worker, &complete).await.expect_err("too large"));
    assert!(refused.text.contains("result has 2000002 bytes"), "{}", refused.text);
    run(&log, &worker, &format!("SELECT LOG.complete_job({}, '1')", claim(0))).await.unwrap();
    run(&log, &worker, &format!("SELECT LOG.fail_job({}, repeat('x', 2000000))", claim(1))).await.unwrap();
    let longest = "SELECT max(length(e))::bigint FROM LOG.jobs, unnest(error_texts) e";
    assert_eq!(log.number(longest).await, 16_384);
}

/// The setting counts what a transaction has moved, and any login can set it.
#[tokio::test]
async fn session_setting_of_a_caller_rejects_no_event() {
    let log = log().await;
    let publisher = log.login(&["publish"]).await;
    for topic in ["a", "b"] {
        run(&log, &publisher, &format!("SELECT LOG.publish('{topic}')")).await.unwrap();
    }
    run(&log, &publisher, "SET ensue.logged = '9223372036854775807'; SELECT LOG.poll_for_events()").await.unwrap();
    assert_eq!(log.number("SELECT count(*) FROM LOG.outbox_rejected").await, 0);
    assert_eq!(topics(&log).await, ["a", "b"]);
}

/// A move that fails because the caller's stack is full is an error of the caller, not a fault of the rows.
#[tokio::test]
async fn full_stack_of_a_caller_rejects_no_event() {
    let log = log().await;
    let publisher = log.login(&["publish"]).await;
    let deep = "CREATE FUNCTION pg_temp.deep(n int) RETURNS void LANGUAGE plpgsql AS \
        $$ BEGIN IF n = 0 THEN PERFORM LOG.poll_for_events(); ELSE PERFORM pg_temp.deep(n - 1); END IF; END $$";
    run(&log, &publisher, deep).await.unwrap();
    let (mut moved, mut refused) = (0, 0);
    for depth in (400..1_100).step_by(4) {
        run(&log, &publisher, "SELECT LOG.publish('a')").await.unwrap();
        match run(&log, &publisher, &format!("SELECT pg_temp.deep({depth})")).await {
            Ok(()) => moved += 1,
            Err(error) => {
                assert_eq!(refusal(&error).state, SqlState::STATEMENT_TOO_COMPLEX);
                refused += 1;
            }
        }
    }
    assert!(moved > 10 && refused > 10, "{moved} moved, {refused} refused");
    assert_eq!(log.number("SELECT count(*) FROM LOG.outbox_rejected").await, 0);
    assert_eq!(topics(&log).await.len(), moved + refused);
}

/// Any login of the database can fill the queue of notifications. Then events are found without one. The bound is
/// planted, as to fill the queue takes gigabytes.
#[tokio::test]
async fn full_queue_of_notifications_stops_no_publisher() {
    let log = log().await;
    log.plant("outbox_ring", "< 0.5", "< 0").await;
    log.run("SELECT LOG.publish('a'); SELECT LOG.enqueue('h')").await;
    assert_eq!(topics(&log).await, ["a"]);
}

/// S14: a transaction that claims, and stays open, holds up no other claim of the same handlers.
#[tokio::test]
async fn open_claim_of_one_worker_holds_up_no_other() {
    let log = log().await;
    let (one, other) = (log.login(&["consume"]).await, log.login(&["consume"]).await);
    let claim = "SELECT LOG.claim_jobs(ARRAY['new', 'other'])";
    run(&log, &one, &format!("BEGIN; {claim}")).await.unwrap();
    let claims = async {
        run(&log, &other, claim).await.unwrap();
        let store = log.open().await;
        let handlers = [ensue_core::GroupName::parse("handler", "new").unwrap()];
        store.serve_jobs(&handlers, jiff::SignedDuration::from_secs(60)).await.unwrap();
        store.close().await;
    };
    tokio::time::timeout(WAIT_MAX, claims).await.expect("a claim waits for another one's transaction");
    run(&log, &one, "COMMIT").await.unwrap();
    assert_eq!(log.number("SELECT count(*) FROM LOG.job_servers").await, 2);
}

#[tokio::test]
async fn setting_beyond_all_calendars_is_refused() {
    let log = log().await;
    let operator = log.login(&["operate"]).await;
    for key in ["partition_interval", "future_intervals_to_create", "partition_retention_period"] {
        let set = format!("UPDATE LOG.config SET value = '200000 years' WHERE key = '{key}'");
        let refused = refusal(&run(&log, &operator, &set).await.expect_err(key));
        assert!(refused.text.contains("200000 years"), "{}", refused.text);
        run(&log, &operator, &set.replace("200000", "900")).await.unwrap();
    }
    run(&log, &operator, "SELECT LOG.maintain()").await.unwrap();
    let store = log.open().await;
    store.append(on("o")).await.unwrap();
    store.close().await;
}

/// An event of Ensue itself keeps its reserved topic when it is published again.
#[tokio::test]
async fn rejected_event_of_ensue_can_be_requeued() {
    let log = log().await;
    log.run("SELECT LOG.pause('handler:h')").await;
    log.run("UPDATE LOG.outbox SET occurred_at = 'infinity'").await;
    assert_eq!(topics(&log).await, [""; 0]);
    let requeue = "SELECT sum(LOG.requeue_rejected(number, occurred_at => now()))::bigint FROM LOG.outbox_rejected";
    assert!(log.number(requeue).await >= 1);
    assert_eq!(topics(&log).await, ["ensue.rule.set"]);
}
