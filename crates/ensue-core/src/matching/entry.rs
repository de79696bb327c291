//! Who of one entry wants the event?

use super::hash::{HashedMap, put, put_node};
use super::{Subscription, Want};
use crate::condition::eval::Evaluator;
use crate::condition::expr::Expr;
use crate::condition::json::{Node, field, of_plain, pairs};
use crate::condition::row::Row;
use crate::condition::terms::Key;
use crate::condition::{EventView, Failure, SubscriptionView, Value};
use std::hash::{BuildHasher, Hasher, RandomState};

/// How many scalars of a subscription's side of `e.payload @> s.params` are hashed. More narrow nothing further.
const LEAVES_MAX: usize = 4;

/// The place of a subscription in the index.
pub(super) type Slot = u32;

/// A way through objects, key by key.
type Way = Box<[Box<str>]>;

/// Subscriptions with one topic filter and one condition.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) want: Want,
    shapes: Vec<Shape>,
    pub(super) count: usize,
}

/// Subscriptions whose params say something about the same places of the event.
#[derive(Debug)]
struct Shape {
    /// For each key of the kind `Leaves`, the places.
    ways: Vec<Vec<Way>>,
    buckets: HashedMap<Bucket>,
}

/// Those under one hash: almost always one.
#[derive(Debug)]
enum Bucket {
    One(Slot),
    Many(Vec<Slot>),
}

impl Bucket {
    fn slots(&self) -> &[Slot] {
        match self {
            Self::One(slot) => std::slice::from_ref(slot),
            Self::Many(slots) => slots,
        }
    }

    fn add(&mut self, slot: Slot) {
        match self {
            Self::One(first) => *self = Self::Many(vec![*first, slot]),
            Self::Many(slots) => slots.push(slot),
        }
    }

    /// Takes one out, and says whether that was the last.
    fn remove(&mut self, slot: Slot) -> bool {
        match self {
            Self::One(only) => *only == slot,
            Self::Many(slots) => {
                slots.retain(|other| *other != slot);
                slots.is_empty()
            }
        }
    }
}

/// Where a subscription stands in its entry.
struct Place {
    ways: Vec<Vec<Way>>,
    hash: u64,
}

/// The value of a part of a key, which never fails. Beyond its budget it counts as unknown.
fn value<'a>(expr: &'a Expr, row: Row<'a, '_, '_>) -> Value<'a> {
    Evaluator::new(row).value(expr).unwrap_or(Value::Null)
}

impl Entry {
    pub(super) fn new(want: Want) -> Self {
        Self { want, shapes: Vec::new(), count: 0 }
    }

    /// Where a subscription goes; none if it can never match, because its side of an equality is NULL.
    fn place(&self, subscription: &Subscription, keys: &RandomState) -> Option<Place> {
        let view = SubscriptionView::new(subscription.id, &subscription.group, &subscription.params);
        let row = Row { event: None, subscription: Some(&view) };
        let mut hasher = keys.build_hasher();
        let mut all_ways = Vec::new();
        for key in &self.want.condition.terms().keys {
            match key {
                Key::Equal { event: _, subscription } => match value(subscription, row) {
                    Value::Null => return None,
                    value => put(&mut hasher, &value),
                },
                Key::Member { event: _, whole, name } => match value(whole, row) {
                    Value::Json(whole) => match field(&whole, name) {
                        Some([scalar]) if scalar.is_scalar() => put_node(&mut hasher, scalar),
                        Some(_) | None => return None,
                    },
                    _ => return None,
                },
                Key::Leaves { event: _, part } => match value(part, row) {
                    Value::Json(part) => {
                        let mut leaves = Vec::new();
                        collect(&part, &mut Vec::new(), &mut leaves);
                        leaves.iter().for_each(|(_, leaf)| put_node(&mut hasher, leaf));
                        all_ways.push(leaves.into_iter().map(|(way, _)| way).collect());
                    }
                    _ => return None,
                },
            }
        }
        Some(Place { ways: all_ways, hash: hasher.finish() })
    }

    pub(super) fn add(&mut self, slot: Slot, subscription: &Subscription, keys: &RandomState) {
        self.count += 1;
        let Some(place) = self.place(subscription, keys) else { return };
        let at = match self.shapes.iter().position(|shape| shape.ways == place.ways) {
            Some(at) => at,
            None => {
                self.shapes.push(Shape { ways: place.ways, buckets: HashedMap::default() });
                self.shapes.len() - 1
            }
        };
        self.shapes[at].buckets.entry(place.hash).and_modify(|bucket| bucket.add(slot)).or_insert(Bucket::One(slot));
    }

    pub(super) fn remove(&mut self, slot: Slot, subscription: &Subscription, keys: &RandomState) {
        self.count -= 1;
        let Some(place) = self.place(subscription, keys) else { return };
        let Some(at) = self.shapes.iter().position(|shape| shape.ways == place.ways) else { return };
        let buckets = &mut self.shapes[at].buckets;
        if buckets.get_mut(&place.hash).is_some_and(|bucket| bucket.remove(slot)) {
            buckets.remove(&place.hash);
        }
        if buckets.is_empty() {
            self.shapes.swap_remove(at);
        }
    }

    /// The hash under which those of a shape stand who may want the event; none if nobody does.
    fn hash(&self, shape: &Shape, event: &EventView<'_>, keys: &RandomState) -> Option<u64> {
        let row = Row { event: Some(event), subscription: None };
        let mut hasher = keys.build_hasher();
        let mut ways = shape.ways.iter();
        for key in &self.want.condition.terms().keys {
            match key {
                Key::Equal { event, subscription: _ } => match value(event, row) {
                    Value::Null => return None,
                    value => put(&mut hasher, &value),
                },
                Key::Member { event, whole: _, name: _ } => put_node(&mut hasher, &of_plain(&value(event, row))),
                Key::Leaves { event, part: _ } => {
                    let Value::Json(whole) = value(event, row) else { return None };
                    for way in ways.next()? {
                        match way.iter().try_fold(&*whole, |nodes, key| field(nodes, key))? {
                            [scalar] if scalar.is_scalar() => put_node(&mut hasher, scalar),
                            _ => return None,
                        }
                    }
                }
            }
        }
        Some(hasher.finish())
    }

    /// Tells `say` of everybody who wants the event, and of everybody whose condition failed on it.
    pub(super) fn matches<'i>(
        &self,
        event: &EventView<'_>,
        keys: &RandomState,
        subscription_at: impl Fn(Slot) -> Option<&'i Subscription>,
        mut say: impl FnMut(&'i Subscription, Result<(), Failure>),
    ) {
        let terms = self.want.condition.terms();
        // The same for all, so asked once, and only if there is a candidate.
        let mut of_event: Option<Result<bool, Failure>> = None;
        for shape in &self.shapes {
            let Some(bucket) = self.hash(shape, event, keys).and_then(|hash| shape.buckets.get(&hash)) else {
                continue;
            };
            for slot in bucket.slots() {
                let Some(subscription) = subscription_at(*slot) else { continue };
                let view = SubscriptionView::new(subscription.id, &subscription.group, &subscription.params);
                let row = Row { event: Some(event), subscription: Some(&view) };
                let mut ask_event = || {
                    let row = Row { event: Some(event), subscription: None };
                    of_event.get_or_insert_with(|| terms.of_event_hold(row)).clone()
                };
                let answer = if terms.are_of_event_alone() {
                    ask_event()
                } else {
                    match terms.keyed_hold(row) {
                        Ok(true) => match ask_event() {
                            Ok(true) => terms.others_hold(row),
                            other => other,
                        },
                        other => other,
                    }
                };
                match answer {
                    Ok(true) => say(subscription, Ok(())),
                    Ok(false) => {}
                    Err(failure) => say(subscription, Err(failure)),
                }
            }
        }
    }
}

/// The scalars of a value that are reached through objects alone, with the way to each.
fn collect<'n>(nodes: &'n [Node<'n>], way: &mut Vec<Box<str>>, leaves: &mut Vec<(Way, &'n Node<'n>)>) {
    for (key, value) in pairs(nodes) {
        if leaves.len() == LEAVES_MAX {
            return;
        }
        way.push(key.into());
        match &value[0] {
            scalar if scalar.is_scalar() => leaves.push((way.clone().into(), scalar)),
            _ => collect(value, way, leaves),
        }
        way.pop();
    }
}
