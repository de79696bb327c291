//! What do answers about groups look like?

use super::shapes::EventShape;
use crate::config::units::Span;
use ensue::groups::{Committed, Group, PullFailure, Pulled, PulledEvent};
use ensue::positions::{GroupKind, Lost, SlotState, SubscriptionState};
use ensue::{Json, Seq, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;
use uuid::Uuid;

/// A group.
#[derive(Serialize, ToSchema)]
#[schema(as = Group)]
pub(crate) struct GroupShape<'a> {
    name: &'a str,
    /// `pull`: read from outside; `handler`: read by the handler of that name.
    #[schema(value_type = String)]
    kind: &'static str,
    /// Everything up to here is done.
    cursor: Seq,
    /// How many events are in the log after that, wanted or not; each lane that was set aside counts
    /// as one.
    lag: u64,
    /// How many subscriptions it has.
    subscriptions: u64,
    /// How many of its objects stand still, waiting or held, while it goes on (only a handler's).
    lanes: u64,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When it was last read or moved on; now, while somebody has its lease.
    #[schema(value_type = String, format = DateTime)]
    served_at: Timestamp,
    /// What retention took before the group came to it; null if it never lost anything.
    #[schema(required = true)]
    lost: Option<LostShape>,
    /// Its positions: one, or several that the processes of a handler share.
    slots: Vec<SlotShape<'a>>,
}

/// Events that cannot be read any more.
#[derive(Serialize, ToSchema)]
#[schema(as = Lost)]
pub(crate) struct LostShape {
    /// The first of them.
    from: Seq,
    /// The last of them.
    to: Seq,
}

impl From<Lost> for LostShape {
    fn from(Lost { from, to }: Lost) -> Self {
        Self { from, to }
    }
}

/// One position of a group.
#[derive(Serialize, ToSchema)]
#[schema(as = Slot)]
pub(crate) struct SlotShape<'a> {
    slot: u16,
    cursor: Seq,
    /// Who has it, for people; null if nobody has.
    #[schema(required = true)]
    owner: Option<&'a str>,
    /// Until when, unless they renew it; null also where one process alone can write to the store, and runs the handler.
    #[schema(value_type = Option<String>, format = DateTime, required = true)]
    lease_until: Option<Timestamp>,
}

impl<'a> SlotShape<'a> {
    fn of(slot: &'a SlotState, is_held_alone: bool) -> Self {
        Self {
            slot: slot.slot,
            cursor: slot.cursor,
            owner: slot.owner.as_ref().map(|owner| owner.member.name.as_str()),
            lease_until: slot.owner.as_ref().filter(|_| !is_held_alone).map(|owner| owner.lease_until),
        }
    }
}

impl<'a> From<&'a Group> for GroupShape<'a> {
    fn from(group: &'a Group) -> Self {
        let state = &group.state;
        Self {
            name: state.name.as_str(),
            kind: match state.kind {
                GroupKind::Pull => "pull",
                GroupKind::Handler => "handler",
            },
            cursor: group.cursor(),
            lag: group.lag(),
            subscriptions: state.subscriptions,
            lanes: state.lanes,
            created_at: state.created_at,
            served_at: state.served_at,
            lost: group.lost().map(LostShape::from),
            slots: state.slots.iter().map(|slot| SlotShape::of(slot, group.is_held_alone)).collect(),
        }
    }
}

/// A page of groups, by name.
#[derive(Serialize, ToSchema)]
#[schema(as = Groups)]
pub(crate) struct GroupsShape<'a> {
    groups: Vec<GroupShape<'a>>,
    /// The `after` of the next page; null if there is none.
    #[schema(required = true)]
    next: Option<&'a str>,
}

impl<'a> GroupsShape<'a> {
    /// At most `limit` of these; what is beyond tells that there is another page.
    pub fn page(groups: &'a [Group], limit: usize) -> Self {
        let next = (groups.len() > limit).then(|| groups[..limit].last()).flatten();
        Self {
            groups: groups.iter().take(limit).map(GroupShape::from).collect(),
            next: next.map(|last| last.state.name.as_str()),
        }
    }
}

/// A group that was deleted.
#[derive(Serialize, ToSchema)]
#[schema(as = DeletedGroup)]
pub(crate) struct DeletedGroupShape<'a> {
    pub name: &'a str,
    /// `deleted`.
    #[schema(value_type = String)]
    pub state: &'static str,
}

/// What a group wants.
#[derive(Serialize, ToSchema)]
#[schema(as = Subscription)]
pub(crate) struct SubscriptionShape<'a> {
    /// Its identity: `s.id`, and what events name that want it.
    #[schema(value_type = String, format = "uuid")]
    id: Uuid,
    group: &'a str,
    /// This topic and those below it; null for all.
    #[schema(required = true)]
    topic: Option<&'a str>,
    /// The condition as it was written; null always holds.
    #[schema(required = true)]
    r#where: Option<&'a str>,
    /// What the condition reads as `s.params`.
    #[schema(value_type = serde_json::Value)]
    params: &'a Json,
    /// Goes after so long without a touch or a read; null stays.
    #[schema(required = true)]
    expires_in: Option<String>,
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    #[schema(value_type = String, format = DateTime)]
    touched_at: Timestamp,
}

impl<'a> From<&'a SubscriptionState> for SubscriptionShape<'a> {
    fn from(state: &'a SubscriptionState) -> Self {
        Self {
            id: state.id,
            group: state.group.as_str(),
            topic: state.topic.as_ref().map(|topic| topic.as_str()),
            r#where: state.condition.as_deref(),
            params: &state.params,
            expires_in: state.expires_in.map(|expiry| Span(expiry).to_string()),
            created_at: state.created_at,
            touched_at: state.touched_at,
        }
    }
}

/// A page of subscriptions, by id.
#[derive(Serialize, ToSchema)]
#[schema(as = Subscriptions)]
pub(crate) struct SubscriptionsShape<'a> {
    pub subscriptions: Vec<SubscriptionShape<'a>>,
    /// The `after` of the next page; null if there is none.
    #[schema(value_type = Option<String>, format = "uuid", required = true)]
    pub next: Option<Uuid>,
}

/// A subscription that was deleted.
#[derive(Serialize, ToSchema)]
#[schema(as = DeletedSubscription)]
pub(crate) struct DeletedSubscriptionShape {
    #[schema(value_type = String, format = "uuid")]
    pub id: Uuid,
    /// `deleted`.
    #[schema(value_type = String)]
    pub state: &'static str,
}

/// What a group read.
#[derive(Serialize, ToSchema)]
#[schema(as = GroupRead)]
pub(crate) struct PulledShape<'a> {
    /// In `seq` order. May be empty although more follows: go on until `cursor` stays where it is.
    events: Vec<PulledEventShape<'a>>,
    /// Everything up to here was looked at: what to commit when the events are done with.
    cursor: Seq,
    /// What to go on and to commit under; null after a peek.
    #[schema(required = true)]
    lease: Option<&'a str>,
    /// Only if retention took events before they could be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    lost: Option<LostShape>,
    /// Only if conditions failed on events: the first ten. Their subscriptions did not get those events, others did.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    errors: Vec<PullFailureShape<'a>>,
}

/// An event, and who wants it.
#[derive(Serialize, ToSchema)]
#[schema(as = GroupEvent)]
pub(crate) struct PulledEventShape<'a> {
    #[serde(flatten)]
    event: EventShape<'a>,
    /// The subscriptions of this group that want it.
    #[schema(value_type = Vec<String>)]
    subscriptions: &'a [Uuid],
}

/// A condition that failed on an event.
#[derive(Serialize, ToSchema)]
#[schema(as = GroupReadError)]
pub(crate) struct PullFailureShape<'a> {
    #[schema(value_type = String, format = "uuid")]
    subscription: Uuid,
    seq: Seq,
    /// What went wrong, and what to write instead.
    detail: &'a str,
}

impl<'a> From<&'a PulledEvent> for PulledEventShape<'a> {
    fn from(PulledEvent { event, prev_since, subscriptions }: &'a PulledEvent) -> Self {
        Self { event: EventShape::from(event).with_prev_since(*prev_since), subscriptions }
    }
}

impl<'a> From<&'a Pulled> for PulledShape<'a> {
    fn from(pulled: &'a Pulled) -> Self {
        let error = |PullFailure { subscription, seq, detail }: &'a PullFailure| PullFailureShape {
            subscription: *subscription,
            seq: *seq,
            detail,
        };
        Self {
            events: pulled.events.iter().map(PulledEventShape::from).collect(),
            cursor: pulled.cursor,
            lease: pulled.lease.as_deref(),
            lost: pulled.lost.map(LostShape::from),
            errors: pulled.failures.iter().map(error).collect(),
        }
    }
}

/// What a commit left.
#[derive(Serialize, ToSchema)]
#[schema(as = Committed)]
pub(crate) struct CommittedShape {
    /// Everything up to here is done.
    cursor: Seq,
    /// Was the lease given back?
    released: bool,
}

impl From<Committed> for CommittedShape {
    fn from(Committed { cursor, released }: Committed) -> Self {
        Self { cursor, released }
    }
}
