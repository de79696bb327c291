//! How are successes written, of which there is nothing else to say?
//!
//! Where their claims have left them (`places.rs`), for many callers in one commit (`together.rs`, `sql/fn_jobs_succeed.sql`). If one of them is not found there, or somebody has its row for
//! longer than a moment, its caller goes on alone, under the same call: what was found has its mark.

use super::super::moving::Moving;
use super::super::read::place;
use super::super::server::Params;
use super::super::types::Place;
use super::call::Call;
use super::row::{number_of, stamp_of};
use super::together::Work;
use ensue_core::StoreError;
use ensue_core::jobs::Held;
use ensue_core::jobs::job::JOBS_MAX;
use std::collections::HashSet;
use std::sync::Arc;

/// What it takes to write successes.
pub(in super::super) struct Succeeding {
    pub moving: Arc<Moving>,
}

/// Jobs of one caller, and where they are.
pub(in super::super) type Successes = Vec<(Held, Place)>;

/// What became of the successes of one caller.
#[derive(Debug)]
pub(in super::super) enum Written {
    All,
    /// Not all are written, or that is not known; those that are have the mark of this call.
    Rest(Call),
}

impl Work for Succeeding {
    type Part = Successes;
    type Answer = Written;
    type Key = ();
    const DOING: &'static str = "jobs were settled";
    const COUNT_MAX: usize = JOBS_MAX;
    const BESIDE_FROM: usize = 1;

    fn key(_: &Successes) {}

    fn count(part: &Successes) -> usize {
        part.len()
    }

    fn bytes(part: &Successes) -> usize {
        size_of_val(part.as_slice())
    }

    async fn carry_out(&self, parts: &[Successes]) -> Result<Vec<Written>, StoreError> {
        let mut call = Call::new(Self::DOING);
        let mut all: Successes = parts.iter().flatten().copied().collect();
        // In the order in which rows are locked.
        all.sort_unstable_by_key(|(held, _)| number_of(held.id));
        let count = self.write(&mut call, &all).await?;
        if count == all.len() {
            return Ok(parts.iter().map(|_| Written::All).collect());
        }
        let written = if count == 0 { HashSet::new() } else { self.marked(&call, &all).await };
        let is_all = |part: &Successes| part.iter().all(|(held, _)| written.contains(&number_of(held.id)));
        Ok(parts.iter().map(|part| if is_all(part) { Written::All } else { Written::Rest(call.clone()) }).collect())
    }
}

impl Succeeding {
    /// Writes those that are where they were left, and answers how many these are. If somebody is in the way of one, none is.
    async fn write(&self, call: &mut Call, all: &Successes) -> Result<usize, StoreError> {
        let numbers: Vec<i64> = all.iter().map(|(held, _)| number_of(held.id)).collect();
        let stamps: Vec<i64> = all.iter().map(|(held, _)| stamp_of(held.id)).collect();
        let fences: Vec<i64> = all.iter().map(|(held, _)| place(held.fence)).collect();
        let places: Vec<Place> = all.iter().map(|(_, place)| *place).collect();
        let (now, id) = (self.moving.clock_time(), call.id);
        let params: Params<'_> = &[&now, &id, &places, &numbers, &stamps, &fences];
        let succeed = &self.moving.sql.jobs.succeed;
        let Some(rows) = call.until_answered_or_busy(&self.moving, succeed, params).await? else { return Ok(0) };
        let count = self.moving.server.one(rows)?.get::<_, i64>(0) as usize;
        if count > 0 {
            call.is_done_in_part();
        }
        Ok(count)
    }

    /// The numbers of those that were written. Who is not told of goes on by itself, and finds the mark.
    async fn marked(&self, call: &Call, all: &Successes) -> HashSet<i64> {
        let numbers: Vec<i64> = all.iter().map(|(held, _)| number_of(held.id)).collect();
        let rows = self.moving.server.query(&self.moving.sql.jobs.succeeded, &[&numbers, &call.id]).await;
        rows.unwrap_or_default().iter().map(|row| row.get(0)).collect()
    }
}
