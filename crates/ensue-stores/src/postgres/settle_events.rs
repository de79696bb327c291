//! Which events do owners publish when they settle, and what became of them?
//!
//! They take the way of an append in SQL (`sql/fn_settle_append.sql`), as one call for each change.

use super::PostgresStore;
use super::batch::{Call, Outgoing, Reply};
use super::types::Micros;
use crate::room::Room;
use ensue_core::{Appended, Entry, EventId, IdempotencyKey, Seq, StoreError, plan};
use std::collections::HashMap;
use std::time::Instant;
use tokio_postgres::Row;
use uuid::Uuid;

/// What one change publishes.
enum Published {
    Nothing,
    /// Sent with the others.
    Sent(Call, Reply),
    /// Its events are in conflict with each other, and are not sent.
    Refused(StoreError),
}

/// What all changes of a settlement publish: one for each.
pub(super) struct Publishing {
    changes: Vec<Published>,
    /// In which wave each goes, from 1; 0 if it is refused.
    pub waves: Vec<i32>,
}

impl Publishing {
    /// Takes the events out of the changes.
    pub async fn of(store: &PostgresStore, changes: impl Iterator<Item = &mut Vec<Entry>>) -> Result<Self, StoreError> {
        let mut published = Vec::with_capacity(changes.size_hint().0);
        for change in changes {
            let events = std::mem::take(change);
            published.push(if events.is_empty() {
                Published::Nothing
            } else if plan::check_keys_within(&events).is_err() {
                Published::Refused(store.first_conflict(&events).await?)
            } else {
                // It does not stand in the writer's queue, so it takes none of its room.
                let taken = Room::default().take(&events).await;
                let (call, reply) = Call::new(events, Instant::now(), taken);
                Published::Sent(call, reply)
            });
        }
        let waves = waves_of(&published);
        Ok(Self { changes: published, waves })
    }

    /// Nothing of this change is to be written, for this reason.
    pub fn refuse(&mut self, index: usize, error: StoreError) {
        (self.changes[index], self.waves[index]) = (Published::Refused(error), 0);
    }

    /// The events that are sent, each with the number of its change, from 1.
    pub fn outgoing(&self) -> impl Iterator<Item = (i32, &Outgoing)> {
        let numbered = self.changes.iter().zip(1..);
        numbered.flat_map(|(change, number)| change.outgoing().iter().map(move |outgoing| (number, outgoing)))
    }

    /// What became of the events of each change whose fence held; none where there were none.
    pub async fn answers(self, row: &Row, states: &[&str]) -> Vec<Option<Result<Vec<Appended>, StoreError>>> {
        let stored = Stored::of(row);
        let mut answers = Vec::with_capacity(self.changes.len());
        let mut begin = 0;
        for (change, state) in self.changes.into_iter().zip(states) {
            answers.push(match change {
                Published::Nothing => None,
                Published::Refused(error) => Some(Err(error)),
                Published::Sent(call, reply) => {
                    let count = call.outgoing.len();
                    let answer = match *state {
                        "done" | "key" => Some(stored.answer(&call.outgoing, begin)),
                        // Nothing of it was stored: there is nothing to give out to its entries.
                        _ => None,
                    };
                    begin += count;
                    match answer {
                        Some(answer) => {
                            call.answer(answer);
                            reply.await.ok()
                        }
                        None => None,
                    }
                }
            });
        }
        answers
    }
}

impl Published {
    fn outgoing(&self) -> &[Outgoing] {
        match self {
            Self::Sent(call, _) => &call.outgoing,
            Self::Nothing | Self::Refused(_) => &[],
        }
    }
}

/// Two changes with the same key are not appended at once: the second needs to see the first.
fn waves_of(changes: &[Published]) -> Vec<i32> {
    let mut last_wave_of: HashMap<IdempotencyKey, i32> = HashMap::new();
    let wave = |change: &Published| {
        if matches!(change, Published::Refused(_)) {
            return 0;
        }
        let keys = || change.outgoing().iter().filter_map(|outgoing| outgoing.entry.key.as_ref());
        let wave = keys().filter_map(|key| last_wave_of.get(key)).max().copied().unwrap_or(0) + 1;
        last_wave_of.extend(keys().map(|key| (key.clone(), wave)));
        wave
    };
    changes.iter().map(wave).collect()
}

/// What is told of each event that was sent.
#[derive(Default)]
struct Stored {
    recorded_at: Vec<Option<Micros>>,
    seqs: Vec<Option<i64>>,
    prevs: Vec<Option<i64>>,
    /// Of those that were known by their keys.
    ids: Vec<Option<Uuid>>,
    conflicts: Vec<bool>,
}

impl Stored {
    fn of(row: &Row) -> Self {
        let Some(recorded_at) = row.get(3) else { return Self::default() };
        Self { recorded_at, seqs: row.get(4), prevs: row.get(5), ids: row.get(6), conflicts: row.get(7) }
    }

    /// The answer to a change whose events begin at this place.
    fn answer(&self, outgoing: &[Outgoing], begin: usize) -> Result<Vec<Appended>, StoreError> {
        let answer = |(index, outgoing): (usize, &Outgoing)| {
            if self.conflicts[index] {
                let key = outgoing.entry.key.as_ref().map(ToString::to_string).unwrap_or_default();
                return Err(StoreError::KeyConflict { key });
            }
            let (known, recorded_at) = (self.ids[index], self.recorded_at[index]);
            let id = known.map(EventId).or(recorded_at.map(|at| EventId::new(at.0, outgoing.random)));
            Ok(Appended {
                id: id.ok_or_else(|| StoreError::Engine("an event that was settled has no time".into()))?,
                seq: self.seqs[index].map(|seq| seq as Seq),
                prev: self.prevs[index].map(|prev| prev as Seq),
                repeated: known.is_some(),
            })
        };
        (begin..).zip(outgoing).map(answer).collect()
    }
}
