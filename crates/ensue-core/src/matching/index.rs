//! Which entries may want the event?
//!
//! An entry with a topic filter stands under its topic and is found by the event's topic and its parents; one whose
//! condition names the values of something (`e.topic = 'order.paid'`) stands under them; all others are always asked.

use super::entry::{Entry, Slot};
use super::hash::{EventKeys, HashedMap, KeyBytes, put};
use super::{Subscription, Want};
use crate::condition::eval::Evaluator;
use crate::condition::expr::Expr;
use crate::condition::guard::caught;
use crate::condition::row::Row;
use crate::condition::{EventView, Failure, Value};
use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use uuid::Uuid;

/// The place of an entry.
type EntrySlot = usize;

/// Everybody who wants events.
#[derive(Debug, Clone, Default)]
pub struct Index {
    /// What hashes are made with, so that nobody can choose params that fall together.
    keys: RandomState,
    stored: Vec<Option<Stored>>,
    free: Vec<Slot>,
    by_id: HashMap<Uuid, Slot>,
    entries: Vec<Option<Entry>>,
    /// The forms that keys have on the event's side, by number.
    forms: HashMap<String, usize>,
    by_want: HashMap<(Option<Box<str>>, Box<str>), EntrySlot>,
    by_topic: HashMap<Box<str>, Vec<EntrySlot>>,
    anchors: Vec<AnchorTable>,
    always: Vec<EntrySlot>,
}

#[derive(Debug, Clone)]
struct Stored {
    subscription: Subscription,
    entry: EntrySlot,
}

/// Entries by the values that their conditions want something of the event to have.
#[derive(Debug, Clone)]
struct AnchorTable {
    /// The expression as text: two with the same text are the same.
    name: String,
    event: Expr,
    by_value: HashedMap<Vec<EntrySlot>>,
}

/// Who wants an event, and whose condition failed on it.
#[derive(Debug, Default)]
pub struct Found<'i> {
    /// Those who want it.
    pub matched: Vec<&'i Subscription>,
    /// Those whose condition has no answer for it, with the reason. They do not get it; everybody else does.
    pub failed: Vec<(&'i Subscription, Failure)>,
    /// Room that is used again for the next event.
    keys: EventKeys,
}

impl Index {
    /// An index of nobody.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many subscriptions there are.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Is there nobody?
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// Adds a subscription; one with the same id is replaced.
    pub fn add(&mut self, want: &Want, subscription: Subscription) {
        self.remove(subscription.id);
        let entry = self.entry_of(want);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.stored.push(None);
            Slot::try_from(self.stored.len() - 1).expect("memory holds fewer than 2^32 subscriptions")
        });
        if let Some(entry) = &mut self.entries[entry] {
            entry.add(slot, &subscription, &self.keys);
        }
        self.by_id.insert(subscription.id, slot);
        self.stored[slot as usize] = Some(Stored { subscription, entry });
    }

    /// A subscription by its id.
    pub fn get(&self, id: Uuid) -> Option<&Subscription> {
        self.by_id.get(&id).and_then(|slot| self.subscription_at(*slot))
    }

    /// Takes a subscription out; none if it is not there.
    pub fn remove(&mut self, id: Uuid) -> Option<Subscription> {
        let slot = self.by_id.remove(&id)?;
        let Stored { subscription, entry: at } = self.stored[slot as usize].take()?;
        self.free.push(slot);
        let entry = self.entries[at].as_mut()?;
        entry.remove(slot, &subscription, &self.keys);
        if entry.count == 0
            && let Some(entry) = self.entries[at].take()
        {
            self.forget(at, &entry.want);
        }
        Some(subscription)
    }

    fn name_of(want: &Want) -> (Option<Box<str>>, Box<str>) {
        (want.topic.as_ref().map(|topic| topic.as_str().into()), want.condition.source().into())
    }

    fn entry_of(&mut self, want: &Want) -> EntrySlot {
        if let Some(at) = self.by_want.get(&Self::name_of(want)) {
            return *at;
        }
        let at = self.entries.iter().position(Option::is_none).unwrap_or_else(|| {
            self.entries.push(None);
            self.entries.len() - 1
        });
        let form = Entry::form_of(want).map(|form| {
            let next = self.forms.len();
            *self.forms.entry(form).or_insert(next)
        });
        self.entries[at] = Some(Entry::new(want.clone(), form));
        self.by_want.insert(Self::name_of(want), at);
        match (&want.topic, &want.condition.terms().anchor) {
            (Some(topic), _) => self.by_topic.entry(topic.as_str().into()).or_default().push(at),
            (None, Some(anchor)) => {
                let hashes = self.hashes(&anchor.values);
                let name = format!("{:?}", anchor.event);
                let table = match self.anchors.iter().position(|table| table.name == name) {
                    Some(table) => table,
                    None => {
                        let (event, by_value) = (anchor.event.clone(), HashedMap::default());
                        self.anchors.push(AnchorTable { name, event, by_value });
                        self.anchors.len() - 1
                    }
                };
                for hash in hashes {
                    self.anchors[table].by_value.entry(hash).or_default().push(at);
                }
            }
            (None, None) => self.always.push(at),
        }
        at
    }

    /// Takes an entry that nobody is in any more out of every list.
    fn forget(&mut self, at: EntrySlot, want: &Want) {
        self.by_want.remove(&Self::name_of(want));
        match (&want.topic, &want.condition.terms().anchor) {
            (Some(topic), _) => {
                if let Some(entries) = self.by_topic.get_mut(topic.as_str()) {
                    entries.retain(|other| *other != at);
                    if entries.is_empty() {
                        self.by_topic.remove(topic.as_str());
                    }
                }
            }
            (None, Some(anchor)) => {
                let hashes = self.hashes(&anchor.values);
                let name = format!("{:?}", anchor.event);
                if let Some(table) = self.anchors.iter_mut().find(|table| table.name == name) {
                    for hash in hashes {
                        if let Some(entries) = table.by_value.get_mut(&hash) {
                            entries.retain(|other| *other != at);
                            if entries.is_empty() {
                                table.by_value.remove(&hash);
                            }
                        }
                    }
                }
                self.anchors.retain(|table| !table.by_value.is_empty());
            }
            (None, None) => self.always.retain(|other| *other != at),
        }
    }

    fn hash(&self, value: &Value<'_>, bytes: &mut KeyBytes) -> u64 {
        bytes.0.clear();
        put(bytes, value);
        self.keys.hash_one(&bytes.0)
    }

    /// The hashes of some values, each once.
    fn hashes(&self, values: &[Value<'_>]) -> Vec<u64> {
        let mut bytes = KeyBytes::default();
        let mut hashes: Vec<u64> = values.iter().map(|value| self.hash(value, &mut bytes)).collect();
        hashes.sort_unstable();
        hashes.dedup();
        hashes
    }

    fn subscription_at(&self, slot: Slot) -> Option<&Subscription> {
        self.stored[slot as usize].as_ref().map(|stored| &stored.subscription)
    }

    /// Who wants the event. What `found` holds from an earlier event is cleared. An event that is sent `to` one subscription
    /// is for that one alone, whatever its condition.
    pub fn matches<'i>(&'i self, event: &EventView<'_>, found: &mut Found<'i>) {
        found.matched.clear();
        found.failed.clear();
        found.keys.next_event();
        if let Some(to) = event.event().to {
            found.matched.extend(self.get(to));
            return;
        }
        for at in &self.always {
            self.ask(*at, event, found);
        }
        for table in &self.anchors {
            let row = Row { event: Some(event), subscription: None };
            let write = |bytes: &mut KeyBytes| {
                caught(|| {
                    put(bytes, &Evaluator::new(row).key(&table.event)?);
                    Ok(Some(()))
                })
            };
            match found.keys.once(&self.keys, write) {
                Ok(None) => {}
                Ok(Some((_, hash))) => {
                    for at in table.by_value.get(&hash).into_iter().flatten() {
                        self.ask(*at, event, found);
                    }
                }
                // Without the value any of them may want it.
                Err(_) if event.is_exhausted() => return,
                Err(_) => {
                    for at in table.by_value.values().flatten().copied().collect::<BTreeSet<_>>() {
                        self.ask(at, event, found);
                    }
                }
            }
        }
        if self.by_topic.is_empty() {
            return;
        }
        let topic = event.event().topic.as_str();
        let ends = topic.match_indices('.').map(|(dot, _)| dot).chain([topic.len()]);
        for end in ends {
            for at in self.by_topic.get(&topic[..end]).into_iter().flatten() {
                self.ask(*at, event, found);
            }
        }
    }

    fn ask<'i>(&'i self, at: EntrySlot, event: &EventView<'_>, found: &mut Found<'i>) {
        if event.is_exhausted() {
            return;
        }
        let Some(entry) = &self.entries[at] else { return };
        let Found { matched, failed, keys } = found;
        let say = |subscription, answer| match answer {
            Ok(()) => matched.push(subscription),
            Err(failure) => failed.push((subscription, failure)),
        };
        entry.matches(event, &self.keys, keys, |slot| self.subscription_at(slot), say);
    }
}
