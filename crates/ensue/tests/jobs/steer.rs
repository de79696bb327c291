//! Jobs are called off, brought back and passed over; what their state does not allow is refused and changes nothing.

use crate::support::{LONG, at_once, failed, noting, sent, until, until_state, with};
use ensue::jobs::{JobQuery, JobState, Steer};
use ensue::{Context, Emit, Ensue, Error, Event, StoreError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[tokio::test]
async fn a_job_that_waits_is_cancelled_at_once_and_one_that_runs_when_it_has_heard() {
    let bus = Ensue::memory().await.unwrap();
    let runs = Arc::new(AtomicBool::new(false));
    let started = runs.clone();
    bus.register_with(
        "h",
        at_once(3),
        with(started, async |started, _: Event, cx: Context| {
            started.store(true, Ordering::SeqCst);
            cx.cancelled().await;
            failed::<()>("stopped")
        }),
    )
    .unwrap();
    let running = bus.start().await.unwrap();
    let first = sent(&bus, Emit::to("h")).await;
    until("it runs", async || runs.load(Ordering::SeqCst).then_some(())).await;
    let second = sent(&bus, Emit::to("h")).await;
    let cancelled = bus.steer_job(second, Steer::Cancel).await.unwrap();
    assert_eq!((cancelled.state, cancelled.attempts), (JobState::Cancelled, 0));
    let told = bus.steer_job(first, Steer::Cancel).await.unwrap();
    assert_eq!((told.state, told.cancel_asked), (JobState::Running, true));
    assert_eq!(until_state(&bus, first, JobState::Cancelled).await.attempts, 1);
    // What is over stays over.
    let again = bus.steer_job(first, Steer::Cancel).await.unwrap_err();
    assert!(matches!(again, Error::Store(StoreError::Conflict(why)) if why.contains("cancelled")));
    running.shutdown(LONG).await.unwrap();
}

/// H12: what has exhausted its attempts is there, holds its object, and runs next when it is brought back.
#[tokio::test]
async fn a_dead_job_holds_its_object_until_it_is_retried_or_skipped() {
    let bus = Ensue::memory().await.unwrap();
    let works = Arc::new(AtomicBool::new(false));
    let (fixed, seen) = (works.clone(), crate::support::Seen::default());
    let noted = seen.clone();
    bus.register_with(
        "h",
        at_once(1),
        with((fixed, noted), async |(fixed, noted), job: Event, cx: Context| {
            if !fixed.load(Ordering::SeqCst) && job.payload.as_str() == "1" {
                return failed("broken");
            }
            noted.add(format!("{}{}", job.payload.as_str(), if cx.redriven() { " redriven" } else { "" }));
            Ok(())
        }),
    )
    .unwrap();
    let running = bus.start().await.unwrap();
    let first = sent(&bus, Emit::to("h").object("o").payload(&1)).await;
    sent(&bus, Emit::to("h").object("o").payload(&2)).await;
    sent(&bus, Emit::to("h").object("p").payload(&3)).await;
    until_state(&bus, first, JobState::Dead).await;
    bus.drain().await.unwrap();
    assert_eq!(seen.all(), ["3"], "another object is not held");
    works.store(true, Ordering::SeqCst);
    bus.steer_job(first, Steer::Retry).await.unwrap();
    bus.drain().await.unwrap();
    assert_eq!(seen.all(), ["3", "1 redriven", "2"]);

    works.store(false, Ordering::SeqCst);
    let dead = sent(&bus, Emit::to("h").object("o").payload(&1)).await;
    sent(&bus, Emit::to("h").object("o").payload(&4)).await;
    until_state(&bus, dead, JobState::Dead).await;
    bus.steer_job(dead, Steer::Skip).await.unwrap();
    bus.drain().await.unwrap();
    assert_eq!(seen.all().last().map(String::as_str), Some("4"));
    running.shutdown(LONG).await.unwrap();
}

#[tokio::test]
async fn many_are_steered_at_once_and_a_dry_run_changes_nothing() {
    let bus = Ensue::memory().await.unwrap();
    for n in 0..500 {
        sent(&bus, Emit::to(if n % 2 == 0 { "mail.send" } else { "mails" }).payload(&n)).await;
    }
    let filter = JobQuery { handler: Some(ensue::GroupName::parse("handler", "mail").unwrap()), ..JobQuery::default() };
    let dry = bus.steer_all(filter.clone(), Steer::Cancel, true).await.unwrap();
    assert_eq!((dry.matched, dry.refused), (250, 0));
    let done = bus.steer_all(filter.clone(), Steer::Cancel, false).await.unwrap();
    assert_eq!((done.matched, done.refused), (250, 0));
    let again = bus.steer_all(filter, Steer::Cancel, false).await.unwrap();
    assert_eq!((again.matched, again.refused), (0, 250));
    noting(&bus, "unused");
}
