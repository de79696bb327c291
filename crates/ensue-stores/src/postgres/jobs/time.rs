//! Whose time has come, and whose has passed?

use super::super::PostgresStore;
use super::super::read::rows_max;
use super::super::types::Micros;
use super::row::job_at;
use ensue_core::StoreError;
use ensue_core::jobs::Woken;
use std::time::Instant;

impl PostgresStore {
    /// Lost connections are no matter here: what was woken stays so, and the next try wakes what is left.
    pub(super) async fn wake_due(&self, limit: usize) -> Result<Woken, StoreError> {
        let (begun, now) = (Instant::now(), self.clock_time());
        // An injected clock may show any time.
        let after = self.looks.leases_after(begun).filter(|_| self.clock.is_none()).map(Micros);
        let rows = self.server.query_of_call(&self.sql.jobs.wake, &[&now, &rows_max(limit), &after]).await?;
        let mut expired = Vec::new();
        for row in &rows {
            expired.extend(job_at(row, 7)?);
        }
        let first = self.server.one(rows)?;
        let (at, micros) = (first.get::<_, Micros>(5).0, first.get::<_, i64>(6));
        self.looks.leases_looked_at(begun, at, micros, after.is_none(), expired.is_empty());
        if let Some(handlers) = first.get::<_, Option<Vec<&str>>>(2) {
            self.looks.appeared(&handlers, &first.get::<_, Vec<i64>>(3), &first.get::<_, Vec<i64>>(4));
        }
        let (count, next_due) = (first.get::<_, i64>(0) as usize, first.get::<_, Option<Micros>>(1));
        Ok(Woken { count, expired, next_due: next_due.map(|due| due.0) })
    }
}
