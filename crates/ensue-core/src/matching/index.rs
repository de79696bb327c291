//! Which entries may want the event?
//!
//! An entry with a topic filter stands under its topic and is found by the event's topic and its parents; one whose
//! condition names the values of something (`e.topic = 'order.paid'`) stands under them; all others are always asked.

use super::entry::{Entry, Slot};
use super::form::{Forms, form_of};
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
    forms: Forms,
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
        let form = form_of(want, &self.keys).map(|hash| self.forms.acquire(hash));
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
        if let Some(hash) = form_of(want, &self.keys) {
            self.forms.release(hash);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::Condition;
    use crate::event::Event;
    use crate::id::EventId;
    use crate::json::Json;
    use crate::key::Topic;
    use jiff::Timestamp;
    use std::sync::Arc;

    fn add(index: &mut Index, n: u128, source: &str, params: &str) {
        let want = Want { topic: None, condition: Arc::new(Condition::parse(source).unwrap()) };
        let params = Json::parse("params", params.to_owned()).unwrap();
        index.add(&want, Subscription { id: Uuid::from_u128(n), group: "g".into(), params });
    }

    fn event(topic: &str) -> Event {
        Event {
            seq: 1,
            prev: None,
            id: EventId(Uuid::nil()),
            topic: Topic::stored(topic),
            object: None,
            payload: Json::parse("payload", r#"{"n":1}"#.to_owned()).unwrap(),
            metadata: Json::empty_object(),
            occurred_at: Timestamp::UNIX_EPOCH,
            recorded_at: Timestamp::UNIX_EPOCH,
            to: None,
        }
    }

    #[test]
    fn index_keeps_nothing_of_forgotten_conditions() {
        let mut index = Index::new();
        add(&mut index, 1, "e.payload->'n' = s.params->'n'", r#"{"n":1}"#);
        add(&mut index, 2, "e.payload->'n' = s.params->'n' AND e.seq > 0", r#"{"n":1}"#);
        for n in 0..100_u128 {
            let names = [n, n + 1].map(|n| format!("e.payload->'k{n}' = s.params->'n'"));
            add(&mut index, 3 + n % 2, &names[0], r#"{"n":1}"#);
            add(&mut index, 5, &format!("{} AND e.payload->>'x{n}' = 'a'", names[1]), r#"{"n":1}"#);
            let event = event("a");
            let mut found = Found::default();
            index.matches(&EventView::new(&event), &mut found);
            assert_eq!(found.matched.len(), 2);
        }
        (3..=5).for_each(|n| assert!(index.remove(Uuid::from_u128(n)).is_some()));
        assert_eq!((index.forms.len(), index.by_want.len(), index.anchors.len()), (1, 2, 0));
        assert!(index.entries.len() <= 5 && index.stored.len() <= 5);
        assert!(index.forms.len() <= 4, "numbers of forms are used again");
        let event = event("a");
        let mut found = Found::default();
        index.matches(&EventView::new(&event), &mut found);
        assert_eq!(found.matched.len(), 2);
    }

    /// The planted panic is in [`EventView::payload`].
    #[test]
    fn panic_of_a_condition_is_its_failure_and_stops_no_other() {
        let mut index = Index::new();
        let costly = [
            ("e.payload->'n' = s.params->'n'", r#"{"n":1}"#),
            ("e.payload @> s.params", r#"{"n":1}"#),
            ("s.params @> jsonb_build_object('n', e.payload->>'n')", r#"{"n":"1"}"#),
            ("e.payload->>'n' = '1'", "{}"),
            ("(e.payload->>'n')::int > 0", "{}"),
            ("(e.payload->>'n')::int > (s.params->>'n')::int", r#"{"n":"0"}"#),
        ];
        for (n, (source, params)) in (0..).zip(costly) {
            add(&mut index, n, source, params);
        }
        add(&mut index, 100, "e.topic = s.params->>'t'", r#"{"t":"planted.panic"}"#);
        add(&mut index, 101, "true", "{}");
        let (event, mut found) = (event("planted.panic"), Found::default());
        for view in [EventView::new(&event), EventView::quick(&event)] {
            index.matches(&view, &mut found);
            let mut matched: Vec<u128> = found.matched.iter().map(|one| one.id.as_u128()).collect();
            matched.sort_unstable();
            assert_eq!(matched, [100, 101]);
            let mut failed: Vec<u128> = found.failed.iter().map(|(one, _)| one.id.as_u128()).collect();
            failed.sort_unstable();
            assert_eq!(failed, [0, 1, 2, 3, 4, 5]);
            assert!(found.failed.iter().all(|(_, failure)| *failure == Failure::Panicked));
        }
        let params = Json::empty_object();
        let alone = crate::condition::SubscriptionView::new(Uuid::nil(), "g", &params);
        let answer = Condition::parse(costly[4].0).unwrap().matches(&EventView::new(&event), &alone);
        assert_eq!(answer, Err(Failure::Panicked));
    }
}
