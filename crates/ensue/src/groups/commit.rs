//! How far is the reader?

use super::lease::Lease;
use super::pull::{lease_lost, went_back};
use super::{Groups, named};
use crate::error::Error;
use ensue_core::positions::{Settled, SlotChange, SlotState};
use ensue_core::{Invalid, Seq};

/// The only slot of a group that is pulled.
const SLOT: u16 = 0;

/// What a commit left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Committed {
    /// Everything up to here is done.
    pub cursor: Seq,
    /// Was the lease given back?
    pub released: bool,
}

impl Groups<'_> {
    /// Notes that everything up to `cursor` is done, under the lease of a read; with none the group stays where it is. With
    /// `release` the lease is given back, and somebody else may read at once. A lease that is lost changes nothing.
    pub async fn commit(
        &self,
        group: &str,
        lease: &str,
        cursor: Option<Seq>,
        release: bool,
    ) -> Result<Committed, Error> {
        let name = named(group)?;
        let store = self.bus.store();
        let lease = Lease::parse(lease, &store.store_key().await?)?;
        let state = self.pulled_group(&name).await?;
        let lease = lease.ok_or_else(|| lease_lost(&name))?;
        let slot = state.slots.first().filter(|slot| is_of(slot, lease)).ok_or_else(|| lease_lost(&name))?;
        if let Some(cursor) = cursor {
            check(cursor, slot.cursor, lease.given_to)?;
        }
        let done_to = cursor.unwrap_or(slot.cursor);
        let mut change = SlotChange::new(name.clone(), SLOT, lease.member, lease.fence);
        change.cursor = cursor;
        change.relies_on = cursor.and(lease.newest());
        // Noted when it is passed, and once.
        change.lost = lease.lost.filter(|lost| lost.from > slot.cursor && lost.from <= done_to);
        match store.settle(vec![change]).await?.pop() {
            Some(Settled::Done(_)) => {}
            Some(Settled::WentBack) => return Err(went_back(&name, slot.cursor, lease.given_to)),
            Some(Settled::FenceLost) | None => return Err(lease_lost(&name)),
            Some(Settled::Refused(error)) => return Err(error.into()),
        }
        if release {
            // A reader is nothing but its lease: with that it is forgotten.
            store.leave(lease.member).await?;
        }
        Ok(Committed { cursor: done_to, released: release })
    }
}

/// Has somebody else taken the slot since? Whether the lease has run out is the store's to say.
fn is_of(slot: &SlotState, lease: Lease) -> bool {
    slot.fence == lease.fence && slot.owner.as_ref().is_some_and(|owner| owner.member.id == lease.member)
}

fn check(cursor: Seq, committed: Seq, given_to: Seq) -> Result<(), Invalid> {
    if cursor < committed {
        let reason = format!(
            "is {cursor}, and the group is at {committed} already: commit a later place, or move the group back with seek"
        );
        return Err(Invalid::new("cursor", reason));
    }
    if cursor > given_to {
        let reason = format!(
            "is {cursor}, but under this lease everything up to {given_to} was read and no more: commit that or an \
             earlier place"
        );
        return Err(Invalid::new("cursor", reason));
    }
    Ok(())
}
