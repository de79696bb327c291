//! What does the model know of groups, and what follows from what it is told?
//!
//! Plain vectors again, searched from one end to the other. A slot names its owner; the owner's lease is looked up where
//! it is needed, so that there is one place for it.

use super::definitions::Defined;
use super::parked::{Parked, is_needed};
use ensue_core::positions::subscription::expires_at;
use ensue_core::positions::{
    Acquire, Acquired, AcquiredSlot, Delivery, Fence, GroupKind, GroupState, LaneChange, LaneKey, LaneRow, LogLine,
    Lost, Member, Owner, Replay, Serving, SlotChange, SlotNumber, SlotState, SubscriptionState,
};
use ensue_core::{GroupName, Seq, Timestamp};
use jiff::SignedDuration;
use uuid::Uuid;

/// All that is known of groups.
#[derive(Debug, Clone)]
pub(super) struct Known {
    pub groups: Vec<Group>,
    pub members: Vec<KnownMember>,
    /// Each with what its params say.
    pub subscriptions: Vec<(SubscriptionState, String)>,
    /// Which subscription each version of a group was about.
    pub changes: Vec<(GroupName, u64, Uuid)>,
    pub lanes: Vec<LaneRow>,
    pub parked: Vec<Parked>,
    pub deliveries: Vec<Delivery>,
    /// In the order in which they were written.
    pub lines: Vec<(GroupName, LogLine)>,
    /// The highest fences of groups that are no more: what was taken then is not taken now.
    pub old_fences: Vec<(GroupName, Fence)>,
    /// Every group that is no more had a smaller version.
    pub version_floor: u64,
    /// How many ids of subscriptions were made.
    pub ids: u128,
    /// Handlers that are kept.
    pub defined: Defined,
}

#[derive(Debug, Clone)]
pub(super) struct Group {
    pub name: GroupName,
    pub kind: GroupKind,
    pub created_at: Timestamp,
    /// When it was last read or moved on. Whoever has a slot of it reads it until the end of their lease.
    pub read_at: Timestamp,
    /// By number.
    pub slots: Vec<Slot>,
    pub version: u64,
    pub lost: Option<Lost>,
}

#[derive(Debug, Clone)]
pub(super) struct Slot {
    pub cursor: Seq,
    pub fence: Fence,
    pub vanished: u32,
    pub owner: Option<Uuid>,
    pub replay: Option<Replay>,
}

#[derive(Debug, Clone)]
pub(super) struct KnownMember {
    pub member: Member,
    pub lease_until: Timestamp,
    /// Of what it owns.
    pub version: u64,
    /// The groups that it serves, by name.
    pub serves: Vec<GroupName>,
}

impl Known {
    pub const EMPTY: Known = Known {
        groups: Vec::new(),
        members: Vec::new(),
        subscriptions: Vec::new(),
        changes: Vec::new(),
        lanes: Vec::new(),
        parked: Vec::new(),
        deliveries: Vec::new(),
        lines: Vec::new(),
        old_fences: Vec::new(),
        version_floor: 0,
        ids: 0,
        defined: Defined::EMPTY,
    };

    pub fn group(&self, name: &GroupName) -> Option<&Group> {
        self.groups.iter().find(|group| group.name == *name)
    }

    pub fn group_mut(&mut self, name: &GroupName) -> Option<&mut Group> {
        self.groups.iter_mut().find(|group| group.name == *name)
    }

    pub fn member(&self, id: Uuid) -> Option<&KnownMember> {
        self.members.iter().find(|known| known.member.id == id)
    }

    pub fn is_live(&self, member: Uuid, now: Timestamp) -> bool {
        self.member(member).is_some_and(|known| now <= known.lease_until)
    }

    fn owner(&self, slot: &Slot) -> Option<Owner> {
        let known = self.member(slot.owner?)?;
        Some(Owner { member: known.member.clone(), lease_until: known.lease_until })
    }

    fn served_at(&self, group: &Group) -> Timestamp {
        let leases = group.slots.iter().filter_map(|slot| self.owner(slot)).map(|owner| owner.lease_until);
        leases.fold(group.read_at, Timestamp::max)
    }

    /// Everything about a group, as others see it.
    pub fn state_of(&self, group: &Group, now: Timestamp) -> GroupState {
        let needed = || {
            let lanes = self.lanes.iter().filter(|row| row.group == group.name);
            lanes.filter(|row| is_needed(row))
        };
        let slot_state = |(number, slot): (usize, &Slot)| SlotState {
            slot: number as SlotNumber,
            cursor: slot.cursor,
            fence: slot.fence,
            vanished: slot.vanished,
            owner: self.owner(slot),
            replay: slot.replay,
        };
        GroupState {
            name: group.name.clone(),
            kind: group.kind,
            created_at: group.created_at,
            served_at: self.served_at(group),
            slots: group.slots.iter().enumerate().map(slot_state).collect(),
            version: group.version,
            subscriptions: self.live_subscriptions(&group.name, now).len() as u64,
            lanes: needed().count() as u64,
            oldest_lane: needed().map(LaneRow::needs_from).min(),
            lost: group.lost,
        }
    }

    pub fn has_expired(&self, subscription: &SubscriptionState, now: Timestamp) -> bool {
        let group = self.group(&subscription.group).expect("a subscription goes with its group");
        expires_at(subscription.expires_in, subscription.touched_at, self.served_at(group)).is_some_and(|at| now > at)
    }

    /// By id.
    pub fn live_subscriptions(&self, group: &GroupName, now: Timestamp) -> Vec<SubscriptionState> {
        let of_group = self.subscriptions.iter().map(|(one, _)| one).filter(|one| one.group == *group);
        let mut live: Vec<_> = of_group.filter(|one| !self.has_expired(one, now)).cloned().collect();
        live.sort_by_key(|subscription| subscription.id);
        live
    }

    pub fn forget_subscription(&mut self, subscription: &SubscriptionState) {
        self.subscriptions.retain(|(one, _)| one.id != subscription.id);
        self.changed(subscription);
    }

    /// Counts the version of a subscription's group, and notes what it is about.
    pub fn changed(&mut self, subscription: &SubscriptionState) {
        let group = self.group_mut(&subscription.group).expect("a subscription goes with its group");
        group.version += 1;
        let change = (group.name.clone(), group.version, subscription.id);
        self.changes.push(change);
    }

    /// Forgets what has expired of a group, before it is read: who has expired stays gone.
    pub fn forget_expired(&mut self, group: &GroupName, now: Timestamp) {
        let of_group = self.subscriptions.iter().map(|(one, _)| one).filter(|one| one.group == *group);
        let expired: Vec<_> = of_group.filter(|one| self.has_expired(one, now)).cloned().collect();
        expired.iter().for_each(|one| self.forget_subscription(one));
    }

    /// The same in every group of which a member has slots: whoever has a lease reads them all.
    fn forget_expired_of(&mut self, member: Uuid, now: Timestamp) {
        let has_some = |group: &&Group| group.slots.iter().any(|slot| slot.owner == Some(member));
        let groups: Vec<GroupName> = self.groups.iter().filter(has_some).map(|group| group.name.clone()).collect();
        groups.iter().for_each(|group| self.forget_expired(group, now));
    }

    /// The log ends here again: what was written of later events is lost with them. Who has which slot is not: a replica
    /// may lack the last writes about events and have those about slots, if these came before.
    pub fn go_back(&mut self, last: Seq) {
        let slots = self.groups.iter_mut().flat_map(|group| &mut group.slots);
        slots.for_each(|slot| slot.cursor = slot.cursor.min(last));
        self.lanes.retain(|row| row.lane.position <= last);
        self.deliveries.retain(|delivery| delivery.seq <= last);
    }

    /// Takes the slots of a group from whoever has them, but for one.
    pub fn take_slots(&mut self, name: &GroupName, but: Option<Uuid>, now: Timestamp) {
        let Some(group) = self.group_mut(name) else { return };
        let others = group.slots.iter_mut().filter(|slot| slot.owner.is_some() && slot.owner != but);
        let owners: Vec<Option<Uuid>> = others.map(|slot| slot.owner.take()).collect();
        if !owners.is_empty() {
            group.read_at = group.read_at.max(now);
        }
        owners.into_iter().for_each(|owner| self.tell(owner));
    }

    /// Tells the owner of a slot that something happened to it.
    pub fn tell(&mut self, owner: Option<Uuid>) {
        if let Some(known) = self.members.iter_mut().find(|known| Some(known.member.id) == owner) {
            known.version += 1;
        }
    }

    fn renew(&mut self, member: &Member, lease_until: Timestamp) {
        match self.members.iter_mut().find(|known| known.member.id == member.id) {
            Some(known) => (known.member, known.lease_until) = (member.clone(), lease_until),
            None => {
                self.members.push(KnownMember { member: member.clone(), lease_until, version: 0, serves: Vec::new() })
            }
        }
    }

    pub fn acquire(&mut self, acquire: &Acquire, now: Timestamp) -> Option<Acquired> {
        let me = acquire.member.id;
        let group = self.group(&acquire.group)?;
        let number_of = |index: usize| index as SlotNumber;
        let gets = |slot: &Slot| match acquire.go_on {
            Some(fence) => slot.owner == Some(me) && slot.fence == fence && self.is_live(me, now),
            None => slot.owner.is_none_or(|owner| owner == me || !self.is_live(owner, now)),
        };
        let wanted = group.slots.iter().enumerate().map(|(index, slot)| (number_of(index), slot));
        let wanted = wanted.filter(|(number, _)| acquire.slots.is_empty() || acquire.slots.contains(number));
        let (got, refused): (Vec<_>, Vec<_>) = wanted.partition(|(_, slot)| gets(slot));
        let held_by = refused.first().and_then(|(_, slot)| self.owner(slot));
        let numbers: Vec<SlotNumber> = got.iter().map(|(number, _)| *number).collect();
        let taken_from: Vec<Uuid> =
            got.iter().filter_map(|(_, slot)| slot.owner).filter(|owner| *owner != me).collect();
        if acquire.go_on.is_some() && numbers.is_empty() {
            return Some(Acquired { slots: Vec::new(), held_by, version: group.version });
        }
        taken_from.into_iter().for_each(|owner| self.tell(Some(owner)));
        self.forget_expired_of(me, now);
        if !numbers.is_empty() {
            self.forget_expired(&acquire.group, now);
        }
        self.renew(&acquire.member, now + acquire.lease);
        let group = self.group_mut(&acquire.group)?;
        let version = group.version;
        if !numbers.is_empty() {
            group.read_at = group.read_at.max(now);
        }
        let slots = numbers.into_iter().map(|number| {
            let slot = &mut group.slots[usize::from(number)];
            if slot.owner != Some(me) {
                slot.vanished += u32::from(slot.owner.is_some());
                slot.fence += 1;
                slot.owner = Some(me);
            }
            AcquiredSlot { slot: number, fence: slot.fence, cursor: slot.cursor, vanished: slot.vanished }
        });
        Some(Acquired { slots: slots.collect(), held_by, version })
    }

    pub fn serve(&mut self, member: &Member, lease: SignedDuration, groups: &[GroupName], now: Timestamp) {
        self.forget_expired_of(member.id, now);
        self.renew(member, now + lease);
        let mut after = groups.to_vec();
        after.sort();
        after.dedup();
        let known = self.members.iter_mut().find(|known| known.member.id == member.id).expect("it is known now");
        let before = std::mem::replace(&mut known.serves, after.clone());
        let is_told = |group: &GroupName| before.contains(group) != after.contains(group);
        let others = self.members.iter_mut().filter(|known| known.member.id != member.id);
        others.filter(|other| other.serves.iter().any(is_told)).for_each(|other| other.version += 1);
    }

    /// The processes that live, by id.
    pub fn serving(&self, now: Timestamp) -> Vec<Serving> {
        let live = self.members.iter().filter(|known| known.member.kind == GroupKind::Handler);
        let live = live.filter(|known| self.is_live(known.member.id, now));
        let mut serving: Vec<Serving> =
            live.map(|known| Serving { member: known.member.clone(), groups: known.serves.clone() }).collect();
        serving.sort_by_key(|one| one.member.id);
        serving
    }

    pub fn extend(&mut self, member: Uuid, lease: SignedDuration, now: Timestamp) -> Option<u64> {
        self.member(member)?;
        self.forget_expired_of(member, now);
        let known = self.members.iter_mut().find(|known| known.member.id == member)?;
        known.lease_until = now + lease;
        Some(known.version)
    }

    /// Gives slots back: those of a group with these numbers, or all there are.
    pub fn give_back(&mut self, member: Uuid, only: Option<(&GroupName, &[SlotNumber])>, now: Timestamp) {
        let is_given = |name: &GroupName, number: usize, slot: &Slot| {
            let is_meant = only.is_none_or(|(group, slots)| group == name && slots.contains(&(number as SlotNumber)));
            is_meant && slot.owner == Some(member)
        };
        let names: Vec<GroupName> = self.groups.iter().map(|group| group.name.clone()).collect();
        for name in names {
            let group = self.group(&name).expect("it is listed");
            if !group.slots.iter().enumerate().any(|(number, slot)| is_given(&name, number, slot)) {
                continue;
            }
            self.forget_expired(&name, now);
            let group = self.group_mut(&name).expect("it is listed");
            group.read_at = group.read_at.max(now);
            let given = group.slots.iter_mut().enumerate().filter(|(number, slot)| is_given(&name, *number, slot));
            given.for_each(|(_, slot)| (slot.owner, slot.vanished) = (None, 0));
        }
    }

    /// May this be written?
    pub fn holds(&self, change: &SlotChange, now: Timestamp) -> bool {
        let slot = self.group(&change.group).and_then(|group| group.slots.get(usize::from(change.slot)));
        let Some(slot) = slot.filter(|slot| slot.owner == Some(change.member) && slot.fence == change.fence) else {
            return false;
        };
        let owner = self.owner(slot).expect("an owner is known");
        match owner.member.kind {
            GroupKind::Handler => true,
            GroupKind::Pull => self.is_live(change.member, now),
        }
    }

    /// Writes all of a change but its events.
    pub fn write(&mut self, change: SlotChange, now: Timestamp) {
        self.forget_expired(&change.group, now);
        let group = self.group_mut(&change.group).expect("what is held is there");
        group.lost = change.lost.or(group.lost);
        if let Some(cursor) = change.cursor {
            let slot = &mut group.slots[usize::from(change.slot)];
            if cursor > slot.cursor {
                (slot.cursor, slot.vanished) = (cursor, 0);
                group.read_at = group.read_at.max(now);
            }
        }
        for lane in change.lanes {
            match lane {
                LaneChange::Put(lane) => {
                    let known = self.lane(&change.group, &lane.key);
                    if known.is_some_and(|row| row.lane.position > lane.position) {
                        continue;
                    }
                    let old = self.lane(&change.group, &lane.key).map(|row| (row.since, row.parked_to));
                    self.lanes.retain(|row| row.group != change.group || row.lane.key != lane.key);
                    self.forget_parked(&change.group, &lane.key, Some(lane.position));
                    let (since, parked_to) = old.unwrap_or((now, None));
                    let (group, slot) = (change.group.clone(), change.slot);
                    self.lanes.push(LaneRow { group, slot, lane, since, ask: None, parked_to });
                }
                LaneChange::Remove(key) => self.forget_lane(&change.group, &key),
            }
        }
        for delivery in change.deliveries {
            self.deliveries.retain(|known| (&known.group, known.seq) != (&delivery.group, delivery.seq));
            self.deliveries.push(delivery);
        }
        self.lines.extend(change.lines.into_iter().map(|line| (change.group.clone(), line)));
    }

    pub fn lane(&self, group: &GroupName, key: &LaneKey) -> Option<&LaneRow> {
        self.lanes.iter().find(|row| row.group == *group && row.lane.key == *key)
    }

    fn forget_lane(&mut self, group: &GroupName, key: &LaneKey) {
        self.lanes.retain(|row| row.group != *group || row.lane.key != *key);
        self.forget_parked(group, key, None);
    }

    /// Forgets every lane of a group, and what was parked of them.
    pub fn forget_lanes(&mut self, group: &GroupName) {
        self.lanes.retain(|row| row.group != *group);
        self.parked.retain(|one| one.group != *group);
    }

    pub fn forget_delivery(&mut self, delivery: &Delivery) {
        self.deliveries.retain(|known| (&known.group, known.seq) != (&delivery.group, delivery.seq));
        self.lines.retain(|(group, line)| (group, line.seq) != (&delivery.group, delivery.seq));
    }

    /// Forgets up to `limit` lines, the oldest first, that were said before this time by deliveries of which nothing is
    /// recorded; answers how many.
    pub fn forget_lines(&mut self, before: Timestamp, limit: usize) -> usize {
        let is_recorded = |group: &GroupName, seq: Seq| {
            self.deliveries.iter().any(|delivery| (&delivery.group, delivery.seq) == (group, seq))
        };
        let mut goes: Vec<usize> = (0..self.lines.len()).collect();
        goes.retain(|index| {
            let (group, line) = &self.lines[*index];
            line.at < before && !is_recorded(group, line.seq)
        });
        goes.sort_by_key(|index| self.lines[*index].1.at);
        goes.truncate(limit);
        let mut index = 0..;
        self.lines.retain(|_| !goes.contains(&index.next().expect("there is no last number")));
        goes.len()
    }

    pub fn forget_group(&mut self, name: &GroupName) {
        let version = self.group(name).map_or(0, |group| group.version);
        self.version_floor = self.version_floor.max(version + 1);
        self.changes.retain(|(group, ..)| group != name);
        self.groups.retain(|group| group.name != *name);
        self.subscriptions.retain(|(one, _)| one.group != *name);
        self.forget_lanes(name);
        self.deliveries.retain(|delivery| delivery.group != *name);
        self.lines.retain(|(group, _)| group != name);
        self.defined.forget(name);
    }
}
