//! How are events published in somebody's own transaction?
//!
//! One statement writes them to the outbox (`sql/fn_outbox_put.sql`): nobody sees them before the transaction commits, and
//! nobody waits for it. Whoever appends next, or a drain, moves them into the log.

use super::super::PostgresStore;
use super::super::batch::Outgoing;
use super::super::types::Micros;
use super::driver::{Param, PostgresTransaction};
use super::refusal::Refusal;
use ensue_core::{Appended, Entry, EventId, StoreError, plan};
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

/// The code of the server for a key that is there already.
const UNIQUE_VIOLATION: &str = "23505";

/// All of them, or none if all are none.
fn unless_empty<T>(column: impl Iterator<Item = Option<T>> + Clone) -> Option<Vec<Option<T>>> {
    column.clone().any(|value| value.is_some()).then(|| column.collect())
}

impl PostgresStore {
    /// Publishes in somebody's own transaction: the events are in the log soon after it commits, and nowhere if it does not. An answer
    /// has no `seq` yet. With an error the transaction can only be taken back.
    pub async fn publish_in(
        &self,
        transaction: &mut dyn PostgresTransaction,
        batch: Vec<Entry>,
    ) -> Result<Vec<Appended>, StoreError> {
        plan::check_not_empty(&batch)?;
        self.check_writable()?;
        plan::check_keys_within(&batch)?;
        let outgoing: Vec<Outgoing> = batch.into_iter().map(Outgoing::new).collect();
        let told = |refusal: Refusal| self.refused(refusal, &outgoing);
        let params = self.outbox_params(&outgoing).map_err(told)?;
        let put = if self.clock.is_some() { &self.sql.outbox_put_at } else { &self.sql.outbox_put };
        let ids = transaction.ask(put, params, !self.server.way.is_pooled()).await.map_err(told)?;
        let answer = |id: Option<String>| {
            let id = id.unwrap_or_default();
            let first = id.strip_prefix("repeated ");
            let no_id = |_| StoreError::Engine("an event that was published has no id".into());
            let (id, repeated): (Uuid, bool) = (first.unwrap_or(&id).parse().map_err(no_id)?, first.is_some());
            Ok(Appended { id: EventId(id), seq: None, prev: None, repeated })
        };
        ids.into_iter().map(answer).collect()
    }

    fn outbox_params(&self, outgoing: &[Outgoing]) -> Result<Vec<Param>, Refusal> {
        let entries = || outgoing.iter().map(|outgoing| &outgoing.entry);
        let now = self.clock_time();
        let topics: Vec<&str> = entries().map(|entry| entry.topic.as_str()).collect();
        let payloads: Vec<&str> = entries().map(|entry| entry.payload.as_str()).collect();
        let metadata = unless_empty(entries().map(|entry| Some(entry.metadata.as_str()).filter(|text| *text != "{}")));
        let occurred_at = unless_empty(entries().map(|entry| entry.occurred_at.map(Micros)));
        let not_before = unless_empty(entries().map(|entry| entry.not_before.map(Micros)));
        let to = unless_empty(entries().map(|entry| entry.to));
        let objects = unless_empty(entries().map(|entry| entry.object.as_ref().map(|object| object.as_str())));
        let keys = unless_empty(entries().map(|entry| entry.key.as_ref().map(|key| key.as_str())));
        let fingerprints = unless_empty(outgoing.iter().map(|o| o.fingerprint.as_ref().map(|print| &print[..])));
        let clock: Option<(&(dyn ToSql + Sync), Type)> = now.as_ref().map(|now| (now as _, Type::TIMESTAMPTZ));
        let columns: [(&(dyn ToSql + Sync), Type); 9] = [
            (&topics, Type::TEXT_ARRAY),
            (&payloads, Type::TEXT_ARRAY),
            (&metadata, Type::TEXT_ARRAY),
            (&occurred_at, Type::TIMESTAMPTZ_ARRAY),
            (&not_before, Type::TIMESTAMPTZ_ARRAY),
            (&to, Type::UUID_ARRAY),
            (&objects, Type::TEXT_ARRAY),
            (&keys, Type::TEXT_ARRAY),
            (&fingerprints, Type::BYTEA_ARRAY),
        ];
        Param::all(clock.into_iter().chain(columns))
    }

    /// Why nothing was published.
    fn refused(&self, refusal: Refusal, outgoing: &[Outgoing]) -> StoreError {
        if refusal.is(UNIQUE_VIOLATION) {
            let keys = outgoing.iter().filter_map(|outgoing| outgoing.entry.key.as_ref());
            // The longest that the server names: one key may be a part of another.
            let named = keys.filter(|key| refusal.message().contains(key.as_str()));
            if let Some(key) = named.max_by_key(|key| key.as_str().len()) {
                return StoreError::KeyConflict { key: key.to_string() };
            }
        }
        refusal.explain(&self.schema)
    }
}
