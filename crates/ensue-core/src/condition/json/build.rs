//! How is a new `jsonb` value put together?

use super::{Node, key_order};
use crate::condition::failure::Failure;
use crate::condition::float;
use crate::condition::meter::Meter;
use crate::condition::time;
use crate::condition::value::Value;
use std::borrow::Cow;
use std::cmp::Ordering;
use std::mem::size_of;

/// Copies of nodes are paid for by their size.
fn copy<'a>(from: &[Node<'a>], to: &mut Vec<Node<'a>>, meter: &Meter) -> Result<(), Failure> {
    meter.build((to.len() + from.len()) * size_of::<Node<'_>>())?;
    meter.steps(from.len())?;
    to.extend(from.iter().cloned());
    Ok(())
}

fn count(number: usize) -> Result<u32, Failure> {
    u32::try_from(number).map_err(|_| Failure::TooLarge(crate::condition::meter::VALUE_BYTES_MAX))
}

/// The node of a value that is neither jsonb nor array, as it stands inside an object. Those two have none of their own.
pub(crate) fn of_plain<'a>(value: &'a Value<'_>) -> Node<'a> {
    match value {
        Value::Null | Value::Json(_) | Value::Array(_) => Node::Null,
        Value::Bool(value) => Node::Bool(*value),
        Value::Int4(number) => Node::Number(number.to_string().into()),
        Value::Int8(number) => Node::Number(number.to_string().into()),
        Value::Numeric(number) => {
            let text = Cow::Owned(number.to_string());
            if number.scale().is_some() { Node::Number(text) } else { Node::Text(text) }
        }
        Value::Float8(number) => {
            let text = Cow::Owned(float::show(*number));
            if number.is_finite() { Node::Number(text) } else { Node::Text(text) }
        }
        Value::Text(text) => Node::Text(Cow::Borrowed(text)),
        Value::Time(micros) => Node::Text(time::show_in_json(*micros).into()),
        Value::Uuid(uuid) => Node::Text(uuid.to_string().into()),
    }
}

/// The jsonb of any value, as `to_jsonb` makes it.
pub(in crate::condition) fn of_value<'a>(value: &Value<'a>, meter: &Meter) -> Result<Vec<Node<'a>>, Failure> {
    let mut nodes = Vec::with_capacity(1);
    put_value(value, &mut nodes, meter)?;
    Ok(nodes)
}

fn put_value<'a>(value: &Value<'a>, to: &mut Vec<Node<'a>>, meter: &Meter) -> Result<(), Failure> {
    match value {
        Value::Text(text) => put_text(text.clone(), to, meter)?,
        Value::Json(json) => copy(json, to, meter)?,
        Value::Null
        | Value::Bool(_)
        | Value::Int4(_)
        | Value::Int8(_)
        | Value::Numeric(_)
        | Value::Float8(_)
        | Value::Time(_)
        | Value::Uuid(_) => to.push(of_plain(value).into_owned()),
        Value::Array(elements) => {
            let head = to.len();
            to.push(Node::Null);
            for element in elements.iter() {
                put_value(element, to, meter)?;
            }
            to[head] = Node::Array { items: count(elements.len())?, nodes: count(to.len() - head - 1)? };
        }
    }
    Ok(())
}

/// A string, paid for if it is a copy.
fn put_text<'a>(text: Cow<'a, str>, to: &mut Vec<Node<'a>>, meter: &Meter) -> Result<(), Failure> {
    if let Cow::Owned(text) = &text {
        meter.build(text.len())?;
    }
    to.push(Node::Text(text));
    Ok(())
}

/// An object of pairs in any order; of several with one key the last one stays.
pub(in crate::condition) fn object<'a>(
    mut pairs: Vec<(Cow<'a, str>, Vec<Node<'a>>)>,
    meter: &Meter,
) -> Result<Vec<Node<'a>>, Failure> {
    pairs.sort_by(|a, b| key_order(&a.0, &b.0));
    let mut nodes = vec![Node::Null];
    let mut kept = 0;
    let mut rest = pairs.into_iter().peekable();
    while let Some((key, value)) = rest.next() {
        if rest.peek().is_some_and(|next| next.0 == key) {
            continue;
        }
        kept += 1;
        put_text(key, &mut nodes, meter)?;
        meter.build((nodes.len() + value.len()) * size_of::<Node<'_>>())?;
        nodes.extend(value);
    }
    nodes[0] = Node::Object { pairs: kept, nodes: count(nodes.len() - 1)? };
    Ok(nodes)
}

/// `a || b`: objects are merged, everything else is joined as arrays, where what is no array is one of itself.
pub(in crate::condition) fn concat<'a>(
    a: &[Node<'a>],
    b: &[Node<'a>],
    meter: &Meter,
) -> Result<Vec<Node<'a>>, Failure> {
    let mut nodes = Vec::with_capacity(a.len() + b.len() + 1);
    nodes.push(Node::Null);
    if let (Node::Object { .. }, Node::Object { .. }) = (&a[0], &b[0]) {
        let kept = merge(a, b, &mut nodes, meter)?;
        nodes[0] = Node::Object { pairs: kept, nodes: count(nodes.len() - 1)? };
        return Ok(nodes);
    }
    let mut items = 0;
    for side in [a, b] {
        let elements = match &side[0] {
            Node::Array { items: its, .. } => {
                items += its;
                &side[1..]
            }
            Node::Null | Node::Bool(_) | Node::Number(_) | Node::Text(_) | Node::Object { .. } => {
                items += 1;
                side
            }
        };
        copy(elements, &mut nodes, meter)?;
    }
    nodes[0] = Node::Array { items, nodes: count(nodes.len() - 1)? };
    Ok(nodes)
}

/// Both are in order, so they are merged in one pass; where both have a key, `b` wins.
fn merge<'a>(a: &[Node<'a>], b: &[Node<'a>], to: &mut Vec<Node<'a>>, meter: &Meter) -> Result<u32, Failure> {
    let (mut a, mut b) = (&a[1..], &b[1..]);
    let mut kept = 0;
    loop {
        let order = match (a.first(), b.first()) {
            (None, None) => return Ok(kept),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(Node::Text(a)), Some(Node::Text(b))) => key_order(a, b),
            (Some(_), Some(_)) => Ordering::Equal,
        };
        let pair = |side: &[Node<'a>]| 1 + side[1].span();
        kept += 1;
        match order {
            Ordering::Less => {
                copy(&a[..pair(a)], to, meter)?;
                a = &a[pair(a)..];
            }
            Ordering::Greater | Ordering::Equal => {
                copy(&b[..pair(b)], to, meter)?;
                if order == Ordering::Equal {
                    a = &a[pair(a)..];
                }
                b = &b[pair(b)..];
            }
        }
    }
}
