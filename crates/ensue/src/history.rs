//! What is kept of what became of deliveries and jobs?

use crate::Ensue;
use ensue_core::{StoreError, Timestamp};
use jiff::SignedDuration;

/// How many recorded deliveries or jobs are forgotten in one commit: short enough to stay out of the way of appends.
const FORGET_BATCH: usize = 500;

/// How many recorded deliveries, and how many jobs that are over, are kept, with what they said, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct History {
    /// The newest so many.
    pub count: u64,
    /// Those that ended since so long.
    pub age: SignedDuration,
    /// The same of tasks, which are counted by themselves; `age` if it is none.
    pub tasks: Option<SignedDuration>,
}

impl Default for History {
    fn default() -> Self {
        Self { count: 100_000, age: SignedDuration::from_hours(7 * 24), tasks: None }
    }
}

impl Ensue {
    /// Forgets recorded deliveries, and jobs that are over, beyond what is kept; answers how many. What waits or is held is no history and stays.
    pub async fn forget_history(&self, history: History) -> Result<usize, StoreError> {
        let now = self.store().now().await?;
        let before = now.checked_sub(history.age).unwrap_or(Timestamp::MIN);
        let mut forgotten = 0;
        loop {
            let some = self.store().purge_deliveries(before, history.count, FORGET_BATCH).await?;
            forgotten += some;
            if some < FORGET_BATCH {
                break;
            }
            tokio::task::yield_now().await;
        }
        // What is to be kept is counted each time; where nobody waits for the writer, more go at once.
        let batch = if self.store().handler_slots() == 1 { FORGET_BATCH } else { 20 * FORGET_BATCH };
        loop {
            let some = self.store().purge_jobs(before, history.count, batch).await?;
            forgotten += some;
            if some < batch {
                break;
            }
            tokio::task::yield_now().await;
        }
        let before = history.tasks.map_or(before, |age| now.checked_sub(age).unwrap_or(Timestamp::MIN));
        loop {
            let some = self.store().purge_tasks(before, history.count, batch).await?;
            forgotten += some;
            if some < batch {
                return Ok(forgotten);
            }
            tokio::task::yield_now().await;
        }
    }
}

#[cfg(all(test, feature = "sqlite"))]
mod tests {
    use super::*;
    use crate::testing::{ManualClock, memory_at};
    use crate::{Context, Event, NewEvent};
    use std::time::Duration;

    /// Seed 004: the history of tasks is of use for longer than that of jobs.
    #[tokio::test]
    async fn tasks_are_kept_for_longer_than_jobs() {
        let clock = ManualClock::at(Timestamp::now());
        let bus = memory_at(&clock).await.unwrap();
        bus.register("mail", async |_: Event, _: Context| Ok(())).unwrap();
        let code = async |_: Event, _: Context| Ok::<(), crate::HandlerError>(());
        let collection = crate::tasks::CollectionHandler::new("s", "c", Default::default(), code).unwrap();
        bus.set_collections(vec![collection]).await.unwrap();
        let running = bus.start().await.unwrap();
        let job = bus.emit(crate::Emit::to("mail")).await.unwrap();
        let task = bus.run_task("s", "c").await.unwrap();
        bus.drain().await.unwrap();
        let day = Duration::from_secs(24 * 3_600);
        let history = History { tasks: Some(SignedDuration::from_hours(90 * 24)), ..History::default() };
        clock.advance(8 * day);
        assert_eq!(bus.forget_history(history).await.unwrap(), 1);
        assert!(bus.job(job.id).await.unwrap().is_none() && bus.task(&task.id).await.unwrap().is_some());
        clock.advance(90 * day);
        assert_eq!(bus.forget_history(history).await.unwrap(), 1);
        assert!(bus.task(&task.id).await.unwrap().is_none());
        running.shutdown(Duration::from_secs(30)).await.unwrap();
    }

    #[tokio::test]
    async fn the_newest_are_kept_and_the_old_are_not() {
        let clock = ManualClock::at(Timestamp::now());
        let bus = memory_at(&clock).await.unwrap();
        bus.on("t").named("h").audit().handle(async |_: Event, _: Context| Ok(())).unwrap();
        let running = bus.start().await.unwrap();
        for _ in 0..5 {
            bus.publish(NewEvent::new("t")).await.unwrap();
        }
        bus.drain().await.unwrap();
        let kept = async || {
            let mut kept = Vec::new();
            for seq in 1..=5 {
                kept.extend(bus.store().deliveries(seq).await.unwrap().into_iter().map(|delivery| delivery.seq));
            }
            kept
        };
        let history = |count| History { count, ..History::default() };
        assert_eq!(bus.forget_history(history(9)).await.unwrap(), 0);
        assert_eq!(bus.forget_history(history(2)).await.unwrap(), 3);
        assert_eq!(kept().await, [4, 5]);
        clock.advance(Duration::from_secs(8 * 24 * 3_600));
        assert_eq!(bus.forget_history(history(9)).await.unwrap(), 2);
        running.shutdown(Duration::from_secs(30)).await.unwrap();
    }
}
