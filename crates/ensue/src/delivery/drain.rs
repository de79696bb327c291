//! How does one wait until there is nothing to do?

use crate::Ensue;
use crate::error::Error;

impl Ensue {
    /// Waits until every handler of this process has done all there is to do now, jobs and schedules that are due included. What
    /// waits for its time is not waited for. For tests, and for work that is started by a timer.
    pub async fn drain(&self) -> Result<(), Error> {
        let (deliveries, jobs) = (self.inner().deliveries().clone(), self.inner().job_loops().clone());
        let (Some(deliveries), Some(jobs)) = (deliveries, jobs) else { return Ok(()) };
        loop {
            crate::schedules::fire_now(self).await?;
            let end = self.store().bounds().await?.last;
            self.inner().tail.look_now();
            deliveries.drained(end).await;
            let ran_before = jobs.ran();
            let let_go = crate::jobs::look(self).await?.let_go;
            jobs.drained().await;
            // Handlers and jobs may have published, and sent jobs.
            if self.store().bounds().await?.last == end && jobs.ran() == ran_before && let_go == 0 {
                return Ok(());
            }
        }
    }
}
