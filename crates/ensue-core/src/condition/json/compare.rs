//! Which of two `jsonb` values is larger, and does one contain the other?

use super::{Node, field, items, pairs};
use crate::condition::failure::Failure;
use crate::condition::meter::Meter;
use crate::condition::numeric::Numeric;
use std::cmp::Ordering;

/// The order of the kinds: null, string, number, boolean, array, object.
fn rank(node: &Node<'_>) -> u8 {
    match node {
        Node::Null => 0,
        Node::Text(_) => 1,
        Node::Number(_) => 2,
        Node::Bool(_) => 3,
        Node::Array { .. } => 4,
        Node::Object { .. } => 5,
    }
}

/// The order of two values.
pub(in crate::condition) fn compare(a: &[Node<'_>], b: &[Node<'_>], meter: &Meter) -> Result<Ordering, Failure> {
    // Alone, a scalar is kept as an array of one element and compared as such: below an array of one or
    // more elements, above an empty one. Inside others it is itself.
    match (&a[0], &b[0]) {
        (scalar, Node::Array { items, .. }) if scalar.is_scalar() => {
            Ok(if *items == 0 { Ordering::Greater } else { Ordering::Less })
        }
        (Node::Array { items, .. }, scalar) if scalar.is_scalar() => {
            Ok(if *items == 0 { Ordering::Less } else { Ordering::Greater })
        }
        _ => compare_nodes(a, b, meter),
    }
}

/// Node by node: the heads of containers tell their sizes first, so two that differ in size are decided there.
fn compare_nodes(a: &[Node<'_>], b: &[Node<'_>], meter: &Meter) -> Result<Ordering, Failure> {
    for (a, b) in a.iter().zip(b) {
        meter.steps(1)?;
        let order = match (a, b) {
            (Node::Array { items: a, .. }, Node::Array { items: b, .. }) => a.cmp(b),
            (Node::Object { pairs: a, .. }, Node::Object { pairs: b, .. }) => a.cmp(b),
            _ => compare_scalars(a, b, meter)?,
        };
        if order != Ordering::Equal {
            return Ok(order);
        }
    }
    Ok(Ordering::Equal)
}

fn compare_scalars(a: &Node<'_>, b: &Node<'_>, meter: &Meter) -> Result<Ordering, Failure> {
    Ok(match (a, b) {
        (Node::Text(a), Node::Text(b)) => {
            meter.bytes(a.len().min(b.len()))?;
            a.as_bytes().cmp(b.as_bytes())
        }
        (Node::Number(a), Node::Number(b)) if a == b => Ordering::Equal,
        (Node::Number(a), Node::Number(b)) => Numeric::parse(a)?.cmp(&Numeric::parse(b)?),
        (Node::Bool(a), Node::Bool(b)) => a.cmp(b),
        _ => rank(a).cmp(&rank(b)),
    })
}

/// Is every part of `part` somewhere in `whole`, at the same place of the structure?
pub(in crate::condition) fn contains(whole: &[Node<'_>], part: &[Node<'_>], meter: &Meter) -> Result<bool, Failure> {
    match (&whole[0], &part[0]) {
        // An array contains a scalar that it has as an element: only here, at the top.
        (Node::Array { .. }, scalar) if scalar.is_scalar() => has_scalar(whole, scalar, meter),
        _ => contains_deep(whole, part, meter),
    }
}

fn contains_deep(whole: &[Node<'_>], part: &[Node<'_>], meter: &Meter) -> Result<bool, Failure> {
    meter.steps(1)?;
    match (&whole[0], &part[0]) {
        (Node::Object { pairs: have, .. }, Node::Object { pairs: want, .. }) => {
            if have < want {
                return Ok(false);
            }
            for (key, value) in pairs(part) {
                meter.steps(*have as usize)?;
                let Some(found) = field(whole, key) else { return Ok(false) };
                if !contains_deep(found, value, meter)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Node::Array { .. }, Node::Array { .. }) => {
            for wanted in items(part) {
                let found = match &wanted[0] {
                    scalar if scalar.is_scalar() => has_scalar(whole, scalar, meter)?,
                    _ => has_container(whole, wanted, meter)?,
                };
                if !found {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (a, b) if a.is_scalar() && b.is_scalar() => Ok(compare_scalars(a, b, meter)? == Ordering::Equal),
        _ => Ok(false),
    }
}

fn has_scalar(array: &[Node<'_>], scalar: &Node<'_>, meter: &Meter) -> Result<bool, Failure> {
    for item in items(array) {
        meter.steps(1)?;
        if item[0].is_scalar() && compare_scalars(&item[0], scalar, meter)? == Ordering::Equal {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has_container(array: &[Node<'_>], wanted: &[Node<'_>], meter: &Meter) -> Result<bool, Failure> {
    for item in items(array) {
        if !item[0].is_scalar() && contains_deep(item, wanted, meter)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Is the text a key of the object, a string of the array, or the string itself?
pub(in crate::condition) fn exists(value: &[Node<'_>], text: &str, meter: &Meter) -> Result<bool, Failure> {
    meter.steps(1)?;
    match &value[0] {
        Node::Object { pairs, .. } => {
            meter.steps(*pairs as usize)?;
            Ok(field(value, text).is_some())
        }
        Node::Array { items: count, .. } => {
            meter.steps(*count as usize)?;
            Ok(items(value).any(|item| matches!(&item[0], Node::Text(found) if found == text)))
        }
        Node::Text(found) => Ok(found == text),
        Node::Null | Node::Bool(_) | Node::Number(_) => Ok(false),
    }
}
