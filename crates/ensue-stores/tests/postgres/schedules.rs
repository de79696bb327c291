//! Schedules on Postgres: what a held snapshot costs, who fires at the same moment, and what a process writes that declares the same again.

use crate::support::Log;
use crate::support::groups::{name, open, with_clock};
use ensue_core::jobs::{JobState, NewJob};
use ensue_core::schedules::{Fired, Firing, Kept, Makes, Moves, NewRun, PutSchedule, RunOutcome, Schedules, What};
use ensue_core::{Jobs, Json, NewEvent, ObjectKey, Store};
use ensue_stores::postgres::PostgresOptions;
use jiff::SignedDuration;
use std::time::{Duration, Instant};
use uuid::Uuid;

const MINUTE: SignedDuration = SignedDuration::from_mins(1);

fn next(kept: &Kept) -> Firing {
    let to = kept.watermark + MINUTE;
    let event = NewEvent::new("tick").object(format!("schedule:{}", kept.name)).check().unwrap();
    let run = NewRun { occurrence: to, manual: false, what: What::Fires(Makes::Event(event)) };
    let moves = Moves { from: kept.watermark, to, due: Some(to + MINUTE) };
    Firing { name: kept.name.clone(), version: kept.version, moves: Some(moves), runs: vec![run] }
}

/// H23: with a snapshot held open, what has fired stays in the index. Who has looked begins behind it.
#[tokio::test]
async fn a_held_snapshot_does_not_make_looks_pass_over_what_has_fired() {
    const SCHEDULES: usize = 100;
    const ROUNDS: usize = 100;
    let log = Log::new().await;
    let (store, clock) = with_clock(&log).await;
    let (now, definition) = (clock.now(), Json::parse("definition", "{}").unwrap());
    for n in 0..SCHEDULES {
        let (name, definition) = (name(&format!("s{n:03}")), definition.clone());
        let put =
            PutSchedule { name, definition, managed_by: None, over: None, watermark: now, due: Some(now + MINUTE) };
        store.put_schedule(put).await.unwrap().unwrap();
    }
    log.hold("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM LOG.schedules").await;
    let (mut looks, mut fires) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        clock.advance(Duration::from_secs(60));
        let due = store.due_schedules(clock.now(), 500).await.unwrap();
        assert_eq!(due.len(), SCHEDULES);
        let begun = Instant::now();
        store.fire(due.iter().map(next).collect()).await.unwrap();
        fires.push(begun.elapsed());
        let begun = Instant::now();
        assert_eq!(store.due_schedules(clock.now(), 500).await.unwrap(), []);
        assert_eq!(store.next_schedule().await.unwrap(), Some(clock.now() + MINUTE));
        assert_eq!(store.pulse(None).await.unwrap().schedules_due, Some(clock.now() + MINUTE));
        looks.push(begun.elapsed());
    }
    let middle = |times: &[Duration]| {
        let mut times = times.to_vec();
        times.sort();
        times[times.len() / 2]
    };
    for (what, times) in [("three looks", looks), ("to fire 100", fires)] {
        println!(
            "{what}: {:?} in the first ten rounds, {:?} in the last",
            middle(&times[..10]),
            middle(&times[ROUNDS - 10..])
        );
    }

    // A session tells what it has read when it ends.
    log.let_go().await;
    store.close().await;
    log.until("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'LOG'", 0).await;
    let read =
        "SELECT idx_tup_read FROM pg_stat_all_indexes WHERE schemaname = 'LOG' AND indexrelname = 'schedules_due'";
    let read = log.number(read).await as usize;
    let if_all_were_full = 4 * SCHEDULES * ROUNDS * ROUNDS / 2;
    println!("entries read {read}, if every look were at everything {if_all_were_full}");
    assert!(read > 0 && read < if_all_were_full / 10, "{read} of {if_all_were_full}");
}

/// H20, H21: whether a job with its key is live, or one of its object, and sending it are one step also for those who fire at the same
/// moment, or send by hand: one is first, and the other finds what it has sent.
#[tokio::test]
async fn those_who_fire_for_one_key_or_lane_at_once_wait_for_each_other() {
    let log = Log::new().await;
    let (one, clock) = with_clock(&log).await;
    let two = open(&log.url, PostgresOptions { clock: Some(clock.clock()), ..PostgresOptions::default() }).await;
    let (now, definition) = (clock.now(), Json::parse("definition", "{}").unwrap());
    let mut kept = Vec::new();
    for schedule in ["a", "b", "c", "d", "e", "tick"] {
        let (name, definition) = (name(schedule), definition.clone());
        let put =
            PutSchedule { name, definition, managed_by: None, over: None, watermark: now, due: Some(now + MINUTE) };
        kept.push(one.put_schedule(put).await.unwrap().unwrap());
    }
    let [a, b, c, d, e, tick] = &kept[..] else { panic!("six were put") };
    let sends = |kept: &Kept, job: NewJob| {
        let mut firing = next(kept);
        firing.runs[0].what = What::Fires(Makes::Job(job));
        firing
    };
    let job = |handler: &str| NewJob::new(name(handler));
    let keyed = || NewJob { unique_key: Some("k".into()), ..job("h") };
    let laned = || NewJob { object: Some(ObjectKey::stored("o")), ..job("l") };
    let outcome = |fired: Vec<Fired>| match &fired[0] {
        Fired::Done(runs) => runs[0].outcome.clone(),
        Fired::Lost | Fired::Held => panic!("{fired:?}"),
    };
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'LOG' AND wait_event_type = 'Lock'";

    // The first has sent its jobs and waits for the log, so that its commit is still to come.
    log.hold("SELECT LOG.lock_log()").await;
    let firing = vec![sends(a, keyed()), sends(b, laned()), next(tick)];
    let first = tokio::spawn(async move { one.fire(firing).await });
    log.until(waiting, 1).await;
    let second = [sends(c, keyed()), sends(d, laned())].map(|firing| {
        let two = two.clone();
        tokio::spawn(async move { two.fire(vec![firing]).await })
    });
    log.until(waiting, 3).await;
    log.let_go().await;
    let first = first.await.unwrap().unwrap();
    let [second_keyed, second_laned] = second;
    let RunOutcome::Job(sent) = outcome(first) else { panic!("it was sent first") };
    assert_eq!(outcome(second_keyed.await.unwrap().unwrap()), RunOutcome::Overlapped(sent));
    let RunOutcome::Job(behind) = outcome(second_laned.await.unwrap().unwrap()) else { panic!("it waits in its lane") };
    assert_eq!(two.job(behind).await.unwrap().unwrap().state, JobState::Parked);

    // The same with what somebody sends by hand, in a transaction that is not at its end.
    log.hold(
        "SELECT LOG.jobs_enqueue(NULL, gen_random_uuid(), 1, ARRAY[1], ARRAY['by_hand'], NULL, NULL, ARRAY['1'], NULL, \
         ARRAY[0]::bigint[], NULL, ARRAY['k'], ARRAY[5], NULL, NULL, NULL, NULL, NULL)",
    )
    .await;
    let firing = sends(e, NewJob { unique_key: Some("k".into()), ..job("by_hand") });
    let third = tokio::spawn({
        let two = two.clone();
        async move { two.fire(vec![firing]).await }
    });
    log.until(waiting, 1).await;
    log.let_go().await;
    let RunOutcome::Overlapped(by_hand) = outcome(third.await.unwrap().unwrap()) else { panic!("it is there") };
    assert_eq!(two.job(by_hand).await.unwrap().unwrap().handler, name("by_hand"));
    assert_eq!(log.number("SELECT count(*) FROM LOG.jobs").await, 4);
}

/// Every half minute each process says what it declares: that is one row, and not one for each name.
#[tokio::test]
async fn what_is_declared_again_writes_one_row() {
    let log = Log::new().await;
    let (store, clock) = with_clock(&log).await;
    let names: Vec<_> = (0..1_000).map(|n| name(&format!("s{n}"))).collect();
    let lease = SignedDuration::from_secs(120);
    let declare = async |names: &[_]| {
        clock.advance(Duration::from_secs(30));
        store.declare_schedules(Uuid::from_u128(1), names, lease).await.unwrap();
        let sql = "SELECT count(DISTINCT xmin::text) FROM LOG.schedule_declarations";
        (log.number(sql).await, log.number("SELECT count(*) FROM LOG.schedule_declarations").await)
    };
    assert_eq!(declare(&names).await, (1, 1_000));
    assert_eq!(declare(&names).await, (1, 1_000), "by the commit that said it first");
    // One is new, and one is gone.
    let changed = [&names[1..], &[name("new")]].concat();
    assert_eq!(declare(&changed).await, (2, 1_000));
    let gone = "SELECT count(*) FROM LOG.schedule_declarations WHERE name = 's0'";
    assert_eq!(log.number(gone).await, 0);
    assert_eq!(log.number("SELECT count(*) FROM LOG.schedule_declarers").await, 1);
}
