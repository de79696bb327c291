//! What is kept of objects that stand still?

use super::PostgresStore;
use super::groups::known;
use super::read::{place, rows_max};
use super::server::Params;
use super::types::Micros;
use ensue_core::positions::{Ask, Lane, LaneKey, LaneQuery, LaneRow, LaneState, SlotNumber};
use ensue_core::{GroupName, Seq, StoreError};
use tokio_postgres::Row;

impl PostgresStore {
    pub(super) async fn read_lanes(&self, query: LaneQuery, limit: usize) -> Result<Vec<LaneRow>, StoreError> {
        let (sql, limit) = (&self.sql.positions, rows_max(limit));
        match &query {
            LaneQuery::Slots { group, slots, after } => {
                let slots: Vec<i32> = slots.iter().map(|slot| i32::from(*slot)).collect();
                let after = after.as_ref().map(LaneKey::to_text);
                self.lanes_by(&sql.lanes_of_slots, &[&group.as_str(), &slots, &after, &limit]).await
            }
            LaneQuery::Stuck { group: None } => self.lanes_by(&sql.lanes_stuck, &[&limit]).await,
            LaneQuery::Stuck { group: Some(group) } => {
                self.lanes_by(&sql.lanes_stuck_of_group, &[&group.as_str(), &limit]).await
            }
            LaneQuery::StuckAfter(after) => {
                let (since, key) = (Micros(after.since), after.key.to_text());
                self.lanes_by(&sql.lanes_stuck_after, &[&since, &key, &after.group.as_str(), &limit]).await
            }
            LaneQuery::Object(object) => {
                let key = LaneKey::Object(object.clone()).to_text();
                self.lanes_by(&sql.lanes_of_object, &[&key, &limit]).await
            }
            LaneQuery::One(group, key) => self.lanes_by(&sql.lane, &[&group.as_str(), &key.to_text(), &limit]).await,
            LaneQuery::Asked(member) => self.lanes_by(&sql.lanes_asked, &[member, &limit]).await,
            LaneQuery::Needing { before, after } => {
                let group = after.as_ref().map_or("", |(group, _)| group.as_str());
                let key = after.as_ref().map_or(String::new(), |(_, key)| key.to_text());
                self.lanes_by(&sql.lanes_needing, &[&place(*before), &group, &key, &limit]).await
            }
        }
    }

    async fn lanes_by(&self, sql: &str, params: Params<'_>) -> Result<Vec<LaneRow>, StoreError> {
        self.server.query(sql, params).await?.iter().map(lane_row).collect()
    }

    pub(super) async fn ask_of_lane(
        &self,
        group: &GroupName,
        key: &LaneKey,
        ask: Ask,
    ) -> Result<Option<LaneRow>, StoreError> {
        let (key, ask) = (key.to_text(), ask.as_str());
        Ok(self.lanes_by(&self.sql.positions.ask_lane, &[&group.as_str(), &key, &ask]).await?.pop())
    }
}

fn lane_row(row: &Row) -> Result<LaneRow, StoreError> {
    Ok(LaneRow {
        group: GroupName::stored(row.get(0)),
        slot: row.get::<_, i32>(1) as SlotNumber,
        lane: Lane {
            key: known(row.get(2), LaneKey::stored)?,
            position: row.get::<_, i64>(3) as Seq,
            state: known(row.get(4), LaneState::stored)?,
            attempts: row.get::<_, i64>(5) as u32,
            not_before: row.get::<_, Option<Micros>>(6).map(|at| at.0),
            error: row.get(7),
            redriven: row.get(8),
        },
        since: row.get::<_, Micros>(9).0,
        ask: row.get::<_, Option<&str>>(10).map(|word| known(word, Ask::stored)).transpose()?,
        parked_to: row.get::<_, Option<i64>>(11).map(|seq| seq as Seq),
    })
}
