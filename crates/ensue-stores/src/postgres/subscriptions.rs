//! What do the groups want?

use super::PostgresStore;
use super::read::rows_max;
use super::types::Micros;
use ensue_core::positions::subscription::{identity_of_params, lead_from};
use ensue_core::positions::{NewSubscription, SubscriptionChanges, SubscriptionState};
use ensue_core::{EventId, GroupName, Json, Seq, StoreError, Timestamp, Topic};
use jiff::SignedDuration;
use rand::RngCore;
use std::collections::{BTreeMap, BTreeSet};
use tokio_postgres::Row;
use uuid::Uuid;

/// The longest expiry that is kept, in microseconds: 36,500 years.
const EXPIRY_MAX: i64 = 1 << 60;

fn micros_of(expires_in: SignedDuration) -> i64 {
    expires_in.as_micros().clamp(-i128::from(EXPIRY_MAX), i128::from(EXPIRY_MAX)) as i64
}

impl PostgresStore {
    pub(super) async fn make_subscription(
        &self,
        new: NewSubscription,
    ) -> Result<(SubscriptionState, bool), StoreError> {
        let mut random = [0; 10];
        rand::rng().fill_bytes(&mut random);
        // As those of events: made one after another, they stand beside each other in the index. Made here, so that a
        // second try knows what the first one made.
        let id = EventId::new(Timestamp::now(), random).0;
        let (group, topic) = (new.group.as_str(), new.topic.as_ref().map(Topic::as_str));
        let (condition, params) = (new.condition.as_deref(), new.params.as_str());
        let (identity, expires_in) = (identity_of_params(&new.params), new.expires_in.map(micros_of));
        let (now, hint, subscribe) = (self.clock_time(), self.hint(), &self.sql.positions.subscribe);
        let row = self
            .server
            .query_one_of_call(
                subscribe,
                &[&now, &hint, &group, &id, &topic, &condition, &params, &identity, &expires_in],
            )
            .await?;
        let state = subscription(&row, &new.group);
        let is_new = state.id == id;
        Ok((state, is_new))
    }

    /// If the answer is lost and the call made again, the second time there is no subscription: whoever takes one out
    /// twice is told so too.
    pub(super) async fn delete_subscription(&self, group: &GroupName, id: Uuid) -> Result<bool, StoreError> {
        let params = (self.clock_time(), group.as_str());
        let row = self.server.query_one_of_call(&self.sql.positions.unsubscribe, &[&params.0, &params.1, &id]).await?;
        Ok(row.get(0))
    }

    pub(super) async fn touch_subscription(
        &self,
        group: &GroupName,
        id: Uuid,
    ) -> Result<Option<SubscriptionState>, StoreError> {
        let params = (self.clock_time(), group.as_str());
        let rows = self.server.query_of_call(&self.sql.positions.touch, &[&params.0, &params.1, &id]).await?;
        Ok(rows.first().map(|row| subscription(row, group)))
    }

    pub(super) async fn read_subscriptions(
        &self,
        group: &GroupName,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<SubscriptionState>, StoreError> {
        let params = (self.clock_time(), group.as_str(), rows_max(limit));
        let read = &self.sql.positions.subscriptions;
        let rows = self.server.query(read, &[&params.0, &params.1, &after, &params.2]).await?;
        Ok(rows.iter().map(|row| subscription(row, group)).collect())
    }

    pub(super) async fn read_subscriptions_by_id(&self, ids: &[Uuid]) -> Result<Vec<SubscriptionState>, StoreError> {
        let now = self.clock_time();
        let rows = self.server.query(&self.sql.positions.subscriptions_by_id, &[&now, &ids]).await?;
        Ok(rows.iter().map(|row| subscription(row, &GroupName::stored(row.get(8)))).collect())
    }

    pub(super) async fn read_subscription_changes(
        &self,
        group: &GroupName,
        after: u64,
        limit: usize,
    ) -> Result<Option<SubscriptionChanges>, StoreError> {
        let (Ok(after_version), more) = (i64::try_from(after), rows_max(limit.saturating_add(1))) else {
            return Ok(None);
        };
        let (now, name, read) = (self.clock_time(), group.as_str(), &self.sql.positions.subscription_changes);
        let rows = self.server.query(read, &[&now, &name, &after_version, &more]).await?;
        let Some(version) = rows.first().map(|row| row.get::<_, i64>(8) as u64) else { return Ok(None) };
        let noted: Vec<(u64, &Row)> =
            rows.iter().filter_map(|row| Some((row.get::<_, Option<i64>>(9)? as u64, row))).collect();
        if noted.len() > limit || !lead_from(after, version, noted.iter().map(|(version, _)| *version)) {
            return Ok(None);
        }
        let (mut there, mut gone) = (BTreeMap::new(), BTreeSet::new());
        for (_, row) in noted {
            match row.get(10) {
                true => drop(there.insert(row.get::<_, Uuid>(0), subscription(row, group))),
                false => drop(gone.insert(row.get(0))),
            }
        }
        let (there, gone) = (there.into_values().collect(), gone.into_iter().collect());
        Ok(Some(SubscriptionChanges { version, there, gone }))
    }

    pub(super) async fn forget_expired(&self, limit: usize) -> Result<usize, StoreError> {
        self.sweep_groups().await?;
        let (now, limit) = (self.clock_time(), rows_max(limit));
        let row = self.server.query_one(&self.sql.positions.expire_subscriptions, &[&now, &limit]).await?;
        Ok(row.get::<_, i64>(0) as usize)
    }
}

fn subscription(row: &Row, group: &GroupName) -> SubscriptionState {
    SubscriptionState {
        id: row.get(0),
        group: group.clone(),
        topic: row.get::<_, Option<&str>>(1).map(Topic::stored),
        condition: row.get(2),
        params: Json::stored(row.get::<_, String>(3)),
        expires_in: row.get::<_, Option<i64>>(4).map(SignedDuration::from_micros),
        created_at: row.get::<_, Micros>(5).0,
        touched_at: row.get::<_, Micros>(6).0,
        created_after: row.get::<_, i64>(7) as Seq,
    }
}
