//! Who reads the log, and how far have they come?
//!
//! A group is a durable consumer. Its positions are *slots*: an event belongs to the slot of its object (of its number,
//! if it has none), and each slot has a cursor, an owner and a fence. A member owns slots of many groups under one lease
//! of its own; a slot whose owner's lease has passed is anybody's to take. Taking it raises its fence, and from then on
//! nothing that the former owner still wants to write is taken.

use crate::error::{Invalid, StoreError};
use crate::event::Seq;
use crate::key::ObjectKey;
use crate::positions::replay::Replay;
use crate::retention::Bounds;
use jiff::Timestamp;
use uuid::Uuid;

pub use crate::key::GroupName;

/// How often a slot was taken. Only who knows the newest may write under it.
pub type Fence = u64;
/// The number of a slot within its group, from 0.
pub type SlotNumber = u16;
/// The most slots that a group may have.
pub const SLOTS_MAX: u16 = 256;

/// Whom a group serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GroupKind {
    /// Whoever reads it, from outside of the process: one reader at a time, so it has one slot.
    Pull,
    /// A handler of that name.
    Handler,
}

impl GroupKind {
    /// The word for it in stores.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pull => "pull",
            Self::Handler => "handler",
        }
    }

    /// The kind of a word that was stored.
    pub fn stored(word: &str) -> Option<Self> {
        [Self::Pull, Self::Handler].into_iter().find(|kind| kind.as_str() == word)
    }

    /// Why a group cannot be made: one of this kind has its name already.
    pub fn has_the_name(self, name: &GroupName) -> StoreError {
        let whose = match self {
            Self::Pull => "a group that is read",
            Self::Handler => "a handler's group",
        };
        StoreError::Conflict(format!("`{name}` is {whose} already: choose another name, or delete it first"))
    }
}

/// Where a group begins to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Start {
    /// After the newest event there is.
    Now,
    /// With the oldest event there is.
    Beginning,
    /// After this place: it is the group's first cursor.
    After(Seq),
}

impl Start {
    /// The first cursor. A place outside of the log is refused.
    pub fn cursor(self, bounds: Bounds) -> Result<Seq, Invalid> {
        match self {
            Self::Now => Ok(bounds.last),
            Self::Beginning => Ok(bounds.first - 1),
            Self::After(seq) => check_cursor("start", seq, bounds),
        }
    }
}

/// Can somebody read on from this place? Behind the newest event there is nothing, and what is forgotten cannot be read.
pub fn check_cursor(field: &str, seq: Seq, bounds: Bounds) -> Result<Seq, Invalid> {
    if seq > bounds.last {
        let reason = format!("is {seq}, but the newest event is {}: choose that or an earlier one", bounds.last);
        return Err(Invalid::new(field, reason));
    }
    if seq + 1 < bounds.first {
        let reason = format!(
            "is {seq}, but the oldest event in the log is {}: choose {} or a later place, or `beginning`",
            bounds.first,
            bounds.first - 1
        );
        return Err(Invalid::new(field, reason));
    }
    Ok(seq)
}

/// A group to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewGroup {
    /// What it is called.
    pub name: GroupName,
    /// Whom it serves.
    pub kind: GroupKind,
    /// Where it begins.
    pub start: Start,
    /// How many slots it gets: at least 1, at most [`SLOTS_MAX`]; 1 for [`GroupKind::Pull`].
    pub slots: u16,
}

impl NewGroup {
    /// Can it have so many slots?
    pub fn check_slots(&self) -> Result<(), Invalid> {
        let slots_max = match self.kind {
            GroupKind::Pull => 1,
            GroupKind::Handler => SLOTS_MAX,
        };
        if self.slots == 0 || self.slots > slots_max {
            let reason = format!("is {}; choose at least 1 and at most {slots_max}", self.slots);
            return Err(Invalid::new("slots", reason));
        }
        Ok(())
    }
}

/// Somebody who owns slots: a process that runs handlers, or one reader of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Member {
    /// Its identity; a process that starts again has another.
    pub id: Uuid,
    /// For people: host and process, or who reads.
    pub name: String,
    /// Does it run handlers, as a process, or only read one group?
    pub kind: GroupKind,
}

/// Who has a slot, and until when unless it renews its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Who.
    pub member: Member,
    /// Until when, by the store's clock. Past that, the slot is anybody's.
    pub lease_until: Timestamp,
}

/// One position of a group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotState {
    /// Its number.
    pub slot: SlotNumber,
    /// Everything of this slot up to here is done, or is in a lane of its own.
    pub cursor: Seq,
    /// How often it was taken.
    pub fence: Fence,
    /// How many owners in a row have vanished without a word, and without moving the cursor: whatever comes next may be
    /// what ended them.
    pub vanished: u32,
    /// Who has it; also somebody whose lease has passed.
    pub owner: Option<Owner>,
    /// What it runs again, or has run again last: what that skips is done.
    pub replay: Option<Replay>,
}

/// Events that a group did not get to read, because retention took them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lost {
    /// The first of them.
    pub from: Seq,
    /// The last of them.
    pub to: Seq,
}

/// A group as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupState {
    /// What it is called.
    pub name: GroupName,
    /// Whom it serves.
    pub kind: GroupKind,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it was last read or moved on; while somebody has a slot of it, at least the end of their lease.
    pub served_at: Timestamp,
    /// Its slots, by number.
    pub slots: Vec<SlotState>,
    /// Counts up with every change of its subscriptions.
    pub version: u64,
    /// How many subscriptions it has.
    pub subscriptions: u64,
    /// How many lanes wait or are held.
    pub lanes: u64,
    /// The oldest place of the log that a lane still needs; what is parked of it is not in the log's way.
    pub oldest_lane: Option<Seq>,
    /// What it lost last, if it ever lost anything: told when it read on behind that.
    pub lost: Option<Lost>,
}

impl GroupState {
    /// Everything up to here is done, or is in a lane of its own.
    pub fn cursor(&self) -> Seq {
        self.slots.iter().map(|slot| slot.cursor).min().unwrap_or(0)
    }

    /// The oldest place of the log that it still needs.
    pub fn needs_from(&self) -> Seq {
        self.oldest_lane.map_or(self.cursor() + 1, |lane| lane.min(self.cursor() + 1))
    }

    /// How many events are after its cursor. A lane that was set aside, behind the cursor, counts as one: at least its
    /// next event is not done.
    pub fn lag(&self, bounds: Bounds) -> u64 {
        bounds.last.saturating_sub(self.cursor()).saturating_add(self.lanes)
    }
}

/// The slot of an event. The same on every engine and in every version: positions are stored by it.
pub fn slot_of(object: Option<&ObjectKey>, seq: Seq, slots: u16) -> SlotNumber {
    if slots <= 1 {
        return 0;
    }
    let hash = match object {
        Some(object) => stable_hash(object.as_str().as_bytes()),
        None => stable_hash(&seq.to_be_bytes()),
    };
    (hash % u64::from(slots)) as SlotNumber
}

/// FNV-1a over the bytes, then the final mix of MurmurHash3: FNV alone leaves neighbours alike in most of its bits.
pub(super) fn stable_hash(bytes: &[u8]) -> u64 {
    let fnv1a = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let mut hash = bytes.iter().fold(0xcbf2_9ce4_8422_2325, fnv1a);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    hash ^ (hash >> 33)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lag_counts_lanes_that_were_set_aside() {
        let slot = SlotState { slot: 0, cursor: 20, fence: 1, vanished: 0, owner: None, replay: None };
        let group = |lanes| GroupState {
            name: GroupName::stored("g"),
            kind: GroupKind::Handler,
            created_at: Timestamp::UNIX_EPOCH,
            served_at: Timestamp::UNIX_EPOCH,
            slots: vec![slot.clone()],
            version: 0,
            subscriptions: 1,
            lanes,
            oldest_lane: (lanes > 0).then_some(3),
            lost: None,
        };
        let lag = |lanes, last| group(lanes).lag(Bounds { first: 1, last });
        assert_eq!([lag(0, 20), lag(2, 20), lag(2, 25)], [0, 2, 7]);
    }

    #[test]
    fn slots_are_a_contract_with_what_is_stored() {
        let slot = |object: &str, slots| slot_of(Some(&ObjectKey::stored(object)), 9, slots);
        assert_eq!(slot("work:1", 1), 0);
        assert_eq!([slot("work:1", 16), slot("work:2", 16), slot("order:7", 16), slot("ü", 16)], [10, 9, 13, 1]);
        assert_eq!([slot_of(None, 1, 16), slot_of(None, 2, 16), slot_of(None, u64::MAX, 16)], [7, 3, 14]);
    }

    #[test]
    fn objects_spread_over_the_slots() {
        let mut counts = [0_u32; 16];
        (0..16_000).for_each(|n| counts[slot_of(Some(&ObjectKey::stored(&format!("work:{n}"))), 1, 16) as usize] += 1);
        assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{counts:?}");
        let mut counts = [0_u32; 16];
        (0..16_000).for_each(|seq| counts[slot_of(None, seq, 16) as usize] += 1);
        assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_cursor_outside_of_the_log_is_refused_with_what_to_choose() {
        let bounds = Bounds { first: 11, last: 20 };
        assert_eq!(Start::Now.cursor(bounds), Ok(20));
        assert_eq!(Start::Beginning.cursor(bounds), Ok(10));
        assert_eq!(Start::After(10).cursor(bounds), Ok(10));
        assert!(Start::After(9).cursor(bounds).unwrap_err().reason.contains("choose 10"));
        assert!(Start::After(21).cursor(bounds).unwrap_err().reason.contains("newest event is 20"));
    }
}
