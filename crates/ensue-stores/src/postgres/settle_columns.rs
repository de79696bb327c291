//! What do changes of slots look like to the settle function?

use super::batch::Outgoing;
use super::jobs::columns::NewJobs;
use super::read::place;
use super::settle_events::Publishing;
use super::types::Micros;
use ensue_core::positions::{Delivery, EventAt, LaneChange, LogLine, SlotChange};
use ensue_core::text::plain;
use std::borrow::Cow;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

/// One after another.
type All<T> = Option<Vec<T>>;
/// A text that the server can keep.
type Text<'a> = Option<Cow<'a, str>>;

/// Changes as parallel arrays: first one element for each change, then for each lane, delivery, line, event and job, with the
/// number of its change, from 1. An array that would hold nothing is not sent.
#[derive(Default)]
pub(super) struct Columns<'a> {
    groups: Vec<&'a str>,
    slots: Vec<i32>,
    members: Vec<Uuid>,
    fences: Vec<i64>,
    cursors: Vec<Option<i64>>,
    relied: Relied,
    lost_from: All<Option<i64>>,
    lost_to: All<Option<i64>>,
    waves: Vec<i32>,
    lanes: Lanes<'a>,
    deliveries: Deliveries<'a>,
    lines: Lines<'a>,
    events: Events<'a>,
    job_changes: All<i32>,
    jobs: NewJobs<'a>,
}

/// The events that changes rely on; one that several in a row rely on is there once.
#[derive(Default)]
struct Relied {
    seqs: All<i64>,
    ids: Vec<Uuid>,
    /// Which of them, from 1, for each change.
    numbers: Vec<Option<i32>>,
}

#[derive(Default)]
struct Lanes<'a> {
    changes: All<i32>,
    keys: Vec<String>,
    /// None removes the lane.
    positions: Vec<Option<i64>>,
    states: Vec<Option<&'static str>>,
    attempts: Vec<Option<i64>>,
    not_before: Vec<Option<Micros>>,
    errors: Vec<Text<'a>>,
    redriven: Vec<Option<bool>>,
}

#[derive(Default)]
struct Deliveries<'a> {
    changes: All<i32>,
    seqs: Vec<i64>,
    objects: Vec<Option<&'a str>>,
    states: Vec<&'static str>,
    attempts: Vec<i64>,
    errors: Vec<Text<'a>>,
    started_at: Vec<Micros>,
    finished_at: Vec<Micros>,
}

#[derive(Default)]
struct Lines<'a> {
    changes: All<i32>,
    seqs: Vec<i64>,
    attempts: Vec<i64>,
    at: Vec<Micros>,
    levels: Vec<&'static str>,
    messages: Vec<Cow<'a, str>>,
}

/// What is published, by whichever changes.
#[derive(Default)]
pub(super) struct Events<'a> {
    changes: All<i32>,
    id_parts: Vec<Uuid>,
    topics: Vec<&'a str>,
    payloads: Vec<&'a str>,
    metadata: Vec<Option<&'a str>>,
    occurred_at: Vec<Option<Micros>>,
    to: Vec<Option<Uuid>>,
    objects: Vec<Option<&'a str>>,
    keys: Vec<Option<&'a str>>,
    fingerprints: Vec<Option<&'a [u8]>>,
    not_before: Vec<Option<Micros>>,
}

impl<'a> Columns<'a> {
    pub fn of(changes: &'a [SlotChange], publishing: &'a Publishing) -> Self {
        let mut columns = Self::default();
        for (change, number) in changes.iter().zip(1..) {
            columns.groups.push(change.group.as_str());
            columns.slots.push(i32::from(change.slot));
            columns.members.push(change.member);
            columns.fences.push(place(change.fence));
            columns.cursors.push(change.cursor.map(place));
            columns.relied.push(change.relies_on);
            change.lanes.iter().for_each(|lane| columns.lanes.push(number, lane));
            for delivery in &change.deliveries {
                columns.deliveries.push(number, delivery);
            }
            for line in &change.lines {
                columns.lines.push(number, line);
            }
        }
        if changes.iter().any(|change| change.lost.is_some()) {
            columns.lost_from = Some(changes.iter().map(|change| change.lost.map(|lost| place(lost.from))).collect());
            columns.lost_to = Some(changes.iter().map(|change| change.lost.map(|lost| place(lost.to))).collect());
        }
        columns.waves.clone_from(&publishing.waves);
        columns.events = Events::of(publishing);
        if changes.iter().any(|change| !change.jobs.is_empty()) {
            let numbered = changes.iter().zip(1..);
            columns.job_changes =
                Some(numbered.flat_map(|(change, number)| change.jobs.iter().map(move |_| number)).collect());
            columns.jobs = NewJobs::of(changes.iter().flat_map(|change| &change.jobs));
        }
        columns
    }

    /// Is it more than a checkpoint?
    pub fn must_not_be_done_twice(&self) -> bool {
        let Self { lanes, deliveries, lines, events, job_changes, .. } = self;
        [&lanes.changes, &deliveries.changes, &lines.changes, &events.changes, job_changes]
            .iter()
            .any(|changes| changes.is_some())
    }

    /// In the order of the settle function.
    pub fn params<'b>(
        &'b self,
        now: &'b Option<Micros>,
        hint: &'b i64,
        call: &'b Option<Uuid>,
    ) -> Vec<&'b (dyn ToSql + Sync)> {
        let Self { lanes, deliveries, lines, .. } = self;
        let mut params: Vec<&'b (dyn ToSql + Sync)> = vec![
            now,
            hint,
            call,
            &self.groups,
            &self.slots,
            &self.members,
            &self.fences,
            &self.cursors,
            &self.relied.seqs,
            &self.relied.ids,
            &self.relied.numbers,
            &self.lost_from,
            &self.lost_to,
            &self.waves,
            &lanes.changes,
            &lanes.keys,
            &lanes.positions,
            &lanes.states,
            &lanes.attempts,
            &lanes.not_before,
            &lanes.errors,
            &lanes.redriven,
            &deliveries.changes,
            &deliveries.seqs,
            &deliveries.objects,
            &deliveries.states,
            &deliveries.attempts,
            &deliveries.errors,
            &deliveries.started_at,
            &deliveries.finished_at,
            &lines.changes,
            &lines.seqs,
            &lines.attempts,
            &lines.at,
            &lines.levels,
            &lines.messages,
        ];
        params.extend(self.events.params());
        params.push(&self.job_changes);
        params.extend(self.jobs.params());
        params
    }
}

impl Relied {
    /// Changes come one handler after the other, and all of a handler rely on one event.
    fn push(&mut self, event: Option<EventAt>) {
        let Some(event) = event else { return self.numbers.push(None) };
        let seqs = self.seqs.get_or_insert_default();
        if (seqs.last(), self.ids.last()) != (Some(&place(event.seq)), Some(&event.id.0)) {
            seqs.push(place(event.seq));
            self.ids.push(event.id.0);
        }
        self.numbers.push(Some(seqs.len() as i32));
    }
}

impl<'a> Lanes<'a> {
    fn push(&mut self, number: i32, change: &'a LaneChange) {
        let (key, lane) = match change {
            LaneChange::Put(lane) => (&lane.key, Some(lane)),
            LaneChange::Remove(key) => (key, None),
        };
        self.changes.get_or_insert_default().push(number);
        self.keys.push(key.to_text());
        self.positions.push(lane.map(|lane| place(lane.position)));
        self.states.push(lane.map(|lane| lane.state.as_str()));
        self.attempts.push(lane.map(|lane| i64::from(lane.attempts)));
        self.not_before.push(lane.and_then(|lane| lane.not_before).map(Micros));
        self.errors.push(lane.and_then(|lane| lane.error.as_deref()).map(plain));
        self.redriven.push(lane.map(|lane| lane.redriven));
    }
}

impl<'a> Deliveries<'a> {
    fn push(&mut self, number: i32, delivery: &'a Delivery) {
        self.changes.get_or_insert_default().push(number);
        self.seqs.push(place(delivery.seq));
        self.objects.push(delivery.object.as_ref().map(|object| object.as_str()));
        self.states.push(delivery.state.as_str());
        self.attempts.push(i64::from(delivery.attempts));
        self.errors.push(delivery.error.as_deref().map(plain));
        self.started_at.push(Micros(delivery.started_at));
        self.finished_at.push(Micros(delivery.finished_at));
    }
}

impl<'a> Lines<'a> {
    fn push(&mut self, number: i32, line: &'a LogLine) {
        self.changes.get_or_insert_default().push(number);
        self.seqs.push(place(line.seq));
        self.attempts.push(i64::from(line.attempt));
        self.at.push(Micros(line.at));
        self.levels.push(line.level.as_str());
        self.messages.push(plain(&line.message));
    }
}

impl<'a> Events<'a> {
    pub fn of(publishing: &'a Publishing) -> Self {
        let mut events = Self::default();
        for (number, outgoing) in publishing.outgoing() {
            events.push(number, outgoing);
        }
        events
    }

    /// Are there any?
    pub fn are_some(&self) -> bool {
        self.changes.is_some()
    }

    pub fn id_parts(&self) -> &(dyn ToSql + Sync) {
        &self.id_parts
    }

    pub fn topics(&self) -> &(dyn ToSql + Sync) {
        &self.topics
    }

    pub fn payloads(&self) -> &(dyn ToSql + Sync) {
        &self.payloads
    }

    pub fn objects(&self) -> &(dyn ToSql + Sync) {
        &self.objects
    }

    /// In the order of the settle functions.
    pub fn params(&self) -> [&(dyn ToSql + Sync); 11] {
        [
            &self.changes,
            &self.id_parts,
            &self.topics,
            &self.payloads,
            &self.metadata,
            &self.occurred_at,
            &self.to,
            &self.objects,
            &self.keys,
            &self.fingerprints,
            &self.not_before,
        ]
    }

    fn push(&mut self, number: i32, outgoing: &'a Outgoing) {
        let entry = &outgoing.entry;
        self.changes.get_or_insert_default().push(number);
        self.id_parts.push(outgoing.id_part());
        self.topics.push(entry.topic.as_str());
        self.payloads.push(entry.payload.as_str());
        self.metadata.push(Some(entry.metadata.as_str()).filter(|text| *text != "{}"));
        self.occurred_at.push(entry.occurred_at.map(Micros));
        self.to.push(entry.to);
        self.objects.push(entry.object.as_ref().map(|object| object.as_str()));
        self.keys.push(entry.key.as_ref().map(|key| key.as_str()));
        self.fingerprints.push(outgoing.fingerprint.as_ref().map(|print| &print[..]));
        self.not_before.push(entry.not_before.map(Micros));
    }
}
