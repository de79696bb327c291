//! What became of deliveries, and what did they say?

use super::PostgresStore;
use super::groups::known;
use super::read::{place, rows_max};
use super::types::Micros;
use ensue_core::positions::{Delivery, DeliveryState, Level, LogLine};
use ensue_core::{GroupName, ObjectKey, Seq, StoreError, Timestamp};
use tokio_postgres::Row;

impl PostgresStore {
    pub(super) async fn read_deliveries(&self, seq: Seq) -> Result<Vec<Delivery>, StoreError> {
        self.server.query(&self.sql.positions.deliveries, &[&place(seq)]).await?.iter().map(delivery).collect()
    }

    pub(super) async fn read_lines(
        &self,
        group: &GroupName,
        seq: Seq,
        skip: u64,
        limit: usize,
    ) -> Result<Vec<LogLine>, StoreError> {
        let params = (group.as_str(), place(seq), place(skip), rows_max(limit));
        let read = &self.sql.positions.lines;
        let rows = self.server.query(read, &[&params.0, &params.1, &params.2, &params.3]).await?;
        rows.iter().map(line).collect()
    }

    pub(super) async fn forget_deliveries(
        &self,
        before: Timestamp,
        keep: u64,
        limit: usize,
    ) -> Result<usize, StoreError> {
        let (before, keep, limit) = (Micros(before), place(keep), rows_max(limit));
        let row = self.server.query_one(&self.sql.positions.purge_deliveries, &[&before, &keep, &limit]).await?;
        Ok(row.get::<_, i64>(0) as usize)
    }
}

fn delivery(row: &Row) -> Result<Delivery, StoreError> {
    Ok(Delivery {
        group: GroupName::stored(row.get(0)),
        seq: row.get::<_, i64>(1) as Seq,
        object: row.get::<_, Option<&str>>(2).map(ObjectKey::stored),
        state: known(row.get(3), DeliveryState::stored)?,
        attempts: row.get::<_, i64>(4) as u32,
        error: row.get(5),
        started_at: row.get::<_, Micros>(6).0,
        finished_at: row.get::<_, Micros>(7).0,
    })
}

fn line(row: &Row) -> Result<LogLine, StoreError> {
    Ok(LogLine {
        seq: row.get::<_, i64>(0) as Seq,
        attempt: row.get::<_, i64>(1) as u32,
        at: row.get::<_, Micros>(2).0,
        level: known(row.get(3), Level::stored)?,
        message: row.get(4),
    })
}
