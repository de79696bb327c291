//! Each death is told of in the log, once, and nothing else is.

use crate::support::{LONG, at_once, failed, sent, until_state, with};
use ensue::jobs::{JobId, JobOutcome, JobState, Steer};
use ensue::{Context, Emit, Ensue, Event, GroupName, HandlerError, JobOptions, NewEvent, OnExhausted};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// The jobs whose deaths the log tells of, as text, in its order.
async fn told(bus: &Ensue) -> Vec<String> {
    let mut told = Vec::new();
    for seq in 1..=bus.store().bounds().await.unwrap().last {
        let event = bus.store().event(seq).await.unwrap().unwrap();
        if event.topic.as_str() == "ensue.job.dead" {
            let payload = event.payload.as_str();
            let at = payload.find("\"job\":").unwrap() + "\"job\":".len();
            told.push(payload[at..].trim_start_matches([' ', '"']).chars().take(36).collect());
        }
    }
    told
}

fn texts(ids: &[JobId]) -> Vec<String> {
    ids.iter().map(|id| id.to_string()).collect()
}

/// A death that takes the others of its object with it is told of for each of them; an alert hears of all at once.
#[tokio::test]
async fn all_that_die_with_a_job_are_told_of() {
    let bus = Ensue::memory().await.unwrap();
    let options = JobOptions { on_exhausted: OnExhausted::DeadLetterObject, ..at_once(1) };
    let go = Arc::new(Notify::new());
    let handler = with(go.clone(), async |go: Arc<Notify>, _: Event, _: Context| {
        go.notified().await;
        failed::<()>("no")
    });
    bus.register_with("h", options, handler).unwrap();
    let alerts = crate::support::Seen::default();
    let noted = alerts.clone();
    bus.on("ensue.job.dead")
        .named("alert")
        .handle(with(noted, async |noted: crate::support::Seen, event: Event, _: Context| {
            noted.add(event.payload.as_str());
            Ok(())
        }))
        .unwrap();
    let running = bus.start().await.unwrap();
    let ids = [sent(&bus, Emit::to("h").object("o")).await, sent(&bus, Emit::to("h").object("o")).await];
    go.notify_one();
    for id in ids {
        until_state(&bus, id, JobState::Dead).await;
    }
    crate::support::until("both alerts", async || (alerts.all().len() == 2).then_some(())).await;
    assert_eq!(told(&bus).await, texts(&ids));
    running.shutdown(LONG).await.unwrap();
}

/// What it wanted to publish is refused: it dies of that, and that is told.
#[tokio::test]
async fn a_job_that_dies_of_what_it_published_is_told_of() {
    let bus = Ensue::memory().await.unwrap();
    bus.publish(NewEvent::new("t").key("k")).await.unwrap();
    bus.register_with("h", at_once(3), async |_: Event, cx: Context| -> Result<(), HandlerError> {
        Ok(cx.publish(NewEvent::new("other").key("k"))?)
    })
    .unwrap();
    let running = bus.start().await.unwrap();
    let id = sent(&bus, Emit::to("h")).await;
    let job = until_state(&bus, id, JobState::Dead).await;
    assert!(job.errors[0].error.contains("refused"), "{:?}", job.errors);
    assert_eq!(told(&bus).await, texts(&[id]));
    running.shutdown(LONG).await.unwrap();
}

/// Somebody wanted it to stop: it is cancelled, though its handler says that it failed for good.
#[tokio::test]
async fn a_job_that_was_told_to_stop_is_not_told_to_have_died() {
    let bus = Ensue::memory().await.unwrap();
    let started = Arc::new(Notify::new());
    let handler = with(started.clone(), async |started: Arc<Notify>, _: Event, cx: Context| {
        started.notify_one();
        cx.cancelled().await;
        failed::<()>("stopped")
    });
    bus.register_with("h", at_once(1), handler).unwrap();
    let running = bus.start().await.unwrap();
    let id = sent(&bus, Emit::to("h")).await;
    started.notified().await;
    bus.steer_job(id, Steer::Cancel).await.unwrap();
    until_state(&bus, id, JobState::Cancelled).await;
    assert_eq!(told(&bus).await, texts(&[]));

    // A worker elsewhere says the same of one that it was told to stop.
    let id = sent(&bus, Emit::to("elsewhere")).await;
    let keys = vec![GroupName::stored("elsewhere")];
    let claimed = bus.claim_jobs(keys, 1, LONG, Duration::ZERO, "w").await.unwrap().remove(0);
    bus.steer_job(id, Steer::Cancel).await.unwrap();
    let outcome = JobOutcome::Failed { error: "stopped".into(), retry: false, after: None };
    assert_eq!(bus.settle_claim(&claimed.claim, outcome).await.unwrap().state, JobState::Cancelled);
    assert_eq!(told(&bus).await, texts(&[]));
    running.shutdown(LONG).await.unwrap();
}

/// What a worker elsewhere gives up, and what vanishes with its worker, is told of as well.
#[tokio::test]
async fn deaths_at_workers_elsewhere_are_told_of() {
    let bus = Ensue::memory().await.unwrap();
    let running = bus.start().await.unwrap();
    let ids = [sent(&bus, Emit::to("h").attempts_max(1)).await, sent(&bus, Emit::to("h").attempts_max(1)).await];
    let keys = vec![GroupName::stored("h")];
    let claimed = bus.claim_jobs(keys, 2, Duration::from_millis(100), Duration::ZERO, "w").await.unwrap();
    let outcome = JobOutcome::Failed { error: "no".into(), retry: true, after: None };
    assert_eq!(bus.settle_claim(&claimed[0].claim, outcome).await.unwrap().state, JobState::Dead);
    until_state(&bus, ids[1], JobState::Dead).await;
    assert_eq!(told(&bus).await, texts(&ids));
    running.shutdown(LONG).await.unwrap();
}
