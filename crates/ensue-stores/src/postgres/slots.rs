//! Who has which slot?
//!
//! A lease is the member's: one row, renewed however many slots it has. A slot whose owner's lease has passed, or whose
//! owner is no member any more, is anybody's; who takes it counts its owner as vanished. All of these may be done twice:
//! a slot that a lost try took is one that the member has.

use super::PostgresStore;
use super::groups::{member_at, owner_at};
use ensue_core::positions::{Acquire, Acquired, AcquiredSlot, GroupKind, Member, Renewed, Serving, SlotNumber};
use ensue_core::text::plain;
use ensue_core::{GroupName, Seq, StoreError};
use jiff::SignedDuration;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

/// The longest lease, in microseconds: a hundred years, which no sum with a time overflows.
const LEASE_MAX: i64 = 100 * 365 * 24 * 3_600 * 1_000_000;

pub(super) fn micros_of(lease: SignedDuration) -> i64 {
    lease.as_micros().clamp(0, i128::from(LEASE_MAX)) as i64
}

fn numbers_of(slots: &[SlotNumber]) -> Vec<i32> {
    slots.iter().map(|slot| i32::from(*slot)).collect()
}

impl PostgresStore {
    pub(super) async fn take_slots(&self, acquire: Acquire) -> Result<Option<Acquired>, StoreError> {
        let Acquire { group, member, lease, slots, go_on } = &acquire;
        let (now, group, kind, lease) = (self.clock_time(), group.as_str(), member.kind.as_str(), micros_of(*lease));
        let slots = (!slots.is_empty()).then(|| numbers_of(slots));
        let (name, go_on) = (plain(&member.name), go_on.map(|fence| i64::try_from(fence).unwrap_or(i64::MAX)));
        let params: [&(dyn ToSql + Sync); 8] = [&now, &group, &member.id, &name, &kind, &lease, &slots, &go_on];
        let row = match member.kind {
            // Whoever reads over SQL may have it locked for as long as their transaction takes.
            GroupKind::Pull => self.server.query_one_of_call(&self.sql.positions.acquire_soon, &params).await?,
            GroupKind::Handler => self.server.query_one(&self.sql.positions.acquire, &params).await?,
        };
        let Some(version) = row.get::<_, Option<i64>>(0) else { return Ok(None) };
        let column = |index: usize| row.get::<_, Option<Vec<i64>>>(index).unwrap_or_default();
        let numbers = row.get::<_, Option<Vec<i32>>>(1).unwrap_or_default();
        let (fences, cursors, vanished) = (column(2), column(3), column(4));
        let slot = |index: usize| AcquiredSlot {
            slot: numbers[index] as SlotNumber,
            fence: fences[index] as u64,
            cursor: cursors[index] as Seq,
            vanished: vanished[index] as u32,
        };
        let slots = (0..numbers.len()).map(slot).collect();
        Ok(Some(Acquired { slots, held_by: owner_at(&row, 5)?, version: version as u64 }))
    }

    pub(super) async fn renew_lease(&self, member: Uuid, lease: SignedDuration) -> Result<Option<Renewed>, StoreError> {
        let (now, lease) = (self.clock_time(), micros_of(lease));
        let rows = self.server.query(&self.sql.positions.renew, &[&now, &member, &lease]).await?;
        let Some(first) = rows.first() else { return Ok(None) };
        let members = rows.iter().filter_map(|row| member_at(row, 1).transpose()).collect::<Result<_, _>>()?;
        Ok(Some(Renewed { version: first.get::<_, i64>(0) as u64, members }))
    }

    pub(super) async fn serve_groups(
        &self,
        member: Member,
        lease: SignedDuration,
        groups: Vec<GroupName>,
    ) -> Result<(), StoreError> {
        let (now, name, kind) = (self.clock_time(), plain(&member.name), member.kind.as_str());
        let (lease, groups) = (micros_of(lease), groups.iter().map(GroupName::as_str).collect::<Vec<_>>());
        let serve = &self.sql.positions.serve;
        self.server.query(serve, &[&now, &member.id, &name, &kind, &lease, &groups]).await.map(drop)
    }

    pub(super) async fn read_members(&self) -> Result<Vec<Serving>, StoreError> {
        let rows = self.server.query(&self.sql.positions.members, &[&self.clock_time()]).await?;
        let serving = |row: &Row| {
            let groups = row.get::<_, Vec<String>>(3).iter().map(|name| GroupName::stored(name)).collect();
            Ok(member_at(row, 0)?.map(|member| Serving { member, groups }))
        };
        rows.iter().filter_map(|row| serving(row).transpose()).collect()
    }

    pub(super) async fn give_back(
        &self,
        member: Uuid,
        group: &GroupName,
        slots: &[SlotNumber],
    ) -> Result<(), StoreError> {
        let (now, group, slots) = (self.clock_time(), group.as_str(), numbers_of(slots));
        self.server.query_of_call(&self.sql.positions.release, &[&now, &member, &group, &slots]).await.map(drop)
    }

    pub(super) async fn give_all_back(&self, member: Uuid) -> Result<(), StoreError> {
        self.server.query_of_call(&self.sql.positions.leave, &[&self.clock_time(), &member]).await.map(drop)
    }
}
