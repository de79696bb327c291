//! What is wrong with how a mutant keeps schedules?

use super::{Fault, Mutant};
use async_trait::async_trait;
use ensue_core::schedules::{Declared, Declarer, Fired, Firing, Kept, Makes, PutSchedule, Run, Schedules, What};
use ensue_core::{GroupName, StoreError, Timestamp};
use jiff::SignedDuration;
use uuid::Uuid;

#[async_trait]
impl Schedules for Mutant {
    async fn put_schedule(&self, mut put: PutSchedule) -> Result<Option<Kept>, StoreError> {
        if self.fault == Fault::PutsOverAnything {
            let there = self.inner.schedule(&put.name).await?;
            put.over = there.map(|there| (there.version, there.watermark));
        }
        self.inner.put_schedule(put).await
    }

    async fn schedule(&self, name: &GroupName) -> Result<Option<Kept>, StoreError> {
        self.inner.schedule(name).await
    }

    async fn schedules(&self, after: Option<&GroupName>, limit: usize) -> Result<Vec<Kept>, StoreError> {
        self.inner.schedules(after, limit).await
    }

    async fn delete_schedule(&self, name: &GroupName) -> Result<bool, StoreError> {
        self.inner.delete_schedule(name).await
    }

    async fn due_schedules(&self, now: Timestamp, limit: usize) -> Result<Vec<Kept>, StoreError> {
        match self.fault {
            Fault::FindsWhatIsHeldDue => {
                let mut all = self.inner.schedules(None, usize::MAX).await?;
                all.retain(|one| one.due.is_some_and(|due| due <= now));
                all.sort_by(|one, other| (one.due, &one.name).cmp(&(other.due, &other.name)));
                all.truncate(limit);
                Ok(all)
            }
            _ => self.inner.due_schedules(now, limit).await,
        }
    }

    async fn next_schedule(&self) -> Result<Option<Timestamp>, StoreError> {
        self.inner.next_schedule().await
    }

    async fn fire(&self, mut firings: Vec<Firing>) -> Result<Vec<Fired>, StoreError> {
        for firing in &mut firings {
            let there = self.inner.schedule(&firing.name).await?;
            match (self.fault, there, &mut firing.moves) {
                // The compare is missing from the compare-and-set.
                (Fault::FiresFromAnyWatermark, Some(there), Some(moves)) => moves.from = there.watermark,
                (Fault::FiresWhatWasChanged, Some(there), _) => firing.version = there.version,
                (Fault::RunsSideBySide, ..) => {
                    for run in &mut firing.runs {
                        if let What::Fires(Makes::Job(job)) = &mut run.what {
                            job.unique_key = None;
                        }
                    }
                }
                _ => {}
            }
        }
        if self.fault == Fault::PublishesWithoutTheWatermark {
            for run in firings.iter().flat_map(|firing| &firing.runs) {
                if let What::Fires(Makes::Event(entry)) = &run.what {
                    self.inner.append(vec![entry.clone()]).await?;
                }
            }
        }
        self.inner.fire(firings).await
    }

    async fn schedule_runs(&self, name: &GroupName, before: Option<u64>, limit: usize) -> Result<Vec<Run>, StoreError> {
        let mut runs = self.inner.schedule_runs(name, before, limit).await?;
        if self.fault == Fault::ListsRunsOldestFirst {
            runs.reverse();
        }
        Ok(runs)
    }

    async fn declare_schedules(
        &self,
        process: Uuid,
        names: &[GroupName],
        lease: SignedDuration,
    ) -> Result<Declared, StoreError> {
        let lease = if self.fault == Fault::DeclaresForEver { SignedDuration::from_hours(1_000) } else { lease };
        self.inner.declare_schedules(process, names, lease).await
    }

    async fn declarers(&self, name: Option<&GroupName>) -> Result<Vec<Declarer>, StoreError> {
        self.inner.declarers(name).await
    }

    async fn undeclare_schedules(&self, process: Uuid) -> Result<(), StoreError> {
        self.inner.undeclare_schedules(process).await
    }
}
