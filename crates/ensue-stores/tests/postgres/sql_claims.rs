//! Claims and leases over SQL: a consumer changes nothing that it does not hold, and nothing that it writes stops others.

use crate::support::Log;
use crate::support::groups::{Engine, open};
use crate::support::session::Session;
use crate::support::sql::{Refusal, refusal};
use ensue_core::jobs::{Job, JobId, JobQuery, JobState};
use ensue_core::tasks::TaskQuery;
use ensue_core::{Jobs, Positions, Rules, Schedules, Store, Timestamp};
use ensue_stores::postgres::PostgresOptions;
use tokio_postgres::Client;

async fn started() -> (Log, Engine, Session) {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    let session = Session::of(&log).await;
    (log, store, session)
}

/// Claims one over SQL: its id and its claim.
async fn claimed(session: &Session, handler: &str) -> (String, String) {
    let rows = session.rows(&format!("SELECT id, claim FROM LOG.claim_jobs(ARRAY['{handler}'])")).await.unwrap();
    (rows[0].get(0), rows[0].get(1))
}

async fn job(store: &Engine, id: &str) -> Job {
    store.job(JobId::parse(id).expect("an id of a job")).await.unwrap().expect("the job is there")
}

fn with_other_digit(text: &str, at: usize) -> String {
    let other = if text.as_bytes()[at] == b'0' { "1" } else { "0" };
    format!("{}{other}{}", &text[..at], &text[at + 1..])
}

async fn refused(client: &Client, log: &Log, sql: &str) -> Refusal {
    let sql = sql.replace("LOG", &log.schema);
    refusal(&client.batch_execute(&sql).await.expect_err(&sql))
}

#[tokio::test]
async fn claims_cannot_be_forged_over_sql() {
    let (log, store, session) = started().await;
    session.run("SELECT LOG.enqueue('a'); SELECT LOG.enqueue('own')").await.unwrap();
    let (id, claim) = claimed(&session, "a").await;
    let (own_id, own) = claimed(&session, "own").await;
    let consumer = log.login(&["consume"]).await;
    let before = job(&store, &id).await;
    let secret = claim.rsplit_once('-').unwrap().1.len();
    let mut forged = vec![own.replace(&own_id, &id)];
    forged.extend((claim.len() - secret..claim.len()).map(|at| with_other_digit(&claim, at)));
    for text in &forged {
        for verb in [
            format!("complete_job('{id}', '{text}', '1', '[{{\"topic\":\"t\"}}]')"),
            format!("fail_job('{id}', '{text}', 'no')"),
            format!("snooze_job('{id}', '{text}', '1 hour')"),
            format!("renew_job('{id}', '{text}')"),
        ] {
            let told = refused(&consumer, &log, &format!("SELECT LOG.{verb}")).await;
            assert!(told.state.code() == "55000" && told.text.contains("lease lost"), "{verb}: {told:?}");
        }
    }
    let told = refused(&consumer, &log, &format!("SELECT LOG.complete_job('{id}', 'claim-1-{id}')")).await;
    assert_eq!(told.state.code(), "22023", "a text without a secret is not a claim");
    assert_eq!(job(&store, &id).await, before);
    session.run(&format!("SELECT LOG.complete_job('{id}', '{claim}')")).await.unwrap();
    assert_eq!(job(&store, &id).await.state, JobState::Succeeded);
}

/// Claims and leases are the same texts over HTTP and over SQL, and no role that consumes can make one.
#[tokio::test]
async fn codes_are_the_same_in_rust_and_sql_and_only_nodes_compute_them() {
    let (log, store, session) = started().await;
    let key = store.store_key().await.unwrap();
    for message in ["", "claim-1-x", "größe '\\ 100%", &"long".repeat(100)] {
        let code = session.text(&format!("SELECT LOG.store_code('{}')", message.replace('\'', "''"))).await;
        assert_eq!(code, key.code(message));
    }
    let other = Log::new().await;
    let other = open(&other.url, PostgresOptions::default()).await;
    assert_ne!(other.store_key().await.unwrap().code("x"), key.code("x"), "each store has a key of its own");
    let consumer = log.login(&["publish", "consume", "operate"]).await;
    for sql in [
        "SELECT * FROM LOG.store_key",
        "SELECT LOG.store_code('claim-1-x')",
        "SELECT LOG.claim_text('x', 1)",
        "SELECT LOG.lease_text(gen_random_uuid(), 1, 1, 1, 1, 1, NULL)",
    ] {
        assert_eq!(refused(&consumer, &log, sql).await.state.code(), "42501", "{sql}");
    }
}

/// The call of `own_put` for a job, with these arguments instead of none.
fn own_put(held: (i64, i64, i64), call: &str, proof: &str, instead: &[(&str, &str)]) -> String {
    const NAMES: &str = "p_now p_group p_member p_slots p_fences p_lane_changes p_lane_keys p_lane_seqs p_line_attempts \
        p_line_at p_line_levels p_line_messages p_chances p_handlers p_objects p_ordered p_payloads p_metadata p_ranks \
        p_not_before p_keys p_attempts_max p_exhausted p_event_seqs p_event_prevs p_event_ids p_event_topics p_relied_seq \
        p_relied_id";
    let value = |name: &str| instead.iter().find(|(known, _)| *known == name).map_or("NULL", |(_, value)| value);
    let others: String = NAMES.split_whitespace().map(|name| format!(", {name} => {}", value(name))).collect();
    let (number, stamp, fence) = held;
    format!(
        "SELECT LOG.own_put(p_call => '{call}', p_number => {number}, p_stamp => {stamp}, p_fence => {fence}, \
         p_proof => {proof}{others})"
    )
}

const CALL: &str = "00000000-0000-4000-8000-000000000001";

/// A job that runs: number, stamp and fence, all of which are public.
async fn running(session: &Session) -> (i64, i64, i64) {
    session.run("SELECT LOG.enqueue('a')").await.unwrap();
    claimed(session, "a").await;
    let row = session.rows("SELECT number, stamp, fence FROM LOG.jobs").await.unwrap().remove(0);
    (row.get(0), row.get(1), row.get(2))
}

#[tokio::test]
async fn consumer_settles_nothing_in_its_own_transaction_that_it_does_not_hold() {
    let (log, store, session) = started().await;
    let held = running(&session).await;
    let consumer = log.login(&["consume"]).await;
    let slots: &[(&str, &str)] = &[
        ("p_group", "'g'"),
        ("p_member", "gen_random_uuid()"),
        ("p_slots", "ARRAY[0]"),
        ("p_fences", "ARRAY[1::bigint]"),
        ("p_lane_changes", "ARRAY[1]"),
        ("p_lane_keys", "ARRAY['o']"),
        ("p_lane_seqs", "ARRAY[1::bigint]"),
    ];
    for proof in ["NULL", "''", "repeat('0', 32)"] {
        for instead in [&[], slots] {
            let told = refused(&consumer, &log, &own_put(held, CALL, proof, instead)).await;
            assert_eq!(told.state.code(), "EN101", "{told:?}");
        }
    }
    assert_eq!(store.jobs(JobQuery::default(), 10).await.unwrap().jobs[0].state, JobState::Running);
    // A proof holds for its own work only.
    let message = |call: &str, number: i64| format!("own-{call}|job|{number}|{}|{}", held.1, held.2);
    let key = store.store_key().await.unwrap();
    let proof = |call: &str, number: i64| format!("'{}'", key.code(&message(call, number)));
    let other = "00000000-0000-4000-8000-000000000002";
    for proof in [proof(other, held.0), proof(CALL, held.0 + 1)] {
        assert_eq!(refused(&consumer, &log, &own_put(held, CALL, &proof, &[])).await.state.code(), "EN101");
    }
    let put = own_put(held, CALL, &proof(CALL, held.0), &[]).replace("LOG", &log.schema);
    consumer.batch_execute(&put).await.unwrap();
    assert_eq!(store.jobs(JobQuery::default(), 10).await.unwrap().jobs[0].state, JobState::Succeeded);
}

/// What `enqueue` refuses is refused here, too, also from a handler that holds what it settles.
#[tokio::test]
async fn jobs_and_lines_of_own_transactions_are_checked() {
    let (log, store, session) = started().await;
    let held = running(&session).await;
    let consumer = log.login(&["consume"]).await;
    let proof = format!(
        "'{}'",
        store.store_key().await.unwrap().code(&format!("own-{CALL}|job|{}|{}|{}", held.0, held.1, held.2))
    );
    let good: Vec<(&str, &str)> = vec![
        ("p_chances", "ARRAY[1]"),
        ("p_handlers", "ARRAY['b']"),
        ("p_payloads", "ARRAY['{}']"),
        ("p_ranks", "ARRAY[1::bigint]"),
        ("p_attempts_max", "ARRAY[5]"),
        ("p_line_attempts", "ARRAY[1]"),
        ("p_line_at", "ARRAY[now()]"),
        ("p_line_levels", "ARRAY['info']"),
        ("p_line_messages", "ARRAY['x']"),
    ];
    for (name, value) in [
        ("p_now", "'infinity'"),
        ("p_chances", "ARRAY[4096]"),
        ("p_chances", "ARRAY[1, 2]"),
        ("p_chances", "NULL"),
        ("p_handlers", "ARRAY['a..b']"),
        ("p_handlers", "ARRAY[NULL]::text[]"),
        ("p_handlers", "array_fill('b'::text, ARRAY[1001])"),
        ("p_handlers", "ARRAY['task.s.c']"),
        ("p_objects", "ARRAY['']"),
        ("p_objects", "ARRAY[E'a\\x07']"),
        ("p_objects", "ARRAY['a', 'b']"),
        ("p_payloads", "ARRAY[NULL]::text[]"),
        ("p_payloads", "ARRAY['nonsense']"),
        ("p_payloads", "ARRAY[to_json(repeat('x', 1100000))::text]"),
        ("p_payloads", "ARRAY[ARRAY['{}']]"),
        ("p_metadata", "ARRAY['[]']"),
        ("p_metadata", "ARRAY['nonsense']"),
        ("p_ranks", "ARRAY[NULL]::bigint[]"),
        ("p_not_before", "ARRAY['infinity'::timestamptz]"),
        ("p_not_before", "ARRAY['-infinity'::timestamptz]"),
        ("p_not_before", "ARRAY['10000-01-01'::timestamptz]"),
        ("p_keys", "ARRAY[repeat('k', 513)]"),
        ("p_attempts_max", "ARRAY[0]"),
        ("p_attempts_max", "ARRAY[NULL]::int[]"),
        ("p_exhausted", "ARRAY['x']"),
        ("p_event_seqs", "ARRAY[1::bigint]"),
        ("p_event_topics", "ARRAY['t']"),
        ("p_event_prevs", "ARRAY[1::bigint]"),
        ("p_line_attempts", "ARRAY[NULL]::int[]"),
        ("p_line_at", "ARRAY['infinity'::timestamptz]"),
        ("p_line_levels", "ARRAY['loud']"),
        ("p_line_levels", "ARRAY['info', 'info']"),
        ("p_line_messages", "ARRAY[repeat('x', 9000)]"),
        ("p_line_messages", "ARRAY[NULL]::text[]"),
    ] {
        let mut bad = vec![(name, value)];
        bad.extend(good.iter().filter(|(known, _)| *known != name));
        let told = refused(&consumer, &log, &own_put(held, CALL, &proof, &bad)).await;
        assert!(["22023", "22P02"].contains(&told.state.code()), "{name} = {value}: {told:?}");
    }
    assert_eq!(log.number("SELECT count(*) FROM LOG.jobs").await, 1);
    let put = own_put(held, CALL, &proof, &good).replace("LOG", &log.schema);
    consumer.batch_execute(&put).await.unwrap();
    assert_eq!(log.number("SELECT count(*) FROM LOG.jobs WHERE handler = 'b' AND state = 'available'").await, 1);
}

#[tokio::test]
async fn repeated_settlement_answers_like_the_first_over_sql() {
    let (log, store, session) = started().await;
    session.run("SELECT LOG.enqueue('a') FROM generate_series(1, 4)").await.unwrap();
    let settlements = [
        ("complete_job('ID', 'CLAIM', '{\"n\":1}', '[{\"topic\":\"t\"}]')", "succeeded"),
        ("fail_job('ID', 'CLAIM', 'no', retry_in => '1 hour')", "retrying"),
        ("fail_job('ID', 'CLAIM', 'no', retry => false)", "dead"),
        ("snooze_job('ID', 'CLAIM', '1 hour')", "scheduled"),
    ];
    for (verb, state) in settlements {
        let (id, claim) = claimed(&session, "a").await;
        let sql = |verb: &str| format!("SELECT LOG.{}", verb.replace("ID", &id).replace("CLAIM", &claim));
        assert_eq!(session.text(&sql(verb)).await, state);
        let settled = job(&store, &id).await;
        assert_eq!(session.text(&sql(verb)).await, state);
        for (other, _) in settlements.iter().filter(|(other, _)| other[..4] != verb[..4]) {
            let (code, message) = session.refusal(&sql(other)).await;
            assert!(code == "55000" && message.contains("lease lost"), "{other} after {verb}: {message}");
        }
        assert_eq!(job(&store, &id).await, settled);
    }
    let published = r#"SELECT count(*) FROM LOG.outbox WHERE events @> '[{"topic":"t"}]'"#;
    assert_eq!(log.number(published).await, 1, "published once");
}

#[tokio::test]
async fn leases_cannot_be_forged_over_sql() {
    let (log, _store, _session) = started().await;
    log.subscribe("'g', 'e.seq > 0'").await;
    log.put("SELECT n, 't', '{}'::jsonb FROM generate_series(1, 5) n").await;
    let read = log.read("'g', chunk_size => 2").await;
    let lease = read[1].lease.clone().unwrap();
    for at in 2..lease.len() {
        let forged = with_other_digit(&lease, at);
        for cursor in [2, 5] {
            let told = log.committing("g", cursor, true, &forged).await.unwrap_err();
            assert_eq!(told.state.code(), "55000", "{at}: {told:?}");
        }
        let told = log.reading(&log.admin, &format!("'g', under => '{forged}'")).await.unwrap_err();
        assert_eq!(told.state.code(), "55000", "{at}: {told:?}");
    }
    assert_eq!(log.cursor("g").await, 0);
    assert_eq!(log.committing("g", 2, true, &lease).await, Ok(2));
}

fn all_tasks() -> TaskQuery {
    let (from, to) = (Timestamp::MIN, Timestamp::MAX);
    TaskQuery { source: "s".into(), collection: None, states: Vec::new(), from, to, after: None }
}

/// Rows that no current program writes: times without end, times before the calendar, and missing values.
#[tokio::test]
async fn odd_rows_do_not_stop_readers() {
    let (log, store, session) = started().await;
    session.run("SELECT LOG.enqueue('a'); SELECT LOG.enqueue('task.s.c')").await.unwrap();
    let columns = ["not_before", "enqueued_at", "locked_at", "started_at", "finished_at", "lease_until"];
    for time in ["infinity", "-infinity", "294276-12-31 23:59:59+00", "4713-01-01 00:00:00+00 BC"] {
        for column in columns {
            for state in ["scheduled", "available", "running", "retrying", "dead", "succeeded"] {
                log.run(&format!(
                    "UPDATE LOG.jobs SET state = '{state}', enqueued_at = now(), not_before = now(), locked_at = NULL, \
                     started_at = NULL, finished_at = NULL, lease_until = NULL, worker = NULL, turn = number; \
                     UPDATE LOG.jobs SET {column} = '{time}', error_attempts = ARRAY[1, NULL], \
                     error_times = ARRAY['{time}'::timestamptz, NULL], error_texts = ARRAY['e', NULL]"
                ))
                .await;
                let page = store.jobs(JobQuery::default(), 10).await.unwrap();
                assert_eq!(page.jobs.len(), 2, "{column} = {time} while {state}");
                store.tasks(all_tasks(), 10).await.unwrap();
                store.wake_jobs(10).await.unwrap();
                store.pulse(None).await.unwrap();
                session.run("SELECT * FROM LOG.claim_jobs(ARRAY['a', 'task.s.c'], 10)").await.unwrap();
            }
        }
    }
    for time in ["infinity", "-infinity"] {
        log.run(&format!(
            "DELETE FROM LOG.rules; DELETE FROM LOG.members; DELETE FROM LOG.job_servers; DELETE FROM LOG.job_lines; \
             INSERT INTO LOG.rules (id, made_by, set_by, created_at, expires_at, kind, scope, author) VALUES \
             (gen_random_uuid(), gen_random_uuid(), gen_random_uuid(), '{time}', '{time}', 'pause', 'handler:z', 'x'); \
             INSERT INTO LOG.job_servers VALUES ('a', '{time}'); \
             INSERT INTO LOG.job_lines (number, line, at, attempt, level, message) VALUES (1, 1, '{time}', 1, 'info', 'x')"
        ))
        .await;
        store.rules().await.unwrap();
        store.job_servers().await.unwrap();
        let id = store.jobs(JobQuery::default(), 1).await.unwrap().jobs[0].id;
        assert_eq!(store.job_lines(id, 0, 10).await.unwrap().len(), 1);
        store.groups().await.unwrap();
        store.next_schedule().await.unwrap();
    }
}
