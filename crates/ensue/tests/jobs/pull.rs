//! Workers elsewhere claim jobs, and the deliveries of pull handlers.

use crate::support::{LONG, noting, sent, until, until_state};
use ensue::jobs::{JobOutcome, JobState};
use ensue::{Emit, Ensue, GroupName, NewEvent, OnExhausted, Retry};
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(60);

fn key(text: &str) -> Vec<GroupName> {
    vec![GroupName::parse("handler", text).unwrap()]
}

#[tokio::test]
async fn the_deliveries_of_a_pull_handler_are_claimed_in_order_for_each_object() {
    let bus = Ensue::memory().await.unwrap();
    bus.on("order").named("remote").retry(Retry::delays([Duration::ZERO])).pull().unwrap();
    let running = bus.start().await.unwrap();
    for (object, n) in [("a", 1), ("a", 2), ("b", 3)] {
        bus.publish(NewEvent::new("order.paid").object(object).payload(&n)).await.unwrap();
    }
    let first = until("two objects", async || {
        let claimed = bus.claim_jobs(key("order.remote"), 10, LEASE, Duration::ZERO, "w1").await.unwrap();
        (!claimed.is_empty()).then_some(claimed)
    })
    .await;
    let mut claimed = first;
    while claimed.len() < 2 {
        claimed.extend(bus.claim_jobs(key("order.remote"), 10, LEASE, LONG, "w1").await.unwrap());
    }
    let payloads: Vec<&str> = claimed.iter().map(|one| one.job.payload.as_str()).collect();
    assert_eq!(payloads, ["1", "3"], "the second of an object waits for the first");
    let cause = claimed[0].job.cause.clone().unwrap();
    assert_eq!((cause.seq, cause.topic.as_str()), (1, "order.paid"));

    let failed = JobOutcome::Failed { error: "no".into(), retry: true, after: None };
    let job = bus.settle_claim(&claimed[0].claim, failed.clone()).await.unwrap();
    assert_eq!(job.state, JobState::Retrying);
    // Settling twice changes nothing.
    let snoozed = JobOutcome::Snoozed(LEASE);
    assert!(bus.settle_claim(&claimed[0].claim, snoozed).await.unwrap_err().to_string().contains("lease lost"));
    let again = bus.claim_jobs(key("order.remote"), 10, LEASE, LONG, "w2").await.unwrap();
    assert_eq!((again[0].job.payload.as_str(), again[0].job.attempts), ("1", 2));
    let done = JobOutcome::Done { result: None, events: vec![NewEvent::new("order.shipped")], jobs: Vec::new() };
    assert_eq!(bus.settle_claim(&again[0].claim, done).await.unwrap().state, JobState::Succeeded);
    let next = bus.claim_jobs(key("order.remote"), 10, LEASE, LONG, "w2").await.unwrap();
    assert_eq!(next[0].job.payload.as_str(), "2");
    running.shutdown(LONG).await.unwrap();
}

/// H16: the lease passes, another takes over, and the first one's word changes nothing.
#[tokio::test]
async fn a_claim_that_is_not_renewed_goes_to_another_and_is_lost() {
    let bus = Ensue::memory().await.unwrap();
    let running = bus.start().await.unwrap();
    let id = sent(&bus, Emit::to("h")).await;
    let first = bus.claim_jobs(key("h"), 1, Duration::from_millis(100), Duration::ZERO, "w1").await.unwrap().remove(0);
    let second = bus.claim_jobs(key("h"), 1, LEASE, LONG, "w2").await.unwrap().remove(0);
    assert_eq!((second.job.id, second.job.attempts), (id, 2));
    let done = || JobOutcome::Done { result: None, events: vec![NewEvent::new("t")], jobs: Vec::new() };
    assert!(bus.settle_claim(&first.claim, done()).await.is_err());
    assert!(bus.renew_claim(&first.claim, LEASE).await.is_err());
    assert!(bus.say_under_claim(&first.claim, Vec::new()).await.is_err());
    assert_eq!(bus.store().bounds().await.unwrap().last, 0);
    let job = bus.settle_claim(&second.claim, done()).await.unwrap();
    assert_eq!((job.state, job.worker.as_deref()), (JobState::Succeeded, Some("w2")));
    running.shutdown(LONG).await.unwrap();
}

#[tokio::test]
async fn a_worker_that_waits_is_woken_by_what_is_sent() {
    let bus = Ensue::memory().await.unwrap();
    let waiting = tokio::spawn({
        let bus = bus.clone();
        async move { bus.claim_jobs(key("h"), 1, LEASE, LONG, "w").await.unwrap() }
    });
    until("it is served", async || (!bus.store().job_servers().await.unwrap().is_empty()).then_some(())).await;
    let id = sent(&bus, Emit::to("h")).await;
    assert_eq!(waiting.await.unwrap()[0].job.id, id);
}

/// A job that dies with its worker frees the next of its object, which a worker of this process takes up at once.
#[tokio::test]
async fn behind_a_worker_that_vanished_the_next_of_its_object_runs_at_once() {
    let bus = Ensue::memory().await.unwrap();
    let job = || Emit::to("h").object("o").attempts_max(1).on_exhausted(OnExhausted::Skip);
    let ids = [sent(&bus, job()).await, sent(&bus, job()).await];
    bus.claim_jobs(key("h"), 1, Duration::from_millis(200), Duration::ZERO, "vanishes").await.unwrap();
    let seen = noting(&bus, "h");
    let running = bus.start().await.unwrap();
    assert_eq!(until_state(&bus, ids[1], JobState::Succeeded).await.attempts, 1);
    assert_eq!(bus.job(ids[0]).await.unwrap().unwrap().state, JobState::Dead);
    assert_eq!(seen.all().len(), 1);
    running.shutdown(LONG).await.unwrap();
}
