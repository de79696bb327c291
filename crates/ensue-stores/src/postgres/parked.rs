//! Which events live on for a lane that stands still?

use super::PostgresStore;
use super::read::{event, place, rows_max};
use ensue_core::positions::{LaneKey, Park, ParkedQuery, ParkedSize};
use ensue_core::store::PAGE_BYTES_MAX;
use ensue_core::{Event, GroupName, Seq, StoreError};

impl PostgresStore {
    /// One that was sent twice, because the answer was lost, finds its lanes parked already, and leaves them.
    pub(super) async fn park_lanes(&self, parks: Vec<Park>) -> Result<usize, StoreError> {
        let groups: Vec<&str> = parks.iter().map(|park| park.group.as_str()).collect();
        let keys: Vec<String> = parks.iter().map(|park| park.key.to_text()).collect();
        let from: Vec<Option<i64>> = parks.iter().map(|park| park.from.map(place)).collect();
        let to: Vec<i64> = parks.iter().map(|park| place(park.to)).collect();
        let counts: Vec<i32> = parks.iter().map(|park| park.seqs.len() as i32).collect();
        let seqs: Vec<i64> = parks.iter().flat_map(|park| park.seqs.iter().copied().map(place)).collect();
        let sql = &self.sql.positions.park;
        let row = self.server.query_one(sql, &[&groups, &keys, &from, &to, &counts, &seqs]).await?;
        Ok(row.get::<_, i64>(0) as usize)
    }

    pub(super) async fn read_parked(&self, query: ParkedQuery, limit: usize) -> Result<Vec<Event>, StoreError> {
        let sql = &self.sql.positions;
        let rows = match &query {
            ParkedQuery::Lane { group, key, after } => {
                let (key, after, bytes) = (key.to_text(), place(*after), PAGE_BYTES_MAX as i64);
                let params: [&(dyn tokio_postgres::types::ToSql + Sync); 5] =
                    [&group.as_str(), &key, &after, &rows_max(limit), &bytes];
                self.server.query(&sql.parked_of_lane, &params).await?
            }
            ParkedQuery::Place(seq) => {
                self.server.query(&sql.parked_by_seq, &[&place(*seq), &rows_max(limit.min(1))]).await?
            }
            ParkedQuery::Id(id) => self.server.query(&sql.parked_by_id, &[&id.0, &rows_max(limit.min(1))]).await?,
        };
        self.up_to_a_page(&rows, event, Event::bytes)
    }

    pub(super) async fn size_of_parked(&self, group: &GroupName, key: &LaneKey) -> Result<ParkedSize, StoreError> {
        let row = self.server.query_one(&self.sql.positions.parked_size, &[&group.as_str(), &key.to_text()]).await?;
        Ok(ParkedSize { events: row.get::<_, i64>(0) as u64, bytes: row.get::<_, i64>(1) as Seq })
    }
}
