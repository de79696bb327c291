//! How does a worker write how an attempt ended?
//!
//! In one round trip and one commit for many (`sql/fn_jobs_settle.sql`). What has only succeeded is first ended where its claims have left it (`succeed.rs`); if
//! some are not there, a second commit under the same call finds them by number. Where each end leads is decided here, for both cases:
//! that its cancellation was asked for, and that it was not. An end alone leaves the mark of its call in its row; whatever
//! says, publishes or sends more has its answer kept. So a settlement whose answer was lost is sent again, and done once.

use super::super::PostgresStore;
use super::super::read::place;
use super::super::settle::refusal;
use super::super::settle_columns::Events;
use super::super::settle_events::Publishing;
use super::super::types::Micros;
use super::call::Call;
use super::columns::NewJobs;
use super::row::{number_of, stamp_of, state_of};
use super::send::{self, enqueued};
use super::succeed::{Succeeding, Written};
use super::together::Work as _;
use ensue_core::jobs::lifecycle::{Arrow, after};
use ensue_core::jobs::{Enqueued, Held, JobChange, JobEnd, JobLine, JobSettled, JobState};
use ensue_core::text::plain;
use ensue_core::{Json, StoreError, Timestamp};
use std::borrow::Cow;
use std::collections::HashSet;
use tokio_postgres::Row;
use tokio_postgres::types::ToSql;

/// Ends as parallel arrays. One that would hold nothing is not sent.
struct Ends<'a> {
    /// None for one that comes after another of the same job: that one ends it.
    numbers: Vec<Option<i64>>,
    stamps: Vec<i64>,
    fences: Vec<i64>,
    states: Vec<&'static str>,
    asked: Option<Vec<&'static str>>,
    gives_back: Option<Vec<bool>>,
    lapsed: Option<Vec<bool>>,
    not_before: Option<Vec<Option<Micros>>>,
    errors: Option<Vec<Option<Cow<'a, str>>>>,
    results: Option<Vec<Option<&'a str>>>,
}

/// Where an end leads.
fn state_after(end: &JobEnd, cancel_asked: bool) -> &'static str {
    match after(JobState::Running, end.input(cancel_asked)) {
        Arrow::To(state) => state.as_str(),
        // Every end of a running job leads to a state.
        Arrow::Signal | Arrow::LetGo | Arrow::Refused(_) => JobState::Running.as_str(),
    }
}

/// Does it hold only if the lease has passed?
fn is_lapsed(end: &JobEnd) -> bool {
    !end.may_end(Some(Timestamp::MAX), Timestamp::MIN)
}

impl<'a> Ends<'a> {
    fn of(changes: &'a [JobChange], refused: &[Option<StoreError>]) -> Self {
        let ends = || changes.iter().map(|change| &change.end);
        let mut ended = HashSet::new();
        let number = |(change, refused): (&JobChange, &Option<StoreError>)| {
            let key = (change.held.id, change.held.fence);
            let is_first = !ended.contains(&key);
            // What is refused ends nothing.
            if refused.is_none() {
                ended.insert(key);
            }
            is_first.then(|| number_of(change.held.id))
        };
        let is_done = |end: &JobEnd| *end == JobEnd::Succeeded;
        Self {
            numbers: changes.iter().zip(refused).map(number).collect(),
            stamps: changes.iter().map(|change| stamp_of(change.held.id)).collect(),
            fences: changes.iter().map(|change| place(change.held.fence)).collect(),
            states: ends().map(|end| state_after(end, false)).collect(),
            asked: (!ends().all(is_done)).then(|| ends().map(|end| state_after(end, true)).collect()),
            gives_back: ends().any(|end| !end.uses_attempt()).then(|| ends().map(|end| !end.uses_attempt()).collect()),
            lapsed: ends().any(is_lapsed).then(|| ends().map(is_lapsed).collect()),
            not_before: ends()
                .any(|end| end.not_before().is_some())
                .then(|| ends().map(|end| end.not_before().map(Micros)).collect()),
            errors: ends().any(|end| end.error().is_some()).then(|| ends().map(|end| end.error().map(plain)).collect()),
            results: changes.iter().any(|change| change.result.is_some()).then(|| {
                let result = |change: &'a JobChange| change.result.as_ref().filter(|_| is_done(&change.end));
                changes.iter().map(|change| result(change).map(Json::as_str)).collect()
            }),
        }
    }

    fn params(&self) -> [&(dyn ToSql + Sync); 10] {
        let Self { numbers, stamps, fences, states, asked, gives_back, lapsed, not_before, errors, results } = self;
        [numbers, stamps, fences, states, asked, gives_back, lapsed, not_before, errors, results]
    }
}

/// Lines as parallel arrays, each with the number of its change, from 1.
#[derive(Default)]
struct Lines<'a> {
    changes: Option<Vec<i32>>,
    attempts: Vec<i32>,
    at: Vec<Micros>,
    levels: Vec<&'static str>,
    messages: Vec<Cow<'a, str>>,
}

impl<'a> Lines<'a> {
    fn push(&mut self, change: i32, line: &'a JobLine) {
        self.changes.get_or_insert_default().push(change);
        self.attempts.push(i32::try_from(line.attempt).unwrap_or(i32::MAX));
        self.at.push(Micros(line.at));
        self.levels.push(line.level.as_str());
        self.messages.push(plain(&line.message));
    }

    fn params(&self) -> [&(dyn ToSql + Sync); 5] {
        [&self.changes, &self.attempts, &self.at, &self.levels, &self.messages]
    }
}

impl PostgresStore {
    pub(super) async fn settle_attempts(&self, mut changes: Vec<JobChange>) -> Result<Vec<JobSettled>, StoreError> {
        let mut settled = Vec::with_capacity(changes.len());
        while !changes.is_empty() {
            let rest = changes.split_off(together(&changes));
            settled.extend(self.settle_together(changes).await?);
            changes = rest;
        }
        Ok(settled)
    }

    async fn settle_together(&self, mut changes: Vec<JobChange>) -> Result<Vec<JobSettled>, StoreError> {
        let places = self.places.take(changes.iter().map(|change| change.held));
        let call = match places.filter(|_| changes.iter().all(has_only_succeeded)) {
            None => Call::new(Succeeding::DOING),
            Some(places) => {
                match self.succeeding.join(changes.iter().map(|change| change.held).zip(places).collect()).await? {
                    Written::All => {
                        let done =
                            || JobSettled::Done { state: JobState::Succeeded, events: Vec::new(), jobs: Vec::new() };
                        return Ok(changes.iter().map(|_| done()).collect());
                    }
                    Written::Rest(call) => call,
                }
            }
        };
        let mut refused = Vec::with_capacity(changes.len());
        for change in &changes {
            refused.push(self.refusal_of(change).await?);
        }
        let mut publishing = Publishing::of(self, changes.iter_mut().map(|change| &mut change.events)).await?;
        // What cannot be sent is not published either.
        for (wave, refused) in publishing.waves.iter_mut().zip(&refused) {
            *wave = if refused.is_some() { 0 } else { *wave };
        }
        let row = self.send_ends(call, &changes, &refused, &publishing).await?;
        self.moving.log_grew(&row, row.get(2));
        if let Some(handlers) = row.get::<_, Option<Vec<&str>>>(13) {
            self.looks.appeared(&handlers, &row.get::<_, Vec<i64>>(14), &row.get::<_, Vec<i64>>(15));
        }
        let states: Vec<&str> = row.get(0);
        let reasons: Option<Vec<Option<&str>>> = row.get(1);
        let job_states: Vec<Option<&str>> = row.get(8);
        let mut answers = publishing.answers(&row, &states).await;
        let mut sent = sent_by(&changes, enqueued(&row, 9)?);
        let settled = |index: usize| match (states[index], refused[index].take(), answers[index].take()) {
            ("lost", ..) => Ok(JobSettled::LeaseLost),
            ("invalid", ..) => Ok(JobSettled::Refused(refusal(&reasons, index))),
            ("done" | "key", Some(error), _) | ("done" | "key", None, Some(Err(error))) => {
                Ok(JobSettled::Refused(error))
            }
            ("done", None, events) => {
                let state = job_states[index].ok_or_else(|| self.unanswered("the state of a job"))?;
                let events = events.transpose()?.unwrap_or_default();
                Ok(JobSettled::Done { state: state_of(state)?, events, jobs: std::mem::take(&mut sent[index]) })
            }
            (other, ..) => Err(StoreError::Engine(format!("a settlement was answered with `{other}`"))),
        };
        (0..changes.len()).map(settled).collect()
    }

    /// Why what it sends cannot be sent. What it publishes comes first: if that is refused too, that is told.
    async fn refusal_of(&self, change: &JobChange) -> Result<Option<StoreError>, StoreError> {
        let Some(refusal) = bad_jobs(change) else { return Ok(None) };
        Ok(Some(self.any_conflict(&change.events).await?.unwrap_or(refusal)))
    }

    fn unanswered(&self, what: &str) -> StoreError {
        StoreError::Engine(format!("Postgres at {}: {what} was not answered", self.server.place))
    }

    async fn send_ends(
        &self,
        mut call: Call,
        changes: &[JobChange],
        refused: &[Option<StoreError>],
        publishing: &Publishing,
    ) -> Result<Row, StoreError> {
        let ends = Ends::of(changes, refused);
        let mut lines = Lines::default();
        for (change, number) in changes.iter().zip(1..) {
            change.lines.iter().for_each(|line| lines.push(number, line));
        }
        let events = Events::of(publishing);
        let jobs = NewJobs::of(changes.iter().flat_map(|change| &change.jobs));
        let job_changes: Vec<i32> =
            (1..).zip(changes).flat_map(|(n, change)| change.jobs.iter().map(move |_| n)).collect();
        let has_jobs = !job_changes.is_empty();
        let job_changes = has_jobs.then_some(job_changes);
        let may_be_refused = has_jobs || events.are_some() || publishing.waves.contains(&0);
        let waves = may_be_refused.then_some(&publishing.waves);
        let steps = changes.len() > 1 && jobs.depend_on_others();
        let is_kept = may_be_refused || lines.changes.is_some();
        let (now, hint, id, lock) = (self.clock_time(), self.hint(), call.id, is_kept.then_some(call.lock));
        let ring = self.bell.has_others();
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&now, &hint, &id, &lock, &false, &steps];
        params.extend(ends.params());
        params.push(&waves);
        params.extend(lines.params());
        params.extend(events.params());
        params.push(&job_changes);
        params.extend(jobs.params());
        params.push(&ring);
        let rows = call.until_answered(&self.moving, &self.sql.jobs.settle, &params, Some(4)).await?;
        self.server.one(rows)
    }

    pub(super) async fn say_lines(&self, held: Held, said: &[JobLine]) -> Result<bool, StoreError> {
        let mut lines = Lines::default();
        said.iter().for_each(|line| lines.push(1, line));
        let (number, stamp, fence) = (number_of(held.id), stamp_of(held.id), place(held.fence));
        let mut call = Call::new("lines were written");
        let (id, lock) = (call.id, call.lock);
        let mut params: Vec<&(dyn ToSql + Sync)> = vec![&id, &lock, &number, &stamp, &fence];
        params.extend(&lines.params()[1..]);
        let rows = call.until_answered(&self.moving, &self.sql.jobs.say, &params, None).await?;
        Ok(self.server.one(rows)?.get(0))
    }
}

/// Is there nothing to be written of it but that it has succeeded?
fn has_only_succeeded(change: &JobChange) -> bool {
    let JobChange { held: _, end, result, lines, events, jobs } = change;
    *end == JobEnd::Succeeded && result.is_none() && lines.is_empty() && events.is_empty() && jobs.is_empty()
}

/// Why the jobs of a change cannot be taken.
fn bad_jobs(change: &JobChange) -> Option<StoreError> {
    if change.jobs.is_empty() { None } else { send::check(&change.jobs).err() }
}

/// How many of these go in one commit: all of them, up to one whose job is ended by another before it that may not hold,
/// or whose refusal depends on what those before it publish.
fn together(changes: &[JobChange]) -> usize {
    let mut open = HashSet::new();
    let mut is_first = |change: &&JobChange| {
        let key = (change.held.id, change.held.fence);
        let is_behind = open.contains(&key);
        if !change.events.is_empty() || is_lapsed(&change.end) {
            open.insert(key);
        }
        !is_behind
    };
    let count = changes.iter().take_while(|change| is_first(change)).count();
    let depends = |change: &JobChange| !change.events.is_empty() && bad_jobs(change).is_some();
    changes[..count].iter().skip(1).position(depends).map_or(count, |before| before + 1)
}

/// What each change has sent.
fn sent_by(changes: &[JobChange], all: Vec<Option<Enqueued>>) -> Vec<Vec<Enqueued>> {
    let mut all = all.into_iter();
    changes.iter().map(|change| all.by_ref().take(change.jobs.len()).flatten().collect()).collect()
}
