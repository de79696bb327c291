//! Jobs on Postgres, with several processes: each bus here is a member of its own, as a process is.
#![cfg(feature = "postgres")]

use crate::support::{LONG, Seen, at_once, failed, rule, sent, until, until_state, with};
use ensue::jobs::{JobId, JobOutcome, JobState, Steer};
use ensue::rules::RuleKind;
use ensue::{Context, Emit, Ensue, Event, GroupName, JobOptions, NewEvent, Outcome, Running};
use ensue_conformance::postgres::{fresh_schema, shared_url};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Much longer than a pulse takes, and less than the pause between two looks at everything.
const SOON: Duration = Duration::from_secs(20);

async fn node(url: &str, seen: &Seen) -> (Ensue, Running) {
    let bus = Ensue::open(url).await.unwrap();
    let handler = with(seen.clone(), async |seen, job: Event, cx: Context| {
        tokio::task::yield_now().await;
        // Every third fails once.
        if cx.attempt() == 1 && job.payload.as_str().parse::<u32>().unwrap() % 3 == 0 {
            return Ok(Outcome::Retry(Duration::ZERO));
        }
        seen.add(format!("{} {}", job.object.as_ref().map_or("-", |object| object.as_str()), job.payload.as_str()));
        Ok(Outcome::Done)
    });
    bus.register_with("work", JobOptions { concurrency: Some(4), ..JobOptions::default() }, handler).unwrap();
    let running = bus.start().await.unwrap();
    (bus, running)
}

/// Two processes share the jobs of a handler; each object's are run in order, none is left out and none twice.
#[tokio::test(flavor = "multi_thread")]
async fn processes_share_jobs_and_keep_the_order_of_each_object() {
    const JOBS: u32 = 300;
    let (url, _) = fresh_schema("jobs");
    let seen = Seen::default();
    let (first, first_running) = node(&url, &seen).await;
    let (second, second_running) = node(&url, &seen).await;
    for chunk in 0..JOBS / 30 {
        let bus = if chunk % 2 == 0 { &first } else { &second };
        let job = |n: u32| Emit::to("work").object(format!("o{}", n % 10)).payload(&(chunk * 30 + n));
        bus.emit_all((0..30).map(job).collect()).await.unwrap();
    }
    until("all have run", async || (seen.all().len() as u32 >= JOBS).then_some(())).await;
    assert_eq!(seen.all().len() as u32, JOBS, "none runs twice");
    for object in 0..10 {
        let prefix = format!("o{object} ");
        let of_object: Vec<u32> = seen.all().iter().filter_map(|one| one.strip_prefix(&prefix)?.parse().ok()).collect();
        assert!(of_object.is_sorted() && of_object.len() as u32 == JOBS / 10, "{of_object:?}");
    }
    first_running.shutdown(LONG).await.unwrap();
    second_running.shutdown(LONG).await.unwrap();
}

/// H17: what one process pauses has stopped in the other when the pause is answered.
#[tokio::test(flavor = "multi_thread")]
async fn a_pause_is_answered_when_no_process_starts_anything_more() {
    let (url, _) = fresh_schema("pause");
    let started = Arc::new(AtomicU64::new(0));
    let open = async |handlers: bool| {
        let bus = Ensue::open(&url).await.unwrap();
        if handlers {
            let count = async |started: Arc<AtomicU64>, _: Event, _: Context| {
                started.fetch_add(1, Ordering::SeqCst);
                Ok(())
            };
            bus.register("t.j", with(started.clone(), count)).unwrap();
            bus.on("t").named("h").handle(with(started.clone(), count)).unwrap();
        }
        let running = bus.start().await.unwrap();
        (bus, running)
    };
    let (runs, runs_running) = open(true).await;
    let (asks, asks_running) = open(false).await;
    let pause = rule(RuleKind::Pause, "handler:t");
    let mut in_all = 0;
    for _ in 0..10 {
        let emits = (0..20).map(|n| Emit::to("t.j").payload(&n)).collect();
        let events = (0..20).map(|n| NewEvent::new("t").object(format!("o{n}"))).collect();
        let (jobs, events, set) =
            tokio::join!(runs.emit_all(emits), runs.publish_all(events), asks.set_rule(pause.clone()));
        jobs.unwrap();
        events.unwrap();
        set.unwrap();
        in_all += 40;
        let at_answer = started.load(Ordering::SeqCst);
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
        assert_eq!(started.load(Ordering::SeqCst), at_answer, "something started after the answer");
        asks.lift_rule(RuleKind::Pause, &pause.scope, "ann").await.unwrap();
    }
    until("all have run", async || (started.load(Ordering::SeqCst) == in_all).then_some(())).await;
    runs_running.shutdown(LONG).await.unwrap();
    asks_running.shutdown(LONG).await.unwrap();
}

/// What another process sends and delays is heard of without anybody ringing.
#[tokio::test(flavor = "multi_thread")]
async fn what_other_processes_send_is_heard_of() {
    let (url, _) = fresh_schema("heard");
    let seen = Seen::default();
    let (_runs, running) = node(&url, &seen).await;
    let other = Ensue::open(&url).await.unwrap();
    let at_once = sent(&other, Emit::to("work").payload(&1)).await;
    until_state(&other, at_once, JobState::Succeeded).await;
    let at = other.store().now().await.unwrap() + Duration::from_millis(200);
    let later = sent(&other, Emit::to("work").payload(&2).not_before(at)).await;
    until_state(&other, later, JobState::Succeeded).await;
    running.shutdown(LONG).await.unwrap();
}

/// A worker that is gone loses its job to another when its lease has passed, and its word changes nothing; a pull handler's
/// deliveries come as jobs.
#[tokio::test(flavor = "multi_thread")]
async fn a_claim_passes_to_another_and_deliveries_are_claimed() {
    let (url, _) = fresh_schema("pull");
    let bus = Ensue::open(&url).await.unwrap();
    bus.on("order").named("remote").pull().unwrap();
    let running = bus.start().await.unwrap();
    let other = Ensue::open(&url).await.unwrap();
    for n in 1..=2 {
        bus.publish(NewEvent::new("order").object("o").payload(&n)).await.unwrap();
    }
    let keys = || vec![GroupName::stored("order.remote")];
    let first = other.claim_jobs(keys(), 5, Duration::from_millis(300), LONG, "w1").await.unwrap();
    assert_eq!(first.iter().map(|one| one.job.payload.as_str()).collect::<Vec<_>>(), ["1"]);
    let second = bus.claim_jobs(keys(), 5, LONG, LONG, "w2").await.unwrap();
    assert_eq!((second[0].job.id, second[0].job.attempts), (first[0].job.id, 2));
    let done = || JobOutcome::Done { result: None, events: vec![NewEvent::new("t")], jobs: Vec::new() };
    assert!(other.settle_claim(&first[0].claim, done()).await.is_err());
    assert_eq!(bus.settle_claim(&second[0].claim, done()).await.unwrap().state, JobState::Succeeded);
    let next = other.claim_jobs(keys(), 5, LONG, LONG, "w1").await.unwrap();
    assert_eq!(next[0].job.payload.as_str(), "2");
    let told = bus.steer_job(next[0].job.id, Steer::Cancel).await.unwrap();
    assert!(told.cancel_asked && other.renew_claim(&next[0].claim, LONG).await.unwrap().cancel);
    running.shutdown(LONG).await.unwrap();
}

/// H13: what another process brings back, or frees, is heard of with the next pulse, and not when everything is looked at again.
#[tokio::test(flavor = "multi_thread")]
async fn what_other_processes_bring_back_or_free_is_heard_of() {
    let (url, _) = fresh_schema("freed");
    let works = Arc::new(AtomicBool::new(false));
    let bus = Ensue::open(&url).await.unwrap();
    let handler = with(works.clone(), async |works: Arc<AtomicBool>, job: Event, _: Context| {
        let is_good = works.load(Ordering::SeqCst) || job.payload.as_str() == "\"good\"";
        if is_good { Ok(()) } else { failed("broken") }
    });
    bus.register_with("work", at_once(1), handler).unwrap();
    let running = bus.start().await.unwrap();
    let other = Ensue::open(&url).await.unwrap();
    let mut dead = Vec::new();
    for object in [None, Some("brought back"), Some("skipped")] {
        let emit = |payload: &str| {
            let emit = Emit::to("work").payload(&payload);
            object.map_or(emit.clone(), |object| emit.object(object))
        };
        let bad = sent(&other, emit("bad")).await;
        until_state(&other, bad, JobState::Dead).await;
        let next = sent(&other, emit("good")).await;
        dead.push((bad, next));
    }
    // A worker elsewhere has the first of a lane, and is gone before the others: they wait for it.
    let keys = vec![GroupName::stored("elsewhere")];
    for _ in 0..2 {
        sent(&other, Emit::to("elsewhere").object("o")).await;
    }
    other.claim_jobs(keys.clone(), 1, LONG, LONG, "w").await.unwrap();
    works.store(true, Ordering::SeqCst);
    let soon = async |what: &str, id: JobId| {
        let begun = Instant::now();
        until_state(&other, id, JobState::Succeeded).await;
        assert!(begun.elapsed() < SOON, "{what}: it ran after {:?}", begun.elapsed());
    };
    soon("it is in no lane", dead[0].1).await;
    other.steer_job(dead[0].0, Steer::Retry).await.unwrap();
    soon("brought back", dead[0].0).await;
    other.steer_job(dead[1].0, Steer::Retry).await.unwrap();
    soon("brought back, of an object", dead[1].0).await;
    soon("behind what was brought back", dead[1].1).await;
    other.steer_job(dead[2].0, Steer::Skip).await.unwrap();
    soon("behind what was skipped", dead[2].1).await;

    // The first of a lane is cancelled while it waits for its next attempt.
    let later = other.store().now().await.unwrap() + Duration::from_secs(3_600);
    let first = sent(&other, Emit::to("waits").object("o")).await;
    let claimed = other.claim_jobs(vec![GroupName::stored("waits")], 1, LONG, LONG, "w").await.unwrap().remove(0);
    let again = JobOutcome::Failed { error: "no".into(), retry: true, after: Some(Duration::from_secs(3_600)) };
    other.settle_claim(&claimed.claim, again).await.unwrap();
    let waiting = bus.claim_jobs(vec![GroupName::stored("waits")], 1, LONG, SOON, "here");
    let behind = sent(&other, Emit::to("waits").object("o")).await;
    let cancel = async {
        let job = other.steer_job(first, Steer::Cancel).await.unwrap();
        assert!(job.not_before.is_some_and(|at| at >= later - Duration::from_secs(1)));
    };
    let (claimed, ()) = tokio::join!(waiting, cancel);
    assert_eq!(claimed.unwrap()[0].job.id, behind);
    running.shutdown(LONG).await.unwrap();
}

/// A rule that is lifted elsewhere holds here until that is heard of: meanwhile its jobs are not claimed over and over.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_claimed_under_a_rule_that_is_not_known_to_be_lifted_is_not_claimed_over_and_over() {
    const CALM: Duration = Duration::from_millis(100);
    let (url, _) = fresh_schema("calm");
    let seen = Seen::default();
    let (bus, running) = node(&url, &seen).await;
    let other = Ensue::open(&url).await.unwrap();
    let pause = rule(RuleKind::Pause, "handler:work");
    for round in 0..3 {
        bus.set_rule(pause.clone()).await.unwrap();
        let begun = Instant::now();
        other.store().lift_rule(RuleKind::Pause, &pause.scope, "ann").await.unwrap();
        let id = sent(&bus, Emit::to("work").payload(&1)).await;
        let job = until_state(&bus, id, JobState::Succeeded).await;
        let most = begun.elapsed().as_millis() / CALM.as_millis() + 2;
        assert!(u128::from(job.fence) <= most, "claimed {} times in {:?}, round {round}", job.fence, begun.elapsed());
        assert_eq!(job.attempts, 1, "H19: what was given back used up no attempt");
    }
    running.shutdown(LONG).await.unwrap();
}

/// H17: a process that cannot renew its lease claims nothing that it could not start; when it can again, it first looks at the
/// rules that were set meanwhile, for which nobody waited for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_without_a_lease_claims_nothing_and_looks_at_the_rules_before_it_goes_on() {
    let (url, schema) = fresh_schema("lapsed");
    let seen = Seen::default();
    let (bus, running) = node(&url, &seen).await;
    let other = Ensue::open(&url).await.unwrap();
    let (holder, connection) = tokio_postgres::connect(&shared_url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    // Its row cannot be written, so its lease passes.
    holder.batch_execute(&format!("BEGIN; SELECT 1 FROM {schema}.members FOR UPDATE")).await.unwrap();
    until("its lease has passed", async || other.store().members().await.unwrap().is_empty().then_some(())).await;
    let free = sent(&bus, Emit::to("work").payload(&1)).await;
    other.set_rule(rule(RuleKind::Pause, "object:o")).await.unwrap();
    let paused = sent(&bus, Emit::to("work").object("o").payload(&2)).await;
    other.set_rule(rule(RuleKind::Pause, "handler:work")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    for id in [free, paused] {
        let job = bus.job(id).await.unwrap().unwrap();
        assert_eq!((job.fence, job.attempts), (0, 0), "it was claimed by who could not start it");
    }
    holder.batch_execute("COMMIT").await.unwrap();
    until("it lives again", async || (!other.store().members().await.unwrap().is_empty()).then_some(())).await;
    other.lift_rule(RuleKind::Pause, &rule(RuleKind::Pause, "handler:work").scope, "ann").await.unwrap();
    until_state(&bus, free, JobState::Succeeded).await;
    assert_eq!(seen.all(), ["- 1"]);
    assert_eq!(bus.job(paused).await.unwrap().unwrap().state, JobState::Parked);
    other.lift_rule(RuleKind::Pause, &rule(RuleKind::Pause, "object:o").scope, "ann").await.unwrap();
    until_state(&bus, paused, JobState::Succeeded).await;
    running.shutdown(LONG).await.unwrap();
}

/// Short jobs are claimed ahead of those that run. When slow ones come, what is claimed and finds no worker is given back, for who is idle elsewhere.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_claimed_ahead_of_slow_jobs_is_given_back() {
    const SHORT: u64 = 1_000;
    const SLOW: u64 = 2;
    const BEHIND: u64 = 60;
    let (url, _) = fresh_schema("ahead");
    let (ran, over) = (Arc::new(AtomicU64::new(0)), Arc::new(tokio::sync::Notify::new()));
    let open = async || {
        let bus = Ensue::open(&url).await.unwrap();
        let work = async |(ran, over): (Arc<AtomicU64>, Arc<tokio::sync::Notify>), job: Event, _: Context| {
            if job.payload.as_str() == "\"slow\"" {
                over.notified().await;
            }
            ran.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        bus.register("work", with((ran.clone(), over.clone()), work)).unwrap();
        bus.set_workers(SLOW as usize);
        let running = bus.start().await.unwrap();
        (bus, running)
    };
    let (busy, busy_running) = open().await;
    let pause = rule(RuleKind::Pause, "handler:work");
    busy.set_rule(pause.clone()).await.unwrap();
    let jobs = |text: &'static str, count: u64| (0..count).map(move |_| Emit::to("work").payload(&text));
    let all: Vec<Emit> = jobs("short", SHORT).chain(jobs("slow", SLOW)).chain(jobs("short", BEHIND)).collect();
    for many in all.chunks(500) {
        busy.emit_all(many.to_vec()).await.unwrap();
    }
    busy.lift_rule(RuleKind::Pause, &pause.scope, "ann").await.unwrap();
    until("the short ones have run", async || (ran.load(Ordering::SeqCst) >= SHORT).then_some(())).await;
    let (_idle, idle_running) = open().await;
    until("what is behind has run", async || (ran.load(Ordering::SeqCst) == SHORT + BEHIND).then_some(())).await;
    over.notify_waiters();
    until("the slow ones have run", async || (ran.load(Ordering::SeqCst) == SHORT + BEHIND + SLOW).then_some(())).await;
    busy_running.shutdown(LONG).await.unwrap();
    idle_running.shutdown(LONG).await.unwrap();
}
