//! A job that was sent is run by its handler, and what becomes of it is known.

use crate::support::{LONG, Seen, at_once, failed, noting, sent, until, until_state, with};
use ensue::jobs::{Job, JobOutcome, JobQuery, JobState};
use ensue::testing::{ManualClock, memory_at};
use ensue::{
    Context, Emit, Ensue, Event, GroupName, HandlerError, JobOptions, NewEvent, OnExhausted, Outcome, Retry,
    TransactionError,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

#[tokio::test]
async fn the_highest_priority_runs_first_and_the_first_sent_inside_it() {
    let bus = Ensue::memory().await.unwrap();
    let seen = Seen::default();
    let noted = seen.clone();
    bus.register_with(
        "h",
        at_once(1),
        with(noted, async |noted, job: Event, _: Context| {
            noted.add(job.payload.as_str());
            Ok(())
        }),
    )
    .unwrap();
    for (priority, name) in [(0, 1), (9, 2), (u64::MAX, 3), (9, 4), (u64::MAX - 1, 5), (u64::MAX, 6)] {
        sent(&bus, Emit::to("h").payload(&name).priority(priority)).await;
    }
    let running = bus.start().await.unwrap();
    bus.drain().await.unwrap();
    assert_eq!(seen.all(), ["3", "6", "5", "2", "4", "1"]);
    running.shutdown(LONG).await.unwrap();
}

#[tokio::test]
async fn a_job_that_fails_is_tried_again_and_dies_with_its_errors_and_a_notice() {
    let bus = Ensue::memory().await.unwrap();
    let options = JobOptions { on_exhausted: OnExhausted::Hold, ..at_once(3) };
    bus.register_with("mail", options, async |_: Event, cx: Context| {
        cx.log(format!("attempt {}", cx.attempt()));
        failed::<()>("no route")
    })
    .unwrap();
    let alerts = Seen::default();
    let noted = alerts.clone();
    bus.on("ensue.job.dead")
        .named("alert")
        .handle(with(noted, async |noted, event: Event, _: Context| {
            noted.add(event.payload.as_str());
            Ok(())
        }))
        .unwrap();
    let running = bus.start().await.unwrap();
    let id = sent(&bus, Emit::to("mail").object("user:1")).await;
    let job = until_state(&bus, id, JobState::Dead).await;
    assert_eq!(job.attempts, 3);
    assert_eq!(job.errors.iter().map(|error| error.attempt).collect::<Vec<_>>(), [1, 2, 3]);
    let lines = bus.job_lines(id, 0, 10).await.unwrap();
    assert_eq!(lines.iter().map(|line| &*line.message).collect::<Vec<_>>(), ["attempt 1", "attempt 2", "attempt 3"]);
    bus.drain().await.unwrap();
    assert_eq!(alerts.all().len(), 1);
    assert!(alerts.all()[0].contains("no route") && alerts.all()[0].contains(&id.to_string()));
    running.shutdown(LONG).await.unwrap();
}

/// An alert that fails makes no new alerts.
#[tokio::test]
async fn what_fails_about_a_notice_makes_no_new_one() {
    let bus = Ensue::memory().await.unwrap();
    bus.register_with("mail", at_once(1), async |_: Event, _: Context| failed::<()>("no")).unwrap();
    bus.on("ensue")
        .named("alert")
        .retry(ensue::Retry::never())
        .handle(async |_: Event, _: Context| failed::<()>("no"))
        .unwrap();
    let running = bus.start().await.unwrap();
    let id = sent(&bus, Emit::to("mail")).await;
    until_state(&bus, id, JobState::Dead).await;
    bus.drain().await.unwrap();
    assert_eq!(bus.store().bounds().await.unwrap().last, 1, "there is the notice of the job, and no other");
    running.shutdown(LONG).await.unwrap();
}

#[tokio::test]
async fn jobs_of_one_object_run_one_after_another_in_the_order_in_which_they_were_sent() {
    let bus = Ensue::memory().await.unwrap();
    let (seen, at_work) = (Seen::default(), Arc::new(AtomicU32::new(0)));
    let (noted, busy) = (seen.clone(), at_work.clone());
    bus.register(
        "h",
        with((noted, busy), async |(noted, busy), job: Event, cx: Context| {
            assert_eq!(busy.fetch_add(1, Ordering::SeqCst), 0, "two of one object run at once");
            tokio::task::yield_now().await;
            busy.fetch_sub(1, Ordering::SeqCst);
            // Every other fails once.
            if cx.attempt() == 1 && job.payload.as_str().parse::<u32>().unwrap() % 2 == 0 {
                return Ok(Outcome::Retry(Duration::ZERO));
            }
            noted.add(job.payload.as_str());
            Ok(Outcome::Done)
        }),
    )
    .unwrap();
    let running = bus.start().await.unwrap();
    for n in 0..40 {
        sent(&bus, Emit::to("h").object("o").payload(&n).priority(n)).await;
    }
    until("all forty", async || (seen.all().len() == 40).then_some(())).await;
    assert_eq!(seen.all(), (0..40).map(|n: u32| n.to_string()).collect::<Vec<_>>());
    running.shutdown(LONG).await.unwrap();
}

#[tokio::test]
async fn a_delayed_job_runs_when_it_is_due_and_a_live_key_is_not_sent_twice() {
    let clock = ManualClock::at_noon();
    let bus = memory_at(&clock).await.unwrap();
    let seen = noting(&bus, "h");
    let running = bus.start().await.unwrap();
    let at = clock.now() + Duration::from_secs(60);
    let first = bus.emit(Emit::to("h").payload(&"late").not_before(at).unique_key("k")).await.unwrap();
    let again = bus.emit(Emit::to("h").payload(&"again").unique_key("k")).await.unwrap();
    assert_eq!((first.is_new, again.is_new, again.id), (true, false, first.id));
    bus.drain().await.unwrap();
    assert_eq!((first.state, seen.all().len()), (JobState::Scheduled, 0));
    clock.advance(Duration::from_secs(60));
    bus.drain().await.unwrap();
    let job = until_state(&bus, first.id, JobState::Succeeded).await;
    assert!(job.started_at.unwrap() >= at);
    // It is over: the key is free.
    assert!(bus.emit(Emit::to("h").payload(&"new").unique_key("k")).await.unwrap().is_new);
    bus.drain().await.unwrap();
    assert_eq!(seen.all(), ["\"late\"", "\"new\""]);
    running.shutdown(LONG).await.unwrap();
}

#[tokio::test]
async fn what_a_job_publishes_and_sends_commits_with_its_end() {
    let bus = Ensue::memory().await.unwrap();
    let seen = noting(&bus, "second");
    bus.register_with("first", at_once(2), async |_: Event, cx: Context| -> Result<(), HandlerError> {
        cx.publish(NewEvent::new("done").payload(&cx.attempt()))?;
        cx.emit(Emit::to("second").payload(&cx.attempt()))?;
        if cx.attempt() == 1 { failed("not yet") } else { Ok(()) }
    })
    .unwrap();
    // An event handler may send jobs, too.
    bus.on("done")
        .named("h")
        .handle(async |_: Event, cx: Context| Ok(cx.emit(Emit::to("second").payload(&"from an event"))?))
        .unwrap();
    let running = bus.start().await.unwrap();
    sent(&bus, Emit::to("first")).await;
    until("two of the second", async || (seen.all().len() == 2).then_some(())).await;
    bus.drain().await.unwrap();
    assert_eq!(seen.all(), ["2", "\"from an event\""]);
    assert_eq!(bus.store().bounds().await.unwrap().last, 1);
    running.shutdown(LONG).await.unwrap();
}

#[tokio::test]
async fn a_job_settles_in_its_own_transaction() {
    let bus = Ensue::memory().await.unwrap();
    bus.transaction(|tx| Ok(tx.execute("CREATE TABLE sums (total INTEGER)", [])?)).await.unwrap();
    let handler = bus.clone();
    bus.register(
        "add",
        with(handler, async |handler, _: Event, cx: Context| {
            handler
                .transaction(move |tx| {
                    tx.execute("INSERT INTO sums VALUES (1)", [])?;
                    cx.done_in(tx)
                })
                .await?;
            // What comes after the commit does not undo it.
            failed::<()>("too late")
        }),
    )
    .unwrap();
    let running = bus.start().await.unwrap();
    let id = sent(&bus, Emit::to("add").object("o")).await;
    let next = sent(&bus, Emit::to("add").object("o")).await;
    for id in [id, next] {
        let job = until_state(&bus, id, JobState::Succeeded).await;
        assert_eq!((job.attempts, job.errors.len()), (1, 0));
    }
    let total: i64 =
        bus.transaction(|tx| Ok(tx.query_row("SELECT count(*) FROM sums", [], |row| row.get(0))?)).await.unwrap();
    assert_eq!(total, 2);
    running.shutdown(LONG).await.unwrap();
}

/// Its effects are gone, so it is not done, whatever it says; another attempt does it.
#[tokio::test]
async fn a_job_whose_own_transaction_never_committed_is_tried_again() {
    let bus = Ensue::memory().await.unwrap();
    let handler = with(bus.clone(), async |bus: Ensue, _: Event, cx: Context| {
        let first = cx.attempt() == 1;
        let settled = bus.transaction(move |tx| {
            cx.done_in(tx)?;
            if first { Err(TransactionError::rollback("no")) } else { Ok(()) }
        });
        assert_eq!(settled.await.is_err(), first);
        Ok(())
    });
    bus.register_with("h", at_once(2), handler).unwrap();
    let running = bus.start().await.unwrap();
    let id = sent(&bus, Emit::to("h")).await;
    let job = until_state(&bus, id, JobState::Succeeded).await;
    assert_eq!((job.attempts, job.errors.len()), (2, 1));
    assert!(job.errors[0].error.contains("did not commit"), "{:?}", job.errors);
    running.shutdown(LONG).await.unwrap();
}

#[tokio::test]
async fn panics_and_timeouts_are_failures_and_a_snooze_uses_no_attempt() {
    let bus = Ensue::memory().await.unwrap();
    bus.register_with("panics", at_once(1), async |_: Event, _: Context| -> Result<(), HandlerError> {
        panic!("boom")
    })
    .unwrap();
    let options = JobOptions { timeout: Some(Duration::from_millis(20)), ..at_once(1) };
    bus.register_with("hangs", options, async |_: Event, _: Context| -> Result<(), HandlerError> {
        std::future::pending().await
    })
    .unwrap();
    let naps = Arc::new(AtomicU32::new(0));
    let counted = naps.clone();
    bus.register_with(
        "naps",
        at_once(1),
        with(counted, async |counted, _: Event, _: Context| {
            Ok(if counted.fetch_add(1, Ordering::SeqCst) < 3 {
                Outcome::Snooze(Duration::from_millis(5))
            } else {
                Outcome::Done
            })
        }),
    )
    .unwrap();
    let running = bus.start().await.unwrap();
    let (panics, hangs, napping) =
        (sent(&bus, Emit::to("panics")).await, sent(&bus, Emit::to("hangs")).await, sent(&bus, Emit::to("naps")).await);
    assert!(until_state(&bus, panics, JobState::Dead).await.errors[0].error.contains("boom"));
    assert!(until_state(&bus, hangs, JobState::Dead).await.errors[0].error.contains("timeout"));
    assert_eq!(until_state(&bus, napping, JobState::Succeeded).await.attempts, 1);
    assert_eq!(naps.load(Ordering::SeqCst), 4);
    running.shutdown(LONG).await.unwrap();
}

/// A job for a handler that nobody has registered uses no attempts, and runs once somebody has.
#[tokio::test]
async fn a_job_without_a_handler_waits_for_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ensue.db");
    let path = path.to_str().unwrap();
    let bus = Ensue::open(path).await.unwrap();
    noting(&bus, "other");
    let running = bus.start().await.unwrap();
    let id = sent(&bus, Emit::to("missing")).await;
    bus.drain().await.unwrap();
    let job = bus.job(id).await.unwrap().unwrap();
    assert_eq!((job.state, job.attempts), (JobState::Available, 0));
    running.shutdown(LONG).await.unwrap();
    bus.close().await;

    let bus = Ensue::open(path).await.unwrap();
    noting(&bus, "missing");
    let running = bus.start().await.unwrap();
    assert_eq!(until_state(&bus, id, JobState::Succeeded).await.attempts, 1);
    running.shutdown(LONG).await.unwrap();
}

#[tokio::test]
async fn a_shutdown_gives_back_what_has_not_started_and_waits_for_what_runs() {
    let bus = Ensue::memory().await.unwrap();
    let go = Arc::new(tokio::sync::Notify::new());
    let (started, gate) = (Arc::new(AtomicU32::new(0)), go.clone());
    let counted = started.clone();
    bus.register_with(
        "h",
        at_once(1),
        with((counted, gate), async |(counted, gate), _: Event, _: Context| {
            counted.fetch_add(1, Ordering::SeqCst);
            gate.notified().await;
            Ok(())
        }),
    )
    .unwrap();
    let running = bus.start().await.unwrap();
    let ids = [sent(&bus, Emit::to("h")).await, sent(&bus, Emit::to("h")).await, sent(&bus, Emit::to("h")).await];
    until("one runs", async || (started.load(Ordering::SeqCst) == 1).then_some(())).await;
    let stopping = tokio::spawn(running.shutdown(LONG));
    go.notify_one();
    stopping.await.unwrap().unwrap();
    let mut states = Vec::new();
    for id in ids {
        let job = bus.job(id).await.unwrap().unwrap();
        states.push((job.state, job.attempts));
    }
    assert_eq!(states, [(JobState::Succeeded, 1), (JobState::Available, 0), (JobState::Available, 0)]);
}

/// What settles in its own transaction leaves nothing to write, and makes room for the next all the same.
#[tokio::test]
async fn many_that_settle_in_their_own_transactions_follow_each_other() {
    let bus = Ensue::memory().await.unwrap();
    let handler = with(bus.clone(), async |bus: Ensue, _: Event, cx: Context| -> Result<(), HandlerError> {
        tokio::task::yield_now().await;
        bus.transaction(move |tx| cx.done_in(tx)).await?;
        Ok(())
    });
    bus.register("h", handler).unwrap();
    let running = bus.start().await.unwrap();
    let sent = bus.emit_all((0..100).map(|n| Emit::to("h").object(format!("o{}", n % 3))).collect()).await.unwrap();
    for job in sent {
        until_state(&bus, job.id, JobState::Succeeded).await;
    }
    running.shutdown(LONG).await.unwrap();
}

/// Where nobody else writes, a job is claimed in the commit that stores it: it starts when it is on disk, and not a commit
/// later.
#[tokio::test]
async fn a_job_is_claimed_in_the_commit_that_stores_it() {
    let folder = tempfile::tempdir().unwrap();
    let bus = Ensue::open(folder.path().join("e.db").to_str().unwrap()).await.unwrap();
    let seen = noting(&bus, "h");
    let running = bus.start().await.unwrap();
    // Counted from 0 only while somebody looks.
    let commits = Arc::new(AtomicU32::new(1_000));
    let looked = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (counted, wait) = (commits.clone(), looked.clone());
    let hook = move || {
        // The second commit waits until somebody has looked at what the first one has left.
        if counted.fetch_add(1, Ordering::SeqCst) == 1 {
            // Not for ever: something else may have been the first.
            let began = std::time::Instant::now();
            while !wait.load(Ordering::SeqCst) && began.elapsed() < Duration::from_secs(2) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        false
    };
    bus.transaction(move |tx| Ok(tx.commit_hook(Some(hook))?)).await.unwrap();
    // The pool may be about to look for something else when a job is sent: then it claims once more. And one that has just claimed
    // puts the next claim off for some milliseconds: each try leaves it alone for longer.
    let mut states = Vec::new();
    while states.len() < 20 && !states.contains(&JobState::Running) {
        commits.store(1_000, Ordering::SeqCst);
        bus.drain().await.unwrap();
        tokio::time::sleep(Duration::from_millis(states.len() as u64)).await;
        let ticket = bus.write_ticket().await.unwrap();
        looked.store(false, Ordering::SeqCst);
        commits.store(0, Ordering::SeqCst);
        let sending = tokio::spawn({
            let bus = bus.clone();
            async move { sent(&bus, Emit::to("h")).await }
        });
        // On this one-threaded runtime a yield polls every task that was woken: the job is in the queue, the claim behind it.
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
        drop(ticket);
        let id = sending.await.unwrap();
        states.push(bus.job(id).await.unwrap().unwrap().state);
        looked.store(true, Ordering::SeqCst);
    }
    assert_eq!(states.last(), Some(&JobState::Running), "{states:?}");
    until("their ends", async || (seen.all().len() == states.len()).then_some(())).await;
    running.shutdown(LONG).await.unwrap();
}

/// H26: jobs that fail together are tried again at times that are spread over the whole delay.
#[tokio::test]
async fn jobs_that_fail_together_come_back_apart() {
    const JOBS: usize = 1_000;
    let delay = Duration::from_secs(3_600);
    let bus = Ensue::memory().await.unwrap();
    let options = JobOptions { retry: Retry::attempts(2).first(delay).max(delay), ..JobOptions::default() };
    bus.register_with("h", options, async |_: Event, _: Context| failed::<()>("the relay is down")).unwrap();
    let running = bus.start().await.unwrap();
    bus.emit_all((0..JOBS).map(|n| Emit::to("h").payload(&n)).collect()).await.unwrap();
    // Workers elsewhere fail as well.
    let elsewhere = vec![GroupName::stored("elsewhere")];
    bus.emit_all((0..100).map(|n| Emit::to("elsewhere").payload(&n)).collect()).await.unwrap();
    for claimed in bus.claim_jobs(elsewhere, 100, LONG, LONG, "w").await.unwrap() {
        let failed = JobOutcome::Failed { error: "down".into(), retry: true, after: None };
        bus.settle_claim(&claimed.claim, failed).await.unwrap();
    }
    let query = |handler: &str| JobQuery { handler: Some(GroupName::stored(handler)), ..JobQuery::default() };
    let failed_once = async |handler: &str, count: usize| {
        until("all have failed", async || {
            let jobs = bus.jobs(query(handler), JOBS).await.unwrap().jobs;
            (jobs.iter().filter(|job| !job.errors.is_empty()).count() == count).then_some(jobs)
        })
        .await
    };
    let waits = |job: &Job| job.not_before.unwrap().duration_since(job.errors[0].at).as_secs_f64();
    let all: Vec<f64> = failed_once("h", JOBS).await.iter().map(waits).collect();
    for quarter in 0..4 {
        let part = delay.as_secs_f64() / 4.0;
        let count = all.iter().filter(|wait| (**wait / part).floor() as usize == quarter).count();
        // A quarter of them each, by chance: fourteen in a thousand more or less.
        assert!((150..350).contains(&count), "{count} come back in the quarter {quarter} of their delay");
    }
    let all: Vec<f64> = failed_once("elsewhere", 100).await.iter().map(waits).collect();
    let distinct: std::collections::HashSet<u64> = all.iter().map(|wait| (wait * 1_000.0) as u64).collect();
    assert!(distinct.len() > 50, "{distinct:?}");
    running.shutdown(LONG).await.unwrap();
}

/// H27: a handler whose jobs are all stuck leaves workers to the others, and what it has claimed takes nobody's room.
#[tokio::test]
async fn a_stuck_handler_leaves_workers_to_the_others() {
    let bus = Ensue::memory().await.unwrap();
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let stuck = with(gate.clone(), async |gate: Arc<tokio::sync::Semaphore>, job: Event, _: Context| {
        // Short ones come first, so that many are claimed ahead.
        if job.payload.as_str() == "\"stuck\"" {
            gate.acquire().await?.forget();
        }
        Ok(())
    });
    bus.register("stuck", stuck).unwrap();
    let seen = noting(&bus, "quick");
    let running = bus.start().await.unwrap();
    bus.emit_all((0..500).map(|_| Emit::to("stuck").payload(&"short")).collect()).await.unwrap();
    let sent = bus.emit_all((0..500).map(|_| Emit::to("stuck").payload(&"stuck")).collect()).await.unwrap();
    until("they are stuck", async || {
        let counts = bus.store().job_counts().await.unwrap();
        let running = counts.iter().find(|count| count.state == JobState::Running).map_or(0, |count| count.count);
        (running >= 10).then_some(())
    })
    .await;
    for n in 0..50 {
        let id = bus.emit(Emit::to("quick").payload(&n)).await.unwrap().id;
        until_state(&bus, id, JobState::Succeeded).await;
    }
    assert_eq!(seen.all().len(), 50);
    gate.add_permits(500);
    for job in sent {
        until_state(&bus, job.id, JobState::Succeeded).await;
    }
    running.shutdown(LONG).await.unwrap();
}

/// H18: whatever is cut off and run again is known by the same id, so that a receiver can tell.
#[tokio::test]
async fn each_attempt_at_a_job_has_the_same_id_and_a_higher_fence() {
    let bus = Ensue::memory().await.unwrap();
    let seen = Seen::default();
    let note = async |seen: Seen, job: Event, cx: Context| {
        seen.add(format!("{} {}", job.id.0, cx.fence()));
        if cx.attempt() < 3 { failed("cut off") } else { Ok(()) }
    };
    bus.register_with("h", at_once(3), with(seen.clone(), note)).unwrap();
    let running = bus.start().await.unwrap();
    let id = sent(&bus, Emit::to("h")).await;
    until_state(&bus, id, JobState::Succeeded).await;
    assert_eq!(seen.all(), [1, 2, 3].map(|fence| format!("{id} {fence}")));
    running.shutdown(LONG).await.unwrap();
}
