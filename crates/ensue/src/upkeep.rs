//! Who lets delayed events in and old ones go?

use crate::Ensue;
use crate::delivery::{Deliveries, until};
use crate::health::Work;
use crate::jobs::JobLoops;
use crate::parking;
use crate::schedules;
use crate::supervision::supervised;
use ensue_core::positions::GroupState;
use ensue_core::retention::{Retention, keep_from};
use ensue_core::{Seq, StoreError};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How many delayed events enter the log in one commit.
const RELEASE_BATCH: usize = 1_000;
/// How long to wait after something went wrong.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How many events or keys are forgotten in one commit: short enough to stay out of the way of appends.
const FORGET_BATCH: usize = 1_000;

/// The running loops of a bus. Dropping it stops them; nothing is lost, they only wait to be started again.
pub struct Running {
    stop: watch::Sender<bool>,
    loops: Vec<JoinHandle<()>>,
    bus: Ensue,
    deliveries: Arc<Deliveries>,
    jobs: Arc<JobLoops>,
}

impl Running {
    pub(crate) fn start(bus: Ensue, deliveries: Arc<Deliveries>, jobs: Arc<JobLoops>) -> Self {
        let stop = watch::Sender::new(false);
        let loops = vec![
            keep(&stop, "release", &bus, release_when_due),
            keep(&stop, "retention", &bus, forget_regularly),
            keep(&stop, "schedules", &bus, schedules::run),
            keep(&stop, "declared schedules", &bus, schedules::keep_declared),
        ];
        Self { stop, loops, bus, deliveries, jobs }
    }

    /// Stops everything, at most within this time: nothing new is begun, handlers that run are told to end and waited for,
    /// what is done is written down. What does not end in time is run again by whoever starts next. The bus can still be
    /// used, and is to be closed.
    pub async fn shutdown(mut self, wait_max: Duration) -> Result<(), crate::Error> {
        self.stop.send_replace(true);
        let deadline = tokio::time::Instant::now() + wait_max;
        // Both at once: each may wait for what runs.
        let (settled, ()) =
            tokio::join!(self.deliveries.shutdown(&self.bus, wait_max), self.jobs.shutdown(&self.bus, wait_max));
        for task in &mut self.loops {
            // A loop that does not stop in time is aborted with `self`; its last verb is atomic either way.
            let _stopped_or_late = tokio::time::timeout_at(deadline, task).await;
        }
        Ok(settled?)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.loops.iter().for_each(JoinHandle::abort);
        self.deliveries.end();
        self.jobs.end();
        self.bus.inner().deliveries().take();
        self.bus.inner().job_loops().take();
        self.bus.inner().handlers.stop();
    }
}

/// Starts a loop, which ends when everything stops.
fn keep<F: Future<Output = ()> + Send + 'static>(
    stop: &watch::Sender<bool>,
    task: &'static str,
    bus: &Ensue,
    work: fn(Ensue) -> F,
) -> JoinHandle<()> {
    let bus = bus.clone();
    tokio::spawn(until_stopped(stop.subscribe(), supervised(task, move || work(bus.clone()))))
}

async fn until_stopped(mut stop: watch::Receiver<bool>, work: impl Future<Output = ()>) {
    tokio::select! {
        _ = stop.wait_for(|stopped| *stopped) => {}
        () = work => {}
    }
}

async fn release_when_due(bus: Ensue) {
    let mut heard = bus.inner().due.subscribe();
    loop {
        let mut next = match release(&bus).await {
            Ok(wait) => wait.map(|wait| Instant::now() + wait),
            // For good.
            Err(StoreError::Closed) => return,
            Err(error) => {
                tracing::warn!(%error, "what is delayed or waits in the outbox cannot be moved into the log; trying again");
                Some(Instant::now() + AGAIN_AFTER)
            }
        };
        // Other processes may have delayed some: what is heard of that comes with the pulse. It may have been asked before
        // this one delayed its own, so whichever is earlier counts.
        loop {
            tokio::select! {
                () = at(next) => break,
                () = bus.inner().delayed.notified() => break,
                Ok(()) = heard.changed() => next = next.into_iter().chain(*heard.borrow_and_update()).min(),
            }
        }
    }
}

/// Comes back at this time, or never.
async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

/// Releases everything that is due; answers how long it is to what comes next.
async fn release(bus: &Ensue) -> Result<Option<Duration>, StoreError> {
    let released = loop {
        let released = bus.inner().health.watch(Work::Release, bus.store().release_due(RELEASE_BATCH)).await?;
        if released.count > 0 {
            bus.inner().ring(released.last);
            if let Some(wake) = bus.store().wake() {
                wake.ring();
            }
        }
        if released.count < RELEASE_BATCH {
            break released;
        }
    };
    match released.next_due {
        // By the store's clock, which is not ours.
        Some(due) => Ok(Some(until(due, bus.store().now().await?))),
        None => Ok(None),
    }
}

async fn forget_regularly(bus: Ensue) {
    let mut rejected = 0;
    loop {
        match run_retention_and_report(&bus, &mut rejected).await {
            Ok(()) => {}
            Err(StoreError::Closed) => return,
            Err(error) => tracing::warn!(%error, "old events cannot be trimmed; trying again later"),
        }
        tokio::time::sleep(bus.inner().options.retention_interval).await;
    }
}

/// Runs retention, and logs the number of rejected outbox rows if it has grown.
async fn run_retention_and_report(bus: &Ensue, rejected: &mut u64) -> Result<(), StoreError> {
    forget(bus).await?;
    let found = bus.store().outbox_rejected().await?;
    if found > *rejected {
        tracing::error!(count = found, "outbox rows cannot enter the log; see the table outbox_rejected");
    }
    *rejected = found;
    Ok(())
}

/// Forgets what retention no longer wants, in small commits that leave room for appends between them.
async fn forget(bus: &Ensue) -> Result<(), StoreError> {
    let store = bus.store();
    let mut retention = bus.inner().options.retention;
    if retention.age.is_none() {
        retention.age = store.retention_age().await?;
    }
    if retention.forgets() {
        trim(bus, retention).await?;
    }
    store.maintain(retention.forgets()).await?;
    while store.purge_keys(FORGET_BATCH).await? == FORGET_BATCH {
        tokio::task::yield_now().await;
    }
    while store.expire_subscriptions(FORGET_BATCH).await? == FORGET_BATCH {
        tokio::task::yield_now().await;
    }
    bus.forget_history(bus.inner().options.history).await?;
    Ok(())
}

/// Trims the log, up to what a group still needs.
async fn trim(bus: &Ensue, retention: Retention) -> Result<(), StoreError> {
    let store = bus.store();
    let first_young = match retention.horizon(store.now().await?) {
        Some(horizon) => Some(store.seq_before(horizon).await? + 1),
        None => None,
    };
    let bytes = if retention.bytes.is_some() { store.bytes().await? } else { 0 };
    let before = store.bounds().await?;
    let unwanted_before = keep_from(&retention, before, first_young, bytes);
    park_lanes(bus, retention, unwanted_before).await?;
    let mut bounds = before;
    while bounds.first < unwanted_before {
        // Asked each time: a group may have been made or moved back meanwhile.
        let (groups, now) = (store.groups().await?, store.now().await?);
        let held_from = retention.held_back_by(&groups, now).map_or(unwanted_before, |(_, needed)| needed);
        let keep_from = held_from.min(unwanted_before);
        if keep_from <= bounds.first {
            break;
        }
        let first = bounds.first;
        bounds = store.trim(keep_from, FORGET_BATCH).await?;
        tell_orphans(&groups, first, bounds.first);
        if bounds.first <= first {
            break;
        }
        tokio::task::yield_now().await;
    }
    if bounds.first > before.first {
        tracing::info!(from = before.first, to = bounds.first - 1, "retention trimmed the log");
    }
    Ok(())
}

/// Copies aside what lanes need of what is unwanted, so that they do not keep the log.
async fn park_lanes(bus: &Ensue, retention: Retention, unwanted_before: Seq) -> Result<(), StoreError> {
    let store = bus.store();
    let (groups, now) = (store.groups().await?, store.now().await?);
    match retention.lanes_in_the_way(&groups, unwanted_before, now) {
        Some(before) => parking::park(store, &retention, &groups, before, now).await,
        None => Ok(()),
    }
}

/// Says which groups have just begun to lose events.
fn tell_orphans(groups: &[GroupState], first_before: Seq, first: Seq) {
    for group in groups.iter().filter(|group| (first_before..first).contains(&group.needs_from())) {
        let (name, from) = (&group.name, group.needs_from());
        tracing::warn!(group = %name, from, served_at = %group.served_at, "a group that nobody serves loses events to retention");
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use super::*;
    use crate::Options;

    #[tokio::test]
    async fn a_closed_store_ends_the_loops() {
        let options = Options { retention_interval: Duration::from_millis(10), ..Options::default() };
        let bus = Ensue::open_with("sqlite::memory:", options).await.unwrap();
        let mut running = bus.start().await.unwrap();
        bus.close().await;
        for task in &mut running.loops {
            tokio::time::timeout(Duration::from_secs(30), task).await.expect("the loop goes on").unwrap();
        }
    }
}
