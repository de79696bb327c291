//! Jobs and rules on Postgres: two sessions at once, a held snapshot, and answers that are lost.

use crate::support::Log;
use crate::support::groups::{Engine, LEASE, name, open, until_waiting};
use crate::support::wire::Wire;
use ensue_core::jobs::lifecycle::expired;
use ensue_core::jobs::{
    Claim, Held, Job, JobChange, JobEnd, JobId, JobLine, JobQuery, JobSettled, JobState, NewJob, Steer, Steered,
};
use ensue_core::positions::Level;
use ensue_core::rules::{NewRule, RuleKind, Scope};
use ensue_core::tasks::TaskQuery;
use ensue_core::{Jobs, Json, ObjectKey, Rules, Store, Timestamp};
use ensue_stores::postgres::PostgresOptions;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use tokio::task::JoinSet;

fn job(handler: &str) -> NewJob {
    NewJob::new(name(handler))
}

fn about(handler: &str, object: &str) -> NewJob {
    NewJob { object: Some(ObjectKey::stored(object)), ..job(handler) }
}

fn wants(handlers: &[&str], limit: usize) -> Claim {
    let handlers = handlers.iter().map(|handler| (name(handler), limit)).collect();
    Claim { handlers, limit, lease: LEASE, worker: "w".into(), ends_with_store: false }
}

fn held(job: &Job) -> Held {
    Held { id: job.id, fence: job.fence }
}

fn change(job: &Job, end: JobEnd) -> JobChange {
    JobChange::new(held(job), end)
}

fn rule(scope: &str) -> NewRule {
    let (kind, scope) = (RuleKind::Pause, Scope::parse(scope).unwrap());
    NewRule { kind, scope, reason: None, author: "ada".into(), expires_at: None }
}

async fn two_sessions(log: &Log) -> [Engine; 2] {
    [open(&log.url, PostgresOptions::default()).await, open(&log.url, PostgresOptions::default()).await]
}

async fn send(store: &Engine, jobs: Vec<NewJob>) -> Vec<JobId> {
    store.enqueue(jobs).await.unwrap().into_iter().map(|sent| sent.id).collect()
}

async fn settle(store: &Engine, job: &Job, end: JobEnd) -> JobState {
    match store.settle_jobs(vec![change(job, end)]).await.unwrap().remove(0) {
        JobSettled::Done { state, .. } => state,
        other => panic!("{other:?}"),
    }
}

/// A store whose answers can be cut.
async fn over(wire: &Wire, log: &Log) -> Engine {
    let url = format!("{}?schema={1}&application_name={1}&sslmode=disable", wire.url, log.schema);
    open(&url, PostgresOptions::default()).await
}

/// Nobody has what another has, over several handlers and priorities, and none is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_sessions_never_get_the_same_job() {
    let log = Log::new().await;
    let stores = two_sessions(&log).await;
    let mut sent = HashSet::new();
    for n in 0..6_u64 {
        let handler = ["a", "b", "c"][n as usize % 3];
        sent.extend(send(&stores[0], vec![NewJob { priority: n / 3, ..job(handler) }; 200]).await);
    }
    let mut workers = JoinSet::new();
    for n in 0..8 {
        let store = stores[n % 2].clone();
        workers.spawn(async move {
            let mut taken = Vec::new();
            loop {
                let claimed = store.claim(wants(&["a", "b", "c"], 7)).await.unwrap();
                if claimed.is_empty() {
                    return taken;
                }
                let order: Vec<_> = claimed.iter().map(|job| (u64::MAX - job.priority, job.turn)).collect();
                assert!(order.is_sorted(), "{order:?}");
                taken.extend(claimed.iter().map(|job| job.id));
                if n < 4 {
                    let ends = claimed.iter().map(|job| change(job, JobEnd::Succeeded)).collect();
                    let settled = store.settle_jobs(ends).await.unwrap();
                    assert!(settled.iter().all(|one| matches!(one, JobSettled::Done { .. })), "{settled:?}");
                }
            }
        });
    }
    let taken: Vec<JobId> = workers.join_all().await.into_iter().flatten().collect();
    assert_eq!(taken.len(), sent.len(), "each once");
    assert_eq!(taken.into_iter().collect::<HashSet<_>>(), sent);
}

/// H5: eight workers in two processes, ends of every kind, and a sender: at most one of a lane runs, and those that have
/// succeeded did so in the order of their turns.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_lane_has_one_at_work_and_keeps_its_order_whatever_ends_how() {
    const LANES: usize = 5;
    const EACH: usize = 30;
    let log = Log::new().await;
    let stores = two_sessions(&log).await;
    let at_work: Arc<Mutex<HashSet<String>>> = Arc::default();
    let done: Arc<Mutex<HashMap<String, Vec<u64>>>> = Arc::default();
    let mut tasks = JoinSet::new();
    for store in stores.clone() {
        tasks.spawn(async move {
            for _ in 0..EACH / 10 {
                let jobs = (0..LANES * 5).map(|lane| about("a", &format!("o{}", lane % LANES)));
                store.enqueue(jobs.collect()).await.unwrap();
            }
        });
    }
    for n in 0..8 {
        let (store, at_work, done) = (stores[n % 2].clone(), at_work.clone(), done.clone());
        tasks.spawn(async move {
            loop {
                if done.lock().unwrap().values().map(Vec::len).sum::<usize>() == LANES * EACH {
                    return;
                }
                store.wake_jobs(100).await.unwrap();
                for job in store.claim(wants(&["a"], 1 + n % 3)).await.unwrap() {
                    let lane = job.object.as_ref().unwrap().to_string();
                    assert!(at_work.lock().unwrap().insert(lane.clone()), "two of {lane} at once");
                    let end = match rand_of(5) {
                        0 => JobEnd::GivenBack,
                        1 => JobEnd::Retry { at: Timestamp::UNIX_EPOCH, error: "e".into() },
                        2 => JobEnd::Snoozed { at: Timestamp::UNIX_EPOCH },
                        _ => JobEnd::Succeeded,
                    };
                    if end == JobEnd::Succeeded {
                        done.lock().unwrap().entry(lane.clone()).or_default().push(job.turn.unwrap());
                    }
                    at_work.lock().unwrap().remove(&lane);
                    settle(&store, &job, end).await;
                }
            }
        });
    }
    tasks.join_all().await;
    for (lane, turns) in done.lock().unwrap().iter() {
        assert!(turns.len() == EACH && turns.is_sorted(), "{lane}: {turns:?}");
    }
    let counts = stores[0].job_counts().await.unwrap();
    assert_eq!(counts, [], "nothing is stranded");
}

fn rand_of(below: u128) -> u128 {
    rand::random::<u128>() % below
}

/// H17: a claim and a rule at once, 200 times, in two processes. What was claimed was claimed before the rule's commit: once
/// it is acknowledged, nothing is.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_claimed_after_a_rule_was_acknowledged() {
    let log = Log::new().await;
    let stores = two_sessions(&log).await;
    for round in 0..200 {
        let (scope, new) = match round % 3 {
            0 => ("handler:a", job("a.b")),
            1 => ("object:o", about("a.b", "o")),
            _ => ("object:o", NewJob { ordered: false, ..about("a.b", "o") }),
        };
        let sent = send(&stores[0], vec![new; 3]).await;
        let is_acknowledged = Arc::new(AtomicBool::new(false));
        let claiming = tokio::spawn({
            let (store, is_acknowledged) = (stores[1].clone(), is_acknowledged.clone());
            async move {
                let mut taken = Vec::new();
                loop {
                    let was_acknowledged = is_acknowledged.load(Ordering::SeqCst);
                    let claimed = store.claim(wants(&["a.b"], 1)).await.unwrap();
                    assert!(!was_acknowledged || claimed.is_empty(), "{claimed:?}");
                    if was_acknowledged {
                        return taken;
                    }
                    for job in claimed {
                        // A lane's next job is freed while the rule comes.
                        taken.push(job.id);
                        settle(&store, &job, JobEnd::Succeeded).await;
                    }
                }
            }
        });
        let set = stores[0].set_rule(rule(scope)).await.unwrap();
        assert!(set.1);
        is_acknowledged.store(true, Ordering::SeqCst);
        let mut taken = claiming.await.unwrap();
        let lifted = stores[round % 2].lift_rule(RuleKind::Pause, &set.0.scope, "bob").await.unwrap();
        assert_eq!(lifted, Some(set.0));
        while let Some(job) = stores[round % 2].claim(wants(&["a.b"], 1)).await.unwrap().pop() {
            taken.push(job.id);
            settle(&stores[0], &job, JobEnd::Succeeded).await;
        }
        assert_eq!(taken, sent, "round {round}: all of it, once, in order");
    }
}

/// H29: exact at both ends of what a priority can be.
#[tokio::test]
async fn every_priority_is_exact() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    let priorities = [0, u64::MAX, 1 << 63, (1 << 63) - 1, 1, u64::MAX - 1, (1 << 53) + 1, 1 << 53];
    let jobs = priorities.map(|priority| NewJob { priority, ..job("a") });
    send(&store, [jobs.to_vec(), jobs.to_vec()].concat()).await;
    let taken = store.claim(wants(&["a"], 100)).await.unwrap();
    let mut expected = [priorities, priorities].concat();
    expected.sort_by(|a, b| b.cmp(a));
    assert_eq!(taken.iter().map(|job| job.priority).collect::<Vec<_>>(), expected);
    assert!(taken.chunks(2).all(|pair| pair[0].turn < pair[1].turn), "first come first served");
    assert_eq!(store.job(taken[0].id).await.unwrap().unwrap().priority, u64::MAX);
    assert_eq!(store.job(taken[15].id).await.unwrap().unwrap().priority, 0);
}

/// H23: with a snapshot held open, what was claimed stays in the index. A look from its beginning passes over all of it; most
/// claims look behind it.
#[tokio::test]
async fn a_held_snapshot_does_not_make_claims_look_at_what_is_gone() {
    const ROUNDS: usize = 60;
    const CLAIMS: usize = 300;
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    log.hold("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM LOG.jobs").await;
    let one_after_another = async |count: usize, rounds: usize| {
        for _ in 0..rounds {
            send(&store, vec![job("a"); count]).await;
            let claimed = store.claim(wants(&["a"], count)).await.unwrap();
            assert_eq!(claimed.len(), count);
            let ends = claimed.iter().map(|job| change(job, JobEnd::Succeeded)).collect();
            store.settle_jobs(ends).await.unwrap();
        }
    };
    one_after_another(500, ROUNDS).await;
    one_after_another(1, CLAIMS).await;

    // The plan of a look: behind what is gone it reads a page or two of the index, and not all of it.
    let newest = log.number("SELECT last_value FROM LOG.job_numbers").await;
    let [all, few] = [0, newest - 10].map(|after| {
        format!(
            "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF) SELECT number FROM LOG.jobs WHERE state = 'available' \
             AND handler = 'a' AND (rank, turn) > (9223372036854775807, {after}) ORDER BY rank, turn LIMIT 10"
        )
    });
    let (all, few) = (pages_of(&log, &all).await, pages_of(&log, &few).await);
    println!("pages of a look at everything {all}, behind what is gone {few}");
    assert!(few * 20 < all, "{few} of {all}");

    // A session tells what it has read when it ends.
    log.let_go().await;
    store.close().await;
    log.until("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'LOG'", 0).await;
    let read =
        "SELECT idx_tup_read FROM pg_stat_all_indexes WHERE schemaname = 'LOG' AND indexrelname = 'jobs_available'";
    let read = log.number(read).await as usize;
    let if_all_were_full = 500 * ROUNDS * (ROUNDS / 2 + CLAIMS);
    println!("entries read {read}, if every look were at everything {if_all_were_full}");
    // On an idle machine a tenth. Looks at everything go by time, so they are more where other work slows the claims.
    assert!(read > 0 && read < if_all_were_full, "{read} of {if_all_were_full}");
}

/// Tasks are few among many jobs: a list of them reads their index from its place on, with any plan that the server makes.
#[tokio::test]
async fn a_list_of_tasks_looks_at_no_other_job() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    for _ in 0..20 {
        send(&store, vec![job("a"); 1_000]).await;
    }
    for n in 0..20 {
        send(&store, vec![job(&format!("task.other.c{}", n % 4)); 100]).await;
        send(&store, vec![job("task.s.b"), job("task.s.a")]).await;
    }
    log.run("ANALYZE LOG.jobs").await;
    // A session tells what it has read when it ends; before Postgres 15 that is there a moment later.
    let until_told = async |store: Engine, more_than: i64| {
        store.close().await;
        log.until("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'LOG'", 0).await;
        let read = "SELECT seq_tup_read FROM pg_stat_all_tables WHERE schemaname = 'LOG' AND relname = 'jobs'";
        let index =
            "SELECT idx_tup_read FROM pg_stat_all_indexes WHERE schemaname = 'LOG' AND indexrelname = 'jobs_tasks'";
        log.until(&format!("SELECT (({index}) > {more_than})::int::bigint"), 1).await;
        (log.number(read).await, log.number(index).await)
    };
    let (rows_before, entries_before) = until_told(store, -1).await;
    let store = open(&log.url, PostgresOptions::default()).await;
    let query = TaskQuery {
        source: "s".into(),
        collection: None,
        states: vec![JobState::Available],
        from: Timestamp::UNIX_EPOCH,
        to: Timestamp::from_second(4_000_000_000).unwrap(),
        after: None,
    };
    // More often than the server makes a plan for the values alone.
    for _ in 0..12 {
        assert_eq!(store.tasks(query.clone(), 1_000).await.unwrap().len(), 40);
    }
    let (rows, entries) = until_told(store, entries_before).await;
    let (rows, entries) = (rows - rows_before, entries - entries_before);
    println!("rows read one by one {rows}, entries of the index {entries}");
    assert!(rows < 1_000 && (12 * 40..12 * 200).contains(&entries), "{rows} rows, {entries} entries");
}

/// How many pages a statement looks at, by its explanation.
async fn pages_of(log: &Log, explain: &str) -> usize {
    let sql = explain.replace("LOG", &log.schema);
    log.run("SET enable_seqscan = off; SET enable_bitmapscan = off").await;
    for row in log.admin.query(&sql, &[]).await.unwrap() {
        let line: &str = row.get(0);
        if let Some(pages) = line.trim().strip_prefix("Buffers: shared ") {
            // Those that were in memory, and those that were not: among other tests the server has not room for all.
            let counted = pages.split(' ').filter_map(|part| part.strip_prefix("hit=").or(part.strip_prefix("read=")));
            return counted.map(|count| count.parse::<usize>().unwrap()).sum();
        }
    }
    panic!("no pages are told of");
}

/// What another process gives back or frees is found, wherever this one looks.
#[tokio::test]
async fn what_another_process_makes_available_is_found() {
    let log = Log::new().await;
    let [one, other] = two_sessions(&log).await;
    let sent = send(&one, vec![job("a"), about("a", "o"), about("a", "o"), job("a")]).await;
    let first = one.claim(wants(&["a"], 10)).await.unwrap();
    assert_eq!(first.iter().map(|job| job.id).collect::<Vec<_>>(), [sent[0], sent[1], sent[3]]);
    assert_eq!(other.claim(wants(&["a"], 10)).await.unwrap(), []);
    settle(&one, &first[0], JobEnd::GivenBack).await;
    settle(&one, &first[1], JobEnd::Succeeded).await;
    let second = other.claim(wants(&["a"], 10)).await.unwrap();
    assert_eq!(second.iter().map(|job| job.id).collect::<Vec<_>>(), [sent[0], sent[2]]);
}

/// The server has done it, and its answer never comes: it is not done again, and answered as it was.
#[tokio::test]
async fn what_was_answered_to_nobody_is_done_once() {
    let (wire, log) = (Wire::new().await, Log::new().await);
    let store = over(&wire, &log).await;
    let cut = || wire.cut_next_answer.store(true, Ordering::SeqCst);
    let was_cut = || assert!(!wire.cut_next_answer.load(Ordering::SeqCst), "the answer was swallowed");
    let jobs = "SELECT count(*) FROM LOG.jobs";
    // So that statements are prepared, and the next answer is that of the call.
    let warm = send(&store, vec![job("w"); 3]).await;
    send(&store, vec![job("w"), job("v")]).await;
    let warmed = store.claim(wants(&["w"], 3)).await.unwrap();
    settle(&store, &warmed[0], JobEnd::Succeeded).await;
    store.say(held(&warmed[1]), vec![]).await.unwrap();
    store.steer(&warm[..1], Steer::Cancel).await.unwrap();

    cut();
    let sent = send(&store, vec![job("a"), NewJob { unique_key: Some("k".into()), ..job("a") }]).await;
    was_cut();
    assert_eq!((sent.len(), log.number(jobs).await), (2, 7));

    cut();
    let alike = send(&store, vec![job("x"); 3]).await;
    was_cut();
    assert_eq!((alike.len(), log.number(jobs).await), (3, 10));
    assert_eq!(ids_of(&store, "x").await, alike);

    cut();
    let claimed = store.claim(wants(&["a"], 2)).await.unwrap();
    was_cut();
    assert_eq!(claimed.iter().map(|job| (job.id, job.fence)).collect::<Vec<_>>(), [(sent[0], 1), (sent[1], 1)]);

    let line = JobLine { line: 0, attempt: 1, at: Timestamp::UNIX_EPOCH, level: Level::Info, message: "once".into() };
    cut();
    assert!(store.say(held(&claimed[0]), vec![line.clone()]).await.unwrap());
    was_cut();
    assert_eq!(store.job_lines(sent[0], 0, 10).await.unwrap().len(), 1);

    cut();
    assert_eq!(settle(&store, &claimed[0], JobEnd::Succeeded).await, JobState::Succeeded);
    was_cut();

    let more = JobChange {
        lines: vec![line.clone(), line],
        jobs: vec![job("b"), about("b", "o")],
        events: crate::support::on("o"),
        ..change(&claimed[1], JobEnd::Dead { error: "no".into() })
    };
    cut();
    let settled = store.settle_jobs(vec![more]).await.unwrap().remove(0);
    was_cut();
    let JobSettled::Done { state: JobState::Dead, events, jobs: sent_on } = settled else { panic!("{settled:?}") };
    assert_eq!((events.len(), events[0].seq, sent_on.len(), log.number(jobs).await), (1, Some(1), 2, 12));
    assert_eq!(store.job_lines(sent[1], 0, 10).await.unwrap().len(), 2);
    assert_eq!(store.bounds().await.unwrap().last, 2, "its event, and the notice of its death, once");

    cut();
    let steered = store.steer(&[sent[1]], Steer::Retry).await.unwrap().remove(0);
    was_cut();
    assert!(matches!(&steered, Steered::Done(job) if job.state == JobState::Available), "{steered:?}");

    store.set_rule(rule("handler:z")).await.unwrap();
    cut();
    let (set, is_new) = store.set_rule(rule("handler:a")).await.unwrap();
    assert_eq!((store.rules_version().await.unwrap(), is_new, store.bounds().await.unwrap().last), (2, true, 4));
    let lifted = store.lift_rule(RuleKind::Pause, &set.scope, "bob").await.unwrap();
    assert_eq!(lifted, Some(set));
}

/// The jobs of a handler, in their order.
async fn ids_of(store: &Engine, handler: &str) -> Vec<JobId> {
    let query = JobQuery { handler: Some(name(handler)), ..JobQuery::default() };
    store.jobs(query, 100).await.unwrap().jobs.iter().map(|job| job.id).collect()
}

/// Jobs that differ in nothing but their payloads are sent by a short way. Where others send meanwhile, their numbers do not follow each other.
#[tokio::test]
async fn jobs_that_are_alike_are_answered_each_for_its_own_whatever_numbers_they_get() {
    let (wire, log) = (Wire::new().await, Log::new().await);
    let store = over(&wire, &log).await;
    let of = |payload: usize| NewJob {
        payload: Json::of("payload", &payload).unwrap(),
        priority: 1 << 63,
        attempts_max: 7,
        ..job("a")
    };
    for step in 1..=2 {
        log.run(&format!("ALTER SEQUENCE LOG.job_numbers INCREMENT BY {step}")).await;
        for is_cut in [false, true] {
            wire.cut_next_answer.store(is_cut, Ordering::SeqCst);
            let sent = store.enqueue((0..5).map(of).collect()).await.unwrap();
            assert!(!wire.cut_next_answer.load(Ordering::SeqCst), "the answer was swallowed");
            assert_eq!(sent.len(), 5);
            for (payload, sent) in sent.iter().enumerate() {
                assert_eq!((sent.is_new, sent.state), (true, JobState::Available));
                let job = store.job(sent.id).await.unwrap().expect("it was sent");
                assert_eq!(job.payload.as_str(), payload.to_string());
                assert_eq!((job.priority, job.attempts_max, job.state), (1 << 63, 7, JobState::Available));
            }
        }
    }
    assert_eq!(log.number("SELECT count(*) FROM LOG.jobs").await, 20, "each once");
    let runs = "SELECT count(*) FROM LOG.job_calls WHERE run = 5 AND cardinality(numbers) = 1";
    assert_eq!(log.number(runs).await, 2, "numbers that follow each other are kept as one");
}

/// A settlement waits for whoever has its row, and is decided by what that one did.
#[tokio::test]
async fn a_settlement_behind_another_finds_its_lease_lost() {
    let log = Log::new().await;
    let store = open(&log.url, PostgresOptions::default()).await;
    send(&store, vec![about("a", "o"); 2]).await;
    let taken = store.claim(wants(&["a"], 1)).await.unwrap().remove(0);
    log.hold("UPDATE LOG.jobs SET fence = fence + 1 WHERE state = 'running'").await;
    let settling = tokio::spawn({
        let (store, taken) = (store.clone(), taken.clone());
        async move { store.settle_jobs(vec![change(&taken, JobEnd::Succeeded)]).await }
    });
    until_waiting(&log, 1).await;
    log.let_go().await;
    assert_eq!(settling.await.unwrap().unwrap(), [JobSettled::LeaseLost]);
    assert_eq!(store.job(taken.id).await.unwrap().unwrap().state, JobState::Running);
    assert_eq!(store.claim(wants(&["a"], 1)).await.unwrap(), [], "its lane waits");
}

/// What a process hears of jobs, once nothing of what was before is under way any more.
async fn heard(store: &Engine) -> u64 {
    let mut before = store.pulse(None).await.unwrap().jobs_sent;
    loop {
        let now = store.pulse(None).await.unwrap().jobs_sent;
        if now == before {
            return now;
        }
        before = now;
        // Something has to end before it is known that what was before has.
        store.serve_jobs(&[name("nobody")], LEASE).await.unwrap();
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

/// H13: whatever makes a job available is news for every other process, as a new job is.
#[tokio::test]
async fn whatever_makes_a_job_available_is_heard_of() {
    let log = Log::new().await;
    let [here, other] = two_sessions(&log).await;
    let mut before = heard(&other).await;
    let mut is_news = async |what: &str, expected: bool| {
        let now = other.pulse(None).await.unwrap().jobs_sent;
        assert_eq!(now != before, expected, "{what}");
        before = heard(&other).await;
    };
    let done = |steered: Vec<Steered>| assert!(matches!(steered[0], Steered::Done(_)), "{steered:?}");
    let claim = async |handler: &str| here.claim(wants(&[handler], 1)).await.unwrap().remove(0);
    let dies = || JobEnd::Dead { error: "no".into() };

    let loose = send(&here, vec![job("a")]).await[0];
    is_news("one is sent", true).await;
    let taken = claim("a").await;
    assert!(here.renew_jobs(&[held(&taken)], LEASE).await.unwrap()[0].is_some());
    is_news("it is claimed and renewed", false).await;
    settle(&here, &taken, JobEnd::GivenBack).await;
    is_news("it is given back", true).await;
    settle(&here, &claim("a").await, dies()).await;
    is_news("it dies", false).await;
    done(here.steer(&[loose], Steer::Retry).await.unwrap());
    is_news("it is brought back", true).await;
    done(here.steer(&[loose], Steer::Cancel).await.unwrap());
    is_news("it is cancelled", false).await;

    let lane = send(&here, vec![about("b", "o"); 6]).await;
    is_news("a lane is sent", true).await;
    settle(&here, &claim("b").await, JobEnd::Succeeded).await;
    is_news("its first is done", true).await;
    settle(&here, &claim("b").await, dies()).await;
    is_news("its next dies, and holds it", false).await;
    done(here.steer(&[lane[1]], Steer::Skip).await.unwrap());
    is_news("that one is skipped", true).await;
    done(here.steer(&[lane[2]], Steer::Cancel).await.unwrap());
    is_news("the one behind it is cancelled", true).await;
    done(here.steer(&[lane[5]], Steer::Cancel).await.unwrap());
    is_news("the last is cancelled, which frees nobody", false).await;
    settle(&here, &claim("b").await, JobEnd::Retry { at: Timestamp::UNIX_EPOCH, error: "e".into() }).await;
    is_news("one is to be tried again", false).await;
    assert_eq!(here.wake_jobs(10).await.unwrap().count, 1);
    is_news("its time has come", true).await;
    settle(&here, &claim("b").await, dies()).await;
    is_news("it dies", false).await;
    done(here.steer(&[lane[3]], Steer::Retry).await.unwrap());
    is_news("it is brought back, and goes before the other", true).await;
}

/// H13: a number is seen before what it was drawn for has committed. Who looked then looks again, until it has.
#[tokio::test]
async fn what_commits_late_is_heard_of_when_it_has() {
    let log = Log::new().await;
    // One of them only listens: who looks may have other reasons to look again.
    let [store, listens] = two_sessions(&log).await;
    let before = heard(&listens).await;
    // An older transaction that ends earlier: no snapshot tells that a younger one than the last that ended is under way.
    log.run("BEGIN; SELECT pg_current_xact_id()").await;
    log.hold(
        "SELECT LOG.jobs_enqueue(NULL, gen_random_uuid(), 1, ARRAY[1], ARRAY['a'], NULL, NULL, ARRAY['1'], NULL, \
         ARRAY[0]::bigint[], NULL, NULL, ARRAY[5], NULL, NULL, NULL, NULL, NULL)",
    )
    .await;
    let mut last = before;
    for n in 0..4 {
        let now = listens.pulse(None).await.unwrap().jobs_sent;
        assert!(now > last, "it may have committed by now");
        assert_eq!(store.claim(wants(&["a"], 1)).await.unwrap(), []);
        last = now;
        if n == 1 {
            log.run("COMMIT").await;
        }
    }
    log.let_go().await;
    assert!(listens.pulse(None).await.unwrap().jobs_sent > last);
    assert_eq!(store.claim(wants(&["a"], 1)).await.unwrap().len(), 1);
}

/// H16: a lease is renewed while somebody who found that it had passed waits to write that: it is its worker's.
#[tokio::test]
async fn a_lease_that_is_renewed_while_its_end_waits_is_not_taken() {
    for new in [job("a"), about("a", "o")] {
        let log = Log::new().await;
        let store = open(&log.url, PostgresOptions::default()).await;
        send(&store, vec![new]).await;
        let short = Claim { lease: jiff::SignedDuration::from_millis(1), ..wants(&["a"], 1) };
        let taken = store.claim(short).await.unwrap().remove(0);
        log.until("SELECT count(*) FROM LOG.jobs WHERE lease_until < clock_timestamp()", 1).await;
        assert_eq!(store.wake_jobs(10).await.unwrap().expired, std::slice::from_ref(&taken));
        log.hold("UPDATE LOG.jobs SET lease_until = clock_timestamp() + interval '1 hour'").await;
        let expiring = tokio::spawn({
            let (store, end) = (store.clone(), expired(1, 5, "w", Timestamp::now()));
            let change = change(&taken, end);
            async move { store.settle_jobs(vec![change]).await }
        });
        until_waiting(&log, 1).await;
        log.let_go().await;
        assert_eq!(expiring.await.unwrap().unwrap(), [JobSettled::LeaseLost]);
        let there = store.job(taken.id).await.unwrap().unwrap();
        assert_eq!((there.state, there.fence, there.errors.len()), (JobState::Running, taken.fence, 0));
        assert_eq!(settle(&store, &taken, JobEnd::Succeeded).await, JobState::Succeeded);
    }
}
