//! Who of one entry wants the event?

use super::hash::{
    EventKeys, HashedMap, Key as KeptKey, KeyBytes, put, put_as_scalar, put_member, put_name, put_scalar,
};
use super::{Subscription, Want};
use crate::condition::eval::Evaluator;
use crate::condition::expr::Expr;
use crate::condition::guard::caught;
use crate::condition::json::{Node, Tree};
use crate::condition::list::{List, ListKind, Listed};
use crate::condition::meter::Meter;
use crate::condition::row::Row;
use crate::condition::terms::Key;
use crate::condition::{EventView, Failure, SubscriptionView, Value};
use std::collections::HashSet;
use std::collections::hash_map::Entry as MapEntry;
use std::hash::{BuildHasher, RandomState};

/// How many scalars of a subscription's side of `e.payload @> s.params` are keys. Where there are more, candidates are
/// evaluated.
const LEAVES_MAX: usize = 8;
/// Under how many of its list a subscription stands. One with more is evaluated for every event.
const LISTED_MAX: usize = 256;
/// How many bytes these keys have at most.
const LISTED_BYTES_MAX: usize = 128 << 10;
/// Steps to look a key up, beyond those to compute it.
const LOOKUP_STEPS: u32 = 32;
/// Steps to compare a candidate's key.
const CANDIDATE_STEPS: u32 = 4;

/// The place of a subscription in the index.
pub(super) type Slot = u32;

/// A way through objects, key by key.
type Way = Box<[Box<str>]>;

/// Subscriptions with one topic filter and one condition.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) want: Want,
    /// The form of its keys on the event's side, which other entries may share; none if its shapes differ in it.
    form: Option<usize>,
    /// Does a subscription stand in as many places as it has in a list?
    is_listed: bool,
    shapes: Vec<Shape>,
    /// Subscriptions whose key cannot be computed, or who have too many. They are evaluated for every event.
    unkeyed: Vec<Slot>,
    pub(super) count: usize,
}

/// Subscriptions whose params say something about the same places of the event.
#[derive(Debug, Clone)]
struct Shape {
    /// For each key of the kind `Leaves`, the places.
    ways: Vec<Vec<Way>>,
    /// Do the keys say all that the parts they come from say?
    exact: bool,
    buckets: HashedMap<Bucket>,
}

/// One under a hash, with its key if that is exact.
#[derive(Debug, Clone)]
struct Candidate {
    slot: Slot,
    key: KeptKey,
}

/// Those under one hash: almost always one.
#[derive(Debug, Clone)]
enum Bucket {
    One(Candidate),
    Many(Vec<Candidate>),
}

impl Bucket {
    fn candidates(&self) -> &[Candidate] {
        match self {
            Self::One(candidate) => std::slice::from_ref(candidate),
            Self::Many(candidates) => candidates,
        }
    }

    fn add(&mut self, candidate: Candidate) {
        match self {
            Self::One(_) => {
                if let Self::One(first) = std::mem::replace(self, Self::Many(Vec::with_capacity(2))) {
                    self.add(first);
                }
                self.add(candidate);
            }
            Self::Many(candidates) => candidates.push(candidate),
        }
    }

    /// Takes one out, and says whether that was the last.
    fn remove(&mut self, slot: Slot) -> bool {
        match self {
            Self::One(only) => only.slot == slot,
            Self::Many(candidates) => {
                candidates.retain(|other| other.slot != slot);
                candidates.is_empty()
            }
        }
    }
}

/// Where a subscription stands in its entry.
enum Standing {
    /// It can never match.
    Nowhere,
    /// It is evaluated for every event.
    Unkeyed,
    At(Places),
}

/// The places of a subscription, under one shape: a hash and a key for each.
struct Places {
    ways: Vec<Vec<Way>>,
    exact: bool,
    keys: Vec<(u64, KeptKey)>,
}

/// The keys of a list, each after `start`; none if there are too many.
fn listed(start: &KeyBytes, list: &List, row: Row<'_, '_, '_>) -> Result<Option<Vec<KeyBytes>>, Failure> {
    let (mut all, mut bytes_left) = (Vec::new(), Some(LISTED_BYTES_MAX));
    let is_all = list.each(row, LISTED_MAX, |listed| {
        let size = start.0.len() + listed.bytes();
        bytes_left = bytes_left.and_then(|left| left.checked_sub(size));
        if bytes_left.is_none() {
            return;
        }
        let mut bytes = KeyBytes(start.0.clone());
        match listed {
            Listed::Name(name) => put_name(&mut bytes, name),
            Listed::Scalar(scalar) => put_scalar(&mut bytes, scalar),
        }
        all.push(bytes);
    })?;
    Ok((is_all && bytes_left.is_some()).then_some(all))
}

/// The value of a part of a key. It fails only beyond its budget.
fn value<'a>(expr: &'a Expr, row: Row<'a, '_, '_>) -> Result<Value<'a>, Failure> {
    Evaluator::new(row).value(expr)
}

/// The value of a part of a key, all of whose bytes go into the key.
fn key_value<'a>(expr: &'a Expr, row: Row<'a, '_, '_>) -> Result<Value<'a>, Failure> {
    Evaluator::new(row).key(expr)
}

/// The value of a part of a key, of which scalars go into the key.
fn scalar_key<'a>(expr: &'a Expr, row: Row<'a, '_, '_>) -> Result<Value<'a>, Failure> {
    Evaluator::new(row).scalar_key(expr)
}

impl Entry {
    pub(super) fn new(want: Want, form: Option<usize>) -> Self {
        let is_listed = want.condition.terms().keys.iter().any(|key| matches!(key, Key::Listed { .. }));
        Self { want, form, is_listed, shapes: Vec::new(), unkeyed: Vec::new(), count: 0 }
    }

    /// Where a subscription goes.
    fn standing(&self, subscription: &Subscription, hashes: &RandomState) -> Standing {
        caught(|| self.places(subscription, hashes)).unwrap_or(Standing::Unkeyed)
    }

    /// It can never match if its side of an equality is NULL, or a list is empty.
    fn places(&self, subscription: &Subscription, hashes: &RandomState) -> Result<Standing, Failure> {
        let view = SubscriptionView::new(subscription.id, &subscription.group, &subscription.params);
        let row = Row { event: None, subscription: Some(&view) };
        let terms = self.want.condition.terms();
        let (mut bytes, mut exact) = (KeyBytes::default(), terms.keys_are_exact);
        let (mut all_ways, mut of_list) = (Vec::new(), None);
        for key in &terms.keys {
            match key {
                Key::Equal { event: _, subscription } => match key_value(subscription, row)? {
                    Value::Null => return Ok(Standing::Nowhere),
                    value => put(&mut bytes, &value),
                },
                Key::Member { event: _, whole, name } => match value(whole, row)? {
                    Value::Json(whole) => match whole.tree().field(name, &Meter::new())? {
                        Some(member) => put_member(&mut bytes, member),
                        None => return Ok(Standing::Nowhere),
                    },
                    _ => return Ok(Standing::Nowhere),
                },
                Key::Listed { event: _, list } => match listed(&bytes, list, row)? {
                    Some(keys) => of_list = Some(keys),
                    None => return Ok(Standing::Unkeyed),
                },
                Key::Leaves { event: _, part } => match value(part, row)? {
                    Value::Json(part) => {
                        let mut leaves = Vec::new();
                        exact &= collect(part.tree(), &mut Vec::new(), &mut leaves);
                        leaves.iter().for_each(|(_, leaf)| put_scalar(&mut bytes, *leaf));
                        all_ways.push(leaves.into_iter().map(|(way, _)| way).collect());
                    }
                    _ => return Ok(Standing::Nowhere),
                },
            }
        }
        let place = |bytes: KeyBytes| (hashes.hash_one(&bytes.0), KeptKey::new(if exact { &bytes.0 } else { &[] }));
        let mut keys: Vec<_> = of_list.unwrap_or_else(|| vec![bytes]).into_iter().map(place).collect();
        keys.sort_unstable_by(|one, other| (one.0, one.1.bytes()).cmp(&(other.0, other.1.bytes())));
        keys.dedup_by(|one, other| (one.0, one.1.bytes()) == (other.0, other.1.bytes()));
        if keys.is_empty() {
            return Ok(Standing::Nowhere);
        }
        Ok(Standing::At(Places { ways: all_ways, exact, keys }))
    }

    fn shape_at(&self, places: &Places) -> Option<usize> {
        self.shapes.iter().position(|shape| shape.exact == places.exact && shape.ways == places.ways)
    }

    pub(super) fn add(&mut self, slot: Slot, subscription: &Subscription, hashes: &RandomState) {
        self.count += 1;
        let places = match self.standing(subscription, hashes) {
            Standing::At(places) => places,
            Standing::Nowhere => return,
            Standing::Unkeyed => return self.unkeyed.push(slot),
        };
        let at = self.shape_at(&places).unwrap_or_else(|| {
            let (ways, buckets) = (places.ways, HashedMap::default());
            self.shapes.push(Shape { ways, exact: places.exact, buckets });
            self.shapes.len() - 1
        });
        for (hash, key) in places.keys {
            let candidate = Candidate { slot, key };
            match self.shapes[at].buckets.entry(hash) {
                MapEntry::Occupied(mut bucket) => bucket.get_mut().add(candidate),
                MapEntry::Vacant(bucket) => {
                    bucket.insert(Bucket::One(candidate));
                }
            }
        }
    }

    pub(super) fn remove(&mut self, slot: Slot, subscription: &Subscription, hashes: &RandomState) {
        self.count -= 1;
        let places = match self.standing(subscription, hashes) {
            Standing::At(places) => places,
            Standing::Nowhere => return,
            Standing::Unkeyed => return self.unkeyed.retain(|other| *other != slot),
        };
        let Some(at) = self.shape_at(&places) else { return };
        let buckets = &mut self.shapes[at].buckets;
        for (hash, _) in places.keys {
            if buckets.get_mut(&hash).is_some_and(|bucket| bucket.remove(slot)) {
                buckets.remove(&hash);
            }
        }
        if buckets.is_empty() {
            self.shapes.swap_remove(at);
        }
    }

    /// Writes the key under which those of a shape stand who may want the event; none if nobody does.
    fn key(&self, shape: &Shape, event: &EventView<'_>, bytes: &mut KeyBytes) -> Result<Option<()>, Failure> {
        let row = Row { event: Some(event), subscription: None };
        let mut ways = shape.ways.iter();
        for key in &self.want.condition.terms().keys {
            match key {
                Key::Equal { event, subscription: _ } => match key_value(event, row)? {
                    Value::Null => return Ok(None),
                    value => put(bytes, &value),
                },
                Key::Member { event, whole: _, name: _ } => put_as_scalar(bytes, &scalar_key(event, row)?),
                Key::Listed { event, list } => match (scalar_key(event, row)?, list.kind) {
                    (Value::Null, ListKind::Names | ListKind::Parts) => return Ok(None),
                    (value, ListKind::Names | ListKind::Parts | ListKind::Elements) => put_as_scalar(bytes, &value),
                },
                Key::Leaves { event: whole, part: _ } => {
                    let Value::Json(whole) = value(whole, row)? else { return Ok(None) };
                    let Some(ways) = ways.next() else { return Ok(None) };
                    let meter = event.meter();
                    let written = put_leaves(bytes, whole.tree(), ways, &meter);
                    event.charge(&meter);
                    if written?.is_none() {
                        return Ok(None);
                    }
                }
            }
        }
        Ok(Some(()))
    }

    /// Tells `say` of everybody who wants the event, and of everybody whose condition failed on it. Stops when a quick view is
    /// exhausted.
    pub(super) fn matches<'i>(
        &self,
        event: &EventView<'_>,
        keys: &RandomState,
        event_keys: &mut EventKeys,
        subscription_at: impl Fn(Slot) -> Option<&'i Subscription>,
        mut say: impl FnMut(&'i Subscription, Result<(), Failure>),
    ) {
        let terms = self.want.condition.terms();
        // The same for all, so asked once, and only if there is a candidate.
        let mut of_event: Option<Result<bool, Failure>> = None;
        let mut ask = |slot: Slot, is_exact: bool| {
            let Some(subscription) = subscription_at(slot) else { return };
            let view = SubscriptionView::new(subscription.id, &subscription.group, &subscription.params);
            let row = Row { event: Some(event), subscription: Some(&view) };
            let mut ask_event = || {
                let row = Row { event: Some(event), subscription: None };
                of_event.get_or_insert_with(|| terms.of_event_hold(row)).clone()
            };
            let keyed = if is_exact { Ok(true) } else { terms.keyed_hold(row) };
            let answer = match keyed {
                Ok(true) => match ask_event() {
                    Ok(true) => terms.others_hold(row),
                    other => other,
                },
                other => other,
            };
            match answer {
                Ok(true) => say(subscription, Ok(())),
                Ok(false) => {}
                Err(failure) => say(subscription, Err(failure)),
            }
        };
        for shape in &self.shapes {
            if !event.spend(LOOKUP_STEPS) {
                return;
            }
            let write = |bytes: &mut KeyBytes| caught(|| self.key(shape, event, bytes));
            let key = match self.form {
                Some(form) => event_keys.get(form, keys, write),
                None => event_keys.once(keys, write),
            };
            match key {
                Ok(None) => {}
                Ok(Some((key, hash))) => {
                    let candidates = shape.buckets.get(&hash).map_or(&[][..], Bucket::candidates);
                    if !event.spend(u32::try_from(candidates.len()).unwrap_or(u32::MAX).saturating_mul(CANDIDATE_STEPS))
                    {
                        return;
                    }
                    for candidate in candidates {
                        if event.is_exhausted() {
                            return;
                        }
                        if !shape.exact || candidate.key.bytes() == key {
                            ask(candidate.slot, shape.exact);
                        }
                    }
                }
                // Without the key any of them may want it.
                Err(_) => {
                    let mut asked = HashSet::new();
                    for candidate in shape.buckets.values().flat_map(Bucket::candidates) {
                        if event.is_exhausted() {
                            return;
                        }
                        if !self.is_listed || asked.insert(candidate.slot) {
                            ask(candidate.slot, false);
                        }
                    }
                }
            }
        }
        for slot in &self.unkeyed {
            if event.is_exhausted() {
                return;
            }
            ask(*slot, false);
        }
    }
}

/// Adds the scalars of a value to which these ways lead, paid for with their bytes; none if it lacks one.
fn put_leaves(to: &mut KeyBytes, whole: Tree<'_>, ways: &[Way], meter: &Meter) -> Result<Option<()>, Failure> {
    for way in ways {
        let mut part = whole;
        for key in way {
            match part.field(key, meter)? {
                Some(field) => part = field,
                None => return Ok(None),
            }
        }
        if !part.head().is_scalar() {
            return Ok(None);
        }
        let there = to.0.len();
        put_scalar(to, part);
        meter.steps(to.0.len() - there)?;
    }
    Ok(Some(()))
}

/// The scalars of a value that are reached through objects alone, with the way to each. Says whether that is all there is.
fn collect<'n>(value: Tree<'n>, way: &mut Vec<Box<str>>, leaves: &mut Vec<(Way, Tree<'n>)>) -> bool {
    let mut all = matches!(value.head(), Node::Object { pairs: 1.., .. });
    for (key, part) in value.pairs() {
        if leaves.len() == LEAVES_MAX {
            return false;
        }
        way.push(key.into());
        if part.head().is_scalar() {
            leaves.push((way.clone().into(), part));
        } else {
            all &= collect(part, way, leaves);
        }
        way.pop();
    }
    all
}
