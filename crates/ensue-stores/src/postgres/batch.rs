//! What do many callers' entries look like to the append function, and what does its answer mean to each of them?

use super::asking::Ready;
use super::heads::Heads;
use super::id_parts;
use super::types::Micros;
use crate::room::Taken;
use ensue_core::{Appended, Entry, Event, EventId, Seq, StoreError, Timestamp};
use rand::RngCore;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;
use tokio::sync::oneshot;
use tokio_postgres::types::ToSql;
use tokio_postgres::{Client, Error, Row};
use uuid::Uuid;

/// An entry on its way, with what must stay the same however often it is sent.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub entry: Entry,
    /// The part of its id that is not its time.
    pub random: [u8; 10],
    /// Only an entry with a key needs one.
    pub fingerprint: Option<[u8; 32]>,
}

impl Outgoing {
    pub fn new(entry: Entry) -> Self {
        let fingerprint = entry.key.is_some().then(|| entry.fingerprint());
        let mut random = [0; 10];
        rand::rng().fill_bytes(&mut random);
        Self { entry, random, fingerprint }
    }

    /// What of its id is known before its time is.
    pub fn id_part(&self) -> Uuid {
        id_parts::part(EventId::new(Timestamp::UNIX_EPOCH, self.random))
    }
}

/// Where the answer to one of the caller's entries comes from: an entry with the same key may stand before it.
#[derive(Debug, Clone, Copy)]
struct Place {
    outgoing: usize,
    repeats: bool,
}

/// One caller's batch, waiting for its answer.
#[derive(Debug)]
pub(super) struct Call {
    pub outgoing: Vec<Outgoing>,
    /// One for each entry that the caller gave; none if they are the outgoing ones, one by one.
    places: Option<Vec<Place>>,
    /// When its caller came, to wait for room first.
    pub queued_at: Instant,
    pub bytes: usize,
    /// Given back when it is answered.
    _taken: Taken,
    reply: oneshot::Sender<Result<Vec<Appended>, StoreError>>,
}

/// What a caller waits for.
pub(super) type Reply = oneshot::Receiver<Result<Vec<Appended>, StoreError>>;

impl Call {
    /// Takes a caller's batch. Entries that repeat a key of the same batch are the same event, which was checked; they
    /// are not sent and have the first one's answer.
    pub fn new(batch: Vec<Entry>, queued_at: Instant, taken: Taken) -> (Self, Reply) {
        let bytes = batch.iter().map(Entry::bytes).sum();
        let has_keys = batch.iter().any(|entry| entry.key.is_some());
        let mut by_key = HashMap::new();
        let mut outgoing = Vec::with_capacity(batch.len());
        let mut places = Vec::new();
        for entry in batch {
            let earlier = entry.key.as_ref().and_then(|key| by_key.get(key).copied());
            if let (Some(key), None) = (&entry.key, earlier) {
                by_key.insert(key.clone(), outgoing.len());
            }
            if has_keys {
                places.push(Place { outgoing: earlier.unwrap_or(outgoing.len()), repeats: earlier.is_some() });
            }
            if earlier.is_none() {
                outgoing.push(Outgoing::new(entry));
            }
        }
        let (reply, receiver) = oneshot::channel();
        let places = has_keys.then_some(places);
        (Self { outgoing, places, queued_at, bytes, _taken: taken, reply }, receiver)
    }

    /// Has the caller left?
    pub fn is_left(&self) -> bool {
        self.reply.is_closed()
    }

    /// Answers the caller, who may be gone.
    pub fn answer(self, answers: Result<Vec<Appended>, StoreError>) {
        let spread = |answers: Vec<Appended>| match &self.places {
            None => answers,
            Some(places) => {
                let answer = |place: &Place| {
                    let first = answers[place.outgoing];
                    Appended { repeated: first.repeated || place.repeats, ..first }
                };
                places.iter().map(answer).collect()
            }
        };
        let _ = self.reply.send(answers.map(spread));
    }
}

/// The entries of many calls as parallel arrays. An array that would hold nothing is not sent.
pub(super) struct Columns<'a> {
    id_parts: Vec<Uuid>,
    /// The topic of all of them; else `topics` has them.
    topic: Option<&'a str>,
    topics: Option<Vec<&'a str>>,
    payloads: Vec<&'a str>,
    metadata: Option<Vec<Option<&'a str>>>,
    occurred_at: Option<Vec<Option<Micros>>>,
    to: Option<Vec<Option<Uuid>>>,
    objects: Option<Vec<Option<&'a str>>>,
    back: Option<Vec<Option<i32>>>,
    heads: Option<Vec<Option<i64>>>,
    /// Where they differ from `known_to`.
    heads_at: Option<Vec<Option<i64>>>,
    known_to: i64,
    callers: Option<Vec<i32>>,
    keys: Option<Vec<Option<&'a str>>>,
    fingerprints: Option<Vec<Option<&'a [u8]>>>,
    not_before: Option<Vec<Option<Micros>>>,
}

/// All of them, or none if all are none.
fn unless_empty<T>(column: impl Iterator<Item = Option<T>> + Clone) -> Option<Vec<Option<T>>> {
    column.clone().any(|value| value.is_some()).then(|| column.collect())
}

impl<'a> Columns<'a> {
    pub fn of(calls: &'a [Call], cache: &Heads) -> Self {
        let all = || calls.iter().flat_map(|call| &call.outgoing);
        let entries = || all().map(|outgoing| &outgoing.entry);
        let needs_callers = entries().any(|entry| entry.key.is_some() || entry.not_before.is_some());
        let first_topic = entries().next().map(|entry| entry.topic.as_str());
        let topic = first_topic.filter(|first| entries().all(|entry| entry.topic.as_str() == *first));
        let objects = unless_empty(entries().map(|entry| entry.object.as_ref().map(|o| o.as_str())));
        let (mut back, mut heads, mut heads_at) = (Vec::new(), Vec::new(), Vec::new());
        let mut known_to = i64::MAX;
        if let Some(objects) = &objects {
            let mut last_here: HashMap<&str, usize> = HashMap::with_capacity(objects.len());
            for (index, entry) in entries().enumerate() {
                // A direct message follows the chain of its object and is not part of it.
                let earlier = entry.object.as_ref().and_then(|object| match entry.to {
                    None => last_here.insert(object.as_str(), index),
                    Some(_) => last_here.get(object.as_str()).copied(),
                });
                let head = match earlier {
                    // With keys and delays, only the function knows whether the earlier one takes a place.
                    Some(_) if !needs_callers => None,
                    Some(_) | None => entry.object.as_ref().and_then(|object| cache.get(object)),
                };
                if earlier.is_none() && entry.object.is_some() {
                    known_to = known_to.min(head.map_or(0, |head| head.seen_to as i64));
                }
                back.push(earlier.map(|earlier| (index - earlier) as i32));
                heads.push(head.map(|head| head.seq as i64));
                heads_at.push(head.map(|head| head.seen_to as i64));
            }
        }
        let caller = |(number, call): (usize, &'a Call)| call.outgoing.iter().map(move |_| number as i32);
        Self {
            id_parts: all().map(Outgoing::id_part).collect(),
            topic,
            topics: topic.is_none().then(|| entries().map(|entry| entry.topic.as_str()).collect()),
            payloads: entries().map(|entry| entry.payload.as_str()).collect(),
            metadata: unless_empty(entries().map(|entry| Some(entry.metadata.as_str()).filter(|text| *text != "{}"))),
            occurred_at: unless_empty(entries().map(|entry| entry.occurred_at.map(Micros))),
            to: unless_empty(entries().map(|entry| entry.to)),
            objects,
            back: unless_empty(back.into_iter()),
            heads: unless_empty(heads.into_iter()),
            heads_at: heads_at.iter().flatten().any(|at| *at != known_to).then_some(heads_at),
            known_to,
            callers: needs_callers.then(|| calls.iter().enumerate().flat_map(caller).collect()),
            keys: unless_empty(entries().map(|entry| entry.key.as_ref().map(|key| key.as_str()))),
            fingerprints: unless_empty(all().map(|o| o.fingerprint.as_ref().map(|print| &print[..]))),
            not_before: unless_empty(entries().map(|entry| entry.not_before.map(Micros))),
        }
    }

    /// Calls the append function. `now` is the injected clock's time, `hint` a place that was the end of the log.
    pub async fn send(
        &self,
        client: &Client,
        append: &Ready,
        now: Option<Micros>,
        hint: i64,
        ring: bool,
    ) -> Result<Row, Error> {
        let params: [&(dyn ToSql + Sync); 19] = [
            &now,
            &hint,
            &self.id_parts,
            &self.topic,
            &self.topics,
            &self.payloads,
            &self.metadata,
            &self.occurred_at,
            &self.to,
            &self.objects,
            &self.back,
            &self.heads,
            &self.heads_at,
            &self.known_to,
            &self.callers,
            &self.keys,
            &self.fingerprints,
            &self.not_before,
            &ring,
        ];
        append.one(client, &params).await
    }
}

/// What the append function did.
pub(super) struct Outcome {
    /// The end of the log before.
    pub before: Seq,
    pub recorded_at: Timestamp,
    /// How many events entered the log.
    pub logged: u64,
    /// One for each call: its answers, or why it was left out.
    pub answers: Vec<Result<Vec<Appended>, StoreError>>,
    /// What became of each entry, in order, if it entered the log.
    entered: Vec<Option<Appended>>,
}

/// What is said of each entry when the batch had keys or delays.
struct Details {
    seqs: Vec<Option<i64>>,
    ids: Vec<Option<Uuid>>,
    conflicts: Vec<bool>,
}

impl Outcome {
    /// Reads the function's answer.
    pub fn read(row: &Row, columns: &Columns<'_>, calls: &[Call]) -> Result<Self, Error> {
        let before = row.try_get::<_, i64>(0)? as Seq;
        let recorded_at = row.try_get::<_, Micros>(1)?.0;
        let trimmed_to: i64 = row.try_get(2)?;
        let prevs: Option<Vec<Option<i64>>> = row.try_get(3)?;
        let seqs: Option<Vec<Option<i64>>> = row.try_get(4)?;
        let details = match seqs {
            None => None,
            Some(seqs) => Some(Details { seqs, ids: row.try_get(5)?, conflicts: row.try_get(6)? }),
        };
        // Told, or derived as the function derived it: from the entry before it, or from the head that was sent.
        let prev_of = |index: usize| match &prevs {
            Some(prevs) => prevs[index],
            None => match columns.back.as_ref().and_then(|back| back[index]) {
                Some(back) => Some(before as i64 + 1 + index as i64 - i64::from(back)),
                None => columns.heads.as_ref().and_then(|heads| heads[index]).filter(|head| *head > trimmed_to),
            },
        };
        let is_new = |index: usize| details.as_ref().is_none_or(|d| d.ids[index].is_none());
        let seq_of = |index: usize| match &details {
            None => Some(before + 1 + index as Seq),
            Some(details) => details.seqs[index].map(|seq| seq as Seq),
        };
        let count = calls.iter().map(|call| call.outgoing.len()).sum();
        let logged = (0..count).filter(|&index| is_new(index) && seq_of(index).is_some()).count() as u64;
        let mut entered = Vec::with_capacity(count);
        let mut answers = Vec::with_capacity(calls.len());
        let mut index = 0;
        for call in calls {
            let mut answer = Ok(Vec::with_capacity(call.outgoing.len()));
            for outgoing in &call.outgoing {
                let appended = Appended {
                    id: match details.as_ref().and_then(|details| details.ids[index]) {
                        Some(id) => EventId(id),
                        None => EventId::new(recorded_at, outgoing.random),
                    },
                    seq: seq_of(index),
                    prev: prev_of(index).map(|prev| prev as Seq),
                    repeated: !is_new(index),
                };
                entered.push(Some(appended).filter(|appended| appended.seq.is_some() && !appended.repeated));
                if let (Ok(list), Some(true)) = (&mut answer, details.as_ref().map(|details| details.conflicts[index]))
                {
                    list.clear();
                    let key = outgoing.entry.key.as_ref().map(ToString::to_string).unwrap_or_default();
                    answer = Err(StoreError::KeyConflict { key });
                }
                if let Ok(list) = &mut answer {
                    list.push(appended);
                }
                index += 1;
            }
            answers.push(answer);
        }
        Ok(Self { before, recorded_at, logged, answers, entered })
    }

    /// The events that entered the log, in order, made of what the calls had to send.
    pub fn events(&self, calls: &mut [Call]) -> Vec<Arc<Event>> {
        let outgoing = calls.iter_mut().flat_map(|call| std::mem::take(&mut call.outgoing));
        let event = |(outgoing, appended): (Outgoing, &Option<Appended>)| {
            let Appended { id, seq, prev, .. } = (*appended)?;
            Some(Arc::new(Event::of(outgoing.entry, id, seq?, prev, self.recorded_at)))
        };
        outgoing.zip(&self.entered).filter_map(event).collect()
    }
}
