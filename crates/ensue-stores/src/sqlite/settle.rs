//! How do owners write what is done?
//!
//! Most changes only move a cursor, hundreds of them a few times a second: each is one statement, which finds the slot
//! only under its owner and fence. A change that publishes has a savepoint of its own: what is refused of it leaves
//! nothing, and the others stay.

use super::groups::{GroupNumber, place};
use super::slots::{self, MayWrite};
use super::writer::Changing;
use super::{append, deliveries, jobs, lanes, read, subscriptions};
use ensue_core::jobs::NewJob;
use ensue_core::positions::{EventAt, Settled, SlotChange};
use ensue_core::{Appended, StoreError, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};
use uuid::Uuid;

/// Writes changes, an answer for each.
pub(super) fn settle(changing: &mut Changing<'_>, changes: &[SlotChange]) -> Result<Vec<Settled>, StoreError> {
    let mut settling = Settling { now: changing.now(), asked: None, held: None };
    changes.iter().map(|change| settling.one(changing, change)).collect()
}

/// One call, at one time.
struct Settling {
    now: Timestamp,
    /// Whether a member may write, as found last: most calls are of one member.
    asked: Option<(Uuid, MayWrite)>,
    /// The event that was found in the log last: most calls rely on one.
    held: Option<EventAt>,
}

impl Settling {
    fn one(&mut self, changing: &mut Changing<'_>, change: &SlotChange) -> Result<Settled, StoreError> {
        let now = self.now;
        let may_write = changing.sql(|connection| self.may_write(connection, change.member))?;
        if may_write == MayWrite::No {
            return Ok(Settled::FenceLost);
        }
        if !changing.sql(|connection| self.holds(connection, change.relies_on))? {
            let is_owner = changing.sql(|connection| owned(connection, change))?.is_some();
            return Ok(if is_owner { Settled::WentBack } else { Settled::FenceLost });
        }
        if may_write == MayWrite::Yes && is_cursor_alone(change) {
            let is_owner = changing.sql(|connection| move_cursor(connection, change, now))?;
            return Ok(if is_owner { Settled::Done(Vec::new()) } else { Settled::FenceLost });
        }
        let Some(group) = changing.sql(|connection| owned(connection, change))? else {
            return Ok(Settled::FenceLost);
        };
        let appended = match publish(changing, change)? {
            Ok(appended) => appended,
            Err(refusal) => return Ok(Settled::Refused(refusal)),
        };
        changing.sql(|connection| {
            if may_write == MayWrite::Late {
                subscriptions::forget_expired(connection, group, now)?;
            }
            write(connection, group, change, now)
        })?;
        Ok(Settled::Done(appended))
    }

    /// The lock on the file keeps the log from going back while it is open. It may be another one afterwards, as when
    /// an older copy of the file was put back.
    fn holds(&mut self, connection: &Connection, event: Option<EventAt>) -> rusqlite::Result<bool> {
        let Some(event) = event.filter(|event| self.held != Some(*event)) else { return Ok(true) };
        let stored = read::id_at(connection, event.seq)?;
        let is_held = event.is_held(stored, read::bounds(connection)?.first);
        self.held = is_held.then_some(event).or(self.held);
        Ok(is_held)
    }

    fn may_write(&mut self, connection: &Connection, member: Uuid) -> rusqlite::Result<MayWrite> {
        if let Some((asked, may)) = self.asked
            && asked == member
        {
            return Ok(may);
        }
        let may = slots::may_write(connection, member, self.now)?;
        self.asked = Some((member, may));
        Ok(may)
    }
}

fn is_cursor_alone(change: &SlotChange) -> bool {
    let SlotChange { cursor, lanes, deliveries, lines, events, jobs, lost, .. } = change;
    let sends_nothing = events.is_empty() && jobs.is_empty();
    let nothing_else = lanes.is_empty() && deliveries.is_empty() && lines.is_empty() && sends_nothing;
    cursor.is_some() && nothing_else && lost.is_none()
}

/// Moves the cursor of a slot on, never back; false if the slot is somebody else's.
fn move_cursor(connection: &Connection, change: &SlotChange, now: Timestamp) -> rusqlite::Result<bool> {
    let found = connection
        .prepare_cached(
            "UPDATE ensue_slots SET
                 vanished = iif(?5 > cursor, 0, vanished),
                 served_at = iif(?5 > cursor, max(served_at, ?6), served_at),
                 cursor = max(cursor, ?5)
             WHERE group_number = (SELECT number FROM ensue_groups WHERE name = ?1)
             AND slot = ?2 AND owner = ?3 AND fence = ?4",
        )?
        .execute(params![
            change.group.as_str(),
            change.slot,
            change.member.as_bytes(),
            place(change.fence),
            place(change.cursor.unwrap_or_default()),
            now.as_microsecond(),
        ])?;
    Ok(found == 1)
}

/// The number of the change's group, if its slot is the member's under this fence.
fn owned(connection: &Connection, change: &SlotChange) -> rusqlite::Result<Option<GroupNumber>> {
    connection
        .prepare_cached(
            "SELECT g.number FROM ensue_groups g JOIN ensue_slots s ON s.group_number = g.number
             WHERE g.name = ?1 AND s.slot = ?2 AND s.owner = ?3 AND s.fence = ?4",
        )?
        .query_row(params![change.group.as_str(), change.slot, change.member.as_bytes(), place(change.fence)], |row| {
            row.get(0)
        })
        .optional()
}

/// Publishes the events of a change and sends its jobs, or says why they were refused: then nothing of them is there. Any other error is
/// that of the whole commit.
fn publish(changing: &mut Changing<'_>, change: &SlotChange) -> Result<Result<Vec<Appended>, StoreError>, StoreError> {
    if change.events.is_empty() && change.jobs.is_empty() {
        return Ok(Ok(Vec::new()));
    }
    changing.apart(append::is_of_the_entries, |changing| send(changing, change))
}

fn send(changing: &mut Changing<'_>, change: &SlotChange) -> Result<Vec<Appended>, StoreError> {
    change.jobs.iter().try_for_each(NewJob::check)?;
    let appended = if change.events.is_empty() { Vec::new() } else { changing.append(&change.events)? };
    if !change.jobs.is_empty() {
        jobs::send::enqueue(changing, &change.jobs)?;
    }
    Ok(appended)
}

/// Everything but the events.
fn write(connection: &Connection, group: GroupNumber, change: &SlotChange, now: Timestamp) -> rusqlite::Result<()> {
    if change.cursor.is_some() {
        move_cursor(connection, change, now)?;
    }
    for lane in &change.lanes {
        lanes::change(connection, group, change.slot, lane, now)?;
    }
    deliveries::record(connection, group, &change.deliveries)?;
    deliveries::say(connection, group, &change.lines)?;
    if let Some(lost) = change.lost {
        connection
            .prepare_cached("UPDATE ensue_groups SET lost_from = ?2, lost_to = ?3 WHERE number = ?1")?
            .execute(params![group, place(lost.from), place(lost.to)])?;
    }
    Ok(())
}
