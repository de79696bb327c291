//! Work, rules and upkeep from plain SQL: the same queue, rules and log as over HTTP.

use crate::support::Log;
use crate::support::groups::{Engine, LEASE, handler_group, name, open};
use crate::support::session::Session;
use ensue_core::jobs::{Claim, Held, Job, JobChange, JobEnd, JobId, JobSettled, JobState, NewJob};
use ensue_core::rules::{RuleKind, Scope};
use ensue_core::store::SharedStore;
use ensue_core::{Entry, Jobs, NewEvent, ObjectKey, Rules, Store};
use ensue_stores::postgres::PostgresOptions;
use jiff::SignedDuration;
use std::sync::Arc;
use std::time::Duration;

async fn started() -> (Log, Engine, Session) {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    let session = Session::of(&log).await;
    (log, store, session)
}

fn wants(handler: &str, limit: usize) -> Claim {
    Claim { handlers: vec![(name(handler), limit)], limit, lease: LEASE, worker: "w".into(), ends_with_store: false }
}

fn about(handler: &str, object: &str) -> NewJob {
    NewJob { object: Some(ObjectKey::stored(object)), ..NewJob::new(name(handler)) }
}

/// Claims one over SQL: its id and its claim.
async fn claimed(session: &Session, handler: &str) -> Option<(String, String)> {
    let rows = session.rows(&format!("SELECT id, claim FROM LOG.claim_jobs(ARRAY['{handler}'])")).await.unwrap();
    rows.first().map(|row| (row.get(0), row.get(1)))
}

async fn job(store: &Engine, id: &str) -> Job {
    store.job(JobId::parse(id).expect("an id of a job")).await.unwrap().expect("the job is there")
}

async fn done(store: &Engine, job: &Job) -> JobSettled {
    let held = Held { id: job.id, fence: job.fence };
    store.settle_jobs(vec![JobChange::new(held, JobEnd::Succeeded)]).await.unwrap().remove(0)
}

/// H10: a job is sent with the data, or not at all.
#[tokio::test]
async fn a_job_that_is_sent_in_a_transaction_shares_its_fate() {
    let (_log, store, session) = started().await;
    session.run("BEGIN").await.unwrap();
    let kept = session.text("SELECT LOG.enqueue('mail.send', '{\"to\": 1}', priority => 18446744073709551615)").await;
    assert_eq!(store.claim(wants("mail.send", 9)).await.unwrap(), [], "nobody sees it before the commit");
    session.run("COMMIT; BEGIN; SELECT LOG.enqueue('mail.send'); ROLLBACK").await.unwrap();
    session.run("SELECT LOG.enqueue('größe.ändern')").await.unwrap();
    let taken = store.claim(wants("mail.send", 9)).await.unwrap();
    assert_eq!(taken.len(), 1);
    assert_eq!((taken[0].id.to_string(), taken[0].payload.as_str()), (kept.clone(), "{\"to\": 1}"));
    assert_eq!((taken[0].priority, taken[0].attempts_max), (u64::MAX, 5));
    assert!(matches!(done(&store, &taken[0]).await, JobSettled::Done { .. }));
    assert_eq!(job(&store, &kept).await.state, JobState::Succeeded);
}

/// H21: a job for a collection is one of its tasks, in whatever letters its names are written; others are as they were sent.
#[tokio::test]
async fn a_task_that_is_sent_has_the_key_and_the_priority_of_tasks() {
    let (_log, store, session) = started().await;
    for (handler, key) in [("task.s.c", "schedule:s.c"), ("task.größe.ü_-1", "schedule:größe.ü_-1")] {
        let sent = session.text(&format!("SELECT LOG.enqueue('{handler}', unique_key => 'mine')")).await;
        assert_eq!(session.text(&format!("SELECT LOG.enqueue('{handler}', priority => 7)")).await, sent);
        let task = job(&store, &sent).await;
        assert_eq!((task.unique_key.as_deref(), task.priority), (Some(key), 100));
    }
    let long = "x".repeat(101);
    for handler in ["task.s", "task.s.c.d", "task.s.a@b", &format!("task.s.{long}")] {
        let sent = session.text(&format!("SELECT LOG.enqueue('{handler}', unique_key => 'mine')")).await;
        let other = job(&store, &sent).await;
        assert_eq!((other.unique_key.as_deref(), other.priority), (Some("mine"), 0), "{handler}");
    }
}

/// H23: however long the transaction takes that sent it, jobs of the same object and handler, and rules, do not wait for it.
#[tokio::test]
async fn a_long_transaction_that_sends_jobs_holds_nobody_up() {
    let (log, store, session) = started().await;
    let other = Session::of(&log).await;
    other.run("SET lock_timeout = '2s'").await.unwrap();
    session
        .run("BEGIN; SELECT LOG.enqueue('a', object => 'o'); SELECT LOG.enqueue('a', unique_key => 'k')")
        .await
        .unwrap();
    other
        .run("SELECT LOG.enqueue('a', object => 'o'); SELECT LOG.enqueue('a', unique_key => 'another')")
        .await
        .unwrap();
    other.run("SELECT LOG.pause('object:o'); SELECT LOG.resume('object:o')").await.unwrap();
    store.enqueue(vec![about("a", "o")]).await.unwrap();
    let (id, claim) = claimed(&other, "a").await.expect("one is there");
    other.run(&format!("SELECT LOG.complete_job('{id}', '{claim}')")).await.unwrap();
    session.run("COMMIT").await.unwrap();
}

/// Claims a job that has one attempt, and lets the lease run out if its worker is to vanish.
async fn doomed(log: &Log, session: &Session, handler: &str, vanishes: bool) -> (String, String) {
    session.run(&format!("SELECT LOG.enqueue('{handler}', attempts_max => 1)")).await.unwrap();
    let taken = claimed(session, handler).await.expect("it is there");
    if vanishes {
        log.run(&format!("UPDATE LOG.jobs SET lease_until = clock_timestamp() WHERE handler = '{handler}'")).await;
    }
    taken
}

/// H23, H34: nobody who publishes waits for a transaction that sets a rule or sees a job die. What it tells is in the log when it has committed, before what
/// anybody publishes then.
#[tokio::test]
async fn a_long_transaction_of_which_the_log_tells_holds_no_publisher_up() {
    let (log, store, session) = started().await;
    session.run("SELECT LOG.pause('handler:p'); SELECT LOG.block('handler:b')").await.unwrap();
    let (id, claim) = doomed(&log, &session, "fails", false).await;
    doomed(&log, &session, "vanishes", true).await;
    let told = "SELECT count(*) FROM LOG.stored_events WHERE topic LIKE 'ensue.%'";
    store.append(crate::support::on("o")).await.unwrap();
    let mut count = log.number(told).await;
    assert_eq!(count, 2, "two rules");
    for (sql, tells) in [
        ("SELECT LOG.pause('handler:h')".to_owned(), "ensue.rule.set"),
        ("SELECT LOG.block('object:x')".to_owned(), "ensue.rule.set"),
        ("SELECT LOG.resume('handler:p')".to_owned(), "ensue.rule.lifted"),
        ("SELECT LOG.unblock('handler:b')".to_owned(), "ensue.rule.lifted"),
        (format!("SELECT LOG.fail_job('{id}', '{claim}', 'no route')"), "ensue.job.dead"),
        ("SELECT LOG.claim_jobs(ARRAY['other'])".to_owned(), "ensue.job.dead"),
    ] {
        session.run(&format!("BEGIN; {sql}")).await.unwrap();
        let append = tokio::time::timeout(Duration::from_secs(5), store.append(crate::support::on("o"))).await;
        append.unwrap_or_else(|_| panic!("a publisher waits for {sql}")).unwrap();
        assert_eq!(log.number(told).await, count, "{sql} has not committed");
        session.run("COMMIT").await.unwrap();
        let after = store.append(crate::support::on("o")).await.unwrap()[0].seq.unwrap();
        count += 1;
        assert_eq!(log.number(told).await, count, "{sql}");
        let newest = format!("SELECT topic FROM LOG.stored_events WHERE seq = {}", after - 1);
        assert_eq!(session.text(&newest).await, tells, "{sql}");
    }
    assert_eq!(crate::support::whole_log(&(store as SharedStore)).await.len(), 2 + 6 + 1 + 12);
}

/// What is told of one scope is in the order in which it happened, through whichever door.
#[tokio::test]
async fn what_is_told_of_a_rule_is_in_order_through_both_doors() {
    let (log, store, session) = started().await;
    let scope = Scope::parse("handler:h").unwrap();
    for _ in 0..5 {
        session.run("SELECT LOG.pause('handler:h')").await.unwrap();
        store.lift_rule(RuleKind::Pause, &scope, "ada").await.unwrap().expect("it is there");
    }
    let wrong = "SELECT count(*) FROM LOG.stored_events WHERE topic <> CASE seq % 2 WHEN 1 THEN 'ensue.rule.set' ELSE 'ensue.rule.lifted' END";
    assert_eq!(log.number(wrong).await, 0);
    assert_eq!(log.number("SELECT count(*) FROM LOG.stored_events WHERE object = 'rule:handler:h'").await, 10);
}

/// H34 for jobs: what was committed before comes before, through whichever door.
#[tokio::test]
async fn jobs_of_one_object_run_in_the_order_in_which_they_were_sent_through_both_doors() {
    let (_log, store, session) = started().await;
    let mut sent = Vec::new();
    for n in 0..6 {
        match n % 2 {
            0 => sent.push(session.text("SELECT LOG.enqueue('a', object => 'o')").await),
            _ => sent.push(store.enqueue(vec![about("a", "o")]).await.unwrap()[0].id.to_string()),
        }
    }
    let mut ran = Vec::new();
    while ran.len() < sent.len() {
        store.wake_jobs(100).await.unwrap();
        let taken = store.claim(wants("a", 9)).await.unwrap();
        assert_eq!(taken.len(), 1, "one at a time: {ran:?} of {sent:?}");
        ran.push(taken[0].id.to_string());
        assert!(matches!(done(&store, &taken[0]).await, JobSettled::Done { .. }));
    }
    assert_eq!(ran, sent);
}

#[tokio::test]
async fn a_key_is_one_job_also_when_two_transactions_send_it_at_once() {
    let (log, store, session) = started().await;
    let other = Session::of(&log).await;
    session.run("BEGIN").await.unwrap();
    let first = session.text("SELECT LOG.enqueue('a', unique_key => 'k')").await;
    let second = tokio::spawn(async move { other.text("SELECT LOG.enqueue('a', unique_key => 'k')").await });
    let (here, keyed) = (store.clone(), NewJob { unique_key: Some("k".into()), ..NewJob::new(name("a")) });
    let third = tokio::spawn(async move { here.enqueue(vec![keyed]).await.unwrap().remove(0) });
    log.until("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'", 2).await;
    session.run("COMMIT").await.unwrap();
    assert_eq!(second.await.unwrap(), first);
    let third = third.await.unwrap();
    assert_eq!((third.id.to_string(), third.is_new), (first, false));
    assert_eq!(log.number("SELECT count(*) FROM LOG.jobs").await, 1);
}

/// H16: a worker whose lease has passed, and who comes back, changes nothing.
#[tokio::test]
async fn a_stale_claim_changes_nothing_and_is_told() {
    let (log, store, session) = started().await;
    let id = session.text("SELECT LOG.enqueue('a', attempts_max => 2)").await;
    let rows = session.rows("SELECT claim FROM LOG.claim_jobs(ARRAY['a'], lease => '100 milliseconds')").await.unwrap();
    let stale: String = rows[0].get(0);
    log.until("SELECT count(*) FROM LOG.jobs WHERE lease_until < clock_timestamp()", 1).await;
    let (again, claim) = claimed(&session, "a").await.expect("it is taken from who has vanished");
    assert_eq!((again.as_str(), job(&store, &id).await.attempts), (id.as_str(), 2), "attempts are counted at claim");
    for verb in [
        format!("complete_job('{id}', '{stale}', '1', '[{{\"topic\":\"t\"}}]')"),
        format!("fail_job('{id}', '{stale}', 'no')"),
        format!("snooze_job('{id}', '{stale}', '1 hour')"),
        format!("renew_job('{id}', '{stale}')"),
    ] {
        let (code, message) = session.refusal(&format!("SELECT LOG.{verb}")).await;
        assert!(
            code == "55000" && message.contains("lease lost") && message.contains("nothing was changed"),
            "{message}"
        );
    }
    assert_eq!(log.number("SELECT count(*) FROM LOG.outbox").await, 0);
    assert_eq!(job(&store, &id).await.state, JobState::Running);
    // It has no attempt left: dead, with its reason, and told of (H12).
    assert_eq!(session.text(&format!("SELECT LOG.fail_job('{id}', '{claim}', 'no route')")).await, "dead");
    let dead = job(&store, &id).await;
    assert_eq!(dead.errors.last().map(|last| last.error.as_str()), Some("no route"));
    session.run("SELECT LOG.poll_for_events()").await.unwrap();
    assert_eq!(log.number("SELECT count(*) FROM LOG.stored_events WHERE topic = 'ensue.job.dead'").await, 1);
}

#[tokio::test]
async fn what_a_worker_says_leads_where_it_leads_over_http() {
    let (log, store, session) = started().await;
    session.run("SELECT LOG.enqueue('a') FROM generate_series(1, 4)").await.unwrap();
    let mut claims = Vec::new();
    while let Some(claim) = claimed(&session, "a").await {
        claims.push(claim);
    }
    let [(a, ca), (b, cb), (c, cc), (d, cd)] = claims.try_into().expect("four");
    let events = "[{\"topic\":\"mail.sent\",\"object\":\"o\"}]";
    assert_eq!(
        session.text(&format!("SELECT LOG.complete_job('{a}', '{ca}', '{{\"n\":1}}', '{events}')")).await,
        "succeeded"
    );
    assert_eq!(
        session.text(&format!("SELECT LOG.fail_job('{b}', '{cb}', 'no', retry_in => '1 hour')")).await,
        "retrying"
    );
    assert_eq!(session.text(&format!("SELECT LOG.snooze_job('{c}', '{cc}', '1 hour')")).await, "scheduled");
    assert_eq!(session.text(&format!("SELECT LOG.cancel_job('{d}')")).await, "running", "its worker is told");
    assert_eq!(session.text(&format!("SELECT cancel FROM LOG.renew_job('{d}', '{cd}')")).await, "true");
    assert_eq!(session.text(&format!("SELECT LOG.fail_job('{d}', '{cd}', 'stopped')")).await, "cancelled");
    assert_eq!(job(&store, &a).await.result.map(|result| result.as_str().to_owned()), Some("{\"n\": 1}".into()));
    assert_eq!((job(&store, &b).await.attempts, job(&store, &c).await.attempts), (1, 0), "a snooze uses up none");
    let waits = job(&store, &b).await.not_before.unwrap().duration_since(store.now().await.unwrap());
    assert!(waits > SignedDuration::from_mins(59) && waits <= SignedDuration::from_hours(1), "{waits}");
    assert_eq!(session.text(&format!("SELECT LOG.retry_job('{b}')")).await, "available");
    let (code, message) = session.refusal(&format!("SELECT LOG.skip_job('{a}')")).await;
    assert!(code == "55000" && message.contains("it is over: nothing is left to skip"), "{message}");
    assert_eq!(log.number(r#"SELECT count(*) FROM LOG.outbox WHERE events @> '[{"topic":"mail.sent"}]'"#).await, 1);
}

/// Jobs are sent in the transaction of the completion: once, whatever is repeated, and none if one is wrong.
#[tokio::test]
async fn completion_sends_jobs_once_and_all_or_none() {
    let (log, _store, session) = started().await;
    session.run("SELECT LOG.enqueue('a')").await.unwrap();
    let (id, claim) = claimed(&session, "a").await.expect("a job");
    let complete = |jobs: &str| format!("SELECT LOG.complete_job('{id}', '{claim}', NULL, NULL, '{jobs}')");
    for (jobs, named) in [
        (r#"[{"handler":"next"},{"handler":"a..b"}]"#, "handler"),
        (r#"[{"handler":"next"},{"handlr":"b"}]"#, "jobs[1].handlr is not a field"),
        (r#"[{"handler":"next","priority":"high"}]"#, "jobs[0].priority must be a number"),
        (r#"[{"handler":"next","attempts_max":1e30}]"#, "jobs[0].attempts_max"),
        (r#"[{"handler":"next","not_before":"soon"}]"#, "not_before"),
        (r#"[7]"#, "jobs[0] must be a JSON object"),
        (r#"{"handler":"next"}"#, "jobs must be a JSON array"),
    ] {
        let (code, message) = session.refusal(&complete(jobs)).await;
        assert!(code == "22023" && message.contains(named), "{jobs}: {code} {message}");
    }
    let jobs = r#"[{"handler":"next","payload":{"n":null},"object":null,"priority":7,"metadata":{"a":1}},{"handler":"next","ordered":false}]"#;
    for _ in 0..2 {
        assert_eq!(session.text(&complete(jobs)).await, "succeeded");
    }
    assert_eq!(log.number("SELECT count(*) FROM LOG.jobs WHERE handler = 'next'").await, 2, "sent once");
    let first = "SELECT payload || metadata FROM LOG.jobs WHERE handler = 'next' ORDER BY number LIMIT 1";
    assert_eq!(session.text(first).await, r#"{"n": null}{"a": 1}"#);
}

/// A worker that writes to the same database: its effects and the end of its job are one.
#[tokio::test]
async fn a_worker_may_settle_in_its_own_transaction() {
    let (_log, store, session) = started().await;
    session.run("CREATE TABLE LOG.mine (n int); SELECT LOG.enqueue('a')").await.unwrap();
    let (id, claim) = claimed(&session, "a").await.unwrap();
    session
        .run(&format!("BEGIN; INSERT INTO LOG.mine VALUES (1); SELECT LOG.complete_job('{id}', '{claim}'); ROLLBACK"))
        .await
        .unwrap();
    assert_eq!(job(&store, &id).await.state, JobState::Running);
    session
        .run(&format!("BEGIN; INSERT INTO LOG.mine VALUES (1); SELECT LOG.complete_job('{id}', '{claim}'); COMMIT"))
        .await
        .unwrap();
    assert_eq!(job(&store, &id).await.state, JobState::Succeeded);
    assert_eq!(session.text("SELECT count(*) FROM LOG.mine").await, "1");
}

/// H17, from SQL: with the commit of a rule nothing more is claimed that it holds, through either door.
#[tokio::test]
async fn a_rule_from_sql_holds_what_one_over_http_holds() {
    let (log, store, session) = started().await;
    session.run("SELECT LOG.enqueue('acme.mail'); SELECT LOG.enqueue('acme.other', object => 'o')").await.unwrap();
    assert_eq!(session.text("SELECT LOG.pause('handler:acme.mail', 'repairs')").await, "1");
    assert_eq!(session.text("SELECT LOG.block('object:o')").await, "2");
    assert_eq!(claimed(&session, "acme.mail").await, None);
    assert_eq!(claimed(&session, "acme.other").await, None);
    assert_eq!(store.claim(wants("acme.mail", 1)).await.unwrap(), []);
    let rules = store.rules().await.unwrap();
    let mine = rules.rules().into_iter().find(|rule| rule.kind == RuleKind::Pause).cloned().unwrap();
    assert_eq!((mine.scope, mine.reason.as_deref()), (Scope::parse("handler:acme.mail").unwrap(), Some("repairs")));
    assert_eq!(mine.author, session.text("SELECT session_user").await, "who is logged in");
    session.run("SELECT LOG.poll_for_events()").await.unwrap();
    assert_eq!(log.number("SELECT count(*) FROM LOG.stored_events WHERE topic = 'ensue.rule.set'").await, 2);
    // Each is lifted by itself, and through either door.
    assert_eq!(session.text("SELECT LOG.resume('object:o')").await, "null", "it is blocked, not paused");
    store.lift_rule(RuleKind::Block, &Scope::parse("object:o").unwrap(), "ada").await.unwrap().expect("it is there");
    assert!(claimed(&session, "acme.other").await.is_some());
    assert_eq!(session.text("SELECT LOG.resume('handler:acme.mail')").await, "4");
    assert!(claimed(&session, "acme.mail").await.is_some());
}

/// H17: a transaction with a snapshot from before the rule would not see it.
#[tokio::test]
async fn a_claim_with_a_snapshot_of_its_own_is_refused() {
    let (_log, _store, session) = started().await;
    session.run("SELECT LOG.enqueue('a')").await.unwrap();
    session.run("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1").await.unwrap();
    let (code, message) = session.refusal("SELECT LOG.claim_jobs(ARRAY['a'])").await;
    assert!(code == "25001" && message.contains("read committed"), "{message}");
    session.run("ROLLBACK").await.unwrap();
}

#[tokio::test]
async fn a_rule_is_in_force_when_every_process_that_lives_goes_by_it() {
    let (_log, store, session) = started().await;
    handler_group(&store, "h", 1).await;
    crate::support::groups::acquire(&store, "h", 7).await;
    let version = session.text("SELECT LOG.pause('handler:h')").await;
    let in_force = format!("SELECT LOG.rule_in_force({version})");
    assert_eq!(session.text(&in_force).await, "false");
    store.report_rules(uuid::Uuid::from_u128(7), version.parse().unwrap()).await.unwrap();
    assert_eq!(session.text(&in_force).await, "true");
}

#[tokio::test]
async fn a_rule_that_expires_lets_go_also_where_nobody_runs_a_node() {
    let (log, _store, session) = started().await;
    session.run("SELECT LOG.enqueue('a', object => 'o')").await.unwrap();
    session.run("SELECT LOG.pause('object:o', expires_at => clock_timestamp() + interval '1 hour')").await.unwrap();
    assert_eq!(claimed(&session, "a").await, None);
    log.run("UPDATE LOG.rules SET expires_at = clock_timestamp()").await;
    assert!(claimed(&session, "a").await.is_some());
    session.run("SELECT LOG.poll_for_events()").await.unwrap();
    assert_eq!(
        session.text("SELECT payload->>'lifted_by' FROM LOG.stored_events WHERE topic = 'ensue.rule.lifted'").await,
        "expiry"
    );
}

#[tokio::test]
async fn bad_input_names_the_field_and_changes_nothing() {
    let (log, _store, session) = started().await;
    for (call, field) in [
        ("enqueue('')", "handler"),
        ("enqueue('a..b')", "handler"),
        ("enqueue('a b')", "handler"),
        ("enqueue('a', NULL)", "payload"),
        ("enqueue('a', object => '')", "object"),
        ("enqueue('a', object => repeat('x', 513))", "object"),
        ("enqueue('a', unique_key => E'\\t')", "unique_key"),
        ("enqueue('a', priority => -1)", "priority"),
        ("enqueue('a', priority => 0.5)", "priority"),
        ("enqueue('a', priority => 18446744073709551616)", "priority"),
        ("enqueue('a', attempts_max => 0)", "attempts_max"),
        ("enqueue('a', metadata => '[]')", "metadata"),
        ("enqueue('a', on_exhausted => 'x')", "on_exhausted"),
        ("enqueue('a', not_before => 'infinity')", "not_before"),
        ("enqueue('a', to_jsonb(repeat('x', 1100000)))", "payload"),
        ("claim_jobs(ARRAY[]::text[])", "handlers"),
        ("claim_jobs(ARRAY['a..b'])", "handlers"),
        ("claim_jobs(ARRAY['a'], 0)", "limit"),
        ("claim_jobs(ARRAY['a'], lease => '1 millisecond')", "lease"),
        ("claim_jobs(ARRAY['a'], worker => '')", "worker"),
        ("complete_job('x', 'claim-1-x-00000000000000000000000000000000')", "id"),
        ("complete_job('x', 'claim-1-x')", "claim"),
        ("complete_job('x', 'nonsense')", "claim"),
        ("pause('x')", "scope"),
        ("pause('handler:')", "scope handler: names nothing"),
        ("pause('object:')", "scope object: names nothing; write handler:KEY, object:KEY or schedule:NAME"),
        ("pause('handler:a', '')", "reason"),
        ("pause('handler:a', expires_at => '2000-01-01')", "expires_at"),
    ] {
        let (code, message) = session.refusal(&format!("SELECT LOG.{call}")).await;
        assert!(code == "22023" && message.starts_with(field), "{call}: {code} {message}");
    }
    assert_eq!(
        log.number("SELECT count(*) FROM LOG.jobs").await + log.number("SELECT count(*) FROM LOG.rules").await,
        0
    );
}

/// A failure without a reason has one that says so.
#[tokio::test]
async fn who_fails_without_a_word_is_quoted() {
    let (_log, store, session) = started().await;
    let id = session.text("SELECT LOG.enqueue('a')").await;
    let (_, claim) = claimed(&session, "a").await.unwrap();
    assert_eq!(session.text(&format!("SELECT LOG.fail_job('{id}', '{claim}', NULL)")).await, "retrying");
    assert_eq!(job(&store, &id).await.errors.last().unwrap().error, "the worker gave no reason");
}

/// What a backslash means in a text is a setting of the session, and nothing here depends on it.
#[tokio::test]
async fn a_session_that_reads_backslashes_in_texts_is_served_as_any_other() {
    let (log, store, session) = started().await;
    session.run("SET standard_conforming_strings = off; SET escape_string_warning = off").await.unwrap();
    session
        .run("CREATE TABLE public.\"LOG T\" (id int PRIMARY KEY); SELECT LOG.push_table_mutations('public.\"LOG T\"')")
        .await
        .unwrap();
    session
        .run("SELECT LOG.subscribe('g.h', 'e.id IS NOT NULL AND e.seq > .5 /* all */ AND $$a''b$$ <> ''c''')")
        .await
        .unwrap();
    session.run("SELECT LOG.publish('a.b'); SELECT LOG.publish_many('[{\"topic\":\"größe.ß\"}]'); INSERT INTO public.\"LOG T\" VALUES (1)").await.unwrap();
    assert_eq!(session.text("SELECT LOG.poll_for_events()").await, "3");
    let topics = session.text("SELECT string_agg(topic, ' ') FROM LOG.read_next_events('g.h')").await;
    assert_eq!(topics, format!("a.b größe.ß public.{}=20T.insert", log.schema));
    let id = session.text("SELECT LOG.enqueue('task.a.b')").await;
    assert_eq!(job(&store, &id).await.unique_key.as_deref(), Some("schedule:a.b"));
    for (call, words) in [
        ("publish('a..b')", "topic has an empty segment"),
        ("publish('a—b')", "topic may not contain '—'"),
        ("subscribe('.g')", "gid has an empty segment"),
        ("subscribe('g h')", "gid may not contain ' '"),
        ("subscribe('g', 'e.topic = $1')", "there are no placeholders"),
    ] {
        let (_, message) = session.refusal(&format!("SELECT LOG.{call}")).await;
        assert!(message.contains(words), "{call}: {message}");
    }
    session.run("DROP TABLE public.\"LOG T\"").await.unwrap();
}

fn events(count: usize) -> Vec<Entry> {
    NewEvent::check_all(vec![NewEvent::new("t"); count]).unwrap()
}

/// H9: not past a group, whatever the age; and not without bounds.
#[tokio::test]
async fn maintain_trims_by_age_but_never_what_a_group_has_not_passed() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions { partition_rows: Some(10), ..PostgresOptions::default() }).await;
    let session = Session::of(&log).await;
    store.append(events(25)).await.unwrap();
    handler_group(&store, "slow", 1).await; // begins after 25
    store.append(events(10)).await.unwrap();
    assert_eq!(session.text("SELECT events_trimmed FROM LOG.maintain()").await, "0", "everything is kept unless told");
    session
        .run(
            "UPDATE LOG.config SET value = '1 microsecond' WHERE key = 'partition_retention_period'; \
                 UPDATE LOG.config SET value = '20' WHERE key = 'partition_interval'; \
                 UPDATE LOG.config SET value = '2' WHERE key = 'future_intervals_to_create'",
        )
        .await
        .unwrap();
    assert_eq!(session.text("SELECT (events_trimmed, kept_for) FROM LOG.maintain()").await, "(25,slow)");
    assert_eq!(store.bounds().await.unwrap().first, 26);
    // The two partitions that are forgotten go in the next calls; new ones have the new size.
    let until_done = "DO $$ BEGIN WHILE (SELECT again FROM LOG.maintain()) LOOP END LOOP; END $$";
    for _ in 0..3 {
        session.run("SELECT LOG.maintain()").await.unwrap();
    }
    assert_eq!(log.number("SELECT min(from_seq) FROM LOG.partitions").await, 21);
    assert!(log.number("SELECT max(to_seq) - 36 FROM LOG.partitions").await >= 40);
    session.run("DELETE FROM LOG.groups").await.unwrap();
    session.run(until_done).await.unwrap();
    assert_eq!(store.bounds().await.unwrap().first, 36);
    // H38: the log is empty, and goes on where it was.
    assert_eq!(store.append(events(1)).await.unwrap()[0].seq, Some(36));
}

/// A lane that stands still keeps what it needs.
#[tokio::test]
async fn maintain_keeps_what_a_blocked_lane_needs() {
    let (log, store, session) = started().await;
    store.append(events(20)).await.unwrap();
    handler_group(&store, "h", 1).await;
    log.run(
        "INSERT INTO LOG.lanes (group_id, position, attempts, since, slot, redriven, state, key) \
             SELECT id, 7, 1, now(), 0, false, 'held', 'o:x' FROM LOG.groups",
    )
    .await;
    session
        .run("UPDATE LOG.config SET value = '1 microsecond' WHERE key = 'partition_retention_period'")
        .await
        .unwrap();
    assert_eq!(session.text("SELECT (events_trimmed, kept_for) FROM LOG.maintain()").await, "(6,h)");
    assert_eq!(store.bounds().await.unwrap().first, 7);
}

#[tokio::test]
async fn the_chunk_of_a_poll_is_a_setting_that_is_read_live() {
    let (_log, _store, session) = started().await;
    session.run("UPDATE LOG.config SET value = '3' WHERE key = 'poll_chunk_size'").await.unwrap();
    session.run("SELECT LOG.publish('t') FROM generate_series(1, 5)").await.unwrap();
    assert_eq!(session.text("SELECT LOG.poll_for_events()").await, "3");
    assert_eq!(session.text("SELECT LOG.poll_for_events()").await, "2");
}

/// A loop that polls until it hears 0 has moved all that was committed, also where delayed events are before it.
#[tokio::test]
async fn a_poll_answers_0_only_if_nothing_is_left_to_be_moved() {
    let (log, _store, session) = started().await;
    session.run("SELECT LOG.publish('later', not_before => '2099-01-01') FROM generate_series(1, 1000)").await.unwrap();
    session.run("SELECT LOG.publish('now')").await.unwrap();
    assert_eq!(session.text("SELECT LOG.poll_for_events()").await, "1000");
    assert_eq!(session.text("SELECT LOG.poll_for_events()").await, "1");
    assert_eq!(session.text("SELECT LOG.poll_for_events()").await, "0");
    assert_eq!(log.number("SELECT count(*) FROM LOG.stored_events").await, 1);
    assert_eq!(log.number("SELECT count(*) FROM LOG.delayed WHERE seq IS NULL").await, 1000);
}

#[tokio::test]
async fn a_setting_that_cannot_be_read_is_refused_when_it_is_written() {
    let (_log, _store, session) = started().await;
    for (key, value) in [
        ("partition_interval", "'0'"),
        ("partition_interval", "NULL"),
        ("partition_interval", "'often'"),
        ("partition_interval", "'-1 day'"),
        ("partition_retention_period", "'7'"),
        ("partition_retention_period", "'-7 days'"),
        ("future_intervals_to_create", "'1001'"),
        ("poll_chunk_size", "'1 day'"),
    ] {
        let (code, message) =
            session.refusal(&format!("UPDATE LOG.config SET value = {value} WHERE key = '{key}'")).await;
        assert!(code == "22023" && message.starts_with(key), "{key} {value}: {message}");
    }
    let (_, message) = session.refusal("INSERT INTO LOG.config VALUES ('partition_intervall', '1')").await;
    assert!(message.contains("partition_intervall") && message.contains("partition_interval,"), "{message}");
    for value in ["'5'", "'1 day'"] {
        session.run(&format!("UPDATE LOG.config SET value = {value} WHERE key = 'partition_interval'")).await.unwrap();
        session.run("SELECT LOG.maintain()").await.unwrap();
    }
}

/// A maintain that finds the log in use leaves it alone: nobody waits behind it.
#[tokio::test]
async fn maintain_does_not_wait_for_readers_of_the_log() {
    let log = Log::new().await;
    let store: Engine =
        Arc::clone(&open(&log.url, PostgresOptions { partition_rows: Some(5), ..PostgresOptions::default() }).await);
    store.append(events(12)).await.unwrap();
    let session = Session::of(&log).await;
    session
        .run("UPDATE LOG.config SET value = '1 microsecond' WHERE key = 'partition_retention_period'")
        .await
        .unwrap();
    log.hold("SELECT count(*) FROM LOG.stored_events").await;
    assert_eq!(session.text("SELECT events_trimmed FROM LOG.maintain()").await, "12");
    assert_eq!(log.number("SELECT count(*) FROM LOG.partitions WHERE detached").await, 0);
    store.append(events(1)).await.unwrap();
    log.let_go().await;
    session.run("SELECT LOG.maintain()").await.unwrap();
    assert_eq!(log.number("SELECT count(*) FROM LOG.partitions WHERE detached").await, 1);
}

/// Functions of PGMB fail with the name of what replaces them.
#[tokio::test]
async fn functions_of_pgmb_say_what_to_use_instead() {
    let (log, _store, _session) = started().await;
    let login = log.login(&["publish"]).await;
    for (call, words) in [
        ("create_event_id()", "not_before"),
        ("create_event_id(now(), 0)", "not_before"),
        ("maintain_events_table()", "call maintain"),
    ] {
        let refused = login.batch_execute(&format!("SELECT {}.{call}", log.schema)).await.unwrap_err();
        let refused = refused.as_db_error().unwrap();
        let text = format!("{} {}", refused.message(), refused.hint().unwrap_or_default());
        assert!(refused.code().code() == "0A000" && text.contains(words), "{call}: {text}");
        assert!(text.contains("docs/sql.md"), "{text}");
    }
}
