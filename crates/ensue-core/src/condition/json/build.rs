//! New `jsonb` values.

use super::{Document, Jsonb, Node, Span, Tree, key_order};
use crate::condition::failure::Failure;
use crate::condition::meter::{Meter, VALUE_BYTES_MAX};
use crate::condition::value::Value;
use crate::condition::{float, time};
use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::Arc;

const TOO_LARGE: Failure = Failure::TooLarge(VALUE_BYTES_MAX);

fn count(number: usize) -> Result<u32, Failure> {
    u32::try_from(number).map_err(|_| TOO_LARGE)
}

/// A value in the making. Everything that is put into it is copied, and paid for by its size.
#[derive(Default)]
pub(super) struct Builder {
    nodes: Vec<Node>,
    text: String,
}

impl Builder {
    pub(super) fn with_capacity(nodes: usize) -> Self {
        Self { nodes: Vec::with_capacity(nodes), text: String::new() }
    }

    fn bytes(&self) -> usize {
        self.text.len() + self.nodes.len() * size_of::<Node>()
    }

    fn scalar(&mut self, text: &str, node: fn(Span) -> Node, meter: &Meter) -> Result<(), Failure> {
        meter.append(self.bytes(), text.len() + size_of::<Node>())?;
        let span = Span::new(self.text.len(), text.len()).ok_or(TOO_LARGE)?;
        self.text.push_str(text);
        self.nodes.push(node(span));
        Ok(())
    }

    fn copy(&mut self, tree: Tree<'_>, meter: &Meter) -> Result<(), Failure> {
        meter.steps(6 * tree.nodes.len())?;
        meter.append(self.bytes(), tree.bytes())?;
        self.copy_uncharged(tree);
        Ok(())
    }

    /// Copies a value that is paid for, or of which nothing is to be paid.
    pub(super) fn copy_uncharged(&mut self, tree: Tree<'_>) {
        for node in tree.nodes {
            let moved = |builder: &mut Self, span: Span| {
                let at = builder.text.len() as u32;
                builder.text.push_str(tree.text(span));
                Span { at, bytes: span.bytes }
            };
            let node = match *node {
                Node::Number(span) => Node::Number(moved(self, span)),
                Node::Text(span) => Node::Text(moved(self, span)),
                other @ (Node::Null | Node::Bool(_) | Node::Array { .. } | Node::Object { .. }) => other,
            };
            self.nodes.push(node);
        }
    }

    fn value(&mut self, value: &Value<'_>, meter: &Meter) -> Result<(), Failure> {
        match value {
            Value::Null => self.nodes.push(Node::Null),
            Value::Bool(value) => self.nodes.push(Node::Bool(*value)),
            Value::Int4(number) => self.scalar(&number.to_string(), Node::Number, meter)?,
            Value::Int8(number) => self.scalar(&number.to_string(), Node::Number, meter)?,
            Value::Numeric(number) => {
                meter.digits(number.digits())?;
                let node = if number.scale().is_some() { Node::Number } else { Node::Text };
                self.scalar(&number.to_string(), node, meter)?;
            }
            Value::Float8(number) => {
                meter.float()?;
                let node = if number.is_finite() { Node::Number } else { Node::Text };
                self.scalar(&float::show(*number), node, meter)?;
            }
            Value::Text(text) => self.scalar(text, Node::Text, meter)?,
            Value::Json(json) => self.copy(json.tree(), meter)?,
            Value::Time(micros) => self.scalar(&time::show_in_json(*micros), Node::Text, meter)?,
            Value::Uuid(uuid) => self.scalar(&uuid.to_string(), Node::Text, meter)?,
            Value::Array(elements) => {
                let head = self.nodes.len();
                self.nodes.push(Node::Null);
                for element in elements.iter() {
                    meter.steps(1)?;
                    self.value(element, meter)?;
                }
                let nodes = count(self.nodes.len() - head - 1)?;
                self.nodes[head] = Node::Array { items: count(elements.len())?, nodes };
            }
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Jsonb<'static> {
        let all = 0..self.nodes.len();
        Jsonb::Built(Arc::new(Document { nodes: self.nodes, text: Cow::Owned(self.text) }), all)
    }
}

/// The jsonb of any value, as `to_jsonb` makes it.
pub(crate) fn of_value(value: &Value<'_>, meter: &Meter) -> Result<Jsonb<'static>, Failure> {
    let mut builder = Builder::default();
    builder.value(value, meter)?;
    Ok(builder.finish())
}

/// An object of pairs in any order; of several with one key the last one stays.
pub(in crate::condition) fn object(
    mut pairs: Vec<(Cow<'_, str>, Value<'_>)>,
    meter: &Meter,
) -> Result<Jsonb<'static>, Failure> {
    let key_bytes: usize = pairs.iter().map(|(key, _)| key.len() + 16).sum();
    meter.bytes(key_bytes.saturating_mul(1 + pairs.len().checked_ilog2().unwrap_or(0) as usize))?;
    pairs.sort_by(|a, b| key_order(&a.0, &b.0));
    let mut builder = Builder::default();
    builder.nodes.push(Node::Null);
    let mut kept = 0;
    let mut rest = pairs.into_iter().peekable();
    while let Some((key, value)) = rest.next() {
        if rest.peek().is_some_and(|next| next.0 == key) {
            continue;
        }
        kept += 1;
        builder.scalar(&key, Node::Text, meter)?;
        builder.value(&value, meter)?;
    }
    builder.nodes[0] = Node::Object { pairs: kept, nodes: count(builder.nodes.len() - 1)? };
    Ok(builder.finish())
}

/// `a || b`: objects are merged, everything else is joined as arrays, where what is no array is one of itself.
pub(in crate::condition) fn concat(a: Tree<'_>, b: Tree<'_>, meter: &Meter) -> Result<Jsonb<'static>, Failure> {
    let mut builder = Builder::default();
    builder.nodes.push(Node::Null);
    if let (Node::Object { .. }, Node::Object { .. }) = (a.head(), b.head()) {
        let kept = merge(a, b, &mut builder, meter)?;
        builder.nodes[0] = Node::Object { pairs: kept, nodes: count(builder.nodes.len() - 1)? };
        return Ok(builder.finish());
    }
    let mut items = 0;
    for side in [a, b] {
        let elements = match side.head() {
            Node::Array { items: its, .. } => {
                items += its;
                side.slice(&side.nodes[1..])
            }
            Node::Null | Node::Bool(_) | Node::Number(_) | Node::Text(_) | Node::Object { .. } => {
                items += 1;
                side
            }
        };
        builder.copy(elements, meter)?;
    }
    builder.nodes[0] = Node::Array { items, nodes: count(builder.nodes.len() - 1)? };
    Ok(builder.finish())
}

/// Both are in order, so they are merged in one pass; where both have a key, `b` wins.
fn merge(a: Tree<'_>, b: Tree<'_>, to: &mut Builder, meter: &Meter) -> Result<u32, Failure> {
    let (mut a, mut b) = (a.pairs().peekable(), b.pairs().peekable());
    let mut kept = 0;
    loop {
        meter.steps(4)?;
        let order = match (a.peek(), b.peek()) {
            (None, None) => return Ok(kept),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some((a, _)), Some((b, _))) => {
                meter.bytes(a.len().min(b.len()))?;
                key_order(a, b)
            }
        };
        let pair = match order {
            Ordering::Less => a.next(),
            Ordering::Greater => b.next(),
            Ordering::Equal => {
                a.next();
                b.next()
            }
        };
        if let Some((key, value)) = pair {
            kept += 1;
            to.scalar(key, Node::Text, meter)?;
            to.copy(value, meter)?;
        }
    }
}
