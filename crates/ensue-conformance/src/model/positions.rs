//! What does each verb about groups mean?

use super::known::{Group, Known, Slot};
use super::parked::is_needed;
use super::{Model, State, take_page};
use async_trait::async_trait;
use ensue_core::event::whole_microseconds;
use ensue_core::positions::replay::{UnderWay, check_range, replayed};
use ensue_core::positions::subscription::{identity_of_params, lead_from, longer};
use ensue_core::positions::{
    Acquire, Acquired, Ask, Delivery, Fence, GroupKind, GroupState, LaneKey, LaneQuery, LaneRow, LaneState, LogLine,
    Member, NewGroup, NewSubscription, Park, ParkedQuery, ParkedSize, Renewed, SLOTS_MAX, Serving, Settled, SlotChange,
    SlotNumber, Start, StuckPlace, SubscriptionChanges, SubscriptionState, Unreplayable, check_cursor,
};
use ensue_core::{Appended, Event, GroupName, Invalid, Positions, Seq, StoreError, Timestamp};
use jiff::SignedDuration;
use uuid::Uuid;

impl State {
    pub(super) fn create(&mut self, new: NewGroup, now: Timestamp) -> Result<bool, StoreError> {
        if let Some(group) = self.known.group(&new.name) {
            if group.kind != new.kind {
                return Err(StoreError::Conflict(format!("`{}` is of another kind", new.name)));
            }
            return Ok(false);
        }
        let slots_max = match new.kind {
            GroupKind::Pull => 1,
            GroupKind::Handler => SLOTS_MAX,
        };
        if !(1..=slots_max).contains(&new.slots) {
            return Err(Invalid::new("slots", format!("is {}; choose 1 to {slots_max}", new.slots)).into());
        }
        let cursor = new.start.cursor(self.bounds())?;
        let old_fences = self.known.old_fences.iter().filter(|(name, _)| *name == new.name).map(|(_, fence)| *fence);
        let fence: Fence = old_fences.max().unwrap_or(0);
        let slot = Slot { cursor, fence, vanished: 0, owner: None, replay: None };
        self.known.groups.push(Group {
            name: new.name,
            kind: new.kind,
            created_at: now,
            read_at: now,
            slots: vec![slot; usize::from(new.slots)],
            version: self.known.version_floor,
            lost: None,
        });
        Ok(true)
    }

    pub(super) fn subscribe(
        &mut self,
        new: NewSubscription,
        now: Timestamp,
    ) -> Result<(SubscriptionState, bool), StoreError> {
        if self.known.group(&new.group).is_none() {
            let (name, start) = (new.group.clone(), Start::Now);
            self.create(NewGroup { name, kind: GroupKind::Pull, start, slots: 1 }, now)?;
        }
        let identity = identity_of_params(&new.params);
        let same = |(one, params): &&(SubscriptionState, String)| {
            one.group == new.group && one.topic == new.topic && one.condition == new.condition && *params == identity
        };
        if let Some((there, _)) = self.known.subscriptions.iter().find(same).cloned() {
            if !self.known.has_expired(&there, now) {
                let expires_in = longer(there.expires_in, new.expires_in);
                if expires_in != there.expires_in {
                    self.known.changed(&there);
                }
                let shared = SubscriptionState { expires_in, touched_at: now, ..there };
                let place = self.known.subscriptions.iter_mut().find(|(one, _)| one.id == shared.id);
                place.expect("it was found above").0 = shared.clone();
                return Ok((shared, false));
            }
            self.known.forget_subscription(&there);
        }
        self.known.ids += 1;
        let subscription = SubscriptionState {
            id: Uuid::from_u128(self.known.ids),
            group: new.group.clone(),
            topic: new.topic,
            condition: new.condition,
            params: new.params,
            expires_in: new.expires_in,
            created_at: now,
            touched_at: now,
            created_after: self.last,
        };
        self.known.subscriptions.push((subscription.clone(), identity));
        self.known.changed(&subscription);
        Ok((subscription, true))
    }

    /// One change: on a copy, so that it is all or nothing.
    fn settle(&mut self, mut change: SlotChange, clock: Timestamp) -> Settled {
        let now = whole_microseconds(clock);
        if !self.known.holds(&change, now) {
            return Settled::FenceLost;
        }
        if !change.relies_on.is_none_or(|event| self.has(event)) {
            return Settled::WentBack;
        }
        let mut changed = self.clone();
        let at = changed.time(clock);
        let events = std::mem::take(&mut change.events);
        let jobs = std::mem::take(&mut change.jobs);
        let answers = events.into_iter().map(|entry| changed.accept(entry, at));
        let answers = answers.collect::<Result<Vec<Appended>, StoreError>>();
        match answers.and_then(|answers| changed.work.enqueue(jobs, now).map(|_| answers)) {
            Err(error) => Settled::Refused(error),
            Ok(answers) => {
                changed.known.write(change, now);
                *self = changed;
                Settled::Done(answers)
            }
        }
    }
}

impl Model {
    pub(super) fn positions_now(&self) -> Timestamp {
        whole_microseconds((self.clock)())
    }
}

/// In which order lanes are told that wait for somebody.
fn stuck_order(row: &LaneRow) -> (Timestamp, String, GroupName) {
    stuck_order_of(&StuckPlace::of(row))
}

fn stuck_order_of(place: &StuckPlace) -> (Timestamp, String, GroupName) {
    (place.since, place.key.to_text(), place.group.clone())
}

impl Known {
    fn state(&self, name: &GroupName, now: Timestamp) -> Option<GroupState> {
        self.group(name).map(|group| self.state_of(group, now))
    }
}

#[async_trait]
impl Positions for Model {
    fn handler_slots(&self) -> u16 {
        1
    }

    async fn create_group(&self, group: NewGroup) -> Result<(GroupState, bool), StoreError> {
        let (mut state, now) = (self.state()?, self.positions_now());
        let name = group.name.clone();
        let new = state.create(group, now)?;
        Ok((state.known.state(&name, now).expect("it is there now"), new))
    }

    async fn group(&self, name: &GroupName) -> Result<Option<GroupState>, StoreError> {
        Ok(self.state()?.known.state(name, self.positions_now()))
    }

    async fn groups(&self) -> Result<Vec<GroupState>, StoreError> {
        let (state, now) = (self.state()?, self.positions_now());
        let mut groups: Vec<_> = state.known.groups.iter().map(|group| state.known.state_of(group, now)).collect();
        groups.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(groups)
    }

    async fn groups_after(
        &self,
        kind: Option<GroupKind>,
        after: Option<&GroupName>,
        limit: usize,
    ) -> Result<Vec<GroupState>, StoreError> {
        let mut groups = self.groups().await?;
        groups.retain(|group| kind.is_none_or(|kind| group.kind == kind));
        groups.retain(|group| after.is_none_or(|after| group.name > *after));
        groups.truncate(limit);
        Ok(groups)
    }

    async fn delete_group(&self, name: &GroupName) -> Result<bool, StoreError> {
        let mut state = self.state()?;
        let Some(group) = state.known.group(name).cloned() else { return Ok(false) };
        for slot in &group.slots {
            state.known.tell(slot.owner);
            state.known.old_fences.push((name.clone(), slot.fence));
        }
        state.known.forget_group(name);
        Ok(true)
    }

    async fn seek(&self, name: &GroupName, to: Seq) -> Result<Option<GroupState>, StoreError> {
        let (mut state, now) = (self.state()?, self.positions_now());
        let bounds = state.bounds();
        if state.known.group(name).is_none() {
            return Ok(None);
        }
        check_cursor("to", to, bounds)?;
        state.known.forget_expired(name, now);
        let group = state.known.group_mut(name).expect("it was found above");
        let owners: Vec<Option<Uuid>> = group.slots.iter().map(|slot| slot.owner).collect();
        for slot in &mut group.slots {
            *slot = Slot { cursor: to, fence: slot.fence, vanished: 0, owner: None, replay: None };
        }
        group.read_at = group.read_at.max(now);
        owners.into_iter().for_each(|owner| state.known.tell(owner));
        state.known.forget_lanes(name);
        Ok(state.known.state(name, now))
    }

    async fn replay(&self, name: &GroupName, after: Seq, to: Seq) -> Result<Option<GroupState>, StoreError> {
        let (mut state, now) = (self.state()?, self.positions_now());
        let bounds = state.bounds();
        let Some(group) = state.known.group(name) else { return Ok(None) };
        if group.kind == GroupKind::Pull {
            return Err(Unreplayable::IsRead.of(name));
        }
        check_range(after, to, bounds)?;
        if state.known.lanes.iter().any(|row| row.group == *name) {
            return Err(Unreplayable::HasLanes.of(name));
        }
        let there = state.known.state_of(group, now);
        match UnderWay::of(&there.slots, after, to) {
            UnderWay::Nothing => {}
            UnderWay::NotBegun => return Ok(Some(there)),
            UnderWay::Something => return Err(Unreplayable::IsUnderWay.of(name)),
        }
        state.known.forget_expired(name, now);
        let group = state.known.group_mut(name).expect("it was found above");
        let owners: Vec<Option<Uuid>> = group.slots.iter().map(|slot| slot.owner).collect();
        for slot in &mut group.slots {
            let (cursor, replay) = replayed(slot.cursor, after, to).unwrap_or((slot.cursor, None));
            *slot = Slot { cursor, fence: slot.fence, vanished: 0, owner: None, replay };
        }
        group.read_at = group.read_at.max(now);
        owners.into_iter().for_each(|owner| state.known.tell(owner));
        Ok(state.known.state(name, now))
    }

    async fn subscribe(&self, new: NewSubscription) -> Result<(SubscriptionState, bool), StoreError> {
        let (mut state, now) = (self.state()?, self.positions_now());
        state.subscribe(new, now)
    }

    async fn unsubscribe(&self, group: &GroupName, id: Uuid) -> Result<bool, StoreError> {
        let (mut state, now) = (self.state()?, self.positions_now());
        let was_live = state.known.live_subscriptions(group, now).iter().any(|one| one.id == id);
        // One that has expired is not there any more for who asks; taken out it is all the same.
        let there = state.known.subscriptions.iter().find(|(one, _)| one.id == id && one.group == *group);
        if let Some(one) = there.map(|(one, _)| one.clone()) {
            state.known.forget_subscription(&one);
        }
        Ok(was_live)
    }

    async fn touch(&self, group: &GroupName, id: Uuid) -> Result<Option<SubscriptionState>, StoreError> {
        let (mut state, now) = (self.state()?, self.positions_now());
        if !state.known.live_subscriptions(group, now).iter().any(|one| one.id == id) {
            return Ok(None);
        }
        let all = &mut state.known.subscriptions;
        let (one, _) = all.iter_mut().find(|(one, _)| one.id == id).expect("it was found above");
        one.touched_at = now;
        Ok(Some(one.clone()))
    }

    async fn subscriptions(
        &self,
        group: &GroupName,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<SubscriptionState>, StoreError> {
        let live = self.state()?.known.live_subscriptions(group, self.positions_now());
        Ok(live.into_iter().filter(|one| after.is_none_or(|after| one.id > after)).take(limit).collect())
    }

    async fn find_subscriptions(&self, ids: &[Uuid]) -> Result<Vec<SubscriptionState>, StoreError> {
        let (state, now) = (self.state()?, self.positions_now());
        let known = &state.known;
        let all = known.subscriptions.iter().map(|(one, _)| one);
        Ok(all.filter(|one| ids.contains(&one.id) && !known.has_expired(one, now)).cloned().collect())
    }

    async fn subscription_changes(
        &self,
        group: &GroupName,
        after: u64,
        limit: usize,
    ) -> Result<Option<SubscriptionChanges>, StoreError> {
        let (state, now) = (self.state()?, self.positions_now());
        let Some(version) = state.known.group(group).map(|group| group.version) else { return Ok(None) };
        let noted = state.known.changes.iter().filter(|(of, version, _)| of == group && *version > after);
        let noted: Vec<_> = noted.collect();
        if noted.len() > limit || !lead_from(after, version, noted.iter().map(|(_, version, _)| *version)) {
            return Ok(None);
        }
        let is_noted = |id: Uuid| noted.iter().any(|(.., noted)| *noted == id);
        let mut there = state.known.live_subscriptions(group, now);
        there.retain(|one| is_noted(one.id));
        let mut gone: Vec<Uuid> = noted.iter().map(|(.., id)| *id).collect();
        gone.retain(|id| !there.iter().any(|one| one.id == *id));
        gone.sort_unstable();
        gone.dedup();
        Ok(Some(SubscriptionChanges { version, there, gone }))
    }

    async fn expire_subscriptions(&self, limit: usize) -> Result<usize, StoreError> {
        let (mut state, now) = (self.state()?, self.positions_now());
        let all = state.known.subscriptions.iter().map(|(one, _)| one);
        let expired = all.filter(|one| state.known.has_expired(one, now));
        let expired: Vec<SubscriptionState> = expired.take(limit).cloned().collect();
        expired.iter().for_each(|one| state.known.forget_subscription(one));
        Ok(expired.len())
    }

    async fn acquire(&self, acquire: Acquire) -> Result<Option<Acquired>, StoreError> {
        let now = self.positions_now();
        Ok(self.state()?.known.acquire(&acquire, now))
    }

    async fn renew(&self, member: Uuid, lease: SignedDuration) -> Result<Option<Renewed>, StoreError> {
        let (mut state, now) = (self.state()?, self.positions_now());
        let Some(version) = state.known.extend(member, lease, now) else { return Ok(None) };
        let members = state.known.serving(now).into_iter().map(|serving| serving.member).collect();
        Ok(Some(Renewed { version, members }))
    }

    async fn serve(&self, member: Member, lease: SignedDuration, groups: Vec<GroupName>) -> Result<(), StoreError> {
        let now = self.positions_now();
        self.state()?.known.serve(&member, lease, &groups, now);
        Ok(())
    }

    async fn members(&self) -> Result<Vec<Serving>, StoreError> {
        Ok(self.state()?.known.serving(self.positions_now()))
    }

    async fn release(&self, member: Uuid, group: &GroupName, slots: &[SlotNumber]) -> Result<(), StoreError> {
        let now = self.positions_now();
        self.state()?.known.give_back(member, Some((group, slots)), now);
        Ok(())
    }

    async fn leave(&self, member: Uuid) -> Result<(), StoreError> {
        let (mut state, now) = (self.state()?, self.positions_now());
        state.known.give_back(member, None, now);
        state.known.members.retain(|known| known.member.id != member);
        Ok(())
    }

    async fn settle(&self, changes: Vec<SlotChange>) -> Result<Vec<Settled>, StoreError> {
        let mut state = self.state()?;
        let clock = (self.clock)();
        Ok(changes.into_iter().map(|change| state.settle(change, clock)).collect())
    }

    async fn lanes(&self, query: LaneQuery, limit: usize) -> Result<Vec<LaneRow>, StoreError> {
        let state = self.state()?;
        let known = &state.known;
        let is_stuck = |row: &LaneRow| matches!(row.lane.state, LaneState::Held | LaneState::Dead);
        let owner = |row: &LaneRow| {
            let group = known.group(&row.group).expect("a lane goes with its group");
            group.slots[usize::from(row.slot)].owner
        };
        let wanted = |row: &&LaneRow| match &query {
            LaneQuery::Slots { group, slots, after } => {
                let is_after = after.as_ref().is_none_or(|after| row.lane.key.to_text() > after.to_text());
                row.group == *group && slots.contains(&row.slot) && is_after
            }
            LaneQuery::Stuck { group } => is_stuck(row) && group.as_ref().is_none_or(|group| row.group == *group),
            LaneQuery::StuckAfter(place) => is_stuck(row) && stuck_order(row) > stuck_order_of(place),
            LaneQuery::Object(object) => row.lane.key == LaneKey::Object(object.clone()),
            LaneQuery::One(group, key) => row.group == *group && row.lane.key == *key,
            LaneQuery::Asked(member) => row.ask.is_some() && owner(row) == Some(*member),
            LaneQuery::Needing { before, after } => {
                let place = (row.group.clone(), row.lane.key.to_text());
                let is_after = after.as_ref().is_none_or(|(group, key)| place > (group.clone(), key.to_text()));
                is_needed(row) && row.needs_from() < *before && is_after
            }
        };
        let mut rows: Vec<LaneRow> = known.lanes.iter().filter(wanted).cloned().collect();
        rows.sort_by_key(|row| (row.group.clone(), row.lane.key.to_text()));
        match query {
            LaneQuery::Stuck { .. } | LaneQuery::StuckAfter(_) => rows.sort_by_key(stuck_order),
            LaneQuery::Slots { .. }
            | LaneQuery::Object(_)
            | LaneQuery::One(..)
            | LaneQuery::Asked(_)
            | LaneQuery::Needing { .. } => {}
        }
        rows.truncate(limit);
        Ok(rows)
    }

    async fn ask_lane(&self, group: &GroupName, key: &LaneKey, ask: Ask) -> Result<Option<LaneRow>, StoreError> {
        let mut state = self.state()?;
        let known = &mut state.known;
        let Some(row) = known.lanes.iter_mut().find(|row| row.group == *group && row.lane.key == *key) else {
            return Ok(None);
        };
        row.ask = Some(ask);
        let row = row.clone();
        let owner = known.group(group).and_then(|group| group.slots[usize::from(row.slot)].owner);
        known.tell(owner);
        Ok(Some(row))
    }

    async fn park(&self, parks: Vec<Park>) -> Result<usize, StoreError> {
        let mut state = self.state()?;
        Ok(parks.into_iter().filter(|park| state.park(park.clone())).count())
    }

    async fn parked(&self, query: ParkedQuery, limit: usize) -> Result<Vec<Event>, StoreError> {
        let state = self.state()?;
        Ok(take_page(state.known.parked(&query, limit).into_iter(), limit).0)
    }

    async fn parked_size(&self, group: &GroupName, key: &LaneKey) -> Result<ParkedSize, StoreError> {
        Ok(self.state()?.known.parked_size(group, key))
    }

    async fn deliveries(&self, seq: Seq) -> Result<Vec<Delivery>, StoreError> {
        let state = self.state()?;
        let mut deliveries: Vec<_> = state.known.deliveries.iter().filter(|one| one.seq == seq).cloned().collect();
        deliveries.sort_by(|one, other| one.group.cmp(&other.group));
        Ok(deliveries)
    }

    async fn lines(&self, group: &GroupName, seq: Seq, skip: u64, limit: usize) -> Result<Vec<LogLine>, StoreError> {
        let state = self.state()?;
        let said = state.known.lines.iter().filter(|(of, line)| of == group && line.seq == seq);
        Ok(said.skip(skip as usize).take(limit).map(|(_, line)| line.clone()).collect())
    }

    async fn purge_deliveries(&self, before: Timestamp, keep: u64, limit: usize) -> Result<usize, StoreError> {
        let mut state = self.state()?;
        let mut oldest_first = state.known.deliveries.clone();
        oldest_first.sort_by_key(|one| one.finished_at);
        let beyond = (oldest_first.len() as u64).saturating_sub(keep) as usize;
        let goes = |(index, one): &(usize, &Delivery)| *index < beyond || one.finished_at < before;
        let gone: Vec<Delivery> = oldest_first.iter().enumerate().filter(goes).map(|(_, one)| one.clone()).collect();
        let gone = &gone[..gone.len().min(limit)];
        gone.iter().for_each(|one| state.known.forget_delivery(one));
        Ok(gone.len() + state.known.forget_lines(before, limit - gone.len()))
    }
}
