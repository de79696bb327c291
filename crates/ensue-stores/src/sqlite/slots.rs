//! Who has which slot?
//!
//! A lease is the member's: one row, renewed however many slots it has. A slot whose owner's lease has passed, or whose
//! owner is no member any more, is anybody's; who takes it counts its owner as vanished.

use super::groups::{self, GroupNumber, kind_of};
use super::read::{self, time_of, uuid_of};
use super::writer::Changing;
use super::{serving, subscriptions};
use ensue_core::positions::{
    Acquire, Acquired, AcquiredSlot, GroupKind, Member, Owner, Renewed, Replay, SlotNumber, SlotState,
};
use ensue_core::{GroupName, Seq, StoreError, Timestamp};
use jiff::SignedDuration;
use rusqlite::{Connection, OptionalExtension, Row, params};
use uuid::Uuid;

/// How long a reader who left without a word is remembered.
const READERS_REMEMBERED: SignedDuration = SignedDuration::from_hours(24);
/// How many forgotten readers go with one new one.
const READERS_FORGOTTEN_MAX: usize = 64;

/// When a lease ends that begins now.
pub(super) fn lease_end(now: Timestamp, lease: SignedDuration) -> Timestamp {
    ensue_core::event::whole_microseconds(now.saturating_add(lease).unwrap_or(Timestamp::MAX))
}

/// Past its end, a lease is over.
fn has_passed(lease_until: Timestamp, now: Timestamp) -> bool {
    lease_until < now
}

pub(super) fn member_at(row: &Row<'_>, first_column: usize) -> rusqlite::Result<Member> {
    Ok(Member {
        id: uuid_of(row, first_column)?,
        name: row.get(first_column + 1)?,
        kind: kind_of(row, first_column + 2)?,
    })
}

/// What a slot runs again, in two columns.
fn replay_at(row: &Row<'_>, first_column: usize) -> rusqlite::Result<Option<Replay>> {
    let (to, resume) = (row.get::<_, Option<i64>>(first_column)?, row.get::<_, Option<i64>>(first_column + 1)?);
    Ok(to.zip(resume).map(|(to, resume)| Replay { to: to as Seq, resume: resume as Seq }))
}

/// A slot with the owner that is written there, member or not.
struct Stored {
    state: SlotState,
    owner_id: Option<Uuid>,
    served_at: Timestamp,
}

impl Stored {
    fn of(row: &Row<'_>) -> rusqlite::Result<Self> {
        let owner = match row.get::<_, Option<i64>>(8)? {
            Some(until) => Some(Owner { member: member_at(row, 5)?, lease_until: time_of(until) }),
            None => None,
        };
        let state = SlotState {
            slot: row.get(0)?,
            cursor: row.get::<_, i64>(1)? as Seq,
            fence: row.get::<_, i64>(2)? as u64,
            vanished: row.get(3)?,
            owner,
            replay: replay_at(row, 9)?,
        };
        Ok(Self { state, owner_id: read::to_of(row, 5)?, served_at: time_of(row.get(4)?) })
    }

    /// Has this member got it, by a lease that may have passed?
    fn is_of(&self, member: Uuid) -> bool {
        self.state.owner.as_ref().is_some_and(|owner| owner.member.id == member)
    }

    fn is_free(&self, now: Timestamp) -> bool {
        self.state.owner.as_ref().is_none_or(|owner| has_passed(owner.lease_until, now))
    }
}

fn stored(connection: &Connection, group: GroupNumber) -> rusqlite::Result<Vec<Stored>> {
    connection
        .prepare_cached(
            "SELECT s.slot, s.cursor, s.fence, s.vanished, s.served_at, s.owner, m.name, m.kind, m.lease_until,
             s.replay_to, s.resume_at
             FROM ensue_slots s LEFT JOIN ensue_members m ON m.id = s.owner
             WHERE s.group_number = ?1 ORDER BY s.slot",
        )?
        .query_map([group], Stored::of)?
        .collect()
}

/// The slots of a group, and when it was last served.
pub(super) fn slots(connection: &Connection, group: GroupNumber) -> rusqlite::Result<(Vec<SlotState>, Timestamp)> {
    let slots = stored(connection, group)?;
    let served =
        |slot: &Stored| slot.state.owner.as_ref().map_or(slot.served_at, |owner| owner.lease_until.max(slot.served_at));
    let served_at = slots.iter().map(served).max().unwrap_or(Timestamp::MIN);
    Ok((slots.into_iter().map(|slot| slot.state).collect(), served_at))
}

/// When a group was last served; while somebody has a slot of it, at least the end of their lease.
pub(super) fn served_at(connection: &Connection, group: GroupNumber) -> rusqlite::Result<Timestamp> {
    connection
        .prepare_cached(
            "SELECT max(max(s.served_at, ifnull(m.lease_until, s.served_at)))
             FROM ensue_slots s LEFT JOIN ensue_members m ON m.id = s.owner WHERE s.group_number = ?1",
        )?
        .query_row([group], |row| Ok(row.get::<_, Option<i64>>(0)?.map_or(Timestamp::MIN, time_of)))
}

pub(super) fn acquire(changing: &mut Changing<'_>, acquire: &Acquire) -> Result<Option<Acquired>, StoreError> {
    let now = changing.now();
    changing.sql(|connection| {
        let Some(number) = groups::number_of(connection, &acquire.group)? else { return Ok(None) };
        let wanted = |slot: &Stored| acquire.slots.is_empty() || acquire.slots.contains(&slot.state.slot);
        let (got, others): (Vec<_>, Vec<_>) =
            stored(connection, number)?.into_iter().filter(wanted).partition(|slot| is_for(slot, acquire, now));
        // Who may not go on has its lease not renewed by that: what it once had stays lost.
        if !got.is_empty() || acquire.go_on.is_none() {
            if !got.is_empty() {
                subscriptions::forget_expired(connection, number, now)?;
            }
            know(connection, &acquire.member, acquire.lease, now)?;
        }
        let taken = got.into_iter().map(|slot| take(connection, number, slot, acquire.member.id, now));
        let slots = taken.collect::<rusqlite::Result<_>>()?;
        let held_by = others.into_iter().next().and_then(|slot| slot.state.owner);
        let version = groups::version(connection, number)?;
        Ok(Some(Acquired { slots, held_by, version }))
    })
}

/// Does this slot go to who wants it?
fn is_for(slot: &Stored, acquire: &Acquire, now: Timestamp) -> bool {
    match acquire.go_on {
        Some(fence) => slot.is_of(acquire.member.id) && !slot.is_free(now) && slot.state.fence == fence,
        None => slot.is_of(acquire.member.id) || slot.is_free(now),
    }
}

/// Makes a member known, or renews its lease.
pub(super) fn know(
    connection: &Connection,
    member: &Member,
    lease: SignedDuration,
    now: Timestamp,
) -> rusqlite::Result<()> {
    forget_expired_of(connection, member.id, now)?;
    let (id, until) = (member.id.as_bytes(), lease_end(now, lease).as_microsecond());
    let known = connection
        .prepare_cached("UPDATE ensue_members SET name = ?2, kind = ?3, lease_until = ?4 WHERE id = ?1")?
        .execute(params![id, member.name, member.kind.as_str(), until])?;
    if known == 0 {
        forget_readers(connection, now)?;
        connection
            .prepare_cached(
                "INSERT INTO ensue_members (id, name, kind, lease_until, version) VALUES (?1, ?2, ?3, ?4, 0)",
            )?
            .execute(params![id, member.name, member.kind.as_str(), until])?;
    }
    Ok(())
}

/// Gives a slot to a member, under a new fence unless it has it already.
fn take(
    connection: &Connection,
    group: GroupNumber,
    slot: Stored,
    member: Uuid,
    now: Timestamp,
) -> rusqlite::Result<AcquiredSlot> {
    let (has_it, former, state) = (slot.is_of(member), slot.owner_id, slot.state);
    if has_it {
        return Ok(AcquiredSlot {
            slot: state.slot,
            fence: state.fence,
            cursor: state.cursor,
            vanished: state.vanished,
        });
    }
    let fence = state.fence + 1;
    let vanished = if former.is_some() { state.vanished.saturating_add(1) } else { state.vanished };
    connection
        .prepare_cached(
            "UPDATE ensue_slots SET owner = ?3, fence = ?4, vanished = ?5, served_at = max(served_at, ?6)
             WHERE group_number = ?1 AND slot = ?2",
        )?
        .execute(params![group, state.slot, member.as_bytes(), fence as i64, vanished, now.as_microsecond()])?;
    if let Some(former) = former {
        connection
            .prepare_cached("UPDATE ensue_members SET version = version + 1 WHERE id = ?1")?
            .execute([former.as_bytes()])?;
    }
    Ok(AcquiredSlot { slot: state.slot, fence, cursor: state.cursor, vanished })
}

/// Takes the slots of a group from whoever has them, but for one.
pub(super) fn take_all_but(
    connection: &Connection,
    group: GroupNumber,
    but: Option<Uuid>,
    now: Timestamp,
) -> rusqlite::Result<()> {
    let but = but.map(|member| member.into_bytes());
    connection
        .prepare_cached(
            "UPDATE ensue_members SET version = version + 1
             WHERE id IN (SELECT owner FROM ensue_slots WHERE group_number = ?1) AND id IS NOT ?2",
        )?
        .execute(params![group, but])?;
    connection
        .prepare_cached(
            "UPDATE ensue_slots SET owner = NULL, served_at = max(served_at, ?3)
             WHERE group_number = ?1 AND owner IS NOT NULL AND owner IS NOT ?2",
        )?
        .execute(params![group, but, now.as_microsecond()])?;
    Ok(())
}

/// Tells those who have slots of a group that they have them no longer.
pub(super) fn tell_owners(connection: &Connection, group: GroupNumber) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "UPDATE ensue_members SET version = version + 1
             WHERE id IN (SELECT owner FROM ensue_slots WHERE group_number = ?1)",
        )?
        .execute([group])?;
    Ok(())
}

pub(super) fn renew(
    changing: &mut Changing<'_>,
    member: Uuid,
    lease: SignedDuration,
) -> Result<Option<Renewed>, StoreError> {
    let now = changing.now();
    changing.sql(|connection| {
        if known(connection, member)?.is_none() {
            return Ok(None);
        }
        forget_expired_of(connection, member, now)?;
        let version = connection
            .prepare_cached("UPDATE ensue_members SET lease_until = ?2 WHERE id = ?1 RETURNING version")?
            .query_row(params![member.as_bytes(), lease_end(now, lease).as_microsecond()], |row| {
                row.get::<_, i64>(0)
            })?;
        let members = connection
            .prepare_cached(
                "SELECT id, name, kind FROM ensue_members WHERE kind = 'handler' AND lease_until >= ?1 ORDER BY id",
            )?
            .query_map([now.as_microsecond()], |row| member_at(row, 0))?
            .collect::<rusqlite::Result<_>>()?;
        Ok(Some(Renewed { version: version as u64, members }))
    })
}

pub(super) fn release(
    changing: &mut Changing<'_>,
    member: Uuid,
    group: &GroupName,
    slots: &[SlotNumber],
) -> Result<(), StoreError> {
    let now = changing.now();
    changing.sql(|connection| {
        let Some(number) = groups::number_of(connection, group)? else { return Ok(()) };
        let is_given = |slot: &Stored| slot.owner_id == Some(member) && slots.contains(&slot.state.slot);
        if stored(connection, number)?.iter().any(is_given) {
            subscriptions::forget_expired(connection, number, now)?;
        }
        let mut give_back = connection.prepare_cached(
            "UPDATE ensue_slots SET owner = NULL, vanished = 0, served_at = max(served_at, ?4)
             WHERE group_number = ?1 AND slot = ?2 AND owner = ?3",
        )?;
        for slot in slots {
            give_back.execute(params![number, slot, member.as_bytes(), now.as_microsecond()])?;
        }
        Ok(())
    })
}

pub(super) fn leave(changing: &mut Changing<'_>, member: Uuid) -> Result<(), StoreError> {
    let now = changing.now();
    changing.sql(|connection| {
        forget_expired_of(connection, member, now)?;
        connection
            .prepare_cached(
                "UPDATE ensue_slots SET owner = NULL, vanished = 0, served_at = max(served_at, ?2) WHERE owner = ?1",
            )?
            .execute(params![member.as_bytes(), now.as_microsecond()])?;
        connection.prepare_cached("DELETE FROM ensue_members WHERE id = ?1")?.execute([member.as_bytes()])?;
        serving::forget(connection, member.as_bytes())
    })
}

/// Forgets what has expired of the groups of which a member has slots, before its lease has them all read again. While the
/// lease lasts they are read, and nothing of them has expired.
fn forget_expired_of(connection: &Connection, member: Uuid, now: Timestamp) -> rusqlite::Result<()> {
    let lease = known(connection, member)?.map(|(_, lease_until)| lease_until);
    if lease.is_some_and(|lease_until| !has_passed(lease_until, now)) {
        return Ok(());
    }
    let groups: Vec<GroupNumber> = connection
        .prepare_cached("SELECT DISTINCT group_number FROM ensue_slots WHERE owner = ?1")?
        .query_map([member.as_bytes()], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    groups.into_iter().try_for_each(|group| subscriptions::forget_expired(connection, group, now))
}

fn known(connection: &Connection, member: Uuid) -> rusqlite::Result<Option<(GroupKind, Timestamp)>> {
    connection
        .prepare_cached("SELECT kind, lease_until FROM ensue_members WHERE id = ?1")?
        .query_row([member.as_bytes()], |row| Ok((kind_of(row, 0)?, time_of(row.get(1)?))))
        .optional()
}

/// Whether a member may write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MayWrite {
    /// Its lease lasts.
    Yes,
    /// Its lease has passed, so that nobody reads its groups; but it may, until somebody takes its slots.
    Late,
    /// It is not known, or a reader whose lease has passed.
    No,
}

/// A process may write until somebody takes its slots; a reader, while its lease lasts.
pub(super) fn may_write(connection: &Connection, member: Uuid, now: Timestamp) -> rusqlite::Result<MayWrite> {
    Ok(match known(connection, member)? {
        Some((_, lease_until)) if !has_passed(lease_until, now) => MayWrite::Yes,
        Some((GroupKind::Handler, _)) => MayWrite::Late,
        Some((GroupKind::Pull, _)) | None => MayWrite::No,
    })
}

/// Forgets the processes that had this file before: only one can write to it, so they are gone. Their slots stay
/// written to them, and whoever takes those counts them as vanished. Readers' leases live on.
pub(super) fn forget_processes(connection: &Connection, now: Timestamp) -> rusqlite::Result<()> {
    let processes: Vec<[u8; 16]> = connection
        .prepare("SELECT id FROM ensue_members WHERE kind = 'handler'")?
        .query_map([], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    processes.iter().try_for_each(|id| forget_member(connection, id, now))
}

/// Forgets some of the readers who left without a word long ago: each may have been another.
fn forget_readers(connection: &Connection, now: Timestamp) -> rusqlite::Result<()> {
    let horizon = now.saturating_sub(READERS_REMEMBERED).unwrap_or(Timestamp::MIN).as_microsecond();
    let readers: Vec<[u8; 16]> = connection
        .prepare_cached(
            "SELECT id FROM ensue_members WHERE kind = 'pull' AND lease_until < ?1 ORDER BY lease_until LIMIT ?2",
        )?
        .query_map(params![horizon, READERS_FORGOTTEN_MAX as i64], |row| row.get(0))?
        .collect::<rusqlite::Result<_>>()?;
    readers.iter().try_for_each(|id| forget_member(connection, id, now))
}

/// Forgets a member, but not when the groups that it had were last served.
fn forget_member(connection: &Connection, id: &[u8; 16], now: Timestamp) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "UPDATE ensue_slots SET served_at =
             max(served_at, min(?2, (SELECT lease_until FROM ensue_members WHERE id = ?1))) WHERE owner = ?1",
        )?
        .execute(params![id, now.as_microsecond()])?;
    connection.prepare_cached("DELETE FROM ensue_members WHERE id = ?1")?.execute([id])?;
    serving::forget(connection, id)
}
