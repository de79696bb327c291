//! What do the behaviours about groups have in common?

use super::{Subject, checked};
use ensue_core::positions::{
    Acquire, Acquired, AcquiredSlot, Delivery, DeliveryState, GroupKind, GroupState, Lane, LaneChange, LaneKey,
    LaneQuery, LaneRow, LaneState, Level, LogLine, Member, NewGroup, NewSubscription, Settled, SlotChange, SlotNumber,
    Start, SubscriptionState,
};
use ensue_core::{Entry, GroupName, Json, NewEvent, ObjectKey, Seq, Timestamp, Topic};
use jiff::SignedDuration;
use uuid::Uuid;

/// How long the leases are, unless told.
pub const LEASE: SignedDuration = SignedDuration::from_secs(30);
/// A little more than that, to move the clock by.
pub const PAST_THE_LEASE_MILLIS: i64 = 30_001;

/// A group's name.
pub fn name(text: &str) -> GroupName {
    GroupName::stored(text)
}

/// A process that runs handlers.
pub fn process(n: u128) -> Member {
    Member { id: Uuid::from_u128(n << 64 | n), name: format!("host/{n}"), kind: GroupKind::Handler }
}

/// Somebody who reads one group.
pub fn reader(n: u128) -> Member {
    Member { id: Uuid::from_u128(n << 96 | n), name: format!("reader {n}"), kind: GroupKind::Pull }
}

/// A subscription to everything.
pub fn wants(group: &str) -> NewSubscription {
    NewSubscription { group: name(group), topic: None, condition: None, params: Json::null(), expires_in: None }
}

/// A subscription with a topic, a condition and params.
pub fn wants_just(group: &str, topic: &str, condition: &str, params: &str) -> NewSubscription {
    NewSubscription {
        topic: Some(Topic::stored(topic)),
        condition: Some(condition.into()),
        params: Json::parse("params", params).expect("params in JSON"),
        ..wants(group)
    }
}

/// The lane of an object.
pub fn object_lane(object: &str) -> LaneKey {
    LaneKey::Object(ObjectKey::stored(object))
}

/// A lane that waits for its time.
pub fn waiting(key: LaneKey, position: Seq) -> Lane {
    let (state, not_before) = (LaneState::Waiting, None);
    Lane { key, position, state, attempts: 1, not_before, error: Some("no route".into()), redriven: false }
}

/// A lane in some state.
pub fn lane_in(state: LaneState, key: LaneKey, position: Seq) -> Lane {
    Lane { state, ..waiting(key, position) }
}

/// A delivery that was given up.
pub fn delivery(group: &str, seq: Seq, finished_at: Timestamp) -> Delivery {
    Delivery {
        group: name(group),
        seq,
        object: Some(ObjectKey::stored("o")),
        state: DeliveryState::Dead,
        attempts: 3,
        error: Some("no route".into()),
        started_at: finished_at - SignedDuration::from_millis(250),
        finished_at,
    }
}

/// A line of a log.
pub fn line(seq: Seq, at: Timestamp, message: &str) -> LogLine {
    LogLine { seq, attempt: 1, at, level: Level::Info, message: message.into() }
}

/// Events that are fit for the log.
pub fn entries(events: Vec<NewEvent>) -> Vec<Entry> {
    checked(events)
}

impl Subject {
    /// Makes a group that begins with the oldest event; it must be new.
    pub async fn make_group(&self, group: &str, kind: GroupKind, slots: u16) -> GroupState {
        let new = NewGroup { name: name(group), kind, start: Start::Beginning, slots };
        let (state, is_new) = self.store.create_group(new).await.expect("a group");
        assert!(is_new, "{group} was there");
        state
    }

    /// Makes a group for readers.
    pub async fn make_pull(&self, group: &str) -> GroupState {
        self.make_group(group, GroupKind::Pull, 1).await
    }

    /// Makes a handler's group.
    pub async fn make_handler(&self, group: &str, slots: u16) -> GroupState {
        self.make_group(group, GroupKind::Handler, slots).await
    }

    /// A group that must be there.
    pub async fn group(&self, group: &str) -> GroupState {
        self.find_group(group).await.expect("the group is there")
    }

    /// A group that may be there.
    pub async fn find_group(&self, group: &str) -> Option<GroupState> {
        self.store.group(&name(group)).await.expect("a look at a group")
    }

    /// What comes of wanting slots of a group that must be there; none for all.
    pub async fn want(&self, group: &str, member: &Member, slots: &[SlotNumber]) -> Acquired {
        let acquire =
            Acquire { group: name(group), member: member.clone(), lease: LEASE, slots: slots.to_vec(), go_on: None };
        self.store.acquire(acquire).await.expect("an answer").expect("the group is there")
    }

    /// Takes all slots of a group, which must be free.
    pub async fn take(&self, group: &str, member: &Member) -> Vec<AcquiredSlot> {
        let acquired = self.want(group, member, &[]).await;
        assert_eq!(acquired.held_by, None, "the slots of {group} are free");
        assert!(!acquired.slots.is_empty());
        acquired.slots
    }

    /// Takes the one slot of a group, and begins a change of it.
    pub async fn take_one(&self, group: &str, member: &Member) -> SlotChange {
        let slots = self.take(group, member).await;
        assert_eq!(slots.len(), 1, "{group} has one slot");
        SlotChange::new(name(group), 0, member.id, slots[0].fence)
    }

    /// Renews a lease that must be known; answers its version.
    pub async fn renewed_version(&self, member: &Member) -> u64 {
        self.store.renew(member.id, LEASE).await.expect("an answer").expect("it is known").version
    }

    /// What comes of one change.
    pub async fn try_settle(&self, change: SlotChange) -> Settled {
        let mut answers = self.store.settle(vec![change]).await.expect("an answer");
        assert_eq!(answers.len(), 1, "an answer for each change");
        answers.remove(0)
    }

    /// Writes a change that must be taken.
    pub async fn settle_done(&self, change: SlotChange) {
        let answer = self.try_settle(change).await;
        assert!(matches!(answer, Settled::Done(_)), "{answer:?}");
    }

    /// Puts lanes under the fence of `change`.
    pub async fn put_lanes(&self, change: &SlotChange, lanes: impl IntoIterator<Item = Lane>) {
        self.settle_done(SlotChange { lanes: lanes.into_iter().map(LaneChange::Put).collect(), ..change.clone() })
            .await;
    }

    /// The lanes that a query finds.
    pub async fn lanes(&self, query: LaneQuery) -> Vec<LaneRow> {
        self.store.lanes(query, 1_000).await.expect("lanes")
    }

    /// One lane of a group.
    pub async fn lane(&self, group: &str, key: &LaneKey) -> Option<LaneRow> {
        let mut rows = self.lanes(LaneQuery::One(name(group), key.clone())).await;
        assert!(rows.len() <= 1, "one lane");
        rows.pop()
    }

    /// Makes a subscription.
    pub async fn subscribe(&self, new: NewSubscription) -> (SubscriptionState, bool) {
        self.store.subscribe(new).await.expect("a subscription")
    }

    /// Makes a subscription that must be new.
    pub async fn subscribe_new(&self, new: NewSubscription) -> SubscriptionState {
        let (subscription, is_new) = self.subscribe(new).await;
        assert!(is_new, "{subscription:?} was there");
        subscription
    }

    /// The subscriptions of a group.
    pub async fn subscriptions(&self, group: &str) -> Vec<SubscriptionState> {
        self.store.subscriptions(&name(group), None, 10_000).await.expect("subscriptions")
    }

    /// The deliveries of an event.
    pub async fn deliveries(&self, seq: Seq) -> Vec<Delivery> {
        self.store.deliveries(seq).await.expect("deliveries")
    }

    /// What the deliveries of an event to a group said.
    pub async fn messages(&self, group: &str, seq: Seq) -> Vec<String> {
        let lines = self.store.lines(&name(group), seq, 0, 10_000).await.expect("lines");
        lines.into_iter().map(|line| line.message).collect()
    }
}

/// The names of groups.
pub fn names(groups: &[GroupState]) -> Vec<&str> {
    groups.iter().map(|group| group.name.as_str()).collect()
}

/// The keys of lanes, as text.
pub fn keys(rows: &[LaneRow]) -> Vec<String> {
    rows.iter().map(|row| row.lane.key.to_text()).collect()
}
