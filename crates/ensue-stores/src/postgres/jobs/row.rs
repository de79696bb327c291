//! How is a job kept as a row?

use super::super::groups::known;
use super::super::types::Micros;
use super::unsaid::Unsaid;
use ensue_core::handling::OnExhausted;
use ensue_core::jobs::{Cause, Job, JobError, JobId, JobNumber, JobState, Settlement};
use ensue_core::{EventId, GroupName, Json, ObjectKey, Seq, StoreError, Topic};
use tokio_postgres::Row;
use uuid::Uuid;

/// How many bits of an id beside its time and its number are chance.
const CHANCE_BITS: u32 = 12;

/// A priority as it is kept: the highest is the smallest, and all of them are exact.
pub(super) fn rank_of(priority: u64) -> i64 {
    !(priority ^ (1 << 63)) as i64
}

/// Back from [`rank_of`].
fn priority_of(rank: i64) -> u64 {
    !(rank as u64) ^ (1 << 63)
}

/// A number as it is kept.
pub(in crate::postgres) fn number_of(id: JobId) -> i64 {
    // An id has 62 bits for it.
    id.number() as i64
}

/// What of an id is not its number: its milliseconds and its chance.
pub(in crate::postgres) fn stamp_of(id: JobId) -> i64 {
    let bits = (id.0.as_u128() >> 64) as u64;
    let (millis, chance) = (bits >> 16, bits & ((1 << CHANCE_BITS) - 1));
    ((millis << CHANCE_BITS) | chance) as i64
}

/// Back from both parts of an id.
pub(in super::super) fn id_of(stamp: i64, number: i64) -> JobId {
    let (millis, chance) = ((stamp >> CHANCE_BITS) as u128, (stamp & ((1 << CHANCE_BITS) - 1)) as u128);
    let high = ((millis & ((1 << 48) - 1)) << 16) | 0x7000 | chance;
    JobId(Uuid::from_u128((high << 64) | (1 << 63) | number as u128))
}

/// The state that a word stands for.
pub(super) fn state_of(word: &str) -> Result<JobState, StoreError> {
    known(word, JobState::parse)
}

/// The job in the columns from this one on; none if the first is null.
pub(super) fn job_at(row: &Row, first: usize) -> Result<Option<Job>, StoreError> {
    job_of_claim(row, first, None)
}

/// The same where a claim has answered it: null stands for what is known.
pub(super) fn job_of_claim(row: &Row, first: usize, unsaid: Option<&Unsaid<'_>>) -> Result<Option<Job>, StoreError> {
    let Some(number) = row.get::<_, Option<i64>>(first) else { return Ok(None) };
    let time = |index: usize| row.get::<_, Option<Micros>>(first + index).map(|at| at.0);
    let text = |index: usize| row.get::<_, Option<&str>>(first + index);
    let seq = row.get::<_, Option<i64>>(first + 11);
    let cause = seq.zip(text(25)).map(|(seq, topic)| Cause {
        seq: seq as Seq,
        prev: row.get::<_, Option<i64>>(first + 12).map(|prev| prev as Seq),
        id: EventId(row.get::<_, Option<Uuid>>(first + 13).unwrap_or_default()),
        topic: Topic::stored(topic),
    });
    let locked_at = time(7);
    // What is null and not unsaid is none, or amiss.
    let amiss = || StoreError::Engine(format!("job {number} lacks what every job has"));
    let flag = |index: usize, unsaid_is: bool| {
        let meant = || unsaid.map(|_| unsaid_is).ok_or_else(amiss);
        row.get::<_, Option<bool>>(first + index).map_or_else(meant, Ok)
    };
    let handler = match (text(21), unsaid) {
        (Some(handler), _) => GroupName::stored(handler),
        (None, unsaid) => unsaid.ok_or_else(amiss)?.handler.clone(),
    };
    let state = match (text(19), unsaid) {
        (Some(word), _) => state_of(word)?,
        (None, unsaid) => unsaid.map(|_| Unsaid::STATE).ok_or_else(amiss)?,
    };
    let on_exhausted = match (text(20), unsaid) {
        (Some(word), _) => known(word, OnExhausted::parse)?,
        (None, unsaid) => unsaid.map(|_| Unsaid::ON_EXHAUSTED).ok_or_else(amiss)?,
    };
    Ok(Some(Job {
        id: id_of(row.get(first + 1), number),
        handler,
        object: text(22).map(ObjectKey::stored),
        ordered: flag(16, Unsaid::ORDERED)?,
        payload: Json::stored(row.get::<_, String>(first + 26)),
        metadata: text(27).map_or_else(Json::empty_object, Json::stored),
        priority: priority_of(row.get(first + 2)),
        state,
        turn: row.get::<_, Option<i64>>(first + 3).map(|turn| turn as JobNumber),
        attempts: row.get::<_, i32>(first + 14) as u32,
        attempts_max: row.get::<_, i32>(first + 15) as u32,
        on_exhausted,
        not_before: time(6),
        enqueued_at: row.get::<_, Micros>(first + 5).0,
        locked_at,
        started_at: time(8).or(unsaid.and(locked_at)),
        finished_at: time(9),
        worker: text(24).or(unsaid.map(|unsaid| unsaid.worker)).map(str::to_owned),
        fence: row.get::<_, i64>(first + 4) as u64,
        lease_until: time(10).or_else(|| unsaid?.lease_until(locked_at?)),
        errors: errors_at(row, first + 29),
        unique_key: text(23).map(str::to_owned),
        cause,
        cancel_asked: flag(17, Unsaid::CANCEL_ASKED)?,
        redriven: flag(18, Unsaid::REDRIVEN)?,
        result: text(28).map(Json::stored),
        settled: Settlement::stored(state, text(32)),
    }))
}

/// The errors in three columns, one element of each for an error.
fn errors_at(row: &Row, first: usize) -> Vec<JobError> {
    let Some(attempts) = row.get::<_, Option<Vec<Option<i32>>>>(first) else { return Vec::new() };
    let times = row.get::<_, Option<Vec<Option<Micros>>>>(first + 1).unwrap_or_default();
    let texts = row.get::<_, Option<Vec<Option<String>>>>(first + 2).unwrap_or_default();
    // An error of which a part is missing was not written by us: it is left out.
    let error = |((attempt, at), error): ((Option<i32>, Option<Micros>), Option<String>)| {
        Some(JobError { attempt: attempt? as u32, at: at?.0, error: error? })
    };
    attempts.into_iter().zip(times).zip(texts).filter_map(error).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensue_core::Timestamp;

    /// H29: every u64 is exact, and the highest comes first.
    #[test]
    fn a_rank_is_its_priority_the_other_way_round() {
        let priorities = [u64::MAX, u64::MAX - 1, (1 << 63) + 1, 1 << 63, (1 << 63) - 1, (1 << 53) + 1, 1 << 53, 1, 0];
        let ranks = priorities.map(rank_of);
        assert!(ranks.is_sorted() && ranks[0] == i64::MIN && ranks[8] == i64::MAX, "{ranks:?}");
        assert_eq!(ranks.map(priority_of), priorities);
    }

    #[test]
    fn an_id_is_whole_again_from_its_two_parts() {
        for millis in [0, 1_763_200_000_123, 253_402_207_199_999] {
            for (chance, number) in [(0, 1), (0xFFF, (1 << 62) - 1), (0x123, 77)] {
                let id = JobId::new(Timestamp::from_millisecond(millis).unwrap(), chance, number);
                assert_eq!(id_of(stamp_of(id), number_of(id)), id);
                assert_eq!(stamp_of(id), (millis << 12) + i64::from(chance), "as the server makes it");
            }
        }
    }
}
