//! Who has done what? The verbs of `Positions`, and where each is done.

use super::PostgresStore;
use async_trait::async_trait;
use ensue_core::positions::{
    Acquire, Acquired, Ask, Delivery, GroupKind, GroupState, LaneKey, LaneQuery, LaneRow, LogLine, Member, NewGroup,
    NewSubscription, Park, ParkedQuery, ParkedSize, Positions, Renewed, Serving, Settled, SlotChange, SlotNumber,
    SubscriptionChanges, SubscriptionState,
};
use ensue_core::{Event, GroupName, Seq, StoreError, Timestamp};
use jiff::SignedDuration;
use uuid::Uuid;

/// So many processes may share the work of one handler.
const HANDLER_SLOTS: u16 = 16;

#[async_trait]
impl Positions for PostgresStore {
    fn handler_slots(&self) -> u16 {
        HANDLER_SLOTS
    }

    async fn create_group(&self, group: NewGroup) -> Result<(GroupState, bool), StoreError> {
        self.check_writable()?;
        self.make_group(group).await
    }

    async fn group(&self, name: &GroupName) -> Result<Option<GroupState>, StoreError> {
        self.read_group(name).await
    }

    async fn groups(&self) -> Result<Vec<GroupState>, StoreError> {
        self.read_groups().await
    }

    async fn groups_after(
        &self,
        kind: Option<GroupKind>,
        after: Option<&GroupName>,
        limit: usize,
    ) -> Result<Vec<GroupState>, StoreError> {
        self.read_groups_after(kind, after, limit).await
    }

    async fn delete_group(&self, name: &GroupName) -> Result<bool, StoreError> {
        self.check_writable()?;
        self.forget_group(name).await
    }

    async fn seek(&self, name: &GroupName, to: Seq) -> Result<Option<GroupState>, StoreError> {
        self.check_writable()?;
        self.seek_group(name, to).await
    }

    async fn replay(&self, name: &GroupName, after: Seq, to: Seq) -> Result<Option<GroupState>, StoreError> {
        self.check_writable()?;
        self.replay_group(name, after, to).await
    }

    async fn subscribe(&self, new: NewSubscription) -> Result<(SubscriptionState, bool), StoreError> {
        self.check_writable()?;
        self.make_subscription(new).await
    }

    async fn unsubscribe(&self, group: &GroupName, id: Uuid) -> Result<bool, StoreError> {
        self.check_writable()?;
        self.delete_subscription(group, id).await
    }

    async fn touch(&self, group: &GroupName, id: Uuid) -> Result<Option<SubscriptionState>, StoreError> {
        self.check_writable()?;
        self.touch_subscription(group, id).await
    }

    async fn subscriptions(
        &self,
        group: &GroupName,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<SubscriptionState>, StoreError> {
        self.read_subscriptions(group, after, limit).await
    }

    async fn find_subscriptions(&self, ids: &[Uuid]) -> Result<Vec<SubscriptionState>, StoreError> {
        self.read_subscriptions_by_id(ids).await
    }

    async fn subscription_changes(
        &self,
        group: &GroupName,
        after: u64,
        limit: usize,
    ) -> Result<Option<SubscriptionChanges>, StoreError> {
        self.read_subscription_changes(group, after, limit).await
    }

    async fn expire_subscriptions(&self, limit: usize) -> Result<usize, StoreError> {
        self.check_writable()?;
        self.forget_expired(limit).await
    }

    async fn acquire(&self, acquire: Acquire) -> Result<Option<Acquired>, StoreError> {
        self.check_writable()?;
        self.take_slots(acquire).await
    }

    async fn renew(&self, member: Uuid, lease: SignedDuration) -> Result<Option<Renewed>, StoreError> {
        self.check_writable()?;
        self.renew_lease(member, lease).await
    }

    async fn serve(&self, member: Member, lease: SignedDuration, groups: Vec<GroupName>) -> Result<(), StoreError> {
        self.check_writable()?;
        self.serve_groups(member, lease, groups).await
    }

    async fn members(&self) -> Result<Vec<Serving>, StoreError> {
        self.read_members().await
    }

    async fn release(&self, member: Uuid, group: &GroupName, slots: &[SlotNumber]) -> Result<(), StoreError> {
        self.check_writable()?;
        self.give_back(member, group, slots).await
    }

    async fn leave(&self, member: Uuid) -> Result<(), StoreError> {
        self.check_writable()?;
        self.give_all_back(member).await
    }

    async fn settle(&self, changes: Vec<SlotChange>) -> Result<Vec<Settled>, StoreError> {
        self.check_writable()?;
        self.settle_changes(changes).await
    }

    async fn lanes(&self, query: LaneQuery, limit: usize) -> Result<Vec<LaneRow>, StoreError> {
        self.read_lanes(query, limit).await
    }

    async fn ask_lane(&self, group: &GroupName, key: &LaneKey, ask: Ask) -> Result<Option<LaneRow>, StoreError> {
        self.check_writable()?;
        self.ask_of_lane(group, key, ask).await
    }

    async fn park(&self, parks: Vec<Park>) -> Result<usize, StoreError> {
        self.check_writable()?;
        self.park_lanes(parks).await
    }

    async fn parked(&self, query: ParkedQuery, limit: usize) -> Result<Vec<Event>, StoreError> {
        self.read_parked(query, limit).await
    }

    async fn parked_size(&self, group: &GroupName, key: &LaneKey) -> Result<ParkedSize, StoreError> {
        self.size_of_parked(group, key).await
    }

    async fn deliveries(&self, seq: Seq) -> Result<Vec<Delivery>, StoreError> {
        self.read_deliveries(seq).await
    }

    async fn lines(&self, group: &GroupName, seq: Seq, skip: u64, limit: usize) -> Result<Vec<LogLine>, StoreError> {
        self.read_lines(group, seq, skip, limit).await
    }

    async fn purge_deliveries(&self, before: Timestamp, keep: u64, limit: usize) -> Result<usize, StoreError> {
        self.check_writable()?;
        self.forget_deliveries(before, keep, limit).await
    }
}
