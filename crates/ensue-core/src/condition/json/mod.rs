//! What is a `jsonb` value here?
//!
//! A value is a run of nodes: a scalar is one node, an array or an object a head followed by the nodes of its members. So a
//! payload is parsed into a single vector, and any part of it is a slice of that vector. Objects are kept as
//! Postgres keeps them: each key once, shorter keys first, then by their bytes.

mod build;
mod compare;
mod parse;
mod print;

pub(crate) use build::of_plain;
pub(super) use build::{concat, object, of_value};
pub(super) use compare::{compare, contains, exists};
pub(super) use parse::parse;
pub(super) use print::{identity, print};
pub(crate) use print::{number_text, plain_number};

use std::borrow::Cow;
use std::cmp::Ordering;

/// How deeply a text cast to jsonb may be nested.
pub const DEPTH_MAX: usize = crate::json::DEPTH_MAX;

/// A scalar, or the head of an array or an object.
#[derive(Debug, Clone)]
pub enum Node<'a> {
    /// `null`
    Null,
    /// `true` or `false`
    Bool(bool),
    /// A number, as it was written.
    Number(Cow<'a, str>),
    /// A string, or the key of the value that follows it.
    Text(Cow<'a, str>),
    /// The head of an array.
    Array {
        /// How many elements it has.
        items: u32,
        /// How many nodes they take.
        nodes: u32,
    },
    /// The head of an object: key, value, key, value.
    Object {
        /// How many pairs it has.
        pairs: u32,
        /// How many nodes they take.
        nodes: u32,
    },
}

impl Node<'_> {
    /// How many nodes the value that begins here takes, with its head.
    pub(super) fn span(&self) -> usize {
        match self {
            Self::Array { nodes, .. } | Self::Object { nodes, .. } => *nodes as usize + 1,
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) => 1,
        }
    }

    /// What `jsonb_typeof` says.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "boolean",
            Self::Number(_) => "number",
            Self::Text(_) => "string",
            Self::Array { .. } => "array",
            Self::Object { .. } => "object",
        }
    }

    /// Is it neither array nor object?
    pub(crate) fn is_scalar(&self) -> bool {
        match self {
            Self::Null | Self::Bool(_) | Self::Number(_) | Self::Text(_) => true,
            Self::Array { .. } | Self::Object { .. } => false,
        }
    }

    /// The same node, for as long as nobody is asked to let go of anything.
    pub(super) fn into_owned(self) -> Node<'static> {
        match self {
            Self::Null => Node::Null,
            Self::Bool(value) => Node::Bool(value),
            Self::Number(text) => Node::Number(Cow::Owned(text.into_owned())),
            Self::Text(text) => Node::Text(Cow::Owned(text.into_owned())),
            Self::Array { items, nodes } => Node::Array { items, nodes },
            Self::Object { pairs, nodes } => Node::Object { pairs, nodes },
        }
    }

    /// The same node, borrowing its text.
    pub(super) fn borrowed(&self) -> Node<'_> {
        match self {
            Self::Null => Node::Null,
            Self::Bool(value) => Node::Bool(*value),
            Self::Number(text) => Node::Number(Cow::Borrowed(text)),
            Self::Text(text) => Node::Text(Cow::Borrowed(text)),
            Self::Array { items, nodes } => Node::Array { items: *items, nodes: *nodes },
            Self::Object { pairs, nodes } => Node::Object { pairs: *pairs, nodes: *nodes },
        }
    }
}

/// The order of keys in an object: by length, then by bytes.
pub(super) fn key_order(a: &str, b: &str) -> Ordering {
    a.len().cmp(&b.len()).then_with(|| a.as_bytes().cmp(b.as_bytes()))
}

/// The elements of an array; of anything else, none.
pub(super) fn items<'a>(value: &'a [Node<'a>]) -> Values<'a> {
    Values { rest: if matches!(value[0], Node::Array { .. }) { &value[1..] } else { &[] } }
}

/// The pairs of an object; of anything else, none.
pub(crate) fn pairs<'a>(value: &'a [Node<'a>]) -> Pairs<'a> {
    Pairs(Values { rest: if matches!(value[0], Node::Object { .. }) { &value[1..] } else { &[] } })
}

/// Values that stand one after another.
pub(crate) struct Values<'a> {
    rest: &'a [Node<'a>],
}

impl<'a> Iterator for Values<'a> {
    type Item = &'a [Node<'a>];

    fn next(&mut self) -> Option<Self::Item> {
        let (value, rest) = self.rest.split_at(self.rest.first()?.span());
        self.rest = rest;
        Some(value)
    }
}

/// Keys with their values.
pub(crate) struct Pairs<'a>(Values<'a>);

impl<'a> Iterator for Pairs<'a> {
    type Item = (&'a str, &'a [Node<'a>]);

    fn next(&mut self) -> Option<Self::Item> {
        match self.0.next()? {
            [Node::Text(key)] => Some((key, self.0.next()?)),
            _ => None,
        }
    }
}

/// The value under a key, if this is an object that has it.
pub(crate) fn field<'a>(value: &'a [Node<'a>], key: &str) -> Option<&'a [Node<'a>]> {
    for (its, found) in pairs(value) {
        match key_order(its, key) {
            Ordering::Less => {}
            Ordering::Equal => return Some(found),
            Ordering::Greater => return None,
        }
    }
    None
}

/// The element at a place of an array, from the end if negative. A scalar is taken for an array of itself by `->`, as
/// in Postgres, but not by a path.
pub(super) fn element<'a>(value: &'a [Node<'a>], at: i32, scalar_is_array: bool) -> Option<&'a [Node<'a>]> {
    let count = match &value[0] {
        Node::Array { items, .. } => i64::from(*items),
        head if head.is_scalar() && scalar_is_array => 1,
        _ => return None,
    };
    let at = if at < 0 { count + i64::from(at) } else { i64::from(at) };
    if at < 0 || at >= count {
        return None;
    }
    if value[0].is_scalar() {
        return Some(value);
    }
    items(value).nth(usize::try_from(at).ok()?)
}

/// One step of a path: a key of an object, or the place in an array written as a number.
pub(super) fn step<'a>(value: &'a [Node<'a>], part: &str) -> Option<&'a [Node<'a>]> {
    match &value[0] {
        Node::Object { .. } => field(value, part),
        Node::Array { .. } => {
            // C's strtol: blanks before the number, none behind it.
            let part = part.trim_start_matches(super::text_in::is_blank);
            if part.ends_with(super::text_in::is_blank) {
                return None;
            }
            element(value, super::text_in::int4(part).ok()?, false)
        }
        Node::Null | Node::Bool(_) | Node::Number(_) | Node::Text(_) => None,
    }
}
