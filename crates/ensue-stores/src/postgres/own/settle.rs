//! How does a handler settle in its own transaction?
//!
//! It leaves a note (`own_put`), which the server carries out while the transaction commits: so nothing of ours is locked before that,
//! however long the transaction takes, and a fence that was lost meanwhile takes the transaction back (docs/decisions/013). Nobody tells us of the
//! commit: whether it came is asked afterwards.

use super::super::PostgresStore;
use super::super::jobs::columns::NewJobs;
use super::super::jobs::row::{number_of, stamp_of};
use super::super::read::place;
use super::super::types::Micros;
use super::driver::{Param, PostgresTransaction};
use super::refusal::Refusal;
use ensue_core::jobs::{Held, JobLine, NewJob};
use ensue_core::positions::{EventAt, Fence, LaneKey, SlotNumber};
use ensue_core::text::plain;
use ensue_core::{Entry, GroupName, Seq, Store as _, StoreError};
use std::borrow::Cow;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

/// The code of the error that says that somebody else has the work.
pub(in super::super) const OWN_LOST: &str = "EN101";
/// The code of the error that says that it is done already.
pub(in super::super) const OWN_DONE: &str = "EN102";

/// What a handler settles in its own transaction.
#[derive(Debug, Clone)]
pub struct OwnSettlement {
    /// Of this note: by it the commit is found.
    pub call: Uuid,
    /// What is done.
    pub work: OwnWork,
    /// What it published.
    pub events: Vec<Entry>,
    /// What it sent.
    pub jobs: Vec<NewJob>,
}

/// What is done with the commit.
#[derive(Debug, Clone)]
pub enum OwnWork {
    /// The delivery of an event, or of several of one batch.
    Delivery {
        /// The handler's.
        group: GroupName,
        /// The process that has the slots.
        member: Uuid,
        /// Slot, fence, lane and place of each event.
        events: Vec<(SlotNumber, Fence, LaneKey, Seq)>,
        /// The newest of them.
        newest: EventAt,
    },
    /// A job, with what is still to be written of what it said.
    Job {
        /// Which, under which fence.
        held: Held,
        /// What it said.
        lines: Vec<JobLine>,
    },
}

/// Slots and lanes as parallel arrays.
#[derive(Default)]
struct Places {
    slots: Vec<i32>,
    fences: Vec<i64>,
    /// Whose slot each lane's is, from 1.
    changes: Vec<i32>,
    keys: Vec<String>,
    seqs: Vec<i64>,
}

impl Places {
    fn of(events: &[(SlotNumber, Fence, LaneKey, Seq)]) -> Self {
        let mut places = Self::default();
        for (slot, fence, key, seq) in events {
            let slot = i32::from(*slot);
            let index = places.slots.iter().position(|known| *known == slot).unwrap_or_else(|| {
                places.slots.push(slot);
                places.fences.push(place(*fence));
                places.slots.len() - 1
            });
            places.changes.push(index as i32 + 1);
            places.keys.push(key.to_text());
            places.seqs.push(place(*seq));
        }
        places
    }
}

impl PostgresStore {
    /// Settles in a handler's own transaction, with what it published and sent. With an error the transaction can only be taken back; true
    /// means that it is done already, by another attempt whose commit came late.
    pub async fn settle_in(
        &self,
        transaction: &mut dyn PostgresTransaction,
        settlement: &OwnSettlement,
    ) -> Result<(), (StoreError, bool)> {
        let told = |error: StoreError| (error, false);
        self.check_writable().map_err(told)?;
        settlement.jobs.iter().try_for_each(NewJob::check).map_err(|invalid| told(invalid.into()))?;
        let explained = |refusal: Refusal| {
            let is_done = refusal.is(OWN_DONE);
            (refusal.explain(&self.schema), is_done)
        };
        let proof = self.proof_of(settlement).await.map_err(told)?;
        let params = self.own_params(settlement, &proof).map_err(explained)?;
        transaction.ask(&self.sql.own_put, params, !self.server.way.is_pooled()).await.map_err(explained)?;
        if !settlement.events.is_empty() {
            self.publish_in(transaction, settlement.events.clone()).await.map_err(told)?;
        }
        Ok(())
    }

    /// Has one of the transactions committed in which something was settled, deliveries or this job?
    pub async fn was_settled(&self, calls: &[Uuid], job: Option<Held>) -> Result<bool, StoreError> {
        let (number, stamp) = (job.map(|held| number_of(held.id)), job.map(|held| stamp_of(held.id)));
        let row = self.server.query_one(&self.sql.own_committed, &[&calls, &number, &stamp]).await?;
        Ok(row.get(0))
    }

    /// Proves to `own_put` that a node of this store settles this work; the transaction may run as any role. The message is
    /// composed as in `own_message` of `sql/fn_own_settle.sql`.
    async fn proof_of(&self, settlement: &OwnSettlement) -> Result<String, StoreError> {
        fn list<T: ToString>(numbers: &[T]) -> String {
            numbers.iter().map(T::to_string).collect::<Vec<_>>().join(",")
        }
        let text = |text: &str| format!("{}:{text}", text.len());
        let work = match &settlement.work {
            OwnWork::Delivery { group, member, events, newest } => {
                let Places { slots, fences, changes, keys, seqs } = Places::of(events);
                let keys: String = keys.iter().map(|key| text(key)).collect();
                let numbers = [list(&slots), list(&fences), list(&changes), list(&seqs)].join("|");
                let EventAt { seq, id } = newest;
                format!("slots|{member}|{numbers}|{seq}|{}|{}|{keys}", id.0, text(group.as_str()))
            }
            OwnWork::Job { held, .. } => format!("job|{}|{}|{}", number_of(held.id), stamp_of(held.id), held.fence),
        };
        Ok(self.store_key().await?.code(&format!("own-{}|{work}", settlement.call)))
    }

    fn own_params(&self, settlement: &OwnSettlement, proof: &str) -> Result<Vec<Param>, Refusal> {
        let now = self.clock_time();
        let (mut group, mut member, mut places) = (None, None, Places::default());
        let (mut relied_seq, mut relied_id) = (None, None);
        let (mut number, mut stamp, mut fence) = (None, None, None);
        let mut said: &[JobLine] = &[];
        match &settlement.work {
            OwnWork::Delivery { group: name, member: id, events, newest } => {
                (relied_seq, relied_id) = (Some(place(newest.seq)), Some(newest.id.0));
                (group, member, places) = (Some(name.as_str()), Some(*id), Places::of(events));
            }
            OwnWork::Job { held, lines } => {
                (number, stamp, fence) = (Some(number_of(held.id)), Some(stamp_of(held.id)), Some(place(held.fence)));
                said = lines;
            }
        }
        let line_attempts: Vec<i32> = said.iter().map(|line| i32::try_from(line.attempt).unwrap_or(i32::MAX)).collect();
        let line_at: Vec<Micros> = said.iter().map(|line| Micros(line.at)).collect();
        let line_levels: Vec<&str> = said.iter().map(|line| line.level.as_str()).collect();
        let line_messages: Vec<Cow<'_, str>> = said.iter().map(|line| plain(&line.message)).collect();
        let jobs = NewJobs::of(settlement.jobs.iter());
        let own: [(&(dyn ToSql + Sync), Type); 16] = [
            (&settlement.call, Type::UUID),
            (&now, Type::TIMESTAMPTZ),
            (&group, Type::TEXT),
            (&member, Type::UUID),
            (&places.slots, Type::INT4_ARRAY),
            (&places.fences, Type::INT8_ARRAY),
            (&places.changes, Type::INT4_ARRAY),
            (&places.keys, Type::TEXT_ARRAY),
            (&places.seqs, Type::INT8_ARRAY),
            (&number, Type::INT8),
            (&stamp, Type::INT8),
            (&fence, Type::INT8),
            (&line_attempts, Type::INT4_ARRAY),
            (&line_at, Type::TIMESTAMPTZ_ARRAY),
            (&line_levels, Type::TEXT_ARRAY),
            (&line_messages, Type::TEXT_ARRAY),
        ];
        let sent = jobs.params().into_iter().zip(NewJobs::types());
        let proved: [(&(dyn ToSql + Sync), Type); 3] =
            [(&relied_seq, Type::INT8), (&relied_id, Type::UUID), (&proof, Type::TEXT)];
        Param::all(own.into_iter().chain(sent).chain(proved))
    }
}
