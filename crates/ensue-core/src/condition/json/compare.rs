//! Order and containment of `jsonb` values.

use super::{Node, Tree, decimal, key_order};
use crate::condition::failure::Failure;
use crate::condition::meter::Meter;
use std::cmp::Ordering;

/// Two arrays with more pairs of elements than this are compared by binary search.
const PAIRS_SCANNED_MAX: usize = 1 << 10;
/// Steps to compare two scalars, beside those for their texts.
const SCALAR_STEPS: usize = 4;
/// Steps of a sort to compare two short texts, which are in no order.
const SORT_STEPS: usize = 12;

/// The order of the kinds: null, string, number, boolean, array, object.
fn rank(node: Node) -> u8 {
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
pub(in crate::condition) fn compare(a: Tree<'_>, b: Tree<'_>, meter: &Meter) -> Result<Ordering, Failure> {
    // Alone, a scalar is kept as an array of one element and compared as such: below an array of one or
    // more elements, above an empty one. Inside others it is itself.
    match (a.head(), b.head()) {
        (scalar, Node::Array { items, .. }) if scalar.is_scalar() => {
            Ok(if items == 0 { Ordering::Greater } else { Ordering::Less })
        }
        (Node::Array { items, .. }, scalar) if scalar.is_scalar() => {
            Ok(if items == 0 { Ordering::Less } else { Ordering::Greater })
        }
        _ => compare_nodes(a, b, meter),
    }
}

/// Node by node: the heads of containers tell their sizes first, so two that differ in size are decided there.
fn compare_nodes(a: Tree<'_>, b: Tree<'_>, meter: &Meter) -> Result<Ordering, Failure> {
    for (a_node, b_node) in a.nodes().iter().zip(b.nodes()) {
        let order = match (*a_node, *b_node) {
            (Node::Array { items: a, .. }, Node::Array { items: b, .. }) => {
                meter.steps(1)?;
                a.cmp(&b)
            }
            (Node::Object { pairs: a, .. }, Node::Object { pairs: b, .. }) => {
                meter.steps(1)?;
                a.cmp(&b)
            }
            (a_node, b_node) => compare_scalars((a, a_node), (b, b_node), meter)?,
        };
        if order != Ordering::Equal {
            return Ok(order);
        }
    }
    Ok(Ordering::Equal)
}

/// A scalar, with the value that has its text.
type Scalar<'a> = (Tree<'a>, Node);

/// The order of two scalars.
fn compare_scalars(a: Scalar<'_>, b: Scalar<'_>, meter: &Meter) -> Result<Ordering, Failure> {
    meter.steps(match (a.1, b.1) {
        (Node::Text(its), Node::Text(other)) => SCALAR_STEPS + (its.bytes.min(other.bytes) / 16) as usize,
        (Node::Number(_), Node::Number(_)) => number_steps(a).max(number_steps(b)),
        _ => SCALAR_STEPS,
    })?;
    Ok(scalar_order(a, b))
}

/// Steps to compare a number with another that costs no more.
fn number_steps((tree, node): Scalar<'_>) -> usize {
    match node {
        Node::Number(span) if is_short_integer(tree.text(span)) => SCALAR_STEPS + 8,
        // Every digit is looked at two or three times.
        Node::Number(span) => SCALAR_STEPS + 16 + 6 * span.bytes as usize,
        Node::Null | Node::Bool(_) | Node::Text(_) | Node::Array { .. } | Node::Object { .. } => SCALAR_STEPS,
    }
}

/// The order of two scalars that is paid for: a total order, which a sort may rely on.
fn scalar_order((a_tree, a): Scalar<'_>, (b_tree, b): Scalar<'_>) -> Ordering {
    match (a, b) {
        (Node::Text(a), Node::Text(b)) => a_tree.text(a).as_bytes().cmp(b_tree.text(b).as_bytes()),
        (Node::Number(a), Node::Number(b)) => {
            let (a, b) = (a_tree.text(a), b_tree.text(b));
            if is_short_integer(a) && is_short_integer(b) { key_order(a, b) } else { decimal::compare(a, b) }
        }
        (Node::Bool(a), Node::Bool(b)) => a.cmp(&b),
        _ => rank(a).cmp(&rank(b)),
    }
}

/// Is it a number of few digits, without sign, point and exponent? JSON has no leading zeros, so the longer one is larger.
fn is_short_integer(number: &str) -> bool {
    number.len() <= 20 && number.bytes().all(|byte| byte.is_ascii_digit())
}

/// Is every part of `part` somewhere in `whole`, at the same place of the structure?
pub(in crate::condition) fn contains(whole: Tree<'_>, part: Tree<'_>, meter: &Meter) -> Result<bool, Failure> {
    match (whole.head(), part.head()) {
        // An array contains a scalar that it has as an element: only here, at the top.
        (Node::Array { .. }, scalar) if scalar.is_scalar() => has_scalar(whole, part, meter),
        _ => contains_deep(whole, part, meter),
    }
}

fn contains_deep(whole: Tree<'_>, part: Tree<'_>, meter: &Meter) -> Result<bool, Failure> {
    meter.steps(4)?;
    match (whole.head(), part.head()) {
        (Node::Object { pairs: have, .. }, Node::Object { pairs: want, .. }) => {
            if have < want {
                Ok(false)
            } else {
                contains_pairs(whole, part, meter)
            }
        }
        (Node::Array { .. }, Node::Array { .. }) => contains_items(whole, part, meter),
        (a, b) if a.is_scalar() && b.is_scalar() => {
            Ok(compare_scalars((whole, a), (part, b), meter)? == Ordering::Equal)
        }
        _ => Ok(false),
    }
}

/// Keys are in order on both sides, so one pass finds all of them.
fn contains_pairs(whole: Tree<'_>, part: Tree<'_>, meter: &Meter) -> Result<bool, Failure> {
    let mut have = whole.pairs();
    for (key, wanted) in part.pairs() {
        let found = loop {
            meter.steps(4)?;
            let Some((its, value)) = have.next() else { return Ok(false) };
            meter.bytes(if its.len() == key.len() { key.len() } else { 0 })?;
            match key_order(its, key) {
                Ordering::Less => {}
                Ordering::Equal => break value,
                Ordering::Greater => return Ok(false),
            }
        };
        if !contains_deep(found, wanted, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn contains_items(whole: Tree<'_>, part: Tree<'_>, meter: &Meter) -> Result<bool, Failure> {
    let mut sorted = None;
    let is_large = whole.members().saturating_mul(part.members()) > PAIRS_SCANNED_MAX;
    for wanted in part.items() {
        let found = if !wanted.head().is_scalar() {
            has_container(whole, wanted, meter)?
        } else if is_large {
            let scalars = match &mut sorted {
                Some(scalars) => scalars,
                none => none.insert(sorted_scalars(whole, meter)?),
            };
            is_among(scalars, wanted, meter)?
        } else {
            has_scalar(whole, wanted, meter)?
        };
        if !found {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The scalars among the elements of an array, in order. The whole sort is paid for before it begins: a comparison that could
/// fail would be no total order.
fn sorted_scalars<'a>(array: Tree<'a>, meter: &Meter) -> Result<Vec<Tree<'a>>, Failure> {
    meter.build(array.members() * size_of::<Tree<'_>>())?;
    let mut scalars: Vec<Tree<'a>> = array.items().filter(|item| item.head().is_scalar()).collect();
    if !is_sorted(&scalars, meter)? {
        let levels = scalars.len().ilog2() as usize + 1;
        meter.steps(levels.saturating_mul(level_steps(&scalars)))?;
        scalars.sort_unstable_by(|a, b| scalar_order((*a, a.head()), (*b, b.head())));
    }
    Ok(scalars)
}

fn is_sorted(scalars: &[Tree<'_>], meter: &Meter) -> Result<bool, Failure> {
    for (a, b) in scalars.iter().zip(scalars.iter().skip(1)) {
        if compare_scalars((*a, a.head()), (*b, b.head()), meter)? == Ordering::Greater {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Steps of a sort to compare each of these once. Two texts cost what the shorter one costs; the costliest number may be compared
/// with all others.
fn level_steps(scalars: &[Tree<'_>]) -> usize {
    let (mut numbers, mut number, mut others) = (0_usize, 0, 0_usize);
    for scalar in scalars {
        match scalar.head() {
            Node::Number(_) => {
                numbers += 1;
                number = number.max(number_steps((*scalar, scalar.head())));
            }
            Node::Text(span) => others = others.saturating_add(SORT_STEPS + (span.bytes / 16) as usize),
            Node::Null | Node::Bool(_) | Node::Array { .. } | Node::Object { .. } => others += SCALAR_STEPS,
        }
    }
    others.saturating_add(numbers.saturating_mul(number))
}

fn is_among(scalars: &[Tree<'_>], wanted: Tree<'_>, meter: &Meter) -> Result<bool, Failure> {
    let (mut low, mut high) = (0, scalars.len());
    while low < high {
        let middle = usize::midpoint(low, high);
        let its = scalars[middle];
        match compare_scalars((its, its.head()), (wanted, wanted.head()), meter)? {
            Ordering::Equal => return Ok(true),
            Ordering::Less => low = middle + 1,
            Ordering::Greater => high = middle,
        }
    }
    Ok(false)
}

fn has_scalar(array: Tree<'_>, scalar: Tree<'_>, meter: &Meter) -> Result<bool, Failure> {
    for item in array.items() {
        meter.steps(2)?;
        if item.head().is_scalar()
            && compare_scalars((item, item.head()), (scalar, scalar.head()), meter)? == Ordering::Equal
        {
            return Ok(true);
        }
    }
    Ok(false)
}

fn has_container(array: Tree<'_>, wanted: Tree<'_>, meter: &Meter) -> Result<bool, Failure> {
    for item in array.items() {
        meter.steps(2)?;
        if !item.head().is_scalar() && contains_deep(item, wanted, meter)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Is the text a key of the object, a string of the array, or the string itself?
pub(in crate::condition) fn exists(value: Tree<'_>, text: &str, meter: &Meter) -> Result<bool, Failure> {
    let is_same = |item: Tree<'_>| match item.head() {
        Node::Text(found) => {
            let found = item.text(found);
            meter.bytes(if found.len() == text.len() { text.len() } else { 0 })?;
            Ok(found == text)
        }
        _ => Ok(false),
    };
    meter.steps(1)?;
    match value.head() {
        Node::Object { .. } => Ok(value.field(text, meter)?.is_some()),
        Node::Array { .. } => {
            for item in value.items() {
                meter.steps(3)?;
                if is_same(item)? {
                    return Ok(true);
                }
            }
            Ok(false)
        }
        Node::Text(_) => is_same(value),
        Node::Null | Node::Bool(_) | Node::Number(_) => Ok(false),
    }
}
