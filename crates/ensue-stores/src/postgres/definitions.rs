//! Which handlers does the store itself keep?

use super::PostgresStore;
use super::groups::bounds_at;
use super::jobs::Call;
use super::read::place;
use super::schema::Schema;
use async_trait::async_trait;
use ensue_core::definitions::{DEFINITIONS_MAX, Definition, Definitions, NewDefinition, is_bound, too_many};
use ensue_core::positions::subscription::identity_of_params;
use ensue_core::positions::{GroupKind, Start};
use ensue_core::{EventId, GroupName, Json, StoreError, Timestamp, Topic};
use rand::RngCore;
use tokio_postgres::types::ToSql;

/// The statements, for one schema.
#[derive(Debug)]
pub(super) struct DefinitionsSql {
    define: String,
    all: String,
    version: String,
    undefine: String,
}

impl DefinitionsSql {
    pub fn of(schema: &Schema) -> Self {
        let sql = |template: &str| schema.fill(template);
        Self {
            define: sql("SELECT * FROM {schema}.define($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)"),
            // In one statement: a version that is newer than what it is told with would be taken for known.
            all: sql(
                "SELECT s.version, g.name, d.subscription, d.settings, d.revision FROM {schema}.definitions_state s \
                 LEFT JOIN ({schema}.definitions d JOIN {schema}.groups g ON g.id = d.group_id) ON true ORDER BY g.name",
            ),
            version: sql("SELECT version FROM {schema}.definitions_state"),
            undefine: sql("SELECT {schema}.undefine($1)"),
        }
    }
}

#[async_trait]
impl Definitions for PostgresStore {
    async fn define(&self, new: NewDefinition) -> Result<(Definition, bool), StoreError> {
        self.check_writable()?;
        new.group().check_slots()?;
        let (start, after) = match new.start {
            Start::Now => ("now", None),
            Start::Beginning => ("beginning", None),
            Start::After(seq) => ("after", Some(place(seq))),
        };
        let mut random = [0; 10];
        rand::rng().fill_bytes(&mut random);
        // Also the id of its subscription, if that is new.
        let id = EventId::new(Timestamp::now(), random).0;
        let (now, hint, key, slots) = (self.clock_time(), self.hint(), new.key.as_str(), i32::from(new.slots));
        let (topic, identity) = (new.topic.as_ref().map(Topic::as_str), identity_of_params(&new.params));
        let (params, settings, most) = (new.params.as_str(), new.settings.as_str(), DEFINITIONS_MAX as i64);
        let values: [&(dyn ToSql + Sync); 14] = [
            &now,
            &hint,
            &id,
            &key,
            &start,
            &after,
            &slots,
            &topic,
            &new.condition,
            &params,
            &identity,
            &settings,
            &most,
            &new.by,
        ];
        let mut call = Call::new("a handler was defined");
        let rows = call.until_answered(&self.moving, &self.sql.definitions.define, &values, None).await?;
        let row = self.server.one(rows)?;
        match row.get::<_, &str>(0) {
            "pull" => Err(GroupKind::Pull.has_the_name(&new.key)),
            "bound" => Err(is_bound(&new.key)),
            "full" => Err(too_many()),
            "start" => {
                new.start.cursor(bounds_at(&row, 4))?;
                Err(StoreError::Engine("a handler that begins within the log was not defined".into()))
            }
            _ => {
                let (subscription, revision) = (row.get(2), row.get::<_, i64>(3) as u64);
                Ok((Definition { key: new.key, subscription, settings: new.settings, revision }, row.get(1)))
            }
        }
    }

    async fn definitions(&self) -> Result<(u64, Vec<Definition>), StoreError> {
        let rows = self.server.query(&self.sql.definitions.all, &[]).await?;
        let defined = rows.iter().filter_map(|row| {
            Some(Definition {
                key: GroupName::stored(row.get::<_, Option<&str>>(1)?),
                subscription: row.get(2),
                settings: Json::stored(row.get::<_, String>(3)),
                revision: row.get::<_, i64>(4) as u64,
            })
        });
        let defined = defined.collect();
        Ok((self.server.one(rows)?.get::<_, i64>(0) as u64, defined))
    }

    async fn definitions_version(&self) -> Result<u64, StoreError> {
        Ok(self.server.query_one(&self.sql.definitions.version, &[]).await?.get::<_, i64>(0) as u64)
    }

    /// If the answer is lost and the call made again, the second time there is none: whoever forgets one twice is told so
    /// too.
    async fn undefine(&self, key: &GroupName) -> Result<bool, StoreError> {
        self.check_writable()?;
        let gone = self.server.query_one(&self.sql.definitions.undefine, &[&key.as_str()]).await?.get(0);
        if gone && let Err(error) = self.sweep_groups().await {
            tracing::warn!(%error, handler = %key, "what belonged to a forgotten handler is left to the next upkeep");
        }
        Ok(gone)
    }
}
