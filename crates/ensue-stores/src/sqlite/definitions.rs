//! Which handlers does the store itself keep?

use super::groups::{self, GroupNumber, place};
use super::read::uuid_of;
use super::writer::Changing;
use super::{SqliteStore, slots, subscriptions};
use async_trait::async_trait;
use ensue_core::definitions::{DEFINITIONS_MAX, Definition, Definitions, NewDefinition, is_bound, too_many};
use ensue_core::positions::GroupKind;
use ensue_core::{GroupName, Json, StoreError};
use rusqlite::{Connection, OptionalExtension, Row, params};

/// All of them, with the name of their group.
macro_rules! select_definitions {
    ($rest:literal) => {
        concat!(
            "SELECT g.name, d.subscription, d.settings, d.revision FROM ensue_definitions d
             JOIN ensue_groups g ON g.number = d.group_number ",
            $rest
        )
    };
}

fn definition_of(row: &Row<'_>) -> rusqlite::Result<Definition> {
    Ok(Definition {
        key: GroupName::stored(row.get_ref(0)?.as_str()?),
        subscription: uuid_of(row, 1)?,
        settings: Json::stored(row.get::<_, String>(2)?),
        revision: row.get::<_, i64>(3)? as u64,
    })
}

fn version(connection: &Connection) -> rusqlite::Result<u64> {
    connection
        .prepare_cached("SELECT version FROM ensue_definitions_state")?
        .query_row([], |row| row.get::<_, i64>(0))
        .map(|version| version as u64)
}

fn all(connection: &Connection) -> rusqlite::Result<(u64, Vec<Definition>)> {
    let mut statement = connection.prepare_cached(select_definitions!("ORDER BY g.name"))?;
    let all = statement.query_map([], definition_of)?.collect::<rusqlite::Result<Vec<_>>>()?;
    Ok((version(connection)?, all))
}

fn find(connection: &Connection, key: &GroupName) -> rusqlite::Result<Option<Definition>> {
    connection
        .prepare_cached(select_definitions!("WHERE g.name = ?1"))?
        .query_row([key.as_str()], definition_of)
        .optional()
}

fn count(connection: &Connection) -> rusqlite::Result<usize> {
    connection
        .prepare_cached("SELECT count(*) FROM ensue_definitions")?
        .query_row([], |row| row.get::<_, i64>(0))
        .map(|count| count as usize)
}

fn put(connection: &Connection, group: GroupNumber, definition: &Definition) -> rusqlite::Result<()> {
    let Definition { subscription, settings, revision, .. } = definition;
    connection.prepare_cached("UPDATE ensue_definitions_state SET version = ?1")?.execute([place(*revision)])?;
    connection
        .prepare_cached(
            "INSERT INTO ensue_definitions (group_number, subscription, settings, revision) VALUES (?1, ?2, ?3, ?4)
             ON CONFLICT (group_number) DO UPDATE SET subscription = ?2, settings = ?3, revision = ?4",
        )?
        .execute(params![group, subscription.as_bytes(), settings.as_str(), place(*revision)])?;
    Ok(())
}

fn define(changing: &mut Changing<'_>, new: &NewDefinition) -> Result<(Definition, bool), StoreError> {
    let (there, now) = (changing.sql(|connection| find(connection, &new.key))?, changing.now());
    if there.is_none() {
        match changing.sql(|connection| groups::group(connection, &new.key, now))?.map(|group| group.kind) {
            Some(GroupKind::Handler) => return Err(is_bound(&new.key)),
            Some(GroupKind::Pull) => return Err(GroupKind::Pull.has_the_name(&new.key)),
            None => {}
        }
        if changing.sql(count)? >= DEFINITIONS_MAX {
            return Err(too_many());
        }
        groups::create(changing, &new.group())?;
    }
    let (wanted, _) = subscriptions::subscribe(changing, &new.subscription())?;
    changing.sql(|connection| {
        let group = groups::number_of(connection, &new.key)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?;
        subscriptions::keep_only(connection, group, wanted.id)?;
        let is_same = |there: &&Definition| there.subscription == wanted.id && there.settings == new.settings;
        if let Some(there) = there.as_ref().filter(is_same) {
            return Ok((there.clone(), false));
        }
        if there.as_ref().is_some_and(|there| there.subscription != wanted.id) {
            // Whoever has its slots goes by the former subscription, and would pass over what only the new one wants.
            slots::take_all_but(connection, group, new.by, now)?;
        }
        let (key, settings, revision) = (new.key.clone(), new.settings.clone(), version(connection)? + 1);
        let definition = Definition { key, subscription: wanted.id, settings, revision };
        put(connection, group, &definition)?;
        Ok((definition, there.is_none()))
    })
}

fn undefine(changing: &mut Changing<'_>, key: &GroupName) -> Result<bool, StoreError> {
    match changing.sql(|connection| find(connection, key))? {
        Some(_) => groups::forget(changing, key),
        None => Ok(false),
    }
}

#[async_trait]
impl Definitions for SqliteStore {
    async fn define(&self, new: NewDefinition) -> Result<(Definition, bool), StoreError> {
        self.change(move |changing| define(changing, &new)).await
    }

    async fn definitions(&self) -> Result<(u64, Vec<Definition>), StoreError> {
        self.look_at_positions(all).await
    }

    async fn definitions_version(&self) -> Result<u64, StoreError> {
        self.look_at_positions(version).await
    }

    async fn undefine(&self, key: &GroupName) -> Result<bool, StoreError> {
        let key = key.clone();
        let there = self.change(move |changing| undefine(changing, &key)).await?;
        // Also what an earlier call left because its caller did not wait.
        while self.change(groups::sweep).await? {}
        Ok(there)
    }
}
