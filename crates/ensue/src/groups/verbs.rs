//! Which groups are there, and where do they stand?

use super::{Groups, named, unknown};
use crate::error::Error;
use ensue_core::positions::{GroupKind, GroupState, Lost, NewGroup, Start, check_cursor};
use ensue_core::retention::Bounds;
use ensue_core::{GroupName, Invalid, Seq};

/// A group as it is, beside the log as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The group.
    pub state: GroupState,
    /// What of the log was there.
    pub bounds: Bounds,
}

impl Group {
    /// Everything up to here is done.
    pub fn cursor(&self) -> Seq {
        self.state.cursor()
    }

    /// How many events are after its cursor.
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
    /// Makes a group that is read from outside, and says whether it is new. One that is there stays where it is.
    pub async fn create(&self, name: &str, start: Start) -> Result<(Group, bool), Error> {
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
        let bounds = self.bus.store().bounds().await?;
        Ok(groups.into_iter().map(|state| Group { state, bounds }).collect())
    }

    /// The same page by page: at most `limit` groups after the one of this name.
    pub async fn page(&self, after: Option<&str>, limit: usize) -> Result<Vec<Group>, Error> {
        let after = after.map(|after| GroupName::parse("after", after)).transpose()?;
        let groups = self.bus.store().groups_after(None, after.as_ref(), limit).await?;
        let bounds = self.bus.store().bounds().await?;
        Ok(groups.into_iter().map(|state| Group { state, bounds }).collect())
    }

    /// Forgets a group and all that belongs to it. Whoever reads it has lost its lease.
    pub async fn delete(&self, name: &str) -> Result<(), Error> {
        let name = named(name)?;
        let deleted = self.bus.store().delete_group(&name).await?;
        self.bus.tell_moved();
        match deleted {
            true => Ok(()),
            false => Err(unknown(&name)),
        }
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

    /// The log is looked at after the group, which then is never ahead of it.
    async fn beside_the_log(&self, state: GroupState) -> Result<Group, Error> {
        Ok(Group { state, bounds: self.bus.store().bounds().await? })
    }
}
