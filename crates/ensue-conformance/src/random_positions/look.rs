//! What can be seen of groups?

use super::carry_out::{Side, lane_key};
use super::{DELIVERED, GROUPS, LANES, MEMBERS, OBJECTS, SLOTS, group_name, member_of};
use crate::meaning::Meaning;
use ensue_core::definitions::Definition;
use ensue_core::positions::{
    Delivery, GroupKind, GroupState, LaneQuery, LaneRow, LogLine, Lost, Owner, ParkedQuery, Replay, Serving,
    SlotNumber, SubscriptionState,
};
use ensue_core::retention::Bounds;
use ensue_core::{GroupName, ObjectKey, Seq, StoreError, Timestamp, Topic};
use jiff::SignedDuration;

/// Everything at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    bounds: Bounds,
    members: Vec<Serving>,
    groups: Vec<SeenGroup>,
    lanes: Vec<LaneRow>,
    stuck: Vec<LaneRow>,
    asked: Vec<Vec<LaneRow>>,
    /// Of each lane, by index, what is parked of it.
    parked: Vec<Vec<(Seq, Option<ObjectKey>)>>,
    needing: Vec<(GroupName, String)>,
    deliveries: Vec<Delivery>,
    lines: Vec<LogLine>,
    defined: SeenDefinitions,
}

/// The version of what is defined, and each by its key, subscription, settings and revision.
type SeenDefinitions = (u64, Vec<(GroupName, Option<usize>, String, u64)>);

#[derive(Debug, Clone, PartialEq, Eq)]
struct SeenGroup {
    name: GroupName,
    kind: GroupKind,
    created_at: Timestamp,
    served_at: Option<Timestamp>,
    slots: Vec<SeenSlot>,
    /// Since it was last looked at; none if it is new.
    has_changed: Option<bool>,
    count: u64,
    subscriptions: Vec<SeenSubscription>,
    lanes: u64,
    oldest_lane: Option<Seq>,
    lost: Option<Lost>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SeenSlot {
    slot: SlotNumber,
    cursor: Seq,
    vanished: u32,
    /// Who has it, and when its fence was given.
    owner: Option<(Owner, Option<usize>)>,
    replay: Option<Replay>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct SeenSubscription {
    nth: Option<usize>,
    topic: Option<Topic>,
    condition: Option<String>,
    params: Meaning,
    expires_in: Option<SignedDuration>,
    times: [Timestamp; 2],
    created_after: Seq,
}

impl Side {
    /// Looks at all there is. Deliveries are many: they are looked at when they may have changed. Once the clock has
    /// stepped back, engines are free in when a group was served.
    pub async fn look(&mut self, with_deliveries: bool, with_served_at: bool) -> Result<Seen, StoreError> {
        let mut seen = Seen {
            bounds: self.store.bounds().await?,
            members: self.store.members().await?,
            groups: Vec::new(),
            lanes: Vec::new(),
            stuck: self.store.lanes(LaneQuery::Stuck { group: None }, 1_000).await?,
            asked: Vec::new(),
            parked: Vec::new(),
            needing: Vec::new(),
            deliveries: Vec::new(),
            lines: Vec::new(),
            defined: self.look_at_definitions().await?,
        };
        assert!(seen.stuck.is_sorted_by_key(|row| row.since), "the oldest first: {:?}", seen.stuck);
        in_order(&mut seen.stuck);
        for state in self.store.groups().await? {
            let query = LaneQuery::Slots { group: state.name.clone(), slots: (0..SLOTS).collect(), after: None };
            let lanes = self.store.lanes(query, 1_000).await?;
            assert!(lanes.is_sorted_by_key(|row| row.lane.key.to_text()), "by key: {lanes:?}");
            seen.lanes.extend(lanes);
            let group = self.group_as_seen(state, with_served_at).await?;
            seen.groups.push(group);
        }
        let mut paged: Vec<GroupName> = Vec::new();
        loop {
            let page = self.store.groups_after(None, paged.last(), 2).await?;
            if page.is_empty() {
                break;
            }
            paged.extend(page.into_iter().map(|state| state.name));
        }
        assert!(paged.iter().eq(seen.groups.iter().map(|group| &group.name)), "{paged:?}");
        self.group_versions.retain(|name, _| seen.groups.iter().any(|group| group.name == *name));
        for member in 0..MEMBERS {
            let mut asked = self.store.lanes(LaneQuery::Asked(member_of(member).id), 1_000).await?;
            in_order(&mut asked);
            seen.asked.push(asked);
        }
        let needing = self.store.lanes(LaneQuery::Needing { before: 9, after: None }, 1_000).await?;
        seen.needing = needing.into_iter().map(|row| (row.group, row.lane.key.to_text())).collect();
        if with_deliveries {
            self.look_at_parked(&mut seen).await?;
            self.look_at_deliveries(&mut seen).await?;
            self.look_lane_by_lane(&seen).await?;
        }
        Ok(seen)
    }

    async fn look_at_definitions(&self) -> Result<SeenDefinitions, StoreError> {
        let (version, all) = self.store.definitions().await?;
        let seen = |one: Definition| {
            (one.key, self.nth_subscription(one.subscription), one.settings.as_str().to_owned(), one.revision)
        };
        Ok((version, all.into_iter().map(seen).collect()))
    }

    async fn group_as_seen(&mut self, state: GroupState, with_served_at: bool) -> Result<SeenGroup, StoreError> {
        let all = self.store.subscriptions(&state.name, None, 1_000).await?;
        assert!(all.is_sorted_by_key(|one| one.id), "by id: {all:?}");
        let as_seen = |one: SubscriptionState| SeenSubscription {
            nth: self.nth_subscription(one.id),
            params: Meaning::of(&one.params),
            topic: one.topic,
            condition: one.condition,
            expires_in: one.expires_in,
            times: [one.created_at, one.touched_at],
            created_after: one.created_after,
        };
        let mut subscriptions: Vec<SeenSubscription> = all.into_iter().map(as_seen).collect();
        subscriptions.sort_by_key(|one| one.nth);
        let slots = state.slots.into_iter().map(|slot| SeenSlot {
            slot: slot.slot,
            cursor: slot.cursor,
            vanished: slot.vanished,
            owner: slot.owner.map(|owner| (owner, self.nth_claim(&state.name, slot.slot, slot.fence))),
            replay: slot.replay,
        });
        let slots = slots.collect();
        let before = self.group_versions.insert(state.name.clone(), state.version);
        assert!(before <= Some(state.version), "a version went back");
        Ok(SeenGroup {
            name: state.name,
            kind: state.kind,
            created_at: state.created_at,
            served_at: with_served_at.then_some(state.served_at),
            slots,
            has_changed: before.map(|before| state.version > before),
            count: state.subscriptions,
            subscriptions,
            lanes: state.lanes,
            oldest_lane: state.oldest_lane,
            lost: state.lost,
        })
    }

    async fn look_at_parked(&self, seen: &mut Seen) -> Result<(), StoreError> {
        for row in &seen.lanes {
            let (group, key) = (row.group.clone(), row.lane.key.clone());
            let size = self.store.parked_size(&group, &key).await?;
            let events = self.store.parked(ParkedQuery::Lane { group, key, after: 0 }, 1_000).await?;
            assert_eq!(size.events, events.len() as u64);
            seen.parked.push(events.into_iter().map(|event| (event.seq, event.object)).collect());
        }
        Ok(())
    }

    async fn look_at_deliveries(&self, seen: &mut Seen) -> Result<(), StoreError> {
        for seq in 1..=DELIVERED {
            seen.deliveries.extend(self.store.deliveries(seq).await?);
            for group in 0..GROUPS.len() {
                seen.lines.extend(self.store.lines(&group_name(group), seq, 0, 1_000).await?);
            }
        }
        Ok(())
    }

    /// The other ways to the same lanes lead to the same rows.
    async fn look_lane_by_lane(&self, seen: &Seen) -> Result<(), StoreError> {
        for group in &seen.groups {
            for lane in 0..LANES {
                let key = lane_key(lane);
                let one = self.store.lanes(LaneQuery::One(group.name.clone(), key.clone()), 10).await?;
                let expected = seen.lanes.iter().filter(|row| row.group == group.name && row.lane.key == key);
                assert!(one.iter().eq(expected), "{one:?}");
            }
        }
        for object in OBJECTS.map(ObjectKey::stored) {
            let rows = self.store.lanes(LaneQuery::Object(object.clone()), 1_000).await?;
            let key = ensue_core::positions::LaneKey::Object(object);
            assert!(rows.iter().eq(seen.lanes.iter().filter(|row| row.lane.key == key)), "{rows:?}");
        }
        Ok(())
    }
}

/// Where the order is free.
fn in_order(rows: &mut [LaneRow]) {
    rows.sort_by_key(|row| (row.since, row.group.clone(), row.lane.key.to_text()));
}
