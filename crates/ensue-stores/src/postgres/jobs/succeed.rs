//! How are successes written, of which there is nothing else to say?
//!
//! Where their claims have left them (`places.rs`), for many callers in one commit (`together.rs`, `sql/fn_jobs_succeed.sql`). If one of them is not found there, or somebody has its row for
//! longer than a moment, all callers of that commit go on alone, under the same call: what was found has its mark.

use super::super::moving::Moving;
use super::super::read::place;
use super::super::server::Params;
use super::super::types::Place;
use super::call::Call;
use super::row::{number_of, stamp_of};
use super::together::Work;
use ensue_core::StoreError;
use ensue_core::jobs::Held;
use std::sync::Arc;

/// What it takes to write successes.
pub(in super::super) struct Succeeding {
    pub moving: Arc<Moving>,
}

/// Jobs of one caller, and where they are.
pub(in super::super) type Successes = Vec<(Held, Place)>;

/// What became of the commit that a caller's successes went in.
#[derive(Debug)]
pub(in super::super) enum Written {
    All,
    /// Not all are written; those that are, whoever's, have the mark of this call.
    Rest(Call),
}

impl Work for Succeeding {
    type Part = Successes;
    type Answer = Written;
    type Key = ();
    const DOING: &'static str = "jobs were settled";

    fn key(_: &Successes) {}

    fn count(part: &Successes) -> usize {
        part.len()
    }

    fn bytes(part: &Successes) -> usize {
        size_of_val(part.as_slice())
    }

    async fn carry_out(&self, parts: Vec<Successes>) -> Vec<Result<Written, StoreError>> {
        let callers = parts.len();
        let all: Successes = parts.into_iter().flatten().collect();
        let mut call = Call::new(Self::DOING);
        let answer = self.write(&mut call, all).await;
        let written = || match &answer {
            Ok(true) => Ok(Written::All),
            Ok(false) => Ok(Written::Rest(call.clone())),
            Err(error) => Err(error.clone()),
        };
        (0..callers).map(|_| written()).collect()
    }
}

impl Succeeding {
    /// Are all of them written? If somebody is in the way of one, none is.
    async fn write(&self, call: &mut Call, mut all: Successes) -> Result<bool, StoreError> {
        // In the order in which rows are locked.
        all.sort_unstable_by_key(|(held, _)| number_of(held.id));
        let numbers: Vec<i64> = all.iter().map(|(held, _)| number_of(held.id)).collect();
        let stamps: Vec<i64> = all.iter().map(|(held, _)| stamp_of(held.id)).collect();
        let fences: Vec<i64> = all.iter().map(|(held, _)| place(held.fence)).collect();
        let places: Vec<Place> = all.iter().map(|(_, place)| *place).collect();
        let (now, id) = (self.moving.clock_time(), call.id);
        let params: Params<'_> = &[&now, &id, &places, &numbers, &stamps, &fences];
        let succeed = &self.moving.sql.jobs.succeed;
        let Some(rows) = call.until_answered_or_busy(&self.moving, succeed, params).await? else {
            return Ok(false);
        };
        let count = self.moving.server.one(rows)?.get::<_, i64>(0) as usize;
        if count > 0 {
            call.is_done_in_part();
        }
        Ok(count == all.len())
    }
}
