//! What does a moody store say about groups? What its store does, when it is well.

use super::Moody;
use async_trait::async_trait;
use ensue::positions::{
    Acquire, Acquired, Ask, Delivery, GroupKind, GroupState, LaneKey, LaneQuery, LaneRow, LogLine, Member, NewGroup,
    NewSubscription, Park, ParkedQuery, ParkedSize, Positions, Renewed, Serving, Settled, SlotChange, SlotNumber,
    SubscriptionChanges, SubscriptionState,
};
use ensue::{Event, GroupName, Seq, StoreError, Timestamp};
use jiff::SignedDuration;
use uuid::Uuid;

#[async_trait]
impl Positions for Moody {
    fn handler_slots(&self) -> u16 {
        self.store.handler_slots()
    }
    async fn create_group(&self, group: NewGroup) -> Result<(GroupState, bool), StoreError> {
        self.store().await?.create_group(group).await
    }
    async fn group(&self, name: &GroupName) -> Result<Option<GroupState>, StoreError> {
        self.store().await?.group(name).await
    }
    async fn groups(&self) -> Result<Vec<GroupState>, StoreError> {
        self.store().await?.groups().await
    }
    async fn groups_after(
        &self,
        kind: Option<GroupKind>,
        after: Option<&GroupName>,
        limit: usize,
    ) -> Result<Vec<GroupState>, StoreError> {
        self.store().await?.groups_after(kind, after, limit).await
    }
    async fn delete_group(&self, name: &GroupName) -> Result<bool, StoreError> {
        self.store().await?.delete_group(name).await
    }
    async fn seek(&self, name: &GroupName, to: Seq) -> Result<Option<GroupState>, StoreError> {
        self.store().await?.seek(name, to).await
    }
    async fn replay(&self, name: &GroupName, after: Seq, to: Seq) -> Result<Option<GroupState>, StoreError> {
        self.store().await?.replay(name, after, to).await
    }
    async fn subscribe(&self, new: NewSubscription) -> Result<(SubscriptionState, bool), StoreError> {
        self.store().await?.subscribe(new).await
    }
    async fn unsubscribe(&self, group: &GroupName, id: Uuid) -> Result<bool, StoreError> {
        self.store().await?.unsubscribe(group, id).await
    }
    async fn touch(&self, group: &GroupName, id: Uuid) -> Result<Option<SubscriptionState>, StoreError> {
        self.store().await?.touch(group, id).await
    }
    async fn subscriptions(
        &self,
        group: &GroupName,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<SubscriptionState>, StoreError> {
        self.store().await?.subscriptions(group, after, limit).await
    }
    async fn find_subscriptions(&self, ids: &[Uuid]) -> Result<Vec<SubscriptionState>, StoreError> {
        self.store().await?.find_subscriptions(ids).await
    }
    async fn subscription_changes(
        &self,
        group: &GroupName,
        after: u64,
        limit: usize,
    ) -> Result<Option<SubscriptionChanges>, StoreError> {
        self.store().await?.subscription_changes(group, after, limit).await
    }
    async fn expire_subscriptions(&self, limit: usize) -> Result<usize, StoreError> {
        self.store().await?.expire_subscriptions(limit).await
    }
    async fn acquire(&self, acquire: Acquire) -> Result<Option<Acquired>, StoreError> {
        self.store().await?.acquire(acquire).await
    }
    async fn renew(&self, member: Uuid, lease: SignedDuration) -> Result<Option<Renewed>, StoreError> {
        self.store().await?.renew(member, lease).await
    }
    async fn serve(&self, member: Member, lease: SignedDuration, groups: Vec<GroupName>) -> Result<(), StoreError> {
        self.store().await?.serve(member, lease, groups).await
    }
    async fn members(&self) -> Result<Vec<Serving>, StoreError> {
        self.store().await?.members().await
    }
    async fn release(&self, member: Uuid, group: &GroupName, slots: &[SlotNumber]) -> Result<(), StoreError> {
        self.store().await?.release(member, group, slots).await
    }
    async fn leave(&self, member: Uuid) -> Result<(), StoreError> {
        self.store().await?.leave(member).await
    }
    async fn settle(&self, changes: Vec<SlotChange>) -> Result<Vec<Settled>, StoreError> {
        self.store_for(ensue::Work::Checkpoint).await?.settle(changes).await
    }
    async fn lanes(&self, query: LaneQuery, limit: usize) -> Result<Vec<LaneRow>, StoreError> {
        self.store().await?.lanes(query, limit).await
    }
    async fn ask_lane(&self, group: &GroupName, key: &LaneKey, ask: Ask) -> Result<Option<LaneRow>, StoreError> {
        self.store().await?.ask_lane(group, key, ask).await
    }
    async fn park(&self, parks: Vec<Park>) -> Result<usize, StoreError> {
        self.store().await?.park(parks).await
    }
    async fn parked(&self, query: ParkedQuery, limit: usize) -> Result<Vec<Event>, StoreError> {
        self.store().await?.parked(query, limit).await
    }
    async fn parked_size(&self, group: &GroupName, key: &LaneKey) -> Result<ParkedSize, StoreError> {
        self.store().await?.parked_size(group, key).await
    }
    async fn deliveries(&self, seq: Seq) -> Result<Vec<Delivery>, StoreError> {
        self.store().await?.deliveries(seq).await
    }
    async fn lines(&self, group: &GroupName, seq: Seq, skip: u64, limit: usize) -> Result<Vec<LogLine>, StoreError> {
        self.store().await?.lines(group, seq, skip, limit).await
    }
    async fn purge_deliveries(&self, before: Timestamp, keep: u64, limit: usize) -> Result<usize, StoreError> {
        self.store().await?.purge_deliveries(before, keep, limit).await
    }
}
