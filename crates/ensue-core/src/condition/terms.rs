//! Which parts of a condition can an index look up?
//!
//! A condition is split at its AND. Of the parts, those that say that something of the event equals something of the
//! subscription become keys of a hash table; those about the event alone are evaluated once per event, however many
//! subscriptions share the condition; the rest is evaluated for each candidate. Only parts that cannot fail become
//! keys, so that an index never hides a failure that evaluating would show.

use super::eval::Evaluator;
use super::expr::{Comparison, Expr, Function};
use super::failure::Failure;
use super::guard::caught;
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
    /// `whole @> jsonb_build_object(name, event)`, where the event's side is no jsonb.
    /// All keys of one part share its `whole`.
    Member { event: Expr, whole: Arc<Expr>, name: Box<str> },
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
        Expr::Call { function: Function::Lower | Function::Upper, .. } => true,
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
        Expr::Call { function: Function::Lower | Function::Upper, .. } => true,
        Expr::Constant(value) => !matches!(value, Value::Json(_) | Value::Array(_)),
        _ => false,
    }
}

/// The keys that one part of the AND gives, if any.
fn keys_of(part: &Expr) -> Vec<Key> {
    match part {
        Expr::Compare { op: Comparison::Equal, left, right } if never_fails(left) && never_fails(right) => {
            match (reads(left), reads(right)) {
                (Reads::Event, Reads::Subscription) => {
                    vec![Key::Equal { event: (**left).clone(), subscription: (**right).clone() }]
                }
                (Reads::Subscription, Reads::Event) => {
                    vec![Key::Equal { event: (**right).clone(), subscription: (**left).clone() }]
                }
                _ => Vec::new(),
            }
        }
        Expr::Contains { whole, part } if never_fails(whole) => match (reads(whole), reads(part)) {
            (Reads::Subscription, Reads::Event) => members_of(whole, part),
            (Reads::Event, Reads::Subscription) if never_fails(part) => {
                vec![Key::Leaves { event: (**whole).clone(), part: (**part).clone() }]
            }
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// `whole @> jsonb_build_object('a', …, 'b', …)`: each value that is no jsonb is a key.
fn members_of(whole: &Expr, part: &Expr) -> Vec<Key> {
    let Expr::Call { function: Function::BuildObject, arguments } = part else { return Vec::new() };
    let mut members: Vec<(&str, &Expr)> = Vec::new();
    for pair in arguments.chunks_exact(2) {
        match &pair[0] {
            // Of two values under one name the last one counts.
            Expr::Constant(Value::Text(name)) => {
                members.retain(|(known, _)| known != name);
                members.push((name, &pair[1]));
            }
            _ => return Vec::new(),
        }
    }
    // One value that may fail makes the whole part one that may fail.
    if !members.iter().all(|(_, value)| never_fails(value)) {
        return Vec::new();
    }
    let plain = members.into_iter().filter(|(_, value)| is_plain(value));
    let whole = Arc::new(whole.clone());
    plain.map(|(name, value)| Key::Member { event: value.clone(), whole: whole.clone(), name: name.into() }).collect()
}

/// Do the keys of a part say all that it says? An object with a jsonb or with two values under one name says more.
fn is_exact(part: &Expr, keys: &[Key]) -> bool {
    match part {
        Expr::Contains { part, .. } => match &**part {
            Expr::Call { arguments, .. } => arguments.len() == 2 * keys.len(),
            _ => true,
        },
        _ => true,
    }
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
            let keys = keys_of(&part);
            if !keys.is_empty() {
                terms.keys_are_exact &= is_exact(&part, &keys);
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
        terms
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
