//! Which parts of a condition can an index look up?
//!
//! A condition is split at its AND. Of the parts, those that say that something of the event equals something of the
//! subscription become keys of a hash table; those about the event alone are evaluated once per event, however many
//! subscriptions share the condition; the rest is evaluated for each candidate. Only parts that cannot fail become
//! keys, so that an index never hides a failure that evaluating would show.

use super::eval::Evaluator;
use super::expr::{Arithmetic, Comparison, Expr, Function};
use super::failure::Failure;
use super::guard::caught;
use super::list::{List, ListKind};
use super::row::Row;
use super::types::{Scalar, Type};
use super::value::Value;
use std::sync::Arc;

/// The parts of a condition, in the order in which they are looked at.
#[derive(Debug, Clone)]
pub(crate) struct Terms {
    /// Parts that the keys come from.
    keyed: Vec<Expr>,
    /// What must be the same in event and subscription.
    pub(crate) keys: Vec<Key>,
    /// Do the parts hold wherever the keys are the same? (Of `Leaves`, the subscription's side has a say too.)
    pub(crate) keys_are_exact: bool,
    /// Parts about the event alone.
    of_event: Vec<Expr>,
    /// A part about the event alone that says which values it may have.
    pub(crate) anchor: Option<Anchor>,
    /// All other parts.
    others: Vec<Expr>,
}

/// Something of the event that must have one of some values, or the condition does not hold.
#[derive(Debug, Clone)]
pub(crate) struct Anchor {
    pub(crate) event: Expr,
    pub(crate) values: Vec<Value<'static>>,
}

/// What must be the same in event and subscription, or the condition does not hold.
#[derive(Debug, Clone)]
pub(crate) enum Key {
    /// `event = subscription`
    Equal { event: Expr, subscription: Expr },
    /// `whole @> jsonb_build_object(name, event)`: the scalars are equal, or both are arrays or
    /// objects. All keys of one part share its `whole`.
    Member { event: Expr, whole: Arc<Expr>, name: Box<str> },
    /// The value of the event, which is no jsonb, is one of a list. A condition has one such key at most, and it is the last.
    Listed { event: Expr, list: List },
    /// `event @> part`: every scalar that `part` has in its objects is at the same place in the event's side.
    Leaves { event: Expr, part: Expr },
}

/// Whose columns does an expression read?
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reads {
    Nothing,
    Event,
    Subscription,
    Both,
}

fn reads(expr: &Expr) -> Reads {
    let mut all = match expr {
        Expr::Column(column) if column.is_of_event() => Reads::Event,
        Expr::Column(_) => Reads::Subscription,
        _ => Reads::Nothing,
    };
    expr.for_each_part(&mut |part| {
        all = match (all, reads(part)) {
            (Reads::Nothing, other) | (other, Reads::Nothing) => other,
            (Reads::Event, Reads::Event) => Reads::Event,
            (Reads::Subscription, Reads::Subscription) => Reads::Subscription,
            (Reads::Both, _) | (_, Reads::Both) => Reads::Both,
            (Reads::Event, Reads::Subscription) | (Reads::Subscription, Reads::Event) => Reads::Both,
        }
    });
    all
}

/// Has it a value for every event and every subscription?
fn never_fails(expr: &Expr) -> bool {
    let itself = match expr {
        Expr::Constant(_) | Expr::Column(_) | Expr::Member { .. } | Expr::Path { .. } | Expr::Coalesce(_) => true,
        Expr::Cast { to, .. } => *to == Type::Scalar(Scalar::Text),
        Expr::Array(_) => true,
        Expr::Arithmetic { op: Arithmetic::Remainder, right, .. } => {
            matches!(**right, Expr::Constant(Value::Int4(divisor)) if divisor != 0)
        }
        Expr::Call { function, .. } => match function {
            Function::Lower | Function::Upper | Function::Hashtext | Function::TypeOf => true,
            Function::BuildArray | Function::ToJsonb => true,
            Function::Length | Function::StartsWith | Function::Abs => false,
            Function::BuildObject | Function::ArrayLength => false,
        },
        _ => false,
    };
    let mut parts = true;
    expr.for_each_part(&mut |part| parts &= never_fails(part));
    itself && parts
}

/// Is its value certainly no jsonb, so that it becomes a scalar inside one?
fn is_plain(expr: &Expr) -> bool {
    match expr {
        Expr::Column(column) => column.kind() != Scalar::Jsonb,
        Expr::Member { as_text, .. } | Expr::Path { as_text, .. } => *as_text,
        Expr::Cast { to, .. } => *to == Type::Scalar(Scalar::Text),
        Expr::Arithmetic { .. } => true,
        Expr::Call { function: Function::Lower | Function::Upper | Function::Hashtext, .. } => true,
        Expr::Constant(value) => !matches!(value, Value::Json(_) | Value::Array(_)),
        _ => false,
    }
}

/// The keys that one part of the AND gives, if any, and whether they say all that it says.
fn keys_of(part: &Expr) -> (Vec<Key>, bool) {
    match part {
        Expr::Compare { op: Comparison::Equal, left, right } if never_fails(left) && never_fails(right) => {
            let (event, subscription) = match (reads(left), reads(right)) {
                (Reads::Event, Reads::Subscription) => (left, right),
                (Reads::Subscription, Reads::Event) => (right, left),
                _ => return (Vec::new(), false),
            };
            (vec![Key::Equal { event: (**event).clone(), subscription: (**subscription).clone() }], true)
        }
        Expr::Contains { whole, part } if never_fails(whole) => match (reads(whole), reads(part)) {
            (Reads::Subscription, Reads::Event) => parts_of(whole, part),
            (Reads::Event, Reads::Subscription) if never_fails(part) => {
                (vec![Key::Leaves { event: (**whole).clone(), part: (**part).clone() }], true)
            }
            _ => (Vec::new(), false),
        },
        Expr::HasKey { value, key } if never_fails(value) && never_fails(key) => match (reads(value), reads(key)) {
            (Reads::Subscription, Reads::Event) => {
                let list = List { whole: Arc::new((**value).clone()), name: None, kind: ListKind::Names };
                (vec![Key::Listed { event: (**key).clone(), list }], true)
            }
            _ => (Vec::new(), false),
        },
        _ => (Vec::new(), false),
    }
}

/// `whole @> part`, of a subscription and an event.
fn parts_of(whole: &Expr, part: &Expr) -> (Vec<Key>, bool) {
    let whole = Arc::new(whole.clone());
    match part {
        Expr::Call { function: Function::BuildObject, arguments } => members_of(&whole, arguments),
        Expr::Call { function: Function::ToJsonb, arguments } if is_plain(&arguments[0]) && never_fails(part) => {
            let list = List { whole, name: None, kind: ListKind::Parts };
            (vec![Key::Listed { event: arguments[0].clone(), list }], true)
        }
        _ => match elements_of(part) {
            Some(elements) if never_fails(part) => listed(&whole, None, elements),
            Some(_) | None => (Vec::new(), false),
        },
    }
}

/// `whole @> jsonb_build_object('a', …, 'b', …)`
fn members_of(whole: &Arc<Expr>, arguments: &[Expr]) -> (Vec<Key>, bool) {
    let mut members: Vec<(&str, &Expr)> = Vec::new();
    for pair in arguments.chunks_exact(2) {
        match &pair[0] {
            // Of two values under one name the last one counts.
            Expr::Constant(Value::Text(name)) => {
                members.retain(|(known, _)| known != name);
                members.push((name, &pair[1]));
            }
            _ => return (Vec::new(), false),
        }
    }
    // One value that may fail makes the whole part one that may fail.
    if !members.iter().all(|(_, value)| never_fails(value)) {
        return (Vec::new(), false);
    }
    let (mut keys, mut exact) = (Vec::new(), true);
    for (name, value) in members {
        let (more, all) = match elements_of(value) {
            Some(elements) => listed(whole, Some(name), elements),
            None => {
                let key = Key::Member { event: value.clone(), whole: whole.clone(), name: name.into() };
                (vec![key], is_plain(value))
            }
        };
        exact &= all;
        keys.extend(more);
    }
    (keys, exact)
}

/// The elements of an array that is written as such.
fn elements_of(value: &Expr) -> Option<&[Expr]> {
    match value {
        Expr::Array(elements) | Expr::Call { function: Function::BuildArray, arguments: elements } => Some(elements),
        Expr::Call { function: Function::ToJsonb, arguments } => match &arguments[0] {
            Expr::Array(elements) => Some(elements),
            _ => None,
        },
        _ => None,
    }
}

/// `list @> jsonb_build_array(…)`: its first element that is no jsonb is a key.
fn listed(whole: &Arc<Expr>, name: Option<&str>, elements: &[Expr]) -> (Vec<Key>, bool) {
    let list = || List { whole: whole.clone(), name: name.map(Into::into), kind: ListKind::Elements };
    let plain = elements.iter().find(|element| is_plain(element));
    let keys = plain.map(|event| Key::Listed { event: event.clone(), list: list() });
    (keys.into_iter().collect(), plain.is_some() && elements.len() == 1)
}

/// The values that a part about the event allows, if it lists them.
fn anchor_of(part: &Expr) -> Option<Anchor> {
    let constant = |expr: &Expr| match expr {
        Expr::Constant(value) => Some(value.clone()),
        _ => None,
    };
    let (event, values) = match part {
        Expr::Compare { op: Comparison::Equal, left, right } => match (constant(left), constant(right)) {
            (None, Some(value)) => (&**left, vec![value]),
            (Some(value), None) => (&**right, vec![value]),
            (None, None) | (Some(_), Some(_)) => return None,
        },
        Expr::In { operand, list, negated: false } => {
            let plain = list.iter().map(|item| if item.widen.is_none() { constant(&item.expr) } else { None });
            (&**operand, plain.collect::<Option<Vec<_>>>()?)
        }
        _ => return None,
    };
    // Numbers of several types may be equal; only values of one type are looked up.
    let one_type = matches!(event, Expr::Column(_)) || is_plain(event);
    (reads(event) == Reads::Event && never_fails(event) && one_type).then(|| Anchor { event: event.clone(), values })
}

impl Terms {
    /// The parts of a checked condition.
    pub(crate) fn of(expr: Expr) -> Self {
        let parts = match expr {
            Expr::And(parts) => parts,
            Expr::Constant(Value::Bool(true)) => Vec::new(),
            other => vec![other],
        };
        let mut terms = Self {
            keyed: Vec::new(),
            keys: Vec::new(),
            keys_are_exact: true,
            of_event: Vec::new(),
            anchor: None,
            others: Vec::new(),
        };
        for part in parts {
            let (keys, are_exact) = keys_of(&part);
            if !keys.is_empty() {
                terms.keys_are_exact &= are_exact;
                terms.keys.extend(keys);
                terms.keyed.push(part);
            } else if matches!(reads(&part), Reads::Event | Reads::Nothing) {
                match anchor_of(&part) {
                    // First, so that what the index passes over by its anchor is passed over by evaluating too.
                    Some(anchor) if terms.anchor.is_none() => {
                        terms.anchor = Some(anchor);
                        terms.of_event.insert(0, part);
                    }
                    Some(_) | None => terms.of_event.push(part),
                }
            } else {
                terms.others.push(part);
            }
        }
        terms.keep_one_list();
        terms
    }

    /// A subscription stands under each of its list, so there is one list at most, and the last key.
    fn keep_one_list(&mut self) {
        let lists = self.keys.extract_if(.., |key| matches!(key, Key::Listed { .. }));
        let mut lists: Vec<Key> = lists.collect();
        self.keys_are_exact &= lists.len() <= 1;
        lists.truncate(1);
        self.keys.append(&mut lists);
    }

    /// All parts, in order.
    pub(crate) fn parts(&self) -> impl Iterator<Item = &Expr> {
        self.keyed.iter().chain(&self.of_event).chain(&self.others)
    }

    /// Memory that the parts and what was taken from them take, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let mut keys = 0;
        let mut shared: Option<&Arc<Expr>> = None;
        for key in &self.keys {
            keys += size_of::<Key>();
            keys += match key {
                Key::Equal { event, subscription } => event.bytes() + subscription.bytes(),
                Key::Member { event, whole, name } => {
                    let is_counted = shared.replace(whole).is_some_and(|last| Arc::ptr_eq(last, whole));
                    event.bytes() + name.len() + if is_counted { 0 } else { whole.bytes() }
                }
                Key::Listed { event, list } => event.bytes() + list.bytes(),
                Key::Leaves { event, part } => event.bytes() + part.bytes(),
            };
        }
        let anchor = |anchor: &Anchor| {
            let values = anchor.values.iter().map(|value| size_of::<Value<'_>>() + value.bytes());
            anchor.event.bytes() + values.sum::<usize>()
        };
        self.parts().map(Expr::bytes).sum::<usize>() + keys + self.anchor.as_ref().map_or(0, anchor)
    }

    /// Do all parts hold?
    pub(crate) fn all(&self, row: Row<'_, '_, '_>) -> Result<bool, Failure> {
        hold(self.parts(), row)
    }

    /// Do the parts that gave the keys hold?
    pub(crate) fn keyed_hold(&self, row: Row<'_, '_, '_>) -> Result<bool, Failure> {
        if self.keyed.is_empty() { Ok(true) } else { hold(&self.keyed, row) }
    }

    /// Do the parts about the event alone hold?
    pub(crate) fn of_event_hold(&self, row: Row<'_, '_, '_>) -> Result<bool, Failure> {
        if self.of_event.is_empty() { Ok(true) } else { hold(&self.of_event, row) }
    }

    /// Do the other parts hold?
    pub(crate) fn others_hold(&self, row: Row<'_, '_, '_>) -> Result<bool, Failure> {
        if self.others.is_empty() { Ok(true) } else { hold(&self.others, row) }
    }
}

/// Do these parts hold? The first that is not true decides.
fn hold<'e>(parts: impl IntoIterator<Item = &'e Expr>, row: Row<'_, '_, '_>) -> Result<bool, Failure> {
    caught(|| {
        let evaluator = Evaluator::new(row);
        for part in parts {
            if evaluator.truth(part)? != Some(true) {
                return Ok(false);
            }
        }
        Ok(true)
    })
}
