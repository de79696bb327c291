//! Workers elsewhere claim, and may go away at any moment.

use crate::support::until;
use ensue::jobs::JobState;
use ensue::{Emit, Ensue, GroupName};
use futures_util::FutureExt;
use std::time::Duration;

const LEASE: Duration = Duration::from_secs(3_600);

/// A worker that hangs up while it asks takes no job with it, and no attempt.
#[tokio::test]
async fn what_was_claimed_for_somebody_who_hung_up_is_given_back() {
    let bus = Ensue::memory().await.unwrap();
    let handler = vec![GroupName::stored("h")];
    let id = bus.emit(Emit::to("h")).await.unwrap().id;
    for polls in 0..40 {
        let mut asks = Box::pin(bus.claim_jobs(handler.clone(), 1, LEASE, Duration::from_secs(30), "hasty"));
        let mut heard = false;
        for _ in 0..polls {
            if let Some(claimed) = asks.as_mut().now_or_never() {
                heard = !claimed.unwrap().is_empty();
                break;
            }
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
        drop(asks);
        if heard {
            break;
        }
        let claimed = until("it is there for the next", async || {
            let claimed = bus.claim_jobs(handler.clone(), 1, LEASE, Duration::ZERO, "patient").await.unwrap();
            claimed.into_iter().next()
        })
        .await;
        assert_eq!((claimed.job.id, claimed.job.attempts), (id, 1), "no attempt was used up");
        let back = ensue::jobs::JobOutcome::Snoozed(Duration::ZERO);
        bus.settle_claim(&claimed.claim, back).await.unwrap();
        bus.steer_job(id, ensue::jobs::Steer::Retry).await.unwrap();
    }
}

/// A worker may ask for more than one claim takes.
#[tokio::test]
async fn many_are_claimed_at_once_in_their_order() {
    let bus = Ensue::memory().await.unwrap();
    let sent = bus.emit_all((0..250).map(|_| Emit::to("h")).collect()).await.unwrap();
    let handler = vec![GroupName::stored("h")];
    let claimed = bus.claim_jobs(handler.clone(), 230, LEASE, Duration::ZERO, "w").await.unwrap();
    let ids = |from: usize, to: usize| sent[from..to].iter().map(|job| job.id).collect::<Vec<_>>();
    assert_eq!(claimed.iter().map(|one| one.job.id).collect::<Vec<_>>(), ids(0, 230));
    let rest = bus.claim_jobs(handler, 230, LEASE, Duration::ZERO, "w").await.unwrap();
    assert_eq!(rest.iter().map(|one| one.job.id).collect::<Vec<_>>(), ids(230, 250));
    assert_eq!(bus.job(sent[0].id).await.unwrap().unwrap().state, JobState::Running);
}
