//! Who serves which group?

use super::read::uuid_of;
use super::slots::{know, member_at};
use super::writer::Changing;
use ensue_core::positions::{Member, Serving};
use ensue_core::{GroupName, StoreError, Timestamp};
use jiff::SignedDuration;
use rusqlite::{Connection, params};
use std::collections::BTreeSet;
use uuid::Uuid;

pub(super) fn serve(
    changing: &mut Changing<'_>,
    member: &Member,
    lease: SignedDuration,
    groups: &[GroupName],
) -> Result<(), StoreError> {
    let now = changing.now();
    changing.sql(|connection| {
        know(connection, member, lease, now)?;
        let before: BTreeSet<String> = connection
            .prepare_cached("SELECT group_name FROM ensue_serving WHERE member = ?1")?
            .query_map([member.id.as_bytes()], |row| row.get(0))?
            .collect::<rusqlite::Result<_>>()?;
        let after: BTreeSet<String> = groups.iter().map(|group| group.as_str().to_owned()).collect();
        let mut told: BTreeSet<Uuid> = BTreeSet::new();
        for group in before.symmetric_difference(&after) {
            let others = connection
                .prepare_cached("SELECT member FROM ensue_serving WHERE group_name = ?1 AND member <> ?2")?
                .query_map(params![group, member.id.as_bytes()], |row| uuid_of(row, 0))?
                .collect::<rusqlite::Result<Vec<_>>>()?;
            told.extend(others);
        }
        for other in told {
            connection
                .prepare_cached("UPDATE ensue_members SET version = version + 1 WHERE id = ?1")?
                .execute([other.as_bytes()])?;
        }
        forget(connection, member.id.as_bytes())?;
        let mut insert = connection.prepare_cached("INSERT INTO ensue_serving (member, group_name) VALUES (?1, ?2)")?;
        for group in &after {
            insert.execute(params![member.id.as_bytes(), group])?;
        }
        Ok(())
    })
}

/// The processes that live, each with what it serves.
pub(super) fn members(connection: &Connection, now: Timestamp) -> rusqlite::Result<Vec<Serving>> {
    let members = connection
        .prepare_cached(
            "SELECT id, name, kind FROM ensue_members WHERE kind = 'handler' AND lease_until >= ?1 ORDER BY id",
        )?
        .query_map([now.as_microsecond()], |row| member_at(row, 0))?
        .collect::<rusqlite::Result<Vec<_>>>()?;
    let mut of_member =
        connection.prepare_cached("SELECT group_name FROM ensue_serving WHERE member = ?1 ORDER BY group_name")?;
    let serving = |member: Member| {
        let groups = of_member
            .query_map([member.id.as_bytes()], |row| Ok(GroupName::stored(&row.get::<_, String>(0)?)))?
            .collect::<rusqlite::Result<_>>()?;
        Ok(Serving { member, groups })
    };
    members.into_iter().map(serving).collect()
}

/// Forgets what a member serves.
pub(super) fn forget(connection: &Connection, member: &[u8; 16]) -> rusqlite::Result<()> {
    connection.prepare_cached("DELETE FROM ensue_serving WHERE member = ?1")?.execute([member])?;
    Ok(())
}
