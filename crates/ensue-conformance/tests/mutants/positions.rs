//! What is wrong with how a mutant keeps groups?

use super::{Fault, Mutant};
use async_trait::async_trait;
use ensue_core::positions::{
    Acquire, Acquired, Ask, Delivery, GroupKind, GroupState, LaneKey, LaneQuery, LaneRow, LogLine, Member, NewGroup,
    NewSubscription, Park, ParkedQuery, ParkedSize, Positions, Renewed, Serving, Settled, SlotChange, SlotNumber,
    SubscriptionChanges, SubscriptionState,
};
use ensue_core::{Event, GroupName, Json, Seq, StoreError, Timestamp};
use jiff::SignedDuration;
use uuid::Uuid;

impl Mutant {
    /// The change as the newest owner would write it.
    async fn under_the_newest_fence(&self, change: SlotChange) -> Result<SlotChange, StoreError> {
        let group = self.inner.group(&change.group).await?;
        let slot = group.and_then(|mut group| group.slots.drain(..).nth(usize::from(change.slot)));
        Ok(match slot.and_then(|slot| slot.owner.map(|owner| (slot.fence, owner.member.id))) {
            Some((fence, member)) => SlotChange { fence, member, ..change },
            None => change,
        })
    }

    async fn settle_one(&self, mut change: SlotChange) -> Result<Settled, StoreError> {
        if self.fault == Fault::IgnoresFences {
            change = self.under_the_newest_fence(change).await?;
        }
        if self.fault == Fault::ReadersAreNeverLate {
            self.inner.renew(change.member, SignedDuration::from_secs(1)).await?;
        }
        if self.fault == Fault::LosesWhatWasLost {
            change.lost = None;
        }
        let settled = self.inner.settle(vec![change.clone()]).await?.remove(0);
        match (&settled, self.fault) {
            (Settled::FenceLost, Fault::PublishesWithoutTheSlot) if !change.events.is_empty() => {
                drop(self.inner.append(change.events).await);
            }
            (Settled::Refused(_), Fault::WritesHalfOfWhatIsRefused) => {
                self.inner.settle(vec![SlotChange { events: Vec::new(), ..change }]).await?;
            }
            _ => {}
        }
        Ok(settled)
    }

    fn seen(&self, mut state: GroupState) -> GroupState {
        if self.fault == Fault::NeedsNothingForLanes {
            state.oldest_lane = None;
        }
        state
    }
}

#[async_trait]
impl Positions for Mutant {
    fn handler_slots(&self) -> u16 {
        self.inner.handler_slots()
    }

    async fn create_group(&self, group: NewGroup) -> Result<(GroupState, bool), StoreError> {
        self.inner.create_group(group).await
    }

    async fn group(&self, name: &GroupName) -> Result<Option<GroupState>, StoreError> {
        Ok(self.inner.group(name).await?.map(|state| self.seen(state)))
    }

    async fn groups(&self) -> Result<Vec<GroupState>, StoreError> {
        let mut groups = self.inner.groups().await?;
        if self.fault == Fault::SortsWithoutCase {
            groups.sort_by_key(|group| group.name.as_str().to_lowercase());
        }
        Ok(groups.into_iter().map(|state| self.seen(state)).collect())
    }

    async fn groups_after(
        &self,
        kind: Option<GroupKind>,
        after: Option<&GroupName>,
        limit: usize,
    ) -> Result<Vec<GroupState>, StoreError> {
        self.inner.groups_after(kind, after, limit).await
    }
    async fn delete_group(&self, name: &GroupName) -> Result<bool, StoreError> {
        self.inner.delete_group(name).await
    }

    async fn seek(&self, name: &GroupName, to: Seq) -> Result<Option<GroupState>, StoreError> {
        if self.fault == Fault::SeeksOutsideOfTheLog {
            let bounds = self.inner.bounds().await?;
            return self.inner.seek(name, to.clamp(bounds.first - 1, bounds.last)).await;
        }
        self.inner.seek(name, to).await
    }

    async fn replay(&self, name: &GroupName, after: Seq, to: Seq) -> Result<Option<GroupState>, StoreError> {
        self.inner.replay(name, after, to).await
    }
    async fn subscribe(&self, mut new: NewSubscription) -> Result<(SubscriptionState, bool), StoreError> {
        if self.fault == Fault::MergesParams {
            new.params = Json::null();
        }
        self.inner.subscribe(new).await
    }

    async fn unsubscribe(&self, group: &GroupName, id: Uuid) -> Result<bool, StoreError> {
        self.inner.unsubscribe(group, id).await
    }

    async fn touch(&self, group: &GroupName, id: Uuid) -> Result<Option<SubscriptionState>, StoreError> {
        if self.fault == Fault::TouchesNothing {
            let all = self.inner.subscriptions(group, None, usize::MAX).await?;
            return Ok(all.into_iter().find(|one| one.id == id));
        }
        self.inner.touch(group, id).await
    }

    async fn subscriptions(
        &self,
        group: &GroupName,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<SubscriptionState>, StoreError> {
        self.inner.subscriptions(group, after, limit).await
    }

    async fn find_subscriptions(&self, ids: &[Uuid]) -> Result<Vec<SubscriptionState>, StoreError> {
        self.inner.find_subscriptions(ids).await
    }

    async fn subscription_changes(
        &self,
        group: &GroupName,
        after: u64,
        limit: usize,
    ) -> Result<Option<SubscriptionChanges>, StoreError> {
        let mut changes = self.inner.subscription_changes(group, after, limit).await?;
        if let (Fault::KeepsWhoIsGone, Some(changes)) = (self.fault, &mut changes) {
            changes.gone.clear();
        }
        if let (Fault::MissesWhoIsNew, Some(changes)) = (self.fault, &mut changes) {
            changes.there.clear();
        }
        Ok(changes)
    }

    async fn expire_subscriptions(&self, limit: usize) -> Result<usize, StoreError> {
        if self.fault == Fault::NeverExpires {
            return Ok(0);
        }
        self.inner.expire_subscriptions(limit).await
    }

    async fn acquire(&self, mut acquire: Acquire) -> Result<Option<Acquired>, StoreError> {
        if self.fault == Fault::GoesOnUnderAnyFence {
            acquire.go_on = None;
        }
        if self.fault == Fault::TakesFromTheLiving && acquire.go_on.is_none() {
            for slot in self.inner.group(&acquire.group).await?.into_iter().flat_map(|group| group.slots) {
                if let Some(owner) = slot.owner.filter(|owner| owner.member.id != acquire.member.id) {
                    self.inner.release(owner.member.id, &acquire.group, &[slot.slot]).await?;
                }
            }
        }
        let mut acquired = self.inner.acquire(acquire).await?;
        if let (Fault::ForgetsWhoVanished, Some(acquired)) = (self.fault, &mut acquired) {
            acquired.slots.iter_mut().for_each(|slot| slot.vanished = 0);
        }
        Ok(acquired)
    }

    async fn renew(&self, member: Uuid, lease: SignedDuration) -> Result<Option<Renewed>, StoreError> {
        let mut renewed = self.inner.renew(member, lease).await?;
        if let (Fault::TellsMembersNothing, Some(renewed)) = (self.fault, &mut renewed) {
            renewed.version = 1;
        }
        Ok(renewed)
    }

    async fn serve(&self, member: Member, lease: SignedDuration, groups: Vec<GroupName>) -> Result<(), StoreError> {
        if self.fault == Fault::ServesWhatItServedBefore {
            let known = self.inner.members().await?.into_iter().find(|known| known.member.id == member.id);
            let groups = groups.into_iter().chain(known.into_iter().flat_map(|known| known.groups)).collect();
            return self.inner.serve(member, lease, groups).await;
        }
        self.inner.serve(member, lease, groups).await
    }

    async fn members(&self) -> Result<Vec<Serving>, StoreError> {
        let mut members = self.inner.members().await?;
        if self.fault == Fault::ServesNothing {
            members.iter_mut().for_each(|one| one.groups.clear());
        }
        Ok(members)
    }

    async fn release(&self, member: Uuid, group: &GroupName, slots: &[SlotNumber]) -> Result<(), StoreError> {
        self.inner.release(member, group, slots).await
    }

    async fn leave(&self, member: Uuid) -> Result<(), StoreError> {
        if self.fault == Fault::LeavesSlotsBehind {
            return self.inner.renew(member, SignedDuration::ZERO).await.map(|_| ());
        }
        self.inner.leave(member).await
    }

    async fn settle(&self, changes: Vec<SlotChange>) -> Result<Vec<Settled>, StoreError> {
        let mut answers = Vec::new();
        for change in changes {
            answers.push(self.settle_one(change).await?);
        }
        Ok(answers)
    }

    async fn lanes(&self, query: LaneQuery, limit: usize) -> Result<Vec<LaneRow>, StoreError> {
        let asks = matches!(query, LaneQuery::Asked(_));
        let mut rows = self.inner.lanes(query, limit).await?;
        if self.fault == Fault::ForgetsWhatWasAsked && asks {
            rows.clear();
        }
        Ok(rows)
    }

    async fn ask_lane(&self, group: &GroupName, key: &LaneKey, ask: Ask) -> Result<Option<LaneRow>, StoreError> {
        self.inner.ask_lane(group, key, ask).await
    }

    async fn park(&self, parks: Vec<Park>) -> Result<usize, StoreError> {
        self.inner.park(parks).await
    }

    async fn parked(&self, query: ParkedQuery, limit: usize) -> Result<Vec<Event>, StoreError> {
        self.inner.parked(query, limit).await
    }

    async fn parked_size(&self, group: &GroupName, key: &LaneKey) -> Result<ParkedSize, StoreError> {
        self.inner.parked_size(group, key).await
    }

    async fn deliveries(&self, seq: Seq) -> Result<Vec<Delivery>, StoreError> {
        self.inner.deliveries(seq).await
    }

    async fn lines(&self, group: &GroupName, seq: Seq, skip: u64, limit: usize) -> Result<Vec<LogLine>, StoreError> {
        let mut lines = self.inner.lines(group, seq, skip, limit).await?;
        if self.fault == Fault::CollapsesEqualLines {
            lines.dedup();
        }
        Ok(lines)
    }

    async fn purge_deliveries(&self, before: Timestamp, keep: u64, limit: usize) -> Result<usize, StoreError> {
        let before = if self.fault == Fault::PurgesByCountAlone { Timestamp::MIN } else { before };
        self.inner.purge_deliveries(before, keep, limit).await
    }
}
