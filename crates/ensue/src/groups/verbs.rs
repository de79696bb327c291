//! Which groups are there, and where do they stand?

use super::{Groups, named, unknown};
use crate::error::Error;
use ensue_core::positions::{GroupKind, GroupState, Lost, NewGroup, Start, check_cursor};
use ensue_core::retention::Bounds;
use ensue_core::{GroupName, Invalid, Seq, StoreError, Timestamp};

/// A group as it is, beside the log as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The group.
    pub state: GroupState,
    /// What of the log was there.
    pub bounds: Bounds,
    /// Does its owner hold it without an end? One process alone writes to the store, and runs the handler.
    pub is_held_alone: bool,
}

impl Group {
    /// Everything up to here is done.
    pub fn cursor(&self) -> Seq {
        self.state.cursor()
    }

    /// How many events are after its cursor; each lane that was set aside counts as one.
    pub fn lag(&self) -> u64 {
        self.state.lag(self.bounds)
    }

    /// What retention took before the group came to it: what it has not passed yet, or else what it lost last.
    pub fn lost(&self) -> Option<Lost> {
        lost_after(self.cursor(), self.bounds).or(self.state.lost)
    }
}

/// What somebody who goes on after this place has lost.
pub(super) fn lost_after(cursor: Seq, bounds: Bounds) -> Option<Lost> {
    (cursor + 1 < bounds.first).then(|| Lost { from: cursor + 1, to: bounds.first - 1 })
}

impl Groups<'_> {
    /// Makes a group that is read from outside, and says whether it is new. One that is there stays where it is. A start beyond the
    /// end of the log is refused either way.
    pub async fn create(&self, name: &str, start: Start) -> Result<(Group, bool), Error> {
        let bounds = self.bus.store().bounds().await?;
        if matches!(start, Start::After(seq) if seq > bounds.last) {
            start.cursor(bounds)?;
        }
        let new = NewGroup { name: named(name)?, kind: GroupKind::Pull, start, slots: 1 };
        let (state, is_new) = self.bus.store().create_group(new).await?;
        Ok((self.beside_the_log(state).await?, is_new))
    }

    /// A group; [`Error::NotFound`] if there is none of that name.
    pub async fn get(&self, name: &str) -> Result<Group, Error> {
        let name = named(name)?;
        let state = self.bus.store().group(&name).await?.ok_or_else(|| unknown(&name))?;
        self.beside_the_log(state).await
    }

    /// All groups, those of handlers too, by name.
    pub async fn list(&self) -> Result<Vec<Group>, Error> {
        let groups = self.bus.store().groups().await?;
        self.all_beside_the_log(groups).await
    }

    /// The same page by page: at most `limit` groups after the one of this name.
    pub async fn page(&self, after: Option<&str>, limit: usize) -> Result<Vec<Group>, Error> {
        let after = after.map(|after| GroupName::parse("after", after)).transpose()?;
        let groups = self.bus.store().groups_after(None, after.as_ref(), limit).await?;
        self.all_beside_the_log(groups).await
    }

    /// Forgets a group and all that belongs to it. Whoever reads it has lost its lease. The group of a handler that a program
    /// has bound and serves now is a conflict; one that the store keeps goes with its group.
    pub async fn delete(&self, name: &str) -> Result<(), Error> {
        let name = named(name)?;
        self.check_is_not_served(&name).await?;
        let deleted = self.bus.store().delete_group(&name).await?;
        self.bus.tell_moved();
        match deleted {
            true => Ok(()),
            false => Err(unknown(&name)),
        }
    }

    /// Does nobody serve it who would be left without its group?
    async fn check_is_not_served(&self, name: &GroupName) -> Result<(), Error> {
        let members = self.bus.store().members().await?;
        let serving: Vec<&str> = members
            .iter()
            .filter(|serving| serving.groups.contains(name))
            .map(|serving| serving.member.name.as_str())
            .collect();
        if serving.is_empty() {
            return Ok(());
        }
        let (_, defined) = self.bus.store().definitions().await?;
        if defined.iter().any(|definition| definition.key == *name) {
            return Ok(());
        }
        Err(StoreError::Conflict(format!(
            "the handler `{name}` runs on this group now ({}): take it out of the config file or the application, or stop that process, and delete its group then",
            serving.join(", ")
        ))
        .into())
    }

    /// Moves a group to another place, forward or back: it goes on with the event after that. Whoever reads it has lost its
    /// lease. A handler's group can be moved, too: what is after that place runs (again), and lanes that wait are forgotten.
    pub async fn seek(&self, name: &str, to: Start) -> Result<Group, Error> {
        let name = named(name)?;
        let bounds = self.bus.store().bounds().await?;
        let to = match to {
            Start::After(seq) => check_cursor("to", seq, bounds)?,
            place @ (Start::Now | Start::Beginning) => place.cursor(bounds)?,
        };
        let state = self.bus.store().seek(&name, to).await?.ok_or_else(|| unknown(&name))?;
        self.bus.tell_moved();
        self.beside_the_log(state).await
    }

    /// Has a handler run a part of the log again, from its first seq to its last, and then go on where it was: in order for
    /// each object, and never two events of one object at once. What was under way at this moment may be run again, too. While
    /// objects of the handler wait or are held, and while it replays already, this is a conflict. A group that is read from
    /// outside reads a range with [`Pull::peek`](super::Pull::peek) and [`Pull::cursor`](super::Pull::cursor).
    pub async fn replay(&self, name: &str, from: Seq, to: Seq) -> Result<Group, Error> {
        let name = named(name)?;
        let Some(after) = from.checked_sub(1) else {
            return Err(Invalid::new("from", "is 0; choose the first seq of the range, from 1 on").into());
        };
        let state = self.bus.store().replay(&name, after, to).await?.ok_or_else(|| unknown(&name))?;
        self.bus.tell_moved();
        self.beside_the_log(state).await
    }

    async fn beside_the_log(&self, state: GroupState) -> Result<Group, Error> {
        let log = self.look_at_the_log().await?;
        Ok(log.beside(state))
    }

    async fn all_beside_the_log(&self, groups: Vec<GroupState>) -> Result<Vec<Group>, Error> {
        let log = self.look_at_the_log().await?;
        Ok(groups.into_iter().map(|state| log.beside(state)).collect())
    }

    /// The log is looked at after the groups, which then are never ahead of it.
    async fn look_at_the_log(&self) -> Result<Log, Error> {
        let store = self.bus.store();
        let (bounds, now, is_alone) = (store.bounds().await?, store.now().await?, store.handler_slots() == 1);
        Ok(Log { bounds, now, is_alone })
    }
}

/// The log as it is.
struct Log {
    bounds: Bounds,
    now: Timestamp,
    /// Can one process alone write to it?
    is_alone: bool,
}

impl Log {
    fn beside(&self, mut state: GroupState) -> Group {
        // Who has a lease has served it until now, whenever that ends.
        state.served_at = state.served_at.min(self.now);
        let is_held_alone = self.is_alone && state.kind == GroupKind::Handler;
        Group { state, bounds: self.bounds, is_held_alone }
    }
}
