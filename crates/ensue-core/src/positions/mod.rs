//! What must an engine keep of who has done what?
//!
//! The second half of the port: groups, their subscriptions, slots, lanes and deliveries. Every change that must be atomic
//! is one verb; whatever an owner writes is written under its fences, and a fence that is no longer the newest changes
//! nothing. Times are the store's clock's, as it is: a lease has nothing to do with the order of the log.
//!
//! | question | file |
//! |---|---|
//! | Who reads the log, and how far have they come? | [`group`] |
//! | Who serves which group? | [`serving`] |
//! | Which slots are whose? | [`division`] |
//! | What does a group want? | [`subscription`] |
//! | What is kept of an object that stands still? | [`lane`] |
//! | What is kept of it when retention takes the log? | [`parked`] |
//! | How does a handler run a part of the log again? | [`replay`] |
//! | What became of a delivery? | [`delivery`] |

pub mod delivery;
pub mod division;
pub mod group;
pub mod lane;
pub mod parked;
pub mod replay;
pub mod serving;
pub mod subscription;

pub use delivery::{Delivery, DeliveryState, Level, LogLine};
pub use division::{divide, member_id};
pub use group::{
    Fence, GroupKind, GroupState, Lost, Member, NewGroup, Owner, SLOTS_MAX, SlotNumber, SlotState, Start, check_cursor,
    slot_of,
};
pub use lane::{Ask, Lane, LaneChange, LaneKey, LaneRow, LaneState, StuckPlace};
pub use parked::{PARKED_ALL, Park, ParkedMax, ParkedQuery, ParkedSize, to_park};
pub use replay::{Replay, Unreplayable};
pub use serving::{Serving, servers_of, slots_for};
pub use subscription::{NewSubscription, SubscriptionChanges, SubscriptionState};

use crate::error::StoreError;
use crate::event::{Appended, Entry, Event, Seq};
use crate::id::EventId;
use crate::jobs::NewJob;
use crate::key::{GroupName, ObjectKey};
use async_trait::async_trait;
use jiff::{SignedDuration, Timestamp};
use uuid::Uuid;

/// Slots that somebody wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acquire {
    /// Of this group.
    pub group: GroupName,
    /// Who wants them. Becomes known to the store with this, and its lease is renewed.
    pub member: Member,
    /// How long its lease is from now on.
    pub lease: SignedDuration,
    /// Which slots; empty for all.
    pub slots: Vec<SlotNumber>,
    /// Only go on: with slots that it has under this fence and a lease that has not passed.
    pub go_on: Option<Fence>,
}

/// A slot that somebody has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AcquiredSlot {
    /// Its number.
    pub slot: SlotNumber,
    /// What to write under.
    pub fence: Fence,
    /// Where to begin.
    pub cursor: Seq,
    /// See [`SlotState::vanished`].
    pub vanished: u32,
}

/// What came of wanting slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Acquired {
    /// Those that the member has now, by number: taken with this call, or had before (under the same fence).
    pub slots: Vec<AcquiredSlot>,
    /// Who has the first of those that it did not get.
    pub held_by: Option<Owner>,
    /// See [`GroupState::version`].
    pub version: u64,
}

/// What a member hears when it renews its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Renewed {
    /// Counts up when a slot is taken from this member, something is asked of a lane of its, or another begins or ceases to
    /// serve a group that it serves.
    pub version: u64,
    /// All processes whose leases have not passed, this one included, by id.
    pub members: Vec<Member>,
}

/// An event by its place and its id. A promoted replica may lack the last events and give their places to others (H35),
/// so a place alone does not tell that the event there is the same. If the log holds it, the log is also the same up to
/// there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventAt {
    /// Its place.
    pub seq: Seq,
    /// Its id.
    pub id: EventId,
}

impl EventAt {
    /// Of this event.
    pub fn of(event: &Event) -> Self {
        Self { seq: event.seq, id: event.id }
    }

    /// Does the log hold it? `stored` is the event that the log has at its place, `first` the oldest place that is not
    /// forgotten: what is forgotten cannot be compared, and counts as held.
    pub fn is_held(self, stored: Option<EventId>, first: Seq) -> bool {
        stored.map_or(self.seq < first, |id| id == self.id)
    }
}

/// What an owner writes about one slot: all of it or nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlotChange {
    /// Of this group.
    pub group: GroupName,
    /// Its number.
    pub slot: SlotNumber,
    /// Who writes.
    pub member: Uuid,
    /// Under which fence.
    pub fence: Fence,
    /// The newest event that its writer has seen, if it has seen any. Nothing is written if the log does not hold it.
    pub relies_on: Option<EventAt>,
    /// Everything of this slot up to here is done, or is in a lane of its own. Never goes back: a smaller one changes
    /// nothing.
    pub cursor: Option<Seq>,
    /// Lanes, in this order.
    pub lanes: Vec<LaneChange>,
    /// What became of deliveries; one that is known is written over.
    pub deliveries: Vec<Delivery>,
    /// What they said.
    pub lines: Vec<LogLine>,
    /// Events to publish.
    pub events: Vec<Entry>,
    /// Jobs to send.
    pub jobs: Vec<NewJob>,
    /// What retention had taken before the slot came to it.
    pub lost: Option<Lost>,
}

impl SlotChange {
    /// A change of nothing yet.
    pub fn new(group: GroupName, slot: SlotNumber, member: Uuid, fence: Fence) -> Self {
        let (relies_on, cursor, lost) = (None, None, None);
        let (lanes, deliveries, lines) = (Vec::new(), Vec::new(), Vec::new());
        let (events, jobs) = (Vec::new(), Vec::new());
        Self { group, slot, member, fence, relies_on, cursor, lanes, deliveries, lines, events, jobs, lost }
    }
}

/// What came of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settled {
    /// It is on disk, with the events it published and the jobs it sent.
    Done(Vec<Appended>),
    /// The slot is somebody else's: nothing of this change was written.
    FenceLost,
    /// The log does not hold the event that the change relies on: a failover has lost it. Nothing of this change was
    /// written.
    WentBack,
    /// The events cannot be published, or the jobs not be sent: nothing of this change was written.
    Refused(StoreError),
}

/// Which lanes to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LaneQuery {
    /// Those of some slots of a group, by the text of their key, after this one: to take them over.
    Slots {
        /// Of this group.
        group: GroupName,
        /// These slots.
        slots: Vec<SlotNumber>,
        /// After this lane; from the first if there is none.
        after: Option<LaneKey>,
    },
    /// Those held or dead, the oldest first; of those of the same time by the text of their key, then by group.
    Stuck {
        /// Of this group; of all if there is none.
        group: Option<GroupName>,
    },
    /// Those held or dead in all groups that come after this place, in the same order.
    StuckAfter(StuckPlace),
    /// Those of an object in all groups, by group.
    Object(ObjectKey),
    /// One lane.
    One(GroupName, LaneKey),
    /// Those of which something was asked, in slots of this member.
    Asked(Uuid),
    /// Those waiting or held that need an event of the log before this place ([`LaneRow::needs_from`]), by group and the text
    /// of their key.
    Needing {
        /// Before this place.
        before: Seq,
        /// After this lane; from the first if there is none.
        after: Option<(GroupName, LaneKey)>,
    },
}

/// Groups and all that is known of them, durably.
#[async_trait]
pub trait Positions: Send + Sync + 'static {
    /// How many slots a handler's group gets: 1 where one process alone can write, more where several share the work.
    fn handler_slots(&self) -> u16;

    /// Makes a group, and says whether it is new. One that is there stays as it is; one of another kind is a
    /// [`StoreError::Conflict`].
    async fn create_group(&self, group: NewGroup) -> Result<(GroupState, bool), StoreError>;

    /// A group.
    async fn group(&self, name: &GroupName) -> Result<Option<GroupState>, StoreError>;

    /// All groups, by name.
    async fn groups(&self) -> Result<Vec<GroupState>, StoreError>;

    /// Groups of one kind, or of any, by name, after this one: at most `limit` of them.
    async fn groups_after(
        &self,
        kind: Option<GroupKind>,
        after: Option<&GroupName>,
        limit: usize,
    ) -> Result<Vec<GroupState>, StoreError>;

    /// Forgets a group and all that belongs to it; was there one? Whoever has a slot of it has it no longer.
    async fn delete_group(&self, name: &GroupName) -> Result<bool, StoreError>;

    /// Moves every cursor of a group to this place, forward or back, and forgets its lanes. Whoever has a slot loses it.
    /// A place outside of the log is [`StoreError::Invalid`].
    async fn seek(&self, name: &GroupName, to: Seq) -> Result<Option<GroupState>, StoreError>;

    /// Has a handler's group run what is after `after` and up to `to` again, and then go on where it was. Whoever has a slot
    /// loses it; what was under way and not settled is run again, too. A range outside of the log is [`StoreError::Invalid`]; a
    /// group that is read, that has lanes of any state, or that replays already is a [`StoreError::Conflict`].
    async fn replay(&self, name: &GroupName, after: Seq, to: Seq) -> Result<Option<GroupState>, StoreError>;

    /// Makes a subscription, and says whether it is new. If its group has one with the same topic, condition and params,
    /// compared in full ([`subscription::identity_of_params`]), that one is touched and gets the longer expiry. The group is
    /// made if it is not there, as a pull group that begins now. An expired one counts as gone.
    async fn subscribe(&self, new: NewSubscription) -> Result<(SubscriptionState, bool), StoreError>;

    /// Takes a subscription out of its group; was there one?
    async fn unsubscribe(&self, group: &GroupName, id: Uuid) -> Result<bool, StoreError>;

    /// Keeps a subscription from expiring.
    async fn touch(&self, group: &GroupName, id: Uuid) -> Result<Option<SubscriptionState>, StoreError>;

    /// The subscriptions of a group that have not expired, by id, after this one: at most `limit` of them.
    async fn subscriptions(
        &self,
        group: &GroupName,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<SubscriptionState>, StoreError>;

    /// Those of these subscriptions that are there and have not expired, whatever their groups are.
    async fn find_subscriptions(&self, ids: &[Uuid]) -> Result<Vec<SubscriptionState>, StoreError>;

    /// What has changed of a group's subscriptions after this version of it, in one look. None if there is no such group, if that
    /// is more than `limit` changes, or if it is not known any more: then they are to be read all. The changes of the last
    /// [`CHANGES_KEPT`](subscription::CHANGES_KEPT) versions are known; a touch is none, and what has expired counts as gone.
    async fn subscription_changes(
        &self,
        group: &GroupName,
        after: u64,
        limit: usize,
    ) -> Result<Option<SubscriptionChanges>, StoreError>;

    /// Forgets up to `limit` expired subscriptions; answers how many.
    async fn expire_subscriptions(&self, limit: usize) -> Result<usize, StoreError>;

    /// Takes slots that nobody has, that the member has already, or whose owner's lease has passed. None if there is no
    /// such group.
    ///
    /// This and whatever else makes a group one that is read ([`GroupState::served_at`]) first forgets the subscriptions
    /// that have expired, in the same commit: what was gone for one reader does not come back for another.
    async fn acquire(&self, acquire: Acquire) -> Result<Option<Acquired>, StoreError>;

    /// Renews a member's lease; none if the store does not know it (any more).
    async fn renew(&self, member: Uuid, lease: SignedDuration) -> Result<Option<Renewed>, StoreError>;

    /// Says which groups a process serves, instead of those that it said before. Becomes known to the store with this, and
    /// its lease is renewed.
    async fn serve(&self, member: Member, lease: SignedDuration, groups: Vec<GroupName>) -> Result<(), StoreError>;

    /// All processes whose leases have not passed, by id, with what they serve.
    async fn members(&self) -> Result<Vec<Serving>, StoreError>;

    /// Gives slots of a group back, cleanly: what is done is written, and nothing is under way.
    async fn release(&self, member: Uuid, group: &GroupName, slots: &[SlotNumber]) -> Result<(), StoreError>;

    /// Gives every slot back, cleanly, and forgets the member.
    async fn leave(&self, member: Uuid) -> Result<(), StoreError>;

    /// Writes what owners have to say about their slots, in one commit; an answer for each, in the same order. A process
    /// has lost a slot when somebody else took it; a reader ([`GroupKind::Pull`]) also when its lease has passed.
    async fn settle(&self, changes: Vec<SlotChange>) -> Result<Vec<Settled>, StoreError>;

    /// Lanes, at most `limit` of them.
    async fn lanes(&self, query: LaneQuery, limit: usize) -> Result<Vec<LaneRow>, StoreError>;

    /// Asks something of a lane: its owner does it when it hears of it, or the next owner. None if there is no such lane.
    async fn ask_lane(&self, group: &GroupName, key: &LaneKey, ask: Ask) -> Result<Option<LaneRow>, StoreError>;

    /// Copies events of the log aside for lanes that wait or are held, each lane by itself; answers for how many. One that has
    /// gone on since needs less; one that was parked further since, that is gone, or whose events are not all there any more
    /// is left as it is.
    async fn park(&self, parks: Vec<Park>) -> Result<usize, StoreError>;

    /// Parked events: at most `limit` of them, and [`PAGE_BYTES_MAX`](crate::store::PAGE_BYTES_MAX) bytes.
    async fn parked(&self, query: ParkedQuery, limit: usize) -> Result<Vec<Event>, StoreError>;

    /// How much of a lane is parked.
    async fn parked_size(&self, group: &GroupName, key: &LaneKey) -> Result<ParkedSize, StoreError>;

    /// What is recorded of the deliveries of an event, by group.
    async fn deliveries(&self, seq: Seq) -> Result<Vec<Delivery>, StoreError>;

    /// What the deliveries of an event to a group said, in order: at most `limit` lines after the first `skip`.
    async fn lines(&self, group: &GroupName, seq: Seq, skip: u64, limit: usize) -> Result<Vec<LogLine>, StoreError>;

    /// Forgets up to `limit` recorded deliveries, with what they said: those that ended before `before`, and the oldest
    /// beyond `keep`. If there are fewer, also lines that were said before `before` by deliveries of which nothing is
    /// recorded, the oldest first. Answers how many of both together.
    async fn purge_deliveries(&self, before: Timestamp, keep: u64, limit: usize) -> Result<usize, StoreError>;
}
