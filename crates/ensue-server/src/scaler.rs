//! Moves the number of workers of `ensue work --scale` with the work that waits.
//!
//! Looks once a second: jobs that could run, and events that handlers have not come to. What a rule holds does not wait for
//! a worker. A look that fails changes nothing.

use crate::config::Settings;
use anyhow::bail;
use ensue::jobs::JobState;
use ensue::jobs::scaling::{Scale, ScaleBounds};
use ensue::jobs::seen_counts;
use ensue::{Ensue, Error, GroupName, HandlerLimits};
use std::convert::Infallible;
use std::time::Duration;

/// How often is looked how much waits.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The most that a handler may run at once.
const CONCURRENCY_MAX: usize = 10_000;

/// The scale of a process, and what it scales.
pub struct Scaler {
    scale: Scale,
    /// The handlers of the config file, with the limits that belong to the fewest workers.
    handlers: Vec<(GroupName, HandlerLimits)>,
    /// All whose work counts: these, and the collections.
    keys: Vec<GroupName>,
}

impl Scaler {
    /// Between the workers of the settings and `max`.
    pub fn new(settings: &Settings, max: usize) -> anyhow::Result<Self> {
        if max < settings.workers {
            bail!(
                "--scale {max} is fewer than the {} workers that there are (--workers): choose more",
                settings.workers
            );
        }
        let handlers: Vec<_> = settings.handlers.iter().map(|one| (one.key.clone(), one.limits())).collect();
        let collected = settings.collections.iter().map(|one| one.collection.handler());
        let keys = handlers.iter().map(|(key, _)| key.clone()).chain(collected).collect();
        Ok(Self { scale: Scale::new(ScaleBounds { min: settings.workers, max }), handlers, keys })
    }

    /// Looks and scales, without end.
    pub async fn run(mut self, bus: &Ensue) -> Infallible {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let scaled = match self.waiting(bus).await {
                Ok(waiting) => self.scale.after(waiting),
                Err(error) => {
                    tracing::warn!(%error, "waiting work not counted; the number of workers stays");
                    continue;
                }
            };
            if scaled.workers() != self.scale.workers() {
                match self.apply(bus, scaled).await {
                    Ok(()) => {
                        tracing::info!(workers = scaled.workers(), before = self.scale.workers(), "workers scaled")
                    }
                    Err(error) => {
                        tracing::warn!(%error, "limits of handlers not changed; trying again");
                        continue;
                    }
                }
            }
            self.scale = scaled;
        }
    }

    /// How much work of this process waits for a worker.
    async fn waiting(&self, bus: &Ensue) -> Result<u64, Error> {
        let store = bus.store();
        let (counts, rules, now) = tokio::try_join!(store.job_counts(), store.rules(), store.now())?;
        let is_waiting = |state: JobState| state == JobState::Available;
        let jobs = seen_counts(counts, &rules, now)
            .into_iter()
            .filter(|count| is_waiting(count.state) && self.keys.contains(&count.handler))
            .map(|count| count.count);
        let bounds = store.bounds().await?;
        let mut waiting: u64 = jobs.sum();
        for (handler, _) in &self.handlers {
            if rules.holding_handler(handler, now).is_none()
                && let Some(group) = store.group(handler).await?
            {
                // A lane that was set aside waits for its time or a person, not for a worker.
                let behind = bounds.last.saturating_sub(group.cursor());
                waiting = waiting.saturating_add(behind);
            }
        }
        Ok(waiting)
    }

    async fn apply(&self, bus: &Ensue, scale: Scale) -> Result<(), Error> {
        bus.set_workers(scale.workers());
        let mut change = bus.rebind();
        for (handler, limits) in &self.handlers {
            let concurrency = scale.of(limits.concurrency).clamp(1, CONCURRENCY_MAX);
            change.limits(handler, HandlerLimits { concurrency, ..limits.clone() })?;
        }
        change.apply().await
    }
}
