//! Which groups are there, and where do they stand?

use super::PostgresStore;
use super::read::{place, rows_max};
use super::types::Micros;
use ensue_core::positions::replay::check_range;
use ensue_core::positions::{
    GroupKind, GroupState, Lost, Member, NewGroup, Owner, Replay, SlotNumber, SlotState, Start, Unreplayable,
    check_cursor,
};
use ensue_core::retention::Bounds;
use ensue_core::{GroupName, Seq, StoreError};
use tokio_postgres::Row;
use uuid::Uuid;

/// How many rows of each kind of a forgotten group go in one commit: about 50 ms.
const SWEPT_AT_ONCE: i64 = 5_000;

/// A word in the store, unless this program does not know it.
pub(super) fn known<T>(word: &str, of: impl Fn(&str) -> Option<T>) -> Result<T, StoreError> {
    of(word).ok_or_else(|| {
        StoreError::Schema(format!(
            "the store has the word `{word}`, which this program does not know: use a newer Ensue"
        ))
    })
}

/// The member in three columns, id, name and kind; none if there is none.
pub(super) fn member_at(row: &Row, first: usize) -> Result<Option<Member>, StoreError> {
    match row.get::<_, Option<Uuid>>(first) {
        None => Ok(None),
        Some(id) => {
            Ok(Some(Member { id, name: row.get(first + 1), kind: known(row.get(first + 2), GroupKind::stored)? }))
        }
    }
}

/// The owner in four columns, the last of which is the end of its lease.
pub(super) fn owner_at(row: &Row, first: usize) -> Result<Option<Owner>, StoreError> {
    let lease_until = |row: &Row| row.get::<_, Micros>(first + 3).0;
    Ok(member_at(row, first)?.map(|member| Owner { member, lease_until: lease_until(row) }))
}

impl PostgresStore {
    pub(super) async fn make_group(&self, new: NewGroup) -> Result<(GroupState, bool), StoreError> {
        let call = Uuid::from_u128(rand::random());
        let (start, after) = match new.start {
            Start::Now => ("now", None),
            Start::Beginning => ("beginning", None),
            Start::After(seq) => ("after", Some(seq)),
        };
        if let Some(there) = self.read_group(&new.name).await? {
            return if there.kind == new.kind { Ok((there, false)) } else { Err(there.kind.has_the_name(&new.name)) };
        }
        new.check_slots()?;
        let (name, kind, slots) = (new.name.as_str(), new.kind.as_str(), i32::from(new.slots));
        let (now, hint, after_place) = (self.clock_time(), self.hint(), after.map(place));
        let make = &self.sql.positions.group_make;
        let row =
            self.server.query_one(make, &[&now, &hint, &call, &name, &kind, &start, &after_place, &slots]).await?;
        let there = row.get::<_, Option<&str>>(0).map(|kind| known(kind, GroupKind::stored)).transpose()?;
        match (there, after) {
            (Some(there), _) if there != new.kind => Err(there.has_the_name(&new.name)),
            (Some(_), _) => {
                let state = self.read_group(&new.name).await?;
                state.map(|state| (state, row.get(1))).ok_or_else(|| deleted_meanwhile(&new.name))
            }
            (None, after) => {
                after.map(|after| check_cursor("start", after, bounds_at(&row, 2))).transpose()?;
                Err(StoreError::Engine("a group that begins within the log was not made".into()))
            }
        }
    }

    pub(super) async fn read_group(&self, name: &GroupName) -> Result<Option<GroupState>, StoreError> {
        let rows = self.server.query(&self.sql.positions.group, &[&self.clock_time(), &name.as_str()]).await?;
        Ok(groups_of(&rows)?.pop())
    }

    pub(super) async fn read_groups(&self) -> Result<Vec<GroupState>, StoreError> {
        groups_of(&self.server.query(&self.sql.positions.groups, &[&self.clock_time()]).await?)
    }

    pub(super) async fn read_groups_after(
        &self,
        kind: Option<GroupKind>,
        after: Option<&GroupName>,
        limit: usize,
    ) -> Result<Vec<GroupState>, StoreError> {
        let (now, kind, limit) = (self.clock_time(), kind.map(GroupKind::as_str), rows_max(limit));
        let after = after.map_or("", GroupName::as_str);
        groups_of(&self.server.query(&self.sql.positions.groups_after, &[&now, &after, &kind, &limit]).await?)
    }

    /// If the answer is lost and the call made again, the second time there is no group: whoever deletes one twice is told
    /// so too.
    pub(super) async fn forget_group(&self, name: &GroupName) -> Result<bool, StoreError> {
        let row = self.server.query_one_of_call(&self.sql.positions.group_delete, &[&name.as_str()]).await?;
        if !row.get::<_, bool>(0) {
            return Ok(false);
        }
        if let Err(error) = self.sweep_groups().await {
            tracing::warn!(%error, group = %name, "what belonged to a forgotten group is left to the next upkeep");
        }
        Ok(true)
    }

    /// Deletes what belonged to forgotten groups.
    pub(super) async fn sweep_groups(&self) -> Result<(), StoreError> {
        while self.server.query_one(&self.sql.positions.group_sweep, &[&SWEPT_AT_ONCE]).await?.get(0) {}
        Ok(())
    }

    pub(super) async fn seek_group(&self, name: &GroupName, to: Seq) -> Result<Option<GroupState>, StoreError> {
        let (now, hint) = (self.clock_time(), self.hint());
        let seek = &self.sql.positions.group_seek;
        let row = self.server.query_one_of_call(seek, &[&now, &hint, &name.as_str(), &place(to)]).await?;
        if !row.get::<_, bool>(0) {
            return Ok(None);
        }
        check_cursor("to", to, bounds_at(&row, 1))?;
        self.read_group(name).await
    }

    pub(super) async fn replay_group(
        &self,
        name: &GroupName,
        after: Seq,
        to: Seq,
    ) -> Result<Option<GroupState>, StoreError> {
        let (now, hint, group) = (self.clock_time(), self.hint(), name.as_str());
        let replay = &self.sql.positions.group_replay;
        let row = self.server.query_one_of_call(replay, &[&now, &hint, &group, &place(after), &place(to)]).await?;
        match row.get::<_, &str>(0) {
            "missing" => Ok(None),
            "pull" => Err(Unreplayable::IsRead.of(name)),
            "lanes" => Err(Unreplayable::HasLanes.of(name)),
            "under_way" => Err(Unreplayable::IsUnderWay.of(name)),
            _ => {
                check_range(after, to, bounds_at(&row, 1))?;
                self.read_group(name).await
            }
        }
    }
}

/// What a slot runs again, in two columns.
fn replay_at(row: &Row, first: usize) -> Option<Replay> {
    let (to, resume): (Option<i64>, Option<i64>) = (row.get(first), row.get(first + 1));
    to.zip(resume).map(|(to, resume)| Replay { to: to as Seq, resume: resume as Seq })
}

/// The bounds of the log in two columns.
pub(super) fn bounds_at(row: &Row, first: usize) -> Bounds {
    Bounds { first: row.get::<_, i64>(first) as Seq, last: row.get::<_, i64>(first + 1) as Seq }
}

fn deleted_meanwhile(name: &GroupName) -> StoreError {
    StoreError::Conflict(format!(
        "somebody deleted the group `{name}` at this moment: make it again if it should be there"
    ))
}

/// Groups from a row for each slot, in order.
fn groups_of(rows: &[Row]) -> Result<Vec<GroupState>, StoreError> {
    let mut groups: Vec<GroupState> = Vec::new();
    let mut newest_loss = None;
    for row in rows {
        let name = row.get::<_, &str>(0);
        if groups.last().is_none_or(|group| group.name.as_str() != name) {
            newest_loss = None;
            groups.push(GroupState {
                name: GroupName::stored(name),
                kind: known(row.get(1), GroupKind::stored)?,
                created_at: row.get::<_, Micros>(2).0,
                served_at: row.get::<_, Micros>(3).0,
                slots: Vec::new(),
                version: row.get::<_, i64>(4) as u64,
                subscriptions: row.get::<_, i64>(5).max(0) as u64,
                lanes: row.get::<_, i64>(6) as u64,
                oldest_lane: row.get::<_, Option<i64>>(7).map(|seq| seq as Seq),
                lost: None,
            });
        }
        let Some(group) = groups.last_mut() else { continue };
        group.slots.push(SlotState {
            slot: row.get::<_, i32>(8) as SlotNumber,
            cursor: row.get::<_, i64>(9) as Seq,
            fence: row.get::<_, i64>(10) as u64,
            vanished: row.get::<_, i64>(11) as u32,
            owner: owner_at(row, 12)?,
            replay: replay_at(row, 19),
        });
        let nth: Option<i64> = row.get(16);
        if nth > newest_loss {
            newest_loss = nth;
            let (from, to): (i64, i64) = (row.get(17), row.get(18));
            group.lost = Some(Lost { from: from as Seq, to: to as Seq });
        }
    }
    Ok(groups)
}
