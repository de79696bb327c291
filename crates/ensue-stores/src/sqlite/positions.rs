//! How does the embedded store keep positions?
//!
//! Each verb is one turn at the writer, or one look that holds up nobody; what it does is in the file of its noun.

use super::writer::{Changing, Sync};
use super::{
    SqliteStore, deliveries, error, groups, jobs, lanes, parked, schema, serving, settle, slots, subscriptions,
};
use async_trait::async_trait;
use ensue_core::event::whole_microseconds;
use ensue_core::positions::{
    Acquire, Acquired, Ask, Delivery, GroupKind, GroupState, LaneKey, LaneQuery, LaneRow, LogLine, Member, NewGroup,
    NewSubscription, Park, ParkedQuery, ParkedSize, Positions, Renewed, Serving, Settled, SlotChange, SlotNumber,
    SubscriptionChanges, SubscriptionState,
};
use ensue_core::{Event, GroupName, Seq, StoreError, Timestamp};
use jiff::SignedDuration;
use rusqlite::Connection;
use uuid::Uuid;

impl Changing<'_> {
    /// The clock as it is: what is not of the log does not follow its times.
    pub fn now(&self) -> Timestamp {
        whole_microseconds(self.clock())
    }
}

/// Puts positions in order that another process has left, before anybody uses them.
pub(super) fn take_over(connection: &Connection, clock: Timestamp) -> Result<(), StoreError> {
    // Nobody else writes to this file: whoever ran jobs in the process before has ended with it.
    jobs::time::let_go_of_processes(connection, whole_microseconds(clock))
        .and_then(|()| slots::forget_processes(connection, whole_microseconds(clock)))
        .and_then(|()| groups::sweep_all(connection))
        .map_err(error::of_write)
}

impl SqliteStore {
    pub(super) fn positions_now(&self) -> Timestamp {
        whole_microseconds((self.clock)())
    }

    /// Looks at positions. A file that an older Ensue wrote, and that is only looked at, has none yet.
    pub(super) async fn look_at_positions<T, F>(&self, look: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    {
        let may_be_old = self.writer.is_none();
        let looked = self.look(move |connection| {
            let is_old = may_be_old && !schema::has_positions(connection)?;
            if is_old { Ok(None) } else { look(connection).map(Some) }
        });
        looked.await?.ok_or_else(|| {
            StoreError::Schema(
                "this file was written by an older Ensue, which kept less of groups: open it once for writing, for example with \
                 `ensue serve`, then look again"
                    .into(),
            )
        })
    }

    /// Makes a small change, in one commit with others that wait.
    pub(super) async fn change<T, F>(&self, change: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Changing<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        self.change_of(1, change).await
    }

    /// The same, of about so many rows: one that is large shares its commit with nobody.
    pub(super) async fn change_of<T, F>(&self, rows: usize, change: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Changing<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        self.writer()?.change(rows, Sync::Now, change).await
    }

    /// Makes a change that may take long, in a commit of its own.
    pub(super) async fn change_alone<T, F>(&self, change: F) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Changing<'_>) -> Result<T, StoreError> + Send + 'static,
    {
        self.writer()?.run(move |writing| writing.change(change)).await?
    }
}

#[async_trait]
impl Positions for SqliteStore {
    fn handler_slots(&self) -> u16 {
        1
    }

    async fn create_group(&self, group: NewGroup) -> Result<(GroupState, bool), StoreError> {
        self.change(move |changing| groups::create(changing, &group)).await
    }

    async fn group(&self, name: &GroupName) -> Result<Option<GroupState>, StoreError> {
        let (name, now) = (name.clone(), self.positions_now());
        self.look_at_positions(move |connection| groups::group(connection, &name, now)).await
    }

    async fn groups(&self) -> Result<Vec<GroupState>, StoreError> {
        let now = self.positions_now();
        self.look_at_positions(move |connection| groups::groups(connection, now)).await
    }

    async fn groups_after(
        &self,
        kind: Option<GroupKind>,
        after: Option<&GroupName>,
        limit: usize,
    ) -> Result<Vec<GroupState>, StoreError> {
        let (after, now) = (after.cloned(), self.positions_now());
        self.look_at_positions(move |connection| groups::groups_after(connection, kind, after.as_ref(), limit, now))
            .await
    }

    async fn delete_group(&self, name: &GroupName) -> Result<bool, StoreError> {
        let name = name.clone();
        let there = self.change_alone(move |changing| groups::forget(changing, &name)).await?;
        // Also what an earlier call left because its caller did not wait.
        while self.change_alone(groups::sweep).await? {}
        Ok(there)
    }

    async fn seek(&self, name: &GroupName, to: Seq) -> Result<Option<GroupState>, StoreError> {
        let name = name.clone();
        self.change_alone(move |changing| groups::seek(changing, &name, to)).await
    }

    async fn replay(&self, name: &GroupName, after: Seq, to: Seq) -> Result<Option<GroupState>, StoreError> {
        let name = name.clone();
        self.change_alone(move |changing| groups::replay(changing, &name, after, to)).await
    }

    async fn subscribe(&self, new: NewSubscription) -> Result<(SubscriptionState, bool), StoreError> {
        self.change(move |changing| subscriptions::subscribe(changing, &new)).await
    }

    async fn unsubscribe(&self, group: &GroupName, id: Uuid) -> Result<bool, StoreError> {
        let group = group.clone();
        self.change(move |changing| subscriptions::unsubscribe(changing, &group, id)).await
    }

    async fn touch(&self, group: &GroupName, id: Uuid) -> Result<Option<SubscriptionState>, StoreError> {
        let group = group.clone();
        self.change(move |changing| subscriptions::touch(changing, &group, id)).await
    }

    async fn subscriptions(
        &self,
        group: &GroupName,
        after: Option<Uuid>,
        limit: usize,
    ) -> Result<Vec<SubscriptionState>, StoreError> {
        let (group, now) = (group.clone(), self.positions_now());
        self.look_at_positions(move |connection| subscriptions::subscriptions(connection, &group, after, limit, now))
            .await
    }

    async fn find_subscriptions(&self, ids: &[Uuid]) -> Result<Vec<SubscriptionState>, StoreError> {
        let (ids, now) = (ids.to_vec(), self.positions_now());
        self.look_at_positions(move |connection| subscriptions::find(connection, &ids, now)).await
    }

    async fn subscription_changes(
        &self,
        group: &GroupName,
        after: u64,
        limit: usize,
    ) -> Result<Option<SubscriptionChanges>, StoreError> {
        let (group, now) = (group.clone(), self.positions_now());
        self.look_at_positions(move |connection| subscriptions::changes(connection, &group, after, limit, now)).await
    }

    async fn expire_subscriptions(&self, limit: usize) -> Result<usize, StoreError> {
        let now = self.positions_now();
        // Looked at from a reader first: an idle system takes no write lock.
        if !self.look_at_positions(move |connection| subscriptions::any_expired(connection, now)).await? {
            return Ok(0);
        }
        self.change_alone(move |changing| subscriptions::expire(changing, limit)).await
    }

    async fn acquire(&self, acquire: Acquire) -> Result<Option<Acquired>, StoreError> {
        self.change(move |changing| slots::acquire(changing, &acquire)).await
    }

    async fn renew(&self, member: Uuid, lease: SignedDuration) -> Result<Option<Renewed>, StoreError> {
        self.change(move |changing| slots::renew(changing, member, lease)).await
    }

    async fn serve(&self, member: Member, lease: SignedDuration, groups: Vec<GroupName>) -> Result<(), StoreError> {
        self.change(move |changing| serving::serve(changing, &member, lease, &groups)).await
    }

    async fn members(&self) -> Result<Vec<Serving>, StoreError> {
        let (now, may_be_old) = (self.positions_now(), self.writer.is_none());
        self.look_at_positions(move |connection| {
            // A file of before has nobody who said so.
            let is_old = may_be_old && !schema::has_serving(connection)?;
            if is_old { Ok(Vec::new()) } else { serving::members(connection, now) }
        })
        .await
    }

    async fn release(&self, member: Uuid, group: &GroupName, slots: &[SlotNumber]) -> Result<(), StoreError> {
        let (group, slots) = (group.clone(), slots.to_vec());
        self.change(move |changing| slots::release(changing, member, &group, &slots)).await
    }

    async fn leave(&self, member: Uuid) -> Result<(), StoreError> {
        self.change(move |changing| slots::leave(changing, member)).await
    }

    async fn settle(&self, changes: Vec<SlotChange>) -> Result<Vec<Settled>, StoreError> {
        self.change_of(changes.len(), move |changing| settle::settle(changing, &changes)).await
    }

    async fn lanes(&self, query: LaneQuery, limit: usize) -> Result<Vec<LaneRow>, StoreError> {
        self.look_at_positions(move |connection| lanes::lanes(connection, &query, limit)).await
    }

    async fn ask_lane(&self, group: &GroupName, key: &LaneKey, ask: Ask) -> Result<Option<LaneRow>, StoreError> {
        let (group, key) = (group.clone(), key.clone());
        self.change(move |changing| lanes::ask(changing, &group, &key, ask)).await
    }

    async fn park(&self, parks: Vec<Park>) -> Result<usize, StoreError> {
        self.change_alone(move |changing| parked::park(changing, &parks)).await
    }

    async fn parked(&self, query: ParkedQuery, limit: usize) -> Result<Vec<Event>, StoreError> {
        self.look_at_positions(move |connection| parked::parked(connection, &query, limit)).await
    }

    async fn parked_size(&self, group: &GroupName, key: &LaneKey) -> Result<ParkedSize, StoreError> {
        let (group, key) = (group.clone(), key.clone());
        self.look_at_positions(move |connection| parked::size(connection, &group, &key)).await
    }

    async fn deliveries(&self, seq: Seq) -> Result<Vec<Delivery>, StoreError> {
        self.look_at_positions(move |connection| deliveries::deliveries(connection, seq)).await
    }

    async fn lines(&self, group: &GroupName, seq: Seq, skip: u64, limit: usize) -> Result<Vec<LogLine>, StoreError> {
        let group = group.clone();
        self.look_at_positions(move |connection| deliveries::lines(connection, &group, seq, skip, limit)).await
    }

    async fn purge_deliveries(&self, before: Timestamp, keep: u64, limit: usize) -> Result<usize, StoreError> {
        let any = self.look_at_positions(move |connection| deliveries::any_old(connection, before, keep)).await?;
        if !any || limit == 0 {
            return Ok(0);
        }
        self.change_alone(move |changing| deliveries::purge(changing, before, keep, limit)).await
    }
}
