//! What do new jobs look like to the functions that make them?

use super::super::read::place;
use super::super::types::Micros;
use super::row::rank_of;
use ensue_core::handling::OnExhausted;
use ensue_core::jobs::NewJob;
use tokio_postgres::types::{ToSql, Type};
use uuid::Uuid;

/// New jobs as parallel arrays. One that would hold nothing but nulls or defaults is not sent.
#[derive(Default)]
pub(in crate::postgres) struct NewJobs<'a> {
    chances: Vec<i32>,
    handlers: Vec<&'a str>,
    objects: Option<Vec<Option<&'a str>>>,
    ordered: Option<Vec<bool>>,
    payloads: Vec<&'a str>,
    metadata: Option<Vec<Option<&'a str>>>,
    ranks: Vec<i64>,
    not_before: Option<Vec<Option<Micros>>>,
    keys: Option<Vec<Option<&'a str>>>,
    attempts_max: Vec<i32>,
    exhausted: Option<Vec<&'static str>>,
    event_seqs: Option<Vec<Option<i64>>>,
    event_prevs: Option<Vec<Option<i64>>>,
    event_ids: Option<Vec<Option<Uuid>>>,
    event_topics: Option<Vec<Option<&'a str>>>,
}

/// The bits of an id that tell it from one with the same number and time of another store.
pub(super) fn chance() -> i32 {
    i32::from(rand::random::<u16>() & 0x0FFF)
}

/// How often a job is attempted, as it is stored.
pub(super) fn attempts_of(job: &NewJob) -> i32 {
    i32::try_from(job.attempts_max).unwrap_or(i32::MAX)
}

/// All of them, or none if all are none.
fn unless_empty<T>(column: impl Iterator<Item = Option<T>> + Clone) -> Option<Vec<Option<T>>> {
    column.clone().any(|value| value.is_some()).then(|| column.collect())
}

impl<'a> NewJobs<'a> {
    pub fn of(jobs: impl Iterator<Item = &'a NewJob> + Clone) -> Self {
        let all = || jobs.clone();
        let causes = || all().map(|job| job.cause.as_ref());
        Self {
            chances: all().map(|_| chance()).collect(),
            handlers: all().map(|job| job.handler.as_str()).collect(),
            objects: unless_empty(all().map(|job| job.object.as_ref().map(|object| object.as_str()))),
            ordered: all().any(|job| !job.ordered).then(|| all().map(|job| job.ordered).collect()),
            payloads: all().map(|job| job.payload.as_str()).collect(),
            metadata: unless_empty(all().map(|job| Some(job.metadata.as_str()).filter(|text| *text != "{}"))),
            ranks: all().map(|job| rank_of(job.priority)).collect(),
            not_before: unless_empty(all().map(|job| job.not_before.map(Micros))),
            keys: unless_empty(all().map(|job| job.unique_key.as_deref())),
            attempts_max: all().map(attempts_of).collect(),
            exhausted: all()
                .any(|job| job.on_exhausted != OnExhausted::Hold)
                .then(|| all().map(|job| job.on_exhausted.as_str()).collect()),
            event_seqs: unless_empty(causes().map(|cause| cause.map(|cause| place(cause.seq)))),
            event_prevs: unless_empty(causes().map(|cause| cause.and_then(|cause| cause.prev).map(place))),
            event_ids: unless_empty(causes().map(|cause| cause.map(|cause| cause.id.0))),
            event_topics: unless_empty(causes().map(|cause| cause.map(|cause| cause.topic.as_str()))),
        }
    }

    /// May one of them be behind another, or be there already?
    pub fn depend_on_others(&self) -> bool {
        self.objects.is_some() || self.keys.is_some()
    }

    /// In the order of `jobs_insert`.
    pub fn params(&self) -> [&(dyn ToSql + Sync); 15] {
        [
            &self.chances,
            &self.handlers,
            &self.objects,
            &self.ordered,
            &self.payloads,
            &self.metadata,
            &self.ranks,
            &self.not_before,
            &self.keys,
            &self.attempts_max,
            &self.exhausted,
            &self.event_seqs,
            &self.event_prevs,
            &self.event_ids,
            &self.event_topics,
        ]
    }

    /// The types of those.
    pub fn types() -> [Type; 15] {
        [
            Type::INT4_ARRAY,
            Type::TEXT_ARRAY,
            Type::TEXT_ARRAY,
            Type::BOOL_ARRAY,
            Type::TEXT_ARRAY,
            Type::TEXT_ARRAY,
            Type::INT8_ARRAY,
            Type::TIMESTAMPTZ_ARRAY,
            Type::TEXT_ARRAY,
            Type::INT4_ARRAY,
            Type::TEXT_ARRAY,
            Type::INT8_ARRAY,
            Type::INT8_ARRAY,
            Type::UUID_ARRAY,
            Type::TEXT_ARRAY,
        ]
    }
}
