//! Which key is it that refuses a batch?
//!
//! Two events of one batch under one key refuse it before it is sent. But an entry before them may be in conflict with
//! what is stored, and then that one is to be named: the first of the batch, as in every engine.

use super::PostgresStore;
use ensue_core::{Entry, IdempotencyKey, StoreError};
use std::collections::HashMap;

impl PostgresStore {
    /// The conflict to report for a batch that conflicts with itself.
    pub(super) async fn first_conflict(&self, batch: &[Entry]) -> Result<StoreError, StoreError> {
        let none = || StoreError::Engine("a batch conflicts with itself, yet no two of its entries do".into());
        self.any_conflict(batch).await?.ok_or_else(none)
    }

    /// The first conflict of a batch with itself or with what is stored.
    pub(super) async fn any_conflict(&self, batch: &[Entry]) -> Result<Option<StoreError>, StoreError> {
        let mut prints: HashMap<&IdempotencyKey, [u8; 32]> = HashMap::new();
        let mut order: Vec<&IdempotencyKey> = Vec::new();
        for entry in batch {
            let Some(key) = &entry.key else { continue };
            let print = entry.fingerprint();
            match prints.get(key) {
                None => {
                    prints.insert(key, print);
                    order.push(key);
                }
                Some(first) if *first == print => {}
                Some(_) => return self.earlier_conflict(&order, &prints, Some(key)).await,
            }
        }
        if order.is_empty() { Ok(None) } else { self.earlier_conflict(&order, &prints, None).await }
    }

    async fn earlier_conflict(
        &self,
        order: &[&IdempotencyKey],
        prints: &HashMap<&IdempotencyKey, [u8; 32]>,
        otherwise: Option<&IdempotencyKey>,
    ) -> Result<Option<StoreError>, StoreError> {
        let keys: Vec<&str> = order.iter().map(|key| key.as_str()).collect();
        let rows = self.server.query(&self.sql.live_keys, &[&keys, &self.clock_time(), &self.hint()]).await?;
        let stored: HashMap<&str, &[u8]> = rows.iter().map(|row| (row.get(0), row.get(1))).collect();
        let differs = |key: &&&IdempotencyKey| stored.get(key.as_str()).is_some_and(|print| *print != prints[**key]);
        let key = order.iter().find(differs).copied().or(otherwise);
        Ok(key.map(|key| StoreError::KeyConflict { key: key.to_string() }))
    }
}
