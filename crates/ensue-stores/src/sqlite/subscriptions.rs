//! What do the groups want?
//!
//! A group may have hundreds of thousands of subscriptions: each is found by its identity in one index, they are
//! counted in their group's row, and those that have expired are found without looking at the others. Every change of them
//! counts the group's version and is noted under it for a while, so that a reader need not read them all again.

use super::groups::{self, GroupNumber, place};
use super::read::{self, time_of, uuid_of};
use super::writer::Changing;
use super::{error, slots};
use ensue_core::positions::subscription::{CHANGES_KEPT, expires_at, identity_of_params, lead_from, longer};
use ensue_core::positions::{NewSubscription, SubscriptionChanges, SubscriptionState};
use ensue_core::{Entry, EventId, GroupName, Json, Seq, StoreError, Timestamp, Topic};
use jiff::SignedDuration;
use rand::RngCore;
use rusqlite::{Connection, OptionalExtension, Row, params};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use uuid::Uuid;

/// The longest expiry that is kept, in microseconds: 36,500 years, so that no sum with a time overflows.
const EXPIRY_MAX: i64 = 1 << 60;

macro_rules! select_subscriptions {
    ($rest:literal) => {
        concat!(
            "SELECT id, topic, condition, params, expires_in, created_at, touched_at, created_after, rowid
             FROM ensue_subscriptions ",
            $rest
        )
    };
}

fn micros_of(expires_in: Option<SignedDuration>) -> Option<i64> {
    expires_in.map(|duration| duration.as_micros().clamp(-i128::from(EXPIRY_MAX), i128::from(EXPIRY_MAX)) as i64)
}

/// A subscription as it is stored, and its row.
fn stored_of(row: &Row<'_>, group: &GroupName) -> rusqlite::Result<(SubscriptionState, i64)> {
    let state = SubscriptionState {
        id: uuid_of(row, 0)?,
        group: group.clone(),
        topic: row.get_ref(1)?.as_str_or_null()?.map(Topic::stored),
        condition: row.get(2)?,
        params: Json::stored(row.get::<_, String>(3)?),
        expires_in: row.get::<_, Option<i64>>(4)?.map(SignedDuration::from_micros),
        created_at: time_of(row.get(5)?),
        touched_at: time_of(row.get(6)?),
        created_after: row.get::<_, i64>(7)? as Seq,
    };
    Ok((state, row.get(8)?))
}

fn has_expired(state: &SubscriptionState, served_at: Timestamp, now: Timestamp) -> bool {
    expires_at(state.expires_in, state.touched_at, served_at).is_some_and(|at| at < now)
}

/// Notes a change of these subscriptions of a group, and how many more it has now. What is noted of the version that is
/// `CHANGES_KEPT` back goes.
fn changed(connection: &Connection, group: GroupNumber, more: i64, ids: &[Uuid]) -> rusqlite::Result<()> {
    let version: i64 = connection
        .prepare_cached(
            "UPDATE ensue_groups SET version = version + 1, subscriptions = subscriptions + ?2 WHERE number = ?1
             RETURNING version",
        )?
        .query_row(params![group, more], |row| row.get(0))?;
    let mut note = connection.prepare_cached("INSERT INTO ensue_subscription_changes VALUES (?1, ?2, ?3)")?;
    for id in ids {
        note.execute(params![group, version, id.as_bytes()])?;
    }
    connection
        .prepare_cached("DELETE FROM ensue_subscription_changes WHERE group_number = ?1 AND version = ?2")?
        .execute(params![group, version - CHANGES_KEPT as i64])?;
    Ok(())
}

fn delete(connection: &Connection, row: i64) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM ensue_subscriptions WHERE rowid = ?1")?.execute([row])?;
    Ok(())
}

pub(super) fn subscribe(
    changing: &mut Changing<'_>,
    new: &NewSubscription,
) -> Result<(SubscriptionState, bool), StoreError> {
    let now = changing.now();
    let identity = Identity::of(new);
    changing.sql(|connection| {
        let bounds = read::bounds(connection)?;
        let number = groups::number_or_new(connection, &new.group, bounds, now)?;
        let served_at = slots::served_at(connection, number)?;
        match same(connection, number, &new.group, &identity)? {
            Some((there, row)) if !has_expired(&there, served_at, now) => {
                Ok((ask_again(connection, number, there, row, new, now)?, false))
            }
            there => {
                if let Some((former, row)) = there {
                    delete(connection, row)?;
                    changed(connection, number, -1, &[former.id])?;
                }
                let state = insert(connection, number, new, &identity, bounds.last, now)?;
                changed(connection, number, 1, &[state.id])?;
                Ok((state, true))
            }
        }
    })
}

/// Takes all subscriptions but one out of a group.
pub(super) fn keep_only(connection: &Connection, group: GroupNumber, id: Uuid) -> rusqlite::Result<()> {
    let mut others = connection
        .prepare_cached("DELETE FROM ensue_subscriptions WHERE group_number = ?1 AND id <> ?2 RETURNING id")?;
    let gone = others.query_map(params![group, id.as_bytes()], |row| Ok(Uuid::from_bytes(row.get(0)?)))?;
    let gone = gone.collect::<rusqlite::Result<Vec<Uuid>>>()?;
    if !gone.is_empty() {
        changed(connection, group, -(gone.len() as i64), &gone)?;
    }
    Ok(())
}

/// What two subscriptions of a group have in common if they are the same.
struct Identity<'a> {
    topic: Option<&'a str>,
    condition: Option<&'a str>,
    params: String,
    /// Only finds what is to be compared.
    hash: i64,
}

impl<'a> Identity<'a> {
    fn of(new: &'a NewSubscription) -> Self {
        let (topic, condition) = (new.topic.as_ref().map(Topic::as_str), new.condition.as_deref());
        let params = identity_of_params(&new.params);
        let mut digest = Sha256::new();
        for part in [topic.unwrap_or_default(), condition.unwrap_or_default(), &params] {
            digest.update((part.len() as u64).to_be_bytes());
            digest.update(part);
        }
        let digest: [u8; 32] = digest.finalize().into();
        let hash = i64::from_be_bytes(*digest.first_chunk().expect("it is longer"));
        Self { topic, condition, params, hash }
    }
}

/// The one with the same topic, condition and params, compared in full.
fn same(
    connection: &Connection,
    group: GroupNumber,
    name: &GroupName,
    identity: &Identity<'_>,
) -> rusqlite::Result<Option<(SubscriptionState, i64)>> {
    let Identity { topic, condition, params, hash } = identity;
    connection
        .prepare_cached(select_subscriptions!(
            "WHERE group_number = ?1 AND identity_hash = ?2 AND params_identity = ?3 AND topic IS ?4 AND condition IS ?5"
        ))?
        .query_row(params![group, hash, params, topic, condition], |row| stored_of(row, name))
        .optional()
}

fn ask_again(
    connection: &Connection,
    group: GroupNumber,
    there: SubscriptionState,
    row: i64,
    new: &NewSubscription,
    now: Timestamp,
) -> rusqlite::Result<SubscriptionState> {
    let asked = micros_of(new.expires_in).map(SignedDuration::from_micros);
    let expires_in = longer(there.expires_in, asked);
    connection
        .prepare_cached("UPDATE ensue_subscriptions SET touched_at = ?2, expires_in = ?3 WHERE rowid = ?1")?
        .execute(params![row, now.as_microsecond(), micros_of(expires_in)])?;
    if expires_in != there.expires_in {
        changed(connection, group, 0, &[there.id])?;
    }
    Ok(SubscriptionState { touched_at: now, expires_in, ..there })
}

fn insert(
    connection: &Connection,
    group: GroupNumber,
    new: &NewSubscription,
    identity: &Identity<'_>,
    last: Seq,
    now: Timestamp,
) -> rusqlite::Result<SubscriptionState> {
    let mut random = [0; 10];
    rand::rng().fill_bytes(&mut random);
    // As those of events: made one after another, they stand beside each other in the index.
    let id = EventId::new(now, random).0;
    let expires_in = micros_of(new.expires_in);
    connection
        .prepare_cached(
            "INSERT INTO ensue_subscriptions (group_number, id, topic, condition, params, params_identity, identity_hash,
             expires_in, created_at, touched_at, created_after) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?9, ?10)",
        )?
        .execute(params![
            group,
            id.as_bytes(),
            identity.topic,
            identity.condition,
            new.params.as_str(),
            identity.params,
            identity.hash,
            expires_in,
            now.as_microsecond(),
            place(last),
        ])?;
    Ok(SubscriptionState {
        id,
        group: new.group.clone(),
        topic: new.topic.clone(),
        condition: new.condition.clone(),
        params: new.params.clone(),
        expires_in: expires_in.map(SignedDuration::from_micros),
        created_at: now,
        touched_at: now,
        created_after: last,
    })
}

fn one(
    connection: &Connection,
    number: GroupNumber,
    group: &GroupName,
    id: Uuid,
) -> rusqlite::Result<Option<(SubscriptionState, i64)>> {
    connection
        .prepare_cached(select_subscriptions!("WHERE group_number = ?1 AND id = ?2"))?
        .query_row(params![number, id.as_bytes()], |row| stored_of(row, group))
        .optional()
}

pub(super) fn unsubscribe(changing: &mut Changing<'_>, group: &GroupName, id: Uuid) -> Result<bool, StoreError> {
    let now = changing.now();
    changing.sql(|connection| {
        let Some(number) = groups::number_of(connection, group)? else { return Ok(false) };
        let Some((there, row)) = one(connection, number, group, id)? else { return Ok(false) };
        delete(connection, row)?;
        changed(connection, number, -1, &[id])?;
        Ok(!has_expired(&there, slots::served_at(connection, number)?, now))
    })
}

pub(super) fn touch(
    changing: &mut Changing<'_>,
    group: &GroupName,
    id: Uuid,
) -> Result<Option<SubscriptionState>, StoreError> {
    let now = changing.now();
    changing.sql(|connection| {
        let Some(number) = groups::number_of(connection, group)? else { return Ok(None) };
        let served_at = slots::served_at(connection, number)?;
        let there = one(connection, number, group, id)?.filter(|(there, _)| !has_expired(there, served_at, now));
        let Some((there, row)) = there else { return Ok(None) };
        connection
            .prepare_cached("UPDATE ensue_subscriptions SET touched_at = ?2 WHERE rowid = ?1")?
            .execute(params![row, now.as_microsecond()])?;
        Ok(Some(SubscriptionState { touched_at: now, ..there }))
    })
}

pub(super) fn subscriptions(
    connection: &Connection,
    group: &GroupName,
    after: Option<Uuid>,
    limit: usize,
    now: Timestamp,
) -> rusqlite::Result<Vec<SubscriptionState>> {
    let Some(number) = groups::number_of(connection, group)? else { return Ok(Vec::new()) };
    let served_at = slots::served_at(connection, number)?;
    // No id is shorter than the empty one.
    let after = after.as_ref().map_or(&[][..], |id| &id.as_bytes()[..]);
    let mut statement =
        connection.prepare_cached(select_subscriptions!("WHERE group_number = ?1 AND id > ?2 ORDER BY id"))?;
    let there = statement.query_map(params![number, after], |row| stored_of(row, group))?;
    let there = there.map(|stored| stored.map(|(state, _)| state));
    there.filter(|state| state.as_ref().map_or(true, |state| !has_expired(state, served_at, now))).take(limit).collect()
}

/// Those of these subscriptions that have not expired, whatever their groups are.
pub(super) fn find(connection: &Connection, ids: &[Uuid], now: Timestamp) -> rusqlite::Result<Vec<SubscriptionState>> {
    let mut of_groups = connection.prepare_cached(
        "SELECT g.number, g.name FROM ensue_groups g CROSS JOIN ensue_subscriptions s
         ON s.group_number = g.number AND s.id = ?1",
    )?;
    let mut found = Vec::new();
    for id in ids {
        let group = of_groups
            .query_row([id.as_bytes()], |row| Ok((row.get(0)?, GroupName::stored(row.get_ref(1)?.as_str()?))))
            .optional()?;
        let Some((number, group)) = group else { continue };
        let served_at = slots::served_at(connection, number)?;
        let there = one(connection, number, &group, *id)?.filter(|(there, _)| !has_expired(there, served_at, now));
        found.extend(there.map(|(there, _)| there));
    }
    Ok(found)
}

/// Refuses direct messages to subscriptions that are not there.
pub(super) fn check_recipients(connection: &Connection, entries: &[Entry], now: Timestamp) -> Result<(), StoreError> {
    let ids = Entry::recipients(entries);
    if ids.is_empty() {
        return Ok(());
    }
    let found = find(connection, &ids, now).map_err(error::of_read)?;
    Ok(Entry::check_recipients(entries, |id| found.iter().any(|one| one.id == id))?)
}

/// What has changed after a version. Whatever is changed while this looks has a later version, and is left to the next look.
pub(super) fn changes(
    connection: &Connection,
    group: &GroupName,
    after: u64,
    limit: usize,
    now: Timestamp,
) -> rusqlite::Result<Option<SubscriptionChanges>> {
    let there = connection
        .prepare_cached("SELECT number, version FROM ensue_groups WHERE name = ?1")?
        .query_row([group.as_str()], |row| Ok((row.get::<_, GroupNumber>(0)?, row.get::<_, i64>(1)? as u64)))
        .optional()?;
    let Some((number, version)) = there.filter(|(_, version)| (after..=after + CHANGES_KEPT).contains(version)) else {
        return Ok(None);
    };
    let served_at = slots::served_at(connection, number)?;
    let mut noted = connection.prepare_cached(
        "SELECT version, id FROM ensue_subscription_changes WHERE group_number = ?1 AND version > ?2 AND version <= ?3
         ORDER BY version LIMIT ?4",
    )?;
    let noted = noted
        .query_map(params![number, place(after), place(version), limit as i64 + 1], |row| {
            Ok((row.get::<_, i64>(0)? as u64, uuid_of(row, 1)?))
        })?
        .collect::<rusqlite::Result<Vec<(u64, Uuid)>>>()?;
    if noted.len() > limit || !lead_from(after, version, noted.iter().map(|(version, _)| *version)) {
        return Ok(None);
    }
    let mut changes = SubscriptionChanges { version, ..SubscriptionChanges::default() };
    for id in noted.into_iter().map(|(_, id)| id).collect::<BTreeSet<Uuid>>() {
        match one(connection, number, group, id)? {
            Some((state, _)) if !has_expired(&state, served_at, now) => changes.there.push(state),
            Some(_) | None => changes.gone.push(id),
        }
    }
    Ok(Some(changes))
}

/// How many of a group's subscriptions have expired and are still there. Only those are looked at that expire within
/// the time since the group was served: none in a group that is read.
pub(super) fn count_expired(
    connection: &Connection,
    group: GroupNumber,
    served_at: Timestamp,
    now: Timestamp,
) -> rusqlite::Result<u64> {
    connection
        .prepare_cached(
            "SELECT count(*) FROM ensue_subscriptions WHERE group_number = ?1 AND expires_in IS NOT NULL
             AND expires_in < ?2 AND touched_at + expires_in < ?3",
        )?
        .query_row(params![group, unserved(served_at, now), now.as_microsecond()], |row| row.get::<_, i64>(0))
        .map(|count| count as u64)
}

/// How long nobody has served a group, in microseconds.
fn unserved(served_at: Timestamp, now: Timestamp) -> i64 {
    now.as_microsecond() - served_at.as_microsecond()
}

/// Is there anything to expire?
pub(super) fn any_expired(connection: &Connection, now: Timestamp) -> rusqlite::Result<bool> {
    for group in with_subscriptions(connection)? {
        if !expired(connection, group, 1, now)?.is_empty() {
            return Ok(true);
        }
    }
    Ok(false)
}

pub(super) fn expire(changing: &mut Changing<'_>, limit: usize) -> Result<usize, StoreError> {
    let now = changing.now();
    changing.sql(|connection| {
        let mut count = 0;
        for group in with_subscriptions(connection)? {
            count += forget(connection, group, limit - count, now)?;
        }
        Ok(count)
    })
}

/// Forgets what has expired of a group, for who is about to read it: otherwise it would live again, and whoever read the
/// group's subscriptions meanwhile would not know. Most groups have none that expire: one look into the index of those.
pub(super) fn forget_expired(connection: &Connection, group: GroupNumber, now: Timestamp) -> rusqlite::Result<()> {
    let any_expires = connection
        .prepare_cached(
            "SELECT 1 FROM ensue_subscriptions INDEXED BY ensue_subscriptions_expiry
             WHERE group_number = ?1 AND expires_in IS NOT NULL LIMIT 1",
        )?
        .exists([group])?;
    if any_expires {
        forget(connection, group, usize::MAX >> 1, now)?;
    }
    Ok(())
}

/// Forgets up to `limit` expired subscriptions of a group; answers how many.
fn forget(connection: &Connection, group: GroupNumber, limit: usize, now: Timestamp) -> rusqlite::Result<usize> {
    let (rows, ids): (Vec<i64>, Vec<Uuid>) = expired(connection, group, limit, now)?.into_iter().unzip();
    for row in &rows {
        delete(connection, *row)?;
    }
    if !rows.is_empty() {
        changed(connection, group, -(rows.len() as i64), &ids)?;
    }
    Ok(rows.len())
}

fn with_subscriptions(connection: &Connection) -> rusqlite::Result<Vec<GroupNumber>> {
    let mut statement = connection.prepare_cached("SELECT number FROM ensue_groups WHERE subscriptions > 0")?;
    statement.query_map([], |row| row.get(0))?.collect()
}

fn expired(
    connection: &Connection,
    group: GroupNumber,
    limit: usize,
    now: Timestamp,
) -> rusqlite::Result<Vec<(i64, Uuid)>> {
    let served_at = slots::served_at(connection, group)?;
    connection
        .prepare_cached(
            "SELECT rowid, id FROM ensue_subscriptions WHERE group_number = ?1 AND expires_in IS NOT NULL
             AND expires_in < ?2 AND touched_at + expires_in < ?3 LIMIT ?4",
        )?
        .query_map(params![group, unserved(served_at, now), now.as_microsecond(), limit as i64], |row| {
            Ok((row.get(0)?, uuid_of(row, 1)?))
        })?
        .collect()
}
